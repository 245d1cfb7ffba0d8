//! FUSE passthrough: the kernel reads and writes backing files in the directory itself, without
//! requests (Linux 6.9, `linux/fuse.h` of version 7.40).
//!
//! Invariant: all concurrent opens of a file use the same mode, as the kernel demands; so the mode
//! of the first open applies until the last close.

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Setter, opcode};
use std::io;
use std::sync::{Mutex, OnceLock};

/// `struct fuse_backing_map`: a file, and no flags yet.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct BackingMap {
    fd: i32,
    flags: u32,
    padding: u64,
}

/// Number of the ioctl that registers a backing file: `_IOW(229, 1, struct fuse_backing_map)`.
const BACKING_OPEN: Opcode = opcode::write::<BackingMap>(229, 1);
/// Number of the ioctl that unregisters it: `_IOW(229, 2, u32)`.
const BACKING_CLOSE: Opcode = opcode::write::<u32>(229, 2);

/// Connection on which backing files are registered; none without passthrough.
#[derive(Debug, Default)]
pub(super) struct Passthrough(OnceLock<OwnedFd>);

impl Passthrough {
    /// Uses the connection of `device`, on which passthrough was negotiated.
    ///
    /// # Errors
    /// The reason why the kernel does not permit passthrough.
    pub(super) fn begin(&self, device: &OwnedFd) -> Result<(), String> {
        let device = device.try_clone().map_err(|error| error.to_string())?;
        // The permission does not depend on the file, so it is tested with this process's own
        // program, which always exists.
        if let Ok(program) = std::fs::File::open("/proc/self/exe") {
            match register(&device, program.as_fd()) {
                Ok(backing_id) => unregister(&device, backing_id),
                Err(Errno::PERM) => return Err("it needs the capability CAP_SYS_ADMIN".to_owned()),
                // Other files may work: the permission is checked for each of them.
                Err(_) => {}
            }
        }
        let is_first = self.0.set(device).is_ok();
        debug_assert!(is_first, "a directory is mounted once");
        Ok(())
    }

    pub(super) fn register(&self, file: impl AsFd) -> Result<u32, Errno> {
        register(self.0.get().ok_or(Errno::OPNOTSUPP)?, file.as_fd())
    }
}

fn register(device: &OwnedFd, file: BorrowedFd<'_>) -> Result<u32, Errno> {
    let map = BackingMap { fd: file.as_raw_fd(), flags: 0, padding: 0 };
    let request = libc::c_ulong::from(BACKING_OPEN);
    // SAFETY: this call of /dev/fuse only reads the structure, which lives during the call. The
    // type of the request in `libc::ioctl` depends on the C library.
    let id = unsafe { libc::syscall(libc::SYS_ioctl, device.as_raw_fd(), request, &raw const map) };
    match u32::try_from(id) {
        Ok(backing_id) if backing_id > 0 => Ok(backing_id),
        Ok(_) => Err(Errno::IO),
        Err(_) => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

fn unregister(device: &OwnedFd, backing_id: u32) {
    // SAFETY: this call of /dev/fuse reads one u32, which the setter points to.
    let call = unsafe { Setter::<BACKING_CLOSE, u32>::new(backing_id) };
    // SAFETY: it is a call of /dev/fuse that changes nothing of this process.
    if let Err(error) = unsafe { rustix::ioctl::ioctl(device, call) } {
        tracing::debug!(%error, "the kernel did not know a file that it was given");
    }
}

#[derive(Debug, Default)]
struct BackingState {
    opens: u32,
    /// Backing ID, if the kernel reads and writes the file itself.
    backing_id: Option<u32>,
}

/// State of a file that the kernel may read and write itself.
#[derive(Debug, Default)]
pub(super) struct BackingFile(Mutex<BackingState>);

impl BackingFile {
    /// Records an open of the file. Returns its backing ID, if the kernel reads and writes it
    /// itself. The first open registers the file by calling `file`.
    pub(super) fn open(
        &self,
        passthrough: &Passthrough,
        file: impl FnOnce() -> Result<u32, Errno>,
    ) -> Option<u32> {
        let mut state = self.0.lock().expect("no holder panics");
        if state.opens == 0 && passthrough.0.get().is_some() {
            state.backing_id = match file() {
                Ok(backing_id) => Some(backing_id),
                Err(error) => {
                    tracing::info!(%error, "the kernel does not use a file by itself");
                    None
                }
            };
        }
        state.opens += 1;
        state.backing_id
    }

    /// Records the close of a number of opens of the file, or of all of them if there are fewer.
    pub(super) fn close(&self, opens: u32, passthrough: &Passthrough) {
        let mut state = self.0.lock().expect("no holder panics");
        state.opens = state.opens.saturating_sub(opens);
        if state.opens == 0
            && let Some(backing_id) = state.backing_id.take()
            && let Some(device) = passthrough.0.get()
        {
            unregister(device, backing_id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_the_calls_are_the_kernels() {
        // _IOW(229, 1, 16 bytes) and _IOW(229, 2, 4 bytes), as the kernel's macros make them.
        assert_eq!([BACKING_OPEN, BACKING_CLOSE], [0x4010_e501, 0x4004_e502]);
        assert_eq!(size_of::<BackingMap>(), 16);
    }

    #[test]
    fn without_the_kernels_help_nothing_is_registered() {
        let (none, backing) = (Passthrough::default(), BackingFile::default());
        assert_eq!(backing.open(&none, || panic!("nothing may be registered")), None);
        backing.close(1, &none);
        assert_eq!(none.register(std::io::stdin()), Err(Errno::OPNOTSUPP));
    }
}
