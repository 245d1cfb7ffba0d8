//! `larder size --measure`: runs a command through temporary caches of several sizes, and compares
//! the measured hit ratios with those that a simulation predicts. docs/size.md.
//!
//! Invariants: only the command changes the directory; nothing stays mounted, however the
//! measurement ends, and the next one removes the files of a killed one.

mod plan;
mod prediction;
mod trial;

use super::{SizeArgs, TextOrJson};
use crate::args;
use crate::commands::report::Format;
use crate::commands::temporary_cache::scratch::{self, Scratch};
use crate::commands::temporary_cache::{Cache, MountConfig};
use crate::progress;
use crate::signals::Stop;
use crate::{free_space, output};
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use larder_core::policy::PolicyKind;
use larder_core::units::BLOCK_BYTES_U64;
use larder_host::memory;
use larder_host::mounts::Mount;
use larder_io::engine::MEMORY_BYTES_MIN;
use larder_lab::inputs::workload::RecordedWorkload;
use larder_report::escape;
use larder_report::measured;
use larder_schema::format;
use larder_schema::measured::{MeasuredSize, MeasuredSizing};
use larder_server::runtime_directory::runtime_directory;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use trial::{DirectoryState, Stopped, Trial};

/// Divisor of the available memory that a cache may take, if no sizes are given.
const MEMORY_DIVISOR: u64 = 2;

#[derive(Debug, Args)]
pub(crate) struct MeasureArgs {
    /// Run COMMAND in it through caches of several sizes.
    ///
    /// The working directory of COMMAND is DIRECTORY, mounted through the cache; the variable
    /// `LARDER_MOUNT` has its path. COMMAND must leave DIRECTORY as it found it.
    #[arg(long, value_name = "DIRECTORY", requires = "command",
          conflicts_with_all = ["trace", "sample", "live", "target", "budget", "level", "store",
                                "sampled", "seed", "trace_format", "max_bad"])]
    pub(super) measure: Option<PathBuf>,

    /// Sizes to measure, separated by commas; 8MiB is the minimum.
    ///
    /// Memory of the cache with its tables, as larder mount --memory. Without it, up to six sizes
    /// from 8MiB to the memory for all data of the command.
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = args::bytes,
          requires = "measure", hide_short_help = true)]
    sizes: Vec<u64>,

    /// Runs with each size.
    #[arg(long, value_name = "NUMBER", default_value_t = 3, requires = "measure",
          value_parser = clap::value_parser!(u16).range(1..=1000), hide_short_help = true)]
    trials: u16,

    /// Page size of the cache.
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = args::page_blocks,
          requires = "measure", hide_short_help = true)]
    page_size: u32,

    /// Command to measure, with its arguments.
    #[arg(value_name = "COMMAND", last = true, requires = "measure", hide_short_help = true)]
    command: Vec<OsString>,
}

pub(super) fn run(arguments: &SizeArgs, directory: &Path) -> Result<()> {
    let measurement = Measurement::new(arguments, directory)?;
    let sockets = runtime_directory()?;
    let parent = std::env::temp_dir();
    scratch::remove_leftovers(&parent, &sockets);
    let stop = Stop::listen_only()?;
    let scratch = Scratch::make(&parent, &sockets)?;
    let result = measurement.run(&scratch, &stop);
    // Nothing is mounted any more; an error of the measurement takes precedence over one here.
    let removed = scratch.remove();
    match result {
        Ok(sizing) => {
            removed?;
            measurement.print(&sizing)
        }
        Err(error) => {
            if let Err(more) = removed {
                eprintln!("larder: note: cannot {more:#}");
            }
            if error.is::<Stopped>() {
                eprintln!("larder: stopped before there was a result; nothing is mounted any more");
                stop.reraise_signal()?;
            }
            Err(error)
        }
    }
}

/// A measurement whose arguments have been checked.
struct Measurement<'a> {
    arguments: &'a SizeArgs,
    directory: PathBuf,
    policy: PolicyKind,
    /// The sizes of the user, in ascending order; may be empty.
    sizes: Vec<u64>,
}

