//! Block status: a hole of the store is data if only the cache has the data of its blocks.

use super::{MIB, Service};
use crate::common::{
    lazy::keep_dirty,
    rig::{engine, geometry},
};
use larder_core::volume::VolumeOptions;
use larder_io::front::nbd::ServerLimits;
use larder_io::nbd_client::{Client, Request};
use larder_io::nbd_wire as wire;
use larder_io::store::{OpenOptions, open};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;

const DATA: u32 = 0;
const HOLE: u32 = wire::STATE_HOLE | wire::STATE_ZERO;

/// Returns all extents of the volume, with neighbors of one state joined.
fn runs(client: &mut Client, length: u64) -> Vec<(u64, u32)> {
    let (mut at, mut runs) = (0, Vec::<(u64, u32)>::new());
    while at < length {
        let len = u32::try_from(length - at).expect("below 4 GiB");
        let extents = client.block_status(at, len).expect("it was negotiated");
        assert!(!extents.is_empty(), "at least one");
        for extent in extents {
            at += u64::from(extent.len);
            match runs.last_mut() {
                Some((len, state)) if *state == extent.state => *len += u64::from(extent.len),
                _ => runs.push((extent.len.into(), extent.state)),
            }
        }
    }
    assert_eq!(at, length, "no more than was asked for");
    runs
}

/// Serves a file of this length.
fn serve(path: &Path, length: u64) -> Service {
    let engine = engine(16 * MIB);
    let opened = open(path, OpenOptions::default(), engine.clock()).expect("the file is there");
    let options = VolumeOptions::new("disk", geometry(length));
    let volume = engine.add_volume(options, opened.store).expect("there is room");
    Service::start(engine, volume, opened.map, ServerLimits::default(), false)
}

/// Serves a file of this length without data.
fn serve_hole(length: u64) -> (TempDir, Service) {
    let dir = TempDir::new().expect("a directory");
    let path = dir.path().join("sparse");
    let file = File::create_new(&path).expect("a file");
    file.set_len(length).expect("room");
    let service = serve(&path, length);
    (dir, service)
}

#[test]
fn what_only_the_cache_has_is_data() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("sparse");
    let length = 64 * MIB;
    let file = File::create_new(&path).unwrap();
    file.set_len(length).unwrap();
    file.write_all_at(&vec![1; 1 << 20], 16 * MIB).unwrap();
    let service = serve(&path, length);
    keep_dirty(&service.volume);
    let mut client = service.connect(true);
    let stored = [(16 * MIB, HOLE), (MIB, DATA), (47 * MIB, HOLE)];
    assert_eq!(runs(&mut client, length), stored);
    client.write_at(32 * MIB + 100, &[2; 8192], false).unwrap();
    client.write_at(length - 512, &[3; 512], false).unwrap();
    let with_cached = [
        (16 * MIB, HOLE),
        (MIB, DATA),
        (15 * MIB, HOLE),
        (12_288, DATA),
        (32 * MIB - 12_288 - 4096, HOLE),
        (4096, DATA),
    ];
    assert!(service.volume.unclean_blocks() > 0, "not in the store yet");
    assert_eq!(runs(&mut client, length), with_cached);
    client.flush().unwrap();
    assert_eq!(service.volume.unclean_blocks(), 0);
    assert_eq!(runs(&mut client, length), with_cached, "now the store has it");
    client.trim(16 << 20, 1 << 20, false).unwrap();
    assert_eq!(runs(&mut client, length)[0], (32 * MIB, HOLE));
    let one = Request::block_status(0, 64 << 20).with_flags(wire::CMD_FLAG_REQ_ONE);
    client.submit(one).unwrap();
    assert_eq!(client.wait().unwrap().extents.len(), 1);
    client.disconnect().unwrap();
    service.end();
}

/// Each block of a hole takes time, and a client may query 4 GiB with a few bytes.
#[test]
fn one_answer_searches_a_bounded_part_of_a_hole() {
    let length = 3072 * MIB;
    let (_dir, service) = serve_hole(length);
    keep_dirty(&service.volume);
    let mut client = service.connect(true);
    client.write_at(length - 4096, &[1; 4096], false).unwrap();
    let extents = client.block_status(0, 3072 << 20).unwrap();
    assert_eq!(extents.iter().map(|extent| extent.len).sum::<u32>(), 1 << 30);
    assert_eq!(runs(&mut client, length), [(length - 4096, HOLE), (4096, DATA)]);
    client.disconnect().unwrap();
    service.end();
}

/// A block whose state is queried while it is written to the store is data at every moment.
#[test]
fn a_block_on_its_way_to_the_store_is_never_a_hole() {
    let (_dir, service) = serve_hole(16 * MIB);
    let (mut writer, mut reader) = (service.connect(true), service.connect(true));
    for i in 0..300 {
        let offset = i * 12_288;
        writer.write_at(offset, &[1; 4096], false).unwrap();
        writer.submit(Request::flush()).unwrap();
        loop {
            let extents = reader.block_status(offset, 4096).unwrap();
            assert_eq!(extents[0].state, DATA, "the block at {offset}");
            if writer.wait_for(std::time::Duration::ZERO).unwrap().is_some() {
                break;
            }
        }
    }
    drop((writer, reader));
    service.end();
}

/// Acknowledged data of a block is data even while another client writes the block again.
#[test]
fn a_block_that_is_being_overwritten_is_never_a_hole() {
    let (_dir, service) = serve_hole(16 * MIB);
    keep_dirty(&service.volume);
    let (mut writer, mut reader) = (service.connect(true), service.connect(true));
    writer.write_at(0, &[1; 4096], false).unwrap();
    let has_ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !has_ended.load(Ordering::Relaxed) {
                writer.write_at(0, &[2; 4096], false).unwrap();
            }
        });
        // The offset need not be that of a block.
        let results: Vec<_> = (0..5000).map(|_| reader.block_status(512, 3584)).collect();
        has_ended.store(true, Ordering::Relaxed);
        for extents in results {
            let extents = extents.unwrap();
            assert_eq!((extents[0].len, extents[0].state), (3584, DATA));
        }
    });
    drop((writer, reader));
    service.end();
}
