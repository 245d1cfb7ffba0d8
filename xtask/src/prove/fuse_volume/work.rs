//! What people do with a file system: many small files, a repository, a build.

use anyhow::{Context as _, Result, ensure};
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::mounted::PATIENCE_S;
use crate::prove::Lab;
use crate::run;

/// What PostMark 1.51 counts with 10,000 files and 20,000 transactions: created, deleted, read,
/// appended.
const COUNTS: [&str; 4] = ["20092 created", "20092 deleted", "9935 read", "10064 appended"];
/// Commits of the repository that is made, and its files.
const COMMITS: usize = 20;

/// Debian's PostMark; what it says of its speed.
pub(in crate::prove) fn postmark(point: &Path, quick: bool) -> Result<String> {
    let place = point.join("postmark");
    std::fs::create_dir(&place).context("make a folder for PostMark")?;
    let size = if quick { (500, 1000) } else { (10_000, 20_000) };
    let script = place.join("script");
    crate::postmark::write_script(&script, &place, size, 100_000)?;
    let said = run::text(run::client(PATIENCE_S, "postmark").arg(&script))?;
    if !quick {
        for count in COUNTS {
            ensure!(said.contains(count), "PostMark did not say '{count}':\n{said}");
        }
    }
    let rate = said.lines().find(|line| line.contains("seconds of transactions"));
    let rate = rate.context("PostMark said nothing of its speed")?.trim();
    std::fs::remove_file(&script).context("remove the script")?;
    Ok(rate.to_owned())
}

pub(in crate::prove) fn git(at: &Path, words: &[&str]) -> Result<String> {
    let mut git = run::client(PATIENCE_S, "git");
    git.arg("-C").arg(at);
    git.args(["-c", "user.name=proof", "-c", "user.email=proof@localhost"]);
    git.args(["-c", "core.fsync=all"]).args(words);
    run::text(&mut git)
}

/// A repository that is made elsewhere, cloned, worked on and looked through.
pub(super) fn repository(lab: &Lab, point: &Path) -> Result<()> {
    let origin = lab.file("origin");
    if !origin.exists() {
        std::fs::create_dir(&origin).context("make a folder for a repository")?;
        git(&origin, &["init", "-q"])?;
        for commit in 0..COMMITS {
            let text = format!("commit {commit}\n").repeat(1000 + commit * 100);
            std::fs::write(origin.join(format!("file-{commit}")), text).context("write a file")?;
            git(&origin, &["add", "-A"])?;
            git(&origin, &["commit", "-q", "-m", &format!("commit {commit}")])?;
        }
    }
    let origin = origin.to_string_lossy().into_owned();
    git(point, &["clone", "-q", "--no-local", &origin, "clone"])?;
    let clone = point.join("clone");
    std::fs::write(clone.join("file-0"), "changed\n").context("change a file")?;
    git(&clone, &["commit", "-q", "-a", "-m", "changed"])?;
    git(&clone, &["gc", "-q"])?;
    git(&clone, &["fsck", "--strict"])?;
    let count = git(&clone, &["rev-list", "--count", "HEAD"])?;
    ensure!(count.trim() == (COMMITS + 1).to_string(), "{count} commits");
    Ok(())
}

/// A crate without dependencies, built and run there.
pub(in crate::prove) fn build(point: &Path) -> Result<()> {
    let folder = point.join("crate");
    std::fs::create_dir_all(folder.join("src")).context("make a crate")?;
    let manifest =
        "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n";
    std::fs::write(folder.join("Cargo.toml"), manifest).context("write a manifest")?;
    let mut program = String::from("fn main() {\n    let mut sum = 0u64;\n");
    for line in 0..200 {
        writeln!(program, "    sum += {line};").context("write a line")?;
    }
    program.push_str("    println!(\"{sum}\");\n}\n");
    std::fs::write(folder.join("src/main.rs"), program).context("write a program")?;
    let mut cargo = run::cargo_within(PATIENCE_S, &folder);
    // Its files, and not those of a folder that is shared.
    cargo.args(["run", "-q", "--offline", "--target-dir"]).arg(folder.join("target"));
    let said = run::text(&mut cargo)?;
    ensure!(said.trim() == "19900", "the program says '{said}'");
    Ok(())
}

/// Every file with its mode, owner, size, time and checksum, in order.
pub(in crate::prove) fn listing(point: &Path) -> Result<String> {
    let script = "find . -xdev -not -path ./lost+found -printf '%p %m %U %G %y %l ' \
                  \\( -type f -printf '%s %T@ ' -exec sha256sum {} \\; -o -printf '\\n' \\) | sort";
    let mut find = Command::new("sh");
    find.args(["-c", script]).current_dir(point).stdin(Stdio::null());
    run::text(&mut find)
}
