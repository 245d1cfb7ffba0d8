//! Removal of files that killed runs have left in the directory of a benchmark.

use larder_lab::locked_path;
use std::path::Path;

/// Removes files and directories of this benchmark, named `larder-NAME-NUMBERS`, and reports them.
pub(super) fn remove_leftovers(directory: &Path, name: &str) {
    for path in locked_path::clear_up(directory, &format!("larder-{name}-")) {
        eprintln!("larder: removed {}, left by a killed run", path.display());
    }
}
