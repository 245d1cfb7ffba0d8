//! I/O counters of each disk since boot: /proc/diskstats (Documentation/admin-guide/iostats.rst).

use crate::proc;
use std::path::Path;

/// Bytes of a sector in /proc/diskstats, whatever the disk's sector size.
pub(crate) const SECTOR_BYTES: u64 = 512;

/// I/O counters of a disk; they only grow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskCounters {
    /// Name in sysfs, such as `sda`.
    pub name: String,
    /// Major and minor device number.
    pub device: (u32, u32),
    /// Completed reads.
    pub reads: u64,
    /// Reads that the kernel merged with others before it issued them.
    pub read_merges: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Sum of the read latencies, milliseconds.
    pub read_ms: u64,
    /// Completed writes.
    pub writes: u64,
    /// Writes that the kernel merged with others before it issued them.
    pub write_merges: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Sum of the write latencies, milliseconds.
    pub write_ms: u64,
    /// Time with at least one request in flight, milliseconds.
    pub busy_ms: u64,
    /// Sum over all requests of the time in flight, milliseconds.
    pub queue_ms: u64,
}

/// Returns the counters of all whole disks that have completed a request.
#[must_use]
pub fn all() -> Vec<DiskCounters> {
    let whole = |disk: &DiskCounters| Path::new("/sys/block").join(&disk.name).exists();
    let was_active = |disk: &DiskCounters| disk.reads + disk.writes > 0;
    with_partitions().into_iter().filter(|disk| was_active(disk) && whole(disk)).collect()
}

/// Returns the counters of all disks and partitions.
pub(crate) fn with_partitions() -> Vec<DiskCounters> {
    let text = proc::read("/proc/diskstats").unwrap_or_default();
    text.lines().filter_map(parse_line).collect()
}

/// Parses one line.
pub(crate) fn parse_line(line: &str) -> Option<DiskCounters> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let count = |column: usize| words.get(column)?.parse::<u64>().ok();
    let number = |column: usize| words.get(column)?.parse::<u32>().ok();
    Some(DiskCounters {
        name: (*words.get(2)?).to_owned(),
        device: (number(0)?, number(1)?),
        reads: count(3)?,
        read_merges: count(4)?,
        read_bytes: count(5)?.saturating_mul(SECTOR_BYTES),
        read_ms: count(6)?,
        writes: count(7)?,
        write_merges: count(8)?,
        write_bytes: count(9)?.saturating_mul(SECTOR_BYTES),
        write_ms: count(10)?,
        busy_ms: count(12)?,
        queue_ms: count(13)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_taken_from_their_places() {
        let line = " 254       0 vda 100 2 16 4 5 6 32 8 1 9 10 0 0 0 0 0 0";
        let known = DiskCounters {
            name: "vda".to_owned(),
            device: (254, 0),
            reads: 100,
            read_merges: 2,
            read_bytes: 8192,
            read_ms: 4,
            writes: 5,
            write_merges: 6,
            write_bytes: 16_384,
            write_ms: 8,
            busy_ms: 9,
            queue_ms: 10,
        };
        assert_eq!(parse_line(line), Some(known));
        assert_eq!(parse_line(" 254 0 vda 1 2"), None);
    }
}
