//! Conversion of a `larder watch` result to an observation.
//!
//! Files and processes are those of the retained rows, so the total of many small ones is not
//! visible. Values of the whole machine, such as dirty memory, are compared with written bytes only
//! if the scope was the whole machine.

use crate::findings::{FileUse, MachineSnapshot, Observation, ProcessUse, ReadAhead};
use larder_schema::as_f64;
use larder_schema::watch::{Disk, Interval, ProcessMemory, WHOLE, Watch};
use std::collections::BTreeMap;

/// Nanoseconds of a second.
const SECOND: f64 = 1e9;

/// Returns the disk that represents all writes. Disk counters, unlike those of processes, count
/// completed writes. All of several stacked disks have written the same, and the busiest is the
/// bottleneck.
fn writer(disks: &[Disk]) -> Option<&Disk> {
    let most_sectors = disks.iter().map(|disk| disk.write_sectors).max().unwrap_or(0);
    let candidates = disks.iter().filter(|disk| disk.write_sectors >= most_sectors / 2);
    candidates.max_by_key(|disk| (disk.busy_ms, disk.write_sectors))
}

fn moment(interval: &Interval, writer: Option<&str>, whole: bool) -> MachineSnapshot {
    let memory = &interval.memory;
    let seconds = as_f64(interval.duration_ns.max(1)) / SECOND;
    let known = memory.total_bytes > 0;
    let bytes = |bytes: u64| known.then(|| as_f64(bytes));
    let writer = interval.disks.iter().find(|disk| Some(disk.name.as_str()) == writer);
    let (written, busy_ms) = writer.map_or((0, 0), |disk| (disk.write_bytes(), disk.busy_ms));
    MachineSnapshot {
        at_s: as_f64(interval.begin_ns + interval.duration_ns) / SECOND,
        cache_bytes: bytes(memory.resident_bytes),
        // Pages under writeback are not on the disk yet.
        dirty_bytes: bytes(memory.dirty_bytes + memory.write_back_bytes),
        dirty_limit_bytes: bytes(memory.dirty_threshold_bytes),
        available_bytes: bytes(memory.available_bytes),
        paging_per_s: Some(as_f64(memory.refault_pages) / seconds),
        written_per_s: whole.then(|| as_f64(written) / seconds),
        busy_ratio: whole.then(|| as_f64(busy_ms) / 1000.0 / seconds),
    }
}

fn name(process: &str, pid: u32) -> String {
    if pid == 0 { process.to_owned() } else { format!("{process} {pid}") }
}

fn files(total: &Interval) -> Vec<FileUse> {
    let mut all: BTreeMap<&str, FileUse> = BTreeMap::new();
    for row in &total.rows {
        let file = all.entry(&row.file).or_insert_with(|| FileUse {
            file: row.file.clone(),
            sequential_pages: Some(0),
            ..FileUse::default()
        });
        file.read_pages += row.counts.read_pages;
        file.miss_pages += row.counts.miss_pages;
        file.ahead_hit_pages += row.counts.read_ahead_hit_pages;
        file.sequential_pages =
            file.sequential_pages.map(|pages| pages + row.counts.in_order_pages);
    }
    all.into_values().collect()
}

fn processes(watch: &Watch) -> Vec<ProcessUse> {
    let mut all: BTreeMap<(&str, u32), (u64, Vec<f64>)> = BTreeMap::new();
    for row in &watch.total.rows {
        all.entry((&row.process, row.pid)).or_default().0 += row.counts.throttled_ms;
    }
    for process_memory in watch.intervals.iter().flat_map(|interval| &interval.processes) {
        let ProcessMemory { process, pid, private_bytes } = process_memory;
        all.entry((process, *pid)).or_default().1.push(as_f64(*private_bytes));
    }
    let uses = all.into_iter().map(|((process, pid), (ms, private_bytes))| ProcessUse {
        process: name(process, pid),
        throttled_s: Some(as_f64(ms) / 1000.0),
        private_bytes,
    });
    uses.collect()
}

