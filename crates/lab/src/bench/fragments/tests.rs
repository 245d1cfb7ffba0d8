//! The requested files are made, as counted by a fake counter, and nothing is left after an error.
//! For real file systems see crates/cli/tests/it/cold/load.rs.

use super::*;
use larder_testing::skip;
use std::cell::RefCell;

const FEW: Fragments = Fragments { files: 2, file_bytes: 64 << 10, extents: 4, seed: 3 };

/// Creates a directory whose file system supports fallocate(2). Reports a skip and returns `None`
/// otherwise.
fn directory() -> Option<tempfile::TempDir> {
    let directory = tempfile::tempdir().unwrap();
    let file = tempfile::tempfile_in(directory.path()).unwrap();
    if rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 4096).is_err() {
        skip("the temporary directory does not support fallocate(2)");
        return None;
    }
    Some(directory)
}

/// Counts the requested extents for the files of [`FEW`]: the contiguous ones come first.
fn requested_extents() -> impl Fn(&File) -> Result<u64, String> {
    let calls = RefCell::new(0);
    move |_| {
        *calls.borrow_mut() += 1;
        // Contiguous and fragmented files while space is allocated, and again at the end.
        Ok([1, 1, 4, 4][(*calls.borrow() - 1) % 4])
    }
}

/// A file system that cannot exchange blocks.
fn never(_: (&File, u64), _: (&File, u64), _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).unwrap().next().is_none()
}

#[test]
fn copies_hold_the_same_bytes_and_files_differ() {
    let Some(directory) = directory() else { return };
    let mut seen = Vec::new();
    let mut watch = |bytes| {
        seen.push(bytes);
        true
    };
    FEW.make(directory.path(), (&requested_extents(), &never), &mut watch).unwrap();
    assert_eq!(seen.last(), Some(&FEW.bytes()));
    let read = |kind: &str, number| {
        std::fs::read(directory.path().join(kind).join(format!("file-{number}"))).unwrap()
    };
    assert_eq!(read(FRAGMENTED, 1).len() as u64, FEW.file_bytes);
    assert_eq!(read(FRAGMENTED, 1), read(CONTIGUOUS, 1));
    assert_eq!(read(FRAGMENTED, 2), read(CONTIGUOUS, 2));
    assert_ne!(read(FRAGMENTED, 1), read(FRAGMENTED, 2));
    assert_eq!(remove(directory.path()).unwrap(), 4);
    assert!(is_empty(directory.path()));
    assert_eq!(remove(directory.path()).unwrap(), 0);
}

#[test]
fn another_number_of_pieces_is_refused_and_nothing_is_left() {
    let Some(directory) = directory() else { return };
    let all_in_one = FEW.make(directory.path(), (&|_| Ok(1), &never), &mut |_| true);
    let text = all_in_one.unwrap_err().to_string();
    assert!(text.ends_with("fragmented/file-1 in 4 extents: the file system gave 1"), "{text}");
    assert!(is_empty(directory.path()));
    let calls = RefCell::new(0);
    let always_two = |_: &File| {
        *calls.borrow_mut() += 1;
        Ok(2)
    };
    let text =
        FEW.make(directory.path(), (&always_two, &never), &mut |_| true).unwrap_err().to_string();
    assert!(text.ends_with("contiguous/file-1 in 1 extent: the file system gave 2"), "{text}");
    assert_eq!(*calls.borrow(), ATTEMPTS + 1, "it is tried more than once");
    let nobody =
        FEW.make(directory.path(), (&|_| Err("unknown".to_owned()), &never), &mut |_| true);
    assert!(nobody.unwrap_err().to_string().ends_with("contiguous/file-1: unknown"));
    assert!(is_empty(directory.path()));
}

#[test]
fn a_stop_leaves_nothing() {
    let Some(directory) = directory() else { return };
    let stopped =
        FEW.make(directory.path(), (&requested_extents(), &never), &mut |_| false).unwrap_err();
    assert!(stopped.is_stop());
    assert!(is_empty(directory.path()));
}

#[test]
fn what_was_there_stays() {
    let Some(directory) = directory() else { return };
    std::fs::create_dir(directory.path().join(FRAGMENTED)).unwrap();
    std::fs::write(directory.path().join(FRAGMENTED).join("letter"), "dear").unwrap();
    let error =
        FEW.make(directory.path(), (&requested_extents(), &never), &mut |_| true).unwrap_err();
    assert!(error.to_string().starts_with("make ") && error.to_string().contains(FRAGMENTED));
    assert!(!directory.path().join(CONTIGUOUS).exists());
    let text = remove(directory.path()).unwrap_err().to_string();
    assert!(text.ends_with("letter: it is not one of the files that were made"), "{text}");
    assert!(directory.path().join(FRAGMENTED).join("letter").exists());
}

#[test]
fn what_cannot_be_is_said_before_anything_is_made() {
    let directory = tempfile::tempdir().unwrap();
    for (fragments, why) in [
        (Fragments { files: 0, ..FEW }, "there is nothing to make"),
        (Fragments { extents: 0, ..FEW }, "there is nothing to make"),
        (Fragments { file_bytes: 5000, extents: 1, ..FEW }, "the size is no multiple of 4 KiB"),
        (Fragments { extents: 17, ..FEW }, "an extent has at least 4 KiB"),
    ] {
        let error = fragments
            .make(directory.path(), (&requested_extents(), &never), &mut |_| true)
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("make files of ") && error.ends_with(why), "{error}");
    }
    assert!(is_empty(directory.path()));
}
