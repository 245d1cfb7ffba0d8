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

/// One request. What a format does not have is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// When it was asked, in nanoseconds since the beginning of the trace.
    pub time_ns: u64,
    /// First byte.
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
    /// How the cache that recorded it classed it (`core::counters`), from 1; 0 if it was not said.
    pub class: u8,
}
