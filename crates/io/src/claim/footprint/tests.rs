//! Footprints of simulated machines, including devices that the test machine may lack, and a table
//! of pairs that are the same data or not.

use super::*;
use std::collections::HashMap;

/// A simulated machine.
#[derive(Default)]
struct SimulatedMachine {
    disks: HashMap<u64, Disk>,
    filesystems: HashMap<u64, FileSystem>,
    inodes: Vec<(FsPath, Inode)>,
    mounts: Vec<(PathBuf, NestedMount)>,
}

impl MachineFacts for SimulatedMachine {
    fn disk(&self, number: u64) -> Disk {
        self.disks.get(&number).cloned().unwrap_or(Disk::Whole { members: Vec::new() })
    }

    fn filesystem(&self, number: u64) -> FileSystem {
        self.filesystems.get(&number).cloned().unwrap_or_default()
    }

    fn inode(&self, fs_path: &FsPath) -> Option<Inode> {
        self.inodes.iter().find(|(known, _)| known == fs_path).map(|&(_, inode)| inode)
    }

    fn mounted_below(&self, path: &Path) -> Vec<NestedMount> {
        let below = self.mounts.iter().filter(|(at, _)| at != path && at.starts_with(path));
        below.map(|(_, mount)| mount.clone()).collect()
    }
}

/// Returns the parts of a footprint.
fn parts(data: &CachedData, machine: &SimulatedMachine) -> Vec<FootprintPart> {
    footprint(data, machine).parts
}

const MIB: u64 = 1 << 20;

/// Disks: sda with sda1 and sda2; md0 of sdb and sdc; lv1 and lv2 in a volume group on sda2; crypt
/// on md0.
const SDA: u64 = 800;
const SDA1: u64 = 801;
const SDA2: u64 = 802;
const SDB: u64 = 810;
const SDC: u64 = 811;
const MD0: u64 = 900;
const LV1: u64 = 2530;
const LV2: u64 = 2531;
const CRYPT: u64 = 2532;
/// Loop devices: on the image, on its second half, two partitions of the first one, one on an image
/// in a file system on an image, and one on sda2.
const LOOP: u64 = 700;
const LOOP_HALF: u64 = 701;
const LOOP_P1: u64 = 25900;
const LOOP_P2: u64 = 25901;
const LOOP_INNER: u64 = 702;
const LOOP_SDA2: u64 = 703;
/// File systems: on sda1, on the loop device, in the nested image, an overlay, on lv1, one of two
/// disks (as btrfs), a Larder mount, on a loop device on a file of that mount.
const ROOT: u64 = SDA1;
const ON_LOOP: u64 = LOOP;
const INNER: u64 = LOOP_INNER;
const OVERLAY: u64 = 50;
const ON_LV1: u64 = LV1;
const POOLED: u64 = 51;
const LARDER: u64 = 52;
const ON_LARDER: u64 = 704;

fn fs_path(filesystem: u64, path: &str) -> FsPath {
    FsPath { filesystem, path: path.into() }
}

