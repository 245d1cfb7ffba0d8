//! Thread priority: nice value, scheduling policy and I/O priority.
//!
//! Invariants: all functions act on the calling thread, and threads that it starts inherit its
//! priority; restoring or dropping [`Changed`] undoes what [`PriorityChange::apply`] changed.

use crate::syscall;
use rustix::process::{getpriority_process, setpriority_process};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Real-time priorities of Linux (sched(7)).
const REAL_TIME_PRIORITIES: RangeInclusive<i32> = 1..=99;
/// Levels of an I/O priority (`ioprio_set(2)`).
const IO_LEVELS: RangeInclusive<i32> = 0..=7;
/// Number of bits below the class in an I/O priority; the level is in the lowest of them.
const CLASS_SHIFT: i32 = 13;

/// A scheduling policy (sched(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The default policy.
    Other,
    /// Policy for batch work.
    Batch,
    /// Policy for work that runs only while the processor is otherwise idle.
    Idle,
    /// Real time, without time slices; 1 to 99.
    Fifo(i32),
    /// Real time, with time slices; 1 to 99.
    RoundRobin(i32),
    /// A policy that this enum does not name, by its number and priority.
    Another(i32, i32),
}

/// An I/O priority. Only some I/O schedulers use it: bfq uses class and level, mq-deadline the
/// class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoPriority {
    /// Derived from the nice value.
    None,
    /// Before all other classes; 0 (first) to 7.
    RealTime(i32),
    /// The default class; 0 (first) to 7.
    BestEffort(i32),
    /// Only while the disk is otherwise idle.
    Idle,
}

/// The priority of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority {
    /// From -20 (first) to 19.
    pub nice: i32,
    /// Its scheduling policy.
    pub policy: Policy,
    /// Its I/O priority.
    pub io: IoPriority,
}

/// A requested change of priority; a field that is `None` stays unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PriorityChange {
    /// From -20 (first) to 19.
    pub nice: Option<i32>,
    /// The scheduling policy.
    pub policy: Option<Policy>,
    /// The I/O priority.
    pub io: Option<IoPriority>,
}

/// An error changing a priority: a sentence that can follow "failed to".
#[derive(Debug, thiserror::Error)]
#[error("set {setting}: {source}")]
pub struct PriorityError {
    setting: String,
    source: io::Error,
}

impl Policy {
    fn numbers(self) -> (i32, i32) {
        match self {
            Policy::Other => (libc::SCHED_OTHER, 0),
            Policy::Batch => (libc::SCHED_BATCH, 0),
            Policy::Idle => (libc::SCHED_IDLE, 0),
            Policy::Fifo(priority) => (libc::SCHED_FIFO, priority),
            Policy::RoundRobin(priority) => (libc::SCHED_RR, priority),
            Policy::Another(policy, priority) => (policy, priority),
        }
    }

    fn from_numbers((policy, priority): (i32, i32)) -> Policy {
        match policy {
            libc::SCHED_OTHER => Policy::Other,
            libc::SCHED_BATCH => Policy::Batch,
            libc::SCHED_IDLE => Policy::Idle,
            libc::SCHED_FIFO => Policy::Fifo(priority),
            libc::SCHED_RR => Policy::RoundRobin(priority),
            other => Policy::Another(other, priority),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Policy::Other => out.write_str("other"),
            Policy::Batch => out.write_str("batch"),
            Policy::Idle => out.write_str("idle"),
            Policy::Fifo(priority) => write!(out, "fifo:{priority}"),
            Policy::RoundRobin(priority) => write!(out, "rr:{priority}"),
            Policy::Another(policy, priority) => write!(out, "{policy}:{priority}"),
        }
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbered = text.split_once(':').and_then(|(name, number)| {
            let number: i32 =
                number.trim().parse().ok().filter(|it| REAL_TIME_PRIORITIES.contains(it))?;
            Some((name.trim(), number))
        });
        match (text, numbered) {
            ("other", _) => Ok(Policy::Other),
            ("batch", _) => Ok(Policy::Batch),
            ("idle", _) => Ok(Policy::Idle),
            (_, Some(("fifo", priority))) => Ok(Policy::Fifo(priority)),
            (_, Some(("rr", priority))) => Ok(Policy::RoundRobin(priority)),
            _ => Err(format!(
                "\"{text}\" is no scheduling policy; one of other, batch, idle, fifo:1 to \
                 fifo:99, rr:1 to rr:99"
            )),
        }
    }
}

impl IoPriority {
    fn number(self) -> i32 {
        let (class, level) = match self {
            IoPriority::None => (0, 0),
            IoPriority::RealTime(level) => (1, level),
            IoPriority::BestEffort(level) => (2, level),
            IoPriority::Idle => (3, 0),
        };
        class << CLASS_SHIFT | level
    }

    fn from_number(number: i32) -> IoPriority {
        // Newer kernels store hints between level and class; Larder sets none.
        let level = number & IO_LEVELS.end();
        match number >> CLASS_SHIFT {
            1 => IoPriority::RealTime(level),
            2 => IoPriority::BestEffort(level),
            3 => IoPriority::Idle,
            _ => IoPriority::None,
        }
    }
}

impl fmt::Display for IoPriority {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IoPriority::None => out.write_str("none"),
            IoPriority::RealTime(level) => write!(out, "realtime:{level}"),
            IoPriority::BestEffort(level) => write!(out, "best-effort:{level}"),
            IoPriority::Idle => out.write_str("idle"),
        }
    }
}

