//! Invalid command lines and inputs are refused before any change, with a message of one sentence.

use rustix::process::{Pid, Signal, kill_process};
use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs larder in a directory. `timeout` ends a command that is not refused.
fn larder(directory: &Path, args: &[&str]) -> Output {
    let mut command = Command::new("timeout");
    command.args(["60", env!("CARGO_BIN_EXE_larder")]);
    command.args(args).current_dir(directory).output().unwrap()
}

/// Checks that an error message is one line that contains all of `parts`.
fn assert_message(message: &str, parts: &[&str]) {
    assert_eq!(message.lines().count(), 1, "{message}");
    assert!(!message.contains("panicked"), "{message}");
    for word in parts {
        assert!(message.contains(word), "it does not name {word}: {message}");
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Returns the error message of a command, which must fail.
fn refusal(directory: &Path, args: &[&str]) -> String {
    let output = larder(directory, args);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
    assert!(output.stdout.is_empty(), "{args:?}");
    stderr
}

#[test]
fn a_command_whose_result_cannot_be_kept_does_not_begin() {
    let directory = tempfile::tempdir().unwrap();
    // Otherwise the watch would run until a signal.
    let stderr = refusal(directory.path(), &["watch", "-o", "no/directory"]);
    assert_eq!(stderr, "larder: cannot write no/directory: the directory no does not exist\n");
    let stderr = refusal(directory.path(), &["watch", "-o", "."]);
    assert_eq!(stderr, "larder: cannot write .: it is a directory\n");
    let probe = ["bench", "probe", ".", "--size", "64KiB", "--length", "20ms", "--trials", "1"];
    let stderr = refusal(directory.path(), &[&probe[..], &["-o", "."]].concat());
    assert_eq!(stderr, "larder: cannot write .: it is a directory\n");
}

#[test]
fn a_group_that_does_not_exist_is_not_watched() {
    let directory = tempfile::tempdir().unwrap();
    for args in [
        &["watch", "--cgroup", "no/such/group"][..],
        &["size", "--live", "--cgroup", "no/such/group"],
        &["trace", "record", "a.ltr", "--cgroup", "no/such/group"],
    ] {
        let stderr = refusal(directory.path(), args);
        let prefix = "larder: cannot watch group no/such/group: there is no such control group";
        assert!(stderr.starts_with(prefix), "{args:?}: {stderr}");
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn a_trace_is_not_replaced_by_what_is_made_of_it() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["a.csv", "b.csv"] {
        let output = larder(directory.path(), &["trace", "synth", "zipf", name, "--requests", "9"]);
        assert!(output.status.success());
    }
    let before = std::fs::read(directory.path().join("a.csv")).unwrap();
    std::os::unix::fs::symlink("a.csv", directory.path().join("link.csv")).unwrap();
    for (args, to, trace) in [
        (&["convert", "a.csv", "a.csv"][..], "a.csv", "a.csv"),
        (&["convert", "b.csv", "a.csv", "./a.csv"], "./a.csv", "a.csv"),
        (&["convert", "link.csv", "a.csv"], "a.csv", "link.csv"),
        (&["merge", "a.csv", "b.csv", "a.csv"], "a.csv", "a.csv"),
        (&["filter", "a.csv", "a.csv", "--op", "read"], "a.csv", "a.csv"),
    ] {
        let stderr = refusal(directory.path(), &[&["trace"], args].concat());
        let expected = format!("larder: cannot write {to}: it is the file {trace} that is read\n");
        assert_eq!(stderr, expected, "{args:?}");
    }
    assert_eq!(std::fs::read(directory.path().join("a.csv")).unwrap(), before);
    assert!(larder(directory.path(), &["trace", "convert", "a.csv", "c.csv"]).status.success());
}

#[test]
fn a_directory_is_not_mounted_whose_counters_cannot_be_kept() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["source", "place"] {
        std::fs::create_dir(directory.path().join(name)).unwrap();
    }
    let mount = ["mount", "source", "place", "--memory", "32MiB"];
    let stderr = refusal(directory.path(), &[&mount[..], &["--counters", "no/file"]].concat());
    assert_eq!(stderr, "larder: cannot write no/file: the directory no does not exist\n");
}

#[test]
fn a_server_that_cannot_be_controlled_as_it_was_told_does_not_serve() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("disk.img"), vec![0; 1 << 20]).unwrap();
    let serve = ["serve", "disk.img", "--memory", "32MiB", "--listen", "unix:nbd"];
    let stderr = refusal(directory.path(), &[&serve[..], &["--control", "no/socket"]].concat());
    assert!(stderr.starts_with("larder: cannot listen on unix:no/socket: "), "{stderr}");
    assert_eq!(stderr.matches("no such file").count(), 1, "{stderr}");
}

