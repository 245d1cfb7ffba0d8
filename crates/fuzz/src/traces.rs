//! Fuzz targets for traces of every format.

use larder_core::policy::PolicyKind;
use larder_lab::sim::sizing::{Options, SizingError, measure};
use larder_lab::trace::{
    Addressing, BoxedSource, Format, LEN_MAX, NameOf, OpenOptions, Record, TIME_NS_MAX, TraceError,
    VOLUME_MAX, open_stream,
};
use larder_report::advise::goal::Goal;
use std::io::Cursor;
use std::num::NonZero;

/// Maximum number of records that are read: a packed stream may hold any number.
const RECORDS_MAX: usize = 1 << 16;

/// Reads a trace. The first byte chooses the format; otherwise the format is detected by content.
fn open(input: &[u8]) -> Result<BoxedSource, TraceError> {
    let (first, bytes) = input.split_first().unwrap_or((&0, &[]));
    let formats: Vec<Format> = Format::all().filter(|it| *it != Format::Parquet).collect();
    let format = usize::from(*first).checked_sub(1).and_then(|at| formats.get(at).copied());
    let options = OpenOptions { format, max_bad: 3, ..OpenOptions::default() };
    open_stream("input", Box::new(Cursor::new(bytes.to_vec())), &options)
}

fn records(source: &mut BoxedSource) -> Result<Vec<Record>, TraceError> {
    let (mut records, mut batch) = (Vec::new(), Vec::new());
    while records.len() < RECORDS_MAX && source.next_batch(&mut batch)? {
        records.append(&mut batch);
    }
    Ok(records)
}

/// Checks the guarantees of a reader for all consumers.
pub(crate) fn trace(input: &[u8]) {
    let Ok(mut source) = open(input) else { return };
    let Ok(records) = records(&mut source) else { return };
    let objects = source.addressing() == Addressing::Objects;
    for record in records {
        assert!(record.time_ns <= TIME_NS_MAX && record.volume <= VOLUME_MAX);
        assert!(objects || record.offset.checked_add(record.len).is_some());
        assert!(objects || !record.op.transfers() || record.len <= LEN_MAX);
        for of in [NameOf::Volume, NameOf::File, NameOf::Process] {
            let name = source.name(of, record.volume);
            assert!(name.is_none_or(|name| name.len() <= 3 * 4096 + 16));
        }
    }
    assert!(source.notes().len() < 10);
}

/// Maximum number of references for `size`: each costs time, and more show nothing new.
const REFERENCES_MAX: u64 = 2_000;

/// Evaluates each trace, and prints the result in every format.
pub(crate) fn sizing(input: &[u8]) {
    let Ok(mut source) = open(input) else { return };
    let Ok(records) = records(&mut source) else { return };
    if records.iter().map(|record| record.len / 4096 + 2).sum::<u64>() > REFERENCES_MAX {
        return;
    }
    let options = Options {
        name: "input".to_owned(),
        goal: Goal { target: 0.95, budget_bytes: None },
        policies: vec![PolicyKind::Lru],
        sampled: false,
        seed: 1,
        threads: NonZero::<usize>::MIN,
    };
    let again = || open(input);
    match measure(&again, &options, &mut |_| ()) {
        Ok(made) => assert!(!made.to_text().is_empty() && made.to_html().contains("</html>")),
        Err(
            SizingError::Reference(_) | SizingError::Objects { .. } | SizingError::Empty { .. },
        ) => {}
        Err(error) => panic!("{error}"),
    }
}
