//! Cold and warm starts on real file systems: each start is verified by reading back the residency
//! of the pages, and refused if it cannot be reached.
//!
//! The file systems are created in image files and mounted over loop devices; bindfs represents
//! FUSE. This needs root and the tools of `cargo xtask test`. Cases that this machine cannot run
//! are skipped.

mod load;
mod places;
mod probe;
pub(crate) mod rig;
mod samba;
mod server;

use larder_host::residency::of_path;
use larder_schema::run::Run;
use larder_schema::run::trial::Start;
use larder_testing::{skip, stays_resident};
use rig::{Bind, Loop, Outcome, bench, content};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// Size of the files: 1,024 pages of 4 KiB, enough that dropping them takes a moment.
const BYTES: u64 = 4 << 20;

/// Warms and drops a file three times and checks the printed result and the residency each time,
/// then runs trials with both starts.
fn check_starts(directory: &Path) {
    let file = directory.join("file");
    std::fs::write(&file, content(BYTES)).unwrap();
    let path = file.to_str().unwrap();
    let pages = BYTES.div_ceil(larder_host::residency::page_bytes());
    for _ in 0..3 {
        let warm = bench(&["warm", path]);
        assert!(warm.succeeded() && warm.out.starts_with("warm: "), "{warm:?}");
        assert!(stays_resident(of_path(&file).unwrap().resident, pages));
        let cold = bench(&["cold", path]);
        assert!(cold.succeeded() && cold.out.starts_with("cold: 0 of "), "{cold:?}");
        assert_eq!(of_path(&file).unwrap().resident, 0);
    }
    for start in [Start::Cold, Start::Warm] {
        let run = trials(&file, start, &[]).unwrap();
        assert_eq!(run.trials.len(), 3);
        for trial in &run.trials {
            let expected = if start == Start::Cold { 0 } else { pages };
            assert_eq!((trial.started.start, trial.started.pages), (start, Some(pages)));
            let resident = trial.started.resident.unwrap();
            assert!(stays_resident(resident, expected), "{resident} of {expected}");
            // A warm trial that only reads has no reason to read from the disk. The kernel may drop
            // a few of its pages for other processes.
            if start == Start::Warm {
                assert!(trial.own_bytes.unwrap_or(0) < BYTES / 4, "{trial:?}");
            }
        }
    }
}

/// Runs three trials of reads over `file`, each long enough to complete a cycle on a busy machine.
/// Returns the run record, or the outcome of the command if it fails.
fn trials(file: &Path, start: Start, more: &[&str]) -> Result<Run, Outcome> {
    let directory = tempfile::tempdir().unwrap();
    let record = directory.path().join("run.json");
    let mut args = vec!["probe", file.to_str().unwrap(), "--start", start.name()];
    args.extend(["--pattern", "R", "--trials", "3", "--confidence", "off", "--length", "400ms"]);
    args.extend(more);
    args.extend(["--output", record.to_str().unwrap()]);
    let outcome = bench(&args);
    if outcome.succeeded() {
        Ok(Run::from_json(&std::fs::read_to_string(record).unwrap()).unwrap())
    } else {
        assert!(!record.exists(), "no record of what was refused");
        Err(outcome)
    }
}

#[test]
fn ext4_starts_as_told() {
    if let Some(fs) = Loop::with("ext4") {
        check_starts(fs.path());
    }
}

#[test]
fn xfs_starts_as_told() {
    if let Some(fs) = Loop::with("xfs") {
        check_starts(fs.path());
    }
}

#[test]
fn btrfs_starts_as_told() {
    if let Some(fs) = Loop::with("btrfs") {
        check_starts(fs.path());
    }
}

#[test]
fn fuse_that_keeps_pages_starts_as_told_and_names_what_is_below() {
    let Some(fuse) = Bind::with(&["-o", "kernel_cache"]) else { return };
    check_starts(fuse.path());
    let run = trials(&fuse.path().join("file"), Start::Cold, &[]).unwrap();
    assert!(run.doubts.iter().any(|doubt| doubt.text.contains("cannot be seen")), "{run:?}");
}

#[test]
fn fuse_that_drops_pages_at_each_open_is_cold_and_never_warm() {
    let Some(fuse) = Bind::with(&[]) else { return };
    let file = fuse.path().join("file");
    std::fs::write(&file, content(BYTES)).unwrap();
    assert!(bench(&["cold", file.to_str().unwrap()]).succeeded());
    assert!(trials(&file, Start::Cold, &[]).is_ok());
    let refused = trials(&file, Start::Warm, &[]).unwrap_err();
    assert!(refused.err.contains("start warm: 0 of 1024 pages"), "{refused:?}");
    assert!(refused.err.contains("keeps no pages from one open to the next"), "{refused:?}");
    let warm = bench(&["warm", file.to_str().unwrap()]);
    assert_eq!(warm.code, Some(1), "a finding, no failure: {warm:?}");
}

#[test]
fn memory_file_systems_are_refused() {
    let memory = Path::new("/dev/shm");
    if !larder_host::mounts::Mount::of(memory).is_ok_and(|mount| mount.is_memory()) {
        skip("/dev/shm is not a tmpfs");
        return;
    }
    let directory = tempfile::tempdir_in(memory).unwrap();
    let file = directory.path().join("file");
    std::fs::write(&file, content(BYTES)).unwrap();
    let refused = trials(&file, Start::Cold, &[]).unwrap_err();
    assert!(refused.err.contains("whose files are memory themselves"), "{refused:?}");
    assert_eq!(bench(&["cold", file.to_str().unwrap()]).code, Some(1));
}

