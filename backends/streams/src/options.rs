//! Options of this network. The default has no restrictions, and keeps the order of requests.

use unipgas_core::transport::Limits;
use unipgas_core::{Result, variables};

const NAME: &str = "UNIPGAS_STREAMS";
const OLD_NAME: &str = "UNIPGAS_OPAQUE";
const HELP: &str = "must be a list of tcp, unordered, no-lines, no-atomics, registered, inline=BYTES, largest=BYTES (64 or more), depth=OPERATIONS (1 or more), \
                    lose=RANK@OPERATION";

/// The options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamsOptions {
    /// TCP instead of Unix sockets.
    pub tcp: bool,
    /// The target carries out operations in an order drawn from the seed, within the contract of the channel.
    pub unordered: bool,
    /// Limits of operations.
    pub limits: Limits,
    /// Operation of this process (from 1) that loses the streams between this process and the peer of the operation.
    pub lose_at: Option<u64>,
    /// Seed of the order.
    pub seed: u64,
}

impl StreamsOptions {
    /// Reads UNIPGAS_STREAMS (old name: UNIPGAS_OPAQUE), UNIPGAS_SEED and UNIPGAS_RANK. Errors: one line with the valid form.
    pub fn from_env() -> Result<Self> {
        let text = variables::get_renamed(NAME, OLD_NAME)?.unwrap_or_default();
        let rank = variables::number("UNIPGAS_RANK")?.unwrap_or(0);
        let seed = variables::number("UNIPGAS_SEED")?.unwrap_or(0);
        StreamsOptions::parse(&text, rank, seed)
    }

    /// Parses the text. `rank`: the rank of this process. Errors: any other text, and a repeated term other than `lose`.
    pub fn parse(text: &str, rank: u64, seed: u64) -> Result<Self> {
        let wrong = || variables::wrong(NAME, text, HELP);
        let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
        let mut options = StreamsOptions {
            seed: seed ^ rank.rotate_left(32),
            ..StreamsOptions::default()
        };
        let mut seen = Vec::new();
        for term in text.split(',').map(str::trim).filter(|t| !t.is_empty()) {
            let (name, value) = match term.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (term, None),
            };
            let at_least = |least: usize, value: &str| {
                let count = usize::try_from(number(value)?).map_err(|_| wrong())?;
                if count < least {
                    return Err(wrong());
                }
                Ok(count)
            };
            let limits = &mut options.limits;
            match (name, value) {
                ("tcp", None) => options.tcp = true,
                ("unordered", None) => options.unordered = true,
                ("no-lines", None) => limits.lines = false,
                ("no-atomics", None) => limits.atomics = false,
                ("registered", None) => limits.registered = true,
                ("inline", Some(value)) => limits.inline = at_least(0, value)?,
                ("largest", Some(value)) => limits.largest = at_least(Limits::SHORTEST, value)?,
                ("depth", Some(value)) => limits.depth = at_least(1, value)?,
                ("lose", Some(value)) => {
                    let (who, when) = value.split_once('@').ok_or_else(wrong)?;
                    let (who, when) = (number(who)?, number(when)?);
                    if when == 0 {
                        return Err(wrong());
                    }
                    if who == rank {
                        options.lose_at = Some(when);
                    }
                }
                _ => return Err(wrong()),
            }
            // Each rank may lose a peer.
            if name != "lose" && seen.contains(&name) {
                return Err(wrong());
            }
            seen.push(name);
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_says_it_all() {
        let parse = |text: &str| StreamsOptions::parse(text, 3, 0).unwrap();
        let seed = 3 << 32;
        let all = "tcp, unordered,no-lines,no-atomics,registered,inline=8,largest=4096,depth=4,lose=3@77,lose=1@5";
        let expected = StreamsOptions {
            tcp: true,
            unordered: true,
            limits: Limits {
                lines: false,
                atomics: false,
                registered: true,
                inline: 8,
                largest: 4096,
                depth: 4,
            },
            lose_at: Some(77),
            seed,
        };
        assert_eq!(parse(all), expected);
        let plain = StreamsOptions {
            seed,
            ..StreamsOptions::default()
        };
        assert_eq!(parse(" "), plain);
        assert_eq!(parse("lose=2@1"), plain);
    }

    #[test]
    fn wrong_texts_are_refused_in_a_line() {
        for text in [
            "udp",
            "tcp=1",
            "registered=1",
            "unordered,unordered",
            "inline",
            "inline=x",
            "inline=-1",
            "largest=63",
            "largest=",
            "depth=0",
            "depth=1,depth=2",
            "lose=1",
            "lose=1@0",
            "lose=@1",
            "tcp;unordered",
        ] {
            let error = StreamsOptions::parse(text, 0, 0).unwrap_err().to_string();
            let right = error.starts_with(&format!("UNIPGAS_STREAMS={text}: must be"));
            assert!(right && error.lines().count() == 1, "{error}");
        }
    }
}
