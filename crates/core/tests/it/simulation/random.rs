//! Random worlds: setup and events, determined by a seed.

use super::broken::Lie;
use super::change;
use super::client::Client;
use super::mapped;
use super::model::Outcome;
use super::world::{Action, Figures, Log, Setup, World};
use larder_core::cache::cut;
use larder_core::clock::{MILLISECOND, SECOND};
use larder_core::counters::Counter;
use larder_core::hint::Hint;
use larder_core::mode::{FlushMode, WriteMode};
use larder_core::policy::PolicyKind;
use larder_core::store::{Fault, Geometry};
use larder_core::tunables::{TUNABLES, Tunables};
use larder_core::units::BLOCK_BYTES_U64;
use larder_core::volume::VolumeOptions;
use std::ops::Range;

/// `SplitMix64` (Steele, Lea, Flood 2014).
#[derive(Debug)]
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(crate) fn index(&mut self, n: usize) -> usize {
        usize::try_from(self.below(n as u64)).unwrap()
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

pub(crate) fn tunables(rng: &mut Rng) -> Tunables {
    match rng.below(5) {
        0 => Tunables::default(),
        1 => Tunables::nt(),
        2 => Tunables::linux(),
        _ => {
            let mut tunables = Tunables::default();
            for bounds in TUNABLES {
                let top = bounds.max.min(bounds.default * 2).max(bounds.min);
                let value = bounds.min + rng.below(top - bounds.min + 1);
                tunables.set(bounds.name, value).unwrap();
            }
            tunables
        }
    }
}

/// Returns random options of a volume without bounds.
pub(crate) fn volume_options(
    rng: &mut Rng,
    name: &str,
    page_blocks: u32,
    policy: Option<PolicyKind>,
) -> VolumeOptions {
    let granule = rng.pick(&[512, 512, 4096]);
    let odd = if rng.one_in(5) { rng.pick(&[512, 1024, 700]) } else { 0 };
    let length = (16 + rng.below(112)) * BLOCK_BYTES_U64 + odd;
    let geometry = Geometry { length, granule, read_only: false };
    let mut options = VolumeOptions::new(name, geometry);
    options.page_blocks = page_blocks;
    options.policy = policy.unwrap_or(rng.pick(&PolicyKind::ALL));
    options.write_mode =
        rng.pick(&[WriteMode::Back, WriteMode::Back, WriteMode::Through, WriteMode::Around]);
    options.tunables = tunables(rng);
    options.hint = rng.pick(&[Hint::Normal, Hint::Normal, Hint::Normal, Hint::Sequential]);
    if rng.one_in(8) {
        options.hint = rng.pick(Hint::ALL);
    }
    options
}

fn setup(rng: &mut Rng, lie: Lie, policy: Option<PolicyKind>) -> Setup {
    let page_blocks = rng.pick(&[1, 1, 2, 4, 16]);
    let frames = if page_blocks == 16 { rng.pick(&[64, 96]) } else { rng.pick(&[32, 48, 96]) };
    let count = 1 + u64::from(rng.one_in(4));
    let volume = |rng: &mut Rng, index: u64| {
        let mut options = volume_options(rng, &format!("v{index}"), page_blocks, policy);
        if count > 1 && rng.one_in(2) {
            options.min_frames = rng.pick(&[0, frames / 16, frames / 8]);
            options.max_frames = rng.pick(&[frames / 4 * 3, frames]);
        }
        options
    };
    let volumes = (0..count).map(|index| volume(rng, index)).collect();
    let delay = rng.one_in(4).then(|| rng.below(20) * MILLISECOND);
    let depth = rng.pick(&[1, 2, 4, 16]);
    Setup { frames, shards: rng.pick(&[1, 2]), volumes, seed: rng.next(), delay, depth, lie }
}

/// Runs the world of one seed to its end.
pub(crate) fn run(seed: u64, lie: Lie, log: Log) -> Figures {
    run_with(seed, lie, None, None, log)
}

/// Runs a world in rounds of at least `steps` steps together, or in one round. After each round the
/// volumes are quiesced. `policy` is that of all volumes; if it is `None`, the seed chooses.
pub(crate) fn run_with(
    seed: u64,
    lie: Lie,
    policy: Option<PolicyKind>,
    steps: Option<u64>,
    log: Log,
) -> Figures {
    let mut rng = Rng(seed);
    let setup = setup(&mut rng, lie, policy);
    let mut conditions = Conditions::new(&mut rng, lie, policy);
    let mut world = World::new(&setup, log);
    world.log_event(|| format!("{setup:?}"));
    for disk in 0..world.disks.len() {
        world.open(disk);
    }
    if rng.one_in(3) {
        warm_ranges(&mut world, &mut rng);
    }
    loop {
        let least = if steps.is_some() { 250 } else { 100 };
        let count = least + rng.below(least + 50);
        round(&mut world, &mut rng, &conditions, count);
        if steps.is_none_or(|steps| world.figures.steps >= steps) {
            break;
        }
        quiesce_and_check(&mut world, &mut rng);
        replace_failed_volumes(&mut world, &mut rng, policy);
        conditions = Conditions::new(&mut rng, lie, policy);
    }
    drain(&mut world, &mut rng);
    for disk in &world.disks {
        world.figures.ahead += disk.volume.totals().get(Counter::ReadAheadBlocks);
    }
    world.figures
}

/// Conditions of a round.
struct Conditions {
    /// The policy of all volumes, if it is fixed.
    policy: Option<PolicyKind>,
    /// True if store operations fail.
    has_faults: bool,
    /// True if settings change.
    has_changes: bool,
}

impl Conditions {
    /// Chooses the conditions. A world with a lie has neither faults nor changes, because the
    /// meaning of its flushes must be certain.
    fn new(rng: &mut Rng, lie: Lie, policy: Option<PolicyKind>) -> Self {
        let has_faults = lie == Lie::Nothing && rng.one_in(2);
        let has_changes = lie == Lie::Nothing && rng.one_in(2);
        Conditions { policy, has_faults, has_changes }
    }
}

/// Runs `count` random steps.
fn round(world: &mut World, rng: &mut Rng, conditions: &Conditions, count: u64) {
    let frames = u64::from(world.frames);
    world.figures.steps += count;
    for number in 0..count {
        let client = rng.index(world.clients.len());
        match rng.below(100) {
            0..35 => submit_random_request(world, rng, client, frames),
            35..60 => drive_store(world, rng),
            60..80 if world.clients[client].is_some() => {
                world.deliver(client);
            }
            80..84 if world.clients[client].is_some() => world.retry(client),
            84..88 => release(world, client),
            88..90 => mapped::step(world, rng, client, frames),
            90..93 => world.now += rng.below(3 * SECOND),
            93..96 => world.now += rng.below(50 * MILLISECOND),
            96 if rng.one_in(4) => {
                let disk = rng.index(world.disks.len());
                world.disks[disk].volume.set_hint(rng.pick(Hint::ALL));
            }
            96 if rng.one_in(2) => pin_or_unpin(world, rng, frames),
            96 if rng.one_in(2) => warm_ranges(world, rng),
            96 => open_or_close_session(world, rng, client),
            _ if conditions.has_changes && rng.one_in(2) => {
                change::change(world, rng, conditions.policy);
            }
            97 if conditions.has_faults => {
                let disk = rng.pick(&world.present_disks());
                let chosen = faults(world, rng, disk);
                world.set_faults(disk, chosen);
            }
            _ if rng.one_in(8) => {
                let (disk, seed) = (rng.pick(&world.present_disks()), rng.next());
                world.crash(disk, seed);
            }
            _ => drive_store(world, rng),
        }
        if number % 8 == 0 {
            world.cache.check(world.now);
        }
    }
}

fn drive_store(world: &mut World, rng: &mut Rng) {
    let disk = rng.pick(&world.present_disks());
    world.poll(disk);
    for _ in 0..rng.below(4) {
        world.reap(disk);
    }
    if rng.one_in(2) {
        world.run_maintenance();
    }
    if rng.one_in(24) {
        world.crash(disk, rng.next());
    }
}

fn release(world: &mut World, client: usize) {
    if let Some(client) = world.clients[client].as_mut() {
        client.release(&world.cache, world.now);
    }
}

fn open_or_close_session(world: &mut World, rng: &mut Rng, client: usize) {
    let open = world.clients.iter().flatten().count();
    if open < 4 && rng.one_in(2) {
        let disk = rng.pick(&world.present_disks());
        world.open(disk);
    } else if open > 1 && world.clients[client].is_some() {
        world.close(client);
    }
}

/// Marks ranges to be read back as after a restart; the ranges may exceed the volume.
fn warm_ranges(world: &mut World, rng: &mut Rng) {
    let disk = rng.index(world.disks.len());
    let blocks = world.disks[disk].length().div_ceil(BLOCK_BYTES_U64);
    let ranges: Vec<_> = (0..=rng.below(4))
        .map(|_| {
            let start = rng.below(blocks + 2);
            start..start + rng.below(12)
        })
        .collect();
    world.log_event(|| format!("store {disk}: to be warm: {ranges:?}"));
    world.cache.warm(&world.disks[disk].volume, ranges);
}

/// Pins a range, or unpins one.
fn pin_or_unpin(world: &mut World, rng: &mut Rng, frames: u64) {
    let disk = &world.disks[rng.index(world.disks.len())];
    let length = disk.length();
    let start = rng.below(length);
    let bytes = start..length.min(start + 1 + rng.below(frames / 12 * BLOCK_BYTES_U64));
    let is_more = rng.one_in(2);
    let done = if is_more && world.cache.pinned(&disk.volume).is_empty() {
        world.cache.pin_range(&disk.volume, bytes.clone(), world.now)
    } else {
        world.cache.unpin_range(&disk.volume, 0..length, world.now)
    };
    world.log_event(|| format!("pin {bytes:?} {is_more}: {done:?}"));
}

fn faults(world: &World, rng: &mut Rng, disk: usize) -> Vec<Fault> {
    let length = world.disks[disk].length();
    let mut range = || {
        let start = rng.below(length);
        start..(start + 1 + rng.below(8 * BLOCK_BYTES_U64)).min(length)
    };
    let (one, other) = (range(), range());
    match rng.below(12) {
        0..3 => vec![Fault::Reads(one)],
        3..5 => vec![Fault::Writes(one)],
        5 => vec![Fault::Reads(one), Fault::Writes(other)],
        6 => vec![Fault::NoSpace],
        7 => vec![Fault::NoDiscard],
        8 => vec![Fault::Shrunk(one.start)],
        9 if rng.one_in(3) => vec![Fault::Flushes],
        _ => Vec::new(),
    }
}

/// Returns a random range of bytes, aligned to blocks, to sectors or not at all.
fn range(rng: &mut Rng, length: u64, blocks_max: u64) -> Range<u64> {
    let unit = rng.pick(&[BLOCK_BYTES_U64, 512, 1]);
    let hot = if rng.one_in(2) { length } else { length.min(12 * BLOCK_BYTES_U64) };
    let start = rng.below(hot.div_ceil(unit)) * unit;
    let most = if rng.one_in(3) { blocks_max * BLOCK_BYTES_U64 } else { BLOCK_BYTES_U64 };
    let len = (1 + rng.below(most.div_ceil(unit))) * unit;
    start..length.min(start + len)
}

fn submit_random_request(world: &mut World, rng: &mut Rng, client: usize, frames: u64) {
    let Some(one) = world.clients[client].as_ref() else { return };
    let disk = &world.disks[one.disk];
    let length = disk.length();
    let least = disk.volume.bounds().1.min(world.cache.frame_count());
    let frames = frames.min(u64::from(least));
    let is_free = |range: &Range<u64>| range.start < range.end && !disk.model.is_busy(range);
    let bytes = range(rng, length, 6);
    let action = match rng.below(20) {
        0..8 => {
            // Reads hold their blocks while they wait for the rest, so together they may not hold
            // more blocks than the cache has.
            let held: u64 = world.clients.iter().flatten().map(Client::held_blocks).sum();
            if held + 8 > frames / 3 {
                return release(world, client);
            }
            if rng.one_in(3) {
                Action::Read(bytes)
            } else {
                let one = world.clients[client].as_mut().unwrap();
                Action::Read(one.next_sequential_range(1 + rng.below(3), length))
            }
        }
        8..15 if is_free(&bytes) => Action::Write { bytes, fua: rng.one_in(6) },
        15 => Action::Flush,
        16 => {
            let blocks = bytes.start / BLOCK_BYTES_U64..bytes.end.div_ceil(BLOCK_BYTES_U64);
            Action::FlushRange { blocks, stable: !rng.one_in(4) }
        }
        17.. => {
            let bytes = range(rng, length, 12);
            if !is_free(&bytes) {
                return;
            }
            match rng.below(3) {
                0 => Action::Zero { bytes, keep_allocated: false },
                1 => Action::Zero { bytes, keep_allocated: true },
                _ => {
                    let blocks = cut(bytes, length).blocks;
                    if blocks.is_empty() {
                        return;
                    }
                    Action::Discard { blocks }
                }
            }
        }
        _ => return,
    };
    world.submit(client, action);
}

/// Quiesces the world, and closes all sessions.
pub(crate) fn drain(world: &mut World, rng: &mut Rng) {
    quiesce_and_check(world, rng);
    for client in 0..world.clients.len() {
        if world.clients[client].is_some() {
            world.close(client);
        }
    }
    world.quiesce(true);
    world.cache.check(world.now);
    world.check_no_pins();
}

/// Ends the faults and all requests, flushes all dirty data, and checks the stores against the
/// model.
fn quiesce_and_check(world: &mut World, rng: &mut Rng) {
    for disk in world.present_disks() {
        world.set_faults(disk, Vec::new());
        world.disks[disk].volume.set_flush_mode(FlushMode::Keep);
        let whole = 0..world.disks[disk].length();
        world.cache.unpin_range(&world.disks[disk].volume, whole, world.now).unwrap();
        if world.clients.iter().flatten().all(|client| client.disk != disk) {
            world.open(disk);
        }
    }
    for _ in 0..200 {
        for client in 0..world.clients.len() {
            mapped::unpin_all(world, rng, client);
            if let Some(client) = world.clients[client].as_mut() {
                while !client.held.is_empty() {
                    client.release(&world.cache, world.now);
                }
            }
        }
        world.quiesce(false);
        if world.clients.iter().flatten().all(|client| client.requests.is_empty()) {
            break;
        }
        world.now += SECOND;
        for client in 0..world.clients.len() {
            if world.clients[client].is_some() {
                world.retry(client);
            }
        }
    }
    for client in world.clients.iter_mut().flatten() {
        let left: Vec<_> = client.requests.iter().map(|request| request.token).collect();
        assert!(left.is_empty(), "requests never end: {left:?}");
        while !client.held.is_empty() {
            client.release(&world.cache, world.now);
        }
    }
    world.cache.check(world.now);
    change::check_targets_reached(world);
    for disk in world.present_disks() {
        check_volume(world, disk, rng.one_in(2));
        world.crash(disk, rng.next());
    }
}

/// Has the failures of a volume reported to all its clients, after which no request may fail.
fn forget_failures(world: &mut World, index: usize) {
    for client in 0..world.clients.len() {
        if world.clients[client].as_ref().is_some_and(|client| client.disk == index) {
            flush_until_success(world, client);
        }
    }
    let disk = &mut world.disks[index];
    disk.read_errors.clear();
    disk.writes_failed = false;
}

/// Removes volumes whose flushes fail permanently, adds one if at most one is left, and clears the
/// failures of the others.
fn replace_failed_volumes(world: &mut World, rng: &mut Rng, policy: Option<PolicyKind>) {
    for index in 0..world.disks.len() {
        let disk = &world.disks[index];
        if disk.flush_failed && !disk.is_removed {
            change::remove_unused_volume(world, index);
        }
        if world.disks[index].is_removed {
            if world.present_disks().len() > 1 {
                continue;
            }
            let page_blocks = rng.pick(&[1, 1, 2, 4]);
            let options = volume_options(rng, &format!("v{index}"), page_blocks, policy);
            world.replace_disk(index, &options, rng.next());
            world.open(index);
        } else {
            forget_failures(world, index);
        }
    }
}

/// Flushes as a client. The first flush may report earlier failures; the second one may not.
fn flush_until_success(world: &mut World, client: usize) {
    for _ in 0..2 {
        let failed = world.figures.failed;
        world.submit(client, Action::Flush);
        world.quiesce(false);
        if world.figures.failed == failed {
            break;
        }
    }
    let client = world.clients[client].as_ref().unwrap();
    assert!(
        client.requests.is_empty() && !client.has_unreported_failure,
        "a flush did not succeed"
    );
}

/// Flushes a volume, by client flushes or by the background writer, and checks its content.
fn check_volume(world: &mut World, disk: usize, flush: bool) {
    let clients: Vec<_> = (0..world.clients.len())
        .filter(|&i| world.clients[i].as_ref().is_some_and(|client| client.disk == disk))
        .collect();
    if flush && !world.disks[disk].flush_failed {
        for &client in &clients {
            flush_until_success(world, client);
        }
    } else {
        world.quiesce(true);
    }
    if world.present_disks().into_iter().any(|other| world.is_failing(other)) {
        // Reads may need the frames of pages whose write is to be retried.
        world.quiesce(true);
    }
    let World { cache, disks, .. } = world;
    let orphans = std::mem::take(&mut disks[disk].orphans);
    for range in orphans {
        disks[disk].model.end(&range, Outcome::Unknown);
    }
    assert!(cache.is_at_rest(&disks[disk].volume), "a volume does not come to rest");
    assert!(!world.is_failing(disk), "nothing fails any more");
    let disk = &world.disks[disk];
    let bytes = disk.media.lock().unwrap().current().clone();
    disk.model.check_store(&bytes, false);
    let (client, length) = (clients[0], disk.length());
    for start in (0..length).step_by(8 * 4096) {
        let range = start..length.min(start + 8 * 4096);
        let mut stored = vec![0; usize::try_from(range.end - range.start).unwrap()];
        bytes.read(start, &mut stored);
        world.submit(client, Action::Read(range));
        world.quiesce(false);
        let client = world.clients[client].as_mut().unwrap();
        let differs = client.held[0].copy.iter().zip(&stored).position(|(a, b)| a != b);
        assert_eq!(differs, None, "the cache and the store differ after {start}");
        client.release(&world.cache, world.now);
    }
}
