//! Residency follows the operations on a file, and cachestat(2) and mincore(2) agree.

use super::prefetch::Files;
use super::*;
use larder_testing::skip;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

/// Creates a file of `bytes` bytes and writes it to the disk.
fn file_of(directory: &Path, name: &str, bytes: usize) -> PathBuf {
    let path = directory.join(name);
    let mut file = File::create(&path).unwrap();
    file.write_all(&vec![0xa5; bytes]).unwrap();
    file.sync_all().unwrap();
    path
}

/// Creates a directory whose files have droppable pages; returns `None` and reports a skip on tmpfs
/// and FUSE.
fn directory() -> Option<tempfile::TempDir> {
    let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let mount = crate::mounts::Mount::of(directory.path()).unwrap();
    if mount.is_memory() || mount.is_fuse() {
        skip(format_args!("the source tree is on {}", mount.fs_type));
        return None;
    }
    Some(directory)
}

fn page() -> usize {
    usize::try_from(page_bytes()).unwrap()
}

#[test]
fn a_dropped_file_is_cold_and_a_filled_one_is_warm() {
    let Some(directory) = directory() else { return };
    // The length is not a multiple of the page size: the last, partial page counts.
    let path = file_of(directory.path(), "file", 40 * page() + 1);
    let written = of_path(&path).unwrap();
    assert_eq!((written.pages, written.resident, written.dirty), (41, 41, 0));
    let dropped = drop::file(&path).unwrap();
    assert!(dropped.is_cold() && dropped.share() == Some(0.0), "{dropped:?}");
    let files = Files::open(vec![path.clone()]).unwrap();
    let found = files.fill(|_| true).unwrap();
    assert!(found.sum.is_warm() && found.sum.share() == Some(1.0), "{found:?}");
    assert_eq!(found.lacking, None);
    assert_eq!(found.resident.unwrap().0, path);
}

#[test]
fn what_is_taken_while_a_file_is_read_is_read_again() {
    let Some(directory) = directory() else { return };
    let path = file_of(directory.path(), "file", 3 << 20);
    drop::file(&path).unwrap();
    let files = Files::open(vec![path.clone()]).unwrap();
    let mut drops_left = 2;
    let found = files.fill(|_| {
        // Another user of the file drops its pages, twice.
        if drops_left > 0 {
            drops_left -= 1;
            drop::file(&path).unwrap();
        }
        true
    });
    assert!(found.unwrap().sum.is_warm());
}

#[test]
fn what_was_read_is_what_is_resident() {
    let Some(directory) = directory() else { return };
    let path = file_of(directory.path(), "file", 64 * page());
    drop::file(&path).unwrap();
    let file = open(&path).unwrap();
    // Without read-ahead a read loads only its own page.
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
    for number in [3, 5, 8, 63] {
        read_full(&file, &mut [0], number * page_bytes()).unwrap();
    }
    let found = of_file(&file, &path).unwrap();
    assert_eq!((found.pages, found.resident), (64, 4));
    assert!(!found.is_cold() && !found.is_warm());
}

#[test]
fn both_ways_of_asking_agree() {
    let Some(directory) = directory() else { return };
    let path = file_of(directory.path(), "file", 100 * page() + 7);
    let file = open(&path).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
    for (step, touched) in [(1, 101), (7, 15), (50, 3)] {
        drop::opened(&file, &path).unwrap();
        for number in (0..101).step_by(step) {
            read_full(&file, &mut [0], number * page_bytes()).unwrap();
        }
        let len = length(&file).unwrap();
        let mincore = by_mincore(&file, len).unwrap();
        assert_eq!((mincore.pages, mincore.resident), (101, touched));
        assert!(!mincore.knows_dirty());
        match by_cachestat(&file, 0, len) {
            Ok(found) => assert_eq!(found.resident, mincore.resident),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOSYS), "{error}"),
        }
    }
}

#[test]
fn dirty_pages_are_counted_and_written_by_a_drop() {
    let Some(directory) = directory() else { return };
    let path = file_of(directory.path(), "file", 16 * page());
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&vec![1; 2 * page()], 0).unwrap();
    let found = of_path(&path).unwrap();
    // The kernel may have started writeback already, and a large folio is dirty as a whole.
    assert!(found.dirty + found.write_back <= 16 && found.is_warm(), "{found:?}");
    assert!(drop::file(&path).unwrap().is_cold());
    assert_eq!(std::fs::read(&path).unwrap()[..2 * page()], vec![1; 2 * page()]);
}

#[test]
fn an_empty_file_is_neither_cold_nor_warm_and_no_obstacle() {
    let Some(directory) = directory() else { return };
    let path = file_of(directory.path(), "empty", 0);
    let found = of_path(&path).unwrap();
    assert_eq!((found.pages, found.resident, found.share()), (0, 0, None));
    assert!(found.is_cold() && found.is_warm());
    assert_eq!(by_mincore(&open(&path).unwrap(), 0).unwrap().pages, 0);
    assert!(drop::file(&path).unwrap().is_cold());
}

