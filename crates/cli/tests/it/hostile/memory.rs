//! Readers of foreign files use memory in proportion to the input, up to their stated maximum.

use crate::shared::program::program;
use larder_testing::{budget, has_tool, skip};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::BufWriter;
use std::path::Path;
use std::process::{Command, Stdio};

const MIB: u64 = 1 << 20;

/// Returns the peak resident memory of a run of the program in bytes (`ru_maxrss`), and its exit
/// code.
fn peak(directory: &Path, args: &[&str]) -> (u64, Option<i32>) {
    let report = directory.join("peak");
    let mut command = Command::new("time");
    command.args(["--quiet", "-f", "%M", "-o"]).arg(&report).arg(program()).args(args);
    command.current_dir(directory).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let code = command.status().unwrap().code();
    let report = fs::read_to_string(report).unwrap();
    (report.trim().parse::<u64>().expect("a number of KiB") * 1024, code)
}

/// Writes a file of about this many bytes.
type Fill = fn(&mut dyn std::io::Write, u64);

const TRACE: &str = "time_ns,offset,len,latency_ns,volume,file,process,op,class,volume_name,\
                     file_name,process_name\n";

/// Many columns, and one row with a value for each.
fn columns(to: &mut dyn std::io::Write, bytes: u64) {
    let count = bytes / 48;
    write!(to, "\"(PDH-CSV 4.0)\"").unwrap();
    (0..count).for_each(|at| write!(to, ",\"\\\\S\\Process({at})\\IO Read Bytes/sec\"").unwrap());
    write!(to, "\r\n\"04/15/2000 10:00:00\"").unwrap();
    (0..count).for_each(|_| write!(to, ",\"1\"").unwrap());
    writeln!(to, "\r").unwrap();
}

/// An unclosed quote.
fn quote(to: &mut dyn std::io::Write, bytes: u64) {
    write!(to, "\"(PDH-CSV 4.0)\",\"\\\\S\\Cache\\Copy Reads/sec\"\r\n\"").unwrap();
    lines(to, bytes, "04/15/2000 10:00:00,1,2,3,4,5,6,7,8");
}

/// An endless line.
fn line(to: &mut dyn std::io::Write, bytes: u64) {
    write!(to, "\"(PDH-CSV 4.0)\",").unwrap();
    letters(to, bytes);
}

fn letters(to: &mut dyn std::io::Write, bytes: u64) {
    (0..bytes / 16).for_each(|_| to.write_all(b"xxxxxxxxxxxxxxxx").unwrap());
}

fn lines(to: &mut dyn std::io::Write, bytes: u64, line: &str) {
    (0..bytes / (line.len() as u64 + 1)).for_each(|_| writeln!(to, "{line}").unwrap());
}

/// An endless name.
fn trace_line(to: &mut dyn std::io::Write, bytes: u64) {
    write!(to, "{TRACE}0,0,4096,0,0,0,0,read,0,\"").unwrap();
    letters(to, bytes);
}

/// A new file and a new process for each request.
fn trace_names(to: &mut dyn std::io::Write, bytes: u64) {
    write!(to, "{TRACE}").unwrap();
    let line = |at: u64| format!("{at},0,4096,0,0,{at},{at},read,0,v,file{at},process{at}\n");
    (1..bytes / 60).for_each(|at| to.write_all(line(at).as_bytes()).unwrap());
}

/// A new volume for each request.
fn trace_volumes(to: &mut dyn std::io::Write, bytes: u64) {
    let line = |at: u64| format!("{},host{at},{at},Read,{},4096,100\n", at + (1 << 56), at * 4096);
    (0..bytes / 50).for_each(|at| to.write_all(line(at).as_bytes()).unwrap());
}

fn nesting(to: &mut dyn std::io::Write, bytes: u64) {
    write!(to, "{{\"schema\":").unwrap();
    (0..bytes).for_each(|_| to.write_all(b"[").unwrap());
}

