//! Tests of the arena: against a plain model, with many threads, and at its limits.

use larder_mem::{Arena, ArenaError, ArenaOptions, FRAME_BYTES, FRAMES_MAX, Pin, WritePin};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

/// Seeded generator of random numbers (`SplitMix64`).
struct Numbers(u64);

impl Numbers {
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

/// Expected content of each frame.
#[derive(Clone)]
struct Expected {
    pins: usize,
    owned: bool,
    bytes: Vec<u8>,
}

/// The arena, all holds of the test, and the expected state.
struct Bench {
    arena: Arena,
    pins: Vec<Pin>,
    owns: Vec<WritePin>,
    model: Vec<Expected>,
}

impl Bench {
    fn expected(&mut self, frame: u32) -> &mut Expected {
        &mut self.model[frame as usize]
    }

    fn take(&mut self, numbers: &mut Numbers) {
        let frame = u32::try_from(numbers.below(self.model.len())).unwrap();
        let expected = self.model[frame as usize].clone();
        if numbers.below(2) == 0 {
            let pin = self.arena.try_pin(frame);
            assert_eq!(pin.is_some(), !expected.owned);
            self.expected(frame).pins += usize::from(pin.is_some());
            self.pins.extend(pin);
        } else {
            let own = self.arena.try_write_pin(frame);
            assert_eq!(own.is_some(), !expected.owned && expected.pins == 0);
            self.expected(frame).owned |= own.is_some();
            self.owns.extend(own);
        }
    }

    fn give_back(&mut self, numbers: &mut Numbers) {
        if numbers.below(2) == 0 {
            let Some(index) = numbers.one_of(&self.pins) else {
                return;
            };
            let pin = self.pins.swap_remove(index);
            self.expected(pin.frame()).pins -= 1;
            self.arena.unpin(pin);
        } else {
            let Some(index) = numbers.one_of(&self.owns) else {
                return;
            };
            let own = self.owns.swap_remove(index);
            self.expected(own.frame()).owned = false;
            if numbers.below(2) == 0 {
                self.arena.release_write_pin(own);
            } else {
                let pin = self.arena.downgrade(own);
                self.expected(pin.frame()).pins = 1;
                self.pins.push(pin);
            }
        }
    }

    fn change(&mut self, numbers: &mut Numbers) {
        let Some(index) = numbers.one_of(&self.owns) else {
            return;
        };
        let (offset, len) = numbers.part();
        let frame = self.owns[index].frame() as usize;
        let own = &mut self.owns[index];
        let part = offset..offset + len;
        match numbers.below(4) {
            0 => {
                let bytes: Vec<u8> = (0..len).map(|_| numbers.next().to_le_bytes()[0]).collect();
                self.arena.write(own, offset, &bytes);
                self.model[frame].bytes[part].copy_from_slice(&bytes);
            }
            1 => {
                self.arena.zero(own, offset, len);
                self.model[frame].bytes[part].fill(0);
            }
            2 => {
                let Some(from) = numbers.one_of(&self.pins) else {
                    return;
                };
                self.arena.copy(&self.pins[from], own, offset, len);
                let source = self.model[self.pins[from].frame() as usize].bytes.clone();
                self.model[frame].bytes[part.clone()].copy_from_slice(&source[part]);
            }
            _ => {
                if self.arena.release(own) {
                    self.model[frame].bytes.fill(0);
                }
            }
        }
        assert_eq!(*self.arena.bytes_mut(&mut self.owns[index]), *self.model[frame].bytes);
    }

    fn look(&mut self, numbers: &mut Numbers) {
        let Some(index) = numbers.one_of(&self.pins) else {
            return;
        };
        let pin = &self.pins[index];
        let bytes = &self.model[pin.frame() as usize].bytes;
        assert_eq!(*self.arena.bytes(pin), **bytes);
        let (offset, len) = numbers.part();
        let mut to = vec![0xAA; len];
        self.arena.read(pin, offset, &mut to);
        assert_eq!(to, bytes[offset..offset + len]);
    }
}

#[test]
fn random_operations_agree_with_a_plain_model() {
    for seed in 0..8 {
        let mut numbers = Numbers(seed);
        let free = Expected { pins: 0, owned: false, bytes: vec![0; FRAME_BYTES] };
        let mut bench =
            Bench { arena: arena(12), pins: vec![], owns: vec![], model: vec![free; 12] };
        for _ in 0..10_000 {
            match numbers.below(6) {
                0 | 1 => bench.take(&mut numbers),
                2 => bench.give_back(&mut numbers),
                3 | 4 => bench.change(&mut numbers),
                _ => bench.look(&mut numbers),
            }
            let held = bench.model.iter().filter(|frame| frame.owned || frame.pins > 0);
            assert_eq!(bench.arena.frames_held(), held.count(), "seed {seed}");
        }
        bench.pins.drain(..).for_each(|pin| bench.arena.unpin(pin));
        bench.owns.drain(..).for_each(|own| bench.arena.release_write_pin(own));
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
    let hammer = |seed| {
        let mut numbers = Numbers(seed);
        for _ in 0..40_000 {
            let frame = u32::try_from(numbers.below(FRAMES as usize)).unwrap();
            if numbers.below(3) > 0 {
                let Some(pin) = arena.try_pin(frame) else {
                    continue;
                };
                let seen = number_in(arena.bytes(&pin));
                assert_eq!(number_in(arena.bytes(&pin)), seen, "changed under a pin");
                arena.unpin(pin);
                continue;
            }
            let Some(mut own) = arena.try_write_pin(frame) else {
                continue;
            };
            let next = number_in(arena.bytes_mut(&mut own)) + 1;
            fill_with(arena.bytes_mut(&mut own), next);
            writes[frame as usize].fetch_add(1, Ordering::Relaxed);
            if numbers.below(2) == 0 {
                arena.release_write_pin(own);
            } else {
                let pin = arena.downgrade(own);
                assert_eq!(number_in(arena.bytes(&pin)), next, "a writer came in between");
                arena.unpin(pin);
            }
        }
    };
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let hammer = &hammer;
            scope.spawn(move || hammer(seed));
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
        let mut own = arena.try_write_pin(last).unwrap();
        let start = arena.address_mut(&mut own);
        assert_eq!(start.addr(), arena.base().addr() + last as usize * FRAME_BYTES);
        let end = start.wrapping_add(FRAME_BYTES - 1);
        // SAFETY: the frame is owned, and this is its last byte; written as the kernel would.
        unsafe { end.write(9) };
        let pin = arena.downgrade(own);
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
fn copies_beyond_the_frame_panic_and_leave_the_neighbour_alone() {
    let arena = arena(2);
    let mut own = arena.try_write_pin(0).unwrap();
    for (offset, len) in [(1, FRAME_BYTES), (FRAME_BYTES + 1, 0), (usize::MAX, 2)] {
        let write = AssertUnwindSafe(|| arena.write(&mut own, offset, &vec![1; len]));
        assert!(catch_unwind(write).is_err());
    }
    arena.release_write_pin(own);
    let pin = arena.try_pin(1).unwrap();
    assert!(arena.bytes(&pin).iter().all(|&byte| byte == 0));
    arena.unpin(pin);
}

#[test]
fn an_arena_dropped_with_a_hold_leaves_its_memory_to_the_operation() {
    let arena = arena(1);
    let mut own = arena.try_write_pin(0).unwrap();
    let start = arena.address_mut(&mut own);
    drop(arena);
    // SAFETY: the frame is still held, so the memory stays mapped.
    unsafe { start.write(1) };
    std::mem::forget(own);
}
