//! How fast this machine is right now: the same small work, timed.
//!
//! On a machine shared with others a processor is slower for seconds while its other half works
//! for somebody else, and no counter says so: the hypervisor counts that as no stolen time. What a
//! benchmark asks for most, small reads that the page cache answers, shows it at once.

use crate::residency::page_bytes;
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Pages that are read by turns.
const PAGES: u64 = 16;
/// Reads between two looks at the clock.
const READS: u32 = 64;
/// How long each of the slices takes, and how many there are: their median is not moved by an
/// interrupt in one of them.
const SLICE: Duration = Duration::from_micros(250);
const SLICES: usize = 9;

/// The work: reading pages of a file that is memory.
#[derive(Debug)]
pub struct CalibrationLoad {
    file: File,
    page: u64,
}

impl CalibrationLoad {
    /// Makes the file.
    ///
    /// # Errors
    /// The kernel has no memory for it.
    pub fn new() -> io::Result<CalibrationLoad> {
        let file = File::from(memfd_create("larder-yardstick", MemfdFlags::CLOEXEC)?);
        let page = page_bytes();
        for number in 0..PAGES {
            file.write_all_at(&[1], number * page)?;
        }
        file.set_len(PAGES * page)?;
        Ok(CalibrationLoad { file, page })
    }

    /// Reads per second now; takes about two milliseconds.
    ///
    /// # Errors
    /// A read fails.
    pub fn reads_per_second(&self) -> io::Result<f64> {
        let mut buffer = vec![0; usize::try_from(self.page).expect("a page is small")];
        let mut rates = Vec::with_capacity(SLICES);
        let mut at = 0;
        for _ in 0..SLICES {
            let begun = Instant::now();
            let mut reads = 0;
            let took = loop {
                for _ in 0..READS {
                    self.file.read_exact_at(&mut buffer, at % PAGES * self.page)?;
                    at += 1;
                }
                reads += READS;
                let took = begun.elapsed();
                if took >= SLICE {
                    break took;
                }
            };
            rates.push(f64::from(reads) / took.as_secs_f64());
        }
        rates.sort_by(f64::total_cmp);
        Ok(rates[SLICES / 2])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_work_gives_a_rate_each_time() {
        let yardstick = CalibrationLoad::new().unwrap();
        for _ in 0..3 {
            let rate = yardstick.reads_per_second().unwrap();
            assert!(rate.is_finite() && rate > 1000.0, "{rate}");
        }
    }
}
