//! Tests with real traces, whose published counts must be reproduced, and shared helpers.

use super::*;

/// Opens a real trace, if its directory is present.
fn real(name: &str) -> Option<BoxedSource> {
    let path = larder_testing::shared_trace(name)?;
    Some(open(&path, &OpenOptions::default()).unwrap())
}

/// Reads all records.
pub(super) fn drain(source: &mut dyn Source) -> Result<Vec<Record>, TraceError> {
    let (mut records, mut batch) = (Vec::new(), Vec::new());
    while source.next_batch(&mut batch)? {
        records.append(&mut batch);
    }
    Ok(records)
}

/// Returns the number of references and of distinct pages, with pages of this size.
fn references(records: &[Record], page_bytes: u64) -> (u64, u64) {
    let mut footprint = Footprint::default();
    let mut count = 0;
    for record in records {
        let last = (record.offset + record.len - 1) / page_bytes;
        count += last - record.offset / page_bytes + 1;
        footprint.add(record.volume, record.offset / page_bytes, last);
    }
    (count, footprint.pages())
}

#[test]
fn the_arc_traces_have_the_references_that_the_paper_counts() {
    let known = [
        ("arc_OLTP.lis.zst", None, 914_145, 186_880),
        ("arc_P3.lis.zst", Some(238_578), 3_912_296, 762_543),
    ];
    for (name, requests, total, unique) in known {
        let Some(mut source) = real(name) else { continue };
        assert_eq!(source.addressing(), Addressing::Pages { bytes: 512 });
        let records = drain(&mut source).unwrap();
        assert!(requests.is_none_or(|requests| records.len() == requests), "{name}");
        assert_eq!(references(&records, 512), (total, unique), "{name}");
    }
}

#[test]
fn cloud_physics_has_its_reads_writes_and_pages() {
    let Some(mut source) = real("cloudPhysicsIO.vscsi") else { return };
    let records = drain(&mut source).unwrap();
    let count = |op| records.iter().filter(|record| record.op == op).count();
    assert_eq!((records.len(), count(Op::Read), count(Op::Write)), (113_872, 46_974, 66_898));
    let last = records.last().unwrap().time_ns;
    assert_eq!((last + 500_000_000) / 1_000_000_000, 7_200);
    assert_eq!(references(&records, 4096), (1_141_869, 269_210));
    assert!(source.notes().is_empty(), "{:?}", source.notes());
}

#[test]
fn tpcc_small_has_its_requests() {
    let Some(mut source) = real("mqsim_tpcc-small.trace") else { return };
    assert_eq!(drain(&mut source).unwrap().len(), 6_999);
}
