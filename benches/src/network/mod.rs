//! The limits of a network: the cost of the same exchange over the kernel's TCP, and in a bare loop over the libfabric provider that unipgas uses.
//!
//! All run in turn between the same processes. Processes poll while they wait, as unipgas does before it sleeps.

pub mod hosts;
pub mod hub;
mod loops;
mod provider;
mod tcp;

use std::cell::OnceCell;
use std::net::IpAddr;

use unipgas_backends::ofi::choice::{ProviderSelector, choose};
use unipgas_backends::ofi::library::LibfabricLibrary;

use crate::case::{Case, Metric};
use crate::ctx::BenchContext;
use crate::worker::Body;
use hub::HubConnection;
use provider::{Provider, ProviderChoice};
use tcp::Tcp;

/// The network state of a process.
pub(crate) struct BenchNetwork {
    /// The connection to the meeting point.
    pub wire: HubConnection,
    tcp: OnceCell<Result<Tcp, String>>,
    theirs: OnceCell<Result<Provider, String>>,
    theirs_to_sleep_at: OnceCell<Result<Provider, String>>,
    ours: OnceCell<Result<Provider, String>>,
}

impl BenchNetwork {
    /// Connects to the hub of `token`.
    pub fn join(token: &str, rank: usize) -> Result<BenchNetwork, String> {
        Ok(BenchNetwork {
            wire: HubConnection::join(token, rank)?,
            tcp: OnceCell::new(),
            theirs: OnceCell::new(),
            theirs_to_sleep_at: OnceCell::new(),
            ours: OnceCell::new(),
        })
    }

    /// The provider that unipgas uses, as one word, and the release of libfabric.
    pub fn provider_name(&self) -> String {
        let wish = ProviderSelector::from_env();
        let name = wish.and_then(|wish| choose(&wish, self.other_hosts()));
        let release = LibfabricLibrary::get().map(LibfabricLibrary::release);
        match (name, release) {
            (Ok(info), Ok((major, minor))) => format!("{} {major}.{minor}", info.provider()),
            _ => "none -".into(),
        }
    }

    /// The address of the provider on this host, else the one on the connection to the command.
    fn address(&self) -> IpAddr {
        let chosen =
            ProviderSelector::from_env().and_then(|wish| choose(&wish, self.other_hosts()));
        let address = chosen.ok().and_then(|info| info.address());
        address.unwrap_or(self.wire.here)
    }

    /// Whether the processes are on several hosts. On one host, the command is reached over loopback.
    fn other_hosts(&self) -> bool {
        !self.wire.here.is_loopback()
    }
}

impl BenchContext {
    /// The TCP connections. The first call makes them; all processes make it at the same time.
    fn tcp(&self) -> Result<&Tcp, String> {
        let network = self.network()?;
        let tcp = network
            .tcp
            .get_or_init(|| together(self, Tcp::connect(self, network.address())));
        tcp.as_ref().map_err(String::clone)
    }

    /// The provider's objects. The first call opens them; all processes make it at the same time.
    fn provider(&self, whose: ProviderChoice) -> Result<&Provider, String> {
        let network = self.network()?;
        let place = match whose {
            ProviderChoice::Theirs => &network.theirs,
            ProviderChoice::TheirsToSleepAt => &network.theirs_to_sleep_at,
            ProviderChoice::Ours => &network.ours,
        };
        let open = || together(self, Provider::open(self, whose, network.other_hosts()));
        place.get_or_init(open).as_ref().map_err(String::clone)
    }
}

/// `made`, if it is `Ok` in all processes.
fn together<T>(ctx: &BenchContext, made: Result<T, String>) -> Result<T, String> {
    match ctx.all(made.is_ok()) {
        true => made,
        false => Err(made.err().unwrap_or("another process has none".into())),
    }
}

/// The limits of a case.
pub fn bodies(case: &Case) -> Vec<Body> {
    let body = |api, run| Body { api, run };
    match case.metric {
        Metric::PutNotice => vec![
            body("bare/tcp", tcp::ping_pong),
            body("bare/tcp_blocking", tcp::ping_pong_blocking),
            body("provider", loops::theirs::write_data),
            body("provider/fd", loops::theirs_to_sleep_at::write_data),
            body("libfabric", loops::ours::write_data),
        ],
        Metric::FetchAdd => vec![
            body("bare/tcp", tcp::round_trip),
            body("provider", loops::theirs::fetch_add),
            body("provider/fd", loops::theirs_to_sleep_at::fetch_add),
            body("provider/ask", loops::ask),
            body("libfabric", loops::ours::fetch_add),
        ],
        Metric::Read => vec![
            body("bare/tcp", tcp::round_trip),
            body("provider", loops::theirs::read),
            body("provider/fd", loops::theirs_to_sleep_at::read),
            body("libfabric", loops::ours::read),
        ],
        Metric::PutRate => vec![
            body("bare/tcp", tcp::rate),
            body("provider", loops::theirs::rate),
            body("provider/fd", loops::theirs_to_sleep_at::rate),
            body("libfabric", loops::ours::rate),
        ],
        Metric::Bandwidth => vec![
            body("bare/tcp", tcp::stream),
            body("provider", loops::theirs::bandwidth),
            body("provider/fd", loops::theirs_to_sleep_at::bandwidth),
            body("libfabric", loops::ours::bandwidth),
        ],
        Metric::FiTagged => vec![
            body("bare/tcp", tcp::ping_pong),
            body("provider", loops::theirs::tagged),
            body("provider/fd", loops::theirs_to_sleep_at::tagged),
            body("libfabric", loops::ours::tagged),
        ],
        Metric::Barrier => vec![
            body("bare/tcp", tcp::barrier),
            body("provider", loops::theirs::barrier),
            body("provider/fd", loops::theirs_to_sleep_at::barrier),
            body("libfabric", loops::ours::barrier),
        ],
        Metric::Message => vec![
            body("bare/tcp", tcp::ping_pong),
            body("provider", loops::theirs::tagged),
        ],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
