//! Reads of the moved files on the device, before and after.

use larder_host::direct_read::DirectFile;
use larder_host::file_walk::WalkRoot;
use std::path::Path;
use std::time::{Duration, Instant};

/// Maximum time of all reads before, and maximum number of reads of a file.
const TIME_MAX: Duration = Duration::from_secs(10);
pub(super) const READS_MAX: usize = 1_000;

/// The reads of the moved files.
#[derive(Debug, Default)]
pub(super) struct Reads {
    before: Duration,
    after: Duration,
    number: u64,
}

/// Reads of a file that were measured before its move.
pub(super) struct Measured {
    reads: Vec<(u64, u64)>,
    time: Duration,
}

impl Reads {
    /// Reads ranges of a file (offset and length), until the time is over.
    pub(super) fn before(
        &self,
        root: &WalkRoot,
        below: &Path,
        reads: &[(u64, u64)],
    ) -> Option<Measured> {
        let left = TIME_MAX.checked_sub(self.before).filter(|left| !left.is_zero())?;
        let (time, done) = read(root, below, reads, left)?;
        (done > 0).then(|| Measured { reads: reads[..done].to_vec(), time })
    }

    /// Reads the same ranges again.
    pub(super) fn after(&mut self, root: &WalkRoot, below: &Path, measured: Option<Measured>) {
        let Some(Measured { reads, time }) = measured else { return };
        let Some((after, done)) = read(root, below, &reads, Duration::MAX) else { return };
        if done == reads.len() {
            self.before += time;
            self.after += after;
            self.number += done as u64;
        }
    }

    /// Returns the seconds before and after, and the number of reads.
    pub(super) fn result(&self) -> (Option<(f64, f64)>, u64) {
        let times = (self.before.as_secs_f64(), self.after.as_secs_f64());
        ((self.number > 0).then_some(times), self.number)
    }
}

/// Returns the time of the reads, and the number of those that were made.
fn read(
    root: &WalkRoot,
    below: &Path,
    reads: &[(u64, u64)],
    limit: Duration,
) -> Option<(Duration, usize)> {
    let mut file = DirectFile::open(root, below).ok()?;
    let begun = Instant::now();
    for (done, (offset, len)) in reads.iter().enumerate() {
        if begun.elapsed() >= limit {
            return Some((begun.elapsed(), done));
        }
        file.read(*offset, *len).ok()?;
    }
    Some((begun.elapsed(), reads.len()))
}
