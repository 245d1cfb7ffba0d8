//! Rights that a file gives to programs executed from it: setuid, setgid and capabilities. A write
//! clears them, as on SOURCE, before its bytes can be read or executed.
//!
//! Invariants: a file that gives such rights is flagged from the time when its mode or its
//! capabilities were last read; a flag is cleared only under the lock under which the rights were
//! found missing. So a write to a file without a flag costs one atomic load, or two system calls if
//! a user other than root has opened the file for writing: it may have got rights in SOURCE since.
//!
//! The kernel caches the mode that the last answer gave, and takes the rights of a program from it.
//! A file that gives rights when it is opened for writing is written through the kernel's page
//! cache: the kernel then clears the rights itself before it writes, and knows the new mode. The
//! remaining case is a file that gets rights while it is open for writing. For a setuid or setgid
//! file the kernel asks for the mode whenever execve(2) opens the file, so a program that is
//! started after an acknowledged write has none of these rights.

use super::{Attributes, SourceFile};
use rustix::fs::{AtFlags, FileType, Mode, RawMode, Stat};
use rustix::io::Errno;
use std::ffi::CStr;
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, Ordering};

/// The extended attribute that holds the capabilities of a file.
const CAPABILITIES_NAME: &CStr = c"security.capability";

const SETUID: RawMode = 0o4000;
const SETGID: RawMode = 0o2000;
const GROUP_EXECUTES: RawMode = 0o010;

/// The mode is setuid or setgid.
const MODE: u8 = 1 << 0;
const CAPABILITIES: u8 = 1 << 1;
/// A user other than root has opened the file for writing.
const OTHERS_WRITE: u8 = 1 << 2;
/// The file has had capabilities since it is known.
const CAPABILITIES_KNOWN: u8 = 1 << 3;

#[derive(Debug, Default)]
pub(super) struct Rights {
    flags: AtomicU8,
    /// Held while rights are checked and cleared.
    clearing: Mutex<()>,
}

pub(crate) fn is_capabilities(name: &CStr) -> bool {
    name == CAPABILITIES_NAME
}

/// Returns true if programs executed from a file of this mode run as its user or group.
fn is_privileged(mode: RawMode) -> bool {
    FileType::from_raw_mode(mode) == FileType::RegularFile && mode & (SETUID | SETGID) != 0
}

/// Returns the mode that a write leaves; it depends on the writer's membership in the file's group.
///
/// Setgid without execute permission for the group gives no right; members of the group keep it.
fn mode_after_write(mode: RawMode, is_member: impl FnOnce() -> bool) -> RawMode {
    let keeps_group = mode & SETGID != 0 && mode & GROUP_EXECUTES == 0 && is_member();
    mode & !(SETUID | if keeps_group { 0 } else { SETGID })
}

impl Attributes {
    /// Returns true if the file is setuid or setgid.
    pub(crate) fn is_privileged(&self) -> bool {
        is_privileged(self.stat.st_mode)
    }
}

impl SourceFile {
    fn flag(&self, flag: u8) {
        // The lock excludes a thread that finds the flagged rights missing.
        let _clearing = self.rights.clearing.lock().expect("no holder panics");
        self.rights.flags.fetch_or(flag, Ordering::AcqRel);
    }

    fn has_flag(&self, flag: u8) -> bool {
        self.rights.flags.load(Ordering::Acquire) & flag != 0
    }

    pub(super) fn note_mode(&self, stat: &Stat) {
        if is_privileged(stat.st_mode) && !self.has_flag(MODE) {
            self.flag(MODE);
        }
    }

    /// Records that the file has an extended attribute: it was set, or found.
    pub(crate) fn note_attribute(&self, name: &CStr) {
        if is_capabilities(name) && !self.has_flag(CAPABILITIES) {
            self.flag(CAPABILITIES | CAPABILITIES_KNOWN);
        }
    }

