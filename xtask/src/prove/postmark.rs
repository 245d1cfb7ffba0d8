//! `larder bench postmark --classic` beside Debian's `postmark`: the same counts, the same words,
//! the same system calls, no more processor time.
//!
//! Configurations come from the seed. Times and rates are masked before words are compared, and so
//! is the advice after `out of files!`, which is in words of our own.

mod calls;
mod cost;
mod script;

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::{Claims, Lab};
use crate::random::Random;
use crate::run;

/// What a session may take.
const SESSION_MAX_S: u64 = 120;

/// Who is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Ours,
    Theirs,
}

/// What a session came to.
#[derive(Debug, PartialEq, Eq)]
struct Session {
    stdout: String,
    stderr: String,
    /// What the report file holds, if one was made.
    report: Option<String>,
}

/// Runs the proof.
pub(super) fn run(lab: &Lab, claims: &mut Claims) -> Result<()> {
    if !run::installed("postmark") {
        let reason = "postmark is not installed (apt-get install postmark)";
        claims.skip("larder bench postmark --classic is the original", reason);
        return Ok(());
    }
    let count = lab.either(200, 40);
    let mut random = Random::seeded(lab.options.seed);
    claims.tried(
        format!("{count} random configurations: counts and words of the original"),
        || {
            for number in 0..count {
                let script = script::random(&mut random);
                compare(lab, &script).with_context(|| format!("configuration {number}"))?;
            }
            Ok(format!("all the same, seed {}", lab.options.seed))
        },
    );
    claims.tried(format!("{count} random sessions of commands: words of the original"), || {
        for number in 0..count {
            let lines = script::commands(&mut random);
            compare(lab, &lines).with_context(|| format!("session {number}"))?;
        }
        Ok(format!("all the same, seed {}", lab.options.seed))
    });
    calls::run(lab, claims);
    cost::run(lab, claims)
}

/// The program with a script, in a folder of its own.
fn command(lab: &Lab, who: Who, dir: &Path) -> Command {
    let mut command = match who {
        Who::Ours => {
            let mut command = run::client(SESSION_MAX_S, &lab.binary.to_string_lossy());
            command.args(["bench", "postmark", "--classic"]);
            command
        }
        Who::Theirs => run::client(SESSION_MAX_S, "postmark"),
    };
    command.arg("script").current_dir(dir);
    command
}

/// A new folder with a script and the folders that scripts speak of. Both programs get one of the
/// same name, since it is part of what they print.
fn prepare(lab: &Lab, script: &str) -> Result<std::path::PathBuf> {
    let dir = lab.file("postmark");
    if dir.exists() {
        std::fs::remove_dir_all(&dir).with_context(|| format!("remove {}", dir.display()))?;
    }
    for name in script::FOLDERS {
        let folder = dir.join(name);
        std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    }
    for (name, text) in [("script", script), ("loaded", script::LOADED)] {
        std::fs::write(dir.join(name), text).with_context(|| format!("write {name}"))?;
    }
    Ok(dir)
}

fn session(lab: &Lab, who: Who, script: &str) -> Result<Session> {
    let dir = prepare(lab, script)?;
    let out = run::keep(&mut command(lab, who, &dir))?;
    ensure!(out.code == Some(0), "{who:?}: exit code {:?}\n{}", out.code, run::tail(&out.stderr));
    let report = std::fs::read_to_string(dir.join("report")).ok();
    Ok(Session {
        stdout: masked(&out.stdout),
        stderr: out.stderr,
        report: report.map(|text| masked(&text)),
    })
}

/// Asks both and compares.
fn compare(lab: &Lab, script: &str) -> Result<()> {
    let theirs = session(lab, Who::Theirs, script)?;
    let ours = session(lab, Who::Ours, script)?;
    ensure!(ours == theirs, "they differ\n{script}\noriginal: {theirs:#?}\nours: {ours:#?}");
    Ok(())
}

/// The text without what differs from run to run: times, rates, and words of our own.
fn masked(text: &str) -> String {
    let mut masked = String::new();
    let mut advice = 0;
    for line in text.lines() {
        if advice > 0 {
            advice -= 1;
            continue;
        }
        if line.ends_with("out of files!") {
            advice = 2;
        }
        masked.push_str(&masked_line(line));
        masked.push('\n');
    }
    masked
}

fn masked_line(line: &str) -> String {
    let (line, end) = match line.split_once(" (") {
        Some((start, rest)) if rest.ends_with("per second)") => (start, " (RATE)"),
        _ => (line, ""),
    };
    if let Some(at) = line.find(" seconds").filter(|_| line.starts_with('\t')) {
        return format!("\tTIME{}{end}", &line[at..]);
    }
    let numbers: Vec<&str> = line.split(' ').collect();
    if numbers.len() == 13 && numbers.iter().all(|number| number.parse::<f64>().is_ok()) {
        return "13 NUMBERS".to_owned();
    }
    match line.split_once(" - ") {
        // A line of help: the name is the original's, the description is not.
        Some((name, _)) if script::is_command(name) => format!("{name} - "),
        _ => format!("{line}{end}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_times_rates_and_words_of_our_own_are_masked() {
        let text = "\t7 seconds total\n\t3 seconds of transactions (166 per second)\n\t349 created \
                    (49 per second)\n\t1.64 megabytes read (239.87 kilobytes per second)\n\
                    pm>set size - of files\nTransactions: 500\n.out of files!\nwhy\nhow\nDone\n";
        assert_eq!(
            masked(text),
            "\tTIME seconds total\n\tTIME seconds of transactions (RATE)\n\t349 created \
             (RATE)\n\t1.64 megabytes read (RATE)\npm>set size - \nTransactions: 500\n.out of \
             files!\nDone\n"
        );
        assert_eq!(
            masked_line("1 1 5.00 3.00 1.00 2.00 2.00 2.00 3.00 9.00 2.00 17.00 22.00"),
            "13 NUMBERS"
        );
    }
}
