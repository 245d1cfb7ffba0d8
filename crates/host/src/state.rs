//! Host state that a scratch file system could change: block devices with their settings and
//! backing files, mounts, the priority of this thread, and the files in a scratch directory.
//!
//! Unlike [`crate::settings`] this state contains names and paths of one machine. It serves to
//! compare the machine before and after a run, never for records
//! (`larder_schema::run::trial::SettingChange::between`).

use crate::disk::Disk;
use crate::priority::Priority;
use crate::scratch::PREFIX;
use crate::settings::QUEUE;
use crate::{mounts, proc};
use std::collections::BTreeMap;
use std::path::Path;

/// Returns the current state by name; `scratch` is the directory that contains the images.
#[must_use]
pub fn of_machine(scratch: &Path) -> BTreeMap<String, String> {
    let mut found = Priority::now().map(|priority| priority.named()).unwrap_or_default();
    for name in proc::names("/sys/block") {
        let disk = Disk { name };
        let key = format!("device {}", disk.name);
        found.insert(key.clone(), "there".to_owned());
        for (file, setting) in QUEUE {
            found.extend(disk.queue(file).map(|value| (format!("{key}, {setting}"), value)));
        }
        let backing = disk.directory().join("loop/backing_file");
        found.extend(proc::read(backing).map(|file| (format!("{key}, attached file"), file)));
    }
    for mount in mounts::all() {
        let key = format!("mount {}", mount.point.display());
        let description = format!("{} {} {}", mount.source, mount.fs_type, mount.options);
        // A mount that covers another one shares its name, so both are listed.
        let covered = found.get(&key).map(|below| format!("{below}, {description}"));
        found.insert(key, covered.unwrap_or(description));
    }
    // Other programs may store files in this directory.
    for name in proc::names(scratch).filter(|name| name.starts_with(PREFIX)) {
        found.insert(format!("in {}, {name}", scratch.display()), "there".to_owned());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::priority::PriorityChange;
    use larder_schema::run::trial::SettingChange;

    #[test]
    fn a_difference_is_noticed_and_gone_when_it_is_undone() {
        let scratch = tempfile::tempdir().unwrap();
        // Other processes attach and mount meanwhile; the filter keeps the changes of this test.
        let concerns_test = |change: &SettingChange| {
            let scratch_path = scratch.path().to_string_lossy();
            change.name.starts_with("process.") || change.name.contains(scratch_path.as_ref())
        };
        let between = |before: &BTreeMap<_, _>| -> Vec<String> {
            let changes = SettingChange::between(before, &of_machine(scratch.path()));
            changes.into_iter().filter(concerns_test).map(|change| change.name).collect()
        };
        let before = of_machine(scratch.path());
        assert!(before.contains_key("mount /proc"), "{before:?}");
        assert_eq!(between(&before), [""; 0]);
        let name = format!("{PREFIX}1-0");
        let batch = PriorityChange { policy: "batch".parse().ok(), ..PriorityChange::default() };
        let changed = batch.apply().unwrap();
        std::fs::write(scratch.path().join(&name), "x").unwrap();
        let image = format!("in {}, {name}", scratch.path().display());
        assert_eq!(between(&before), [image.as_str(), "process.policy"]);
        changed.restore().unwrap();
        std::fs::remove_file(scratch.path().join(&name)).unwrap();
        assert_eq!(between(&before), [""; 0]);
    }
}
