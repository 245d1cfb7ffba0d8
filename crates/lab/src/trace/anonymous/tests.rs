//! Tests of anonymized traces.

use super::*;
use crate::random::Random;
use std::collections::{BTreeSet, HashMap};

const MIB: u64 = 1 << 20;

/// A trace in memory, with a name for each number of volumes and files, but of no process.
struct Known(Vec<Record>, Addressing);

impl Source for Known {
    fn read_batch(&mut self, batch: &mut Vec<Record>) -> Result<(), TraceError> {
        batch.append(&mut self.0);
        Ok(())
    }

    fn name(&self, kind: NameKind, number: u32) -> Option<&str> {
        match kind {
            NameKind::Volume => Some(["secret disk", "other disk"][number as usize % 2]),
            NameKind::File => Some("secret file"),
            NameKind::Process => None,
        }
    }

    fn addressing(&self) -> Addressing {
        self.1
    }
}

/// Returns a mixing function with this key; it is no cryptographic one.
fn keyed(key: u64) -> KeyedHash {
    Box::new(move |bytes| {
        let mix = |hash: u64, byte: &u8| {
            let hash = (hash ^ u64::from(*byte)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            hash ^ hash >> 29
        };
        bytes.iter().fold(key.wrapping_add(1), mix)
    })
}

fn anonymized(records: &[Record], addressing: Addressing, key: u64) -> Anonymized<Known> {
    let first = FirstReading::of(Box::new(Known(records.to_vec(), addressing))).unwrap();
    Anonymized::new(Known(records.to_vec(), addressing), first, MIB, keyed(key))
}

fn all(source: &mut dyn Source) -> Vec<Record> {
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    while source.next_batch(&mut batch).unwrap() {
        all.extend(&batch);
    }
    all
}

fn read(volume: u32, offset: u64, len: u64) -> Record {
    Record { offset, len, volume, ..Record::default() }
}

fn random_records(seed: u64, count: usize) -> Vec<Record> {
    let mut random = Random::from_seed(seed);
    let mut record = |number: usize| {
        let op = Op::ALL[(random.below(20)).min(4) as usize];
        let (offset, len) = (random.below(40 * MIB), 1 + random.below(3 * MIB / 2));
        let (volume, file) = (u32::from(random.below(2) == 1), 1);
        let (offset, len) = if op == Op::Flush { (0, 0) } else { (offset, len) };
        let time_ns = number as u64;
        Record { time_ns, op, offset, len, volume, file, process: 77, ..Record::default() }
    };
    (0..count).map(&mut record).collect()
}

/// Returns the operation and the page of each reference, with pages numbered by first reference.
fn references(records: &[Record]) -> Vec<(Op, usize)> {
    let mut pages = HashMap::new();
    let mut references = Vec::new();
    for record in records.iter().filter(|record| record.len > 0) {
        for page in record.offset / 4096..=(record.end() - 1) / 4096 {
            let next = pages.len();
            let number = *pages.entry((record.volume, page)).or_insert(next);
            // A part may begin in the middle of the page in which the one before ended.
            if references.last() != Some(&(record.op, number)) {
                references.push((record.op, number));
            }
        }
    }
    references
}

#[test]
fn the_references_are_those_of_the_original_up_to_the_names_of_pages() {
    for seed in 0..20 {
        // Discards and zeroings beyond the last read or write have no part in the result.
        let records = random_records(seed, 200);
        let records: Vec<Record> = records.into_iter().filter(|it| it.op.transfers()).collect();
        let moved = all(&mut anonymized(&records, Addressing::Bytes, seed));
        assert_eq!(references(&moved), references(&records), "seed {seed}");
        let offsets = |records: &[Record]| records.iter().map(|it| it.offset).collect::<Vec<_>>();
        assert_ne!(offsets(&moved), offsets(&records), "seed {seed}");
        let bytes = |records: &[Record]| records.iter().map(|record| record.len).sum::<u64>();
        assert_eq!(bytes(&moved), bytes(&records));
        assert!(moved.is_sorted_by_key(|record| record.time_ns));
    }
}

#[test]
fn bytes_have_different_addresses_below_the_rounded_end() {
    for extents in [1, 2, 3, 5, 63, 64, 65, 300] {
        let records: Vec<Record> = (0..extents).map(|at| read(0, at * MIB, MIB)).collect();
        let moved = all(&mut anonymized(&records, Addressing::Bytes, extents));
        let offsets: BTreeSet<u64> = moved.iter().map(|record| record.offset / MIB).collect();
        assert!(offsets.into_iter().eq(0..extents), "{extents}");
    }
}

#[test]
fn names_are_pseudonyms_and_numbers_are_in_the_order_of_use() {
    let records = [read(1, 0, 1), Record { file: 9, process: 12_345, ..read(0, 0, 1) }];
    let mut source = anonymized(&records, Addressing::Bytes, 1);
    let moved = all(&mut source);
    assert_eq!(moved.iter().map(|it| it.volume).collect::<Vec<_>>(), [0, 1]);
    assert_eq!((moved[0].file, moved[1].file, moved[1].process), (0, 1, 1));
    let name = |kind, number| source.name(kind, number).unwrap().to_owned();
    let names = [
        name(NameKind::Volume, 0),
        name(NameKind::Volume, 1),
        name(NameKind::File, 1),
        name(NameKind::Process, 1),
    ];
    for (name, letter) in names.iter().zip(["v-", "v-", "f-", "p-"]) {
        assert!(name.starts_with(letter) && name.len() == 18, "{name}");
    }
    assert_ne!(names[0], names[1]);
}

#[test]
fn the_key_alone_decides_on_names_and_addresses() {
    let records = random_records(5, 100);
    let of_key = |key| all(&mut anonymized(&records, Addressing::Bytes, key));
    assert_eq!(of_key(1), of_key(1));
    assert_ne!(of_key(1), of_key(2));
}

#[test]
fn keys_of_objects_are_permuted_and_their_sizes_stay() {
    let records: Vec<Record> = (0..1000).map(|key| read(0, key % 300, 5)).collect();
    let moved = all(&mut anonymized(&records, Addressing::Objects, 1));
    let image = |record: &Record| record.offset;
    let pairs: HashMap<u64, u64> = records.iter().map(image).zip(moved.iter().map(image)).collect();
    assert_eq!(pairs.values().collect::<BTreeSet<_>>().len(), 300);
    assert!(records.iter().zip(&moved).all(|(from, to)| pairs[&from.offset] == to.offset));
    assert!(moved.iter().all(|record| record.len == 5));
}

#[test]
fn lengths_and_ends_of_a_hostile_trace_cost_little() {
    let discard = |offset, len| Record { op: Op::Discard, ..read(0, offset, len) };
    let records = [
        read(0, u64::MAX - 10, 10),
        read(0, 0, 0),
        discard(0, u64::MAX),
        discard(1, u64::MAX - 1),
        discard(4096, 4096),
        Record { op: Op::Zero, ..read(1, 0, 4096) },
        Record { op: Op::Flush, offset: 7, ..Record::default() },
    ];
    let mut source = anonymized(&records, Addressing::Bytes, 1);
    let moved = all(&mut source);
    assert_eq!(source.notes(), ["1 discard or zeroing of more than 65,536 extents is left out"]);
    assert!(moved.iter().all(|record| record.offset.checked_add(record.len).is_some()));
    // The zeroing of a volume without reads and writes has no effect.
    let ops: Vec<Op> = moved.iter().map(|record| record.op).collect();
    assert_eq!(ops, [Op::Read, Op::Read, Op::Discard, Op::Discard, Op::Flush]);
    assert_eq!(moved[4].offset, 0);
}

#[test]
fn a_discard_of_a_whole_volume_is_one_request() {
    let records = [read(0, 5 * MIB, 10), Record { op: Op::Discard, ..read(0, 0, 100 * MIB) }];
    let moved = all(&mut anonymized(&records, Addressing::Bytes, 1));
    assert_eq!((moved.len(), moved[1].offset, moved[1].len), (2, 0, 6 * MIB));
}

#[test]
fn a_request_that_the_first_reading_did_not_have_is_an_error() {
    for late in [read(0, 5 * MIB, 1), read(0, 4 * MIB - 1, 2), read(3, 0, 1)] {
        let records = vec![read(0, 0, 4 * MIB), late];
        let known = |records: &[Record]| Known(records.to_vec(), Addressing::Bytes);
        let first = FirstReading::of(Box::new(known(&records[..1]))).unwrap();
        let mut source = Anonymized::new(known(&records), first, MIB, keyed(1));
        let error = source.next_batch(&mut Vec::new()).unwrap_err().to_string();
        assert!(error.contains("anonymize a trace that does not change"), "{error}");
    }
}

#[test]
fn volumes_of_one_name_are_one_volume_with_one_end() {
    // The volumes 0 and 2 have the same name.
    let of_volume = |volume, extents| (0..extents).map(move |at| read(volume, at * MIB, MIB));
    let records: Vec<Record> = of_volume(0, 64).chain(of_volume(2, 200)).collect();
    let moved = all(&mut anonymized(&records, Addressing::Bytes, 1));
    let pages: BTreeSet<_> = moved.iter().map(|it| (it.volume, it.offset)).collect();
    assert_eq!(pages.len(), 200);
    assert!(moved[..64].iter().zip(&moved[64..128]).all(|(a, b)| a.offset == b.offset));
}
