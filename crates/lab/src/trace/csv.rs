//! Traces as CSV with the fields as columns, for spreadsheets and scripts; docs/FORMATS.md
//! describes the columns. The reader returns the same records that the writer was given.

use super::decode::{DecodeOutput, FormatError};
use super::text::{LineFormat, take_field, take_number};
use super::{Addressing, NameOf, Op, Record, Source};
use memchr::memchr;
use std::io::{self, Write};

/// The headers: one for bytes, one for objects.
const HEADERS: [&str; 2] = [
    "time_ns,offset,len,latency_ns,volume,file,process,op,class,volume_name,file_name,process_name",
    "time_ns,object,len,latency_ns,volume,file,process,op,class,volume_name,file_name,process_name",
];

/// Returns the first line without its line ending.
fn first_line(head: &[u8]) -> &[u8] {
    let line = head.split(|&byte| byte == b'\n').next().unwrap_or(head);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Returns true if a file begins with the header.
pub(super) fn is_header(head: &[u8]) -> bool {
    HEADERS.iter().any(|header| header.as_bytes() == first_line(head))
}

/// Reads CSV.
#[derive(Debug)]
pub(super) struct CsvReader {
    addressing: Addressing,
    /// The unquoted text of a quoted name.
    unquoted: Vec<u8>,
}

impl CsvReader {
    /// Creates a reader for a file whose first bytes, `head`, begin with the header.
    pub(super) fn from_head(head: &[u8]) -> Self {
        let objects = first_line(head) == HEADERS[1].as_bytes();
        let addressing = if objects { Addressing::Objects } else { Addressing::Bytes };
        CsvReader { addressing, unquoted: Vec::new() }
    }

    /// Takes a name and assigns it to its number.
    fn take_name(
        &mut self,
        rest: &mut &[u8],
        (kind, number): (NameOf, u32),
        out: &mut DecodeOutput<'_>,
    ) -> Result<(), FormatError> {
        let field: &[u8] = rest;
        let name = if field.first() == Some(&b'"') {
            self.take_quoted(rest)?;
            &self.unquoted[..]
        } else {
            take_field(rest, b',')
        };
        if name.is_empty() {
            return Ok(());
        }
        let name = std::str::from_utf8(name).ok().ok_or("a name is not UTF-8")?;
        if out.names.get(kind, number) != Some(name) {
            // If the name does not fit, `names` counts it and reports it in a note.
            out.names.of_kind(kind).set(number, name);
        }
        Ok(())
    }

    /// Takes a quoted field.
    fn take_quoted(&mut self, rest: &mut &[u8]) -> Result<(), FormatError> {
        self.unquoted.clear();
        let mut quoted = &rest[1..];
        loop {
            let end = memchr(b'"', quoted).ok_or("the quotes do not match")?;
            self.unquoted.extend_from_slice(&quoted[..end]);
            quoted = &quoted[end + 1..];
            match quoted.first() {
                Some(b'"') => {
                    self.unquoted.push(b'"');
                    quoted = &quoted[1..];
                }
                Some(b',') => {
                    *rest = &quoted[1..];
                    return Ok(());
                }
                None => {
                    *rest = &[];
                    return Ok(());
                }
                Some(_) => return Err("the quotes do not match"),
            }
        }
    }
}

/// Takes a number of up to 32 bits.
fn take_u32(rest: &mut &[u8]) -> Option<u32> {
    take_number(rest, b',').and_then(|value| u32::try_from(value).ok())
}

impl LineFormat for CsvReader {
    fn line(&mut self, line: &[u8], out: &mut DecodeOutput<'_>) -> Result<(), FormatError> {
        let rest = &mut &*line;
        let mut number = |reason| take_number(rest, b',').ok_or(reason);
        let time_ns = number("time_ns is not a number")?;
        let offset = number("offset is not a number")?;
        let len = number("len is not a number")?;
        let latency_ns = number("latency_ns is not a number")?;
        let volume = take_u32(rest).ok_or("volume is not a number of 32 bits")?;
        let file = take_u32(rest).ok_or("file is not a number of 32 bits")?;
        let process = take_u32(rest).ok_or("process is not a number of 32 bits")?;
        let op = std::str::from_utf8(take_field(rest, b',')).ok().and_then(Op::from_name);
        let op = op.ok_or("op is not read, write, flush, discard or zero")?;
        let class = take_number(rest, b',').and_then(|class| u8::try_from(class).ok());
        let class = class.ok_or("class is not a number up to 255")?;
        self.take_name(rest, (NameOf::Volume, volume), out)?;
        self.take_name(rest, (NameOf::File, file), out)?;
        self.take_name(rest, (NameOf::Process, process), out)?;
        out.push_as_is(Record {
            time_ns,
            offset,
            len,
            latency_ns,
            volume,
            file,
            process,
            op,
            class,
        })
    }

    fn has_header(&self) -> bool {
        true
    }

    fn addressing(&self) -> Addressing {
        self.addressing
    }
}

/// Writes CSV.
#[derive(Debug)]
pub struct CsvWriter<W> {
    output: W,
    line: Vec<u8>,
}

impl<W: Write> CsvWriter<W> {
    /// Writes the header; `output` should be buffered.
    ///
    /// # Errors
    /// Writing failed.
    pub fn new(mut output: W, addressing: Addressing) -> io::Result<Self> {
        let header = HEADERS[usize::from(addressing == Addressing::Objects)];
        writeln!(output, "{header}")?;
        Ok(CsvWriter { output, line: Vec::new() })
    }

    /// Writes a line for each record; names come from `names`.
    ///
    /// # Errors
    /// Writing failed.
    pub fn append(&mut self, records: &[Record], names: &dyn Source) -> io::Result<()> {
        for record in records {
            let Record { time_ns, offset, len, latency_ns, volume, file, process, op, class } =
                *record;
            self.line.clear();
            let op = op.name();
            write!(
                self.line,
                "{time_ns},{offset},{len},{latency_ns},{volume},{file},{process},{op},{class}"
            )?;
            let numbers =
                [(NameOf::Volume, volume), (NameOf::File, file), (NameOf::Process, process)];
            for (kind, number) in numbers {
                self.line.push(b',');
                push_name(names.name(kind, number).unwrap_or_default(), &mut self.line);
            }
            self.line.push(b'\n');
            self.output.write_all(&self.line)?;
        }
        Ok(())
    }

    /// Flushes the output.
    ///
    /// # Errors
    /// Writing failed.
    pub fn finish(mut self) -> io::Result<W> {
        self.output.flush()?;
        Ok(self.output)
    }
}

/// Appends a name as a field.
fn push_name(name: &str, line: &mut Vec<u8>) {
    let quoted = name.contains([',', '"']);
    line.extend(quoted.then_some(b'"'));
    for byte in name.bytes() {
        line.extend((byte == b'"').then_some(b'"'));
        line.push(if byte == b'\n' || byte == b'\r' { b' ' } else { byte });
    }
    line.extend(quoted.then_some(b'"'));
}
