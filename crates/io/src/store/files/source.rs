//! A file of a directory behind the cache: its descriptors, its size and times as users of the
//! mount see them, and the location of its data in the store.
//!
//! Invariants: the size is at least as new as the directory's; bytes behind it are never written to
//! the directory. Times that the directory gets only because data is written late are never shown:
//! the cache sets them to those of the write(2) that brought the data.

mod access;
mod pages;
mod refusal;
mod rights;
mod segments;
mod times;

pub(crate) use pages::{CoveredRange, WriteInFlight};
pub(crate) use refusal::is_some_device_full;
pub(crate) use times::FsyncGuard;

use larder_core::counters::{Class, Classes};
use pages::Pages;
use rights::Rights;
pub(crate) use rights::is_capabilities;
use rustix::fs::Stat;
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// `STATX_DIOALIGN` of linux/stat.h, which requests the alignment for direct I/O.
const DIO_ALIGN: u32 = 0x2000;
/// Alignment that is assumed if the file system reports none.
const ALIGN: u64 = 512;

/// Seconds since 1970, and nanoseconds.
type Time = (i64, i64);

const SECOND: i64 = 1_000_000_000;

/// The latest time, in nanoseconds, that the directory's file system is known to have recorded.
static LATEST_TIME: AtomicI64 = AtomicI64::new(0);

/// Returns the current time as a file system would record it: by the clock that advances with the
/// ticks of the kernel, or the latest time that the file system has recorded, if that is later. So
/// a later change never gets an older time than an earlier one, whether the time is recorded here
/// or in the directory.
fn now() -> Time {
    let coarse = clock_gettime(ClockId::RealtimeCoarse);
    let coarse = nanos_of((coarse.tv_sec, coarse.tv_nsec));
    let now = coarse.max(LATEST_TIME.load(Ordering::Acquire));
    (now.div_euclid(SECOND), now.rem_euclid(SECOND))
}

/// Records a time that the directory's file system has recorded, unless it lies in the future.
fn note_time(time: Time) {
    let time = nanos_of(time);
    if time > LATEST_TIME.load(Ordering::Relaxed) {
        let now = clock_gettime(ClockId::Realtime);
        if time <= nanos_of((now.tv_sec, now.tv_nsec)) {
            LATEST_TIME.fetch_max(time, Ordering::AcqRel);
        }
    }
}

fn nanos_of((seconds, nanos): Time) -> i64 {
    seconds.saturating_mul(SECOND).saturating_add(nanos)
}

fn mtime_of(stat: &Stat) -> Time {
    (stat.st_mtime, i64::try_from(stat.st_mtime_nsec).unwrap_or(0))
}

fn ctime_of(stat: &Stat) -> Time {
    (stat.st_ctime, i64::try_from(stat.st_ctime_nsec).unwrap_or(0))
}

fn size_of(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// Returns a path that leads to an open file, for calls that take no descriptor.
pub(crate) fn link_to(file: impl AsFd) -> String {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}

/// A change of the file in the directory that waits until no operation on it is in flight in the
/// store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PendingChange {
    /// The file stays unchanged, and its cached data is dropped.
    Forget,
    /// The file is truncated, unless it has been written through the mount since its number of
    /// writes was `writes`.
    Truncate { size: u64, writes: u64 },
    /// As for `Forget`, on the same condition.
    Renew(u64),
}

/// Descriptors for data; opened when they are needed.
#[derive(Debug, Default)]
struct Access {
    direct: Option<Arc<OwnedFd>>,
    buffered: Option<Arc<OwnedFd>>,
    /// True if they are open for writing, too.
    direct_writes: bool,
    buffered_writes: bool,
    /// 0 if direct I/O does not work.
    align: Option<u64>,
}

/// The times of the file, and those that the directory had after the last change by this process.
#[derive(Debug, Default)]
struct FileMetadata {
    /// True if the size is larger than the directory's because of unwritten data.
    grown: bool,
    mtime: Option<Time>,
    ctime: Option<Time>,
    settled_mtime: Option<Time>,
    settled_ctime: Option<Time>,
    /// Number of writes to the file in the directory that are in flight.
    writing: u32,
    /// True if another process has changed the file: its cached data is outdated.
    stale: bool,
}

