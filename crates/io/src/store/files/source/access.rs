//! Descriptors for reading and writing a file, which are opened when they are needed.

use super::{ALIGN, Access, DIO_ALIGN, SourceFile};
use rustix::fs::{AtFlags, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Access {
    /// Returns the descriptor that goes through the kernel's page cache, if it is open with
    /// sufficient access.
    fn buffered_for(&self, write: bool) -> Option<&Arc<OwnedFd>> {
        self.buffered.as_ref().filter(|_| self.buffered_writes || !write)
    }
}

impl SourceFile {
    /// Opens the file once more, without waiting for other processes.
    ///
    /// # Errors
    /// `EAGAIN` while a process has a lease on the file that does not permit it (`F_SETLEASE` in
    /// fcntl(2)), for at most `/proc/sys/fs/lease-break-time`.
    pub(crate) fn open(&self, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC;
        let file = rustix::fs::open(self.link(), flags | OFlags::NONBLOCK, Mode::empty())?;
        // With `O_NONBLOCK`, io_uring would not wait for data either.
        rustix::fs::fcntl_setfl(&file, flags - OFlags::CLOEXEC)?;
        Ok(file)
    }

    /// Opens the file for its data, with `write` also for writing.
    fn open_data(&self, flags: OFlags, write: bool) -> Result<OwnedFd, Errno> {
        let access = if write { OFlags::RDWR } else { OFlags::RDONLY };
        // A read must not update the access time in the directory; only an owner may request that.
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

    /// Returns a descriptor that goes through the kernel's page cache.
    pub(crate) fn buffered(&self, write: bool) -> Result<Arc<OwnedFd>, Errno> {
        let mut access = self.access.lock().expect("no holder panics");
        if let Some(known) = access.buffered_for(write) {
            return Ok(Arc::clone(known));
        }
        let opened = Arc::new(self.open_data(OFlags::empty(), write)?);
        (access.buffered, access.buffered_writes) = (Some(Arc::clone(&opened)), write);
        Ok(opened)
    }

    /// Returns a descriptor that goes through the kernel's page cache, for an open(2) of the mount.
    /// For writing it opens the file in SOURCE each time: SOURCE may refuse that (`chattr +i`,
    /// `chattr +a`, a file system that has become read-only) while a known descriptor can still be
    /// written.
    pub(crate) fn buffered_anew(&self, write: bool) -> Result<Arc<OwnedFd>, Errno> {
        let is_known = || {
            let access = self.access.lock().expect("no holder panics");
            access.buffered_for(write).is_some()
        };
        if write && is_known() {
            // The known descriptor stays, since it reports the errors of earlier writes to
            // fsync(2).
            drop(self.open_data(OFlags::empty(), true)?);
        }
        self.buffered(write)
    }

    /// Returns a descriptor for direct I/O, and its required alignment; none if the file does not
    /// support direct I/O, or if its mode no longer permits this process to open it: a program may
    /// create a file with a mode that permits only its creator to write.
    pub(in crate::store::files) fn direct(
        &self,
        write: bool,
    ) -> Result<Option<(Arc<OwnedFd>, u64)>, Errno> {
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
            Err(Errno::ACCESS) if access.buffered_for(write).is_some() => return Ok(None),
            Err(error) => return Err(error),
        };
        let align = *access.align.get_or_insert_with(|| alignment(&opened));
        (access.direct, access.direct_writes) = (Some(Arc::clone(&opened)), write);
        Ok((align > 0).then_some((opened, align)))
    }

    /// Returns true if the file in the directory has data in a range, and not only a hole, as far
    /// as the file system reports.
    pub(in crate::store::files) fn has_data(&self, range: Range<u64>) -> bool {
        let data = SeekFrom::Data(range.start);
        match self.buffered(false).and_then(|file| rustix::fs::seek(&*file, data)) {
            Ok(at) => at < range.end,
            Err(error) => error != Errno::NXIO,
        }
    }

    /// Records that direct I/O does not work; returns true if that was not known.
    pub(in crate::store::files) fn give_up_direct(&self) -> bool {
        let mut access = self.access.lock().expect("no holder panics");
        access.direct = None;
        access.align.replace(0) != Some(0)
    }

    /// Returns the alignment that direct I/O by users of the file needs, according to its file
    /// system; 1 if the file system accepts any, or does not say.
    pub(crate) fn alignment_wanted(&self) -> u64 {
        let known = self.alignment.load(Ordering::Relaxed);
        if known > 0 {
            return u64::from(known - 1);
        }
        let reported = dio_alignment(&self.path).unwrap_or(0).max(1);
        self.alignment.store(reported.saturating_add(1), Ordering::Relaxed);
        u64::from(reported)
    }

    /// Closes the descriptors for data; they are opened again when they are needed.
    pub(crate) fn close_data(&self) {
        let mut access = self.access.lock().expect("no holder panics");
        (access.direct, access.buffered) = (None, None);
    }
}

/// Returns the alignment that the file system reports for direct I/O on a file; 0 if none.
fn dio_alignment(file: impl AsFd) -> Option<u32> {
    let mask = rustix::fs::StatxFlags::from_bits_retain(DIO_ALIGN);
    let reported = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, mask).ok()?;
    (reported.stx_mask & DIO_ALIGN != 0).then_some(reported.stx_dio_offset_align)
}

/// Returns that alignment, with a default if the file system reports none.
fn alignment(file: &OwnedFd) -> u64 {
    dio_alignment(file).map_or(ALIGN, u64::from)
}
