//! The help of the whole command line: width, examples, and lists of commands that fit a screen.
//!
//! `-h` fits a terminal of 80 by 24: one line for each option, and rare options only in `--help`,
//! which has the details and examples. `larder serve -h` and `larder mount -h` have 40 lines.

mod examples;
#[cfg(test)]
mod tests;

use clap::builder::Styles;
use clap::{Arg, Command};
use examples::Example;
pub(crate) use examples::examples_of;
use std::fmt::Write;

/// Maximum columns of help.
pub(crate) const COLUMNS: usize = 80;

/// Help of the program: the commands are part of the text after it.
const PROGRAM: &str = "{about}\n\n{usage-heading} {usage}{after-help}";

/// Commands that only `larder --help` lists.
const LONG_ONLY: [&str; 7] =
    ["check-config", "frag", "lab", "help", "version", "completions", "man"];
/// The end of `larder -h`.
const MORE: &str = "\
Other commands: check-config, frag, lab, help, version, completions, man.
larder COMMAND -h shows its options, --help more. Options: --quiet, --color, -V.";
/// The options of `larder` alone.
const PROGRAM_OPTIONS: &str = "      --quiet         Print no progress and no notes
      --color <WHEN>  Colors of help, messages and live views: auto, always,
                      never [default: auto]
  -h, --help          Print help; -h prints a summary
  -V, --version       Print the version";

/// Options of the command line of IOzone have one line each, but names of formats need two.
const IOZONE_FORMATS: [&str; 2] = ["format", "json"];

/// Adds what the definitions of the commands do not contain.
pub(crate) fn complete(command: Command) -> Command {
    let command = with_examples(command, "larder").max_term_width(COLUMNS);
    let program = examples_text(&examples_of("larder"));
    let short = format!("{}\n{MORE}", commands(&command, false));
    let (heading, options) = (heading("Commands"), heading("Options"));
    let list = commands(&command, true);
    let long = format!("{heading}\n{list}\n{options}\n{PROGRAM_OPTIONS}\n\n{program}");
    command.help_template(PROGRAM).after_help(short).after_long_help(long)
}

/// Adds the examples of a command and of its subcommands, in their order.
fn with_examples(command: Command, name: &str) -> Command {
    let examples = examples_of(name);
    let command = match examples[..] {
        [] => command,
        _ => command.after_long_help(examples_text(&examples)),
    };
    command.mut_subcommands(|sub| {
        let name = format!("{name} {}", sub.get_name());
        let sub = with_examples(sub, &name);
        match name.as_str() {
            "larder ctl" => with_short_list(sub),
            "larder bench iozone" => without_formats(sub),
            _ => sub,
        }
    })
}

/// Hides the options for all subcommands in the short help of a command, but not in theirs.
fn with_short_list(command: Command) -> Command {
    let global: Vec<Arg> =
        command.get_arguments().filter(|it| it.is_global_set()).cloned().collect();
    let command = command.mut_subcommands(|sub| sub.args(global.clone()));
    // The heading of the options would exceed the screen.
    let template = format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n\n{}\n{{subcommands}}\n\n{{options}}\
         {{after-help}}",
        heading("Commands")
    );
    command.mut_args(|arg| arg.hide_short_help(true)).help_template(template)
}

fn without_formats(command: Command) -> Command {
    IOZONE_FORMATS
        .into_iter()
        .fold(command, |command, name| command.mut_arg(name, |arg| arg.hide_short_help(true)))
}

/// Returns a heading with the style of those of clap.
fn heading(text: &str) -> String {
    let style = *Styles::styled().get_header();
    format!("{style}{text}:{style:#}")
}

/// Returns a line for each command.
fn commands(program: &Command, all: bool) -> String {
    let listed: Vec<&Command> = program
        .get_subcommands()
        .filter(|it| !it.is_hide_set() && (all || !LONG_ONLY.contains(&it.get_name())))
        .collect();
    let width = listed.iter().map(|it| it.get_name().len()).max().unwrap_or(0);
    listed.iter().fold(String::new(), |mut text, it| {
        let about = it.get_about().map(ToString::to_string).unwrap_or_default();
        writeln!(text, "  {:width$}  {about}", it.get_name()).expect("a string takes everything");
        text
    })
}

fn examples_text(examples: &[Example]) -> String {
    let lines = examples.iter().map(|(line, meaning)| format!("\n  # {meaning}\n  {line}"));
    heading("EXAMPLES") + &lines.collect::<String>()
}
