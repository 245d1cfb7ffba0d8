//! `larder frag repair`: moves the files whose contiguous places gain most for the bytes written.

mod journal;
mod measure;

use super::requests::Load;
use super::scan::ScanOptions;
use super::{ExamineArgs, Examined, examine};
use crate::args::{self, FormatArgs, TextOrJson};
use crate::commands::report::{page_or_json, print_and_write};
use crate::output_file::OutputFile;
use crate::progress;
use crate::signals::Stop;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use journal::Journal;
use larder_host::file_walk::WalkRoot;
use larder_host::priority::PriorityChange;
use larder_host::relocate::{OpenFile, RelocateError, RelocateOptions, Verified};
use larder_lab::fragmentation::{FileLayouts, cost};
use larder_report::{escape, fragmentation};
use larder_schema::as_f64;
use larder_schema::fragmentation::{
    FileExtent, FragmentationRepair, MovedFile, RepairEnd, SkippedFile, VerdictKind,
};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Maximum number of files without requests that are moved.
const KEEP: usize = 100_000;

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "options of a command line")]
pub(crate) struct RepairArgs {
    #[command(flatten)]
    examine: ExamineArgs,

    /// Show what would be moved, and move nothing.
    #[arg(long)]
    dry_run: bool,

    /// Share of the gain that is enough.
    #[arg(long, value_name = "PERCENT", default_value = "90%", value_parser = share)]
    target: f64,

    /// Maximum duration.
    #[arg(long, value_name = "TIME", value_parser = args::time)]
    time: Option<u64>,

    /// Maximum bytes that are written.
    #[arg(long, value_name = "SIZE", value_parser = args::bytes)]
    write_budget: Option<u64>,

    /// Maximum bytes per second.
    #[arg(long, value_name = "SIZE", value_parser = args::bytes, hide_short_help = true)]
    rate: Option<u64>,

    /// Move files that other processes have open.
    ///
    /// Without it, such files stay. A program that opens a file while it is moved waits a moment,
    /// and the file stays.
    #[arg(long)]
    open_files: bool,

    /// Move files that share blocks with others (reflinks).
    ///
    /// They no longer share them afterwards, and take more space.
    #[arg(long, hide_short_help = true)]
    shared: bool,

    /// Move files even if that is not worth it.
    #[arg(long, hide_short_help = true)]
    force: bool,

    /// Journal of the moves [default: /var/lib/larder/frag.journal].
    ///
    /// After a crash, the next repair compares the file whose move was interrupted with it.
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    journal: Option<PathBuf>,

    /// Write the result into a file as well.
    ///
    /// The file is JSON, or a page if its name ends in .html.
    #[arg(short, long, value_name = "FILE", value_parser = page_or_json())]
    output: Option<OutputFile>,

    #[command(flatten)]
    format: FormatArgs<TextOrJson>,
}

fn share(text: &str) -> Result<f64, String> {
    let percent = args::per_cent(text).filter(|it| (1.0..=100.0).contains(it));
    percent.map(|it| it / 100.0).ok_or_else(|| "write a percentage up to 100, such as 90%".into())
}

/// A file to move, and its gain.
struct Candidate {
    /// Index in the load.
    file: usize,
    gain_ns: u64,
    /// Bytes of its extents.
    bytes: u64,
}

pub(super) fn run(arguments: &RepairArgs) -> Result<()> {
    let options = ScanOptions { keep: KEEP, keeps_all: false, resume: None };
    let Some(mut examined) = examine(&arguments.examine, &options)? else { return Ok(()) };
    // No descriptor of a file may be open during its move.
    examined.roots = examined.roots.into_iter().map(directory_of).collect::<Result<_>>()?;
    let mut repair = FragmentationRepair {
        verdict: examined.found.verdict.clone(),
        is_dry_run: arguments.dry_run,
        ..FragmentationRepair::default()
    };
    if let Some(cost) = &examined.found.cost {
        (repair.before_s, repair.predicted_s) = (cost.now.seconds, cost.contiguous.seconds);
        repair.after_s = cost.now.seconds;
    }
    if repair.verdict.kind == VerdictKind::Repair || arguments.force {
        move_files(arguments, &mut examined, &mut repair)?;
    } else {
        repair.end = RepairEnd::NotWorthIt;
    }
    let printed = print_and_write(
        arguments.format.get(),
        arguments.output.as_ref(),
        || fragmentation::repair_to_text(&repair),
        || fragmentation::repair_to_html(&repair),
        || format!("{:#}\n", repair.to_json()),
    )?;
    Ok(printed?)
}

