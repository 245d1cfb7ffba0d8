//! Options of a modern run beyond the original.
//!
//! Invariant: with the defaults the operations are those of the original, to the byte of their
//! sizes; only the content of the files differs.

use crate::workload::postmark::Config;
use std::num::NonZero;

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
    /// All values with their names.
    pub const ALL: [(Fsync, &str); 4] = [
        (Fsync::None, "none"),
        (Fsync::Close, "close"),
        (Fsync::Transaction, "transaction"),
        (Fsync::End, "end"),
    ];

    /// Returns the name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Fsync::ALL[self as usize].1
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
    /// All values with their names.
    pub const ALL: [(Data, &str); 2] = [(Data::Random, "random"), (Data::Classic, "classic")];

    /// Returns the name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Data::ALL[self as usize].1
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
