//! Wrong input and full disks: one sentence, exit code 2, nothing left behind.

use super::rig::{names, run};
use larder_testing::skip;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs with a script; the sentence, after the directory has been found empty but for the script.
fn refused(script: &str, words: &[&str]) -> String {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("script"), script).unwrap();
    let said = run(directory.path(), &[&["script"], words].concat());
    assert_eq!(said.code, Some(2), "{said:?}");
    assert_eq!(said.out, "");
    assert_eq!(names(directory.path()), ["script"]);
    // A run of more than ten seconds prints its progress.
    let mut lines = said.err.lines().filter(|line| !line.contains(" of up to "));
    let sentence = lines.next().unwrap_or_default().to_owned();
    assert_eq!(lines.next(), None, "{said:?}");
    sentence
}

#[test]
fn a_wrong_script_is_refused_with_its_line_before_anything_runs() {
    let known = [
        ("run\nsett number 5\n", "read script, line 2: there is no command \"sett number 5\""),
        ("\nset number 0\n", "read script, line 2: invalid number of files"),
        ("load missing\n", "read the script missing: No such file or directory (os error 2)"),
        ("!ls\n", "read script, line 1: commands for a shell are not carried out"),
    ];
    for (script, sentence) in known {
        assert_eq!(refused(script, &[]), format!("larder: failed to {sentence}"));
    }
    let said = refused("set bias create 0\nset number 20\nset transactions 30\n", &[]);
    assert!(said.contains("after 20 of 30 no file is left"), "{said}");
    let said = refused("set number 5\nrun report\n", &[]);
    assert!(said.contains("add to report as the script says"), "{said}");
}

#[test]
fn the_original_passes_over_what_is_unknown() {
    let directory = tempfile::tempdir().unwrap();
    let lines = "sett number 5\nset number 0\nset number 5\nset transactions 20\nrun\nquit\n";
    fs::write(directory.path().join("script"), lines).unwrap();
    let said = run(directory.path(), &["--classic", "script"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.out.contains("Eh?\nCreating files...Done\n"), "{said:?}");
    assert_eq!(said.err, "Error: invalid number of files\n");
    assert_eq!(names(directory.path()), ["script"]);
}

#[test]
fn a_place_where_nothing_can_be_made_is_refused() {
    let said = refused("set location nowhere\n", &[]);
    assert!(said.contains("make a directory nowhere/larder-postmark-"), "{said}");
    assert!(said.ends_with("No such file or directory (os error 2)"), "{said}");
    let said = refused("set location script\n", &[]);
    assert!(said.ends_with("Not a directory (os error 20)"), "{said}");
    let said = refused("set size 50000000\nset number 1000000\nset transactions 1\n", &[]);
    assert!(said.contains("the files need ") && said.contains(" are free"), "{said}");
}

#[test]
fn flags_that_the_original_does_not_know_are_refused_with_it() {
    let directory = tempfile::tempdir().unwrap();
    for flag in [["--number", "5"], ["--threads", "2"], ["--fsync", "end"], ["--trials", "1"]] {
        let said = run(directory.path(), &[&["--classic"][..], &flag].concat());
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.err.contains("cannot be used with"), "{said:?}");
    }
}

/// A file system of its own, gone when dropped.
struct Mounted {
    directory: tempfile::TempDir,
}

impl Mounted {
    /// Nothing, with the reason, where that cannot be done.
    fn tmpfs(options: &str) -> Result<Self, String> {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "none"]).arg(directory.path());
        let output = mount.output().map_err(|error| error.to_string())?;
        if output.status.success() {
            Ok(Mounted { directory })
        } else {
            Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
        }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg(self.directory.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "the file system is busy");
    }
}

#[test]
fn a_file_system_that_fills_up_ends_the_run_and_is_left_empty() {
    let mounted = match Mounted::tmpfs("size=4m") {
        Ok(mounted) => mounted,
        Err(why) => {
            skip(format_args!("cannot mount a small file system ({why})"));
            return;
        }
    };
    let needs = ["--number", "400", "--transactions", "400", "--size", "10000", "--trials", "1"];
    let said = run(mounted.path(), &needs);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("the files need ") && said.err.contains("MiB are free"), "{said:?}");
    assert!(names(mounted.path()).is_empty());
    // One that fits when it begins, and no more when somebody else writes meanwhile. Files come
    // more often than they go, so that none run out.
    let fits = ["--number", "100", "--size", "5000-10000", "--bias-create", "6", "--trials", "1"];
    let long = ["--transactions", "2000000"];
    let mut running = super::rig::command(mounted.path(), &[&fits[..], &long].concat());
    let child = running.stderr(std::process::Stdio::piped()).spawn().unwrap();
    super::ends::wait_for_files(mounted.path());
    let filler = mounted.path().join("filler");
    fs::write(&filler, vec![1; 8 << 20]).unwrap_err();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("the file system is full; what was written has been removed"), "{said}");
    assert_eq!(names(mounted.path()), ["filler"]);
}

#[test]
fn a_read_only_file_system_is_named() {
    let mounted = match Mounted::tmpfs("ro") {
        Ok(mounted) => mounted,
        Err(why) => {
            skip(format_args!("cannot mount a file system ({why})"));
            return;
        }
    };
    let said = run(mounted.path(), &[]);
    assert_eq!(said.code, Some(2), "{said:?}");
    assert!(said.err.contains("Read-only file system"), "{said:?}");
}
