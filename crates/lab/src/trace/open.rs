//! Opening of traces: a path becomes a [`Source`], in any supported format and compression.

use super::decode::{Decode, Stream};
use super::input::Input;
use super::read::{
    Blkparse, Blktrace, Filemon, Fio, Keys, LCS_HEADER_BYTES, Lcs, OracleGeneral, PerfScript,
    Procmon, Tencent, Vscsi, alibaba, disksim, lis, msr, perfmon_refusal, spc, systor, twitter,
};
use super::text::{LineFormat, Lines};
use super::{Addressing, Format, Source, TraceError, csv, ltr};
use std::fs::File;
use std::io::{Read, Seek};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Bytes from which the format is detected.
const HEAD_BYTES: usize = 64 << 10;

/// Options for reading a trace.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// The format; `None` to detect it from the content, else from the file name.
    pub format: Option<Format>,
    /// Command-line option that names the format, for messages; empty if there is none.
    pub format_option: &'static str,
    /// Number of bad records that are skipped before an error.
    pub max_bad: u64,
    /// Times, in nanoseconds since the beginning, outside of which the caller needs no records: in
    /// a complete `.ltr` file, other blocks are not read. The source may still return records
    /// outside.
    pub times: Option<Range<u64>>,
    /// Counter of the bytes read from the file, for a progress display.
    pub progress: Option<Arc<AtomicU64>>,
}

/// A source that can be sent to another thread.
pub type BoxedSource = Box<dyn Source + Send>;

/// Opens a trace; `-` is standard input.
///
/// # Errors
/// The trace cannot be read, is empty, or its format is unknown or does not match its content.
pub fn open(path: &Path, options: &OpenOptions) -> Result<BoxedSource, TraceError> {
    if path == Path::new("-") {
        return open_stream("standard input", Box::new(std::io::stdin()), options);
    }
    let name = path.display().to_string();
    let wrap = |source| TraceError::Io { name: name.clone(), source };
    let mut file = File::open(path).map_err(wrap)?;
    if file.metadata().map_err(wrap)?.is_dir() {
        return Err(wrap(std::io::Error::from(std::io::ErrorKind::IsADirectory)));
    }
    let mut magic = Vec::new();
    file.by_ref().take(4).read_to_end(&mut magic).map_err(wrap)?;
    if options.format.map_or(magic == *b"PAR1", |format| format == Format::Parquet) {
        return open_parquet(&name, file, options.max_bad);
    }
    let is_larder = magic == ltr::MAGIC[..4] && options.format.is_none_or(|f| f == Format::Larder);
    if is_larder && file.metadata().map_err(wrap)?.is_file() {
        if let Some(index) = ltr::Index::read(&mut file).map_err(wrap)? {
            // Recorders write names last, but filters need them from the first record on.
            let names = index.names(&mut file).map_err(wrap)?;
            file.rewind().map_err(wrap)?;
            let stream: Box<dyn Read + Send> = match &options.times {
                Some(times) => Box::new(ltr::RangeReader::new(file, index.pieces(times))),
                None => Box::new(file),
            };
            let input = open_input(&name, stream, options)?;
            let stream = ltr::source(input, &names, options.times.is_some(), options.max_bad)?;
            return Ok(Box::new(stream));
        }
        file.seek(std::io::SeekFrom::Start(magic.len() as u64)).map_err(wrap)?;
    }
    open_stream(&name, Box::new(std::io::Cursor::new(magic).chain(file)), options)
}

/// Creates the input and fills its window with the first bytes; an empty trace is an error.
fn open_input(
    name: &str,
    stream: Box<dyn Read + Send>,
    options: &OpenOptions,
) -> Result<Input, TraceError> {
    let mut input = Input::new(name, stream, options.progress.clone())?;
    input.fill(HEAD_BYTES)?;
    if input.bytes().is_empty() {
        return Err(input.bad("the trace is empty"));
    }
    Ok(input)
}

/// Opens a trace that is a stream; `name` is its name in messages, and the extension of `name` may
/// determine the format.
///
/// # Errors
/// As [`open`].
pub fn open_stream(
    name: &str,
    stream: Box<dyn Read + Send>,
    options: &OpenOptions,
) -> Result<BoxedSource, TraceError> {
    let input = open_input(name, stream, options)?;
    let format = match options.format {
        Some(format) => format,
        None => detect_format(&input, options.format_option)?,
    };
    source(format, input, options.max_bad)
}

