//! `larder sim`: hit ratios of a trace, by policy and cache size.
//!
//! Each trace is read twice: first for its footprint, which determines sizes in per cent and the
//! memory of the simulation, then for the caches. So standard input is refused. Every trace and
//! every page size is simulated on its own.

mod case;
mod curves;
mod engine;
mod inputs;
mod sizes;
mod table;

use crate::args;
use crate::args::{FormatArgs, TableFormat};
use crate::commands::trace;
use anyhow::{Context, Result, ensure};
use case::Case;
use clap::{Args, ValueEnum};
use larder_core::policy::PolicyKind;
use larder_host::memory;
use larder_lab::sim::min::{self, Future};
use larder_lab::sim::references::By;
use larder_lab::sim::sweep::{self, Planned};
use larder_lab::trace::Format;
use larder_report::table::Table;
use larder_schema::format;
use sizes::Size;
use std::io::Write;
use std::num::NonZero;
use std::path::PathBuf;
use table::Row;

/// The name of the bound in `--policy`.
const MIN: &str = "min";

#[derive(Debug, Args)]
pub(crate) struct SimArgs {
    /// Traces, each simulated on its own.
    #[arg(required = true, value_name = "TRACE")]
    traces: Vec<PathBuf>,

    /// Format of the traces; if not given, detected by content, or else by the extension.
    #[arg(long, value_name = "FORMAT", value_parser = trace::format, help_heading = "Reading")]
    trace_format: Option<Format>,

    /// Maximum number of bad records that are skipped; one more is an error.
    #[arg(long, value_name = "NUMBER", default_value_t = 0, help_heading = "Reading")]
    max_bad: u64,

    /// Policies by name, separated by commas; "all" for all of them, "min" for the bound.
    #[arg(long, value_name = "POLICIES", default_value = "all", value_delimiter = ',')]
    policy: Vec<String>,

