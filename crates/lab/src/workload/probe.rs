//! The Probe workload: one program that reads and writes records of a file at random or in order.
//!
//! It follows the Response Probe of the Windows NT Resource Kit: cycles of think time and records;
//! one normally distributed seek before the first record of a cycle, the others in order after it;
//! an action pattern such as `RWWW` that runs over the records of successive cycles. The spread of
//! the seeks sets the working set: the narrower it is, the less memory holds the records.
//!
//! Invariants: every request lies inside the file and is one record long, except the last record
//! of a file that is no multiple of the record; the same seed gives the same requests.
//! Sizes and offsets are bytes, times are nanoseconds, seeks are in records.

use crate::random::{Random, Spread};
use larder_core::clock::Nanos;

/// Bytes of a record by default.
pub const RECORD_BYTES: u64 = 4096;

/// Working set of scenario 1 in multiples of the cache: a 16 MB file where the cache could grow to
/// 26 MB (it grew to 13 MB and hit 99.9 %).
pub const FITS: f64 = 16.0 / 26.0;
/// Working set of scenario 2: 128 MB on the same machine (it hit 48 %, and the lazy writer
/// thrashed).
pub const OVERRUN: f64 = 128.0 / 26.0;
/// Working set of scenario 3: 128 MB where the cache was favored and grew beyond 40 MB (it hit 61
/// %).
pub const OVERRUN_FAVORED: f64 = 128.0 / 40.0;

/// The action on one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Read it.
    Read,
    /// Write it.
    Write,
}

/// The order of the first records of cycles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Order {
    /// Record numbers drawn from a normal distribution, folded into the file.
    Normal(Spread),
    /// Every record with the same probability.
    Uniform,
    /// From the end of the last cycle on; the end of the file is followed by its start.
    Sequential,
}

/// The description of a Probe run.
#[derive(Clone, Debug, PartialEq)]
pub struct Probe {
    /// Bytes of the file, or of the used part of a volume.
    pub file_bytes: u64,
    /// Bytes of a record.
    pub record_bytes: u64,
    /// The actions on successive records, repeated; see [`parse_pattern`].
    pub pattern: Vec<Action>,
    /// The order of the first records of cycles.
    pub order: Order,
    /// Records of a cycle; at least one is used.
    pub cycle_records: Spread,
    /// Nanoseconds of think time before each cycle; a negative draw becomes its absolute value.
    pub think: Spread,
}

/// One request of the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeRequest {
    /// Number of its cycle, from 0.
    pub cycle: u64,
    /// True if it is the last one of its cycle: the cycle's response time ends with it.
    pub ends_cycle: bool,
    /// Nanoseconds of think time before it; 0 inside a cycle.
    pub think: Nanos,
    /// Read or write.
    pub action: Action,
    /// The first byte.
    pub offset: u64,
    /// The number of bytes.
    pub len: u64,
}

/// A pattern that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// The pattern is empty.
    #[error("read the action pattern: it is empty; write something like RWWW")]
    Empty,
    /// The pattern has another letter than R and W.
    #[error("read the action pattern {pattern:?}: {letter:?} is neither R nor W")]
    Letter {
        /// The whole pattern.
        pattern: String,
        /// The wrong letter.
        letter: char,
    },
}

/// Parses a pattern such as `RWWW`: one read, then three writes.
///
/// # Errors
/// The pattern is empty or has other letters than R and W (upper or lower case).
pub fn parse_pattern(pattern: &str) -> Result<Vec<Action>, PatternError> {
    let actions = pattern.chars().map(|letter| match letter.to_ascii_uppercase() {
        'R' => Ok(Action::Read),
        'W' => Ok(Action::Write),
        _ => Err(PatternError::Letter { pattern: pattern.to_owned(), letter }),
    });
    let actions = actions.collect::<Result<Vec<_>, _>>()?;
    if actions.is_empty() { Err(PatternError::Empty) } else { Ok(actions) }
}