#[cfg(feature = "parquet")]
use super::parquet::open as open_parquet;

/// Replaces the reader in builds without the feature.
#[cfg(not(feature = "parquet"))]
fn open_parquet(name: &str, _file: File, _max_bad: u64) -> Result<BoxedSource, TraceError> {
    Err(TraceError::Bad {
        name: name.to_owned(),
        place: "byte 0".to_owned(),
        reason: "this build of larder does not support Parquet; install a package of larder, or \
                 build it with `cargo build --release --features full`"
            .to_owned(),
    })
}

/// Detects the format from the content of the window, else from the name.
fn detect_format(input: &Input, format_option: &str) -> Result<Format, TraceError> {
    let found = Format::from_content(input.bytes());
    found.or_else(|| Format::from_file_name(input.name())).ok_or_else(|| {
        let hint = match format_option {
            "" => String::new(),
            option => format!(" (name the format with {option})"),
        };
        input.bad(format!("no known format begins like this{hint}"))
    })
}

/// Creates the source of a format; a file that does not begin as the format requires is refused.
fn source(format: Format, mut input: Input, max_bad: u64) -> Result<BoxedSource, TraceError> {
    use Addressing::{Bytes, Objects, Pages};
    let head = input.bytes();
    let wrong = |defect: &str| input.bad(format!("{defect}, which {} needs", format.name()));
    let keys = |wide, big_endian| Box::new(Keys { wide, big_endian });
    let (decoder, addressing): (Box<dyn Decode>, _) = match format {
        Format::Larder => return Ok(Box::new(ltr::source(input, &[], false, max_bad)?)),
        Format::Parquet => {
            return Err(input.bad("Parquet is read from files only, not from streams"));
        }
        Format::Csv => {
            let addressing = csv::addressing(head).ok_or_else(|| input.bad(csv::wrong_header()))?;
            (lines(csv::CsvReader), addressing)
        }
        Format::Vscsi1 => (Box::new(Vscsi::new(false)), Bytes),
        Format::Vscsi2 => (Box::new(Vscsi::new(true)), Bytes),
        Format::OracleGeneral => (Box::new(OracleGeneral), Objects),
        Format::Lcs => {
            let lcs = Lcs::from_header(head).map_err(|reason| input.bad(reason))?;
            input.consume(LCS_HEADER_BYTES);
            (Box::new(lcs), Objects)
        }
        Format::Keys32Le => (keys(false, false), Objects),
        Format::Keys32Be => (keys(false, true), Objects),
        Format::Keys64Le => (keys(true, false), Objects),
        Format::Keys64Be => (keys(true, true), Objects),
        Format::Blktrace => {
            let blktrace = Blktrace::from_head(head);
            let wrong = || wrong("the file does not begin with an event");
            (Box::new(blktrace.ok_or_else(wrong)?), Bytes)
        }
        Format::Lis => (lines(lis), Pages { bytes: 512 }),
        Format::Msr => (lines(msr), Bytes),
        Format::Alibaba => (lines(alibaba), Bytes),
        Format::Tencent => (lines(Tencent::guess(head)), Bytes),
        Format::Systor => (lines(systor), Bytes),
        Format::Spc => (lines(spc), Bytes),
        Format::Twitter => (lines(twitter), Objects),
        Format::DiskSim => (lines(disksim), Bytes),
        Format::Blkparse => (lines(Blkparse::from_head(head)), Bytes),
        Format::Fio => {
            let defect = "the first line does not say \"fio version 2 iolog\" or 3";
            (lines(Fio::from_head(head).ok_or_else(|| wrong(defect))?), Bytes)
        }
        Format::Procmon => {
            let defect = "the first line lacks Time of Day, Operation, Path or Detail";
            (lines(Procmon::from_head(head).ok_or_else(|| wrong(defect))?), Bytes)
        }
        Format::Filemon => (lines(Filemon::default()), Bytes),
        Format::PerfScript => (lines(PerfScript::default()), Bytes),
        Format::Perfmon => {
            return Err(match perfmon_refusal(head) {
                Some(refusal) => input.bad(refusal),
                None => wrong("the first line does not begin with (PDH-CSV"),
            });
        }
    };
    Ok(Box::new(Stream::new(input, decoder, addressing, max_bad)))
}

fn lines(format: impl LineFormat + 'static) -> Box<dyn Decode> {
    Box::new(Lines::new(format))
}