#[derive(Debug)]
pub(crate) struct SourceFile {
    /// Descriptor that identifies the file; data cannot be read or written through it.
    path: OwnedFd,
    access: Mutex<Access>,
    size: AtomicU64,
    meta: Mutex<FileMetadata>,
    /// The segment of its first bytes, plus one; 0 if it has none.
    first_segment: AtomicU32,
    /// The other segments, by number. The holder of this lock also determines the section.
    other_segments: Mutex<BTreeMap<u64, u32>>,
    /// Section of the segments: files of one rule have a separate store.
    section: AtomicUsize,
    /// Number of openings so far.
    openings: AtomicU64,
    /// True if the file was renamed, and moves to another section when no process has it open.
    move_pending: AtomicBool,
    /// Number of bytes that are pinned in the cache, from the start of the file.
    pinned: AtomicU64,
    /// True if no process can read the file any more: its data need not be written.
    dead: AtomicBool,
    /// The last error of a late write, for the next close of the file.
    late_error: Mutex<Option<Errno>>,
    /// Error of the last failed write, until a flush succeeds.
    failure: Mutex<Option<Errno>>,
    /// Time until which writes are refused, in milliseconds of the clock in `refusal.rs`; or 0.
    refused_until_ms: AtomicU64,
    /// Error of a failed fsync(2): the lost data is unknown, so all later ones fail too.
    flush_failed: Mutex<Option<Errno>>,
    pending_change: Mutex<PendingChange>,
    /// Held while the file as a whole is changed.
    changing: Mutex<()>,
    written: AtomicBool,
    /// Numbers of writes that have begun to enter the cache, and of those that have ended.
    writes_begun: AtomicU64,
    writes_ended: AtomicU64,
    /// True if other processes have changed the file since it was last opened.
    changed_by_others: AtomicBool,
    /// Number of begun writes when the state of the directory was last adopted.
    writes_adopted: AtomicU64,
    /// Time of the last check for changes by others, in nanoseconds of the engine's clock.
    checked_at: AtomicU64,
    /// Number of fsync(2) calls in flight, for which flushes must also make metadata stable.
    fsyncs_in_flight: AtomicUsize,
    /// Number of times that it is open now.
    open_count: AtomicUsize,
    /// End of the part of the file that may be in the cache.
    cached_end: AtomicU64,
    /// Alignment that direct I/O by users of the file needs, plus one; 0 if unknown.
    alignment: AtomicU32,
    /// Rights that the file gives to programs executed from it.
    rights: Rights,
    /// Pages of the file in the kernel's page cache.
    pages: Pages,
    /// True if it can be opened again whatever its mode becomes.
    reopens: bool,
    /// Numbers of requests by the result of the cache, in the order of [`Class::ALL`].
    requests: [AtomicU32; Class::ALL.len()],
}

/// Attributes for a reply to stat(2).
#[derive(Debug)]
pub(crate) struct Attributes {
    pub(crate) stat: Stat,
    pub(crate) size: u64,
    grown: bool,
    pub(crate) mtime: Time,
    pub(crate) ctime: Time,
}

impl Attributes {
    /// Returns the number of allocated blocks of 512 bytes; unwritten data counts as if it were
    /// written.
    pub(crate) fn blocks(&self) -> u64 {
        let blocks = u64::try_from(self.stat.st_blocks).unwrap_or(0);
        if self.grown { blocks.max(self.size.div_ceil(512)) } else { blocks }
    }
}

impl SourceFile {
    /// Creates the file of a section that `path`, opened with `O_PATH`, identifies. `reopens` is
    /// true if this process may open it whatever its mode becomes, as root may.
    pub(crate) fn new(path: OwnedFd, section: usize, reopens: bool) -> Self {
        SourceFile {
            path,
            access: Mutex::default(),
            size: AtomicU64::new(0),
            meta: Mutex::default(),
            first_segment: AtomicU32::new(0),
            other_segments: Mutex::default(),
            section: AtomicUsize::new(section),
            openings: AtomicU64::new(0),
            move_pending: AtomicBool::new(false),
            pinned: AtomicU64::new(0),
            dead: AtomicBool::new(false),
            late_error: Mutex::new(None),
            failure: Mutex::new(None),
            refused_until_ms: AtomicU64::new(0),
            flush_failed: Mutex::new(None),
            pending_change: Mutex::new(PendingChange::Forget),
            changing: Mutex::new(()),
            written: AtomicBool::new(false),
            writes_begun: AtomicU64::new(0),
            writes_ended: AtomicU64::new(0),
            changed_by_others: AtomicBool::new(false),
            writes_adopted: AtomicU64::new(0),
            checked_at: AtomicU64::new(0),
            fsyncs_in_flight: AtomicUsize::new(0),
            open_count: AtomicUsize::new(0),
            cached_end: AtomicU64::new(0),
            alignment: AtomicU32::new(0),
            rights: Rights::default(),
            pages: Pages::default(),
            reopens,
            requests: [const { AtomicU32::new(0) }; Class::ALL.len()],
        }
    }

