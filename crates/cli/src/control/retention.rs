//! What stays in the cache: dropping clean pages, freezing volumes, pinning ranges.

use super::jobs::check_ranges;
use super::request::Refused;
use crate::commands::serve::service::{Served, Service};
use larder_core::counters::Gauge;
use larder_core::units::BLOCK_BYTES_U64;
use larder_io::engine::{ArenaCache, ArenaVolume};
use larder_report::control::{
    ByteRange, Change, Changed, Dropped, Head, Pinned, RangeRequest, VolumeDropped, VolumeRequest,
};
use std::ops::Range;

/// The volume that is asked for, or all.
pub(super) fn asked_for(
    service: &Service,
    request: &VolumeRequest,
) -> Result<Vec<Served>, Refused> {
    let Some(name) = &request.volume else { return Ok(service.volumes()) };
    Ok(vec![service.volume(name).ok_or_else(|| Refused::no_volume(name))?])
}

/// Forgets what is clean.
pub(super) fn drop_clean(service: &Service, volumes: &[Served]) -> Dropped {
    let cache = service.engine().cache();
    let one = |Served { volume, .. }: &Served| VolumeDropped {
        volume: volume.name().to_owned(),
        dropped_bytes: cache.drop_clean(volume, service.engine().now()) * BLOCK_BYTES_U64,
        resident_bytes: cache.gauge(volume, Gauge::Resident),
    };
    Dropped { head: Head::default(), dropped: volumes.iter().map(one).collect() }
}

/// Freezes volumes, or ends that.
pub(super) fn freeze(service: &Service, volumes: &[Served], frozen: bool) -> Changed {
    let word = |frozen: bool| if frozen { "yes" } else { "no" }.to_owned();
    let one = |Served { volume, .. }: &Served| {
        if volume.is_frozen() == frozen {
            return None;
        }
        service.engine().cache().freeze(volume, frozen);
        let (volume, name) = (volume.name().to_owned(), "frozen".to_owned());
        Some(Change { volume, name, from: word(!frozen), to: word(frozen), pending: false })
    };
    Changed { changed: volumes.iter().filter_map(one).collect(), ..Changed::default() }
}

/// What is pinned of a mounted directory.
const OF_DIRECTORIES: &str = "whose files are pinned by its rules (larder mount --rule 'GLOB=pin')";

/// Pins ranges of a volume: all of them, or none.
pub(super) fn pin(service: &Service, request: &RangeRequest) -> Result<Pinned, Refused> {
    let served = find(service, request, "pin", OF_DIRECTORIES)?;
    let (cache, volume) = (service.engine().cache(), &served.volume);
    let _one_at_a_time = service.changing();
    let before = cache.pinned(volume);
    for (place, range) in request.ranges.iter().enumerate() {
        let Err(error) = cache.pin_range(volume, bytes(range), service.engine().now()) else {
            continue;
        };
        for range in &request.ranges[..place] {
            unpin_one(service, volume, bytes(range))?;
        }
        for range in before {
            let again = cache.pin_range(volume, range, service.engine().now());
            again.map_err(|error| Refused::failed(error.to_string()))?;
        }
        return Err(Refused::wrong(error.to_string()));
    }
    Ok(pinned(cache, volume))
}

/// Unpins ranges of a volume; without ranges, all of them.
pub(super) fn unpin(service: &Service, request: &RangeRequest) -> Result<Pinned, Refused> {
    let served = find(service, request, "unpin", OF_DIRECTORIES)?;
    let (cache, volume) = (service.engine().cache(), &served.volume);
    let _one_at_a_time = service.changing();
    let ranges = match &request.ranges[..] {
        [] => cache.pinned(volume),
        ranges => ranges.iter().map(bytes).collect(),
    };
    for range in ranges {
        unpin_one(service, volume, range)?;
    }
    Ok(pinned(cache, volume))
}

fn unpin_one(service: &Service, volume: &ArenaVolume, range: Range<u64>) -> Result<(), Refused> {
    let unpinned = service.engine().cache().unpin_range(volume, range, service.engine().now());
    unpinned.map_err(|error| Refused::wrong(error.to_string()))
}

/// The volume of a request whose ranges lie in it, and which is no directory: `what` is to be done,
/// and what there is `instead` for the files of one.
pub(super) fn find(
    service: &Service,
    request: &RangeRequest,
    what: &str,
    instead: &str,
) -> Result<Served, Refused> {
    let served = service.volume(&request.volume);
    let served = served.ok_or_else(|| Refused::no_volume(&request.volume))?;
    let is_ours = service.check_no_directory(what, &request.volume, instead);
    is_ours.map_err(|error| Refused::wrong(error.to_string()))?;
    check_ranges(&request.ranges, served.volume.geometry().length)?;
    Ok(served)
}

fn bytes(range: &ByteRange) -> Range<u64> {
    range.offset..range.offset + range.length
}

/// What is pinned of a volume.
pub(super) fn pinned(cache: &ArenaCache, volume: &ArenaVolume) -> Pinned {
    let range =
        |bytes: Range<u64>| ByteRange { offset: bytes.start, length: bytes.end - bytes.start };
    Pinned {
        head: Head::default(),
        volume: volume.name().to_owned(),
        pinned_bytes: cache.gauge(volume, Gauge::Pinned),
        ranges: cache.pinned(volume).into_iter().map(range).collect(),
    }
}
