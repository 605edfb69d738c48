//! The first contact with a peer. Providers try for minutes, and some for ever, where a firewall drops what is sent or no way leads; so it is seen
//! at two ports of the peer what is wrong: that of its [lifeline](crate::lifeline), and that where its provider listens, if it is one of TCP.

use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;

use crate::choice;
use crate::lifeline::{Found, Try};

/// A port that has answered nothing in so many looks is not going to.
pub const SILENT: u32 = 10;
/// A process that leaves refuses at one port before the other. Who refuses longer is no such process.
const REFUSED: u32 = 3;
/// The most looks where the provider's port cannot be seen.
const UNSEEN: u32 = 120;

/// What the looks have found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    /// It may come about.
    Hope,
    /// The process has ended.
    Gone,
    /// Nothing answers at either port.
    Nobody,
    /// The host answers, but not where the provider listens.
    Dropped,
    /// The process is there, but its host refuses whoever connects where the provider listens.
    Refused,
    /// The process is there, but nothing comes of it.
    Late,
    /// The kernel knows no way there.
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
            Some(Found::Nothing) => self.silent += 1,
            Some(Found::There) => {
                (self.silent, self.refused, self.answers) = (0, 0, true);
                self.r#try = None;
            }
            Some(Found::Gone) => {
                (self.silent, self.answers) = (0, false);
                self.refused += 1;
                self.r#try = None;
            }
            None => self.r#try = Try::begin(address),
        }
    }
}

/// A first contact that has begun.
#[derive(Default)]
pub struct Contact {
    lifeline: Port,
    provider: Port,
    looks: u32,
}

impl Contact {
    /// Another look, some time after the one before.
    pub fn look(
        &mut self,
        lifeline: Option<&SocketAddr>,
        provider: Option<&SocketAddr>,
    ) -> Finding {
        self.looks += 1;
        if let Some(at) = lifeline {
            self.lifeline.look(at);
        }
        // Who connects there is taken by the process, not by its host alone: one who has stopped takes few.
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
    /// The provider has given up: why.
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

/// Where a process listens: `name` is that of its endpoint.
pub struct Whereabouts<'a> {
    pub name: &'a [u8],
    pub lifeline: Option<&'a SocketAddr>,
}

/// This process's own place in the network, for people.
#[derive(Debug, Clone)]
pub struct Here {
    /// The provider.
    pub provider: String,
    /// The interface, with its address.
    pub interface: String,
    /// Other ones that could be used.
    pub others: Vec<String>,
}

impl Here {
    /// Whether the provider is one whose endpoints' names are ports of TCP.
    fn is_tcp(&self) -> bool {
        let mut parts = self.provider.split(';');
        parts.any(|part| matches!(part, "tcp" | "sockets" | "net"))
    }

    /// The port of TCP at which the provider of an endpoint with this name listens.
    pub fn port(&self, name: &[u8]) -> Option<SocketAddr> {
        self.is_tcp().then(|| choice::socket(name)).flatten()
    }

    /// What has been found, and what helps. `None`: it is no matter of the network.
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
            [] => "the one that reaches it".into(),
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

    /// A port whose kernel drops who connects: its queue is full.
    fn deaf() -> (TcpListener, Vec<Try>, SocketAddr) {
        let deaf = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = deaf.local_addr().unwrap();
        // SAFETY:
        // - an open socket; a shorter queue is asked for.
        unsafe { libc::listen(std::os::fd::AsRawFd::as_raw_fd(&deaf), 0) };
        let fill = (0..8).filter_map(|_| Try::begin(&at)).collect();
        (deaf, fill, at)
    }

    /// A port where nobody listens, nor will.
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
            // Who has stopped, but whose host answers, is waited for.
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
        // Nobody connects to all of them.
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
        // - plain bytes.
        let mut name: libc::sockaddr_in = unsafe { std::mem::zeroed() };
        name.sin_family = libc::AF_INET as u16;
        name.sin_port = 5001u16.to_be();
        name.sin_addr.s_addr = u32::from_ne_bytes([10, 0, 0, 2]);
        // SAFETY:
        // - as many bytes as it has.
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
