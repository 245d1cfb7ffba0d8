//! The ioctl(2) GETFSMAP: the use of the blocks of a file system (include/uapi/linux/fsmap.h).

#![expect(unsafe_code, reason = "system calls take pointers")]

use rustix::ioctl::{self, Opcode, Updater, opcode};
use std::fs::File;
use std::io;

/// Records of one call.
const RECORDS: usize = 128;

/// `struct fsmap`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SpaceRecord {
    pub(crate) device: u32,
    pub(crate) flags: u32,
    pub(crate) physical: u64,
    pub(crate) owner: u64,
    offset: u64,
    pub(crate) length: u64,
    reserved: [u64; 3],
}

impl SpaceRecord {
    /// `FMR_OF_SPECIAL_OWNER`: the owner is a code, not an inode.
    const SPECIAL_OWNER: u32 = 0x10;
    /// `FMR_OF_LAST`: the last record of the file system.
    const LAST: u32 = 0x20;
    /// `FMR_OWN_FREE`.
    const FREE: u64 = 1;

    pub(crate) fn is_free(&self) -> bool {
        self.flags & SpaceRecord::SPECIAL_OWNER != 0 && self.owner == SpaceRecord::FREE
    }
}

/// The fixed part of `struct fsmap_head`, whose size is part of the ioctl number.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Head {
    in_flags: u32,
    out_flags: u32,
    count: u32,
    entries: u32,
    reserved: [u64; 6],
    /// The first record of the answer comes after the lower key; none is above the upper key.
    keys: [SpaceRecord; 2],
}

#[repr(C)]
struct SpaceMap {
    head: Head,
    records: [SpaceRecord; RECORDS],
}

/// `FS_IOC_GETFSMAP`.
const GETFSMAP: Opcode = opcode::read_write::<Head>(b'X', 59);

/// Calls `found` for each record of the file system that holds a file, in the order of their
/// places. Fails with `EOPNOTSUPP` or `ENOTTY` if the file system does not support the call.
pub(crate) fn for_each(file: &File, mut found: impl FnMut(&SpaceRecord)) -> io::Result<()> {
    let high = SpaceRecord {
        device: u32::MAX,
        flags: u32::MAX,
        physical: u64::MAX,
        owner: u64::MAX,
        offset: u64::MAX,
        ..SpaceRecord::default()
    };
    let count = u32::try_from(RECORDS).expect("a small number");
    let head = Head { count, keys: [SpaceRecord::default(), high], ..Head::default() };
    let mut map = Box::new(SpaceMap { head, records: [SpaceRecord::default(); RECORDS] });
    loop {
        // SAFETY: the value has the layout that the kernel expects and states the number of records
        // that fit; the kernel writes no more and keeps no pointer.
        let call = unsafe { Updater::<GETFSMAP, SpaceMap>::new(&mut map) };
        // SAFETY: it changes nothing of this process.
        unsafe { ioctl::ioctl(file, call)? };
        let entries = usize::try_from(map.head.entries).expect("a small number").min(RECORDS);
        map.records[..entries].iter().for_each(&mut found);
        match map.records[..entries].last() {
            Some(last) if last.flags & SpaceRecord::LAST == 0 => map.head.keys[0] = *last,
            _ => return Ok(()),
        }
    }
}
