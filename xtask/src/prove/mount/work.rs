//! Work on a file system: many small files, a repository, a build.

use std::fmt::Write as _;

use crate::disk::WORK_MAX_S;
use crate::prove::prelude::*;

/// What PostMark 1.51 counts with 10,000 files and 20,000 transactions.
const COUNTS: [&str; 4] = ["20092 created", "20092 deleted", "9935 read", "10064 appended"];
/// Commits of the repository that is made, and its files.
const COMMITS: usize = 20;

/// Debian's PostMark; its line about its speed.
pub(in crate::prove) fn postmark(point: &Path, quick: bool) -> Result<String> {
    let place = point.join("postmark");
    std::fs::create_dir(&place).context("make a directory for PostMark")?;
    let size = if quick { (500, 1000) } else { (10_000, 20_000) };
    let script = place.join("script");
    fio::postmark_script(&script, &place, size, 100_000)?;
    let said = text(cmd!(WORK_MAX_S, "postmark {script}"))?;
    let lacks = COUNTS.iter().find(|count| !quick && !said.contains(**count));
    ensure!(lacks.is_none(), "PostMark did not say '{lacks:?}':\n{said}");
    let rate = said.lines().find(|line| line.contains("seconds of transactions"));
    let rate = rate.context("PostMark said nothing of its speed")?.trim();
    std::fs::remove_file(&script).context("remove the script")?;
    Ok(rate.to_owned())
}

fn git(at: &Path, words: &str) -> Result<String> {
    let (words, name) = (words.split(' '), "user.name=proof");
    let more = ["-c", "user.email=proof@localhost", "-c", "core.fsync=all"];
    text(cmd!(WORK_MAX_S, "git -C {at} -c {name} {more...} {words...}"))
}

/// Clones a repository with all its objects copied, and works in the clone; the commits.
pub(in crate::prove) fn clone(origin: &Path, place: &Path, commits_file: bool) -> Result<String> {
    text(cmd!(WORK_MAX_S, "git clone -q --no-local {origin} clone").current_dir(place))?;
    let clone = place.join("clone");
    git(&clone, "fsck --strict --full")?;
    let file = if commits_file { "README.md" } else { "file-0" };
    std::fs::write(clone.join(file), "changed\n").context("change a file")?;
    git(&clone, "commit -q -a -m changed")?;
    git(&clone, "gc -q --prune=now")?;
    git(&clone, "fsck --strict --full")?;
    let status = git(&clone, "status --porcelain")?;
    ensure!(status.trim().is_empty(), "git sees changes that were not made:\n{status}");
    Ok(format!("{} commits", git(&clone, "rev-list --count HEAD")?.trim()))
}

/// A repository that is made elsewhere, cloned, changed and checked.
pub(in crate::prove) fn repository(env: &Env, point: &Path) -> Result<()> {
    let origin = env.file("origin");
    if !origin.exists() {
        std::fs::create_dir(&origin).context("make a directory for a repository")?;
        git(&origin, "init -q")?;
        for commit in 0..COMMITS {
            let text = format!("commit {commit}\n").repeat(1000 + commit * 100);
            std::fs::write(origin.join(format!("file-{commit}")), text).context("write a file")?;
            git(&origin, "add -A")?;
            git(&origin, &format!("commit -q -m commit-{commit}"))?;
        }
    }
    let commits = clone(&origin, point, false)?;
    ensure!(commits == format!("{} commits", COMMITS + 1), "{commits}");
    Ok(())
}

/// A crate without dependencies, built and run there.
pub(in crate::prove) fn build(point: &Path) -> Result<()> {
    let dir = point.join("crate");
    std::fs::create_dir_all(dir.join("src")).context("make a crate")?;
    let manifest =
        "[package]\nname = \"tiny\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n";
    std::fs::write(dir.join("Cargo.toml"), manifest).context("write a manifest")?;
    let mut program = String::from("fn main() {\n    let mut sum = 0u64;\n");
    for line in 0..200 {
        writeln!(program, "    sum += {line};").context("write a line")?;
    }
    program.push_str("    println!(\"{sum}\");\n}\n");
    std::fs::write(dir.join("src/main.rs"), program).context("write a program")?;
    let mut cargo = run::cargo_within(WORK_MAX_S, &dir);
    // Not into the target directory of the environment.
    cargo.args(["run", "-q", "--offline", "--target-dir"]).arg(dir.join("target"));
    let said = text(&mut cargo)?;
    ensure!(said.trim() == "19900", "the program says '{said}'");
    Ok(())
}

/// Every file with its mode, owner, size, time and checksum, in order.
pub(in crate::prove) fn listing(point: &Path) -> Result<String> {
    let script = "find . -xdev -not -path ./lost+found -printf '%p %m %U %G %y %l ' \
                  \\( -type f -printf '%s %T@ ' -exec sha256sum {} \\; -o -printf '\\n' \\) | sort";
    text(cmd!("sh -c {script}").current_dir(point))
}
