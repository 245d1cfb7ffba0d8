//! Every help: its size, its width, and its examples.

use super::examples::names;
use super::*;

/// Lines of a terminal.
const LINES: usize = 24;
/// Lines of the commands with the most options.
const LINES_MAX: usize = 40;

/// Calls `check` with every visible command and its full name.
fn for_each(command: &Command, name: &str, check: &mut dyn FnMut(&Command, &str)) {
    check(command, name);
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        for_each(sub, &format!("{name} {}", sub.get_name()), check);
    }
}

/// Calls `check` with the name of every visible command.
fn for_each_name(check: &mut dyn FnMut(&str)) {
    for_each(&crate::command(), "larder", &mut |_, name| check(name));
}

/// Returns the help that a command prints on a terminal of 80 columns.
fn help(name: &str, flag: &str) -> String {
    let command = crate::command().term_width(COLUMNS);
    let words = name.split(' ').chain([flag]);
    let printed = command.try_get_matches_from(words).expect_err("help is printed");
    printed.render().to_string()
}

#[test]
fn a_short_help_fits_a_screen() {
    let mut wrong = String::new();
    for_each_name(&mut |name| {
        let text = help(name, "-h");
        let most = if ["larder serve", "larder mount"].contains(&name) { LINES_MAX } else { LINES };
        // A line that begins so far to the right continues another one.
        let is_wrapped = text.lines().any(|line| line.starts_with("          "));
        let names_more = name == "larder" || text.contains("see more with '--help'");
        if text.lines().count() > most || is_wrapped || !names_more {
            writeln!(wrong, "{name}: {} lines\n{text}", text.lines().count()).unwrap();
        }
    });
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn no_help_is_wider_than_eighty_columns() {
    for_each_name(&mut |name| {
        for flag in ["-h", "--help"] {
            let text = help(name, flag);
            let wide = text.lines().find(|line| line.chars().count() > COLUMNS);
            assert_eq!(wide, None, "{name} {flag}");
        }
    });
}

#[test]
fn every_long_help_has_examples_that_are_parsed() {
    let mut visible = Vec::new();
    for_each_name(&mut |name| {
        let examples = examples_of(name);
        assert!((2..=4).contains(&examples.len()), "{name}: {} examples", examples.len());
        let text = help(name, "--help");
        assert!(text.contains("EXAMPLES:\n"), "{name}\n{text}");
        for (line, meaning) in examples {
            assert!(text.contains(&format!("\n  # {meaning}\n  {line}")), "{name}: {line}");
            assert!(format!("{line} ").starts_with(&format!("{name} ")), "{name}: {line}");
            // The shell ends a command at these words, and removes quotes.
            let words = line.split(' ').take_while(|word| !["|", ">", "&&"].contains(word));
            let words = words.map(|word| word.replace('\'', ""));
            let parsed = crate::parse(words);
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
        }
        visible.push(name.to_owned());
    });
    let unknown = names().find(|name| !visible.iter().any(|it| it == name));
    assert_eq!(unknown, None, "a command that does not exist");
}

#[test]
fn the_short_list_of_commands_names_all() {
    let text = help("larder", "-h");
    for sub in crate::command().get_subcommands().filter(|sub| !sub.is_hide_set()) {
        assert!(text.contains(sub.get_name()), "{}\n{text}", sub.get_name());
    }
    assert!(help("larder ctl stats", "-h").contains("--control"), "options of all commands");
}

#[test]
fn a_misspelled_name_gets_a_suggestion() {
    for (line, suggestion) in [
        ("larder siez", "'size'"),
        ("larder size --budgte 1GiB", "'--budget'"),
        ("larder size t --policy lur", "\"lru\""),
        ("larder serve a --policy s3fif", "\"s3fifo\""),
        ("larder serve a --write-mode a=write-bcak", "\"write-back\""),
        ("larder size t --trace-format blkprase", "\"blkparse\""),
        ("larder size t --format jsn", "'json'"),
        ("larder trace convert a b --to-format larde", "\"larder\""),
        ("larder trace synth ziph f", "\"zipf\""),
        ("larder trace filter a b --op raed", "\"read\""),
        ("larder sim t --store dsk", "\"disk\""),
        ("larder sim t --curve --by volum", "\"volume\""),
        ("larder bench fileload d --start wram", "\"warm\""),
        ("larder bench postmark --fsync clos", "\"close\""),
        ("larder bench iozonne", "'iozone'"),
        ("larder top --view chaces", "'caches'"),
    ] {
        let error = crate::parse(line.split(' ')).expect_err(line).to_string();
        assert!(error.contains(suggestion), "{line}: {error}");
    }
}
