//! `larder frag` on real trees: extents, requests, errors, and scans that continue.

use larder_testing::{can_mount, has_tool, is_root, skip};
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const LARDER: &str = env!("CARGO_BIN_EXE_larder");

fn frag(options: &[&str]) -> Output {
    Command::new(LARDER).arg("frag").args(options).output().unwrap()
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

    // larder trace record names files as volumes.
    let volume = format!("0,0,4096,0,3,0,1,read,0,{},,reader", text(&path));
    fs::write(&trace, [head.to_owned(), volume].join("\n")).unwrap();
    let found = json(&[text(directory.path()), "--trace", text(&trace)]);
    assert_eq!(found["cost"]["device_requests"], 1, "{found:#}");

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

/// A mounted ext4 on a loop device with fragmented files.
struct Volume(tempfile::TempDir);

impl Volume {
    /// Returns `None`, with a reported skip, if this machine cannot have one.
    fn new() -> Option<Volume> {
        if !is_root() || !can_mount() || !has_tool("mkfs.ext4") {
            return None;
        }
        let volume = Volume(tempfile::tempdir().unwrap());
        let image = volume.0.path().join("image");
        File::create(&image).unwrap().set_len(256 << 20).unwrap();
        assert!(run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image)));
        fs::create_dir(volume.point()).unwrap();
        if !run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(volume.point())) {
            skip("this machine has no loop devices for files");
            return None;
        }
        // Files that grow in turn, each piece made durable before the next one.
        let files = ["one", "two"].map(|name| File::create(volume.point().join(name)).unwrap());
        for piece in 0..160 {
            for (number, file) in files.iter().enumerate() {
                let data =
                    vec![u8::try_from(piece).unwrap() ^ u8::try_from(number).unwrap(); 1 << 14];
                file.write_all_at(&data, piece << 14).unwrap();
                file.sync_data().unwrap();
            }
        }
        Some(volume)
    }

    fn point(&self) -> PathBuf {
        self.0.path().join("mounted")
    }

    fn repair(&self, options: &[&str]) -> Value {
        let (point, journal) = (self.point(), self.0.path().join("journal"));
        let always = ["repair", text(&point), "--device", "disk", "--journal", text(&journal)];
        json(&[&always[..], options].concat())
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        run(Command::new("umount").arg(self.point()));
    }
}

fn run(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

#[test]
fn a_repair_moves_what_gains_and_then_nothing() {
    let Some(volume) = Volume::new() else { return };
    let file = volume.point().join("one");
    let content = fs::read(&file).unwrap();
    let fragments = || json(&[text(&volume.point())])["scan"]["fragments"].as_u64().unwrap();
    let before = fragments();
    let planned = volume.repair(&["--dry-run"]);
    assert_eq!(planned["moved"].as_array().unwrap().len(), 2, "{planned:#}");
    assert_eq!(fragments(), before, "a dry run moves nothing");
    let budget = volume.repair(&["--write-budget", "1MiB"]);
    assert_eq!(budget["end"], "write-budget");
    assert_eq!(budget["moved"], serde_json::json!([]));

    // A file that is open stays.
    let open = File::open(&file).unwrap();
    let found = volume.repair(&["--target", "100%"]);
    assert_eq!(found["moved"].as_array().unwrap().len(), 1, "{found:#}");
    let reason = found["skipped"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("another process has it open"), "{reason}");
    drop(open);
    let found = volume.repair(&["--target", "100%"]);
    assert_eq!(found["moved"][0]["fragments_after"], 1, "{found:#}");
    assert_eq!(found["moved"][0]["is_compared"], true);
    assert!(found["after_s"].as_f64().unwrap() < found["before_s"].as_f64().unwrap());
    assert_eq!(fs::read(&file).unwrap(), content);
    assert!(fragments() < before);
    let nothing = volume.repair(&[]);
    assert_eq!(nothing["end"], "not-worth-it", "{nothing:#}");
}

#[test]
fn an_interrupted_move_is_named_and_compared() {
    let Some(volume) = Volume::new() else { return };
    let (file, journal) = (volume.point().join("one"), volume.0.path().join("journal"));
    let found = file.metadata().unwrap();
    let line = |checksum: u64| {
        let path: Vec<u8> = text(&file).bytes().collect();
        let begun = serde_json::json!({ "Begin": {
            "path": path, "inode": found.ino(), "bytes": found.len(),
            "modified": [found.mtime(), found.mtime_nsec()], "checksum": checksum,
        }});
        fs::write(&journal, format!("\"End\"\n{begun}\n{{\"Begin\":{{\"pa")).unwrap();
    };
    line(1);
    let told = volume.repair(&["--write-budget", "1MiB"])["interrupted"][0].clone();
    let told = told.as_str().unwrap();
    assert!(told.contains("its content differs from that before"), "{told}");
    assert_eq!(fs::read(&journal).unwrap(), b"", "no move is in progress");
    let again = volume.repair(&["--write-budget", "1MiB"]);
    assert_eq!(again["interrupted"], serde_json::json!([]));
    line(1);
    fs::remove_file(&file).unwrap();
    let told = volume.repair(&["--write-budget", "1MiB"])["interrupted"][0].clone();
    assert!(told.as_str().unwrap().contains("changed or removed since"), "{told}");
}
