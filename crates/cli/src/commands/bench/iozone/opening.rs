//! How files are opened and gone through.

use clap::{Args, ValueEnum};
use larder_lab::workload::iozone::order;
use larder_lab::workload::iozone::subject::{AccessPattern, Sync};

#[derive(Debug, Args)]
pub(super) struct Opening {
    /// Past the page cache (`O_DIRECT`).
    #[arg(short = 'I', long)]
    pub(super) direct: bool,

    /// Every write waits until it is stable: all of it (`O_SYNC`), or its data alone (`O_DSYNC`).
    #[arg(short = 'o', long, value_name = "WHAT", num_args = 0..=1, require_equals = true,
          default_missing_value = "all")]
    sync: Option<Waits>,

    /// The time of each pass includes closing the file.
    #[arg(short = 'c', long)]
    close_counts: bool,

    /// Records from one to the next of the stride test.
    #[arg(short = 'j', long, value_name = "RECORDS", default_value_t = order::STRIDE,
          value_parser = clap::value_parser!(u64).range(1..=1 << 40))]
    stride: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Waits {
    /// `O_SYNC`.
    All,
    /// `O_DSYNC`.
    Data,
}

impl Opening {
    pub(super) fn manner(&self) -> AccessPattern {
        let sync = match self.sync {
            None => Sync::None,
            Some(Waits::Data) => Sync::Data,
            Some(Waits::All) => Sync::All,
        };
        let (direct, close_counts, stride) = (self.direct, self.close_counts, self.stride);
        AccessPattern { direct, sync, close_counts, stride }
    }
}
