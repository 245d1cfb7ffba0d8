//! Plans from records: of another machine, and of file systems on loop devices.

use larder_host::scratch::{KINDS, Scratch, ScratchOptions};
use larder_host::stack::{Roots, Stack};
use larder_schema::watch::{Counts, Disk, Interval, Row, SCHEMA, VERSION, WHOLE, Watch};
use larder_testing::{is_root, skip};
use serde_json::Value;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn larder(directory: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    command.args(args).current_dir(directory).output().unwrap()
}

pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A log of ten seconds: 90 reads per second of C:, and one of D:.
fn log() -> String {
    let mut log = "\u{feff}\"Time of Day\",\"Process Name\",\"PID\",\"Operation\",\"Path\",\
                   \"Result\",\"Detail\"\r\n"
        .to_owned();
    for number in 0..1000 {
        let (second, part) = (number / 100, number % 100 * 100_000);
        let path = match number % 10 {
            0 => "D:\\other.dat",
            1..=4 => "C:\\data\\mail.db",
            _ => "C:\\data\\index.db",
        };
        write!(
            log,
            "\"10:00:{second:02}.{part:07} AM\",\"server.exe\",\"77\",\"ReadFile\",\"{path}\",\
             \"SUCCESS\",\"Offset: {}, Length: 4,096\"\r\n",
            number * 4096
        )
        .unwrap();
    }
    log
}

#[test]
fn a_log_of_process_monitor_is_balanced_over_its_drives() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("log.csv"), log()).unwrap();
    let models = ["--disk", "C:=iops:100", "--disk", "D:=iops:100"];
    let run = |more: &[&str]| {
        larder(directory.path(), &[&["balance", "log.csv"][..], &models, more].concat())
    };
    let output = run(&["-o", "plan.html"]);
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let first = shown.lines().next().unwrap();
    assert!(first.starts_with("C: is the busiest disk, at 9"), "{shown}");
    assert!(first.contains("; 1 move of "), "{shown}");
    assert!(shown.contains("Move 1: file C:\\data\\"), "{shown}");
    assert!(shown.contains("server.exe"), "{shown}");
    assert!(shown.contains("Each request of log.csv counts as one of the disk"), "{shown}");
    let page = fs::read_to_string(directory.path().join("plan.html")).unwrap();
    assert!(page.contains("predicted after the moves") && page.contains("<svg"), "{page}");
    let json: Value = serde_json::from_slice(&run(&["--json"]).stdout).unwrap();
    assert_eq!((&json["schema"], &json["version"]), (&"larder-balance".into(), &1.into()));
    assert!(json["machine_id"].is_null());
    let after = json["after"]["utilization"].as_f64().unwrap();
    assert!((0.49..0.61).contains(&after), "{after}");
    let refused = run(&["--script", "plan.sh"]);
    let message = text(&refused.stderr);
    assert!(message.contains("the files are not of this machine"), "{message}");
    assert!(!directory.path().join("plan.sh").exists());
}

#[test]
fn a_log_of_filemon_is_balanced_over_its_drives() {
    let directory = tempfile::tempdir().unwrap();
    let mut log = String::new();
    for number in 0..1000 {
        let (second, drive) = (number / 100, if number % 10 == 0 { "D" } else { "C" });
        let (file, offset) = (number % 3, number * 4096);
        write!(
            log,
            "{number}\t10:00:{second:02} AM\tserver.exe:77\tREAD \t{drive}:\\{file}.db\tSUCCESS\t\
             Offset: {offset} Length: 4096\r\n"
        )
        .unwrap();
    }
    fs::write(directory.path().join("filemon.log"), log).unwrap();
    let args = ["balance", "filemon.log", "--disk", "C:=iops:150", "--disk", "D:=iops:150"];
    let output = larder(directory.path(), &args);
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(shown.starts_with("C: is the busiest disk, at "), "{shown}");
    assert!(shown.contains("server.exe (77)") && shown.contains("Move 1: file C:\\"), "{shown}");
    // Without models there are no service times, and the answer says what to do.
    let unknown = text(&larder(directory.path(), &["balance", "filemon.log"]).stdout);
    assert!(unknown.starts_with("There is no plan"), "{unknown}");
    assert!(unknown.contains("C: had no busy time in the records"), "{unknown}");
}

