//! Tests of the requests of each operation.

use super::Op::{Read, Write};
use super::Part::{Bitmap, Data, Directory, Journal, Record};
use super::*;
use crate::random::Random;

const VOLUME: u64 = 8 << 30;
/// The first cluster of the data, and the first record after that of a directory.
const DATA: u64 = 1 << 30;
const RECORD: u64 = 4096 + (24 + 1) * 1024;

fn volume() -> Ntfs {
    Ntfs::new(VOLUME, Allocator::new(128 << 20, CLUSTER), 1)
}

/// Runs an operation; returns its requests.
fn requests<T>(
    volume: &mut Ntfs,
    operation: impl FnOnce(&mut Ntfs, &mut Vec<FileRequest>) -> T,
) -> (T, Vec<(Part, Op, u64, u64)>) {
    let mut all = Vec::new();
    let result = operation(volume, &mut all);
    (result, all.into_iter().map(|it| (it.part, it.op, it.bytes.start, it.bytes.end)).collect())
}

const PAGE_OF_RECORD: u64 = RECORD / 4096 * 4096;
const READ_RECORD: (Part, Op, u64, u64) = (Record, Read, PAGE_OF_RECORD, PAGE_OF_RECORD + 4096);
const WRITE_RECORD: (Part, Op, u64, u64) = (Record, Write, RECORD, RECORD + 1024);
const READ_BITMAP: (Part, Op, u64, u64) = (Bitmap, Read, 0, 4096);
const WRITE_BITMAP: (Part, Op, u64, u64) = (Bitmap, Write, 0, 4096);
const READ_DIRECTORY: (Part, Op, u64, u64) = (Directory, Read, DATA, DATA + 4096);
const WRITE_DIRECTORY: (Part, Op, u64, u64) = (Directory, Write, DATA, DATA + 4096);

#[test]
fn each_operation_has_the_requests_of_its_table() {
    let mut volume = volume();
    // The first file of a block finds no block that it could read.
    let (id, all) = requests(&mut volume, |it, all| it.create(0, 5000, all).unwrap());
    let data = DATA + 4096;
    let expected = [
        READ_RECORD,
        READ_BITMAP,
        (Data, Write, data, data + 8192),
        WRITE_BITMAP,
        WRITE_RECORD,
        WRITE_DIRECTORY,
    ];
    assert_eq!(all, expected);
    let ((), all) = requests(&mut volume, |it, all| it.read(id, all));
    assert_eq!(all, [READ_DIRECTORY, READ_RECORD, (Data, Read, data, data + 8192)]);
    let ((), all) = requests(&mut volume, |it, all| it.append(id, 4000, all).unwrap());
    let expected = [
        READ_DIRECTORY,
        READ_RECORD,
        (Data, Read, data + 4096, data + 8192),
        READ_BITMAP,
        (Data, Write, data + 4096, data + 12_288),
        WRITE_BITMAP,
        WRITE_RECORD,
        WRITE_DIRECTORY,
    ];
    assert_eq!(all, expected);
    let ((), all) = requests(&mut volume, |it, all| it.delete(id, all));
    let expected =
        [READ_DIRECTORY, READ_RECORD, READ_BITMAP, WRITE_BITMAP, WRITE_RECORD, WRITE_DIRECTORY];
    assert_eq!(all, expected);
}

#[test]
fn an_append_within_full_clusters_reads_no_data_and_one_within_a_cluster_takes_none() {
    let mut volume = volume();
    let id = volume.create(0, 8192, &mut Vec::new()).unwrap();
    let free = volume.clusters.free_bytes();
    let ((), all) = requests(&mut volume, |it, all| it.append(id, 100, all).unwrap());
    assert!(!all.iter().any(|it| (it.0, it.1) == (Data, Read)), "{all:?}");
    assert_eq!(volume.clusters.free_bytes(), free - 4096);
    let ((), all) = requests(&mut volume, |it, all| it.append(id, 100, all).unwrap());
    assert_eq!(volume.clusters.free_bytes(), free - 4096);
    assert!(!all.iter().any(|it| it.0 == Bitmap), "{all:?}");
}

