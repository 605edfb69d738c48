//! `unipgas cc` and `unipgas info`.

use std::path::Path;
use std::process::{Command, Output};

mod common;

use common::{Folder, Said, has};

fn unipgas(args: &[&str]) -> Output {
    unipgas_with(&[], args)
}

fn unipgas_with(variables: &[(&str, &str)], args: &[&str]) -> Output {
    let mut command = common::unipgas(args);
    for name in [
        "UNIPGAS_CC",
        "UNIPGAS_CXX",
        "CC",
        "CXX",
        "UTOFU_NUM_MRQ_ENTRIES",
    ] {
        command.env_remove(name);
    }
    command.envs(variables.iter().copied()).output().unwrap()
}

/// An installed tree, as of `make install`, with the program in it.
struct Prefix(Folder);

impl Prefix {
    fn new(name: &str) -> Prefix {
        let prefix = Folder::new(&format!("prefix {name} "));
        let path = &prefix.0;
        for folder in ["bin", "include", "lib"] {
            std::fs::create_dir_all(path.join(folder)).unwrap();
        }
        // A link, not a copy: another thread's child process could hold a copy open for writing, and exec would fail.
        std::fs::hard_link(env!("CARGO_BIN_EXE_unipgas"), path.join("bin/unipgas")).unwrap();
        std::fs::write(path.join("include/GASPI.h"), "").unwrap();
        std::fs::write(path.join("lib/libGPI2.so"), "").unwrap();
        Prefix(prefix)
    }

    /// A program of the tree, without the variables that choose a compiler.
    fn command(&self, name: &str, args: &[&str]) -> Command {
        let mut command = Command::new(self.0.0.join("bin").join(name));
        command.args(args);
        command.env_remove("UNIPGAS_CC").env_remove("UNIPGAS_CXX");
        command
    }

    fn cc(&self, args: &[&str]) -> String {
        let mut command = self.command("unipgas", &[&["cc"], args].concat());
        let output = command.env("CC", "ccache mycc").output().unwrap();
        self.shown(&output)
    }

    /// Its output, with P for the path of the folder.
    fn shown(&self, output: &Output) -> String {
        let text = output.ok().trim_end().replace('\'', "");
        text.replace(&self.0.0.display().to_string(), "P")
    }
}

#[test]
fn showme_prints_what_would_run() {
    let prefix = Prefix::new("showme");
    let link = "-LP/lib -Wl,-rpath,P/lib -lGPI2";
    assert_eq!(
        prefix.cc(&["--api", "gaspi", "--showme:compile"]),
        "-IP/include"
    );
    assert_eq!(prefix.cc(&["--api=gaspi", "--showme:link"]), link);
    assert_eq!(
        prefix.cc(&["--api", "gaspi", "--showme", "-O2", "a.c"]),
        format!("ccache mycc -IP/include -O2 a.c {link}")
    );
    assert_eq!(
        prefix.cc(&["--showme", "-c", "a.c", "--api", "gaspi"]),
        "ccache mycc -IP/include -c a.c"
    );
    for only in ["-E", "-S", "-MM", "-fsyntax-only"] {
        assert!(
            !prefix
                .cc(&["--api", "gaspi", "--showme", only, "a.c"])
                .contains("-lGPI2"),
            "{only}"
        );
    }
    assert!(
        !prefix
            .cc(&["--api", "gaspi", "--showme", "--version"])
            .contains("-lGPI2")
    );
    assert!(
        prefix
            .cc(&["--api", "gaspi", "--showme", "--cxx", "a.cc"])
            .ends_with("a.cc -LP/lib -Wl,-rpath,P/lib -lGPI2")
    );
}

#[test]
fn an_rpath_is_given_where_the_installation_has_one() {
    let prefix = Prefix::new("rpath");
    std::fs::create_dir_all(prefix.0.0.join("lib/pkgconfig")).unwrap();
    let link = |libs: &str| {
        std::fs::write(prefix.0.0.join("lib/pkgconfig/unipgas.pc"), libs).unwrap();
        prefix.cc(&["--api=gaspi", "--showme:link"])
    };
    assert_eq!(
        link("Libs: -L${libdir} -Wl,-rpath,${libdir} -lunipgas\n"),
        "-LP/lib -Wl,-rpath,P/lib -lGPI2"
    );
    assert_eq!(link("Libs: -L${libdir} -lunipgas\n"), "-LP/lib -lGPI2");
}

