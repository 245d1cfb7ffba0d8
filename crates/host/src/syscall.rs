//! System calls that neither the standard library nor rustix wraps: cachestat(2), mincore(2) on a
//! mapping of a file, the ioctl(2) FIEMAP and GETFSMAP, those that move the data of
//! files, leases, the generation of an XFS inode,
//! `open_by_handle_at(2)`, fanotify(7), kcmp(2), control of loop devices, scheduling policy and I/O
//! priority of a thread.
//!
//! The only `unsafe` code of this crate. Invariants: every pointer passed to the kernel refers to
//! memory of the stated length that lives until the call returns; file mappings are never accessed,
//! so a file that is truncated under a mapping causes no fault.

#![expect(unsafe_code, reason = "system calls take pointers")]

pub(crate) mod bpf;
pub(crate) mod move_data;
pub(crate) mod space_map;

use rustix::ioctl::{self, Opcode, Updater, opcode};
use rustix::mm::{MapFlags, ProtFlags};
use std::cmp::Ordering;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

/// Returns the result of a system call; if it is negative, the error of the call, which must be the
/// last one.
fn checked<T: Default + PartialOrd>(result: T) -> io::Result<T> {
    if result < T::default() { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Returns the descriptor that a system call created.
///
/// # Safety
/// `result` is the result of a call that creates a descriptor, and no other code owns it.
unsafe fn created(result: libc::c_long) -> io::Result<OwnedFd> {
    let number = i32::try_from(checked(result)?).expect("descriptors are small");
    // SAFETY: the caller vouches for it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Closes all descriptors of this process but the standard ones. The process has opened none: the
/// program that started it passed them on.
pub(crate) fn close_inherited() {
    let (first, none): (libc::c_uint, libc::c_uint) = (3, 0);
    // SAFETY: the call takes numbers only, and no code of this process knows the descriptors.
    unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, none) };
}

/// Kind of kcmp(2) for descriptors (include/uapi/linux/kcmp.h).
pub(crate) const FILES: libc::c_int = 2;
/// Kind of kcmp(2) for working and root directory.
pub(crate) const DIRECTORIES: libc::c_int = 3;

/// Compares the resources of this kind of two threads, by an order that lasts until the next boot.
/// It waits while one of the threads is in execve(2). Fails with `ESRCH` if one has ended.
pub(crate) fn compare(one: u32, other: u32, kind: libc::c_int) -> io::Result<Ordering> {
    let none: libc::c_ulong = 0;
    // SAFETY: the call takes numbers only, and changes nothing.
    let result = unsafe { libc::syscall(libc::SYS_kcmp, one, other, kind, none, none) };
    match checked(result)? {
        0 => Ok(Ordering::Equal),
        1 => Ok(Ordering::Less),
        2 => Ok(Ordering::Greater),
        _ => Err(io::Error::other("the kernel compares them for equality only")),
    }
}

/// Number of cachestat(2): the same on every architecture that Rust's standard library supports,
/// like all system calls since 2019 (arch/*/tools/syscall*.tbl of Linux 6.5).
const CACHESTAT: libc::c_long = 451;

/// Result of cachestat(2), in pages (include/uapi/linux/mman.h).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CacheStat {
    pub(crate) resident: u64,
    pub(crate) dirty: u64,
    pub(crate) write_back: u64,
    pub(crate) evicted: u64,
    pub(crate) recently_evicted: u64,
}

/// The queried range, in bytes; a length of 0 means up to the end.
#[repr(C)]
struct CachestatRange {
    offset: u64,
    len: u64,
}

/// Returns the page cache state of `len` bytes starting at `offset`. Fails with `ENOSYS` before
/// Linux 6.5; with `EPERM` (since 6.14 and stable kernels of that time) if this process neither
/// owns the file nor may write it.
pub(crate) fn cachestat(file: &File, offset: u64, len: u64) -> io::Result<CacheStat> {
    let range = CachestatRange { offset, len };
    let mut found = CacheStat::default();
    let no_flags: libc::c_uint = 0;
    // SAFETY: both pointers are to live values with the layouts that the kernel expects, and the
    // kernel keeps neither. There is no safe wrapper for this call yet.
    let result = unsafe {
        libc::syscall(
            CACHESTAT,
            file.as_raw_fd(),
            ptr::from_ref(&range),
            ptr::from_mut(&mut found),
            no_flags,
        )
    };
    checked(result).map(|_| found)
}

