//! `larder ctl` in interactive use and in scripts.

use super::rig::{MIB, Server, eventually, larder, text};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

#[test]
fn stats_are_for_people_and_for_programs() {
    let server = Server::start(&["one", "two"], &[]);
    let mut client = server.client(0);
    client.write_at(0, &vec![7; 1 << 20], false).unwrap();
    client.read_at(0, &mut vec![0; 1 << 20]).unwrap();
    let shown = server.ctl_text(&["stats"]);
    let row = shown.lines().find(|line| line.starts_with("one")).unwrap();
    let words: Vec<_> = row.split_whitespace().collect();
    assert_eq!(words[..9], ["one", "1", "1", "MiB", "100.0", "%", "1", "1", "MiB"], "{shown}");
    assert!(shown.lines().any(|line| line.starts_with("all ")), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    let json: Value =
        serde_json::from_str(&server.ctl_text(&["stats", "--format", "json"])).unwrap();
    assert_eq!(json["volumes"][0]["counters"]["read_bytes"], MIB);
    let csv = server.ctl_text(&["stats", "--format", "csv"]);
    assert!(csv.starts_with("volume,name,value\n"), "{csv}");
    assert!(csv.contains("\none,read_bytes,1048576\n"), "{csv}");
    let all = server.ctl_text(&["stats", "--all"]);
    assert!(all.contains("read_total_ns_p99"), "{all}");
    assert!(server.ctl_text(&["metrics"]).ends_with("# EOF\n"));
    server.stop();
}

#[test]
fn volumes_flush_warm_and_stop() {
    let lazy = ["--set", "first-delay=60000", "--set", "age-max=3600000"];
    let server = Server::start(&["one", "two"], &lazy);
    server.client(1).write_at(0, &vec![7; 1 << 20], false).unwrap();
    let volumes = server.ctl_text(&["volumes"]);
    assert!(volumes.lines().any(|line| line.starts_with("two") && line.contains("s3fifo")));
    let places = server.ctl_text(&["volumes", "--places"]);
    assert!(places.contains(&server.uris[1]), "{places}");
    let risk = server.ctl_text(&["at-risk", "--format", "json"]);
    let risk: Value = serde_json::from_str(&risk).unwrap();
    assert_eq!(risk["volumes"][1]["lost_by_kill_bytes"], MIB);
    assert!(server.ctl_text(&["flush", "one"]).starts_with("flushed: 0 B in "));
    assert!(server.ctl_text(&["flush"]).starts_with("flushed: 1 MiB in "));
    assert!(server.ctl_text(&["warm", "one", "1MiB+2MiB"]).starts_with("warmed: 2 MiB in "));
    let csv = server.ctl_text(&["warm", "one", "0+4KiB", "--format", "csv"]);
    assert!(csv.starts_with("bytes,took_ns,cached_bytes\n4096,"), "{csv}");
    assert!(csv.ends_with(",4096\n"), "{csv}");
    server.client(1).write_at(0, &[7; 4096], false).unwrap();
    let stopped = server.ctl_text(&["stop"]);
    let expected = "stopped, no unwritten data is left; written: 4 KiB in ";
    assert!(stopped.starts_with(expected), "{stopped}");
    server.wait();
}

#[test]
fn warm_reports_how_much_of_what_it_read_is_in_the_cache() {
    let server = Server::start(&["one"], &["--max", "one=8MiB"]);
    let warmed = server.ctl_text(&["warm", "one"]);
    let expected = "warmed: 8 MiB of 16 MiB in ";
    assert!(warmed.starts_with(expected) && warmed.contains("; the other 8 MiB "), "{warmed}");
    let json = server.ctl_text(&["warm", "one", "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["bytes"], &json["cached_bytes"]), (&(16 * MIB).into(), &(8 * MIB).into()));
    let warmed = server.ctl_text(&["warm", "one", "1MiB+2MiB"]);
    assert!(warmed.starts_with("warmed: 2 MiB in "), "{warmed}");
    server.stop();
}

#[test]
fn what_is_wrong_ends_with_2_and_a_sentence() {
    let server = Server::start(&["one"], &[]);
    let assert_refused = |args: &[&str], reason: &str| {
        let output = server.ctl(args);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(reason), "{args:?}: {stderr}");
        assert!(output.stdout.is_empty());
    };
    assert_refused(&["flush", "three"], "cannot find the volume \"three\"");
    assert_refused(&["warm", "three"], "there is no such volume; write one of one");
    assert_refused(&["warm", "one", "15MiB+2MiB"], "the volume has 16MiB");
    assert_refused(&["warm", "one", "7"], "write it as OFFSET+LENGTH");
    assert_refused(&["stats", "--watch", "1us"], "the minimum is 10ms");
    assert_refused(
        &["flush", "--watch", "1s"],
        "--watch is for stats, volumes, curve, files and at-risk",
    );
    assert_refused(&["stats", "--token", "x"], "needs none");
    let socket = server.socket();
    server.stop();
    let assert_unreachable = |control: &str, reason: &str| {
        let output = larder().args(["ctl", "stats", "--control", control]).output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains(reason), "{stderr}");
    };
    assert_unreachable(
        &socket.display().to_string(),
        "there is no such socket; is larder serve running?",
    );
    assert_unreachable("http://127.0.0.1:1", "it needs --token FILE");
    assert_unreachable("http://192.0.2.1:80", "is not of this machine alone");
    let directory = tempfile::tempdir().unwrap();
    let stale = directory.path().join("larder-x.control");
    drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
    assert_unreachable(
        &stale.display().to_string(),
        "no process listens there; is larder serve running?",
    );
}

#[test]
fn the_only_server_is_found() {
    let directory = tempfile::tempdir().unwrap();
    let image = super::rig::images(directory.path(), &["one"]).remove(0);
    let runtime = directory.path().to_owned();
    let mut command = larder();
    command.arg("serve").arg(&image).args(["--memory", "16MiB"]);
    let server = Server::spawn(directory, command, 1);
    let find = || {
        let mut command = larder();
        command.args(["ctl", "volumes"]).env("RUNTIME_DIRECTORY", &runtime);
        command.output().unwrap()
    };
    assert!(runtime.join("one.control").exists() && runtime.join("one.sock").exists());
    assert!(text(&find().stdout).contains("one"), "{}", text(&find().stderr));
    server.signal(Signal::TERM);
    eventually("the socket is gone", || !runtime.join("one.control").exists());
    let none = find();
    assert!(text(&none.stderr).contains("cannot find a server: none has a control socket in "));
    server.wait();
}

#[test]
fn watching_shows_rates_of_each_interval_and_ends_at_ctrl_c() {
    let server = Server::start(&["one"], &[]);
    let mut client = server.client(0);
    let mut watch = server
        .ctl_command(&["stats", "--watch", "200ms", "--format", "json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let idle = next();
    assert_eq!(idle["requests"][0]["read_requests_per_s"], 0);
    let started = Instant::now();
    let mut reads = 0;
    while started.elapsed() < Duration::from_millis(500) {
        client.read_at(0, &mut [0; 4096]).unwrap();
        reads += 1;
    }
    // The rates of the intervals add up to the number of reads.
    let (mut sum, mut total) = (0.0, 0);
    while total < reads {
        let line = next();
        let seconds = line["interval_s"].as_f64().unwrap();
        sum += line["requests"][0]["read_requests_per_s"].as_f64().unwrap() * seconds;
        total = line["totals"]["volumes"][0]["counters"]["read_requests"].as_u64().unwrap();
    }
    assert_eq!(total, reads);
    #[expect(clippy::cast_precision_loss, reason = "few")]
    let reads = reads as f64;
    assert!((sum - reads).abs() < 0.01 * reads + 10.0, "{sum} of {reads}");
    kill_process(Pid::from_child(&watch), Signal::INT).unwrap();
    assert!(watch.wait().unwrap().success(), "Ctrl-C is no failure");
    // Text output, and the exit code of a watch whose server stops.
    let watch = server.ctl_command(&["stats", "--watch", "50ms"]).stdout(Stdio::piped()).spawn();
    let mut watch = watch.unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.starts_with("the last 0.0")));
    assert!(lines.any(|line| line == "in all"));
    server.stop();
    for _ in lines {}
    assert_eq!(watch.wait().unwrap().code(), Some(2));
}

#[test]
fn a_file_is_checked_without_being_served() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("larder.toml");
    let check = |text: &str| {
        std::fs::write(&path, text).unwrap();
        larder().arg("check-config").arg(&path).output().unwrap()
    };
    let fine = check("memory = \"64MiB\"\n[[volume]]\nname = \"a\"\npath = \"/no/such/file\"\n");
    assert!(fine.status.success());
    assert!(
        text(&fine.stdout).ends_with(" is valid: 64 MiB of memory; volumes: a\n"),
        "{}",
        text(&fine.stdout)
    );
    let empty = check("");
    let output = text(&empty.stdout);
    assert!(
        output.ends_with(
            " is valid: 256 MiB of memory; it has no volumes; the command line names them\n"
        ),
        "{output}"
    );
    let wrong = check("memory = \"64MiB\"\npolcy = \"lru\"\n");
    assert_eq!(wrong.status.code(), Some(2));
    let output = text(&wrong.stderr);
    let known = "line 2: there is no key \"polcy\"; did you mean \"policy\"?\n";
    assert!(output.starts_with("larder: cannot use ") && output.ends_with(known), "{output}");
    let none = larder().arg("check-config").arg(directory.path().join("none")).output().unwrap();
    assert_eq!(none.status.code(), Some(2));
}