#[test]
fn packages_of_distributions_have_folders_of_their_own() {
    let prefix = Prefix::new("packages");
    let lib = format!("lib/{}-linux-gnu", std::env::consts::ARCH);
    for folder in ["include/unipgas", &lib] {
        std::fs::create_dir_all(prefix.0.0.join(folder)).unwrap();
    }
    // Without the package that contains the names of other libraries.
    for file in ["include/GASPI.h", "lib/libGPI2.so"] {
        std::fs::remove_file(prefix.0.0.join(file)).unwrap();
    }
    std::fs::write(prefix.0.0.join("include/unipgas/GASPI.h"), "").unwrap();
    std::fs::write(prefix.0.0.join(&lib).join("libunipgas.so"), "").unwrap();
    assert_eq!(
        prefix.cc(&["--api=gaspi", "--showme", "a.c"]),
        format!("ccache mycc -IP/include/unipgas a.c -LP/{lib} -Wl,-rpath,P/{lib} -lunipgas")
    );
    // With that package.
    std::fs::write(prefix.0.0.join("include/GASPI.h"), "").unwrap();
    std::fs::write(prefix.0.0.join(&lib).join("libGPI2.so"), "").unwrap();
    let said = prefix.cc(&["--api=gaspi", "--showme", "a.c"]);
    assert!(
        said.contains("-IP/include/unipgas ") && said.ends_with(" -lGPI2"),
        "{said}"
    );
}

#[test]
fn static_programs_get_what_the_archive_needs() {
    let prefix = Prefix::new("static");
    for option in ["-static", "-static-pie"] {
        let said = prefix.cc(&["--api", "gaspi", "--showme", option, "a.c"]);
        assert!(said.contains(option) && said.contains(" -lGPI2 "), "{said}");
        assert!(said.contains(" -lm "), "{said}");
    }
}

#[test]
fn one_word_compilers() {
    let prefix = Prefix::new("words");
    for file in ["utofu.h", "RCCE.h", "iRCCE.h"] {
        std::fs::write(prefix.0.0.join("include").join(file), "").unwrap();
    }
    for (name, library) in [
        ("gaspi", "GPI2"),
        ("utofu", "tofucom"),
        ("rcce", "RCCE"),
        ("ircce", "iRCCE"),
    ] {
        std::fs::write(prefix.0.0.join(format!("lib/lib{library}.so")), "").unwrap();
        for (suffix, variable) in [("cc", "CC"), ("cxx", "CXX")] {
            let word = &format!("{name}{suffix}");
            let folder = prefix.0.0.join("bin");
            std::os::unix::fs::symlink("unipgas", folder.join(word)).unwrap();
            let said = |args: &[&str], value: &str| {
                let mut command = prefix.command(word, args);
                prefix.shown(&command.env(variable, value).output().unwrap())
            };
            let include = match name {
                "utofu" => "-IP/include -IP/include/fjmpi",
                _ => "-IP/include",
            };
            assert_eq!(
                said(&["--showme", "-O2", "--api", "a.c"], "mycc"),
                format!("mycc {include} -O2 --api a.c -LP/lib -Wl,-rpath,P/lib -l{library}")
            );
            assert_eq!(said(&["--help"], "echo"), format!("{include} --help"));
            // `make CC=gaspicc` passes this program as CC. It must not call itself.
            let mut command = prefix.command(word, &["--showme", "-c", "a.c"]);
            command.env(variable, word).env("PATH", folder);
            let text = command.output().unwrap().out();
            let default = if suffix == "cc" { "cc " } else { "c++ " };
            assert!(text.starts_with(default), "{text}");
        }
    }
}

#[test]
fn the_compiler_is_run_with_its_status() {
    let prefix = Prefix::new("status");
    let status = |compiler: &str, args: &[&str]| {
        let mut command = prefix.command("unipgas", &[&["cc", "--api", "gaspi"], args].concat());
        command.env("UNIPGAS_CC", compiler).env("CC", "false");
        command.status().unwrap().code()
    };
    assert_eq!(status("true", &["-c", "a.c"]), Some(0));
    assert_eq!(
        status("env false", &["a.c"]),
        Some(1),
        "blanks separate words"
    );
    assert_eq!(status("false", &["a.c"]), Some(1));
    assert_eq!(status("no-such-compiler", &["a.c"]), Some(127));
}

#[test]
fn mistakes_get_one_line() {
    for (args, part) in [
        (
            &["cc", "a.c"][..],
            "--api with one of: gaspi, utofu, rcce, ircce",
        ),
        (
            &["cc", "--api", "mpi", "a.c"],
            "no interface \"mpi\"; there are: gaspi, utofu, rcce, ircce",
        ),
        (&["cc", "--api"], "gaspi"),
        (&["conpile"], "conpile"),
        (&["info", "--yaml"], "--yaml"),
        (&[], "say what to do"),
    ] {
        let output = unipgas(args);
        let text = output.refuses(2, part);
        assert!(text.starts_with("unipgas: "), "{args:?} {text}");
    }
}

