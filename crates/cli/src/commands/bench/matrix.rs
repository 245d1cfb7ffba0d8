//! `larder bench matrix`: a benchmark on several file systems, schedulers and variants;
//! docs/bench-matrix.md.
//!
//! Invariants: each cell works on a file system and a loop device that are made for it and gone
//! before the next; whatever way it ends, the machine is compared with what it was, and what
//! differs is said.

mod variant;

use super::embedded::Inner;
use super::run_args::RunArgs;
use crate::args;
use crate::signals::Stop;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use larder_host::scratch::{KINDS, Kind, Scratch, ScratchError, ScratchOptions, remove_left_over};
use larder_host::{settings, state};
use larder_lab::bench::{BenchError, Doubt, DoubtReason, RunResult};
use larder_report::run::Run;
use larder_report::run::parts::Part;
use larder_report::run::trial::SettingChange;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use variant::{Variant, variant};

#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// The benchmark. Its own words stand behind --.
    #[arg(long, value_name = "BENCHMARK")]
    workload: Inner,

    /// File systems: ext2, ext3, ext4, xfs, btrfs, f2fs, ntfs. One that this kernel lacks is left
    /// out, and that is said.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "ext4,xfs,btrfs",
          value_parser = kind)]
    fs: Vec<&'static Kind>,

    /// Schedulers of the device, as the kernel calls them.
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "none,mq-deadline,bfq,kyber"
    )]
    scheduler: Vec<String>,

    /// How file systems are made and mounted and how the benchmark is favoured, as in
    /// 'tuned=-b 1024; noatime' or 'tuned=fs: ext4; mkfs: -b 1024; mount: noatime; nice: 5;
    /// policy: batch; iopriority: idle'. May be repeated; 'plain=' is all defaults.
    #[arg(long, value_name = "NAME=PARTS", value_parser = variant)]
    variant: Vec<Variant>,

    /// Size of each device.
    #[arg(long, value_name = "SIZE", default_value = "4GiB", value_parser = args::bytes)]
    size: u64,

    /// The directory for its image, which takes no more room than is written.
    #[arg(long, value_name = "DIRECTORY", default_value = "/var/tmp")]
    scratch: PathBuf,

    #[command(flatten)]
    playing: RunArgs,

    /// Words for the benchmark, as it takes them outside of a matrix.
    #[arg(value_name = "WORD", last = true)]
    words: Vec<String>,
}

fn kind(text: &str) -> Result<&'static Kind, String> {
    let known: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
    Kind::from_name(text).ok_or_else(|| args::unknown("file system", text, known))
}

/// One place of the matrix.
#[derive(Clone, Copy, Debug)]
struct Cell<'a> {
    kind: &'static Kind,
    variant: &'a Variant,
    scheduler: &'a str,
}

impl Cell<'_> {
    /// As in the tables of old: `xfs tuned, mq-deadline`.
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

/// What came out so far.
#[derive(Debug, Default)]
struct Done {
    parts: Vec<Part>,
    /// Why something was left out.
    left_out: Vec<String>,
    stopped: bool,
}

impl Done {
    fn leave_out(&mut self, why: String) {
        eprintln!("larder: note: {why}");
        self.left_out.push(why);
    }
}

pub(super) fn run(arguments: &Arguments) -> Result<ExitCode> {
    // What is wrong is said before anything is made.
    ensure!(
        !arguments.playing.together.is_asked(),
        "measure a matrix together with other machines: it is for one"
    );
    ensure!(
        arguments.scratch.is_dir(),
        "make images in {}: it is no directory",
        arguments.scratch.display()
    );
    let inner = arguments.workload;
    inner.workload(&arguments.scratch, &arguments.words)?;
    let mut done = Done::default();
    let plain = [Variant::default()];
    let variants = if arguments.variant.is_empty() { &plain[..] } else { &arguments.variant };
    let cells = arguments.cells(variants, &mut done)?;
    ensure!(rustix::process::geteuid().is_root(), "make file systems: it needs root");
    let stop = Stop::listen()?;
    clear_up(&arguments.scratch);
    let before = state::of_machine(&arguments.scratch);
    let result = arguments.run_cells(&cells, &stop, &mut done);
    let changes = SettingChange::between(&before, &state::of_machine(&arguments.scratch));
    let Done { parts, left_out, stopped } = done;
    if parts.is_empty() {
        say_changes(&changes);
        let error = result.err().unwrap_or(BenchError::Stopped.into());
        if !stopped {
            return Err(error);
        }
        return arguments.playing.finish("matrix", (stop, Err(BenchError::Stopped)));
    }
    let run = arguments.gather(parts, left_out, &changes, result.as_ref().err());
    let code = arguments.playing.finish("matrix", (stop, Ok(RunResult { run, stopped })));
    say_changes(&changes);
    result.and(code).map(|code| if changes.is_empty() { code } else { ExitCode::from(1) })
}

/// Removes what runs that were killed have left; says so.
fn clear_up(scratch: &Path) {
    let left = remove_left_over(scratch);
    for directory in left.removed {
        eprintln!("larder: removed {}, which a run that was killed had left", directory.display());
    }
    for (directory, why) in left.stays {
        let directory = directory.display();
        eprintln!("larder: note: {directory} stays, which a run that was killed had left: {why}");
    }
}

/// Says what is not as it was.
fn say_changes(changes: &[SettingChange]) {
    for SettingChange { name, before, after } in changes {
        let shown =
            |value: &Option<String>| value.clone().unwrap_or_else(|| "not there".to_owned());
        let (before, after) = (shown(before), shown(after));
        eprintln!("larder: not as before (others count too): {name} was {before}, is {after}");
    }
}

