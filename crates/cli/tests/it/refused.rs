//! What cannot be done is refused before anything is done, in one sentence that says why.

use std::path::Path;
use std::process::{Command, Output};

/// Runs larder in a folder.
fn larder(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    command.args(words).current_dir(folder).output().unwrap()
}

/// What a command says that must fail.
fn refusal(folder: &Path, words: &[&str]) -> String {
    let output = larder(folder, words);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
    assert!(output.stdout.is_empty(), "{words:?}");
    said
}

#[test]
fn a_watch_whose_result_cannot_be_kept_does_not_begin() {
    let folder = tempfile::tempdir().unwrap();
    // It would go on until a signal.
    let said = refusal(folder.path(), &["watch", "-o", "no/folder"]);
    assert_eq!(said, "larder: failed to write no/folder: No such file or directory (os error 2)\n");
    let said = refusal(folder.path(), &["watch", "-o", "."]);
    assert_eq!(said, "larder: failed to write .: it is a directory\n");
}

#[test]
fn a_group_that_does_not_exist_is_not_watched() {
    let folder = tempfile::tempdir().unwrap();
    for words in [
        &["watch", "--cgroup", "no/such/group"][..],
        &["size", "--live", "--cgroup", "no/such/group"],
        &["trace", "record", "a.ltr", "--cgroup", "no/such/group"],
    ] {
        let said = refusal(folder.path(), words);
        let begins = "larder: failed to watch group no/such/group: there is no such control group";
        assert!(said.starts_with(begins), "{words:?}: {said}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_trace_is_not_replaced_by_what_is_made_of_it() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a.csv", "b.csv"] {
        let made = larder(folder.path(), &["trace", "synth", "zipf", name, "--requests", "9"]);
        assert!(made.status.success());
    }
    let before = std::fs::read(folder.path().join("a.csv")).unwrap();
    std::os::unix::fs::symlink("a.csv", folder.path().join("link.csv")).unwrap();
    for (words, to, trace) in [
        (&["convert", "a.csv", "a.csv"][..], "a.csv", "a.csv"),
        (&["convert", "b.csv", "a.csv", "./a.csv"], "./a.csv", "a.csv"),
        (&["convert", "link.csv", "a.csv"], "a.csv", "link.csv"),
        (&["merge", "a.csv", "b.csv", "a.csv"], "a.csv", "a.csv"),
        (&["filter", "a.csv", "a.csv", "--op", "read"], "a.csv", "a.csv"),
    ] {
        let said = refusal(folder.path(), &[&["trace"], words].concat());
        let wanted =
            format!("larder: failed to write {to}: it is the trace {trace} that is read\n");
        assert_eq!(said, wanted, "{words:?}");
    }
    assert_eq!(std::fs::read(folder.path().join("a.csv")).unwrap(), before);
    assert!(larder(folder.path(), &["trace", "convert", "a.csv", "b.csv"]).status.success());
}

#[test]
fn a_folder_is_not_mounted_whose_counters_cannot_be_kept() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["source", "place"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
    }
    let mount = ["mount", "source", "place", "--memory", "32MiB"];
    let said = refusal(folder.path(), &[&mount[..], &["--counters", "no/file"]].concat());
    assert_eq!(said, "larder: failed to write no/file: No such file or directory (os error 2)\n");
}

#[test]
fn a_server_that_cannot_be_controlled_as_it_was_told_does_not_serve() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("disk.img"), vec![0; 1 << 20]).unwrap();
    let serve = ["serve", "disk.img", "--memory", "32MiB", "--listen", "unix:nbd"];
    let said = refusal(folder.path(), &[&serve[..], &["--control", "no/socket"]].concat());
    assert!(said.starts_with("larder: failed to listen on unix:no/socket: "), "{said}");
    assert_eq!(said.matches("No such file").count(), 1, "{said}");
}
