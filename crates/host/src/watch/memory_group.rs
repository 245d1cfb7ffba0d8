//! Memory of a cgroup, in the form of a machine's memory.
//!
//! A cgroup with a memory limit is squeezed, and loses cache pages, while the machine has memory
//! available. The module supports both versions of the controller; a value that one of them lacks
//! is `None` or that of the machine. Sizes are bytes.

use crate::{mounts, proc};
use larder_report::watch::Memory;
use std::path::{Path, PathBuf};

/// Names of the same values in the two versions; the first is cgroup v1.
const VERSIONS: [Version; 2] = [
    Version {
        fs_type: "cgroup",
        used: "memory.usage_in_bytes",
        cache: "total_cache",
        shared: "total_shmem",
        dirty: "total_dirty",
        write_back: "total_writeback",
        active: "total_active_file",
        inactive: "total_inactive_file",
        refaults: "total_workingset_refault_file",
    },
    Version {
        fs_type: "cgroup2",
        used: "memory.current",
        cache: "file",
        shared: "shmem",
        dirty: "file_dirty",
        write_back: "file_writeback",
        active: "active_file",
        inactive: "inactive_file",
        refaults: "workingset_refault_file",
    },
];

#[derive(Debug)]
struct Version {
    fs_type: &'static str,
    used: &'static str,
    cache: &'static str,
    shared: &'static str,
    dirty: &'static str,
    write_back: &'static str,
    active: &'static str,
    inactive: &'static str,
    refaults: &'static str,
}

/// A cgroup with memory accounting.
#[derive(Clone, Debug)]
pub(super) struct Group {
    directory: PathBuf,
    /// Mount point of the hierarchy; groups above it have no limit to consider.
    root: PathBuf,
    version: &'static Version,
}

/// Counters of a cgroup at one time.
#[derive(Clone, Debug)]
pub(super) struct GroupMemory {
    limit: u64,
    used: u64,
    stat: String,
    version: &'static Version,
}

impl Group {
    /// Returns the group with this path below the root of the hierarchy, or `None` if it has no
    /// memory accounting.
    pub(super) fn find(group: &str) -> Option<Group> {
        let relative = group.trim_start_matches('/');
        mounts::all().into_iter().find_map(|mount| {
            let version = VERSIONS.iter().find(|version| version.fs_type == mount.fs_type)?;
            let directory = mount.point.join(relative);
            let counted = directory.join(version.used).exists();
            counted.then_some(Group { directory, root: mount.point, version })
        })
    }

    /// Reads the current counters; returns `None` if the group no longer exists.
    pub(super) fn now(&self) -> Option<GroupMemory> {
        let stat = proc::read(self.directory.join("memory.stat"))?;
        let used = number(&self.directory.join(self.version.used))?;
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
    fn bytes(&self, name: fn(&Version) -> &'static str) -> u64 {
        proc::counter(&self.stat, name(self.version))
    }

    /// Returns the machine's memory, restricted to the group, with the group's changes since
    /// `before`.
    pub(super) fn restrict(&self, machine: Memory, before: &GroupMemory) -> Memory {
        let files = self.bytes(|it| it.active) + self.bytes(|it| it.inactive);
        let free = self.limit.saturating_sub(self.used);
        let refaults = self.bytes(|it| it.refaults);
        Memory {
            resident_bytes: self.bytes(|it| it.cache).saturating_sub(self.bytes(|it| it.shared)),
            dirty_bytes: self.bytes(|it| it.dirty),
            write_back_bytes: self.bytes(|it| it.write_back),
            // All file pages are reclaimable; the kernel reserves no free memory for a group.
            available_bytes: free.saturating_add(files).min(machine.available_bytes),
            total_bytes: self.limit.min(machine.total_bytes),
            refault_pages: refaults.saturating_sub(before.bytes(|it| it.refaults)),
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
        GroupMemory { limit, used, stat: stat.to_owned(), version: &VERSIONS[version] }
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
        assert!(root.used > 0 && root.bytes(|it| it.cache) > 0, "{root:?}");
    }
}
