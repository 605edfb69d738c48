//! Kernel TCP: one plain socket for each partner of a butterfly.

use std::cell::Cell;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

use crate::case::Case;
use crate::ctx::BenchContext;

/// Connections to the processes with a rank that differs in one bit, by that bit.
pub(super) struct Tcp {
    streams: Vec<TcpStream>,
}

const EACH: usize = 500;
/// 8-byte messages in a batch.
const MESSAGES: usize = 8192;

fn failed(e: std::io::Error) -> String {
    format!("TCP: {e}")
}

impl Tcp {
    /// Connects to the partners. `here` is the address at which they reach this process.
    pub fn connect(ctx: &BenchContext, here: IpAddr) -> Result<Tcp, String> {
        // All processes take part in the exchange, even after an error.
        let listener = TcpListener::bind((here, 0));
        let own = listener.as_ref().ok().and_then(|l| l.local_addr().ok());
        let own = own.map_or(String::new(), |own| own.to_string());
        let places = ctx.share(own.as_bytes());
        let listener = listener.map_err(failed)?;
        let mut streams = Vec::new();
        for partner in partners(ctx) {
            let stream = match ctx.rank < partner {
                true => listener.accept().map_err(failed)?.0,
                false => {
                    let place = String::from_utf8_lossy(&places[partner]);
                    let place: SocketAddr = place
                        .parse()
                        .map_err(|_| format!("process {partner} does not listen"))?;
                    TcpStream::connect(place).map_err(failed)?
                }
            };
            stream.set_nodelay(true).map_err(failed)?;
            streams.push(stream);
        }
        Ok(Tcp { streams })
    }

    fn other(&self) -> &TcpStream {
        &self.streams[0]
    }

    fn set_blocking(&self, blocking: bool) -> Result<(), String> {
        let mut streams = self.streams.iter();
        streams.try_for_each(|stream| stream.set_nonblocking(!blocking).map_err(failed))
    }
}

/// The partners of this process in a butterfly, in order.
fn partners(ctx: &BenchContext) -> impl Iterator<Item = usize> {
    let steps = ctx.size.trailing_zeros();
    (0..steps).map(|step| ctx.rank ^ (1 << step))
}

/// Writes all bytes, in as many calls as needed.
fn write(ctx: &BenchContext, mut stream: &TcpStream, mut bytes: &[u8]) -> Result<(), String> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(e) if e.kind() == ErrorKind::WouldBlock => ctx.relax(),
            Err(e) => return Err(failed(e)),
        }
    }
    Ok(())
}

/// Reads all bytes. It polls, or sleeps if the socket blocks.
fn read(ctx: &BenchContext, mut stream: &TcpStream, mut bytes: &mut [u8]) -> Result<(), String> {
    while !bytes.is_empty() {
        match stream.read(bytes) {
            Ok(0) => return Err("TCP: the other process has closed".into()),
            Ok(n) => bytes = &mut bytes[n..],
            Err(e) if e.kind() == ErrorKind::WouldBlock => ctx.relax(),
            Err(e) => return Err(failed(e)),
        }
    }
    Ok(())
}

fn both_ways(ctx: &BenchContext, case: &Case, blocking: bool) -> Result<f64, String> {
    let tcp = ctx.tcp()?;
    tcp.set_blocking(blocking)?;
    let (bytes, mut taken) = (vec![1; case.bytes as usize], vec![1; case.bytes as usize]);
    ctx.sync();
    let send = |_| write(ctx, tcp.other(), &bytes);
    let receive = |_| read(ctx, tcp.other(), &mut taken);
    ctx.both_ways(EACH, &Cell::new(0), send, receive)
}

/// Ping-pong in which both processes poll. Returns ns one way.
pub fn ping_pong(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    both_ways(ctx, case, false).map(|ns| ns / 2.0)
}

/// The same with blocking reads.
pub fn ping_pong_blocking(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    both_ways(ctx, case, true).map(|ns| ns / 2.0)
}

/// A request and its reply. Returns ns.
pub fn round_trip(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    both_ways(ctx, case, false)
}

/// Rank 0 sends `each` messages. Rank 1 receives them and acknowledges the last one. Returns ns per message.
fn one_way(ctx: &BenchContext, len: usize, each: usize) -> Result<f64, String> {
    let tcp = ctx.tcp()?;
    tcp.set_blocking(true)?;
    let bytes = vec![1; len];
    let mut taken = vec![0; len.max(64 << 10)];
    let mut end = [0];
    ctx.sync();
    ctx.per_batch(each, |n| {
        if ctx.rank == 0 {
            (0..n).try_for_each(|_| write(ctx, tcp.other(), &bytes))?;
            return read(ctx, tcp.other(), &mut end);
        }
        let mut left = len * n;
        while left > 0 {
            let most = left.min(taken.len());
            match tcp.other().read(&mut taken[..most]).map_err(failed)? {
                0 => return Err("TCP: the other process has closed".into()),
                n => left -= n,
            }
        }
        write(ctx, tcp.other(), &end)
    })
}

/// Messages of 8 bytes, one call each. Returns millions per second.
pub fn rate(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    one_way(ctx, case.bytes as usize, MESSAGES).map(|ns| 1e3 / ns)
}

/// Long messages. Returns GB/s.
pub fn stream(ctx: &BenchContext, case: &Case) -> Result<f64, String> {
    let each = crate::bare::each(case.bytes);
    one_way(ctx, case.bytes as usize, each).map(|ns| case.bytes as f64 / ns)
}

/// A butterfly of 8-byte messages. Returns us.
pub fn barrier(ctx: &BenchContext, _: &Case) -> Result<f64, String> {
    let tcp = ctx.tcp()?;
    tcp.set_blocking(ctx.crowded)?;
    let mut bytes = [1; 8];
    ctx.sync();
    let ns = ctx.per_step(EACH / 5, || {
        tcp.streams.iter().try_for_each(|stream| {
            write(ctx, stream, &bytes)?;
            read(ctx, stream, &mut bytes)
        })
    });
    ns.map(|ns| ns / 1e3)
}
