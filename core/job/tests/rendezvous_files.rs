//! The rendezvous file: other files in its place, and processes that die between any two instructions.

mod rendezvous_common;
mod stepped;

use std::fs;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::PathBuf;
use std::process::Command;

use rendezvous_common::*;
use unipgas_job::rendezvous::{JobName, Layout, MAX_PLACES, Rendezvous};

const WORDS: u32 = 8;
/// Bundles that the killed child publishes before the stepped part (OLD) and in it (NEW).
const OLD: u32 = 0x0123_4567;
const NEW: u32 = 0x89ab_cdef;

fn join(directory: &TestDirectory, job: &str, property: u8) -> unipgas_base::Result<Rendezvous> {
    rendezvous_common::join(directory.name(), job, property, WORDS)
}

/// The path of the file of `job`.
fn path_of(directory: &TestDirectory, job: &str) -> PathBuf {
    join(directory, job, 0).unwrap().path().to_owned()
}

/// The error of a join, which must be one line.
fn refused(directory: &TestDirectory, job: &str) -> String {
    let error = join(directory, job, 0).unwrap_err().to_string();
    assert_eq!(error.lines().count(), 1, "{error}");
    error
}

#[test]
fn the_file_is_private_and_where_it_should_be() {
    let job = JobName::by_hand(&format!("place of process {}", std::process::id()));
    let layout = Layout {
        places: MAX_PLACES,
        places_per_group: 4,
        words_per_group: 100,
        properties: [1; 64],
    };
    let joined = Rendezvous::join(&job, &layout).unwrap();
    let path = joined.path().to_owned();
    assert!(path.starts_with("/dev/shm"), "{}", path.display());
    let uid = rustix::process::geteuid().as_raw();
    let name = path.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with(&format!("unipgas-{uid}-")), "{name}");
    assert_eq!(joined.take_place(None), Ok(0));
    let there = fs::metadata(&path).unwrap();
    assert_eq!((there.mode() & 0o7777, there.uid()), (0o600, uid));
    assert!(there.len() > 25 << 20);
    assert!(there.blocks() * 512 <= 64 << 10, "the file is sparse");
    // All places have memory, up to the last.
    joined.leave().unwrap();
    assert_eq!(joined.take_place(Some(MAX_PLACES - 1)), Ok(MAX_PLACES - 1));
    assert!(joined.claim(MAX_PLACES / 4 - 1, 99..100).unwrap().is_some());
    assert_eq!(joined.find(MAX_PLACES - 2), Ok(None));
    drop(joined);
    assert!(!path.exists());
}

#[test]
fn what_lies_in_the_way_is_named() {
    let directory = TestDirectory::new("way");
    let path = path_of(&directory, "way");
    assert!(!path.exists());

    let elsewhere = PathBuf::from(directory.name()).join("elsewhere");
    fs::write(&elsewhere, "precious").unwrap();
    symlink(&elsewhere, &path).unwrap();
    assert!(refused(&directory, "way").contains("symbolic link"));
    assert_eq!(fs::read(&elsewhere).unwrap(), b"precious");
    fs::remove_file(&path).unwrap();
    fs::remove_file(&elsewhere).unwrap();

    fs::create_dir(&path).unwrap();
    assert!(refused(&directory, "way").contains("not a regular file"));
    fs::remove_dir(&path).unwrap();

    assert!(
        Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap()
            .success()
    );
    assert!(fs::metadata(&path).unwrap().file_type().is_fifo());
    assert!(refused(&directory, "way").contains("not a regular file"));
    fs::remove_file(&path).unwrap();

    // Only root can make a file of another user.
    fs::write(&path, "").unwrap();
    if chown(&path, Some(12345), None).is_ok() {
        assert!(refused(&directory, "way").contains("user 12345"));
        assert!(path.exists(), "another user's file is not removed");
    }
    fs::remove_file(&path).unwrap();
}

#[test]
fn what_the_dead_have_left_is_replaced() {
    let directory = TestDirectory::new("garbage");
    let path = path_of(&directory, "garbage");
    let whole = {
        let joined = join(&directory, "garbage", 5).unwrap();
        joined.take_place(None).unwrap();
        fs::read(&path).unwrap()
    };
    assert!(!path.exists());
    // An empty file, garbage, a file without magic (its creator died), a truncated file, a complete one.
    let mut no_magic = whole.clone();
    no_magic[..8].fill(0);
    let cut = whole[..5000].to_vec();
    for left in [
        vec![],
        vec![0xff; 9999],
        vec![b'u'; 3],
        no_magic,
        cut,
        whole,
    ] {
        fs::write(&path, &left).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let joined = join(&directory, "garbage", 6).unwrap();
        assert_eq!((joined.properties()[0], joined.places_used()), (6, 0));
        assert_eq!(joined.take_place(None), Ok(0));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }
    // A join removes any unlocked rendezvous file of this user, of any job. It keeps files with other names.
    let other = path.with_file_name("unipgas-0-notes");
    let stale = path.with_file_name(path.file_name().unwrap().to_str().unwrap().replace(
        path.to_str().unwrap().rsplit('-').next().unwrap(),
        "0123456789abcdef",
    ));
    fs::write(&other, "").unwrap();
    fs::write(&stale, "").unwrap();
    drop(join(&directory, "garbage", 6).unwrap());
    assert!(other.exists() && !stale.exists() && !path.exists());
    fs::remove_file(other).unwrap();
}

