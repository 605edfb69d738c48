//! The Rust interface, in a job of one.

use unipgas_core::directory::GROUP_PLACES;
use unipgas_core::registry::register;
use unipgas_ircce::launch::LaunchSettings;
use unipgas_ircce::{ErrorCode, Failure, Flag, MpbOffset, Ue};

fn start() -> Ue {
    register(unipgas_shm::BACKEND);
    let wishes = LaunchSettings {
        mpb: 1024,
        cores: Vec::new(),
        low: false,
    };
    Ue::start(&wishes, &[17]).unwrap()
}

fn code<T>(result: Result<T, Failure>) -> ErrorCode {
    match result {
        Err(Failure::Code(code)) => code,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("succeeds"),
    }
}

#[test]
fn places_beyond_the_mpb_are_refused() {
    let ue = start();
    assert_eq!((ue.id(), ue.num(), ue.cores()[0]), (0, 1, 17));
    let place = ue.malloc(96).unwrap();
    let mut found = [0; 2];
    for at in [1023, usize::MAX] {
        let (put, get) = (
            ue.put(MpbOffset(at), &[0; 2], 0),
            ue.get(&mut found, MpbOffset(at), 0),
        );
        assert_eq!(
            (code(put), code(get)),
            (ErrorCode::Target, ErrorCode::Source)
        );
    }
    ue.get(&mut [], MpbOffset(1024), 0).unwrap();
    assert_eq!(ue.place(ue.address(place)), Some(place));
    assert_eq!(ue.place(found.as_ptr()), None);
    assert!(ue.free(place) && !ue.free(place));
    ue.finalize().unwrap();
}

#[test]
fn flags_are_words_of_the_mpb() {
    let ue = start();
    // The last word of an MPB can be a plain flag, but has no room for a tag.
    let last = Flag(MpbOffset(1020));
    ue.flag_write(last, 5, 0).unwrap();
    ue.wait_until(last, 5).unwrap();
    assert_eq!(
        code(ue.wait_tagged(last, 5, &mut [])),
        ErrorCode::FlagNotInCommBuffer
    );
    for at in [2, 1024, usize::MAX - 3] {
        assert_eq!(
            code(ue.flag_write(Flag(MpbOffset(at)), 1, 0)),
            ErrorCode::FlagNotInCommBuffer
        );
    }
}

#[test]
fn as_many_communicators_as_there_are_places() {
    let ue = start();
    // Beside that of all UEs. The next one is refused, and room comes back.
    let many: Vec<_> = (1..GROUP_PLACES)
        .map(|_| ue.comm_split(|_| 0).unwrap())
        .collect();
    assert_eq!(code(ue.comm_split(|_| 0)), ErrorCode::Malloc);
    ue.comm_free(&many[31]).unwrap();
    ue.comm_split(|_| 0).unwrap();
}