/// Returns the files whose contiguous place gains, those with most gain for their bytes first.
fn candidates(examined: &Examined) -> Vec<Candidate> {
    let files = examined.load.files.iter().zip(&examined.costs).enumerate();
    let mut candidates: Vec<Candidate> = files
        .filter(|(_, (file, _))| file.fragments > 1)
        .map(|(index, (file, cost))| Candidate {
            file: index,
            gain_ns: cost.now_ns.saturating_sub(cost.contiguous_ns),
            bytes: file.extents.iter().map(|it| it.bytes).sum(),
        })
        .filter(|candidate| candidate.gain_ns > 0 && candidate.bytes > 0)
        .collect();
    let worth = |it: &Candidate| as_f64(it.gain_ns) / as_f64(it.bytes);
    candidates.sort_by(|a, b| worth(b).total_cmp(&worth(a)));
    candidates
}

fn move_files(
    arguments: &RepairArgs,
    examined: &mut Examined,
    repair: &mut FragmentationRepair,
) -> Result<()> {
    let candidates = candidates(examined);
    let all: u64 = candidates.iter().map(|it| it.gain_ns).sum();
    let (stop, begun) = (Stop::listen()?, Instant::now());
    let limit = arguments.time.map(Duration::from_nanos);
    let is_over = || limit.is_some_and(|limit| begun.elapsed() >= limit);
    let is_stopped = || stop.flag().load(Ordering::Relaxed) || is_over();
    let options = RelocateOptions {
        open_files: arguments.open_files,
        shared: arguments.shared,
        bytes_per_s: arguments.rate,
        is_stopped: &is_stopped,
    };
    let mut journal = None;
    if !arguments.dry_run {
        let (opened, interrupted) = Journal::open(arguments.journal.as_deref(), &options)?;
        (journal, repair.interrupted) = (Some(opened), interrupted);
    }
    let _idle = (!arguments.dry_run).then(idle).transpose()?;
    let bar = progress::bar(candidates.len() as u64, "moving: file {count} of {total}");
    let reads = examined.load.reads(measure::READS_MAX);
    let mut measured = measure::Reads::default();
    let (mut gained, mut planned_bytes) = (0, 0_u64);
    for candidate in &candidates {
        if as_f64(gained) >= arguments.target * as_f64(all) {
            repair.end = RepairEnd::Target;
            break;
        }
        if is_stopped() {
            break;
        }
        bar.inc(1);
        let budget = arguments.write_budget.unwrap_or(u64::MAX);
        if planned_bytes.saturating_add(candidate.bytes) > budget {
            repair.end = RepairEnd::WriteBudget;
            continue;
        }
        planned_bytes += candidate.bytes;
        let moved = if let Some(journal) = &mut journal {
            let roots = &examined.roots;
            let mut mover = Mover { roots, journal, options, reads: &mut measured };
            mover.move_file(candidate, &mut examined.load, &reads[candidate.file], repair)?
        } else {
            let file = &examined.load.files[candidate.file];
            repair.moved.push(planned(candidate, file));
            true
        };
        gained += if moved { candidate.gain_ns } else { 0 };
    }
    bar.finish_and_clear();
    if stop.flag().load(Ordering::Relaxed) {
        repair.end = RepairEnd::Signal;
    } else if is_over() {
        repair.end = RepairEnd::Time;
    }
    if let Some(journal) = journal {
        journal.end()?;
        repair.seconds = begun.elapsed().as_secs_f64();
        add_after(examined, repair);
        (repair.measured_s, repair.measured_reads) = measured.result();
    }
    Ok(())
}