/// A record of one series with many values.
fn values(to: &mut dyn std::io::Write, bytes: u64) {
    record(to, |text| {
        write!(text, "{{\"series\":\"a\",\"unit\":\"s\",\"values\":[1.5").unwrap();
        (0..bytes / 6).for_each(|at| write!(text, ",{}.25", at % 97 + 1).unwrap());
        text.push_str("],\"better\":\"lower\",\"at\":{}}");
    });
}

/// A record of many series.
fn series(to: &mut dyn std::io::Write, bytes: u64) {
    record(to, |text| {
        for at in 0..bytes / 80 {
            let comma = if at == 0 { "" } else { "," };
            write!(text, "{comma}{{\"series\":\"{at}\",\"unit\":\"s\",\"values\":[1.5,2],")
                .unwrap();
            text.push_str("\"better\":\"lower\",\"at\":{}}");
        }
    });
}

fn record(to: &mut dyn std::io::Write, samples: impl FnOnce(&mut String)) {
    let mut text = String::from(
        "{\"schema\":\"larder-run\",\"version\":1,\"what\":\"w\",\"started_at\":\"t\",\
         \"machine\":{\"cpu\":\"c\",\"cores\":2,\"memory_bytes\":1,\"kernel\":\"k\",\
         \"distribution\":\"d\"},\"software\":{},\"settings\":{},\"samples\":[",
    );
    samples(&mut text);
    text.push_str("],\"comparisons\":[]}");
    to.write_all(text.as_bytes()).unwrap();
}

fn config(to: &mut dyn std::io::Write, bytes: u64) {
    (0..bytes / 20).for_each(|at| writeln!(to, "unknown-key-{at} = 1").unwrap());
}

/// A file with the worst case for its reader, the command, and the maximum bytes of memory per byte
/// of the file.
const CASES: [(&str, Fill, &[&str], u64); 12] = [
    ("columns", columns, &["report", "columns"], 40),
    ("quote", quote, &["report", "quote"], 1),
    ("line", line, &["report", "line"], 5),
    ("nesting", nesting, &["report", "nesting"], 3),
    ("values", values, &["compare", "values", "values"], 40),
    ("series", series, &["compare", "series", "series"], 90),
    ("line.csv", trace_line, &["trace", "summary", "line.csv"], 5),
    ("names.csv", trace_names, &["trace", "summary", "names.csv"], 12),
    ("volumes.csv", trace_volumes, &["trace", "summary", "volumes.csv"], 60),
    ("again.csv", trace_volumes, &["sim", "again.csv", "--size", "1MiB"], 60),
    // The reader may refuse a larger file only because it is too large.
    ("config", config, &["check-config", "config"], 1),
    ("nested-config", nesting, &["check-config", "nested-config"], 1),
];

#[test]
fn readers_of_foreign_files_take_memory_in_proportion_to_the_input() {
    if !has_tool("time") {
        return skip("GNU time is not installed");
    }
    let directory = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for (name, fill, args, factor) in CASES {
        let at = |bytes: u64| {
            let path = directory.path().join(name);
            let mut to = BufWriter::new(File::create(&path).unwrap());
            fill(&mut to, bytes);
            to.into_inner().unwrap();
            let (peak, code) = peak(directory.path(), args);
            assert!(code.is_some_and(|code| code <= 2), "{name}: {code:?}");
            (fs::metadata(path).unwrap().len(), peak)
        };
        let unit = budget(MIB / 2, MIB);
        let (small, large) = (at(unit), at(4 * unit));
        let (more, grown) = (large.0 - small.0, large.1.saturating_sub(small.1));
        println!("{name}: {} bytes for each", grown / more);
        // Rounding by the allocator does not grow with the input.
        if grown > factor * more + 4 * MIB {
            wrong.push(format!("{name}: {grown} bytes of memory more for {more} bytes more"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
