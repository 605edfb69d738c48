//! The first contact with a peer. If a firewall drops packets or no route exists, providers retry for minutes, and some for ever. This module finds
//! the reason at two ports of the peer: its [lifeline](crate::lifeline), and its provider's port if this is a TCP port.

use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;

use crate::choice;
use crate::liveness_listener::{ProbeResult, Try};

/// Looks without an answer after which a port counts as silent.
pub const SILENT: u32 = 10;
/// Refusals at the provider's port alone after which the host is the cause. A process that leaves also closes one port before the other.
const REFUSED: u32 = 3;
/// Maximum number of looks if the provider's port is unknown.
const UNSEEN: u32 = 120;

/// Result of the looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finding {
    /// The contact may still succeed.
    Hope,
    /// The process has ended.
    Gone,
    /// Neither port answers.
    Nobody,
    /// The host answers, but not at the provider's port.
    Dropped,
    /// The process lives, but its host refuses connections at the provider's port.
    Refused,
    /// The process may live, but the contact has not succeeded in time.
    Late,
    /// The kernel has no route to the peer.
    NoWay(Errno),
}

/// Tries at one port.
#[derive(Default)]
struct Port {
    r#try: Option<Try>,
    silent: u32,
    refused: u32,
    answers: bool,
}

impl Port {
    fn look(&mut self, address: &SocketAddr) {
        match self.r#try.as_ref().map(Try::look) {
            Some(ProbeResult::Nothing) => self.silent += 1,
            Some(ProbeResult::There) => {
                (self.silent, self.refused, self.answers) = (0, 0, true);
                self.r#try = None;
            }
            Some(ProbeResult::Gone) => {
                (self.silent, self.answers) = (0, false);
                self.refused += 1;
                self.r#try = None;
            }
            None => self.r#try = Try::begin(address),
        }
    }
}

/// A first contact in progress.
#[derive(Default)]
pub(crate) struct Contact {
    lifeline: Port,
    provider: Port,
    looks: u32,
}

impl Contact {
    /// Looks again, some time after the previous look.
    pub fn look(
        &mut self,
        lifeline: Option<&SocketAddr>,
        provider: Option<&SocketAddr>,
    ) -> Finding {
        self.looks += 1;
        if let Some(at) = lifeline {
            self.lifeline.look(at);
        }
        // The process itself accepts connections at this port, and a stopped process has room for few. So the tries end with the first answer.
        if let Some(at) = provider.filter(|_| !self.provider.answers) {
            self.provider.look(at);
        }
        let (process, port) = (&self.lifeline, &self.provider);
        if process.refused > 0 {
            return Finding::Gone;
        }
        match provider {
            Some(_) if port.answers => Finding::Hope,
            Some(_) if process.answers && port.silent >= SILENT => Finding::Dropped,
            Some(_) if process.answers && port.refused >= REFUSED => Finding::Refused,
            Some(_) if port.refused >= SILENT => Finding::Gone,
            Some(_) if port.silent >= SILENT => Finding::Nobody,
            None if process.silent >= SILENT => Finding::Nobody,
            None if self.looks >= UNSEEN => Finding::Late,
            _ => Finding::Hope,
        }
    }
}

impl Contact {
    /// The provider has given up: returns the reason.
    pub fn give_up(&self, at: Option<&SocketAddr>) -> Finding {
        let ports = [&self.lifeline, &self.provider];
        if let Some(error) = at.and_then(Try::begin).and_then(|new| new.no_way) {
            return Finding::NoWay(error);
        }
        match ports.iter().any(|port| port.answers || port.refused > 0) {
            false if ports.iter().any(|port| port.silent > 0) => Finding::Nobody,
            _ => Finding::Gone,
        }
    }
}

/// Ports of a process. `name`: the name of its endpoint.
pub(crate) struct Whereabouts<'a> {
    pub name: &'a [u8],
    pub lifeline: Option<&'a SocketAddr>,
}

/// The network of this process, for error texts.
#[derive(Debug, Clone)]
pub(crate) struct Here {
    /// The provider.
    pub provider: String,
    /// The interface, with its address.
    pub interface: String,
    /// Other usable interfaces.
    pub others: Vec<String>,
}

