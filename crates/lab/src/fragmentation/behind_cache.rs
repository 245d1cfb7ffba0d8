//! The requests of a simulated cache in front of the device.

use super::FileRequest;
use crate::advise::{Traffic, TrafficError};
use crate::sim::engine::{CacheSimulationOptions, VolumeLengths};
use crate::trace::{NameKind, Op, Record, Source, TraceError};
use larder_core::store::StoreOpKind;

/// Records of a batch.
const BATCH: usize = 1024;

/// Requests to files as a trace with a volume for each file.
struct FileTrace<'a> {
    requests: &'a [FileRequest],
    next: usize,
}

impl Source for FileTrace<'_> {
    fn read_batch(&mut self, batch: &mut Vec<Record>) -> Result<(), TraceError> {
        let rest = &self.requests[self.next..];
        for request in &rest[..rest.len().min(BATCH)] {
            let op = if request.kind == StoreOpKind::Read { Op::Read } else { Op::Write };
            batch.push(Record {
                time_ns: self.next as u64,
                offset: request.offset,
                len: request.len,
                volume: u32::try_from(request.file).unwrap_or(u32::MAX),
                op,
                ..Record::default()
            });
            self.next += 1;
        }
        Ok(())
    }

    fn name(&self, _kind: NameKind, _number: u32) -> Option<&str> {
        None
    }
}

/// Returns the requests that a simulated cache sends to the files.
///
/// # Errors
/// The requests exceed a limit of the simulation; none if the cache serves all of them.
pub fn behind_cache(
    requests: &[FileRequest],
    options: &CacheSimulationOptions,
) -> Result<Vec<FileRequest>, TrafficError> {
    if requests.is_empty() {
        return Ok(Vec::new());
    }
    let source = || FileTrace { requests, next: 0 };
    let lengths = VolumeLengths::of(&mut source())?;
    let (bases, _) = lengths.bases();
    let traffic = match Traffic::behind_cache(&mut source(), &lengths, options) {
        Err(TrafficError::Empty) => return Ok(Vec::new()),
        traffic => traffic?,
    };
    let request = |it: &crate::advise::DeviceRequest| {
        // Volumes without requests have no length: the last base is that of the volume.
        let file = bases.partition_point(|base| *base <= it.offset) - 1;
        FileRequest { file, kind: it.kind, offset: it.offset - bases[file], len: it.len }
    };
    Ok(traffic.requests().iter().map(request).collect())
}
