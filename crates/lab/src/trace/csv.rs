//! Traces as CSV with the fields as columns, for spreadsheets and scripts; docs/FORMATS.md
//! describes the columns. The reader returns the same records that the writer was given.

use super::decode::{DecodeOutput, Decoded, FormatError};
use super::text::{Commas, LineFormat, take_quoted};
use super::{Addressing, NameKind, Op, Record, Sink, Source};
use std::borrow::Cow;
use std::io::{self, Write};

/// The headers: one for bytes, one for objects.
const HEADERS: [&str; 2] = [
    "time_ns,offset,len,latency_ns,volume,file,process,op,class,volume_name,file_name,process_name",
    "time_ns,object,len,latency_ns,volume,file,process,op,class,volume_name,file_name,process_name",
];

/// Returns the addressing that the header of a file states; `None` if the file does not begin with
/// a header.
pub(super) fn addressing(head: &[u8]) -> Option<Addressing> {
    let line = head.split(|&byte| byte == b'\n').next().unwrap_or(head);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let at = HEADERS.iter().position(|header| header.as_bytes() == line)?;
    Some([Addressing::Bytes, Addressing::Objects][at])
}

/// Returns the reason to refuse a file whose first line is not a header.
pub(super) fn wrong_header() -> String {
    let [offsets, _] = HEADERS;
    format!("the first line must be {offsets} (with object for offset if the trace counts objects)")
}

/// Reads CSV.
pub(super) struct CsvReader;

/// Takes a name and assigns it to its number.
fn take_name(
    fields: &mut Commas<'_>,
    (kind, number): (NameKind, u32),
    out: &mut DecodeOutput<'_>,
) -> Decoded {
    let is_quoted = fields.rest.first() == Some(&b'"');
    let name = take_quoted(&mut fields.rest).ok_or("the quotes do not match")?;
    let name = std::str::from_utf8(name).ok().ok_or("a name is not UTF-8")?;
    let name = if is_quoted && name.contains("\"\"") {
        Cow::Owned(name.replace("\"\"", "\""))
    } else {
        Cow::Borrowed(name)
    };
    if !name.is_empty() {
        out.names.of_kind(kind).set(number, &name);
    }
    Ok(())
}

/// Takes a number of up to 32 bits.
fn take_u32(fields: &mut Commas<'_>, reason: FormatError) -> Result<u32, FormatError> {
    u32::try_from(fields.number(reason)?).ok().ok_or(reason)
}

fn take_op(fields: &mut Commas<'_>) -> Result<Op, FormatError> {
    let op = std::str::from_utf8(fields.text()).ok().and_then(Op::from_name);
    op.ok_or("op is not read, write, flush, discard or zero")
}

impl LineFormat for CsvReader {
    fn line(&mut self, line: &[u8], out: &mut DecodeOutput<'_>) -> Decoded {
        let fields = &mut Commas::of(line);
        let class = "class is not a number up to 255";
        let record = Record {
            time_ns: fields.number("time_ns is not a number")?,
            offset: fields.number("offset is not a number")?,
            len: fields.number("len is not a number")?,
            latency_ns: fields.number("latency_ns is not a number")?,
            volume: take_u32(fields, "volume is not a number of 32 bits")?,
            file: take_u32(fields, "file is not a number of 32 bits")?,
            process: take_u32(fields, "process is not a number of 32 bits")?,
            op: take_op(fields)?,
            class: u8::try_from(fields.number(class)?).ok().ok_or(class)?,
        };
        for kind in NameKind::ALL {
            take_name(fields, (kind, record.number_of(kind)), out)?;
        }
        out.push_as_is(record)
    }

    fn has_header(&self) -> bool {
        true
    }
}

/// Writes CSV.
pub(super) struct CsvWriter<W> {
    output: W,
    line: Vec<u8>,
}

impl<W: Write> CsvWriter<W> {
    /// Writes the header; `output` should be buffered.
    pub(super) fn new(mut output: W, addressing: Addressing) -> io::Result<Self> {
        let header = HEADERS[usize::from(addressing == Addressing::Objects)];
        writeln!(output, "{header}")?;
        Ok(CsvWriter { output, line: Vec::new() })
    }
}

impl<W: Write> Sink for CsvWriter<W> {
    fn append(&mut self, records: &[Record], source: &dyn Source) -> io::Result<()> {
        for record in records {
            let Record { time_ns, offset, len, latency_ns, volume, file, process, op, class } =
                *record;
            self.line.clear();
            let op = op.name();
            write!(
                self.line,
                "{time_ns},{offset},{len},{latency_ns},{volume},{file},{process},{op},{class}"
            )?;
            for kind in NameKind::ALL {
                self.line.push(b',');
                let name = source.name(kind, record.number_of(kind));
                push_name(name.unwrap_or_default(), &mut self.line);
            }
            self.line.push(b'\n');
            self.output.write_all(&self.line)?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, _source: &dyn Source) -> io::Result<()> {
        self.output.flush()
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
