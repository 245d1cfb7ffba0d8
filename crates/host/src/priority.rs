//! Thread priority: nice value, scheduling policy and I/O priority.
//!
//! Invariants: all functions act on the calling thread, and threads that it starts inherit its
//! priority; restoring or dropping [`PriorityGuard`] undoes what [`PriorityChange::apply`] changed.

use crate::syscall;
use rustix::process::{getpriority_process, setpriority_process};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Number of bits below the class in an I/O priority; the level is in the lowest of them.
const CLASS_SHIFT: i32 = 13;
/// Bits of an I/O priority that hold its level. Newer kernels store hints between level and class;
/// Larder sets none.
const IO_LEVEL: i32 = 7;

/// A class of priorities: its name, its number in the kernel, and its levels, 0 if it has none.
type Class = (&'static str, i32, RangeInclusive<i32>);

/// Scheduling policies; the levels are real-time priorities (sched(7)).
const POLICIES: &[Class] = &[
    ("other", libc::SCHED_OTHER, 0..=0),
    ("batch", libc::SCHED_BATCH, 0..=0),
    ("idle", libc::SCHED_IDLE, 0..=0),
    ("fifo", libc::SCHED_FIFO, 1..=99),
    ("rr", libc::SCHED_RR, 1..=99),
];
/// Classes of I/O priorities (`ioprio_set(2)`).
const IO_CLASSES: &[Class] = &[
    ("none", 0, 0..=0),
    ("realtime", 1, 0..=IO_LEVEL),
    ("best-effort", 2, 0..=IO_LEVEL),
    ("idle", 3, 0..=0),
];

/// Parses a name, with a level if the class has levels; returns the number and the level.
fn parse(classes: &[Class], text: &str) -> Option<(i32, i32)> {
    let (name, level) = match text.split_once(':') {
        Some((name, level)) => (name.trim(), Some(level.trim().parse().ok()?)),
        None => (text, None),
    };
    let (_, number, levels) = classes.iter().find(|(known, ..)| *known == name)?;
    let is_valid = level.is_some() == (*levels != (0..=0)) && levels.contains(&level.unwrap_or(0));
    is_valid.then_some((*number, level.unwrap_or(0)))
}

/// Writes a name as [`parse`] reads it; the number in place of the name if it has none.
fn write(
    out: &mut fmt::Formatter<'_>,
    classes: &[Class],
    (number, level): (i32, i32),
) -> fmt::Result {
    match classes.iter().find(|(_, known, _)| *known == number) {
        Some((name, _, levels)) if *levels == (0..=0) => out.write_str(name),
        Some((name, ..)) => write!(out, "{name}:{level}"),
        None => write!(out, "{number}:{level}"),
    }
}

/// A scheduling policy (sched(7)) with its real-time priority, such as `batch` or `fifo:1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    number: i32,
    priority: i32,
}

/// An I/O priority, such as `none`, which derives it from the nice value, or `best-effort:7`; level
/// 0 is the first. Only some I/O schedulers use it: bfq uses class and level, mq-deadline the
/// class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoPriority {
    class: i32,
    level: i32,
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

/// An error changing a priority: a sentence that can follow "cannot".
#[derive(Debug, thiserror::Error)]
#[error("set {setting}: {source}")]
pub struct PriorityError {
    setting: String,
    source: io::Error,
}

impl fmt::Display for Policy {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(out, POLICIES, (self.number, self.priority))
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, priority) = parse(POLICIES, text).ok_or_else(|| {
            format!(
                "\"{text}\" is no scheduling policy; one of other, batch, idle, fifo:1 to \
                 fifo:99, rr:1 to rr:99"
            )
        })?;
        Ok(Policy { number, priority })
    }
}

impl IoPriority {
    fn number(self) -> i32 {
        self.class << CLASS_SHIFT | self.level
    }

