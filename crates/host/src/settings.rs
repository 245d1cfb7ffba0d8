//! The settings that a measurement depends on: read before and after it.
//!
//! Invariants: names are stable, lower case, and end with the unit if there is one; values are the
//! kernel's own text; a setting that this kernel lacks is left out. Paths and host names are not
//! included, so that records are comparable (`larder_schema::run::trial::SettingChange::between`).

use crate::disk::Disk;
use crate::mounts::Mount;
use crate::priority::Priority;
use crate::proc;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Settings by name.
pub type Snapshot = BTreeMap<String, String>;

/// Memory settings in /proc/sys/vm, by file.
const VM: &[&str] = &[
    "dirty_background_bytes",
    "dirty_background_ratio",
    "dirty_bytes",
    "dirty_expire_centisecs",
    "dirty_ratio",
    "dirty_writeback_centisecs",
    "laptop_mode",
    "min_free_kbytes",
    "swappiness",
    "vfs_cache_pressure",
    "watermark_scale_factor",
    "zone_reclaim_mode",
];

/// Settings of a disk's queue: file in sysfs, and name.
pub(crate) const QUEUE: &[(&str, &str)] = &[
    ("scheduler", "scheduler"),
    ("read_ahead_kb", "read_ahead_kib"),
    ("nr_requests", "requests"),
    ("max_sectors_kb", "request_max_kib"),
    ("nomerges", "nomerges"),
    ("rotational", "rotational"),
    ("rq_affinity", "rq_affinity"),
    ("wbt_lat_usec", "wbt_lat_us"),
    ("write_cache", "write_cache"),
];

/// Other files with one value, or with one of several values in brackets.
const OTHER_FILES: &[(&str, &str)] = &[
    ("/sys/kernel/mm/transparent_hugepage/enabled", "thp.enabled"),
    ("/sys/kernel/mm/transparent_hugepage/defrag", "thp.defrag"),
    ("/sys/kernel/mm/lru_gen/enabled", "mglru.enabled"),
    ("/sys/devices/system/cpu/cpufreq/boost", "cpu.boost"),
    ("/sys/devices/system/cpu/online", "cpu.online"),
    ("/proc/sys/kernel/sched_autogroup_enabled", "sched.autogroup"),
];

/// Returns the effective settings for work on `paths`. Missing paths add nothing.
#[must_use]
pub fn snapshot(paths: &[PathBuf]) -> Snapshot {
    let mut found: Vec<(String, Option<String>)> = Vec::new();
    let vm = |name| (format!("vm.{name}"), proc::read(Path::new("/proc/sys/vm").join(name)));
    found.extend(VM.iter().map(vm));
    for (path, name) in OTHER_FILES {
        let value = proc::read(path).map(|text| proc::selected(&text).to_owned());
        found.push(((*name).to_owned(), value));
    }
    let pages_out = crate::damon::pages_out();
    found.push(("damon.pageout".to_owned(), pages_out.map(|on| on.to_string())));
    found.push(("cpu.governor".to_owned(), governors()));
    let mut mounts: Vec<Mount> = paths.iter().filter_map(|path| Mount::of(path).ok()).collect();
    let mut seen = BTreeSet::new();
    mounts.retain(|mount| seen.insert(mount.point.clone()));
    for (number, mount) in mounts.into_iter().enumerate() {
        let prefix = numbered_prefix("mount", number + 1);
        found.push((format!("{prefix}.fs_options"), Some(mount.all_fs_options())));
        found.push((format!("{prefix}.type"), Some(mount.fs_type)));
        found.push((format!("{prefix}.options"), Some(mount.options)));
    }
    let disks: BTreeSet<Disk> =
        paths.iter().filter_map(|path| Disk::of(path).ok().flatten()).collect();
    for (number, disk) in disks.into_iter().enumerate() {
        let prefix = numbered_prefix("disk", number + 1);
        for (file, name) in QUEUE {
            found.push((format!("{prefix}.{name}"), disk.queue(file)));
        }
        found.push((format!("{prefix}.name"), Some(disk.name)));
    }
    let known = found.into_iter().filter_map(|(name, value)| Some((name, value?)));
    known.chain(Priority::now().map(|priority| priority.named()).unwrap_or_default()).collect()
}

/// Returns the name with its number; the first item has no number, because most records have only
/// one.
fn numbered_prefix(kind: &str, number: usize) -> String {
    if number == 1 { kind.to_owned() } else { format!("{kind}{number}") }
}

fn governors() -> Option<String> {
    let cpus = proc::entries("/sys/devices/system/cpu/cpufreq");
    let governors: BTreeSet<String> =
        cpus.filter_map(|cpu| proc::read(cpu.join("scaling_governor"))).collect();
    let governors: Vec<String> = governors.into_iter().collect();
    (!governors.is_empty()).then(|| governors.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_of_this_machine_are_found_and_stay() {
        let directory = tempfile::tempdir().unwrap();
        let paths = [directory.path().to_path_buf(), directory.path().join("absent")];
        let first = snapshot(&paths);
        for name in ["vm.swappiness", "vm.dirty_ratio", "mount.type", "mount.options"] {
            assert!(first.contains_key(name), "{name} in {first:?}");
        }
        assert!((-20..20).contains(&first["process.nice"].parse::<i32>().unwrap()));
        assert!(!first.contains_key("mount2.type"), "a mount counts once");
        assert!(first.values().all(|value| !value.contains('[')), "{first:?}");
    }
}
