//! Tests of files on one device.

use super::*;
use crate::model::{Disk, ModeledStore, NullStore};
use crate::random::Random;

fn disk(length: u64) -> Box<dyn Store<NoFrames>> {
    let store = NullStore::new(Geometry { length, granule: 512, read_only: false });
    Box::new(ModeledStore::new(store, Disk::seven_thousand_two_hundred(length)))
}

fn op(tag: u64, kind: StoreOpKind, bytes: Range<u64>) -> StoreOp<NoFrames> {
    let (offset, len) = (bytes.start, bytes.end - bytes.start);
    StoreOp { tag, kind, offset, len, segments: Vec::new(), queued_at: 0 }
}

/// Reads until nothing is in flight; returns the tags and times of completions.
fn drain(stores: &mut [FileStore]) -> Vec<(u64, Nanos)> {
    let (frames, mut now, mut all) = (NoFrames::new(0), 0, Vec::new());
    while let Some(next) = stores.iter().filter_map(Store::next_event).min() {
        now = next.max(now);
        for store in &mut *stores {
            let mut done = Vec::new();
            store.reap(now, &frames, &mut done);
            all.extend(done.iter().map(|done| (done.op.tag, done.finished_at)));
        }
    }
    assert!(stores.iter().all(|store| store.in_flight() == 0));
    all
}

#[test]
fn a_read_across_extents_takes_as_long_as_its_reads_of_the_device() {
    let frames = NoFrames::new(0);
    let map: FileMap = [1 << 20..(1 << 20) + 8192, 1 << 30..(1 << 30) + 8192].into_iter().collect();
    let mut files = FileStore::all(disk(4 << 30), &[map]);
    assert_eq!(files[0].geometry().length, 16_384);
    files[0].submit(0, &frames, op(7, StoreOpKind::Read, 4096..12_288));
    let whole = FileMap::contiguous(0..4 << 30);
    let mut device = FileStore::all(disk(4 << 30), &[whole]);
    device[0].submit(0, &frames, op(1, StoreOpKind::Read, (1 << 20) + 4096..(1 << 20) + 8192));
    device[0].submit(0, &frames, op(2, StoreOpKind::Read, 1 << 30..(1 << 30) + 4096));
    let both = drain(&mut device);
    assert_eq!(both.len(), 2);
    assert_eq!(drain(&mut files), [(7, both[1].1)]);
}

#[test]
fn requests_to_several_files_complete_once_and_share_the_device() {
    let (frames, mut random) = (NoFrames::new(0), Random::from_seed(5));
    let maps = super::super::Interleaved { files: 3, bytes: 8 << 20, extents: 20..=30 };
    let mut files = FileStore::all(disk(1 << 30), &maps.place(0, 1));
    for tag in 0..300_u64 {
        let file = usize::try_from(tag % 3).unwrap();
        let at = random.below((8 << 20) / 4096 - 16) * 4096;
        let kind = match random.below(4) {
            0 => StoreOpKind::Write { fua: false },
            1 => StoreOpKind::Flush,
            _ => StoreOpKind::Read,
        };
        files[file].submit(0, &frames, op(tag, kind, at..at + 4096 * (1 + random.below(16))));
    }
    assert_eq!(files.iter().map(Store::in_flight).sum::<usize>(), 300);
    let mut tags: Vec<u64> = drain(&mut files).into_iter().map(|(tag, _)| tag).collect();
    tags.sort_unstable();
    assert!(tags.into_iter().eq(0..300));
}
