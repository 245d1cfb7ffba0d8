//! Tests of splitting: boundaries, lengths, names.

use super::*;
use crate::sim::testing::Memory;

fn request(op: Op, offset: u64, len: u64) -> Record {
    Record { offset, len, op, ..Record::default() }
}

fn all(records: Vec<Record>, split: Split) -> (Vec<Reference>, RequestCounts) {
    let mut references = References::new(Box::new(Memory(records.into_iter())), split);
    let (mut batch, mut found) = (Batch::default(), Vec::new());
    loop {
        references.read_batch(&mut batch).unwrap();
        if batch.references.is_empty() {
            return (found, references.counts());
        }
        assert!(batch.references.len() <= BATCH_REFERENCES && batch.groups.is_empty());
        found.append(&mut batch.references);
    }
}

#[test]
fn a_request_references_each_page_that_it_touches_once() {
    let records = vec![request(Op::Read, 4095, 4098), request(Op::Write, 8192, 4096)];
    let (found, counts) = all(records, Split::Pages(4096));
    let expected_reference =
        |page, bytes, write, first| Reference { page, bytes, write, partial: bytes != 4096, first };
    let expected = [
        expected_reference(0, 1, false, true),
        expected_reference(1, 4096, false, false),
        expected_reference(2, 1, false, false),
        expected_reference(2, 4096, true, true),
    ];
    assert_eq!(found, expected);
    assert_eq!(counts, RequestCounts { requests: 2, others: 0 });
}

#[test]
fn what_touches_no_page_is_counted_apart() {
    let records = vec![
        request(Op::Flush, 0, 0),
        request(Op::Discard, 0, 4096),
        request(Op::Zero, 0, 4096),
        request(Op::Read, 0, 0),
        request(Op::Read, 0, 1),
    ];
    let (found, counts) = all(records.clone(), Split::Pages(4096));
    assert_eq!((found.len(), counts), (1, RequestCounts { requests: 1, others: 4 }));
    // In this mode each read or write is a reference, even one of no bytes.
    let (found, counts) = all(records, Split::Requests);
    assert_eq!((found.len(), counts), (2, RequestCounts { requests: 2, others: 3 }));
}

#[test]
fn a_request_longer_than_a_batch_goes_on_in_the_next() {
    let pages = 3 * BATCH_REFERENCES as u64 + 7;
    let (found, _) = all(vec![request(Op::Read, 512, pages * 512)], Split::Pages(512));
    assert!(found.iter().map(|r| r.page).eq(1..=pages));
    assert_eq!(found.iter().filter(|r| r.first).count(), 1);
}

#[test]
fn the_end_of_the_address_space_is_an_error_and_no_overflow() {
    let mut far = request(Op::Read, u64::MAX - 1, 100);
    let mut references =
        References::new(Box::new(Memory(vec![far].into_iter())), Split::Pages(4096));
    let error = references.read_batch(&mut Batch::default()).unwrap_err().to_string();
    assert!(error.starts_with("simulate request 1: its page "), "{error}");
    let (found, _) = all(vec![far], Split::Objects);
    assert_eq!(found[0].page, u64::MAX - 1);
    far = Record { volume: 65_536, ..request(Op::Read, 0, 1) };
    let mut references =
        References::new(Box::new(Memory(vec![far].into_iter())), Split::Pages(4096));
    let error = references.read_batch(&mut Batch::default()).unwrap_err().to_string();
    assert!(error.contains("volume 65536"), "{error}");
}

#[test]
fn volumes_are_told_apart_in_pages_and_in_groups() {
    let on = |volume| Record { volume, ..request(Op::Write, 4096, 8192) };
    let source = Memory(vec![on(0), on(1)].into_iter());
    let mut references = References::new(Box::new(source), Split::Pages(4096))
        .by(Some(ReferenceKey::Name(NameKind::Volume)));
    let mut batch = Batch::default();
    references.read_batch(&mut batch).unwrap();
    assert_eq!(batch.groups, [0, 0, 1, 1]);
    let pages: Vec<u64> = batch.references.iter().map(|r| r.page).collect();
    assert_eq!(pages, [1, 2, (1 << 48) | 1, (1 << 48) | 2]);
    assert_eq!(ReferenceKey::Name(NameKind::Volume).title(1, references.source()), "disk");
    assert_eq!(ReferenceKey::Name(NameKind::Volume).title(0, references.source()), "0");
    assert_eq!(ReferenceKey::Operation.title(1, references.source()), "write");
}

#[test]
fn without_splitting_a_request_is_one_reference_named_by_its_offset() {
    let records = vec![request(Op::Read, 512, 1 << 40), request(Op::Write, 512, 4096)];
    let (found, _) = all(records, Split::Requests);
    assert_eq!(found.iter().map(|r| r.page).collect::<Vec<_>>(), [512, 512]);
    assert_eq!(found[0].bytes, u32::MAX, "more than fits is said to be as much as fits");
}
