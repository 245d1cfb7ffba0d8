//! The counters of a host: their names, sources and formulas, and their tables.

mod sources;

pub use sources::{of_log, of_watch};

use crate::table::{Cell, Column, Field, Table};
use larder_schema::as_u64;
use larder_schema::host_counters::{HostCounters, HostDisk, HostProcess, MetadataCache};

/// Unit of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterUnit {
    /// A number, or a number per second.
    Number,
    /// Bytes, or bytes per second.
    Bytes,
    /// Seconds.
    Seconds,
    /// A share from 0 to 1; sums of latencies can exceed 1.
    Share,
}

/// A counter of a host, a disk or a process.
#[derive(Debug)]
pub struct HostCounter<T> {
    /// Heading.
    pub name: &'static str,
    /// Names of the counters of Windows with this meaning.
    pub windows: &'static str,
    /// Source on Linux.
    pub source: &'static str,
    /// Formula over the source; d is a difference of two readings, dt that of their times.
    pub formula: &'static str,
    /// Unit.
    pub unit: CounterUnit,
    /// The value; `None` if the source did not count it.
    pub value: fn(&T) -> Option<f64>,
}

/// Defines counters, one row each: name, names of Windows, source, formula, unit, value.
macro_rules! counters {
    ($(
        $name:literal $windows:literal $source:literal $formula:literal $unit:ident $value:expr;
    )*) => {
        &[$(HostCounter {
            name: $name,
            windows: $windows,
            source: $source,
            formula: $formula,
            unit: CounterUnit::$unit,
            value: $value,
        },)*]
    };
}

/// Counters of each disk.
pub const DISK_COUNTERS: &[HostCounter<HostDisk>] = counters! {
    "reads/s" "Disk Reads/sec" "diskstats 1" "d(1) / dt" Number |it| it.reads_per_s;
    "sec/read" "Avg. Disk sec/Read" "diskstats 1, 4" "d(4) / d(1)" Seconds |it| it.seconds_per_read;
    "bytes/read" "Avg. Disk Bytes/Read" "diskstats 1, 3" "512 d(3) / d(1)" Bytes
        HostDisk::bytes_per_read;
    "% read time" "% Disk Read Time, Avg. Disk Read Queue Length" "diskstats 4" "d(4) / dt" Share
        |it| it.read_time;
    "writes/s" "Disk Writes/sec" "diskstats 5" "d(5) / dt" Number |it| it.writes_per_s;
    "sec/write" "Avg. Disk sec/Write" "diskstats 5, 8" "d(8) / d(5)" Seconds
        |it| it.seconds_per_write;
    "bytes/write" "Avg. Disk Bytes/Write" "diskstats 5, 7" "512 d(7) / d(5)" Bytes
        HostDisk::bytes_per_write;
    "% write time" "% Disk Write Time, Avg. Disk Write Queue Length" "diskstats 8" "d(8) / dt"
        Share |it| it.write_time;
    "requests/s" "Disk Transfers/sec" "diskstats 1, 5" "(d(1) + d(5)) / dt" Number
        HostDisk::requests_per_s;
    "sec/request" "Avg. Disk sec/Transfer" "diskstats 1, 4, 5, 8" "(d(4) + d(8)) / (d(1) + d(5))"
        Seconds HostDisk::seconds_per_request;
    "% disk time" "% Disk Time" "diskstats 4, 8" "(d(4) + d(8)) / dt" Share HostDisk::disk_time;
    "busy" "100 - % Idle Time" "diskstats 10" "d(10) / dt, at most 1" Share |it| it.busy;
    "busy max" "" "diskstats 10" "maximum of a sample" Share |it| it.busy_max;
    "queue" "Avg. Disk Queue Length" "diskstats 11" "d(11) / dt" Number |it| it.queue;
    "queue max" "" "diskstats 11" "maximum of a sample" Number
        |it| it.queue_max;
    "splits/s" "Split IO/Sec" "tracepoint block_split, with larder watch" "number / dt" Number
        |it| it.splits_per_s;
};

