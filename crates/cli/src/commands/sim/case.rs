//! One trace with one page size: the unit of simulation.

use super::{Level, SimArgs, SplitBy};
use crate::progress;
use anyhow::{Context, Result, ensure};
use indicatif::ProgressBar;
use larder_lab::sim::interner::Interner;
use larder_lab::sim::references::{Batch, By, References, Split};
use larder_lab::trace::{self, Addressing, BoxedSource, OpenOptions, Source};
use larder_report::escape;
use larder_schema::format;
use std::path::{Path, PathBuf};

/// A trace and the way its requests are split.
#[derive(Debug)]
pub(super) struct Case<'a> {
    /// The trace as the user named it.
    pub(super) name: String,
    path: PathBuf,
    arguments: &'a SimArgs,
    split: Split,
}

/// Returns every trace with every requested page size.
pub(super) fn cases(arguments: &SimArgs) -> Result<Vec<Case<'_>>> {
    let mut cases = Vec::new();
    for path in &arguments.traces {
        ensure!(
            path != Path::new("-"),
            "simulate standard input: a trace is read twice, so it must be a file"
        );
        let name = escape::path(path).into_owned();
        let addressing = open(path, arguments)?.addressing();
        let splits = match (addressing, arguments.split) {
            (Addressing::Objects, _) => {
                ensure!(
                    arguments.page_size.is_empty(),
                    "simulate {name} with pages: it is a trace of objects, which have none"
                );
                vec![Split::Objects]
            }
            (_, SplitBy::None) => {
                ensure!(
                    arguments.page_size.is_empty(),
                    "simulate {name} with pages and without: leave out --page-size or --split"
                );
                vec![Split::Requests]
            }
            (_, SplitBy::Pages) if arguments.page_size.is_empty() => {
                let native = Split::native(addressing);
                vec![if arguments.level == Level::Whole { Split::Pages(4096) } else { native }]
            }
            (_, SplitBy::Pages) => arguments.page_size.iter().copied().map(Split::Pages).collect(),
        };
        cases.extend(splits.into_iter().map(|split| Case {
            name: name.clone(),
            path: path.clone(),
            arguments,
            split,
        }));
    }
    Ok(cases)
}

fn open(path: &Path, arguments: &SimArgs) -> Result<BoxedSource> {
    let SimArgs { trace_format: format, max_bad, .. } = *arguments;
    let format_option = "--trace-format";
    let options = OpenOptions { format, format_option, max_bad, ..OpenOptions::default() };
    trace::open(path, &options).context("simulate")
}

impl Case<'_> {
    /// Returns the bytes of a page; `None` if references are not pages.
    pub(super) fn page_bytes(&self) -> Option<u32> {
        self.split.page_bytes()
    }

    /// Opens the trace at its beginning.
    pub(super) fn source(&self) -> Result<BoxedSource> {
        open(&self.path, self.arguments)
    }

    /// Returns the number of distinct pages of the trace.
    pub(super) fn footprint(&self) -> Result<u64> {
        let (mut footprint, mut numbers) = (Interner::new(), Vec::new());
        self.for_each_batch(None, |batch| {
            footprint.numbers(&batch.references, &mut numbers);
            Ok(())
        })?;
        Ok(footprint.len() as u64)
    }

    /// Returns the references from the beginning.
    pub(super) fn references(&self) -> Result<References<BoxedSource>> {
        Ok(References::new(self.source()?, self.split))
    }

    /// Passes all references to `run`, in batches; returns the source, which then knows all names.
    pub(super) fn for_each_batch(
        &self,
        by: Option<By>,
        mut run: impl FnMut(&Batch) -> Result<()>,
    ) -> Result<References<BoxedSource>> {
        let mut references = self.references()?;
        if let Some(by) = by {
            references = references.by(by);
        }
        let mut batch = Batch::default();
        loop {
            references.read_batch(&mut batch).context("simulate")?;
            if batch.references.is_empty() {
                break;
            }
            run(&batch)?;
        }
        Ok(references)
    }

    /// Prints the notes of the reader.
    pub(super) fn print_notes(&self, references: &References<BoxedSource>) {
        for note in references.source().notes() {
            eprintln!("larder: {note}");
        }
        let others = references.counts().others;
        if others > 0 {
            let others = format::count(others);
            eprintln!("larder: {}: {others} requests are no read or write of data", self.name);
        }
    }
}

/// Returns a bar that counts to `references`; hidden if standard error is not a terminal.
pub(super) fn bar(references: u64) -> ProgressBar {
    if crate::output::shows_progress() {
        progress::bar(references, "simulating [{bar:30}] {pos} of {len} references, {eta} left")
    } else {
        ProgressBar::hidden()
    }
}
