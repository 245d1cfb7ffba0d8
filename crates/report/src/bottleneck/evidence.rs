//! Evidence: the questions that [`super::judge`] asks of the counters.

use super::{BUSY_ALONE, HITS, LAZY, ONE_WRITER, QUEUE, REREAD, WAITING};
use crate::escape;
use larder_schema::bottleneck::ExpectedDisk;
use larder_schema::format;
use larder_schema::host_counters::{HostCounters, HostDisk, HostProcess, MetadataCache};
use serde_json::Value;

/// Maximum number of disks, processes and caches of metadata: others of a record are left out.
const LIST_MAX: usize = 1000;
/// Maximum number of devices below a disk.
const BELOW_MAX: usize = 64;
/// Largest value of a counter that is believed.
const VALUE_MAX: f64 = 1e15;

/// Returns the counters without values that none can have: those of a foreign record may be
/// negative or without bounds.
pub(super) fn believable(mut counters: HostCounters) -> HostCounters {
    counters.disks.truncate(LIST_MAX);
    counters.disks.iter_mut().for_each(|disk| disk.below.truncate(BELOW_MAX));
    counters.processes.truncate(LIST_MAX);
    counters.uncounted_disks.truncate(LIST_MAX);
    counters.metadata.truncate(LIST_MAX);
    counters.metadata.retain(|it| (0.0..=1.0).contains(&it.hit_ratio));
    counters.metadata.retain(|it| (0.0..=VALUE_MAX).contains(&it.lookups_per_s));
    let mut value = serde_json::to_value(&counters).unwrap_or_default();
    remove_impossible("", &mut value);
    let mut counters: HostCounters = serde_json::from_value(value).unwrap_or_default();
    let limit = |share: &mut Option<f64>| *share = share.map(|share| share.min(1.0));
    limit(&mut counters.cpu.busy);
    limit(&mut counters.cpu.io_wait);
    limit(&mut counters.memory.io_pressure);
    for disk in &mut counters.disks {
        limit(&mut disk.busy);
        limit(&mut disk.busy_max);
    }
    counters
}

