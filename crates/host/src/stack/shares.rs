//! The part of the requests to a file system that each of its disks receives.

use super::{Layer, Stack};
use std::collections::BTreeMap;

/// The requests that a disk receives for each request to the file system.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskShare {
    /// Name of the disk.
    pub disk: String,
    /// Requests of the disk for each read.
    pub read: f64,
    /// Requests of the disk for each write.
    pub write: f64,
}

impl Stack {
    /// Returns the share of each disk. A device with a name for which `is_disk` returns true counts
    /// as a disk, whatever is below it.
    ///
    /// The devices of a striped or joined device have equal shares. An array of md writes to each
    /// mirror, and a small write to RAID 5 or 6 is two or three reads and as many writes.
    #[must_use]
    pub fn shares(&self, is_disk: &dyn Fn(&str) -> bool) -> Vec<DiskShare> {
        let mut found = BTreeMap::new();
        self.add_shares(is_disk, (1.0, 1.0), &mut found);
        let share = |(disk, (read, write))| DiskShare { disk, read, write };
        found.into_iter().map(share).collect()
    }

    fn add_shares(
        &self,
        is_disk: &dyn Fn(&str) -> bool,
        (read, write): (f64, f64),
        found: &mut BTreeMap<String, (f64, f64)>,
    ) {
        if self.below.is_empty() || is_disk(&self.name) || is_disk(&self.label) {
            let known = found.entry(self.name.clone()).or_default();
            *known = (known.0 + read, known.1 + write);
            return;
        }
        let members = f64::from(u32::try_from(self.below.len()).unwrap_or(u32::MAX));
        let writes = match &self.layer {
            Layer::Array(level) => match level.as_str() {
                "raid1" => members,
                "raid10" => 2.0,
                "raid4" | "raid5" => 4.0,
                "raid6" => 6.0,
                _ => 1.0,
            },
            _ => 1.0,
        };
        for lower in &self.below {
            lower.add_shares(is_disk, (read / members, write * writes / members), found);
        }
    }
}
