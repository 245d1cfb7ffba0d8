//! What runs that were killed have left in a directory where a benchmark is about to work.

use larder_lab::bench::held;
use std::path::Path;

/// Removes it, and says so. Files and directories of this benchmark are called `larder-NAME-NUMBERS`.
pub(super) fn clear_up(directory: &Path, name: &str) {
    for path in held::clear_up(directory, &format!("larder-{name}-")) {
        eprintln!("larder: removed {}, which a run that was killed had left", path.display());
    }
}
