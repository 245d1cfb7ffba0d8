//! `larder bench probe`: random records with a pattern of reads and writes, as the Response Probe
//! of the Windows NT Resource Kit asked for them.

use super::leak::Leak;
use super::leftovers::clear_up;
use super::places::{AtExport, AtMapping, Behind, InProcess, length};
use super::run_args::RunArgs;
use crate::args;
use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use larder_core::policy::PolicyKind;
use larder_lab::bench::probe::ProbeBench;
use larder_lab::bench::target::{AtPath, Buffering, Place};
use larder_lab::random::Spread;
use larder_lab::workload::probe::{
    Action, FITS, OVERRUN, OVERRUN_FAVOURED, Order, Probe, parse_pattern,
};
use std::path::Path;
use std::process::ExitCode;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// A directory, where a file is made and removed; a file or block device that is there; or the
    /// address of an NBD export (nbd://, nbd+unix://).
    #[arg(value_name = "TARGET", required_unless_present = "in_process")]
    target: Option<String>,

    /// Work on the cache of this very program instead, in front of this store.
    #[arg(long, value_name = "STORE", conflicts_with = "target")]
    in_process: Option<Behind>,

    /// Size of the cache: that of --in-process, or of the one that answers for TARGET.
    #[arg(long, value_name = "SIZE", value_parser = args::bytes)]
    memory: Option<u64>,

    /// Replacement policy of --in-process.
    #[arg(long, value_name = "POLICY", default_value = "s3fifo", value_parser = args::policy)]
    policy: PolicyKind,

    /// Bytes that are worked on; 64MiB for a new file, else all of it.
    #[arg(long, value_name = "SIZE", value_parser = args::bytes, conflicts_with = "scenario")]
    size: Option<u64>,

    /// Work on so many times the size of the cache as the published measurements did.
    #[arg(long, value_name = "SCENARIO", requires = "memory")]
    scenario: Option<Scenario>,

    /// How much memory the process of --scenario leak takes at the most; a quarter of what can be
    /// had, if not given.
    #[arg(long, value_name = "SIZE", value_parser = args::bytes)]
    leak: Option<u64>,

    /// Bytes of a record.
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = args::bytes)]
    record: u64,

    /// What is done to successive records: R reads, W writes.
    #[arg(long, value_name = "LETTERS", default_value = "RWWW", value_parser = pattern)]
    pattern: Pattern,

    /// Where cycles begin.
    #[arg(long, value_name = "ORDER", default_value = "normal")]
    order: SeekOrder,

    /// Mean and standard deviation of normal seeks, in records, as in 2000,300; the middle and a
    /// sixth of the file, if not given.
    #[arg(long, value_name = "MEAN,SDEV", value_parser = pair)]
    seek: Option<Spread>,

    /// Records of a cycle, mean and standard deviation.
    #[arg(long, value_name = "MEAN[,SDEV]", default_value = "1", value_parser = pair)]
    cycle: Spread,

    /// Milliseconds of thinking before each cycle, mean and standard deviation.
    #[arg(long, value_name = "MEAN[,SDEV]", default_value = "0", value_parser = pair)]
    think: Spread,

    /// Milliseconds of computing at the end of each cycle, mean and standard deviation.
    #[arg(long, value_name = "MEAN[,SDEV]", default_value = "0", value_parser = pair)]
    compute: Spread,

    /// Threads, each with requests of its own.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = 1..=1024)]
    threads: i64,

    /// How long a trial is; its second half is measured.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = args::time)]
    length: u64,

    /// Past the page cache, with direct I/O.
    #[arg(long)]
    unbuffered: bool,

    /// Map the file into memory, and read and write that.
    #[arg(long, conflicts_with = "unbuffered")]
    mapped: bool,

    /// Write to TARGET although it was there before. What it holds is lost.
    #[arg(long)]
    overwrite: bool,

    #[command(flatten)]
    playing: RunArgs,
}

