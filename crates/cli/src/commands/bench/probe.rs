//! `larder bench probe`: random records with a pattern of reads and writes, as the Response Probe
//! of the Windows NT Resource Kit asked for them.

use super::places::{AtExport, Behind, InProcess};
use super::playing::Playing;
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
use std::io::Seek;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::ExitCode;

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// A folder, where a file is made and removed; a file or block device that is there; or the
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

    /// Write to TARGET although it was there before. What it holds is lost.
    #[arg(long)]
    overwrite: bool,

    #[command(flatten)]
    playing: Playing,
}

/// The three that were measured in 1998 with a cache of 26 MB, that of the third being 40 MB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Scenario {
    /// The file fits: 16 MB.
    Fits,
    /// The file is five times the cache: 128 MB of 26 MB.
    Overrun,
    /// The same with more memory for the cache: 128 MB of 40 MB.
    Favoured,
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
fn pair(text: &str) -> Result<Spread, String> {
    let (mean, sdev) = text.split_once(',').unwrap_or((text, "0"));
    match (mean.trim().parse::<f64>(), sdev.trim().parse::<f64>()) {
        (Ok(mean), Ok(sdev)) if (0.0..1e15).contains(&mean) && (0.0..1e15).contains(&sdev) => {
            Ok(Spread { mean, sdev })
        }
        _ => Err(format!("\"{text}\" is no mean with a standard deviation; write 20 or 20,5")),
    }
}

impl Arguments {
    fn writes(&self) -> bool {
        self.pattern.0.contains(&Action::Write)
    }

    /// Bytes that are asked for, if any are said.
    fn asked(&self) -> Option<u64> {
        let Some(scenario) = self.scenario else { return self.size };
        let times = match scenario {
            Scenario::Fits => FITS,
            Scenario::Overrun => OVERRUN,
            Scenario::Favoured => OVERRUN_FAVOURED,
        };
        Some(Probe::sized(self.memory?, times).file_bytes)
    }

    /// The place, and the bytes of it that are worked on.
    fn place(&self) -> Result<(Box<dyn Place>, u64)> {
        const NEW_BYTES: u64 = 64 << 20;
        let asked = self.asked();
        if let Some(behind) = self.in_process {
            ensure!(!self.unbuffered, "work in process: --unbuffered is for files");
            let bytes = asked.unwrap_or(NEW_BYTES);
            let memory = self.memory.unwrap_or(NEW_BYTES);
            return Ok((Box::new(InProcess::new(behind, bytes, memory, self.policy)), bytes));
        }
        let target = self.target.as_deref().unwrap_or_default();
        if target.contains("://") {
            ensure!(!self.unbuffered, "work on an export: --unbuffered is for files");
            let uri = target.parse()?;
            let place = AtExport::connect(uri).with_context(|| format!("reach {target}"))?;
            self.may_write(target)?;
            return Self::within(Box::new(place), asked, target);
        }
        let path = Path::new(target);
        let found = std::fs::metadata(path).with_context(|| format!("find {target}"))?;
        let buffering = if self.unbuffered { Buffering::Unbuffered } else { Buffering::Buffered };
        if found.is_dir() {
            let bytes = asked.unwrap_or(NEW_BYTES);
            let file = path.join(format!("larder-probe-{}", std::process::id()));
            return Ok((Box::new(AtPath::new(&file, bytes, buffering)), bytes));
        }
        self.may_write(target)?;
        let mut bytes = found.len();
        if found.file_type().is_block_device() {
            let mut device = std::fs::File::open(path).with_context(|| format!("open {target}"))?;
            bytes = device.seek(std::io::SeekFrom::End(0)).context("find its length")?;
        }
        let place = AtPath::existing(path, bytes, buffering, self.writes());
        Self::within(Box::new(place), asked, target)
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
        let (place, bytes) = self.place()?;
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
        let ms = |spread: Spread| Spread { mean: spread.mean * 1e6, sdev: spread.sdev * 1e6 };
        probe.think = ms(self.think);
        let threads = usize::try_from(self.threads).context("count threads")?;
        let compute = ms(self.compute);
        Ok(ProbeBench::new(place, probe, compute, threads, self.length))
    }
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    arguments.playing.play(&mut arguments.bench()?)
}