/// Runs trials on a file while four threads repeat `work` on it.
fn refused_while(work: impl Fn(&File, u64) + Sync) -> Option<Outcome> {
    let directory = rig::create_disk_directory()?;
    let path = directory.path().join("file");
    std::fs::write(&path, content(BYTES)).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (file, work, done) = (&file, &work, &done);
            scope.spawn(move || {
                let mut step = thread;
                while !done.load(Ordering::Relaxed) {
                    work(file, step * 4096 % BYTES);
                    step += 4;
                }
            });
        }
        // One residency check may fall between two steps of all threads; sixty checks do not.
        let more = ["--trials", "60..60", "--confidence", "off"];
        let args = ["probe", path.to_str().unwrap(), "--pattern", "R", "--length", "200ms"];
        let outcome = bench(&[&args[..], &more[..]].concat());
        done.store(true, Ordering::Relaxed);
        Some(outcome)
    })
}

#[test]
fn a_program_that_reads_the_file_meanwhile_makes_it_refuse() {
    let refused = refused_while(|file, at| {
        file.read_exact_at(&mut [0; 4096], at).unwrap();
    });
    let Some(refused) = refused else { return };
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("cannot run probe: start cold: "), "{refused:?}");
}

#[test]
fn a_program_that_writes_the_file_meanwhile_makes_it_refuse() {
    let refused = refused_while(|file, at| file.write_all_at(&[1; 4096], at).unwrap());
    let Some(refused) = refused else { return };
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.err.contains("cannot run probe: start cold: "), "{refused:?}");
}

#[test]
fn mapped_pages_make_it_refuse_and_name_who_maps_them() {
    let Some(directory) = rig::create_disk_directory() else { return };
    // The kernel maps the executable file of a running program.
    let program = directory.path().join("sleeper");
    // If this process copied the file, a child forked by another test could still hold it open for
    // writing, and it could not be executed.
    assert!(Command::new("cp").arg("/bin/sleep").arg(&program).status().unwrap().success());
    let mut child = Command::new(&program).arg("600").spawn().unwrap();
    let found = bench(&["cold", program.to_str().unwrap()]);
    let refused = trials(&program, Start::Cold, &[]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(found.code, Some(1), "{found:?}");
    let mapper = format!("it is mapped by process {}", child.id());
    assert!(found.err.contains(&mapper), "{found:?}");
    let refused = refused.unwrap_err();
    assert!(refused.err.contains("start cold: ") && refused.err.contains(&mapper), "{refused:?}");
    // Once the process is gone, the file can be made cold again.
    assert!(bench(&["cold", program.to_str().unwrap()]).succeeded());
}

#[test]
fn wrong_calls_are_one_sentence_and_leave_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().to_str().unwrap();
    let file = directory.path().join("mine");
    std::fs::write(&file, content(BYTES)).unwrap();
    let (mine, absent) = (file.to_str().unwrap(), directory.path().join("absent"));
    for (args, message) in [
        (vec!["cold", absent.to_str().unwrap()], "query the resident pages of "),
        (vec!["cold", "/dev/null"], "it is neither a file nor a block device"),
        (vec!["probe", absent.to_str().unwrap()], "find "),
        (vec!["probe", mine], "the pattern writes to it; add --overwrite, or use --pattern R"),
        (vec!["probe", mine, "--pattern", "R", "--size", "1GiB"], "it has 4194304"),
        (vec!["probe", path, "--size", "900TiB"], "it needs 900 TiB and "),
        (vec!["probe", path, "--size", "1KiB"], "a record has 4 KiB"),
        (vec!["probe", path, "--pattern", "RX"], "neither R nor W"),
        (vec!["probe", path, "--trials", "0"], "no number of trials"),
        (vec!["probe", "nbd+unix:///x?socket=/no/such/socket"], "reach nbd+unix:///x"),
        (vec!["probe", path, "--scenario", "fits"], "--memory"),
    ] {
        let outcome = bench(&args);
        assert_eq!(outcome.code, Some(2), "{args:?}: {outcome:?}");
        assert!(outcome.err.contains(message), "{args:?}: {outcome:?}");
    }
    assert_eq!(std::fs::read(&file).unwrap(), content(BYTES), "it is as it was");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "nothing was left behind");
}

#[test]
fn a_signal_ends_a_run_with_what_it_has_and_removes_what_it_made() {
    let directory = tempfile::tempdir().unwrap();
    let args = ["bench", "probe", directory.path().to_str().unwrap(), "--size", "1MiB"];
    let more = ["--start", "as-is", "--length", "400ms", "--trials", "1000", "--confidence", "off"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    command.args(args).args(more).stdout(std::process::Stdio::piped());
    command.stderr(std::process::Stdio::piped());
    let child = command.spawn().unwrap();
    let made = || std::fs::read_dir(directory.path()).unwrap().count() == 1;
    rig::until("the file is made", made);
    // Long enough for one trial or none: both cases must clean up.
    std::thread::sleep(std::time::Duration::from_millis(400));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&output.status), Some(2), "{stderr}");
    assert!(
        stderr.contains("stopped") && stderr.contains("its test files are removed"),
        "{stderr}"
    );
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "{stderr}");
}
