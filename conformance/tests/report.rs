//! The pages that `--report` writes: that they are whole, and that they say what came of the laws.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::time::Duration;

use scraper::{ElementRef, Html, Selector};
use unipgas_conformance::laws;
use unipgas_conformance::sentences::{PARTS, SentenceCheck};

const CONFORM: &str = env!("CARGO_BIN_EXE_unipgas-conform");

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let name = format!("unipgas-report-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn pages(&self) -> BTreeMap<String, Html> {
        let entries = std::fs::read_dir(&self.0).expect("readable");
        let names = entries.map(|entry| entry.expect("readable").file_name());
        let names: BTreeSet<_> = names
            .map(|name| name.into_string().expect("text"))
            .collect();
        let (pages, others): (Vec<_>, Vec<_>) =
            names.into_iter().partition(|name| name.ends_with(".html"));
        assert_eq!(others, ["report.json", "style.css"]);
        pages
            .into_iter()
            .map(|name| {
                let text = std::fs::read_to_string(self.0.join(&name)).expect("text");
                let page = Html::parse_document(&text);
                (name, page)
            })
            .collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn command(args: &str, report: &Path) -> Command {
    let mut command = Command::new(CONFORM);
    command.args(args.split(' ')).arg("--report").arg(report);
    command
}

fn conform(args: &str, report: &Path) -> Output {
    command(args, report).output().expect("starts")
}

fn all<'a>(page: &'a Html, selector: &str) -> Vec<ElementRef<'a>> {
    page.select(&Selector::parse(selector).expect("a selector"))
        .collect()
}

fn within<'a>(element: ElementRef<'a>, selector: &str) -> Vec<ElementRef<'a>> {
    element
        .select(&Selector::parse(selector).expect("a selector"))
        .collect()
}

fn text(element: ElementRef<'_>) -> String {
    element.text().collect()
}

fn by_id<'a>(page: &'a Html, id: &str) -> ElementRef<'a> {
    let found: Vec<_> = all(page, "[id]")
        .into_iter()
        .filter(|element| element.attr("id") == Some(id))
        .collect();
    assert_eq!(found.len(), 1, "{id}");
    found[0]
}

fn ids(page: &Html) -> Vec<&str> {
    let with = all(page, "[id]").into_iter();
    with.filter_map(|element| element.attr("id")).collect()
}

/// What every report must be: well-formed, with titles and headers, and each link leads somewhere.
fn check_whole(folder: &Folder) {
    let pages = folder.pages();
    assert_eq!(pages.len(), 11, "{:?}", pages.keys());
    let mut titles = BTreeSet::new();
    for (name, page) in &pages {
        assert_eq!(page.errors, [""; 0], "{name}");
        for (selector, what) in [
            ("html[lang]", "language"),
            ("title", "title"),
            ("meta[name=viewport]", "width"),
            ("main", "main part"),
            ("h1", "heading"),
        ] {
            assert_eq!(all(page, selector).len(), 1, "{name}: {what}");
        }
        titles.insert(text(all(page, "title")[0]));
        for table in all(page, "table") {
            assert_eq!(
                within(table, "caption").len(),
                1,
                "{name}: a table without a caption"
            );
            assert!(
                !within(table, "thead th[scope]").is_empty(),
                "{name}: a table without headers"
            );
            for row in within(table, "tbody tr") {
                let headers = within(row, "th[scope]").len() + within(row, "td").len();
                assert!(headers > 1, "{name}: a row of nothing");
            }
        }
        let unique: BTreeSet<_> = ids(page).into_iter().collect();
        assert_eq!(
            unique.len(),
            ids(page).len(),
            "{name}: ids that are there twice"
        );
        assert_eq!(all(page, "script, img, iframe").len(), 0, "{name}");
    }
    assert_eq!(titles.len(), pages.len(), "{titles:?}");
    let anchors: BTreeMap<_, BTreeSet<_>> = pages
        .iter()
        .map(|(name, page)| (name.as_str(), ids(page).into_iter().collect()))
        .collect();
    let mut links = 0;
    for (name, page) in &pages {
        for element in all(page, "[href]") {
            let link = element.attr("href").unwrap_or_default();
            let (file, anchor) = match link.split_once('#') {
                Some((file, anchor)) => (file, Some(anchor)),
                None => (link, None),
            };
            let file = if file.is_empty() { name } else { file };
            assert!(folder.0.join(file).is_file(), "{name}: {link}");
            if let Some(anchor) = anchor {
                assert!(anchors[file].contains(anchor), "{name}: {link}");
            }
            links += 1;
        }
    }
    assert!(links > 5000, "{links}");
    let style = std::fs::read_to_string(folder.0.join("style.css")).expect("text");
    assert!(!style.contains("url(") && !style.contains("@import"));
}

