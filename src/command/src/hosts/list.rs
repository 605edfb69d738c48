//! The hosts of a job, and the number of processes on each.

use unipgas::core::job::board::MAX_SIZE;

/// Longest name of a host in DNS.
const LONGEST: usize = 253;

/// A named host, and its number of processes if one is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NamedHost {
    pub host: String,
    places: Option<u32>,
}

/// Consecutive ranks on one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostShare {
    pub host: String,
    pub processes: u32,
}

/// The hosts of `--hosts`: `a,b`, `a:4,b:4`, or a Slurm list, `n[01-04,7]`.
///
/// Errors: one line.
pub fn from_list(text: &str) -> Result<Vec<NamedHost>, String> {
    let mut named = Vec::new();
    for word in outside_brackets(text) {
        named.extend(entry(word.trim())?);
        check(&named)?;
    }
    Ok(named)
}

fn check(named: &[NamedHost]) -> Result<(), String> {
    match named.len() > MAX_SIZE as usize {
        true => Err(format!(
            "a job has at most {MAX_SIZE} processes, and no more hosts"
        )),
        false => Ok(()),
    }
}

/// The hosts of a host file. A line has one host: `a`, `a:4` or `a slots=4`. A comment starts with `#`.
///
/// Errors: one line, with the line number in the file.
pub fn from_file(name: &str, text: &str) -> Result<Vec<NamedHost>, String> {
    let mut named = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let found = line_of_file(line).map_err(|why| format!("{name}, line {number}: {why}"))?;
        named.extend(found);
        check(&named).map_err(|why| format!("{name}, line {number}: {why}"))?;
    }
    match named.is_empty() {
        true => Err(format!("{name} names no host")),
        false => Ok(named),
    }
}

fn line_of_file(line: &str) -> Result<Vec<NamedHost>, String> {
    let mut words = line
        .split('#')
        .next()
        .unwrap_or_default()
        .split_whitespace();
    let Some(first) = words.next() else {
        return Ok(Vec::new());
    };
    let mut named = entry(first)?;
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or_default();
        match key {
            "slots" if named.iter().all(|one| one.places.is_none()) => {
                let places = places(first, value)?;
                named.iter_mut().for_each(|one| one.places = Some(places));
            }
            // No host gets more than its slots.
            "max_slots" | "max-slots" => {}
            _ => {
                return Err(format!(
                    "{word:?} is not understood; a line is a host, host:4, or host slots=4"
                ));
            }
        }
    }
    Ok(named)
}

/// `host`, `host:4` or `host[1-3]:4`.
fn entry(word: &str) -> Result<Vec<NamedHost>, String> {
    let (hosts, number) = match word.split_once(':') {
        Some((hosts, number)) => (hosts, Some(places(hosts, number)?)),
        None => (word, None),
    };
    let mut names = Vec::new();
    expand(hosts, &mut names)?;
    let named = names.into_iter().map(|host| NamedHost {
        host,
        places: number,
    });
    Ok(named.collect())
}

fn places(host: &str, number: &str) -> Result<u32, String> {
    match number.parse() {
        Ok(n) if (1..=MAX_SIZE).contains(&n) => Ok(n),
        _ => Err(format!(
            "{host}:{number}: a host has 1 to {MAX_SIZE} processes"
        )),
    }
}