    fn from_number(number: i32) -> IoPriority {
        let (class, level) = (number >> CLASS_SHIFT, number & IO_LEVEL);
        match IO_CLASSES.iter().find(|(_, known, _)| *known == class) {
            Some((.., levels)) => IoPriority { class, level: level.min(*levels.end()) },
            None => IoPriority { class: 0, level: 0 },
        }
    }
}

impl fmt::Display for IoPriority {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(out, IO_CLASSES, (self.class, self.level))
    }
}

impl FromStr for IoPriority {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (class, level) = parse(IO_CLASSES, text).ok_or_else(|| {
            format!(
                "\"{text}\" is no I/O priority; one of none, idle, best-effort:0 to \
                 best-effort:7, realtime:0 to realtime:7"
            )
        })?;
        Ok(IoPriority { class, level })
    }
}

impl Priority {
    /// Reads the priority of the calling thread.
    ///
    /// # Errors
    /// The kernel does not report it.
    pub fn now() -> io::Result<Priority> {
        let (number, priority) = syscall::scheduling()?;
        Ok(Priority {
            nice: getpriority_process(None)?,
            policy: Policy { number, priority },
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
    pub fn apply(&self) -> Result<PriorityGuard, PriorityError> {
        let failed = |setting: &str| {
            let setting = setting.to_owned();
            move |source| PriorityError { setting, source }
        };
        let before = Priority::now().map_err(failed("the priority of this process"))?;
        let changed =
            PriorityGuard { before, requested: *self, restored: false, not_send: PhantomData };
        if let Some(nice) = self.nice {
            let setting = format!("the nice value to {nice}");
            setpriority_process(None, nice).map_err(|error| failed(&setting)(error.into()))?;
        }
        if let Some(policy) = self.policy {
            let setting = format!("the scheduling policy to {policy}");
            syscall::set_scheduling(policy.number, policy.priority).map_err(failed(&setting))?;
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
pub struct PriorityGuard {
    before: Priority,
    requested: PriorityChange,
    restored: bool,
    /// Makes the type `!Send`: another thread would change its own priority.
    not_send: PhantomData<*const ()>,
}

impl PriorityGuard {
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

impl Drop for PriorityGuard {
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
    fn what_has_no_level_has_none_in_the_kernel() {
        for (number, expected) in [
            (4, "none"),
            (3 << 13 | 4, "idle"),
            (2 << 13 | 0x1ff8, "best-effort:0"),
            (7 << 13 | 2, "none"),
        ] {
            assert_eq!(IoPriority::from_number(number).to_string(), expected);
        }
    }

    #[test]
    fn what_is_set_is_inherited_and_goes_back() {
        let thread = std::thread::spawn(|| {
            let before = Priority::now().unwrap();
            let batch: Policy = "batch".parse().unwrap();
            let io: IoPriority = "best-effort:6".parse().unwrap();
            let nice = Some(before.nice.max(0));
            let requested = PriorityChange { nice, policy: Some(batch), io: Some(io) };
            let changed = requested.apply().unwrap();
            let inherited = std::thread::spawn(|| Priority::now().unwrap()).join().unwrap();
            assert_eq!((inherited.policy, inherited.io), (batch, io));
            changed.restore().unwrap();
            assert_eq!(Priority::now().unwrap(), before);
            // Dropping the value restores the priority as well.
            let idle = PriorityChange { io: "idle".parse().ok(), ..PriorityChange::default() };
            drop(idle.apply().unwrap());
            assert_eq!(Priority::now().unwrap(), before);
        });
        thread.join().unwrap();
    }

    #[test]
    fn what_the_kernel_refuses_changes_nothing() {
        let before = Priority::now().unwrap();
        let requested = PriorityChange {
            io: "best-effort:5".parse().ok(),
            policy: Some(Policy { number: 77, priority: 0 }),
            ..PriorityChange::default()
        };
        let error = requested.apply().unwrap_err().to_string();
        assert!(error.starts_with("set the scheduling policy to 77:0: "), "{error}");
        assert_eq!(Priority::now().unwrap(), before);
    }
}
