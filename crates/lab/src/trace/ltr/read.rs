//! Reading `.ltr` from front to back, without the index.

use super::super::bytes;
use super::super::decode::{Decode, DecodeOutput, Decoded, Stream};
use super::super::input::Input;
use super::super::names::AllNames;
use super::super::{NameKind, Record, TraceError};
use super::section::{Frame, Kind};
use super::write::BLOCK_RECORDS_MAX;
use super::{END_MAGIC, FRAME_BYTES, HEADER_BYTES, Header, TRAILER_BYTES, columns};
use larder_schema::format;

/// Position of the reader in the structure of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Sections,
    /// After the trailer.
    End,
    /// At bytes that are not a section; the rest of the file cannot be read.
    Lost,
}

/// Decodes `.ltr` behind its header.
#[derive(Debug, Default)]
struct Reader {
    sample: u32,
    state: State,
    /// Number of the next record, according to the blocks.
    next: u64,
    cut_short: bool,
    /// True if blocks and the trailer were skipped intentionally.
    is_partial: bool,
    /// Number of requests that the recorder lost.
    lost: u64,
    raw: Vec<u8>,
    records: Vec<Record>,
}

/// Creates the source of a file. `is_partial` states that blocks were skipped. `early_names` are
/// sections of names, which may be anywhere in the file; errors in them are reported when the
/// reader reaches them in the file.
pub(in super::super) fn source(
    mut input: Input,
    early_names: &[u8],
    is_partial: bool,
    max_bad: u64,
) -> Result<Stream, TraceError> {
    let header = Header::from_bytes(input.bytes()).map_err(|error| input.bad(error))?;
    input.consume(HEADER_BYTES);
    let reader = Reader { sample: header.sample, is_partial, ..Reader::default() };
    let mut stream = Stream::new(input, Box::new(reader), header.addressing, max_bad);
    stream.sample = header.sample.max(1);
    let (mut rest, mut raw) = (early_names, Vec::new());
    while let Some(Ok(frame)) = rest.get(..FRAME_BYTES).map(Frame::from_bytes) {
        let Some(payload) = rest.get(FRAME_BYTES..frame.section_bytes()) else { break };
        if read_names(&frame, payload, &mut raw, &mut stream.names).is_err() {
            break;
        }
        rest = &rest[frame.section_bytes()..];
    }
    Ok(stream)
}

/// Reads a section of names; `raw` is a buffer.
fn read_names(frame: &Frame, payload: &[u8], raw: &mut Vec<u8>, names: &mut AllNames) -> Decoded {
    frame.unpack(payload, raw)?;
    let mut rest = &raw[..];
    while let Some((head, after)) = rest.split_at_checked(7) {
        let kind = NameKind::ALL.get(usize::from(head[0]));
        let kind = *kind.ok_or("a name of something that is not known")?;
        let length = usize::from(bytes::u16_at(head, 5));
        let (name, after) = after.split_at_checked(length).ok_or("a name is cut short")?;
        let name = std::str::from_utf8(name).ok().ok_or("a name is not UTF-8")?;
        names.of_kind(kind).set(bytes::u32_at(head, 1), name);
        rest = after;
    }
    if rest.is_empty() { Ok(()) } else { Err("a list of names is cut short") }
}