/// Creates a sparse file.
fn sparse(path: &Path, bytes: u64) {
    std::fs::File::create(path).unwrap().set_len(bytes).unwrap();
}

#[test]
fn a_volume_that_cannot_be_served_is_named_in_one_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    std::fs::create_dir(directory.join("directory")).unwrap();
    sparse(&directory.join("good.img"), 8 << 20);
    sparse(&directory.join("odd.img"), (8 << 20) + 100);
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
    let kib: u64 = meminfo.split_whitespace().nth(1).unwrap().parse().unwrap();
    let twice = format!("{}MiB", kib * 2 / 1024);
    let before = names(directory);
    for (volume, memory, parts) in [
        ("absent.img", "16MiB", &["absent.img"][..]),
        ("directory", "16MiB", &["directory"]),
        ("odd.img", "16MiB", &["odd.img", "512"]),
        ("good.img", &twice, &["memory"]),
    ] {
        let serve = ["serve", volume, "--memory", memory, "--listen", "unix:socket"];
        assert_message(&refusal(directory, &serve), parts);
        assert_eq!(names(directory), before, "{volume}");
    }
    // The command leaves the socket of another server alone.
    let socket = directory.join("busy");
    let _listener = UnixListener::bind(&socket).unwrap();
    let serve = ["serve", "good.img", "--memory", "16MiB", "--listen", "unix:busy"];
    assert_message(&refusal(directory, &serve), &["busy"]);
    UnixStream::connect(&socket).unwrap();
}

#[test]
fn an_image_without_permission_is_named_in_one_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let mode = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode));
    // Any user can create a socket here and run the program, so only the image can cause an error.
    mode(directory, 0o777).unwrap();
    let program = directory.join("larder");
    std::fs::copy(env!("CARGO_BIN_EXE_larder"), &program).unwrap();
    sparse(&directory.join("secret.img"), 8 << 20);
    mode(&directory.join("secret.img"), 0).unwrap();
    let before = names(directory);
    let mut command = Command::new("timeout");
    command.arg("60").arg(&program).args(["serve", "secret.img", "--memory", "16MiB"]);
    command.args(["--listen", "unix:socket"]).current_dir(directory);
    if rustix::process::geteuid().is_root() {
        command.uid(65534).gid(65534);
    }
    let output = command.output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert_message(&stderr, &["secret.img"]);
    assert_eq!(names(directory), before);
}

#[test]
fn a_trace_that_cannot_be_sized_is_named_in_one_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let write = |name: &str, content: &[u8]| std::fs::write(directory.join(name), content).unwrap();
    let lines = |column: &str| {
        format!(
            "time_ns,{column},len,latency_ns,volume,file,process,op,class,volume_name,file_name,\
             process_name\n0,0,4096,0,0,0,0,read,0,,,\n1,0,4096,0,0,0,0,read,0,,,\n"
        )
    };
    write("good.csv", lines("offset").as_bytes());
    write("objects.csv", lines("object").as_bytes());
    write("nothing.vscsi", b"");
    write("cut.vscsi", &[1; 47]);
    for (args, name) in [
        (&["nothing.vscsi", "--trace-format", "vscsi1"][..], "nothing.vscsi"),
        (&["objects.csv"], "objects.csv"),
        (&["cut.vscsi", "--trace-format", "vscsi1"], "cut.vscsi"),
        (&["absent.csv"], "absent.csv"),
        (&["-"], "standard input"),
        (&["good.csv", "-o", "/no/such/page.html"], "page.html"),
        (&["good.csv", "--trace-format", "vscsi1"], "good.csv"),
    ] {
        assert_message(&refusal(directory, &[&["size"], args].concat()), &[name]);
    }
    // Errors of the command line parser have further lines with the usage.
    for option in [["--target", "0%"], ["--target", "200%"], ["--target", "x"], ["--budget", "x"]] {
        let stderr = refusal(directory, &["size", "good.csv", option[0], option[1]]);
        assert!(stderr.lines().next().unwrap().contains(option[0]), "{stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
    }
}

