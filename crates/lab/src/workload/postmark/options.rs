//! Options of a modern run beyond the original, and its control.
//!
//! Invariant: with the defaults the operations are those of the original, to the byte of their
//! sizes; only the content of the files differs.

use super::config::Config;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The time at which written data is flushed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fsync {
    /// Never, as the original.
    #[default]
    None,
    /// Each file before it is closed after a write.
    Close,
    /// After each transaction, the files that it wrote and the directories that it changed; in the
    /// other phases after each file.
    Transaction,
    /// Everything, once at the end of each phase.
    End,
}

impl Fsync {
    /// All values.
    pub const ALL: [Fsync; 4] = [Fsync::None, Fsync::Close, Fsync::Transaction, Fsync::End];

    /// Returns the name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Fsync::None => "none",
            Fsync::Close => "close",
            Fsync::Transaction => "transaction",
            Fsync::End => "end",
        }
    }
}

/// Content of the files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Data {
    /// Bytes that cannot be compressed, in which no 512 bytes occur twice.
    #[default]
    Random,
    /// As in the original: all files begin with the same characters.
    Classic,
}

impl Data {
    /// All values.
    pub const ALL: [Data; 2] = [Data::Random, Data::Classic];

    /// Returns the name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Data::Random => "random",
            Data::Classic => "classic",
        }
    }
}

/// Options of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The operations of each thread.
    pub config: Config,
    /// Threads, each with files and random numbers of its own.
    pub threads: NonZero<u32>,
    /// The time at which written data is flushed.
    pub fsync: Fsync,
    /// Content of the files.
    pub data: Data,
}

impl Options {
    /// Returns options for one thread with this configuration.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let threads = NonZero::<u32>::MIN;
        Options { config, threads, fsync: Fsync::default(), data: Data::default() }
    }

    /// Returns the configuration of a thread: the first has the configured seed, each other one a
    /// seed derived from that and from its number by the steps of `SplitMix64`.
    #[must_use]
    pub fn of_thread(&self, thread: u32) -> Config {
        let mut config = self.config.clone();
        if thread > 0 {
            let mut mixed = u64::from(config.seed)
                .wrapping_add(u64::from(thread).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            // Range of `set seed`: from 1 to 2^31 - 1.
            config.seed = u32::try_from(mixed >> 33).expect("31 bits").max(1);
        }
        config
    }
}

/// The phases of a run, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Creation of the initial files.
    Create,
    /// The transactions.
    Transactions,
    /// Deletion of the remaining files.
    Delete,
}

impl Phase {
    /// All phases.
    pub const ALL: [Phase; 3] = [Phase::Create, Phase::Transactions, Phase::Delete];

    /// Returns the name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Phase::Create => "create",
            Phase::Transactions => "transactions",
            Phase::Delete => "delete",
        }
    }
}

/// Control of a run: stops it, and reports its progress.
#[derive(Default)]
pub struct Control<'a> {
    stop: AtomicBool,
    should_stop: Option<&'a (dyn Fn() -> bool + Sync)>,
    may_start: Option<&'a (dyn Fn(Phase) -> bool + Sync)>,
    done: AtomicU64,
    total: AtomicU64,
}

impl std::fmt::Debug for Control<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (done, total) = self.progress();
        f.debug_struct("Control")
            .field("done", &done)
            .field("total", &total)
            .finish_non_exhaustive()
    }
}

impl<'a> Control<'a> {
    /// Returns a control whose function is called before each operation, and returns true to stop
    /// the run.
    #[must_use]
    pub fn with_stop_check(should_stop: &'a (dyn Fn() -> bool + Sync)) -> Self {
        Control { should_stop: Some(should_stop), ..Control::default() }
    }

    /// Calls this function when all threads are ready for a phase, and begins the phase when it
    /// returns; if it returns false, the run stops.
    #[must_use]
    pub fn before_phases(self, may_start: &'a (dyn Fn(Phase) -> bool + Sync)) -> Self {
        Control { may_start: Some(may_start), ..self }
    }

    pub(super) fn may_begin(&self, phase: Phase) -> bool {
        self.may_start.is_none_or(|may_start| may_start(phase))
    }

    /// Requests the run to stop: it removes its files, and ends with an error that says so.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Returns files created and transactions done, and their total; deletion is not counted.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
            || self.should_stop.is_some_and(|should_stop| should_stop())
    }

    pub(super) fn begin(&self, total: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
    }

    pub(super) fn step(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }
}
