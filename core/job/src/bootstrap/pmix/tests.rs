use std::mem::{offset_of, size_of};
use std::process::Command;

use super::*;

/// Sizes and offsets in the format of the C program below.
fn ours() -> String {
    format!(
        "{} {} {} {} {} {} {} {} {}\n",
        size_of::<Proc>(),
        offset_of!(Proc, rank),
        size_of::<Value>(),
        offset_of!(Value, data),
        size_of::<Info>(),
        offset_of!(Info, flags),
        offset_of!(Info, value),
        size_of::<Bytes>(),
        offset_of!(Bytes, len),
    )
}

const PROGRAM: &str = r#"
#include <pmix.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
_Static_assert(PMIX_BOOL == 1 && PMIX_STRING == 3 && PMIX_UINT32 == 14 && PMIX_PROC == 22 && PMIX_BYTE_OBJECT == 27, "types");
_Static_assert(PMIX_SUCCESS == 0 && PMIX_ERR_NOT_FOUND == -46 && PMIX_ERR_LOST_CONNECTION == -61, "codes");
_Static_assert(PMIX_EVENT_PROC_TERMINATED == -201 && PMIX_ERR_PROC_ABORTED_BY_SIG == -402 && PMIX_ERR_PROC_ABORTED == -7, "events");
_Static_assert((PMIX_RANK_WILDCARD) == 4294967294u && PMIX_GLOBAL == 3, "ranks and scopes");
_Static_assert(sizeof(pmix_scope_t) == 1 && sizeof(pmix_status_t) == 4, "small types");
int main(void) {
    if (strcmp(PMIX_JOB_SIZE, "pmix.job.size") || strcmp(PMIX_LOCAL_PEERS, "pmix.lpeers") || strcmp(PMIX_LOCAL_SIZE, "pmix.local.size") || strcmp(PMIX_NUM_NODES, "pmix.num.nodes") ||
        strcmp(PMIX_COLLECT_DATA, "pmix.collect") || strcmp(PMIX_EVENT_AFFECTED_PROC, "pmix.evproc"))
        return 1;
    printf("%zu %zu %zu %zu %zu %zu %zu %zu %zu\n", sizeof(pmix_proc_t), offsetof(pmix_proc_t, rank), sizeof(pmix_value_t),
        offsetof(pmix_value_t, data), sizeof(pmix_info_t), offsetof(pmix_info_t, flags), offsetof(pmix_info_t, value),
        sizeof(pmix_byte_object_t), offsetof(pmix_byte_object_t, size));
    return 0;
}
"#;

/// Compiler flags for the headers, from pkg-config or Debian's path.
fn headers() -> Option<Vec<String>> {
    let said = Command::new("pkg-config")
        .args(["--cflags", "pmix"])
        .output();
    let flags = said.ok().filter(|said| said.status.success());
    if let Some(flags) = flags {
        let flags = String::from_utf8_lossy(&flags.stdout);
        return Some(flags.split_whitespace().map(str::to_owned).collect());
    }
    let folder = format!(
        "/usr/lib/{}-linux-gnu/pmix2/include",
        std::env::consts::ARCH
    );
    std::path::Path::new(&folder)
        .join("pmix.h")
        .exists()
        .then(|| vec![format!("-I{folder}")])
}

#[test]
fn shapes_are_those_of_the_headers() {
    assert_eq!(ours(), "260 256 32 8 552 512 520 16 8\n");
    let Some(flags) = headers() else {
        eprintln!("left out: no headers of PMIx (Debian: libpmix-dev)");
        return;
    };
    let folder = std::env::temp_dir().join(format!("unipgas-pmix-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, program) = (folder.join("layout.c"), folder.join("layout"));
    std::fs::write(&source, PROGRAM).unwrap();
    let built = Command::new("cc")
        .args(flags)
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap();
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    let said = Command::new(&program).output().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(said.status.success(), "a key differs");
    assert_eq!(String::from_utf8_lossy(&said.stdout), ours());
}

#[test]
fn lists_of_peers_are_checked() {
    assert_eq!(peers("0,1,2", 3), Some(vec![0, 1, 2]));
    assert_eq!(peers(" 4,2", 5), Some(vec![2, 4]));
    for list in ["", "0,", "x", "0,0", "0,3", "-1", "0-2"] {
        assert_eq!(peers(list, 3), None, "{list}");
    }
}

/// A copy on the C heap, as from the library.
fn given(kind: u16, data: Data) -> *mut Value {
    // SAFETY:
    // - the memory has room for a value, which is written completely.
    unsafe {
        let value = libc::malloc(size_of::<Value>()).cast::<Value>();
        value.write(Value { kind, data });
        value
    }
}

#[test]
fn answers_are_read_by_their_type() {
    // SAFETY:
    // - each value has the member that its type selects.
    unsafe {
        let number = given(TYPE_UINT32, Data { number: 7 });
        assert_eq!(Told::take(number), Some(Told::Number(7)));
        let text = libc::strdup(c"0,1".as_ptr());
        assert_eq!(
            Told::take(given(TYPE_STRING, Data { text })),
            Some(Told::Text("0,1".into()))
        );
        assert_eq!(
            Told::take(given(TYPE_STRING, Data { text: null_mut() })),
            None
        );
        assert_eq!(Told::take(given(99, Data { words: [1; 3] })), None);
    }
}