/// Counters of the whole host.
pub const WHOLE_COUNTERS: &[HostCounter<HostCounters>] = counters! {
    "processors busy" "Processor: % Processor Time (_Total)" "/proc/stat"
        "1 - d(idle + iowait) / d(all), with steal" Share |it| it.cpu.busy;
    "idle with I/O in flight" "" "/proc/stat" "d(iowait) / d(all)" Share |it| it.cpu.io_wait;
    "time with a task waiting for I/O" "" "/proc/pressure/io" "d(some total) / dt" Share
        |it| it.memory.io_pressure;
    "time with a task waiting for memory" "" "/proc/pressure/memory" "d(some total) / dt" Share
        |it| it.memory.memory_pressure;
    "available memory, minimum" "Memory: Available Bytes" "meminfo MemAvailable" "minimum" Bytes
        |it| it.memory.available_min_bytes;
    "cache at start" "System Cache Resident Bytes, Cache Bytes" "meminfo Cached, Buffers, Shmem"
        "Cached + Buffers - Shmem" Bytes |it| it.memory.cache_first_bytes;
    "cache at end" "the same" "the same" "last sample" Bytes |it| it.memory.cache_last_bytes;
    "cache, maximum" "the same" "the same" "maximum" Bytes |it| it.memory.cache_max_bytes;
    "paging file in use" "Paging File: % Usage" "meminfo SwapTotal, SwapFree"
        "1 - SwapFree / SwapTotal" Share |it| it.memory.paging_file_use;
    "paging file in use, maximum" "Paging File: % Usage Peak" "the same" "maximum of a sample"
        Share |it| it.memory.paging_file_use_max;
    "pages/s" "Memory: Pages/sec" "vmstat pswpin, pswpout"
        "d(pswpin + pswpout) / dt; Windows counts mapped files too" Number
        |it| it.memory.pages_per_s;
    "lazy-write flushes/s" "Lazy Write Flushes/sec"
        "tracepoint writeback_single_inode, with larder watch" "number / dt" Number
        |it| it.memory.lazy_flushes_per_s;
    "lazy-write pages/s" "Lazy Write Pages/sec, Data Flush Pages/sec" "vmstat nr_written"
        "d / dt; also those that fsync wrote" Number |it| it.memory.lazy_pages_per_s;
    "re-read bytes/s" "" "vmstat workingset_refault_file" "page size x d / dt" Bytes
        |it| it.memory.reread_bytes_per_s;
    "cache hit ratio" "Copy Read Hits %" "tracepoint mm_filemap_get_pages, with larder watch"
        "hits / lookups" Share |it| it.memory.hit_ratio;
    "cache misses/s" "Copy Reads/sec x (1 - Copy Read Hits %)" "the same" "misses / dt"
        Number |it| it.memory.misses_per_s;
};

/// Counters of each process.
pub const PROCESS_COUNTERS: &[HostCounter<HostProcess>] = counters! {
    "processors" "Process: % Processor Time" "/proc/PID/stat utime, stime"
        "d(utime + stime) / d(all of /proc/stat) x processors" Number |it| it.cpu;
    "reads/s" "IO Read Operations/sec" "/proc/PID/io syscr" "d / dt" Number |it| it.reads_per_s;
    "bytes read/s" "IO Read Bytes/sec" "/proc/PID/io rchar" "d / dt" Bytes
        |it| it.read_bytes_per_s;
    "writes/s" "IO Write Operations/sec" "/proc/PID/io syscw" "d / dt" Number
        |it| it.writes_per_s;
    "bytes written/s" "IO Write Bytes/sec" "/proc/PID/io wchar" "d / dt" Bytes
        |it| it.write_bytes_per_s;
    "reads and writes/s" "IO Data Operations/sec" "/proc/PID/io syscr, syscw" "sum of both" Number
        HostProcess::data_per_s;
    "bytes read and written/s" "IO Data Bytes/sec" "/proc/PID/io rchar, wchar" "sum of both" Bytes
        HostProcess::data_bytes_per_s;
    "others/s" "IO Other Operations/sec" "not counted by Linux" "" Number |it| it.others_per_s;
    "from disks/s" "" "/proc/PID/io read_bytes" "d / dt" Bytes |it| it.disk_read_bytes_per_s;
    "to disks/s" "" "/proc/PID/io write_bytes" "d / dt; counted when a page becomes dirty" Bytes
        |it| it.disk_write_bytes_per_s;
    "private" "Process: Private Bytes" "/proc/PID/status RssAnon" "last reading" Bytes
        |it| it.private_bytes;
    "growth" "the same" "the same" "last - first reading" Bytes |it| it.private_growth_bytes;
};

