//! PMI_process_mapping: the ranks that share a host.

/// The host of each rank, by a mapping such as `(vector,(0,2,1))`: 1 rank on each of 2 hosts, from host 0 on. The mapping repeats until all ranks have a
/// host. `None`: malformed, or a mapping without ranks.
pub(super) fn hosts(map: &str, size: u32) -> Option<Vec<u32>> {
    let blocks = map.strip_prefix("(vector,")?.strip_suffix(')')?;
    let numbers = |block: &str| -> Option<[u32; 3]> {
        let mut numbers = block.split(',').map(|number| number.trim().parse().ok());
        let three = [numbers.next()??, numbers.next()??, numbers.next()??];
        numbers.next().is_none().then_some(three)
    };
    let blocks: Vec<[u32; 3]> = blocks
        .strip_prefix('(')?
        .strip_suffix(')')?
        .split("),(")
        .map(numbers)
        .collect::<Option<_>>()?;
    if !blocks
        .iter()
        .any(|[_, hosts, each]| *hosts > 0 && *each > 0)
    {
        return None;
    }
    let mut found = Vec::new();
    while found.len() < size as usize {
        for [first, count, each] in &blocks {
            for host in 0..*count {
                for _ in 0..*each {
                    if found.len() == size as usize {
                        return Some(found);
                    }
                    found.push(first.checked_add(host)?);
                }
                if *each == 0 {
                    break;
                }
            }
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_of_hosts_are_read() {
        assert_eq!(hosts("(vector,(0,1,4))", 4), Some(vec![0; 4]));
        assert_eq!(hosts("(vector,(0,2,1))", 3), Some(vec![0, 1, 0]));
        assert_eq!(
            hosts("(vector,(0,1,2),(1,2,1))", 5),
            Some(vec![0, 0, 1, 2, 0])
        );
        for map in [
            "",
            "(vector)",
            "(vector,)",
            "(vector,())",
            "(vector,(0,1))",
            "(vector,(0,0,0))",
            "(vector,(0,4294967295,0))",
            "(vector,(4294967295,2,1))",
            "(vector,(0,1,1,1))",
            "(vector,(a,b,c))",
        ] {
            assert_eq!(hosts(map, 3), None, "{map}");
        }
    }
}
