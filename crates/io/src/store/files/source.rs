//! A file of a directory behind the cache: its descriptors, its size and times as they are for those
//! who use it, and where in the store its data lies.
//!
//! Invariants: the size is at least as new as the directory's; nothing behind it is ever given to the
//! directory. Times that the directory gets only because data is written late are never shown: it is
//! given those of the write(2) that brought the data.

mod access;
mod pages;
mod refusal;
mod rights;
mod segments;
mod times;

pub(crate) use pages::{Covered, WriteUnderWay};
pub(crate) use refusal::is_some_device_full;
pub(crate) use times::MetadataWanted;

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

/// `STATX_DIOALIGN` of linux/stat.h, which says what direct I/O must be aligned to.
const DIO_ALIGN: u32 = 0x2000;
/// What is assumed where the file system does not say.
const ALIGN: u64 = 512;

/// Seconds since 1970, and nanoseconds.
type Time = (i64, i64);

/// Nanoseconds of a second.
const SECOND: i64 = 1_000_000_000;

/// The latest time, in nanoseconds, that the directory's file system was seen to have noted.
static NOTED: AtomicI64 = AtomicI64::new(0);

/// Now, as a file system would note it: by the clock that moves with the ticks of the kernel, or as
/// finely as it has just noted something else. So a later change never gets an older time than one
/// before it, whether its time is noted here or in the directory.
fn now() -> Time {
    let coarse = clock_gettime(ClockId::RealtimeCoarse);
    let coarse = nanos_of((coarse.tv_sec, coarse.tv_nsec));
    let now = coarse.max(NOTED.load(Ordering::Acquire));
    (now.div_euclid(SECOND), now.rem_euclid(SECOND))
}

