//! A private trace instance: its own buffers, events and filters.
//!
//! Invariants: the name contains the ID and start time of the creating process, so that an instance
//! whose creator has ended is recognizable; it is removed when dropped. The kernel refuses to
//! remove an open instance, so an instance in use is never removed.

use super::{TraceError, Tracefs};
use crate::inspect::{Uninspectable, WAIT_MAX, inspect};
use crate::inspector::Query;
use crate::inspector_client;
use crate::proc;
use std::io;
use std::path::PathBuf;
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
const PAUSE: Duration = Duration::from_millis(5);

/// A trace instance, removed when dropped.
#[derive(Debug)]
pub(crate) struct Instance {
    pub(super) path: PathBuf,
}

impl Instance {
    /// Creates an instance with `buffer_kib` per processor, with recording off. First removes the
    /// instances of killed processes.
    pub(crate) fn make(tracefs: &Tracefs, buffer_kib: u64) -> Result<Instance, TraceError> {
        remove_left_over(tracefs);
        let pid = std::process::id();
        let start_time = start_time(pid).ok().flatten().unwrap_or(0);
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

    /// Enables an event, with a filter in the kernel's syntax; an empty filter passes all events.
    pub(crate) fn enable(&self, event: &str, filter: &str) -> Result<(), TraceError> {
        if !filter.is_empty() {
            self.write(&format!("events/{event}/filter"), filter)?;
        }
        self.write(&format!("events/{event}/enable"), "1")
    }

    pub(crate) fn record(&self, on: bool) -> Result<(), TraceError> {
        self.write("tracing_on", if on { "1" } else { "0" })
    }

    /// Returns the number of events lost since the instance was created: overwritten because the
    /// buffer was full, or dropped because they were nested too deeply.
    pub(crate) fn lost(&self) -> u64 {
        let kinds = ["overrun", "commit overrun", "dropped events"];
        let lost = self.processors().map(|processor| {
            let text = proc::read(processor.join("stats")).unwrap_or_default();
            kinds.iter().filter_map(|kind| proc::field(&text, kind)).sum::<u64>()
        });
        lost.sum()
    }

    /// Returns the directories of the processors, whose numbers may have gaps.
    pub(super) fn processors(&self) -> impl Iterator<Item = PathBuf> + use<> {
        proc::entries(self.path.join("per_cpu"))
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
    let orphaned = proc::entries(tracefs.root().join("instances")).filter(|path| {
        let creator = path.file_name().and_then(|name| creator(name.to_str()?));
        // A process that cannot be inspected may be the creator.
        creator.is_some_and(|(pid, started)| start_time(pid).is_ok_and(|it| it != Some(started)))
    });
    orphaned.filter(|path| std::fs::remove_dir(path).is_ok()).count()
}

/// Parses the ID and start time of the creator from an instance's name.
fn creator(name: &str) -> Option<(u32, u64)> {
    let mut numbers = name.strip_prefix(PREFIX)?.split('-');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// Returns the start time of a process, in clock ticks since boot: word 22 of its stat file, which
/// is the 20th after the name; `None` if it has ended.
fn start_time(pid: u32) -> Result<Option<u64>, Uninspectable> {
    let read = move |deadline| inspector_client::text(Query::Stat, pid, deadline);
    let text = inspect(pid, WAIT_MAX, read)?.map_err(|_late| Uninspectable)?;
    let start = |text: String| text.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok();
    Ok(text.and_then(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_found_after_a_gap_of_their_numbers() {
        let directory = tempfile::tempdir().unwrap();
        let instance = Instance { path: directory.path().join("instance") };
        for (number, lost) in [(0, 1), (3, 20)] {
            let processor = instance.path.join(format!("per_cpu/cpu{number}"));
            std::fs::create_dir_all(&processor).unwrap();
            let stats = format!("entries: 5\noverrun: {lost}\ndropped events: 300\n");
            std::fs::write(processor.join("stats"), stats).unwrap();
        }
        assert_eq!(instance.processors().count(), 2);
        assert_eq!(instance.lost(), 621);
    }

    #[test]
    fn the_maker_is_in_the_name() {
        assert_eq!(creator("larder-12-345-0"), Some((12, 345)));
        assert_eq!(creator("larder-x-1-0"), None);
        assert_eq!(creator("trace-cmd"), None);
        assert!(start_time(std::process::id()).unwrap().is_some_and(|ticks| ticks > 0));
        assert_eq!(start_time(u32::MAX), Ok(None));
        let blocked = crate::inspect::tests::block(std::process::id());
        assert_eq!(start_time(std::process::id()), Err(Uninspectable));
        drop(blocked);
    }
}