impl Arguments {
    /// All cells, without those whose file system this kernel lacks.
    fn cells<'a>(&'a self, variants: &'a [Variant], done: &mut Done) -> Result<Vec<Cell<'a>>> {
        for name in variants.iter().flat_map(Variant::fs) {
            kind(name).map_err(anyhow::Error::msg).context("read a variant")?;
        }
        let mut cells = Vec::new();
        for kind in &self.fs {
            let mut variants = variants.iter().filter(|it| it.is_for(kind.name)).peekable();
            if variants.peek().is_none() {
                done.leave_out(format!("{} is left out: no variant is for it", kind.name));
            } else if !kind.is_in_kernel() {
                let (name, fs_type) = (kind.name, kind.fs_type);
                done.leave_out(format!("{name} is left out: this kernel has no {fs_type}"));
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
    fn run_cells(&self, cells: &[Cell<'_>], stop: &Stop, done: &mut Done) -> Result<()> {
        let mut missing: Vec<&str> = Vec::new();
        for (number, cell) in cells.iter().enumerate() {
            if stop.flag().load(Ordering::Relaxed) {
                done.stopped = true;
                return Ok(());
            }
            if missing.contains(&cell.scheduler) {
                continue;
            }
            let name = cell.name();
            let wanted = ScratchOptions {
                kind: cell.kind,
                bytes: self.size,
                scheduler: cell.scheduler.to_owned(),
                make_options: cell.variant.make_options.clone(),
                mount_options: cell.variant.mount_options.clone(),
            };
            let scratch = match Scratch::make(&self.scratch, &wanted) {
                Err(ScratchError::NoScheduler { name, known }) => {
                    done.leave_out(format!("{name} is left out: this kernel has {known}"));
                    missing.push(cell.scheduler);
                    continue;
                }
                made => made.with_context(|| format!("measure {name}"))?,
            };
            let shown = format!("{} of {}, {name}", number + 1, cells.len());
            let played = self.run_cell(cell, scratch.path(), stop, &shown);
            // Nothing of the workload is open any more; an error of it is worth more than one here.
            let removed = scratch.remove().with_context(|| format!("clear up after {name}"));
            let played = match played {
                Err(error) if error.downcast_ref().is_some_and(BenchError::is_stop) => {
                    done.stopped = true;
                    return removed;
                }
                played => played.with_context(|| format!("measure {name}"))?,
            };
            done.stopped = played.stopped;
            done.parts.push(Part { name, labels: cell.labels(), run: played.run });
            removed?;
        }
        Ok(())
    }

    /// One cell, on a file system that is mounted.
    fn run_cell(
        &self,
        cell: &Cell<'_>,
        directory: &Path,
        stop: &Stop,
        shown: &str,
    ) -> Result<RunResult> {
        let mut workload = self.workload.workload(directory, &self.words)?;
        let changed = cell.variant.priority.apply()?;
        let played = self.playing.play_part(workload.as_mut(), stop, shown);
        changed.restore()?;
        let mut played = played?;
        played.run.settings.extend(cell.variant.settings());
        Ok(played)
    }

    /// All cells as one run.
    fn gather(
        &self,
        parts: Vec<Part>,
        left_out: Vec<String>,
        changes: &[SettingChange],
        error: Option<&anyhow::Error>,
    ) -> Run {
        let what = format!("{} in {} ways", parts[0].run.what, parts.len());
        let mut run = Run::gathered(what, parts);
        "matrix".clone_into(&mut run.workload);
        run.settings.insert("workload".to_owned(), self.workload.name().into());
        run.settings.insert("size_bytes".to_owned(), self.size.into());
        run.environment.extend(settings::snapshot(std::slice::from_ref(&self.scratch)));
        run.environment_changes = changes.to_vec();
        let doubt = |text| Doubt { why: DoubtReason::Workload, text };
        run.doubts.extend(left_out.into_iter().map(doubt));
        run.doubts.extend(error.map(|error| doubt(format!("it ended early: {error:#}"))));
        if !changes.is_empty() {
            let text = format!("the machine is not as before in {} places", changes.len());
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
        arguments: Arguments,
    }

    fn arguments(words: &[&str]) -> Arguments {
        let always = ["matrix", "--workload", "postmark"];
        Line::try_parse_from(always.iter().chain(words)).unwrap().arguments
    }

    #[test]
    fn cells_are_named_as_in_the_tables_of_old() {
        let arguments = arguments(&["--fs", "ext4", "--scheduler", "none,bfq"]);
        let variants = [Variant::default(), variant("tuned=; noatime").unwrap()];
        let names: Vec<String> = match arguments.cells(&variants, &mut Done::default()) {
            Ok(cells) => cells.iter().map(Cell::name).collect(),
            Err(why) => return larder_testing::skip(format_args!("{why:#}")),
        };
        assert_eq!(names, ["ext4, none", "ext4, bfq", "ext4 tuned, none", "ext4 tuned, bfq"]);
    }

    #[test]
    fn a_file_system_without_a_variant_is_left_out_and_an_unknown_one_refused() {
        let arguments = arguments(&["--fs", "ext4", "--scheduler", "none"]);
        let mut done = Done::default();
        let only = [variant("x=fs: xfs").unwrap()];
        let error = arguments.cells(&only, &mut done).unwrap_err().to_string();
        assert_eq!(error, "measure anything: no file system is left");
        assert_eq!(done.left_out, ["ext4 is left out: no variant is for it"]);
        let wrong = [variant("x=fs: ext5").unwrap()];
        let error = arguments.cells(&wrong, &mut done).unwrap_err();
        assert!(format!("{error:#}").contains("there is no file system \"ext5\""), "{error:#}");
        let known = Line::try_parse_from(["matrix", "--workload", "probe", "--fs", "ext5"]);
        assert!(known.unwrap_err().to_string().contains("did you mean"));
    }
}
