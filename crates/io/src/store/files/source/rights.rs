//! Rights that a file gives to the programs made from it: setuid, setgid and capabilities. A write
//! takes them away, as it does on SOURCE, before its bytes can be read or run.
//!
//! Invariants: a file that gives such rights is flagged, from the moment at which its mode or its
//! capabilities were last seen; a flag is cleared only under the lock under which the rights were
//! found gone. So a write to a file without a flag costs one load of an atomic.
//!
//! The kernel remembers the mode that it was last told, and takes the rights of a program from
//! there. A file that gives rights when it is opened for writing is written through the kernel's
//! pages: then the kernel takes the rights, and knows the new mode, before it writes. What is left
//! is a file that gets rights while it is open for writing. While a file is setuid or setgid the
//! kernel asks for the mode whenever execve(2) opens the file, so what is started after a write is
//! acknowledged has none of them.

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

/// Its mode is setuid or setgid.
const MODE: u8 = 1 << 0;
/// It has capabilities.
const CAPABILITIES: u8 = 1 << 1;
/// Another user than root has opened it for writing.
const OTHERS_WRITE: u8 = 1 << 2;
/// What is known of the rights that a file gives.
#[derive(Debug, Default)]
pub(super) struct Rights {
    flags: AtomicU8,
    /// Held while rights are looked at to be taken.
    taking: Mutex<()>,
}

/// Whether programs made from a file of this mode run as its user or group.
fn is_privileged(mode: RawMode) -> bool {
    FileType::from_raw_mode(mode) == FileType::RegularFile && mode & (SETUID | SETGID) != 0
}

/// The mode that a write leaves; the writer is a member of the file's group or not.
///
/// Setgid without the right of the group to execute gives no right, and is kept by members.
fn mode_after_write(mode: RawMode, is_member: impl FnOnce() -> bool) -> RawMode {
    let keeps_group = mode & SETGID != 0 && mode & GROUP_EXECUTES == 0 && is_member();
    mode & !(SETUID | if keeps_group { 0 } else { SETGID })
}

impl Attributes {
    /// Whether the file is setuid or setgid.
    pub(crate) fn is_privileged(&self) -> bool {
        is_privileged(self.stat.st_mode)
    }
}

impl SourceFile {
    fn flag(&self, flag: u8) {
        // Not while somebody finds the rights gone that are flagged here.
        let _taking = self.rights.taking.lock().expect("no holder panics");
        self.rights.flags.fetch_or(flag, Ordering::AcqRel);
    }

    fn has_flag(&self, flag: u8) -> bool {
        self.rights.flags.load(Ordering::Acquire) & flag != 0
    }

    /// Its mode has been looked at.
    pub(super) fn note_mode(&self, stat: &Stat) {
        if is_privileged(stat.st_mode) && !self.has_flag(MODE) {
            self.flag(MODE);
        }
    }

    /// An extended attribute has been set.
    pub(crate) fn note_attribute(&self, name: &CStr) {
        if name == CAPABILITIES_NAME {
            self.flag(CAPABILITIES);
        }
    }

    /// The user `uid` has opened it for writing; `file` is a descriptor of it.
    pub(crate) fn note_writer(&self, uid: u32, file: impl AsFd) {
        if uid != 0 && !self.has_flag(OTHERS_WRITE) {
            self.flag(OTHERS_WRITE);
        }
        if rustix::fs::fgetxattr(file, CAPABILITIES_NAME, &mut [0; 0][..]).is_ok() {
            self.flag(CAPABILITIES);
        }
    }

    /// Whether a write may have to take rights.
    pub(crate) fn gives_rights(&self) -> bool {
        self.has_flag(MODE | CAPABILITIES)
    }

    /// Whether another user than root has opened it for writing since it is known here.
    pub(crate) fn others_write(&self) -> bool {
        self.has_flag(OTHERS_WRITE)
    }

    /// Takes capabilities, and setuid and setgid too if `of_mode`, from the file of the folder.
    ///
    /// # Errors
    /// If they cannot be taken; then nothing may be written.
    pub(crate) fn take_rights(
        &self,
        of_mode: bool,
        is_member: impl FnOnce(u32) -> bool,
    ) -> Result<(), Errno> {
        let _taking = self.rights.taking.lock().expect("no holder panics");
        if self.has_flag(CAPABILITIES) {
            self.take_capabilities()?;
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

    fn take_capabilities(&self) -> Result<(), Errno> {
        match rustix::fs::removexattr(self.link(), CAPABILITIES_NAME) {
            // Others than root may not change them, but lose them by changing the owner to the
            // same one.
            Err(Errno::PERM) => {
                rustix::fs::chownat(&self.path, "", None, None, AtFlags::EMPTY_PATH)
            }
            Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
            other => other,
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
        file.note_writer(0, &data);
        assert!(file.gives_rights() && !file.others_write());
        file.take_rights(false, |_| false).unwrap();
        assert!(!file.gives_rights());
        let left = rustix::fs::getxattr(file.link(), CAPABILITIES_NAME, &mut [0; 0][..]);
        assert_eq!(left, Err(Errno::NODATA));
    }
}
