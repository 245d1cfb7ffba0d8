//! Sessions: their outputs, and their continuation after an error.

use super::*;
use std::fs;

/// Runs a session with these lines at its prompt; returns standard output and standard error.
fn session(script: Option<&Path>, prompt: &str) -> (String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let mut session = Session::new(&mut out, &mut err);
    session.run(script, &mut prompt.as_bytes()).unwrap();
    (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

/// Returns lines that start with the location of the work files.
fn in_directory(directory: &Path, lines: &str) -> String {
    format!("set location {}\n{lines}", directory.display())
}

#[test]
fn the_end_of_the_input_ends_a_session() {
    let none = Path::new("does-not-exist");
    assert_eq!(session(Some(none), ""), (format!("{BANNER}pm>"), String::new()));
    assert_eq!(session(Some(none), "exit\nshow\n").0, format!("{BANNER}pm>"));
    assert_eq!(
        session(Some(none), "\nfoo\nquit").0,
        format!("{BANNER}pm>Eh?\npm>Eh?\npm>Eh?\npm>")
    );
}

#[test]
fn a_script_may_load_others_and_a_quit_ends_only_its_own_file() {
    let directory = tempfile::tempdir().unwrap();
    let [outer, inner] = ["outer", "inner"].map(|name| directory.path().join(name));
    fs::write(&inner, "set number 44\nquit\nset number 45\n").unwrap();
    let text = format!("load {}\nshow\nexit\n?\nset seed 9\nload\n", inner.display());
    fs::write(&outer, text).unwrap();
    let (out, err) = session(Some(&outer), "show\nload nowhere\n!echo no\n");
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(lines[1], format!("Reading configuration from file '{}'", outer.display()));
    assert_eq!(lines[2], format!("Reading configuration from file '{}'", inner.display()));
    assert_eq!(lines[4], "The base number of files is 44");
    assert_eq!(lines[13..16], ["Eh?", "Eh?", "pm>Current configuration is:"]);
    assert_eq!(lines[23], "Random number generator seed is 9");
    assert_eq!(
        err,
        "Error: no configuration file specified\nError: cannot read configuration file \
         'nowhere'\nError: commands for a shell are not carried out: '!echo no'\n"
    );
}

#[test]
fn a_run_reports_and_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let lines = "set number 20\nset transactions 50\nset subdirectories 3\nrun\nquit\n";
    let (out, err) = session(Some(Path::new("none")), &in_directory(directory.path(), lines));
    let progress = "Creating subdirectories...Done\nCreating files...Done\nPerforming \
                    transactions..........Done\nDeleting files...Done\nDeleting \
                    subdirectories...Done\nTime:\n";
    assert!(out.contains(progress), "{out}");
    assert_eq!(err, "");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn fewer_than_ten_transactions_have_a_dot_each() {
    let directory = tempfile::tempdir().unwrap();
    let lines = "set transactions 3\nset number 5\nset buffering false\nrun\n";
    let (out, _) = session(Some(Path::new("none")), &in_directory(directory.path(), lines));
    assert!(out.contains("Performing transactions...Done\n"), "{out}");
    let lines = "set transactions 19\nset number 9\nset bias create -1\nrun\n";
    let (out, _) = session(Some(Path::new("none")), &in_directory(directory.path(), lines));
    assert!(out.contains("transactions...................Done\n"), "{out}");
}

#[test]
fn a_run_without_files_left_has_no_report() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("result");
    let lines = format!("set number 5\nset bias create 0\nrun {}\n", target.display());
    let (out, _) = session(Some(Path::new("none")), &in_directory(directory.path(), &lines));
    assert!(out.contains("Performing transactions.out of files!\n"), "{out}");
    assert!(!out.contains("Time:"), "{out}");
    assert_eq!(fs::read(target).unwrap(), b"");
}

#[test]
fn what_cannot_be_opened_is_said_and_passed_over() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing");
    let lines = "set number 5\nset transactions 20\nset bias create 10\nrun /no/such/file\n";
    let (out, err) = session(Some(Path::new("none")), &in_directory(&missing, lines));
    assert!(out.contains("\t10 created ("), "{out}");
    assert!(out.contains("\t0 deleted (0 per second)\n"), "{out}");
    let first = format!("Error: cannot open '{}/1' for writing\n", missing.display());
    assert!(err.starts_with(&first), "{err}");
    assert!(err.contains("Error: Cannot direct output to file '/no/such/file'\n"), "{err}");
    assert!(err.contains(&format!("Error: Cannot delete '{}/1'\n", missing.display())), "{err}");
}

#[test]
fn a_result_is_added_to_the_end_of_its_file() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("result");
    let name = target.display();
    let lines = format!(
        "set number 20\nset transactions 50\nset report terse\nrun {name}\nrun {name}\n\
         show {name}\n"
    );
    let (out, _) = session(Some(Path::new("none")), &in_directory(directory.path(), &lines));
    let text = fs::read_to_string(&target).unwrap();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines[0].split(' ').count(), 13);
    assert_eq!(lines[1].split(' ').count(), 13);
    assert_eq!(lines[2], "Current configuration is:");
    assert!(!text.contains("weight"), "the list of locations goes to standard output");
    assert!(out.contains(&format!("\t{} (weight=1)\n", directory.path().display())), "{out}");
}