impl From<&Watch> for Observation {
    fn from(watch: &Watch) -> Observation {
        let (total, sum) = (&watch.total, &watch.total.sum);
        // A disk that is not counted may be the one that wrote.
        let whole = watch.scope == WHOLE && total.uncounted.is_empty();
        let writer = writer(&total.disks).map(|disk| disk.name.as_str());
        let memory = total.memory.total_bytes;
        Observation {
            seconds: as_f64(total.duration_ns) / SECOND,
            page_bytes: watch.page_bytes,
            memory_bytes: (memory > 0).then(|| as_f64(memory)),
            moments: watch.intervals.iter().map(|it| moment(it, writer, whole)).collect(),
            files: files(total),
            processes: processes(watch),
            read_ahead: Some(ReadAhead {
                brought_pages: sum.read_ahead_hit_pages + sum.read_ahead_unused_pages,
                unused_pages: sum.read_ahead_unused_pages,
            }),
            evicted_pages: Some(sum.evicted_pages),
            refault_pages: Some(sum.refault_pages),
            dirtied_pages: Some(sum.dirtied_pages),
            layers: watch.layers.clone(),
            access_time_updates: Some(sum.access_time_updates),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::find;
    use larder_schema::watch::{Counts, Memory, Row};

    const SECOND: u64 = 1_000_000_000;

    /// Creates a result with four intervals of 5 s, and these rows in the total.
    fn watch(rows: Vec<Row>) -> Watch {
        let mut sum = Counts::default();
        for row in &rows {
            sum += row.counts;
        }
        let memory = Memory {
            resident_bytes: 100 << 20,
            available_bytes: 500 << 20,
            total_bytes: 1 << 30,
            ..Memory::default()
        };
        let interval = |number: u64| Interval {
            begin_ns: number * 5 * SECOND,
            duration_ns: 5 * SECOND,
            memory,
            ..Interval::default()
        };
        Watch {
            scope: WHOLE.to_owned(),
            page_bytes: 4096,
            intervals: (0..4).map(interval).collect(),
            total: Interval { rows, sum, duration_ns: 20 * SECOND, memory, ..Interval::default() },
            ..Watch::default()
        }
    }

    fn row(file: &str, pid: u32, counts: &Counts) -> Row {
        let counts = *counts;
        Row { file: file.to_owned(), pid, process: "p".to_owned(), counts, ..Row::default() }
    }

    fn read(read_pages: u64, miss_pages: u64) -> Counts {
        Counts { read_pages, miss_pages, ..Counts::default() }
    }

    #[test]
    fn rows_of_a_file_and_of_a_process_are_added_up() {
        let throttled = Counts { throttled_ms: 400, ..read(10, 5) };
        let rows =
            vec![row("a", 1, &throttled), row("a", 2, &read(20, 1)), row("b", 1, &throttled)];
        let seen = Observation::from(&watch(rows));
        assert_eq!(
            (seen.files.len(), seen.files[0].read_pages, seen.files[0].miss_pages),
            (2, 30, 6)
        );
        let first = seen.processes.iter().find(|it| it.process == "p 1").unwrap();
        assert_eq!(first.throttled_s, Some(0.8));
        assert_eq!(seen.moments.len(), 4);
        assert!((seen.seconds - 20.0).abs() < 1e-9 && (seen.moments[1].at_s - 10.0).abs() < 1e-9);
        assert_eq!(seen.moments[0].written_per_s, Some(0.0));
    }

    #[test]
    fn what_was_written_in_a_part_of_the_machine_is_not_set_against_all_that_is_dirty() {
        let mut part = watch(Vec::new());
        part.scope = "/data".to_owned();
        assert_eq!(Observation::from(&part).moments[0].written_per_s, None);
    }

    #[test]
    fn disks_tell_what_was_written_and_how_busy_they_were() {
        let mut seen = watch(Vec::new());
        let interval = &mut seen.intervals[1];
        interval.sum.disk_lazy_write_bytes = 1 << 30;
        (interval.memory.dirty_bytes, interval.memory.write_back_bytes) = (3 << 20, 5 << 20);
        let disk = |name: &str, write_sectors, busy_ms| Disk {
            name: name.to_owned(),
            write_sectors,
            busy_ms,
            ..Disk::default()
        };
        interval.disks = vec![disk("a", 10, 4900), disk("b", 10_000, 4000), disk("c", 10_010, 10)];
        seen.total.disks.clone_from(&seen.intervals[1].disks);
        // In this interval another disk wrote more.
        seen.intervals[2].disks = vec![disk("a", 1_000_000, 1000)];
        assert_eq!(Observation::from(&seen).moments[2].written_per_s, Some(0.0));
        let moment = Observation::from(&seen).moments[1];
        assert_eq!(moment.written_per_s, Some(1_024_000.0), "and not what was asked for");
        assert_eq!(moment.busy_ratio, Some(0.8));
        assert_eq!(moment.dirty_bytes, Some(f64::from(8 << 20)), "some is on its way");
    }

    #[test]
    fn rules_fire_on_what_was_watched() {
        let many = read(20_000, 10_000);
        let rows = vec![row("a", 1, &many), row("b", 1, &read(900, 2)), row("c", 1, &read(900, 3))];
        let names = |watch: &Watch| -> Vec<String> {
            find(&watch.into()).into_iter().map(|finding| finding.rule).collect()
        };
        assert_eq!(names(&watch(rows)), ["one-file-misses"]);
        assert_eq!(names(&watch(vec![row("a", 1, &read(20_000, 3))])), [""; 0]);
        let times = Counts { access_time_updates: 100, ..read(400, 100) };
        assert_eq!(names(&watch(vec![row("a", 1, &times)])), ["access-times"]);
        let mut squeezed = watch(Vec::new());
        let first = squeezed.intervals[0].clone();
        squeezed.intervals = (0..10)
            .map(|number: u64| {
                let mut interval = first.clone();
                interval.memory.resident_bytes = (100 - 8 * number) << 20;
                let process = "leaks".to_owned();
                let private_bytes = (10 + 9 * number) << 20;
                interval.processes = vec![ProcessMemory { process, pid: 7, private_bytes }];
                interval
            })
            .collect();
        assert_eq!(names(&squeezed), ["leak"]);
    }
}
