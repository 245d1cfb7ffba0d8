//! Memory of an arena: allocated on first use, released, locked, or refused.
//!
//! One test lowers a limit of the process; the tests that depend on the limit run one at a time.

use larder_mem::{Arena, ArenaError, ArenaOptions, FRAME_BYTES};
use std::sync::{Mutex, MutexGuard, PoisonError};

const PLAIN: ArenaOptions = ArenaOptions { frames: 4096, huge_pages: false, lock: false };

/// Serializes the tests that lock memory, since the limit is per process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the number of resident frames of the arena.
fn resident(arena: &Arena) -> usize {
    let mut pages = vec![0_u8; arena.frames() as usize];
    // SAFETY: the vector has a byte for each page of the arena's mapping.
    let result =
        unsafe { libc::mincore(arena.base().cast(), arena.len_bytes(), pages.as_mut_ptr().cast()) };
    assert_eq!(result, 0);
    pages.iter().filter(|&page| page & 1 == 1).count()
}

#[test]
fn creating_an_arena_allocates_nothing_and_a_write_allocates_one_frame() {
    for huge_pages in [false, true] {
        let arena = Arena::new(ArenaOptions { huge_pages, ..PLAIN }).unwrap();
        assert_eq!(resident(&arena), 0);
        assert!(!arena.locked());
        assert!(arena.left_out_of_dumps());
        assert!(huge_pages || !arena.huge_pages());
    }
    let arena = Arena::new(PLAIN).unwrap();
    let mut write_pin = arena.try_write_pin(700).unwrap();
    arena.write(&mut write_pin, 10, b"one frame");
    assert_eq!(resident(&arena), 1);
    arena.release_write_pin(write_pin);
}

#[test]
fn a_released_frame_is_not_resident_and_zero_and_its_neighbors_are_unchanged() {
    let arena = Arena::new(PLAIN).unwrap();
    let mut write_pins: Vec<_> = (0..3).map(|frame| arena.try_write_pin(frame).unwrap()).collect();
    for write_pin in &mut write_pins {
        arena.write(write_pin, 0, &[7; FRAME_BYTES]);
    }
    assert_eq!(resident(&arena), 3);
    assert!(arena.release(&mut write_pins[1]));
    assert_eq!(resident(&arena), 2);
    let firsts: Vec<u8> =
        write_pins.iter_mut().map(|write_pin| arena.bytes_mut(write_pin)[0]).collect();
    assert_eq!(firsts, [7, 0, 7]);
    for write_pin in write_pins {
        arena.release_write_pin(write_pin);
    }
}

#[test]
fn a_released_run_of_512_frames_gives_a_huge_page_back() {
    let arena = Arena::new(ArenaOptions { huge_pages: true, ..PLAIN }).unwrap();
    let mut write_pins: Vec<_> =
        (0..512).map(|frame| arena.try_write_pin(frame).unwrap()).collect();
    for write_pin in &mut write_pins {
        arena.write(write_pin, 0, &[7]);
    }
    assert_eq!(resident(&arena), 512);
    // In one call: between separate releases the kernel may collapse the rest into a huge page.
    assert_eq!(arena.release_all(&mut write_pins), 512);
    assert_eq!(resident(&arena), 0);
    for write_pin in write_pins {
        arena.release_write_pin(write_pin);
    }
}

#[test]
fn releasing_scattered_frames_spares_those_between() {
    let arena = Arena::new(PLAIN).unwrap();
    let all = 0..10;
    let mut write_pins: Vec<_> = all.map(|frame| arena.try_write_pin(frame).unwrap()).collect();
    for write_pin in &mut write_pins {
        arena.write(write_pin, 0, &[7; FRAME_BYTES]);
    }
    let (mut chosen, mut spared): (Vec<_>, Vec<_>) = write_pins
        .into_iter()
        .partition(|write_pin| [0, 1, 4, 6, 7, 8].contains(&write_pin.frame()));
    chosen.swap(0, 1);
    assert_eq!(arena.release_all(&mut chosen), 6);
    assert_eq!(resident(&arena), 4);
    assert!(spared.iter_mut().all(|write_pin| *arena.bytes_mut(write_pin) == [7; FRAME_BYTES]));
    assert!(chosen.iter_mut().all(|write_pin| *arena.bytes_mut(write_pin) == [0; FRAME_BYTES]));
    assert_eq!(arena.release_all(&mut []), 0);
    for write_pin in chosen.into_iter().chain(spared) {
        arena.release_write_pin(write_pin);
    }
}

#[test]
fn an_arena_has_room_to_grow_and_uses_the_requested_frames() {
    let _alone = alone();
    let options = ArenaOptions { frames: 4, huge_pages: false, lock: true };
    let arena = Arena::growable(options, 1 << 20).unwrap();
    assert_eq!(arena.frames(), 1 << 20);
    assert_eq!(resident(&arena), 4, "only the initial frames are locked");
    let mut write_pins: Vec<_> = (9..12).map(|frame| arena.try_write_pin(frame).unwrap()).collect();
    arena.commit(&mut write_pins).unwrap();
    assert_eq!(resident(&arena), 7);
    for write_pin in write_pins {
        arena.release_write_pin(write_pin);
    }
}

#[test]
fn locking_populates_all_frames_or_is_refused_with_a_remedy() {
    let _alone = alone();
    // Small enough for the smallest common limit, 64 KiB.
    let options = ArenaOptions { frames: 4, huge_pages: false, lock: true };
    let arena = Arena::new(options).unwrap();
    assert!(arena.locked());
    assert_eq!(resident(&arena), 4);
    let mut write_pin = arena.try_write_pin(0).unwrap();
    arena.write(&mut write_pin, 0, &[1]);
    assert!(arena.release(&mut write_pin), "it is unlocked first");
    assert_eq!(resident(&arena), 3);
    arena.commit(std::slice::from_mut(&mut write_pin)).unwrap();
    assert_eq!(
        (resident(&arena), arena.bytes_mut(&mut write_pin)[0]),
        (4, 0),
        "it is locked again"
    );
    arena.release_write_pin(write_pin);

    let error = std::thread::spawn(move || {
        let before = drop_the_right_to_lock();
        let refused = Arena::new(options).expect_err("neither limit nor capability");
        limit_locking(before);
        refused
    });
    let error = error.join().unwrap();
    assert!(matches!(error, ArenaError::Lock { bytes: 16_384, limit_bytes: Some(0), .. }));
    let text = error.to_string();
    for part in ["lock 16 KiB", "RLIMIT_MEMLOCK is 0 KiB", "CAP_IPC_LOCK"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(std::error::Error::source(&error).is_some());
}

/// Sets the limit of the process.
fn limit_locking(limit: libc::rlimit) {
    // SAFETY: the call only reads the structure.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit) };
    assert_eq!(set, 0);
}

/// Sets the limit of the process to 0, drops the capabilities of this thread, and returns the
/// previous limit.
fn drop_the_right_to_lock() -> libc::rlimit {
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call fills the structure.
    let read = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut before) };
    assert_eq!(read, 0);
    limit_locking(libc::rlimit { rlim_cur: 0, ..before });
    // The raw system call changes only this thread. Root loses its effective capabilities with the
    // change of user; for another user, which has none, the call fails without harm. SAFETY: the
    // call changes the user of this thread, which ends after the test.
    unsafe { libc::syscall(libc::SYS_setresuid, -1, 65_534, -1) };
    before
}
