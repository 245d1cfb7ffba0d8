//! What a run of today can do beyond the original, and who watches it.
//!
//! Invariant: with the defaults the operations are those of the original, to the byte of their
//! sizes; only what is in the files differs.

use super::config::Config;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// When what was written is made stable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fsync {
    /// Never, as the original.
    #[default]
    None,
    /// Each file before it is closed after a write.
    Close,
    /// After each transaction the files that it wrote and the directories that it changed; in the other
    /// phases after each file.
    Transaction,
    /// Everything, once at the end of each phase.
    End,
}

impl Fsync {
    /// All of them.
    pub const ALL: [Fsync; 4] = [Fsync::None, Fsync::Close, Fsync::Transaction, Fsync::End];

    /// What it is called.
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

/// What is in the files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Data {
    /// Bytes that cannot be compressed, and no 512 of them twice.
    #[default]
    Random,
    /// As the original: all files begin with the same characters.
    Classic,
}

impl Data {
    /// All of them.
    pub const ALL: [Data; 2] = [Data::Random, Data::Classic];

    /// What it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Data::Random => "random",
            Data::Classic => "classic",
        }
    }
}

/// A run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// What each thread does.
    pub config: Config,
    /// Threads, each with files and random numbers of its own.
    pub threads: NonZero<u32>,
    /// When what was written is made stable.
    pub fsync: Fsync,
    /// What is in the files.
    pub data: Data,
}

impl Options {
    /// One thread that does what the configuration says.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let threads = NonZero::<u32>::MIN;
        Options { config, threads, fsync: Fsync::default(), data: Data::default() }
    }

    /// The configuration of a thread: the first has the seed as it was set, each other one of its
    /// own, made of that and of its number by the steps of `SplitMix64`.
    #[must_use]
    pub fn of_thread(&self, thread: u32) -> Config {
        let mut config = self.config.clone();
        if thread > 0 {
            let mut mixed = u64::from(config.seed)
                .wrapping_add(u64::from(thread).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            // What `set seed` takes: from 1 to 2^31 - 1.
            config.seed = u32::try_from(mixed >> 33).expect("31 bits").max(1);
        }
        config
    }
}

/// The phases of a run, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The files that there are at the beginning.
    Create,
    /// The transactions.
    Transactions,
    /// Deletion of what is left.
    Delete,
}

impl Phase {
    /// All of them.
    pub const ALL: [Phase; 3] = [Phase::Create, Phase::Transactions, Phase::Delete];

    /// What it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Phase::Create => "create",
            Phase::Transactions => "transactions",
            Phase::Delete => "delete",
        }
    }
}

/// The one who watches a run: may stop it, and sees how far it is.
#[derive(Default)]
pub struct Control<'a> {
    stop: AtomicBool,
    asked: Option<&'a (dyn Fn() -> bool + Sync)>,
    begins: Option<&'a (dyn Fn(Phase) -> bool + Sync)>,
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
    /// One who is asked before each operation whether the run shall stop.
    #[must_use]
    pub fn asking(asked: &'a (dyn Fn() -> bool + Sync)) -> Self {
        Control { asked: Some(asked), ..Control::default() }
    }

    /// Calls this when all threads are ready for a phase, and begins it when that is back; if it
    /// answers false, the run stops.
    #[must_use]
    pub fn before_phases(self, begins: &'a (dyn Fn(Phase) -> bool + Sync)) -> Self {
        Control { begins: Some(begins), ..self }
    }

    pub(super) fn may_begin(&self, phase: Phase) -> bool {
        self.begins.is_none_or(|begins| begins(phase))
    }

    /// Asks the run to stop: it removes what it made, and ends with an error that says so.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Files created and transactions done, and how many there will be; deletion is not counted.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed))
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.asked.is_some_and(|asked| asked())
    }

    pub(super) fn begin(&self, total: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
    }

    pub(super) fn step(&self) {
        self.done.fetch_add(1, Ordering::Relaxed);
    }
}
