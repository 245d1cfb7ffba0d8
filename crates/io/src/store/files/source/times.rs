//! Size and times of a file as users of the mount see them, changes by other processes, and the
//! results of writes to the directory.

use super::{Attributes, FileMetadata, SourceFile, ctime_of, mtime_of, note_time, now, size_of};
use larder_core::clock::Nanos;
use rustix::fs::{AtFlags, FileType, Stat, StatxFlags, Timespec, Timestamps};
use rustix::io::Errno;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

/// An fsync(2) call in flight.
#[derive(Debug)]
pub(crate) struct FsyncGuard(Arc<SourceFile>);

impl Drop for FsyncGuard {
    fn drop(&mut self) {
        self.0.fsyncs_in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

impl SourceFile {
    fn meta(&self) -> MutexGuard<'_, FileMetadata> {
        self.meta.lock().expect("no holder panics")
    }

    /// Reads the attributes, and detects changes by other processes.
    pub(crate) fn attributes(&self) -> Result<Attributes, Errno> {
        let meta = self.meta();
        let stat = rustix::fs::fstat(&self.path)?;
        Ok(self.seen(meta, stat))
    }

    /// Returns the attributes of a file that no other process can know yet, as in `stat`.
    pub(crate) fn attributes_from(&self, stat: Stat) -> Attributes {
        self.seen(self.meta(), stat)
    }

    /// Detects changes by other processes, by attributes that a network file system requests from
    /// its server now. Blocks until the server replies.
    ///
    /// The comparison gets the reply from the cache of that file system: it holds a lock, so it
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

    fn seen(&self, mut meta: MutexGuard<'_, FileMetadata>, stat: Stat) -> Attributes {
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            let (mtime, ctime) = (mtime_of(&stat), ctime_of(&stat));
            return Attributes { size: size_of(&stat), grown: false, stat, mtime, ctime };
        }
        self.note_mode(&stat);
        // While this process writes or changes the file, its size and times are not compared.
        if meta.writing == 0 && self.changing.try_lock().is_ok() {
            self.compare(&mut meta, &stat);
        }
        let (size, grown) = (self.size(), meta.grown);
        let mtime = meta.mtime.unwrap_or_else(|| mtime_of(&stat));
        let ctime = meta.ctime.unwrap_or_else(|| ctime_of(&stat));
        Attributes { stat, size, grown, mtime, ctime }
    }

    /// Detects a change of the file by another process.
    fn compare(&self, meta: &mut FileMetadata, stat: &Stat) {
        let (mtime, ctime, size) = (mtime_of(stat), ctime_of(stat), size_of(stat));
        note_time(ctime);
        let is_known = meta.settled_mtime.is_some();
        if is_known && meta.settled_mtime != Some(mtime) {
            (meta.mtime, meta.stale) = (None, true);
        }
        if meta.settled_ctime != Some(ctime) {
            // A late write does not change the time that is shown.
            meta.ctime = Some(ctime);
        }
        (meta.settled_mtime, meta.settled_ctime) = (Some(mtime), Some(ctime));
        if meta.grown {
            meta.grown = size < self.size();
        } else if size != self.size() {
            meta.stale |= is_known;
            // The position of unwritten data depends on the size as it was.
            if !self.may_be_dirty() {
                self.size.store(size, Ordering::Release);
            }
        }
    }

    fn may_be_dirty(&self) -> bool {
        self.writes_begun.load(Ordering::Acquire) != self.writes_adopted.load(Ordering::Acquire)
    }

    /// Returns true if another process has changed the file and data of it may be in the cache, so
    /// that a blocking worker must determine its current state.
    pub(crate) fn must_be_renewed(&self) -> bool {
        self.is_stale() && (self.has_segments() || self.may_be_dirty())
    }

    pub(crate) fn set_stale(&self) {
        let mut meta = self.meta();
        (meta.stale, meta.mtime, meta.ctime) = (true, None, None);
    }

    /// Records that another process had changed the file since the last opening, and that the
    /// change was adopted.
    pub(crate) fn set_anew(&self) {
        self.changed_by_others.store(true, Ordering::Release);
    }

    /// Returns true if that was recorded, and clears it, since the file is opened now.
    pub(crate) fn take_anew(&self) -> bool {
        self.changed_by_others.swap(false, Ordering::AcqRel)
    }

    /// Returns the number of writes that have entered the cache; none while one is in flight.
    pub(crate) fn writes(&self) -> Option<u64> {
        let begun = self.writes_begun.load(Ordering::Acquire);
        (self.writes_ended.load(Ordering::Acquire) == begun).then_some(begun)
    }

    pub(crate) fn write_over(&self) {
        self.writes_ended.fetch_add(1, Ordering::AcqRel);
    }

    /// Adopts size and times of the directory if no write has begun since the number of writes was
    /// `writes`, all of which the directory has. Returns true if it did.
    pub(crate) fn adopt(&self, writes: u64) -> Result<bool, Errno> {
        let mut meta = self.meta();
        if self.writes_begun.load(Ordering::Acquire) != writes {
            return Ok(false);
        }
        let stat = rustix::fs::fstat(&self.path)?;
        (meta.grown, meta.mtime, meta.ctime) = (false, None, None);
        self.size.store(size_of(&stat), Ordering::Release);
        self.settled(&mut meta, &stat);
        self.writes_adopted.store(writes, Ordering::Release);
        Ok(true)
    }

    pub(crate) fn is_stale(&self) -> bool {
        self.meta().stale
    }

    /// Returns true if another process has changed the file, and clears that record.
    pub(crate) fn take_stale(&self) -> bool {
        std::mem::take(&mut self.meta().stale)
    }

