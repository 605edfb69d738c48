//! The Fortran modules compile as Fortran 2003, bind all procedures of GASPI, and agree with the C headers on layouts and constants.
//! Without gfortran the tests print a line and are skipped.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "../../tests/c/mod.rs"]
mod c;
use c::demand;

/// Names without a Fortran interface: forms for C only, and threads.
const FOR_C: [&str; 7] = [
    "gaspi_allreduce_user_17",
    "gaspi_state_vec_get_17",
    "gaspi_threads_",
    "pgaspi_",
    // TAGASPI is in C++.
    "gaspi_operation_",
    "gaspi_queue_group_",
    "gaspi_request_wait",
];

fn crate_dir() -> PathBuf {
    c::crate_dir("api-gaspi")
}

fn modules() -> PathBuf {
    crate_dir().join("fortran/gaspi.f90")
}

/// An empty directory.
fn scratch(name: &str) -> PathBuf {
    let path = c::scratch(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).expect("scratch directory is writable");
    path
}

/// gfortran in this folder, if there is one.
fn compiler(folder: &Path) -> Option<Command> {
    let found = Command::new("gfortran").arg("--version").output();
    if !found.is_ok_and(|found| found.status.success()) {
        println!("left out: gfortran is missing (Debian: gfortran)");
        return None;
    }
    let mut command = Command::new("gfortran");
    command.current_dir(folder);
    command.args(["-std=f2003", "-Wall", "-Wextra", "-pedantic", "-Werror"]);
    Some(command)
}

#[test]
fn every_procedure_has_an_interface() {
    let text = fs::read_to_string(modules()).expect("the module is there");
    let bound: BTreeSet<&str> = text
        .split("bind(C, name=\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .collect();
    let symbols = fs::read_to_string(crate_dir().join("symbols.txt")).expect("symbols.txt");
    let wanted: BTreeSet<&str> = symbols
        .lines()
        .filter(|line| !line.starts_with('#') && !FOR_C.iter().any(|other| line.starts_with(other)))
        // A wrapper puts its text into the program's characters.
        .filter(|line| *line != "gaspi_print_error")
        .collect();
    let differences: Vec<_> = bound.symmetric_difference(&wanted).collect();
    assert!(differences.is_empty(), "{differences:?}");
}

#[test]
fn the_modules_compile_and_agree_with_the_headers() {
    let folder = scratch("layout");
    let Some(mut module) = compiler(&folder) else {
        return;
    };
    demand(module.arg("-c").arg(modules()));
    let program = "
        program layout
          use gaspi
          type(gaspi_config_t), target :: config
          type(c_ptr) :: first, last
          first = c_loc(config)
          last = c_loc(config%user_defined)
          write(*, '(*(i0,1x))') storage_size(config) / 8, storage_size(config%dev_config) / 8, &
            transfer(last, 0_c_long) - transfer(first, 0_c_long), &
            storage_size(0_gaspi_rank_t) / 8, storage_size(0_gaspi_timeout_t) / 8, storage_size(0_gaspi_segment_id_t) / 8, &
            GASPI_ERR_MEMALLOC, GASPI_QUEUE_FULL, GASPI_OP_SUM, GASPI_TYPE_ULONG, GASPI_OFI, GASPI_TOPOLOGY_DYNAMIC
        end program layout";
    fs::write(folder.join("layout.f90"), program).expect("writable");
    let mut fortran = Command::new("gfortran");
    fortran
        .current_dir(&folder)
        .args(["layout.f90", "-o", "fortran"]);
    demand(&mut fortran);
    let program = "
        #include <GASPI.h>
        #include <stddef.h>
        #include <stdio.h>
        int main (void)
        {
          printf (\"%zu %zu %zu %zu %zu %zu %d %d %d %d %d %d\\n\", sizeof (gaspi_config_t), sizeof (gaspi_dev_config_t),
                  offsetof (gaspi_config_t, user_defined), sizeof (gaspi_rank_t), sizeof (gaspi_timeout_t), sizeof (gaspi_segment_id_t),
                  (int) GASPI_ERR_MEMALLOC, (int) GASPI_QUEUE_FULL, (int) GASPI_OP_SUM, (int) GASPI_TYPE_ULONG, (int) GASPI_OFI,
                  (int) GASPI_TOPOLOGY_DYNAMIC);
          return 0;
        }";
    fs::write(folder.join("layout.c"), program).expect("writable");
    let mut c = Command::new("cc");
    c.current_dir(&folder)
        .arg("-I")
        .arg(crate_dir().join("include"));
    demand(c.args(["layout.c", "-o", "c"]));
    let said = |name: &str| demand(&mut Command::new(folder.join(name)));
    assert_eq!(said("fortran").trim(), said("c").trim());
}