/// The numbers on top, with their words.
fn totals(index: &Html) -> Vec<String> {
    all(index, ".totals li").into_iter().map(text).collect()
}

/// The cells of a law's row in the matrix.
fn row(index: &Html, law: &str) -> Vec<String> {
    let rows = all(index, "table.matrix tbody tr").into_iter();
    let row = rows
        .map(|row| {
            within(row, "th, td")
                .into_iter()
                .map(text)
                .collect::<Vec<_>>()
        })
        .find(|row| row[0] == law);
    row.unwrap_or_else(|| panic!("no row of {law}"))
}

fn laws_that_hold() {
    let folder = Folder::new("holds");
    let args = "--law gaspi.write.s,core.put.contents --backend shm,loopback --seed 7";
    let output = conform(args, &folder.0);
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.ends_with("4 passed, 0 failed, 2 skipped\n"), "{said}");
    check_whole(&folder);
    let pages = folder.pages();
    let index = &pages["index.html"];
    assert_eq!(totals(index), ["4 passed", "0 failed", "2 skipped"]);
    assert_eq!(row(index, "core.put.contents")[2..], ["pass", "pass"]);
    assert_eq!(row(index, "gaspi.write.sizes")[2..], ["pass", "n/a"]);
    let ran = text(all(index, "main")[0]);
    for part in [
        "unipgas 0.",
        "--law 'gaspi.write.s,core.put.contents' --backend 'shm,loopback'",
        "1 seed for each law, from 7; 4 runs in all",
        "GASPI has one process a process",
    ] {
        assert!(ran.contains(part), "{part}: {ran}");
    }
    assert_eq!(all(index, "#failures").len(), 0);
    assert_eq!(all(index, ".note").len(), 0);
    let law = by_id(&pages["gaspi-laws.html"], "gaspi.write.sizes");
    let told = text(law);
    let words = ["2 processes", "gaspi_write", "8.2.1", "pass"];
    for part in words.into_iter().chain(["not applicable: "]) {
        assert!(told.contains(part), "{part}: {told}");
    }
    // A sentence that another law decides as well, one that these alone decide, and one that none of them does.
    let gaspi = text(all(&pages["gaspi.html"], "main")[0]);
    for part in ["holds in part", "not run"] {
        assert!(gaspi.contains(part), "{part}");
    }
    let records = std::fs::read_to_string(folder.0.join("report.json")).expect("text");
    assert_eq!(records.lines().count(), 6);
    for line in records.lines() {
        let record: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert!(record["law"].is_string(), "{line}");
    }
}

