//! Locks between test processes, for resources of the whole machine.
//!
//! Test runners differ: `cargo test` runs the tests of a crate as threads of one process,
//! `cargo nextest` runs each test as a separate process. A lock on a file excludes tests in both
//! cases.

use std::fs::File;

/// A lock of this user's test processes, by name; released when it is dropped.
#[derive(Debug)]
pub struct MachineLock {
    _file: File,
}

impl MachineLock {
    /// Waits until no other test holds the lock.
    ///
    /// # Panics
    /// The lock file in the temporary directory cannot be opened or locked.
    #[must_use]
    pub fn exclusive(name: &str) -> Self {
        let file = open(name);
        file.lock().expect("the lock file can be locked");
        MachineLock { _file: file }
    }

    /// Waits until no other test holds the lock exclusively.
    ///
    /// # Panics
    /// As for [`MachineLock::exclusive`].
    #[must_use]
    pub fn shared(name: &str) -> Self {
        let file = open(name);
        file.lock_shared().expect("the lock file can be locked");
        MachineLock { _file: file }
    }
}

/// Opens the lock file with a new open file description, so that threads of one process exclude
/// each other.
fn open(name: &str) -> File {
    let user = rustix::process::geteuid().as_raw();
    let path = std::env::temp_dir().join(format!("larder-test-{user}-{name}.lock"));
    let opened = File::options().create(true).append(true).open(&path);
    opened.unwrap_or_else(|error| panic!("cannot open {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exclusive_lock_excludes_and_shared_locks_do_not() {
        let name = format!("self-{}", std::process::id());
        let one = MachineLock::shared(&name);
        let other = MachineLock::shared(&name);
        assert!(open(&name).try_lock().is_err(), "two tests share it");
        drop((one, other));
        let one = MachineLock::exclusive(&name);
        assert!(open(&name).try_lock_shared().is_err(), "one test has it alone");
        drop(one);
        assert!(open(&name).try_lock().is_ok());
        let user = rustix::process::geteuid().as_raw();
        let path = std::env::temp_dir().join(format!("larder-test-{user}-{name}.lock"));
        std::fs::remove_file(path).unwrap();
    }
}