/// What was measured in 1998 with a cache of 26 MB, that of the third being 40 MB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scenario {
    /// The file fits: 16 MB.
    Fits,
    /// The file is five times the cache: 128 MB of 26 MB.
    Overrun,
    /// The same with more memory for the cache: 128 MB of 40 MB.
    Favoured,
    /// The file fits, and a process of its own takes memory: step by step in the first half of each
    /// trial, and keeps it to the end.
    Leak,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SeekOrder {
    /// Normally distributed, folded into the file.
    Normal,
    /// Every record as likely as the other.
    Uniform,
    /// Where the last cycle ended.
    Sequential,
}

#[derive(Clone, Debug)]
struct Pattern(Vec<Action>);

fn pattern(text: &str) -> Result<Pattern, String> {
    parse_pattern(text).map(Pattern).map_err(|error| error.to_string())
}

/// `MEAN,SDEV` or `MEAN` alone.
pub(super) fn pair(text: &str) -> Result<Spread, String> {
    let (mean, sdev) = text.split_once(',').unwrap_or((text, "0"));
    match (mean.trim().parse::<f64>(), sdev.trim().parse::<f64>()) {
        (Ok(mean), Ok(sdev)) if (0.0..1e15).contains(&mean) && (0.0..1e15).contains(&sdev) => {
            Ok(Spread { mean, sdev })
        }
        _ => Err(format!("\"{text}\" is no mean with a standard deviation; write 20 or 20,5")),
    }
}

/// Milliseconds as nanoseconds.
pub(super) fn milliseconds(spread: Spread) -> Spread {
    Spread { mean: spread.mean * 1e6, sdev: spread.sdev * 1e6 }
}

impl Arguments {
    /// Bytes that are asked for, if any are said.
    fn requests_per_second(&self) -> Option<u64> {
        let Some(scenario) = self.scenario else { return self.size };
        let times = match scenario {
            Scenario::Fits | Scenario::Leak => FITS,
            Scenario::Overrun => OVERRUN,
            Scenario::Favoured => OVERRUN_FAVOURED,
        };
        Some(Probe::sized(self.memory?, times).file_bytes)
    }

    /// The place, and the bytes of it that are worked on.
    fn place(&self) -> Result<(Box<dyn Place>, u64)> {
        const NEW_BYTES: u64 = 64 << 20;
        let asked = self.requests_per_second();
        if let Some(behind) = self.in_process {
            self.not_a_file("work in process")?;
            let bytes = asked.unwrap_or(NEW_BYTES);
            let memory = self.memory.unwrap_or(NEW_BYTES);
            return Ok((Box::new(InProcess::new(behind, bytes, memory, self.policy)), bytes));
        }
        let target = self.target.as_deref().unwrap_or_default();
        if target.contains("://") {
            self.not_a_file("work on an export")?;
            let uri = target.parse()?;
            let place = AtExport::connect(uri).with_context(|| format!("reach {target}"))?;
            self.may_write(target)?;
            return Self::within(Box::new(place), asked, target);
        }
        let path = Path::new(target);
        let found = std::fs::metadata(path).with_context(|| format!("find {target}"))?;
        let buffering = self.buffering();
        if found.is_dir() {
            clear_up(path, "probe");
            let bytes = asked.unwrap_or(NEW_BYTES);
            let file = path.join(format!("larder-probe-{}", std::process::id()));
            let place = AtPath::new(&file, bytes, buffering);
            return Ok((self.mapped_or_not(&file, place, true), bytes));
        }
        self.may_write(target)?;
        let place = AtPath::existing(path, length(path)?, buffering, self.writes());
        Self::within(self.mapped_or_not(path, place, self.writes()), asked, target)
    }

    fn mapped_or_not(&self, path: &Path, place: AtPath, writes: bool) -> Box<dyn Place> {
        if self.mapped { Box::new(AtMapping::new(path, place, writes)) } else { Box::new(place) }
    }

    fn not_a_file(&self, what: &str) -> Result<()> {
        ensure!(!self.unbuffered, "{what}: --unbuffered is for files");
        ensure!(!self.mapped, "{what}: --mapped is for files");
        Ok(())
    }

