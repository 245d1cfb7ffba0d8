//! Wrapper of bpf(2): maps, programs, and memory shared with them.
//!
//! Invariants: every pointer passed to the kernel refers to memory of the length passed with it,
//! and the kernel keeps none of them. Keys and values have the lengths that the map was created
//! with, which [`Map`] remembers. Memory shared with programs is accessed only as atomic words.

use super::{checked, created};
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::AtomicU64;

/// Commands, types and flags (include/uapi/linux/bpf.h).
const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const MAP_DELETE_ELEM: libc::c_int = 3;
const PROG_LOAD: libc::c_int = 5;
const OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const RAW_TRACEPOINT_OPEN: libc::c_int = 17;
const BTF_LOAD: libc::c_int = 18;
const PROG_TYPE_TRACING: u32 = 26;
const TRACE_RAW_TP: u32 = 23;
/// The kernel permits some helpers only to programs with a GPL-compatible license.
const LICENSE: &[u8] = b"Dual MIT/GPL\0";

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MapSpec {
    pub(crate) kind: u32,
    /// Bytes of a key and of a value.
    pub(crate) key_bytes: u32,
    pub(crate) value_bytes: u32,
    pub(crate) entries: u32,
    pub(crate) flags: u32,
}

#[repr(C)]
#[derive(Debug, Default)]
struct MapCreate {
    spec: MapSpec,
    inner_map_fd: u32,
    numa_node: u32,
    name: [u8; 16],
    ifindex: u32,
    btf_fd: u32,
    btf_key: u32,
    btf_value: u32,
}

/// Name of the maps and programs, as the kernel lists them.
const NAME: [u8; 16] = *b"larder\0\0\0\0\0\0\0\0\0\0";

