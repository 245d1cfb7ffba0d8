//! A file of a folder behind the cache: its descriptors, its size and times as they are for those
//! who use it, and where in the store its data lies.
//!
//! Invariants: the size is at least as new as the folder's; nothing behind it is ever given to the
//! folder. Times that the folder gets only because data is written late are never shown: it is
//! given those of the write(2) that brought the data.

use larder_core::counters::{Class, Classes};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, Timespec, Timestamps};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// `STATX_DIOALIGN` of linux/stat.h, which says what direct I/O must be aligned to.
const DIO_ALIGN: u32 = 0x2000;
/// What is assumed where the file system does not say.
const ALIGN: u64 = 512;

/// Seconds since 1970, and nanoseconds.
type Time = (i64, i64);

/// Nanoseconds of a second.
const SECOND: i64 = 1_000_000_000;

/// The latest time, in nanoseconds, that the folder's file system was seen to have noted.
static NOTED: AtomicI64 = AtomicI64::new(0);

/// Now, as a file system would note it: by the clock that moves with the ticks of the kernel, or as
/// finely as it has just noted something else. So a later change never gets an older time than one
/// before it, whether its time is noted here or in the folder.
fn now() -> Time {
    let coarse = clock_gettime(ClockId::RealtimeCoarse);
    let coarse = nanos_of((coarse.tv_sec, coarse.tv_nsec));
    let now = coarse.max(NOTED.load(Ordering::Acquire));
    (now.div_euclid(SECOND), now.rem_euclid(SECOND))
}

/// Takes notice of a time that the folder's file system has noted, unless it is of the future.
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

/// What the folder's file is to become once nothing of it is under way in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// It stays as it is, and what is cached is forgotten.
    Forget,
    /// It gets another length.
    Truncate(u64),
    /// As for `Forget`, if it was not written to through the mount since it had been so often.
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

/// Times, and how the folder had them when what it had was of our doing.
#[derive(Debug, Default)]
struct Meta {
    /// The size is larger than the folder's because of data that is not written yet.
    grown: bool,
    mtime: Option<Time>,
    ctime: Option<Time>,
    settled_mtime: Option<Time>,
    settled_ctime: Option<Time>,
    /// Writes that the folder's file has under way.
    writing: u32,
    /// Somebody else has changed the file: what is cached of it is old.
    stale: bool,
}

