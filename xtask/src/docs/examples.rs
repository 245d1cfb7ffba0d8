//! The examples of README.md and docs/: each is run, and its output compared with what the page
//! shows, or written to the page.
//!
//! A fence of kind `console` has commands after `$ ` and their output; one of kind `sh` has only
//! commands, which must succeed. All examples of a page run in one shell, in order, in an empty
//! directory. A comment directly before a fence changes this, with one line for each of:
//!
//! ```text
//! <!--
//! run: a command that the reader does not see; may be repeated
//! needs: root, /dev/fuse, fio
//! figures vary
//! not run: the reason
//! -->
//! ```
//!
//! Commands find the source tree by the variable `LARDER_SOURCE`. `figures vary` compares the
//! output without its numbers, units and columns. A line `...` of an output stands for any lines.

mod page;
mod session;
mod shape;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::run;
use page::{Example, Kind, Page};
use session::Session;

/// The counts of examples, for the summary.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    run: usize,
    not_run: Vec<String>,
    wrong: usize,
}

/// Runs the examples of the pages whose path contains `filter`; `write` replaces the output in the
/// pages. Returns true if all are as shown.
pub(super) fn run(larder: &Path, filter: &str, write: bool) -> Result<bool> {
    let root = run::workspace()?;
    let mut counts = Counts::default();
    for path in pages(&root)? {
        let name = path.strip_prefix(&root).unwrap_or(&path).display().to_string();
        if name.contains(filter) {
            run_page(larder, &path, &name, write, &mut counts)
                .with_context(|| format!("run the examples of {name}"))?;
        }
    }
    for line in &counts.not_run {
        println!("not run: {line}");
    }
    let (run, not_run, wrong) = (counts.run, counts.not_run.len(), counts.wrong);
    println!("examples: {run} run, {not_run} not run, {wrong} wrong");
    Ok(wrong == 0)
}

/// Returns the pages that may have examples, sorted.
fn pages(root: &Path) -> Result<Vec<PathBuf>> {
    let mut pages = vec![root.join("README.md")];
    for directory in [root.join("docs"), root.join("docs/recipes")] {
        let Ok(entries) = std::fs::read_dir(&directory) else { continue };
        for entry in entries {
            let path = entry.with_context(|| format!("list {}", directory.display()))?.path();
            if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    Ok(pages)
}

fn run_page(
    larder: &Path,
    path: &Path,
    name: &str,
    write: bool,
    counts: &mut Counts,
) -> Result<()> {
    let text = std::fs::read_to_string(path).context("read the page")?;
    let mut page = Page::parse(&text)?;
    let is_run = |example: &Example| example.unmet_requirement().is_none();
    if !page.examples().any(is_run) {
        counts.not_run.extend(page.examples().filter_map(|example| {
            Some(format!("{name}:{}: {}", example.line, example.unmet_requirement()?))
        }));
        return Ok(());
    }
    let mut session = Session::start(larder)?;
    for example in page.examples_mut() {
        let at = format!("{name}:{}", example.line);
        if let Some(reason) = example.unmet_requirement() {
            counts.not_run.push(format!("{at}: {reason}"));
            continue;
        }
        counts.run += 1;
        let wrong = run_example(&mut session, example, write).with_context(|| at.clone())?;
        for difference in &wrong {
            println!("{at}: {difference}");
        }
        counts.wrong += usize::from(!wrong.is_empty());
    }
    session.end()?;
    if write {
        let fresh = page.to_text();
        if fresh != text {
            std::fs::write(path, fresh).context("write the page")?;
            println!("wrote {name}");
        }
    }
    Ok(())
}

/// Runs an example; returns its differences.
fn run_example(session: &mut Session, example: &mut Example, write: bool) -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for command in &example.setup {
        let printed = session.run(command, 0)?;
        if printed.status != 0 {
            wrong.push(format!("$ {command}\n{}: status {}", printed.text, printed.status));
        }
    }
    let varies = example.figures_vary;
    for command in &mut example.commands {
        let printed = session.run(&command.text, command.output.len())?;
        if example.kind == Kind::Script {
            if printed.status != 0 {
                wrong.push(format!("{}\n{}", command.text, printed.text));
            }
            continue;
        }
        let fresh: Vec<String> = printed.text.lines().map(str::to_owned).collect();
        if shape::matches(&command.output, &fresh, varies) {
            continue;
        }
        if write {
            match shape::fill(&command.output, &fresh) {
                Some(lines) => command.output = lines,
                None => wrong.push(shape::difference(&command.text, &command.output, &fresh)),
            }
        } else {
            wrong.push(shape::difference(&command.text, &command.output, &fresh));
        }
    }
    Ok(wrong)
}
