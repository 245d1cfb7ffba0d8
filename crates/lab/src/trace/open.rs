//! The one way in: a path becomes a [`Source`], whatever its format and compression.

use super::decode::{Decode, Fixed, Stream};
use super::input::Input;
use super::read::{
    Alibaba, Blkparse, Blktrace, DiskSim, Fio, Keys, LCS_HEADER_BYTES, Lcs, Lis, Msr,
    OracleGeneral, PerfScript, Procmon, Spc, Systor, Tencent, Twitter, Vscsi, perfmon_refusal,
};
use super::text::{LineFormat, Lines};
use super::{Format, Source, TraceError, csv, ltr};
use std::fs::File;
use std::io::{Read, Seek};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// What is looked at to tell the format.
const HEAD_BYTES: usize = 64 << 10;

/// How a trace is to be read.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// Its format; told by content, else by the end of the name, if not given.
    pub format: Option<Format>,
    /// Option of the command that names the format, for messages; empty if there is none.
    pub format_option: &'static str,
    /// Bad records that are passed over before it is an error.
    pub max_bad: u64,
    /// Times, in nanoseconds since the beginning, beyond which nobody needs records: of a whole
    /// file of our own format other blocks are not read. Records beyond may come all the same.
    pub times: Option<Range<u64>>,
    /// Counts the bytes that were read of the file, for whoever shows progress.
    pub progress: Option<Arc<AtomicU64>>,
}

/// A source that can be given to another thread.
pub type BoxedSource = Box<dyn Source + Send>;

/// Opens a trace; `-` is standard input.
///
/// # Errors
/// It cannot be read, is empty, or its format is not known or not what it claims to be.
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
    let own = magic == ltr::MAGIC[..4] && options.format.is_none_or(|f| f == Format::Larder);
    if own && file.metadata().map_err(wrap)?.is_file() {
        if let Some(index) = ltr::Index::read(&mut file).map_err(wrap)? {
            // Recorders learn names last, and who reads wants to go by them.
            let names = index.names(&mut file).map_err(wrap)?;
            file.rewind().map_err(wrap)?;
            let stream: Box<dyn Read + Send> = match &options.times {
                Some(times) => Box::new(ltr::Pieces::new(file, index.pieces(times))),
                None => Box::new(file),
            };
            let input = beginning(&name, stream, options)?;
            let reader = ltr::Reader::from_head(input.bytes()).map_err(|error| input.bad(error))?;
            let reader = reader.knowing(names);
            let reader = if options.times.is_some() { reader.in_pieces() } else { reader };
            return decoded(reader, input, options.max_bad);
        }
        file.seek(std::io::SeekFrom::Start(magic.len() as u64)).map_err(wrap)?;
    }
    open_stream(&name, Box::new(std::io::Cursor::new(magic).chain(file)), options)
}

/// The stream with its beginning in the window; never empty.
fn beginning(
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

/// Opens a trace that is a stream; `name` stands for it in messages, and its end may tell the
/// format.
///
/// # Errors
/// As [`open`].
pub fn open_stream(
    name: &str,
    stream: Box<dyn Read + Send>,
    options: &OpenOptions,
) -> Result<BoxedSource, TraceError> {
    let input = beginning(name, stream, options)?;
    let format = match options.format {
        Some(format) => format,
        None => told_format(&input, options.format_option)?,
    };
    source(format, input, options.max_bad)
}

#[cfg(feature = "parquet")]
use super::parquet::open as open_parquet;

/// Stands in for the reader where the feature is off.
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

/// The format of what lies in the window, else of the name.
fn told_format(input: &Input, format_option: &str) -> Result<Format, TraceError> {
    let found = Format::from_content(input.bytes());
    found.or_else(|| Format::from_file_name(input.name())).ok_or_else(|| {
        let hint = match format_option {
            "" => String::new(),
            option => format!(" (name the format with {option})"),
        };
        input.bad(format!("no known format begins like this{hint}"))
    })
}

fn source(format: Format, input: Input, max_bad: u64) -> Result<BoxedSource, TraceError> {
    let head = input.bytes();
    let wrong = |what: &str| input.bad(format!("{what}, which {} needs", format.name()));
    match format {
        Format::Larder => {
            decoded(ltr::Reader::from_head(head).map_err(|e| input.bad(e))?, input, max_bad)
        }
        Format::Csv if csv::is_header(head) => {
            let reader = csv::CsvReader::from_head(head);
            lines(reader, input, max_bad)
        }
        Format::Csv => Err(wrong("the first line is not the header")),
        Format::Parquet => Err(input.bad("Parquet is read from files only, not from streams")),
        Format::Vscsi1 => decoded(Fixed::new(Vscsi::v1()), input, max_bad),
        Format::Vscsi2 => decoded(Fixed::new(Vscsi::v2()), input, max_bad),
        Format::OracleGeneral => decoded(Fixed::new(OracleGeneral), input, max_bad),
        Format::Lcs => {
            let lcs = Lcs::from_header(head).map_err(|reason| input.bad(reason))?;
            decoded(Fixed::behind(lcs, LCS_HEADER_BYTES), input, max_bad)
        }
        Format::Keys32Le => keys(false, false, input, max_bad),
        Format::Keys32Be => keys(false, true, input, max_bad),
        Format::Keys64Le => keys(true, false, input, max_bad),
        Format::Keys64Be => keys(true, true, input, max_bad),
        Format::Blktrace => match Blktrace::from_head(head) {
            Some(blktrace) => decoded(blktrace, input, max_bad),
            None => Err(wrong("the file does not begin with an event")),
        },
        Format::Lis => lines(Lis, input, max_bad),
        Format::Msr => lines(Msr, input, max_bad),
        Format::Alibaba => lines(Alibaba, input, max_bad),
        Format::Tencent => lines(Tencent::guess(head), input, max_bad),
        Format::Systor => lines(Systor, input, max_bad),
        Format::Spc => lines(Spc, input, max_bad),
        Format::Twitter => lines(Twitter, input, max_bad),
        Format::DiskSim => lines(DiskSim, input, max_bad),
        Format::Blkparse => lines(Blkparse::from_head(head), input, max_bad),
        Format::Fio => match Fio::from_head(head) {
            Some(fio) => lines(fio, input, max_bad),
            None => Err(wrong("the first line does not say \"fio version 2 iolog\" or 3")),
        },
        Format::Procmon => match Procmon::from_head(head) {
            Some(procmon) => lines(procmon, input, max_bad),
            None => Err(wrong("the first line lacks Time of Day, Operation, Path or Detail")),
        },
        Format::PerfScript => lines(PerfScript::default(), input, max_bad),
        Format::Perfmon => Err(match perfmon_refusal(head) {
            Some(refusal) => input.bad(refusal),
            None => wrong("the first line does not begin with (PDH-CSV"),
        }),
    }
}

fn keys(
    wide: bool,
    big_endian: bool,
    input: Input,
    max_bad: u64,
) -> Result<BoxedSource, TraceError> {
    decoded(Fixed::new(Keys { wide, big_endian }), input, max_bad)
}

fn lines<F: LineFormat + 'static>(
    format: F,
    input: Input,
    max_bad: u64,
) -> Result<BoxedSource, TraceError> {
    decoded(Lines::new(format), input, max_bad)
}

#[expect(clippy::unnecessary_wraps, reason = "the arms of one match that can fail")]
fn decoded<D: Decode + 'static>(
    decoder: D,
    input: Input,
    max_bad: u64,
) -> Result<BoxedSource, TraceError> {
    Ok(Box::new(Stream::new(input, decoder, max_bad)))
}
