//! A program that is no peer sends bytes of `wire` to the port of a process.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};

/// The parts of an address: the protocol, the secret, and the socket address of the listener.
pub(crate) struct Door {
    pub protocol: [u8; 2],
    pub secret: [u8; 16],
    pub at: SocketAddr,
}

impl Door {
    pub fn of(address: &[u8]) -> Door {
        let port = u16::from_le_bytes(address[18..20].try_into().unwrap());
        let ip = match address.len() {
            24 => IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(&address[20..]).unwrap())),
            _ => IpAddr::from(Ipv6Addr::from(
                <[u8; 16]>::try_from(&address[20..]).unwrap(),
            )),
        };
        Door {
            protocol: address[..2].try_into().unwrap(),
            secret: address[2..18].try_into().unwrap(),
            at: SocketAddr::new(ip, port),
        }
    }

    /// The address in the format for peers.
    pub fn address(&self) -> Vec<u8> {
        let mut bytes = self.protocol.to_vec();
        bytes.extend(self.secret);
        bytes.extend(self.at.port().to_le_bytes());
        match self.at.ip() {
            IpAddr::V4(ip) => bytes.extend(ip.octets()),
            IpAddr::V6(ip) => bytes.extend(ip.octets()),
        }
        bytes
    }

    pub fn connect(&self) -> TcpStream {
        TcpStream::connect(self.at).unwrap()
    }

    /// One end of a connection, with a queue pair that does not exist.
    fn ends(number: u32, credits: u32) -> [u8; 36] {
        let mut ends = [0; 36];
        ends[..4].copy_from_slice(&number.to_ne_bytes());
        ends[8..12].copy_from_slice(&credits.to_ne_bytes());
        // A LID that does not exist, packets of 1024 bytes, and reads.
        ends[12..16].copy_from_slice(&[0xfe, 0xfe, 3, 0]);
        ends[16..18].copy_from_slice(&[1, 1]);
        ends[20..22].copy_from_slice(&[0xfe, 0x80]);
        ends
    }

    /// The first message of the process that connects.
    pub fn opening(&self, number: u32, credits: u32) -> Vec<u8> {
        let mut bytes = b"uverbs\0\0".to_vec();
        bytes.extend(self.protocol);
        // The address of a process that does not exist.
        let own = Door {
            protocol: self.protocol,
            secret: [number as u8 | 1; 16],
            at: SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 1),
        };
        let own = own.address();
        bytes.extend((own.len() as u16).to_ne_bytes());
        bytes.extend(Door::ends(number, credits));
        bytes.extend(self.secret);
        bytes.extend(&own);
        bytes.resize(160, 0);
        bytes
    }

    /// The answer to the first message, if it is accepted.
    pub fn answer(&self, number: u32) -> Vec<u8> {
        let mut bytes = b"uverbs\0\0".to_vec();
        bytes.extend(self.protocol);
        bytes.extend([0; 2]);
        bytes.extend(Door::ends(number, 8));
        bytes
    }
}

/// The verdict of an answer. `None`: the socket was closed instead.
pub fn verdict(socket: &mut TcpStream) -> Option<u16> {
    let mut answer = [0; 48];
    socket.read_exact(&mut answer).ok()?;
    Some(u16::from_ne_bytes(answer[10..12].try_into().unwrap()))
}

/// Waits until the other side closes or sends. True: it closed, and sent nothing more.
pub fn is_closed(socket: &mut TcpStream) -> bool {
    !matches!(socket.read(&mut [0]), Ok(1..))
}

/// Sends the bytes. Errors are ignored: the other side may have closed.
pub fn say(socket: &mut TcpStream, bytes: &[u8]) {
    let _ = socket.write_all(bytes);
}
