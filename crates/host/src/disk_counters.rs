//! I/O counters of each disk since boot: /proc/diskstats (Documentation/admin-guide/iostats.rst).

use crate::device::encode;
use crate::proc;
use larder_schema::watch::Disk;
use std::path::Path;

/// Returns the counters of all whole disks that have completed a request; they only grow.
#[must_use]
pub fn all() -> Vec<Disk> {
    let whole = |disk: &Disk| Path::new("/sys/block").join(&disk.name).exists();
    let was_active = |disk: &Disk| disk.reads + disk.writes > 0;
    let disks = with_partitions().into_iter().map(|(_, disk)| disk);
    disks.filter(|disk| was_active(disk) && whole(disk)).collect()
}

/// Returns the counters of all disks and partitions, with their device numbers.
pub(crate) fn with_partitions() -> Vec<(u32, Disk)> {
    let text = proc::read("/proc/diskstats").unwrap_or_default();
    text.lines().filter_map(parse_line).collect()
}

pub(crate) fn parse_line(line: &str) -> Option<(u32, Disk)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let count = |column: usize| words.get(column)?.parse::<u64>().ok();
    let number = |column: usize| words.get(column)?.parse::<u32>().ok();
    let disk = Disk {
        name: (*words.get(2)?).to_owned(),
        reads: count(3)?,
        read_merges: count(4)?,
        read_sectors: count(5)?,
        read_ms: count(6)?,
        writes: count(7)?,
        write_merges: count(8)?,
        write_sectors: count(9)?,
        write_ms: count(10)?,
        busy_ms: count(12)?,
        queue_ms: count(13)?,
        splits: 0,
    };
    Some((encode(number(0)?, number(1)?), disk))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_taken_from_their_places() {
        let line = " 254       0 vda 100 2 16 4 5 6 32 8 1 9 10 0 0 0 0 0 0";
        let known = Disk {
            name: "vda".to_owned(),
            reads: 100,
            read_merges: 2,
            read_sectors: 16,
            read_ms: 4,
            writes: 5,
            write_merges: 6,
            write_sectors: 32,
            write_ms: 8,
            busy_ms: 9,
            queue_ms: 10,
            splits: 0,
        };
        assert_eq!(parse_line(line), Some((encode(254, 0), known)));
        assert_eq!(parse_line(" 254 0 vda 1 2"), None);
    }
}
