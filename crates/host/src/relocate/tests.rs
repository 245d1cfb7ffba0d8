//! Tests on file systems of loop devices.

use super::*;
use larder_testing::{can_mount, has_tool, is_root, skip};
use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::process::Command;
use tempfile::TempDir;

const BLOCK: u64 = 4096;

/// A mounted file system on a loop device.
struct Mounted {
    directory: TempDir,
}

impl Mounted {
    /// Returns `None`, with a reported skip, if this machine cannot have one.
    fn new(kind: &str, make: &[&str]) -> Option<Mounted> {
        if !is_root() || !can_mount() || !has_tool(make[0]) {
            return None;
        }
        let mounted = Mounted { directory: tempfile::tempdir().unwrap() };
        let image = mounted.directory.path().join("image");
        File::create(&image).unwrap().set_len(400 << 20).unwrap();
        assert!(run(Command::new(make[0]).args(&make[1..]).arg(&image)));
        std::fs::create_dir(mounted.point()).unwrap();
        if !run(Command::new("mount")
            .args(["-t", kind, "-o", "loop"])
            .arg(&image)
            .arg(mounted.point()))
        {
            skip("this machine has no loop devices for files");
            return None;
        }
        Some(mounted)
    }

    fn point(&self) -> PathBuf {
        self.directory.path().join("mounted")
    }

    /// Makes a file of single blocks that another file separates, with a hole and an unwritten
    /// range; returns its content.
    fn fragmented(&self, name: &str, pieces: u64) -> Vec<u8> {
        let open = |name: &str| {
            let path = self.point().join(name);
            OpenOptions::new().create(true).write(true).truncate(true).open(path).unwrap()
        };
        let (file, other) = (open(name), open("other"));
        for number in 0..pieces {
            let data = vec![u8::try_from(number).unwrap() + 1; 4096];
            // The second half is behind a hole.
            let at = if number < pieces / 2 { number } else { number + 20 };
            file.write_all_at(&data, at * BLOCK).unwrap();
            file.sync_data().unwrap();
            other.write_all_at(&data, number * BLOCK).unwrap();
            other.sync_data().unwrap();
        }
        rustix::fs::fallocate(
            &file,
            rustix::fs::FallocateFlags::empty(),
            (pieces + 36) * BLOCK,
            4 * BLOCK,
        )
        .unwrap();
        file.set_len((pieces + 39) * BLOCK + 17).unwrap();
        file.sync_all().unwrap();
        std::fs::read(self.point().join(name)).unwrap()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        run(Command::new("umount").arg(self.point()));
    }
}

