//! Ageing of a temporary directory, with a fake count of fragments.

use super::*;
use larder_testing::skip;
use std::cell::Cell;

const FEW: VolumeAger =
    VolumeAger { files: 6, file_bytes: 512 << 10, fragments: 9.0, rounds: 4, seed: 3 };

fn contents(directory: &Path) -> Vec<Vec<u8>> {
    let read = |number: u32| std::fs::read(directory.join(format!("{AGED}/{FILE}{number}")));
    (1..=FEW.files).map(|number| read(number).unwrap()).collect()
}

fn directory() -> Option<tempfile::TempDir> {
    let directory = tempfile::tempdir().unwrap();
    let file = tempfile::tempfile_in(directory.path()).unwrap();
    if rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 4096).is_err() {
        skip("the temporary directory does not support fallocate(2)");
        return None;
    }
    Some(directory)
}

#[test]
fn a_seed_gives_the_same_files_and_rounds_end_at_the_number_of_fragments() {
    let (Some(one), Some(other)) = (directory(), directory()) else { return };
    // The fragments of the six files: 3, and more with each round.
    let counted = Cell::new(0);
    let count = |_: &File| {
        counted.set(counted.get() + 1);
        Ok(3 * (1 + (counted.get() - 1) / u64::from(FEW.files)))
    };
    let state = FEW.make(one.path(), &count, &mut |_| true).unwrap();
    assert_eq!((state.rounds, state.fragments), (3, 9.0));
    assert!(state.bytes <= FEW.bytes_max() && state.bytes > 6 * (100 << 10), "{state:?}");
    counted.set(0);
    assert_eq!(FEW.make(other.path(), &count, &mut |_| true).unwrap(), state);
    assert_eq!(contents(one.path()), contents(other.path()));
    let always_one = |_: &File| Ok(1);
    let again = FEW.make(one.path(), &always_one, &mut |_| true).unwrap_err().to_string();
    assert!(again.contains("aged: "), "it exists: {again}");
    assert_eq!(contents(one.path()), contents(other.path()));
}

#[test]
fn rounds_are_limited_and_a_stop_leaves_nothing() {
    let Some(directory) = directory() else { return };
    let always_one = |_: &File| Ok(1);
    let state = FEW.make(directory.path(), &always_one, &mut |_| true).unwrap();
    assert_eq!((state.rounds, state.fragments), (4, 1.0));
    std::fs::remove_dir_all(directory.path().join(AGED)).unwrap();
    let stopped = FEW.make(directory.path(), &always_one, &mut |written| written < 1 << 20);
    assert!(stopped.unwrap_err().is_stop());
    let failed = FEW.make(directory.path(), &|_| Err("no FIEMAP".to_owned()), &mut |_| true);
    assert!(failed.unwrap_err().to_string().contains("no FIEMAP"));
    assert!(std::fs::read_dir(directory.path()).unwrap().next().is_none());
}