/// Returns the number of resident pages of `page_bytes` in `len` bytes starting at `offset`.
/// `offset` is a multiple of the page size and `len` is above 0. The kernel reports all pages as
/// resident if this process neither owns the file nor may write it (since Linux 5.2).
pub(crate) fn mincore(file: &File, offset: u64, len: usize, page_bytes: usize) -> io::Result<u64> {
    let mut resident = vec![0_u8; len.div_ceil(page_bytes)];
    // SAFETY: the kernel chooses an unused address range. The mapping is never accessed, so a file
    // that is truncated meanwhile does not terminate this process.
    let address = unsafe {
        rustix::mm::mmap(ptr::null_mut(), len, ProtFlags::READ, MapFlags::SHARED, file, offset)
    }?;
    // SAFETY: the mapping covers `len` bytes from `address` on, and the vector has a byte for each
    // page of it. rustix does not wrap this call.
    let result = checked(unsafe { libc::mincore(address, len, resident.as_mut_ptr()) });
    // SAFETY: exactly the range that was mapped above, and no reference into it exists.
    unsafe { rustix::mm::munmap(address, len) }?;
    result?;
    // The kernel defines only the lowest bit.
    Ok(resident.iter().map(|page| u64::from(page & 1)).sum())
}

pub(crate) const FIEMAP_EXTENTS: usize = 128;

/// `struct fiemap_extent` (include/uapi/linux/fiemap.h).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FiemapExtent {
    pub(crate) logical: u64,
    pub(crate) physical: u64,
    pub(crate) length: u64,
    reserved64: [u64; 2],
    pub(crate) flags: u32,
    reserved: [u32; 3],
}

/// The fixed part of `struct fiemap`, whose size is part of the ioctl number.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct FiemapHeader {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
}

/// The fixed part, followed by space for extents.
#[repr(C)]
struct Fiemap {
    header: FiemapHeader,
    extents: [FiemapExtent; FIEMAP_EXTENTS],
}

/// `FS_IOC_FIEMAP`.
const FIEMAP: Opcode = opcode::read_write::<FiemapHeader>(b'f', 11);

/// `FIEMAP_FLAG_SYNC`: the kernel writes the file back first.
const FIEMAP_SYNC: u32 = 0x1;

/// Returns the first extents of a file from byte `start` on, and their number. With `sync` the
/// kernel writes the file back first. Fails with `EOPNOTSUPP` or `ENOTTY` if the file system does
/// not support the call.
pub(crate) fn fiemap(
    file: &File,
    start: u64,
    sync: bool,
) -> io::Result<([FiemapExtent; FIEMAP_EXTENTS], usize)> {
    let extent_count = u32::try_from(FIEMAP_EXTENTS).expect("a small number");
    let header = FiemapHeader {
        start,
        length: u64::MAX - start,
        flags: if sync { FIEMAP_SYNC } else { 0 },
        extent_count,
        ..FiemapHeader::default()
    };
    let mut request = Fiemap { header, extents: [FiemapExtent::default(); FIEMAP_EXTENTS] };
    // SAFETY: the value has the layout that the kernel expects and states the number of extents
    // that fit; the kernel writes no more and keeps no pointer.
    let call = unsafe { Updater::<FIEMAP, Fiemap>::new(&mut request) };
    // SAFETY: it changes nothing of this process.
    unsafe { ioctl::ioctl(file, call)? };
    let count = usize::try_from(request.header.mapped_extents).expect("a small number");
    Ok((request.extents, count.min(FIEMAP_EXTENTS)))
}

/// A command of `/dev/loop-control` (include/uapi/linux/loop.h).
#[derive(Clone, Copy, Debug)]
pub(crate) enum LoopControl {
    /// Adds the device with a number; fails with `EEXIST` if it exists.
    Add = 0x4C80,
    /// Removes the device with a number; fails with `EBUSY` while it is attached or open.
    Remove = 0x4C81,
}

pub(crate) fn loop_control(control: &File, command: LoopControl, number: u32) -> io::Result<()> {
    let request = command as libc::Ioctl;
    // SAFETY: both commands take a number and no pointer. rustix wraps neither.
    let result = unsafe { libc::ioctl(control.as_raw_fd(), request, libc::c_ulong::from(number)) };
    checked(result).map(drop)
}

