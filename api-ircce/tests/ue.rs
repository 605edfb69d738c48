//! The Rust interface, in a job of one.

use unipgas_core::directory::GROUP_PLACES;
use unipgas_core::registry::register;
use unipgas_ircce::flag::MAX_TAGGED_LEN;
use unipgas_ircce::launch::LaunchSettings;
use unipgas_ircce::{Comm, ErrorCode, Failure, Flag, MpbOffset, Ue};

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
fn buffers() {
    let ue = start();
    assert_eq!((ue.id(), ue.num(), ue.cores()[0]), (0, 1, 17));
    let place = ue.malloc(96).unwrap();
    let (left, size) = ue.malloc_request(2000).unwrap();
    assert_eq!((left, size), (MpbOffset(96), 512));
    ue.put(place, &[7; 50], 0).unwrap();
    let mut found = [0; 51];
    ue.get(&mut found, place, 0).unwrap();
    assert_eq!((found[49], found[50]), (7, 0));
    assert_eq!(code(ue.put(place, &[0], 1)), ErrorCode::Id);
    assert_eq!(code(ue.put(MpbOffset(1023), &[0; 2], 0)), ErrorCode::Target);
    assert_eq!(
        code(ue.put(MpbOffset(usize::MAX), &[0; 2], 0)),
        ErrorCode::Target
    );
    assert_eq!(
        code(ue.get(&mut found, MpbOffset(1024), 0)),
        ErrorCode::Source
    );
    ue.get(&mut [], MpbOffset(1024), 0).unwrap();
    assert_eq!(ue.place(ue.address(place)), Some(place));
    assert_eq!(ue.place(found.as_ptr()), None);
    assert!(ue.free(place) && !ue.free(place));
    ue.finalize().unwrap();
}

#[test]
fn flags() {
    let ue = start();
    let flag = ue.flag_alloc().unwrap();
    ue.flag_write_tagged(flag, -3, 0, &[9; 40]).unwrap();
    let mut tag = [0; 40];
    ue.wait_tagged(flag, -3, &mut tag).unwrap();
    assert_eq!(tag[..MAX_TAGGED_LEN], [9; MAX_TAGGED_LEN]);
    assert_eq!(tag[MAX_TAGGED_LEN..], [0; 40 - MAX_TAGGED_LEN]);
    assert!(!ue.test_tagged(flag, 1, &mut tag).unwrap());
    assert_eq!(ue.flag_read(flag, 0), Ok(-3));
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
    ue.flag_free(flag).unwrap();
    assert_eq!(code(ue.flag_free(flag)), ErrorCode::FlagUndefined);
}

#[test]
fn locks_registers_and_shared_memory() {
    let ue = start();
    assert!(!ue.is_locked(0).unwrap());
    ue.acquire_lock(0).unwrap();
    assert!(ue.is_locked(0).unwrap());
    std::thread::scope(|scope| {
        let other = scope.spawn(|| ue.acquire_lock(0));
        ue.release_lock(0).unwrap();
        other.join().unwrap().unwrap();
    });
    ue.release_lock(0).unwrap();
    assert_eq!(code(ue.acquire_lock(1)), ErrorCode::Id);
    let registers: Vec<_> = std::iter::from_fn(|| ue.atomic_alloc()).collect();
    // Two of the 96 are those of the barrier.
    assert_eq!(registers.len(), 94);
    ue.atomic_write(registers[93], i32::MAX).unwrap();
    assert_eq!(ue.atomic_inc(registers[93]), Ok(i32::MAX));
    assert_eq!(ue.atomic_read(registers[93]), Ok(i32::MIN));
    assert_eq!(ue.atomic_read(registers[92]), Ok(0));
    let memory = ue.shmalloc(100).unwrap();
    assert!(ue.shfree(memory.as_ptr()) && !ue.shfree(memory.as_ptr()));
}

#[test]
fn communicators() {
    let ue = start();
    let comm = ue.comm_split(|id| id as i32 + 3).unwrap();
    assert_eq!(ue.communicator(&comm).unwrap().members(), [0]);
    assert_ne!(
        ue.communicator(&comm).unwrap().number(),
        ue.communicator(&ue.comm_world()).unwrap().number()
    );
    ue.barrier(&comm).unwrap();
    ue.air_barrier(&comm).unwrap();
    ue.air_barrier(&ue.comm_world()).unwrap();
    ue.comm_free(&comm).unwrap();
    assert_eq!(code(ue.barrier(&comm)), ErrorCode::CommUndefined);
    assert_eq!(
        code(ue.comm_free(&Comm::UNDEFINED)),
        ErrorCode::CommInitialized
    );
    assert_eq!(
        code(ue.comm_free(&ue.comm_world())),
        ErrorCode::CommUndefined
    );
    // As many beside that of all UEs; the next one is refused, and room comes back.
    let many: Vec<_> = (1..GROUP_PLACES)
        .map(|_| ue.comm_split(|_| 0).unwrap())
        .collect();
    assert_eq!(code(ue.comm_split(|_| 0)), ErrorCode::Malloc);
    ue.comm_free(&many[31]).unwrap();
    ue.comm_split(|_| 0).unwrap();
}
