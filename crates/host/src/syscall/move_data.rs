//! The calls of file systems that move the data of a file, and leases of files.

#![expect(unsafe_code, reason = "system calls take pointers")]

use super::checked;
use rustix::ioctl::{self, Opcode, Setter, Updater, opcode};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

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

/// `struct file_dedupe_range` with one destination (include/uapi/linux/fs.h).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Deduplication {
    head: DeduplicationHead,
    target: i64,
    target_offset: u64,
    done: u64,
    status: i32,
    reserved: u32,
}

/// The fixed part, whose size is part of the ioctl number.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct DeduplicationHead {
    offset: u64,
    len: u64,
    targets: u16,
    reserved: u16,
    reserved_word: u32,
}

/// `FIDEDUPERANGE`.
const DEDUPLICATE: Opcode = opcode::read_write::<DeduplicationHead>(0x94, 54);

/// Makes a range of a file have the blocks of the same range of a donor, if both have the same
/// bytes, which the kernel compares while it locks both files. Returns the number of bytes from the
/// begin of the range; 0 if the bytes differ.
pub(crate) fn deduplicate(file: &File, donor: &File, offset: u64, len: u64) -> io::Result<u64> {
    let head = DeduplicationHead { offset, len, targets: 1, ..DeduplicationHead::default() };
    let target = file.as_raw_fd().into();
    let mut request =
        Deduplication { head, target, target_offset: offset, ..Deduplication::default() };
    // SAFETY: the value has the layout that the kernel expects and states that it has one target;
    // the kernel keeps no pointer.
    let call = unsafe { Updater::<DEDUPLICATE, Deduplication>::new(&mut request) };
    // SAFETY: it changes nothing of this process.
    unsafe { ioctl::ioctl(donor, call)? };
    match request.status {
        0 => Ok(request.done),
        error if error < 0 => Err(io::Error::from_raw_os_error(-error)),
        _ => Ok(0),
    }
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
