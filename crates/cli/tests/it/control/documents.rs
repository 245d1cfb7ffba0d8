//! The examples in docs/ctl.md and docs/control.md match the responses of a real server.
//!
//! An example is a code block after a comment that holds its request: `<!-- example: ctl stats -->`
//! or `<!-- example: GET /v1/stats -->`. The test sends each request to a server and compares
//! everything but the numbers. With `LARDER_WRITE_DOCS=1`, which `cargo xtask docs` sets, it writes
//! the examples.

use super::rig::{MIB, Server, images, text};
use crate::shared::examples::{MARK, update_examples};
use std::path::{Path, PathBuf};

/// Maximum number of lines of an example; longer ones are truncated.
const LINES_MAX: usize = 40;
/// Directory of the server as the documents show it.
const DOC_DIRECTORY: &str = "/srv/larder";

fn document(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)
}

/// Creates a directory whose path is as long as `DOC_DIRECTORY`, which replaces it in the
/// documents, so that tables stay aligned.
fn create_directory() -> tempfile::TempDir {
    let random = DOC_DIRECTORY.len() - "/tmp/l".len();
    let mut directory = tempfile::Builder::new();
    directory.prefix("l").rand_bytes(random).tempdir_in("/tmp").expect("a directory")
}

/// Starts a server with data and activity to report.
fn server() -> Server {
    let options =
        ["--set", "first-delay=60000", "--set", "logs.age-max=600000", "--max", "logs=8MiB"];
    let server = Server::start_in(create_directory(), &["data", "logs"], &options);
    images(server.directory.path(), &["more"]);
    let mut data = server.client(0);
    data.write_at(0, &vec![7; 1 << 20], true).unwrap();
    for i in 0..2000 {
        data.read_at(i * 8192 % (4 * MIB), &mut [0; 4096]).unwrap();
    }
    server.client(1).write_at(0, &vec![7; 300 << 10], false).unwrap();
    server
}

/// Returns the text of the example for `request`.
fn render_example(server: &Server, request: &str) -> String {
    let directory = server.directory.path().display().to_string();
    let (command_line, response) = match request.split_once(' ').expect("two words") {
        ("ctl", args) => {
            let real = args.replace(DOC_DIRECTORY, &directory);
            let args: Vec<_> = real.split(' ').collect();
            let output = server.ctl(&args);
            let response = if output.status.success() { output.stdout } else { output.stderr };
            (format!("larder {request}"), text(&response))
        }
        ("GET", path) => {
            let command_line =
                format!("curl --unix-socket {DOC_DIRECTORY}/nbd.control http://larder{path}");
            (command_line, server.get(path).body)
        }
        ("POST", rest) => {
            let (path, body) = rest.split_once(' ').unwrap_or((rest, ""));
            let data = if body.is_empty() { "-X POST".into() } else { format!("-d '{body}'") };
            let command_line = format!(
                "curl --unix-socket {DOC_DIRECTORY}/nbd.control http://larder{path} {data}"
            );
            (command_line, server.post(path, body).body)
        }
        _ => panic!("an example made by {request}"),
    };
    let response = response.replace(&directory, DOC_DIRECTORY);
    let mut lines: Vec<_> = response.trim_end().lines().map(str::to_owned).collect();
    if lines.len() > LINES_MAX {
        lines.truncate(LINES_MAX);
        lines.push("...".to_owned());
    }
    format!("$ {command_line}\n{}\n", lines.join("\n"))
}

/// Returns `text` without its numbers, without units and spacing, which depend on the width of the
/// numbers, and without progress events, which the server may omit.
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
    let new = update_examples(&old, |request| render_example(&server, request));
    server.stop();
    if std::env::var_os("LARDER_WRITE_DOCS").is_some() {
        // A document that differs only in measured values stays as it is.
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
        // The server checks path and method before it rejects the body.
        let answer = if method == "GET" { server.get(path) } else { server.post(path, "[]") };
        let expected = match (method, path) {
            // This server has no directory.
            (_, "/v1/files") => 404,
            ("GET", _) => 200,
            _ => 400,
        };
        assert_eq!(answer.status, expected, "{method} {path}: {answer:?}");
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
