//! Tests of the arena: compared with a plain model, with many threads, and at its limits.

use larder_mem::{Arena, ArenaError, ArenaOptions, FRAME_BYTES, FRAMES_MAX, Pin, WritePin};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

/// A seeded random number generator (`SplitMix64`).
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).unwrap()
    }

    /// Returns the offset and length of a part of a frame, which may be empty.
    fn part(&mut self) -> (usize, usize) {
        let offset = self.below(FRAME_BYTES + 1);
        (offset, self.below(FRAME_BYTES - offset + 1))
    }

    /// Returns the index of a random element, if there is any.
    fn one_of<T>(&mut self, of: &[T]) -> Option<usize> {
        (!of.is_empty()).then(|| self.below(of.len()))
    }
}

fn arena(frames: u32) -> Arena {
    Arena::new(ArenaOptions { frames, huge_pages: false, lock: false }).unwrap()
}

/// The expected state of a frame.
#[derive(Clone)]
struct Expected {
    pins: usize,
    write_pinned: bool,
    bytes: Vec<u8>,
}

/// The arena, all pins of the test, and the expected state.
struct TestState {
    arena: Arena,
    pins: Vec<Pin>,
    write_pins: Vec<WritePin>,
    model: Vec<Expected>,
}

impl TestState {
    fn expected(&mut self, frame: u32) -> &mut Expected {
        &mut self.model[frame as usize]
    }

    fn take_pin(&mut self, rng: &mut Rng) {
        let frame = u32::try_from(rng.below(self.model.len())).unwrap();
        let expected = self.model[frame as usize].clone();
        if rng.below(2) == 0 {
            let pin = self.arena.try_pin(frame);
            assert_eq!(pin.is_some(), !expected.write_pinned);
            self.expected(frame).pins += usize::from(pin.is_some());
            self.pins.extend(pin);
        } else {
            let write_pin = self.arena.try_write_pin(frame);
            assert_eq!(write_pin.is_some(), !expected.write_pinned && expected.pins == 0);
            self.expected(frame).write_pinned |= write_pin.is_some();
            self.write_pins.extend(write_pin);
        }
    }

    fn release_pin(&mut self, rng: &mut Rng) {
        if rng.below(2) == 0 {
            let Some(index) = rng.one_of(&self.pins) else {
                return;
            };
            let pin = self.pins.swap_remove(index);
            self.expected(pin.frame()).pins -= 1;
            self.arena.unpin(pin);
        } else {
            let Some(index) = rng.one_of(&self.write_pins) else {
                return;
            };
            let write_pin = self.write_pins.swap_remove(index);
            self.expected(write_pin.frame()).write_pinned = false;
            if rng.below(2) == 0 {
                self.arena.release_write_pin(write_pin);
            } else {
                let pin = self.arena.downgrade(write_pin);
                self.expected(pin.frame()).pins = 1;
                self.pins.push(pin);
            }
        }
    }

    fn change(&mut self, rng: &mut Rng) {
        let Some(index) = rng.one_of(&self.write_pins) else {
            return;
        };
        let (offset, len) = rng.part();
        let frame = self.write_pins[index].frame() as usize;
        let write_pin = &mut self.write_pins[index];
        let part = offset..offset + len;
        match rng.below(4) {
            0 => {
                let bytes: Vec<u8> = (0..len).map(|_| rng.next().to_le_bytes()[0]).collect();
                self.arena.write(write_pin, offset, &bytes);
                self.model[frame].bytes[part].copy_from_slice(&bytes);
            }
            1 => {
                self.arena.zero(write_pin, offset, len);
                self.model[frame].bytes[part].fill(0);
            }
            2 => {
                let Some(from) = rng.one_of(&self.pins) else {
                    return;
                };
                self.arena.copy(&self.pins[from], write_pin, offset, len);
                let source = self.model[self.pins[from].frame() as usize].bytes.clone();
                self.model[frame].bytes[part.clone()].copy_from_slice(&source[part]);
            }
            _ => {
                if self.arena.release(write_pin) {
                    self.model[frame].bytes.fill(0);
                }
            }
        }
        assert_eq!(*self.arena.bytes_mut(&mut self.write_pins[index]), *self.model[frame].bytes);
    }

    fn check_pinned_frame(&mut self, rng: &mut Rng) {
        let Some(index) = rng.one_of(&self.pins) else {
            return;
        };
        let pin = &self.pins[index];
        let bytes = &self.model[pin.frame() as usize].bytes;
        assert_eq!(*self.arena.bytes(pin), **bytes);
        let (offset, len) = rng.part();
        let mut to = vec![0xAA; len];
        self.arena.read(pin, offset, &mut to);
        assert_eq!(to, bytes[offset..offset + len]);
    }
}

#[test]
fn random_operations_agree_with_a_plain_model() {
    for seed in 0..8 {
        let mut rng = Rng(seed);
        let free = Expected { pins: 0, write_pinned: false, bytes: vec![0; FRAME_BYTES] };
        let mut bench =
            TestState { arena: arena(12), pins: vec![], write_pins: vec![], model: vec![free; 12] };
        for _ in 0..10_000 {
            match rng.below(6) {
                0 | 1 => bench.take_pin(&mut rng),
                2 => bench.release_pin(&mut rng),
                3 | 4 => bench.change(&mut rng),
                _ => bench.check_pinned_frame(&mut rng),
            }
            let held = bench.model.iter().filter(|frame| frame.write_pinned || frame.pins > 0);
            assert_eq!(bench.arena.frames_held(), held.count(), "seed {seed}");
        }
        bench.pins.drain(..).for_each(|pin| bench.arena.unpin(pin));
        bench.write_pins.drain(..).for_each(|write_pin| bench.arena.release_write_pin(write_pin));
        assert_eq!(bench.arena.frames_held(), 0);
    }
}

