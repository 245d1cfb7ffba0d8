//! Files and interfaces of earlier versions: the program reads every file in `tests/golden`, and
//! still has the commands, options, control fields and metrics that `interface.txt` lists.
//! docs/COMPATIBILITY.md describes the promise.

use super::control::rig::{Server, larder, text};
use larder_io::warm_list::{StoreIdentity, StoreKind, parse};
use serde_json::Value;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Set to record the interface of this version in its directory.
const WRITE: &str = "LARDER_WRITE_GOLDEN";

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// Returns the directories of all recorded versions.
fn versions() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(golden()).unwrap();
    let versions: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    assert!(!versions.is_empty(), "no version is recorded");
    versions
}

/// Returns the output of the program, which must succeed.
fn output(args: &[&str], directory: &Path) -> String {
    let output = larder().args(args).current_dir(directory).output().unwrap();
    let errors = text(&output.stderr);
    assert!(output.status.success(), "{args:?} in {}: {errors}", directory.display());
    text(&output.stdout)
}

#[test]
fn traces_of_earlier_versions_have_the_same_records() {
    for version in versions() {
        for (name, records) in [
            ("trace.csv", "trace.csv"),
            ("trace.ltr", "trace.csv"),
            ("trace.parquet", "trace.csv"),
            ("objects.ltr", "objects.csv"),
        ] {
            if name.ends_with(".parquet") && !cfg!(feature = "parquet") {
                continue;
            }
            let expected = std::fs::read_to_string(version.join(records)).unwrap();
            let args = ["trace", "convert", name, "-", "--to-format", "csv"];
            assert_eq!(output(&args, &version), expected, "{name} of {}", version.display());
        }
    }
}

#[test]
fn warm_lists_of_earlier_versions_have_the_same_ranges() {
    for version in versions() {
        let fields = std::fs::read_to_string(version.join("data.json")).unwrap();
        let fields: Value = serde_json::from_str(&fields).unwrap();
        let number = |name: &str| fields[name].as_u64().unwrap();
        let store = StoreIdentity {
            kind: StoreKind::File,
            place: fields["place"].as_str().unwrap().into(),
            length: number("length"),
            device: number("device"),
            inode: number("inode"),
            changed_ns: number("changed_ns"),
        };
        let path = version.join("data.warm");
        let bytes = std::fs::read(&path).unwrap();
        let expected: Vec<[u64; 2]> = serde_json::from_value(fields["ranges"].clone()).unwrap();
        let expected: Vec<Range<u64>> = expected.iter().map(|&[start, end]| start..end).collect();
        assert_eq!(parse(&path, &bytes, &store, usize::MAX).unwrap(), expected);
    }
}

#[test]
fn runs_of_earlier_versions_keep_their_values() {
    for version in versions() {
        let written = std::fs::read_to_string(version.join("run.json")).unwrap();
        let written: Value = serde_json::from_str(&written).unwrap();
        let read = output(&["report", "run.json", "--json"], &version);
        let read: Value = serde_json::from_str(&read).unwrap();
        assert!(read["version"].as_u64() >= written["version"].as_u64());
        let (before, after) = (&written["samples"], &read["samples"]);
        for (before, after) in before.as_array().unwrap().iter().zip(after.as_array().unwrap()) {
            assert_eq!(
                (&before["series"], &before["values"]),
                (&after["series"], &after["values"])
            );
        }
        assert_eq!(read["trials"], written["trials"]);
        output(&["compare", "run.json", "run.json"], &version);
    }
}

#[test]
fn configurations_of_earlier_versions_are_valid() {
    if !cfg!(feature = "tls") {
        return larder_testing::skip("the configuration has TLS");
    }
    for version in versions() {
        // The owner alone may have write permission, whatever the umask of the checkout was.
        let directory = tempfile::tempdir().unwrap();
        let bytes = std::fs::read(version.join("larder.toml")).unwrap();
        std::fs::write(directory.path().join("larder.toml"), bytes).unwrap();
        let result = output(&["check-config", "larder.toml"], directory.path());
        let expected = "larder.toml is valid: 64 MiB of memory; volumes: data, logs\n";
        assert_eq!(result, expected, "{}", version.display());
    }
}

#[test]
fn the_version_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let version = env!("CARGO_PKG_VERSION");
    let shown = output(&["version"], directory.path());
    assert!(shown.starts_with(&format!("larder {version}")), "{shown}");
    let shown: Value =
        serde_json::from_str(&output(&["version", "--json"], directory.path())).unwrap();
    assert!(shown["schema"] == "larder-version" && shown["program"] == version, "{shown}");
}

#[test]
fn the_interface_of_earlier_versions_is_still_there() {
    let current = interface();
    if std::env::var_os(WRITE).is_some() {
        let directory = golden().join(env!("CARGO_PKG_VERSION"));
        std::fs::create_dir_all(&directory).unwrap();
        let lines: String = current.iter().flat_map(|line| [line, "\n"]).collect();
        std::fs::write(directory.join("interface.txt"), lines).unwrap();
    }
    for version in versions() {
        let recorded = std::fs::read_to_string(version.join("interface.txt")).unwrap();
        assert!(recorded.lines().count() > 500, "{}", version.display());
        let missing: Vec<_> = recorded.lines().filter(|line| !current.contains(*line)).collect();
        assert!(missing.is_empty(), "since {}: {missing:#?}", version.display());
    }
}

/// Returns the interface of this version, one line for each command, option, field and metric.
fn interface() -> BTreeSet<String> {
    let mut lines = BTreeSet::new();
    add_command(&[], &mut lines);
    let server = Server::start(&["data"], &[]);
    for path in ["/v1/stats", "/v1/volumes", "/v1/at-risk"] {
        add_fields(&format!("field {path} "), &server.get(path).json(), &mut lines);
    }
    let metrics = server.get("/metrics").body;
    let types = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    lines.extend(types.map(|name_and_type| format!("metric {name_and_type}")));
    server.stop();
    lines
}

/// Adds a command, its options and its subcommands, from its help.
fn add_command(words: &[&str], lines: &mut BTreeSet<String>) {
    let help = output(&[words, &["--help"]].concat(), Path::new("/"));
    let name = words.join(" ");
    lines.insert(format!("command {name}"));
    let mut in_commands = false;
    for line in help.lines() {
        let word = line.trim_start();
        let indent = line.len() - word.len();
        // Descriptions are indented further.
        if indent <= 6 && word.starts_with('-') {
            let options = word.split([' ', ',', '=', '[']).filter(|word| word.starts_with("--"));
            lines.extend(options.take(1).map(|option| format!("option {name} {option}")));
        }
        in_commands = line == "Commands:" || in_commands && !line.is_empty();
        let subcommand = word.split(' ').next().unwrap_or_default();
        if in_commands && indent == 2 && subcommand != "help" {
            add_command(&[words, &[subcommand]].concat(), lines);
        }
    }
}

/// Adds the fields of a JSON value; those of an array are those of its first element.
fn add_fields(path: &str, value: &Value, lines: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                add_fields(&format!("{path}.{name}"), value, lines);
            }
        }
        Value::Array(elements) if !elements.is_empty() => {
            add_fields(&format!("{path}[]"), &elements[0], lines);
        }
        _ => {
            lines.insert(path.to_owned());
        }
    }
}
