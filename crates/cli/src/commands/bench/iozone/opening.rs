//! Options for opening and accessing files.

use clap::{Args, ValueEnum};
use larder_lab::bench::iozone::order;
use larder_lab::bench::iozone::subject::{AccessPattern, Sync};

#[derive(Debug, Args)]
pub(super) struct OpenArgs {
    /// Bypass the page cache (`O_DIRECT`).
    #[arg(short = 'I', long)]
    pub(super) direct: bool,

    /// Make every write wait until it is stable: all of it (`O_SYNC`), or its data alone
    /// (`O_DSYNC`).
    #[arg(short = 'o', long, value_name = "WHAT", num_args = 0..=1, require_equals = true,
          default_missing_value = "all")]
    sync: Option<SyncMode>,

    /// Include closing the file in the time of each pass.
    #[arg(short = 'c', long)]
    close_counts: bool,

    /// Distance of records in the stride test, in records.
    #[arg(short = 'j', long, value_name = "RECORDS", default_value_t = order::STRIDE,
          value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    stride: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SyncMode {
    /// `O_SYNC`.
    All,
    /// `O_DSYNC`.
    Data,
}

impl OpenArgs {
    pub(super) fn access_pattern(&self) -> AccessPattern {
        let sync = match self.sync {
            None => Sync::None,
            Some(SyncMode::Data) => Sync::Data,
            Some(SyncMode::All) => Sync::All,
        };
        let (direct, close_counts, stride) = (self.direct, self.close_counts, self.stride);
        AccessPattern { direct, sync, close_counts, stride }
    }
}
