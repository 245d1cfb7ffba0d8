//! A log beside random data: on the same array, or on disks of its own.
//!
//! Both ways have the same number of disks. The log has one disk, or a mirror that survives the
//! failures that the array must survive; the rest of the data has an array of the other disks. All
//! requests run in the order of the traffic, and the limit of requests in flight is of both
//! together.

use super::arrays::{ArrayNeeds, LogPlace, NO_CHUNK, run_candidates};
use super::traffic::{DeviceRequest, Traffic};
use crate::model::{ArrayLayout, ArrayLevel};
use larder_core::units::as_f64;
use larder_schema::storage_advice::{ArrayRow, LogAdvice};
use std::num::NonZero;
use std::ops::Range;

/// Share of writes among the requests of a log, and of those in order among its writes.
const LOG_SHARE: f64 = 0.9;
/// Share of requests in order below which another volume is random.
const RANDOM_SHARE: f64 = 0.5;
/// Minimum number of requests of a volume that is judged.
const REQUESTS_MIN: u64 = 100;

/// A volume that is a log.
#[derive(Clone, Debug, PartialEq)]
pub struct LogVolume {
    /// Number of the volume.
    pub number: usize,
    /// Its bytes in the traffic.
    range: Range<u64>,
    write_share: f64,
    /// Share of its writes.
    in_order_share: f64,
}

/// Returns the log of the traffic: of the volumes with at least 90 % writes, of which 90 % are in
/// order, the one with the most requests; `None` without one, or if no other volume is random.
#[must_use]
pub fn find_log(traffic: &Traffic) -> Option<LogVolume> {
    let volumes: Vec<_> =
        traffic.volumes().into_iter().filter(|it| it.requests >= REQUESTS_MIN).collect();
    let is_log = |write_share: f64, in_order_share: f64| {
        write_share >= LOG_SHARE && in_order_share >= LOG_SHARE
    };
    let log = |number: usize| {
        let volume = &volumes[number];
        let write_share = as_f64(volume.writes) / as_f64(volume.requests);
        let in_order_share = as_f64(volume.writes_in_order) / as_f64(volume.writes.max(1));
        is_log(write_share, in_order_share).then(|| LogVolume {
            number: volume.number,
            range: volume.range.clone(),
            write_share,
            in_order_share,
        })
    };
    let found =
        (0..volumes.len()).filter_map(|number| Some((volumes[number].requests, log(number)?)));
    let (_, log) = found.max_by_key(|(requests, _)| *requests)?;
    let is_random =
        |requests: u64, in_order: u64| as_f64(in_order) < RANDOM_SHARE * as_f64(requests);
    let mut others = volumes.iter().filter(|it| it.number != log.number);
    others.any(|it| is_random(it.requests, it.in_order)).then_some(log)
}

