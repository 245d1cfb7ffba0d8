//! Ranks that this command starts on hosts, one on each.
//!
//! They communicate over the standard input and output of the program that starts them, usually
//! `ssh`: no socket is needed, and `ssh` authenticates the ranks. When this process exits, their
//! input ends, so they clean up and end too.

use super::communicator::Communicator;
use super::coordinator::{RankLink, lead as lead_ranks};
use super::link::{self, HELLO_BYTES_MAX, Hello, Link, Message};
use super::{JOIN_MAX, MultiHostArgs, RANKS_MAX, check_peer, notify_failure};
use crate::signals::Stop;
use anyhow::{Result, ensure};
use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Interval at which the leader checks for a stop.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Time limit for the program that started a rank to end after it.
const EXIT_TIME_MAX: Duration = Duration::from_secs(10);
/// Flags with a value that apply only to this process.
const LOCAL_FLAGS: [&str; 6] = ["--hosts", "--ssh", "--program", "--format", "--output", "-o"];

/// Joins as a rank that `--hosts` started.
pub(super) fn join(hello: Hello, stop: &Stop) -> Result<Communicator> {
    let link = Link::new(std::io::stdin(), crate::output::raw_stdout());
    Communicator::join(hello, link, stop.shared_flag())
}

/// Starts all ranks and leads them to the end; returns their results.
pub(super) fn lead(multi_host: &MultiHostArgs, stop: &AtomicBool) -> Result<Vec<Value>> {
    let hosts = &multi_host.hosts;
    ensure!(hosts.len() <= RANKS_MAX, "start ranks: {} are more than {RANKS_MAX}", hosts.len());
    for host in hosts {
        // A host name that begins with "-" would be an option of ssh.
        ensure!(!host.is_empty() && !host.starts_with('-'), "start a rank on \"{host}\": no host");
    }
    let args: Vec<String> = std::env::args().skip(1).collect();
    let mut children = Vec::new();
    let result = start_and_lead(multi_host, &args, &mut children, stop);
    let started_at = Instant::now();
    for mut child in children {
        while !matches!(child.try_wait(), Ok(Some(_)) | Err(_)) {
            if started_at.elapsed() > EXIT_TIME_MAX {
                // The rank has ended by now, or cannot be reached.
                drop(child.kill());
            }
            std::thread::sleep(STOP_CHECK_INTERVAL / 5);
        }
    }
    result.map_err(anyhow::Error::msg)
}

fn start_and_lead(
    multi_host: &MultiHostArgs,
    args: &[String],
    children: &mut Vec<Child>,
    stop: &AtomicBool,
) -> Result<Vec<Value>, String> {
    let ranks = multi_host.hosts.len();
    let mut joined: Vec<Option<RankLink>> = Vec::new();
    let (sender, receiver) = channel();
    for (rank, host) in multi_host.hosts.iter().enumerate() {
        joined.push(None);
        let mut command = command(multi_host, args, (rank, ranks, host));
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Ctrl-C ends this process, which ends the others in an orderly way.
            .process_group(0)
            .spawn();
        let mut child = match child {
            Ok(child) => child,
            Err(error) => {
                let program = command.get_program().to_string_lossy().into_owned();
                let error = format!("start {program} for {host}: {error}");
                notify_failure(joined, &error);
                return Err(error);
            }
        };
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let mut link = Link::new(output.expect("it is piped"), input.expect("it is piped"));
        children.push(child);
        let sender = sender.clone();
        std::thread::spawn(move || {
            let hello = link::read(&mut link.reader, HELLO_BYTES_MAX);
            // After the time limit the receiver is gone.
            drop(sender.send((rank, hello, link)));
        });
    }
    let started_at = Instant::now();
    while joined.iter().any(Option::is_none) {
        let error = match receiver.recv_timeout(STOP_CHECK_INTERVAL) {
            Ok((rank, Ok(Some(Message::Hello(hello))), link)) if hello.rank == rank => {
                match check_peer(&hello, ranks, &joined) {
                    Ok(()) => {
                        joined[rank] = Some(RankLink { hello, link });
                        continue;
                    }
                    Err(error) => error,
                }
            }
            Ok((rank, ..)) => {
                let host = &multi_host.hosts[rank];
                format!("{} on {host} did not begin; what it said stands above", multi_host.program)
            }
            Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => {
                "it was stopped".to_owned()
            }
            Err(RecvTimeoutError::Timeout) if started_at.elapsed() < JOIN_MAX => continue,
            Err(_) => {
                let missing = joined.iter().position(Option::is_none).unwrap_or_default();
                let (host, seconds) = (&multi_host.hosts[missing], JOIN_MAX.as_secs());
                format!("the rank on {host} did not come within {seconds} seconds")
            }
        };
        notify_failure(joined, &error);
        return Err(error);
    }
    lead_ranks(joined.into_iter().flatten().collect(), stop)
}

/// Returns the command that starts a rank. A shell at the other end of `ssh` splits the words
/// again, so they are quoted for it.
fn command(
    multi_host: &MultiHostArgs,
    args: &[String],
    (rank, ranks, host): (usize, usize, &String),
) -> Command {
    let mut words = multi_host.ssh.split_whitespace();
    let starter = words.next().unwrap_or("ssh");
    let is_ssh = Path::new(starter).file_name().is_some_and(|name| name == "ssh");
    let mut command = Command::new(starter);
    command.args(words).arg(host);
    let rank_flag = format!("--rank={rank}/{ranks}@{host}");
    for word in [multi_host.program.clone()].into_iter().chain(words_for_rank(args, &rank_flag)) {
        command.arg(if is_ssh { quoted(&word) } else { word });
    }
    command
}

/// Returns the arguments of this command for a rank: without the flags for this process, and with
/// the rank.
fn words_for_rank(args: &[String], rank_flag: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut remaining = args.iter();
    while let Some(word) = remaining.next() {
        if LOCAL_FLAGS.contains(&word.as_str()) {
            remaining.next();
        } else if !LOCAL_FLAGS.iter().any(|flag| has_value(word, flag)) {
            words.push(word.clone());
        }
        // After "bench" and the name of the benchmark.
        if words.len() == 2 {
            words.push(rank_flag.to_owned());
        }
    }
    words
}

/// Returns true if a word is a flag joined with its value.
fn has_value(word: &str, flag: &str) -> bool {
    let rest = word.strip_prefix(flag);
    rest.is_some_and(|rest| rest.starts_with('=') || (!flag.starts_with("--") && !rest.is_empty()))
}

/// Quotes a word for a shell.
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
