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
use crate::worker::{self, Body, Run};
use hub::HubConnection;
use provider::{Provider, ProviderChoice};
use tcp::Tcp;

/// The network state of a process.
pub(crate) struct BenchNetwork {
    /// The connection to the meeting point.
    pub wire: HubConnection,
    tcp: OnceCell<Result<Tcp, String>>,
    /// By [`ProviderChoice`].
    providers: [OnceCell<Result<Provider, String>>; 3],
}

impl BenchNetwork {
    /// Connects to the hub of `token`.
    pub fn join(token: &str, rank: usize) -> Result<BenchNetwork, String> {
        Ok(BenchNetwork {
            wire: HubConnection::join(token, rank)?,
            tcp: OnceCell::new(),
            providers: Default::default(),
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

    /// The objects of the provider that this column measures. The first call opens them; all processes make it at the same time.
    fn provider(&self) -> Result<&Provider, String> {
        let network = self.network()?;
        let whose = match self.column.get() {
            "libfabric" => ProviderChoice::Ours,
            "provider/fd" => ProviderChoice::TheirsToSleepAt,
            _ => ProviderChoice::Theirs,
        };
        let place = &network.providers[whose as usize];
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
    let (kernel, provider): (Run, Run) = match case.metric {
        Metric::PutNotice => (tcp::ping_pong, loops::write_data),
        Metric::FetchAdd => (tcp::round_trip, loops::fetch_add),
        Metric::Read => (tcp::round_trip, loops::read),
        Metric::PutRate => (tcp::rate, loops::rate),
        Metric::Bandwidth => (tcp::stream, loops::bandwidth),
        Metric::FiTagged | Metric::Message => (tcp::ping_pong, loops::tagged),
        Metric::Barrier => (tcp::barrier, loops::barrier),
        _ => return Vec::new(),
    };
    let mut all = vec![("bare/tcp", kernel), ("provider", provider)];
    match case.metric {
        Metric::PutNotice => all.push(("bare/tcp_blocking", tcp::ping_pong_blocking)),
        Metric::FetchAdd => all.push(("provider/ask", loops::ask)),
        _ => {}
    }
    if case.metric != Metric::Message {
        all.extend([("provider/fd", provider), ("libfabric", provider)]);
    }
    worker::bodies(&all)
}

#[cfg(test)]
mod tests;
