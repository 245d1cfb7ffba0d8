//! Memory of a cgroup, in the form of a machine's memory.
//!
//! A cgroup with a memory limit is squeezed, and loses cache pages, while the machine has memory
//! available. The module supports both versions of the controller; a value that one of them lacks
//! is `None` or that of the machine. Sizes are bytes.

use crate::{mounts, proc};
use larder_schema::watch::Memory;
use std::path::{Path, PathBuf};

/// File system types of the two versions of the controller, and below the names of the same values
/// in them.
const FS_TYPES: [&str; 2] = ["cgroup", "cgroup2"];
const USED: [&str; 2] = ["memory.usage_in_bytes", "memory.current"];
const CACHE: [&str; 2] = ["total_cache", "file"];
const SHARED: [&str; 2] = ["total_shmem", "shmem"];
const DIRTY: [&str; 2] = ["total_dirty", "file_dirty"];
const WRITE_BACK: [&str; 2] = ["total_writeback", "file_writeback"];
const ACTIVE: [&str; 2] = ["total_active_file", "active_file"];
const INACTIVE: [&str; 2] = ["total_inactive_file", "inactive_file"];
const REFAULTS: [&str; 2] = ["total_workingset_refault_file", "workingset_refault_file"];

/// A cgroup with memory accounting.
#[derive(Clone, Debug)]
pub(super) struct Group {
    directory: PathBuf,
    /// Mount point of the hierarchy; groups above it have no limit to consider.
    root: PathBuf,
    version: usize,
}

#[derive(Clone, Debug)]
pub(super) struct GroupMemory {
    limit: u64,
    used: u64,
    stat: String,
    version: usize,
}

impl Group {
    /// Returns the group with this path below the root of the hierarchy, or `None` if it has no
    /// memory accounting.
    pub(super) fn find(group: &str) -> Option<Group> {
        let relative = group.trim_start_matches('/');
        mounts::all().into_iter().find_map(|mount| {
            let version = FS_TYPES.iter().position(|fs_type| *fs_type == mount.fs_type)?;
            let directory = mount.point.join(relative);
            let counted = directory.join(USED[version]).exists();
            counted.then_some(Group { directory, root: mount.point, version })
        })
    }

    /// Reads the current counters; returns `None` if the group no longer exists.
    pub(super) fn now(&self) -> Option<GroupMemory> {
        let stat = proc::read(self.directory.join("memory.stat"))?;
        let used = number(&self.directory.join(USED[self.version]))?;
        let hierarchy = proc::counter(&stat, "hierarchical_memory_limit");
        let limit = if hierarchy > 0 { hierarchy } else { self.limit_above() };
        Some(GroupMemory { limit, used, stat, version: self.version })
    }

    /// Returns the lowest limit of this group and its ancestors.
    fn limit_above(&self) -> u64 {
        let ancestors = self.directory.ancestors().take_while(|directory| *directory != self.root);
        ancestors
            .filter_map(|directory| number(&directory.join("memory.max")))
            .min()
            .unwrap_or(u64::MAX)
    }
}

/// Returns the number in a file, or `None` if it contains the word "max".
fn number(path: &Path) -> Option<u64> {
    proc::read(path)?.trim().parse().ok()
}

impl GroupMemory {
    fn bytes(&self, names: [&str; 2]) -> u64 {
        proc::counter(&self.stat, names[self.version])
    }

    /// Returns the machine's memory, restricted to the group, with the group's changes since
    /// `before`.
    pub(super) fn restrict(&self, machine: Memory, before: &GroupMemory) -> Memory {
        let files = self.bytes(ACTIVE) + self.bytes(INACTIVE);
        let free = self.limit.saturating_sub(self.used);
        let refaults = self.bytes(REFAULTS);
        Memory {
            resident_bytes: self.bytes(CACHE).saturating_sub(self.bytes(SHARED)),
            dirty_bytes: self.bytes(DIRTY),
            write_back_bytes: self.bytes(WRITE_BACK),
            // All file pages are reclaimable; the kernel reserves no free memory for a group.
            available_bytes: free.saturating_add(files).min(machine.available_bytes),
            total_bytes: self.limit.min(machine.total_bytes),
            refault_pages: refaults.saturating_sub(before.bytes(REFAULTS)),
            memory_pressure: None,
            io_pressure: None,
            ..machine
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_testing::skip;

    fn memory(version: usize, limit: u64, used: u64, stat: &str) -> GroupMemory {
        GroupMemory { limit, used, stat: stat.to_owned(), version }
    }

    #[test]
    fn a_group_with_a_limit_is_a_small_machine() {
        let machine = Memory {
            total_bytes: 1000,
            available_bytes: 900,
            resident_bytes: 700,
            dirty_threshold_bytes: 50,
            refault_pages: 77,
            ..Memory::default()
        };
        let old = "cache 1\ntotal_cache 60\ntotal_shmem 10\ntotal_dirty 5\ntotal_writeback 2\n\
                   total_active_file 20\ntotal_inactive_file 25\ntotal_workingset_refault_file 9\n";
        let new = "file 60\nshmem 10\nfile_dirty 5\nfile_writeback 2\nactive_file 20\n\
                   inactive_file 25\nworkingset_refault_file 9\n";
        for (version, stat) in [(0, old), (1, new)] {
            let before = memory(version, 100, 90, "");
            let found = memory(version, 100, 95, stat).restrict(machine, &before);
            assert_eq!((found.total_bytes, found.available_bytes), (100, 50));
            assert_eq!(
                (found.resident_bytes, found.dirty_bytes, found.write_back_bytes),
                (50, 5, 2)
            );
            assert_eq!((found.refault_pages, found.dirty_threshold_bytes), (9, 50));
            let free = memory(version, u64::MAX, 95, stat).restrict(machine, &before);
            assert_eq!((free.total_bytes, free.available_bytes), (1000, 900), "it has no limit");
        }
    }

    #[test]
    fn a_group_of_this_machine_is_found_where_memory_is_counted() {
        assert!(Group::find("/no/such/group").is_none());
        let Some(root) = Group::find("/").and_then(|root| root.now()) else {
            skip("no control group accounts for memory");
            return;
        };
        assert!(root.used > 0 && root.bytes(CACHE) > 0, "{root:?}");
    }
}
