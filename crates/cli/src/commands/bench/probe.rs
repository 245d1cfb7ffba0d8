//! `larder bench probe`: random records with a pattern of reads and writes, like the Response Probe
//! of the Windows NT Resource Kit.

use super::leak::Leak;
use super::leftovers::remove_leftovers;
use super::places::{BackingStore, FileOptions, InProcess};
use super::run_args::RunArgs;
use crate::args;
use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use larder_core::policy::PolicyKind;
use larder_lab::bench::Start;
use larder_lab::bench::probe::ProbeBench;
use larder_lab::bench::target::TargetSource;
use larder_lab::random::Spread;
use larder_lab::workload::probe::{
    Action, FITS, OVERRUN, OVERRUN_FAVORED, Order, Probe, parse_pattern,
};
use larder_schema::format;
use std::path::Path;
use std::process::ExitCode;

#[derive(Debug, Args)]
pub(super) struct ProbeArgs {
    /// A directory, a file, a block device, or an NBD address.
    ///
    /// In a directory, a file is created and removed. Addresses of exports begin with nbd:// or
    /// nbd+unix://.
    #[arg(value_name = "TARGET", required_unless_present = "in_process")]
    target: Option<String>,

    /// Cache in this process, before memory or disk.
    ///
    /// The cache of this program itself, instead of one in front of TARGET: before memory, or
    /// before a modeled disk.
    #[arg(long, value_name = "STORE", conflicts_with = "target", hide_possible_values = true)]
    in_process: Option<BackingStore>,

    /// Size of the cache.
    ///
    /// The size of the cache of --in-process, or of the one in front of TARGET.
    #[arg(long, value_name = "SIZE", value_parser = args::bytes)]
    memory: Option<u64>,

    /// Replacement policy of --in-process.
    #[arg(long, value_name = "POLICY", default_value = "s3fifo",
          value_parser = args::named::<PolicyKind>, hide_short_help = true)]
    policy: PolicyKind,

    /// Bytes of the target that are used.
    ///
    /// 64MiB of a new file, else all of it, if not given.
    #[arg(long, value_name = "SIZE", value_parser = args::bytes, conflicts_with = "scenario")]
    size: Option<u64>,

    /// fits, overrun, favored or leak.
    ///
    /// Use a multiple of the cache size, as in the published measurements.
    #[arg(long, value_name = "NAME", requires = "memory", hide_possible_values = true)]
    scenario: Option<Scenario>,

    /// Maximum memory of the process of --scenario leak.
    ///
    /// A quarter of the available memory, if not given.
    #[arg(long, value_name = "SIZE", value_parser = args::bytes, hide_short_help = true)]
    leak: Option<u64>,

    /// Bytes of a record.
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = args::bytes,
          hide_short_help = true)]
    record: u64,

    /// R reads, W writes, in turn.
    ///
    /// Operations on successive records.
    #[arg(long, value_name = "LETTERS", default_value = "RWWW", value_parser = pattern)]
    pattern: Pattern,

    /// Start positions of cycles.
    #[arg(long, value_name = "ORDER", default_value = "normal", hide_short_help = true)]
    order: SeekOrder,

    /// Mean and standard deviation of normal seeks.
    ///
    /// In records, as in 2000,300; the middle and a sixth of the file, if not given.
    #[arg(long, value_name = "MEAN,SDEV", value_parser = pair, hide_short_help = true)]
    seek: Option<Spread>,

    /// Records of a cycle, mean and standard deviation.
    #[arg(long, value_name = "MEAN[,SDEV]", default_value = "1", value_parser = pair,
          hide_short_help = true)]
    cycle: Spread,

    /// Milliseconds of think time before each cycle, mean and standard deviation.
    #[arg(long, value_name = "MEAN[,SDEV]", default_value = "0", value_parser = pair,
          hide_short_help = true)]
    think: Spread,

    /// Milliseconds of computing at the end of each cycle, mean and standard deviation.
    #[arg(long, value_name = "MEAN[,SDEV]", default_value = "0", value_parser = pair,
          hide_short_help = true)]
    compute: Spread,

    /// Threads, each with its own requests.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = 1..=1024)]
    threads: i64,

    /// Duration of a trial.
    ///
    /// Its second half is measured.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = args::time)]
    length: u64,

    /// Bypass the page cache, with direct I/O.
    #[arg(long, hide_short_help = true)]
    unbuffered: bool,

    /// Map the file into memory, and access the mapping.
    #[arg(long, conflicts_with = "unbuffered", hide_short_help = true)]
    mapped: bool,

    /// Write to an existing TARGET; its data is lost.
    #[arg(long)]
    overwrite: bool,

    #[command(flatten)]
    run_args: RunArgs,
}

