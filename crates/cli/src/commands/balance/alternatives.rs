//! Other ways to move the data of a plan: by the volume manager, the file system or the database.

use super::inventory::{Inventory, Place};
use larder_host::stack::{Layer, Stack};
use larder_report::escape::{self, shell_word};
use larder_schema::balance::FileMove;
use std::collections::BTreeSet;
use std::path::Path;

/// Parts of the paths of databases, and how they move their own files.
const DATABASES: [(&str, &str); 6] = [
    (
        "/postgresql/",
        "PostgreSQL: create a tablespace on the target, then ALTER TABLE ... SET TABLESPACE, or \
         ALTER DATABASE ... SET TABLESPACE; for pg_wal use initdb --waldir, or stop it and link",
    ),
    (
        "/mysql/",
        "MySQL, MariaDB: ALTER TABLE ... TABLESPACE, or CREATE TABLE ... DATA DIRECTORY and copy; \
         innodb_log_group_home_dir and innodb_undo_directory for logs",
    ),
    ("/mongodb/", "MongoDB: start it with directoryPerDB, stop it, and move a directory"),
    ("/oradata/", "Oracle: ALTER DATABASE MOVE DATAFILE, online"),
    (
        "/mssql/",
        "SQL Server: ALTER DATABASE ... MODIFY FILE, then move the file while it is offline",
    ),
    (
        "/clickhouse/",
        "ClickHouse: a storage policy with two disks, then ALTER TABLE ... MOVE PARTITION",
    ),
];

/// Returns sentences and commands for the moves; none is executed.
pub(super) fn alternatives(inventory: &Inventory, moves: &[FileMove]) -> Vec<String> {
    let mut found: BTreeSet<String> =
        inventory.datasets.iter().map(|it| of_dataset(&it.0, &it.1)).collect();
    for each in moves {
        let place_of = |disks: &[String]| {
            inventory.places.iter().find(|place| {
                let shares = &place.balanced.shares;
                shares.iter().map(|it| &inventory.disks[it.0].name).eq(disks)
            })
        };
        if let (Some(from), Some(to)) = (place_of(&each.from_disks), place_of(&each.to_disks)) {
            found.extend(of_volumes(from, to));
        }
        let path = each.from.to_lowercase();
        let of_database = DATABASES.iter().find(|(part, _)| path.contains(part));
        found.extend(of_database.map(|(_, text)| (*text).to_owned()));
    }
    found.into_iter().collect()
}

/// Returns the commands of ZFS, which moves datasets and devices itself.
fn of_dataset(point: &Path, dataset: &str) -> String {
    let pool = dataset.split('/').next().unwrap_or_default();
    let [dataset, pool] = [dataset, pool].map(shell_word);
    format!(
        "ZFS shows the load of the disks of {} with zpool iostat -v {pool}; it copies a dataset \
         with zfs snapshot {dataset}@move and zfs send {dataset}@move | zfs receive \
         OTHER_POOL/NAME, and moves a whole device while it is in use with zpool replace {pool} \
         OLD NEW",
        escape::path(point)
    )
}

/// Returns the commands that move a whole volume.
fn of_volumes(from: &Place, to: &Place) -> Vec<String> {
    let (Some(source), Some(target)) = (&from.stack, &to.stack) else { return Vec::new() };
    let mut found = Vec::new();
    if let Some(logical) = source.find(&Layer::Logical)
        && let Some(first) = logical.below.first()
    {
        found.push(format!(
            "LVM moves the whole volume of {} while it is in use, onto a device that vgextend has \
             added: pvmove -n {} {} NEW_DEVICE",
            from.name,
            shell_word(&logical.label),
            shell_word(&format!("/dev/{}", device_name(first)))
        ));
    }
    let has_btrfs = |stack: &Stack| stack.layer == Layer::FileSystem;
    if has_btrfs(source) {
        found.push(format!(
            "btrfs moves a whole device while it is in use: btrfs replace start OLD NEW {}; a \
             subvolume moves with btrfs send and btrfs receive",
            shell_word(&from.name)
        ));
    }
    if has_btrfs(target) {
        found.push(format!(
            "on btrfs, a balance follows new devices: btrfs balance start {}",
            to.name
        ));
    }
    found
}

fn device_name(stack: &Stack) -> &str {
    match stack.layer {
        Layer::Disk | Layer::Partition | Layer::Array(_) => &stack.name,
        _ => &stack.label,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dataset_is_moved_by_zfs() {
        let text = of_dataset(Path::new("/srv/mail"), "tank/my mail");
        for part in ["/srv/mail", "zpool replace 'tank' OLD", "zfs send 'tank/my mail'@move"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
