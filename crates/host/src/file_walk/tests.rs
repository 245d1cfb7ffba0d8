//! Tests of the walk on real directories.

use super::*;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;

#[derive(Default)]
struct Names {
    visited: BTreeMap<PathBuf, u32>,
    left_out: Vec<PathBuf>,
}

impl FileVisitor for Names {
    fn visit(&mut self, file: &WalkedFile<'_>) {
        *self.visited.entry(file.path()).or_default() += 1;
    }

    fn leave_out(&mut self, (path, _): LeftOut<'_>) {
        self.left_out.push(path.to_owned());
    }
}

/// Walks with pauses after every part, each of which writes and reads the position.
fn walk_all(root: &Path, threads: usize, restart: bool) -> Names {
    let root = WalkRoot::open(root).unwrap();
    let (mut all, mut from) = (Names::default(), Some(WalkPosition::default()));
    while let Some(position) = from.take() {
        let visitors = (0..threads).map(|_| Names::default()).collect();
        walk(
            &root,
            position,
            visitors,
            || restart,
            |visitors, position| {
                for visitor in visitors {
                    let part = std::mem::take(&mut **visitor);
                    for (path, count) in part.visited {
                        *all.visited.entry(path).or_default() += count;
                    }
                    all.left_out.extend(part.left_out);
                }
                from = position.map(|it| WalkPosition::from_lists(it.to_lists()));
                if restart { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            },
        )
        .unwrap();
    }
    all
}

#[test]
fn every_regular_file_is_visited_once_and_no_link_is_followed() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("root");
    let mut expected = BTreeMap::new();
    for (below, files) in [("", 3), ("a", 40), ("a/b", 0), ("a/b/c\n\u{1b}", 2), ("d", 1)] {
        fs::create_dir_all(root.join(below)).unwrap();
        for number in 0..files {
            let path = root.join(below).join(format!("file {number}"));
            fs::write(&path, "data").unwrap();
            expected.insert(path, 1);
        }
    }
    fs::create_dir(directory.path().join("outside")).unwrap();
    fs::write(directory.path().join("outside/file"), "data").unwrap();
    symlink(directory.path().join("outside"), root.join("link")).unwrap();
    symlink("file 0", root.join("link to a file")).unwrap();
    for threads in [1, 3] {
        for restart in [false, true] {
            let found = walk_all(&root, threads, restart);
            assert_eq!(found.visited, expected, "{threads} threads, restart {restart}");
            assert_eq!(found.left_out, [] as [PathBuf; 0]);
        }
    }
}

#[test]
fn large_directories_are_read_in_parts() {
    let directory = tempfile::tempdir().unwrap();
    let count = 40_000;
    for number in 0..count {
        fs::write(directory.path().join(number.to_string()), "").unwrap();
    }
    for restart in [false, true] {
        let found = walk_all(directory.path(), 2, restart);
        assert_eq!(found.visited.len(), count);
        assert!(found.visited.values().all(|visits| *visits == 1), "restart {restart}");
    }
}

#[test]
fn a_root_may_be_a_file_and_files_below_it_are_opened_without_links() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, "data").unwrap();
    symlink("file", directory.path().join("link")).unwrap();
    symlink(".", directory.path().join("here")).unwrap();
    assert_eq!(walk_all(&path, 2, false).visited, BTreeMap::from([(path.clone(), 1)]));
    let root = WalkRoot::open(directory.path()).unwrap();
    assert!(root.open_file(Path::new("file")).is_ok());
    for below in ["link", "here/file", "../file", ".", "none"] {
        assert!(root.open_file(Path::new(below)).is_err(), "{below}");
    }
    assert!(WalkRoot::open(Path::new("/dev/null")).is_err());
    assert!(WalkRoot::open(&directory.path().join("none")).is_err());
    let gone = directory.path().join("gone");
    fs::create_dir(&gone).unwrap();
    let root = WalkRoot::open(&gone).unwrap();
    fs::remove_dir(&gone).unwrap();
    let visitors = vec![Names::default()];
    let none = |_: &mut [MutexGuard<'_, Names>], _: Option<&WalkPosition>| ControlFlow::Break(());
    let removed = walk(&root, WalkPosition::default(), visitors, || false, none);
    assert_eq!(removed.unwrap_err().kind(), io::ErrorKind::NotFound);
}
