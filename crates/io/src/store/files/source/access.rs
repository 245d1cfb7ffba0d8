//! The descriptors by which a file is read and written: opened when they are needed.

use super::{ALIGN, Access, DIO_ALIGN, SourceFile};
use rustix::fs::{AtFlags, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Access {
    /// The descriptor that goes through the kernel's page cache, if it is open and will do.
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

    /// The same for data: for writing too where that is wanted or can be had.
    fn open_data(&self, flags: OFlags, write: bool) -> Result<OwnedFd, Errno> {
        let access = if write { OFlags::RDWR } else { OFlags::RDONLY };
        // Reading must not make the directory write down when it was read; only an owner may say so.
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
            // The known one stays, since it reports the errors of earlier writes to fsync(2).
            drop(self.open_data(OFlags::empty(), true)?);
        }
        self.buffered(write)
    }

    /// A descriptor for direct I/O, and what that must be aligned to; none where there is no such
    /// thing, or where the file's mode does not let us have one any more: a file may be made whose
    /// mode lets nobody write to it but who has just made it.
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

    /// Returns whether the file in the directory has data in a range, and not only a hole, as far as
    /// the file system tells.
    pub(in crate::store::files) fn has_data(&self, range: Range<u64>) -> bool {
        let data = SeekFrom::Data(range.start);
        match self.buffered(false).and_then(|file| rustix::fs::seek(&*file, data)) {
            Ok(at) => at < range.end,
            Err(error) => error != Errno::NXIO,
        }
    }

    /// Direct I/O does not work after all; whether that is news.
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
        let said = dio_alignment(&self.path).unwrap_or(0).max(1);
        self.alignment.store(said.saturating_add(1), Ordering::Relaxed);
        u64::from(said)
    }

    /// Closes what was opened for data; it is opened again when it is needed.
    pub(crate) fn close_data(&self) {
        let mut access = self.access.lock().expect("no holder panics");
        (access.direct, access.buffered) = (None, None);
    }
}

/// Returns the alignment that the file system reports for direct I/O on a file; 0 if none.
fn dio_alignment(file: impl AsFd) -> Option<u32> {
    let asked = rustix::fs::StatxFlags::from_bits_retain(DIO_ALIGN);
    let said = rustix::fs::statx(file, "", AtFlags::EMPTY_PATH, asked).ok()?;
    (said.stx_mask & DIO_ALIGN != 0).then_some(said.stx_dio_offset_align)
}

/// Returns that alignment, with a default where the file system does not report one.
fn alignment(file: &OwnedFd) -> u64 {
    dio_alignment(file).map_or(ALIGN, u64::from)
}