/// A file of the folder.
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
    /// A failed fsync(2): what it lost is not known, so that all later ones fail too.
    flush_failed: Mutex<Option<Errno>>,
    act: Mutex<Act>,
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
    metadata: AtomicBool,
    /// How often it is open.
    opens: AtomicUsize,
    /// Up to here something of it may be in the cache.
    reach: AtomicU64,
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
            flush_failed: Mutex::new(None),
            act: Mutex::new(Act::Forget),
            changing: Mutex::new(()),
            written: AtomicBool::new(false),
            begun: AtomicU64::new(0),
            over: AtomicU64::new(0),
            anew: AtomicBool::new(false),
            renewed: AtomicU64::new(0),
            metadata: AtomicBool::new(false),
            opens: AtomicUsize::new(0),
            reach: AtomicU64::new(0),
            reopens,
            requests: [const { AtomicU32::new(0) }; Class::ALL.len()],
        }
    }

    /// The descriptor that names it.
    pub(crate) fn path(&self) -> BorrowedFd<'_> {
        self.path.as_fd()
    }

    /// A path that leads to it, for calls that take no descriptor.
    pub(crate) fn link(&self) -> String {
        format!("/proc/self/fd/{}", self.path.as_raw_fd())
    }

    /// Where it is in the folder, for messages.
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
        self.opens.fetch_add(1, Ordering::AcqRel);
    }

    /// How often it was opened.
    pub(crate) fn openings(&self) -> u64 {
        self.openings.load(Ordering::Acquire)
    }

    /// The section that it is of.
    pub(crate) fn section(&self) -> usize {
        self.section.load(Ordering::Acquire)
    }

    /// Makes it one of another section if it is not open and was not opened since it had been so
    /// `openings` times; the segments that it had then, of which nothing may be cached.
    pub(crate) fn move_to(&self, section: usize, openings: u64) -> Option<Vec<u32>> {
        let mut more = self.more.lock().expect("no holder panics");
        if self.is_open() || self.openings() != openings {
            return None;
        }
        self.section.store(section, Ordering::Release);
        Some(self.take_from(&mut more))
    }

    /// Says that it is to be moved once nobody has it open.
    pub(crate) fn set_moves(&self) {
        self.moves.store(true, Ordering::Release);
    }

    /// It has been moved.
    pub(crate) fn has_moved(&self) {
        self.moves.store(false, Ordering::Release);
    }

    /// Whether it is to be moved once nobody has it open.
    pub(crate) fn moves(&self) -> bool {
        self.moves.load(Ordering::Acquire)
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

    fn meta(&self) -> MutexGuard<'_, Meta> {
        self.meta.lock().expect("no holder panics")
    }

    /// Looks at it.
    pub(crate) fn attributes(&self) -> Result<Attributes, Errno> {
        let meta = self.meta();
        let stat = rustix::fs::fstat(&self.path)?;
        Ok(self.seen(meta, stat))
    }

    /// The same of a file that nobody else can know yet, as `stat` has it.
    pub(crate) fn attributes_from(&self, stat: Stat) -> Attributes {
        self.seen(self.meta(), stat)
    }

    fn seen(&self, mut meta: MutexGuard<'_, Meta>, stat: Stat) -> Attributes {
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            let (mtime, ctime) = (mtime_of(&stat), ctime_of(&stat));
            return Attributes { size: size_of(&stat), grown: false, stat, mtime, ctime };
        }
        // Meanwhile its size and times are of our doing.
        if meta.writing == 0 && self.changing.try_lock().is_ok() {
            self.compare(&mut meta, &stat);
        }
        let (size, grown) = (self.size(), meta.grown);
        let mtime = meta.mtime.unwrap_or_else(|| mtime_of(&stat));
        let ctime = meta.ctime.unwrap_or_else(|| ctime_of(&stat));
        Attributes { stat, size, grown, mtime, ctime }
    }

    /// Finds out whether somebody else has changed the file.
    fn compare(&self, meta: &mut Meta, stat: &Stat) {
        let (mtime, ctime, size) = (mtime_of(stat), ctime_of(stat), size_of(stat));
        note(ctime);
        let is_known = meta.settled_mtime.is_some();
        if is_known && meta.settled_mtime != Some(mtime) {
            (meta.mtime, meta.stale) = (None, true);
        }
        if meta.settled_ctime != Some(ctime) {
            meta.ctime = None;
        }
        (meta.settled_mtime, meta.settled_ctime) = (Some(mtime), Some(ctime));
        if meta.grown {
            meta.grown = size < self.size();
        } else if size != self.size() {
            meta.stale |= is_known;
            // What is not written yet lies where the size as it was says that it is.
            if !self.may_be_dirty() {
                self.size.store(size, Ordering::Release);
            }
        }
    }

    fn may_be_dirty(&self) -> bool {
        self.begun.load(Ordering::Acquire) != self.renewed.load(Ordering::Acquire)
    }

    /// Whether somebody else has changed it and something of it may be in the cache, so that it
    /// takes a clerk to say what it is now.
    pub(crate) fn must_be_renewed(&self) -> bool {
        self.is_stale() && (self.has_segments() || self.may_be_dirty())
    }

    /// Somebody else has changed it.
    pub(crate) fn set_stale(&self) {
        let mut meta = self.meta();
        (meta.stale, meta.mtime, meta.ctime) = (true, None, None);
    }

    /// Somebody else had changed it since it was opened last, and that has been taken over.
    pub(crate) fn set_anew(&self) {
        self.anew.store(true, Ordering::Release);
    }

    /// Whether it is so; it is opened now.
    pub(crate) fn take_anew(&self) -> bool {
        self.anew.swap(false, Ordering::AcqRel)
    }

    /// How many writes have come into the cache; none while one is under way.
    pub(crate) fn writes(&self) -> Option<u64> {
        let begun = self.begun.load(Ordering::Acquire);
        (self.over.load(Ordering::Acquire) == begun).then_some(begun)
    }

    /// A write that had begun is over.
    pub(crate) fn write_over(&self) {
        self.over.fetch_add(1, Ordering::AcqRel);
    }

    /// Takes size and times as the folder has them, if no write has begun since there had been
    /// `writes`, all of which the folder has; whether that is so.
    pub(crate) fn adopt(&self, writes: u64) -> Result<bool, Errno> {
        let mut meta = self.meta();
        if self.begun.load(Ordering::Acquire) != writes {
            return Ok(false);
        }
        let stat = rustix::fs::fstat(&self.path)?;
        (meta.grown, meta.mtime, meta.ctime) = (false, None, None);
        self.size.store(size_of(&stat), Ordering::Release);
        self.settled(&mut meta, &stat);
        self.renewed.store(writes, Ordering::Release);
        Ok(true)
    }

    /// Whether somebody else has changed it.
    pub(crate) fn is_stale(&self) -> bool {
        self.meta().stale
    }

    /// The same; after this it is taken as it is.
    pub(crate) fn take_stale(&self) -> bool {
        std::mem::take(&mut self.meta().stale)
    }

    /// Bytes up to `end` are about to be written into the cache, which [`SourceFile::write_over`]
    /// ends; what the size was before.
    pub(crate) fn grow(&self, end: u64) -> u64 {
        self.written.store(true, Ordering::Release);
        let mut meta = self.meta();
        self.begun.fetch_add(1, Ordering::AcqRel);
        let now = now();
        (meta.mtime, meta.ctime) = (Some(now), Some(now));
        let size = self.size();
        if end > size {
            meta.grown = true;
            self.size.store(end, Ordering::Release);
        }
        size
    }

    /// The size is this from now on, though the folder does not know it yet.
    pub(crate) fn set_size(&self, size: u64) {
        let mut meta = self.meta();
        meta.grown = true;
        self.size.store(size, Ordering::Release);
    }

    /// What the folder says now is of our doing, size included.
    fn settle(&self) {
        let mut meta = self.meta();
        if let Ok(stat) = rustix::fs::fstat(&self.path) {
            self.settled(&mut meta, &stat);
        }
    }

    /// The times that the folder has now are right, and stay so when data is written late.
    pub(crate) fn take_times(&self) {
        let mut meta = self.meta();
        if let Ok(stat) = rustix::fs::fstat(&self.path) {
            meta.mtime = Some(mtime_of(&stat));
            meta.ctime = None;
            self.settled(&mut meta, &stat);
        }
    }

    fn settled(&self, meta: &mut Meta, stat: &Stat) {
        note(ctime_of(stat));
        (meta.settled_mtime, meta.settled_ctime) = (Some(mtime_of(stat)), Some(ctime_of(stat)));
        meta.grown &= size_of(stat) < self.size();
    }

    /// Keeps others from changing what is done to the file as a whole, until it is dropped.
    pub(crate) fn change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().expect("no holder panics")
    }

    /// Whether it was written to since it is known here.
    pub(crate) fn was_written(&self) -> bool {
        self.written.load(Ordering::Acquire)
    }

    /// The next flush makes more than data stable.
    pub(crate) fn want_metadata(&self) {
        self.metadata.store(true, Ordering::Release);
    }

    pub(super) fn take_metadata(&self) -> bool {
        self.metadata.swap(false, Ordering::AcqRel)
    }

    /// The folder is about to be given data.
    pub(super) fn write_begins(&self) {
        self.meta().writing += 1;
    }

    /// The folder has been given data, or not. When nothing is under way any more, its times are
    /// made right.
    pub(super) fn write_ended(&self, error: Option<Errno>) {
        if error.is_some() {
            *self.late.lock().expect("no holder panics") = error;
            *self.failure.lock().expect("no holder panics") = error;
        }
        let mut meta = self.meta();
        meta.writing -= 1;
        if meta.writing > 0 {
            return;
        }
        if let Some((tv_sec, tv_nsec)) = meta.mtime {
            let omit = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
            let times =
                Timestamps { last_access: omit, last_modification: Timespec { tv_sec, tv_nsec } };
            let set = rustix::fs::utimensat(&self.path, "", &times, AtFlags::EMPTY_PATH);
            if let Err(error) = set {
                tracing::warn!(file = self.name(), %error, "times could not be set");
            }
        }
        drop(meta);
        self.settle();
        self.rest();
    }

    /// The error of a late write that nobody has been told of.
    pub(crate) fn take_late(&self) -> Option<Errno> {
        self.late.lock().expect("no holder panics").take()
    }

    /// Why the last write that failed has, unless a flush has succeeded since.
    pub(crate) fn failure(&self) -> Option<Errno> {
        *self.failure.lock().expect("no holder panics")
    }

    /// Why no fsync can succeed any more, if that is so.
    pub(super) fn flush_failed(&self) -> Option<Errno> {
        *self.flush_failed.lock().expect("no holder panics")
    }

    pub(super) fn flush_ended(&self, error: Option<Errno>) {
        if let Some(error) = error {
            self.flush_failed.lock().expect("no holder panics").get_or_insert(error);
        } else {
            *self.late.lock().expect("no holder panics") = None;
            *self.failure.lock().expect("no holder panics") = None;
        }
        self.rest();
    }

    /// What is to be done once nothing is under way.
    pub(crate) fn plan(&self, act: Act) {
        *self.act.lock().expect("no holder panics") = act;
    }

    pub(super) fn take_act(&self) -> Act {
        std::mem::replace(&mut *self.act.lock().expect("no holder panics"), Act::Forget)
    }

    /// Opens the file once more.
    pub(crate) fn open(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        rustix::fs::open(self.link(), flags | OFlags::CLOEXEC, Mode::empty())
    }

    /// The same for data: for writing too where that is wanted or can be had.
    fn open_data(&self, flags: OFlags, write: bool) -> Result<OwnedFd, Errno> {
        let access = if write { OFlags::RDWR } else { OFlags::RDONLY };
        // Reading must not make the folder write down when it was read; only an owner may say so.
        match self.open(access | flags | OFlags::NOATIME) {
            Err(Errno::PERM) => self.open(access | flags),
            other => other,
        }
    }

    /// Takes a descriptor that was opened for reading and writing.
    pub(crate) fn give(&self, buffered: OwnedFd) {
        let mut access = self.access.lock().expect("no holder panics");
        (access.buffered, access.buffered_writes) = (Some(Arc::new(buffered)), true);
    }

    /// A descriptor that goes through the kernel's page cache.
    pub(crate) fn buffered(&self, write: bool) -> Result<Arc<OwnedFd>, Errno> {
        let mut access = self.access.lock().expect("no holder panics");
        if let Some(known) = access.buffered.as_ref().filter(|_| access.buffered_writes || !write) {
            return Ok(Arc::clone(known));
        }
        let opened = Arc::new(self.open_data(OFlags::empty(), write)?);
        (access.buffered, access.buffered_writes) = (Some(Arc::clone(&opened)), write);
        Ok(opened)
    }

    /// A descriptor for direct I/O, and what that must be aligned to; none where there is no such
    /// thing.
    pub(super) fn direct(&self, write: bool) -> Result<Option<(Arc<OwnedFd>, u64)>, Errno> {
        let mut access = self.access.lock().expect("no holder panics");
        if access.align == Some(0) {
            return Ok(None);
        }
        if let (Some(known), Some(align)) = (&access.direct, access.align)
            && (access.direct_writes || !write)
        {
            return Ok(Some((Arc::clone(known), align)));
        }
        let opened = match self.open_data(OFlags::DIRECT, write) {
            Ok(opened) => Arc::new(opened),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => {
                access.align = Some(0);
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let align = *access.align.get_or_insert_with(|| alignment(&opened));
        (access.direct, access.direct_writes) = (Some(Arc::clone(&opened)), write);
        Ok((align > 0).then_some((opened, align)))
    }

    /// Direct I/O does not work after all; whether that is news.
    pub(super) fn give_up_direct(&self) -> bool {
        let mut access = self.access.lock().expect("no holder panics");
        access.direct = None;
        access.align.replace(0) != Some(0)
    }

    /// Closes what was opened for data; it is opened again when it is needed.
    pub(crate) fn close_data(&self) {
        let mut access = self.access.lock().expect("no holder panics");
        (access.direct, access.buffered) = (None, None);
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

    /// Whether something of it may be in the cache.
    pub(crate) fn has_segments(&self) -> bool {
        !self.segments().is_empty()
    }

    /// The segment of this number, made by `make` if there is none.
    pub(super) fn segment_or(
        &self,
        number: u64,
        make: impl FnOnce() -> Result<u32, Errno>,
    ) -> Result<u32, Errno> {
        let mut more = self.more.lock().expect("no holder panics");
        if number > 0 {
            if let Some(&segment) = more.get(&number) {
                return Ok(segment);
            }
            let segment = make()?;
            more.insert(number, segment);
            return Ok(segment);
        }
        if let Some(segment) = self.first.load(Ordering::Acquire).checked_sub(1) {
            return Ok(segment);
        }
        let segment = make()?;
        self.first.store(segment + 1, Ordering::Release);
        Ok(segment)
    }

    /// All segments with their numbers, in order.
    pub(super) fn segments(&self) -> Vec<(u64, u32)> {
        self.placed().1
    }

    /// The same with the section that they are of.
    pub(super) fn placed(&self) -> (usize, Vec<(u64, u32)>) {
        let more = self.more.lock().expect("no holder panics");
        let first = self.first.load(Ordering::Acquire).checked_sub(1);
        let rest = more.iter().map(|(&number, &segment)| (number, segment));
        let segments = first.map(|segment| (0, segment)).into_iter().chain(rest).collect();
        (self.section(), segments)
    }

    /// Takes all segments away.
    pub(super) fn take_segments(&self) -> Vec<u32> {
        self.take_from(&mut self.more.lock().expect("no holder panics"))
    }

    fn take_from(&self, more: &mut BTreeMap<u64, u32>) -> Vec<u32> {
        let first = self.first.swap(0, Ordering::AcqRel).checked_sub(1);
        first.into_iter().chain(std::mem::take(more).into_values()).collect()
    }
}

/// What direct I/O on a file must be aligned to; 0 if there is none.
fn alignment(file: &OwnedFd) -> u64 {
    let asked = rustix::fs::StatxFlags::from_bits_retain(DIO_ALIGN);
    match rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, asked) {
        Ok(said) if said.stx_mask & DIO_ALIGN != 0 => u64::from(said.stx_dio_offset_align),
        _ => ALIGN,
    }
}