/// Every sentence is on its page, with what decides it, and every law with its sentences.
fn sentences_and_laws_lead_to_each_other() {
    let folder = Folder::new("sentences");
    let output = conform("--law utofu.put --backend loopback", &folder.0);
    // The pages are written even where no law applies.
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let pages = folder.pages();
    let links = |element: ElementRef<'_>| -> BTreeSet<String> {
        let links = within(element, "a[href]").into_iter();
        links
            .filter_map(|link| link.attr("href").map(String::from))
            .collect()
    };
    let mut back: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, page) in pages
        .iter()
        .filter(|(name, _)| name.ends_with("-laws.html"))
    {
        for law in all(page, "section.law") {
            let id = law.attr("id").expect("an anchor");
            back.insert(format!("{name}#{id}"), links(law));
        }
    }
    for law in laws::all() {
        let is_it = |place: &&String| place.ends_with(&format!("#{}", law.id));
        assert_eq!(back.keys().filter(is_it).count(), 1, "{}", law.id);
    }
    let mut items: BTreeMap<String, (String, ElementRef<'_>)> = BTreeMap::new();
    for (name, page) in &pages {
        for item in all(page, "ol > li[id]") {
            let place = format!("{name}#{}", item.attr("id").expect("an anchor"));
            items.insert(place, (text(item), item));
        }
    }
    assert_eq!(
        items.len(),
        PARTS.iter().map(|part| part.sentences.len()).sum::<usize>()
    );
    for sentence in PARTS.iter().flat_map(|part| part.sentences) {
        let here = |(place, (text, _)): &(&String, &(String, ElementRef<'_>))| {
            place.contains(&format!("#s-{}-", sentence.section))
                && text.starts_with(&format!("{} #", sentence.says))
        };
        let (place, (text, item)) = items
            .iter()
            .find(here)
            .unwrap_or_else(|| panic!("{sentence:?}"));
        match sentence.kept {
            SentenceCheck::By(ids) => {
                let (links, place) = (links(*item), place);
                for id in ids {
                    let law = links.iter().find(|link| link.ends_with(&format!("#{id}")));
                    let law = law.unwrap_or_else(|| panic!("{place}: {id}"));
                    assert!(back[law].contains(place), "{law} does not lead to {place}");
                }
            }
            SentenceCheck::Test(why) | SentenceCheck::Unseen(why) | SentenceCheck::Not(why) => {
                assert!(text.contains(why), "{text}: {why}");
            }
        }
    }
}

fn a_law_that_fails() {
    let folder = Folder::new("fails");
    // Special characters of HTML in a path are shown literally.
    let folder = Folder(folder.0.join("<b>&amp; \"it\" 's"));
    let args = "--law selftest.lies --backend shm,loopback --seed 5";
    let output = conform(args, &folder.0);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    check_whole(&folder);
    let pages = folder.pages();
    let index = &pages["index.html"];
    assert_eq!(totals(index), ["0 passed", "2 failed", "0 skipped"]);
    assert_eq!(row(index, "selftest.lies")[2..], ["FAILS", "FAILS"]);
    let failures: Vec<_> = all(index, ".failure").into_iter().collect();
    assert_eq!(failures.len(), 2);
    for (failure, backend) in failures.into_iter().zip(["shm", "loopback"]) {
        let told = text(failure);
        for part in [
            format!("selftest.lies on {backend}: FAILS"),
            "Seed 5: rank 1: rank: 1 instead of 0".into(),
            format!("unipgas conform --law selftest.lies --backend {backend} --seed 5"),
        ] {
            assert!(told.contains(&part), "{part}: {told}");
        }
        let links = within(failure, "h3 a");
        let link = links[0].attr("href").expect("a link");
        assert_eq!(link, format!("engine-laws.html#selftest.lies@{backend}"));
        let place = by_id(
            &pages["engine-laws.html"],
            &format!("selftest.lies@{backend}"),
        );
        assert!(text(place).contains("1 instead of 0"));
    }
    let command = all(index, "#what-ran ~ dl code");
    let name = folder.0.file_name().expect("a name").to_string_lossy();
    let line = text(command[0]);
    let words = shlex::split(&line).expect("a line of a shell");
    assert!(
        words.last().is_some_and(|word| word.ends_with(&*name)),
        "{line}"
    );
    std::fs::remove_dir_all(folder.0.parent().expect("a folder")).expect("removable");
}

fn what_is_pinned() {
    let folder = Folder::new("pinned");
    let law = "selftest.holds-against-its-pin";
    let args = format!("--law {law} --backend shm,chaos");
    assert!(conform(&args, &folder.0).status.success());
    check_whole(&folder);
    let pages = folder.pages();
    let index = &pages["index.html"];
    assert_eq!(row(index, law)[2..], ["broken", "n/a"]);
    let rows: Vec<Vec<String>> = all(index, "#skipped ~ .scrolled tbody tr")
        .into_iter()
        .map(|row| within(row, "th, td").into_iter().map(text).collect())
        .collect();
    let (broken, not_about) = ("known to be broken", "not applicable");
    let rows_of = [
        ["for a test", broken, "broken", "shm", law],
        ["nobody asks it", not_about, not_about, "chaos", law],
    ];
    assert_eq!(rows, rows_of);
}

/// The processes of the job that `parent` has started in this column.
fn workers(parent: &Child, column: &str) -> Vec<u32> {
    let pids = std::fs::read_dir("/proc").expect("readable").flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_string_lossy().parse::<u32>().ok());
    pids.filter(|pid| {
        let read =
            |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let stat = read("stat");
        // After the name, which may have anything in it: the state, and the parent.
        let after = stat.rsplit_once(") ").map_or("", |(_, after)| after);
        let is_ours = after.split(' ').nth(1) == Some(&parent.id().to_string());
        is_ours && read("cmdline").contains(&format!("\0{column}\0"))
    })
    .collect()
}

