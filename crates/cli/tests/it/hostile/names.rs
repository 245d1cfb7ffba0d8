//! Names in files do not control a terminal, whichever command prints them.

use crate::shared::program::program;
use larder_report::escape::is_unsafe;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// A name that clears the screen, rings the bell, returns to the start of the line, reverses text,
/// and prints a line of its own.
pub(super) const HOSTILE: &str =
    "a\u{1b}[2J\u{1b}]0;x\u{7}\r\u{8}\u{7f}\u{9b}31m\u{202e}\u{2066}\u{200f}\nSPOOF\tb";

/// Valid files with hostile names.
const TRACE: &str = "t\u{1b}[2J\nSPOOF.csv";
const CONFIG: &str = "c\u{1b}[2J\nSPOOF.toml";

/// Fails if the output contains a control sequence of the name.
pub(super) fn check_output(label: &str, output: &Output) {
    for (stream, bytes) in [("output", &output.stdout), ("errors", &output.stderr)] {
        let text = str::from_utf8(bytes).unwrap_or_else(|_| panic!("{label}: {stream} are text"));
        let allowed = |c: char| c == '\n' || c == '\t' || !is_unsafe(c);
        assert!(text.chars().all(allowed), "{label}: {stream}: {text:?}");
        assert!(!text.lines().any(|line| line.starts_with("SPOOF")), "{label}: {stream}: {text}");
    }
}

/// A directory with one file of each kind, all with hostile contents and names.
struct HostileFiles {
    directory: TempDir,
}

impl HostileFiles {
    fn new() -> Self {
        let files = HostileFiles { directory: TempDir::new().unwrap() };
        files.write("record.json", &record(HOSTILE));
        files.write("plain.json", &record("plain"));
        files.write("perfmon.csv", &perfmon());
        files.write("config.toml", "\"listen\\u001b[2J\\nSPOOF\" = 1\n");
        files.write("value.toml", "memory = \"\\u001b[2J\\nSPOOF\"\n");
        let csv = "time_ns,offset,len,latency_ns,volume,file,process,op,class,volume_name,\
                   file_name,process_name\n";
        let name = HOSTILE.replace(['\n', '\r'], " ");
        files.write("trace.csv", &format!("{csv}0,0,4096,0,0,1,1,read,0,{name},{name},{name}\n"));
        files.write(TRACE, &format!("{csv}0,0,4096,0,0,1,1,read,0,v,f,p\n"));
        files.write("i.img", &"\0".repeat(1 << 20));
        let config = "memory = \"16MiB\"\n[[volume]]\nname = \"v\"\npath = \"i.img\"\n";
        files.write(CONFIG, config);
        files.write("bad.csv", &format!("{csv}{HOSTILE},0,4096\n"));
        let line = |n: u64| format!("128166372003061629,{name},{n},Read,{},4096,100\n", n * 4096);
        files.write("msr.csv", &(0..20).map(line).collect::<String>());
        fs::create_dir(files.path("d")).unwrap();
        files.write(&format!("d/{HOSTILE}"), "x");
        files.write(HOSTILE, "x");
        let not_utf8 = OsStr::from_bytes(b"d/\xff\x1b\x9b");
        fs::write(files.directory.path().join(not_utf8), "x").unwrap();
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(program());
        command.args(args).current_dir(self.directory.path()).stdin(Stdio::null());
        command.env("LARDER_LOG", "debug").output().unwrap()
    }

    fn check(&self, args: &[&str]) {
        check_output(&format!("{args:?}"), &self.run(args));
    }
}

/// A record with this text in every text field.
fn record(text: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench-runs/probe-after.json");
    let mut record: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    for field in ["what", "started_at", "workload", "verdict"] {
        record[field] = text.into();
    }
    for field in ["cpu", "kernel", "distribution"] {
        record["machine"][field] = text.into();
    }
    for field in ["settings", "software", "environment"] {
        record[field] = serde_json::json!({ text: text });
    }
    record["doubts"] = serde_json::json!([{ "why": "steal", "text": text }]);
    for sample in record["samples"].as_array_mut().unwrap() {
        let series = format!("{}{text}", sample["series"].as_str().unwrap());
        sample["series"] = series.into();
        sample["unit"] = text.into();
    }
    record.to_string()
}

