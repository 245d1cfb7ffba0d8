//! `larder frag`: fragments of files and of free space, and their cost for recorded requests.
//!
//! Only `repair` changes something: otherwise files are opened for reading, and their data is not
//! read.

mod checkpoint;
mod repair;
mod requests;
mod scan;

use crate::args::{self, FormatArgs, TextOrJson};
use crate::commands::report::{Format, page_json_or_csv, print_result};
use crate::commands::store_model;
use crate::commands::trace::InputArgs;
use crate::output_file::OutputFile;
use anyhow::Result;
use clap::{Args, Subcommand};
use larder_host::disk::Disk;
use larder_host::file_walk::WalkRoot;
use larder_lab::fragmentation::{CostOptions, FileCost, FileLayouts, cost, find_writers, verdict};
use larder_lab::model::{StoreModel, StoreSpec};
use larder_report::{escape, fragmentation};
use larder_schema::fragmentation::{
    FileScan, Fragmentation, FragmentationCost, FragmentedFile, FreeSpace, RequestsFrom,
};
use requests::{Load, ScannedFile};
use scan::ScanOptions;
use std::cmp::Reverse;
use std::path::PathBuf;

/// Models of the device by its kind: `ssd` and `disk`.
const SOLID_STATE: &str = "ssd";

#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    override_usage = "larder frag [OPTIONS] PATH...\n       larder frag repair [OPTIONS] PATH..."
)]
pub(crate) struct FragArgs {
    #[command(subcommand)]
    action: Option<FragAction>,

    #[command(flatten)]
    examine: ExamineArgs,

    /// Maximum number of files in the result.
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, hide_short_help = true,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rows: u32,

    /// List extents, also of contiguous files.
    #[arg(long)]
    extents: bool,

    /// File with the position of the scan.
    ///
    /// It is written every ten seconds and at Ctrl-C. If it exists, the scan continues there. It is
    /// removed at the end.
    #[arg(long, value_name = "FILE")]
    resume: Option<OutputFile>,

    /// Write the result into a file as well.
    ///
    /// The file is JSON, a table of the files if its name ends in .csv, or a page with a map of the
    /// volume if it ends in .html.
    #[arg(short, long, value_name = "FILE", value_parser = page_json_or_csv())]
    output: Option<OutputFile>,

    #[command(flatten)]
    format: FormatArgs<TextOrJson>,
}

#[derive(Debug, Subcommand)]
enum FragAction {
    /// Move the files that gain most, into contiguous places.
    ///
    /// Only files of ext4, XFS and btrfs for which the model predicts a gain are moved, those with
    /// most gain for their bytes first. Their content, names, times and holes stay.
    Repair(Box<repair::RepairArgs>),
}

/// The files, and their requests.
#[derive(Debug, Args)]
pub(crate) struct ExamineArgs {
    /// Files and directories of one file system.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,

    /// Trace or record of the requests.
    ///
    /// Their cost is computed. The trace names files, such as one of larder trace record. A trace
    /// without names is of the only PATH, which is a file, such as the image of a volume. The JSON
    /// of larder watch has no places: they are assumed. Without this option, the cost is that of
    /// one read of each of the most fragmented files.
    #[arg(long, value_name = "FILE", alias = "record")]
    trace: Option<PathBuf>,

    /// Model of the device (larder model list).
    ///
    /// By default the kind that the kernel reports: disk or ssd.
    #[arg(long, value_name = "MODEL", value_parser = store_model::parse)]
    device: Option<StoreSpec>,

    /// Memory of a cache in front of the device.
    ///
    /// The requests are simulated with a cache of this size, as by larder sim; those that reach the
    /// device are used.
    #[arg(long, value_name = "SIZE", value_parser = args::bytes)]
    cache: Option<u64>,

    /// Requests in flight.
    #[arg(long, value_name = "NUMBER", default_value_t = 1, hide_short_help = true,
          value_parser = clap::value_parser!(u16).range(1..=1024))]
    depth: u16,

    /// Maximum number of requests that are run on the model: parts of the trace.
    #[arg(long, value_name = "NUMBER", default_value_t = 100_000, hide_short_help = true,
          value_parser = clap::value_parser!(u32).range(1_000..=20_000_000))]
    requests: u32,

    #[command(flatten)]
    input: InputArgs,
}

/// Examined files.
struct Examined {
    roots: Vec<WalkRoot>,
    found: Fragmentation,
    load: Load,
    /// The cost of each file of the load.
    costs: Vec<FileCost>,
    options: CostOptions,
}

pub(crate) fn run(arguments: &FragArgs) -> Result<()> {
    if let Some(FragAction::Repair(arguments)) = &arguments.action {
        return repair::run(arguments);
    }
    let options = ScanOptions {
        keep: arguments.rows.try_into().unwrap_or(usize::MAX),
        keeps_all: arguments.extents,
        resume: arguments.resume.as_deref(),
    };
    let Some(Examined { mut found, load, costs, .. }) = examine(&arguments.examine, &options)?
    else {
        return Ok(());
    };
    found.files = rows(load, &costs, &options);
    let printed = print_result(
        arguments.format.get(),
        arguments.output.as_ref(),
        || fragmentation::to_text(&found),
        |format| match format {
            Format::Html => fragmentation::to_html(&found),
            Format::Csv => fragmentation::to_csv(&found),
            Format::Json | Format::Text => format!("{:#}\n", found.to_json()),
        },
    )?;
    if let Some(file) = &arguments.resume {
        checkpoint::remove(file)?;
    }
    Ok(printed?)
}