impl Probe {
    /// Returns the workload of the published scenarios over `file_bytes`: random 4 KiB records, one
    /// read to three writes, one record per cycle, no think time, seeks around the middle.
    #[must_use]
    pub fn random(file_bytes: u64) -> Self {
        let mut probe = Probe {
            file_bytes,
            record_bytes: RECORD_BYTES,
            pattern: vec![Action::Read, Action::Write, Action::Write, Action::Write],
            order: Order::Uniform,
            cycle_records: Spread::exactly(1.0),
            think: Spread::default(),
        };
        probe.order = probe.middle();
        probe
    }

    /// Returns the seeks of the published scenarios: around the middle of the file, with a standard
    /// deviation of a sixth of it.
    #[must_use]
    pub fn middle(&self) -> Order {
        let records = as_f64(self.records());
        Order::Normal(Spread { mean: records / 2.0, sdev: records / 6.0 })
    }

    /// Returns [`Probe::random`] over `times` the size of the cache, in whole records.
    #[must_use]
    pub fn sized(cache_bytes: u64, times: f64) -> Self {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive")]
        let records = (as_f64(cache_bytes) * times / as_f64(RECORD_BYTES)) as u64;
        Probe::random(records.max(1) * RECORD_BYTES)
    }

    /// Scenario 1: the file fits into the cache ([`FITS`]).
    #[must_use]
    pub fn scenario_1(cache_bytes: u64) -> Self {
        Probe::sized(cache_bytes, FITS)
    }

    /// Scenario 2: the file is five times the cache ([`OVERRUN`]).
    #[must_use]
    pub fn scenario_2(cache_bytes: u64) -> Self {
        Probe::sized(cache_bytes, OVERRUN)
    }

    /// Returns the number of records of the file.
    #[must_use]
    pub fn records(&self) -> u64 {
        self.file_bytes.div_ceil(self.record_bytes)
    }

    /// Returns the endless sequence of requests for `seed`.
    #[must_use]
    pub fn requests(&self, seed: u64) -> ProbeRequests {
        assert!(self.file_bytes > 0 && self.record_bytes > 0, "a file with records");
        assert!(!self.pattern.is_empty(), "a pattern with actions");
        ProbeRequests {
            probe: self.clone(),
            random: Random::from_seed(seed),
            cycle: 0,
            left: 0,
            record: 0,
            action: 0,
        }
    }
}

/// The requests of a [`Probe`], without end.
#[derive(Clone, Debug)]
pub struct ProbeRequests {
    probe: Probe,
    random: Random,
    /// Cycles begun.
    cycle: u64,
    /// Records left in the cycle.
    left: u64,
    /// The next record.
    record: u64,
    /// Index of the next action in the pattern.
    action: usize,
}

impl ProbeRequests {
    fn begin_cycle(&mut self) -> Nanos {
        let records = self.probe.records();
        self.cycle += 1;
        let think = self.draw(self.probe.think);
        self.left = self.draw(self.probe.cycle_records).max(1);
        match self.probe.order {
            Order::Normal(spread) => self.record = self.random.normal_within(spread, records - 1),
            Order::Uniform => self.record = self.random.below(records),
            Order::Sequential => {}
        }
        think
    }

    /// Draws a non-negative whole number. A spread of zero draws nothing from the generator.
    fn draw(&mut self, spread: Spread) -> u64 {
        if spread.sdev == 0.0 {
            #[expect(clippy::cast_possible_truncation, reason = "saturates")]
            let value = spread.mean as i64;
            return value.unsigned_abs();
        }
        self.random.normal_within(spread, u64::MAX)
    }
}

impl Iterator for ProbeRequests {
    type Item = ProbeRequest;

    fn next(&mut self) -> Option<ProbeRequest> {
        let think = if self.left == 0 { self.begin_cycle() } else { 0 };
        let offset = self.record * self.probe.record_bytes;
        let request = ProbeRequest {
            cycle: self.cycle - 1,
            ends_cycle: self.left == 1,
            think,
            action: self.probe.pattern[self.action],
            offset,
            len: self.probe.record_bytes.min(self.probe.file_bytes - offset),
        };
        self.left -= 1;
        self.record = (self.record + 1) % self.probe.records();
        self.action = (self.action + 1) % self.probe.pattern.len();
        Some(request)
    }
}

#[expect(clippy::cast_precision_loss, reason = "sizes stay below 2^53")]
fn as_f64(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests;
