//! FUSE passthrough: the kernel reads and writes backing files in the directory itself, without
//! requests (Linux 6.9, `linux/fuse.h` of version 7.40).
//!
//! Invariant: all concurrent opens of a file use the same mode, as the kernel demands; so the mode
//! of the first open applies until the last close.

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::ioctl::{Ioctl, IoctlOutput, Opcode, Setter, opcode};
use std::ffi::c_void;
use std::ptr;
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
const OPEN: Opcode = opcode::write::<BackingMap>(229, 1);
/// Number of the ioctl that unregisters it: `_IOW(229, 2, u32)`.
const CLOSE: Opcode = opcode::write::<u32>(229, 2);

/// The ioctl that registers a file; it returns the backing ID.
struct Register(BackingMap);

// SAFETY: the number is that of a call that reads one `fuse_backing_map`, to which the pointer
// leads, and answers with a number alone.
unsafe impl Ioctl for Register {
    type Output = i32;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        OPEN
    }

    fn as_ptr(&mut self) -> *mut c_void {
        ptr::from_mut(&mut self.0).cast()
    }

    unsafe fn output_from_ptr(out: IoctlOutput, _: *mut c_void) -> rustix::io::Result<i32> {
        Ok(out)
    }
}

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
        if let Ok(own) = std::fs::File::open("/proc/self/exe") {
            match register(&device, own.as_fd()) {
                Ok(number) => forget(&device, number),
                Err(Errno::PERM) => return Err("it takes the right CAP_SYS_ADMIN".to_owned()),
                // Other files may work: the permission is checked for each of them.
                Err(_) => {}
            }
        }
        let is_first = self.0.set(device).is_ok();
        debug_assert!(is_first, "a directory is mounted once");
        Ok(())
    }
}

fn register(device: &OwnedFd, file: BorrowedFd<'_>) -> Result<u32, Errno> {
    let map = BackingMap { fd: file.as_raw_fd(), flags: 0, padding: 0 };
    // SAFETY: it is a call of /dev/fuse that changes nothing of this process.
    let number = unsafe { rustix::ioctl::ioctl(device, Register(map)) }?;
    u32::try_from(number).ok().filter(|&number| number > 0).ok_or(Errno::IO)
}

fn forget(device: &OwnedFd, number: u32) {
    // SAFETY: this call of /dev/fuse reads one u32, which the setter points to.
    let call = unsafe { Setter::<CLOSE, u32>::new(number) };
    // SAFETY: it is a call of /dev/fuse that changes nothing of this process.
    if let Err(error) = unsafe { rustix::ioctl::ioctl(device, call) } {
        tracing::debug!(%error, "the kernel did not know a file that it was given");
    }
}

/// Opens of a file.
#[derive(Debug, Default)]
struct Opened {
    times: u32,
    /// Backing ID, if the kernel reads and writes the file itself.
    number: Option<u32>,
}

/// State of a file that the kernel may read and write itself.
#[derive(Debug, Default)]
pub(super) struct Backed(Mutex<Opened>);

impl Backed {
    /// Records an open of the file. Returns its backing ID, if the kernel reads and writes it
    /// itself. The first open registers the file by calling `file`.
    pub(super) fn open(
        &self,
        by: &Passthrough,
        file: impl FnOnce() -> Result<u32, Errno>,
    ) -> Option<u32> {
        let mut opened = self.0.lock().expect("no holder panics");
        if opened.times == 0 && by.0.get().is_some() {
            opened.number = match file() {
                Ok(number) => Some(number),
                Err(error) => {
                    tracing::info!(%error, "the kernel does not use a file by itself");
                    None
                }
            };
        }
        opened.times += 1;
        opened.number
    }

    /// Records a close of the file.
    pub(super) fn close(&self, by: &Passthrough) {
        self.close_times(1, by);
    }

    /// Records the close of all opens of the file, after the end of the mount.
    pub(super) fn close_all(&self, by: &Passthrough) {
        self.close_times(u32::MAX, by);
    }

    fn close_times(&self, times: u32, by: &Passthrough) {
        let mut opened = self.0.lock().expect("no holder panics");
        opened.times = opened.times.saturating_sub(times);
        if opened.times == 0
            && let Some(number) = opened.number.take()
            && let Some(device) = by.0.get()
        {
            forget(device, number);
        }
    }
}

impl Passthrough {
    /// Registers a file of the directory.
    pub(super) fn register(&self, file: impl AsFd) -> Result<u32, Errno> {
        register(self.0.get().ok_or(Errno::OPNOTSUPP)?, file.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_the_calls_are_the_kernels() {
        // _IOW(229, 1, 16 bytes) and _IOW(229, 2, 4 bytes), as the kernel's macros make them.
        assert_eq!([OPEN, CLOSE], [0x4010_e501, 0x4004_e502]);
        assert_eq!(size_of::<BackingMap>(), 16);
    }

    #[test]
    fn without_the_kernels_help_nothing_is_registered() {
        let (none, backed) = (Passthrough::default(), Backed::default());
        assert_eq!(backed.open(&none, || panic!("nobody to register with")), None);
        backed.close(&none);
        assert_eq!(none.register(std::io::stdin()), Err(Errno::OPNOTSUPP));
    }
}
