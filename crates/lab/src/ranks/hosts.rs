//! Ranks that the leader starts on hosts, one on each.
//!
//! They communicate over the standard input and output of the program that starts them, usually
//! `ssh`: no socket is needed, and `ssh` authenticates the ranks. When this process exits, their
//! input ends, so they clean up and end too.

use super::link::{self, HELLO_BYTES_MAX, Link, Message, RankLink};
use super::{RANKS_MAX, RankResults, gather};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// Interval at which the leader checks for a stop.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// Time limit for the program that started a rank to end after it.
const EXIT_TIME_MAX: Duration = Duration::from_secs(10);
/// Flags with a value that apply only to this process.
const LOCAL_FLAGS: [&str; 6] = ["--hosts", "--ssh", "--program", "--format", "--output", "-o"];

/// Hosts, and the way to start a rank on them.
#[derive(Clone, Copy, Debug)]
pub struct Hosts<'a> {
    /// The hosts, one for each rank.
    pub hosts: &'a [String],
    /// The command that starts a command on a host; host and command are appended.
    pub ssh: &'a str,
    /// The path of larder on the hosts.
    pub program: &'a str,
    /// The arguments of this process.
    pub args: &'a [String],
}

/// Starts all ranks and leads them to the end; returns their results.
///
/// # Errors
/// A host has no valid name, a rank cannot be started, or the first rank that ended.
pub fn lead(hosts: &Hosts<'_>, stop: &AtomicBool) -> Result<RankResults, String> {
    let count = hosts.hosts.len();
    if count > RANKS_MAX {
        return Err(format!("start ranks: {count} are more than {RANKS_MAX}"));
    }
    // A host name that begins with "-" would be an option of ssh.
    if let Some(host) = hosts.hosts.iter().find(|host| host.is_empty() || host.starts_with('-')) {
        return Err(format!("start a rank on \"{host}\": no host"));
    }
    let mut children = Vec::new();
    let result = start_and_lead(hosts, &mut children, stop);
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
    result
}

fn start_and_lead(
    hosts: &Hosts<'_>,
    children: &mut Vec<Child>,
    stop: &AtomicBool,
) -> Result<RankResults, String> {
    let ranks = hosts.hosts.len();
    let (sender, receiver) = channel();
    for (rank, host) in hosts.hosts.iter().enumerate() {
        let mut command = hosts.command(rank);
        // Ctrl-C ends this process, which ends the others in an orderly way.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().map_err(|error| {
            let program = command.get_program().to_string_lossy();
            format!("start {program} for {host}: {error}")
        })?;
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
    let next = || match receiver.recv_timeout(STOP_CHECK_INTERVAL) {
        Ok((rank, Ok(Some(Message::Hello(hello))), link)) if hello.rank == rank => {
            Ok(Some(RankLink { hello, link }))
        }
        Ok((rank, ..)) => {
            let (program, host) = (hosts.program, &hosts.hosts[rank]);
            Err(format!("{program} on {host} did not begin; what it said stands above"))
        }
        Err(_) => Ok(None),
    };
    let name = |rank: usize| format!("the rank on {}", hosts.hosts[rank]);
    super::lead(gather(ranks, None, stop, next, name)?, stop)
}

impl Hosts<'_> {
    /// Returns the command that starts a rank. A shell at the other end of `ssh` splits the words
    /// again, so they are quoted for it.
    fn command(&self, rank: usize) -> Command {
        let mut words = self.ssh.split_whitespace();
        let starter = words.next().unwrap_or("ssh");
        let is_ssh = Path::new(starter).file_name().is_some_and(|name| name == "ssh");
        let (ranks, host) = (self.hosts.len(), &self.hosts[rank]);
        let mut command = Command::new(starter);
        command.args(words).arg(host);
        let rank_flag = format!("--rank={rank}/{ranks}@{host}");
        let words = words_for_rank(self.args, &rank_flag).into_iter();
        for word in std::iter::once(self.program.to_owned()).chain(words) {
            command.arg(if is_ssh { quoted(&word) } else { word });
        }
        command
    }
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
