//! `larder help`: a command, or a topic that concerns several commands.

use crate::args;
use anyhow::{Result, bail};
use clap::Args;
use larder_core::counters::{COUNTERS, GAUGES, HISTOGRAMS, MetricDefinition};
use larder_core::tunables::TUNABLES;
use larder_schema::format::wrapped;
use larder_server::settings::{SETTINGS, SettingGroup, ValueForm};

#[derive(Debug, Args)]
pub(crate) struct HelpArgs {
    /// A command with its subcommand, or a topic.
    ///
    /// Topics: exit-codes, metrics, settings, sizes. Without it, all commands.
    #[arg(value_name = "COMMAND|TOPIC")]
    words: Vec<String>,
}

const SIZES: &str = "\
Sizes, times and shares

A size is a number with a unit, or a number of bytes: 4KiB, 1.5GiB, 512. The
units KiB, MiB, GiB and TiB are powers of 1024. K, M, G and T alone are the
same, as for truncate, fio and qemu; kB, MB, GB and TB are powers of 1000.

A time is a number with a unit: 20ms, 90s, 5m, 1.5h; also ns and us.

A share is a percentage: 30%, 0.5%.
";

const EXIT_CODES: &str = "\
Exit codes

0    success; also a server, mount, watch or recording that a signal stopped:
     all data is written
1    the command ran, and has a finding:
       compare                 a series of the second run is worse
       ctl at-risk             writes or flushes of a store fail, or a served
                               file is lost
       bench cold, bench warm  pages stay resident, or are missing
       bench matrix            the machine is not as before the run
2    the command line is wrong, or the command failed; the reason is on
     standard error
130  Ctrl-C stopped the command before its work was done. It has removed its
     temporary files; benchmarks have printed the trials that were complete.
     The code is 128 and the number of the signal: 143 for SIGTERM
";

/// Columns of the text of a topic.
const COLUMNS: usize = crate::help_text::COLUMNS;
/// The beginning of the lines of a meaning.
const INDENT: &str = "      ";

pub(crate) const TOPICS: [&str; 4] = ["settings", "metrics", "sizes", "exit-codes"];

pub(crate) fn run(arguments: &HelpArgs) -> Result<()> {
    let words: Vec<&str> = arguments.words.iter().map(String::as_str).collect();
    match words[..] {
        ["settings"] => print!("{}", settings())?,
        ["metrics"] => print!("{}", metrics())?,
        ["sizes"] => print!("{SIZES}")?,
        ["exit-codes"] => print!("{EXIT_CODES}")?,
        _ => command_help(&words)?,
    }
    Ok(())
}

/// Returns a definition: its name, properties, and its meaning in lines of at most [`COLUMNS`].
fn entry(name: &str, properties: &str, meaning: &str) -> String {
    let mut text = format!("  {name}  ({properties})\n");
    for line in wrapped(meaning, COLUMNS - INDENT.len()) {
        text.extend([INDENT, &line, "\n"]);
    }
    text
}

/// Returns the settings of a server and its volumes.
fn settings() -> String {
    let mut text = String::from(
        "Settings: flags of larder serve and mount, keys of the configuration file, and,\n\
         if live, names for larder ctl set.\n",
    );
    for group in SettingGroup::ALL {
        text.extend(["\n", group.heading(), "\n\n"]);
        for setting in SETTINGS.iter().filter(|setting| setting.group == group) {
            let of = if setting.is_of_volumes() { "volume" } else { "server" };
            let mut properties = vec![of.to_owned()];
            if let Some(tunable) = TUNABLES.iter().find(|tunable| tunable.name == setting.name) {
                properties.push(format!("{} to {} {}", tunable.min, tunable.max, tunable.unit));
            }
            properties.extend(setting.is_live.then(|| "live".to_owned()));
            properties.extend((!setting.is_of_mounts).then(|| "serve only".to_owned()));
            let is_shown = !setting.default.is_empty() && setting.form != ValueForm::Switch;
            properties.extend(is_shown.then(|| format!("default {}", setting.default)));
            text.push_str(&entry(setting.name, &properties.join(", "), &setting.meaning));
        }
    }
    text
}

/// Returns the metrics of the cache.
fn metrics() -> String {
    let list = |title: &str, definitions: &[MetricDefinition]| {
        let entries = definitions.iter().map(|it| entry(it.name, it.unit.name(), it.meaning));
        format!("{title}\n\n{}\n", entries.collect::<String>())
    };
    let text = [list("Counters", &COUNTERS), list("Gauges", &GAUGES)].concat();
    text + list("Latencies", &HISTOGRAMS).trim_end() + "\n"
}

/// Prints what the command prints for `--help`.
fn command_help(words: &[&str]) -> Result<()> {
    let mut command = crate::command();
    let mut known = &command;
    for word in words {
        let Some(sub) = known.get_subcommands().find(|sub| sub.get_name() == *word) else {
            let names = known.get_subcommands().map(clap::Command::get_name);
            let reason = args::unknown("command or topic", word, names.chain(TOPICS));
            let topics = if reason.ends_with('?') {
                String::new()
            } else {
                format!("; the topics are {}", TOPICS.join(", "))
            };
            bail!("explain {}: {reason}{topics}", words.join(" "));
        };
        known = sub;
    }
    let words = ["larder"].into_iter().chain(words.iter().copied()).chain(["--help"]);
    if let Err(help) = command.try_get_matches_from_mut(words) {
        help.print()?;
    }
    Ok(())
}
