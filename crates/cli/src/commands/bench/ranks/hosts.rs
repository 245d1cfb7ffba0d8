//! Ranks that this command starts on hosts, one on each.
//!
//! They talk through standard input and output of what starts them, `ssh` mostly: nothing is
//! listened on, and who may come in is the business of `ssh`. When this process is gone their input
//! ends, so they clean up and end too.

use super::communicator::Communicator;
use super::coordinator::{RankLink, lead as lead_members};
use super::link::{self, HELLO_BYTES_MAX, Hello, Link, Message};
use super::{JOIN_MAX, MultiHostArgs, RANKS_MAX, fits, turn_away};
use crate::signals::Stop;
use anyhow::{Result, ensure};
use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How often a wish to stop is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long what started a rank may take to end after it.
const ENDING_MAX: Duration = Duration::from_secs(10);
/// Flags that are for this process alone, all with a value.
const OURS: [&str; 6] = ["--hosts", "--ssh", "--program", "--format", "--output", "-o"];

/// Joins as one that was started so.
pub(super) fn join(hello: Hello, stop: &Stop) -> Result<Communicator> {
    let link = Link::new(std::io::stdin(), crate::output::raw_stdout());
    Communicator::join(hello, link, stop.raised())
}

/// Starts all ranks and leads them to the end; what they handed over.
pub(super) fn lead(together: &MultiHostArgs, stop: &AtomicBool) -> Result<Vec<Value>> {
    let hosts = &together.hosts;
    ensure!(hosts.len() <= RANKS_MAX, "start ranks: {} are more than {RANKS_MAX}", hosts.len());
    for host in hosts {
        // A name that begins so would be an option of ssh.
        ensure!(!host.is_empty() && !host.starts_with('-'), "start a rank on \"{host}\": no host");
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut children = Vec::new();
    let result = start_and_lead(together, &args, &mut children, stop);
    let begun = Instant::now();
    for mut child in children {
        while !matches!(child.try_wait(), Ok(Some(_)) | Err(_)) {
            if begun.elapsed() > ENDING_MAX {
                // The rank is gone by now, or cannot be reached.
                drop(child.kill());
            }
            std::thread::sleep(LOOK_EVERY / 5);
        }
    }
    result.map_err(anyhow::Error::msg)
}

fn start_and_lead(
    together: &MultiHostArgs,
    args: &[String],
    children: &mut Vec<Child>,
    stop: &AtomicBool,
) -> Result<Vec<Value>, String> {
    let ranks = together.hosts.len();
    let mut there: Vec<Option<RankLink>> = Vec::new();
    let (came, comes) = channel();
    for (rank, host) in together.hosts.iter().enumerate() {
        there.push(None);
        let mut command = command(together, args, (rank, ranks, host));
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C ends this process, and this one ends the others in order.
            .process_group(0)
            .spawn();
        let mut child = match child {
            Ok(child) => child,
            Err(error) => {
                let program = command.get_program().to_string_lossy().into_owned();
                let why = format!("start {program} for {host}: {error}");
                turn_away(there, &why);
                return Err(why);
            }
        };
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let mut link = Link::new(output.expect("it is piped"), input.expect("it is piped"));
        children.push(child);
        let came = came.clone();
        std::thread::spawn(move || {
            let hello = link::read(&mut link.reader, HELLO_BYTES_MAX);
            // Nobody waits any more if it took too long.
            drop(came.send((rank, hello, link)));
        });
    }
    let begun = Instant::now();
    while there.iter().any(Option::is_none) {
        let why = match comes.recv_timeout(LOOK_EVERY) {
            Ok((rank, Ok(Some(Message::Hello(hello))), link)) if hello.rank == rank => {
                match fits(&hello, ranks, &there) {
                    Ok(()) => {
                        there[rank] = Some(RankLink { hello, link });
                        continue;
                    }
                    Err(why) => why,
                }
            }
            Ok((rank, ..)) => {
                let host = &together.hosts[rank];
                format!("{} on {host} did not begin; what it said stands above", together.program)
            }
            Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => {
                "it was stopped".to_owned()
            }
            Err(RecvTimeoutError::Timeout) if begun.elapsed() < JOIN_MAX => continue,
            Err(_) => {
                let late = there.iter().position(Option::is_none).unwrap_or_default();
                let (host, seconds) = (&together.hosts[late], JOIN_MAX.as_secs());
                format!("the rank on {host} did not come within {seconds} seconds")
            }
        };
        turn_away(there, &why);
        return Err(why);
    }
    lead_members(there.into_iter().flatten().collect(), stop)
}

/// What starts a rank. A shell at the other end of `ssh` takes the words apart again, so there they
/// are quoted.
fn command(
    together: &MultiHostArgs,
    args: &[String],
    (rank, ranks, host): (usize, usize, &String),
) -> Command {
    let mut words = together.ssh.split_whitespace();
    let starter = words.next().unwrap_or("ssh");
    let is_ssh = Path::new(starter).file_name().is_some_and(|name| name == "ssh");
    let mut command = Command::new(starter);
    command.args(words).arg(host);
    let seat = format!("--rank={rank}/{ranks}@{host}");
    for word in [together.program.clone()].into_iter().chain(words_for_rank(args, &seat)) {
        command.arg(if is_ssh { quoted(&word) } else { word });
    }
    command
}

/// The words of this command for a rank: without what is ours, and with its seat.
fn words_for_rank(args: &[String], seat: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = args.iter();
    while let Some(word) = rest.next() {
        if OURS.contains(&word.as_str()) {
            rest.next();
        } else if !OURS.iter().any(|flag| has_value(word, flag)) {
            words.push(word.clone());
        }
        // Behind "bench" and the name of the benchmark.
        if words.len() == 2 {
            words.push(seat.to_owned());
        }
    }
    words
}

/// Whether a word is a flag together with its value.
fn has_value(word: &str, flag: &str) -> bool {
    let rest = word.strip_prefix(flag);
    rest.is_some_and(|rest| rest.starts_with('=') || (!flag.starts_with("--") && !rest.is_empty()))
}

/// For a shell, whatever is in it.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_gets_the_words_that_are_not_ours() {
        let line = "bench postmark a.pm --hosts a,b --number 7 --ssh=x -o f -of --format json \
                    --output=f --seed 3";
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let words = words_for_rank(&args, "--rank=0/2@a");
        let known = "bench postmark --rank=0/2@a a.pm --number 7 --seed 3";
        assert_eq!(words.join(" "), known);
    }

    #[test]
    fn words_survive_a_shell() {
        for word in ["plain", "two words", "it's", "$HOME;`x`", ""] {
            let output = Command::new("sh")
                .args(["-c", &format!("printf %s {}", quoted(word))])
                .output()
                .unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), word);
        }
    }
}
