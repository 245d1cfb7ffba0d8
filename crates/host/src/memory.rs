//! Available memory, and the OOM killer's order.

use crate::proc;
use std::io;

/// Returns the bytes that programs can allocate without swapping, as the kernel estimates
/// (`MemAvailable`), or `None` if the kernel does not report it. Limits of memory cgroups are not
/// considered.
#[must_use]
pub fn available_bytes() -> Option<u64> {
    proc::meminfo()("MemAvailable")
}

/// Returns the resident memory of this process in bytes, or `None` if the kernel does not report
/// it.
#[must_use]
pub fn own_resident_bytes() -> Option<u64> {
    proc::field(&proc::read("/proc/self/status")?, "VmRSS")?.checked_mul(1024)
}

/// Memory use of the machine, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Total memory.
    pub total_bytes: u64,
    /// Memory that programs can still allocate.
    pub available_bytes: u64,
    /// Memory of the page cache, without tmpfs.
    pub cache_bytes: u64,
    /// Dirty memory of the page cache.
    pub dirty_bytes: u64,
    /// Memory under writeback.
    pub write_back_bytes: u64,
}

impl Memory {
    /// Reads the current memory use; returns `None` if the kernel does not report it.
    #[must_use]
    pub fn now() -> Option<Memory> {
        Memory::from_meminfo(&proc::meminfo())
    }

    fn from_meminfo(bytes: &impl Fn(&str) -> Option<u64>) -> Option<Memory> {
        Some(Memory {
            total_bytes: bytes("MemTotal")?,
            available_bytes: bytes("MemAvailable")?,
            cache_bytes: cache_bytes(bytes)?,
            dirty_bytes: bytes("Dirty")?,
            write_back_bytes: bytes("Writeback")?,
        })
    }
}

/// Returns the memory of the page cache: files and block devices, without tmpfs, which is not a
/// cache. Every command shows this value; `bytes` reads /proc/meminfo.
pub(crate) fn cache_bytes(bytes: &impl Fn(&str) -> Option<u64>) -> Option<u64> {
    let cached = bytes("Cached")? + bytes("Buffers").unwrap_or(0);
    Some(cached.saturating_sub(bytes("Shmem").unwrap_or(0)))
}

/// Makes the OOM killer choose this process before every other one.
///
/// # Errors
/// The kernel refuses.
pub fn be_ended_first() -> io::Result<()> {
    std::fs::write("/proc/self/oom_score_adj", "1000")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn less_can_be_had_than_there_is() {
        let all = crate::machine::memory_bytes();
        assert!(available_bytes().is_none_or(|bytes| bytes > 0 && bytes <= all));
        let now = Memory::now().expect("the kernel tells");
        assert!(now.cache_bytes + now.dirty_bytes > 0 && now.total_bytes == all);
    }

    #[test]
    fn the_cache_holds_block_devices_and_no_tmpfs() {
        let bytes = |name: &str| match name {
            "Cached" => Some(700),
            "Buffers" => Some(50),
            "Shmem" => Some(200),
            _ => Some(1),
        };
        assert_eq!(cache_bytes(&bytes), Some(550));
        assert_eq!(Memory::from_meminfo(&bytes).map(|memory| memory.cache_bytes), Some(550));
        assert_eq!(cache_bytes(&|_: &str| None), None);
    }
}
