//! Changes while the cache serves, made by a random world as by an administrator. No change may
//! violate a guarantee given to a client.

use super::model::Outcome;
use super::random::{Rng, tunables, volume_options};
use super::world::World;
use larder_core::clock::MILLISECOND;
use larder_core::completion::NoWaker;
use larder_core::counters::Gauge;
use larder_core::frames::Frames;
use larder_core::mode::{FlushMode, WriteMode};
use larder_core::policy::PolicyKind;
use larder_core::request::{Session, SessionLimit};
use larder_core::settings::SettingError;
use larder_core::tunables::TUNABLES;
use larder_core::units::BLOCK_BYTES_U64;
use std::sync::Arc;

impl World {
    /// Records if a change was accepted.
    fn record_change(
        &mut self,
        description: impl FnOnce() -> String,
        result: Result<(), SettingError>,
    ) {
        match &result {
            Ok(()) => self.figures.changes += 1,
            Err(_) => self.figures.refused += 1,
        }
        self.log_event(|| match result {
            Ok(()) => format!("change: {}", description()),
            Err(error) => format!("refused: {error}"),
        });
    }
}

/// Makes a random change; if `policy` is set, no other policy is used.
pub(crate) fn change(world: &mut World, rng: &mut Rng, policy: Option<PolicyKind>) {
    let disk = rng.pick(&world.present_disks());
    match rng.below(12) {
        0 => write_mode(world, rng, disk),
        1 => flush_mode(world, rng, disk),
        2 => tunable(world, rng, disk),
        3 => bounds(world, rng, disk),
        4 => memory(world, rng),
        5 => add_volume(world, rng, policy),
        6 | 7 => page_size(world, rng, disk),
        9 => freeze(world, rng, disk),
        10 => {
            let dropped = world.cache.drop_clean(&world.disks[disk].volume, world.now);
            world.record_change(|| format!("{dropped} blocks of volume {disk} dropped"), Ok(()));
        }
        8 => remove_volume(world, rng, disk),
        _ => {
            let kind = policy.unwrap_or(rng.pick(&PolicyKind::ALL));
            let volume = &world.disks[disk].volume;
            world.cache.set_policy(volume, kind, world.now);
            assert_eq!(volume.policy(), kind, "the policy that was set");
            world.record_change(|| format!("policy of volume {disk}: {}", kind.name()), Ok(()));
        }
    }
}

fn write_mode(world: &mut World, rng: &mut Rng, disk: usize) {
    let mode = rng.pick(WriteMode::ALL);
    let done = world.disks[disk].volume.set_write_mode(mode);
    world.record_change(|| format!("write mode of volume {disk}: {mode}"), done);
}

fn flush_mode(world: &mut World, rng: &mut Rng, disk: usize) {
    let mode = rng.pick(FlushMode::ALL);
    world.disks[disk].volume.set_flush_mode(mode);
    world.record_change(|| format!("flush mode of volume {disk}: {mode}"), Ok(()));
}

fn tunable(world: &mut World, rng: &mut Rng, disk: usize) {
    let bounds = rng.pick(&TUNABLES);
    let all = tunables(rng);
    let index = TUNABLES.iter().position(|one| one.name == bounds.name).unwrap();
    // Occasionally a value that no tunable accepts.
    let value = if rng.one_in(8) { bounds.max + 1 } else { all.values()[index] };
    let done = world.disks[disk].volume.set_tunable(bounds.name, value);
    assert_eq!(done.is_ok(), value <= bounds.max, "{} = {value}: {done:?}", bounds.name);
    world.record_change(|| format!("{} of volume {disk}: {value}", bounds.name), done);
}