#[test]
fn a_file_that_a_command_reads_is_never_its_output() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let run = |name: &str| {
        let runs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench-runs");
        let text = std::fs::read(runs.join("probe-before.json")).unwrap();
        let mut run: serde_json::Value = serde_json::from_slice(&text).unwrap();
        // As in a run that measured the speed of the machine.
        run["trials"][0]["speed"] = 1.0.into();
        std::fs::write(directory.join(name), run.to_string()).unwrap();
    };
    for name in ["keep.img", "keep.json", "lists.warm"] {
        sparse(&directory.join(name), 8 << 20);
    }
    std::fs::write(directory.join("list"), "[[volume]]\npath = \"keep.img\"\n").unwrap();
    let counters = "counters = \"hard.img\"\n[[volume]]\npath = \"keep.img\"\n";
    std::fs::write(directory.join("counters.toml"), counters).unwrap();
    std::fs::hard_link(directory.join("keep.img"), directory.join("hard.img")).unwrap();
    std::fs::write(directory.join("key.pem"), "a key").unwrap();
    std::fs::create_dir(directory.join("tls")).unwrap();
    std::fs::hard_link(directory.join("key.pem"), directory.join("tls/server-key.pem")).unwrap();
    std::os::unix::fs::symlink("keep.img", directory.join("soft.img")).unwrap();
    let synth = "trace synth zipf trace.json --to-format csv --requests 9";
    assert!(larder(directory, &synth.split(' ').collect::<Vec<_>>()).status.success());
    run("a.json");
    let before: Vec<_> = names(directory)
        .into_iter()
        .filter(|name| directory.join(name).is_file())
        .map(|name| (std::fs::read(directory.join(&name)).unwrap(), name))
        .collect();
    let serve = ["serve", "--memory", "16MiB", "--listen", "unix:socket", "--control", "none"];
    for (args, to, read) in [
        (&["keep.img", "--counters", "keep.img"][..], "keep.img", "keep.img"),
        (&["keep.img", "--counters", "hard.img"], "hard.img", "keep.img"),
        (&["v=./keep.img", "--counters", "soft.img"], "soft.img", "./keep.img"),
        (&["keep.img", "--record", "keep.img"], "keep.img", "keep.img"),
        (&["keep.img", "--record-inputs", "soft.img"], "soft.img", "keep.img"),
        (&["--config", "list", "--counters", "list"], "list", "list"),
        (&["--config", "list", "--counters", "keep.img"], "keep.img", "keep.img"),
        (&["--config", "counters.toml"], "hard.img", "keep.img"),
        (&["lists.warm", "--warm-list", "."], "./lists.warm", "lists.warm"),
        (&["keep.img", "--tls", "tls", "--counters", "key.pem"], "key.pem", "tls/server-key.pem"),
    ] {
        let stderr = refusal(directory, &[&serve[..], args].concat());
        let expected = format!("write {to}: it is the file {read} that is read\n");
        assert!(stderr.ends_with(&expected), "{args:?}: {stderr}");
        assert_eq!(stderr.lines().count(), 1, "{stderr}");
    }
    for args in [
        &["size", "trace.json", "-o", "trace.json"][..],
        &["report", "a.json", "--format", "html", "-o", "a.json"],
        &["watch", "a.json", "--output", "a.json"],
        &["trace", "record", "a.json", "a.json"],
        &["trace", "filter", "trace.json", "trace.json", "--op", "read"],
        &["bench", "probe", "keep.json", "--pattern", "R", "-o", "keep.json"],
        &["bench", "probe", ".", "--as-fast-as", "a.json", "-o", "a.json"],
        &["bench", "fileload", "keep.json", "-o", "keep.json"],
        &["bench", "server", "keep.json", "-o", "keep.json"],
        &["bench", "postmark", "list", "-o", "list"],
        &["bench", "probe", "keep.img", "--pattern", "R", "--rendezvous", "keep.img"],
    ] {
        let to = args.iter().rev().find(|word| directory.join(word).is_file()).unwrap();
        let stderr = refusal(directory, args);
        let expected = format!("larder: cannot write {to}: it is the file {to} that is read\n");
        assert_eq!(stderr, expected, "{args:?}");
    }
    let twice = ["keep.img", "--counters", "new", "--record", "./new"];
    let stderr = refusal(directory, &[&serve[..], &twice].concat());
    assert!(stderr.ends_with("two outputs have this name; give each its own\n"), "{stderr}");
    for (bytes, name) in before {
        assert_eq!(std::fs::read(directory.join(&name)).unwrap(), bytes, "{name}");
    }
}

