//! The fragmentation of files as text, as CSV, and as a page with a map of the volume.

mod html;
mod repair;
#[cfg(test)]
mod tests;
mod volume_map;

pub use html::to_html;
pub use repair::{repair_to_html, repair_to_text};

use crate::escape;
use crate::table::{Cell, Column, Field, Table};
use larder_schema::format;
use larder_schema::fragmentation::{
    FileExtent, FragmentWriter, Fragmentation, FragmentationCost, FragmentedFile, RequestsFrom,
    ScanTotals, SizeClasses, VerdictKind,
};

/// Maximum number of files in the text.
const FILES_SHOWN: usize = 20;

/// Renders the result as tables and sentences.
#[must_use]
pub fn to_text(found: &Fragmentation) -> String {
    let mut text = format!("{}.\n", verdict(found));
    for command in &found.verdict.commands {
        put_line!(text, "  {}", escape::line(command));
    }
    put_line!(text, "");
    for sentence in sentences(found) {
        put_line!(text, "{sentence}");
    }
    if let Some(cost) = &found.cost {
        put!(text, "\n{}", layouts_table(cost).to_text());
    }
    if found.scan.fragments > 0 {
        put!(text, "\n{}", sizes_table(found).to_text());
    }
    if !found.files.is_empty() {
        put!(text, "\n{}", files_table(found, FILES_SHOWN).to_text());
    }
    for file in &found.files {
        if let Some(extents) = &file.placed {
            put_line!(text, "\n{}", escape::text(&file.path));
            put!(text, "{}", extents_table(extents).to_text());
        }
    }
    if !found.writers.is_empty() {
        put!(text, "\n{}", writers_table(&found.writers).to_text());
        for line in measures(&found.writers) {
            put_line!(text, "  {line}");
        }
    }
    for note in &found.notes {
        put_line!(text, "\n{}", escape::line(note));
    }
    text
}

/// Returns all files as CSV.
#[must_use]
pub fn to_csv(found: &Fragmentation) -> String {
    files_table(found, usize::MAX).to_csv()
}

/// Returns the answer in one sentence, without a period.
fn verdict(found: &Fragmentation) -> String {
    let head = match found.verdict.kind {
        VerdictKind::NotFragmented => "Not fragmented",
        VerdictKind::NotWorthIt => "Not worth it",
        VerdictKind::Repair => "Worth a repair",
    };
    format!("{head}: {}", found.verdict.reason)
}

/// Returns the facts, a sentence each.
fn sentences(found: &Fragmentation) -> Vec<String> {
    let scan = &found.scan;
    let mut sentences = vec![format!(
        "{} with {} in {}; {} with several fragments, {} in excess.",
        format::counted(scan.files, "file"),
        format::bytes(scan.bytes),
        format::counted(scan.fragments, "fragment"),
        format::counted(scan.fragmented, "file"),
        format::counted(scan.excess(), "fragment")
    )];
    let kinds = kinds(scan);
    if !kinds.is_empty() {
        sentences.push(format!("Of these: {}.", kinds.join(", ")));
    }
    sentences.push(match &found.free {
        Some(free) if free.bytes > 0 => format!(
            "Free: {} in {}; a file of up to {} can be contiguous.",
            format::bytes(free.bytes),
            format::counted(free.runs.number(), "run"),
            format::bytes(free.largest_bytes)
        ),
        Some(_) => "No space is free.".to_owned(),
        None => format!("Free space: {}.", found.free_unknown),
    });
    if let Some(cost) = &found.cost {
        sentences.push(requests_sentence(cost));
    }
    let left_out = scan.left_out.iter().map(|(reason, number)| {
        format!("Left out: {} ({}).", format::count(*number), escape::text(reason))
    });
    sentences.extend(left_out);
    sentences
}

