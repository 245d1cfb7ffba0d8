//! Shell completions and the manual page, generated from the definition of the command line.

use crate::output_file::OutputFile;
use anyhow::Result;
use clap::{Command, CommandFactory, ValueHint};
use clap_complete::Shell;
use std::any::TypeId;
use std::io::Write;

/// Prints the completions for a shell.
pub(in crate::commands) fn completions(shell: Shell) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut visible_command(), "larder", &mut text);
    Ok(crate::output::stdout().write_all(&text)?)
}

/// Prints one manual page with all commands.
pub(in crate::commands) fn manual() -> Result<()> {
    let mut text = Vec::new();
    let mut command = visible_command();
    command.build();
    clap_mangen::Man::new(command.clone()).render(&mut text)?;
    for sub in command.get_subcommands() {
        render_page(sub, &mut text)?;
    }
    Ok(crate::output::stdout().write_all(&text)?)
}

/// Appends the description of a command and of its subcommands, as sections.
fn render_page(command: &Command, text: &mut Vec<u8>) -> Result<()> {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name()).to_owned();
    writeln!(text, ".SH \"{}\"", name.to_uppercase())?;
    let man = clap_mangen::Man::new(command.clone());
    man.render_description_section(text)?;
    man.render_synopsis_section(text)?;
    man.render_options_section(text)?;
    for sub in command.get_subcommands() {
        render_page(sub, text)?;
    }
    Ok(())
}

/// Returns the command line without hidden commands.
fn visible_command() -> Command {
    let command = crate::Cli::command();
    let visible: Vec<_> = command
        .get_subcommands()
        .filter(|sub| !sub.is_hide_set())
        .cloned()
        .map(with_file_hints)
        .collect();
    let about = command.get_about().cloned().unwrap_or_default();
    Command::new("larder")
        .version(env!("CARGO_PKG_VERSION"))
        .about(about)
        .disable_help_subcommand(true)
        .args(command.get_arguments().cloned())
        .subcommands(visible)
}

/// Lets shells complete the names of files that a command writes.
fn with_file_hints(command: Command) -> Command {
    let is_output =
        |arg: &clap::Arg| arg.get_value_parser().type_id() == TypeId::of::<OutputFile>();
    command
        .mut_args(|arg| if is_output(&arg) { arg.value_hint(ValueHint::AnyPath) } else { arg })
        .mut_subcommands(with_file_hints)
}
