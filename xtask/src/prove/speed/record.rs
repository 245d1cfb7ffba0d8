//! Records in bench-runs/: schema `larder-run`, version 1, as docs/FORMATS.md and the crate
//! `report` have it; and that of a speed run.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use super::{Comparison, OPTIONS, Samples};
use crate::image::MIB;
use crate::run;

/// The time of day, RFC 3339.
pub(in crate::prove) fn now() -> Result<String> {
    let text = run::text(Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%SZ"]))?;
    Ok(text.trim().to_owned())
}

/// What a record says beside its machine and the commit.
pub(in crate::prove) struct Record<'a> {
    /// What was measured, in one line.
    pub(in crate::prove) what: &'a str,
    /// When it began, RFC 3339.
    pub(in crate::prove) started: &'a str,
    /// Versions of what took part.
    pub(in crate::prove) software: Value,
    /// What was set.
    pub(in crate::prove) settings: Value,
    /// What was measured.
    pub(in crate::prove) samples: Vec<Value>,
    /// What was compared.
    pub(in crate::prove) comparisons: Vec<Value>,
}

impl Record<'_> {
    /// Writes it into bench-runs, named after a proof and the time; answers where.
    pub(in crate::prove) fn write(&self, root: &Path, proof: &str) -> Result<PathBuf> {
        let name = format!("{proof}-{}.json", self.started.replace(':', ""));
        let path = PathBuf::from("bench-runs").join(name);
        self.write_to(root, &path)?;
        Ok(path)
    }

    /// Writes it to this path below the root.
    pub(in crate::prove) fn write_to(&self, root: &Path, path: &Path) -> Result<()> {
        let record = json!({
            "schema": "larder-run",
            "version": 1,
            "what": self.what,
            "started_at": self.started,
            "machine": machine(),
            "software": self.software,
            "settings": self.settings,
            "samples": self.samples,
            "comparisons": self.comparisons,
        });
        let text = serde_json::to_string_pretty(&record).context("print the record")?;
        std::fs::write(root.join(path), text + "\n")
            .with_context(|| format!("write {}", path.display()))
    }
}

/// Writes the record of a speed run; answers where.
pub(super) fn write(
    root: &Path,
    started: &str,
    table: &[(&str, String, Samples)],
    comparisons: &[Comparison],
    (trial_s, image_mib): (u64, u64),
) -> Result<PathBuf> {
    let record = Record {
        what: "all hits over a unix socket, against the peers",
        started,
        software: software(root),
        settings: json!({ "larder": OPTIONS, "image_bytes": image_mib * MIB, "trial_s": trial_s }),
        samples: table.iter().flat_map(samples).collect(),
        comparisons: comparisons.iter().map(comparison).collect(),
    };
    record.write(root, "speed")
}

/// Two series for each server and workload: its rate and its processor time.
fn samples((workload, server, samples): &(&str, String, Samples)) -> [Value; 2] {
    let rounded = |values: &[f64]| values.iter().map(|value| value.round()).collect::<Vec<_>>();
    [
        json!({
            "series": series(server, &format!("{workload}: requests")),
            "unit": "requests/s",
            "values": rounded(&samples.per_s),
        }),
        json!({
            "series": series(server, &format!("{workload}: processor time per request")),
            "unit": "ns",
            "values": rounded(&samples.cpu_ns),
        }),
    ]
}

fn series(server: &str, what: &str) -> String {
    format!("{server}: {what}")
}

fn comparison(made: &Comparison) -> Value {
    let short = |value: f64| (value * 1000.0).round() / 1000.0;
    json!({
        "what": made.what,
        "ours": series("larder", &made.what),
        "theirs": series(made.peer, &made.what),
        "ratio_median": short(made.ratio_median),
        "ratio_min": short(made.ratio_min),
        "ratio_max": short(made.ratio_max),
        "required": made.required,
        "holds": made.holds(),
    })
}

/// What the figures depend on, without the name of the machine.
fn machine() -> Value {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |path: &str, name: &str| {
        let text = read(path);
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        line.trim_matches([' ', '\t', ':', '=', '"']).to_owned()
    };
    let kib = field("/proc/meminfo", "MemTotal").replace(" kB", "").parse::<u64>();
    json!({
        "cpu": field("/proc/cpuinfo", "model name"),
        "cores": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        "memory_bytes": kib.unwrap_or_default() * 1024,
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "distribution": field("/etc/os-release", "PRETTY_NAME"),
    })
}

/// The commit that is measured, `-dirty` where it alone does not give the binary.
pub(in crate::prove) fn commit(root: &Path) -> String {
    let mut git = Command::new("git");
    git.current_dir(root).args(["describe", "--always", "--dirty"]);
    run::text(&mut git).unwrap_or_default().trim().to_owned()
}

/// Versions of what takes part, as far as it is there.
pub(in crate::prove) fn software(root: &Path) -> Value {
    let version = |program: &str| {
        let text = run::text(Command::new(program).arg("--version")).unwrap_or_default();
        text.lines().next().unwrap_or_default().to_owned()
    };
    json!({
        "larder": commit(root),
        "fio": version("fio"),
        "nbdkit": version("nbdkit"),
        "qemu-nbd": version("qemu-nbd"),
    })
}

#[cfg(test)]
mod tests {
    use super::super::{MEMORY, WORKLOADS, rates};
    use super::*;

    #[test]
    fn the_record_names_its_series_and_no_machine_path() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("bench-runs")).unwrap();
        let samples = Samples { per_s: vec![3.0, 2.0], cpu_ns: vec![5.0, 6.0] };
        let made = rates(&WORKLOADS[0], &samples, &samples, MEMORY, 1.35);
        let table = ["larder", MEMORY].map(|s| (WORKLOADS[0].name, s.to_owned(), samples.clone()));
        let path = write(dir.path(), "2026-11-21T03:22:11Z", &table, &[made], (3, 1024)).unwrap();
        let text = std::fs::read_to_string(dir.path().join(path)).unwrap();
        let record: Value = serde_json::from_str(&text).unwrap();
        assert!(record["machine"]["memory_bytes"].as_u64() > Some(0));
        let known = record["samples"].as_array().unwrap();
        let comparison = &record["comparisons"][0];
        for side in ["ours", "theirs"] {
            assert!(known.iter().any(|sample| sample["series"] == comparison[side]), "{side}");
        }
        assert_eq!(comparison["holds"], false);
    }
}
