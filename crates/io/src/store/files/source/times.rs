//! Size and times of a file as they are for those who use it, what others have changed of them, and
//! what became of writes to the directory.

use super::{Attributes, Meta, SourceFile, ctime_of, mtime_of, note, now, size_of};
use larder_core::clock::Nanos;
use rustix::fs::{AtFlags, FileType, Stat, StatxFlags, Timespec, Timestamps};
use rustix::io::Errno;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

/// An fsync(2) of a file that is not answered.
#[derive(Debug)]
pub(crate) struct MetadataWanted(Arc<SourceFile>);

impl Drop for MetadataWanted {
    fn drop(&mut self) {
        self.0.metadata.fetch_sub(1, Ordering::AcqRel);
    }
}

impl SourceFile {
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

    /// Finds out whether others have changed the file, by attributes that a network file system
    /// requests from its server now. Blocks until the server answers.
    ///
    /// The comparison gets the answer from the cache of that file system: it holds a lock, so it
    /// must not block.
    pub(crate) fn refresh(&self) -> Result<(), Errno> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
        rustix::fs::statx(&self.path, "", flags, StatxFlags::BASIC_STATS)?;
        self.attributes().map(drop)
    }

    /// Returns the time of the last check for changes by others; 0 if there was none.
    pub(crate) fn checked_at(&self) -> Nanos {
        self.checked_at.load(Ordering::Acquire)
    }

    /// Records a check for changes by others that began at `time`.
    pub(crate) fn note_check(&self, time: Nanos) {
        self.checked_at.fetch_max(time, Ordering::AcqRel);
    }

    fn seen(&self, mut meta: MutexGuard<'_, Meta>, stat: Stat) -> Attributes {
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            let (mtime, ctime) = (mtime_of(&stat), ctime_of(&stat));
            return Attributes { size: size_of(&stat), grown: false, stat, mtime, ctime };
        }
        self.note_mode(&stat);
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
            // Writing late does not move it.
            meta.ctime = Some(ctime);
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
    /// takes a blocking worker to say what it is now.
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

    /// Takes size and times as the directory has them, if no write has begun since there had been
    /// `writes`, all of which the directory has; whether that is so.
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
        self.raise(&mut meta, end)
    }

    /// The size is at least this from now on, though the directory does not know it yet.
    pub(crate) fn raise_size(&self, size: u64) {
        self.raise(&mut self.meta(), size);
    }

    /// Returns the size as it was before.
    fn raise(&self, meta: &mut Meta, end: u64) -> u64 {
        let size = self.size();
        if end > size {
            meta.grown = true;
            self.size.store(end, Ordering::Release);
        }
        size
    }

    /// The size is this from now on, though the directory does not know it yet.
    pub(crate) fn set_size(&self, size: u64) {
        let mut meta = self.meta();
        meta.grown = true;
        self.size.store(size, Ordering::Release);
        drop(meta);
        if size == 0 {
            self.end_refusal();
        }
    }

    /// What the directory says now is of our doing, size included.
    fn settle(&self, meta: &mut Meta) {
        if let Ok(stat) = rustix::fs::fstat(&self.path) {
            self.settled(meta, &stat);
        }
    }

    /// The times that the directory has now are right, and stay so when data is written late.
    pub(crate) fn take_times(&self) {
        let mut meta = self.meta();
        if let Ok(stat) = rustix::fs::fstat(&self.path) {
            (meta.mtime, meta.ctime) = (Some(mtime_of(&stat)), Some(ctime_of(&stat)));
            self.settled(&mut meta, &stat);
        }
    }

    /// The time of its last change that the directory has now is right, and stays so when data is
    /// written late.
    pub(crate) fn take_ctime(&self) {
        let mut meta = self.meta();
        if let Ok(stat) = rustix::fs::fstat(&self.path) {
            meta.ctime = Some(ctime_of(&stat));
            meta.settled_ctime = meta.ctime;
        }
    }

    fn settled(&self, meta: &mut Meta, stat: &Stat) {
        note(ctime_of(stat));
        (meta.settled_mtime, meta.settled_ctime) = (Some(mtime_of(stat)), Some(ctime_of(stat)));
        meta.grown &= size_of(stat) < self.size();
    }

    /// Keeps others from changing what is done to the file as a whole, until it is dropped.
    ///
    /// Who asks meanwhile is told the size as it was last seen, so it is looked at first: of a file
    /// that is not cached the kernel may have written more by itself.
    pub(crate) fn change(&self) -> MutexGuard<'_, ()> {
        drop(self.attributes());
        self.changing.lock().expect("no holder panics")
    }

    /// Whether it was written to since it is known here.
    pub(crate) fn was_written(&self) -> bool {
        self.written.load(Ordering::Acquire)
    }

    /// Flushes make more than data stable until what this returns is dropped.
    pub(crate) fn want_metadata(self: &Arc<Self>) -> MetadataWanted {
        self.metadata.fetch_add(1, Ordering::AcqRel);
        MetadataWanted(Arc::clone(self))
    }

    pub(in crate::store::files) fn wants_metadata(&self) -> bool {
        self.metadata.load(Ordering::Acquire) > 0
    }

    /// The directory is about to be given data.
    pub(in crate::store::files) fn write_begins(&self) {
        self.meta().writing += 1;
    }

    /// The directory has been given data, or not. When nothing is under way any more, its times are
    /// made right.
    pub(in crate::store::files) fn write_ended(&self, error: Option<Errno>) {
        if let Some(errno) = error {
            *self.late.lock().expect("no holder panics") = error;
            *self.failure.lock().expect("no holder panics") = error;
            self.begin_refusal(errno);
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
        self.settle(&mut meta);
        drop(meta);
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
    pub(in crate::store::files) fn flush_failed(&self) -> Option<Errno> {
        *self.flush_failed.lock().expect("no holder panics")
    }

    /// Records an error of fsync(2). No later fsync(2) says that earlier writes are lost, so it is
    /// final.
    pub(in crate::store::files) fn record_flush_failure(&self, error: Errno) {
        self.flush_failed.lock().expect("no holder panics").get_or_insert(error);
    }

    /// Records the end of a flush.
    pub(in crate::store::files) fn flush_ended(&self, has_succeeded: bool) {
        if has_succeeded {
            *self.late.lock().expect("no holder panics") = None;
            *self.failure.lock().expect("no holder panics") = None;
            self.end_refusal();
        }
        self.rest();
    }
}