    /// Records that bytes up to `end` are about to be written into the cache;
    /// [`SourceFile::write_over`] ends the write. Returns the size before it.
    pub(crate) fn grow(&self, end: u64) -> u64 {
        self.written.store(true, Ordering::Release);
        let mut meta = self.meta();
        self.writes_begun.fetch_add(1, Ordering::AcqRel);
        let now = now();
        (meta.mtime, meta.ctime) = (Some(now), Some(now));
        self.raise(&mut meta, end)
    }

    /// Raises the size to at least `size`, which the directory does not have yet.
    pub(crate) fn raise_size(&self, size: u64) {
        self.raise(&mut self.meta(), size);
    }

    /// Raises the size to at least `end`; returns the size before.
    fn raise(&self, meta: &mut FileMetadata, end: u64) -> u64 {
        let size = self.size();
        if end > size {
            meta.grown = true;
            self.size.store(end, Ordering::Release);
        }
        size
    }

    /// Sets the size, which the directory does not have yet.
    pub(crate) fn set_size(&self, size: u64) {
        let mut meta = self.meta();
        meta.grown = true;
        self.size.store(size, Ordering::Release);
        drop(meta);
        if size == 0 {
            self.end_refusal();
        }
    }

    /// Records that the directory's current attributes, size included, result from this process.
    fn settle(&self, meta: &mut FileMetadata) {
        if let Ok(stat) = rustix::fs::fstat(&self.path) {
            self.settled(meta, &stat);
        }
    }

    /// Adopts the directory's current times; late writes do not change them.
    pub(crate) fn take_times(&self) {
        let mut meta = self.meta();
        if let Ok(stat) = rustix::fs::fstat(&self.path) {
            (meta.mtime, meta.ctime) = (Some(mtime_of(&stat)), Some(ctime_of(&stat)));
            self.settled(&mut meta, &stat);
        }
    }

    /// Adopts the directory's current time of the last change; late writes do not change it.
    pub(crate) fn take_ctime(&self) {
        let mut meta = self.meta();
        if let Ok(stat) = rustix::fs::fstat(&self.path) {
            meta.ctime = Some(ctime_of(&stat));
            meta.settled_ctime = meta.ctime;
        }
    }

    fn settled(&self, meta: &mut FileMetadata, stat: &Stat) {
        note_time(ctime_of(stat));
        (meta.settled_mtime, meta.settled_ctime) = (Some(mtime_of(stat)), Some(ctime_of(stat)));
        meta.grown &= size_of(stat) < self.size();
    }

    /// Prevents other changes of the file as a whole, until the guard is dropped.
    ///
    /// Meanwhile attributes have the size that was last read, so it is read first: the kernel may
    /// have written more to a file that is not cached.
    pub(crate) fn change(&self) -> MutexGuard<'_, ()> {
        drop(self.attributes());
        self.changing.lock().expect("no holder panics")
    }

    /// Returns true if the file was written since the cache knows it.
    pub(crate) fn was_written(&self) -> bool {
        self.written.load(Ordering::Acquire)
    }

    /// Makes flushes include metadata until the returned value is dropped.
    pub(crate) fn want_metadata(self: &Arc<Self>) -> FsyncGuard {
        self.fsyncs_in_flight.fetch_add(1, Ordering::AcqRel);
        FsyncGuard(Arc::clone(self))
    }

    pub(in crate::store::files) fn wants_metadata(&self) -> bool {
        self.fsyncs_in_flight.load(Ordering::Acquire) > 0
    }

    pub(in crate::store::files) fn write_begins(&self) {
        self.meta().writing += 1;
    }

    /// Records the end of a write to the directory. If no other one is in flight, the times in the
    /// directory are corrected.
    pub(in crate::store::files) fn write_ended(&self, error: Option<Errno>) {
        if let Some(errno) = error {
            *self.late_error.lock().expect("no holder panics") = error;
            *self.failure.lock().expect("no holder panics") = error;
            self.begin_refusal(errno);
        }
        let mut meta = self.meta();
        meta.writing -= 1;
        if meta.writing > 0 {
            return;
        }
        if let Some((tv_sec, tv_nsec)) = meta.mtime {
            let unchanged = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
            let times = Timestamps {
                last_access: unchanged,
                last_modification: Timespec { tv_sec, tv_nsec },
            };
            let set = rustix::fs::utimensat(&self.path, "", &times, AtFlags::EMPTY_PATH);
            if let Err(error) = set {
                tracing::warn!(file = self.name(), %error, "times could not be set");
            }
        }
        self.settle(&mut meta);
        drop(meta);
        self.rest();
    }

    /// Returns the error of a late write that was not reported yet, and clears it.
    pub(crate) fn take_late(&self) -> Option<Errno> {
        self.late_error.lock().expect("no holder panics").take()
    }

    /// Returns the error of the last failed write, unless a flush has succeeded since.
    pub(crate) fn failure(&self) -> Option<Errno> {
        *self.failure.lock().expect("no holder panics")
    }

    /// Returns the error because of which no fsync(2) can succeed any more, if any.
    pub(in crate::store::files) fn flush_failed(&self) -> Option<Errno> {
        *self.flush_failed.lock().expect("no holder panics")
    }

    /// Records an error of fsync(2). It is final, since no later fsync(2) reports that earlier
    /// writes are lost.
    pub(in crate::store::files) fn record_flush_failure(&self, error: Errno) {
        self.flush_failed.lock().expect("no holder panics").get_or_insert(error);
    }

    pub(in crate::store::files) fn flush_ended(&self, has_succeeded: bool) {
        if has_succeeded {
            *self.late_error.lock().expect("no holder panics") = None;
            *self.failure.lock().expect("no holder panics") = None;
            self.end_refusal();
        }
        self.rest();
    }
}
