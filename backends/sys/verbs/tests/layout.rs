//! Structures and constants agree with the installed header.

use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use unipgas_verbs_sys as sys;

fn compiles(name: &str, text: &str) -> Option<bool> {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&source, text).unwrap();
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let mut command = Command::new(compiler);
    command.arg("-fsyntax-only").arg(&source);
    if name == "probe.c" {
        command.stderr(Stdio::null());
    }
    command.status().ok().map(|status| status.success())
}

#[test]
fn layouts_are_those_of_the_header() {
    let head = "#include <stddef.h>\n#include <infiniband/verbs.h>\n";
    if compiles("probe.c", head) != Some(true) {
        eprintln!("skipped: the header of libibverbs is not installed (Debian: libibverbs-dev)");
        return;
    }
    let mut text = head.to_owned();
    let mut say = |what: String| writeln!(text, "_Static_assert({what}, \"{what}\");").unwrap();
    let mut known = 0;
    for (name, size, fields) in sys::STRUCTURES {
        say(format!("sizeof(struct {name}) == {size}"));
        for (field, offset) in *fields {
            // A keyword of Rust.
            let field = field.trim_start_matches("r#");
            say(format!("offsetof(struct {name}, {field}) == {offset}"));
            known += 1;
        }
    }
    assert!(known > 200);
    for (field, offset) in [
        (
            "rdma.remote_addr",
            std::mem::offset_of!(sys::wr_union, remote_addr),
        ),
        (
            "rdma.rkey",
            std::mem::offset_of!(sys::wr_union, rkey_or_compare_add),
        ),
        (
            "atomic.compare_add",
            std::mem::offset_of!(sys::wr_union, rkey_or_compare_add),
        ),
        ("atomic.swap", std::mem::offset_of!(sys::wr_union, swap)),
        (
            "atomic.rkey",
            std::mem::offset_of!(sys::wr_union, atomic_rkey),
        ),
    ] {
        let at = std::mem::offset_of!(sys::ibv_send_wr, wr) + offset;
        say(format!("offsetof(struct ibv_send_wr, wr.{field}) == {at}"));
    }
    say(format!(
        "sizeof(union ibv_gid) == {}",
        size_of::<sys::ibv_gid>()
    ));
    for (name, value) in sys::constants() {
        say(format!("(unsigned long long) {name} == {value}ull"));
    }
    assert_eq!(compiles("layout.c", &text), Some(true));
}
