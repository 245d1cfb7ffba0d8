//! Misused pins: dropped, or passed to the wrong arena.

use larder_mem::{Arena, ArenaOptions};
use std::panic::{AssertUnwindSafe, catch_unwind};

fn arena(frames: u32) -> Arena {
    Arena::new(ArenaOptions { frames, huge_pages: false, lock: false }).unwrap()
}

fn panic_text(work: impl FnOnce()) -> Option<String> {
    let panic = catch_unwind(AssertUnwindSafe(work)).err()?;
    Some(*panic.downcast::<String>().expect("our panics are formatted"))
}

#[test]
fn a_dropped_hold_panics_in_debug_builds_and_stays_held() {
    let arena = arena(8);
    let pin = panic_text(|| drop(arena.try_pin(3)));
    let write_pin = panic_text(|| drop(arena.try_write_pin(5)));
    if cfg!(debug_assertions) {
        assert_eq!(pin.unwrap(), "a hold on frame 3 was dropped");
        assert_eq!(write_pin.unwrap(), "a hold on frame 5 was dropped");
    } else {
        assert_eq!((pin, write_pin), (None, None));
    }
    assert!(arena.try_write_pin(3).is_none());
    assert!(arena.try_pin(5).is_none());
    assert_eq!(arena.frames_held(), 2);
}

#[test]
fn a_hold_dropped_while_panicking_does_not_abort() {
    let arena = arena(1);
    let text = panic_text(|| {
        let _pin = arena.try_pin(0);
        panic!("{}", "the first panic is the one that is reported");
    });
    assert_eq!(text.unwrap(), "the first panic is the one that is reported");
}

#[test]
fn a_hold_of_another_arena_is_caught_by_every_method() {
    let (small, large) = (arena(1), arena(8));
    let caught = |work: &mut dyn FnMut()| {
        let text = panic_text(work).expect("caught");
        assert!(text.contains("did not grant it"), "{text}");
    };
    let pin = large.try_pin(7).unwrap();
    let mut write_pin = large.try_write_pin(6).unwrap();
    let mut local = small.try_write_pin(0).unwrap();
    caught(&mut || drop(small.bytes(&pin).to_vec()));
    caught(&mut || small.read(&pin, 0, &mut [0]));
    caught(&mut || assert!(!small.address(&pin).is_null()));
    caught(&mut || small.copy(&pin, &mut local, 0, 1));
    caught(&mut || small.write(&mut write_pin, 0, &[1]));
    caught(&mut || small.zero(&mut write_pin, 0, 1));
    caught(&mut || assert!(!small.release(&mut write_pin)));
    caught(&mut || assert!(!small.address_mut(&mut write_pin).is_null()));
    // Frames with consecutive numbers, one of each arena.
    let next = large.try_write_pin(1).unwrap();
    let mut mixed = [local, next];
    caught(&mut || assert_eq!(small.release_all(&mut mixed), 0));
    let [local, next] = mixed;
    large.release_write_pin(next);
    let (mut pin, mut write_pin) = (Some(pin), Some(write_pin));
    caught(&mut || small.unpin(pin.take().unwrap()));
    caught(&mut || small.release_write_pin(write_pin.take().unwrap()));
    let mut other = Some(large.try_write_pin(5).unwrap());
    caught(&mut || small.unpin(small.downgrade(other.take().unwrap())));
    small.release_write_pin(local);
}

#[test]
fn a_frame_that_does_not_exist_cannot_be_held() {
    let arena = arena(2);
    assert!(catch_unwind(AssertUnwindSafe(|| arena.try_pin(2).is_some())).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| arena.try_write_pin(u32::MAX).is_some())).is_err());
}

#[test]
fn holds_are_small_and_can_move_between_threads() {
    fn can_move<T: Send + Sync + 'static>(_: &T) {}
    let arena = arena(1);
    let pin = arena.try_pin(0);
    assert_eq!(size_of_val(&pin), 8);
    can_move(&pin);
    can_move(&arena);
    assert_eq!(Arena::metadata_bytes_per_frame(), 4);
    arena.unpin(pin.unwrap());
}
