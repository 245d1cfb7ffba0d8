//! `larder frag` on real trees: extents, requests, errors, and scans that continue.

use larder_testing::skip;
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

fn frag(options: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_larder")).arg("frag").args(options).output().unwrap()
}

fn json(options: &[&str]) -> Value {
    let output = frag(&[options, &["--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn error(options: &[&str]) -> String {
    let output = frag(options);
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

/// Makes a tree with a file that has holes, a hard link and a symbolic link; `None` without
/// FIEMAP.
fn tree() -> Option<tempfile::TempDir> {
    let directory = tempfile::tempdir().unwrap();
    let file = File::create(directory.path().join("holes")).unwrap();
    for block in [0, 2, 5] {
        file.write_all_at(&[7; 4096], block * 4096).unwrap();
    }
    file.set_len(20 * 4096).unwrap();
    file.sync_all().unwrap();
    fs::hard_link(directory.path().join("holes"), directory.path().join("again")).unwrap();
    fs::create_dir(directory.path().join("below")).unwrap();
    fs::write(directory.path().join("below/empty\u{1b}[31m"), "").unwrap();
    symlink("/etc/passwd", directory.path().join("link")).unwrap();
    if larder_host::extents::of(&file).is_err() {
        skip("the temporary directory does not support FIEMAP");
        return None;
    }
    Some(directory)
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn each_file_is_counted_once_and_links_are_not_followed() {
    let Some(directory) = tree() else { return };
    let found = json(&[text(directory.path()), "--extents"]);
    let scan = &found["scan"];
    let numbers = ["files", "further_names", "empty", "sparse", "extents"].map(|it| &scan[it]);
    assert_eq!(numbers.map(|it| it.as_u64().unwrap()), [2, 1, 1, 1, 3], "{scan}");
    assert_eq!(scan["left_out"], serde_json::json!({}));
    let paths: Vec<&str> =
        found["files"].as_array().unwrap().iter().map(|it| it["path"].as_str().unwrap()).collect();
    assert_eq!(paths.len(), 2, "{paths:?}");
    assert!(found["files"][0]["placed"].as_array().unwrap().len() == 3, "{found:#}");
    let output = frag(&[text(directory.path()), "--extents"]);
    assert!(!output.stdout.contains(&0x1b), "names do not control the terminal");
}

#[test]
fn a_trace_of_other_files_and_one_of_an_image_are_told_apart() {
    let Some(directory) = tree() else { return };
    let (path, trace) = (directory.path().join("holes"), directory.path().join("requests.csv"));
    let head = "time_ns,offset,len,latency_ns,volume,file,process,op,class,volume_name,file_name,\
                process_name";
    let line = |offset: u64, number: u32, class: u8, name: &str| {
        format!("0,{offset},4096,0,0,{number},1,read,{class},,{name},reader")
    };
    let named = [
        head.to_owned(),
        line(0, 1, 0, text(&path)),
        line(4096, 1, 0, text(&path)),
        line(8192, 1, 1, text(&path)),
        line(0, 2, 0, "/etc/passwd"),
        line(0, 3, 0, text(&directory.path().join("link"))),
    ];
    fs::write(&trace, named.join("\n")).unwrap();
    let found = json(&[text(directory.path()), "--trace", text(&trace), "--device", "disk"]);
    let cost = &found["cost"];
    let numbers = ["requests", "cached", "unplaced", "other", "device"].map(|it| {
        let name = if it == "requests" { it.to_owned() } else { format!("{it}_requests") };
        cost[name].as_u64().unwrap()
    });
    assert_eq!(numbers, [5, 1, 1, 2, 1], "{cost}");

    let unnamed = [head.to_owned(), line(0, 0, 0, ""), line(20 * 4096, 0, 0, "")];
    fs::write(&trace, unnamed.join("\n")).unwrap();
    let found = json(&[text(&path), "--trace", text(&trace)]);
    assert_eq!(found["cost"]["device_requests"], 1, "{found:#}");
    let refused = error(&[text(directory.path()), "--trace", text(&trace)]);
    assert!(refused.contains("does not name files"), "{refused}");
}

#[test]
fn a_scan_continues_from_its_position() {
    let Some(directory) = tree() else { return };
    let (tree, position) = (directory.path(), directory.path().join("position.json"));
    let whole = json(&[text(tree)]);
    fs::write(&position, "{}").unwrap();
    let refused = error(&[text(tree), "--resume", text(&position)]);
    assert!(refused.contains("it is not the position of a scan"), "{refused}");
    fs::remove_file(&position).unwrap();
    let resumed = json(&[text(tree), "--resume", text(&position)]);
    assert_eq!(resumed["scan"], whole["scan"]);
    assert!(!position.exists(), "removed at the end");
}

#[test]
fn paths_that_cannot_be_scanned_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (path, below) = (directory.path(), directory.path().join("below"));
    fs::create_dir(&below).unwrap();
    assert!(error(&[text(&path.join("none"))]).contains("no such file or directory"));
    assert!(error(&["/dev/null"]).contains("neither a directory nor a regular file"));
    assert!(error(&[text(path), text(&below)]).contains("name each file once"));
    assert!(error(&[text(path), "/proc"]).contains("different file systems"));
}