#[test]
fn the_living_are_not_disturbed() {
    let directory = TestDirectory::new("living");
    let joined = join(&directory, "living", 5).unwrap();
    joined.take_place(Some(1)).unwrap();
    let other = rendezvous_common::join(directory.name(), "living", 5, WORDS + 1).unwrap_err();
    assert!(other.to_string().contains("at work"), "{other}");
    assert_eq!(other.to_string().lines().count(), 1);
    let file = fs::File::options().write(true).open(joined.path()).unwrap();
    let header = fs::read(joined.path()).unwrap();
    file.write_all_at(&99u64.to_ne_bytes(), 8).unwrap();
    assert!(refused(&directory, "living").contains("version"));
    file.write_all_at(b"garbage!", 0).unwrap();
    assert!(refused(&directory, "living").contains("damaged"));
    file.write_all_at(&header[..16], 0).unwrap();
    assert_eq!(join(&directory, "living", 6).unwrap().properties()[0], 5);
    // The file is removed: attached processes continue, later ones create a new file, and the attached ones do not remove it.
    fs::remove_file(joined.path()).unwrap();
    let anew = join(&directory, "living", 7).unwrap();
    assert_eq!((anew.properties()[0], anew.places_used()), (7, 0));
    assert!(joined.alive(1));
    drop(joined);
    assert_eq!(directory.files(), 1);
}

#[test]
fn layouts_out_of_range_are_refused() {
    let directory = TestDirectory::new("layout");
    let good = Layout {
        places: 1,
        places_per_group: 1,
        words_per_group: 0,
        properties: [0; 64],
    };
    let join = |layout: Layout| {
        Rendezvous::join_in(
            directory.name().as_ref(),
            &JobName::by_hand("layout"),
            &layout,
        )
    };
    for bad in [
        Layout { places: 0, ..good },
        Layout {
            places: MAX_PLACES + 1,
            ..good
        },
        Layout {
            places_per_group: 0,
            ..good
        },
        Layout {
            places: MAX_PLACES,
            words_per_group: u32::MAX,
            ..good
        },
    ] {
        assert!(join(bad).is_err());
        assert_eq!(directory.files(), 0);
    }
    let (one, two) = (join(good).unwrap(), join(good).unwrap());
    assert_eq!(one.take_place(None), Ok(0));
    let full = two.take_place(None).unwrap_err().to_string();
    assert!(full.contains("taken"), "{full}");
    assert!(one.claim(0, [0]).is_err());
    assert_eq!(one.claim_many(0, 0, []), Ok(Some(vec![])));
}

/// A child joins and publishes at place 1. After its first stop it claims, publishes, releases, leaves the place and takes it again.
fn killed_after(steps: usize, directory: &TestDirectory) -> Option<usize> {
    let prepare = || {
        let joined = join(directory, "steps", 1).ok()?;
        joined.take_place(Some(1)).ok()?;
        joined.publish(&bundle(OLD), &bundle(!OLD)).ok()?;
        Some(joined)
    };
    let work = |joined: unipgas_job::rendezvous::Rendezvous| {
        joined.claim_many(0, 3, 0..WORDS) == Ok(Some(vec![0, 1, 2]))
            && joined.publish(&bundle(NEW), &bundle(!NEW)).is_ok()
            && joined.release(0, 1).is_ok()
            && joined.leave().is_ok()
            && joined.take_place(Some(1)).is_ok()
    };
    // SAFETY:
    // - the child uses no lock that another thread of this process may hold: the allocator has fork handlers.
    unsafe { stepped::killed_after(steps, prepare, work) }
}

#[test]
fn death_between_any_instructions_leaves_a_table_in_order() {
    let directory = TestDirectory::new("steps");
    let joined = join(&directory, "steps", 1).unwrap();
    joined.take_place(Some(0)).unwrap();
    // Number of deaths before the claims, after one, after all, after the new address, after the release, after leaving.
    let mut phases = [0usize; 6];
    let total = killed_after(100_000, &directory).expect("it is done by then");
    // Single steps are slow. So about 64 deaths are tested, with this distance in instructions.
    let stride = (total / 64).max(1);
    let mut steps = 0;
    loop {
        let finished = killed_after(steps, &directory);
        assert!(!joined.alive(1));
        let found = joined.find(1).unwrap().map(|found| {
            let published = number(&found.address);
            assert_eq!(number(&found.key), !published);
            published
        });
        let phase = match (found, joined.count_owned(0, 1)) {
            (Some(OLD), 0) => 0,
            (Some(OLD), 1 | 2) => 1,
            (Some(OLD), 3) => 2,
            (Some(NEW), 3) => 3,
            (Some(NEW), 2) => 4,
            (None, 0) => 5,
            other => panic!("after {steps} steps: {other:?}"),
        };
        phases[phase] += 1;
        // The claim does not wait, and all words are free.
        let all = joined.claim_many(0, WORDS as usize, 0..WORDS).unwrap();
        assert_eq!(
            all.map(|all| all.len()),
            Some(WORDS as usize),
            "after {steps}"
        );
        for index in 0..WORDS {
            joined.release(0, index).unwrap();
        }
        if finished.is_some() {
            break;
        }
        steps += stride;
        assert!(steps < 100_000);
    }
    // Phase 1 (between two claims) may be shorter than the stride.
    let some = [0, 2, 3, 4, 5].map(|phase| phases[phase] > 0);
    assert_eq!(some, [true; 5], "{phases:?} in {steps} steps");
    eprintln!("deaths in each phase of {steps} steps: {phases:?}");
}
