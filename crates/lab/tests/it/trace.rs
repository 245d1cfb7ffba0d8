//! Traces of every format: valid input gives the correct records, invalid input gives an error with
//! its position, and never a panic, a hang, or unbounded memory.
//!
//! `LARDER_FUZZ_SECONDS` sets the duration of the fuzzing, `LARDER_SEED` its seed.

mod formats;
mod fuzz;
mod round_trip;
mod samples;
mod wrong_input;

use larder_lab::trace::{BoxedSource, OpenOptions, Record, TraceError, open_stream};
use samples::{Sample, binaries, texts};

/// Returns one sample of every format, except for those that only Larder writes.
fn samples(requests: &[Record]) -> Vec<Sample> {
    let mut all = texts(requests);
    all.extend(binaries(requests));
    all
}

/// Opens bytes like a file.
fn open(name: &str, bytes: &[u8], options: &OpenOptions) -> Result<BoxedSource, TraceError> {
    open_stream(name, Box::new(std::io::Cursor::new(bytes.to_vec())), options)
}

/// Reads all records.
fn drain(source: &mut BoxedSource) -> Result<Vec<Record>, TraceError> {
    let (mut records, mut batch) = (Vec::new(), Vec::new());
    while source.next_batch(&mut batch)? {
        records.append(&mut batch);
    }
    Ok(records)
}

/// Opens bytes and reads all records.
fn read(name: &str, bytes: &[u8], options: &OpenOptions) -> Result<Vec<Record>, TraceError> {
    drain(&mut open(name, bytes, options)?)
}