/// Counters of each cache of metadata.
pub const METADATA_COUNTERS: &[HostCounter<MetadataCache>] = counters! {
    "lookups/s" "Data Maps/sec, Pin Reads/sec"
        "XFS: inodes, buffers; ext4: extents; as below" "d(lookups) / dt" Number
        |it| Some(it.lookups_per_s);
    "hits" "Data Map Hits %, Pin Read Hits %"
        "/sys/fs/xfs/DEVICE/stats/stats: ig, buf; /proc/fs/ext4/DEVICE/es_shrinker_info"
        "d(found + recycled) / d(lookups); 1 - d(misses) / d(lookups); d(hits) / d(hits + misses)"
        Share |it| Some(it.hit_ratio);
};

impl CounterUnit {
    fn cell(self, value: Option<f64>) -> Cell {
        let shown = value.map(|value| (value, larder_schema::format::bytes(as_u64(value.abs()))));
        match (self, shown) {
            (CounterUnit::Number, _) => Cell::number(value),
            (CounterUnit::Seconds, _) => Cell::seconds(value),
            (CounterUnit::Share, _) => Cell::percent(value),
            (CounterUnit::Bytes, Some((value, text))) if value < 0.0 => {
                Cell::shown(value, format!("-{text}"))
            }
            (CounterUnit::Bytes, Some((value, text))) => Cell::shown(value, text),
            (CounterUnit::Bytes, None) => Cell::missing(),
        }
    }
}

/// Counters of reads and writes together, which have no column if the others are known.
const OF_BOTH: [&str; 2] = ["requests/s", "sec/request"];

fn fields<T: 'static>(
    counters: &'static [HostCounter<T>],
    all: &[T],
    is_shown: impl Fn(&str) -> bool,
) -> Vec<Field<T>> {
    let is_counted =
        |it: &&HostCounter<T>| is_shown(it.name) && all.iter().any(|row| (it.value)(row).is_some());
    let field = |it: &'static HostCounter<T>| {
        let column = Column::numbers(it.name, it.name);
        Field::of(column, move |row| it.unit.cell((it.value)(row)))
    };
    counters.iter().filter(is_counted).map(field).collect()
}

/// Returns the disks as a table, without counters that no disk has.
#[must_use]
pub fn disks_table(disks: &[HostDisk]) -> Table {
    let mut all = vec![Field::word("disk", "disk", |it: &HostDisk| &it.disk)];
    let is_separate = disks.iter().all(|it| it.reads_per_s.is_some());
    let is_shown = |name: &str| !is_separate || !OF_BOTH.contains(&name);
    all.extend(fields(DISK_COUNTERS, disks, is_shown));
    Table::of("Disks", disks, all)
}

/// Returns at most `max` processes as a table.
#[must_use]
pub fn processes_table(processes: &[HostProcess], max: usize) -> Table {
    let mut all = vec![Field::text("process", "process", HostProcess::label)];
    all.extend(fields(PROCESS_COUNTERS, processes, |_| true));
    Table::of("Processes", &processes[..processes.len().min(max)], all)
}

/// Returns the caches of metadata as a table.
#[must_use]
pub fn metadata_table(caches: &[MetadataCache]) -> Table {
    let mut all = vec![
        Field::word("device", "device", |it: &MetadataCache| &it.device),
        Field::word("file_system", "file system", |it| &it.file_system),
        Field::word("cache", "cache of", |it| &it.cache),
    ];
    all.extend(fields(METADATA_COUNTERS, caches, |_| true));
    Table::of("Caches of metadata", caches, all)
}

/// Returns the counters of the whole host as a table with a row for each.
#[must_use]
pub fn whole_table(counters: &HostCounters) -> Table {
    let columns = [Column::words("counter", "counter"), Column::numbers("value", "value")];
    let mut table = Table::new("Processors, memory and cache", columns);
    for counter in WHOLE_COUNTERS {
        let value = (counter.value)(counters);
        if value.is_some() {
            table.push([Cell::word(counter.name), counter.unit.cell(value)]);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_that_nobody_counts_have_no_column() {
        let disk = HostDisk { disk: "a".to_owned(), busy: Some(0.5), ..HostDisk::default() };
        let text = disks_table(&[disk]).to_text();
        assert!(text.contains("busy") && text.contains("50.0 %") && !text.contains("reads/s"));
    }

    #[test]
    fn memory_that_a_process_gave_back_is_negative_growth() {
        let cell = CounterUnit::Bytes.cell(Some(-4096.0));
        assert_eq!(cell, Cell::shown(-4096.0, "-4 KiB"));
    }
}
