//! Results: one run of all cells, and changes of the machine during the run.

use super::rig::{can_run, command, leftovers, lock_scratch, names, program, stderr_of};
use larder_schema::run::Run;
use std::process::Command;

const SHORT: [&str; 8] = [
    "--trials",
    "2",
    "--confidence",
    "off",
    "--",
    "--number=20",
    "--transactions=40",
    "--size=500",
];

#[test]
fn every_cell_has_its_trials_and_the_settings_that_it_ran_under() {
    let _lock = lock_scratch();
    if !can_run() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (scratch, record) = (directory.path(), directory.path().join("run.json"));
    let variant = "tuned=mount: noatime; mkfs: -b 1024; nice: 5; policy: batch; iopriority: idle";
    let options = [
        "--scheduler",
        "none,mq-deadline",
        "--variant",
        "plain=",
        "--variant",
        variant,
        "-o",
        record.to_str().unwrap(),
    ];
    let output = command(scratch, &[&options[..], &SHORT].concat()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr_of(&output));
    assert_eq!(names(scratch), ["run.json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("time s") && text.contains("creation/s"), "{text}");
    let run = Run::from_json(&std::fs::read_to_string(&record).unwrap()).unwrap();
    let cells: Vec<&str> = run.parts.iter().map(|part| part.name.as_str()).collect();
    let expected = [
        "ext4 plain, none",
        "ext4 plain, mq-deadline",
        "ext4 tuned, none",
        "ext4 tuned, mq-deadline",
    ];
    assert_eq!(cells, expected);
    for part in &run.parts {
        let (environment, settings) = (&part.run.environment, &part.run.settings);
        assert_eq!(part.run.trials.len(), 2, "{}", part.name);
        assert_eq!(environment["disk.scheduler"], part.labels["scheduler"]);
        assert_eq!(environment["mount.type"], "ext4");
        let tuned = part.labels["variant"] == "tuned";
        assert_eq!(environment["mount.options"].contains("noatime"), tuned);
        assert_eq!(environment["process.nice"] == "5", tuned);
        assert_eq!(environment["process.policy"] == "batch", tuned);
        assert_eq!(environment["process.io_priority"] == "idle", tuned);
        assert_eq!(settings["variant.mkfs"] == "-b 1024", tuned);
    }
    assert_eq!(run.sample("transactions: ext4 tuned, none").unwrap().values.len(), 2);
}

#[test]
fn a_machine_that_is_not_as_before_is_a_finding() {
    let _lock = lock_scratch();
    if !can_run() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let (scratch, other) = (directory.path().join("scratch"), directory.path().join("other"));
    std::fs::create_dir(&scratch).unwrap();
    std::fs::create_dir(&other).unwrap();
    let long = ["--scheduler", "none", "--trials", "6", "--confidence", "off"];
    let work = ["--", "--number", "500", "--transactions", "3000"];
    let mut matrix = command(&scratch, &[&long[..], &work].concat());
    let child = matrix.spawn().unwrap();
    super::rig::until("the first cell exists", || !leftovers(&scratch).is_empty());
    let mounted = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&other).status();
    let output = child.wait_with_output().unwrap();
    let unmounted = Command::new("umount").arg(&other).status();
    assert!(mounted.unwrap().success() && unmounted.unwrap().success());
    let stderr = stderr_of(&output);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let other = other.canonicalize().unwrap();
    let expected = format!("programs: mount {} from absent to none tmpfs", other.display());
    assert!(stderr.contains(&expected), "{stderr}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("settings of the machine changed during the run"), "{text}");
}

#[test]
fn words_that_are_wrong_are_said_before_anything_is_made() {
    let _lock = lock_scratch();
    let directory = tempfile::tempdir().unwrap();
    for (args, message) in [
        (&["--variant", "x"][..], "is no variant; write NAME="),
        (&["--fs", "ext5"], "there is no file system \"ext5\"; did you mean"),
        (&["--", "--trials", "3"], "run postmark here: --trials belongs before the --"),
        (&["--", "--number", "x"], "invalid value 'x' for '--number"),
        (&["--", "no-such-script"], "read the script no-such-script"),
        (&["--fs", "ntfs,ext4", "--variant", "x=fs: xfs"], "no file system is left"),
    ] {
        let output = command(directory.path(), args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr_of(&output));
        assert!(stderr_of(&output).contains(message), "{args:?}: {}", stderr_of(&output));
    }
    let absent = command(&directory.path().join("absent"), &[]).output().unwrap();
    assert!(
        stderr_of(&absent).contains("absent: no such file or directory"),
        "{}",
        stderr_of(&absent)
    );
    assert_eq!(names(directory.path()), [""; 0]);
}

#[test]
fn a_cell_that_cannot_be_made_ends_it_and_what_was_measured_is_kept() {
    let _lock = lock_scratch();
    if !can_run() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let variants = ["--scheduler", "none", "--variant", "good=", "--variant", "bad=--no-such"];
    let output = command(directory.path(), &[&variants[..], &SHORT].concat()).output().unwrap();
    let stderr = stderr_of(&output);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("cannot measure ext4 bad, none: run mkfs.ext4 "), "{stderr}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("ext4 good, none") && text.contains("it ended early: "), "{text}");
    assert_eq!((names(directory.path()), leftovers(directory.path())), (vec![], vec![]));
    // The benchmark itself refuses a device that is too small for the work.
    let large = ["--scheduler", "none", "--", "--size=1000000", "--number=500"];
    let output = command(directory.path(), &large).output().unwrap();
    let stderr = super::rig::stderr_of(&output);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("the files need ") && stderr.contains("are free"), "{stderr}");
    assert_eq!((names(directory.path()), leftovers(directory.path())), (vec![], vec![]));
}

/// Returns the devices, schedulers, mounts and priority of the machine, as other programs list
/// them.
fn machine() -> String {
    let script = "losetup --list --noheadings; grep . /sys/block/*/queue/scheduler \
                  /sys/block/*/queue/nr_requests; cut -d' ' -f1-4 /proc/self/mounts; \
                  ls /dev/loop*; nice";
    let output = Command::new("sh").args(["-c", script]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Long form of the tests, for `cargo xtask prove matrix`.
#[test]
fn three_file_systems_on_four_schedulers_leave_the_machine_as_it_was() {
    const SYSTEMS: [&str; 3] = ["ext4", "xfs", "btrfs"];
    const SCHEDULERS: [&str; 4] = ["none", "mq-deadline", "bfq", "kyber"];
    let Some(trials) = std::env::var_os("LARDER_MATRIX_TRIALS") else { return };
    let _lock = lock_scratch();
    assert!(can_run(), "it needs root and loop devices");
    let directory = tempfile::tempdir().unwrap();
    let (record, before) = (directory.path().join("run.json"), machine());
    let mut matrix = Command::new(program());
    matrix.args(["bench", "matrix", "--workload", "postmark", "--fs", &SYSTEMS.join(",")]);
    matrix.args(["--scheduler", &SCHEDULERS.join(","), "--scratch"]).arg(directory.path());
    // XFS needs 300 MiB at least.
    matrix.args(["--size", "2000MiB", "--confidence", "off", "--trials"]).arg(&trials);
    matrix.arg("-o").arg(&record).args(["--", "--number", "500", "--size", "500-10000"]);
    matrix.args(["--subdirectories", "5", "--transactions", "2000"]);
    let output = matrix.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr_of(&output));
    assert_eq!(machine(), before);
    assert_eq!(names(directory.path()), ["run.json"]);
    let run = Run::from_json(&std::fs::read_to_string(&record).unwrap()).unwrap();
    assert!(run.environment_changes.is_empty(), "{:?}", run.environment_changes);
    assert_eq!(run.parts.len(), SYSTEMS.len() * SCHEDULERS.len());
    for (system, scheduler) in SYSTEMS.iter().flat_map(|it| SCHEDULERS.map(|other| (*it, other))) {
        let name = format!("{system}, {scheduler}");
        let part = &run.parts.iter().find(|part| part.name == name).unwrap().run;
        assert_eq!(part.environment["disk.scheduler"], scheduler, "{name}");
        assert_eq!(part.environment["mount.type"], system, "{name}");
        assert!(part.environment_changes.is_empty(), "{name} changed");
    }
    let page = Command::new(program()).args(["report", "--format", "html"]).arg(&record).output();
    let page = String::from_utf8(page.unwrap().stdout).unwrap();
    assert_eq!(page.matches("<figure>").count(), 8, "a chart for each column of the table");
    assert!(
        !page.contains("<script src") && !page.contains("href=\"http"),
        "the page fetches something"
    );
    println!("shown: {} cells, 8 charts, the machine is unchanged", run.parts.len());
}
