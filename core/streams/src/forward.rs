//! Calls that channels over streams forward.

/// For an `impl Channel` with a field `requests`: forwards the calls that requests execute on each network.
#[macro_export]
macro_rules! carried_out_by_requests {
    () => {
        fn deliver(
            &self,
            inbox: $crate::engine::op::Inbox<'_>,
            record: $crate::engine::inbox::Record,
            flags: $crate::engine::Flags,
            context: u64,
        ) -> $crate::base::Result<$crate::engine::Outcome> {
            self.requests.deliver(inbox, record, flags, context)
        }

        fn chains(&self) -> bool {
            self.requests.chains()
        }

        fn carries(&self) -> bool {
            self.requests.carries()
        }

        unsafe fn put_deliver(
            &self,
            src: $crate::engine::Local,
            dst: $crate::engine::Remote<'_>,
            len: usize,
            inbox: $crate::engine::op::Inbox<'_>,
            record: $crate::engine::inbox::Record,
            flags: $crate::engine::Flags,
            context: u64,
        ) -> $crate::base::Result<$crate::engine::Outcome> {
            let requests = &self.requests;
            // SAFETY:
            // - contract of `Channel::put_deliver`: the bytes at `src` are valid.
            unsafe { requests.put_deliver(src, dst, len, inbox, record, flags, context) }
        }

        fn active_message(
            &self,
            to: $crate::engine::Remote<'_>,
            message: &[u8],
            reply: $crate::engine::op::ReplyBuffer,
            flags: $crate::engine::Flags,
            context: u64,
        ) -> $crate::base::Result<$crate::engine::Outcome> {
            self.requests
                .active_message(to, message, reply, flags, context)
        }

        fn report(&self, sink: &mut dyn FnMut($crate::engine::Completion)) {
            self.requests.report(sink);
        }

        fn pending(&self) -> usize {
            self.requests.pending()
        }
    };
}