impl Reader {
    /// Decodes the section or trailer at the front. Returns its length, 0 if it is not whole.
    fn section(&mut self, bytes: &[u8], out: &mut DecodeOutput<'_>) -> Result<usize, TraceError> {
        if bytes.starts_with(&END_MAGIC) {
            let Some(trailer) = bytes.get(..TRAILER_BYTES) else { return Ok(0) };
            return self.trailer(trailer, out);
        }
        let Some(frame) = bytes.get(..FRAME_BYTES) else { return Ok(0) };
        let frame = match Frame::from_bytes(frame) {
            Ok(frame) => frame,
            Err(reason) => {
                out.bad_byte(out.position, reason)?;
                self.state = State::Lost;
                return Ok(FRAME_BYTES);
            }
        };
        let Some(section) = bytes.get(..frame.section_bytes()) else { return Ok(0) };
        let payload = &section[FRAME_BYTES..];
        let done = match frame.kind {
            Kind::Records => self.records(&frame, payload, out),
            Kind::Names => read_names(&frame, payload, &mut self.raw, out.names),
            Kind::Lost => self.lost(&frame, payload),
            Kind::Index | Kind::Unknown => Ok(()),
        };
        if let Err(reason) = done {
            out.bad_byte(out.position, reason)?;
        }
        Ok(section.len())
    }

    fn records(&mut self, frame: &Frame, payload: &[u8], out: &mut DecodeOutput<'_>) -> Decoded {
        let count = usize::try_from(frame.count).unwrap_or(usize::MAX);
        if count == 0 || count > BLOCK_RECORDS_MAX {
            return Err("a block has no records or more than 65,536");
        }
        let (has_gap, is_repeated) = (frame.first != self.next, frame.first < self.next);
        self.next = frame.first.saturating_add(u64::from(frame.count));
        frame.unpack(payload, &mut self.raw)?;
        columns::decode(&self.raw, count, &mut self.records)?;
        for record in &self.records {
            out.push_as_is(*record)?;
        }
        match (has_gap, is_repeated) {
            (false, _) => Ok(()),
            (true, false) if self.is_partial => Ok(()),
            (true, true) => Err("a block begins with a record that was there before"),
            (true, false) => Err("blocks before this one are missing"),
        }
    }

    fn lost(&mut self, frame: &Frame, payload: &[u8]) -> Decoded {
        frame.unpack(payload, &mut self.raw)?;
        let lost = *self.raw.first_chunk().ok_or("a number of lost requests is cut short")?;
        self.lost = self.lost.saturating_add(u64::from_le_bytes(lost));
        Ok(())
    }

    fn trailer(&mut self, trailer: &[u8], out: &mut DecodeOutput<'_>) -> Result<usize, TraceError> {
        self.state = State::End;
        if crc32c::crc32c(&trailer[..36]) != bytes::u32_at(trailer, 36) {
            out.bad_byte(out.position, "the checksum of the trailer is wrong")?;
        } else if bytes::u64_at(trailer, 16) != self.next {
            out.bad_byte(out.position, "the trailer states another number of records")?;
        }
        Ok(TRAILER_BYTES)
    }
}

impl Decode for Reader {
    fn decode(&mut self, bytes: &[u8], out: &mut DecodeOutput<'_>) -> Result<usize, TraceError> {
        let used = match self.state {
            State::Sections => self.section(bytes, out)?,
            State::End => {
                out.bad_byte(out.position, "something follows the trailer")?;
                bytes.len()
            }
            State::Lost => bytes.len(),
        };
        if used == 0 && out.at_end {
            // A killed recorder leaves an incomplete block; a note reports it.
            self.cut_short = true;
            return Ok(bytes.len());
        }
        Ok(used)
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = match self.state {
            State::Sections if self.is_partial => Vec::new(),
            State::Sections => {
                let lost = if self.cut_short { " within a block," } else { "" };
                vec![format!("the file ends{lost} after record {}", format::count(self.next))]
            }
            State::Lost => {
                vec![format!("nothing could be read after record {}", format::count(self.next))]
            }
            State::End => Vec::new(),
        };
        let sample = self.sample;
        if sample > 1 {
            notes.push(format!(
                "of {sample} pages one is in this trace: to it a cache of 1 MiB is what one of \
                 {sample} MiB is to all; `larder size` reckons with that"
            ));
        }
        if self.lost > 0 {
            let lost = self.lost;
            notes.push(format!("{lost} requests are missing: their recorder had no room for them"));
        }
        notes
    }
}
