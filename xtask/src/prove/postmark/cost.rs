//! Processor time, user and system, of the same run by both, taking turns.
//!
//! In memory: on a disk the time that the kernel spends varies by a factor of five from run to run,
//! and hides whatever the programs do.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::{Who, command};
use crate::prove::speed::median;
use crate::prove::speed::record::{self, Record};
use crate::prove::{Claims, Lab};
use crate::run;

/// Rounds; the figure is the median of the ratios of each.
const ROUNDS: usize = 7;

/// The first published result, and one in small blocks without a buffer.
const SCRIPTS: [(&str, &str); 2] = [
    (
        "the first published configuration",
        "set number 10000\nset transactions 20000\nset subdirectories 5\nset size 500 100000\n\
         set read 4096\nset write 4096\n",
    ),
    (
        "sizes and blocks as they are by default, unbuffered",
        "set number 20000\nset transactions 20000\nset buffering false\n",
    ),
];

/// A file system in memory.
const MEMORY: &str = "/dev/shm";

/// What one program took in each round, in seconds.
#[derive(Debug, Default)]
struct Spent {
    processor: Vec<f64>,
    wall: Vec<f64>,
}

/// Measures and records. Not in the short form, which runs beside other work.
pub(super) fn run(lab: &Lab, claims: &mut Claims) -> Result<()> {
    if lab.options.quick {
        return Ok(());
    }
    let started = record::now()?;
    let mut samples = Vec::new();
    let mut comparisons = Vec::new();
    for (name, script) in SCRIPTS {
        let script = format!("{script}run\nquit\n");
        let (mut ours, mut theirs) = (Spent::default(), Spent::default());
        for round in 0..ROUNDS {
            let order =
                if round % 2 == 0 { [Who::Ours, Who::Theirs] } else { [Who::Theirs, Who::Ours] };
            for who in order {
                let spent = if who == Who::Ours { &mut ours } else { &mut theirs };
                let (processor, wall) = measure(lab, who, &script)?;
                spent.processor.push(processor);
                spent.wall.push(wall);
            }
        }
        let ratios: Vec<f64> = theirs
            .processor
            .iter()
            .zip(&ours.processor)
            .map(|(theirs, ours)| theirs / ours)
            .collect();
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let most = ratios.iter().copied().fold(0.0, f64::max);
        let ratio = median(&ratios);
        claims.against(
            format!("{name}: user and system time no higher than the original's"),
            format!(
                "{:.2} s ({ratio:.2} times better, {least:.2} to {most:.2})",
                median(&ours.processor)
            ),
            format!("{:.2} s", median(&theirs.processor)),
            ratio >= 1.0,
        );
        let series = |who: &str, what: &str| format!("{who}: {name}: {what}");
        for (who, spent) in [("larder", &ours), ("postmark", &theirs)] {
            for (what, values) in [("processor time", &spent.processor), ("time", &spent.wall)] {
                samples.push(json!({"series": series(who, what), "unit": "s", "values": values}));
            }
        }
        comparisons.push(json!({
            "what": format!("{name}: user and system time"),
            "ours": series("larder", "processor time"),
            "theirs": series("postmark", "processor time"),
            "ratio_median": ratio, "ratio_min": least, "ratio_max": most,
            "required": 1.0, "holds": ratio >= 1.0,
        }));
    }
    let path = write(lab, &started, &samples, &comparisons)?;
    println!("   recorded in {}", path.display());
    Ok(())
}

/// Processor time of the program and what it starts, and time, both in seconds. The program runs
/// under a shell's `times`, which counts all of its children and nothing else.
fn measure(lab: &Lab, who: Who, script: &str) -> Result<(f64, f64)> {
    let folder = tempfile::Builder::new().prefix("larder-").tempdir_in(MEMORY);
    let folder = folder.context("make a folder in memory")?;
    let dir = folder.path();
    std::fs::write(dir.join("script"), script).context("write the script")?;
    let plain = command(lab, who, dir);
    let words: Vec<_> = plain.get_args().skip(2).collect();
    let mut shell = run::client(300, "bash");
    shell.args(["-c", "\"$@\" > /dev/null; times", "measure"]).args(&words);
    let begun = Instant::now();
    let text = run::text(shell.current_dir(dir).stdin(Stdio::null()))?;
    let wall = begun.elapsed().as_secs_f64();
    let line = text.lines().nth(1).context("the shell says no times of children")?;
    let mut sum = 0.0;
    for word in line.split_whitespace() {
        sum += seconds(word).with_context(|| format!("read the time {word}"))?;
    }
    ensure!(sum > 0.0, "the shell says that nothing was done");
    Ok((sum, wall))
}

/// A time as `times` writes it: 0m1.230000s.
fn seconds(word: &str) -> Option<f64> {
    let (minutes, seconds) = word.strip_suffix('s')?.split_once('m')?;
    Some(minutes.parse::<f64>().ok()? * 60.0 + seconds.parse::<f64>().ok()?)
}

fn write(
    lab: &Lab,
    started: &str,
    samples: &[serde_json::Value],
    comparisons: &[serde_json::Value],
) -> Result<PathBuf> {
    let mut version = std::process::Command::new("dpkg-query");
    version.args(["--show", "--showformat=${Version}", "postmark"]);
    let record = Record {
        what: "PostMark as it was, against Debian's",
        started,
        software: json!({
            "larder": record::commit(&lab.root),
            "postmark": run::text(&mut version).unwrap_or_default().trim(),
        }),
        settings: json!({ "rounds": ROUNDS, "place": MEMORY }),
        samples: samples.to_vec(),
        comparisons: comparisons.to_vec(),
    };
    record.write(&lab.root, "postmark")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_the_shell_are_read() {
        assert_eq!(seconds("1m2.500000s"), Some(62.5));
        assert_eq!(seconds("1.5"), None);
    }
}