/// Returns the kinds of files that are not plain, with their number or size.
fn kinds(scan: &ScanTotals) -> Vec<String> {
    let number =
        |number: u64, kind: &str| (number > 0).then(|| format!("{} {kind}", format::count(number)));
    let bytes =
        |bytes: u64, kind: &str| (bytes > 0).then(|| format!("{} {kind}", format::bytes(bytes)));
    [
        number(scan.empty, "without data"),
        number(scan.inline, "stored with the metadata"),
        number(scan.sparse, "with holes"),
        number(scan.further_names, "further names (hard links)"),
        bytes(scan.unwritten_bytes, "allocated and not written"),
        bytes(scan.shared_bytes, "shared with other files"),
        bytes(scan.compressed_bytes, "compressed"),
        bytes(scan.delayed_bytes, "not allocated yet"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn requests_sentence(cost: &FragmentationCost) -> String {
    let from = match cost.from {
        RequestsFrom::Trace => "of the trace",
        RequestsFrom::Record => "of the sizes in the record, at places that it does not have",
        RequestsFrom::OneRead => "that read the most fragmented files once",
    };
    let mut text = format!(
        "{} {from} on {} with {} in flight",
        format::counted(cost.sampled_requests, "request"),
        escape::text(&cost.device),
        cost.depth
    );
    let others = [
        (cost.cached_requests, "served by the cache"),
        (cost.unplaced_requests, "to bytes without a place"),
        (cost.other_requests, "to other files"),
    ];
    for (number, kind) in others.iter().filter(|(number, _)| *number > 0) {
        put!(text, "; {} {kind}", format::count(*number));
    }
    text + "."
}

fn layouts_table(cost: &FragmentationCost) -> Table {
    let rows = [("now", cost.now), ("contiguous", cost.contiguous)];
    let fields = [
        Field::word("files", "files", |row: &(&str, _)| row.0),
        Field::duration(
            "seconds",
            "time",
            |row: &(&str, larder_schema::fragmentation::LayoutCost)| {
                larder_schema::as_u64(row.1.seconds * 1e9)
            },
        ),
        Field::number("operations_per_request", "operations/request", |row| {
            row.1.operations_per_request
        }),
        Field::number("seeks_per_1000", "seeks/1,000 requests", |row| row.1.seeks_per_1000),
    ];
    Table::of("Time of the requests", &rows, fields)
}

/// Returns the fragments, the distances between them, and the runs of free space by length.
fn sizes_table(found: &Fragmentation) -> Table {
    let empty = SizeClasses::default();
    let runs = found.free.as_ref().map_or(&empty, |free| &free.runs);
    let classes = [&found.scan.fragment_sizes, &found.scan.distances, runs];
    let mut lengths: Vec<u64> = classes.iter().flat_map(|it| it.iter().map(|it| it.0)).collect();
    lengths.sort_unstable();
    lengths.dedup();
    let mut table = Table::new(
        "By length",
        [
            Column::numbers("from_bytes", "from"),
            Column::numbers("fragments", "fragments"),
            Column::numbers("fragment_bytes", "bytes of fragments"),
            Column::numbers("distances", "distances between fragments"),
            Column::numbers("free_runs", "free runs"),
            Column::numbers("free_bytes", "bytes of free runs"),
        ],
    );
    for length in lengths {
        let of = |classes: &SizeClasses| {
            let found = classes.iter().find(|class| class.0 == length);
            found.map_or((0, 0), |class| (class.1, class.2))
        };
        let [fragments, distances, runs] = classes.map(of);
        table.push([
            Cell::bytes(length),
            Cell::count(fragments.0),
            Cell::bytes(fragments.1),
            Cell::count(distances.0),
            Cell::count(runs.0),
            Cell::bytes(runs.1),
        ]);
    }
    table
}

fn files_table(found: &Fragmentation, max: usize) -> Table {
    let shown = &found.files[..found.files.len().min(max)];
    let has_cost = found.cost.is_some();
    let title = match found.files.len() - shown.len() {
        0 => "Files".to_owned(),
        others => {
            format!("Files, the first ones; {} more in the JSON", format::count(others as u64))
        }
    };
    let mut fields = vec![
        Field::word("path", "file", |it: &FragmentedFile| &it.path),
        Field::bytes("bytes", "size", |it| it.bytes),
        Field::count("extents", "extents", |it| it.extents),
        Field::count("fragments", "fragments", |it| it.fragments),
    ];
    if has_cost {
        fields.extend([
            Field::count("requests", "requests", |it: &FragmentedFile| it.requests),
            Field::percent("crossing", "crossing", |it| {
                larder_schema::share(it.crossing_requests, it.requests)
            }),
            Field::duration("now_ns", "time", |it| Some(it.now_ns).filter(|ns| *ns > 0)),
            Field::duration("contiguous_ns", "contiguous", |it| {
                Some(it.contiguous_ns).filter(|ns| *ns > 0)
            }),
        ]);
    }
    Table::of(&title, shown, fields)
}

fn extents_table(extents: &[FileExtent]) -> Table {
    let fields = [
        Field::bytes("logical", "in the file", |it: &FileExtent| it.logical),
        Field::count("physical", "on the device, byte", |it| it.physical),
        Field::bytes("bytes", "length", |it| it.bytes),
        Field::text("flags", "flags", |it| flag_names(it).join(" ")),
    ];
    Table::of("Extents", extents, fields)
}

/// Returns the names of the flags of an extent.
fn flag_names(extent: &FileExtent) -> Vec<&'static str> {
    let names = [
        (FileExtent::LAST, "last"),
        (FileExtent::UNKNOWN, "unknown"),
        (FileExtent::DELAYED, "delayed"),
        (FileExtent::ENCODED, "compressed"),
        (FileExtent::INLINE, "inline"),
        (FileExtent::TAIL, "tail"),
        (FileExtent::UNWRITTEN, "unwritten"),
        (FileExtent::SHARED, "shared"),
    ];
    names.into_iter().filter(|(flag, _)| extent.has(*flag)).map(|it| it.1).collect()
}

fn writers_table(writers: &[FragmentWriter]) -> Table {
    let fields = [
        Field::word("process", "program", |it: &FragmentWriter| &it.process),
        Field::count("files", "fragmented files", |it| it.files),
        Field::count("fragments", "fragments", |it| it.fragments),
        Field::count("writes", "writes", |it| it.writes),
        Field::bytes("bytes", "written", |it| it.bytes),
    ];
    Table::of("Programs that write to fragmented files", writers, fields)
}

/// Returns a sentence for each measure, with the programs.
fn measures(writers: &[FragmentWriter]) -> Vec<String> {
    let of = |writer: &FragmentWriter| {
        let name = escape::text(&writer.process).into_owned();
        let line = move |measure: &String| format!("{name}: {}.", escape::line(measure));
        writer.measures.iter().map(line).collect::<Vec<_>>()
    };
    writers.iter().flat_map(of).collect()
}