/// `struct xfs_bulkstat` (`fs/xfs/libxfs/xfs_fs.h`), with the unused fields grouped.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct XfsInode {
    number: u64,
    unused: [u64; 7],
    generation: u32,
    unused_word: u32,
    unused_tail: [u64; 15],
}

/// The fixed part of `struct xfs_bulkstat_req`, whose size is part of the ioctl number.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct XfsBulkstatHeader {
    first: u64,
    flags: u32,
    requested: u32,
    found: u32,
    group: u32,
    reserved: [u64; 5],
}

/// The fixed part, followed by space for one inode.
#[repr(C)]
struct XfsBulkstatRequest {
    header: XfsBulkstatHeader,
    inode: XfsInode,
}

/// `XFS_IOC_BULKSTAT`.
const XFS_BULKSTAT: Opcode = opcode::read::<XfsBulkstatHeader>(b'X', 127);

/// Returns the generation of an inode of the XFS that holds `root`: a number that changes each time
/// the inode number is reused. Fails with `ENOENT` if no such inode exists now; with `ENOTTY` on
/// other file systems, and before Linux 5.4.
pub(crate) fn xfs_generation(root: &File, number: u64) -> io::Result<u32> {
    let header = XfsBulkstatHeader { first: number, requested: 1, ..XfsBulkstatHeader::default() };
    let mut request = XfsBulkstatRequest { header, inode: XfsInode::default() };
    // SAFETY: the value has the layout that the kernel expects and states that one inode fits; the
    // kernel writes no more and keeps no pointer.
    let call = unsafe { Updater::<XFS_BULKSTAT, XfsBulkstatRequest>::new(&mut request) };
    // SAFETY: it changes nothing of this process.
    unsafe { ioctl::ioctl(root, call)? };
    // The kernel returns the next inode if none has that number.
    let is_requested = request.header.found == 1 && request.inode.number == number;
    if is_requested { Ok(request.inode.generation) } else { Err(io::ErrorKind::NotFound.into()) }
}

/// Maximum length of a file handle (include/linux/exportfs.h, `MAX_HANDLE_SZ`).
const HANDLE_BYTES_MAX: usize = 128;

/// `struct file_handle` with space for the longest handle.
#[repr(C)]
struct FileHandle {
    bytes: u32,
    kind: i32,
    handle: [u8; HANDLE_BYTES_MAX],
}

/// Opens a file of the file system that holds `root` by its file handle, with `O_PATH`. Fails with
/// `ESTALE` if the file no longer exists.
pub(crate) fn open_by_handle(root: &File, kind: i32, handle: &[u8]) -> io::Result<OwnedFd> {
    let mut bytes = [0; HANDLE_BYTES_MAX];
    let Some(prefix) = bytes.get_mut(..handle.len()) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    prefix.copy_from_slice(handle);
    let length = u32::try_from(handle.len()).expect("at most 128");
    let mut file_handle = FileHandle { bytes: length, kind, handle: bytes };
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    let call = libc::SYS_open_by_handle_at;
    // SAFETY: the handle has the length that it states and lives until the call returns; the kernel
    // only reads it. rustix does not wrap this call.
    let result = unsafe { libc::syscall(call, root.as_raw_fd(), &raw mut file_handle, flags) };
    // SAFETY: the kernel has just created this descriptor, and no other code owns it.
    unsafe { created(result) }
}

/// Creates a fanotify(7) group that receives all changes of the file system of `root`: names with
/// their directories, and the files themselves, by handles. Fails with `EPERM` without
/// `CAP_SYS_ADMIN`.
pub(crate) fn watch_file_system(root: &File) -> io::Result<OwnedFd> {
    let init_flags = libc::FAN_CLASS_NOTIF
        | libc::FAN_CLOEXEC
        | libc::FAN_NONBLOCK
        | libc::FAN_REPORT_FID
        | libc::FAN_REPORT_DFID_NAME;
    let event_flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: no pointer. Neither the standard library nor rustix has a wrapper.
    let group = unsafe { libc::fanotify_init(init_flags, event_flags.cast_unsigned()) };
    // SAFETY: the kernel has just created this descriptor, and no other code owns it.
    let group = unsafe { created(group.into()) }?;
    let mask = libc::FAN_MODIFY
        | libc::FAN_ATTRIB
        | libc::FAN_CREATE
        | libc::FAN_DELETE
        | libc::FAN_MOVED_FROM
        | libc::FAN_MOVED_TO
        | libc::FAN_ONDIR;
    let mark_flags = libc::FAN_MARK_ADD | libc::FAN_MARK_FILESYSTEM;
    // SAFETY: with a null path the mark applies to the descriptor, and there is no other pointer.
    let marked = unsafe {
        libc::fanotify_mark(group.as_raw_fd(), mark_flags, mask, root.as_raw_fd(), ptr::null())
    };
    checked(marked).map(|_| group)
}

