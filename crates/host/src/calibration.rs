//! Current speed of this machine, from the time of a small fixed workload.
//!
//! On a shared machine a processor slows down for seconds while another guest uses its sibling
//! hyperthread, and no counter shows it: the hypervisor does not count that as stolen time. Small
//! reads from the page cache, which dominate many benchmarks, show it immediately.

use crate::residency::page_bytes;
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Pages that the workload reads in rotation.
const PAGES: u64 = 16;
/// Reads between two readings of the clock.
const READS: u32 = 64;
/// Duration and number of time slices. The result is their median, which an interrupt in one slice
/// does not affect.
const SLICE: Duration = Duration::from_micros(250);
const SLICES: usize = 9;

/// A workload that reads pages of a memory-backed file.
#[derive(Debug)]
pub struct CalibrationLoad {
    file: File,
    page: u64,
}

impl CalibrationLoad {
    /// Creates the file.
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

    /// Measures the current number of reads per second; takes about two milliseconds.
    ///
    /// # Errors
    /// A read fails.
    pub fn reads_per_second(&self) -> io::Result<f64> {
        let mut buffer = vec![0; usize::try_from(self.page).expect("a page is small")];
        let mut rates = Vec::with_capacity(SLICES);
        let mut at = 0;
        for _ in 0..SLICES {
            let started = Instant::now();
            let mut reads = 0;
            let took = loop {
                for _ in 0..READS {
                    self.file.read_exact_at(&mut buffer, at % PAGES * self.page)?;
                    at += 1;
                }
                reads += READS;
                let took = started.elapsed();
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
        let load = CalibrationLoad::new().unwrap();
        for _ in 0..3 {
            let rate = load.reads_per_second().unwrap();
            assert!(rate.is_finite() && rate > 1000.0, "{rate}");
        }
    }
}