/// Gives this thread the lowest priority for its I/O.
fn idle() -> Result<larder_host::priority::PriorityGuard> {
    let io = "idle".parse().ok();
    ensure!(io.is_some(), "set the I/O priority to idle: it is not known");
    let change = PriorityChange { io, ..PriorityChange::default() };
    change.apply().context("set the I/O priority to idle")
}

fn planned(candidate: &Candidate, file: &super::requests::ScannedFile) -> MovedFile {
    MovedFile {
        path: file.path.display().to_string(),
        bytes: candidate.bytes,
        fragments_before: file.fragments,
        gain_ns: candidate.gain_ns,
        ..MovedFile::default()
    }
}

/// Moves of files.
struct Mover<'a> {
    roots: &'a [WalkRoot],
    journal: &'a mut Journal,
    options: RelocateOptions<'a>,
    reads: &'a mut measure::Reads,
}

impl Mover<'_> {
    /// Moves a file; returns false if it stays.
    fn move_file(
        &mut self,
        candidate: &Candidate,
        load: &mut Load,
        reads: &[(u64, u64)],
        repair: &mut FragmentationRepair,
    ) -> Result<bool> {
        let path = load.files[candidate.file].path.clone();
        match self.try_move(&path, reads) {
            Ok((extents, written_bytes, verified)) => {
                let mut moved = planned(candidate, &load.files[candidate.file]);
                load.files[candidate.file].set_extents(extents);
                moved.fragments_after = load.files[candidate.file].fragments;
                moved.is_compared = verified == Verified::Same;
                repair.written_bytes += written_bytes;
                repair.moved.push(moved);
                Ok(true)
            }
            Err(RelocateError::Damaged) => {
                bail!("move {}: {}", escape::path(&path), RelocateError::Damaged)
            }
            Err(error) => {
                let path = path.display().to_string();
                repair.skipped.push(SkippedFile { path, reason: error.to_string() });
                Ok(false)
            }
        }
    }

    fn try_move(
        &mut self,
        path: &Path,
        reads: &[(u64, u64)],
    ) -> Result<(Vec<FileExtent>, u64, Verified), RelocateError> {
        let failed = |name| move |error| RelocateError::Failed(name, error);
        let below = |root: &WalkRoot| path.strip_prefix(root.path()).ok().map(Path::to_owned);
        let found = self.roots.iter().find_map(|root| Some((root, below(root)?)));
        let (root, below) = found
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
            .map_err(failed("open its directory"))?;
        let measured = self.reads.before(root, &below, reads);
        let file = OpenFile::open(root, &below, &self.options)?;
        let checksum = file.checksum(&self.options)?;
        self.journal.begin(path, file.metadata(), checksum).map_err(failed("write the journal"))?;
        let result = file.relocate(checksum, &self.options);
        self.journal.finish().map_err(failed("write the journal"))?;
        let moved = result?;
        self.reads.after(root, &below, measured);
        Ok((moved.extents, moved.written_bytes, moved.verified))
    }
}

/// Replaces a file as a root by its directory.
fn directory_of(root: WalkRoot) -> Result<WalkRoot> {
    if root.is_directory() {
        return Ok(root);
    }
    let path = root.path().parent().unwrap_or(Path::new("/")).to_owned();
    drop(root);
    WalkRoot::open(&path).with_context(|| format!("open {}", escape::path(&path)))
}

/// Computes the cost with the files as they lie now.
fn add_after(examined: &Examined, repair: &mut FragmentationRepair) {
    let extents: Vec<_> = examined.load.files.iter().map(|file| file.extents.clone()).collect();
    let layouts = FileLayouts::new(&extents, examined.options.device_bytes);
    let (cost, _) = cost(&layouts, &examined.load.requests, &examined.options, |_| ());
    repair.after_s = cost.now.seconds;
}
