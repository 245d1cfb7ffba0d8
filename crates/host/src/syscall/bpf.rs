//! bpf(2): maps, programs, and memory that is shared with them.
//!
//! Invariants: every pointer in what the kernel is given is to memory of the length that is given
//! with it, and the kernel keeps none of them. Keys and values have the lengths that the map was
//! made with, which [`Map`] remembers. What is shared with programs is read and written as atomic
//! words only.

use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::AtomicU64;

/// Commands, kinds and flags (include/uapi/linux/bpf.h).
const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const MAP_DELETE_ELEM: libc::c_int = 3;
const PROG_LOAD: libc::c_int = 5;
const OBJ_GET_INFO_BY_FD: libc::c_int = 15;
const RAW_TRACEPOINT_OPEN: libc::c_int = 17;
const BTF_LOAD: libc::c_int = 18;
const PROG_TYPE_TRACING: u32 = 26;
const TRACE_RAW_TP: u32 = 23;
/// The kernel lends some helpers only to programs whose licence goes with its own.
const LICENCE: &[u8] = b"Dual MIT/GPL\0";

#[repr(C)]
#[derive(Debug, Default)]
struct MapCreate {
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
    inner_map_fd: u32,
    numa_node: u32,
    name: [u8; 16],
    ifindex: u32,
    btf_fd: u32,
    btf_key: u32,
    btf_value: u32,
}

#[repr(C)]
#[derive(Debug, Default)]
struct Element {
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
    licence: u64,
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

/// `struct bpf_prog_info` up to what is wanted of it, in words.
const INFO_WORDS: usize = 27;
/// Where `recursion_misses` is in it (since Linux 5.12).
const INFO_MISSED: usize = 26;

fn address<T>(slice: &[T]) -> u64 {
    slice.as_ptr().expose_provenance() as u64
}

fn length<T>(slice: &[T]) -> io::Result<u32> {
    u32::try_from(slice.len()).ok().ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

fn number(descriptor: &OwnedFd) -> u32 {
    u32::try_from(descriptor.as_raw_fd()).expect("descriptors are not negative")
}

/// One of the commands; each `T` is the beginning of `union bpf_attr` for its command, and the
/// kernel takes what is left out as 0. Answers what the kernel does.
///
/// # Safety
/// Pointers in `what` are to memory of the lengths that `what` gives with them, which may be
/// written where the command writes.
unsafe fn call<T>(command: libc::c_int, what: &mut T) -> io::Result<i32> {
    let size = libc::c_uint::try_from(size_of::<T>()).expect("a small structure");
    // SAFETY: the pointer is to a live value of that size; the caller answers for those in it.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, ptr::from_mut(what), size) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(i32::try_from(result).expect("descriptors are small"))
}

/// The same for commands that make a descriptor.
///
/// # Safety
/// As of [`call`].
unsafe fn make<T>(command: libc::c_int, what: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: handed on.
    let number = unsafe { call(command, what) }?;
    // SAFETY: the kernel has just made this descriptor, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// A kind of map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MapKind {
    /// Any key.
    Hash = 1,
    /// Values by number.
    Array = 2,
    /// Records, in the order of their making.
    Ring = 27,
    /// A value for each thread, which goes with it.
    Threads = 29,
}

/// Memory for elements is taken when they come.
pub(crate) const NO_PREALLOC: u32 = 1;
/// The values can be mapped into memory.
pub(crate) const MMAPABLE: u32 = 1 << 10;

/// A map is to be like this.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapSpec {
    pub(crate) kind: MapKind,
    pub(crate) key_bytes: u32,
    pub(crate) value_bytes: u32,
    pub(crate) entries: u32,
    pub(crate) flags: u32,
}

/// A map.
#[derive(Debug)]
pub(crate) struct Map {
    fd: OwnedFd,
    spec: MapSpec,
}

impl Map {
    /// Makes one; `types` are those of key and value where the kernel wants to know them.
    pub(crate) fn make(spec: MapSpec, types: Option<(&OwnedFd, u32, u32)>) -> io::Result<Map> {
        let (btf_fd, btf_key, btf_value) =
            types.map_or((0, 0, 0), |(btf, key, value)| (number(btf), key, value));
        let mut what = MapCreate {
            kind: spec.kind as u32,
            key_size: spec.key_bytes,
            value_size: spec.value_bytes,
            max_entries: spec.entries,
            flags: spec.flags,
            name: *b"larder\0\0\0\0\0\0\0\0\0\0",
            btf_fd,
            btf_key,
            btf_value,
            ..MapCreate::default()
        };
        // SAFETY: there is no pointer in it.
        let fd = unsafe { make(MAP_CREATE, &mut what) }?;
        Ok(Map { fd, spec })
    }

