//! Recorded trees of sysfs, and this machine.

use super::*;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::symlink;
use tempfile::TempDir;

/// A tree of sysfs and procfs.
struct Tree {
    directory: TempDir,
    mounts: String,
}

impl Tree {
    fn new() -> Self {
        Tree { directory: tempfile::tempdir().unwrap(), mounts: String::new() }
    }

    fn roots(&self) -> Roots {
        let root = self.directory.path();
        fs::create_dir_all(root.join("proc/self")).unwrap();
        fs::write(root.join("proc/self/mountinfo"), &self.mounts).unwrap();
        Roots { sys: root.join("sys"), proc: root.join("proc") }
    }

    /// Adds a device at a path below `devices`, with other files and lower devices.
    fn add(&self, path: &str, number: &str, files: &[(&str, &str)], lower: &[&str]) {
        let sys = self.directory.path().join("sys");
        let directory = sys.join("devices").join(path);
        fs::create_dir_all(directory.join("slaves")).unwrap();
        for (name, text) in [("dev", number), ("size", "2048")].iter().chain(files) {
            fs::create_dir_all(directory.join(name).parent().unwrap()).unwrap();
            fs::write(directory.join(name), format!("{text}\n")).unwrap();
        }
        for lower in lower {
            let name = Path::new(lower).file_name().unwrap();
            let target = sys.join("devices").join(lower);
            symlink(target, directory.join("slaves").join(name)).unwrap();
        }
        for link in [format!("dev/block/{number}"), format!("class/block/{}", name(path))] {
            fs::create_dir_all(sys.join(&link).parent().unwrap()).unwrap();
            symlink(&directory, sys.join(&link)).unwrap();
        }
    }

    fn mount(&mut self, number: &str, point: &str, fs_type: &str, source: &str) {
        let id = self.mounts.len();
        writeln!(self.mounts, "{id} 1 {number} / {point} rw - {fs_type} {source} rw").unwrap();
    }

    fn partition(&self, disk: &str, number: u32) {
        let minor = 16 * number;
        self.add(disk, &format!("8:{minor}"), &[], &[]);
        let part = format!("{disk}/{}1", name(disk));
        self.add(&part, &format!("8:{}", minor + 1), &[("partition", "1")], &[]);
    }
}

fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap()
}

fn shares(stack: &Stack, named: &[&str]) -> Vec<(String, f64, f64)> {
    let all = stack.shares(&|name| named.contains(&name));
    all.into_iter().map(|it| (it.disk, it.read, it.write)).collect()
}

/// LVM on dm-crypt on md RAID 1 on two partitions, mounted at /srv.
fn tower() -> Tree {
    let mut tree = Tree::new();
    tree.partition("pci/sda", 0);
    tree.partition("pci/sdb", 1);
    tree.add("virtual/md0", "9:0", &[("md/level", "raid1")], &["pci/sda/sda1", "pci/sdb/sdb1"]);
    let crypt = [("dm/uuid", "CRYPT-LUKS2-1"), ("dm/name", "secret")];
    tree.add("virtual/dm-0", "253:0", &crypt, &["virtual/md0"]);
    let logical = [("dm/uuid", "LVM-abc"), ("dm/name", "vg-home")];
    tree.add("virtual/dm-1", "253:1", &logical, &["virtual/dm-0"]);
    tree.mount("8:1", "/", "ext4", "/dev/sda1");
    tree.mount("253:1", "/srv", "ext4", "/dev/mapper/vg-home");
    tree
}

#[test]
fn a_file_on_lvm_on_dm_crypt_on_md_on_partitions_is_on_both_disks() {
    let tree = tower();
    let stack = Stack::of_path(&tree.roots(), Path::new("/srv/ann/mail")).unwrap();
    let expected = "vg-home (LVM) on secret (dm-crypt) on md0 (raid1) on sda1 (partition) on sda \
                    (disk), sdb1 (partition) on sdb (disk)";
    assert_eq!(stack.describe(), expected);
    assert_eq!(stack.bytes, 1 << 20);
    let both = [("sda".to_owned(), 0.5, 1.0), ("sdb".to_owned(), 0.5, 1.0)];
    assert_eq!(shares(&stack, &[]), both);
    assert_eq!(shares(&stack, &["md0"]), [("md0".to_owned(), 1.0, 1.0)]);
    assert_eq!(shares(&stack, &["vg-home"]), [("dm-1".to_owned(), 1.0, 1.0)]);
    assert!(stack.find(&Layer::Crypt).is_some() && stack.find(&Layer::Mapper).is_none());
    let root = Stack::of_path(&tree.roots(), Path::new("/etc/passwd")).unwrap();
    assert_eq!(shares(&root, &[]), [("sda".to_owned(), 1.0, 1.0)]);
}

