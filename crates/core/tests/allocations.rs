//! A read hit, and a write that changes only dirty blocks, allocate no memory.

#![expect(clippy::tests_outside_test_module, reason = "the whole crate is a test")]

use larder_core::cache::Cache;
use larder_core::completion::NoWaker;
use larder_core::frames::PlainFrames;
use larder_core::request::{Prefetch, Request, RequestOp, Session, SessionLimit, Submitted};
use larder_core::store::Geometry;
use larder_core::units::{BLOCK_BYTES, BLOCK_BYTES_U64};
use larder_core::volume::VolumeOptions;
use std::hint::black_box;

const BLOCKS: u64 = 64;

#[test]
fn a_hit_and_an_absorbed_write_allocate_nothing() {
    let cache = Cache::new(PlainFrames::new(256), 1);
    let geometry = Geometry { length: BLOCKS * BLOCK_BYTES_U64, granule: 512, read_only: false };
    let volume = cache.add_volume(VolumeOptions::new("v", geometry), Box::new(NoWaker));
    let mut session: Session<PlainFrames, Vec<u8>, u64> =
        Session::open(&cache, &volume, Box::new(NoWaker), SessionLimit::Own(u64::MAX)).unwrap();
    let (data, mut to) = ([7; 2 * BLOCK_BYTES], [0; 2 * BLOCK_BYTES]);
    let mut write_and_read = |first: u64, blocks: usize| {
        let start = first * BLOCK_BYTES_U64;
        let bytes = start..start + blocks as u64 * BLOCK_BYTES_U64;
        let (data, to) = (&data[..blocks * BLOCK_BYTES], &mut to[..blocks * BLOCK_BYTES]);
        let write = Request::new(RequestOp::Write, bytes.clone());
        let written = session.submit(&cache, 1, write, data, || panic!("it is absorbed"));
        assert!(matches!(written, Submitted::Done(_)));
        for step in [Prefetch::Table, Prefetch::Frames] {
            session.prefetch(&cache, bytes.start, bytes.end - bytes.start, step);
        }
        let read = Request::new(RequestOp::Read, bytes);
        let hit = session.submit(&cache, 1, read, data, || panic!("it is a hit"));
        let Submitted::Done(done) = hit else { panic!("it is a hit") };
        let read = done.data.unwrap();
        read.copy_to(cache.frames(), black_box(to));
        session.release(&cache, 1, read);
    };
    // The blocks become dirty, and the session allocates its buffers.
    (0..BLOCKS).for_each(|block| write_and_read(block, 1));
    (0..BLOCKS / 2).for_each(|pair| write_and_read(2 * pair, 2));
    let found = allocation_counter::measure(|| {
        (0..BLOCKS).for_each(|block| write_and_read(block, 1));
        (0..BLOCKS / 2).for_each(|pair| write_and_read(2 * pair, 2));
    });
    assert_eq!(found.count_total, 0, "{found:?}");
    session.close(&cache);
}
