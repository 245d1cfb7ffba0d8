//! `larder docs`: the tables of the documentation that are generated from the code.

mod leak;
mod saw_tooth;
mod shell;

use anyhow::Result;
use clap::{Args, ValueEnum};
use larder_core::counters::{COUNTERS, GAUGES, HISTOGRAMS, MetricDefinition};
use larder_core::tunables::TUNABLES;
use larder_server::control::{
    MetricFamily, NT_COUNTERS, NtCounter, SESSION_FAMILIES, STATE_FAMILIES,
};
use larder_server::settings::{Group, SETTINGS, Setting};
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
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    shell: clap_complete::Shell,
}

/// Prints the completions for a shell.
pub(crate) fn completions(arguments: &CompletionsArgs) -> Result<()> {
    shell::completions(arguments.shell)
}

/// Prints the manual page.
pub(crate) fn manual() -> Result<()> {
    shell::manual()
}

pub(crate) fn run(arguments: &DocsArgs) -> Result<()> {
    match arguments.document {
        Document::Metrics => metrics()?,
        Document::Tunables => tunables()?,
        Document::SawTooth => print!("{}", saw_tooth::chart()?)?,
        Document::Leak => print!("{}", leak::chart()?)?,
    }
    Ok(())
}

fn metrics() -> io::Result<()> {
    println!("# Metrics")?;
    println!()?;
    println!("Every number that leaves the cache comes from this catalogue. Generated from")?;
    println!("`crates/core/src/counters/catalogue.rs` by `cargo xtask docs`; do not edit.")?;
    println!()?;
    println!(
        "A hit ratio is always weighted by references: hits over references, both summed over"
    )?;
    println!(
        "the whole time asked for, never a mean of ratios. \"Known as\" names the counter of the"
    )?;
    println!("Windows NT file cache that the number answers to.")?;
    section("Counters", "They only grow.", &COUNTERS)?;
    section("Gauges", "What is so now.", &GAUGES)?;
    let text = "Histograms with a relative error of at most 1/16.";
    section("Latencies", text, &HISTOGRAMS)?;
    let text = "What is no number: samples of 0 or 1 with labels, in `/metrics`.";
    families("States", text, &STATE_FAMILIES)?;
    let text = "The memory that requests of NBD clients hold, in `/metrics` and, as `budget`,\n\
                in `/v1/stats`. There are two pools: `payloads` of writes that wait for free\n\
                memory, with the requests in flight and large receive buffers, and `frames` that\n\
                are pinned until the client has received the reply. A session leases from them\n\
                what exceeds its own share. A mounted directory has no sessions.";
    families("Sessions of the NBD server", text, &SESSION_FAMILIES)?;
    nt_counters()
}

fn families(title: &str, text: &str, families: &[MetricFamily]) -> io::Result<()> {
    println!("\n## {title}\n\n{text}\n")?;
    println!("| name | labels | meaning |\n|---|---|---|")?;
    for family in families {
        println!("| `{}` | {} | {} |", family.sample_name(), family.labels, family.help)?;
    }
    Ok(())
}

fn nt_counters() -> io::Result<()> {
    println!("\n## For those who know the counters of Windows NT\n")?;
    println!("What to ask of Prometheus, or of whoever reads `/metrics` ([control](control.md)).")?;
    println!("There the counters are called `larder_NAME_total`, gauges and latencies")?;
    println!(
        "`larder_NAME`; add `by (volume)` or `{{volume=\"NAME\"}}` where there are several.\n"
    )?;
    println!("| there | here | note |\n|---|---|---|")?;
    for NtCounter { nt_name, query, note } in NT_COUNTERS {
        println!("| {nt_name} | `{query}` | {note} |")?;
    }
    Ok(())
}

fn section(title: &str, text: &str, definitions: &[MetricDefinition]) -> io::Result<()> {
    println!("\n## {title}\n\n{text}\n")?;
    println!("| name | unit | meaning | known as |\n|---|---|---|---|")?;
    for MetricDefinition { name, unit, meaning, known_as } in definitions {
        println!("| `{name}` | {} | {meaning} | {known_as} |", unit.name())?;
    }
    Ok(())
}

fn tunables() -> io::Result<()> {
    println!("# Settings and tunables")?;
    println!()?;
    println!(
        "Each is a flag of `larder serve`, and of `larder mount` unless a note says otherwise;"
    )?;
    println!(
        "a key of the configuration file ([config](config.md)); and, where \"live\" says yes, a"
    )?;
    println!(
        "name for `larder ctl set`. Each volume has its own value where \"of\" says so. Generated"
    )?;
    println!("from `crates/server/src/settings/table.rs` and `crates/core/src/tunables.rs` by")?;
    println!("`cargo xtask docs`; do not edit.")?;
    for group in Group::ALL.into_iter().filter(|group| *group != Group::Tunables) {
        println!("\n## {}\n", group.heading())?;
        println!("| name | of | default | live | meaning |")?;
        println!("|---|---|---|---|---|")?;
        for setting in SETTINGS.iter().filter(|setting| setting.group == group) {
            let of = if setting.is_of_volumes() { "volume" } else { "server" };
            let live = if setting.is_live { "yes" } else { "no" };
            let note = if setting.is_of_mounts { "" } else { " `serve` only." };
            let Setting { name, default, meaning, .. } = setting;
            println!("| `{name}` | {of} | {default} | {live} | {meaning}{note} |")?;
        }
    }
    println!("\n## Tunables\n")?;
    println!(
        "Live, of a volume. `--preset NAME` sets all of them; `--set NAME=VALUE` is the same as"
    )?;
    println!("`--NAME VALUE`.")?;
    println!()?;
    println!("| name | unit | least | most | `larder` | `nt` | meaning |")?;
    println!("|---|---|--:|--:|--:|--:|---|")?;
    for t in TUNABLES {
        println!(
            "| `{}` | {} | {} | {} | {} | {} | {} |",
            t.name, t.unit, t.min, t.max, t.default, t.nt, t.meaning
        )?;
    }
    Ok(())
}
