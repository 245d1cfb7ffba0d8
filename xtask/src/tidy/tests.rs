//! Bad trees, one for each rule: the check must report that rule and no other.

use serde_json::json;

use super::*;

/// Checks a tree of one file; returns `line: rule` of each violation.
fn judge(path: &str, text: &str) -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(path);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, text).unwrap();
    let line = |it: String| it.strip_prefix(&format!("{path}:")).unwrap().to_owned();
    check(dir.path()).unwrap().into_iter().map(line).collect()
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
        wrong_dependencies(&json!({ "packages": all }))
    };
    let rule = "x/Cargo.toml:1: larder-host may not depend on larder-mem";
    assert_eq!(judge("larder-host", &["larder-mem"]), [rule]);
    let of_kind = |kind: &str| {
        let used = json!({ "name": "larder-testing", "kind": kind });
        let package =
            json!({ "name": "larder-core", "manifest_path": "x", "dependencies": [used] });
        let testing = json!({ "name": "larder-testing", "manifest_path": "x", "dependencies": [] });
        wrong_dependencies(&json!({ "packages": [package, testing] })).len()
    };
    assert_eq!((of_kind("dev"), of_kind("normal")), (0, 1), "test helpers are for tests alone");
    assert!(judge("new", &[])[0].contains("not in the list"));
    assert!(judge("larder-io", &["larder-core", "larder-mem", "libc"]).is_empty());
}

#[test]
fn each_rule_fires_and_only_it() {
    let (long, code) = ("x".repeat(101), "use a;\n".repeat(801));
    for (path, text, line, words) in [
        ("a.rs", "fn main() {}\n", 1, "//!"),
        ("a.rs", &format!("//! Purpose.\n// {long}\n"), 2, "columns"),
        ("a.toml", &format!("# {long}\n"), 1, "columns"),
        ("a.rs", "//! Purpose.\n// \u{e4}\n", 2, "ASCII"),
        ("a.toml", "\n# \u{e4}\n", 2, "ASCII"),
        ("a.rs", &format!("//! Purpose.\n{code}"), 1, "801 lines"),
        ("a.rs", concat!("//! Purpose.\n// TO", "DO: more\n"), 2, "unfinished"),
        ("a.toml", concat!("# FIX", "ME\n"), 1, "unfinished"),
        ("a.rs", "//! Purpose.\n#[test]\n#[ignore = \"slow\"]\nfn f() {}\n", 3, "ignore"),
        ("a.bin", &"x".repeat((1 << 20) + 1), 1, "1 MiB"),
        ("a.md", concat!("see\n`/ro", "ot/a`\n"), 2, "machine-specific"),
        ("a.json", concat!("\"/wo", "rk/main\""), 1, "machine-specific"),
        ("docs/a.md", "text\n[b](b.md)\n", 2, "b.md"),
        ("docs/a.md", "text\n[it](#part)\n", 2, "heading"),
        ("docs/a.md", "text\n\nWhat it is.\n", 3, "opens with What"),
        ("docs/a.md", concat!("text of some", "body\n"), 1, "document has"),
        ("a.rs", concat!("//! Purpose.\nconst A: &str = \"some", "body\";\n"), 2, "string has"),
        ("crates/cli/src/a.rs", "//! Purpose.\nfn f() { io::stdout().lock() }\n", 2, "output"),
        ("crates/report/src/a.rs", "//! Purpose.\nfn f() { b.display() }\n", 2, "escape"),
    ] {
        let found = judge(path, text);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with(&format!("{line}: ")), "{found:?}");
        assert!(found[0].contains(words), "{found:?}");
    }
    for (path, text) in [
        ("a.rs", "//! Purpose.\nfn main() {}\n"),
        ("a.md", &*format!("{long} \u{e4}")),
        ("a.rs", &format!("//! Purpose.\n{}", "// Why.\n\n".repeat(801))),
        ("a.md", concat!("docs/wo", "rk/plan and ./ro", "ot/a")),
        ("docs/a.md", "# A part\n[self](a.md#a-part) [web](https://example.org) [it](#a-part)\n"),
        ("docs/a.md", "## Why not?\n\nSee <a id=\"old\"></a>[it](#old).\n"),
        ("docs/a.md", "```\n[b](b.md)\n```\n"),
        ("crates/cli/src/a.rs", "//! Purpose.\nfn f() { io::stdout().is_terminal() }\n"),
        ("crates/server/src/output.rs", "//! Purpose.\nfn f() { io::stdout().lock() }\n"),
    ] {
        assert_eq!(judge(path, text), Vec::<String>::new());
    }
}

#[test]
fn a_promise_names_tests_that_exist() {
    let text = "`a_test_that_is_nowhere_here`, `read_hit_pages` and `a_promise_names_it`\n";
    let missing = ["1: there is no test a_test_that_is_nowhere_here"];
    assert_eq!(judge("docs/SECURITY.md", text), missing);
}

#[test]
fn walks_name_functions_of_their_files() {
    let walk = |row: &str| {
        let text = format!("## Walks of four requests\n\n### One\n\n{row}\n\n## Next\n");
        judge("docs/ARCHITECTURE.md", &text)
    };
    let missing = walk("| `io/src/a.rs` | `run` | the loop |");
    assert_eq!(missing, ["5: io/src/a.rs has no function run"]);
    let long: Vec<_> = (0..9).map(|file| format!("| `{file}.rs` | | |")).collect();
    assert_eq!(walk(&long.join("\n")), ["13: a walk has too many files"]);
    let renamed = judge("docs/ARCHITECTURE.md", "## Walks\n");
    assert_eq!(renamed, ["1: there is no section \"## Walks of four requests\""]);
}