    /// Its descriptor, as programs name it.
    pub(crate) fn number(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    fn element(&self, key: &[u8], value: &[u8]) -> io::Result<Element> {
        let fits = length(key)? == self.spec.key_bytes
            && (value.is_empty() || length(value)? == self.spec.value_bytes);
        if !fits {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // The kernel refuses what a command has no use for.
        let (key, value) = (address(key), if value.is_empty() { 0 } else { address(value) });
        Ok(Element { map_fd: number(&self.fd), key, value, ..Element::default() })
    }

    /// Gives a key a value.
    pub(crate) fn put(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        if value.is_empty() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut what = self.element(key, value)?;
        // SAFETY: both have the lengths of the map, as was looked after, and are only read.
        unsafe { call(MAP_UPDATE_ELEM, &mut what) }.map(drop)
    }

    /// Takes a key out; that there is none is an error.
    pub(crate) fn remove(&self, key: &[u8]) -> io::Result<()> {
        let mut what = self.element(key, &[])?;
        // SAFETY: the key has the length of the map and is only read.
        unsafe { call(MAP_DELETE_ELEM, &mut what) }.map(drop)
    }

    /// Its memory from `offset` on, for reading and, if asked for, for writing.
    pub(crate) fn share(&self, offset: u64, bytes: usize, write: bool) -> io::Result<Shared> {
        let prot = if write { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: the kernel chooses a place that nothing else is at.
        let address = unsafe {
            rustix::mm::mmap(ptr::null_mut(), bytes, prot, MapFlags::SHARED, &self.fd, offset)
        }?;
        Ok(Shared { address, bytes, write })
    }
}

/// Memory that programs of the kernel use as well.
#[derive(Debug)]
pub(crate) struct Shared {
    address: *mut libc::c_void,
    bytes: usize,
    write: bool,
}

// SAFETY: it is memory that is accessed by atomic words only, from whichever thread.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// A word, to be read.
    pub(crate) fn read(&self, place: usize, order: std::sync::atomic::Ordering) -> u64 {
        self.words()[place].load(order)
    }

    /// A word, to be written; only where that was asked for.
    pub(crate) fn write(&self, place: usize, value: u64, order: std::sync::atomic::Ordering) {
        assert!(self.write, "this memory is for reading");
        self.words()[place].store(value, order);
    }

    fn words(&self) -> &[AtomicU64] {
        let words = self.address.cast::<AtomicU64>();
        // SAFETY: a mapping begins at a page, so words are aligned, and it has that many of them
        // until this value is dropped; the kernel's side is atomic words as well.
        unsafe { std::slice::from_raw_parts(words, self.bytes / size_of::<AtomicU64>()) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: exactly what was mapped, and references into it do not outlive this value.
        let gone = unsafe { rustix::mm::munmap(self.address, self.bytes) };
        debug_assert!(gone.is_ok(), "it was mapped");
    }
}

/// Makes the kernel know types, in its BPF type format.
pub(crate) fn load_types(btf: &[u8]) -> io::Result<OwnedFd> {
    let btf_size = length(btf)?;
    let mut what = BtfLoad { btf: address(btf), btf_size, ..BtfLoad::default() };
    // SAFETY: the pointer is to that many bytes, which are only read.
    unsafe { make(BTF_LOAD, &mut what) }
}

/// Loads a program for the tracepoint whose type has the number `tracepoint` in the kernel's own
/// types. What the kernel has to say against it is in `log`, if that has room.
pub(crate) fn load_program(code: &[u64], tracepoint: u32, log: &mut [u8]) -> io::Result<OwnedFd> {
    let mut what = ProgLoad {
        kind: PROG_TYPE_TRACING,
        instructions: length(code)?,
        code: address(code),
        licence: address(LICENCE),
        log_level: u32::from(!log.is_empty()),
        log_size: length(log)?,
        log: if log.is_empty() { 0 } else { log.as_mut_ptr().expose_provenance() as u64 },
        name: *b"larder\0\0\0\0\0\0\0\0\0\0",
        attach_type: TRACE_RAW_TP,
        attach_btf_id: tracepoint,
        ..ProgLoad::default()
    };
    // SAFETY: code and licence are live and only read; the log is written up to its size.
    unsafe { make(PROG_LOAD, &mut what) }
}

/// Has a program run at its tracepoint for as long as the descriptor lives.
pub(crate) fn attach(program: &OwnedFd) -> io::Result<OwnedFd> {
    let mut what = RawTracepoint { program: number(program), ..RawTracepoint::default() };
    // SAFETY: no pointer: the program knows its tracepoint.
    unsafe { make(RAW_TRACEPOINT_OPEN, &mut what) }
}

/// How often a program was to run and could not, since it ran already on that processor.
pub(crate) fn missed_runs(program: &OwnedFd) -> io::Result<u64> {
    let mut info = [0_u64; INFO_WORDS];
    let bytes = u32::try_from(size_of_val(&info)).expect("a small array");
    let info_address = info.as_mut_ptr().expose_provenance() as u64;
    let mut what = InfoByFd { fd: number(program), length: bytes, info: info_address };
    // SAFETY: the pointer is to that many bytes, and the kernel writes no more.
    unsafe { call(OBJ_GET_INFO_BY_FD, &mut what) }?;
    Ok(info[INFO_MISSED])
}
