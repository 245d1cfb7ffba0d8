//! `larder bench matrix`: a benchmark on several file systems, schedulers and variants;
//! docs/bench-matrix.md.
//!
//! Invariants: each cell works on a file system and a loop device that are created for it and
//! removed before the next; at the end, also after a failure, the machine is compared with its
//! state before, and differences are reported.

mod variant;

use super::embedded::InnerBenchmark;
use super::run_args::RunArgs;
use crate::args;
use crate::free_space::check_directory;
use crate::signals::Stop;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use larder_host::scratch::{KINDS, Kind, Scratch, ScratchError, ScratchOptions, remove_left_over};
use larder_host::{settings, state};
use larder_lab::bench::{BenchError, Doubt, DoubtReason, RunResult};
use larder_schema::format;
use larder_schema::run::Part;
use larder_schema::run::Run;
use larder_schema::run::trial::SettingChange;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use variant::{Variant, variant};

#[derive(Debug, Args)]
pub(super) struct MatrixArgs {
    /// Benchmark.
    ///
    /// Its own arguments follow --.
    #[arg(long, value_name = "NAME")]
    workload: InnerBenchmark,

    /// File systems.
    ///
    /// ext2, ext3, ext4, xfs, btrfs, f2fs, ntfs. Those that this kernel lacks are skipped with a
    /// note.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "ext4,xfs,btrfs",
          value_parser = kind)]
    fs: Vec<&'static Kind>,

    /// Schedulers.
    ///
    /// Schedulers of the device, by their kernel names.
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "none,mq-deadline,bfq,kyber"
    )]
    scheduler: Vec<String>,

    /// Options of file systems, and priority.
    ///
    /// Options of file systems and priority of the benchmark, as in 'tuned=-b 1024; noatime' or
    /// 'tuned=fs: ext4; mkfs: -b 1024; mount: noatime; nice: 5; policy: batch; iopriority: idle'.
    /// May be repeated; 'plain=' is all defaults.
    #[arg(long, value_name = "NAME=PARTS", value_parser = variant, hide_short_help = true)]
    variant: Vec<Variant>,

    /// Size of each device.
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = args::bytes)]
    size: u64,

    /// Directory for the image of the device.
    ///
    /// The image is a sparse file.
    #[arg(long, value_name = "DIRECTORY", default_value = "/var/tmp", hide_short_help = true)]
    scratch: PathBuf,

    /// Arguments of the benchmark, as on its own command line.
    #[arg(value_name = "WORD", last = true)]
    words: Vec<String>,

    #[command(flatten)]
    run_args: RunArgs,
}

fn kind(text: &str) -> Result<&'static Kind, String> {
    let known: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
    Kind::from_name(text).ok_or_else(|| args::unknown("file system", text, known))
}

/// One cell of the matrix.
#[derive(Clone, Copy, Debug)]
struct Cell<'a> {
    kind: &'static Kind,
    variant: &'a Variant,
    scheduler: &'a str,
}

impl Cell<'_> {
    /// Returns the name, as in the original tables: `xfs tuned, mq-deadline`.
    fn name(&self) -> String {
        let Cell { kind, variant, scheduler } = self;
        let blank = if variant.name.is_empty() { "" } else { " " };
        format!("{}{blank}{}, {scheduler}", kind.name, variant.name)
    }

    fn labels(&self) -> BTreeMap<String, String> {
        [
            ("fs".to_owned(), self.kind.name.to_owned()),
            ("scheduler".to_owned(), self.scheduler.to_owned()),
            ("variant".to_owned(), self.variant.name.clone()),
        ]
        .into()
    }
}

/// Results so far.
#[derive(Debug, Default)]
struct MatrixResult {
    parts: Vec<Part>,
    /// Reasons for skipped cells.
    skipped: Vec<String>,
    stopped: bool,
}

impl MatrixResult {
    fn skip(&mut self, reason: String) {
        eprintln!("larder: note: {reason}");
        self.skipped.push(reason);
    }
}

