//! Traces of every format: right input gives the right records, wrong input gives an error with its
//! place, and never a panic, a hang, or memory without bound.
//!
//! `LARDER_FUZZ_SECONDS` makes the fuzzing run as long as that; `LARDER_SEED` is its seed.

mod formats;
mod fuzz;
mod round_trip;
mod samples;
mod wrong_input;

use larder_lab::trace::{BoxedSource, OpenOptions, Record, TraceError, open_stream};
use samples::{Sample, binaries, texts};

/// One sample of every format, but for those that only we write.
fn samples(asked: &[Record]) -> Vec<Sample> {
    let mut all = texts(asked);
    all.extend(binaries(asked));
    all
}

/// Opens bytes as if they were a file.
fn open(name: &str, bytes: &[u8], options: &OpenOptions) -> Result<BoxedSource, TraceError> {
    open_stream(name, Box::new(std::io::Cursor::new(bytes.to_vec())), options)
}

/// All records.
fn drain(source: &mut BoxedSource) -> Result<Vec<Record>, TraceError> {
    let (mut records, mut batch) = (Vec::new(), Vec::new());
    while source.next_batch(&mut batch)? {
        records.append(&mut batch);
    }
    Ok(records)
}

/// Opens and reads all.
fn read(name: &str, bytes: &[u8], options: &OpenOptions) -> Result<Vec<Record>, TraceError> {
    drain(&mut open(name, bytes, options)?)
}
