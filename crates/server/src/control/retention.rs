//! Control of cache contents: dropping clean pages, freezing volumes, pinning ranges.

use super::jobs::check_ranges;
use super::request::ApiError;
use crate::service::{ServedVolume, Service};
use larder_core::counters::Gauge;
use larder_core::units::BLOCK_BYTES_U64;
use larder_io::engine::{ArenaCache, ArenaVolume};
use larder_schema::control::{
    ByteRange, Change, ChangeResponse, DropResponse, Pinned, RangeRequest, ResponseHead,
    VolumeDropped, VolumeRequest,
};
use std::ops::Range;

pub(super) fn selected_volumes(
    service: &Service,
    request: &VolumeRequest,
) -> Result<Vec<ServedVolume>, ApiError> {
    let Some(name) = &request.volume else { return Ok(service.volumes()) };
    Ok(vec![service.volume(name).map_err(ApiError::not_found)?])
}

/// Evicts clean pages.
pub(super) fn drop_clean(service: &Service, volumes: &[ServedVolume]) -> DropResponse {
    let cache = service.engine.cache();
    let one = |ServedVolume { volume, .. }: &ServedVolume| VolumeDropped {
        volume: volume.name().to_owned(),
        dropped_bytes: cache.drop_clean(volume, service.engine.now()) * BLOCK_BYTES_U64,
        resident_bytes: cache.gauge(volume, Gauge::Resident),
    };
    DropResponse { head: ResponseHead::default(), dropped: volumes.iter().map(one).collect() }
}

/// Freezes or unfreezes volumes.
pub(super) fn freeze(
    service: &Service,
    request: &VolumeRequest,
    frozen: bool,
) -> Result<ChangeResponse, ApiError> {
    let word = |frozen: bool| if frozen { "yes" } else { "no" }.to_owned();
    let mut changed = Vec::new();
    for ServedVolume { volume, .. } in selected_volumes(service, request)? {
        if volume.is_frozen() != frozen {
            service.engine.cache().freeze(&volume, frozen);
            let (volume, name) = (volume.name().to_owned(), "frozen".to_owned());
            let (from, to) = (word(!frozen), word(frozen));
            changed.push(Change { volume, name, from, to, pending: false });
        }
    }
    Ok(ChangeResponse { changed, ..ChangeResponse::default() })
}

/// Reason for refusing a range request on a mounted directory.
const DIRECTORY_ALTERNATIVE: &str =
    "whose files are pinned by its rules (larder mount --rule 'GLOB=pin')";

/// Pins ranges of a volume: all of them, or none.
pub(super) fn pin(service: &Service, request: &RangeRequest) -> Result<Pinned, ApiError> {
    let served = find_volume(service, request, "pin", DIRECTORY_ALTERNATIVE)?;
    let (cache, volume) = (service.engine.cache(), &served.volume);
    let _change_lock = service.lock_changes();
    let before = cache.pinned(volume);
    for (index, range) in request.ranges.iter().enumerate() {
        let Err(error) = cache.pin_range(volume, bytes(range), service.engine.now()) else {
            continue;
        };
        for range in &request.ranges[..index] {
            unpin_one(service, volume, bytes(range))?;
        }
        for range in before {
            let restored = cache.pin_range(volume, range, service.engine.now());
            restored.map_err(|error| ApiError::failed(error.to_string()))?;
        }
        return Err(ApiError::invalid(error.to_string()));
    }
    Ok(pinned(cache, volume))
}

/// Unpins ranges of a volume; without ranges, all of them.
pub(super) fn unpin(service: &Service, request: &RangeRequest) -> Result<Pinned, ApiError> {
    let served = find_volume(service, request, "unpin", DIRECTORY_ALTERNATIVE)?;
    let (cache, volume) = (service.engine.cache(), &served.volume);
    let _change_lock = service.lock_changes();
    let ranges = match &request.ranges[..] {
        [] => cache.pinned(volume),
        ranges => ranges.iter().map(bytes).collect(),
    };
    for range in ranges {
        unpin_one(service, volume, range)?;
    }
    Ok(pinned(cache, volume))
}

fn unpin_one(service: &Service, volume: &ArenaVolume, range: Range<u64>) -> Result<(), ApiError> {
    let unpinned = service.engine.cache().unpin_range(volume, range, service.engine.now());
    unpinned.map_err(|error| ApiError::invalid(error.to_string()))
}

/// Returns the volume of a request after checking that its ranges lie within it. Refuses a
/// directory: the error names the `operation`, and the alternative for its files.
pub(super) fn find_volume(
    service: &Service,
    request: &RangeRequest,
    operation: &str,
    alternative: &str,
) -> Result<ServedVolume, ApiError> {
    let name = &request.volume;
    let served = service.volume(name).map_err(ApiError::not_found)?;
    service.check_no_directory(operation, name, alternative).map_err(ApiError::refused)?;
    check_ranges(&request.ranges, served.volume.geometry().length)?;
    Ok(served)
}

fn bytes(range: &ByteRange) -> Range<u64> {
    range.offset..range.offset + range.length
}

/// Returns the pinned ranges of a volume.
pub(super) fn pinned(cache: &ArenaCache, volume: &ArenaVolume) -> Pinned {
    Pinned {
        head: ResponseHead::default(),
        volume: volume.name().to_owned(),
        pinned_bytes: cache.gauge(volume, Gauge::Pinned),
        ranges: cache.pinned(volume).into_iter().map(ByteRange::from).collect(),
    }
}
