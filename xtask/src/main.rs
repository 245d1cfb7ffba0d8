//! Tasks of this repository: style rules, generated documents, tests and proofs.
//!
//! Continuous integration runs `cargo xtask test`; `cargo xtask prove` runs the long checks. Exit
//! codes: 0 all checks passed, 1 a check failed or all of a proof was skipped, 2 wrong usage or the
//! command itself failed.
#![expect(clippy::print_stdout, reason = "a command line tool talks on its standard output")]
#![forbid(unsafe_code)]

mod cleanup;
mod daemon;
mod disk;
mod docs;
mod fio;
mod flood;
mod guest;
mod image;
mod ledger;
mod memory_group;
mod nbd;
mod nextest;
mod out;
mod package;
mod packages;
mod processor_group;
mod prove;
mod record;
mod release;
mod rings;
mod run;
mod server;
mod stats;
mod structure;
mod table;
mod test;
mod tidy;
mod tools;
mod wheel;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask COMMAND

  tidy                   check the rules of the repository; one line per violation
  docs [--check]         write the generated parts of docs and packaging, or fail if they differ
  captures [BINARY]      show larder top to docs/top.md, in tmux; needs root
  structure [REVISION...]
                         sizes of the product code of each crate at these revisions
  test                   install what the tests need, run everything that takes minutes
      --stress ROUNDS [FILTER]
                         run all tests, or those of a nextest filter, ROUNDS times under
                         load and with scarce resources; needs root
  guest [OPTION]... CMD  run a command under Debian's kernel, in a virtual machine that sees
                         this machine's root directory; options: see xtask/guest/run
  package [deb|static] [--binary FILE]
                         make the Debian package, and the archive with the static binary and
                         the files of the container image, in target/packages
  release [--no-test] [--candidate]
                         check the tree, run all tests, and make all files of a release in
                         target/release-VERSION; a candidate may be unreleased in CHANGELOG.md
  prove [NAME...]        install what the proofs need, run all of them or those named
      --quick            seconds instead of minutes
      --for TIME         how long to fuzz or to simulate: 90s, 10m (default 1h; 5s with --quick)
      --seed N           seed of everything random (default 1)
      --binary PATH      prove this binary of larder instead of building one
      --against PATH     for pairs: the binary to compare with
      --against-hits PATH
                         for pairs: the executable of its bench `hit`
      --suite LIST, --variant LIST, --xfstests DIR
                         for posix: the suites, the variants, sources of xfstests; for pairs:
                         words of the loads, such as FUSE

Images and sockets go to a directory of their own under TMPDIR and are removed at the end.";

/// The result of a task that could run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TaskStatus {
    /// All checks passed.
    Passed,
    /// A check failed; the failure has been printed.
    Failed,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&args) {
        Ok(TaskStatus::Passed) => ExitCode::SUCCESS,
        Ok(TaskStatus::Failed) => ExitCode::from(1),
        Err(error) => {
            println!("xtask: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn dispatch(args: &[String]) -> anyhow::Result<TaskStatus> {
    let (command, rest) = match args.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", args),
    };
    match command {
        "tidy" => no_arguments(rest).and_then(|()| tidy::command()),
        "docs" => docs::command(rest),
        "captures" => docs::captures(rest).map(|()| TaskStatus::Passed),
        "structure" => structure::command(rest).map(|()| TaskStatus::Passed),
        "test" => test::command(rest),
        "guest" => guest::command(rest),
        "package" => package::command(rest).map(|()| TaskStatus::Passed),
        "release" => release::command(rest),
        "prove" => prove::command(rest),
        "help" | "--help" | "-h" => {
            println!("{USAGE}\n\nproofs:");
            for proof in prove::PROOFS {
                println!("  {:<14} {}", proof.name, proof.description);
            }
            Ok(TaskStatus::Passed)
        }
        other => anyhow::bail!("no command '{other}'\n\n{USAGE}"),
    }
}

fn no_arguments(rest: &[String]) -> anyhow::Result<()> {
    match rest.first() {
        Some(extra) => anyhow::bail!("unexpected argument '{extra}'\n\n{USAGE}"),
        None => Ok(()),
    }
}
