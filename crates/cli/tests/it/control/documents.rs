//! The examples in docs/ctl.md and docs/control.md are what a real server says.
//!
//! An example is a block of code after a comment that says how it is made: `<!-- example: ctl stats
//! -->` or `<!-- example: GET /v1/stats -->`. The test asks a server for each and compares all but
//! the numbers; with `LARDER_WRITE_DOCS=1`, which `cargo xtask docs` sets, it writes them.

use super::rig::{MIB, Server, images, text};
use crate::shared::examples::{MARK, renewed};
use std::path::{Path, PathBuf};

/// Longer examples are cut.
const LINES_MAX: usize = 40;
/// What the documents show as the directory of the server.
const SHOWN: &str = "/srv/larder";

fn document(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

/// A directory whose name is as long as the one that the documents show instead, so that tables stay
/// aligned.
fn short() -> tempfile::TempDir {
    let random = SHOWN.len() - "/tmp/l".len();
    let mut directory = tempfile::Builder::new();
    directory.prefix("l").rand_bytes(random).tempdir_in("/tmp").expect("a directory")
}

/// A server with something to tell.
fn server() -> Server {
    let options =
        ["--set", "first-delay=60000", "--set", "logs.age-max=600000", "--max", "logs=8MiB"];
    let server = Server::start_in(short(), &["data", "logs"], &options);
    images(server.directory.path(), &["more"]);
    let mut data = server.client(0);
    data.write_at(0, &vec![7; 1 << 20], true).unwrap();
    for i in 0..2000 {
        data.read_at(i * 8192 % (4 * MIB), &mut [0; 4096]).unwrap();
    }
    server.client(1).write_at(0, &vec![7; 300 << 10], false).unwrap();
    server
}

/// What an example shows.
fn made(server: &Server, how: &str) -> String {
    let directory = server.directory.path().display().to_string();
    let (asked, said) = match how.split_once(' ').expect("two words") {
        ("ctl", words) => {
            let real = words.replace(SHOWN, &directory);
            let words: Vec<_> = real.split(' ').collect();
            let output = server.ctl(&words);
            let said = if output.status.success() { output.stdout } else { output.stderr };
            (format!("larder {how}"), text(&said))
        }
        ("GET", path) => {
            let asked = format!("curl --unix-socket {SHOWN}/nbd.control http://larder{path}");
            (asked, server.get(path).body)
        }
        ("POST", rest) => {
            let (path, body) = rest.split_once(' ').unwrap_or((rest, ""));
            let data = if body.is_empty() { "-X POST".into() } else { format!("-d '{body}'") };
            let asked =
                format!("curl --unix-socket {SHOWN}/nbd.control http://larder{path} {data}");
            (asked, server.post(path, body).body)
        }
        _ => panic!("an example made by {how}"),
    };
    let said = said.replace(&directory, SHOWN);
    let mut lines: Vec<_> = said.trim_end().lines().map(str::to_owned).collect();
    if lines.len() > LINES_MAX {
        lines.truncate(LINES_MAX);
        lines.push("...".to_owned());
    }
    format!("$ {asked}\n{}\n", lines.join("\n"))
}

/// A text without its numbers, without what depends on how wide they are, and without the lines of
/// progress, which may be left out.
fn masked(text: &str) -> String {
    let units = ["ns", "us", "ms", "s", "B", "KiB", "MiB", "GiB", "min", "%", "M", "G", "<", ">"];
    let line = |line: &str| {
        let is_unit = |word: &&str| units.contains(&word.trim_end_matches(';'));
        let words = line.split_whitespace().filter(|word| !is_unit(word));
        let word = |word: &str| -> String {
            let is_number = |c: char| c.is_ascii_digit() || ".,-".contains(c);
            if word.trim_end_matches(',') == "null" || word.chars().all(is_number) {
                return "#".to_owned();
            }
            word.replace(|c: char| c.is_ascii_digit(), "#").replace("##", "#").replace("##", "#")
        };
        words.map(word).collect::<Vec<_>>().join(" ")
    };
    let is_progress = |line: &&str| line.starts_with(r#"{"event":"volume""#);
    text.lines().filter(|line| !is_progress(line)).map(|l| line(l) + "\n").collect()
}

fn check(name: &str) {
    let path = document(name);
    let old = std::fs::read_to_string(&path).unwrap();
    assert!(old.contains(MARK), "{name} has examples");
    let server = server();
    let new = renewed(&old, |how| made(&server, how));
    server.stop();
    if std::env::var_os("LARDER_WRITE_DOCS").is_some() {
        // What only measures differently stays as it is.
        if masked(&new) != masked(&old) {
            std::fs::write(&path, new).unwrap();
        }
        return;
    }
    for (number, (old, new)) in masked(&old).lines().zip(masked(&new).lines()).enumerate() {
        assert_eq!(old, new, "{name}:{}: run cargo xtask docs", number + 1);
    }
    assert_eq!(masked(&old).lines().count(), masked(&new).lines().count(), "{name}");
}

#[test]
fn the_examples_of_ctl_are_real() {
    check("ctl.md");
}

#[test]
fn the_examples_of_control_are_real() {
    check("control.md");
}

#[test]
fn the_paths_in_the_document_are_there() {
    let text = std::fs::read_to_string(document("control.md")).unwrap();
    let server = Server::start(&["one"], &[]);
    let mut paths = 0;
    for line in text.lines() {
        let mut cells = line.split('|').map(str::trim).skip(1);
        let (Some(method @ ("GET" | "POST")), Some(path)) = (cells.next(), cells.next()) else {
            continue;
        };
        let path = path.trim_matches('`');
        // A wrong body is refused after the path and the method have been found right.
        let answer = if method == "GET" { server.get(path) } else { server.post(path, "[]") };
        let wanted = match (method, path) {
            // This server has no directory.
            (_, "/v1/files") => 404,
            ("GET", _) => 200,
            _ => 400,
        };
        assert_eq!(answer.status, wanted, "{method} {path}: {answer:?}");
        paths += 1;
    }
    assert!(paths >= 8, "{paths} paths were tried");
    server.stop();
}

#[test]
fn masks_hide_numbers_and_nothing_else() {
    assert_eq!(masked("a  12 KiB  < 0.1 %  -"), masked("a 7 GiB 55.1 % 3"));
    assert_eq!(masked("  \"x_ns\": 17,"), masked("\"x_ns\": null,"));
    assert_ne!(masked("\"x_ns\": 17,"), masked("\"y_ns\": 17,"));
    assert_ne!(masked("a 1"), masked("b 1"));
}
