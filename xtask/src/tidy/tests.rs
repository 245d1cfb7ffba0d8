//! Bad trees, one for each rule: it fires, and only it.

use super::*;

/// Judges a tree of one file; answers `line: rule` of each violation.
fn judge(path: &str, text: &str) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(path);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, text).unwrap();
    let found = check(dir.path()).unwrap();
    assert!(found.iter().all(|violation| violation.path == Path::new(path)));
    found.iter().map(|violation| format!("{}: {}", violation.line, violation.rule)).collect()
}

/// One violation, at this line, that says this.
#[track_caller]
fn fires(path: &str, text: &str, line: usize, words: &str) {
    let found = judge(path, text);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].starts_with(&format!("{line}: ")), "{found:?}");
    assert!(found[0].contains(words), "{found:?}");
}

#[track_caller]
fn passes(path: &str, text: &str) {
    assert_eq!(judge(path, text), Vec::<String>::new());
}

#[test]
fn a_violation_is_printed_as_path_line_rule() {
    let violation = Violation::at(Path::new("crates/a.rs"), 7, "why");
    assert_eq!(violation.to_string(), "crates/a.rs:7: why");
}

#[test]
fn a_source_begins_with_its_purpose() {
    fires("a.rs", "fn main() {}\n", 1, "//!");
    passes("a.rs", "//! Purpose.\nfn main() {}\n");
}

#[test]
fn lines_have_at_most_100_columns() {
    let long = "x".repeat(101);
    fires("a.rs", &format!("//! Purpose.\n// {long}\n"), 2, "columns");
    fires("a.toml", &format!("# {long}\n"), 1, "columns");
    passes("a.md", &long);
}

#[test]
fn source_and_manifest_are_ascii() {
    fires("a.rs", "//! Purpose.\n// \u{e4}\n", 2, "ASCII");
    fires("a.toml", "\n# \u{e4}\n", 2, "ASCII");
    passes("a.md", "\u{e4}");
}

#[test]
fn a_source_has_at_most_800_lines_of_code() {
    let code = "use a;\n".repeat(801);
    fires("a.rs", &format!("//! Purpose.\n{code}"), 1, "801 lines");
    let comments = "// Why.\n\n".repeat(801);
    passes("a.rs", &format!("//! Purpose.\n{comments}"));
}

#[test]
fn crates_depend_in_one_direction() {
    let core = "crates/core/Cargo.toml";
    fires(core, "[dependencies]\nlarder-mem.workspace = true\n", 2, "core may not depend on mem");
    fires(core, "[dev-dependencies]\nlarder-lab = { path = \"../lab\" }\n", 2, "lab");
    fires(core, "[target.'cfg(unix)'.dependencies.larder-io]\nworkspace = true\n", 1, "io");
    fires("crates/io/Cargo.toml", "[dependencies]\nlarder-lab.workspace = true\n", 2, "lab");
    fires("crates/lab/Cargo.toml", "[dependencies]\nlarder = \"1\"\n", 2, "lab may not");
    fires("crates/new/Cargo.toml", "[package]\n", 1, "no place");
    fires(core, "[dependencies]\nlarder-testing.workspace = true\n", 2, "testing");
    passes(core, "[dev-dependencies]\nlarder-testing.workspace = true\n");
    fires("crates/testing/Cargo.toml", "[dependencies]\nlarder-mem = \"1\"\n", 2, "mem");
    passes("crates/io/Cargo.toml", "[dependencies]\nlarder-core = \"1\"\nlarder-mem = \"1\"\n");
    passes("Cargo.toml", "[workspace.dependencies]\nlarder-mem = { path = \"crates/mem\" }\n");
}

#[test]
fn unsafe_stays_in_mem_and_io() {
    let text = "//! Purpose.\nfn f() { unsafe { g() } }\n";
    fires("crates/core/src/a.rs", text, 2, "unsafe");
    passes("crates/mem/src/a.rs", text);
    passes("crates/io/src/a.rs", text);
    passes("crates/core/src/a.rs", "//! No unsafe here.\n#![forbid(unsafe_code)]\n");
}

#[test]
fn nothing_is_left_unfinished() {
    fires("a.rs", "//! Purpose.\nfn f() { todo!() }\n", 2, "todo!");
    fires("a.rs", "//! Purpose.\nfn f() { unimplemented!() }\n", 2, "unimplemented!");
    fires("a.rs", "//! Purpose.\nfn f() { dbg!(1); }\n", 2, "dbg!");
    fires("a.rs", concat!("//! Purpose.\n// TO", "DO: more\n"), 2, "unfinished");
    fires("a.toml", concat!("# FIX", "ME\n"), 1, "unfinished");
}

#[test]
fn lints_are_expected_and_tests_run() {
    fires("a.rs", "//! Purpose.\n#[allow(dead_code)]\nfn f() {}\n", 2, "expect");
    fires("a.rs", "//! Purpose.\n#![allow(dead_code)]\n", 2, "expect");
    fires("a.rs", "//! Purpose.\n#[test]\n#[ignore = \"slow\"]\nfn f() {}\n", 3, "ignore");
}

#[test]
fn comments_and_strings_are_not_code() {
    passes("a.rs", "//! Purpose.\n/* todo!() /* dbg!() */ unsafe */\n// #[ignore]\n");
    passes("a.rs", "//! Purpose.\nconst A: &str = \"unsafe \\\" todo!()\";\n");
    passes("a.rs", "//! Purpose.\nconst A: &str = r#\"a \" unsafe\"#;\n");
    fires("a.rs", "//! Purpose.\nconst A: char = '\"'; fn f() { dbg!('\\'') }\n", 2, "dbg!");
}

#[test]
fn files_have_at_most_one_mebibyte() {
    fires("a.bin", &"x".repeat((1 << 20) + 1), 1, "1 MiB");
}

#[test]
fn paths_of_one_machine_stay_out() {
    fires("a.md", concat!("see\n`/ro", "ot/a`\n"), 2, "one machine");
    fires("a.json", concat!("\"/wo", "rk/main\""), 1, "one machine");
    passes("a.md", concat!("docs/wo", "rk/plan and ./ro", "ot/a"));
}

#[test]
fn links_name_files_that_exist() {
    fires("docs/a.md", "text\n[b](b.md)\n", 2, "b.md");
    passes("docs/a.md", "[self](a.md#part) [web](https://example.org) [part](#part)\n");
    passes("docs/a.md", "```\n[b](b.md)\n```\n");
}
