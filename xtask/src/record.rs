//! Records of runs: reads those of `larder bench`, and writes those of the proofs into bench-runs/
//! (schema `larder-run`, version 1, docs/FORMATS.md).

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::run::{self, cmd};
use crate::stats::{Spread, median};

pub(crate) fn read(path: &Path) -> Result<Value> {
    let name = || path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(name)?;
    serde_json::from_str(&text).with_context(name)
}

/// Returns a number of a reply or a record; `name` may be a path such as `/counters/hits`.
pub(crate) fn number(from: &Value, name: &str) -> Result<f64> {
    let found = if name.starts_with('/') { from.pointer(name) } else { from.get(name) };
    found.and_then(Value::as_f64).with_context(|| format!("no number {name}"))
}

/// Returns the values of a series, or else of the first series of a group.
pub(crate) fn values(record: &Value, series: &str) -> Result<Vec<f64>> {
    let samples = record["samples"].as_array().context("a record has samples")?;
    let find = |key: &str| samples.iter().find(|it| it[key] == series);
    let sample = find("series").or_else(|| find("group"));
    let values = sample.and_then(|sample| sample["values"].as_array());
    let values: Option<Vec<f64>> = values.map(|all| all.iter().filter_map(Value::as_f64).collect());
    let values = values.filter(|all| !all.is_empty());
    values.with_context(|| format!("no value of the series {series}"))
}

pub(crate) fn series_median(record: &Value, series: &str) -> Result<f64> {
    Ok(median(&values(record, series)?))
}

/// Returns the current time in the format of RFC 3339.
fn now() -> Result<String> {
    Ok(run::stdout_of(cmd!("date -u +%Y-%m-%dT%H:%M:%SZ"))?.trim().to_owned())
}

/// Returns the first line that a program prints about its version.
pub(crate) fn version(program: &str) -> String {
    let text = run::stdout_of(cmd!("{program} --version")).unwrap_or_default();
    text.lines().next().unwrap_or_default().to_owned()
}

/// A record that is not written yet.
pub(crate) struct Record {
    root: PathBuf,
    started: String,
    head: Value,
    samples: Vec<Value>,
    comparisons: Vec<Value>,
}

impl Record {
    /// Begins a record with a description, the versions of the programs, and the settings.
    pub(crate) fn new(
        root: &Path,
        title: &str,
        programs: &[&str],
        settings: &Value,
    ) -> Result<Self> {
        let mut git = cmd!("git describe --always --dirty");
        // `-dirty` if the working tree differs from the commit.
        let commit = run::stdout_of(git.current_dir(root)).unwrap_or_default();
        let mut software = json!({ "larder": commit.trim() });
        for name in programs {
            software[*name] = version(name).into();
        }
        let started = now()?;
        let head = json!({
            "schema": "larder-run", "version": 1, "what": title, "started_at": started,
            "machine": machine(), "software": software, "settings": settings,
        });
        let (samples, comparisons) = (vec![], vec![]);
        Ok(Self { root: root.to_owned(), started, head, samples, comparisons })
    }

    /// Adds the version of software without a `--version` option.
    pub(crate) fn software(&mut self, name: &str, version: &str) {
        self.head["software"][name] = version.trim().into();
    }

    /// Adds a series, rounded to `digits` decimal places.
    pub(crate) fn series(&mut self, name: &str, unit: &str, values: &[f64], digits: i32) {
        let scale = 10_f64.powi(digits);
        let values: Vec<f64> = values.iter().map(|it| (it * scale).round() / scale).collect();
        self.samples.push(json!({ "series": name, "unit": unit, "values": values }));
    }

    /// Adds a comparison of two series; it holds if the median ratio is at least `required`.
    pub(crate) fn comparison(
        &mut self,
        title: &str,
        [ours, theirs]: [&str; 2],
        ratio: Spread,
        required: f64,
    ) {
        let short = |value: f64| (value * 1000.0).round() / 1000.0;
        self.comparisons.push(json!({
            "what": title, "ours": ours, "theirs": theirs, "ratio_median": short(ratio.median),
            "ratio_min": short(ratio.min), "ratio_max": short(ratio.max),
            "required": short(required), "holds": ratio.median >= required,
        }));
    }

    /// Writes the record into bench-runs, named after a proof and the time; returns the path.
    pub(crate) fn write(self, proof: &str) -> Result<String> {
        let name = format!("{proof}-{}", self.started.replace(':', ""));
        self.write_as(&name)
    }

    /// Writes the record into bench-runs under this name; returns the path.
    pub(crate) fn write_as(mut self, name: &str) -> Result<String> {
        self.head["samples"] = self.samples.into();
        self.head["comparisons"] = self.comparisons.into();
        let text = serde_json::to_string_pretty(&self.head).context("print the record")?;
        let path = format!("bench-runs/{name}.json");
        std::fs::write(self.root.join(&path), text + "\n")
            .with_context(|| format!("write {path}"))?;
        Ok(path)
    }
}

/// Returns the properties of the machine that affect the figures, without its name.
fn machine() -> Value {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |path: &str, name: &str| {
        let text = read(path);
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.trim_matches([' ', '\t', ':', '=', '"']).to_owned()
    };
    json!({
        "cpu": field("/proc/cpuinfo", "model name"),
        "cores": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        "memory_bytes": crate::server::kib_field(&read("/proc/meminfo"), "MemTotal"),
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "distribution": field("/etc/os-release", "PRETTY_NAME"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_names_its_series_and_no_machine_path() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("bench-runs")).unwrap();
        let mut made = Record::new(dir.path(), "a test", &[], &json!({})).unwrap();
        made.series("larder: reads", "reads/s", &[3.04, 2.0], 1);
        let ratio = Spread { median: 1.2, min: 1.0, max: 1.4 };
        made.comparison("reads", ["larder: reads", "peer: reads"], ratio, 1.35);
        let path = dir.path().join(made.write("speed").unwrap());
        let record = super::read(&path).unwrap();
        assert!(record["machine"]["memory_bytes"].as_u64() > Some(0));
        assert_eq!(record["comparisons"][0]["ours"], record["samples"][0]["series"]);
        assert_eq!(record["comparisons"][0]["holds"], false);
        assert_eq!(values(&record, "larder: reads").unwrap(), [3.0, 2.0]);
        assert!(series_median(&record, "writes").is_err(), "it was not measured");
    }
}
