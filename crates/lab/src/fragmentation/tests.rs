//! Tests of the cost and of the answer.

use super::*;
use crate::model::{DeviceModel, DeviceRates, DiskSpec, SsdSpec};
use larder_schema::fragmentation::{FileExtent, FileScan, VerdictKind};
use larder_schema::watch::Counts;

const BLOCK: u64 = 4096;
const DEVICE: u64 = 8 << 30;

/// Returns a file of `fragments` parts of `blocks` blocks each, a MiB apart.
fn fragmented(fragments: u64, blocks: u64) -> Vec<FileExtent> {
    let part = |number: u64| FileExtent {
        logical: number * blocks * BLOCK,
        physical: (1 << 30) + number * ((1 << 20) + blocks * BLOCK),
        bytes: blocks * BLOCK,
        flags: 0,
    };
    (0..fragments).map(part).collect()
}

fn options(device: StoreModel) -> CostOptions {
    let from = RequestsFrom::Trace;
    CostOptions { device, device_bytes: DEVICE, depth: 1, sample: 100_000, from }
}

fn reads(count: u64, step: u64, first: u64, len: u64) -> Vec<FileRequest> {
    let read = |number: u64| FileRequest {
        file: 0,
        kind: StoreOpKind::Read,
        offset: first + number * step,
        len,
    };
    (0..count).map(read).collect()
}

fn disk() -> StoreModel {
    StoreModel::Device(DeviceModel::Disk(DiskSpec::scsi_1999()))
}

fn answer(extents: &[FileExtent], cost: &FragmentationCost) -> (VerdictKind, String) {
    let mut scan = FileScan::new(DEVICE, 1, false);
    scan.add(extents.iter().map(|it| it.bytes).sum(), extents, Vec::new);
    let verdict = verdict(&scan.totals, Some(cost), "/srv/data");
    (verdict.kind, verdict.reason)
}

/// The published study: requests within extents cost nothing, and those that cross cost as many
/// operations as extents.
#[test]
fn the_cost_follows_the_share_of_requests_that_cross() {
    let rates = StoreModel::rated(DeviceRates::fixed(10_000_000));
    // Fragments of 64 KiB, and reads of 8 KiB, 8 KiB at odd places, and 68 KiB.
    let extents = fragmented(200, 16);
    let layouts = FileLayouts::new(std::slice::from_ref(&extents), DEVICE);
    let run =
        |requests: &[FileRequest], device| cost(&layouts, requests, &options(device), |_| ()).0;
    let none = run(&reads(1_000, 2 * BLOCK, 0, 2 * BLOCK), rates);
    assert_eq!((none.crossing_requests, none.device_requests), (0, 1_000));
    assert!(none.gain().abs() < 1e-9, "{none:?}");
    let (kind, reason) = answer(&extents, &none);
    assert_eq!(kind, VerdictKind::NotWorthIt);
    assert_eq!(reason, "no request crosses the end of a fragment: contiguous files gain nothing");

    let few = run(&reads(1_500, 2 * BLOCK, BLOCK, 2 * BLOCK), rates);
    assert!((few.crossing_share() - 1.0 / 8.0).abs() < 0.001, "{few:?}");
    // Both parts of a request are in flight at the same time on a device of this depth.
    assert!(few.now.operations_per_request > 1.12, "{few:?}");

    let all = run(&reads(100, 16 * BLOCK, BLOCK, 17 * BLOCK), disk());
    assert!((all.crossing_share() - 1.0).abs() < 1e-9);
    assert!((all.now.operations_per_request - 2.1).abs() < 0.2, "{all:?}");
    assert!((all.contiguous.operations_per_request - 1.0).abs() < 1e-9);
    let (kind, reason) = answer(&extents, &all);
    assert_eq!(kind, VerdictKind::Repair);
    let expected = "100.0 % of the requests cross the end of a fragment, and 1,000 of them need ";
    assert!(reason.starts_with(expected), "{reason}");
}

#[test]
fn on_an_ssd_requests_that_cross_gain_little() {
    let ssd = StoreModel::Device(DeviceModel::Flash(SsdSpec::sata_flash()));
    let extents = fragmented(500, 16);
    let layouts = FileLayouts::new(std::slice::from_ref(&extents), DEVICE);
    // One of eight reads crosses.
    let requests = reads(3_000, 2 * BLOCK, BLOCK, 2 * BLOCK);
    let (found, files) = cost(&layouts, &requests, &options(ssd), |_| ());
    let (kind, reason) = answer(&extents, &found);
    assert_eq!(kind, VerdictKind::NotWorthIt, "{reason} {found:?}");
    assert!(reason.contains("which costs "), "{reason}");
    assert_eq!(files[0].requests, 3_000);
    assert!(files[0].now_ns >= files[0].contiguous_ns);
}