#[repr(C)]
#[derive(Debug, Default)]
struct ElementAttr {
    map_fd: u32,
    reserved: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
#[derive(Debug, Default)]
struct ProgLoad {
    kind: u32,
    instructions: u32,
    code: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    ifindex: u32,
    attach_type: u32,
    btf_fd: u32,
    func_info_size: u32,
    func_info: u64,
    func_infos: u32,
    line_info_size: u32,
    line_info: u64,
    line_infos: u32,
    attach_btf_id: u32,
    attach_to: u32,
    reserved: u32,
}

#[repr(C)]
#[derive(Debug, Default)]
struct BtfLoad {
    btf: u64,
    log: u64,
    btf_size: u32,
    log_size: u32,
    log_level: u32,
    reserved: u32,
}

#[repr(C)]
#[derive(Debug, Default)]
struct RawTracepoint {
    name: u64,
    program: u32,
    reserved: u32,
}

#[repr(C)]
#[derive(Debug, Default)]
struct InfoByFd {
    fd: u32,
    length: u32,
    info: u64,
}

/// `struct bpf_prog_info` up to the last field in use, in words.
const INFO_WORDS: usize = 27;
/// Index of `recursion_misses` in it (since Linux 5.12).
const INFO_MISSED: usize = 26;

fn address<T>(slice: &[T]) -> u64 {
    slice.as_ptr().expose_provenance() as u64
}

fn length<T>(slice: &[T]) -> io::Result<u32> {
    u32::try_from(slice.len()).ok().ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

fn fd_number(descriptor: &OwnedFd) -> u32 {
    u32::try_from(descriptor.as_raw_fd()).expect("descriptors are not negative")
}

/// Executes a command; each `T` is the beginning of `union bpf_attr` for its command, and the
/// kernel treats omitted fields as 0. Returns the result of the call.
///
/// # Safety
/// Pointers in `attr` refer to memory of the lengths that `attr` states, which is writable where
/// the command writes.
unsafe fn call<T>(command: libc::c_int, attr: &mut T) -> io::Result<libc::c_long> {
    let size = libc::c_uint::try_from(size_of::<T>()).expect("a small structure");
    // SAFETY: the pointer refers to a live value of that size; the caller vouches for the pointers
    // in it.
    checked(unsafe { libc::syscall(libc::SYS_bpf, command, ptr::from_mut(attr), size) })
}

/// Executes a command that creates a file descriptor.
///
/// # Safety
/// The same as for [`call`].
unsafe fn create_fd<T>(command: libc::c_int, attr: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: the caller vouches for the pointers.
    let number = unsafe { call(command, attr) }?;
    // SAFETY: the kernel has just created this descriptor, and no other code owns it.
    unsafe { created(number) }
}

/// Map type with arbitrary keys.
pub(crate) const HASH: u32 = 1;
/// Map type with values by index.
pub(crate) const ARRAY: u32 = 2;
/// Map type with records in the order of their reservation.
pub(crate) const RING: u32 = 27;
/// Map type with a value for each task, freed with the task.
pub(crate) const THREADS: u32 = 29;

/// Allocates memory for elements on demand.
pub(crate) const NO_PREALLOC: u32 = 1;
/// Permits mapping the values into memory.
pub(crate) const MMAPABLE: u32 = 1 << 10;

#[derive(Debug)]
pub(crate) struct Map {
    fd: OwnedFd,
    spec: MapSpec,
}

impl Map {
    /// Creates a map; `types` are the BTF types of key and value for map types that require them.
    pub(crate) fn create(spec: MapSpec, types: Option<(&OwnedFd, u32, u32)>) -> io::Result<Map> {
        let (btf_fd, btf_key, btf_value) =
            types.map_or((0, 0, 0), |(btf, key, value)| (fd_number(btf), key, value));
        let (name, more) = (NAME, MapCreate::default());
        let mut attr = MapCreate { spec, name, btf_fd, btf_key, btf_value, ..more };
        // SAFETY: the structure contains no pointer.
        let fd = unsafe { create_fd(MAP_CREATE, &mut attr) }?;
        Ok(Map { fd, spec })
    }

    /// Returns the file descriptor, as programs name it.
    pub(crate) fn fd(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    fn element(&self, key: &[u8], value: Option<&[u8]>) -> io::Result<ElementAttr> {
        let value_bytes = value.map_or(Ok(self.spec.value_bytes), length)?;
        if (length(key)?, value_bytes) != (self.spec.key_bytes, self.spec.value_bytes) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // The kernel rejects fields that a command does not use.
        let (key, value) = (address(key), value.map_or(0, address));
        Ok(ElementAttr { map_fd: fd_number(&self.fd), key, value, ..ElementAttr::default() })
    }

    pub(crate) fn put(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let mut attr = self.element(key, Some(value))?;
        // SAFETY: key and value have the lengths of the map, as `element` checks, and are only
        // read.
        unsafe { call(MAP_UPDATE_ELEM, &mut attr) }.map(drop)
    }

    /// Removes a key; a missing key is an error.
    pub(crate) fn remove(&self, key: &[u8]) -> io::Result<()> {
        let mut attr = self.element(key, None)?;
        // SAFETY: the key has the length of the map and is only read.
        unsafe { call(MAP_DELETE_ELEM, &mut attr) }.map(drop)
    }

    /// Maps the memory of the map from `offset` on, for reading and, if `write` is set, for
    /// writing.
    pub(crate) fn map_memory(
        &self,
        offset: u64,
        bytes: usize,
        write: bool,
    ) -> io::Result<SharedMemory> {
        let prot = if write { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: the kernel chooses an unused address range.
        let address = unsafe {
            rustix::mm::mmap(ptr::null_mut(), bytes, prot, MapFlags::SHARED, &self.fd, offset)
        }?;
        Ok(SharedMemory { address, bytes, write })
    }
}

/// Memory shared with BPF programs.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    address: *mut libc::c_void,
    bytes: usize,
    write: bool,
}

// SAFETY: all threads access the memory only as atomic words.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    pub(crate) fn read(&self, index: usize, order: std::sync::atomic::Ordering) -> u64 {
        self.words()[index].load(order)
    }

    /// Writes a word; panics if the memory is mapped read-only.
    pub(crate) fn write(&self, index: usize, value: u64, order: std::sync::atomic::Ordering) {
        assert!(self.write, "this memory is for reading");
        self.words()[index].store(value, order);
    }

    fn words(&self) -> &[AtomicU64] {
        let words = self.address.cast::<AtomicU64>();
        // SAFETY: a mapping begins at a page boundary, so words are aligned, and it has that many
        // of them until this value is dropped; the kernel accesses the memory as atomic words as
        // well.
        unsafe { std::slice::from_raw_parts(words, self.bytes / size_of::<AtomicU64>()) }
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: exactly the range that was mapped, and references into it do not outlive this
        // value.
        let unmapped = unsafe { rustix::mm::munmap(self.address, self.bytes) };
        debug_assert!(unmapped.is_ok(), "it was mapped");
    }
}

/// Loads types in the BPF type format into the kernel.
pub(crate) fn load_types(btf: &[u8]) -> io::Result<OwnedFd> {
    let btf_size = length(btf)?;
    let mut attr = BtfLoad { btf: address(btf), btf_size, ..BtfLoad::default() };
    // SAFETY: the pointer refers to that many bytes, which are only read.
    unsafe { create_fd(BTF_LOAD, &mut attr) }
}

/// Loads a program for the tracepoint with the type number `tracepoint` in the kernel's BTF. The
/// verifier writes its messages to `log`, unless `log` is empty.
pub(crate) fn load_program(code: &[u64], tracepoint: u32, log: &mut [u8]) -> io::Result<OwnedFd> {
    let mut attr = ProgLoad {
        kind: PROG_TYPE_TRACING,
        instructions: length(code)?,
        code: address(code),
        license: address(LICENSE),
        log_level: u32::from(!log.is_empty()),
        log_size: length(log)?,
        log: if log.is_empty() { 0 } else { log.as_mut_ptr().expose_provenance() as u64 },
        name: NAME,
        attach_type: TRACE_RAW_TP,
        attach_btf_id: tracepoint,
        ..ProgLoad::default()
    };
    // SAFETY: code and license are live and only read; the log is written up to its size.
    unsafe { create_fd(PROG_LOAD, &mut attr) }
}

/// Runs a program at its tracepoint for as long as the returned descriptor lives.
pub(crate) fn attach(program: &OwnedFd) -> io::Result<OwnedFd> {
    let mut attr = RawTracepoint { program: fd_number(program), ..RawTracepoint::default() };
    // SAFETY: no pointer: the program determines its tracepoint.
    unsafe { create_fd(RAW_TRACEPOINT_OPEN, &mut attr) }
}

/// Returns the number of runs that the kernel skipped, because the program was already running on
/// that processor.
pub(crate) fn missed_runs(program: &OwnedFd) -> io::Result<u64> {
    let mut info = [0_u64; INFO_WORDS];
    let bytes = u32::try_from(size_of_val(&info)).expect("a small array");
    let info_address = info.as_mut_ptr().expose_provenance() as u64;
    let mut attr = InfoByFd { fd: fd_number(program), length: bytes, info: info_address };
    // SAFETY: the pointer refers to that many bytes, and the kernel writes no more.
    unsafe { call(OBJ_GET_INFO_BY_FD, &mut attr) }?;
    Ok(info[INFO_MISSED])
}