    /// Removes an extended attribute.
    ///
    /// Before it writes, the kernel asks whether the file has capabilities and then removes them,
    /// and fails the write if it cannot. The write-back of another page may have cleared them in
    /// between, in SOURCE or here. So a removal from a file that has had capabilities succeeds.
    pub(crate) fn remove_attribute(&self, name: &CStr) -> Result<(), Errno> {
        match rustix::fs::removexattr(self.link(), name) {
            Err(Errno::NODATA) if is_capabilities(name) && self.has_flag(CAPABILITIES_KNOWN) => {
                Ok(())
            }
            removed => removed,
        }
    }

    /// Records that the user `uid` has opened the file for writing, unless that is root.
    pub(crate) fn record_writer(&self, uid: u32) {
        if uid != 0 && !self.has_flag(OTHERS_WRITE) {
            self.flag(OTHERS_WRITE);
        }
    }

    /// Records the writer as [`SourceFile::record_writer`], and through `file` whether the file has
    /// capabilities.
    pub(crate) fn record_writer_and_capabilities(&self, uid: u32, file: impl AsFd) {
        self.record_writer(uid);
        if rustix::fs::fgetxattr(file, CAPABILITIES_NAME, &mut [0; 0][..]).is_ok() {
            self.note_attribute(CAPABILITIES_NAME);
        }
    }

    /// Returns true if the file is known to give rights.
    pub(crate) fn gives_rights(&self) -> bool {
        self.has_flag(MODE | CAPABILITIES)
    }

    /// Returns true if a write may have to clear rights: the file gives some, or may have got some
    /// in SOURCE.
    pub(crate) fn may_give_rights(&self) -> bool {
        self.has_flag(MODE | CAPABILITIES | OTHERS_WRITE)
    }

    /// Returns true if a user other than root has opened the file for writing since the node is
    /// known.
    pub(crate) fn others_write(&self) -> bool {
        self.has_flag(OTHERS_WRITE)
    }

    /// Returns true if the file gives rights. After a user other than root has opened it for
    /// writing, it may have got some in SOURCE, and the kernel does not ask again before a write.
    fn has_rights_now(&self) -> Result<bool, Errno> {
        if self.gives_rights() || !self.others_write() {
            return Ok(self.gives_rights());
        }
        self.find_rights()
    }

    /// Reads the mode and the capabilities; returns whether the file gives rights.
    pub(crate) fn find_rights(&self) -> Result<bool, Errno> {
        self.note_mode(&rustix::fs::fstat(&self.path)?);
        if rustix::fs::getxattr(self.link(), CAPABILITIES_NAME, &mut [0; 0][..]).is_ok() {
            self.note_attribute(CAPABILITIES_NAME);
        }
        Ok(self.gives_rights())
    }

    /// Clears capabilities, and with `of_mode` also setuid and setgid, of the file in SOURCE.
    ///
    /// # Errors
    /// If they cannot be cleared; then nothing may be written.
    pub(crate) fn take_rights(
        &self,
        of_mode: bool,
        is_member: impl FnOnce(u32) -> bool,
    ) -> Result<(), Errno> {
        if !self.has_rights_now()? {
            return Ok(());
        }
        let _clearing = self.rights.clearing.lock().expect("no holder panics");
        if self.has_flag(CAPABILITIES) {
            self.clear_capabilities()?;
            self.rights.flags.fetch_and(!CAPABILITIES, Ordering::AcqRel);
        }
        if !of_mode || !self.has_flag(MODE) {
            return Ok(());
        }
        let stat = rustix::fs::fstat(&self.path)?;
        let mode = mode_after_write(stat.st_mode, || is_member(stat.st_gid));
        if mode != stat.st_mode {
            rustix::fs::chmod(self.link(), Mode::from_raw_mode(mode & 0o7777))?;
        }
        if !is_privileged(mode) {
            self.rights.flags.fetch_and(!MODE, Ordering::AcqRel);
        }
        Ok(())
    }