impl FromStr for IoPriority {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let levelled = text.split_once(':').and_then(|(name, level)| {
            let level: i32 = level.trim().parse().ok().filter(|it| IO_LEVELS.contains(it))?;
            Some((name.trim(), level))
        });
        match (text, levelled) {
            ("none", _) => Ok(IoPriority::None),
            ("idle", _) => Ok(IoPriority::Idle),
            (_, Some(("realtime", level))) => Ok(IoPriority::RealTime(level)),
            (_, Some(("best-effort", level))) => Ok(IoPriority::BestEffort(level)),
            _ => Err(format!(
                "\"{text}\" is no I/O priority; one of none, idle, best-effort:0 to \
                 best-effort:7, realtime:0 to realtime:7"
            )),
        }
    }
}

impl Priority {
    /// Reads the priority of the calling thread.
    ///
    /// # Errors
    /// The kernel does not report it.
    pub fn now() -> io::Result<Priority> {
        Ok(Priority {
            nice: getpriority_process(None)?,
            policy: Policy::from_numbers(syscall::scheduling()?),
            io: IoPriority::from_number(syscall::io_priority()?),
        })
    }

    /// Returns the priority as named settings.
    #[must_use]
    pub fn named(&self) -> BTreeMap<String, String> {
        [
            ("process.nice".to_owned(), self.nice.to_string()),
            ("process.policy".to_owned(), self.policy.to_string()),
            ("process.io_priority".to_owned(), self.io.to_string()),
        ]
        .into()
    }
}

impl PriorityChange {
    /// Sets the requested values for the calling thread.
    ///
    /// # Errors
    /// The kernel refuses; values that were already set are restored.
    pub fn apply(&self) -> Result<Changed, PriorityError> {
        let failed = |setting: &str| {
            let setting = setting.to_owned();
            move |source| PriorityError { setting, source }
        };
        let before = Priority::now().map_err(failed("the priority of this process"))?;
        let changed = Changed { before, requested: *self, restored: false, not_send: PhantomData };
        if let Some(nice) = self.nice {
            let setting = format!("the nice value to {nice}");
            setpriority_process(None, nice).map_err(|error| failed(&setting)(error.into()))?;
        }
        if let Some(policy) = self.policy {
            let (number, priority) = policy.numbers();
            let setting = format!("the scheduling policy to {policy}");
            syscall::set_scheduling(number, priority).map_err(failed(&setting))?;
        }
        if let Some(io) = self.io {
            let setting = format!("the I/O priority to {io}");
            syscall::set_io_priority(io.number()).map_err(failed(&setting))?;
        }
        Ok(changed)
    }
}

/// A changed priority, until the thread that changed it restores or drops it.
#[derive(Debug)]
pub struct Changed {
    before: Priority,
    requested: PriorityChange,
    restored: bool,
    /// Makes the type `!Send`: another thread would change its own priority.
    not_send: PhantomData<*const ()>,
}

impl Changed {
    /// Restores the previous priority.
    ///
    /// # Errors
    /// The kernel refuses: to lower the nice value again, the process needs a privilege that it may
    /// lack.
    pub fn restore(mut self) -> Result<(), PriorityError> {
        self.restore_once()
    }

    fn restore_once(&mut self) -> Result<(), PriorityError> {
        if std::mem::replace(&mut self.restored, true) {
            return Ok(());
        }
        let before = PriorityChange {
            nice: self.requested.nice.map(|_| self.before.nice),
            policy: self.requested.policy.map(|_| self.before.policy),
            io: self.requested.io.map(|_| self.before.io),
        };
        before.apply().map(|mut changed| changed.restored = true)
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        // After an error or a panic the destructor cannot report a failure; the thread ends soon.
        drop(self.restore_once());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for text in ["other", "batch", "idle", "fifo:1", "rr:99"] {
            assert_eq!(text.parse::<Policy>().unwrap().to_string(), text);
        }
        for text in ["none", "idle", "best-effort:7", "realtime:0"] {
            let priority: IoPriority = text.parse().unwrap();
            assert_eq!(priority.to_string(), text);
            assert_eq!(IoPriority::from_number(priority.number()), priority);
        }
        for wrong in ["", "fifo", "fifo:0", "rr:100", "batch:1", "BATCH"] {
            assert!(wrong.parse::<Policy>().unwrap_err().contains("no scheduling policy"));
        }
        for wrong in ["", "best-effort", "realtime:8", "idle:1", "realtime:-1"] {
            assert!(wrong.parse::<IoPriority>().unwrap_err().contains("no I/O priority"));
        }
    }

    #[test]
    fn what_is_set_is_inherited_and_goes_back() {
        let thread = std::thread::spawn(|| {
            let before = Priority::now().unwrap();
            let requested = PriorityChange {
                nice: Some(before.nice.max(0)),
                policy: Some(Policy::Batch),
                io: Some(IoPriority::BestEffort(6)),
            };
            let changed = requested.apply().unwrap();
            let inherited = std::thread::spawn(|| Priority::now().unwrap()).join().unwrap();
            assert_eq!(
                (inherited.policy, inherited.io),
                (Policy::Batch, IoPriority::BestEffort(6))
            );
            changed.restore().unwrap();
            assert_eq!(Priority::now().unwrap(), before);
            // Dropping the value restores the priority as well.
            drop(
                PriorityChange { io: Some(IoPriority::Idle), ..PriorityChange::default() }
                    .apply()
                    .unwrap(),
            );
            assert_eq!(Priority::now().unwrap(), before);
        });
        thread.join().unwrap();
    }

    #[test]
    fn what_the_kernel_refuses_changes_nothing() {
        let before = Priority::now().unwrap();
        let requested = PriorityChange {
            io: Some(IoPriority::BestEffort(5)),
            policy: Some(Policy::Another(77, 0)),
            ..PriorityChange::default()
        };
        let error = requested.apply().unwrap_err().to_string();
        assert!(error.starts_with("set the scheduling policy to 77:0: "), "{error}");
        assert_eq!(Priority::now().unwrap(), before);
    }
}