pub(super) fn run(arguments: &MatrixArgs) -> Result<ExitCode> {
    // Errors in the arguments are reported before any file system is created.
    ensure!(
        !arguments.run_args.multi_host.is_enabled(),
        "measure a matrix together with other machines: it is for one"
    );
    check_directory(&arguments.scratch)?;
    let inner = arguments.workload;
    inner.workload(&arguments.scratch, &arguments.words)?;
    let mut results = MatrixResult::default();
    let plain = [Variant::default()];
    let variants = if arguments.variant.is_empty() { &plain[..] } else { &arguments.variant };
    let cells = arguments.cells(variants, &mut results)?;
    ensure!(rustix::process::geteuid().is_root(), "make file systems: it needs root");
    let stop = Stop::listen()?;
    remove_leftovers(&arguments.scratch);
    let before = state::of_machine(&arguments.scratch);
    let result = arguments.run_cells(&cells, &stop, &mut results);
    let changes = SettingChange::between(&before, &state::of_machine(&arguments.scratch));
    let MatrixResult { parts, skipped, stopped } = results;
    if parts.is_empty() {
        print_changes(&changes);
        if !stopped {
            result?;
            bail!("measure anything: no scheduler of --scheduler is left");
        }
        return arguments.run_args.finish("matrix", &stop, Err(BenchError::Stopped));
    }
    let run = arguments.combine(parts, skipped, &changes, result.as_ref().err());
    let code = arguments.run_args.finish("matrix", &stop, Ok(RunResult { run, stopped }));
    print_changes(&changes);
    result.and(code).map(|code| if changes.is_empty() { code } else { ExitCode::from(1) })
}

/// Removes file systems that killed runs have left, and reports them.
fn remove_leftovers(scratch: &Path) {
    let leftovers = remove_left_over(scratch);
    for directory in leftovers.removed {
        eprintln!("larder: removed {}, left by a killed run", directory.display());
    }
    for (directory, reason) in leftovers.stays {
        let directory = directory.display();
        eprintln!("larder: note: {directory} stays, left by a killed run: {reason}");
    }
}

/// Prints the differences from the state before.
fn print_changes(changes: &[SettingChange]) {
    for SettingChange { name, before, after } in changes {
        let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "absent".to_owned());
        let (before, after) = (text(before), text(after));
        eprintln!(
            "larder: changed during the run, here or by other programs: {name} from {before} to \
             {after}"
        );
    }
}