    /// Sizes of caches: 5% of the footprint, 64MiB, 1000p (pages).
    #[arg(long, value_name = "SIZES", default_value = "1%,2%,5%,10%,20%,50%",
          value_delimiter = ',', value_parser = sizes::size)]
    size: Vec<Size>,

    /// Sizes of pages, from 512 to 1MiB; if not given, 4KiB, or the unit of the recording.
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = sizes::page_bytes)]
    page_size: Vec<u32>,

    /// Split requests into pages, or count each as one reference, like other simulators.
    #[arg(long, value_name = "HOW", default_value = "pages")]
    split: SplitBy,

    /// Level of the simulation: replacement only; or the whole cache of the engine on a virtual
    /// clock, with partial pages, write modes, the lazy writer, the dirty limit and a modelled
    /// store; or exactly the work of a server, from its recording (larder serve --record-inputs).
    #[arg(long, value_name = "LEVEL", default_value = "replacement")]
    level: Level,

    /// Hit-ratio curve, estimated from a sample of the pages, with error bars; or exact, for lru
    /// only.
    #[arg(long, value_name = "HOW", num_args = 0..=1, default_missing_value = "sampled")]
    curve: Option<Curve>,

    /// A curve for each volume, file, process or operation, as if it had a cache of its own.
    #[arg(long, value_name = "WHAT", requires = "curve", value_parser = by)]
    by: Option<By>,

    /// Seed of the random choices of a sample.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,

    /// Threads that run the caches; as many as there are cores, if not given. Results do not depend
    /// on it.
    #[arg(long, value_name = "NUMBER", value_parser = args::threads)]
    threads: Option<NonZero<usize>>,

    #[command(flatten)]
    format: FormatArgs<TableFormat>,

    #[command(flatten)]
    whole: engine::ParsedEngineArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Level {
    /// Only the policies.
    Replacement,
    /// The whole cache.
    Whole,
    /// The cache of a server, replayed from its inputs: TRACE is a file of --record-inputs.
    Inputs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum SplitBy {
    /// One reference for each page that a request touches.
    Pages,
    /// One reference for each request, named by its offset.
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Curve {
    /// Counts every reference.
    Exact,
    /// Estimates from a sample of fixed size.
    Sampled,
}

fn by(text: &str) -> Result<By, String> {
    let names = By::ALL.map(By::name).join(", ");
    let found = By::ALL.into_iter().find(|by| by.name() == text);
    found.ok_or_else(|| format!("\"{text}\" is none of {names}"))
}

/// The policies of `--policy`, each once, and true if it includes the bound.
#[derive(Debug, PartialEq, Eq)]
struct Policies {
    kinds: Vec<PolicyKind>,
    min: bool,
}

impl Policies {
    fn parse(names: &[String]) -> Result<Self> {
        let mut policies = Policies { kinds: Vec::new(), min: false };
        for name in names {
            let more = match name.as_str() {
                "all" => PolicyKind::ALL.to_vec(),
                MIN => {
                    policies.min = true;
                    continue;
                }
                other => {
                    let kind = args::named::<PolicyKind>(other).map_err(anyhow::Error::msg);
                    vec![kind.context("choose policies")?]
                }
            };
            for kind in more {
                if !policies.kinds.contains(&kind) {
                    policies.kinds.push(kind);
                }
            }
        }
        Ok(policies)
    }
}

pub(crate) fn run(arguments: &SimArgs) -> Result<()> {
    let policies = Policies::parse(&arguments.policy)?;
    let engine_options = &arguments.whole.option_names;
    ensure!(
        arguments.level == Level::Whole || engine_options.is_empty(),
        "simulate with {}: that is for --level whole",
        engine_options.join(", ")
    );
    match arguments.level {
        Level::Replacement => {}
        Level::Whole => return run_whole(&policies, arguments),
        Level::Inputs => return inputs::run(arguments),
    }
    let mut rows = Vec::new();
    for case in case::cases(arguments)? {
        match arguments.curve {
            None => rows.extend(simulate(&case, &policies, arguments)?),
            Some(curve) => rows.extend(curves::run(&case, curve, &policies, arguments)?),
        }
    }
    print(&table::from_rows(&rows, arguments.by), arguments.format.get())
}

fn run_whole(policies: &Policies, arguments: &SimArgs) -> Result<()> {
    ensure!(arguments.curve.is_none(), "simulate the whole cache: it gives no curve, only sizes");
    ensure!(
        arguments.split == SplitBy::Pages,
        "simulate the whole cache: its requests are always split into pages"
    );
    let mut runs = Vec::new();
    for case in case::cases(arguments)? {
        runs.extend(engine::run(&case, policies, arguments)?);
    }
    let table = match arguments.format.get() {
        TableFormat::Text => engine::short_table(&runs),
        TableFormat::Csv | TableFormat::Json => engine::full_table(&runs),
    };
    print(&table, arguments.format.get())
}

fn print(table: &Table, format: TableFormat) -> Result<()> {
    let text = match format {
        TableFormat::Text => table.to_text(),
        TableFormat::Csv => table.to_csv(),
        TableFormat::Json => format!("{:#}\n", table::json(table)),
    };
    // A closed pipe is not a failure, so the error must reach the caller without context.
    Ok(crate::output::stdout().write_all(text.as_bytes())?)
}

/// Simulates every policy at every size.
fn simulate(case: &Case, policies: &Policies, arguments: &SimArgs) -> Result<Vec<Row>> {
    let (mut references, mut footprint) = (0, larder_lab::sim::interner::Interner::new());
    let mut numbers = Vec::new();
    let read = case.for_each_batch(None, |batch| {
        references += batch.references.len() as u64;
        footprint.numbers(&batch.references, &mut numbers);
        Ok(())
    })?;
    case.print_notes(&read);
    let pages = footprint.len() as u64;
    drop(footprint);
    ensure!(references > 0, "simulate {}: it has no read and no write", case.name);
    let mut capacities = Vec::new();
    for size in &arguments.size {
        let pages = size.pages(case.page_bytes(), pages)?;
        capacities.push(sizes::capacity(pages)?);
    }
    let plan: Vec<Planned> = policies
        .kinds
        .iter()
        .flat_map(|&policy| capacities.iter().map(move |&capacity| Planned { policy, capacity }))
        .collect();
    let mut rows = Vec::new();
    if !plan.is_empty() {
        let threads = arguments.threads.unwrap_or_else(args::cores);
        let bar = case::bar(references);
        let counts = sweep::run(case.references()?, &plan, Some(pages), threads, |done| {
            bar.set_position(done);
        })
        .context("simulate")?;
        bar.finish_and_clear();
        let counted = plan.iter().zip(counts).map(|(planned, counts)| {
            Row::counted(case, planned.policy.name(), planned.capacity, counts).compulsory(pages)
        });
        rows.extend(counted);
    }
    if policies.min {
        let available = memory::available_bytes().unwrap_or(u64::MAX);
        match check_memory(&case.name, min::memory_bytes(references, pages), available) {
            Ok(()) => rows.extend(bound(case, &capacities, pages)?),
            Err(error) if rows.is_empty() => return Err(error),
            Err(error) => eprintln!("larder: note: {error}"),
        }
    }
    Ok(rows)
}

/// Refuses the bound if it would take more than half of the available memory.
fn check_memory(name: &str, bytes: u64, available: u64) -> Result<()> {
    ensure!(
        bytes <= available / 2,
        "simulate {name} with min: it takes {} of memory, and half of what is available is {}; \
         leave out min, or shorten the trace with larder trace filter",
        format::bytes(bytes),
        format::bytes(available / 2)
    );
    Ok(())
}

/// Computes MIN at every size, over a trace of `pages` pages.
fn bound(case: &Case, capacities: &[u32], pages: u64) -> Result<Vec<Row>> {
    let mut future = Future::new();
    case.for_each_batch(None, |batch| Ok(future.add(&batch.references)?))?;
    let known = future.known();
    let row = |&capacity: &u32| {
        let found = known.run(capacity);
        let row = Row::counted(case, MIN, capacity, found.counts);
        row.compulsory(pages).written(found.write_backs)
    };
    Ok(capacities.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_takes_at_most_half_of_the_available_memory() {
        assert!(check_memory("t.csv", 100, 200).is_ok());
        let error = format!("{:#}", check_memory("t.csv", 101 << 20, 200 << 20).unwrap_err());
        assert!(error.starts_with("simulate t.csv with min: it takes 101 MiB"), "{error}");
    }

    #[test]
    fn policies_are_named_once_and_the_bound_beside_them() {
        let parse =
            |text: &str| Policies::parse(&text.split(',').map(str::to_owned).collect::<Vec<_>>());
        let found = parse("arc,lru,arc,min").unwrap();
        assert_eq!(found, Policies { kinds: vec![PolicyKind::Arc, PolicyKind::Lru], min: true });
        assert_eq!(parse("all,lru").unwrap().kinds, PolicyKind::ALL);
        let error = format!("{:#}", parse("lrv").unwrap_err());
        assert!(error.starts_with("choose policies: there is no policy \"lrv\""), "{error}");
    }
}
