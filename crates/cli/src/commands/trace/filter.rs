//! `larder trace filter`: the matching requests. Of a regular file in Larder's own format, only
//! blocks are read whose times can match.

use super::copy;
use super::input::{Input, InputArgs};
use super::output::target;
use crate::args;
use crate::output_file::OutputFile;
use anyhow::{Result, ensure};
use clap::Args;
use larder_lab::trace::{Filter, Op, Source, Target};
use larder_schema::format;
use std::ops::Range;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(super) struct FilterArgs {
    /// The trace; - is standard input.
    #[arg(value_name = "TRACE")]
    trace: PathBuf,

    /// The file to write; - is standard output.
    #[arg(value_name = "FILE")]
    file: OutputFile,

    /// Output format, if the extension does not tell.
    ///
    /// If not given, by the extension of the file, else larder.
    #[arg(long, value_name = "FORMAT", value_parser = target)]
    to_format: Option<Target>,

    /// Volumes to keep, by name or number; repeatable.
    ///
    /// Volumes to keep, by name, or by number if they have none. May be given several times.
    #[arg(long = "volume", value_name = "NAME")]
    volumes: Vec<String>,

    /// Files to keep.
    #[arg(long = "file", value_name = "NAME", id = "file-name")]
    files: Vec<String>,

    /// Processes to keep.
    #[arg(long = "process", value_name = "NAME")]
    processes: Vec<String>,

    /// Operations: read, write, flush, discard, zero.
    ///
    /// Operations to keep.
    #[arg(long = "op", value_name = "OP", value_parser = op)]
    ops: Vec<Op>,

    /// Start of the time to keep, as 90s, 5m, 20ms.
    ///
    /// The time counts from the beginning of the trace.
    #[arg(long, value_name = "TIME", value_parser = args::time)]
    from: Option<u64>,

    /// End of the time to keep.
    #[arg(long, value_name = "TIME", value_parser = args::time)]
    to: Option<u64>,

    /// Offsets to keep, as 1GiB..2GiB.
    ///
    /// Keep requests that overlap these offsets, as 1GiB..2GiB or 4096..8192. An end may be
    /// missing.
    #[arg(long, value_name = "FROM..TO", value_parser = range)]
    range: Option<Range<u64>>,

    #[command(flatten)]
    input: InputArgs,
}

fn op(text: &str) -> Result<Op, String> {
    args::one_of("operation", text, Op::from_name(text), &Op::ALL.map(Op::name))
}

fn range(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("write it as FROM..TO")?;
    let bound = |text: &str, none| if text.is_empty() { Ok(none) } else { args::bytes(text) };
    let (from, to) = (bound(from, 0)?, bound(to, u64::MAX)?);
    if from < to { Ok(from..to) } else { Err(format!("\"{text}\" is empty")) }
}

pub(super) fn run(arguments: &FilterArgs) -> Result<()> {
    if let (Some(from), Some(to)) = (arguments.from, arguments.to) {
        ensure!(from < to, "filter by time: --from must be before --to");
    }
    let times = (arguments.from.is_some() || arguments.to.is_some())
        .then(|| arguments.from.unwrap_or(0)..arguments.to.unwrap_or(u64::MAX));
    let filter = Filter {
        volumes: arguments.volumes.clone(),
        files: arguments.files.clone(),
        processes: arguments.processes.clone(),
        ops: arguments.ops.clone(),
        times,
        range: arguments.range.clone(),
    };
    let times = filter.times.clone();
    let input = Input::open_times(&arguments.trace, &arguments.input, times)?;
    let matches = |record: &_, source: &dyn Source| filter.takes(record, source);
    let (total, kept) = copy(input, &arguments.file, arguments.to_format, matches)?;
    eprintln!("kept {}; read {}", format::counted(kept, "request"), format::count(total));
    if kept == 0 && total > 0 {
        eprintln!(
            "larder: note: no request matches; larder trace summary TRACE lists the volumes and \
             times"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_ranges() {
        assert_eq!(args::time("90s").unwrap(), 90_000_000_000);
        assert_eq!(args::time("1.5h").unwrap(), 5_400_000_000_000);
        assert_eq!(args::time("20ms").unwrap(), 20_000_000);
        for wrong in ["", "5", "s", "-1s", "nans", "1e30s"] {
            assert!(args::time(wrong).is_err(), "{wrong}");
        }
        assert_eq!(range("4KiB..1MiB").unwrap(), 4096..1 << 20);
        assert_eq!(range("..512").unwrap(), 0..512);
        assert_eq!(range("512..").unwrap(), 512..u64::MAX);
        assert!(range("2..1").is_err() && range("5").is_err());
        assert!(op("peek").unwrap_err().contains("read, write"));
    }
}
