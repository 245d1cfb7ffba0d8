//! Mounts inside a directory that show the same files again, with other rights.

use super::MountLine;
use std::path::{Path, PathBuf};

/// Returns the mount that comes before `mount` and shows some of its files with other rights: one
/// of the two is read-only, or shows other owners. The candidates are the mount of `directory`,
/// whose ID is `root`, and the mounts inside it. The mount of the directory comes first, the others
/// follow in the order of the table.
///
/// A server that identifies a file by its inode opens it through one of its mounts, and would give
/// the rights of that mount to programs that reach the file through the other one.
pub(crate) fn conflicting_alias<'a>(
    table: &'a [MountLine],
    (root, directory): (Option<u64>, &Path),
    mount: &MountLine,
) -> Option<&'a MountLine> {
    let root = table.iter().find(|line| Some(line.id) == root);
    let is_inside = |line: &&MountLine| line.at != directory && line.at.starts_with(directory);
    let others = table.iter().filter(is_inside).take_while(|line| line.id != mount.id);
    let of_root = root.map(|line| (line, shown(line, directory)));
    let of_others = others.map(|line| (line, line.root.clone()));
    let mut candidates = of_root.into_iter().chain(of_others);
    let found = candidates.find(|(line, shown)| {
        let is_same = line.filesystem == mount.filesystem
            && (shown.starts_with(&mount.root) || mount.root.starts_with(shown));
        let has_same_rights = line.is_read_only() == mount.is_read_only();
        is_same && (!has_same_rights || line.is_idmapped || mount.is_idmapped)
    });
    found.map(|(line, _)| line)
}

/// Returns the directory of the file system that `directory`, below the mountpoint, shows.
fn shown(mount: &MountLine, directory: &Path) -> PathBuf {
    match directory.strip_prefix(&mount.at) {
        Ok(below) => mount.root.join(below),
        // The path is unknown, so all files that the mount shows count.
        Err(_) => mount.root.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse_all;
    use super::*;

    /// Returns the IDs of the mounts inside /d/s, mount 1, that are aliases with other rights.
    fn refused(lines: &[&str]) -> Vec<u64> {
        let table = parse_all(lines.join("\n").as_bytes());
        let root = (Some(1), Path::new("/d/s"));
        let inside = table.iter().filter(|line| line.at.starts_with("/d/s"));
        let refused = inside.filter(|line| conflicting_alias(&table, root, line).is_some());
        refused.map(|line| line.id).collect()
    }

    #[test]
    fn a_mount_of_the_same_files_with_other_rights_is_found() {
        let root = "1 0 8:1 / /d rw - ext4 /dev/a rw";
        assert!(refused(&[root, "2 1 8:1 /s/a /d/s/b rw - ext4 /dev/a rw"]).is_empty());
        assert_eq!(refused(&[root, "2 1 8:1 /s/a /d/s/b ro - ext4 /dev/a rw"]), [2]);
        assert_eq!(refused(&[root, "2 1 8:1 /s/a /d/s/b rw,idmapped - ext4 /dev/a rw"]), [2]);
        assert_eq!(refused(&[root, "2 1 8:1 / /d/s/b ro - ext4 /dev/a rw"]), [2], "all of it");
        // A mount of one file.
        assert_eq!(refused(&[root, "2 1 8:1 /s/f /d/s/g ro - ext4 /dev/a rw"]), [2]);
        // Files outside of the directory, and another file system.
        assert!(refused(&[root, "2 1 8:1 /t /d/s/b ro - ext4 /dev/a rw"]).is_empty());
        assert!(refused(&[root, "2 1 8:2 /s/a /d/s/b ro - ext4 /dev/b rw"]).is_empty());
        // The superblock is read-only.
        let root = "1 0 8:1 / /d rw - ext4 /dev/a ro";
        assert!(refused(&[root, "2 1 8:1 /s/a /d/s/b ro - ext4 /dev/a ro"]).is_empty());
    }

    #[test]
    fn of_two_mounts_of_the_same_files_the_later_one_is_found() {
        let root = "1 0 8:1 / /d rw - ext4 /dev/a rw";
        let two = |one: &str, other: &str| {
            let line = |id: u64, at: &str, options: &str| {
                format!("{id} 1 8:2 / /d/s/{at} {options} - ext4 /dev/b rw")
            };
            refused(&[root, &line(2, "a", one), &line(3, "b", other)])
        };
        assert!(two("rw", "rw").is_empty() && two("ro", "ro,nosuid").is_empty());
        assert_eq!(two("rw", "ro"), [3]);
        assert_eq!(two("ro", "rw"), [3]);
        assert_eq!(two("rw,idmapped", "rw,idmapped"), [3], "the owners may differ");
    }
}
