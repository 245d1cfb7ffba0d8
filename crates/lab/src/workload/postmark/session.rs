//! A session of the original program: script, prompt, and their output.
//!
//! Invariants: errors are reported on standard error and the session continues; it ends at `quit`
//! or at the end of its input, always successfully. The words are those of the original, except for
//! the lines of `help` and the advice after `out of files!`. Commands for a shell (`!`) are not
//! executed, and an error says so.

use super::classic;
use super::command::Command;
use super::config::Config;
use super::lines;
use super::report::report;
use super::show::{help, show};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Banner of the original.
const BANNER: &str = "PostMark v1.51 : 8/14/01\n";
/// The script that is read by default.
const DEFAULT_SCRIPT: &str = ".pmrc";

/// A session.
pub struct Session<'a> {
    config: Config,
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
}

impl std::fmt::Debug for Session<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Continuation of a session after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Continue,
    Quit,
}

impl<'a> Session<'a> {
    /// Returns a session with the defaults that writes to these outputs.
    pub fn new(out: &'a mut dyn Write, err: &'a mut dyn Write) -> Self {
        Session { config: Config::default(), out, err }
    }

    /// Executes `script`, or `.pmrc` in the current directory without one; if that does not quit,
    /// prompts for commands.
    ///
    /// # Errors
    /// The output cannot be written, or the input cannot be read.
    pub fn run(&mut self, script: Option<&Path>, input: &mut dyn BufRead) -> io::Result<()> {
        self.print(BANNER)?;
        let script = script.unwrap_or(Path::new(DEFAULT_SCRIPT));
        if let Ok(file) = File::open(script)
            && self.run_script(script, file)? == Next::Quit
        {
            return self.out.flush();
        }
        loop {
            self.print("pm>")?;
            self.out.flush()?;
            let Some(line) = lines::next(input)? else { break };
            match line.as_slice() {
                b"exit" => break,
                b"?" => self.print(&help(b""))?,
                line => {
                    if self.execute(line)? == Next::Quit {
                        break;
                    }
                }
            }
        }
        self.out.flush()
    }

    fn run_script(&mut self, path: &Path, file: File) -> io::Result<Next> {
        let name = path.as_os_str().as_bytes();
        self.write(&[b"Reading configuration from file '", name, b"'\n"])?;
        let mut file = BufReader::new(file);
        // A script that cannot be read, such as a directory, counts as empty.
        while let Ok(Some(line)) = lines::next(&mut file) {
            if self.execute(&line)? == Next::Quit {
                return Ok(Next::Quit);
            }
        }
        Ok(Next::Continue)
    }

    fn execute(&mut self, line: &[u8]) -> io::Result<Next> {
        if line.first() == Some(&b'!') {
            self.report_error("commands for a shell are not carried out: '", line)?;
            return Ok(Next::Continue);
        }
        let Some((command, parameter)) = Command::parse(line) else {
            self.print("Eh?\n")?;
            return Ok(Next::Continue);
        };
        match command {
            Command::Quit => return Ok(Next::Quit),
            Command::Run => self.run_once(parameter)?,
            Command::Load => self.load(parameter)?,
            Command::Show => self.show(parameter)?,
            Command::Help => self.print(&help(parameter.unwrap_or_default()))?,
            setting => {
                if let Err(error) = self.config.set(setting, parameter) {
                    writeln!(self.err, "Error: {error}")?;
                }
            }
        }
        Ok(Next::Continue)
    }

    fn load(&mut self, parameter: Option<&[u8]>) -> io::Result<()> {
        let Some(name) = parameter else {
            return self.err.write_all(b"Error: no configuration file specified\n");
        };
        let path = Path::new(OsStr::from_bytes(name));
        match File::open(path) {
            // A quit inside ends only that file.
            Ok(file) => self.run_script(path, file).map(|_| ()),
            Err(_) => self.report_error("cannot read configuration file '", name),
        }
    }

    fn run_once(&mut self, parameter: Option<&[u8]>) -> io::Result<()> {
        let Some(outcome) = classic::run(&self.config, self.out, self.err)? else {
            return Ok(());
        };
        let mut file = self.open_output(parameter)?;
        if let Some((counts, seconds)) = outcome {
            let text = report(&self.config, &counts, seconds);
            match &mut file {
                // As in the original, a failed write to the file is not reported.
                Some(file) => drop(file.write_all(text.as_bytes())),
                None => self.print(&text)?,
            }
        }
        Ok(())
    }

    fn show(&mut self, parameter: Option<&[u8]>) -> io::Result<()> {
        let current = std::env::current_dir().unwrap_or_default();
        let shown = show(&self.config, &current);
        match self.open_output(parameter)? {
            Some(mut file) => {
                drop(file.write_all(&shown.before));
                self.out.write_all(&shown.locations)?;
                drop(file.write_all(&shown.after));
                Ok(())
            }
            None => self.write(&[&shown.before, &shown.locations, &shown.after]),
        }
    }

    /// Opens the file for a result; `None` for standard output.
    fn open_output(&mut self, parameter: Option<&[u8]>) -> io::Result<Option<File>> {
        let Some(name) = parameter else { return Ok(None) };
        let file = OpenOptions::new().append(true).create(true).open(OsStr::from_bytes(name));
        if file.is_err() {
            self.report_error("Cannot direct output to file '", name)?;
        }
        Ok(file.ok())
    }

    fn report_error(&mut self, what: &str, name: &[u8]) -> io::Result<()> {
        self.err.write_all(&[b"Error: ", what.as_bytes(), name, b"'\n"].concat())
    }

    fn print(&mut self, text: &str) -> io::Result<()> {
        self.out.write_all(text.as_bytes())
    }

    fn write(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        parts.iter().try_for_each(|part| self.out.write_all(part))
    }
}

#[cfg(test)]
mod tests;
