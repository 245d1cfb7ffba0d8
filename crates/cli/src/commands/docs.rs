//! `larder docs`: the tables of the documentation that are generated from the code.

mod charts;
pub(crate) mod shell;

use anyhow::Result;
use clap::{Args, ValueEnum};
use larder_core::counters::{COUNTERS, GAUGES, HISTOGRAMS, MetricDefinition};
use larder_core::tunables::{Bounds, TUNABLES};
use larder_report::host_counters::{
    DISK_COUNTERS, HostCounter, METADATA_COUNTERS, PROCESS_COUNTERS, WHOLE_COUNTERS,
};
use larder_server::control::{
    MetricFamily, NT_COUNTERS, NtCounter, SESSION_FAMILIES, STATE_FAMILIES,
};
use larder_server::settings::{SETTINGS, Setting, SettingGroup};
use std::io;

#[derive(Debug, Args)]
pub(crate) struct DocsArgs {
    /// Document to print.
    document: Document,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Document {
    /// All metrics of the cache.
    Metrics,
    /// All tunables of a volume.
    Tunables,
    /// The chart of the lazy writer's saw-tooth, as SVG.
    SawTooth,
    /// The chart of a leak and a floor, from the recorded run, as SVG.
    Leak,
    /// A hit-ratio curve with its regions and the recommended size, from the recorded run, as SVG.
    Curve,
}

pub(crate) fn run(arguments: &DocsArgs) -> Result<()> {
    match arguments.document {
        Document::Metrics => metrics()?,
        Document::Tunables => tunables()?,
        Document::SawTooth => print!("{}", charts::saw_tooth()?)?,
        Document::Leak => print!("{}", charts::leak()?)?,
        Document::Curve => print!("{}", charts::curve()?)?,
    }
    Ok(())
}

const METRICS: &str = "\
# Metrics

Every number that leaves the cache comes from this catalogue. Generated from
`crates/core/src/counters/catalogue.rs` by `cargo xtask docs`; do not edit.

A hit ratio is always weighted by references: hits over references, both summed over
the whole interval, never a mean of ratios. \"Known as\" names the corresponding counter
of the Windows NT file cache.
";

const SESSIONS: &str = "\
The memory that requests of NBD clients hold, in `/metrics` and, as `budget`,
in `/v1/stats`. There are two pools: `payloads` of writes that wait for free
memory, with the requests in flight and large receive buffers, and `frames` that
are pinned until the client has received the reply. A session leases from them
what exceeds its own share. A mounted directory has no sessions.";

const NT: &str = "\
Queries for Prometheus, or for another program that reads `/metrics` ([control](control.md)).
There the counters are called `larder_NAME_total`, gauges and latencies
`larder_NAME`; add `by (volume)` or `{volume=\"NAME\"}` where there are several.";

const TUNABLES_HEAD: &str = "\
# Settings and tunables

Each is a flag of `larder serve`, and of `larder mount` unless a note says otherwise;
a key of the configuration file ([config](config.md)); and, where \"live\" says yes, a
name for `larder ctl set`. Each volume has its own value where \"of\" says so. Generated
from `crates/server/src/settings/table.rs` and `crates/core/src/tunables.rs` by
`cargo xtask docs`; do not edit.
";

const TUNABLES_TEXT: &str = "\
Live, of a volume. `--preset NAME` sets all of them; `--set NAME=VALUE` is the same as
`--NAME VALUE`.";

/// Prints a section with a table, whose `head` ends in the line of its alignment.
fn section(
    title: &str,
    text: &str,
    head: &str,
    rows: impl Iterator<Item = String>,
) -> io::Result<()> {
    let text = if text.is_empty() { String::new() } else { format!("{text}\n\n") };
    println!("\n## {title}\n\n{text}{head}")?;
    rows.into_iter().try_for_each(|row| println!("| {row} |"))
}

fn metrics() -> io::Result<()> {
    print!("{METRICS}")?;
    let definitions = |title, text, definitions: &[MetricDefinition]| {
        let row = |it: &MetricDefinition| {
            let MetricDefinition { name, unit, meaning, known_as } = it;
            format!("`{name}` | {} | {meaning} | {known_as}", unit.name())
        };
        let head = "| name | unit | meaning | known as |\n|---|---|---|---|";
        section(title, text, head, definitions.iter().map(row))
    };
    definitions("Counters", "Monotonic since the start of the server.", &COUNTERS)?;
    definitions("Gauges", "Values at the time of the query.", &GAUGES)?;
    let text = "Histograms with a relative error of at most 1/16.";
    definitions("Latencies", text, &HISTOGRAMS)?;
    let families = |title, text, families: &[MetricFamily]| {
        let row =
            |it: &MetricFamily| format!("`{}` | {} | {}", it.sample_name(), it.labels, it.help);
        let head = "| name | labels | meaning |\n|---|---|---|";
        section(title, text, head, families.iter().map(row))
    };
    let text = "States are samples of 0 or 1 with labels, in `/metrics`.";
    families("States", text, &STATE_FAMILIES)?;
    families("Sessions of the NBD server", SESSIONS, &SESSION_FAMILIES)?;
    host_counters()?;
    let row =
        |NtCounter { nt_name, query, note }: &NtCounter| format!("{nt_name} | `{query}` | {note}");
    let title = "Counters of Windows NT and their equivalents";
    section(title, NT, "| Windows NT | Larder | note |\n|---|---|---|", NT_COUNTERS.iter().map(row))
}

const HOST: &str = "\
[`larder advise`](advise.md) shows these counters. Sources: the running host, a result of
`larder watch`, a log of Perfmon, or the output of iostat or sar. `diskstats N` is field N of
`/proc/diskstats` after the name, as in the kernel's iostats.rst; d is a difference of two
readings, and dt that of their times. Linux counts hits of the dentry cache nowhere.";

fn host_counters() -> io::Result<()> {
    fn rows<T>(
        of: &'static str,
        counters: &'static [HostCounter<T>],
    ) -> impl Iterator<Item = String> {
        counters.iter().map(move |it| {
            format!("{of} | {} | {} | {} | {}", it.name, it.windows, it.source, it.formula)
        })
    }
    let all = rows("disk", DISK_COUNTERS)
        .chain(rows("host", WHOLE_COUNTERS))
        .chain(rows("metadata cache", METADATA_COUNTERS))
        .chain(rows("process", PROCESS_COUNTERS));
    let head = "| of | name | Windows | source on Linux | formula |\n|---|---|---|---|---|";
    section("Counters of hosts", HOST, head, all)
}

fn tunables() -> io::Result<()> {
    print!("{TUNABLES_HEAD}")?;
    for group in SettingGroup::ALL.into_iter().filter(|group| *group != SettingGroup::Tunables) {
        let row = |setting: &Setting| {
            let of = if setting.is_of_volumes() { "volume" } else { "server" };
            let live = if setting.is_live { "yes" } else { "no" };
            let note = if setting.is_of_mounts { "" } else { " `serve` only." };
            let Setting { name, default, meaning, .. } = setting;
            format!("`{name}` | {of} | {default} | {live} | {meaning}{note}")
        };
        let head = "| name | of | default | live | meaning |\n|---|---|---|---|---|";
        let rows = SETTINGS.iter().filter(|setting| setting.group == group).map(row);
        section(group.heading(), "", head, rows)?;
    }
    let head = "| name | unit | least | most | `larder` | `nt` | `linux` | meaning |\n\
                |---|---|--:|--:|--:|--:|--:|---|";
    let row = |it: &Bounds| {
        let Bounds { name, unit, min, max, default, nt, linux, meaning } = it;
        format!("`{name}` | {unit} | {min} | {max} | {default} | {nt} | {linux} | {meaning}")
    };
    section("Tunables", TUNABLES_TEXT, head, TUNABLES.iter().map(row))
}
