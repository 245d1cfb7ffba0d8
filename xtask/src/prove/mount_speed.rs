//! The speed of `larder mount` beside bindfs, mergerfs and rclone, alternating in one run.
//!
//! Everybody shows a folder of their own of one ext4, which is on a loop device with direct I/O.
//! In each round each of them gets one trial of each workload, the order turning round from round
//! to round; compared are the trials of the same round. All reads are hits: the file was read just
//! before, through the mount that is measured. Nobody is let in by anybody but who mounts, of which
//! larder alone makes something (docs/mount.md). FUSE over io_uring is switched on for the time,
//! where the kernel has it: of those who take part larder alone asks for it.

mod workloads;

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::fuse_volume::mounted::{FileSystem, Kind};
use super::mount::missing;
use super::mount::shown::{By, Shown};
use super::speed::{median, record};
use super::{Claims, Lab};
use crate::image::{self, MIB};
use crate::{rings, run};
use workloads::{Size, Workload};

const IMAGE_MIB: u64 = 2048;

/// So much that nothing that is read has to go, and that writers are not slowed down.
const LARDER: By = By::Larder("--memory 512MiB");
/// All users are let in, whom the kernel holds against the modes of files.
const LARDER_FOR_ALL: By = By::Larder("--memory 512MiB --allow-other");
/// The kernel keeps pages too, as it does for bindfs.
const LARDER_PAGES: By = By::Larder("--memory 512MiB --rule *=kernel-pages=keep");
const RCLONE: By = By::Rclone("full");
/// The least that PostMark works with: what is read is not cached on disk.
const RCLONE_LEAST: By = By::Rclone("minimal");

const ALL: [By; 7] =
    [LARDER, LARDER_FOR_ALL, LARDER_PAGES, By::Bindfs, By::Mergerfs, RCLONE, RCLONE_LEAST];

/// What a workload's rate has to be.
#[derive(Debug, Clone, Copy)]
enum Bar {
    /// So many times the rate of a peer, with the workload that is its counterpart.
    Times(By, Workload, f64),
    /// So much a second.
    Rate(f64),
}

/// Every bar, with the workload that it is about.
const BARS: &[(Workload, Bar)] = &[
    (Workload::Creates, Bar::Times(RCLONE, Workload::Creates, 2.0)),
    (Workload::Creates, Bar::Times(RCLONE_LEAST, Workload::Creates, 2.0)),
    (Workload::Creates, Bar::Times(By::Bindfs, Workload::Creates, 1.3)),
    (Workload::Creates, Bar::Times(By::Mergerfs, Workload::Creates, 1.3)),
    (Workload::Creates, Bar::Times(LARDER_FOR_ALL, Workload::Creates, 1.0)),
    (Workload::Deletes, Bar::Times(RCLONE, Workload::Deletes, 2.0)),
    (Workload::Deletes, Bar::Times(RCLONE_LEAST, Workload::Deletes, 2.0)),
    (Workload::Deletes, Bar::Times(By::Bindfs, Workload::Deletes, 1.3)),
    (Workload::Deletes, Bar::Times(By::Mergerfs, Workload::Deletes, 1.3)),
    (Workload::Deletes, Bar::Times(LARDER_FOR_ALL, Workload::Deletes, 1.0)),
    (Workload::PostMark, Bar::Times(RCLONE, Workload::PostMark, 2.0)),
    (Workload::PostMark, Bar::Times(RCLONE_LEAST, Workload::PostMark, 2.0)),
    (Workload::PostMark, Bar::Times(By::Bindfs, Workload::PostMark, 1.3)),
    (Workload::PostMark, Bar::Times(By::Mergerfs, Workload::PostMark, 1.3)),
    // Opened for direct I/O, mergerfs would ask the disk; without it, it has its kernel keep no
    // pages either, and finds its hits in the page cache below.
    (Workload::Direct(1), Bar::Times(By::Mergerfs, Workload::Buffered(1), 1.0)),
    (Workload::Direct(2), Bar::Times(By::Mergerfs, Workload::Buffered(2), 1.0)),
    (Workload::Direct(2), Bar::Rate(130_000.0)),
    (Workload::DirectLarge, Bar::Rate(2500.0)),
    (Workload::Kept, Bar::Times(By::Bindfs, Workload::Kept, 0.9)),
    (Workload::KeptLarge, Bar::Times(By::Bindfs, Workload::KeptLarge, 0.9)),
];

/// Larder as it is with this workload.
fn ours(workload: Workload) -> By {
    if matches!(workload, Workload::Kept | Workload::KeptLarge) { LARDER_PAGES } else { LARDER }
}

/// What one participant brought with one workload, in the order of the rounds.
#[derive(Debug)]
struct Series {
    by: By,
    workload: Workload,
    per_s: Vec<f64>,
    /// Whether a trial did not come to its end.
    is_stuck: bool,
}