fn bounds(world: &mut World, rng: &mut Rng, disk: usize) {
    let frames = without_reserves(world.cache.frame_count());
    // The floors of all volumes leave frames for a few requests of the largest size.
    let volumes = world.cache.volumes();
    let own = world.disks[disk].volume.bounds().0;
    let others = volumes.iter().map(|volume| volume.bounds().0).sum::<u32>() - own;
    let min_frames = min_frames(world);
    if frames <= others + min_frames {
        return;
    }
    let most = frames - others - min_frames;
    let max =
        if rng.one_in(2) { u32::MAX } else { min_frames + u32::try_from(rng.below(60)).unwrap() };
    let min = if rng.one_in(2) { 0 } else { rng.pick(&[most / 8, most / 2, most]) };
    let volume = &world.disks[disk].volume;
    let before = volume.bounds();
    let done = world.cache.set_bounds(volume, min, max);
    let after = if done.is_ok() { (min, max) } else { before };
    assert_eq!(volume.bounds(), after, "a refused change changes nothing");
    world.record_change(|| format!("bounds of volume {disk}: {min} to {max}"), done);
}

fn memory(world: &mut World, rng: &mut Rng) {
    let capacity = world.cache.frames().count();
    let floors: u32 = world.cache.volumes().iter().map(|volume| volume.bounds().0).sum();
    let min_needed = with_reserves(floors + min_frames(world));
    if min_needed >= capacity {
        return;
    }
    let target = if rng.one_in(8) {
        rng.pick(&[0, floors / 2, capacity + 1])
    } else {
        min_needed + u32::try_from(rng.below(u64::from(capacity - min_needed))).unwrap()
    };
    let before = world.cache.memory().target;
    let done = world.cache.set_memory(target);
    let after = if done.is_ok() { target } else { before };
    assert!(done.is_ok() || target < min_needed || target > capacity, "{done:?}");
    assert_eq!(world.cache.memory().target, after, "a refused change changes nothing");
    world.record_change(|| format!("memory: {target}"), done);
}

fn page_size(world: &mut World, rng: &mut Rng, disk: usize) {
    let blocks = rng.pick(&[1, 1, 2, 4, 8, 16, 3, 512]);
    let volume = &world.disks[disk].volume;
    // Larger pages need more frames; see `min_frames`.
    let min_needed = 3 * blocks.max(8);
    let floors: u32 = world.cache.volumes().iter().map(|volume| volume.bounds().0).sum();
    let others = floors - volume.bounds().0;
    let memory = without_reserves(world.cache.memory().target);
    let is_enough = volume.bounds().1 >= min_needed && memory >= others + min_needed;
    if blocks.is_power_of_two() && blocks <= 16 && !is_enough {
        return;
    }
    let done = world.cache.set_page_blocks(volume, blocks);
    assert_eq!(done.is_ok(), blocks.is_power_of_two() && blocks <= 16, "{blocks}: {done:?}");
    if done.is_ok() {
        let disk = &mut world.disks[disk];
        disk.page_bytes_max = disk.page_bytes_max.max(u64::from(blocks) * BLOCK_BYTES_U64);
    }
    world.record_change(|| format!("page size of volume {disk}: {blocks}"), done);
}

fn freeze(world: &mut World, rng: &mut Rng, disk: usize) {
    let frozen = rng.one_in(2);
    world.cache.freeze(&world.disks[disk].volume, frozen);
    world.record_change(|| format!("volume {disk} frozen: {frozen}"), Ok(()));
}

fn add_volume(world: &mut World, rng: &mut Rng, policy: Option<PolicyKind>) {
    let number = world.disks.len();
    if world.present_disks().len() == 3 || number == 8 {
        return;
    }
    let page_blocks = rng.pick(&[1, 1, 2, 4]);
    let mut options = volume_options(rng, &format!("v{number}"), page_blocks, policy);
    if rng.one_in(8) {
        // More frames than the cache has.
        options.min_frames = world.cache.memory().target;
    }
    let added = world.add_disk(&options, rng.next());
    assert!(added.is_ok() || options.min_frames > 0, "{added:?}");
    if added.is_ok() {
        world.open(number);
    }
    world.record_change(|| format!("volume {number} comes"), added);
}

