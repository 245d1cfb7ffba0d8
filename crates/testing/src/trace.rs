//! Published traces, which are not part of the repository.

use crate::skip;
use std::path::{Path, PathBuf};

/// Returns the path of a trace in `../shared/traces` next to the repository; reports a skip if it
/// does not exist.
#[must_use]
pub fn shared_trace(name: &str) -> Option<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/traces");
    let path = directory.join(name);
    if !path.exists() {
        skip(format_args!("{name} is not in ../shared/traces"));
        return None;
    }
    Some(path)
}
