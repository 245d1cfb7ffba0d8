//! `larder sim`: hit ratios of a trace, by policy and cache size.
//!
//! Each trace is read twice, so standard input is refused. Every trace and every page size is
//! simulated on its own.

mod engine;
mod inputs;

use crate::args;
use crate::args::{FormatArgs, NamedValue as _, TableFormat};
use crate::commands::trace::{InputArgs, SAMPLE_NAME, open_trace};
use crate::progress::StepBar;
use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use larder_core::curve::choice::PolicyChoice;
use larder_core::policy::PolicyKind;
use larder_host::memory;
use larder_lab::sim::references::{ReferenceKey, Split};
use larder_lab::sim::study::{self, Case, CurveKind, MIN, Size, StudyOptions};
use larder_lab::trace::Addressing;
use larder_report::escape;
use larder_report::table::Table;
use std::collections::HashSet;
use std::io::Write;
use std::num::NonZero;
use std::path::{Path, PathBuf};

/// Parts of a server that `--level replacement` leaves out.
const LEFT_OUT: [&str; 5] =
    ["read-ahead", "partial pages", "write modes", "lazy writes", "the store's times"];
/// Minimum size of a page of the whole cache in bytes.
const BLOCK_BYTES: u32 = 4096;
/// Minimum size of a page in bytes.
const PAGE_BYTES_MIN: u32 = 512;

#[derive(Debug, Args)]
#[command(override_usage = "larder sim [OPTIONS] TRACE... | --sample")]
pub(crate) struct SimArgs {
    /// Traces, each simulated on its own.
    #[arg(value_name = "TRACE", required_unless_present = "sample")]
    traces: Vec<PathBuf>,

    /// Simulate the built-in sample trace.
    ///
    /// The trace is described at larder size --sample.
    #[arg(long, conflicts_with = "traces")]
    sample: bool,

    #[command(flatten)]
    input: InputArgs,

    /// Policies, all, auto, or min (bound).
    ///
    /// Policies by name, separated by commas; "all" for all of them, "auto" for the policy that the
    /// cache chooses, "min" for the bound.
    #[arg(long, value_name = "POLICIES", default_value = "all", value_delimiter = ',')]
    policy: Vec<String>,

    /// Cache sizes.
    ///
    /// Sizes of caches: 5% of the footprint, 64MiB, 1000p (pages).
    #[arg(long, value_name = "SIZES", default_value = "1%,2%,5%,10%,20%,50%",
          value_delimiter = ',', value_parser = size)]
    size: Vec<Size>,

    /// Page sizes, from 512 to 1MiB.
    ///
    /// If not given, 4KiB, or the unit of the recording.
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = page_bytes)]
    page_size: Vec<u32>,

    /// References of a request: of its pages, or one.
    ///
    /// One reference for each page of a request (pages), or one in all (none), like other
    /// simulators.
    #[arg(long, value_name = "pages|none", default_value = "pages", hide_short_help = true)]
    split: SplitBy,

    /// Level: whole, replacement or inputs.
    ///
    /// Whole, the default: the cache of the server on a virtual clock, with partial pages,
    /// read-ahead, write modes, the lazy writer, the dirty limit and a modeled store. Replacement:
    /// the policies only; the default for curves, min, objects and requests without pages. Inputs:
    /// exactly the work of a server, from its recording (larder serve --record-inputs).
    #[arg(long, value_name = "LEVEL", hide_possible_values = true)]
    level: Option<Level>,

    /// Hit-ratio curve: sampled, or exact for lru only.
    ///
    /// Estimated from a sample of the pages, with error bars (sampled, also if no value is given),
    /// or counted, for lru only (exact).
    #[arg(long, value_name = "KIND", num_args = 0..=1, default_missing_value = "sampled",
          hide_possible_values = true)]
    curve: Option<Curve>,

    /// Curves by volume, file, process or operation.
    ///
    /// Each has a curve as if it had a cache of its own.
    #[arg(long, value_name = "KIND", requires = "curve",
          value_parser = by)]
    by: Option<ReferenceKey>,

    /// Seed of the random choices of a sample.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, hide_short_help = true)]
    seed: u64,

    /// Threads; as many as cores, if not given.
    ///
    /// Threads that run the caches. Results do not depend on their number.
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

fn by(text: &str) -> Result<ReferenceKey, String> {
    let found = ReferenceKey::ALL.into_iter().find(|by| by.name() == text);
    args::one_of("kind of curve", text, found, &ReferenceKey::ALL.map(ReferenceKey::name))
}

/// The policies of `--policy`, each once, and true if it includes the bound.
#[derive(Debug, PartialEq, Eq)]
struct Policies {
    kinds: Vec<PolicyChoice>,
    min: bool,
}