/// The calling thread, for the calls below.
const CALLING_THREAD: libc::pid_t = 0;

/// Returns scheduling policy and real-time priority of the calling thread, by the numbers of
/// sched(7).
pub(crate) fn scheduling() -> io::Result<(i32, i32)> {
    scheduling_of(CALLING_THREAD)
}

fn scheduling_of(thread: libc::pid_t) -> io::Result<(i32, i32)> {
    // The kernel's `struct sched_param` is this integer (include/uapi/linux/sched/types.h). The
    // functions of musl for these calls fail with `ENOSYS`, and rustix has none.
    let mut priority: libc::c_int = 0;
    // SAFETY: no pointer.
    let policy = checked(unsafe { libc::syscall(libc::SYS_sched_getscheduler, thread) })?;
    let pointer = ptr::from_mut(&mut priority);
    // SAFETY: the pointer refers to a live value of the layout that the kernel expects, and the
    // kernel does not keep it.
    checked(unsafe { libc::syscall(libc::SYS_sched_getparam, thread, pointer) })?;
    Ok((i32::try_from(policy).expect("a small number"), priority))
}

/// Sets both for the calling thread; threads that it starts inherit them.
pub(crate) fn set_scheduling(policy: i32, priority: i32) -> io::Result<()> {
    let pointer = ptr::from_ref(&priority);
    // SAFETY: as above; the kernel only reads the value.
    let result =
        unsafe { libc::syscall(libc::SYS_sched_setscheduler, CALLING_THREAD, policy, pointer) };
    checked(result).map(drop)
}

/// Selects a thread, for `ioprio_get(2)` and `ioprio_set(2)` (include/uapi/linux/ioprio.h).
const IOPRIO_WHO_PROCESS: libc::c_int = 1;

/// Returns the I/O priority of the calling thread, as in `ioprio_get(2)`.
pub(crate) fn io_priority() -> io::Result<i32> {
    // SAFETY: no pointer. Neither libc nor rustix has a wrapper.
    let value = unsafe { libc::syscall(libc::SYS_ioprio_get, IOPRIO_WHO_PROCESS, CALLING_THREAD) };
    Ok(i32::try_from(checked(value)?).expect("16 bits"))
}

/// Sets the I/O priority of the calling thread; threads that it starts inherit it.
pub(crate) fn set_io_priority(value: i32) -> io::Result<()> {
    // SAFETY: no pointer. Neither libc nor rustix has a wrapper.
    let result =
        unsafe { libc::syscall(libc::SYS_ioprio_set, IOPRIO_WHO_PROCESS, CALLING_THREAD, value) };
    checked(result).map(drop)
}

#[cfg(test)]
pub(crate) mod tests {
    //! A mapping that keeps pages resident.

    use super::*;

    #[test]
    fn an_error_is_that_of_the_call_that_failed() {
        assert_eq!(scheduling_of(-1).unwrap_err().raw_os_error(), Some(libc::EINVAL));
        assert!(scheduling().is_ok());
    }

    /// A mapping with all pages of a file populated, until dropped.
    pub(crate) struct PopulatedMapping(*mut libc::c_void, usize);

    impl PopulatedMapping {
        pub(crate) fn reading(file: &File, len: usize) -> Self {
            let flags = MapFlags::SHARED | MapFlags::POPULATE;
            // SAFETY: the kernel chooses the address, and nothing is read through the mapping: the
            // flag makes the kernel map the pages without an access.
            let address =
                unsafe { rustix::mm::mmap(ptr::null_mut(), len, ProtFlags::READ, flags, file, 0) };
            PopulatedMapping(address.unwrap(), len)
        }
    }

    impl Drop for PopulatedMapping {
        fn drop(&mut self) {
            // SAFETY: exactly the range that was mapped, and no reference into it exists.
            unsafe { rustix::mm::munmap(self.0, self.1) }.unwrap();
        }
    }
}