fn perfmon() -> String {
    let name = HOSTILE.replace(['\n', '\r', '\t'], " ");
    format!(
        "\"(PDH-CSV 4.0)\",\"\\\\{name}\\LogicalDisk({name})\\Disk Reads/sec\",\
         \"\\\\{name}\\Process({name})\\IO Read Bytes/sec\",\"\\\\{name}\\Cache\\{name}\"\r\n\
         \"04/15/2000 10:00:00.166\",\"1\",\"2\",\"3\"\r\n"
    )
}

#[test]
fn no_name_in_a_file_controls_the_terminal() {
    let files = HostileFiles::new();
    for format in ["text", "csv", "json", "html"] {
        files.check(&["report", "record.json", "--format", format]);
        files.check(&["report", "perfmon.csv", "--format", format]);
    }
    for other in ["record.json", "plain.json"] {
        for format in ["text", "csv", "json"] {
            files.check(&["compare", "record.json", other, "--format", format]);
        }
    }
    // A file that begins with control characters has no recognizable format.
    for (trace, format) in [
        ("trace.csv", "csv"),
        ("msr.csv", "msr"),
        (TRACE, "csv"),
        ("bad.csv", "csv"),
        (HOSTILE, "csv"),
    ] {
        let as_trace = ["--format", format];
        for args in [
            &["trace", "summary", trace][..],
            &["trace", "summary", trace, "--json"],
            &["trace", "head", trace],
            &["trace", "convert", trace, "-", "--to-format", "csv"],
            &["trace", "filter", trace, "out.ltr", "--volume", HOSTILE],
        ] {
            files.check(args);
            files.check(&[args, &as_trace].concat());
        }
        files.check(&["sim", trace, "--sizes", "1MiB", "--trace-format", format]);
        for form in ["text", "csv", "json"] {
            files.check(&["size", trace, "--format", form, "--trace-format", format]);
        }
    }
    for config in ["config.toml", "value.toml", "record.json", HOSTILE] {
        files.check(&["check-config", config]);
        files.check(&["serve", "--config", config]);
    }
    files.check(&["check-config", CONFIG]);
    // Standard output shows the names in escaped form.
    for (args, part) in [
        (&["report", "record.json"][..], "a\\u001b[2J"),
        (&["report", "perfmon.csv"], "$'a\\033[2J"),
        (&["compare", "record.json", "record.json"], "a\\u001b[2J"),
        (&["trace", "summary", "msr.csv", "--format", "msr"], "$'a\\033[2J"),
        (&["trace", "head", "trace.csv", "--format", "csv"], "a\\u001b[2J"),
        (&["resident", "d", "--depth", "2"], "$'d/a\\033[2J\\033]0;x\\007\\r"),
        (&["size", TRACE], "$'t\\033[2J\\nSPOOF.csv'"),
        (&["check-config", CONFIG], "$'c\\033[2J\\nSPOOF.toml' is valid"),
        (&["resident", "d", "--depth", "2"], "$'d/\\377\\033\\233'"),
    ] {
        let text = String::from_utf8(files.run(args).stdout).unwrap();
        assert!(text.contains(part), "{args:?}: no {part} in {text}");
    }
}

#[test]
fn no_name_on_the_command_line_controls_the_terminal() {
    let files = HostileFiles::new();
    for path in ["d", HOSTILE, "missing\u{1b}[2J\nSPOOF"] {
        for format in ["text", "csv", "json"] {
            files.check(&["resident", path, "--depth", "5", "--format", format]);
        }
        for args in [
            &["check-config", path][..],
            &["report", path],
            &["compare", path, path],
            &["trace", "summary", path],
            &["trace", "replay", path, path],
            &["serve", path, "--memory", path],
            &["mount", path, "missing\u{1b}"],
            &["ctl", "--control", path, "stats"],
            &["ctl", path],
            &["bench", "postmark", "--config", path],
            &["bench", path],
            &["try", "missing\u{1b}"],
            &[path],
            &["sim", "trace.csv", "--policy", path],
            &["sim", "trace.csv", "--sizes=\u{1b}\nSPOOF"],
        ] {
            files.check(args);
        }
    }
    let name = String::from_utf8(files.run(&["serve", HOSTILE]).stderr).unwrap();
    assert!(name.contains("cannot be the name of a volume"), "{name}");
}
