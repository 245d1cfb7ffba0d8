//! An instance of our own: buffers, events and filters that nobody else uses.
//!
//! Invariants: its name holds the process that made it and when that process began, so that one
//! whose maker is gone can be told from one in use; it is removed when dropped. The kernel refuses
//! to remove an instance that is open, so a live one is never taken away.

use super::{TraceError, Tracefs};
use crate::proc;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What instances of ours are called; two numbers and a third follow.
const PREFIX: &str = "larder-";
/// Instances that one process may have.
const INSTANCES_MAX: u32 = 64;
/// Clocks whose times can be compared between processors and with ours, the best first.
const CLOCK: &str = "mono";
/// How often it is tried again to remove one that somebody has open: a child of ours that another
/// thread has just begun holds all that we had open until it runs its program. By number and not by
/// time, which passes also while nobody runs.
const ATTEMPTS: u32 = 100;
/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(5);

/// What was lost, in events, over all processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// The buffer was full, and the oldest went.
    pub overrun: u64,
    /// They came too deeply nested to be kept.
    pub dropped: u64,
}

impl Losses {
    /// All of them.
    #[must_use]
    pub fn events(self) -> u64 {
        self.overrun + self.dropped
    }
}

/// An instance, until dropped.
#[derive(Debug)]
pub struct Instance {
    path: PathBuf,
}

impl Instance {
    /// Makes one with `buffer_kib` for each processor; it is off. Removes what killed processes
    /// have left before.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn make(tracefs: &Tracefs, buffer_kib: u64) -> Result<Instance, TraceError> {
        remove_left_over(tracefs);
        let own = std::process::id();
        let begun = begun(own).unwrap_or(0);
        let directory = tracefs.root().join("instances");
        for number in 0..INSTANCES_MAX {
            let path = directory.join(format!("{PREFIX}{own}-{begun}-{number}"));
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

    /// Its directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Enables an event, with a filter of the kernel's own language; an empty one lets all pass.
    ///
    /// # Errors
    /// There is no such event, or the filter is refused.
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

    /// What was lost since it was made.
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

    /// The directories of the processors, in their order.
    pub(super) fn processors(&self) -> Vec<PathBuf> {
        let directory = self.path.join("per_cpu");
        let present = (0..).map(|number: u32| directory.join(format!("cpu{number}")));
        // Numbers may have gaps where processors are off; nobody has more than this.
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
        let mut left = 0..ATTEMPTS;
        while let Err(error) = std::fs::remove_dir(&self.path) {
            // Nobody is left to be told; the next start finds what stays.
            if error.kind() != io::ErrorKind::ResourceBusy || left.next().is_none() {
                break;
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Removes instances whose makers are gone; how many.
pub(super) fn remove_left_over(tracefs: &Tracefs) -> usize {
    let Ok(entries) = std::fs::read_dir(tracefs.root().join("instances")) else { return 0 };
    let gone = entries.flatten().filter(|entry| {
        let name = entry.file_name();
        name.to_str().and_then(maker).is_some_and(|(process, begin)| begun(process) != Some(begin))
    });
    gone.filter(|entry| std::fs::remove_dir(entry.path()).is_ok()).count()
}

/// The process that made an instance, and when it began.
fn maker(name: &str) -> Option<(u32, u64)> {
    let mut numbers = name.strip_prefix(PREFIX)?.split('-');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// When a process began, in ticks since the start of the machine; the 22nd word of its stat, which
/// is the 20th behind its name.
fn begun(process: u32) -> Option<u64> {
    let text = proc::read(format!("/proc/{process}/stat"))?;
    text.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_maker_is_in_the_name() {
        assert_eq!(maker("larder-12-345-0"), Some((12, 345)));
        assert_eq!(maker("larder-x-1-0"), None);
        assert_eq!(maker("trace-cmd"), None);
        assert!(begun(std::process::id()).is_some_and(|ticks| ticks > 0));
        assert_eq!(begun(u32::MAX), None);
    }
}
