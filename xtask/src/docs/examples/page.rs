//! A Markdown page as text and examples.

use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};

use crate::run;

/// A page; text and examples in order.
#[derive(Debug)]
pub(super) struct Page(Vec<Part>);

#[derive(Debug)]
enum Part {
    /// Lines without an example, each with its end.
    Text(String),
    Example(Example),
}

/// The kind of a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Commands with their output.
    Console,
    /// A script that must succeed.
    Script,
}

/// A fence, and the comment before it.
#[derive(Debug)]
pub(super) struct Example {
    pub(super) kind: Kind,
    /// The number of the fence's first line.
    pub(super) line: usize,
    /// Commands that the reader does not see.
    pub(super) setup: Vec<String>,
    pub(super) figures_vary: bool,
    pub(super) commands: Vec<ShownCommand>,
    needs: Vec<String>,
    not_run: Option<String>,
}

/// A command and its output in a page.
#[derive(Debug)]
pub(super) struct ShownCommand {
    pub(super) text: String,
    pub(super) output: Vec<String>,
}

impl Page {
    /// # Errors
    /// A fence without an end, a fence of another kind with commands, an unknown line of a comment.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let mut parts = Vec::new();
        let mut plain = String::new();
        let mut comment: Vec<&str> = Vec::new();
        let mut lines = text.lines().enumerate();
        while let Some((index, line)) = lines.next() {
            let number = index + 1;
            plain.extend([line, "\n"]);
            if line == "<!--" {
                comment = until(&mut lines, "-->").with_context(|| format!("line {number}"))?;
                plain.extend(comment.iter().flat_map(|line| [*line, "\n"]));
                plain.push_str("-->\n");
                continue;
            }
            let Some(kind) = line.strip_prefix("```") else {
                if !line.is_empty() {
                    comment.clear();
                }
                continue;
            };
            let body = until(&mut lines, "```").with_context(|| format!("line {number}"))?;
            let kind = match kind {
                "console" => Kind::Console,
                "sh" => Kind::Script,
                _ => {
                    let shows_commands = body.iter().any(|line| line.starts_with("$ "));
                    ensure!(
                        !shows_commands,
                        "line {number}: a fence with commands needs the kind console"
                    );
                    plain.extend(body.iter().flat_map(|line| [*line, "\n"]));
                    plain.push_str("```\n");
                    continue;
                }
            };
            let commands = commands(kind, &body).with_context(|| format!("line {number}"))?;
            let mut example = Example::new(kind, number, commands);
            for line in comment.drain(..) {
                example.set(line).with_context(|| format!("comment before line {number}"))?;
            }
            parts.push(Part::Text(std::mem::take(&mut plain)));
            parts.push(Part::Example(example));
        }
        parts.push(Part::Text(plain));
        Ok(Page(parts))
    }

    pub(super) fn examples(&self) -> impl Iterator<Item = &Example> {
        self.0.iter().filter_map(|part| match part {
            Part::Example(example) => Some(example),
            Part::Text(_) => None,
        })
    }

    pub(super) fn examples_mut(&mut self) -> impl Iterator<Item = &mut Example> {
        self.0.iter_mut().filter_map(|part| match part {
            Part::Example(example) => Some(example),
            Part::Text(_) => None,
        })
    }

    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        for part in &self.0 {
            match part {
                Part::Text(plain) => text.push_str(plain),
                Part::Example(example) => example.write(&mut text),
            }
        }
        text
    }
}

/// Takes the lines until this one, which is dropped.
fn until<'a>(
    lines: &mut impl Iterator<Item = (usize, &'a str)>,
    end: &str,
) -> Result<Vec<&'a str>> {
    let mut taken = Vec::new();
    for (_, line) in lines {
        if line == end {
            return Ok(taken);
        }
        taken.push(line);
    }
    bail!("no line {end} follows")
}