#[test]
fn what_cannot_be_balanced_is_refused_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("log.csv"), log()).unwrap();
    fs::write(directory.path().join("blocks.spc"), "0,0,4096,r,0.000000\n").unwrap();
    fs::write(directory.path().join("other.json"), "{\"schema\": \"larder-run\"}").unwrap();
    for (args, part) in [
        (&["log.csv", "--disk", "E:=disk"][..], "no file of the records and no target is on it"),
        (&["blocks.spc"], "it does not name files"),
        (&["other.json"], "read other.json"),
        (&["none.json"], "read none.json"),
        (&["log.csv", "--disk", "=disk"], "write it as NAME or NAME=MODEL"),
        (&["log.csv", "--reserve", "100%"], "write a percentage below 100"),
    ] {
        let output = larder(directory.path(), &[&["balance"][..], args].concat());
        let message = text(&output.stderr);
        assert!(message.contains(part), "{args:?}: {message}");
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
}

/// Two file systems on loop devices.
pub(super) struct Rig {
    pub(super) directory: tempfile::TempDir,
    pub(super) file_systems: Vec<Scratch>,
}

impl Rig {
    pub(super) fn new() -> Option<Rig> {
        if !is_root() {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let options = ScratchOptions {
            kind: KINDS.iter().find(|it| it.name == "ext4").unwrap(),
            bytes: 64 << 20,
            scheduler: "none".to_owned(),
            make_options: Vec::new(),
            mount_options: String::new(),
        };
        let make = |_| Scratch::make(directory.path(), &options);
        match (0..2).map(make).collect::<Result<Vec<_>, _>>() {
            Ok(file_systems) => Some(Rig { directory, file_systems }),
            Err(error) => {
                skip(error);
                None
            }
        }
    }

    pub(super) fn device(&self, number: usize) -> String {
        let path = self.file_systems[number].path();
        Stack::of_path(&Roots::default(), path).unwrap().name
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.file_systems[0].path().join(name)
    }

    pub(super) fn row(&self, name: &str, requests: u64) -> Row {
        let found = fs::metadata(self.file(name)).unwrap();
        let device = (rustix::fs::major(found.dev()), rustix::fs::minor(found.dev()));
        let counts = Counts {
            disk_read_bytes: 4096 * requests,
            disk_read_requests: requests,
            ..Counts::default()
        };
        let file = self.file(name).to_str().unwrap().to_owned();
        Row { file, device, inode: found.ino(), process: "db".into(), pid: 7, counts }
    }

    /// Writes a record of ten seconds, of the requests of these rows.
    pub(super) fn record(&self, rows: Vec<Row>) {
        self.record_with(rows, 0, WHOLE);
    }

    /// Writes a record whose disk has writes without a file.
    fn record_with(&self, rows: Vec<Row>, more_writes: u64, scope: &str) {
        let sum = |of: fn(&Counts) -> u64| rows.iter().map(|row| of(&row.counts)).sum::<u64>();
        let reads = sum(|it| it.disk_read_requests);
        let writes = sum(|it| it.disk_write_requests + it.disk_lazy_write_requests) + more_writes;
        let disk = Disk {
            name: self.device(0),
            reads,
            read_sectors: 8 * reads,
            read_ms: 9 * reads,
            writes,
            write_sectors: 8 * writes,
            write_ms: 9 * writes,
            busy_ms: 9000,
            ..Disk::default()
        };
        let total = Interval {
            duration_ns: 10_000_000_000,
            rows_all: rows.len() as u64,
            rows,
            disks: vec![disk],
            ..Interval::default()
        };
        let (schema, scope) = (SCHEMA.into(), scope.to_owned());
        let watch = Watch { schema, version: VERSION, scope, total, ..Watch::default() };
        fs::write(self.directory.path().join("record.json"), watch.to_json()).unwrap();
    }

    pub(super) fn plan(&self, more: &[&str]) -> Value {
        self.plan_with(more, "iops:100")
    }

    /// Plans the moves; the second disk has this model.
    pub(super) fn plan_with(&self, more: &[&str], model: &str) -> Value {
        let target = self.file_systems[1].path().to_str().unwrap();
        let model = format!("{}={model}", self.device(1));
        let device = self.device(0);
        let args = ["balance", "record.json", "--json", "--to", target, "--disk", &model];
        let args = [&args[..], &["--disk", &device], more].concat();
        let output = larder(self.directory.path(), &args);
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Runs an action of the script plan.sh.
    pub(super) fn act(&self, action: &str) -> Output {
        let mut command = Command::new("bash");
        command.args(["plan.sh", action]).current_dir(self.directory.path());
        command.env("LARDER_BALANCE_STATE", self.directory.path().join("state"));
        command.output().unwrap()
    }
}

#[test]
fn a_record_of_loop_devices_becomes_a_plan_and_a_script_that_moves() {
    let Some(rig) = Rig::new() else { return };
    for (name, bytes) in [("large", 8 << 20), ("small", 4096), ("it's odd\n", 4096)] {
        fs::write(rig.file(name), vec![7; bytes]).unwrap();
    }
    let rows = vec![rig.row("large", 400), rig.row("small", 400), rig.row("it's odd\n", 5)];
    rig.record(rows);
    let plan = rig.plan(&["--script", "plan.sh"]);
    let moves = plan["moves"].as_array().unwrap();
    assert_eq!(moves.len(), 1, "{plan:#}");
    let [from, to] = ["from", "to"].map(|it| moves[0][it].as_str().unwrap());
    assert!(from.ends_with("/small"), "the smallest that is enough: {plan:#}");
    assert_eq!(moves[0]["from_disks"][0], *rig.device(0));
    let before = plan["before"]["utilization"].as_f64().unwrap();
    assert!((before - 0.9).abs() < 0.01, "{plan:#}");
    let after = plan["after"]["utilization"].as_f64().unwrap();
    assert!(after < 0.5, "{plan:#}");
    let stack = plan["disks"][0]["stacks"][0].as_str().unwrap();
    assert!(stack.contains("(loop)"), "{stack}");
    let act = |action: &str| {
        let output = rig.act(action);
        assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    };
    act("move");
    assert_eq!(fs::read_link(from).unwrap(), Path::new(to));
    assert_eq!(
        fs::metadata(from).unwrap().dev(),
        fs::metadata(rig.file_systems[1].path()).unwrap().dev()
    );
    act("verify");
    act("undo");
    assert!(fs::symlink_metadata(from).unwrap().is_file() && !Path::new(to).exists());
}

#[test]
fn a_disk_that_was_not_counted_is_named_and_has_no_service_time() {
    let Some(rig) = Rig::new() else { return };
    fs::write(rig.file("first"), vec![7; 4096]).unwrap();
    rig.record(vec![rig.row("first", 400)]);
    let path = rig.directory.path().join("record.json");
    let mut watch = Watch::from_json(&fs::read_to_string(&path).unwrap()).unwrap();
    watch.total.disks.clear();
    watch.total.uncounted = vec![rig.device(0)];
    fs::write(path, watch.to_json()).unwrap();
    let plan = rig.plan(&[]);
    let notes = plan["notes"].to_string();
    let sentence = format!("{}: not counted (queue/iostats is 0", rig.device(0));
    assert!(notes.contains(&sentence), "{plan:#}");
    let mut disks = plan["disks"].as_array().unwrap().iter();
    let disk = disks.find(|it| it["name"] == rig.device(0)).expect("the disk is in the plan");
    assert_eq!(disk["service"], "unknown", "{plan:#}");
}

#[test]
fn what_stays_and_what_is_in_the_way_is_in_the_plan() {
    let Some(rig) = Rig::new() else { return };
    for name in ["first", "second"] {
        fs::write(rig.file(name), vec![7; 4096]).unwrap();
    }
    rig.record(vec![rig.row("first", 400), rig.row("second", 400)]);
    let first = rig.file("first");
    let excluded = rig.plan(&["--exclude", first.to_str().unwrap()]);
    assert!(excluded["moves"][0]["from"].as_str().unwrap().ends_with("/second"), "{excluded:#}");
    // A file that was replaced after the record stays.
    fs::write(rig.file("new"), "x").unwrap();
    fs::rename(rig.file("new"), &first).unwrap();
    let input = fs::File::open(rig.file("second")).unwrap();
    let mut reader = Command::new("sleep").arg("1000").stdin(input).spawn().unwrap();
    let plan = rig.plan(&[]);
    reader.kill().unwrap();
    reader.wait().unwrap();
    let moves = plan["moves"].as_array().unwrap();
    assert!(
        moves.len() == 1 && moves[0]["from"].as_str().unwrap().ends_with("/second"),
        "{plan:#}"
    );
    let findings = moves[0]["findings"].as_array().unwrap();
    let stops = findings.iter().filter(|it| it["level"] == "stop" && it["check"] == "open-files");
    assert!(stops.count() >= 1, "{findings:?}");
    assert_eq!(plan["findings"][0]["check"], "backup");
    let whole = rig.plan(&["--by", "directory"]);
    assert_eq!(whole["moves"], Value::Array(Vec::new()), "a mount point does not move: {whole:#}");
}

#[test]
fn a_path_of_a_hostile_record_that_leads_elsewhere_does_not_move() {
    let Some(rig) = Rig::new() else { return };
    fs::create_dir(rig.file("directory")).unwrap();
    for name in ["first", "second"] {
        fs::write(rig.file(name), vec![7; 4096]).unwrap();
    }
    let mut hostile = rig.row("first", 400);
    hostile.file = rig.file("directory/../first").to_str().unwrap().to_owned();
    rig.record(vec![hostile, rig.row("second", 400)]);
    let plan = rig.plan(&[]);
    let moves = plan["moves"].as_array().unwrap();
    assert_eq!(moves.len(), 1, "{plan:#}");
    assert!(moves[0]["from"].as_str().unwrap().ends_with("/second"), "{plan:#}");
}

#[test]
fn writes_of_the_journal_move_with_the_files_that_cause_them() {
    let Some(rig) = Rig::new() else { return };
    for name in ["log", "lazy", "read"] {
        fs::write(rig.file(name), vec![7; 4096]).unwrap();
    }
    let mut rows = [rig.row("log", 0), rig.row("lazy", 0), rig.row("read", 100)];
    rows[0].counts.disk_write_bytes = 4096 * 200;
    rows[0].counts.disk_write_requests = 200;
    rows[1].counts.disk_lazy_write_bytes = 4096 * 100;
    rows[1].counts.disk_lazy_write_requests = 100;
    let writes = |plan: &Value, name: &str| {
        let loads = plan["loads"].as_array().unwrap();
        let is_it = |it: &&Value| it["file"].as_str().unwrap().ends_with(name);
        let of = |key: &str| loads.iter().find(is_it).unwrap()[key].as_f64().unwrap();
        (of("writes_per_s"), of("write_bytes_per_s"))
    };
    rig.record_with(rows.to_vec(), 400, WHOLE);
    let plan = rig.plan(&[]);
    assert_eq!(writes(&plan, "/log"), (60.0, 60.0 * 4096.0), "{plan:#}");
    assert_eq!(writes(&plan, "/lazy"), (10.0, 10.0 * 4096.0), "{plan:#}");
    assert_eq!(plan["disks"][0]["unattributed_utilization"], 0.0, "{plan:#}");
    // A process that was not recorded may have made them.
    rig.record_with(rows.to_vec(), 400, "process 7");
    let plan = rig.plan(&[]);
    assert_eq!(writes(&plan, "/log"), (20.0, 20.0 * 4096.0), "{plan:#}");
    // Without fsync(2) each write has its share.
    rows[0].counts = rows[1].counts;
    rig.record_with(rows.to_vec(), 100, WHOLE);
    let plan = rig.plan(&[]);
    assert_eq!(writes(&plan, "/log"), (15.0, 15.0 * 4096.0), "{plan:#}");
    assert_eq!(writes(&plan, "/lazy"), (15.0, 15.0 * 4096.0), "{plan:#}");
}