#[test]
fn a_loop_device_is_on_the_disks_of_its_file() {
    let mut tree = tower();
    tree.add("virtual/loop0", "7:0", &[("loop/backing_file", "/srv/disk image")], &[]);
    tree.add("virtual/loop1", "7:1", &[("loop/backing_file", "/run/image (deleted)")], &[]);
    tree.add("virtual/loop2", "7:2", &[("loop/backing_file", "/mnt/image")], &[]);
    tree.mount("7:0", "/mnt", "ext4", "/dev/loop0");
    tree.mount("0:30", "/run", "tmpfs", "tmpfs");
    let of = |number| Stack::of_file_system(&tree.roots(), number).unwrap();
    assert_eq!(of((7, 2)).shares(&|_| false).len(), 2, "loop on loop on the tower");
    assert_eq!(shares(&of((7, 2)), &["loop0"]), [("loop0".to_owned(), 1.0, 1.0)]);
    assert_eq!(of((7, 0)).layer, Layer::Loop("/srv/disk image".into()));
    // Memory is no disk: the loop device is the lowest one.
    assert_eq!(shares(&of((7, 1)), &[]), [("loop1".to_owned(), 1.0, 1.0)]);
}

#[test]
fn the_paths_of_a_multipath_device_are_one_disk() {
    let tree = Tree::new();
    tree.add("pci/sdc", "8:32", &[], &[]);
    tree.add("pci/sdd", "8:48", &[], &[]);
    let mapper = [("dm/uuid", "mpath-36001"), ("dm/name", "mpatha")];
    tree.add("virtual/dm-2", "253:2", &mapper, &["pci/sdc", "pci/sdd"]);
    let part = [("dm/uuid", "part1-mpath-36001"), ("dm/name", "mpatha-part1")];
    tree.add("virtual/dm-3", "253:3", &part, &["virtual/dm-2"]);
    let stack = Stack::of_file_system(&tree.roots(), (253, 3)).unwrap();
    assert_eq!(stack.describe(), "mpatha-part1 (device mapper) on mpatha (multipath)");
    assert_eq!(shares(&stack, &[]), [("dm-2".to_owned(), 1.0, 1.0)]);
}

#[test]
fn a_btrfs_has_the_disks_of_all_its_devices() {
    let mut tree = Tree::new();
    tree.partition("pci/sda", 0);
    tree.add("pci/sdb", "8:16", &[], &[]);
    for name in ["sda1", "sdb"] {
        let devices = tree.directory.path().join("sys/fs/btrfs/uuid/devices");
        fs::create_dir_all(devices.join(name)).unwrap();
    }
    tree.mount("0:40", "/srv", "btrfs", "/dev/sda1");
    tree.mount("0:41", "/proc", "proc", "proc");
    let stack = Stack::of_file_system(&tree.roots(), (0, 40)).unwrap();
    let both = [("sda".to_owned(), 0.5, 0.5), ("sdb".to_owned(), 0.5, 0.5)];
    assert_eq!((stack.layer.clone(), shares(&stack, &[])), (Layer::FileSystem, both.to_vec()));
    let error = Stack::of_path(&tree.roots(), Path::new("/proc/self")).unwrap_err().to_string();
    assert_eq!(error, "/proc is a file system of type proc, which has no local block device");
}

#[test]
fn raid_5_costs_four_requests_a_write() {
    let tree = Tree::new();
    for (number, disk) in ["pci/sda", "pci/sdb", "pci/sdc", "pci/sdd"].iter().enumerate() {
        tree.add(disk, &format!("8:{}", 16 * number), &[], &[]);
    }
    let lower = ["pci/sda", "pci/sdb", "pci/sdc", "pci/sdd"];
    tree.add("virtual/md1", "9:1", &[("md/level", "raid5")], &lower);
    let stack = Stack::of_file_system(&tree.roots(), (9, 1)).unwrap();
    assert!(shares(&stack, &[]).iter().all(|(_, read, write)| (*read, *write) == (0.25, 1.0)));
}

#[test]
fn a_cycle_and_a_missing_device_are_errors() {
    let tree = Tree::new();
    tree.add("virtual/dm-4", "253:4", &[("dm/uuid", "LVM-a")], &["virtual/dm-5"]);
    tree.add("virtual/dm-5", "253:5", &[("dm/uuid", "LVM-b")], &["virtual/dm-4"]);
    tree.add("virtual/dm-6", "253:6", &[("dm/uuid", "LVM-c")], &["virtual/none"]);
    let of = |number| Stack::of_file_system(&tree.roots(), number).unwrap_err();
    assert!(matches!(of((253, 4)), StackError::TooDeep(_)));
    assert!(matches!(of((253, 6)), StackError::Unknown(_)));
    assert_eq!(of((253, 9)), StackError::Unknown("253:9".into()));
    assert_eq!(of((0, 9)), StackError::Unknown("0:9".into()));
    let of_path = Stack::of_path(&tree.roots(), Path::new("/x"));
    assert_eq!(of_path, Err(StackError::NoMount("/x".into())));
}

#[test]
fn each_disk_of_this_machine_is_one_that_sysfs_has() {
    let Ok(stack) = Stack::of_path(&Roots::default(), Path::new("/")) else {
        larder_testing::skip("the root file system is not on a disk");
        return;
    };
    for share in stack.shares(&|_| false) {
        assert!(Path::new("/sys/block").join(&share.disk).exists(), "{share:?}");
    }
}
