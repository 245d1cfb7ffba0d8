//! The request source against a simple model: each byte of a record, one by one.

use super::{Export, Exports, RecordFilter, RequestSource};
use crate::random::Random;
use crate::trace::{NameKind, Op, Record, Source, TraceError};

struct Records(Vec<Record>);

impl Source for Records {
    fn read_batch(&mut self, batch: &mut Vec<Record>) -> Result<(), TraceError> {
        batch.append(&mut self.0);
        Ok(())
    }

    fn name(&self, _of: NameKind, _number: u32) -> Option<&str> {
        None
    }
}

/// Returns an export of `length` bytes that accepts requests of up to `max`, in multiples of `min`.
fn export(length: u64, min: u64, max: u64) -> Export {
    Export {
        name: "nbd://localhost".to_owned(),
        length,
        granule: min,
        transfer_bytes_max: max,
        is_read_only: false,
        ops: vec![Op::Read, Op::Write, Op::Flush, Op::Zero],
    }
}

fn request_source(records: &[Record], export: Export, wrap: bool) -> RequestSource {
    let source = Box::new(Records(records.to_vec()));
    let filter = RecordFilter { wrap, read_only: false };
    RequestSource::new(source, Exports::new(vec![(None, export)]), filter).unwrap()
}

#[test]
fn every_byte_of_a_record_is_asked_once_where_it_belongs() {
    let mut random = Random::from_seed(31);
    for _ in 0..500 {
        let length = 1 + random.below(300);
        let max = 1 + random.below(100);
        let ops = [Op::Read, Op::Write, Op::Zero];
        let records: Vec<Record> = (0..20)
            .map(|time_ns| Record {
                time_ns: time_ns + 5,
                op: ops[usize::try_from(random.below(3)).unwrap()],
                offset: random.below(1000),
                len: 1 + random.below(length),
                ..Record::default()
            })
            .collect();
        let bytes = |record: &Record| {
            let (op, time_ns) = (record.op, record.time_ns - 5);
            (record.offset..record.offset + record.len).map(move |at| (op, time_ns, at % length))
        };
        let expected: Vec<_> = records.iter().flat_map(bytes).collect();
        let mut source = request_source(&records, export(length, 1, max), true);
        let mut actual = Vec::new();
        while let Some(request) = source.next().unwrap() {
            assert!(request.len > 0 && request.offset + request.len <= length);
            assert!(!request.op.transfers() || request.len <= max);
            let range = request.offset..request.offset + request.len;
            actual.extend(range.map(|at| (request.op, request.due_ns, at)));
        }
        assert_eq!(actual, expected);
        let beyond = |record: &&Record| record.offset + record.len > length;
        assert_eq!(source.counts.wrapped, records.iter().filter(beyond).count() as u64);
    }
}

#[test]
fn what_an_export_cannot_take_is_refused_or_left_out() {
    let record = |op, offset, len| Record { offset, len, op, ..Record::default() };
    let refusal = |record, wrap| {
        request_source(&[record], export(8192, 512, 4096), wrap).next().unwrap_err().to_string()
    };
    assert!(refusal(record(Op::Read, 100, 512), true).contains("multiples of 512"));
    assert!(refusal(record(Op::Write, 8192, 512), false).contains("(8192 bytes)"));
    assert!(refusal(record(Op::Read, u64::MAX - 511, 512), false).contains("(8192 bytes)"));
    let records = [
        record(Op::Discard, 0, 512),
        record(Op::Read, 0, 0),
        record(Op::Flush, 7, 9),
        record(Op::Zero, 512, 1024),
    ];
    let mut source = request_source(&records, export(8192, 512, 4096), false);
    let requests: Vec<_> = std::iter::from_fn(|| source.next().unwrap()).collect();
    let actual: Vec<_> = requests.iter().map(|r| (r.number, r.op, r.offset, r.len)).collect();
    assert_eq!(actual, [(2, Op::Flush, 0, 0), (3, Op::Zero, 512, 1024)]);
    assert_eq!((source.counts.not_offered, source.counts.empty), (1, 1));
}
