//! The laws that check each procedure of the specifications.

use std::fmt::Write as _;

use crate::clauses::{
    EXTENSIONS, FI_ATOMIC, FI_NEIGHBOURS, GASPI, IRCCE, Procedure, RCCE, RCCE_EXTENSIONS, UTOFU,
};
use crate::{Api, Law};

/// The laws that name `procedure`.
pub fn laws_of(laws: &[&'static Law], procedure: &str) -> Vec<&'static str> {
    laws.iter()
        .filter(|law| law.procedures.contains(&procedure))
        .map(|law| law.id)
        .collect()
}

/// All procedures of the specifications under test, with the laws that check each; GASPI, iRCCE
/// and fi_atomic(3) include their extensions.
pub fn table(laws: &[&'static Law]) -> String {
    let of = |api| laws.iter().any(|law| law.api == api);
    let mut text = String::new();
    let mut counts = String::new();
    if of(Api::Gaspi) {
        part(&mut text, &mut counts, "GASPI 17.1", GASPI, laws);
        text.push_str("beside it\n");
        for name in EXTENSIONS {
            row(&mut text, "", name, &laws_of(laws, name));
        }
    }
    if of(Api::Utofu) {
        part(&mut text, &mut counts, "uTofu", UTOFU, laws);
    }
    if of(Api::Rcce) {
        part(&mut text, &mut counts, "RCCE V1.0.13", RCCE, laws);
        part(&mut text, &mut counts, "iRCCE 2.0", IRCCE, laws);
        text.push_str("beside it\n");
        for name in RCCE_EXTENSIONS {
            row(&mut text, "", name, &laws_of(laws, name));
        }
    }
    if of(Api::Libfabric) {
        part(&mut text, &mut counts, "fi_atomic(3) 1.8", FI_ATOMIC, laws);
        text.push_str("beside it\n");
        for name in FI_NEIGHBOURS {
            row(&mut text, "", name, &laws_of(laws, name));
        }
    }
    text + "\n" + &counts
}

/// One specification: writes its rows to `text`, and the numbers to `counts`.
fn part(
    text: &mut String,
    counts: &mut String,
    title: &str,
    procedures: &[Procedure],
    laws: &[&'static Law],
) {
    let _ = writeln!(text, "{title}");
    let mut without = 0;
    for procedure in procedures {
        let laws = laws_of(laws, procedure.name);
        without += usize::from(laws.is_empty());
        row(text, procedure.section, procedure.name, &laws);
    }
    let _ = writeln!(
        counts,
        "{title}: {} procedures, {} with laws, {without} without",
        procedures.len(),
        procedures.len() - without
    );
}

fn row(text: &mut String, section: &str, name: &str, laws: &[&str]) {
    let shown = match laws {
        [] => "none".into(),
        laws => laws.join(" "),
    };
    let _ = writeln!(text, "  {section:7} {name:33} {shown}");
}

/// Names in `laws` that are not procedures of their specification.
pub fn unknown(laws: &[&'static Law]) -> Vec<(&'static str, &'static str)> {
    laws.iter()
        .flat_map(|law| law.procedures.iter().map(|name| (*law, *name)))
        .filter(|(law, name)| match law.api {
            Api::Core => false,
            Api::Gaspi => {
                // The names of the profiling interface (§14) stand for the same procedures.
                let name = name.strip_prefix('p').unwrap_or(name);
                !GASPI.iter().any(|p| p.name == name) && !EXTENSIONS.contains(&name)
            }
            Api::Utofu => !UTOFU.iter().any(|p| p.name == *name),
            Api::Rcce => {
                !RCCE.iter().chain(IRCCE).any(|p| p.name == *name)
                    && !RCCE_EXTENSIONS.contains(name)
            }
            Api::Libfabric => {
                !FI_ATOMIC.iter().any(|p| p.name == *name) && !FI_NEIGHBOURS.contains(name)
            }
        })
        .map(|(law, name)| (law.id, name))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::laws;

    #[test]
    fn laws_name_procedures_that_exist() {
        assert_eq!(unknown(&laws::all()), []);
    }

    #[test]
    fn a_wrong_name_is_seen() {
        const WRONG: Law = Law {
            procedures: &["gaspi_write", "gaspi_wirte", "pgaspi_read", "gaspi_printf"],
            ..Law::new(Api::Gaspi, "x", "", "", 1, &[], |_| Ok(()))
        };
        assert_eq!(unknown(&[&WRONG]), [("x", "gaspi_wirte")]);
        assert!(table(&[&WRONG]).contains("8.2.1   gaspi_write                       x\n"));
        assert!(table(&[&WRONG]).contains("8.2.2   gaspi_read                        none\n"));
    }

    #[test]
    fn the_specification_is_listed_once() {
        let names: BTreeSet<_> = GASPI
            .iter()
            .chain(UTOFU)
            .chain(RCCE)
            .chain(IRCCE)
            .chain(FI_ATOMIC)
            .map(|p| p.name)
            .chain(EXTENSIONS.iter().copied())
            .chain(RCCE_EXTENSIONS.iter().copied())
            .chain(FI_NEIGHBOURS.iter().copied())
            .collect();
        let tables = [GASPI, UTOFU, RCCE, IRCCE, FI_ATOMIC].map(<[Procedure]>::len);
        let extensions = EXTENSIONS.len() + RCCE_EXTENSIONS.len() + FI_NEIGHBOURS.len();
        assert_eq!(names.len(), tables.iter().sum::<usize>() + extensions);
        assert_eq!(tables, [74, 66, 51, 55, 14]);
    }

    #[test]
    fn laws_have_ids_of_their_own() {
        let all = laws::all();
        let ids: BTreeSet<_> = all.iter().map(|law| law.id).collect();
        assert_eq!(ids.len(), all.len());
        for law in all {
            assert!(law.id.starts_with(law.api.name()), "{}", law.id);
            assert!(
                law.id
                    .bytes()
                    .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b".-_".contains(&b)),
                "{}",
                law.id
            );
            // Only laws about many processes need many.
            let most = if law.api == Api::Rcce || law.id.contains("of-48") {
                48
            } else {
                12
            };
            assert!((1..=most).contains(&law.processes), "{}", law.id);
            assert!(!law.says.is_empty() && !law.clause.is_empty(), "{}", law.id);
        }
    }
}