/// What came of a bar.
#[derive(Debug)]
struct Outcome {
    what: String,
    ours: f64,
    theirs: Option<f64>,
    /// Median, least and most of the ratios to what is required to be reached or beaten.
    ratio: [f64; 3],
    required: f64,
    bar: Bar,
    workload: Workload,
}

impl Outcome {
    fn holds(&self) -> bool {
        self.ratio[0] >= self.required
    }
}

/// Runs the proof.
pub(super) fn run(lab: &Lab, claims: &mut Claims) -> Result<()> {
    let programs = ["losetup", "mkfs.ext4", "bindfs", "mergerfs", "rclone", "postmark", "fio"];
    if let Some(reason) = missing(&programs) {
        claims.skip("speed of a mounted folder", reason);
        return Ok(());
    }
    let started = record::now()?;
    let _rings = rings::on()?;
    let image = image::sparse(&lab.file("mount-speed.img"), IMAGE_MIB * MIB)?;
    let mut file_system = FileSystem::attach(lab, &image, Kind::Ext4)?;
    file_system.make()?;
    file_system.mount()?;
    let measured = measure(lab, file_system.point());
    file_system.unmount()?;
    file_system.check()?;
    file_system.detach()?;
    std::fs::remove_file(&image).context("remove the image")?;
    let series = measured?;
    let mut outcomes = Vec::new();
    for &(workload, bar) in BARS {
        match stuck(&series, bar) {
            Some(peer) => {
                let what = format!("{}, beside {}", workload.name(), peer.name());
                claims.skip(what, "it did not come to its end");
            }
            None => outcomes.push(outcome(&series, workload, bar)?),
        }
    }
    for outcome in &outcomes {
        claim(outcome, claims);
    }
    if !lab.options.quick {
        let record = record::Record {
            what: "a mounted folder on ext4, beside bindfs, mergerfs and rclone",
            started: &started,
            software: software(&lab.root),
            settings: json!({
                "larder": LARDER.words(), "larder for all": LARDER_FOR_ALL.words(),
                "larder with kernel pages": LARDER_PAGES.words(),
                "fuse over io_uring": rings::are_on(), "mergerfs": By::Mergerfs.words(),
                "bindfs": By::Bindfs.words(), "rclone": RCLONE.words(),
                "source": "ext4 on a loop device with direct I/O",
                "rounds": Workload::DirectLarge.rounds(true),
                "rounds of creates and deletes": Workload::Creates.rounds(true),
            }),
            samples: series.iter().map(sample).collect(),
            comparisons: outcomes.iter().map(comparison).collect(),
        };
        println!("   recorded in {}", record.write(&lab.root, "mount-speed")?.display());
    }
    Ok(())
}

/// All trials, of all participants, in turns.
fn measure(lab: &Lab, at: &Path) -> Result<Vec<Series>> {
    let mut all = Vec::new();
    for (number, by) in ALL.into_iter().enumerate() {
        let source = at.join(number.to_string());
        std::fs::create_dir(&source).context("make a folder to be shown")?;
        all.push(Shown::start(lab, by, &source)?);
    }
    let size = lab.either(Size::LONG, Size::QUICK);
    let mut series = Vec::new();
    for workload in Workload::ALL {
        let takes_part = |shown: &&Shown| {
            let is_asked = |(of, bar): &(Workload, Bar)| match (shown.by() == ours(*of), bar) {
                (true, _) => *of == workload,
                (false, Bar::Times(peer, with, _)) => *peer == shown.by() && *with == workload,
                (false, Bar::Rate(_)) => false,
            };
            BARS.iter().any(is_asked)
        };
        let who: Vec<&Shown> = all.iter().filter(takes_part).collect();
        println!("   {}", workload.name());
        let first = series.len();
        series.extend(who.iter().map(|shown| Series {
            by: shown.by(),
            workload,
            per_s: Vec::new(),
            is_stuck: false,
        }));
        for shown in &who {
            workload.prepare(shown.point())?;
        }
        for round in 0..workload.rounds(!lab.options.quick) {
            for turn in 0..who.len() {
                let index = (round + turn) % who.len();
                let (shown, name) = (who[index], workload.name());
                if series[first + index].is_stuck {
                    continue;
                }
                match workload.trial(lab, shown.point(), size) {
                    Ok(rate) => series[first + index].per_s.push(rate),
                    // A peer that does not come to the end is nothing to compare with.
                    Err(error) if shown.by() != ours(workload) => {
                        println!("   {name} of {}: {error:#}", shown.by().name());
                        series[first + index].is_stuck = true;
                    }
                    Err(error) => return Err(error.context(name)),
                }
            }
        }
    }
    for shown in all {
        shown.stop_clean()?;
    }
    Ok(series)
}

fn find(series: &[Series], by: By, workload: Workload) -> Result<&[f64]> {
    let found = series.iter().find(|one| one.by == by && one.workload == workload);
    let found = found.with_context(|| format!("{} had no {}", by.name(), workload.name()))?;
    ensure!(!found.per_s.is_empty(), "{} had no trial of {}", by.name(), workload.name());
    Ok(&found.per_s)
}