/// The runs of one size.
struct SizeRuns {
    memory_bytes: u64,
    trials: Vec<Trial>,
}

impl<'a> Measurement<'a> {
    fn new(arguments: &'a SizeArgs, directory: &Path) -> Result<Self> {
        let shown = escape::path(directory);
        free_space::check_directory(directory)?;
        let directory = directory.canonicalize().with_context(|| format!("find {shown}"))?;
        let mount = Mount::of(&directory).with_context(|| format!("find what {shown} is on"))?;
        ensure!(
            !mount.is_memory(),
            "measure caches for {shown}: it is in memory already ({}); name a directory on a disk",
            mount.fs_type
        );
        let policy = match arguments.policy[..] {
            [] => PolicyKind::S3Fifo,
            [policy] => policy,
            _ => bail!("measure several policies: each measurement has one; name one --policy"),
        };
        let mut sizes = arguments.measure.sizes.clone();
        sizes.sort_unstable();
        sizes.dedup();
        let is_small = |size: &&u64| **size < MEMORY_BYTES_MIN;
        if let Some(&small) = sizes.iter().find(is_small) {
            bail!(
                "measure a cache of {}: the minimum is {}",
                format::bytes(small),
                format::bytes(MEMORY_BYTES_MIN)
            );
        }
        if let Some(file) = &arguments.output {
            check_output(file, &directory)?;
        }
        Ok(Measurement { arguments, directory, policy, sizes })
    }

    /// Returns a cache of this size, with further options.
    fn cache(&self, scratch: &Scratch, memory: u64, more: &[OsString]) -> Cache {
        let page_bytes = u64::from(self.arguments.measure.page_size) * BLOCK_BYTES_U64;
        let words = [
            "--policy",
            self.policy.name(),
            "--page-size",
            &args::size_text(page_bytes),
            "--write-mode",
            self.arguments.write_mode.name(),
        ];
        let options = words.iter().map(OsString::from).chain(more.iter().cloned()).collect();
        let (source, keeps_data) = (self.directory.clone(), true);
        Cache::new(MountConfig { source, memory, options, keeps_data }, scratch)
    }

    /// Records a run, makes all runs, and predicts them.
    fn run(&self, scratch: &Scratch, stop: &Stop) -> Result<MeasuredSizing> {
        let before = DirectoryState::of(&self.directory)?;
        let log = scratch.files().join("inputs");
        // The requests are the same with every size. Which thread of the mount gets a request
        // depends on the waits of others, and matters only for misses: so the size with most of
        // them is recorded.
        let memory = self.sizes.first().copied().unwrap_or(MEMORY_BYTES_MIN);
        let record = ["--record-inputs".into(), log.clone().into_os_string()];
        eprintln!("larder: note: a first run of the command is recorded, not measured");
        let recorded = self.trial(scratch, (memory, &record), stop)?;
        ensure!(
            recorded.run.read_pages > 0,
            "measure the command: it read nothing through the cache; let it use relative paths, or \
             those of the variable LARDER_MOUNT"
        );
        let workload = RecordedWorkload::open(&log)?;
        let sizes = self.sizes_for(workload.footprint_bytes());
        let (count, trials) = (sizes.len(), usize::from(self.arguments.measure.trials));
        let runs = format::counted((count * trials) as u64, "measured run");
        let sizes_text = format::counted(count as u64, "size");
        eprintln!("larder: note: then {runs}, {trials} with each of {sizes_text}");
        let measured = self.measure(scratch, &sizes, stop)?;
        let mut sizing = self.compose(&workload, &measured);
        let model = prediction::store_model(&measured);
        sizing.store = model.name().into_owned();
        let reachable = prediction::predict(&workload, model, &mut sizing, stop)?;
        let after = measured.iter().flat_map(|size| &size.trials).map(|trial| trial.directory);
        sizing.notes.extend(trial::describe_change(before, after));
        measured::evaluate(&mut sizing, Some(reachable));
        Ok(sizing)
    }