#[test]
fn info_tells_the_machine_the_backends_and_the_limits() {
    let text = unipgas(&["info"]).ok();
    let parts = [
        "machine ",
        "backend    shm: usable",
        "bootstrap  none: a job of one; rank 0 of 1, 1 on this host (no launcher",
        "host       ",
        "network    shm (this host): used: the default",
        "network    streams (other hosts): used: choice 4",
        "backend    streams: usable, tried with 2 processes; peers map nothing, all goes by messages; limits: 536870912 bytes at once",
        "userfaultfd",
        "processes: 65536",
        "KiB per process",
        "KiB per uTofu VCQ",
        "UNIPGAS_JOB not set",
        "uTofu TNIs per node: 6",
        "uTofu MRQ entries per VCQ: 131072",
        "UNIPGAS_TOFU_SHAPE",
        "UNIPGAS_TOFU_PPN",
        "UNIPGAS_JOB_NAME",
        "UTOFU_NUM_EXCLUSIVE_CQS",
        "UTOFU_NUM_SESSION_MODE_CQS",
        "UTOFU_NUM_MRQ_ENTRIES ",
        "UTOFU_NUM_MRQ_ENTRIES_SESSION",
        "UTOFU_SWAP_PROTECT",
        "UNIPGAS_RCCE_MPB",
        "UNIPGAS_RCCE_CORES",
    ];
    has(&text, &parts);
    let output = unipgas(&["info", "--json"]);
    let info: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(info["limits"]["processes"], 65536);
    assert_eq!(info["backends"]["shm"]["usable"], true);
    assert_eq!(info["limits"]["RCCE UEs"], 48);
    // Each interface has limits, and both formats show the same.
    let limits = info["limits"].as_object().unwrap();
    for interface in ["GASPI ", "uTofu ", "RCCE ", "libfabric "] {
        let own = limits.keys().filter(|name| name.starts_with(interface));
        assert!(own.count() >= 5, "{interface}");
    }
    for (name, value) in limits {
        has(&text, &[&format!("limit      {name}: {value}\n")]);
    }
    assert_eq!(info["bootstrap"]["size"], 1);
    assert_eq!(info["host"]["id"].as_str().unwrap().len(), 16);
    assert_eq!(info["networks"]["shm"]["used"], true);
    assert_eq!(info["backends"]["shm"]["mapped"], true);
    assert_eq!(info["backends"]["streams"]["mapped"], false);
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/run-examples");
    let tests = std::fs::read_to_string(examples).unwrap();
    for (limit, before, after) in [
        ("processes that were tried", "ranks=", "\n"),
        (
            "uTofu processes that were tried",
            "run ",
            " \"$work/utofu/barrier_butterfly\"",
        ),
    ] {
        let tried = info["limits"][limit].as_u64().unwrap();
        assert!(
            tests.contains(&format!("{before}{tried}{after}")),
            "{limit}"
        );
    }
    assert_eq!(info["limits"]["uTofu VBGs per TNI"], 48);
    for memory in ["memory_per_process_bytes", "memory_per_vcq_bytes"] {
        assert!(info[memory].as_u64().unwrap() > 0, "{memory}");
    }
    assert!(!info["machine"]["pus"].as_array().unwrap().is_empty());
}

#[test]
fn info_tells_the_launcher_and_what_is_not_used() {
    let myself = env!("CARGO_BIN_EXE_unipgas");
    let output = unipgas(&["run", "-n", "2", myself, "info", "--json"]);
    assert!(output.status.success());
    let mut told = serde_json::Deserializer::from_slice(&output.stdout).into_iter();
    for _ in 0..2 {
        let info: serde_json::Value = told.next().unwrap().unwrap();
        assert_eq!(info["bootstrap"]["source"], "unipgas run");
        assert_eq!(info["bootstrap"]["size"], 2);
        assert!(info["bootstrap"]["environment"]["UNIPGAS_RANK"].is_string());
    }
    let output = unipgas_with(
        &[("UNIPGAS_NETWORKS", "none"), ("MPI_LOCALNRANKS", "3")],
        &["info"],
    );
    let parts = [
        "network    streams (other hosts): not used: UNIPGAS_NETWORKS=none does not name it",
        "network    ofi (other hosts): not used: UNIPGAS_NETWORKS=none does not name it",
        "bootstrap  no: a launcher has started this process as one of several (MPI_LOCALNRANKS=3)",
        "(found MPI_LOCALNRANKS=3)",
    ];
    has(&output.out(), &parts);
}