#[test]
fn a_tree_is_walked_and_links_are_not() {
    let Some(directory) = directory() else { return };
    std::fs::create_dir(directory.path().join("b")).unwrap();
    let one = file_of(&directory.path().join("b"), "one", page());
    let two = file_of(directory.path(), "a", 2 * page());
    std::os::unix::fs::symlink(&two, directory.path().join("link")).unwrap();
    let found = of_tree(directory.path()).unwrap();
    let names: Vec<&Path> = found.iter().map(|(path, _)| path.as_path()).collect();
    assert_eq!(names, [two.as_path(), one.as_path()]);
    let mut sum = Residency::default();
    for (_, one) in &found {
        sum += *one;
    }
    assert_eq!((sum.files, sum.pages), (2, 3));
    assert_eq!(of_tree(&one).unwrap().len(), 1, "a file is a tree of its own");
}

#[test]
fn a_mapped_page_stays_and_the_reason_names_who_maps_it() {
    let Some(directory) = directory() else { return };
    let path = file_of(directory.path(), "file", 8 * page());
    let mapping =
        syscall::tests::PopulatedMapping::reading(&File::open(&path).unwrap(), 8 * page());
    let after_drop = drop::file(&path).unwrap();
    assert!(after_drop.resident > 0, "mapped pages are not dropped");
    let reason = why_pages_stay(&path, &after_drop);
    assert!(
        reason.contains("mapped by process") && reason.contains(&std::process::id().to_string()),
        "{reason}"
    );
    core::mem::drop(mapping);
    assert!(drop::file(&path).unwrap().is_cold());
}

#[test]
fn reasons_name_memory_and_writers() {
    let found = Residency { resident: 3, dirty: 2, write_back: 1, ..Residency::default() };
    let reason = why_pages_stay(Path::new("/no/such/file"), &found);
    assert_eq!(reason, "3 of its pages are dirty or being written: something writes to it");
    let memory = Path::new("/dev/shm");
    if crate::mounts::Mount::of(memory).is_ok_and(|mount| mount.is_memory()) {
        assert!(why_pages_stay(memory, &found).contains("memory themselves"));
    }
}

#[test]
fn what_is_no_file_is_refused_with_a_sentence() {
    let error = of_path(Path::new("/dev/null")).unwrap_err().to_string();
    assert!(error.ends_with("it is neither a file nor a block device"), "{error}");
    let error = of_path(Path::new("/no/such/file")).unwrap_err().to_string();
    assert!(error.starts_with("query the resident pages of /no/such/file: "), "{error}");
}

#[test]
fn a_file_in_the_place_of_an_open_one_is_not_queried() {
    let Some(directory) = directory() else { return };
    let path = file_of(directory.path(), "file", page()).canonicalize().unwrap();
    let identity = ForeignFile::open(&path).unwrap().1.identity;
    let mounts = LocalMounts::now();
    assert_eq!(mounts.of_open_file(&path, identity).unwrap().pages, 1);
    let refusal = LocalMounts(BTreeSet::new()).of_open_file(&path, identity).unwrap_err();
    assert!(refusal.to_string().ends_with("a program or another machine serves it"), "{refusal}");
    let other = file_of(directory.path(), "other", page());
    let refusal = || mounts.of_open_file(&path, identity).unwrap_err().to_string();
    std::fs::rename(&other, &path).unwrap();
    assert!(refusal().ends_with("another file has this name now"), "{}", refusal());
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
    assert!(mounts.of_open_file(&path, identity).is_err());
}

#[test]
fn a_range_is_counted_by_the_pages_that_it_meets() {
    let Some(directory) = directory() else { return };
    let path = file_of(directory.path(), "file", 16 * page());
    let file = File::open(&path).unwrap();
    let size = page() as u64;
    let found = match of_range(&file, size / 2, size) {
        Ok(found) => found,
        Err(error) => {
            skip(error);
            return;
        }
    };
    assert_eq!((found.pages, found.resident), (2, 2));
    assert_eq!(of_range(&file, 15 * size, 100 * size).unwrap().pages, 1, "up to its end");
    assert_eq!(of_range(&file, 16 * size, 1).unwrap().pages, 0);
    drop::file(&path).unwrap();
    assert_eq!(of_range(&file, 0, 16 * size).unwrap().resident, 0);
}

/// Takes a write lease on `sys.argv[1]`, and prints a line.
const LESSEE: &str = r"
import fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
file = os.open(sys.argv[1], os.O_RDWR)
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('ready', flush=True)
sys.stdin.readline()
";

#[test]
fn a_lease_of_another_process_delays_no_query() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.into_temp_path();
    let mut lessee = Command::new("python3")
        .args(["-c", LESSEE])
        .arg(&path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(lessee.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let result = of_path(&path).map_err(|error| error.source.kind());
    drop(lessee.stdin.take());
    lessee.wait().unwrap();
    if line != "ready\n" {
        larder_testing::skip("python3 and a file system with leases are needed");
        return;
    }
    assert_eq!(result, Err(io::ErrorKind::WouldBlock));
}
