//! Invalid input and full disks: one message, exit code 2, and no files left behind.

use super::rig::{names, run};
use larder_testing::skip;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs a script that is refused, and returns the message. Checks that only the script is left in
/// the directory.
fn expect_refusal(script: &str, args: &[&str]) -> String {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("script"), script).unwrap();
    let outcome = run(directory.path(), &[&["script"], args].concat());
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert_eq!(outcome.out, "");
    assert_eq!(names(directory.path()), ["script"]);
    // A run of more than ten seconds prints its progress.
    let mut lines = outcome.err.lines().filter(|line| !line.contains(" of up to "));
    let message = lines.next().unwrap_or_default().to_owned();
    assert_eq!(lines.next(), None, "{outcome:?}");
    message
}

#[test]
fn a_wrong_script_is_refused_with_its_line_before_anything_runs() {
    let cases = [
        ("run\nsett number 5\n", "read script, line 2: there is no command \"sett number 5\""),
        ("\nset number 0\n", "read script, line 2: invalid number of files"),
        ("load missing\n", "read the script missing: no such file or directory"),
        ("!ls\n", "read script, line 1: commands for a shell are not carried out"),
    ];
    for (script, message) in cases {
        assert_eq!(expect_refusal(script, &[]), format!("larder: cannot {message}"));
    }
    let message = expect_refusal("set bias create 0\nset number 20\nset transactions 30\n", &[]);
    assert!(message.contains("after 20 of 30 no file is left"), "{message}");
    let message = expect_refusal("set number 5\nrun report\n", &[]);
    assert!(message.contains("add to report as the script says"), "{message}");
}

#[test]
fn the_original_passes_over_what_is_unknown() {
    let directory = tempfile::tempdir().unwrap();
    let lines = "sett number 5\nset number 0\nset number 5\nset transactions 20\nrun\nquit\n";
    fs::write(directory.path().join("script"), lines).unwrap();
    let outcome = run(directory.path(), &["--classic", "script"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.out.contains("Eh?\nCreating files...Done\n"), "{outcome:?}");
    assert_eq!(outcome.err, "Error: invalid number of files\n");
    assert_eq!(names(directory.path()), ["script"]);
}

#[test]
fn a_place_where_nothing_can_be_made_is_refused() {
    let message = expect_refusal("set location nowhere\n", &[]);
    assert!(message.contains("make a directory in nowhere: "), "{message}");
    assert!(message.ends_with("no such file or directory"), "{message}");
    let message = expect_refusal("set location script\n", &[]);
    assert!(message.ends_with("not a directory"), "{message}");
    let message =
        expect_refusal("set size 50000000\nset number 1000000\nset transactions 1\n", &[]);
    assert!(message.contains("the files need ") && message.contains(" are free"), "{message}");
}

#[test]
fn flags_that_the_original_does_not_know_are_refused_with_it() {
    let directory = tempfile::tempdir().unwrap();
    for flag in [["--number", "5"], ["--threads", "2"], ["--fsync", "end"], ["--trials", "1"]] {
        let outcome = run(directory.path(), &[&["--classic"][..], &flag].concat());
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
        assert!(outcome.err.contains("cannot be used with"), "{outcome:?}");
    }
}

/// A tmpfs, unmounted when dropped.
struct TmpFs {
    directory: tempfile::TempDir,
}

impl TmpFs {
    /// Mounts a tmpfs, or returns the reason if this machine cannot.
    fn mount(options: &str) -> Result<Self, String> {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "none"]).arg(directory.path());
        let output = mount.output().map_err(|error| error.to_string())?;
        if output.status.success() {
            Ok(TmpFs { directory })
        } else {
            Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
        }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for TmpFs {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.directory.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "the file system is busy");
    }
}

#[test]
fn a_file_system_that_fills_up_ends_the_run_and_is_left_empty() {
    let tmpfs = match TmpFs::mount("size=4m") {
        Ok(tmpfs) => tmpfs,
        Err(reason) => {
            skip(format_args!("cannot mount a small file system ({reason})"));
            return;
        }
    };
    let needs = ["--number", "400", "--transactions", "400", "--size", "10000", "--trials", "1"];
    let outcome = run(tmpfs.path(), &needs);
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert!(
        outcome.err.contains("the files need ") && outcome.err.contains("MiB are free"),
        "{outcome:?}"
    );
    assert!(names(tmpfs.path()).is_empty());
    // The files fit when the run begins, but not after another process has written. The run creates
    // more files than it deletes, so that they do not run out.
    let fits = ["--number", "100", "--size", "5000-10000", "--bias-create", "6", "--trials", "1"];
    let long = ["--transactions", "2000000"];
    let mut command = super::rig::command(tmpfs.path(), &[&fits[..], &long].concat());
    let child = command.stderr(std::process::Stdio::piped()).spawn().unwrap();
    super::ends::wait_for_files(tmpfs.path());
    let filler = tmpfs.path().join("filler");
    fs::write(&filler, vec![1; 8 << 20]).unwrap_err();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("the file system is full; what was written has been removed"),
        "{stderr}"
    );
    assert_eq!(names(tmpfs.path()), ["filler"]);
}

#[test]
fn a_read_only_file_system_is_named() {
    let tmpfs = match TmpFs::mount("ro") {
        Ok(tmpfs) => tmpfs,
        Err(reason) => {
            skip(format_args!("cannot mount a file system ({reason})"));
            return;
        }
    };
    let outcome = run(tmpfs.path(), &[]);
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert!(outcome.err.contains("read-only file system"), "{outcome:?}");
}