impl Here {
    /// Whether endpoint names of the provider contain TCP ports.
    fn is_tcp(&self) -> bool {
        let mut parts = self.provider.split(';');
        parts.any(|part| matches!(part, "tcp" | "sockets" | "net"))
    }

    /// The TCP port of an endpoint with this name, if its provider uses TCP.
    pub fn port(&self, name: &[u8]) -> Option<SocketAddr> {
        self.is_tcp().then(|| choice::socket(name)).flatten()
    }

    /// Describes the finding and a remedy. `None`: the network is not the cause.
    pub fn explain(&self, finding: Finding, peer: &Whereabouts<'_>) -> Option<String> {
        let Here {
            provider,
            interface,
            ..
        } = self;
        let ip = peer.lifeline.map(SocketAddr::ip);
        let host = ip.or_else(|| choice::ip(peer.name));
        let host = host.map_or_else(|| "the peer's host".into(), |ip: IpAddr| ip.to_string());
        let port = choice::socket(peer.name).map_or(0, |at| at.port());
        let others = match &self.others[..] {
            [] => "the address that reaches it".into(),
            others => format!("another one: {}", others.join(", ")),
        };
        let open = "let the firewall between them pass the provider's ports (FI_TCP_PORT_LOW_RANGE and FI_TCP_PORT_HIGH_RANGE say which)";
        Some(match finding {
            Finding::Hope | Finding::Gone => return None,
            Finding::Nobody => format!(
                "no answer from {host}{}, tried from {interface}: the host is down, or a firewall is between, or this is the wrong interface of one of the two: \
                 UNIPGAS_OFI_INTERFACE names {others}",
                self.port(peer.name)
                    .map_or(String::new(), |at| format!(" at port {}", at.port())),
            ),
            Finding::Dropped => format!(
                "no answer from {host} at port {port}, where libfabric's provider {provider} listens, tried from {interface}, though the host answers at another \
                 port: {open}, or name another interface by UNIPGAS_OFI_INTERFACE"
            ),
            Finding::Refused => format!(
                "{host} refuses at port {port}, where libfabric's provider {provider} listens, tried from {interface}, though the process is there: {open}"
            ),
            Finding::NoWay(error) => format!(
                "{host} is not reached from {interface}: {error}: this is the wrong interface of one of the two: UNIPGAS_OFI_INTERFACE names {others}"
            ),
            Finding::Late => format!(
                "the process at {host} is there, but libfabric's provider {provider} does not reach it from {interface}: a firewall is between, or \
                 UNIPGAS_OFI_INTERFACE is to name {others}"
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::OwnedFd;

    use super::*;

    /// A port that drops connection requests: its backlog is full.
    fn deaf() -> (TcpListener, Vec<Try>, SocketAddr) {
        let deaf = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = deaf.local_addr().unwrap();
        // SAFETY:
        // - an open socket. The call shortens its backlog.
        unsafe { libc::listen(std::os::fd::AsRawFd::as_raw_fd(&deaf), 0) };
        let fill = (0..8).filter_map(|_| Try::begin(&at)).collect();
        (deaf, fill, at)
    }

    /// A port without a listener. It stays bound, so no other process can listen there.
    fn closed() -> (OwnedFd, SocketAddr) {
        let (family, kind) = (
            rustix::net::AddressFamily::INET,
            rustix::net::SocketType::STREAM,
        );
        let socket = rustix::net::socket(family, kind, None).unwrap();
        let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
        rustix::net::bind(&socket, &any).unwrap();
        let bound = rustix::net::getsockname(&socket).unwrap();
        (socket, bound.try_into().unwrap())
    }

    fn end(
        lifeline: Option<&SocketAddr>,
        provider: Option<&SocketAddr>,
        listening: &TcpListener,
    ) -> (Finding, u32) {
        let mut contact = Contact::default();
        loop {
            std::thread::sleep(std::time::Duration::from_millis(2));
            while listening.accept().is_ok() {}
            match contact.look(lifeline, provider) {
                Finding::Hope if contact.looks < 2 * UNSEEN => {}
                found => return (found, contact.looks),
            }
        }
    }

    #[test]
    fn what_is_wrong_is_seen_at_the_two_ports() {
        let (_bound, closed) = closed();
        let listening = TcpListener::bind("127.0.0.1:0").unwrap();
        listening.set_nonblocking(true).unwrap();
        let there = listening.local_addr().unwrap();
        let (_deaf, _fill, deaf) = deaf();
        for (lifeline, provider, expected) in [
            (Some(&there), Some(&deaf), Finding::Dropped),
            (Some(&there), Some(&closed), Finding::Refused),
            (Some(&closed), Some(&deaf), Finding::Gone),
            (Some(&closed), None, Finding::Gone),
            (Some(&deaf), Some(&deaf), Finding::Nobody),
            (Some(&deaf), None, Finding::Nobody),
            (None, Some(&deaf), Finding::Nobody),
            (Some(&deaf), Some(&closed), Finding::Gone),
            (Some(&there), None, Finding::Late),
            (None, None, Finding::Late),
            // The contact waits for a stopped process while its host answers.
            (Some(&there), Some(&there), Finding::Hope),
            (Some(&deaf), Some(&there), Finding::Hope),
        ] {
            let (found, looks) = end(lifeline, provider, &listening);
            assert_eq!(found, expected, "{lifeline:?} {provider:?}");
            assert!(found == Finding::Hope || looks <= UNSEEN, "{looks}");
        }
    }

    #[test]
    fn why_a_provider_gives_up_is_looked_for() {
        // A broadcast address refuses connections.
        let nowhere = "255.255.255.255:9".parse().unwrap();
        let mut contact = Contact::default();
        assert!(matches!(contact.give_up(Some(&nowhere)), Finding::NoWay(_)));
        let (_deaf, _fill, deaf) = deaf();
        assert_eq!(contact.give_up(Some(&deaf)), Finding::Gone);
        for _ in 0..3 {
            contact.look(Some(&deaf), Some(&deaf));
        }
        assert_eq!(contact.give_up(Some(&deaf)), Finding::Nobody);
    }

    #[test]
    fn what_is_said_is_one_line_that_names_what_was_tried() {
        let here = Here {
            provider: "tcp;ofi_rxm".into(),
            interface: "eth0 (10.0.0.1)".into(),
            others: vec!["eth1 (10.0.1.1)".into()],
        };
        // SAFETY:
        // - zeros are a valid value.
        let mut name: libc::sockaddr_in = unsafe { std::mem::zeroed() };
        name.sin_family = libc::AF_INET as u16;
        name.sin_port = 5001u16.to_be();
        name.sin_addr.s_addr = u32::from_ne_bytes([10, 0, 0, 2]);
        // SAFETY:
        // - both types have the same size.
        let name: [u8; 16] = unsafe { std::mem::transmute(name) };
        let lifeline = "10.0.0.2:41000".parse().unwrap();
        let peer = Whereabouts {
            name: &name,
            lifeline: Some(&lifeline),
        };
        for (finding, parts) in [
            (
                Finding::Nobody,
                &["UNIPGAS_OFI_INTERFACE", "eth1 (10.0.1.1)"][..],
            ),
            (
                Finding::Dropped,
                &["5001", "firewall", "UNIPGAS_OFI_INTERFACE"],
            ),
            (Finding::Refused, &["5001", "firewall"]),
            (Finding::Late, &["firewall", "UNIPGAS_OFI_INTERFACE"]),
            (
                Finding::NoWay(Errno::NETUNREACH),
                &["UNIPGAS_OFI_INTERFACE", "eth1 (10.0.1.1)"],
            ),
        ] {
            let text = here.explain(finding, &peer).unwrap();
            for part in parts.iter().chain(&["10.0.0.2", "eth0 (10.0.0.1)"]) {
                assert!(text.contains(part), "{finding:?}: {text} has no {part}");
            }
            assert_eq!(text.lines().count(), 1);
        }
        assert_eq!(here.explain(Finding::Gone, &peer), None);
        assert_eq!(here.port(&name), Some("10.0.0.2:5001".parse().unwrap()));
    }
}