/// Returns the model of the kind of the device that holds a root.
fn model_of(root: &WalkRoot) -> StoreModel {
    let disk = Disk::of(root.path()).ok().flatten();
    let is_solid = disk.and_then(|disk| disk.queue("rotational")).is_some_and(|it| it == "0");
    let named = larder_lab::model::DEVICES.iter().find(|it| it.name == SOLID_STATE);
    match named {
        Some(named) if is_solid => StoreModel::Device(named.device),
        _ => StoreModel::DISK,
    }
}

/// Scans the files, and computes the cost of their requests, or of reads of those with most
/// fragments. Returns `None` if a signal ended the scan.
fn examine(arguments: &ExamineArgs, options: &ScanOptions<'_>) -> Result<Option<Examined>> {
    // Before the scan, which can take long.
    let device = arguments.device.as_ref().map(store_model::of).transpose()?;
    let recorded = arguments.trace.as_deref().map(|file| requests::open(file, &arguments.input));
    let recorded = recorded.transpose()?;
    let roots = scan::open(&arguments.paths)?;
    let place = scan::place(&roots[0])?;
    let Some(mut scanned) = scan::scan(&roots, &place, options)? else { return Ok(None) };
    let device = device.unwrap_or_else(|| model_of(&roots[0]));
    let (free, free_unknown) = free_space(&roots[0], &mut scanned);
    let mut notes = Vec::new();
    let mut load = requests::load(&roots, &scanned, recorded, options.keeps_all, &mut notes)?;
    if let Some(bytes) = arguments.cache {
        load.add_cache(bytes, device, arguments.depth.into())?;
    }
    let extents: Vec<_> = load.files.iter().map(|file| file.extents.clone()).collect();
    let layouts = FileLayouts::new(&extents, place.bytes);
    let options = CostOptions {
        device,
        device_bytes: place.bytes,
        depth: arguments.depth.into(),
        sample: arguments.requests.try_into().unwrap_or(usize::MAX),
        from: load.from,
    };
    let (cost, costs) = cost(&layouts, &load.requests, &options, |at| scanned.add_request(at));
    let cost = FragmentationCost {
        requests: cost.requests + load.cached + load.others,
        cached_requests: load.cached,
        other_requests: load.others,
        ..cost
    };
    let mut words: Vec<String> =
        roots.iter().map(|it| escape::shell_word(&it.path().to_string_lossy())).collect();
    if let Some(trace) = &arguments.trace {
        words.push(format!("--trace {}", escape::shell_word(&trace.to_string_lossy())));
    }
    words.push(format!("--device {}", cost.device));
    let found = Fragmentation {
        paths: roots.iter().map(|it| escape::path(it.path()).into_owned()).collect(),
        verdict: verdict(&scanned.totals, Some(&cost), &words.join(" ")),
        writers: find_writers(&load.writes(), Some(&place.kind)),
        file_system: Some(place),
        free,
        free_unknown,
        cost: (cost.device_requests > 0).then_some(cost),
        files: Vec::new(),
        map_cell_bytes: scanned.cell_bytes(),
        scan: scanned.totals,
        map: scanned.map,
        notes,
    };
    Ok(Some(Examined { roots, found, load, costs, options }))
}

/// Returns the files that cost most, or without a trace those with most fragments.
fn rows(load: Load, costs: &[FileCost], options: &ScanOptions<'_>) -> Vec<FragmentedFile> {
    let row = |(file, cost): (ScannedFile, &FileCost)| FragmentedFile {
        path: file.path.display().to_string(),
        bytes: file.bytes,
        extents: file.extents.len() as u64,
        fragments: file.fragments,
        requests: cost.requests,
        crossing_requests: cost.crossing_requests,
        now_ns: cost.now_ns,
        contiguous_ns: cost.contiguous_ns,
        placed: options.keeps_all.then_some(file.extents),
    };
    let from = load.from;
    let mut files: Vec<FragmentedFile> = load.files.into_iter().zip(costs).map(row).collect();
    let gain = |file: &FragmentedFile| file.now_ns.saturating_sub(file.contiguous_ns);
    if from == RequestsFrom::OneRead {
        files.sort_by_key(|file| Reverse(file.fragments));
    } else {
        files.sort_by_key(|file| Reverse((gain(file), file.crossing_requests, file.fragments)));
    }
    files.truncate(options.keep);
    files
}

/// Returns the free space, and adds it to the map; or the reason for which it is not known.
fn free_space(root: &WalkRoot, scanned: &mut FileScan) -> (Option<FreeSpace>, String) {
    let mut free = FreeSpace::default();
    let result = larder_host::free_runs::of(root.file(), |start, bytes| {
        free.add(bytes);
        scanned.add_free(start, bytes);
    });
    match result {
        Ok(()) => (Some(free), String::new()),
        Err(error) => (None, error.to_string()),
    }
}