/// Compares both places of a log. `together` are the candidates for all of the traffic, the fastest
/// first; `None` if none of them suffices. `volume` is the name of the log.
#[must_use]
pub fn advise_log(
    (traffic, requests): (&Traffic, &[DeviceRequest]),
    log: &LogVolume,
    volume: String,
    needs: &ArrayNeeds,
    together: &[ArrayRow],
    threads: NonZero<usize>,
) -> Option<LogAdvice> {
    let together = together.iter().find(|row| row.suffices)?.clone();
    let copies = needs.failures + 1;
    let level = if copies == 1 { ArrayLevel::Linear } else { ArrayLevel::Mirror };
    let layout = ArrayLayout::new(level, copies, NO_CHUNK);
    let log_bytes = log.range.end - log.range.start;
    let fits =
        needs.disk.capacity_bytes().is_none_or(|bytes| layout.usable_bytes(bytes) >= log_bytes);
    let rest = ArrayNeeds {
        disks: needs.disks.saturating_sub(copies),
        bytes: needs.bytes.saturating_sub(log_bytes),
        ..*needs
    };
    let apart = if fits && rest.disks > 0 {
        let place = LogPlace { layout, range: log.range.clone() };
        let bytes = traffic.bytes() - log_bytes;
        let rows = run_candidates(bytes, requests, &rest, Some(&place), threads);
        rows.into_iter().find(|row| row.suffices)
    } else {
        None
    };
    Some(LogAdvice {
        volume,
        write_share: log.write_share,
        in_order_share: log.in_order_share,
        log_model: needs.model_of(layout).name().into_owned(),
        together,
        apart,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{DeviceModel, DiskSpec};
    use crate::random::Random;
    use larder_core::store::StoreOpKind;

    const WRITE: StoreOpKind = StoreOpKind::Write { fua: false };
    const DATA: u64 = 1 << 30;

    /// Returns random reads of the first volume; each is followed by a write to the second one, in
    /// order for the first `in_order` of each ten.
    fn traffic(in_order: u64) -> Traffic {
        let mut random = Random::from_seed(1);
        let mut requests = Vec::new();
        for at in 0..2_000 {
            let offset = random.below(DATA >> 12) << 12;
            requests.push(DeviceRequest { at, kind: StoreOpKind::Read, offset, len: 4096 });
            let block = if at % 10 < in_order { at } else { random.below(1 << 12) };
            let offset = DATA + (block << 12);
            requests.push(DeviceRequest { at, kind: WRITE, offset, len: 4096 });
        }
        Traffic::new(requests, &[DATA, 1 << 24])
    }

    fn needs(disks: u32, failures: u32) -> ArrayNeeds {
        let disk = DeviceModel::Disk(DiskSpec::scsi_1999());
        ArrayNeeds { disk, disks, failures, bytes: 0, price: None, depth: 8 }
    }

    fn advised(traffic: &Traffic, needs: &ArrayNeeds) -> Option<LogAdvice> {
        let threads = NonZero::new(2).expect("two");
        let requests = traffic.requests();
        let log = find_log(traffic)?;
        let rows = run_candidates(traffic.bytes(), requests, needs, None, threads);
        advise_log((traffic, requests), &log, "log".to_owned(), needs, &rows, threads)
    }

    #[test]
    fn a_log_is_written_in_order_beside_random_data() {
        let log = find_log(&traffic(10)).expect("a log");
        assert_eq!((log.number, log.range), (1, DATA..DATA + (1 << 24)));
        assert!(log.in_order_share > 0.99 && log.write_share > 0.99);
        // Half of the writes are at random.
        assert_eq!(find_log(&traffic(5)), None);
        // One volume alone has no place to be apart from.
        let both = Traffic::new(traffic(10).requests().to_vec(), &[DATA + (1 << 24)]);
        assert_eq!(find_log(&both), None);
        let few = Traffic::new(traffic(10).requests()[..150].to_vec(), &[DATA, 1 << 24]);
        assert_eq!(find_log(&few), None);
        assert_eq!(find_log(&Traffic::new(Vec::new(), &[])), None);
    }

    #[test]
    fn both_places_have_the_same_number_of_disks_and_survive_the_failures() {
        let advice = advised(&traffic(10), &needs(5, 1)).expect("a log");
        let apart = advice.apart.as_ref().expect("three disks for the rest");
        assert_eq!((&advice.log_model[..], apart.failures_survived), ("raid1:2xscsi-1999", 1));
        assert!(apart.disks <= 3 && apart.usable_bytes >= Some(DATA));
        let alone = advised(&traffic(10), &needs(2, 0)).expect("a log");
        assert_eq!(alone.log_model, "scsi-1999");
        assert_eq!(alone.apart.as_ref().map(|row| row.level), Some("one disk"));
        // Each request of the pair moves the heads of one disk; apart the log stays in place.
        let one = alone.together.requests_per_s;
        assert!(alone.apart.is_some_and(|row| row.requests_per_s.is_finite() && one > 0.0));
        let few = advised(&traffic(10), &needs(2, 1)).expect("a log");
        assert_eq!((few.apart, few.together.level), (None, "raid1"));
    }
}