/// Returns the commands of a fence. A command goes on after a backslash at the end of a line.
fn commands(kind: Kind, body: &[&str]) -> Result<Vec<ShownCommand>> {
    if kind == Kind::Script {
        return Ok(vec![ShownCommand { text: body.join("\n"), output: Vec::new() }]);
    }
    let mut commands: Vec<ShownCommand> = Vec::new();
    for line in body {
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (Some(text), _) => {
                commands.push(ShownCommand { text: text.to_owned(), output: Vec::new() });
            }
            (None, Some(last)) if last.output.is_empty() && last.text.ends_with('\\') => {
                last.text.push('\n');
                last.text.push_str(line);
            }
            (None, Some(last)) => last.output.push((*line).to_owned()),
            (None, None) => bail!("the first line must be a command"),
        }
    }
    // An empty line before the next command separates the two.
    for command in &mut commands {
        while command.output.last().is_some_and(String::is_empty) {
            command.output.pop();
        }
    }
    Ok(commands)
}

impl Example {
    fn new(kind: Kind, line: usize, commands: Vec<ShownCommand>) -> Self {
        let (setup, needs) = (Vec::new(), Vec::new());
        Example { kind, line, setup, figures_vary: false, commands, needs, not_run: None }
    }

    /// Applies a line of the comment.
    fn set(&mut self, line: &str) -> Result<()> {
        match line.split_once(": ") {
            Some(("run", command)) => self.setup.push(command.to_owned()),
            Some(("needs", list)) => self.needs.extend(list.split(", ").map(str::to_owned)),
            Some(("not run", reason)) => self.not_run = Some(reason.to_owned()),
            _ if line == "figures vary" => self.figures_vary = true,
            _ => bail!("\"{line}\" is not run, needs, figures vary or not run"),
        }
        Ok(())
    }

    /// Returns the reason for which the example cannot run.
    pub(super) fn unmet_requirement(&self) -> Option<String> {
        let unmet = |need: &String| match need.as_str() {
            "root" => (!rustix::process::geteuid().is_root()).then(|| "needs root".to_owned()),
            path if path.starts_with('/') => {
                (!Path::new(path).exists()).then(|| format!("needs {path}"))
            }
            program => run::missing_program(&[program]),
        };
        self.not_run.clone().or_else(|| self.needs.iter().find_map(unmet))
    }

    /// Writes the content and the end of the fence.
    fn write(&self, text: &mut String) {
        let mut separated = true;
        for command in &self.commands {
            if !separated {
                text.push('\n');
            }
            if self.kind == Kind::Console {
                text.push_str("$ ");
            }
            text.extend([command.text.as_str(), "\n"]);
            text.extend(command.output.iter().flat_map(|line| [line, "\n"]));
            separated = command.output.is_empty();
        }
        text.push_str("```\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# Page\n\n<!--\nrun: mkdir d\nneeds: root, /dev/null\nfigures vary\n-->\n\n\
        ```console\n$ ls \\\n    d\n1 file\n...\n\n$ true\n```\n\nText.\n\n```sh\na\nb\n```\n\n\
        ```text\nplain\n```\n";

    #[test]
    fn a_page_is_read_and_written_back() {
        let page = Page::parse(PAGE).unwrap();
        let examples: Vec<_> = page.examples().collect();
        assert_eq!((examples.len(), examples[0].line, examples[1].line), (2, 9, 20));
        assert_eq!(examples[0].setup, ["mkdir d"]);
        assert!(examples[0].figures_vary && !examples[1].figures_vary);
        assert_eq!(examples[0].needs, ["root", "/dev/null"]);
        let commands: Vec<_> = examples[0].commands.iter().map(|it| it.text.as_str()).collect();
        assert_eq!(commands, ["ls \\\n    d", "true"]);
        assert_eq!(examples[0].commands[0].output, ["1 file", "..."]);
        assert_eq!(examples[1].commands[0].text, "a\nb");
        assert_eq!(page.to_text(), PAGE);
    }

    #[test]
    fn commands_cannot_escape() {
        let error = |page: &str| format!("{:#}", Page::parse(page).unwrap_err());
        let kind = "line 1: a fence with commands needs the kind console";
        assert_eq!(error("```\n$ ls\n```\n"), kind);
        assert_eq!(error("```console\nls\n```\n"), "line 1: the first line must be a command");
        assert_eq!(error("```sh\nls\n"), "line 1: no line ``` follows");
        let comment = error("<!--\nskip: it\n-->\n```console\n$ ls\n```\n");
        assert!(comment.contains("\"skip: it\" is not run,"), "{comment}");
    }
}