/// Returns the number that fills a frame, in units of eight bytes.
fn number_in(bytes: &[u8]) -> u64 {
    let first = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let same = bytes.chunks_exact(8).all(|chunk| chunk == first.to_le_bytes());
    assert!(same, "a torn write");
    first
}

fn fill_with(bytes: &mut [u8], number: u64) {
    bytes.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&number.to_le_bytes()));
}

#[test]
fn threads_see_no_torn_write_and_lose_none() {
    const FRAMES: u32 = 4;
    let arena = arena(FRAMES);
    let writes: Vec<AtomicU64> = (0..FRAMES).map(|_| AtomicU64::new(0)).collect();
    let work = |seed| {
        let mut rng = Rng(seed);
        for _ in 0..40_000 {
            let frame = u32::try_from(rng.below(FRAMES as usize)).unwrap();
            if rng.below(3) > 0 {
                let Some(pin) = arena.try_pin(frame) else {
                    continue;
                };
                let seen = number_in(arena.bytes(&pin));
                assert_eq!(number_in(arena.bytes(&pin)), seen, "changed under a pin");
                arena.unpin(pin);
                continue;
            }
            let Some(mut write_pin) = arena.try_write_pin(frame) else {
                continue;
            };
            let next = number_in(arena.bytes_mut(&mut write_pin)) + 1;
            fill_with(arena.bytes_mut(&mut write_pin), next);
            writes[frame as usize].fetch_add(1, Ordering::Relaxed);
            if rng.below(2) == 0 {
                arena.release_write_pin(write_pin);
            } else {
                let pin = arena.downgrade(write_pin);
                assert_eq!(number_in(arena.bytes(&pin)), next, "a writer came in between");
                arena.unpin(pin);
            }
        }
    };
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let work = &work;
            scope.spawn(move || work(seed));
        }
    });
    assert_eq!(arena.frames_held(), 0, "no hold and no stray is left");
    for frame in 0..FRAMES {
        let pin = arena.try_pin(frame).unwrap();
        let written = writes[frame as usize].load(Ordering::Relaxed);
        assert!(written > 0, "the test wrote to the frame");
        assert_eq!(number_in(arena.bytes(&pin)), written);
        arena.unpin(pin);
    }
}

#[test]
fn addresses_are_those_of_the_frames_and_aligned() {
    for (frames, huge_pages) in [(1, false), (511, true), (513, true), (1024, false)] {
        let arena = Arena::new(ArenaOptions { frames, huge_pages, lock: false }).unwrap();
        assert_eq!(arena.base().addr() % (2 << 20), 0);
        assert_eq!(arena.len_bytes(), frames as usize * FRAME_BYTES);
        assert_eq!(arena.frames(), frames);
        let last = frames - 1;
        let mut write_pin = arena.try_write_pin(last).unwrap();
        let start = arena.address_mut(&mut write_pin);
        assert_eq!(start.addr(), arena.base().addr() + last as usize * FRAME_BYTES);
        let end = start.wrapping_add(FRAME_BYTES - 1);
        // SAFETY: the frame is write-pinned, and this is its last byte; written as by the kernel.
        unsafe { end.write(9) };
        let pin = arena.downgrade(write_pin);
        assert_eq!(arena.bytes(&pin)[FRAME_BYTES - 2..], [0, 9]);
        assert_eq!(arena.address(&pin), start.cast_const());
        arena.unpin(pin);
    }
}

#[test]
fn no_frames_and_too_many_are_refused() {
    let make = |frames| Arena::new(ArenaOptions { frames, huge_pages: false, lock: false });
    assert!(matches!(make(0), Err(ArenaError::NoFrames)));
    for frames in [FRAMES_MAX + 1, u32::MAX] {
        let error = make(frames).unwrap_err();
        assert!(matches!(error, ArenaError::TooManyFrames { .. }));
        assert!(error.to_string().contains(&frames.to_string()));
    }
}

#[test]
fn copies_beyond_the_frame_panic_and_leave_the_neighbor_alone() {
    let arena = arena(2);
    let mut write_pin = arena.try_write_pin(0).unwrap();
    for (offset, len) in [(1, FRAME_BYTES), (FRAME_BYTES + 1, 0), (usize::MAX, 2)] {
        let write = AssertUnwindSafe(|| arena.write(&mut write_pin, offset, &vec![1; len]));
        assert!(catch_unwind(write).is_err());
    }
    arena.release_write_pin(write_pin);
    let pin = arena.try_pin(1).unwrap();
    assert!(arena.bytes(&pin).iter().all(|&byte| byte == 0));
    arena.unpin(pin);
}

#[test]
fn an_arena_dropped_with_a_hold_leaves_its_memory_to_the_operation() {
    let arena = arena(1);
    let mut write_pin = arena.try_write_pin(0).unwrap();
    let start = arena.address_mut(&mut write_pin);
    drop(arena);
    // SAFETY: the frame is still pinned, so the memory stays mapped.
    unsafe { start.write(1) };
    std::mem::forget(write_pin);
}