/// The peer of a bar, if a trial of it did not come to its end.
fn stuck(series: &[Series], bar: Bar) -> Option<By> {
    let Bar::Times(peer, with, _) = bar else { return None };
    let is_it = |one: &Series| one.is_stuck && one.by == peer && one.workload == with;
    series.iter().any(is_it).then_some(peer)
}

fn outcome(series: &[Series], workload: Workload, bar: Bar) -> Result<Outcome> {
    let ours = find(series, ours(workload), workload)?;
    let (theirs, ratios, required): (_, Vec<f64>, _) = match bar {
        Bar::Times(peer, with, times) => {
            let theirs = find(series, peer, with)?;
            let ratios = ours.iter().zip(theirs).map(|(a, b)| a / b).collect();
            (Some(median(theirs)), ratios, times)
        }
        Bar::Rate(rate) => (None, ours.iter().map(|a| a / rate).collect(), 1.0),
    };
    let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
    let most = ratios.iter().copied().fold(0.0, f64::max);
    let what = match bar {
        Bar::Times(peer, ..) => {
            format!("{}, at least {required} times {}", workload.name(), peer.name())
        }
        Bar::Rate(rate) => {
            format!("{}, at least {rate:.0} {}", workload.name(), workload.unit())
        }
    };
    let ratio = [median(&ratios), least, most];
    Ok(Outcome { what, ours: median(ours), theirs, ratio, required, bar, workload })
}

fn claim(made: &Outcome, claims: &mut Claims) {
    let ([middle, least, most], unit) = (made.ratio, made.workload.unit());
    let figure = format!("{:.0} {unit}, {middle:.2} times ({least:.2} to {most:.2})", made.ours);
    let peer = made.theirs.map_or_else(String::new, |theirs| format!("{theirs:.0} {unit}"));
    claims.against(made.what.clone(), figure, peer, made.holds());
}

fn series_name(by: By, workload: Workload) -> String {
    format!("{}: {}", by.name(), workload.name())
}

fn sample(of: &Series) -> Value {
    json!({
        "series": series_name(of.by, of.workload),
        "unit": of.workload.unit(),
        "values": of.per_s.iter().map(|value| value.round()).collect::<Vec<_>>(),
    })
}

fn comparison(made: &Outcome) -> Value {
    let [middle, least, most] = made.ratio.map(|value| (value * 1000.0).round() / 1000.0);
    let theirs = match made.bar {
        Bar::Times(peer, with, _) => series_name(peer, with),
        Bar::Rate(rate) => format!("{rate:.0} {}", made.workload.unit()),
    };
    json!({
        "what": made.what,
        "ours": series_name(ours(made.workload), made.workload),
        "theirs": theirs,
        "ratio_median": middle,
        "ratio_min": least,
        "ratio_max": most,
        "required": made.required,
        "holds": made.holds(),
    })
}

/// Versions of what takes part.
fn software(root: &Path) -> Value {
    let version = |program: &str| {
        let text = run::text(Command::new(program).arg("--version")).unwrap_or_default();
        text.lines().next().unwrap_or_default().to_owned()
    };
    json!({
        "larder": record::commit(root),
        "bindfs": version("bindfs"),
        "mergerfs": version("mergerfs"),
        "rclone": version("rclone"),
        "fio": version("fio"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(by: By, workload: Workload, values: [f64; 3]) -> Series {
        Series { by, workload, per_s: values.into(), is_stuck: false }
    }

    #[test]
    fn a_bar_is_the_median_of_the_ratios_of_the_rounds() {
        let all = [
            series(LARDER, Workload::Creates, [140.0, 120.0, 130.0]),
            series(By::Bindfs, Workload::Creates, [100.0, 100.0, 100.0]),
        ];
        let bar = |times| Bar::Times(By::Bindfs, Workload::Creates, times);
        let made = outcome(&all, Workload::Creates, bar(1.3)).unwrap();
        assert!(made.holds() && (made.ratio[1] - 1.2).abs() < 1e-9, "{made:?}");
        assert!(!outcome(&all, Workload::Creates, bar(1.31)).unwrap().holds());
        let rate = |rate| outcome(&all, Workload::Creates, Bar::Rate(rate)).unwrap();
        assert!(rate(130.0).holds() && !rate(131.0).holds());
        assert!(outcome(&all, Workload::Deletes, bar(1.0)).is_err(), "nobody did that");
    }

    #[test]
    fn every_bar_is_about_a_workload_that_is_run_by_who_takes_part() {
        for (workload, bar) in BARS {
            assert!(Workload::ALL.contains(workload));
            if let Bar::Times(peer, with, _) = bar {
                assert!(ALL.contains(peer) && Workload::ALL.contains(with));
            }
        }
    }
}
