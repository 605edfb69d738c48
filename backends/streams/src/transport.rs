//! The transport over sockets.

use std::sync::Arc;

use unipgas_core::Result;
use unipgas_core::bundle::Tag;
use unipgas_core::registry::Opening;
use unipgas_core::streams::{EventReceiver, StreamBackend, StreamTransport};
use unipgas_core::transport::Transport;

use crate::backend::TAG;
use crate::network::SocketStreams;
use crate::options::StreamsOptions;
use crate::stream::Listener;

impl SocketStreams {
    /// Opens the transport with the options of UNIPGAS_STREAMS. If other hosts take part, it always uses TCP. Errors:
    /// [`Error::InvalidArgument`](unipgas_core::Error::InvalidArgument) for wrong options, [`Error::Os`](unipgas_core::Error::Os).
    pub fn from_env(opening: &Opening) -> Result<StreamTransport<Self>> {
        let mut options = StreamsOptions::from_env()?;
        options.tcp |= opening.other_hosts;
        SocketStreams::open(options, opening.beside.clone())
    }

    /// Begins to listen. `beside`: the first transport of the process, if it is another one. Errors: [`Error::Os`](unipgas_core::Error::Os).
    pub fn open(
        options: StreamsOptions,
        beside: Option<Arc<dyn Transport>>,
    ) -> Result<StreamTransport<Self>> {
        let owner = Arc::new(EventReceiver::default());
        let sockets = Arc::new(SocketStreams::listen(options, owner.clone())?);
        StreamTransport::open(sockets, &owner, beside)
    }
}

impl StreamBackend for SocketStreams {
    const NAME: &'static str = "streams";
    const TAG: Tag = TAG;

    fn is_common(&self, _: &[u8]) -> bool {
        true
    }
}

/// Whether this host can open a listening socket. Errors: the reason.
pub fn probe() -> std::result::Result<(), String> {
    Listener::open(false)
        .map(drop)
        .map_err(|error| error.to_string())
}