    /// Returns the sizes to measure, for data of this many bytes. As the curve of `larder size`,
    /// they end with a cache of twice the data: it has room for pages that are read ahead and not
    /// used, and its hits are the reachable ones.
    fn sizes_for(&self, footprint_bytes: u64) -> Vec<u64> {
        if self.sizes.is_empty() {
            plan::grid(plan::memory_for(self.policy, 2 * footprint_bytes).min(most()))
        } else {
            self.sizes.clone()
        }
    }

    fn trial(
        &self,
        scratch: &Scratch,
        (memory, more): (u64, &[OsString]),
        stop: &Stop,
    ) -> Result<Trial> {
        let mut cache = self.cache(scratch, memory, more);
        let command = &self.arguments.measure.command;
        trial::run(&mut cache, (&self.directory, &scratch.mount()), command, stop)
    }

    fn measure(&self, scratch: &Scratch, sizes: &[u64], stop: &Stop) -> Result<Vec<SizeRuns>> {
        let mut measured: Vec<SizeRuns> = sizes
            .iter()
            .map(|&memory_bytes| SizeRuns { memory_bytes, trials: Vec::new() })
            .collect();
        let order = plan::order(sizes.len(), self.arguments.measure.trials.into());
        let bar = progress::bar(order.len() as u64, "measuring [{bar:30}] {pos} of {len} runs");
        for (number, at) in (1..).zip(order) {
            let mut trial = self.trial(scratch, (sizes[at], &[]), stop)?;
            trial.run.number = number;
            measured[at].trials.push(trial);
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(measured)
    }

    /// Returns the result without predictions.
    fn compose(&self, workload: &RecordedWorkload, measured: &[SizeRuns]) -> MeasuredSizing {
        let size = |size: &SizeRuns| MeasuredSize {
            memory_bytes: size.memory_bytes,
            data_bytes: size.trials.first().map_or(0, |trial| trial.data_bytes),
            runs: size.trials.iter().map(|trial| trial.run).collect(),
            ..MeasuredSize::default()
        };
        let arguments = &self.arguments.measure;
        let words = arguments.command.iter();
        MeasuredSizing {
            directory: self.directory.to_string_lossy().into_owned(),
            command: words.map(|word| word.to_string_lossy().into_owned()).collect(),
            policy: self.policy.name().to_owned(),
            page_bytes: arguments.page_size * u32::try_from(BLOCK_BYTES_U64).expect("4096"),
            write_mode: self.arguments.write_mode.name().to_owned(),
            requests: workload.requests(),
            footprint_bytes: workload.footprint_bytes(),
            sizes: measured.iter().map(size).collect(),
            ..MeasuredSizing::default()
        }
    }

    /// Prints the result, and writes the file.
    fn print(&self, sizing: &MeasuredSizing) -> Result<()> {
        let json = || format!("{:#}\n", sizing.to_json());
        let text = match self.arguments.format.get() {
            TextOrJson::Json => json(),
            TextOrJson::Text => measured::to_text(sizing),
        };
        let printed = output::stdout().write_all(text.as_bytes());
        if let Some(file) = &self.arguments.output {
            output::write_atomically(file, &json())?;
        }
        // A closed pipe is not a failure, so the error must reach the caller without context.
        Ok(printed?)
    }
}

/// Refuses an output file in the measured directory, and one for a page.
fn check_output(file: &Path, directory: &Path) -> Result<()> {
    let shown = escape::path(file);
    ensure!(
        Format::from_extension(file) != Some(Format::Html),
        "write {shown}: a measured curve has no page; name a file that ends in .json"
    );
    let absolute = std::path::absolute(file).with_context(|| format!("find {shown}"))?;
    let parent = absolute.parent().and_then(|parent| parent.canonicalize().ok());
    ensure!(
        !parent.is_some_and(|parent| parent.starts_with(directory)),
        "write {shown} into the measured directory: only the command may change it; name a file \
         outside"
    );
    Ok(())
}

/// Returns the memory that a cache may take, if the user names no sizes.
fn most() -> u64 {
    memory::available_bytes().map_or(u64::MAX, |bytes| bytes / MEMORY_DIVISOR).max(MEMORY_BYTES_MIN)
}
