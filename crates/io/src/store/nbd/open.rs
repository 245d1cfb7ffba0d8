//! First connection to an export, and the checks that a cache can keep its guarantees on it.

use super::link::{Connected, Link};
use super::map::{HoleQueries, NbdMap};
use super::{ANSWER_TIME_MAX, NbdStore};
use crate::claim::Claim;
use crate::log_limit::LogLimit;
use crate::nbd_client::{BlockSizes, Client, ConnectOptions, ExportDetails, NbdUri};
use crate::nbd_wire as wire;
use crate::store::{AllocationMap, OpenError, OpenedStore, PeerControl, SolidMap};
use larder_core::clock::Clock;
use larder_core::store::Geometry;
use slab::Slab;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Maximum length of a read or write that is sent: the longest that a cache submits.
const PIECE_BYTES_MAX: u32 = 1 << 20;
/// Maximum length of a trim or zeroing that is sent, so that none occupies the server for minutes.
pub(super) const DISCARD_BYTES_MAX: u32 = 1 << 30;
/// Minimum bytes of buffers: room for two of the largest pieces in each of three places.
const MEMORY_BYTES_MIN: u64 = 6 * PIECE_BYTES_MAX as u64;
/// Maximum bytes of buffers: more do not speed up any disk.
const MEMORY_BYTES_MAX: u64 = 48 << 20;

/// Options for opening an export.
#[derive(Clone, Copy, Debug)]
pub struct NbdOptions {
    /// Never write.
    pub read_only: bool,
    /// Nothing is guaranteed, so the server need not support flushes.
    pub ignore_flushes: bool,
    /// Bytes for all data in flight and all copies that are kept until a flush.
    pub memory_bytes: u64,
    /// Time that operations wait for a connection before they fail.
    pub away_after: Duration,
}

impl NbdOptions {
    /// Returns the bytes of buffers for a cache of `cache_bytes`: an eighth of it, 6 to 48 MiB.
    #[must_use]
    pub fn memory_beside(cache_bytes: u64) -> u64 {
        (cache_bytes / 8).clamp(MEMORY_BYTES_MIN, MEMORY_BYTES_MAX)
    }
}

impl Default for NbdOptions {
    /// Writable, with flushes, in 12 MiB; operations wait for 20 seconds.
    fn default() -> Self {
        NbdOptions {
            read_only: false,
            ignore_flushes: false,
            memory_bytes: 12 << 20,
            away_after: Duration::from_secs(20),
        }
    }
}

/// Checks that an export with these features is the same after a reconnection, and that it takes
/// requests of up to `piece_bytes`; returns the current features of the server.
pub(super) fn check_again(
    features: u16,
    details: &ExportDetails,
    geometry: Geometry,
    piece_bytes: u32,
) -> Result<u16, String> {
    let Geometry { length, granule, read_only } = geometry;
    if details.length != length {
        let length_now = details.length;
        return Err(format!(
            "find what was there: it was {length} bytes long and now is {length_now}"
        ));
    }
    if details.has(wire::FLAG_READ_ONLY) && !read_only {
        return Err("write to it: it is read-only now".to_owned());
    }
    let is_lost = |flag: u16| features & flag != 0 && !details.has(flag);
    if is_lost(wire::FLAG_SEND_FLUSH) {
        return Err("flush it: it does not offer that any more".to_owned());
    }
    if is_lost(wire::FLAG_SEND_FUA) && !details.has(wire::FLAG_SEND_FLUSH) {
        return Err("make writes stable: it does not offer that any more".to_owned());
    }
    if granule_of(details.block_sizes).is_none_or(|now| now > granule) {
        return Err("write small blocks: it does not take them any more".to_owned());
    }
    let max = details.block_sizes.max;
    if max < piece_bytes {
        return Err(format!(
            "send it requests of {piece_bytes} bytes: it takes at most {max} bytes now"
        ));
    }
    Ok(details.flags)
}

/// Returns the smallest granule that the cache may use.
fn granule_of(sizes: BlockSizes) -> Option<u32> {
    [512, 4096].into_iter().find(|&granule| sizes.min <= granule && granule <= sizes.max)
}

/// A store on an export.
#[derive(Debug)]
pub struct Upstream {
    /// The store, with its map.
    pub opened: OpenedStore,
    /// Equal for two addresses of one export, as far as a client can know: the address to which the
    /// name of the host led, and the server's own name of the export.
    pub identity: String,
}

