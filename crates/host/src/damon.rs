//! Detection of proactive reclaim: DAMON schemes and `DAMON_RECLAIM`, which page out cold memory
//! while memory is plentiful (Documentation/admin-guide/mm/damon in the kernel).
//!
//! DAMON pages out file pages that no process accessed for a while, a few at a time, so a file that
//! was just read into the page cache may lack some pages a moment later.

use crate::proc;
use std::path::{Path, PathBuf};

const KDAMONDS: &str = "/sys/kernel/mm/damon/admin/kdamonds";
const RECLAIM: &str = "/sys/module/damon_reclaim/parameters/enabled";

/// Returns true if a running scheme pages out cold memory, or `None` if the kernel does not report
/// it.
pub(crate) fn pages_out() -> Option<bool> {
    let reclaim = proc::read(RECLAIM).map(|text| text == "Y");
    let schemes = Path::new(KDAMONDS).is_dir().then(|| scheme_pages_out(Path::new(KDAMONDS)));
    [reclaim, schemes].into_iter().flatten().reduce(|one, other| one || other)
}

fn scheme_pages_out(kdamonds: &Path) -> bool {
    let running = numbered_directories(kdamonds)
        .filter(|kdamond| proc::read(kdamond.join("state")).as_deref() == Some("on"));
    let contexts = running.flat_map(|kdamond| numbered_directories(&kdamond.join("contexts")));
    let mut schemes = contexts.flat_map(|context| numbered_directories(&context.join("schemes")));
    schemes.any(|scheme| proc::read(scheme.join("action")).as_deref() == Some("pageout"))
}

/// Returns the sysfs directories 0, 1, 2 and so on.
fn numbered_directories(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let directory = directory.to_path_buf();
    (0..)
        .map(move |number: u32| directory.join(number.to_string()))
        .take_while(|path| path.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_running_scheme_with_pageout_is_found_and_a_stopped_or_other_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        assert!(!scheme_pages_out(directory.path()), "no kdamond");
        let kdamond = directory.path().join("1");
        // The first has no context, the second has two schemes.
        std::fs::create_dir_all(directory.path().join("0/contexts")).unwrap();
        std::fs::write(directory.path().join("0/state"), "on\n").unwrap();
        for (number, action) in ["stat", "pageout"].into_iter().enumerate() {
            let scheme = kdamond.join(format!("contexts/0/schemes/{number}"));
            std::fs::create_dir_all(&scheme).unwrap();
            std::fs::write(scheme.join("action"), format!("{action}\n")).unwrap();
        }
        for (state, expected) in [("off", false), ("on", true)] {
            std::fs::write(kdamond.join("state"), state).unwrap();
            assert_eq!(scheme_pages_out(directory.path()), expected, "{state}");
        }
        std::fs::write(kdamond.join("contexts/0/schemes/1/action"), "lru_prio").unwrap();
        assert!(!scheme_pages_out(directory.path()), "another action");
    }
}
