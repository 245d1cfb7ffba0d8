//! Workloads on a file system: many small files, a repository, a build.

use crate::disk::WORK_MAX_S;
use crate::prove::prelude::*;

/// Counts that PostMark 1.51 prints with 10,000 files and 20,000 transactions.
const COUNTS: [&str; 4] = ["20092 created", "20092 deleted", "9935 read", "10064 appended"];

/// git with the options that all scripts here use.
const GIT: &str = r#"set -e
git() {
  command git -c user.name=proof -c user.email=proof@localhost -c core.fsync=all "$@"
}"#;
/// Creates a repository of 20 commits in `$1`.
const REPOSITORY: &str = r#"
mkdir "$1"; cd "$1"; git init -q
for n in $(seq 0 19); do
  yes "commit $n" | head -n $((1000 + n * 100)) >"file-$n"
  git add -A; git commit -q -m "commit-$n"
done"#;
/// Clones `$1` with copies of all its objects, changes the file `$2` in it, and prints the commits.
const CLONE: &str = r#"
git clone -q --no-local "$1" clone; cd clone
git fsck --strict --full >&2
echo changed >"$2"; git commit -q -a -m changed; git gc -q --prune=now
git fsck --strict --full >&2
status=$(git status --porcelain)
[ -z "$status" ] || { echo "git sees changes that were not made: $status"; exit 1; }
git rev-list --count HEAD"#;
/// Builds and runs a crate without dependencies, not in the target directory of the environment.
const BUILD: &str = r#"set -e
mkdir -p crate/src; cd crate
printf '[package]\nname = "tiny"\nversion = "0.1.0"\nedition = "2024"\n[workspace]\n' >Cargo.toml
printf 'fn main() { println!("{}", 0u64%s); }' "$(seq -f '+ %g' -s ' ' 0 199)" >src/main.rs
"${CARGO:-cargo}" run -q --offline --target-dir target"#;

/// Runs Debian's PostMark and returns the line with its rate.
pub(in crate::prove) fn postmark(point: &Path, quick: bool) -> Result<String> {
    let place = point.join("postmark");
    std::fs::create_dir(&place).context("make a directory for PostMark")?;
    let size = if quick { (500, 1000) } else { (10_000, 20_000) };
    let script = place.join("script");
    fio::postmark_script(&script, &place, size, 100_000)?;
    let output = stdout_of(cmd!(WORK_MAX_S, "postmark {script}"))?;
    let lacks = COUNTS.iter().find(|count| !quick && !output.contains(**count));
    ensure!(lacks.is_none(), "PostMark did not print '{lacks:?}':\n{output}");
    let rate = output.lines().find(|line| line.contains("seconds of transactions"));
    let rate = rate.context("PostMark printed no rate")?.trim();
    std::fs::remove_file(&script).context("remove the script")?;
    Ok(rate.to_owned())
}

/// Clones a repository and works in the clone; returns the number of commits.
pub(in crate::prove) fn clone(origin: &Path, place: &Path, file: &str) -> Result<String> {
    let script = format!("{GIT}{CLONE}");
    let commits =
        stdout_of(cmd!(WORK_MAX_S, "sh -c {script} sh {origin} {file}").current_dir(place))?;
    Ok(format!("{} commits", commits.trim()))
}

/// Creates a repository elsewhere, then clones, changes and checks it.
pub(in crate::prove) fn repository(env: &Env, point: &Path) -> Result<()> {
    let (script, origin) = (format!("{GIT}{REPOSITORY}"), env.file("origin"));
    if !origin.exists() {
        stdout_of(cmd!(WORK_MAX_S, "sh -c {script} sh {origin}"))?;
    }
    let commits = clone(&origin, point, "file-0")?;
    ensure!(commits == "21 commits", "{commits}");
    Ok(())
}

/// Builds and runs a crate without dependencies.
pub(in crate::prove) fn build(point: &Path) -> Result<String> {
    let output = stdout_of(cmd!(WORK_MAX_S, "sh -c {BUILD}").current_dir(point))?;
    ensure!(output.trim() == "19900", "the program prints '{output}'");
    Ok(format!("it prints {}", output.trim()))
}

/// Lists every file with its mode, owner, size, time and checksum, in order.
pub(in crate::prove) fn listing(point: &Path) -> Result<String> {
    let script = "find . -xdev -not -path ./lost+found -printf '%p %m %U %G %y %l ' \
                  \\( -type f -printf '%s %T@ ' -exec sha256sum {} \\; -o -printf '\\n' \\) | sort";
    stdout_of(cmd!("sh -c {script}").current_dir(point))
}