    /// Returns the descriptor that identifies the file.
    pub(crate) fn path(&self) -> BorrowedFd<'_> {
        self.path.as_fd()
    }

    /// Replaces that descriptor by another one of the same inode, if dup3(2) succeeds.
    pub(crate) fn set_path(&self, path: &OwnedFd) {
        let (from, to) = (path.as_raw_fd(), self.path.as_raw_fd());
        // SAFETY: `self.path` owns `to` and stays open; a thread that uses the number meanwhile
        // reaches the same inode by the old description or by the new one.
        let copied = unsafe { libc::dup3(from, to, libc::O_CLOEXEC) };
        debug_assert_eq!(copied, to, "both descriptors are open");
    }

    /// Returns a path that leads to the file, for calls that take no descriptor.
    pub(crate) fn link(&self) -> String {
        link_to(&self.path)
    }

    /// Returns the path of the file in the directory, for messages.
    pub(crate) fn name(&self) -> String {
        let found = rustix::fs::readlink(self.link(), Vec::new());
        found.map_or_else(|_| "a file".into(), |name| name.to_string_lossy().into_owned())
    }

    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    pub(crate) fn opened(&self) {
        // The lock prevents a thread that found the file closed from moving it after this.
        let _section_stays = self.other_segments.lock().expect("no holder panics");
        self.openings.fetch_add(1, Ordering::AcqRel);
        if self.open_count.fetch_add(1, Ordering::AcqRel) == 0 {
            self.forget_pages();
        }
    }

    /// Returns the number of openings so far.
    pub(crate) fn openings(&self) -> u64 {
        self.openings.load(Ordering::Acquire)
    }

    /// Returns the number of pinned bytes from the start. Only a holder of [`SourceFile::change`]
    /// changes it.
    pub(crate) fn pinned(&self) -> u64 {
        self.pinned.load(Ordering::Acquire)
    }

    /// Sets the number of pinned bytes from the start.
    pub(crate) fn set_pinned(&self, end: u64) {
        self.pinned.store(end, Ordering::Release);
    }

    /// Records a close; returns true if the file is not open any more.
    pub(crate) fn closed(&self) -> bool {
        self.open_count.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Records that the file is not open any more, after the end of the mount; returns true if it
    /// was.
    pub(crate) fn close_all(&self) -> bool {
        self.open_count.swap(0, Ordering::AcqRel) > 0
    }

    pub(crate) fn is_open(&self) -> bool {
        self.open_count.load(Ordering::Acquire) > 0
    }

    /// Closes the descriptors for data if no process has the file open and they can be opened
    /// again.
    pub(crate) fn rest(&self) {
        if self.reopens && !self.is_open() {
            self.close_data();
        }
    }

    /// Returns the end of the part of the file that may be in the cache.
    pub(crate) fn reach(&self) -> u64 {
        self.cached_end.load(Ordering::Acquire)
    }

    /// Records that bytes up to `end` may enter the cache.
    pub(crate) fn note_reach(&self, end: u64) {
        if end > self.cached_end.load(Ordering::Relaxed) {
            self.cached_end.fetch_max(end, Ordering::AcqRel);
        }
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Records that data of the file need not be written any more.
    pub(crate) fn die(&self) {
        self.dead.store(true, Ordering::Release);
    }

    /// Plans a change for the time when no operation is in flight.
    pub(crate) fn plan(&self, change: PendingChange) {
        *self.pending_change.lock().expect("no holder panics") = change;
    }

    pub(super) fn take_pending_change(&self) -> PendingChange {
        std::mem::replace(
            &mut *self.pending_change.lock().expect("no holder panics"),
            PendingChange::Forget,
        )
    }

    /// Counts a request by the worst class of its pages.
    pub(crate) fn count(&self, classes: Classes) {
        let index =
            classes.worst().and_then(|worst| Class::ALL.iter().position(|class| *class == worst));
        if let Some(index) = index {
            self.requests[index].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the numbers of requests since the cache knows the file, by class.
    pub(crate) fn requests(&self) -> Vec<(Class, u64)> {
        let counts = self.requests.iter().map(|count| u64::from(count.load(Ordering::Relaxed)));
        Class::ALL.into_iter().zip(counts).collect()
    }

    pub(crate) fn opens(&self) -> usize {
        self.open_count.load(Ordering::Acquire)
    }
}
