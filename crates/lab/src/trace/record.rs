//! One request of a trace.

/// What was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Op {
    /// Bytes were read.
    #[default]
    Read,
    /// Bytes were written.
    Write,
    /// Everything written before was to be on stable storage.
    Flush,
    /// Bytes were given up.
    Discard,
    /// Bytes were set to zero.
    Zero,
}

impl Op {
    /// All of them, in the order of their numbers in files.
    pub const ALL: [Op; 5] = [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::Zero];

    /// Its name in files and on the command line.
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

    /// Its number in files, from 0.
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

    /// The operation with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Op> {
        Op::ALL.get(usize::from(number)).copied()
    }

    /// The operation with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Op> {
        Op::ALL.into_iter().find(|op| op.name() == name)
    }

    /// Whether bytes travelled: a read or a write.
    #[must_use]
    pub fn transfers(self) -> bool {
        matches!(self, Op::Read | Op::Write)
    }
}

/// One request. What a format does not have is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// When it was asked, in nanoseconds since the beginning of the trace.
    pub time_ns: u64,
    /// First byte, or the key of an object: see [`super::Addressing`].
    pub offset: u64,
    /// Bytes; 0 for a flush.
    pub len: u64,
    /// How long the answer took, in nanoseconds; 0 if that is not known.
    pub latency_ns: u64,
    /// Which volume, from 0.
    pub volume: u32,
    /// Which file; 0 if that is not known, names begin at 1.
    pub file: u32,
    /// Which process; 0 if that is not known, names begin at 1.
    pub process: u32,
    /// What was asked for.
    pub op: Op,
    /// How the cache that recorded it classed it: the number of a
    /// [`larder_core::counters::Class`], the worst one of its pages; 0 if it was not said.
    pub class: u8,
}
