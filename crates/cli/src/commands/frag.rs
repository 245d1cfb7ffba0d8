//! `larder frag`: fragments of files and of free space, and their cost for recorded requests.
//!
//! Nothing is changed: files are opened for reading, and their data is not read.

mod checkpoint;
mod requests;
mod scan;

use crate::args::{self, FormatArgs, TextOrJson};
use crate::commands::report::{Format, page_json_or_csv, print_result};
use crate::commands::store_model;
use crate::commands::trace::InputArgs;
use crate::output_file::OutputFile;
use anyhow::Result;
use clap::Args;
use larder_host::disk::Disk;
use larder_host::file_walk::WalkRoot;
use larder_lab::fragmentation::{CostOptions, FileLayouts, cost, find_writers, verdict};
use larder_lab::model::{StoreModel, StoreSpec};
use larder_report::{escape, fragmentation};
use larder_schema::fragmentation::{
    FileScan, FileSystemPlace, Fragmentation, FragmentationCost, FragmentedFile, FreeSpace,
    RequestsFrom,
};
use requests::{RecordedRequests, ScannedFile};
use std::cmp::Reverse;
use std::path::PathBuf;

/// Models of the device by its kind: `ssd` and `disk`.
const SOLID_STATE: &str = "ssd";

#[derive(Debug, Args)]
pub(crate) struct FragArgs {
    /// Files and directories of one file system.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,

    /// Trace or record of the requests.
    ///
    /// Their cost is computed. The trace names files, such as one of larder trace record. A trace
    /// without names is of the only PATH, which is a file, such as the image of a volume. The JSON
    /// of larder watch has no places: they are assumed. Without this option, the cost is that of one
    /// read of each of the most fragmented files.
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

    /// Maximum number of files in the result.
    #[arg(long, value_name = "NUMBER", default_value_t = 1000,
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

    #[command(flatten)]
    input: InputArgs,
}

pub(crate) fn run(arguments: &FragArgs) -> Result<()> {
    // Before the scan, which can take long.
    let device = arguments.device.as_ref().map(store_model::of).transpose()?;
    let recorded = arguments.trace.as_deref().map(|file| requests::open(file, arguments));
    let recorded = recorded.transpose()?;
    let roots = scan::open(&arguments.paths)?;
    let place = scan::place(&roots[0])?;
    let Some(mut scanned) = scan::scan(arguments, &roots, &place)? else { return Ok(()) };
    let device = device.unwrap_or_else(|| model_of(&roots[0]));
    let found = examine(arguments, &roots, place, &mut scanned, (device, recorded))?;
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

/// Examines the files with most fragments, or those of the recorded requests.
fn examine(
    arguments: &FragArgs,
    roots: &[WalkRoot],
    place: FileSystemPlace,
    scanned: &mut FileScan,
    (device, recorded): (StoreModel, Option<RecordedRequests>),
) -> Result<Fragmentation> {
    let (free, free_unknown) = free_space(&roots[0], scanned);
    let mut notes = Vec::new();
    let mut load = requests::load(arguments, roots, scanned, recorded, &mut notes)?;
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
    let (cost, of_files) = cost(&layouts, &load.requests, &options, |at| scanned.add_request(at));
    let cost = FragmentationCost {
        requests: cost.requests + load.cached + load.others,
        cached_requests: load.cached,
        other_requests: load.others,
        ..cost
    };
    let paths: Vec<String> = roots.iter().map(|it| escape::path(it.path()).into_owned()).collect();
    let words: Vec<String> =
        roots.iter().map(|it| escape::shell_word(&it.path().to_string_lossy())).collect();
    let verdict = verdict(&scanned.totals, Some(&cost), &words.join(" "));
    let writers = find_writers(&load.writes(), Some(&place.kind));
    let mut files: Vec<FragmentedFile> = load
        .files
        .into_iter()
        .zip(of_files)
        .map(|(file, cost)| row(file, cost, arguments.extents))
        .collect();
    let gain = |file: &FragmentedFile| file.now_ns.saturating_sub(file.contiguous_ns);
    if load.from == RequestsFrom::OneRead {
        files.sort_by_key(|file| Reverse(file.fragments));
    } else {
        files.sort_by_key(|file| Reverse((gain(file), file.crossing_requests, file.fragments)));
    }
    files.truncate(arguments.rows.try_into().unwrap_or(usize::MAX));
    Ok(Fragmentation {
        paths,
        file_system: Some(place),
        scan: scanned.totals.clone(),
        free,
        free_unknown,
        cost: (cost.device_requests > 0).then_some(cost),
        verdict,
        files,
        writers,
        map: scanned.map.clone(),
        map_cell_bytes: scanned.cell_bytes(),
        notes,
    })
}

fn row(
    file: ScannedFile,
    cost: larder_lab::fragmentation::FileCost,
    with_extents: bool,
) -> FragmentedFile {
    FragmentedFile {
        path: file.path.display().to_string(),
        bytes: file.bytes,
        extents: file.extents.len() as u64,
        fragments: file.fragments,
        requests: cost.requests,
        crossing_requests: cost.crossing_requests,
        now_ns: cost.now_ns,
        contiguous_ns: cost.contiguous_ns,
        placed: with_extents.then_some(file.extents),
    }
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
