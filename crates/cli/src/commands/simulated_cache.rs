//! `--cache SIZE`: a simulated cache in front of the storage that a command examines.

use crate::args;
use anyhow::{Result, ensure};
use larder_core::cache::{METADATA_BYTES_PER_FRAME, shards_for};
use larder_core::curve::choice::PolicyChoice;
use larder_core::hint::Hint;
use larder_core::mode::WriteMode;
use larder_core::tunables::Tunables;
use larder_host::memory;
use larder_lab::model::StoreModel;
use larder_lab::sim::engine::{CacheSimulationOptions, Clients, Pace, frames_min, frames_of};
use larder_schema::format;

/// Tables of a simulated cache, bytes for each frame.
const TABLES_PER_FRAME: u64 = METADATA_BYTES_PER_FRAME as u64;

/// Returns the options of a simulated cache with the default settings in front of a store.
pub(super) fn options(
    memory_bytes: u64,
    store: StoreModel,
    clients: Clients,
) -> CacheSimulationOptions {
    let frames = frames_of(memory_bytes);
    CacheSimulationOptions {
        frames,
        shards: shards_for(frames, args::cores().get()),
        page_blocks: 1,
        policy: PolicyChoice::default(),
        write_mode: WriteMode::Back,
        store,
        clients,
        pace: Pace::CLOSED,
        wake: 0,
        reply: 0,
        hint: Hint::default(),
        tunables: Tunables::default(),
        page_cache: None,
    }
}

/// Refuses a cache that is too small for its clients, and one of which `times` the size has tables
/// that take more than half of the memory.
pub(super) fn check(memory_bytes: u64, times: u64, clients: Clients) -> Result<()> {
    let minimum = frames_min(clients, 1) << 12;
    ensure!(
        memory_bytes >= minimum,
        "simulate a cache of {}: the minimum is {}; choose a larger --cache",
        format::bytes(memory_bytes),
        format::bytes(minimum)
    );
    let tables = u64::from(frames_of(memory_bytes)).saturating_mul(times * TABLES_PER_FRAME);
    let available = memory::available_bytes().unwrap_or(u64::MAX);
    let size = format::bytes(memory_bytes);
    let size = if times == 1 { size } else { format!("{times} times {size}") };
    ensure!(
        tables <= available / 2,
        "simulate a cache of {size}: its tables take {} of memory, and half of what is available \
         is {}; use a smaller --cache",
        format::bytes(tables),
        format::bytes(available / 2)
    );
    Ok(())
}