/// Ctrl-C goes to the jobs, too; `kill` to the command alone.
fn what_is_known_when_it_is_stopped() {
    for (signal, to_all) in [(libc::SIGINT, true), (libc::SIGTERM, false)] {
        let folder = Folder::new(&format!("stopped-{signal}"));
        let law = "core.barrier.of-2";
        // More seeds than anybody waits for, where backends draw from them.
        let args = format!("--law {law} --backend shm,chaos --seeds 100000000 --jobs 1");
        let mut command = command(&args, &folder.0);
        // SAFETY:
        // - signal(2) may be called between fork and exec.
        unsafe {
            command.pre_exec(move || {
                // Who runs the tests in the background may have it ignored.
                libc::signal(signal, libc::SIG_DFL);
                Ok(())
            })
        };
        let mut child = command
            .process_group(0)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        let pids = loop {
            let pids = workers(&child, "chaos");
            if !pids.is_empty() {
                break pids;
            }
            assert_eq!(child.try_wait().expect("its state"), None);
            std::thread::sleep(Duration::from_millis(10));
        };
        let index = &folder.pages()["index.html"];
        assert!(text(all(index, ".note")[0]).contains("The run goes on"));
        let target = child.id() as i32 * if to_all { -1 } else { 1 };
        // SAFETY:
        // - a process that has not been waited for, or its group.
        assert_eq!(unsafe { libc::kill(target, signal) }, 0);
        let output = child.wait_with_output().expect("ends");
        assert_eq!(output.status.signal(), Some(signal), "{output:?}");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            errors.starts_with("unipgas: stopped; ") && errors.lines().count() == 1,
            "{errors}"
        );
        for pid in pids {
            assert!(
                !Path::new(&format!("/proc/{pid}")).exists(),
                "{pid} goes on"
            );
        }
        check_whole(&folder);
        let pages = folder.pages();
        let index = &pages["index.html"];
        assert!(text(all(index, ".note")[0]).contains("ended before all had run"));
        assert_eq!(
            totals(index),
            ["1 passed", "0 failed", "0 skipped", "1 not run"]
        );
        assert_eq!(row(index, law)[2..], ["pass ×50", "not run"]);
    }
}

fn where_nothing_can_be_written() {
    let folder = Folder::new("unwritable");
    let file = folder.0.join("file");
    std::fs::write(&file, "").expect("a file");
    let output = conform("--law selftest.holds --backend shm", &file);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(
        errors.starts_with("unipgas: cannot make ") && errors.lines().count() == 1,
        "{errors}"
    );
}

macro_rules! tests {
    ($($test:ident),*) => {
        [$((stringify!($test), $test as fn())),*]
    };
}

fn main() -> ExitCode {
    unipgas_backends::init();
    let mut args = std::env::args().skip(1);
    let tests = tests! {
        laws_that_hold, sentences_and_laws_lead_to_each_other, a_law_that_fails, what_is_pinned, what_is_known_when_it_is_stopped,
        where_nothing_can_be_written
    };
    let wish = args.find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let mut failed = 0;
    for (name, test) in tests.iter().filter(|(name, _)| name.contains(&wish)) {
        let passed = std::panic::catch_unwind(test).is_ok();
        println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
        failed += usize::from(!passed);
    }
    println!("\ntest result: {failed} failed");
    ExitCode::from(u8::from(failed > 0))
}