    fn clear_capabilities(&self) -> Result<(), Errno> {
        match rustix::fs::removexattr(self.link(), CAPABILITIES_NAME) {
            Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
            // Other users than root may not clear them, but the kernel does when a process sets the
            // owner to the same user.
            Err(Errno::PERM) => {
                rustix::fs::chownat(&self.path, "", None, None, AtFlags::EMPTY_PATH)
            }
            Err(other) => Err(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{OFlags, XattrFlags};

    fn file(mode: RawMode) -> (tempfile::NamedTempFile, SourceFile) {
        let file = tempfile::NamedTempFile::new().unwrap();
        rustix::fs::chmod(file.path(), Mode::from_raw_mode(mode)).unwrap();
        let path = rustix::fs::open(file.path(), OFlags::PATH, Mode::empty()).unwrap();
        (file, SourceFile::new(path, 0, true))
    }

    fn mode_of(file: &SourceFile) -> RawMode {
        rustix::fs::fstat(file.path()).unwrap().st_mode & 0o7777
    }

    #[test]
    fn a_write_leaves_what_gives_no_right() {
        let after = |mode, is_member| mode_after_write(mode, || is_member);
        for (mode, left) in [(0o4755, 0o755), (0o2755, 0o755), (0o6711, 0o711), (0o755, 0o755)] {
            assert_eq!((after(mode, true), after(mode, false)), (left, left), "{mode:o}");
        }
        assert_eq!((after(0o2745, true), after(0o2745, false)), (0o2745, 0o745));
        assert_eq!((after(0o6745, true), after(0o6745, false)), (0o2745, 0o745));
    }

    #[test]
    fn a_file_is_flagged_until_its_rights_are_gone() {
        let (_kept, file) = file(0o4755);
        assert!(!file.gives_rights(), "its mode was not looked at");
        file.attributes().unwrap();
        assert!(file.gives_rights());
        file.take_rights(false, |_| false).unwrap();
        assert_eq!((mode_of(&file), file.gives_rights()), (0o4755, true), "by root");
        file.take_rights(true, |_| false).unwrap();
        assert_eq!((mode_of(&file), file.gives_rights()), (0o755, false));
        rustix::fs::chmod(file.link(), Mode::from_raw_mode(0o2755)).unwrap();
        file.attributes().unwrap();
        file.take_rights(true, |_| true).unwrap();
        assert_eq!((mode_of(&file), file.gives_rights()), (0o755, false));
    }

    #[test]
    fn rights_given_behind_a_writer_are_found_by_its_next_write() {
        let (_kept, file) = file(0o755);
        file.attributes().unwrap();
        let data = file.open(OFlags::RDWR).unwrap();
        file.record_writer_and_capabilities(1000, &data);
        rustix::fs::chmod(file.link(), Mode::from_raw_mode(0o4755)).unwrap();
        assert!(!file.gives_rights(), "the mode was not read again");
        file.take_rights(true, |_| false).unwrap();
        assert_eq!((mode_of(&file), file.gives_rights()), (0o755, false));
    }

    #[test]
    fn capabilities_go_with_any_write() {
        let (_kept, file) = file(0o755);
        // Revision 2, CAP_NET_RAW permitted, effective.
        let words: [u32; 5] = [0x0200_0001, 1 << 13, 0, 0, 0];
        let value: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let flags = XattrFlags::empty();
        if rustix::fs::setxattr(file.link(), CAPABILITIES_NAME, &value, flags).is_err() {
            return;
        }
        let data = file.open(OFlags::RDWR).unwrap();
        file.record_writer_and_capabilities(0, &data);
        assert!(file.gives_rights() && !file.others_write());
        file.take_rights(false, |_| false).unwrap();
        assert!(!file.gives_rights());
        let left = rustix::fs::getxattr(file.link(), CAPABILITIES_NAME, &mut [0; 0][..]);
        assert_eq!(left, Err(Errno::NODATA));
        // The kernel requests removals that it decided on earlier.
        for _ in 0..2 {
            assert_eq!(file.remove_attribute(CAPABILITIES_NAME), Ok(()));
        }
        assert_eq!(file.remove_attribute(c"user.x"), Err(Errno::NODATA));
        let (_kept, other) = self::file(0o755);
        assert_eq!(other.remove_attribute(CAPABILITIES_NAME), Err(Errno::NODATA));
    }
}