#[test]
fn info_says_of_ofi_what_the_backend_says() {
    let info = |variables: &[(&str, &str)]| {
        let output = unipgas_with(variables, &["info", "--json"]);
        let info: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let [way, trial] = ["networks", "backends"].map(|part| info[part]["ofi"].clone());
        (way, trial)
    };
    // Both reports give the same reason, also without libfabric.
    for (provider, backend) in [
        ("no-such", "shm"),
        ("no-such", "ofi"),
        ("udp;ofi_rxd", "shm"),
        ("udp;ofi_rxd", "ofi"),
    ] {
        let wish = [
            ("UNIPGAS_OFI_PROVIDER", provider),
            ("UNIPGAS_BACKEND", backend),
        ];
        let (way, trial) = info(&wish);
        assert_eq!(way["used"], false, "{provider} {backend}: {way}");
        // Network interfaces can change between the two reports.
        let why = way["reason"].as_str().unwrap();
        let why = why.split(" at ").next().unwrap();
        let said = trial["reason"].as_str().unwrap();
        assert!(said.contains(why), "{provider} {backend}: {why}: {said}");
    }
}

#[test]
fn what_the_compiler_is_told_is_not_read() {
    let prefix = Prefix::new("unread");
    // Options of this program and of the compiler, in any order; a value that looks like an option.
    for args in [
        "-Wl,--as-needed --param x=1 a.c --api=gaspi -fno-such --version --help -- -h",
        "--api gaspi @file -DA='b c' --no-such=1 -x c - -o --cxxx",
    ] {
        let words: Vec<&str> = args.split(' ').collect();
        let said = prefix.cc(&[&words[..], &["--showme"]].concat());
        let rest = args.replace("--api=gaspi ", "").replace("--api gaspi ", "");
        let rest = rest.replace('\'', "");
        let line = said.replace("\\", "");
        assert_eq!(
            line.split(" -LP/lib").next().unwrap(),
            format!("ccache mycc -IP/include {rest}")
        );
    }
    for args in [&["cc", "--help"][..], &["help", "cc"], &["c++", "--help"]] {
        let text = unipgas(args).ok();
        has(&text, &["--api <API>", "gaspi, utofu, rcce, ircce"]);
        has(&text, &["--showme:compile", "-static", "gaspicxx"]);
    }
}

#[test]
fn pages_and_completions_are_made_of_the_options() {
    let place = std::env::temp_dir().join(format!("unipgas-pages-{}", std::process::id()));
    std::fs::create_dir_all(&place).unwrap();
    let described = place.join("conform.options");
    let program = clap::Command::new("unipgas-conform")
        .arg(clap::Arg::new("seeds").long("seeds").help("Seeds"));
    std::fs::write(&described, unipgas_options::describe(&program)).unwrap();
    let options = format!("conform={}", described.display());
    let output = unipgas(&["pages", place.to_str().unwrap(), "--options", &options]);
    assert!(output.status.success(), "{output:?}");
    for wrong in ["conform", "other=file", "conform=/nowhere"] {
        let output = unipgas(&["pages", place.to_str().unwrap(), "--options", wrong]);
        let part = wrong.trim_start_matches("conform=");
        has(&output.ends(2), &[part]);
    }
    let text = |name: &str| std::fs::read_to_string(place.join(name)).unwrap();
    for (page, option) in [
        ("unipgas", "unipgas\\-conform(1)"),
        ("unipgas-run", "\\-\\-report\\-bindings"),
        ("unipgas-conform", "\\-\\-seeds"),
        ("unipgas-top", "\\-\\-delay"),
        ("unipgas-cc", "\\-\\-showme"),
        ("unipgas-c++", "\\-\\-api"),
    ] {
        has(&text(&format!("man/man1/{page}.1")), &[option]);
    }
    assert!(!place.join("man/man1/unipgas-part.1").exists());
    let bash = place.join("bash-completion/completions/unipgas");
    let checked = Command::new("bash").arg("-n").arg(&bash).status().unwrap();
    assert!(checked.success());
    for shell in [
        "bash-completion/completions/unipgas",
        "zsh/site-functions/_unipgas",
    ] {
        has(&text(shell), &["--report-bindings", "--seeds"]);
    }
    std::fs::remove_dir_all(place).unwrap();
}