fn remove_impossible(name: &str, value: &mut Value) {
    match value {
        Value::Number(number) => {
            let min = if name == "private_growth_bytes" { -VALUE_MAX } else { 0.0 };
            let is_possible = number.as_f64().is_some_and(|it| (min..=VALUE_MAX).contains(&it));
            // Whole numbers are counts of this program.
            if number.is_f64() && !is_possible {
                *value = Value::Null;
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|it| remove_impossible(name, it)),
        Value::Object(fields) => {
            fields.iter_mut().for_each(|(name, it)| remove_impossible(name, it));
        }
        _ => {}
    }
}

/// Returns true if the counters tell how much the disks were used.
pub(super) fn knows_disks(counters: &HostCounters) -> bool {
    let is_known = |it: &HostDisk| utilization(it).is_some() || it.queue.is_some();
    counters.memory.io_pressure.is_some()
        || !counters.disks.is_empty() && counters.disks.iter().all(is_known)
}

/// Returns the disk with the busiest sample, if it was as busy as a bottleneck in one, and its
/// share.
pub(super) fn peak(counters: &HostCounters) -> Option<(&HostDisk, f64)> {
    let busy = |disk: &HostDisk| disk.busy_max.unwrap_or(0.0);
    let disk = counters.disks.iter().max_by(|a, b| busy(a).total_cmp(&busy(b)))?;
    (counters.samples > 1 && busy(disk) >= BUSY_ALONE).then(|| (disk, busy(disk)))
}

/// Returns the disk whose requests take the most time.
pub(super) fn busiest(disks: &[HostDisk]) -> Option<&HostDisk> {
    let time = |disk: &HostDisk| disk.queue.or_else(|| utilization(disk)).unwrap_or(0.0);
    let active = disks.iter().filter(|disk| time(disk) > 0.0);
    active.max_by(|a, b| time(a).total_cmp(&time(b)))
}

/// Returns the share of the time in which a disk was busy; without a counter of it, the sum of the
/// latencies is an upper bound.
pub(super) fn utilization(disk: &HostDisk) -> Option<f64> {
    disk.busy.or_else(|| Some(disk.disk_time()?.min(1.0)))
}

/// Returns true if programs wait for the requests of a disk.
///
/// The kernel does not count a thread that waits for the completion of asynchronous I/O. So reads
/// in flight count as waited for too, and so do writes unless the cache writes most of them.
pub(super) fn is_waited_for(counters: &HostCounters, disk: &HostDisk) -> bool {
    let is_busy = utilization(disk).is_some_and(|busy| busy >= BUSY_ALONE);
    let Some(waiting) = counters.memory.io_pressure else {
        return is_busy || disk.queue.is_some_and(|queue| queue >= QUEUE);
    };
    let is_long = |time: Option<f64>| time.is_some_and(|time| time >= BUSY_ALONE);
    let reads = is_long(disk.read_time);
    let writes = is_long(disk.write_time) && lazy_share(counters, disk) < LAZY;
    waiting >= WAITING || is_busy && (reads || writes)
}

/// Returns the share of the bytes written to a disk that the cache wrote, or a lower bound of it.
fn lazy_share(counters: &HostCounters, disk: &HostDisk) -> f64 {
    let memory = &counters.memory;
    let of_host = || Some(memory.lazy_pages_per_s? * memory.page_bytes?);
    let others = others(counters, disk, |disk| disk.write_bytes_per_s);
    let lazy = disk.lazy_bytes_per_s.or_else(|| Some((of_host()? - others).max(0.0)));
    let all = disk.write_bytes_per_s.filter(|bytes| *bytes > 0.0);
    lazy.zip(all).map_or(0.0, |(lazy, all)| (lazy / all).min(1.0))
}

/// Returns a sum over the disks that neither contain this disk nor are contained in it. Devices
/// below others are left out, since they serve the same requests.
fn others(counters: &HostCounters, disk: &HostDisk, of: fn(&HostDisk) -> Option<f64>) -> f64 {
    let is_below = |lower: &HostDisk, upper: &HostDisk| upper.below.contains(&lower.disk);
    let is_other = |it: &&HostDisk| {
        let is_top = !counters.disks.iter().any(|upper| is_below(it, upper));
        it.disk != disk.disk && !is_below(it, disk) && !is_below(disk, it) && is_top
    };
    counters.disks.iter().filter(is_other).filter_map(of).sum()
}

/// Returns the expected service time of the disk's mix of reads and writes.
pub(super) fn usual(disk: &HostDisk, expected: &ExpectedDisk) -> f64 {
    let (reads, writes) = (disk.reads_per_s.unwrap_or(0.0), disk.writes_per_s.unwrap_or(0.0));
    if reads + writes > 0.0 {
        (reads * expected.read_s + writes * expected.write_s) / (reads + writes)
    } else {
        expected.read_s.max(expected.write_s)
    }
}

/// Returns the reason why the cache is too small, if it is.
pub(super) fn rereads(counters: &HostCounters, disk: &HostDisk) -> Option<String> {
    let reads_most = disk.read_time.zip(disk.write_time).is_none_or(|(read, write)| read >= write);
    if !reads_most {
        return None;
    }
    // The kernel counts repeated reads of all disks together; others may explain them.
    let read = disk.read_bytes_per_s.filter(|bytes| *bytes > 0.0);
    if let Some((again, read)) = counters.memory.reread_bytes_per_s.zip(read) {
        let of_others = others(counters, disk, |disk| disk.read_bytes_per_s);
        let share = ((again - of_others) / read).clamp(0.0, 1.0);
        let sentence = || {
            format!(
                "The cache had held at least {} of the bytes that the disk read.",
                format::percent(share)
            )
        };
        return (share >= REREAD).then(sentence);
    }
    let reads: f64 = counters.disks.iter().filter_map(|disk| disk.reads_per_s).sum();
    let (hits, misses) = counters.memory.hit_ratio.zip(counters.memory.misses_per_s)?;
    let is_small = hits < HITS && reads > 0.0 && misses / reads >= REREAD;
    is_small.then(|| {
        format!(
            "{} of the reads hit the cache; its misses are {} of the reads of the disks. Data read \
             for the first time also misses.",
            format::percent(hits),
            format::percent((misses / reads).min(1.0))
        )
    })
}

/// Returns the sentence about a cache of metadata whose misses may be many of a disk's reads.
pub(super) fn metadata(counters: &HostCounters, disk: &HostDisk) -> Option<String> {
    let reads = disk.reads_per_s.filter(|reads| *reads > 0.0)?;
    let is_here = |it: &&MetadataCache| it.device.starts_with(&disk.disk);
    let is_small = |it: &&MetadataCache| {
        it.hit_ratio < HITS && it.misses_per_s() >= REREAD * reads && it.cache != "extents"
    };
    let cache = counters.metadata.iter().filter(is_here).find(is_small)?;
    Some(format!(
        "The cache of {} of {} hits {} of its lookups; {} misses/s may be reads of metadata. A \
         lower vm.vfs_cache_pressure keeps more of them.",
        cache.cache,
        escape::text(&cache.device),
        format::percent(cache.hit_ratio),
        format::number(cache.misses_per_s())
    ))
}

/// Returns the process whose writes fill the queue, with its share of all written bytes.
pub(super) fn one_writer<'a>(
    counters: &'a HostCounters,
    disk: &HostDisk,
) -> Option<(&'a HostProcess, f64)> {
    let write_share = disk.write_time? / disk.disk_time().filter(|time| *time > 0.0)?;
    if write_share < ONE_WRITER || disk.queue? < QUEUE {
        return None;
    }
    let written =
        |it: &HostProcess| it.disk_write_bytes_per_s.or(it.write_bytes_per_s).unwrap_or(0.0);
    // Of several disks, the writers of this one.
    let is_here =
        |it: &&HostProcess| it.disks.as_ref().is_none_or(|disks| disks.contains(&disk.disk));
    let here = || counters.processes.iter().filter(is_here);
    let all: f64 = here().map(written).sum();
    let top = here().max_by(|a, b| written(a).total_cmp(&written(b)))?;
    let share = written(top) / all;
    (share >= ONE_WRITER).then_some((top, share))
}
