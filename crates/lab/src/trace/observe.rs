//! Evidence about the cache at which a trace was recorded, for [`larder_report::findings`]: reads
//! by file, their hits, and their sequentiality. A trace does not show memory use.
//!
//! A request counts with its class, the worst of its pages, so the misses of long requests are
//! overestimated. Invariant: memory is bounded; files beyond [`FILES_MAX`] are ignored.

use super::summary::PAGE_BYTES;
use super::{Addressing, NameKind, Op, Record, Source};
use larder_core::counters::Class;
use larder_report::findings::{FileUse, MachineSnapshot, Observation};
use std::collections::BTreeMap;

/// Maximum number of files, or of volumes without file names.
const FILES_MAX: usize = 65_536;
/// Number of snapshots over the duration; all show the same state.
const SNAPSHOTS: u32 = 16;

/// A collector of observations.
#[derive(Debug)]
pub(crate) struct Observer {
    objects: bool,
    /// By volume and file; with the end of the last read.
    files: BTreeMap<(u32, u32), (FileUse, u64)>,
    /// True if any read has a class.
    has_classes: bool,
    last_ns: u64,
}

impl Observer {
    /// Creates an observer of a trace with this addressing.
    pub(crate) fn new(addressing: Addressing) -> Self {
        let objects = addressing == Addressing::Objects;
        Observer { objects, files: BTreeMap::new(), has_classes: false, last_ns: 0 }
    }

    /// Observes a record.
    pub(crate) fn add(&mut self, record: &Record) {
        self.last_ns = self.last_ns.max(record.time_ns);
        let key = (record.volume, record.file);
        let known = self.files.len() < FILES_MAX || self.files.contains_key(&key);
        if record.op != Op::Read || record.len == 0 || self.objects || !known {
            return;
        }
        let (file, end) = self.files.entry(key).or_insert_with(|| {
            (FileUse { sequential_pages: Some(0), ..FileUse::default() }, u64::MAX)
        });
        let last = record.offset.saturating_add(record.len - 1);
        let pages = last / PAGE_BYTES - record.offset / PAGE_BYTES + 1;
        file.read_pages = file.read_pages.saturating_add(pages);
        if *end == record.offset {
            file.sequential_pages = file.sequential_pages.map(|sum| sum.saturating_add(pages));
        }
        *end = last.saturating_add(1);
        let class = Class::from_number(record.class);
        self.has_classes |= class.is_some();
        match class {
            Some(Class::ReadAheadHit) => file.ahead_hit_pages += pages,
            Some(
                Class::ReadMiss | Class::ReadPartialHit | Class::ReadBypass | Class::ReadAheadWait,
            ) => file.miss_pages += pages,
            _ => {}
        }
    }

    /// Returns the observation; `source` provides the names. Without classes it has no files,
    /// because hits are unknown.
    pub(crate) fn observation(&self, source: &dyn Source) -> Observation {
        #[expect(clippy::cast_precision_loss, reason = "seconds of a trace")]
        let seconds = self.last_ns as f64 / 1e9;
        let name = |volume: u32, file: u32| {
            let known = source.name(NameKind::File, file).filter(|_| file > 0);
            let known = known.or_else(|| source.name(NameKind::Volume, volume));
            known.map_or_else(|| format!("volume {volume}"), str::to_owned)
        };
        let files = self.files.iter().filter(|_| self.has_classes).map(
            |(&(volume, file), (use_of_file, _))| FileUse {
                file: name(volume, file),
                ..use_of_file.clone()
            },
        );
        let interval = seconds / f64::from(SNAPSHOTS);
        Observation {
            seconds,
            page_bytes: PAGE_BYTES,
            moments: (1..=SNAPSHOTS)
                .map(|at| MachineSnapshot {
                    at_s: f64::from(at) * interval,
                    ..MachineSnapshot::default()
                })
                .collect(),
            files: files.collect(),
            ..Observation::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{OpenOptions, open_stream};
    use larder_report::findings::find;

    /// Observes a CSV trace in Larder's format.
    fn observe(rows: &[(u64, u64, u64, &str, u8)]) -> Observation {
        let mut text = String::from(
            "time_ns,offset,len,latency_ns,volume,file,process,op,class,volume_name,file_name,\
             process_name\n",
        );
        for (time, offset, len, file, class) in rows {
            let number = file.len();
            let row = format!("{time},{offset},{len},0,0,{number},0,read,{class},,{file},\n");
            text.push_str(&row);
        }
        let stream = Box::new(std::io::Cursor::new(text.into_bytes()));
        let mut source = open_stream("t.csv", stream, &OpenOptions::default()).expect("a trace");
        let (mut observer, mut batch) = (Observer::new(source.addressing()), Vec::new());
        while source.next_batch(&mut batch).expect("good rows") {
            for record in &batch {
                observer.add(record);
            }
        }
        observer.observation(&*source)
    }

    #[test]
    fn reads_are_counted_in_pages_by_file_and_class() {
        let seen = observe(&[
            (0, 0, 4096, "a", 1),
            (1_000_000_000, 4096, 8192, "a", 2),
            (2_000_000_000, 100, 1, "bb", 5),
            (4_000_000_000, 12_288, 4097, "a", 5),
        ]);
        assert!((seen.seconds - 4.0).abs() < 1e-9);
        let a = seen.files.iter().find(|file| file.file == "a").expect("it was read");
        assert_eq!((a.read_pages, a.ahead_hit_pages, a.miss_pages), (5, 2, 2));
        assert_eq!(a.sequential_pages, Some(4));
        assert_eq!(seen.files.len(), 2);
    }

    #[test]
    fn one_file_with_most_misses_is_found_and_without_classes_nothing_is() {
        let rows = |class: u8| -> Vec<(u64, u64, u64, &str, u8)> {
            let files = ["a", "bb", "ccc"];
            let read = |at: u64| {
                let file = files[usize::try_from(at % 3).expect("below 3")];
                let offset = at.wrapping_mul(7_919) % 100_000 * 4096;
                (
                    at * 1_000_000,
                    offset,
                    4096,
                    file,
                    if file == "bb" { class } else { class.min(1) },
                )
            };
            (0..6_000).map(read).collect()
        };
        let found = find(&observe(&rows(5)));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].seen.starts_with("bb has > 99.9 %")
                || found[0].seen.starts_with("bb has 100.0 %")
        );
        assert!(find(&observe(&rows(0))).is_empty());
    }
}