    fn may_write(&self, target: &str) -> Result<()> {
        if self.writes() && !self.overwrite {
            bail!("work on {target}: the pattern writes to it; say --overwrite, or --pattern R");
        }
        Ok(())
    }

    fn within(
        place: Box<dyn Place>,
        asked: Option<u64>,
        target: &str,
    ) -> Result<(Box<dyn Place>, u64)> {
        let (has, bytes) = (place.bytes(), asked.unwrap_or(place.bytes()));
        ensure!(bytes <= has, "work on {bytes} bytes of {target}: it has {has}");
        Ok((place, bytes))
    }
}

impl Arguments {
    /// The workload.
    pub(super) fn bench(&self) -> Result<ProbeBench> {
        let leaks = self.scenario == Some(Scenario::Leak);
        ensure!(leaks || self.leak.is_none(), "take memory: --leak is for --scenario leak");
        let (place, bytes) = self.place()?;
        // What is on this machine is in its page cache, which the leak squeezes.
        let file = place.paths().into_iter().next().filter(|_| !self.unbuffered);
        let bench = self.on(place, bytes)?;
        if !leaks {
            return Ok(bench);
        }
        let leak = Leak::new(self.leak, self.length, file)?;
        Ok(bench.with_background_load(Box::new(leak)))
    }

    /// The work on so many bytes of a place.
    fn on(&self, place: Box<dyn Place>, bytes: u64) -> Result<ProbeBench> {
        let record = self.record;
        ensure!(record > 0, "work on records of 0 bytes: there is nothing to do");
        ensure!(bytes >= record, "work on {bytes} bytes: a record has {record}");
        // Whole records: what lies behind the last one is left alone.
        let mut probe = Probe::random(bytes - bytes % record);
        probe.record_bytes = record;
        probe.pattern.clone_from(&self.pattern.0);
        let records = probe.records();
        #[expect(clippy::cast_precision_loss, reason = "records stay below 2^53")]
        let middle = Spread { mean: records as f64 / 2.0, sdev: records as f64 / 6.0 };
        probe.order = match self.order {
            SeekOrder::Normal => Order::Normal(self.seek.unwrap_or(middle)),
            SeekOrder::Uniform => Order::Uniform,
            SeekOrder::Sequential => Order::Sequential,
        };
        probe.cycle_records = self.cycle;
        probe.think = milliseconds(self.think);
        let threads = usize::try_from(self.threads).context("count threads")?;
        let compute = milliseconds(self.compute);
        Ok(ProbeBench::new(place, probe, compute, threads, self.length))
    }

    /// Bytes that are worked on, where `unsaid` holds if nothing was said.
    pub(super) fn bytes_or(&self, unsaid: u64) -> u64 {
        self.size.unwrap_or(unsaid)
    }

    /// Whether it writes.
    pub(super) fn writes(&self) -> bool {
        self.pattern.0.contains(&Action::Write)
    }

    /// The same work twice: on a file that is made in one directory, and on that file as it is seen in
    /// another.
    pub(super) fn twice(&self, [made, seen]: [&Path; 2], bytes: u64) -> Result<[ProbeBench; 2]> {
        let in_words = self.in_process.is_some() || self.scenario.is_some();
        ensure!(!in_words, "run probe here: --in-process and --scenario are for larder bench");
        let name = format!("larder-probe-{}", std::process::id());
        let [made, seen] = [made.join(&name), seen.join(&name)];
        let place = AtPath::new(&made, bytes, self.buffering());
        let native = self.on(self.mapped_or_not(&made, place, true), bytes)?;
        let place = AtPath::existing(&seen, bytes, self.buffering(), self.writes());
        let other = self.on(self.mapped_or_not(&seen, place, self.writes()), bytes)?;
        Ok([native, other])
    }

    fn buffering(&self) -> Buffering {
        if self.unbuffered { Buffering::Unbuffered } else { Buffering::Buffered }
    }
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    match arguments.playing.lead("probe")? {
        Some(code) => Ok(code),
        None => arguments.playing.run(&mut arguments.bench()?),
    }
}