#[test]
fn a_full_standard_output_is_an_error_of_every_command() {
    let directory = tempfile::tempdir().unwrap();
    sparse(&directory.path().join("a.img"), 1 << 20);
    std::fs::write(directory.path().join("a.toml"), "[[volume]]\npath = \"a.img\"\n").unwrap();
    for args in [
        &["--help"][..],
        &["--version"],
        &["trace", "--help"],
        &["check-config", "a.toml"],
        &["resident", "a.img"],
        &["trace", "synth", "zipf", "-", "--requests", "9"],
        &["docs", "tunables"],
        &["demo", "--for", "1s", "--memory", "8MiB"],
    ] {
        let mut command = Command::new("timeout");
        command.args(["60", env!("CARGO_BIN_EXE_larder")]).args(args).current_dir(directory.path());
        let full = std::fs::File::create("/dev/full").unwrap();
        let output = command.stdout(full).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        let expected = "larder: cannot write to standard output: no space left on device\n";
        assert_eq!(stderr, expected, "{args:?}");
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn a_trace_on_a_full_disk_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let output = larder(directory, &["trace", "synth", "zipf", "a.csv", "--requests", "9"]);
    assert!(output.status.success());
    let formats = ["ltr", "csv"].into_iter().chain(cfg!(feature = "parquet").then_some("parquet"));
    for format in formats {
        let to = format!("full.{format}");
        std::os::unix::fs::symlink("/dev/full", directory.join(&to)).unwrap();
        let stderr = refusal(directory, &["trace", "convert", "a.csv", &to]);
        let expected = format!("larder: cannot write {to}: no space left on device\n");
        assert_eq!(stderr, expected);
    }
}

#[test]
fn a_demo_that_cannot_be_is_refused_before_it_prints_anything() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("empty"), "").unwrap();
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
    let kib: u64 = meminfo.split_whitespace().nth(1).unwrap().parse().unwrap();
    // The image of the demo has eight times the size of the memory, and does not fit into 16 MiB.
    let small = tempfile::tempdir().unwrap();
    let _mounted = larder_testing::is_root().then(|| {
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=16M", "none"])
            .arg(small.path())
            .status();
        assert!(mount.unwrap().success());
        Unmount(small.path())
    });
    let small_path = small.path().to_str().unwrap();
    let mut refusals = vec![
        (vec!["--memory", "1MiB"], "cannot use 1 MiB of memory: the minimum is 8 MiB\n"),
        (vec!["--directory", "missing"], "cannot find missing: no such file or directory"),
        (
            vec!["--directory", "empty"],
            "cannot work in empty: it is not a directory; name the one that it is in\n",
        ),
    ];
    let twice = format!("{}KiB", kib * 2);
    refusals.push((vec!["--memory", &twice], "iB of memory: this machine has "));
    if larder_testing::is_root() {
        refusals.push((vec!["--directory", small_path], "it needs 128 MiB and 16 MiB are free\n"));
    }
    for (args, reason) in refusals {
        assert_message(&refusal(directory.path(), &[&["demo"], &args[..]].concat()), &[reason]);
    }
}

struct Unmount<'a>(&'a Path);

impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        drop(Command::new("umount").arg(self.0).status());
    }
}