impl MatrixArgs {
    /// Returns all cells, without those whose file system this kernel lacks.
    fn cells<'a>(
        &'a self,
        variants: &'a [Variant],
        results: &mut MatrixResult,
    ) -> Result<Vec<Cell<'a>>> {
        for name in variants.iter().flat_map(Variant::fs) {
            kind(name).map_err(anyhow::Error::msg).context("read a variant")?;
        }
        let mut cells = Vec::new();
        for kind in &self.fs {
            let mut variants = variants.iter().filter(|it| it.is_for(kind.name)).peekable();
            if variants.peek().is_none() {
                results.skip(format!("{} is skipped: no variant applies to it", kind.name));
            } else if !kind.is_in_kernel() {
                let (name, fs_type) = (kind.name, kind.fs_type);
                results.skip(format!("{name} is skipped: this kernel has no {fs_type}"));
                continue;
            } else if kind.maker().is_none() {
                let (maker, package) = (kind.maker, kind.package);
                bail!("find {maker}: it is not installed (on Debian: apt-get install {package})");
            }
            for variant in variants {
                let cell = |scheduler| Cell { kind, variant, scheduler };
                cells.extend(self.scheduler.iter().map(String::as_str).map(cell));
            }
        }
        ensure!(!cells.is_empty(), "measure anything: no file system is left");
        Ok(cells)
    }

    /// Measures cell by cell.
    fn run_cells(&self, cells: &[Cell<'_>], stop: &Stop, results: &mut MatrixResult) -> Result<()> {
        let mut missing: Vec<&str> = Vec::new();
        for (number, cell) in cells.iter().enumerate() {
            if stop.flag().load(Ordering::Relaxed) {
                results.stopped = true;
                return Ok(());
            }
            if missing.contains(&cell.scheduler) {
                continue;
            }
            let name = cell.name();
            let options = ScratchOptions {
                kind: cell.kind,
                bytes: self.size,
                scheduler: cell.scheduler.to_owned(),
                make_options: cell.variant.make_options.clone(),
                mount_options: cell.variant.mount_options.clone(),
            };
            let scratch = match Scratch::make(&self.scratch, &options) {
                Err(ScratchError::NoScheduler { name, known }) => {
                    results.skip(format!("{name} is skipped: this kernel has {known}"));
                    missing.push(cell.scheduler);
                    continue;
                }
                made => made.with_context(|| format!("measure {name}"))?,
            };
            let label = format!("{} of {}, {name}", number + 1, cells.len());
            let result = self.run_cell(cell, scratch.path(), stop, &label);
            // The workload has closed its files; its error takes precedence over one here.
            let removed = scratch.remove().with_context(|| format!("clear up after {name}"));
            let result = match result {
                Err(error) if error.downcast_ref().is_some_and(BenchError::is_stop) => {
                    results.stopped = true;
                    return removed;
                }
                result => result.with_context(|| format!("measure {name}"))?,
            };
            results.stopped = result.stopped;
            results.parts.push(Part { name, labels: cell.labels(), run: result.run });
            removed?;
        }
        Ok(())
    }

    /// Measures one cell, on a mounted file system.
    fn run_cell(
        &self,
        cell: &Cell<'_>,
        directory: &Path,
        stop: &Stop,
        label: &str,
    ) -> Result<RunResult> {
        let mut workload = self.workload.workload(directory, &self.words)?;
        let priority = cell.variant.priority.apply()?;
        let result = self.run_args.run_one(workload.as_mut(), stop, label);
        priority.restore()?;
        let mut result = result?;
        result.run.settings.extend(cell.variant.settings());
        Ok(result)
    }

    /// Combines all cells into one run.
    fn combine(
        &self,
        parts: Vec<Part>,
        skipped: Vec<String>,
        changes: &[SettingChange],
        error: Option<&anyhow::Error>,
    ) -> Run {
        let description =
            format!("{}; {}", parts[0].run.what, format::counted(parts.len() as u64, "cell"));
        let mut run = larder_report::run::gathered(description, parts);
        "matrix".clone_into(&mut run.workload);
        run.settings.insert("workload".to_owned(), self.workload.name().into());
        run.settings.insert("size_bytes".to_owned(), self.size.into());
        run.environment.extend(settings::snapshot(std::slice::from_ref(&self.scratch)));
        run.environment_changes = changes.to_vec();
        let doubt = |text| Doubt { why: DoubtReason::Workload, text };
        run.doubts.extend(skipped.into_iter().map(doubt));
        run.doubts.extend(error.map(|error| doubt(format!("it ended early: {error:#}"))));
        if !changes.is_empty() {
            let text = format!("{} settings of the machine changed during the run", changes.len());
            run.doubts.push(Doubt { why: DoubtReason::SettingsChanged, text });
        }
        run
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: MatrixArgs,
    }

    fn arguments(words: &[&str]) -> MatrixArgs {
        let always = ["matrix", "--workload", "postmark"];
        Line::try_parse_from(always.iter().chain(words)).unwrap().arguments
    }

    #[test]
    fn cells_are_named_as_in_the_tables_of_old() {
        let arguments = arguments(&["--fs", "ext4", "--scheduler", "none,bfq"]);
        let variants = [Variant::default(), variant("tuned=; noatime").unwrap()];
        let names: Vec<String> = match arguments.cells(&variants, &mut MatrixResult::default()) {
            Ok(cells) => cells.iter().map(Cell::name).collect(),
            Err(error) => return larder_testing::skip(format_args!("{error:#}")),
        };
        assert_eq!(names, ["ext4, none", "ext4, bfq", "ext4 tuned, none", "ext4 tuned, bfq"]);
    }

    #[test]
    fn a_file_system_without_a_variant_is_left_out_and_an_unknown_one_refused() {
        let arguments = arguments(&["--fs", "ext4", "--scheduler", "none"]);
        let mut results = MatrixResult::default();
        let only = [variant("x=fs: xfs").unwrap()];
        let error = arguments.cells(&only, &mut results).unwrap_err().to_string();
        assert_eq!(error, "measure anything: no file system is left");
        assert_eq!(results.skipped, ["ext4 is skipped: no variant applies to it"]);
        let wrong = [variant("x=fs: ext5").unwrap()];
        let error = arguments.cells(&wrong, &mut results).unwrap_err();
        assert!(format!("{error:#}").contains("there is no file system \"ext5\""), "{error:#}");
        let known = Line::try_parse_from(["matrix", "--workload", "probe", "--fs", "ext5"]);
        assert!(known.unwrap_err().to_string().contains("did you mean"));
    }
}
