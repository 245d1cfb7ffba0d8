//! Reading `.ltr` from front to back, without the index.

use super::super::bytes;
use super::super::decode::{Decode, FormatError, Out};
use super::super::{Addressing, NameOf, Record, TraceError};
use super::section::{Frame, Kind};
use super::write::BLOCK_RECORDS_MAX;
use super::{END_MAGIC, FRAME_BYTES, HEADER_BYTES, Header, TRAILER_BYTES, columns};

/// Where in the file the reader is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Header,
    Sections,
    /// Behind the trailer.
    End,
    /// At bytes that are no section; everything behind is lost.
    Lost,
}

/// Decodes `.ltr`.
#[derive(Debug)]
pub(in super::super) struct Reader {
    header: Header,
    state: State,
    /// Number of the next record, as the blocks count.
    next: u64,
    cut_short: bool,
    /// Blocks were left out on purpose, and the trailer.
    in_pieces: bool,
    /// Requests that their recorder lost.
    lost: u64,
    /// Sections of names that are known before the first record.
    known: Vec<u8>,
    raw: Vec<u8>,
    records: Vec<Record>,
}

impl Reader {
    /// Reads the header.
    pub(in super::super) fn from_head(head: &[u8]) -> Result<Self, String> {
        let header = Header::from_bytes(head)?;
        let (raw, records) = (Vec::new(), Vec::new());
        let (state, next) = (State::Header, 0);
        let (cut_short, in_pieces) = (false, false);
        Ok(Reader {
            header,
            state,
            next,
            cut_short,
            in_pieces,
            lost: 0,
            known: Vec::new(),
            raw,
            records,
        })
    }

    /// The same for a file of which blocks were left out.
    pub(in super::super) fn in_pieces(self) -> Self {
        Reader { in_pieces: true, ..self }
    }

    /// The same with the sections of names, wherever they are in the file. What is wrong with them
    /// is said when they are met there.
    pub(in super::super) fn knowing(self, known: Vec<u8>) -> Self {
        Reader { known, ..self }
    }

    fn take_known(&mut self, out: &mut Out<'_>) {
        let known = std::mem::take(&mut self.known);
        let mut rest = &known[..];
        while let Some(Ok(frame)) = rest.get(..FRAME_BYTES).map(Frame::from_bytes) {
            let Some(payload) = rest.get(FRAME_BYTES..frame.section_bytes()) else { return };
            if self.names(&frame, payload, out).is_err() {
                return;
            }
            rest = &rest[frame.section_bytes()..];
        }
    }

    /// Decodes the section or trailer at the front; answers its length, 0 if it is not whole.
    fn section(&mut self, bytes: &[u8], out: &mut Out<'_>) -> Result<usize, TraceError> {
        if bytes.starts_with(&END_MAGIC) {
            let Some(trailer) = bytes.get(..TRAILER_BYTES) else { return Ok(0) };
            return self.trailer(trailer, out);
        }
        let Some(frame) = bytes.get(..FRAME_BYTES) else { return Ok(0) };
        let frame = match Frame::from_bytes(frame) {
            Ok(frame) => frame,
            Err(why) => {
                out.bad_byte(out.position, why)?;
                self.state = State::Lost;
                return Ok(FRAME_BYTES);
            }
        };
        let Some(section) = bytes.get(..frame.section_bytes()) else { return Ok(0) };
        let payload = &section[FRAME_BYTES..];
        let done = match frame.kind {
            Kind::Records => self.records(&frame, payload, out),
            Kind::Names => self.names(&frame, payload, out),
            Kind::Lost => self.lost(&frame, payload),
            Kind::Index | Kind::Unknown => Ok(()),
        };
        if let Err(why) = done {
            out.bad_byte(out.position, why)?;
        }
        Ok(section.len())
    }

    fn records(
        &mut self,
        frame: &Frame,
        payload: &[u8],
        out: &mut Out<'_>,
    ) -> Result<(), FormatError> {
        let count = usize::try_from(frame.count).unwrap_or(usize::MAX);
        if count == 0 || count > BLOCK_RECORDS_MAX {
            return Err("a block has no records or more than 65,536");
        }
        let (gap, before) = (frame.first != self.next, frame.first < self.next);
        self.next = frame.first.saturating_add(u64::from(frame.count));
        frame.unpack(payload, &mut self.raw)?;
        columns::decode(&self.raw, count, &mut self.records)?;
        for record in &self.records {
            out.push_as_is(*record)?;
        }
        match (gap, before) {
            (false, _) => Ok(()),
            (true, false) if self.in_pieces => Ok(()),
            (true, true) => Err("a block begins with a record that was there before"),
            (true, false) => Err("blocks before this one are missing"),
        }
    }

    fn names(
        &mut self,
        frame: &Frame,
        payload: &[u8],
        out: &mut Out<'_>,
    ) -> Result<(), FormatError> {
        frame.unpack(payload, &mut self.raw)?;
        let mut rest = &self.raw[..];
        while let Some((head, behind)) = rest.split_at_checked(7) {
            let of = match head[0] {
                0 => NameOf::Volume,
                1 => NameOf::File,
                2 => NameOf::Process,
                _ => return Err("a name of something that is not known"),
            };
            let length = usize::from(bytes::u16_at(head, 5));
            let (name, behind) = behind.split_at_checked(length).ok_or("a name is cut short")?;
            let name = std::str::from_utf8(name).ok().ok_or("a name is not UTF-8")?;
            // Where there is no room, the names count it and a note says it.
            out.names.of(of).set(bytes::u32_at(head, 1), name);
            rest = behind;
        }
        if rest.is_empty() { Ok(()) } else { Err("a list of names is cut short") }
    }

    fn lost(&mut self, frame: &Frame, payload: &[u8]) -> Result<(), FormatError> {
        frame.unpack(payload, &mut self.raw)?;
        let lost = *self.raw.first_chunk().ok_or("a number of lost requests is cut short")?;
        self.lost = self.lost.saturating_add(u64::from_le_bytes(lost));
        Ok(())
    }

    fn trailer(&mut self, trailer: &[u8], out: &mut Out<'_>) -> Result<usize, TraceError> {
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
    fn decode(
        &mut self,
        bytes: &[u8],
        at_end: bool,
        out: &mut Out<'_>,
    ) -> Result<usize, TraceError> {
        let used = match self.state {
            State::Header => {
                self.state = State::Sections;
                self.take_known(out);
                HEADER_BYTES
            }
            State::Sections => self.section(bytes, out)?,
            State::End => {
                out.bad_byte(out.position, "something follows the trailer")?;
                bytes.len()
            }
            State::Lost => bytes.len(),
        };
        if used == 0 && at_end {
            // What a recorder that was killed leaves; a note says it.
            self.cut_short = true;
            return Ok(bytes.len());
        }
        Ok(used)
    }

    fn addressing(&self) -> Addressing {
        self.header.addressing
    }

    fn sample(&self) -> u32 {
        self.header.sample.max(1)
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = match self.state {
            State::Sections if self.in_pieces => Vec::new(),
            State::Header | State::Sections => {
                let lost = if self.cut_short { ", a block that is not whole follows" } else { "" };
                vec![format!("the file was cut short behind record {}{lost}", self.next)]
            }
            State::Lost => vec![format!("nothing could be read behind record {}", self.next)],
            State::End => Vec::new(),
        };
        let sample = self.header.sample;
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