fn run(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

fn options<'a>() -> RelocateOptions<'a> {
    RelocateOptions { open_files: false, shared: false, bytes_per_s: None, is_stopped: &|| false }
}

fn move_file(
    mounted: &Mounted,
    name: &str,
    options: &RelocateOptions<'_>,
) -> Result<Relocation, RelocateError> {
    let root = WalkRoot::open(&mounted.point()).unwrap();
    let file = OpenFile::open(&root, Path::new(name), options)?;
    let checksum = file.checksum(options)?;
    file.relocate(checksum, options)
}

/// Returns the blocks of a file that have data, and those that are unwritten.
fn blocks(path: &Path) -> [BTreeSet<u64>; 2] {
    let extents = extents::recorded(&File::open(path).unwrap(), true).unwrap();
    [false, true].map(|unwritten| {
        let of_kind = extents.iter().filter(|it| it.has(FileExtent::UNWRITTEN) == unwritten);
        of_kind.flat_map(|it| it.logical / BLOCK..it.logical_end().div_ceil(BLOCK)).collect()
    })
}

fn moves_and_keeps(kind: &str, make: &[&str]) {
    let Some(mounted) = Mounted::new(kind, make) else { return };
    let content = mounted.fragmented("file", 24);
    let path = mounted.point().join("file");
    std::fs::hard_link(&path, mounted.point().join("link")).unwrap();
    let before = std::fs::metadata(&path).unwrap();
    let (placed, old) = (blocks(&path), extents::recorded(&File::open(&path).unwrap(), true));
    let moved = move_file(&mounted, "file", &options()).unwrap();
    assert!(
        FileExtent::fragments(&moved.extents) < FileExtent::fragments(&old.unwrap()),
        "{kind}: {moved:?}"
    );
    assert_eq!(moved.verified, Verified::Same);
    assert!(moved.written_bytes >= 24 * BLOCK);
    assert_eq!(std::fs::read(&path).unwrap(), content, "{kind}");
    let after = std::fs::metadata(&path).unwrap();
    let facts = |it: &Metadata| (it.ino(), it.nlink(), it.len(), it.mtime(), it.mtime_nsec());
    assert_eq!(facts(&before), facts(&after), "{kind}");
    if kind != "btrfs" {
        assert_eq!(blocks(&path), placed, "{kind}: holes and unwritten blocks");
    }
    let mut last = FileExtent::fragments(&moved.extents);
    while let Ok(again) = move_file(&mounted, "file", &options()) {
        let now = FileExtent::fragments(&again.extents);
        if kind == "btrfs" {
            break;
        }
        assert!(now < last, "{kind}: moved without a gain");
        last = now;
    }
    assert_eq!(std::fs::read(&path).unwrap(), content, "{kind}");
    assert_eq!(
        std::fs::read_dir(mounted.point())
            .unwrap()
            .filter(|it| { it.as_ref().unwrap().file_name() != "lost+found" })
            .count(),
        3,
        "no file is left"
    );
}

#[test]
fn a_file_of_ext4_is_moved_and_keeps_its_content_holes_and_times() {
    moves_and_keeps("ext4", &["mkfs.ext4", "-q", "-F"]);
}

#[test]
fn a_file_of_xfs_is_moved_and_keeps_its_content_holes_and_times() {
    moves_and_keeps("xfs", &["mkfs.xfs", "-q", "-f"]);
}

/// The inode has room for 12 extents, or for 21 without attributes.
#[test]
fn files_of_xfs_with_every_number_of_extents_are_moved() {
    let Some(mounted) = Mounted::new("xfs", &["mkfs.xfs", "-q", "-f"]) else { return };
    for pieces in [3, 10, 13, 16, 19, 22, 60, 150] {
        let content = mounted.fragmented("file", pieces);
        let path = mounted.point().join("file");
        let before = extents::recorded(&File::open(&path).unwrap(), true).unwrap();
        match move_file(&mounted, "file", &options()) {
            Ok(moved) => assert_eq!(moved.verified, Verified::Same),
            Err(RelocateError::NoBetterPlace) => assert!(FileExtent::fragments(&before) < 4),
            Err(error) => panic!("{pieces} pieces: {error}"),
        }
        assert_eq!(std::fs::read(&path).unwrap(), content);
    }
}

#[test]
fn files_that_share_blocks_are_moved_only_if_that_is_allowed() {
    for (kind, make) in [("xfs", "mkfs.xfs"), ("btrfs", "mkfs.btrfs")] {
        let Some(mounted) = Mounted::new(kind, &[make, "-q", "-f"]) else { continue };
        let content = mounted.fragmented("file", 24);
        let [path, copy] = ["file", "copy"].map(|name| mounted.point().join(name));
        assert!(run(Command::new("cp").arg("--reflink=always").args([&path, &copy])));
        let refused = move_file(&mounted, "file", &options());
        assert!(matches!(refused, Err(RelocateError::Shared)), "{kind}: {refused:?}");
        move_file(&mounted, "file", &RelocateOptions { shared: true, ..options() }).unwrap();
        for path in [path, copy] {
            assert_eq!(std::fs::read(path).unwrap(), content, "{kind}");
        }
    }
}

#[test]
fn a_file_of_btrfs_is_moved_and_keeps_its_content_and_times() {
    moves_and_keeps("btrfs", &["mkfs.btrfs", "-q", "-f"]);
}

#[test]
fn files_that_must_not_move_are_refused() {
    let Some(mounted) = Mounted::new("ext4", &["mkfs.ext4", "-q", "-F"]) else { return };
    mounted.fragmented("file", 24);
    let path = mounted.point().join("file");
    let open = File::open(&path).unwrap();
    let in_use = move_file(&mounted, "file", &options());
    assert!(matches!(in_use, Err(RelocateError::InUse)), "{in_use:?}");
    let allowed = RelocateOptions { open_files: true, ..options() };
    move_file(&mounted, "file", &allowed).unwrap();
    drop(open);

    mounted.fragmented("second", 24);
    let stopped = RelocateOptions { is_stopped: &|| true, ..options() };
    let result = move_file(&mounted, "second", &stopped);
    assert!(matches!(result, Err(RelocateError::Stopped)), "{result:?}");
    if has_tool("chattr") {
        let second = mounted.point().join("second");
        assert!(run(Command::new("chattr").arg("+i").arg(&second)));
        let result = move_file(&mounted, "second", &options());
        assert!(run(Command::new("chattr").arg("-i").arg(&second)));
        assert!(matches!(result, Err(RelocateError::Immutable)), "{result:?}");
    }
    std::fs::create_dir(mounted.point().join("directory")).unwrap();
    std::os::unix::fs::symlink("second", mounted.point().join("symbolic")).unwrap();
    for name in ["directory", "symbolic", "none", "../image"] {
        let result = move_file(&mounted, name, &options());
        assert!(matches!(result, Err(RelocateError::Failed("open it", _))), "{name}: {result:?}");
    }
    std::fs::write(mounted.point().join("whole"), vec![1; 8192]).unwrap();
    let result = move_file(&mounted, "whole", &options());
    assert!(matches!(result, Err(RelocateError::NoBetterPlace)), "{result:?}");
}

#[test]
fn an_opened_file_ends_its_move_and_keeps_its_content() {
    let Some(mounted) = Mounted::new("ext4", &["mkfs.ext4", "-q", "-F"]) else { return };
    let content = mounted.fragmented("file", 24);
    let path = mounted.point().join("file");
    // The other process waits for the lease; the move must end for it.
    let opened = std::sync::Mutex::new(None);
    let is_stopped = || {
        let mut opened = opened.lock().unwrap();
        if opened.is_none() {
            let path = path.clone();
            *opened = Some(std::thread::spawn(move || File::open(path).unwrap()));
            while !std::fs::read_to_string("/proc/locks").unwrap().contains("BREAKING") {
                std::thread::yield_now();
            }
        }
        false
    };
    let result =
        move_file(&mounted, "file", &RelocateOptions { is_stopped: &is_stopped, ..options() });
    assert!(matches!(result, Err(RelocateError::Changed)), "{result:?}");
    opened.into_inner().unwrap().unwrap().join().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), content);
}
