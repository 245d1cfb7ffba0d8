//! Records of load: results of `larder watch`, and traces that name files.

use crate::commands::report::open_watch;
use crate::commands::trace::InputArgs;
use anyhow::{Result, bail, ensure};
use larder_lab::balance::DiskLoad;
use larder_lab::trace::{Addressing, NameKind, Op, Record, Source};
use larder_report::escape;
use larder_schema::as_f64;
use larder_schema::watch::{Disk, Row, WHOLE, Watch};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Maximum number of files of a trace: those of a million requests to different ones.
const FILES_MAX: usize = 1 << 20;

/// The load of a process on a file, in requests and bytes of the whole record.
#[derive(Clone, Debug, Default)]
pub(super) struct RecordedLoad {
    pub(super) file: String,
    /// Device number of the file system, and inode number; a trace has neither.
    pub(super) identity: Option<((u32, u32), u64)>,
    pub(super) process: String,
    pub(super) pid: u32,
    pub(super) load: DiskLoad,
    /// Writes of the process itself: fsync(2), direct I/O.
    pub(super) own_writes: f64,
    /// End of the last byte that was accessed: the least size of the file.
    pub(super) end: u64,
}

/// All records together.
#[derive(Debug, Default)]
pub(super) struct Recording {
    pub(super) names: Vec<String>,
    pub(super) duration_ns: u64,
    pub(super) loads: Vec<RecordedLoad>,
    /// True if a record has only some of the files that were accessed.
    pub(super) is_partial: bool,
    /// Counters of disks by name.
    pub(super) disks: BTreeMap<String, Disk>,
    /// Disks that were not counted, in at least one record.
    pub(super) uncounted: BTreeSet<String>,
    pub(super) notes: Vec<String>,
}

/// Reads all records.
pub(super) fn read(records: &[PathBuf], input: &InputArgs) -> Result<Recording> {
    let mut recording = Recording::default();
    for record in records {
        recording.names.push(escape::path(record).into_owned());
        match open_watch(record)? {
            Some(watch) => recording.add_watch(watch),
            None => recording.add_trace(record, input)?,
        }
    }
    ensure!(
        recording.duration_ns > 0,
        "balance records without a duration: record with times of day, for longer"
    );
    Ok(recording)
}

impl Recording {
    fn add_watch(&mut self, watch: Watch) {
        let total = watch.total;
        self.duration_ns = self.duration_ns.saturating_add(total.duration_ns);
        let is_truncated = total.rows_all > total.rows.len() as u64;
        self.is_partial |= is_truncated || watch.scope != WHOLE;
        if is_truncated {
            self.notes.push(
                "The record has only its most active files: the load of the others counts as load \
                 without a file. Record with larder watch --rows 100000 for all."
                    .to_owned(),
            );
        }
        self.uncounted.extend(total.uncounted);
        for disk in total.disks {
            add_counters(self.disks.entry(disk.name.clone()).or_default(), &disk);
        }
        self.loads.extend(total.rows.into_iter().filter_map(of_row));
    }

    fn add_trace(&mut self, path: &Path, input: &InputArgs) -> Result<()> {
        let mut source = input.open(path, None, None)?;
        let mut files: BTreeMap<(u32, u32), RecordedLoad> = BTreeMap::new();
        let (mut batch, mut last_ns, mut unnamed) = (Vec::new(), 0, 0_u64);
        while source.next_batch(&mut batch)? {
            for record in &batch {
                last_ns = last_ns.max(record.time_ns);
                if record.file == 0 {
                    unnamed += u64::from(record.op.transfers());
                    continue;
                }
                add_record(files.entry((record.file, record.process)).or_default(), record);
            }
            ensure!(files.len() <= FILES_MAX, "balance a trace of more than {FILES_MAX} files");
        }
        if source.addressing() == Addressing::Objects || files.is_empty() {
            bail!("balance {}: it does not name files", escape::path(path));
        }
        for ((file, process), mut load) in files {
            let name = |kind, number| source.name(kind, number).unwrap_or_default().to_owned();
            load.file = name(NameKind::File, file);
            load.process = name(NameKind::Process, process);
            if load.load.requests() > 0.0 {
                self.loads.push(load);
            }
        }
        self.duration_ns = self.duration_ns.saturating_add(last_ns);
        self.notes.push(format!(
            "Each request of {} counts as one of the disk: the trace does not tell which of them a \
             cache answered.",
            escape::path(path)
        ));
        if unnamed > 0 {
            self.notes.push(format!("{unnamed} requests without a file were left out."));
        }
        Ok(())
    }
}

fn add_record(load: &mut RecordedLoad, record: &Record) {
    let bytes = as_f64(record.len);
    match record.op {
        Op::Read => {
            load.load.reads += 1.0;
            load.load.read_bytes += bytes;
        }
        Op::Write => {
            load.load.writes += 1.0;
            load.load.write_bytes += bytes;
        }
        Op::Flush | Op::Discard | Op::Zero => return,
    }
    load.end = load.end.max(record.end());
}

/// Returns the load of a row; `None` if it has none of a disk. Records of earlier versions have no
/// numbers of requests: they get the mean length of the requests of their disk later.
fn of_row(row: Row) -> Option<RecordedLoad> {
    let counts = &row.counts;
    let load = DiskLoad {
        reads: as_f64(counts.disk_read_requests),
        read_bytes: as_f64(counts.disk_read_bytes),
        writes: as_f64(counts.disk_write_requests + counts.disk_lazy_write_requests),
        write_bytes: as_f64(counts.disk_write_bytes + counts.disk_lazy_write_bytes),
    };
    (counts.disk_bytes() > 0).then_some(RecordedLoad {
        file: row.file,
        identity: Some((row.device, row.inode)),
        process: row.process,
        pid: row.pid,
        load,
        own_writes: as_f64(counts.disk_write_requests),
        end: 0,
    })
}

fn add_counters(sum: &mut Disk, disk: &Disk) {
    sum.reads += disk.reads;
    sum.read_sectors += disk.read_sectors;
    sum.read_ms += disk.read_ms;
    sum.writes += disk.writes;
    sum.write_sectors += disk.write_sectors;
    sum.write_ms += disk.write_ms;
    sum.busy_ms += disk.busy_ms;
}