#[test]
fn a_commit_writes_the_log_in_order_and_wraps_at_the_end_of_the_journal() {
    let mut volume = volume();
    let ((), all) = requests(&mut volume, Ntfs::commit);
    assert_eq!(all, []);
    let start = VOLUME / 2;
    let mut id = volume.create(0, 100, &mut Vec::new()).unwrap();
    let ((), all) = requests(&mut volume, Ntfs::commit);
    assert_eq!(all, [(Journal, Write, start, start + 4096)]);
    // The page is not full: the next commit writes it again.
    volume.delete(id, &mut Vec::new());
    let ((), all) = requests(&mut volume, Ntfs::commit);
    assert_eq!(all, [(Journal, Write, start, start + 4096)]);
    let (mut end, mut wraps) = (start, 0);
    for _ in 0..4000 {
        for _ in 0..15 {
            id = volume.create(0, 100, &mut Vec::new()).unwrap();
            volume.delete(id, &mut Vec::new());
        }
        let ((), all) = requests(&mut volume, Ntfs::commit);
        assert!(all[0].2 <= end && end <= all[0].2 + 4096, "{all:?} after {end}");
        end = all.last().unwrap().3;
        assert!(all.iter().all(|it| it.2 >= start && it.3 <= start + JOURNAL));
        wraps += usize::from(end < all[0].2);
        if end == start + JOURNAL {
            end = start;
        }
    }
    assert_eq!(wraps, 1);
}

#[test]
fn no_cluster_is_given_twice_and_a_full_volume_refuses_without_a_change() {
    let mut volume = Ntfs::new(VOLUME, Allocator::new(4 << 20, CLUSTER), 3);
    let (mut ids, mut random) = (Vec::new(), Random::from_seed(4));
    let (mut refused, mut all) = (0, Vec::new());
    for _ in 0..3_000 {
        let number = usize::try_from(random.below(ids.len() as u64 + 1)).unwrap();
        let bytes = 1 + random.below(100_000);
        all.clear();
        if number < ids.len() && random.below(3) == 0 {
            volume.delete(ids.swap_remove(number), &mut all);
        } else if number < ids.len() && random.below(2) == 0 {
            refused += usize::from(volume.append(ids[number], bytes, &mut all).is_none());
        } else if let Some(id) = volume.create(number % 3, bytes, &mut all) {
            ids.push(id);
        } else {
            refused += 1;
        }
        let (mut used, mut records) = (BTreeSet::new(), BTreeSet::new());
        for id in &ids {
            let file = &volume.files[id.0];
            assert_eq!(file.map.len(), file.len.next_multiple_of(CLUSTER));
            let extents = file.map.extents().cloned();
            for start in extents.flat_map(|it| it.step_by(4096)) {
                assert!(used.insert(start));
            }
            assert!(records.insert(id.0) && !used.contains(&file.block.start));
        }
        let blocks: u64 = volume.directories.iter().map(|it| it.created.div_ceil(ENTRIES)).sum();
        let taken = (used.len() as u64 + blocks) * CLUSTER;
        assert_eq!(volume.clusters.free_bytes() + taken, 4 << 20);
    }
    assert!(refused > 0);
    let before = (volume.clusters.free_bytes(), volume.logged, volume.files.len());
    all.clear();
    assert!(volume.create(0, 4 << 20, &mut all).is_none() && all.is_empty());
    assert!(volume.append(ids[0], 4 << 20, &mut all).is_none() && all.is_empty());
    assert_eq!((volume.clusters.free_bytes(), volume.logged, volume.files.len()), before);
}

#[test]
fn files_of_a_block_of_a_directory_share_it_and_each_directory_has_its_own() {
    let mut volume = Ntfs::new(VOLUME, Allocator::new(64 << 20, CLUSTER), 2);
    let mut block_of = |directory| {
        let id = volume.create(directory, 10, &mut Vec::new()).unwrap();
        volume.files[id.0].block.start
    };
    let first: BTreeSet<u64> = (0..ENTRIES).map(|_| block_of(0)).collect();
    let [next, other] = [block_of(0), block_of(1)];
    assert_eq!(first.len(), 1);
    assert!(!first.contains(&next) && !first.contains(&other) && next != other);
}
