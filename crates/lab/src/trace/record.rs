//! Records: the requests of a trace.

/// The operation of a request.
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
    /// All operations, in the order of their numbers in files.
    pub const ALL: [Op; 5] = [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::Zero];

    /// Returns the name in files and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => "flush",
            Op::Discard => "discard",
            Op::Zero => "zero",
        }
    }

    /// Returns the number in files, from 0.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Op::Read => 0,
            Op::Write => 1,
            Op::Flush => 2,
            Op::Discard => 3,
            Op::Zero => 4,
        }
    }

    /// Returns the operation with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Op> {
        Op::ALL.get(usize::from(number)).copied()
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