impl Policies {
    fn parse(names: &[String]) -> Result<Self> {
        let mut policies = Policies { kinds: Vec::new(), min: false };
        for name in names {
            let more = match name.as_str() {
                "all" => PolicyKind::ALL.map(PolicyChoice::Fixed).to_vec(),
                MIN => {
                    policies.min = true;
                    continue;
                }
                other => {
                    let kind = args::named::<PolicyChoice>(other).ok();
                    let names = [&PolicyChoice::names()[..], &["all", MIN]].concat();
                    let kind = args::one_of(PolicyKind::KIND, other, kind, &names);
                    vec![kind.map_err(anyhow::Error::msg).context("choose policies")?]
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

/// Parses `5%`, `64MiB` or `1000p`.
fn size(text: &str) -> Result<Size, String> {
    let error = || format!("\"{text}\" is not a size; write 5%, 64MiB or 1000p");
    // A number without a unit is bytes; fewer than the smallest page were hardly meant.
    if text.parse().is_ok_and(|bytes: u64| (1..u64::from(PAGE_BYTES_MIN)).contains(&bytes)) {
        return Err(format!("\"{text}\" has no unit; write {text}MiB, {text}p (pages) or {text}%"));
    }
    if let Some(percent) = text.strip_suffix('%') {
        let percent = percent.parse().ok().filter(|percent| (0.0..=1e6).contains(percent));
        return percent.filter(|&percent| percent > 0.0).map(Size::Percent).ok_or_else(error);
    }
    if let Some(pages) = text.strip_suffix('p') {
        let pages = pages.parse().ok().filter(|&pages| pages > 0);
        return pages.map(Size::Pages).ok_or_else(error);
    }
    args::bytes(text).ok().filter(|&bytes| bytes > 0).map(Size::Bytes).ok_or_else(error)
}

/// Parses the size of a page: a power of two from 512 bytes to 1 MiB.
fn page_bytes(text: &str) -> Result<u32, String> {
    let bytes = args::bytes(text)?;
    u32::try_from(bytes)
        .ok()
        .filter(|bytes| bytes.is_power_of_two() && (PAGE_BYTES_MIN..=1 << 20).contains(bytes))
        .ok_or_else(|| format!("\"{text}\" is no page size; write a power of two, 512 to 1MiB"))
}

pub(crate) fn run(arguments: &SimArgs) -> Result<()> {
    let policies = Policies::parse(&arguments.policy)?;
    let engine_options = &arguments.whole.option_names;
    let level = match arguments.level {
        Some(level) => level,
        None => default_level(&policies, arguments)?,
    };
    ensure!(
        level == Level::Whole || engine_options.is_empty(),
        "simulate with {}: add --level whole",
        engine_options.join(", ")
    );
    match level {
        Level::Whole => {
            let has_run = engine::run(&policies, arguments)?;
            if has_run { Ok(()) } else { run_replacement(policies, arguments) }
        }
        Level::Replacement => run_replacement(policies, arguments),
        Level::Inputs => inputs::run(arguments),
    }
}

/// Returns the level that these options and traces have: the whole cache, unless something needs
/// replacement alone.
fn default_level(policies: &Policies, arguments: &SimArgs) -> Result<Level> {
    let has_small_pages = arguments.page_size.iter().any(|&bytes| bytes < BLOCK_BYTES);
    if arguments.curve.is_some()
        || arguments.split == SplitBy::None
        || policies.min
        || has_small_pages
    {
        return Ok(Level::Replacement);
    }
    for path in arguments.traces.iter().filter(|path| path.as_path() != Path::new("-")) {
        let source = open_trace(Some(path), &arguments.input.options())?;
        if source.addressing() == Addressing::Objects {
            return Ok(Level::Replacement);
        }
    }
    Ok(Level::Whole)
}

fn run_replacement(policies: Policies, arguments: &SimArgs) -> Result<()> {
    let options = StudyOptions {
        policies: policies.kinds,
        is_default: arguments.policy == ["all"],
        min: policies.min,
        sizes: arguments.size.clone(),
        curve: arguments.curve.map(|curve| match curve {
            Curve::Exact => CurveKind::Exact,
            Curve::Sampled => CurveKind::Sampled,
        }),
        by: arguments.by,
        seed: arguments.seed,
        threads: arguments.threads.unwrap_or_else(args::cores),
        available_bytes: memory::available_bytes().unwrap_or(u64::MAX),
    };
    let mut rows = Vec::new();
    // Each page size of a trace has the same notes.
    let mut shown = HashSet::new();
    for_each_case(arguments, Level::Replacement, |case, bar| {
        let note = &mut |note: String| {
            if shown.insert((case.name.clone(), note.clone())) {
                eprintln!("larder: note: {note}");
            }
        };
        rows.extend(study::run(case, &options, &mut |progress| bar.show(progress), note)?);
        Ok(())
    })?;
    eprintln!("larder: note: only replacement is simulated, without {}", LEFT_OUT.join(", "));
    print(&study::from_rows(&rows, arguments.by), arguments.format.get(), &LEFT_OUT)
}

/// Calls `run` with every trace at every requested page size.
fn for_each_case(
    arguments: &SimArgs,
    level: Level,
    mut run: impl FnMut(&Case<'_>, &mut StepBar) -> Result<()>,
) -> Result<()> {
    let mut cases = Vec::new();
    let files = arguments.traces.iter().map(|path| Some(path.as_path()));
    for path in files.chain(arguments.sample.then_some(None)) {
        ensure!(
            path != Some(Path::new("-")),
            "simulate standard input: a trace is read twice, so it must be a file"
        );
        let name = path.map_or(SAMPLE_NAME.into(), |path| escape::path(path).into_owned());
        let source = open_trace(path, &arguments.input.options())?;
        let splits = splits(arguments, level, &name, source.addressing())?;
        cases.extend(splits.into_iter().map(|split| (path, name.clone(), split)));
    }
    let options = arguments.input.options();
    for (path, name, split) in cases {
        let mut bar = StepBar::default();
        run(&Case { name, open: &|| open_trace(path, &options), split }, &mut bar)?;
    }
    Ok(())
}

/// Returns the ways in which the requests of a trace are split.
fn splits(
    arguments: &SimArgs,
    level: Level,
    name: &str,
    addressing: Addressing,
) -> Result<Vec<Split>> {
    let page_sizes = &arguments.page_size;
    Ok(match (addressing, arguments.split) {
        (Addressing::Objects, _) => {
            ensure!(
                page_sizes.is_empty(),
                "simulate {name} with pages: it is a trace of objects, which have none"
            );
            vec![Split::Objects]
        }
        (_, SplitBy::None) => {
            ensure!(
                page_sizes.is_empty(),
                "simulate {name} with pages and without: leave out --page-size or --split"
            );
            vec![Split::Requests]
        }
        (_, SplitBy::Pages) if !page_sizes.is_empty() => {
            page_sizes.iter().copied().map(Split::Pages).collect()
        }
        (_, SplitBy::Pages) if level == Level::Whole => vec![Split::Pages(BLOCK_BYTES)],
        (_, SplitBy::Pages) => vec![Split::native(addressing)],
    })
}

/// Prints a table; `left_out` is what its simulation does not have.
fn print(table: &Table, format: TableFormat, left_out: &[&str]) -> Result<()> {
    let text = match format {
        TableFormat::Text => table.to_text(),
        TableFormat::Csv => table.to_csv(),
        TableFormat::Json => format!("{:#}\n", study::json(table, left_out)),
    };
    // A closed pipe is not a failure, so the error must reach the caller without context.
    Ok(crate::output::stdout().write_all(text.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_per_cent_bytes_or_pages() {
        assert_eq!(size("10%"), Ok(Size::Percent(10.0)));
        assert_eq!(size("64MiB"), Ok(Size::Bytes(64 << 20)));
        assert_eq!(size("1000p"), Ok(Size::Pages(1_000)));
        for wrong in ["", "%", "-1%", "0%", "nan%", "0p", "xp", "0B", "1e99%", "many"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
        assert_eq!(size("512"), Ok(Size::Bytes(512)));
        assert!(size("64").unwrap_err().contains("write 64MiB, 64p (pages) or 64%"));
    }

    #[test]
    fn pages_are_powers_of_two() {
        assert_eq!(page_bytes("64KiB"), Ok(65_536));
        assert!(["256B", "3KiB", "2MiB", "x"].iter().all(|text| page_bytes(text).is_err()));
    }

    #[test]
    fn policies_are_named_once_and_the_bound_beside_them() {
        let parse =
            |text: &str| Policies::parse(&text.split(',').map(str::to_owned).collect::<Vec<_>>());
        let found = parse("arc,auto,arc,min").unwrap();
        let kinds = vec![PolicyChoice::Fixed(PolicyKind::Arc), PolicyChoice::Auto];
        assert_eq!(found, Policies { kinds, min: true });
        let all = PolicyKind::ALL.map(PolicyChoice::Fixed);
        assert_eq!(parse("all,lru").unwrap().kinds, all);
        let error = format!("{:#}", parse("lrv").unwrap_err());
        assert!(error.starts_with("choose policies: there is no policy \"lrv\""), "{error}");
        assert!(error.contains(", all, min"), "{error}");
    }
}
