//! The first request of a connection (`FUSE_INIT`): version, capabilities, sizes.

use super::abi::{self, InHeader, InitIn, InitOut, OutHeader, capability, opcode};
use super::ring;
use larder_core::units::BLOCK_BYTES;
use rustix::event::{PollFd, PollFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::time::Timespec;
use std::io::{self, IoSlice};
use zerocopy::IntoBytes;

/// Maximum time until the first request. The kernel sends it at once; a mount without it is broken.
const INIT_TIMEOUT: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
/// Size of the buffer for the first request; the kernel demands at least 8 KiB for any request.
const BUFFER_BYTES: usize = 64 << 10;
/// Minimum minor version: kernels before 4.6 use another layout.
const MINOR_MIN: u32 = 24;
/// Maximum number of background requests: those of a loop device or of the kernel's write-back. The
/// payloads of so many writes can be parked if all of them have to wait.
pub(super) const BACKGROUND_MAX: u16 = 32;
/// Capabilities for mounts of volumes, as far as the kernel has them.
pub(super) const VOLUME_CAPABILITIES: u64 = capability::ASYNC_READ
    | capability::BIG_WRITES
    | capability::ASYNC_DIO
    | capability::PARALLEL_DIROPS
    | capability::MAX_PAGES
    | capability::INIT_EXT
    | capability::DIRECT_IO_ALLOW_MMAP
    | capability::NO_EXPORT_SUPPORT;
/// Capabilities for mounts of directories.
///
/// `HANDLE_KILLPRIV` and `HANDLE_KILLPRIV_V2` are left out. Without them, the kernel itself clears
/// setuid, setgid and capabilities before it writes, where it caches pages or writes itself, and
/// knows the new mode at once. For each write that it passes through, it reports whether the server
/// has to clear them.
pub(super) const DIRECTORY_CAPABILITIES: u64 = VOLUME_CAPABILITIES
    | capability::DONT_MASK
    | capability::DO_READDIRPLUS
    | capability::READDIRPLUS_AUTO
    | capability::CACHE_SYMLINKS;

/// Maximum depth of stacked file systems below backing files: with 1, these are not on a stacked
/// file system, so that another file system can be stacked on the mount.
const STACK_DEPTH: u32 = 1;

/// Negotiates with the kernel. Returns those of `capabilities` that the kernel has.
///
/// # Errors
/// If the kernel sends no request, or has another protocol version.
pub(super) fn run_handshake(device: &OwnedFd, capabilities: u64) -> io::Result<u64> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let mut waited = [PollFd::new(device, PollFlags::IN)];
        match rustix::event::poll(&mut waited, Some(&INIT_TIMEOUT)) {
            Ok(0) => return Err(io::Error::other("the kernel does not begin to ask")),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let bytes = match rustix::io::read(device, &mut buffer) {
            Ok(len) => &buffer[..len],
            Err(Errno::AGAIN | Errno::INTR | Errno::NOENT) => continue,
            Err(error) => return Err(error.into()),
        };
        let header: InHeader = abi::head_of(bytes);
        if header.opcode != opcode::INIT {
            return Err(io::Error::other("the kernel begins with something else"));
        }
        let body = bytes.get(abi::IN_HEADER_BYTES..).unwrap_or_default();
        let init: InitIn = abi::head_of(body);
        if init.major < abi::MAJOR || init.major == abi::MAJOR && init.minor < MINOR_MIN {
            answer(device, header.unique, -Errno::PROTO.raw_os_error(), &[])?;
            let version = format!("{}.{}", init.major, init.minor);
            return Err(io::Error::other(format!("the kernel speaks the old version {version}")));
        }
        let reply = negotiate(&init, capabilities);
        answer(device, header.unique, 0, reply.as_bytes())?;
        // A kernel with a later major version sends another request with this one.
        if init.major == abi::MAJOR {
            return Ok(u64::from(reply.flags2) << 32 | u64::from(reply.flags));
        }
    }
}

fn answer(device: &OwnedFd, unique: u64, error: i32, body: &[u8]) -> io::Result<()> {
    let header = OutHeader::new(unique, error, body.len());
    rustix::io::writev(device, &[IoSlice::new(header.as_bytes()), IoSlice::new(body)])?;
    Ok(())
}

fn negotiate(init: &InitIn, capabilities: u64) -> InitOut {
    let mut offered = u64::from(init.flags);
    if offered & capability::INIT_EXT != 0 {
        offered |= u64::from(init.flags2) << 32;
    }
    let flags = offered & capabilities;
    let half = |word: u64| u32::try_from(word & u64::from(u32::MAX)).expect("32 bits");
    let uses_ring = flags & capability::OVER_IO_URING != 0;
    let read_max = if uses_ring { ring::PAYLOAD_BYTES_MAX } else { abi::READ_BYTES_MAX };
    let pages = read_max as usize / BLOCK_BYTES;
    InitOut {
        major: abi::MAJOR,
        minor: init.minor.min(abi::MINOR),
        max_readahead: init.max_readahead,
        flags: half(flags),
        max_background: BACKGROUND_MAX,
        congestion_threshold: BACKGROUND_MAX / 4 * 3,
        max_write: abi::WRITE_BYTES_MAX,
        time_gran: 1,
        max_pages: u16::try_from(pages).expect("at most 256"),
        map_alignment: 0,
        flags2: half(flags >> 32),
        max_stack_depth: if flags & capability::PASSTHROUGH == 0 { 0 } else { STACK_DEPTH },
        unused: [0; 6],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn init(minor: u32, flags: u64) -> InitIn {
        let half = |word: u64| u32::try_from(word & u64::from(u32::MAX)).unwrap();
        let (flags, flags2) = (half(flags), half(flags >> 32));
        InitIn { major: 7, minor, max_readahead: 131_072, flags, flags2, unused: [0; 11] }
    }

    #[test]
    fn what_the_kernel_cannot_is_not_agreed_on() {
        let new = negotiate(&init(44, u64::MAX), VOLUME_CAPABILITIES);
        assert_eq!((new.minor, new.max_pages, new.max_write), (40, 256, abi::WRITE_BYTES_MAX));
        assert_eq!(u64::from(new.flags2) << 32 | u64::from(new.flags), VOLUME_CAPABILITIES);
        assert_eq!(new.max_stack_depth, 0, "it is not requested");
        let with_ring =
            negotiate(&init(44, u64::MAX), VOLUME_CAPABILITIES | capability::OVER_IO_URING);
        assert_eq!(with_ring.max_pages, 64, "a place has room for no more");
        let wanted = VOLUME_CAPABILITIES | capability::PASSTHROUGH;
        assert_eq!(negotiate(&init(44, u64::MAX), wanted).max_stack_depth, 1);
        assert_eq!(
            negotiate(&init(39, VOLUME_CAPABILITIES), wanted).max_stack_depth,
            0,
            "it cannot"
        );
        let old = init(31, capability::ASYNC_READ | capability::DIRECT_IO_ALLOW_MMAP);
        let old = negotiate(&old, VOLUME_CAPABILITIES);
        assert_eq!((old.minor, old.flags, old.flags2), (31, 1, 0), "flags2 means nothing there");
    }
}