/// Connects to an export.
///
/// # Errors
/// If there is no such export, if another cache of this machine has it, or if the cache could not
/// keep its promises on it.
pub fn open_nbd(
    uri: &NbdUri,
    options: NbdOptions,
    clock: Arc<dyn Clock>,
) -> Result<Upstream, OpenError> {
    let place = uri.to_string();
    let connect = ConnectOptions { timeout: Some(ANSWER_TIME_MAX), ..ConnectOptions::default() };
    let mut client = Client::connect_with(uri, connect)
        .map_err(|error| OpenError::new("open", &place, error))?;
    let details = client.info().clone();
    let unfit = |reason: String| OpenError::new("serve", &place, reason);
    let geometry = check_export(&details, options).map_err(unfit)?;
    let mut notes = Vec::new();
    if !geometry.read_only && !details.has(wire::FLAG_SEND_FLUSH) {
        notes.push(format!("{place} knows no flush: nothing that is written there is promised"));
    }
    let identity = format!("{} {}", client.peer(), details.name);
    let claim = Claim::of_export(&identity, &place, options.read_only)?;
    let shared = Arc::new(HoleQueries::new(geometry.length, geometry.granule));
    shared.set_up(true);
    let map: Arc<dyn AllocationMap> = match details.base_allocation {
        Some(_) => Arc::new(NbdMap(Arc::clone(&shared))),
        None => Arc::new(SolidMap),
    };
    let BlockSizes { max, .. } = details.block_sizes;
    let control = Arc::new(PeerControl::default());
    client.end_with(control.flag());
    let up = Connected::new(Box::new(client), clock.now(), None);
    let store = NbdStore {
        uri: uri.clone(),
        address: place,
        connect,
        geometry,
        features: details.flags,
        piece_bytes: (max - max % geometry.granule).min(PIECE_BYTES_MAX),
        buffer_bytes: usize::try_from(options.memory_bytes / 3).unwrap_or(usize::MAX),
        away_after: u64::try_from(options.away_after.as_nanos()).unwrap_or(u64::MAX),
        clock,
        link: Link::Up(up),
        control,
        losses: LogLimit::default(),
        reconnections: LogLimit::default(),
        discards: 0,
        jobs: Slab::new(),
        ready: VecDeque::new(),
        changes: VecDeque::new(),
        sent: HashMap::new(),
        sent_bytes: 0,
        sent_change_bytes: 0,
        journal: super::Journal::default(),
        repeat: None,
        flushing: false,
        flush_error: None,
        map: shared,
        spare_buffers: Vec::new(),
        done: Vec::new(),
        _claim: claim,
    };
    Ok(Upstream { opened: OpenedStore { store: Box::new(store), map, notes }, identity })
}

/// Returns the geometry of an export as a store, or the reason why it is unusable.
fn check_export(details: &ExportDetails, options: NbdOptions) -> Result<Geometry, String> {
    let length = details.length;
    if length == 0 {
        return Err("it is empty".to_owned());
    }
    let BlockSizes { min, max, .. } = details.block_sizes;
    let Some(granule) = granule_of(details.block_sizes) else {
        return Err(format!(
            "it takes requests of {min} to {max} bytes, and a cache needs some of 512 or 4096"
        ));
    };
    if !length.is_multiple_of(512) {
        return Err(format!("its length, {length} bytes, is not a multiple of 512"));
    }
    if !length.is_multiple_of(u64::from(min)) {
        return Err(format!("its length, {length} bytes, is not a multiple of its block size"));
    }
    if details.has(wire::FLAG_READ_ONLY) && !options.read_only {
        return Err("the server exports it read-only; use --write-mode read-only".to_owned());
    }
    let is_guaranteed = !options.read_only && !options.ignore_flushes;
    if is_guaranteed && !details.has(wire::FLAG_SEND_FLUSH) {
        return Err("the server knows no flush, so nothing could be promised to survive a crash; \
                    use --write-mode read-only, or --flush ignore to do without the promise"
            .to_owned());
    }
    Ok(Geometry { length, granule, read_only: options.read_only })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reconnection_needs_block_sizes_that_fit_the_requests() {
        let checked = |min, max| {
            let details = ExportDetails {
                name: "x".to_owned(),
                description: String::new(),
                length: 1 << 20,
                flags: wire::FLAG_HAS_FLAGS | wire::FLAG_SEND_FLUSH,
                block_sizes: BlockSizes { min, preferred: min, max },
                structured: true,
                base_allocation: None,
            };
            let geometry = Geometry { length: 1 << 20, granule: 512, read_only: false };
            check_again(wire::FLAG_SEND_FLUSH, &details, geometry, 1 << 20)
        };
        for (min, max) in [(1, 1 << 20), (512, 32 << 20)] {
            checked(min, max).expect("it takes all requests");
        }
        for (min, max) in [(4096, 32 << 20), (8192, 32 << 20), (65536, 32 << 20), (1, 256)] {
            let refused = checked(min, max).unwrap_err();
            assert!(refused.starts_with("write small blocks"), "{min} to {max}: {refused}");
        }
        let refused = checked(1, 64 << 10).unwrap_err();
        assert_eq!(refused, "send it requests of 1048576 bytes: it takes at most 65536 bytes now");
    }
}
