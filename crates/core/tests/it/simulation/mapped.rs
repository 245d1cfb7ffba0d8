//! Mappings for change in a world: a client creates them, holds them for a while, and unpins them
//! or gives them up.
//!
//! While a client holds a mapping, the model has no record of it: readers and the store must see
//! the previous content. From the unpin on it is a write.

use super::client::Client;
use super::model::{Content, Model, bytes_of};
use super::random::Rng;
use super::world::{Action, Disk, Kind, World};
use larder_core::frames::{Frames, PlainFrames};
use larder_core::mapping::{Access, Mapping};
use larder_core::store::{StoreError, StoreErrorKind};
use larder_core::units::{BLOCK_BYTES_U64, SECTOR_BYTES};
use std::ops::Range;

/// Returns the content of a mapping.
fn content(frames: &PlainFrames, mapping: &mut Mapping<PlainFrames>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (pin, range) in mapping.pieces() {
        let mut piece = vec![0; range.len()];
        // These frames have a single type of pin.
        frames.read(pin, range.start, &mut piece);
        bytes.extend(piece);
    }
    bytes
}

/// Checks the last mapping of a client, or the error of its request.
pub(crate) fn check_mapping(
    disk: &Disk,
    client: &mut Client,
    frames: &PlainFrames,
    access: Access,
    (bytes, allowed, error): (Range<u64>, Vec<Vec<Content>>, Option<StoreError>),
) {
    let Some(error) = error else {
        let found = content(frames, client.mapped.last_mut().expect("the mapping"));
        if access == Access::Change {
            Model::check_read(&bytes, &found, &allowed);
        } else {
            assert!(found.iter().all(|&byte| byte == 0), "old bytes in a mapping to overwrite");
        }
        return;
    };
    let is_refused = matches!(error.kind, StoreErrorKind::Busy | StoreErrorKind::ReadOnly);
    assert!(is_refused || disk.has_failed(&bytes, &error), "mapping {bytes:?} failed to {error}");
}

/// Creates a mapping, or unpins one.
pub(crate) fn step(world: &mut World, rng: &mut Rng, client: usize, frames: u64) {
    let Some(one) = world.clients[client].as_ref() else { return };
    if !one.mapped.is_empty() && rng.one_in(2) {
        return unpin(world, rng, client);
    }
    let held: u64 = world.clients.iter().flatten().map(Client::held_blocks).sum();
    let is_waiting = one.requests.iter().any(|r| matches!(r.kind, Kind::Map { .. }));
    if is_waiting || held + 8 > frames / 3 {
        return;
    }
    let length = world.disks[one.disk].length();
    let access = if rng.one_in(3) { Access::Overwrite } else { Access::Change };
    let unit = rng.pick(&[BLOCK_BYTES_U64, SECTOR_BYTES as u64]);
    let start = rng.below(length.div_ceil(unit)) * unit;
    let bytes = start..length.min(start + (1 + rng.below(3)) * unit);
    world.submit(client, Action::Map { bytes, access });
}

/// Ends all mappings of a client.
pub(crate) fn unpin_all(world: &mut World, rng: &mut Rng, client: usize) {
    while world.clients[client].as_ref().is_some_and(|client| !client.mapped.is_empty()) {
        let before = world.clients[client].as_ref().unwrap().mapped.len();
        unpin(world, rng, client);
        if world.clients[client].as_ref().unwrap().mapped.len() == before {
            return;
        }
    }
}

fn unpin(world: &mut World, rng: &mut Rng, client: usize) {
    let one = world.clients[client].as_mut().unwrap();
    let mut mapping = one.mapped.remove(0);
    let (disk, whole) = (one.disk, mapping.bytes());
    if rng.one_in(5) {
        world.log_event(|| format!("client {client} gives up its mapping of {whole:?}"));
        world.cache.unmap(&world.disks[disk].volume, &mut mapping);
        return;
    }
    // A part of it, in whole sectors except at the end of the volume.
    let sectors = (whole.end - whole.start).div_ceil(SECTOR_BYTES as u64);
    let first = rng.below(sectors);
    let count = 1 + rng.below(sectors - first);
    let at = |sector: u64| whole.end.min(whole.start + sector * SECTOR_BYTES as u64);
    let bytes = if rng.one_in(2) { whole.clone() } else { at(first)..at(first + count) };
    if world.disks[disk].model.is_busy(&bytes) {
        let one = world.clients[client].as_mut().unwrap();
        one.mapped.push(mapping);
        return;
    }
    let token = world.next_token();
    let data = bytes_of(token, bytes.clone());
    mapping.write(world.cache.frames(), bytes.start, &data);
    world.log_event(|| format!("client {client} unpins {token}, {bytes:?} of {whole:?}"));
    world.disks[disk].model.begin(&bytes, &data);
    world.allow_new_content(disk, &bytes);
    let request = world.request(client, token, bytes, Kind::Unpin);
    let one = world.clients[client].as_mut().unwrap();
    one.requests.push(request);
    one.session.unpin(&world.cache, world.now, Box::new(mapping), token);
    world.take_events(client);
}
