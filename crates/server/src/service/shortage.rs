//! A note on caches that need more memory than programs leave.

use larder_host::memory;
use larder_schema::format;

/// Returns a note if a cache of `memory_bytes` needs more memory, beyond that of this process, than
/// programs can allocate now.
pub(crate) fn note(memory_bytes: u64) -> Option<String> {
    let growth_bytes = memory_bytes.saturating_sub(memory::own_resident_bytes()?);
    note_of(growth_bytes, memory::available_bytes()?)
}

fn note_of(growth_bytes: u64, available_bytes: u64) -> Option<String> {
    let [growth, available] = [growth_bytes, available_bytes].map(format::bytes);
    (growth_bytes > available_bytes).then(|| {
        format!(
            "the cache can grow by {growth}, but this machine has {available} of memory \
             available: a cache that grows further makes it swap or end programs; use less memory"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_beyond_the_available_memory_is_noted() {
        let text = note_of(3 << 30, 2 << 30).unwrap();
        assert!(text.starts_with("the cache can grow by 3 GiB, but this machine has 2 GiB"));
        assert_eq!(note_of(2 << 30, 2 << 30), None);
    }
}