/// The scenarios of the Windows 2000 Performance Guide (January 2002), with a cache of 26 MB, in
/// the third scenario 40 MB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scenario {
    /// The file fits: 16 MB.
    Fits,
    /// The file is five times the cache: 128 MB of 26 MB.
    Overrun,
    /// The same file with more memory for the cache: 128 MB of 40 MB.
    Favored,
    /// The file fits, and a separate process takes memory: step by step in the first half of each
    /// trial, and keeps it to the end.
    Leak,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SeekOrder {
    /// Normally distributed, folded into the file.
    Normal,
    /// Uniformly distributed.
    Uniform,
    /// At the end of the previous cycle.
    Sequential,
}

#[derive(Clone, Debug)]
struct Pattern(Vec<Action>);

fn pattern(text: &str) -> Result<Pattern, String> {
    parse_pattern(text).map(Pattern).map_err(|error| error.to_string())
}

/// Parses `MEAN,SDEV`, or `MEAN` alone.
pub(super) fn pair(text: &str) -> Result<Spread, String> {
    let (mean, sdev) = text.split_once(',').unwrap_or((text, "0"));
    match (mean.trim().parse::<f64>(), sdev.trim().parse::<f64>()) {
        (Ok(mean), Ok(sdev)) if (0.0..1e15).contains(&mean) && (0.0..1e15).contains(&sdev) => {
            Ok(Spread { mean, sdev })
        }
        _ => Err(format!("\"{text}\" is no mean with a standard deviation; write 20 or 20,5")),
    }
}

/// Converts milliseconds to nanoseconds.
pub(super) fn milliseconds(spread: Spread) -> Spread {
    Spread { mean: spread.mean * 1e6, sdev: spread.sdev * 1e6 }
}

impl ProbeArgs {
    /// Returns the bytes that the size or the scenario selects, if one is given.
    fn requested_bytes(&self) -> Option<u64> {
        let Some(scenario) = self.scenario else { return self.size };
        let times = match scenario {
            Scenario::Fits | Scenario::Leak => FITS,
            Scenario::Overrun => OVERRUN,
            Scenario::Favored => OVERRUN_FAVORED,
        };
        Some(Probe::sized(self.memory?, times).file_bytes)
    }

    /// Returns how the file is accessed.
    pub(super) fn file_options(&self) -> FileOptions {
        let &ProbeArgs { unbuffered, mapped, .. } = self;
        FileOptions { unbuffered, mapped, writes: self.writes() }
    }

