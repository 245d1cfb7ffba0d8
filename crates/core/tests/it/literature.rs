//! Comparison of the policies with published hit ratios, on the traces of the publications.
//!
//! The traces are not part of the repository; the tests search for them in `../shared/traces` next
//! to it. Without the traces the tests are skipped.

#![expect(clippy::cast_precision_loss, reason = "counts of a trace are far below 2^53")]
#![expect(clippy::print_stdout, reason = "it prints figures")]

use larder_core::policy::{PolicyKind, Slot};
use std::collections::HashMap;

/// Returns the unpacked bytes of a trace; `None` if the trace does not exist.
fn unpacked_bytes(name: &str) -> Option<Vec<u8>> {
    let path = larder_testing::shared_trace(name)?;
    let bytes = std::fs::read(&path).unwrap();
    let packed = path.extension().is_some_and(|extension| extension == "zst");
    Some(if packed { zstd::decode_all(bytes.as_slice()).unwrap() } else { bytes })
}

/// Returns consecutive numbers from 0 on for the keys, in the order of their first occurrence.
fn dense(keys: impl Iterator<Item = u64>) -> Vec<u32> {
    let mut numbers = HashMap::new();
    keys.map(|key| {
        let next = u32::try_from(numbers.len()).unwrap();
        *numbers.entry(key).or_insert(next)
    })
    .collect()
}

/// Returns the references of a `.lis` trace: start page, number of pages, two numbers that are not
/// used.
fn lis(name: &str) -> Option<Vec<u32>> {
    let text = String::from_utf8(unpacked_bytes(name)?).unwrap();
    let mut pages = Vec::new();
    for line in text.lines() {
        let mut numbers = line.split_whitespace().map(|number| number.parse::<u64>().unwrap());
        let (start, count) = (numbers.next().unwrap(), numbers.next().unwrap());
        pages.extend(start..start + count);
    }
    Some(dense(pages.into_iter()))
}

/// Returns one reference for each request of a vscsi trace of version 1, to its first sector.
fn vscsi(name: &str) -> Option<Vec<u32>> {
    let bytes = unpacked_bytes(name)?;
    let sector = |record: &[u8]| u64::from_le_bytes(record[16..24].try_into().unwrap());
    Some(dense(bytes.chunks_exact(32).map(sector)))
}

/// Returns the hit ratio of a policy. On a miss in a full cache, the cache evicts a page and then
/// inserts the new one.
fn hit_ratio(kind: PolicyKind, capacity: usize, pages: &[u32]) -> f64 {
    let mut policy = kind.build();
    policy.on_capacity(capacity);
    let unique = pages.iter().max().map_or(0, |&last| last as usize + 1);
    let mut slot_of: Vec<Option<Slot>> = vec![None; unique];
    let mut page_in: Vec<u32> = Vec::with_capacity(capacity);
    let mut hits = 0u32;
    for &page in pages {
        if let Some(slot) = slot_of[page as usize] {
            policy.on_hit(slot);
            hits += 1;
            continue;
        }
        policy.on_miss(u64::from(page));
        let slot = if page_in.len() < capacity {
            page_in.push(page);
            Slot::try_from(page_in.len() - 1).unwrap()
        } else {
            let slot = policy.victim(&mut |_| true).expect("every page may go");
            let old = std::mem::replace(&mut page_in[slot as usize], page);
            slot_of[old as usize] = None;
            policy.on_remove(slot, u64::from(old), true);
            slot
        };
        policy.on_insert(slot, u64::from(page));
        slot_of[page as usize] = Some(slot);
    }
    policy.check();
    f64::from(hits) / pages.len() as f64
}

/// Compares a hit ratio with a published one, in percent; the difference must be within the
/// tolerance.
fn check(
    trace: &str,
    kind: PolicyKind,
    capacity: usize,
    pages: &[u32],
    (published, tolerance): (f64, f64),
) {
    let ours = hit_ratio(kind, capacity, pages) * 100.0;
    println!("| {trace} | {capacity} | `{}` | {ours:.2} | {published:.2} |", kind.name());
    assert!((ours - published).abs() <= tolerance, "{kind:?} with {capacity}: {ours:.3}");
}

/// Megiddo and Modha, "ARC", FAST '03: hit ratios in percent, the tables of OLTP and P3.
#[test]
fn lru_and_arc_hit_as_often_as_published_on_oltp() {
    let Some(pages) = lis("arc_OLTP.lis.zst") else { return };
    assert_eq!(pages.len(), 914_145, "references");
    let sizes = [1000, 2000, 5000, 10_000, 15_000];
    let lru = [32.83, 42.47, 53.65, 60.70, 64.63];
    let arc = [38.95, 46.08, 55.25, 61.87, 65.40];
    for ((capacity, lru), arc) in sizes.into_iter().zip(lru).zip(arc) {
        check("OLTP", PolicyKind::Lru, capacity, &pages, (lru, 0.005));
        check("OLTP", PolicyKind::Arc, capacity, &pages, (arc, 0.05));
    }
}

#[test]
fn lru_and_arc_hit_as_often_as_published_on_p3() {
    let Some(pages) = lis("arc_P3.lis.zst") else { return };
    assert_eq!(pages.len(), 3_912_296, "references");
    check("P3", PolicyKind::Lru, 32_768, &pages, (3.57, 0.005));
    check("P3", PolicyKind::Arc, 32_768, &pages, (17.11, 0.05));
}

/// Miss ratios of libCacheSim 0.3.5, request by request, with a tenth of the objects.
///
/// The tolerances allow for differences between the implementations. S3-FIFO and Clock2Q+ have
/// their ghosts by age here and in a queue there. W-TinyLFU halves its counts after ten references
/// to a page of the cache here, as in the paper, and after 32 hits in the main cache there.
#[test]
fn all_miss_as_often_as_in_libcachesim() {
    let Some(pages) = vscsi("cloudPhysicsIO.vscsi") else { return };
    assert_eq!(pages.len(), 113_872, "requests");
    for (kind, theirs, tolerance) in [
        (PolicyKind::Random, 0.7934, 0.005),
        (PolicyKind::Fifo, 0.8054, 0.000_05),
        (PolicyKind::Lru, 0.8049, 0.000_05),
        (PolicyKind::Clock, 0.8044, 0.000_05),
        (PolicyKind::TwoQ, 0.7742, 0.000_1),
        (PolicyKind::Slru, 0.7905, 0.000_05),
        (PolicyKind::Arc, 0.7728, 0.000_1),
        (PolicyKind::Lirs, 0.7518, 0.000_2),
        (PolicyKind::S3Fifo, 0.7553, 0.002),
        (PolicyKind::Sieve, 0.7907, 0.000_05),
        (PolicyKind::WTinyLfu, 0.7763, 0.018),
        (PolicyKind::Clock2QPlus, 0.7517, 0.002),
    ] {
        let ours = 1.0 - hit_ratio(kind, 4897, &pages);
        let name = kind.name();
        println!("| `{name}` | {ours:.4} | {theirs:.4} |");
        assert!((ours - theirs).abs() <= tolerance, "{name}: {ours:.5}, libCacheSim {theirs}");
    }
}
