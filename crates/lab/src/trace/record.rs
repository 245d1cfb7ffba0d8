//! Records: the requests of a trace.

use super::decode::FormatError;

/// The operation of a request; the variants are in the order of their numbers in files, from 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Op {
    /// Reads bytes.
    #[default]
    Read,
    /// Writes bytes.
    Write,
    /// Makes all earlier writes durable.
    Flush,
    /// Discards bytes.
    Discard,
    /// Sets bytes to zero.
    Zero,
}

impl Op {
    /// All operations, in the order of their numbers.
    pub const ALL: [Op; 5] = [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::Zero];

    /// Returns the name in files and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        ["read", "write", "flush", "discard", "zero"][self as usize]
    }

    /// Returns the operation with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Op> {
        Op::ALL.into_iter().find(|op| op.name() == name)
    }

    /// Returns true if the operation transfers data: a read or a write.
    #[must_use]
    pub fn transfers(self) -> bool {
        matches!(self, Op::Read | Op::Write)
    }

    /// Returns true if the operation changes data.
    #[must_use]
    pub fn changes(self) -> bool {
        !matches!(self, Op::Read | Op::Flush)
    }
}

/// The kind of number that a name belongs to, in the order of the numbers of kinds in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NameKind {
    /// [`Record::volume`].
    Volume,
    /// [`Record::file`].
    File,
    /// [`Record::process`].
    Process,
}

impl NameKind {
    /// All kinds.
    pub const ALL: [NameKind; 3] = [NameKind::Volume, NameKind::File, NameKind::Process];
}

/// One request. A field that the format does not have is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Arrival time, in nanoseconds since the beginning of the trace.
    pub time_ns: u64,
    /// Offset of the first byte, or the key of an object: see [`super::Addressing`].
    pub offset: u64,
    /// Length in bytes; 0 for a flush.
    pub len: u64,
    /// Latency, in nanoseconds; 0 if unknown.
    pub latency_ns: u64,
    /// Volume number, from 0.
    pub volume: u32,
    /// File number; 0 if unknown, named files begin at 1.
    pub file: u32,
    /// Process number; 0 if unknown, named processes begin at 1.
    pub process: u32,
    /// The operation.
    pub op: Op,
    /// Class that the recording cache assigned: the number of a [`larder_core::counters::Class`],
    /// the worst one of its pages; 0 if unknown.
    pub class: u8,
}

/// Number of columns of a record.
pub(super) const COLUMNS: usize = 9;

impl Record {
    /// Returns the end of the range, exclusive.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }

    /// Returns the number of the volume, the file or the process.
    #[must_use]
    pub fn number_of(&self, kind: NameKind) -> u32 {
        [self.volume, self.file, self.process][kind as usize]
    }

    /// Returns the field in a column of the formats that store the fields as columns.
    #[inline]
    pub(super) fn column(&self, column: usize) -> u64 {
        match column {
            0 => self.time_ns,
            1 => self.offset,
            2 => self.len,
            3 => self.latency_ns,
            4 => self.volume.into(),
            5 => self.file.into(),
            6 => self.process.into(),
            7 => self.op as u64,
            _ => self.class.into(),
        }
    }

    /// Sets the field in a column.
    #[inline]
    pub(super) fn set_column(&mut self, column: usize, value: u64) -> Result<(), FormatError> {
        let number =
            || u32::try_from(value).ok().ok_or("a volume, file or process is numbered beyond 2^32");
        match column {
            0 => self.time_ns = value,
            1 => self.offset = value,
            2 => self.len = value,
            3 => self.latency_ns = value,
            4 => self.volume = number()?,
            5 => self.file = number()?,
            6 => self.process = number()?,
            7 => {
                let op = usize::try_from(value).ok().and_then(|number| Op::ALL.get(number));
                self.op = *op.ok_or("an operation that is not known")?;
            }
            _ => self.class = u8::try_from(value).ok().ok_or("a class beyond 255")?,
        }
        Ok(())
    }
}