#[test]
fn wrong_uses_of_ctl_are_refused_with_the_reason() {
    let server = Server::start(&["one"], &[]);
    let assert_refused = |args: &[&str]| {
        let output = server.ctl(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {output:?}");
        text(&output.stderr)
    };
    let message = assert_refused(&["set", "memory=16MiB", "memory=24MiB"]);
    assert_eq!(message, "larder: cannot set memory: it is named twice\n");
    let message = assert_refused(&["set", "one.min=1TiB"]);
    assert!(
        message.starts_with("larder: cannot set min of \"one\": it is more than "),
        "{message}"
    );
    let message = assert_refused(&["add", "two=two.img", "max=1KiB"]);
    assert!(message.starts_with("larder: cannot set max of \"two\": it is below "), "{message}");
    let message = assert_refused(&["set", "memory=3"]);
    assert!(message.contains("use 3 B of memory"), "{message}");
    let message = assert_refused(&["metrics", "--format", "json"]);
    assert!(message.starts_with("larder: cannot print the metrics: "), "{message}");
    server.stop();
}

#[test]
fn a_socket_that_is_not_for_control_is_named() {
    let server = Server::start(&["one"], &[]);
    let socket = server.path("nbd.sock").display().to_string();
    let output = larder().args(["ctl", "--control", &socket, "stats"]).output().unwrap();
    let expected = format!(
        "larder: cannot query {socket}: it is not a control socket of larder; their names end \
         in .control\n"
    );
    assert_eq!(text(&output.stderr), expected);
    server.stop();
}
