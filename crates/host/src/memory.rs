//! How much memory can be had, and who gives it back first.

use crate::proc;
use std::io;

/// Bytes that programs can still have without swapping, as the kernel reckons (`MemAvailable`);
/// nothing if it does not tell. A memory group with a limit of its own is not looked at.
#[must_use]
pub fn available_bytes() -> Option<u64> {
    let text = proc::read("/proc/meminfo")?;
    Some(proc::field(&text, "MemAvailable")?.saturating_mul(1024))
}

/// Memory at a moment, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// All of it.
    pub total_bytes: u64,
    /// What programs can still have.
    pub available_bytes: u64,
    /// What the file cache holds.
    pub cache_bytes: u64,
    /// What of it is dirty.
    pub dirty_bytes: u64,
    /// What is being written.
    pub write_back_bytes: u64,
}

impl Memory {
    /// As it is now; nothing if the kernel does not tell.
    #[must_use]
    pub fn now() -> Option<Memory> {
        let text = proc::read("/proc/meminfo")?;
        let bytes = |name| Some(proc::field(&text, name)?.saturating_mul(1024));
        Some(Memory {
            total_bytes: bytes("MemTotal")?,
            available_bytes: bytes("MemAvailable")?,
            cache_bytes: bytes("Cached")?,
            dirty_bytes: bytes("Dirty")?,
            write_back_bytes: bytes("Writeback")?,
        })
    }
}

/// Has this process ended before every other one when memory runs out.
///
/// # Errors
/// The kernel does not let it.
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
}
