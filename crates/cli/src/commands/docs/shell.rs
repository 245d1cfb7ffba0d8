//! Shell completions and the manual page, generated from the definition of the command line.

use crate::args::value_names;
use crate::commands::help;
use crate::help_text::examples_of;
use crate::output_file::OutputFile;
use anyhow::Result;
use clap::{Arg, Args, Command, CommandFactory, ValueHint};
use clap_complete::Shell;
use std::any::TypeId;
use std::io::Write;

/// Files that the manual page lists, with their meaning.
const FILES: [(&str, &str); 4] = [
    ("/etc/larder.toml", "Configuration of the packaged service (larder serve --config)."),
    ("/var/lib/larder", "Warm lists of the packaged service."),
    ("/run/larder", "Sockets and claims of servers that root started."),
    ("$XDG_RUNTIME_DIR/larder", "The same of other users; $RUNTIME_DIRECTORY overrides both."),
];

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell.
    shell: Shell,
}

/// Prints the completions for a shell.
pub(crate) fn completions(arguments: &CompletionsArgs) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut visible_command(), "larder", &mut text);
    Ok(crate::output::stdout().write_all(&text)?)
}

/// Prints one manual page with all commands.
pub(crate) fn manual() -> Result<()> {
    let mut text = Vec::new();
    render_manual(&mut text)?;
    Ok(crate::output::stdout().write_all(&text)?)
}

fn render_manual(text: &mut Vec<u8>) -> Result<()> {
    let mut command = visible_command();
    command.build();
    // `Man::render` would also list a page for each command, and this is the only one.
    let man = clap_mangen::Man::new(command.clone());
    man.render_title(&mut *text)?;
    man.render_name_section(&mut *text)?;
    man.render_synopsis_section(&mut *text)?;
    man.render_description_section(&mut *text)?;
    man.render_options_section(&mut *text)?;
    render_examples("larder", text)?;
    for sub in command.get_subcommands() {
        render_page(sub, text)?;
    }
    writeln!(text, ".SH FILES")?;
    for (path, meaning) in FILES {
        writeln!(text, ".TP\n{}\n{}", escaped(path), escaped(meaning))?;
    }
    Ok(man.render_version_section(text)?)
}

/// Appends the description of a command and of its subcommands, as sections.
fn render_page(command: &Command, text: &mut Vec<u8>) -> Result<()> {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name()).to_owned();
    writeln!(text, ".SH \"{}\"", name.to_uppercase())?;
    let man = clap_mangen::Man::new(command.clone());
    man.render_description_section(text)?;
    man.render_synopsis_section(text)?;
    man.render_options_section(text)?;
    render_examples(&name, text)?;
    for sub in command.get_subcommands() {
        render_page(sub, text)?;
    }
    Ok(())
}

/// Escapes text for roff, where a hyphen and an apostrophe stand for other characters.
fn escaped(text: &str) -> String {
    text.replace('-', "\\-").replace('\'', "\\(aq")
}

/// Appends the examples of a command.
fn render_examples(name: &str, text: &mut Vec<u8>) -> Result<()> {
    for (number, (line, meaning)) in examples_of(name).iter().enumerate() {
        if number == 0 {
            writeln!(text, ".SH EXAMPLES")?;
        }
        let (line, meaning) = (escaped(line), escaped(meaning));
        writeln!(text, ".PP\n{meaning}:\n.PP\n.nf\n.RS 4\n{line}\n.RE\n.fi")?;
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
        .map(with_hints)
        .collect();
    let names = visible.iter().map(|command| command.get_name().to_owned());
    let words: Vec<String> = names.chain(help::TOPICS.map(str::to_owned)).collect();
    let about = command.get_about().cloned().unwrap_or_default();
    Command::new("larder")
        .version(env!("CARGO_PKG_VERSION"))
        .about(about)
        .disable_help_subcommand(true)
        .args(command.get_arguments().cloned())
        .subcommands(visible)
        .mut_subcommand("help", |help| {
            help.mut_arg("words", |arg| arg.value_parser(words).hide_possible_values(true))
        })
}

/// Lets shells complete the names of files that a command writes, and the names of values.
fn with_hints(command: Command) -> Command {
    let hinted = |arg: Arg| {
        let is_output = arg.get_value_parser().type_id() == TypeId::of::<OutputFile>();
        match value_names(&arg) {
            _ if is_output => arg.value_hint(ValueHint::AnyPath),
            names if names.is_empty() => arg,
            // The help of the argument explains them.
            names => arg.value_parser(names).hide_possible_values(true),
        }
    };
    command.mut_args(hinted).mut_subcommands(with_hints)
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_server::settings::find;

    #[test]
    fn the_manual_has_examples_for_every_command() {
        let mut text = Vec::new();
        render_manual(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let sections = text.matches("\n.SH \"LARDER ").count();
        assert!(sections > 30, "{sections} commands");
        assert_eq!(text.matches("\n.SH EXAMPLES\n").count(), sections + 1, "and the program");
        assert!(text.contains("larder size \\-\\-sample"));
        for sub in visible_command().get_subcommands() {
            let page = format!("larder\\-{}(1)", sub.get_name());
            assert!(!text.contains(&page), "{page} does not exist");
        }
        assert_eq!(text.matches("\n.SH FILES\n").count(), 1);
    }

    #[test]
    fn names_of_values_commands_and_topics_are_completed() {
        let visible = visible_command();
        for (words, name, value) in [
            ("serve", "policy", "auto"),
            ("serve", "tls-mode", "require"),
            ("mount", "write-mode", "read-only"),
            ("bench probe", "policy", "lirs"),
            ("help", "words", "exit-codes"),
            ("help", "words", "serve"),
        ] {
            let command = words.split(' ').fold(&visible, |command, word| {
                command.find_subcommand(word).expect("a command of this name")
            });
            let arg = command.get_arguments().find(|arg| arg.get_id() == name);
            let values = arg.expect("an argument of this name").get_possible_values();
            assert!(values.iter().any(|it| it.get_name() == value), "{words} {name}: {value}");
        }
        let mut text = Vec::new();
        clap_complete::generate(Shell::Bash, &mut visible_command(), "larder", &mut text);
        let text = String::from_utf8(text).unwrap();
        let policies = find("policy").expect("a setting").values.join(" ");
        assert!(text.contains(&format!("compgen -W \"{policies}\"")), "{policies}");
        assert!(text.contains(&help::TOPICS.join(" ")), "the topics of help");
    }
}