#[test]
fn bytes_without_a_place_cost_nothing() {
    let mut extents = fragmented(4, 4);
    extents.remove(1);
    extents.push(FileExtent { logical: 16 * BLOCK, bytes: BLOCK, flags: 0x4, ..extents[0] });
    let layouts = FileLayouts::new(&[extents, Vec::new()], DEVICE);
    let place = |range: Range<u64>| layouts.placed(0, range.start * BLOCK..range.end * BLOCK);
    let blocks = |range: Range<u64>| Some(range.start * BLOCK..range.end * BLOCK);
    assert_eq!(place(0..4), blocks(0..4));
    assert_eq!(place(4..8), None, "a hole");
    assert_eq!(place(2..6), blocks(2..4));
    assert_eq!(place(6..9), blocks(4..5));
    assert_eq!(place(2..10), blocks(2..6), "across the hole");
    assert_eq!(place(15..20), blocks(11..12));
    assert_eq!(place(16..17), None, "delayed");
    assert_eq!(place(40..41), None);
    assert_eq!(layouts.placed(1, 0..BLOCK), None);
    let requests = [
        FileRequest { file: 1, kind: StoreOpKind::Read, offset: 0, len: 1 },
        FileRequest { file: 0, kind: StoreOpKind::Read, offset: 0, len: BLOCK },
        FileRequest { file: 0, kind: StoreOpKind::Read, offset: u64::MAX, len: BLOCK },
    ];
    let mut places = Vec::new();
    let (found, _) = cost(&layouts, &requests, &options(disk()), |at| places.push(at));
    assert_eq!((found.requests, found.device_requests, found.unplaced_requests), (3, 1, 2));
    assert_eq!(places, [1 << 30]);
}

#[test]
fn a_contiguous_file_lies_where_its_longest_fragment_begins() {
    let mut extents = fragmented(3, 1);
    let after =
        FileExtent { logical: 3 * BLOCK, physical: extents[2].physical_end(), ..extents[2] };
    extents.push(after);
    let layouts = FileLayouts::new(&[extents.clone()], DEVICE);
    let start = extents[2].physical;
    let places: Vec<_> = layouts.contiguous.map.extents().cloned().collect();
    assert_eq!(places.len(), 1);
    assert_eq!(places[0], start..start + 4 * BLOCK);
    let small = FileLayouts::new(&[extents], start + BLOCK);
    assert_eq!(small.contiguous.end, start + BLOCK, "inside the device");
}

#[test]
fn counts_become_requests_of_their_numbers_and_lengths() {
    let random = Counts {
        read_requests: 100,
        read_pages: 200,
        hit_pages: 100,
        miss_pages: 100,
        added_pages: 100,
        ..Counts::default()
    };
    let appends = Counts {
        write_requests: 64,
        write_bytes: 64 * BLOCK,
        write_pages: 64,
        write_new_pages: 64,
        added_pages: 64,
        dirtied_pages: 64,
        ..Counts::default()
    };
    let files = [(1 << 20, random), (1 << 20, appends)];
    let (requests, cached) = of_counts(&files, BLOCK, 1);
    let of = |file: usize| requests.iter().filter(move |it| it.file == file);
    assert_eq!((of(0).count(), of(1).count(), cached), (50, 64, 50));
    assert!(of(0).all(|it| it.kind == StoreOpKind::Read && it.len == 2 * BLOCK));
    assert!(of(1).all(|it| it.kind == StoreOpKind::Write { fua: false } && it.len == BLOCK));
    assert!(requests.iter().all(|it| it.end() <= 1 << 20));
    let in_order = Counts { in_order_pages: 190, added_pages: 200, ..random };
    let (requests, _) = of_counts(&[(1 << 20, in_order)], BLOCK, 1);
    let offsets: Vec<_> = requests.iter().map(|it| it.offset >> 17).collect();
    assert_eq!(offsets, [0, 1, 2, 3, 4, 5, 6]);
    let huge = Counts { added_pages: u64::MAX >> 13, read_pages: 1, read_requests: 1, ..random };
    assert!(of_counts(&[(1, huge)], BLOCK, 1).0.len() <= 20_001);
}

#[test]
fn programs_with_small_writes_get_measures() {
    let counts = Counts {
        write_requests: 10,
        write_bytes: 10 * BLOCK,
        dirtied_pages: 10,
        ..Counts::default()
    };
    let write = |process, file, fragments| WriterFile { process, file, fragments, counts };
    let all = [write("log", 0, 50), write("log", 1, 30), write("log", 0, 50), write("cp", 2, 1)];
    let found = find_writers(&all, Some("xfs"));
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].files, found[0].fragments, found[0].writes), (2, 80, 30));
    assert_eq!(found[0].measures.len(), 4, "{found:?}");
    assert_eq!(find_writers(&all, Some("ext4"))[0].measures.len(), 3);
}

#[test]
fn files_without_fragments_or_requests_have_nothing_to_gain() {
    let whole = verdict(&FileScan::new(DEVICE, 0, false).totals, None, "/srv");
    assert_eq!(whole.kind, VerdictKind::NotFragmented);
    let cached = FragmentationCost { cached_requests: 10, ..FragmentationCost::default() };
    let extents = fragmented(3, 1);
    let (kind, reason) = answer(&extents, &cached);
    assert_eq!(
        (kind, reason.as_str()),
        (VerdictKind::NotWorthIt, "the cache served all requests: nothing to gain")
    );
}
