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
    }
}
