//! Parts of doubles of transports, for tests.

/// For an `impl Channel`: operations that the double does not have.
macro_rules! unsupported_operations {
    () => {
        unsafe fn put(
            &self,
            _: $crate::Local,
            _: $crate::Remote<'_>,
            _: usize,
            _: $crate::Flags,
            _: u64,
        ) -> $crate::Result<$crate::Outcome> {
            Err($crate::Error::Unsupported)
        }

        unsafe fn get(
            &self,
            _: $crate::Local,
            _: $crate::Remote<'_>,
            _: usize,
            _: $crate::Flags,
            _: u64,
        ) -> $crate::Result<$crate::Outcome> {
            Err($crate::Error::Unsupported)
        }

        fn notify(
            &self,
            _: $crate::Notice<'_>,
            _: $crate::Flags,
            _: u64,
        ) -> $crate::Result<$crate::Outcome> {
            Err($crate::Error::Unsupported)
        }

        unsafe fn put_notify(
            &self,
            _: $crate::Local,
            _: $crate::Remote<'_>,
            _: usize,
            _: $crate::Notice<'_>,
            _: $crate::Flags,
            _: u64,
        ) -> $crate::Result<$crate::Outcome> {
            Err($crate::Error::Unsupported)
        }

        unsafe fn atomic(
            &self,
            _: $crate::Remote<'_>,
            _: &$crate::AtomicRequest,
            _: u64,
            _: $crate::Flags,
            _: u64,
        ) -> $crate::Result<$crate::Outcome> {
            Err($crate::Error::Unsupported)
        }

        fn deliver(
            &self,
            _: $crate::op::Inbox<'_>,
            _: $crate::inbox::Record,
            _: $crate::Flags,
            _: u64,
        ) -> $crate::Result<$crate::Outcome> {
            Err($crate::Error::Unsupported)
        }

        fn active_message(
            &self,
            _: $crate::Remote<'_>,
            _: &[u8],
            _: $crate::op::ReplyBuffer,
            _: $crate::Flags,
            _: u64,
        ) -> $crate::Result<$crate::Outcome> {
            Err($crate::Error::Unsupported)
        }
    };
}
pub(crate) use unsupported_operations;