/// Removes a volume that has no sessions; otherwise checks that the cache refuses the removal.
fn remove_volume(world: &mut World, rng: &mut Rng, disk: usize) {
    if rng.one_in(2) {
        close_clients(world, disk);
    }
    let sessions = world.clients.iter().flatten().filter(|client| client.disk == disk).count();
    let volume = Arc::clone(&world.disks[disk].volume);
    let is_at_rest = world.cache.is_at_rest(&volume);
    if world.present_disks().len() == 1 {
        return;
    }
    let closed = world.cache.close_volume(&volume);
    assert_eq!(closed.is_ok(), sessions == 0 && is_at_rest, "{sessions} sessions, {closed:?}");
    if closed.is_ok() {
        complete_removal(world, disk);
    }
    world.record_change(|| format!("volume {disk} goes"), closed);
}

/// Closes the sessions of a volume.
fn close_clients(world: &mut World, disk: usize) {
    for client in 0..world.clients.len() {
        if world.clients[client].as_ref().is_some_and(|client| client.disk == disk) {
            world.close(client);
        }
    }
}

/// Removes a volume at rest, after closing its sessions.
pub(crate) fn remove_unused_volume(world: &mut World, disk: usize) {
    close_clients(world, disk);
    world.cache.close_volume(&world.disks[disk].volume).unwrap();
    complete_removal(world, disk);
}

/// Completes the removal of a closed volume.
fn complete_removal(world: &mut World, disk: usize) {
    let volume = Arc::clone(&world.disks[disk].volume);
    let limit = SessionLimit::Own(0);
    let opened: Result<Session<_, Vec<u8>, ()>, _> =
        Session::open(&world.cache, &volume, Box::new(NoWaker), limit);
    assert!(opened.is_err(), "it is closed");
    world.cache.remove_volume(&volume, world.now);
    world.figures.removed += 1;
    let disk = &mut world.disks[disk];
    disk.is_removed = true;
    for range in std::mem::take(&mut disk.orphans) {
        disk.model.end(&range, Outcome::Unknown);
    }
    let bytes = disk.media.lock().unwrap().current().clone();
    disk.model.check_store(&bytes, false);
}

/// Asserts that all requested targets are reached when no request is in flight.
pub(crate) fn check_targets_reached(world: &mut World) {
    for _ in 0..1000 {
        world.quiesce(false);
        if world.cache.run_maintenance(world.now).is_none() {
            break;
        }
        world.now += 10 * MILLISECOND;
    }
    let memory = world.cache.memory();
    assert_eq!((memory.usable, &memory.refused), (memory.target, &None), "frames in service");
    for volume in world.cache.volumes() {
        let max = u64::from(volume.bounds().1) * BLOCK_BYTES_U64;
        let resident = world.cache.gauge(&volume, Gauge::Resident);
        assert!(resident <= max, "{resident} resident of {max}");
        assert!(!volume.is_regrouping(), "the page size is what it was to become");
    }
}

/// Returns the frames that remain without the cache's maximum reserve for volumes.
fn without_reserves(frames: u32) -> u32 {
    frames - frames / 8
}

/// Returns the number of frames of which `frames` remain without the reserves.
fn with_reserves(frames: u32) -> u32 {
    (frames * 8).div_ceil(7)
}

/// Returns the minimum number of frames for each volume of a world: with fewer, concurrent requests
/// could block each other's frames forever.
fn min_frames(world: &World) -> u32 {
    let volumes = world.cache.volumes();
    // A volume whose page size is changing counts as one with the largest pages.
    let pages = volumes.iter().map(|volume| {
        if volume.is_regrouping() { 16 } else { volume.page_bytes() / BLOCK_BYTES_U64 }
    });
    u32::try_from(3 * pages.max().unwrap()).unwrap().max(24)
}
