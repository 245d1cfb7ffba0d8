//! Residency of file pages on machines that reclaim idle memory.

use std::fs;
use std::path::Path;

/// Returns true if all of `pages` are resident. If the kernel reclaims idle memory without memory
/// pressure (DAMON, `Documentation/admin-guide/mm/damon`), it may evict any page at any time: then
/// 90 % are enough.
#[must_use]
pub fn stays_resident(resident: u64, pages: u64) -> bool {
    resident == pages || (reclaims_idle_memory() && (pages * 9 / 10..pages).contains(&resident))
}

fn reclaims_idle_memory() -> bool {
    let is = |path: &Path, word: &str| fs::read_to_string(path).is_ok_and(|it| it.trim() == word);
    let all = fs::read_dir("/sys/kernel/mm/damon/admin/kdamonds").into_iter().flatten().flatten();
    let mut states = all.map(|kdamond| kdamond.path().join("state"));
    states.any(|state| is(&state, "on"))
        || is(Path::new("/sys/module/damon_reclaim/parameters/enabled"), "Y")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_pages_are_enough_and_few_are_not() {
        assert!(stays_resident(10, 10) && stays_resident(0, 0));
        assert!(!stays_resident(8, 10) && !stays_resident(11, 10));
        assert_eq!(stays_resident(9, 10), reclaims_idle_memory());
    }
}
