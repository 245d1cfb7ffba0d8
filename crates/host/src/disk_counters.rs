//! I/O counters of each disk since boot: /proc/diskstats (Documentation/admin-guide/iostats.rst).
//!
//! The kernel counts no requests of a disk whose `queue/iostats` is 0. Its counters keep their
//! values, so its activity is unknown and not 0: [`uncounted`] names these disks.

use crate::device::encode;
use crate::proc;
use larder_schema::watch::Disk;
use std::collections::BTreeSet;
use std::path::Path;

const BLOCK: &str = "/sys/block";

/// Returns the counters of all whole disks that have completed a request; they only grow.
#[must_use]
pub fn all() -> Vec<Disk> {
    let whole = |disk: &Disk| Path::new(BLOCK).join(&disk.name).exists();
    let was_active = |disk: &Disk| disk.reads + disk.writes > 0;
    let disks = with_partitions().into_iter().map(|(_, disk)| disk);
    disks.filter(|disk| was_active(disk) && whole(disk)).collect()
}

/// Returns the counters of all disks and partitions, with their device numbers.
pub(crate) fn with_partitions() -> Vec<(u32, Disk)> {
    let text = proc::read("/proc/diskstats").unwrap_or_default();
    text.lines().filter_map(parse_line).collect()
}

/// Returns the names of the whole disks that have a size and whose `queue/iostats` is 0.
#[must_use]
pub fn switched_off() -> BTreeSet<String> {
    switched_off_in(Path::new(BLOCK))
}

fn switched_off_in(block: &Path) -> BTreeSet<String> {
    let value = |disk: &str, file: &str| proc::read(block.join(disk).join(file));
    let is_off = |disk: &String| value(disk, "queue/iostats").as_deref() == Some("0");
    let has_size = |disk: &String| value(disk, "size").is_some_and(|sectors| sectors != "0");
    proc::names(block).filter(|disk| is_off(disk) && has_size(disk)).collect()
}

/// Returns the disks whose requests the kernel did not count in an interval. `before` and `now` are
/// [`switched_off`] at its start and end; a disk in one of them was counted in part at most.
/// `active` are the disks and partitions whose counters grew.
///
/// Some drivers without request queues, such as zram, count requests whatever the setting: their
/// disks are omitted if they are active.
#[must_use]
pub fn uncounted(
    before: &BTreeSet<String>,
    now: &BTreeSet<String>,
    active: &[Disk],
) -> BTreeSet<String> {
    uncounted_in(Path::new(BLOCK), before, now, active)
}

fn uncounted_in(
    block: &Path,
    before: &BTreeSet<String>,
    now: &BTreeSet<String>,
    active: &[Disk],
) -> BTreeSet<String> {
    let exists = |disk: &&String| block.join(disk).exists();
    let counts_anyway = |disk: &String| {
        !block.join(disk).join("mq").exists() && active.iter().any(|it| it.name == *disk)
    };
    before.union(now).filter(|it| exists(it) && !counts_anyway(it)).cloned().collect()
}

/// Returns true if a device is one of these disks or a partition of one.
pub(crate) fn is_among(device: &str, disks: &BTreeSet<String>) -> bool {
    let is_partition = |disk: &String| Path::new(BLOCK).join(disk).join(device).exists();
    disks.contains(device) || disks.iter().any(is_partition)
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
    use std::fs;

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

    /// Creates the directory of a disk in a recorded tree of sysfs.
    fn record(block: &Path, name: &str, files: &[(&str, &str)], is_request_based: bool) {
        let disk = block.join(name);
        fs::create_dir_all(disk.join(if is_request_based { "queue/../mq/0" } else { "queue" }))
            .unwrap();
        for (file, text) in files {
            fs::write(disk.join(file), format!("{text}\n")).unwrap();
        }
    }

    fn names(disks: &[&str]) -> BTreeSet<String> {
        disks.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn disks_that_are_not_counted_are_told_from_idle_ones() {
        let tree = tempfile::tempdir().unwrap();
        let block = tree.path();
        let (off, on) = (("queue/iostats", "0"), ("queue/iostats", "1"));
        record(block, "sda", &[off, ("size", "2048")], true);
        record(block, "sdb", &[on, ("size", "2048")], true);
        record(block, "loop0", &[off, ("size", "0")], true);
        record(block, "old", &[("size", "2048")], true);
        record(block, "zram0", &[off, ("size", "2048")], false);
        record(block, "dm-0", &[off, ("size", "2048")], false);
        let now = switched_off_in(block);
        assert_eq!(now, names(&["dm-0", "sda", "zram0"]));
        let active = |name: &str| Disk { name: name.to_owned(), reads: 1, ..Disk::default() };
        let active = [active("zram0"), active("sda"), active("sdb")];
        let before = names(&["sdb", "removed"]);
        let found = uncounted_in(block, &before, &now, &active);
        assert_eq!(found, names(&["dm-0", "sda", "sdb"]), "sdb was off before, zram counts anyway");
        assert_eq!(switched_off_in(&block.join("missing")), names(&[]));
    }
}
