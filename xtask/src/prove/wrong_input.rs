//! Wrong input: one clear sentence on standard error, exit code 2, nothing left behind.
//!
//! A sentence is clear if it is one line, names what was wrong and is no panic. Then the socket is
//! fed garbage for a while, see [`super::fuzz`].

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::{Claims, Lab, fuzz};
use crate::image::{self, MIB};
use crate::run;

/// The exit code of wrong usage or wrong input.
const WRONG_INPUT: &str = "2";

/// The exit code of `timeout` if it had to end the program.
const TOOK_TOO_LONG: i32 = 124;

/// A server that is not refused within this time serves.
pub(super) const REFUSAL_MAX_S: u64 = 60;

/// One wrong call of `larder serve`.
#[derive(Debug)]
struct Case {
    what: &'static str,
    /// The volume, a name in the directory of the cases.
    volume: &'static str,
    options: Vec<String>,
    /// Words that the sentence must hold.
    words: Vec<&'static str>,
    /// Whether to run without the administrator's rights.
    as_nobody: bool,
}

/// Runs the proof.
pub(super) fn run(lab: &Lab, claims: &mut Claims) -> Result<()> {
    let dir = lab.file("wrong");
    prepare(&dir)?;
    for case in cases()? {
        claims.tried(case.what, || try_case(lab, &dir, &case));
    }
    claims.tried("busy socket", || busy_socket(lab, &dir));
    fuzz::run(lab, claims)
}

fn prepare(dir: &Path) -> Result<()> {
    std::fs::create_dir(dir).context("make a directory")?;
    std::fs::create_dir(dir.join("folder")).context("make a directory")?;
    image::sparse(&dir.join("good.img"), 8 * MIB)?;
    image::sparse(&dir.join("odd.img"), 8 * MIB + 100)?;
    image::sparse(&dir.join("secret.img"), 8 * MIB)?;
    let nobody = std::fs::Permissions::from_mode(0o000);
    std::fs::set_permissions(dir.join("secret.img"), nobody).context("take the permissions")?;
    // Anybody may make a socket here, so that only the image is what fails.
    let all = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(dir, all).context("give the permissions")
}

fn cases() -> Result<Vec<Case>> {
    let case = |what, volume: &'static str| Case {
        what,
        volume,
        options: vec!["--memory".into(), "16MiB".into()],
        words: vec![volume],
        as_nobody: false,
    };
    let text = std::fs::read_to_string("/proc/meminfo").context("read /proc/meminfo")?;
    let kib = text.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok());
    let twice = kib.context("/proc/meminfo has an unknown form")? * 2 / 1024;
    Ok(vec![
        case("missing file", "absent.img"),
        case("directory", "folder"),
        Case { as_nobody: true, ..case("no permission", "secret.img") },
        Case { words: vec!["odd.img", "512"], ..case("size not a multiple of 512", "odd.img") },
        Case {
            options: vec!["--memory".into(), format!("{twice}MiB")],
            words: vec!["memory"],
            ..case("memory larger than the machine", "good.img")
        },
    ])
}

fn try_case(lab: &Lab, dir: &Path, case: &Case) -> Result<String> {
    let mut command = if case.as_nobody && run::is_root() {
        // The binary may lie where nobody else can look.
        let binary = dir.join("larder");
        std::fs::copy(&lab.binary, &binary).context("copy the binary")?;
        let mut command = run::client(REFUSAL_MAX_S, "setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(binary);
        command
    } else {
        run::client(REFUSAL_MAX_S, &lab.binary.to_string_lossy())
    };
    command.arg("serve").arg(dir.join(case.volume)).args(&case.options);
    command.arg("--listen").arg(format!("unix:{}", dir.join("socket").display()));
    let before = listing(dir)?;
    let refused = refusal(&mut command, &case.words);
    let mut left = listing(dir)?;
    left.retain(|name| !before.contains(name));
    for name in &left {
        // The next case starts clean.
        std::fs::remove_file(dir.join(name)).context("remove what was left behind")?;
    }
    let sentence = refused?;
    ensure!(left.is_empty(), "left behind: {}", left.join(", "));
    Ok(sentence)
}

fn busy_socket(lab: &Lab, dir: &Path) -> Result<String> {
    let socket = dir.join("busy");
    let listener = UnixListener::bind(&socket).context("take a socket")?;
    let mut command = run::client(REFUSAL_MAX_S, &lab.binary.to_string_lossy());
    command.arg("serve").arg(dir.join("good.img")).args(["--memory", "16MiB"]);
    command.arg("--listen").arg(format!("unix:{}", socket.display()));
    let sentence = refusal(&mut command, &["busy"])?;
    UnixStream::connect(&socket).context("the socket was taken from its owner")?;
    drop(listener);
    std::fs::remove_file(&socket).context("remove the socket")?;
    Ok(sentence)
}

/// Runs what must be refused; answers the sentence.
pub(super) fn refusal(command: &mut Command, words: &[&str]) -> Result<String> {
    let out = run::keep(command)?;
    judge(out.code, &out.stderr, words)
}

fn judge(code: Option<i32>, stderr: &str, words: &[&str]) -> Result<String> {
    let shown = run::tail(stderr);
    ensure!(code != Some(TOOK_TOO_LONG), "accepted: still running after {REFUSAL_MAX_S} s");
    let code = code.map_or_else(|| "none, a signal".into(), |code| code.to_string());
    ensure!(code == WRONG_INPUT, "exit code {code}, not {WRONG_INPUT}\n{shown}");
    let lines: Vec<&str> = stderr.lines().filter(|line| !line.trim().is_empty()).collect();
    let [sentence] = lines[..] else {
        anyhow::bail!("{} lines on standard error, not one sentence\n{shown}", lines.len());
    };
    ensure!(!sentence.contains("panicked"), "a panic: {sentence}");
    for word in words {
        ensure!(sentence.contains(word), "does not name '{word}': {sentence}");
    }
    Ok(without_paths(sentence))
}

/// The sentence with each path cut down to its last part, for the table.
fn without_paths(sentence: &str) -> String {
    let words = sentence.split(' ').map(|word| match word.rsplit_once('/') {
        Some((_, last)) if word.contains("larder-") => last,
        _ => word,
    });
    words.collect::<Vec<_>>().join(" ")
}

fn listing(dir: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(dir).context("list the directory")? {
        names.push(entry.context("list the directory")?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_clear_sentence_passes() {
        assert!(judge(Some(2), "larder: a.img: not found\n", &["a.img"]).is_ok());
        assert!(judge(Some(1), "larder: a.img: not found\n", &["a.img"]).is_err());
        assert!(judge(Some(2), "", &[]).is_err());
        assert!(judge(Some(2), "one\ntwo\n", &[]).is_err());
        assert!(judge(Some(2), "larder: not found\n", &["a.img"]).is_err());
        assert!(judge(Some(2), "thread 'main' panicked at a.img", &["a.img"]).is_err());
    }
}
