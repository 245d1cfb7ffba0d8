//! A private trace instance: its own buffers, events and filters.
//!
//! Invariants: the name contains the ID and start time of the creating process, so that an instance
//! whose creator has ended is recognisable; it is removed when dropped. The kernel refuses to
//! remove an open instance, so an instance in use is never removed.

use super::{TraceError, Tracefs};
use crate::proc;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Prefix of instance names; process ID, start time and a number follow.
const PREFIX: &str = "larder-";
/// Maximum number of instances of one process.
const INSTANCES_MAX: u32 = 64;
/// A clock that is comparable between processors and with the clock of this process.
const CLOCK: &str = "mono";
/// Maximum number of attempts to remove an instance that is still open: a child process that
/// another thread has just forked holds all descriptors of this process until it executes its
/// program. The limit is a number of attempts instead of a duration, because time also passes while
/// this process is not scheduled.
const ATTEMPTS: u32 = 100;
/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(5);

/// Lost events, over all processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// Events overwritten because the buffer was full.
    pub overrun: u64,
    /// Events dropped because they were nested too deeply.
    pub dropped: u64,
}

impl Losses {
    /// Returns the number of all lost events.
    #[must_use]
    pub fn events(self) -> u64 {
        self.overrun + self.dropped
    }
}

/// A trace instance, removed when dropped.
#[derive(Debug)]
pub struct Instance {
    path: PathBuf,
}

impl Instance {
    /// Creates an instance with `buffer_kib` per processor, with recording off. First removes the
    /// instances of killed processes.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn make(tracefs: &Tracefs, buffer_kib: u64) -> Result<Instance, TraceError> {
        remove_left_over(tracefs);
        let pid = std::process::id();
        let start_time = start_time(pid).unwrap_or(0);
        let directory = tracefs.root().join("instances");
        for number in 0..INSTANCES_MAX {
            let path = directory.join(format!("{PREFIX}{pid}-{start_time}-{number}"));
            match std::fs::create_dir(&path) {
                Ok(()) => {
                    let instance = Instance { path };
                    instance.set_up(buffer_kib)?;
                    return Ok(instance);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(TraceError::io("make", &path)(error)),
            }
        }
        let taken = io::Error::from(io::ErrorKind::AlreadyExists);
        Err(TraceError::io("make another instance in", &directory)(taken))
    }

    fn set_up(&self, buffer_kib: u64) -> Result<(), TraceError> {
        self.write("tracing_on", "0")?;
        self.write("trace_clock", CLOCK)?;
        self.write("buffer_size_kb", &buffer_kib.to_string())
    }

    /// Returns the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Enables an event, with a filter in the kernel's syntax; an empty filter passes all events.
    ///
    /// # Errors
    /// The kernel lacks the event or refuses the filter.
    pub fn enable(&self, event: &str, filter: &str) -> Result<(), TraceError> {
        if !filter.is_empty() {
            self.write(&format!("events/{event}/filter"), filter)?;
        }
        self.write(&format!("events/{event}/enable"), "1")
    }

    /// Starts or stops recording.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn record(&self, on: bool) -> Result<(), TraceError> {
        self.write("tracing_on", if on { "1" } else { "0" })
    }

    /// Returns the events lost since the instance was created.
    #[must_use]
    pub fn losses(&self) -> Losses {
        let mut losses = Losses::default();
        for processor in self.processors() {
            let text = proc::read(processor.join("stats")).unwrap_or_default();
            let count = |name| proc::field(&text, name).unwrap_or(0);
            losses.overrun += count("overrun") + count("commit overrun");
            losses.dropped += count("dropped events");
        }
        losses
    }

    /// Returns the per-processor directories, in order.
    pub(super) fn processors(&self) -> Vec<PathBuf> {
        let directory = self.path.join("per_cpu");
        let present = (0..).map(|number: u32| directory.join(format!("cpu{number}")));
        // The list ends at the first missing number; no machine has more processors than this.
        present.take(8192).take_while(|path| path.is_dir()).collect()
    }

    fn write(&self, name: &str, value: &str) -> Result<(), TraceError> {
        let path = self.path.join(name);
        std::fs::write(&path, value).map_err(TraceError::io("write", &path))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        drop(self.record(false));
        let mut attempts_left = 0..ATTEMPTS;
        while let Err(error) = std::fs::remove_dir(&self.path) {
            // The destructor cannot report a failure; the next start removes the instance.
            if error.kind() != io::ErrorKind::ResourceBusy || attempts_left.next().is_none() {
                break;
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Removes the instances of processes that have ended; returns their number.
pub(super) fn remove_left_over(tracefs: &Tracefs) -> usize {
    let Ok(entries) = std::fs::read_dir(tracefs.root().join("instances")) else { return 0 };
    let orphaned = entries.flatten().filter(|entry| {
        let name = entry.file_name();
        name.to_str()
            .and_then(creator)
            .is_some_and(|(process, recorded_start)| start_time(process) != Some(recorded_start))
    });
    orphaned.filter(|entry| std::fs::remove_dir(entry.path()).is_ok()).count()
}

/// Parses the ID and start time of the creator from an instance's name.
fn creator(name: &str) -> Option<(u32, u64)> {
    let mut numbers = name.strip_prefix(PREFIX)?.split('-');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Returns the start time of a process, in clock ticks since boot: word 22 of its stat file, which
/// is the 20th after the name.
fn start_time(process: u32) -> Option<u64> {
    let text = proc::read(format!("/proc/{process}/stat"))?;
    text.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_maker_is_in_the_name() {
        assert_eq!(creator("larder-12-345-0"), Some((12, 345)));
        assert_eq!(creator("larder-x-1-0"), None);
        assert_eq!(creator("trace-cmd"), None);
        assert!(start_time(std::process::id()).is_some_and(|ticks| ticks > 0));
        assert_eq!(start_time(u32::MAX), None);
    }
}
