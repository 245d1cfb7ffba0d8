//! `larder trace anonymize`: a trace that can be given away, without names and addresses.

use super::input::{Input, InputArgs};
use super::output::target;
use super::write_all;
use crate::args;
use crate::output_file::OutputFile;
use anyhow::{Context, Result, bail};
use clap::Args;
use larder_io::owned_file::{self, FileReaders};
use larder_lab::trace::{
    Anonymized, EXTENT_BYTES_MAX, EXTENT_BYTES_MIN, FirstReading, KeyedHash, Target,
};
use larder_schema::format;
use siphasher::sip::SipHasher24;
use std::fs::File;
use std::hash::Hasher;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Bytes of a key.
const KEY_BYTES: usize = 16;
/// The source of keys that are used once.
const RANDOM: &str = "/dev/urandom";

#[derive(Debug, Args)]
pub(super) struct AnonymizeArgs {
    /// The trace.
    #[arg(value_name = "TRACE")]
    trace: PathBuf,

    /// The file to write; - is standard output.
    #[arg(value_name = "FILE")]
    file: OutputFile,

    /// Key, for equal names in several traces.
    ///
    /// A file of 16 random bytes that only its owner may read. If not given, a random key is used,
    /// which is stored nowhere.
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,

    /// Unit in which addresses are permuted.
    ///
    /// Bytes of such an extent stay together. A power of two from 64KiB to 1GiB.
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = extent)]
    extent: u64,

    /// Output format, if the extension does not tell.
    ///
    /// If not given, by the extension of the file, else larder.
    #[arg(long, value_name = "FORMAT", value_parser = target)]
    to_format: Option<Target>,

    #[command(flatten)]
    input: InputArgs,
}

fn extent(text: &str) -> Result<u64, String> {
    let bytes = args::bytes(text)?;
    let range = EXTENT_BYTES_MIN..=EXTENT_BYTES_MAX;
    if bytes.is_power_of_two() && range.contains(&bytes) {
        return Ok(bytes);
    }
    let [least, most] = [EXTENT_BYTES_MIN, EXTENT_BYTES_MAX].map(format::bytes);
    Err(format!("an extent is a power of two from {least} to {most}"))
}

pub(super) fn run(arguments: &AnonymizeArgs) -> Result<()> {
    let trace = &arguments.trace;
    // A pipe would be empty at the second reading.
    let pipe = match std::fs::metadata(trace) {
        _ if trace == Path::new("-") => Some("standard input".into()),
        Ok(found) if !found.is_file() => Some(trace.display().to_string()),
        _ => None,
    };
    if let Some(pipe) = pipe {
        bail!("anonymize {pipe}: the trace is read twice; write it to a file");
    }
    let key = key(arguments.key.as_deref())?;
    let first = FirstReading::of(Box::new(Input::open(trace, &arguments.input)?))?;
    let read = Arc::new(AtomicU64::new(0));
    let source = arguments.input.open(trace, None, Some(&read))?;
    let source = Box::new(Anonymized::new(source, first, arguments.extent, hash(key)));
    write_all(Input::from_files(source, &[trace], read), &arguments.file, arguments.to_format)
}

/// Reads the key, or makes a random one.
fn key(file: Option<&Path>) -> Result<[u8; KEY_BYTES]> {
    let Some(file) = file else {
        let mut key = [0; KEY_BYTES];
        let read = File::open(RANDOM).and_then(|mut random| random.read_exact(&mut key));
        return read.map(|()| key).with_context(|| format!("read {RANDOM}"));
    };
    let operation = || format!("read the key {}", file.display());
    let bytes = owned_file::read(file, FileReaders::Secret, KEY_BYTES as u64);
    let bytes = bytes.with_context(operation)?;
    bytes.try_into().ok().with_context(|| {
        format!(
            "{}: it must have {KEY_BYTES} bytes; head -c {KEY_BYTES} /dev/urandom makes one",
            operation()
        )
    })
}

/// Returns SipHash-2-4 with this key (Aumasson, Bernstein, INDOCRYPT 2012).
fn hash(key: [u8; KEY_BYTES]) -> KeyedHash {
    let start = SipHasher24::new_with_key(&key);
    Box::new(move |bytes| {
        let mut hasher = start;
        hasher.write(bytes);
        hasher.finish()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_siphash_2_4() {
        // The example in the appendix of the paper: the bytes 0 to 14 with the key 0 to 15.
        let key = std::array::from_fn(|index| u8::try_from(index).unwrap());
        let bytes: Vec<u8> = (0..15).collect();
        assert_eq!(hash(key)(&bytes), 0xa129_ca61_49be_45e5);
    }

    #[test]
    fn an_extent_is_a_power_of_two() {
        assert_eq!(extent("64KiB"), Ok(64 << 10));
        for wrong in ["32KiB", "3MiB", "2GiB", "x"] {
            assert!(extent(wrong).is_err(), "{wrong}");
        }
    }
}
