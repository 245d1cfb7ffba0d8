//! The files of `larder demo --keep`: the image, a trace of the requests, and a record of the
//! results. They are written after the last trial, so that an interrupted demo leaves nothing.

use super::disk::{DiskKind, Image};
use super::outcome::Outcome;
use super::{DemoContext, SEED, SIZES};
use crate::free_space;
use anyhow::{Context, Result, ensure};
use larder_host::machine;
use larder_io::owned_file;
use larder_lab::trace::ltr::{Writer, WriterOptions};
use larder_lab::trace::{NameKind, Record};
use larder_report::escape;
use larder_schema::run::{Direction, Run, Sample};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

const IMAGE: &str = "demo.img";
const TRACE: &str = "demo.ltr";
const RECORD: &str = "demo.json";

/// The directory of the files.
#[derive(Debug)]
pub(super) struct KeptFiles<'a> {
    directory: &'a Path,
}

impl<'a> KeptFiles<'a> {
    /// Checks the directory before the demo; it is created if it does not exist.
    ///
    /// # Errors
    /// It has files of an earlier demo, or too little space for an image.
    pub(super) fn prepare(directory: &'a Path, image_bytes: u64) -> Result<Self> {
        let kept = KeptFiles { directory };
        for name in [IMAGE, TRACE, RECORD] {
            let path = kept.path(name);
            ensure!(
                path.symlink_metadata().is_err(),
                "keep the demo in {}: {name} exists; name another directory",
                directory.display()
            );
        }
        let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty());
        let existing =
            if directory.is_dir() { directory } else { parent.unwrap_or(Path::new(".")) };
        // The image of the demo may be on the same disk.
        free_space::check(existing, 2 * image_bytes)?;
        Ok(kept)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn create(&self, name: &str) -> Result<File> {
        let path = self.path(name);
        owned_file::create_new(&path, 0o644).with_context(|| format!("make {}", path.display()))
    }

    /// Writes the files.
    pub(super) fn write(
        &self,
        context: &DemoContext,
        image: &mut Image,
        outcomes: &[(DiskKind, Vec<Outcome>)],
    ) -> Result<()> {
        let shown = || format!("keep the demo in {}", self.directory.display());
        if !self.directory.is_dir() {
            std::fs::create_dir(self.directory).with_context(shown)?;
        }
        image.copy_to(&mut self.create(IMAGE)?).with_context(shown)?;
        let requests = outcomes.iter().flat_map(|(_, outcomes)| outcomes);
        let requests = requests.map(|outcome| &outcome.cached.requests).find(|it| !it.is_empty());
        let trace = self.create(TRACE)?;
        write_trace(trace, requests.map_or(&[], Vec::as_slice)).with_context(shown)?;
        let record = record(context, outcomes).to_json().with_context(shown)?;
        self.create(RECORD)?.write_all(record.as_bytes()).with_context(shown)
    }

    /// Returns the commands that use the files.
    pub(super) fn next_commands(&self) -> String {
        let name = |name: &str| escape::path(&self.path(name)).into_owned();
        format!(
            "Kept: {}, {} and {}. Next:\n  larder size {}\n  larder report {}\n  larder serve {}",
            name(IMAGE),
            name(TRACE),
            name(RECORD),
            name(TRACE),
            name(RECORD),
            name(IMAGE)
        )
    }
}

/// Writes the requests of one trial.
fn write_trace(file: File, requests: &[Record]) -> std::io::Result<()> {
    let mut writer = Writer::new(BufWriter::new(file), WriterOptions::default())?;
    writer.name(NameKind::Volume, 0, "demo")?;
    writer.append(requests)?;
    writer.finish()?.flush()
}

/// Returns the rates as a record, which `larder report` shows and `larder compare` compares.
fn record(context: &DemoContext, outcomes: &[(DiskKind, Vec<Outcome>)]) -> Run {
    let what = "random blocks of 4 KiB, one read to three writes, without and with a cache";
    let mut run = Run::new(what, machine::time_of_day(), machine::machine());
    "demo".clone_into(&mut run.workload);
    run.software.insert("larder".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    let trial_ns = u64::try_from(context.trial.as_nanos()).expect("at most minutes");
    for (name, value) in [("memory_bytes", context.memory), ("trial_ns", trial_ns), ("seed", SEED)]
    {
        run.settings.insert(name.to_owned(), value.into());
    }
    let mut add = |series: String, rate: f64| {
        let sample = Sample::new(series, "operations/s", Some(Direction::Higher));
        run.samples.push(Sample { values: vec![rate], ..sample });
    };
    for (kind, outcomes) in outcomes {
        for Outcome { title, uncached, cached } in outcomes {
            add(format!("{}, {title}, without", kind.name()), *uncached);
            add(format!("{}, {title}, with larder", kind.name()), cached.rate);
        }
    }
    run
}

/// Returns true if the requests of a trial are kept: that of the largest working set on the disk of
/// this machine.
pub(super) fn keeps_requests(kind: DiskKind, title: &str) -> bool {
    kind == DiskKind::Real && SIZES.last().is_some_and(|(_, last)| *last == title)
}