/// Inode numbers count up as files are added.
fn machine() -> SimulatedMachine {
    let mut machine = SimulatedMachine::default();
    let whole = |members: &[u64]| Disk::Whole { members: members.to_vec() };
    let part = |of, start, bytes| Disk::Part { of, start: start * MIB, bytes: bytes * MIB };
    let on_file = |inode, fs_path, start, bytes| Disk::Loop {
        inode,
        links: 1,
        fs_path: Some(fs_path),
        start: start * MIB,
        bytes: bytes * MIB,
    };
    let image = fs_path(ROOT, "/srv/images/a.img");
    let inner = fs_path(ON_LOOP, "/deep/inner.img");
    machine.disks.extend([
        (SDA1, part(SDA, 1, 100)),
        (SDA2, part(SDA, 101, 100)),
        (MD0, whole(&[SDB, SDC])),
        (LV1, whole(&[SDA2])),
        (LV2, whole(&[SDA2])),
        (CRYPT, whole(&[MD0])),
        (LOOP, on_file((ROOT, 10), image.clone(), 0, 64)),
        (LOOP_HALF, on_file((ROOT, 10), image, 32, 32)),
        (LOOP_P1, part(LOOP, 1, 31)),
        (LOOP_P2, part(LOOP, 32, 32)),
        (LOOP_INNER, on_file((ON_LOOP, 20), inner, 0, 16)),
        (LOOP_SDA2, part(SDA2, 0, 100)),
        (ON_LARDER, on_file((LARDER, 30), fs_path(LARDER, "/disk"), 0, 64)),
    ]);
    let linked = Some(fs_path(ROOT, "/elsewhere/c.img"));
    let on_linked =
        Disk::Loop { inode: (ROOT, 14), fs_path: linked, links: 2, start: 0, bytes: 64 * MIB };
    machine.disks.insert(LOOP_LINKED, on_linked);
    let on = |disks: &[u64]| FileSystem { disks: disks.to_vec(), ..FileSystem::default() };
    let layers = vec![fs_path(ROOT, "/upper"), fs_path(ROOT, "/lower")];
    machine.filesystems.extend([
        (ROOT, on(&[SDA1])),
        (ON_LOOP, on(&[LOOP])),
        (INNER, on(&[LOOP_INNER])),
        (OVERLAY, FileSystem { layers, ..FileSystem::default() }),
        (ON_LV1, on(&[LV1])),
        (POOLED, on(&[SDB, SDC])),
        (ON_LARDER, on(&[ON_LARDER])),
    ]);
    let names = [
        (ROOT, "/srv", 2),
        (ROOT, "/srv/images", 3),
        (ROOT, "/srv/images/a.img", 10),
        (ROOT, "/srv/images/b.img", 11),
        (ROOT, "/srv/other", 4),
        (ROOT, "/upper", 5),
        (ROOT, "/upper/changed", 12),
        (ROOT, "/lower", 6),
        (ROOT, "/lower/kept", 13),
        (ON_LOOP, "/deep", 21),
    ];
    machine.inodes.extend(names.map(|(at, path, inode)| (fs_path(at, path), (at, inode))));
    let directory =
        |filesystem, path| NestedMount { fs_path: fs_path(filesystem, path), file: None };
    let mounted_image =
        NestedMount { fs_path: fs_path(ROOT, "/srv/images/a.img"), file: Some((ROOT, 10)) };
    machine.mounts = vec![
        ("/srv/inside".into(), directory(ON_LOOP, "/")),
        ("/bind/images".into(), directory(ROOT, "/srv/images")),
        ("/single/image".into(), mounted_image),
    ];
    machine
}

fn file(filesystem: u64, path: &str, inode: u64) -> CachedData {
    CachedData::File {
        inode: (filesystem, inode),
        fs_path: Some(fs_path(filesystem, path)),
        links: 1,
    }
}

fn tree(filesystem: u64, path: &str, inode: u64, at: &str) -> CachedData {
    let fs_path = Some(fs_path(filesystem, path));
    CachedData::Tree { inode: (filesystem, inode), fs_path, at: at.into() }
}

fn image() -> CachedData {
    file(ROOT, "/srv/images/a.img", 10)
}

fn images() -> CachedData {
    tree(ROOT, "/srv/images", 3, "/srv/images")
}

/// A directory in which the image is mounted.
fn single() -> CachedData {
    tree(ROOT, "/single", 9, "/single")
}

/// A file of the file system on the loop device, which is not in the mount table.
fn unlisted() -> CachedData {
    CachedData::File { inode: (ON_LOOP, 24), fs_path: None, links: 1 }
}

/// The image again, by an unknown name.
fn nameless() -> CachedData {
    CachedData::File { inode: (ROOT, 10), fs_path: None, links: 1 }
}

/// A loop device on the file of [`linked`].
const LOOP_LINKED: u64 = 705;

/// A file with another name at an unknown path.
fn linked() -> CachedData {
    let fs_path = Some(fs_path(ROOT, "/elsewhere/c.img"));
    CachedData::File { inode: (ROOT, 14), fs_path, links: 2 }
}

/// A directory that is reached only through a bind mount, so that its parents are not visible.
fn bound(path: &str, inode: u64) -> CachedData {
    tree(ROOT, path, inode, "/bound")
}

