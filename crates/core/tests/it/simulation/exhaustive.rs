//! Every sequence of up to three operations, followed by a flush, with a crash after every event of
//! the store.

use super::broken::Lie;
use super::with_log_on_panic;
use super::world::{Action, Figures, Setup, World};
use larder_core::clock::SECOND;
use larder_core::mode::WriteMode;
use larder_core::store::Geometry;
use larder_core::units::BLOCK_BYTES_U64;
use larder_core::volume::VolumeOptions;

/// The number of seeds for each crash.
const CRASHES: u64 = 3;
const BLOCKS: u64 = 4;

#[derive(Clone, Copy, Debug)]
enum Step {
    WriteA,
    WritePartOfA,
    WriteB,
    WriteAWithFua,
    DiscardA,
    ZeroBoth,
    ReadA,
    Quiesce,
    WaitAndQuiesce,
    OtherClientWritesA,
    ChangePageSize,
    SetWriteThrough,
    Freeze,
    FlushA,
    WriteBackB,
}

const STEPS: [Step; 15] = [
    Step::WriteA,
    Step::WritePartOfA,
    Step::WriteB,
    Step::WriteAWithFua,
    Step::DiscardA,
    Step::ZeroBoth,
    Step::ReadA,
    Step::Quiesce,
    Step::WaitAndQuiesce,
    Step::OtherClientWritesA,
    Step::ChangePageSize,
    Step::SetWriteThrough,
    Step::Freeze,
    Step::FlushA,
    Step::WriteBackB,
];

fn crash(world: &mut World) {
    for seed in 0..CRASHES {
        world.crash(0, seed);
    }
}

/// Runs until there is no progress, with a crash after every event.
fn run_until_idle(world: &mut World) {
    for _ in 0..1000 {
        let polled = world.poll(0);
        if polled > 0 {
            crash(world);
        }
        let reaped = world.reap(0);
        if reaped > 0 {
            crash(world);
        }
        let mut moved = polled + reaped > 0;
        for client in 0..world.clients.len() {
            while world.deliver(client) {
                moved = true;
                crash(world);
            }
        }
        if moved {
            continue;
        }
        let Some(due) = world.next_reply() else { return };
        world.now = due.max(world.now);
    }
    panic!("three operations do not come to rest");
}

fn perform(world: &mut World, step: Step) {
    let block = |first: u64, count: u64| first * BLOCK_BYTES_U64..(first + count) * BLOCK_BYTES_U64;
    let write = |bytes, fua| Action::Write { bytes, fua };
    let (client, action) = match step {
        Step::WriteA => (0, write(block(0, 1), false)),
        Step::WritePartOfA => (0, write(700..1900, false)),
        Step::WriteB => (0, write(block(1, 1), false)),
        Step::WriteAWithFua => (0, write(block(0, 1), true)),
        Step::DiscardA => (0, Action::Discard { blocks: 0..1 }),
        Step::ZeroBoth => (0, Action::Zero { bytes: block(0, 2), keep_allocated: false }),
        Step::FlushA => (0, Action::FlushRange { blocks: 0..1, stable: true }),
        Step::WriteBackB => (0, Action::FlushRange { blocks: 1..2, stable: false }),
        Step::ReadA => (0, Action::Read(block(0, 1))),
        Step::OtherClientWritesA => (1, write(block(0, 1), false)),
        Step::Quiesce => return run_until_idle(world),
        Step::ChangePageSize => {
            let volume = &world.disks[0].volume;
            let blocks = if volume.page_bytes() == BLOCK_BYTES_U64 { 2 } else { 1 };
            return world.cache.set_page_blocks(volume, blocks).unwrap();
        }
        Step::Freeze => return world.cache.freeze(&world.disks[0].volume, true),
        Step::SetWriteThrough => {
            return world.disks[0].volume.set_write_mode(WriteMode::Through).unwrap();
        }
        Step::WaitAndQuiesce => {
            world.now += 10 * SECOND;
            return run_until_idle(world);
        }
    };
    // The model permits only one change of a sector at a time.
    if !matches!(action, Action::Read(_)) && world.disks[0].model.is_busy(&block(0, 2)) {
        run_until_idle(world);
    }
    world.submit(client, action);
    crash(world);
}

fn run(steps: &[Step], mode: WriteMode, page_blocks: u32) -> Figures {
    let length = BLOCKS * BLOCK_BYTES_U64;
    let geometry = Geometry { length, granule: 512, read_only: false };
    let mut options = VolumeOptions::new("v", geometry);
    (options.write_mode, options.page_blocks) = (mode, page_blocks);
    let setup = Setup {
        frames: 16,
        shards: 1,
        volumes: vec![options],
        seed: 1,
        delay: None,
        depth: 4,
        lie: Lie::Nothing,
    };
    let name = format!("sequence {steps:?} with {mode}, pages of {page_blocks} blocks");
    with_log_on_panic(&name, |log| {
        let mut world = World::new(&setup, log);
        world.open(0);
        world.open(0);
        for &step in steps {
            perform(&mut world, step);
        }
        // The first flush runs while requests are still in flight; after the second one nothing may
        // be dirty.
        for client in [0, 1] {
            world.submit(client, Action::Flush);
            run_until_idle(&mut world);
        }
        world.cache.check(world.now);
        let left = world.clients.iter().flatten().map(|client| client.requests.len());
        assert_eq!(left.sum::<usize>(), 0, "requests never end");
        assert!(world.cache.is_at_rest(&world.disks[0].volume), "dirty after a flush");
        let bytes = world.disks[0].media.lock().unwrap().after_crash(7);
        world.disks[0].model.check_store(&bytes, false);
        for client in [0, 1] {
            world.close(client);
        }
        world.check_no_pins();
        world.figures
    })
}

#[test]
fn every_short_sequence_keeps_every_promise() {
    let (mut sequences, mut crashes) = (0, 0);
    for mode in [WriteMode::Back, WriteMode::Through, WriteMode::Around] {
        for page_blocks in [1, 2] {
            let mut each = |steps: &[Step]| {
                sequences += 1;
                crashes += run(steps, mode, page_blocks).crashes;
            };
            for a in STEPS {
                each(&[a]);
                for b in STEPS {
                    each(&[a, b]);
                    for c in STEPS {
                        each(&[a, b, c]);
                    }
                }
            }
        }
    }
    println!("exhaustive: {sequences} sequences, {crashes} crashes");
}