/// The parts between commas that are not in brackets.
fn outside_brackets(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0);
    for (at, letter) in text.char_indices() {
        match letter {
            '[' => depth += 1,
            ']' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// Adds the host of a plain name, or all hosts of a name with brackets.
fn expand(name: &str, hosts: &mut Vec<String>) -> Result<(), String> {
    let wrong = || format!("{name:?} names no host: a name, or as Slurm writes it n[1-4,7]");
    if name.len() > LONGEST {
        return Err(format!(
            "a host's name of {} bytes: it has at most {LONGEST}",
            name.len()
        ));
    }
    let Some((before, rest)) = name.split_once('[') else {
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        // The launcher would take a name that begins with - for an option.
        if name.is_empty() || name.starts_with(['-', '.']) || !name.chars().all(plain) {
            return Err(wrong());
        }
        hosts.push(name.to_owned());
        return Ok(());
    };
    let (ranges, after) = rest.split_once(']').ok_or_else(wrong)?;
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| text.parse::<u32>().map_err(|_| wrong());
        let (from, to) = (number(first)?, number(last)?);
        if from > to || hosts.len() + (to - from) as usize >= MAX_SIZE as usize {
            return Err(wrong());
        }
        for n in from..=to {
            expand(
                &format!("{before}{n:0width$}{after}", width = first.len()),
                hosts,
            )?;
        }
    }
    Ok(())
}

/// Distributes the processes over the hosts. Numbers of processes fill one host after the other. Hosts without a number share the rest evenly; each of
/// them gets at least one if other hosts have a number.
///
/// Errors: one line.
pub fn share(named: &[NamedHost], processes: Option<u32>) -> Result<Vec<HostShare>, String> {
    let numbers: Vec<u32> = named.iter().filter_map(|one| one.places).collect();
    let each: Vec<u32> = match (numbers.len(), processes) {
        (0, None) => {
            return Err(format!(
                "how many processes? -n is missing, and no host has a number ({}:4)",
                named.first().map_or("host", |one| &one.host)
            ));
        }
        (0, Some(n)) => evenly(named, n)?,
        _ => in_turn(named, &filled(named, &numbers, processes), processes)?,
    };
    let mut shares: Vec<HostShare> = Vec::new();
    for (one, processes) in named.iter().zip(each).filter(|(_, n)| *n > 0) {
        match shares.last_mut() {
            Some(last) if last.host == one.host => last.processes += processes,
            _ => shares.push(HostShare {
                host: one.host.clone(),
                processes,
            }),
        }
    }
    Ok(shares)
}

fn evenly(named: &[NamedHost], processes: u32) -> Result<Vec<u32>, String> {
    let hosts = named.len() as u32;
    if processes < hosts {
        return Err(format!(
            "-n {processes} is too few for {hosts} hosts: {} would have no process",
            named[processes as usize].host
        ));
    }
    let more = processes % hosts;
    Ok((0..hosts)
        .map(|at| processes / hosts + u32::from(at < more))
        .collect())
}

/// The number of processes of each host, if some hosts have a number.
fn filled(named: &[NamedHost], numbers: &[u32], processes: Option<u32>) -> Vec<u32> {
    let others = (named.len() - numbers.len()) as u32;
    let sum = numbers.iter().copied().fold(0, u32::saturating_add);
    let left = processes.map_or(0, |wish| wish.saturating_sub(sum));
    let mut at = 0;
    let numbers = named.iter().map(|one| {
        one.places.unwrap_or_else(|| {
            at += 1;
            (left / others + u32::from(at <= left % others)).max(1)
        })
    });
    numbers.collect()
}

fn in_turn(
    named: &[NamedHost],
    numbers: &[u32],
    processes: Option<u32>,
) -> Result<Vec<u32>, String> {
    let sum: u64 = numbers.iter().copied().map(u64::from).sum();
    let wish = processes.map_or(sum, u64::from);
    if wish > sum {
        return Err(format!(
            "-n {wish} does not fit: {} of {} together have {sum}",
            if numbers.len() == 1 {
                "the place"
            } else {
                "the places"
            },
            named
                .iter()
                .zip(numbers)
                .map(|(one, number)| format!("{}:{number}", one.host))
                .collect::<Vec<_>>()
                .join(",")
        ));
    }
    if wish > u64::from(MAX_SIZE) {
        return Err(format!("a job has 1 to {MAX_SIZE} processes, not {wish}"));
    }
    let mut left = wish as u32;
    let take = |&number: &u32| {
        let taken = number.min(left);
        left -= taken;
        taken
    };
    Ok(numbers.iter().map(take).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(hosts: &str, processes: Option<u32>) -> Result<String, String> {
        shown(share(&from_list(hosts)?, processes)?)
    }

    fn of_file(text: &str, processes: Option<u32>) -> Result<String, String> {
        shown(share(&from_file("F", text)?, processes)?)
    }

    fn shown(shares: Vec<HostShare>) -> Result<String, String> {
        let one = |share: &HostShare| format!("{}:{}", share.host, share.processes);
        Ok(shares.iter().map(one).collect::<Vec<_>>().join(","))
    }

    #[test]
    fn processes_are_shared_evenly_or_as_numbers_say() {
        for (hosts, processes, expected) in [
            ("a,b", Some(8), "a:4,b:4"),
            ("a,b,c", Some(8), "a:3,b:3,c:2"),
            ("a,b", Some(2), "a:1,b:1"),
            ("a", Some(3), "a:3"),
            ("a:4,b:4", None, "a:4,b:4"),
            ("a:4,b:2", Some(6), "a:4,b:2"),
            ("a:4,b:4", Some(5), "a:4,b:1"),
            ("a:4,b:4", Some(3), "a:3"),
            // Each entry is a share: a host that is named twice gets two.
            ("a,a,b", Some(6), "a:4,b:2"),
            ("a,b,a,b", Some(4), "a:1,b:1,a:1,b:1"),
            ("a:1,b:1,a:2", None, "a:1,b:1,a:2"),
            // Some have a number.
            ("a:4,b", None, "a:4,b:1"),
            ("a:4,b,c", Some(9), "a:4,b:3,c:2"),
            ("b,a:4", Some(5), "b:1,a:4"),
            ("a:4,b", Some(3), "a:3"),
            ("n[1-3]", Some(3), "n1:1,n2:1,n3:1"),
            ("n[08-10,x]", Some(3), ""),
            (
                "n[08-10,12].in,m",
                Some(5),
                "n08.in:1,n09.in:1,n10.in:1,n12.in:1,m:1",
            ),
            ("r[1-2]n[1-2]:2", None, "r1n1:2,r1n2:2,r2n1:2,r2n2:2"),
            (" a , b ", Some(2), "a:1,b:1"),
        ] {
            let found = shared(hosts, processes);
            match expected {
                "" => assert!(found.is_err(), "{hosts}"),
                _ => assert_eq!(found.as_deref(), Ok(expected), "{hosts}"),
            }
        }
    }

    #[test]
    fn files_of_several_launchers_are_read() {
        for (text, processes, expected) in [
            ("a\nb\n", Some(4), "a:2,b:2"),
            (
                "# hosts\n\na slots=4 # big\n\tb  slots=2 max_slots=8\n",
                None,
                "a:4,b:2",
            ),
            ("a:4\nb:4", Some(6), "a:4,b:2"),
            ("a\na\nb\nb\n", Some(4), "a:2,b:2"),
            ("a\r\nb\r\n", Some(2), "a:1,b:1"),
            ("n[1-2] slots=3", None, "n1:3,n2:3"),
        ] {
            assert_eq!(of_file(text, processes).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_in_a_line() {
        let list = |hosts, processes| shared(hosts, processes).unwrap_err();
        let file = |text| of_file(text, Some(4)).unwrap_err();
        let deep = "[1]".repeat(100_000);
        for (text, expected) in [
            (list("", Some(1)), "names no host"),
            (list("a,,b", Some(2)), "names no host"),
            (list("a:0,b:1", None), "a:0: a host has 1 to"),
            (list("a:x", None), "a:x"),
            (list("a:4:4", None), "a:4:4"),
            (list("fe80::1", Some(2)), "fe80::1"),
            (list("-oProxyCommand=x,b", Some(2)), "-oProxyCommand=x"),
            (list("a b", Some(2)), "a b"),
            (list("n[1-", Some(2)), "n[1-"),
            (list("n[3-1]", Some(2)), "n[3-1]"),
            (list("n[1-4000000000]", Some(2)), "n[1-4000000000]"),
            (list("n[1-2]]", Some(2)), "]"),
            (list("n[1-60000],m[1-60000]", Some(2)), "no more hosts"),
            (list("n[1-600][1-600]", Some(2)), "names no host"),
            (list(&deep, Some(2)), "253"),
            (list("a,b", None), "-n is missing"),
            (list("a,b,c", Some(2)), "c would have no process"),
            (
                list("a:4,b:4", Some(9)),
                "-n 9 does not fit: the places of a:4,b:4 together have 8",
            ),
            (file(""), "F names no host"),
            (file("a\n\nb c\n"), "F, line 3: \"c\" is not understood"),
            (file("a slots=0"), "F, line 1: a:0"),
            (file("a:2 slots=2"), "F, line 1: \"slots=2\""),
            (file("a/b"), "F, line 1: \"a/b\" names no host"),
        ] {
            assert!(text.contains(expected), "{text:?} lacks {expected:?}");
            assert_eq!(text.lines().count(), 1, "{text}");
        }
        let many = format!("a:{MAX_SIZE},b:{MAX_SIZE}");
        assert!(list(&many, None).contains("a job has 1 to"));
        assert_eq!(shared(&many, Some(1)).as_deref(), Ok("a:1"));
    }
}
