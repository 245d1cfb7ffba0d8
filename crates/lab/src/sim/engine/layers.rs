//! The page cache of the host above or below the simulated cache.

use super::{CacheSimulationOptions, LENGTH_STEP, SECTOR_BYTES, VolumeLengths};
use crate::cache_simulation::{CacheSimulation, CachedStore};
use larder_core::counters::Totals;
use larder_core::curve::choice::PolicyChoice;
use larder_core::frames::NoFrames;
use larder_core::policy::PolicyKind;
use larder_core::store::{Geometry, Store};
use larder_core::tunables::Tunables;
use larder_core::volume::VolumeOptions;
use std::ops::Range;

/// The place of a page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageCachePlace {
    /// Between the clients and the simulated cache: clients use a file system on its volume.
    Above,
    /// Between the simulated cache and the store: the server uses plain files as its store.
    Below,
}

/// The page cache of Linux: policy `linux`, preset `linux`, pages of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageCache {
    /// Its place.
    pub place: PageCachePlace,
    /// Memory for blocks, in frames of 4 KiB; at least [`PageCache::FRAMES_MIN`].
    pub frames: u32,
}

impl PageCache {
    /// Minimum memory in frames.
    pub const FRAMES_MIN: u32 = CachedStore::FRAMES_MIN;
}

/// The result of the page cache.
#[derive(Debug)]
pub struct PageCacheResult {
    /// Its counters.
    pub totals: Totals,
    /// Blocks that both caches have at the end.
    pub double_blocks: u64,
    /// Blocks of the simulated cache at the end.
    pub blocks: u64,
}

/// The caches of a simulation.
pub(super) struct Layers {
    /// The one that the clients use.
    pub(super) front: CacheSimulation<Box<dyn Store<NoFrames>>>,
    /// The one behind it, as the store of each volume.
    behind: Vec<CachedStore>,
    place: Option<PageCachePlace>,
}

impl Layers {
    /// Creates the caches; `store` returns the store of a volume.
    pub(super) fn new(
        lengths: &VolumeLengths,
        options: &CacheSimulationOptions,
        store: &dyn Fn(usize, Geometry) -> Box<dyn Store<NoFrames>>,
    ) -> Self {
        let CacheSimulationOptions { frames, shards, clients, page_cache, .. } = *options;
        let geometries = lengths.lengths.iter().map(|&length| {
            // A volume that is only flushed has a length, too.
            let length = length.max(LENGTH_STEP);
            let granule = u32::try_from(SECTOR_BYTES).expect("a sector");
            Geometry { length, granule, read_only: false }
        });
        let simulated = |(number, geometry)| simulated_options(options, number, geometry);
        let numbered = || geometries.clone().enumerate();
        let of_linux = || numbered().map(linux_options);
        let stores = || numbered().map(|(number, geometry)| store(number, geometry));
        let Some(PageCache { place, frames: linux_frames }) = page_cache else {
            let volumes = numbered().map(simulated).zip(stores());
            let front = CacheSimulation::new(frames, shards, volumes, clients);
            return Layers { front, behind: Vec::new(), place: None };
        };
        let boxed = |stores: &[CachedStore]| {
            let boxed = |store| Box::new(store) as Box<dyn Store<NoFrames>>;
            stores.iter().cloned().map(boxed).collect::<Vec<_>>()
        };
        let (front, behind) = match place {
            PageCachePlace::Above => {
                let volumes = numbered().map(simulated).zip(stores());
                let behind = CachedStore::all(volumes, (frames, shards), false);
                let volumes = of_linux().zip(boxed(&behind));
                (CacheSimulation::new(linux_frames, 1, volumes, clients), behind)
            }
            PageCachePlace::Below => {
                let volumes = of_linux().zip(stores());
                let behind = CachedStore::all(volumes, (linux_frames, 1), false);
                let volumes = numbered().map(simulated).zip(boxed(&behind));
                (CacheSimulation::new(frames, shards, volumes, clients), behind)
            }
        };
        Layers { front, behind, place: Some(place) }
    }

    /// Returns the counters of the simulated cache, and the result of the page cache.
    pub(super) fn results(&self) -> (Totals, Option<PageCacheResult>) {
        let of_front = self.front_totals();
        let Some(place) = self.place else { return (of_front, None) };
        let mut of_behind = Totals::default();
        let (mut double_blocks, mut blocks_of_front, mut blocks_of_behind) = (0, 0, 0);
        for (volume, store) in self.behind.iter().enumerate() {
            let of_front = self.front.residents(volume);
            let of_store = store.residents();
            of_behind.add(&store.totals());
            blocks_of_front += blocks(&of_front);
            blocks_of_behind += blocks(&of_store);
            double_blocks += common(&of_front, &of_store);
        }
        let (simulated, totals, blocks) = match place {
            PageCachePlace::Above => (of_behind, of_front, blocks_of_behind),
            PageCachePlace::Below => (of_front, of_behind, blocks_of_front),
        };
        (simulated, Some(PageCacheResult { totals, double_blocks, blocks }))
    }

    /// Returns the counters of the cache that the clients use.
    pub(super) fn front_totals(&self) -> Totals {
        let mut totals = Totals::default();
        (0..self.front.volume_count()).for_each(|volume| totals.add(&self.front.totals(volume)));
        totals
    }

    /// Returns the number of blocks that the store does not have yet.
    pub(super) fn unclean_blocks(&self) -> u64 {
        let of_front = (0..self.front.volume_count()).map(|it| self.front.unclean_blocks(it));
        of_front.chain(self.behind.iter().map(CachedStore::unclean_blocks)).sum()
    }
}

fn simulated_options(
    options: &CacheSimulationOptions,
    number: usize,
    geometry: Geometry,
) -> VolumeOptions {
    let mut volume = VolumeOptions::new(number.to_string(), geometry);
    volume.page_blocks = options.page_blocks;
    volume.policy = options.policy.first();
    volume.policy_auto = options.policy == PolicyChoice::Auto;
    volume.write_mode = options.write_mode;
    volume.hint = options.hint;
    volume.tunables = options.tunables.clone();
    volume
}

fn linux_options((number, geometry): (usize, Geometry)) -> VolumeOptions {
    let mut volume = VolumeOptions::new(number.to_string(), geometry);
    volume.page_blocks = 1;
    volume.policy = PolicyKind::Linux;
    volume.tunables = Tunables::linux();
    volume
}

fn blocks(ranges: &[Range<u64>]) -> u64 {
    ranges.iter().map(|range| range.end - range.start).sum()
}

/// Returns the number of blocks that are in ranges of both lists, which are in order.
fn common(mut left: &[Range<u64>], mut right: &[Range<u64>]) -> u64 {
    let mut common = 0;
    while let ([a, after_a @ ..], [b, after_b @ ..]) = (left, right) {
        common += a.end.min(b.end).saturating_sub(a.start.max(b.start));
        if a.end <= b.end {
            left = after_a;
        } else {
            right = after_b;
        }
    }
    common
}