/// Takes notice of a time that the directory's file system has noted, unless it is of the future.
fn note(time: Time) {
    let time = nanos_of(time);
    if time > NOTED.load(Ordering::Relaxed) {
        let now = clock_gettime(ClockId::Realtime);
        if time <= nanos_of((now.tv_sec, now.tv_nsec)) {
            NOTED.fetch_max(time, Ordering::AcqRel);
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

/// A path that leads to what is open, for calls that take no descriptor.
pub(crate) fn link_to(file: impl AsFd) -> String {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}

/// What the directory's file is to become once nothing of it is under way in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PendingChange {
    /// It stays as it is, and what is cached is forgotten.
    Forget,
    /// It becomes shorter, if it was not written to through the mount since it had been so often.
    Truncate { size: u64, writes: u64 },
    /// As for `Forget`, under the same condition.
    Renew(u64),
}

/// Descriptors for data; opened when they are needed.
#[derive(Debug, Default)]
struct Access {
    direct: Option<Arc<OwnedFd>>,
    buffered: Option<Arc<OwnedFd>>,
    /// Whether they are for writing too.
    direct_writes: bool,
    buffered_writes: bool,
    /// 0 if direct I/O does not work.
    align: Option<u64>,
}

/// Times, and how the directory had them when what it had was of our doing.
#[derive(Debug, Default)]
struct Meta {
    /// The size is larger than the directory's because of data that is not written yet.
    grown: bool,
    mtime: Option<Time>,
    ctime: Option<Time>,
    settled_mtime: Option<Time>,
    settled_ctime: Option<Time>,
    /// Writes that the directory's file has under way.
    writing: u32,
    /// Somebody else has changed the file: what is cached of it is old.
    stale: bool,
}

/// A file of the directory.
#[derive(Debug)]
pub(crate) struct SourceFile {
    /// What names it; nothing can be read or written by it.
    path: OwnedFd,
    access: Mutex<Access>,
    size: AtomicU64,
    meta: Mutex<Meta>,
    /// The segment of its first bytes, plus one; 0 if it has none.
    first: AtomicU32,
    /// Those of the rest, by number. Whoever holds it decides of the section too.
    more: Mutex<BTreeMap<u64, u32>>,
    /// Whose segments these are: files of one rule have a store of their own.
    section: AtomicUsize,
    /// How often it was opened.
    openings: AtomicU64,
    /// It was renamed and belongs to another section once nobody has it open.
    moves: AtomicBool,
    /// So much of it is pinned in the cache, from its beginning on.
    pinned: AtomicU64,
    /// Nobody can read it any more: nothing of it need be written.
    dead: AtomicBool,
    /// The last error of a late write, for whoever closes the file.
    late: Mutex<Option<Errno>>,
    /// Why the last write that failed has, until a flush has succeeded.
    failure: Mutex<Option<Errno>>,
    /// Time until which writes are refused, in milliseconds of the clock in `refusal.rs`; or 0.
    refused_until_ms: AtomicU64,
    /// A failed fsync(2): what it lost is not known, so that all later ones fail too.
    flush_failed: Mutex<Option<Errno>>,
    act: Mutex<PendingChange>,
    /// Held by whoever changes the file as a whole.
    changing: Mutex<()>,
    written: AtomicBool,
    /// Writes that have begun to come into the cache, and those that are over.
    begun: AtomicU64,
    over: AtomicU64,
    /// It is not what it was when it was opened last: others have changed it.
    anew: AtomicBool,
    /// How many had begun when it was last taken as others had left it.
    renewed: AtomicU64,
    /// Time of the last check for changes by others, in nanoseconds of the engine's clock.
    checked_at: AtomicU64,
    /// Number of fsync(2) that are not answered, which flushes have to make more than data stable
    /// for.
    metadata: AtomicUsize,
    /// How often it is open.
    opens: AtomicUsize,
    /// Up to here something of it may be in the cache.
    reach: AtomicU64,
    /// Alignment that direct I/O by users of the file needs, plus one; 0 if unknown.
    alignment: AtomicU32,
    /// Rights that the file gives to programs executed from it.
    rights: Rights,
    /// Pages of the file in the kernel's page cache.
    pages: Pages,
    /// Whether it can be opened again whatever its mode becomes.
    reopens: bool,
    /// Requests by what the cache made of them, in the order of [`Class::ALL`].
    requests: [AtomicU32; Class::ALL.len()],
}

/// What stat(2) shall say.
#[derive(Debug)]
pub(crate) struct Attributes {
    pub(crate) stat: Stat,
    pub(crate) size: u64,
    grown: bool,
    pub(crate) mtime: Time,
    pub(crate) ctime: Time,
}

impl Attributes {
    /// Blocks of 512 bytes that it takes; data that is not written yet is counted as if it were.
    pub(crate) fn blocks(&self) -> u64 {
        let has = u64::try_from(self.stat.st_blocks).unwrap_or(0);
        if self.grown { has.max(self.size.div_ceil(512)) } else { has }
    }
}

impl SourceFile {
    /// The file of a section that `path`, opened with `O_PATH`, names. `reopens` says whether this
    /// process may open it whatever its mode becomes, as root may.
    pub(crate) fn new(path: OwnedFd, section: usize, reopens: bool) -> Self {
        SourceFile {
            path,
            access: Mutex::default(),
            size: AtomicU64::new(0),
            meta: Mutex::default(),
            first: AtomicU32::new(0),
            more: Mutex::default(),
            section: AtomicUsize::new(section),
            openings: AtomicU64::new(0),
            moves: AtomicBool::new(false),
            pinned: AtomicU64::new(0),
            dead: AtomicBool::new(false),
            late: Mutex::new(None),
            failure: Mutex::new(None),
            refused_until_ms: AtomicU64::new(0),
            flush_failed: Mutex::new(None),
            act: Mutex::new(PendingChange::Forget),
            changing: Mutex::new(()),
            written: AtomicBool::new(false),
            begun: AtomicU64::new(0),
            over: AtomicU64::new(0),
            anew: AtomicBool::new(false),
            renewed: AtomicU64::new(0),
            checked_at: AtomicU64::new(0),
            metadata: AtomicUsize::new(0),
            opens: AtomicUsize::new(0),
            reach: AtomicU64::new(0),
            alignment: AtomicU32::new(0),
            rights: Rights::default(),
            pages: Pages::default(),
            reopens,
            requests: [const { AtomicU32::new(0) }; Class::ALL.len()],
        }
    }

    /// The descriptor that names it.
    pub(crate) fn path(&self) -> BorrowedFd<'_> {
        self.path.as_fd()
    }

    /// Names it by another descriptor of the same inode from now on, if dup3(2) succeeds.
    pub(crate) fn set_path(&self, path: &OwnedFd) {
        let (from, to) = (path.as_raw_fd(), self.path.as_raw_fd());
        // SAFETY: `self.path` owns `to` and stays open; a thread that uses the number meanwhile
        // reaches the same inode by the old description or by the new one.
        let copied = unsafe { libc::dup3(from, to, libc::O_CLOEXEC) };
        debug_assert_eq!(copied, to, "both descriptors are open");
    }

    /// A path that leads to it, for calls that take no descriptor.
    pub(crate) fn link(&self) -> String {
        link_to(&self.path)
    }

    /// Where it is in the directory, for messages.
    pub(crate) fn name(&self) -> String {
        let found = rustix::fs::readlink(self.link(), Vec::new());
        found.map_or_else(|_| "a file".into(), |name| name.to_string_lossy().into_owned())
    }

    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// It is open once more.
    pub(crate) fn opened(&self) {
        // Under the lock, so that nobody finds it closed and moves it after this.
        let _section_stays = self.more.lock().expect("no holder panics");
        self.openings.fetch_add(1, Ordering::AcqRel);
        if self.opens.fetch_add(1, Ordering::AcqRel) == 0 {
            self.forget_pages();
        }
    }

    /// How often it was opened.
    pub(crate) fn openings(&self) -> u64 {
        self.openings.load(Ordering::Acquire)
    }

    /// So much of it is pinned, from its beginning on. Changed by who has [`SourceFile::change`].
    pub(crate) fn pinned(&self) -> u64 {
        self.pinned.load(Ordering::Acquire)
    }

    /// So much of it is pinned from now on.
    pub(crate) fn set_pinned(&self, end: u64) {
        self.pinned.store(end, Ordering::Release);
    }

    /// It is open once less; whether it was the last time.
    pub(crate) fn closed(&self) -> bool {
        self.opens.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Records that it is not open any more, after the end of the mount; returns whether it was.
    pub(crate) fn close_all(&self) -> bool {
        self.opens.swap(0, Ordering::AcqRel) > 0
    }

    pub(crate) fn is_open(&self) -> bool {
        self.opens.load(Ordering::Acquire) > 0
    }

    /// Closes the descriptors for data if nobody has it open and they can be had again.
    pub(crate) fn rest(&self) {
        if self.reopens && !self.is_open() {
            self.close_data();
        }
    }

    /// The end of what may be in the cache of it.
    pub(crate) fn reach(&self) -> u64 {
        self.reach.load(Ordering::Acquire)
    }

    /// Something up to `end` may come into the cache.
    pub(crate) fn note_reach(&self, end: u64) {
        if end > self.reach.load(Ordering::Relaxed) {
            self.reach.fetch_max(end, Ordering::AcqRel);
        }
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Nothing of it need be written any more.
    pub(crate) fn die(&self) {
        self.dead.store(true, Ordering::Release);
    }

    /// What is to be done once nothing is under way.
    pub(crate) fn plan(&self, act: PendingChange) {
        *self.act.lock().expect("no holder panics") = act;
    }

    pub(super) fn take_act(&self) -> PendingChange {
        std::mem::replace(&mut *self.act.lock().expect("no holder panics"), PendingChange::Forget)
    }

    /// Counts a request by the worst of what the cache made of its pages.
    pub(crate) fn count(&self, classes: Classes) {
        let place =
            classes.worst().and_then(|worst| Class::ALL.iter().position(|class| *class == worst));
        if let Some(place) = place {
            self.requests[place].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Requests since it is known here, by class.
    pub(crate) fn requests(&self) -> Vec<(Class, u64)> {
        let counts = self.requests.iter().map(|count| u64::from(count.load(Ordering::Relaxed)));
        Class::ALL.into_iter().zip(counts).collect()
    }

    pub(crate) fn opens(&self) -> usize {
        self.opens.load(Ordering::Acquire)
    }
}