/// Pairs of cached data, each with a flag that is true if they are the same data.
type Case = (&'static str, CachedData, CachedData, bool);

#[expect(clippy::too_many_lines, reason = "a table")]
fn cases() -> Vec<Case> {
    let disk = CachedData::Disk;
    let export = |name: &str| CachedData::Export(name.to_owned());
    let (same, different) = (true, false);
    vec![
        ("an image twice", image(), nameless(), same),
        ("two images", image(), file(ROOT, "/srv/images/b.img", 11), different),
        ("an image and its loop device", image(), disk(LOOP), same),
        ("an image and a loop device on its second half", image(), disk(LOOP_HALF), same),
        ("an image and a partition of its loop device", image(), disk(LOOP_P1), same),
        ("two loop devices on overlapping ranges", disk(LOOP), disk(LOOP_HALF), same),
        ("a loop device and its partition", disk(LOOP), disk(LOOP_P2), same),
        ("two partitions", disk(LOOP_P1), disk(LOOP_P2), different),
        ("a partition and a loop device on its bytes", disk(LOOP_P2), disk(LOOP_HALF), same),
        ("a partition and a loop device beside it", disk(LOOP_P1), disk(LOOP_HALF), different),
        ("an image in a directory", image(), images(), same),
        ("a loop device on an image in a directory", disk(LOOP), images(), same),
        ("a partition of one", disk(LOOP_P1), images(), same),
        ("an image beside a directory", image(), tree(ROOT, "/srv/other", 4, "/o"), different),
        ("a directory and one below", images(), tree(ROOT, "/srv", 2, "/srv"), same),
        ("two directories", images(), tree(ROOT, "/srv/other", 4, "/o"), different),
        ("a directory and a bind mount of it", images(), bound("/srv/images", 3), same),
        ("a directory and a bind mount of one below", images(), bound("/srv/images/x", 99), same),
        ("a directory above a bind mount", images(), tree(ROOT, "/bind", 7, "/bind"), same),
        ("a directory in which an image is mounted", single(), image(), same),
        ("the same and its loop device", single(), disk(LOOP), same),
        ("the same and the directory of the image", single(), images(), same),
        (
            "the same and the image beside it",
            single(),
            file(ROOT, "/srv/images/b.img", 11),
            different,
        ),
        ("an image and a file system on it", image(), tree(ON_LOOP, "/deep", 21, "/m/deep"), same),
        ("the loop device and a file on it", disk(LOOP), file(ON_LOOP, "/f", 22), same),
        (
            "files of a file system on an image",
            file(ON_LOOP, "/f", 22),
            file(ON_LOOP, "/g", 23),
            different,
        ),
        ("a file in no mount of this machine, and its disk", unlisted(), disk(LOOP), same),
        ("the same and the image below", unlisted(), image(), same),
        ("the same and a directory beside it", unlisted(), tree(ON_LOOP, "/deep", 21, "/m"), same),
        ("the same and another image", unlisted(), file(ROOT, "/srv/images/b.img", 11), different),
        ("the same and a file beside it", unlisted(), file(ON_LOOP, "/f", 22), different),
        ("an image and a nested one", image(), file(ON_LOOP, "/deep/inner.img", 20), same),
        ("an image and what lies in a nested one", image(), tree(INNER, "/", 1, "/n"), same),
        ("a directory and what lies in a nested image", images(), tree(INNER, "/", 1, "/n"), same),
        ("a loop device and that of a nested image", disk(LOOP), disk(LOOP_INNER), same),
        (
            "a directory with the file system mounted in it",
            tree(ROOT, "/srv", 2, "/srv"),
            file(ON_LOOP, "/f", 22),
            same,
        ),
        ("the same and the loop device", tree(ROOT, "/srv/inside", 8, "/srv"), disk(LOOP), same),
        ("a disk and its partition", disk(SDA), disk(SDA2), same),
        ("a disk and a file on it", disk(SDA), image(), same),
        ("a partition and a file on the other", disk(SDA2), image(), different),
        ("a logical volume and its partition", disk(LV1), disk(SDA2), same),
        ("a logical volume and the disk", disk(LV1), disk(SDA), same),
        ("a logical volume and the other partition", disk(LV1), disk(SDA1), different),
        ("two logical volumes", disk(LV1), disk(LV2), different),
        ("a logical volume and a directory on it", disk(LV1), tree(ON_LV1, "/", 2, "/lv"), same),
        (
            "a logical volume and a directory on the other",
            disk(LV2),
            tree(ON_LV1, "/", 2, "/lv"),
            different,
        ),
        ("a loop device on a block device", disk(LOOP_SDA2), disk(LV1), same),
        ("an array and a member", disk(MD0), disk(SDC), same),
        ("an encrypted array and a member", disk(CRYPT), disk(SDB), same),
        ("an encrypted array and the array", disk(CRYPT), disk(MD0), same),
        ("an array and another disk", disk(MD0), disk(SDA), different),
        ("a file system of two disks and the second", tree(POOLED, "/", 2, "/p"), disk(SDC), same),
        (
            "an overlay and its upper layer",
            tree(OVERLAY, "/", 2, "/ov"),
            tree(ROOT, "/upper", 5, "/upper"),
            same,
        ),
        (
            "an overlay and its lower layer",
            tree(OVERLAY, "/", 2, "/ov"),
            tree(ROOT, "/lower", 6, "/lower"),
            same,
        ),
        (
            "a directory of an overlay and of a layer",
            tree(OVERLAY, "/d", 3, "/ov/d"),
            tree(ROOT, "/upper/d", 98, "/upper/d"),
            same,
        ),
        (
            "different ones",
            tree(OVERLAY, "/d", 3, "/ov/d"),
            tree(ROOT, "/upper/e", 97, "/upper/e"),
            different,
        ),
        (
            "a file of an overlay and of a layer",
            file(OVERLAY, "/kept", 4),
            file(ROOT, "/lower/kept", 13),
            same,
        ),
        ("different files", file(OVERLAY, "/kept", 4), file(ROOT, "/upper/changed", 12), different),
        ("an overlay and the disk of its layers", tree(OVERLAY, "/d", 3, "/ov/d"), disk(SDA), same),
        ("a file with another name, and a directory", linked(), images(), same),
        ("a loop device on such a file", disk(LOOP_LINKED), images(), same),
        (
            "an unseen directory above a bind mount",
            tree(ROOT, "/unseen", 42, "/u"),
            bound("/unseen/x", 43),
            same,
        ),
        ("the same on another file system", linked(), tree(ON_LV1, "/", 2, "/lv"), different),
        ("the same and another file", linked(), image(), different),
        (
            "a Larder mount and a file of it",
            CachedData::FileSystem(LARDER),
            file(LARDER, "/disk", 30),
            same,
        ),
        (
            "and a file system on a loop device on it",
            CachedData::FileSystem(LARDER),
            tree(ON_LARDER, "/", 2, "/l"),
            same,
        ),
        (
            "a Larder mount and another directory",
            CachedData::FileSystem(LARDER),
            images(),
            different,
        ),
        ("an export twice", export("h:1 a"), export("h:1 a"), same),
        ("two exports", export("h:1 a"), export("h:1 b"), different),
    ]
}

#[test]
fn pairs_of_the_same_data_overlap_in_either_order_and_others_do_not() {
    let machine = machine();
    for (case, one, other, expected) in cases() {
        let (one, other) = (parts(&one, &machine), parts(&other, &machine));
        assert_eq!(overlap(&one, &other).is_some(), expected, "{case}: {one:#?} {other:#?}");
        assert_eq!(overlap(&other, &one).is_some(), expected, "{case}, the other way round");
    }
}

#[test]
fn what_the_kernel_has_mounted_overlaps_what_it_lies_on_and_not_its_own_files() {
    let machine = machine();
    let mounted = footprint_of_mount(ON_LOOP, &machine);
    let overlaps = |subject: &CachedData| overlap(&parts(subject, &machine), &mounted).is_some();
    assert!(overlaps(&image()) && overlaps(&CachedData::Disk(LOOP)));
    assert!(!overlaps(&file(ON_LOOP, "/f", 22)) && !overlaps(&tree(ON_LOOP, "/deep", 21, "/m")));
    assert!(!overlaps(&file(ROOT, "/srv/images/b.img", 11)));
}

#[test]
fn a_layer_that_cannot_be_found_is_known_to_all_that_lies_above() {
    let mut machine = machine();
    let unresolved = UnresolvedLayer { name: "up".into(), at: "/ov".into() };
    let filesystem = FileSystem { unresolved: Some(unresolved.clone()), ..FileSystem::default() };
    machine.filesystems.insert(60, filesystem);
    machine
        .mounts
        .push(("/above/ov".into(), NestedMount { fs_path: fs_path(60, "/"), file: None }));
    let found = |subject: &CachedData| footprint(subject, &machine).unresolved;
    for subject in [file(60, "/f", 1), tree(60, "/d", 2, "/ov/d"), tree(ROOT, "/a", 9, "/above")] {
        assert_eq!(found(&subject), std::slice::from_ref(&unresolved), "{subject:?}");
    }
    assert!(found(&image()).is_empty());
}

#[test]
fn a_directory_that_was_renamed_is_known_by_its_inode() {
    let machine = machine();
    let renamed = parts(&tree(ROOT, "/srv/old", 3, "/srv/old"), &machine);
    assert!(overlap(&renamed, &parts(&image(), &machine)).is_some());
    let successor = parts(&tree(ROOT, "/srv/images", 40, "/srv/images"), &machine);
    let elsewhere = CachedData::File {
        inode: (ROOT, 41),
        fs_path: Some(fs_path(ROOT, "/srv/images/b.img")),
        links: 1,
    };
    assert!(overlap(&successor, &parts(&elsewhere, &machine)).is_none(), "another inode");
}

#[test]
fn circular_facts_come_to_an_end() {
    let mut machine = SimulatedMachine::default();
    machine.disks.insert(1, Disk::Whole { members: vec![2] });
    machine.disks.insert(2, Disk::Part { of: 3, start: 1, bytes: 9 });
    machine.disks.insert(3, Disk::Part { of: 2, start: 1, bytes: 9 });
    let layers = vec![fs_path(7, "/a"), fs_path(7, "/b")];
    machine.filesystems.insert(7, FileSystem { disks: vec![1], layers, unresolved: None });
    assert!(!parts(&CachedData::Disk(2), &machine).iter().any(|part| part.range.end > 10));
    assert!(parts(&CachedData::FileSystem(7), &machine).len() <= PARTS_MAX);
}