#[test]
fn options_that_contradict_each_other_or_have_no_effect_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    sparse(&directory.join("v.img"), 1 << 20);
    let output = larder(directory, &["trace", "synth", "zipf", "t.csv", "--requests", "9"]);
    assert!(output.status.success());
    for (args, reason) in [
        (
            &["sim", "t.csv", "--policy", "min", "--store", "disk", "--clients", "9"][..],
            "cannot simulate with --store, --clients: add --level whole\n",
        ),
        (
            &["sim", "t.csv", "--level", "whole", "--size", "16MiB", "--set", "age-maxx=1"],
            "there is no tunable \"age-maxx\"; did you mean \"age-max\"?\n",
        ),
        (
            &["sim", "t.csv", "--level", "whole", "--size", "16MiB", "--set", "age-max=1d"],
            "cannot set age-max: \"1d\" is not a time; write one from 10ms to 1h, or a number of \
             milliseconds\n",
        ),
        (
            &["trace", "filter", "t.csv", "f.csv", "--from", "2h", "--to", "1h"],
            "cannot filter by time: --from must be before --to\n",
        ),
        (
            &["serve", "v.img", "--give-back=1TiB"],
            "cannot give memory back down to 1 TiB: --memory is only 256 MiB\n",
        ),
        (
            &["serve", "v.img", "--set", "age-maxx=1"],
            "cannot set age-maxx: there is no setting \"age-maxx\"; did you mean \"age-max\"?\n",
        ),
        (&["serve", "v.img", "--memory", "0"], "cannot use 0 B of memory: the minimum is 8 MiB\n"),
        (
            &["serve", "v.img", "--fuse", "missing"],
            "cannot mount at missing: there is no such directory; make it first\n",
        ),
        (
            &["bench", "fileload", "empty", "--start", "as-is"],
            "cannot read a file of 0 bytes in parts of 8192 bytes: the least size is 8192 \
             bytes\n",
        ),
        (&["compare", "t.csv", "binary"], "cannot read t.csv: "),
        (&["compare", "binary", "t.csv"], "cannot read binary: it is not a result of larder\n"),
        (&["size", "t.csv", "-o", "/none/x.html"], "the directory /none does not exist\n"),
        (&["bench", "probe", ".", "-o", "none/x.json"], "the directory none does not exist\n"),
        (
            &["trace", "convert", "t.csv", "x.foo"],
            "cannot write x.foo: no format has the ending .foo; use .ltr, ",
        ),
    ] {
        std::fs::write(directory.join("empty"), "").unwrap();
        std::fs::write(directory.join("binary"), b"\xff\xfe\x00").unwrap();
        assert_message(&refusal(directory, args), &[reason]);
    }
    for (args, reason) in [
        (&["watch", "--for", "1s", "--buffer", "1TiB"][..], "this machine has "),
        (&["watch", "--buffer", "1"], "a buffer of 1: the minimum is 64KiB"),
        (&["trace", "replay", "t.csv"], "<--to <URI>|--volume <NAME=URI>>"),
    ] {
        let stderr = refusal(directory, args);
        assert!(stderr.starts_with("error: ") && stderr.contains(reason), "{args:?}: {stderr}");
    }
}

#[test]
fn a_negative_value_is_refused_by_the_parser_of_the_value() {
    let directory = tempfile::tempdir().unwrap();
    for (args, reason) in [
        (&["serve", "v.img", "--memory", "-1"][..], "\"-1\" is not a size; write 4KiB"),
        (&["bench", "probe", ".", "--for", "-1s"], "\"-1s\" is not a time; write 90s"),
        (
            &["bench", "probe", ".", "--seed", "-1"],
            "'-1' for '--seed <NUMBER>': it is not a whole number",
        ),
        (
            &["resident", ".", "--depth", "-1"],
            "'-1' for '--depth <NUMBER>': it is not a whole number",
        ),
        (&["compare", "a", "b", "--threshold", "-1%"], "\"-1%\" is not a share; write 5%"),
        (&["try", ".", "--", "--size", "-1"], "\"-1\" is not a size; write 4KiB"),
    ] {
        let stderr = refusal(directory.path(), args);
        assert!(stderr.contains(reason) && !stderr.contains("to pass"), "{args:?}: {stderr}");
    }
}

#[test]
fn a_demo_that_is_interrupted_ends_with_the_signal() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    command.args(["demo", "--memory", "8MiB", "--for", "1m"]).current_dir(directory.path());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.signal(), Some(Signal::INT.as_raw()), "{output:?}");
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "larder: stopped; nothing is left behind\n"
    );
    assert_eq!(names(directory.path()), [""; 0]);
}

#[test]
fn help_is_a_command_too() {
    let directory = tempfile::tempdir().unwrap();
    for (args, same) in [
        (&["help"][..], &["--help"][..]),
        (&["help", "serve"], &["serve", "--help"]),
        (&["help", "trace", "convert"], &["trace", "convert", "--help"]),
    ] {
        let (help, same) = (larder(directory.path(), args), larder(directory.path(), same));
        assert!(help.status.success(), "{args:?}: {help:?}");
        assert_eq!(String::from_utf8(help.stdout), String::from_utf8(same.stdout), "{args:?}");
    }
}

