//! Caches of metadata that file systems count themselves: inodes and buffers of XFS, and extents of
//! ext4. The kernel counts hits of the dentry cache nowhere.
//!
//! * `/sys/fs/xfs/DEVICE/stats/stats` (`fs/xfs/xfs_stats.h`): `ig` has lookups of inodes, those
//!   found and those recycled; `buf` has lookups of buffers in the first column, and misses in the
//!   sixth.
//! * `/proc/fs/ext4/DEVICE/es_shrinker_info` (`fs/ext4/extents_status.c`): hits and misses of the
//!   extent status tree.

use crate::proc;
use larder_schema::host_counters::MetadataCache;
use larder_schema::{as_f64, share};
use std::path::Path;

/// Counters of a cache since the mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MetadataReading {
    device: String,
    file_system: &'static str,
    cache: &'static str,
    lookups: u64,
    hits: u64,
}

/// Reads the counters of all mounted file systems that have them.
pub(super) fn read() -> Vec<MetadataReading> {
    read_in(Path::new("/sys/fs/xfs"), Path::new("/proc/fs/ext4"))
}

fn read_in(xfs: &Path, ext4: &Path) -> Vec<MetadataReading> {
    let of = |device: &str, file_system, cache, (hits, lookups): (u64, u64)| MetadataReading {
        device: device.to_owned(),
        file_system,
        cache,
        lookups,
        hits,
    };
    let mut all = Vec::new();
    for device in proc::names(xfs) {
        let text = proc::read(xfs.join(&device).join("stats/stats")).unwrap_or_default();
        all.extend(xfs_inodes(&text).map(|counts| of(&device, "xfs", "inodes", counts)));
        all.extend(xfs_buffers(&text).map(|counts| of(&device, "xfs", "buffers", counts)));
    }
    for device in proc::names(ext4) {
        let text = proc::read(ext4.join(&device).join("es_shrinker_info")).unwrap_or_default();
        all.extend(ext4_extents(&text).map(|counts| of(&device, "ext4", "extents", counts)));
    }
    all.sort_by(|a, b| (&a.device, a.cache).cmp(&(&b.device, b.cache)));
    all
}

/// Returns the numbers of a line of XFS's statistics.
fn xfs_line(text: &str, name: &str) -> Option<Vec<u64>> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    line.split(' ').map(|word| word.parse().ok()).collect()
}

/// Returns hits and lookups.
fn xfs_inodes(text: &str) -> Option<(u64, u64)> {
    let [lookups, found, recycled, ..] = xfs_line(text, "ig")?[..] else { return None };
    Some(((found + recycled).min(lookups), lookups))
}

/// Returns hits and lookups.
fn xfs_buffers(text: &str) -> Option<(u64, u64)> {
    let [lookups, _, _, _, _, misses, ..] = xfs_line(text, "buf")?[..] else { return None };
    Some((lookups.saturating_sub(misses), lookups))
}

/// Returns hits and lookups.
fn ext4_extents(text: &str) -> Option<(u64, u64)> {
    let line = text.lines().find_map(|line| line.trim().strip_suffix(" cache hits/misses"))?;
    let (hits, misses) = line.split_once('/')?;
    let (hits, misses): (u64, u64) = (hits.parse().ok()?, misses.parse().ok()?);
    Some((hits, hits.saturating_add(misses)))
}

/// Returns the caches with lookups between two readings.
pub(super) fn since(
    now: &[MetadataReading],
    before: &[MetadataReading],
    seconds: f64,
) -> Vec<MetadataCache> {
    let is_same = |a: &MetadataReading, b: &MetadataReading| {
        a.device == b.device && a.file_system == b.file_system && a.cache == b.cache
    };
    let change = |now: &MetadataReading| {
        // A file system that was mounted meanwhile, or again, starts at 0.
        let earlier = before.iter().find(|it| is_same(it, now) && it.lookups <= now.lookups);
        let minus = |count: fn(&MetadataReading) -> u64| {
            count(now).saturating_sub(earlier.map_or(0, count))
        };
        let (lookups, hits) = (minus(|it| it.lookups), minus(|it| it.hits));
        (lookups > 0).then(|| MetadataCache {
            device: now.device.clone(),
            file_system: now.file_system.to_owned(),
            cache: now.cache.to_owned(),
            lookups_per_s: as_f64(lookups) / seconds,
            hit_ratio: share(hits.min(lookups), lookups).unwrap_or(0.0),
        })
    };
    now.iter().filter_map(change).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn counters_are_taken_from_their_places() {
        let tree = tempfile::tempdir().unwrap();
        let [xfs, ext4] = ["xfs", "ext4"].map(|name| tree.path().join(name));
        fs::create_dir_all(xfs.join("sda1/stats")).unwrap();
        fs::create_dir_all(ext4.join("sdb")).unwrap();
        let stats = "dir 1 2\nig 901 600 50 251 0 0 0\nbuf 4552 39 4516 3407 0 36 0 0 25\n";
        fs::write(xfs.join("sda1/stats/stats"), stats).unwrap();
        let info = "stats:\n  93 objects\n  502/49 cache hits/misses\n  34 inodes on list\n";
        fs::write(ext4.join("sdb/es_shrinker_info"), info).unwrap();
        let now = read_in(&xfs, &ext4);
        let counts: Vec<_> =
            now.iter().map(|it| (it.device.as_str(), it.cache, it.hits, it.lookups)).collect();
        let expected = [
            ("sda1", "buffers", 4516, 4552),
            ("sda1", "inodes", 650, 901),
            ("sdb", "extents", 502, 551),
        ];
        assert_eq!(counts, expected);
        assert_eq!(read_in(&tree.path().join("none"), &tree.path().join("none")), []);

        let mut before = now.clone();
        (before[1].lookups, before[1].hits) = (801, 600);
        let found = since(&now, &before, 2.0);
        assert_eq!(found.len(), 1, "the others had no lookups");
        assert_eq!((found[0].lookups_per_s, found[0].hit_ratio), (50.0, 0.5));
        before[1].lookups = 10_000;
        assert!((since(&now, &before, 1.0)[0].lookups_per_s - 901.0).abs() < 1e-9, "mounted again");
    }
}
