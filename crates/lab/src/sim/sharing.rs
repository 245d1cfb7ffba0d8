//! Two volumes in one pool, one with a hot set and one that is scanned: the hit ratio with shared
//! memory, compared with fixed divisions.
//!
//! Each request reads one block of one of the two volumes, which is chosen at random. On the hot
//! volume, pages with lower numbers are hotter; the other volume is scanned in order, again and
//! again. The clock advances by the same time with each request, and the stores take no time.

use crate::cache_simulation::{CacheSimulation, Clients, Request, RequestTime, SimulationError};
use crate::model::NullStore;
use crate::random::Random;
use crate::trace::Op;
use larder_core::cache::ShareMode;
use larder_core::clock::Nanos;
use larder_core::counters::Counter;
use larder_core::frames::NoFrames;
use larder_core::policy::PolicyKind;
use larder_core::store::Geometry;
use larder_core::tunables::Tunables;
use larder_core::units::BLOCK_BYTES_U64;
use larder_core::volume::VolumeOptions;

/// Nanoseconds from one request to the next.
const GAP: Nanos = 200_000;
/// Blocks of the volume that is scanned.
const SCANNED_BLOCKS: u64 = 400_000;

/// The experiment.
#[derive(Clone, Copy, Debug)]
pub struct SharingExperiment {
    /// Frames of the pool.
    pub frames: u32,
    /// Blocks of the volume that has the hot set.
    pub hot_blocks: u64,
    /// Requests of every ten that go to the hot volume.
    pub hot_tenths: u64,
    /// The policy of both volumes.
    pub policy: PolicyKind,
    /// Requests, of which the first half is warm-up.
    pub requests: u64,
}

/// Division of the memory between the volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryDivision {
    /// The hot volume gets this many frames, the other volume the rest.
    Fixed(u32),
    /// The cache divides the memory in this mode.
    Mode(ShareMode),
}

/// Returns the hit ratio of the second half of the requests, 0 to 1.
///
/// # Errors
/// As [`CacheSimulation::begin`].
pub fn hit_ratio(
    sharing: &SharingExperiment,
    division: MemoryDivision,
) -> Result<f64, SimulationError> {
    let geometry =
        |blocks| Geometry { length: blocks * BLOCK_BYTES_U64, granule: 512, read_only: true };
    // Read-ahead is off, so that hits depend on replacement alone.
    let mut tunables = Tunables::default();
    tunables.set("read-ahead-max", 0).expect("in its range");
    let mut volumes = [("hot", sharing.hot_blocks), ("scanned", SCANNED_BLOCKS)].map(
        |(name, blocks): (&str, u64)| VolumeOptions {
            policy: sharing.policy,
            tunables: tunables.clone(),
            ..VolumeOptions::new(name, geometry(blocks))
        },
    );
    if let MemoryDivision::Fixed(frames) = division {
        volumes[0].max_frames = frames.max(1);
        volumes[1].max_frames = (sharing.frames - frames).max(1);
    }
    let served = volumes.map(|options| {
        let store = NullStore::new(options.geometry);
        (options, store)
    });
    let mut simulation = CacheSimulation::new(sharing.frames, 1, served, Clients::synchronous(1));
    if let MemoryDivision::Mode(mode) = division {
        simulation.set_share_mode(mode);
    }
    let mut random = Random::from_seed(1);
    let mut scanned = 0;
    let mut hits_before = 0;
    for number in 0..sharing.requests {
        if number == sharing.requests / 2 {
            hits_before = hits(&simulation);
        }
        let (volume, block) = if random.below(10) < sharing.hot_tenths {
            // The lowest of three uniform numbers: low pages are hot.
            let draw = (0..3).map(|_| random.below(sharing.hot_blocks)).min().unwrap_or(0);
            (0, draw)
        } else {
            scanned = (scanned + 1) % SCANNED_BLOCKS;
            (1, scanned)
        };
        simulation.run_until(simulation.now() + GAP)?;
        let offset = block * BLOCK_BYTES_U64;
        let client = simulation.wait_for_client(RequestTime::default())?;
        let request = Request { volume, op: Op::Read, offset, len: BLOCK_BYTES_U64 };
        simulation.begin(client, &request)?;
    }
    simulation.wait_for_all()?;
    let counted = sharing.requests - sharing.requests / 2;
    #[expect(clippy::cast_precision_loss, reason = "counts of a run")]
    let ratio = (hits(&simulation) - hits_before) as f64 / counted as f64;
    simulation.finish();
    Ok(ratio)
}

fn hits(simulation: &CacheSimulation<NullStore<NoFrames>>) -> u64 {
    (0..2).map(|volume| simulation.totals(volume).get(Counter::ReadHit)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_from_the_volume_that_is_scanned_to_the_hot_one() {
        let sharing = SharingExperiment {
            frames: 4_000,
            hot_blocks: 12_000,
            hot_tenths: 5,
            policy: PolicyKind::Lru,
            requests: 300_000,
        };
        let hit_ratio_with = |division| hit_ratio(&sharing, division).unwrap();
        let steps = larder_testing::budget(4, 8);
        let fixed = |step| hit_ratio_with(MemoryDivision::Fixed(step * sharing.frames / steps));
        let best = (0..=steps).map(fixed).fold(0.0, f64::max);
        let auto = hit_ratio_with(MemoryDivision::Mode(ShareMode::Auto));
        let coldest = hit_ratio_with(MemoryDivision::Mode(ShareMode::Coldest));
        assert!(auto > best - 0.01, "{auto} of {best}");
        assert!(auto > coldest + 0.03, "{auto}, by the coldest page {coldest}");
    }
}
