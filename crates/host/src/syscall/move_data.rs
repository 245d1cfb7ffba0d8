//! The calls of file systems that move the data of a file, and leases of files.

#![expect(unsafe_code, reason = "system calls take pointers")]

use super::checked;
use rustix::ioctl::{self, Opcode, Setter, Updater, opcode};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::{Duration, SystemTime};

/// `struct move_extent` (`fs/ext4/ext4.h`): positions and lengths in blocks.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct MoveExtent {
    reserved: u32,
    donor: u32,
    start: u64,
    donor_start: u64,
    len: u64,
    moved: u64,
}

/// `EXT4_IOC_MOVE_EXT`.
const MOVE_EXTENT: Opcode = opcode::read_write::<MoveExtent>(b'f', 15);

/// Exchanges the blocks of a range of a file with those of a range of a donor, and copies the data
/// of the file into its new blocks; returns the number of blocks from `start` on. Both files are
/// open for reading and writing.
pub(crate) fn ext4_move(
    file: &File,
    start: u64,
    (donor, donor_start): (&File, u64),
    len: u64,
) -> io::Result<u64> {
    let descriptor = u32::try_from(donor.as_raw_fd()).expect("an open descriptor");
    let mut request =
        MoveExtent { donor: descriptor, start, donor_start, len, ..MoveExtent::default() };
    // SAFETY: the value has the layout that the kernel expects, and the kernel keeps no pointer.
    let call = unsafe { Updater::<MOVE_EXTENT, MoveExtent>::new(&mut request) };
    // SAFETY: it changes nothing of this process.
    unsafe { ioctl::ioctl(file, call)? };
    Ok(request.moved)
}

/// `struct xfs_bstime` (`fs/xfs/libxfs/xfs_fs.h`).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct XfsTime {
    seconds: i64,
    nanoseconds: i32,
}

impl XfsTime {
    fn of(time: SystemTime) -> XfsTime {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
        XfsTime {
            seconds: since.as_secs().cast_signed(),
            nanoseconds: since.subsec_nanos().cast_signed(),
        }
    }
}

/// `struct xfs_swapext`, with `struct xfs_bstat`, of which the kernel reads the two times.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct XfsExchange {
    version: i64,
    target: i64,
    donor: i64,
    offset: i64,
    len: i64,
    pad: [u64; 2],
    number: u64,
    head: [u32; 5],
    bytes: i64,
    accessed: XfsTime,
    modified: XfsTime,
    changed: XfsTime,
    tail: [u64; 6],
}

/// `XFS_IOC_SWAPEXT`.
const EXCHANGE: Opcode = opcode::read_write::<XfsExchange>(b'X', 109);

/// Exchanges all blocks of a file with those of a donor of the same length, unless the file was
/// changed after these times (`EBUSY`). Both files are open for reading and writing.
pub(crate) fn xfs_exchange(
    file: &File,
    donor: &File,
    bytes: u64,
    (modified, changed): (SystemTime, SystemTime),
) -> io::Result<()> {
    let mut request = XfsExchange {
        target: file.as_raw_fd().into(),
        donor: donor.as_raw_fd().into(),
        len: bytes.cast_signed(),
        modified: XfsTime::of(modified),
        changed: XfsTime::of(changed),
        ..XfsExchange::default()
    };
    // SAFETY: the value has the layout that the kernel expects, and the kernel keeps no pointer.
    let call = unsafe { Updater::<EXCHANGE, XfsExchange>::new(&mut request) };
    // SAFETY: it changes nothing of this process.
    unsafe { ioctl::ioctl(file, call)? };
    Ok(())
}

/// `struct btrfs_ioctl_defrag_range_args` (include/uapi/linux/btrfs.h).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct DefragmentRange {
    start: u64,
    len: u64,
    flags: u64,
    threshold: u32,
    compression: u32,
    unused: [u32; 4],
}

/// `BTRFS_IOC_DEFRAG_RANGE`.
const DEFRAGMENT: Opcode = opcode::write::<DefragmentRange>(0x94, 16);
/// `BTRFS_DEFRAG_RANGE_START_IO`: the kernel writes the file back at the end.
const START_IO: u64 = 2;

/// Rewrites the extents of a range that are shorter than `threshold` bytes.
pub(crate) fn btrfs_defragment(
    file: &File,
    start: u64,
    len: u64,
    threshold: u32,
) -> io::Result<()> {
    let request =
        DefragmentRange { start, len, flags: START_IO, threshold, ..DefragmentRange::default() };
    // SAFETY: the value has the layout that the kernel expects, and the kernel keeps no pointer.
    let call = unsafe { Setter::<DEFRAGMENT, DefragmentRange>::new(request) };
    // SAFETY: it changes nothing of this process.
    unsafe { ioctl::ioctl(file, call)? };
    Ok(())
}

/// `F_SETSIG` of fcntl(2) (include/uapi/asm-generic/fcntl.h).
const SET_SIGNAL: libc::c_int = 10;

/// Takes a write lease on a file that this process has open once (fcntl(2)): fails with `EAGAIN` if
/// another descriptor or mapping of it exists. A process that opens it then waits until the lease
/// ends; the kernel reports it by a signal that is ignored by default.
pub(crate) fn take_lease(file: &File) -> io::Result<()> {
    // SAFETY: the calls take numbers only.
    checked(unsafe { libc::fcntl(file.as_raw_fd(), SET_SIGNAL, libc::SIGURG) })?;
    // SAFETY: as above.
    checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK) }).map(drop)
}

/// Returns true while the lease lasts and no other process waits for its end.
pub(crate) fn has_lease(file: &File) -> bool {
    // SAFETY: the call takes numbers only.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLEASE) == libc::F_WRLCK }
}

/// Switches direct I/O of an open file on or off.
pub(crate) fn set_direct(file: &File, is_on: bool) -> io::Result<()> {
    // SAFETY: the calls take numbers only.
    let flags = checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) })?;
    let flags = if is_on { flags | libc::O_DIRECT } else { flags & !libc::O_DIRECT };
    // SAFETY: as above.
    checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags) }).map(drop)
}