#[test]
fn a_result_is_printed_though_its_file_cannot_be_written() {
    let directory = tempfile::tempdir().unwrap();
    let output =
        larder(directory.path(), &["trace", "synth", "zipf", "t.csv", "--requests", "999"]);
    assert!(output.status.success());
    let iozone = ["bench", "iozone", "-s", "64k", "-r", "4k", "-i", "0", "--trials", "1"];
    for (args, shown) in [
        (&["size", "t.csv", "-o", "/dev/full"][..], "Recommendation: "),
        (&[&iozone[..], &["--page", "/dev/full"]].concat(), "write"),
        (&[&iozone[..], &["--output", "/dev/full"]].concat(), "write"),
    ] {
        let output = larder(directory.path(), args);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        let last = stderr.lines().last().unwrap();
        assert!(last.starts_with("larder: cannot write /dev/full: "), "{args:?}: {stderr}");
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(printed.contains(shown), "{args:?}: {printed}");
    }
}

#[test]
fn a_trace_replaces_no_file() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("a.ltr"), "kept").unwrap();
    let made = larder(directory.path(), &["trace", "synth", "zipf", "in.csv", "--requests", "9"]);
    assert!(made.status.success(), "{made:?}");
    for (args, operation) in [
        (&["record", "a.ltr", "--for", "1s"][..], "record to"),
        (&["synth", "zipf", "a.ltr"], "write"),
        (&["convert", "in.csv", "a.ltr"], "write"),
        (&["filter", "in.csv", "a.ltr"], "write"),
        (&["merge", "in.csv", "in.csv", "a.ltr"], "write"),
    ] {
        let stderr = refusal(directory.path(), &[&["trace"], args].concat());
        let reason = "it exists already; remove it, or name another file";
        assert_eq!(stderr, format!("larder: cannot {operation} a.ltr: {reason}\n"));
        assert_eq!(std::fs::read(directory.path().join("a.ltr")).unwrap(), b"kept");
    }
}

#[test]
fn a_simulation_refuses_what_it_cannot_do_and_groups_numbers() {
    let directory = tempfile::tempdir().unwrap();
    let head = "time_ns,offset,len,latency_ns,volume,file,process,op,class,volume_name,file_name,\
                process_name\n";
    let flush = "0,0,0,0,0,0,0,flush,0,,,\n";
    let reads = "0,0,4096,0,0,0,0,read,0,,,\n0,0,4096,0,0,0,0,write,0,,,\n";
    let trace = [head, reads, &flush.repeat(1_234)].concat();
    std::fs::write(directory.path().join("t.csv"), trace).unwrap();
    let output = larder(directory.path(), &["sim", "t.csv", "--policy", "lru", "--size", "10p"]);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("skipped 1,234 requests that are neither read nor write"), "{stderr}");
    let whole = ["sim", "t.csv", "--level", "whole", "--policy", "lru", "--size", "4MiB"];
    let output = larder(directory.path(), &[&whole[..], &["--write-mode", "read-only"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8(output.stderr).unwrap());
    let short = [&whole[..], &["--store", "measure:t.csv"]].concat();
    let stderr = refusal(directory.path(), &short);
    assert_message(stderr.lines().last().unwrap(), &["cannot measure t.csv: "]);
    let stderr = refusal(directory.path(), &["sim", "t.csv", "--policy", "lru", "--size", "8TiB"]);
    assert_message(stderr.lines().last().unwrap(), &["a cache of 8 TiB", "smaller --size"]);
    let stderr = refusal(directory.path(), &["sim", "t.csv", "--policy", "lru", "--size", "1EiB"]);
    assert_message(
        stderr.lines().last().unwrap(),
        &["281,474,976,710,656 pages", "the most is 4,294,967,295"],
    );
    std::fs::write(directory.path().join("x"), "unknown").unwrap();
    for (args, option) in [
        (&["sim", "x"][..], "--trace-format"),
        (&["size", "x"], "--trace-format"),
        (&["trace", "summary", "x"], "--trace-format"),
    ] {
        assert_message(&refusal(directory.path(), args), &[&format!("with {option})")]);
    }
    let stderr = refusal(directory.path(), &["sim", "--level", "inputs", "t.csv"]);
    assert_message(&stderr, &["it is no recording of inputs"]);
}
