//! Bad trees, one for each rule: it fires, and only it.

use serde_json::json;

use super::*;

/// Judges a tree of one file; `line: rule` of each violation.
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
fn lines_have_at_most_100_columns_of_ascii() {
    let long = "x".repeat(101);
    fires("a.rs", &format!("//! Purpose.\n// {long}\n"), 2, "columns");
    fires("a.toml", &format!("# {long}\n"), 1, "columns");
    fires("a.rs", "//! Purpose.\n// \u{e4}\n", 2, "ASCII");
    fires("a.toml", "\n# \u{e4}\n", 2, "ASCII");
    passes("a.md", &format!("{long} \u{e4}"));
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
    let judge = |name: &str, used: &[&str]| {
        let used: Vec<_> = used.iter().map(|name| json!({ "name": name })).collect();
        let package = |name: &str, used: &[Value]| {
            let mut package = json!({ "name": name, "manifest_path": "x/Cargo.toml" });
            package["dependencies"] = used.into();
            package
        };
        let others = ["larder-mem", "larder-core"].map(|name| package(name, &[]));
        let all = [&others[..], &[package(name, &used)]].concat();
        let found = direction(&json!({ "packages": all }));
        found.iter().map(|it| it.rule.clone()).collect::<Vec<_>>()
    };
    assert_eq!(judge("larder-host", &["larder-mem"]), ["larder-host may not depend on larder-mem"]);
    let of_kind = |kind: &str| {
        let used = json!({ "name": "larder-testing", "kind": kind });
        let package =
            json!({ "name": "larder-core", "manifest_path": "x", "dependencies": [used] });
        let testing = json!({ "name": "larder-testing", "manifest_path": "x", "dependencies": [] });
        direction(&json!({ "packages": [package, testing] })).len()
    };
    assert_eq!((of_kind("dev"), of_kind("normal")), (0, 1), "test helpers are for tests alone");
    assert!(judge("new", &[])[0].contains("no place"));
    assert!(judge("larder-io", &["larder-core", "larder-mem", "libc"]).is_empty());
}

#[test]
fn nothing_is_left_unfinished_and_tests_run() {
    fires("a.rs", concat!("//! Purpose.\n// TO", "DO: more\n"), 2, "unfinished");
    fires("a.toml", concat!("# FIX", "ME\n"), 1, "unfinished");
    fires("a.rs", "//! Purpose.\n#[test]\n#[ignore = \"slow\"]\nfn f() {}\n", 3, "ignore");
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