    /// Returns the target, and the bytes of it that are used.
    fn target_place(&self) -> Result<(Box<dyn TargetSource>, u64)> {
        const NEW_BYTES: u64 = 64 << 20;
        let (requested, options) = (self.requested_bytes(), self.file_options());
        let new_bytes = requested.unwrap_or(NEW_BYTES);
        if let Some(backing) = self.in_process {
            options.refuse("work in process")?;
            let (memory_bytes, policy) = (self.memory.unwrap_or(NEW_BYTES), self.policy);
            let place =
                InProcess { backing, bytes: new_bytes, memory_bytes, policy, running: None };
            return Ok((Box::new(place), new_bytes));
        }
        let target = self.target.as_deref().unwrap_or_default();
        let Some(place) = options.open(target)? else {
            let directory = Path::new(target);
            remove_leftovers(directory, "probe");
            return Ok((options.new_file(&directory.join(file_name()), new_bytes), new_bytes));
        };
        ensure!(
            self.overwrite || !options.writes,
            "work on {target}: the pattern writes to it; add --overwrite, or use --pattern R"
        );
        let (available, bytes) = (place.bytes(), requested.unwrap_or(place.bytes()));
        ensure!(bytes <= available, "work on {bytes} bytes of {target}: it has {available}");
        Ok((place, bytes))
    }

    /// Returns the workload.
    pub(super) fn bench(&self) -> Result<ProbeBench> {
        let leaks = self.scenario == Some(Scenario::Leak);
        ensure!(leaks || self.leak.is_none(), "take memory: --leak is for --scenario leak");
        let (place, bytes) = self.target_place()?;
        // The leak puts pressure on the page cache of this machine, which holds local files.
        let file = place.paths().into_iter().next().filter(|_| !self.unbuffered);
        let bench = self.bench_on(place, bytes)?;
        if !leaks {
            return Ok(bench);
        }
        let leak = Leak::new(self.leak, self.length, file)?;
        Ok(bench.with_background_load(Box::new(leak)))
    }

    /// Returns the workload on this many bytes of a target.
    fn bench_on(&self, place: Box<dyn TargetSource>, bytes: u64) -> Result<ProbeBench> {
        let record = self.record;
        ensure!(record > 0, "work on records of 0 bytes: there is nothing to do");
        ensure!(
            bytes >= record,
            "work on {}: a record has {}; raise --size, or lower --record",
            format::bytes(bytes),
            format::bytes(record)
        );
        // Only whole records: the bytes after the last one are not used.
        let mut probe = Probe::random(bytes - bytes % record);
        probe.record_bytes = record;
        probe.pattern.clone_from(&self.pattern.0);
        probe.order = match self.order {
            SeekOrder::Normal => self.seek.map_or_else(|| probe.middle(), Order::Normal),
            SeekOrder::Uniform => Order::Uniform,
            SeekOrder::Sequential => Order::Sequential,
        };
        probe.cycle_records = self.cycle;
        probe.think = milliseconds(self.think);
        let threads = usize::try_from(self.threads).context("count threads")?;
        let compute = milliseconds(self.compute);
        Ok(ProbeBench::new(place, probe, compute, threads, self.length))
    }

    /// Returns the bytes that are used; `default` without --size.
    pub(super) fn bytes_or(&self, default: u64) -> u64 {
        self.size.unwrap_or(default)
    }

    /// Returns true if the pattern writes.
    pub(super) fn writes(&self) -> bool {
        self.pattern.0.contains(&Action::Write)
    }

    /// Returns the same workload twice: on a file that is created in one directory, and on the same
    /// file in a mount of it.
    pub(super) fn native_and_cached(
        &self,
        [native_directory, mount_directory]: [&Path; 2],
        bytes: u64,
    ) -> Result<[ProbeBench; 2]> {
        let has_conflict = self.in_process.is_some() || self.scenario.is_some();
        ensure!(!has_conflict, "run probe here: --in-process and --scenario are for larder bench");
        let options = self.file_options();
        let [native, cached] =
            [native_directory, mount_directory].map(|directory| directory.join(file_name()));
        Ok([
            self.bench_on(options.new_file(&native, bytes), bytes)?,
            self.bench_on(options.existing(&cached, bytes), bytes)?,
        ])
    }
}

/// Returns the name of a file that is created.
fn file_name() -> String {
    format!("larder-probe-{}", std::process::id())
}

pub(super) fn run(arguments: &ProbeArgs) -> Result<ExitCode> {
    arguments.run_args.run("probe", Start::Cold, || arguments.bench())
}
