//! `larder trace record`: reads and writes of programs on this machine through its page cache.

use crate::args;
use crate::commands::watch::WatchTargetArgs;
use crate::live::{self, RecordOptions};
use crate::output::AtomicFile;
use crate::output_file::{OutputFile, check_unused};
use crate::signals::Stop;
use anyhow::{Context, Result, ensure};
use clap::Args;
use larder_schema::format;
use std::io::BufWriter;
use std::num::NonZero;
use std::path::Path;
use std::time::Duration;

#[derive(Debug, Args)]
pub(super) struct RecordArgs {
    /// Trace to write; it must not exist yet.
    ///
    /// The format is Larder's own.
    #[arg(value_name = "FILE")]
    file: OutputFile,

    #[command(flatten)]
    target: WatchTargetArgs,

    /// Duration; until Ctrl-C, if not given.
    #[arg(long = "for", value_name = "TIME", value_parser = args::time)]
    time: Option<u64>,

    /// Keep one page in this many.
    ///
    /// Pages are selected by a hash of their file and number. The trace stores the ratio, and
    /// `larder size` scales its results.
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    sample: NonZero<u32>,
}

pub(super) fn run(arguments: &RecordArgs) -> Result<()> {
    let path: &Path = &arguments.file;
    ensure!(path != Path::new("-"), "record into standard output: name a file");
    check_unused(path, "record to")?;
    let stop = Stop::listen()?;
    let file = AtomicFile::begin(path, ".part")?;
    let options = RecordOptions {
        scope: arguments.target.scope(),
        time: arguments.time.map(Duration::from_nanos),
        sample: arguments.sample,
    };
    let (recorded, writer) = live::record(&options, &stop, BufWriter::new(file))?;
    let file = writer.into_inner().with_context(|| format!("write {}", path.display()))?;
    file.finish()?;
    let lost = recorded.watch.total.lost_events;
    eprintln!(
        "recorded {} of {}, {} lost",
        format::counted(
            recorded.requests,
            if arguments.sample.get() > 1 { "sampled page" } else { "request" }
        ),
        format::counted(recorded.volumes as u64, "file"),
        format::counted(lost, "event"),
    );
    Ok(())
}
