//! Structures, tables and constants agree with the installed headers. Later versions append members, so their sizes may be larger.

use std::fmt::Write;

mod common;
use common::c::{accepted, write};
use common::compiler;
use unipgas_libfabric_sys as sys;

#[test]
fn layouts_are_those_of_the_headers() {
    let Some(mut compiler) = compiler() else {
        return;
    };
    let mut text = String::from(
        "#include <stddef.h>\n#include <rdma/fabric.h>\n#include <rdma/fi_atomic.h>\n#include <rdma/fi_cm.h>\n#include <rdma/fi_collective.h>\n\
         #include <rdma/fi_domain.h>\n#include <rdma/fi_endpoint.h>\n#include <rdma/fi_eq.h>\n#include <rdma/fi_errno.h>\n\
         #include <rdma/fi_rma.h>\n#include <rdma/fi_tagged.h>\n#include <rdma/fi_trigger.h>\n#include <rdma/providers/fi_prov.h>\n",
    );
    let mut known = 0;
    for (name, size, fields) in sys::STRUCTURES.iter().chain(sys::TABLES) {
        writeln!(
            text,
            "_Static_assert(sizeof(struct {name}) >= {size}, \"{name}\");"
        )
        .unwrap();
        for (field, offset) in *fields {
            let field = field.trim_start_matches("r#");
            writeln!(
                text,
                "_Static_assert(offsetof(struct {name}, {field}) == {offset}, \"{name}.{field}\");"
            )
            .unwrap();
            known += 1;
        }
    }
    assert!(known > 250);
    for (name, value) in sys::constants() {
        writeln!(
            text,
            "_Static_assert((unsigned long long) {name} == {value}ull, \"{name}\");"
        )
        .unwrap();
    }
    accepted(&mut compiler, &write("layout.c", &text));
}
