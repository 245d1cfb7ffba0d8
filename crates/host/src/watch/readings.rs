//! Counters of disks and memory: two readings of procfs and their difference.

use super::memory_group::{Group, GroupMemory};
use crate::{disk_counters, proc, tracefs};
use larder_schema::as_f64;
use larder_schema::watch::{Disk, Memory};
use std::collections::BTreeSet;

#[derive(Clone, Debug, Default)]
pub(crate) struct CounterReadings {
    time_ns: u64,
    pub(super) disks: Vec<(u32, Disk)>,
    /// Disks whose counters are switched off.
    switched_off: BTreeSet<String>,
    vmstat: String,
    /// Microseconds in which at least one task was stalled.
    memory_stall_us: Option<u64>,
    io_stall_us: Option<u64>,
    group: Option<GroupMemory>,
}

impl CounterReadings {
    /// Reads the counters, including those of a cgroup if one is watched.
    pub(crate) fn now(group: Option<&Group>) -> CounterReadings {
        CounterReadings {
            group: group.and_then(Group::now),
            time_ns: tracefs::now_ns(),
            disks: disk_counters::with_partitions(),
            switched_off: disk_counters::switched_off(),
            vmstat: proc::read("/proc/vmstat").unwrap_or_default(),
            memory_stall_us: proc::read("/proc/pressure/memory")
                .and_then(|text| parse_stall(&text)),
            io_stall_us: proc::read("/proc/pressure/io").and_then(|text| parse_stall(&text)),
        }
    }

    /// Returns the text of /proc/vmstat.
    pub(crate) fn vmstat(&self) -> &str {
        &self.vmstat
    }

    /// Returns the disks that were active since `before`, and the names of those whose requests
    /// the kernel did not count.
    pub(crate) fn disks_since(&self, before: &CounterReadings) -> (Vec<Disk>, Vec<String>) {
        let mut active = self.active_since(before);
        let uncounted = disk_counters::uncounted(&before.switched_off, &self.switched_off, &active);
        active.retain(|disk| !disk_counters::is_among(&disk.name, &uncounted));
        (active, uncounted.into_iter().collect())
    }

    fn active_since(&self, before: &CounterReadings) -> Vec<Disk> {
        let pairs = self.disks.iter().filter_map(|(dev, now)| {
            let earlier = before.disks.iter().find(|(known, _)| known == dev);
            let since = earlier.map_or_else(|| now.clone(), |(_, earlier)| subtract(now, earlier));
            // A slow disk may be busy with a request that is not complete yet.
            (since.reads + since.writes + since.busy_ms > 0).then_some(since)
        });
        pairs.collect()
    }

    /// Returns the current memory, with the changes since `before`.
    pub(crate) fn memory_since(&self, before: &CounterReadings) -> Memory {
        let meminfo = proc::meminfo();
        let bytes = |name| meminfo(name).unwrap_or(0);
        let page_bytes = crate::residency::page_bytes();
        let pages = |name| proc::counter(&self.vmstat, name) * page_bytes;
        let since = |name| {
            proc::counter(&self.vmstat, name).saturating_sub(proc::counter(&before.vmstat, name))
        };
        let us = self.time_ns.saturating_sub(before.time_ns) / 1000;
        let share = |now: Option<u64>, earlier: Option<u64>| {
            let stalled = now?.saturating_sub(earlier?);
            Some((as_f64(stalled) / as_f64(us.max(1))).min(1.0))
        };
        let machine = Memory {
            resident_bytes: crate::memory::cache_bytes(&meminfo).unwrap_or(0),
            dirty_bytes: bytes("Dirty"),
            write_back_bytes: bytes("Writeback"),
            available_bytes: bytes("MemAvailable"),
            total_bytes: bytes("MemTotal"),
            background_threshold_bytes: pages("nr_dirty_background_threshold"),
            dirty_threshold_bytes: pages("nr_dirty_threshold"),
            memory_pressure: share(self.memory_stall_us, before.memory_stall_us),
            io_pressure: share(self.io_stall_us, before.io_stall_us),
            refault_pages: since("workingset_refault_file"),
            reclaimed_pages: since("pgsteal_file"),
        };
        match (&self.group, &before.group) {
            (Some(now), Some(earlier)) => now.restrict(machine, earlier),
            _ => machine,
        }
    }
}

fn subtract(now: &Disk, earlier: &Disk) -> Disk {
    // A device that was removed and added again restarts its counters.
    let minus = |now: u64, earlier: u64| now.checked_sub(earlier).unwrap_or(now);
    Disk {
        name: now.name.clone(),
        reads: minus(now.reads, earlier.reads),
        read_merges: minus(now.read_merges, earlier.read_merges),
        read_sectors: minus(now.read_sectors, earlier.read_sectors),
        read_ms: minus(now.read_ms, earlier.read_ms),
        writes: minus(now.writes, earlier.writes),
        write_merges: minus(now.write_merges, earlier.write_merges),
        write_sectors: minus(now.write_sectors, earlier.write_sectors),
        write_ms: minus(now.write_ms, earlier.write_ms),
        busy_ms: minus(now.busy_ms, earlier.busy_ms),
        queue_ms: minus(now.queue_ms, earlier.queue_ms),
        splits: minus(now.splits, earlier.splits),
    }
}

/// Parses `some avg10=0.00 avg60=0.00 avg300=0.00 total=12345`.
fn parse_stall(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with("some "))?;
    line.split_whitespace().find_map(|word| word.strip_prefix("total="))?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_taken_from_their_places_and_subtracted() {
        let line = " 254 1 vda1 100 2 16 4 5 6 32 8 0 10 12 0 0 0 0 7 3";
        let (dev, before) = disk_counters::parse_line(line).unwrap();
        assert_eq!((dev, before.name.as_str()), (crate::device::encode(254, 1), "vda1"));
        assert_eq!((before.read_ms, before.write_sectors), (4, 32));
        assert_eq!((before.busy_ms, before.queue_ms), (10, 12));
        assert_eq!(disk_counters::parse_line("254 1 vda1 3"), None);
        let now = Disk { reads: 103, ..before.clone() };
        let readings =
            |disk| CounterReadings { disks: vec![(dev, disk)], ..CounterReadings::default() };
        let since = readings(now.clone()).active_since(&readings(before.clone()));
        assert_eq!((since.len(), since[0].reads, since[0].read_ms), (1, 3, 0));
        let slow = readings(Disk { busy_ms: before.busy_ms + 200, ..before.clone() });
        assert_eq!(slow.active_since(&readings(before.clone()))[0].busy_ms, 200, "it is at it");
        assert_eq!(readings(before.clone()).active_since(&readings(before)), [], "it did nothing");
        let new = readings(now).active_since(&CounterReadings::default());
        assert_eq!(new[0].reads, 103, "it was not there before");
    }

    #[test]
    fn pressure_and_vmstat_are_read_by_their_names() {
        let text = "some avg10=0.10 avg60=0.00 avg300=0.00 total=1500\nfull avg10=0 total=7\n";
        assert_eq!(parse_stall(text), Some(1500));
        assert_eq!(parse_stall("full total=7"), None);
        let vmstat = "nr_dirty_threshold 17\nnr_dirty 5\n";
        assert_eq!((proc::counter(vmstat, "nr_dirty"), proc::counter(vmstat, "no")), (5, 0));
        let (before, now) = (CounterReadings::now(None), CounterReadings::now(None));
        let memory = now.memory_since(&before);
        assert!(memory.total_bytes > memory.available_bytes && memory.resident_bytes > 0);
    }
}
