//! Speed over a unix socket, all hits, alternating with the peers in one run.
//!
//! Every server holds the same 1 GiB, has read it once, and stays up; in each round each server
//! gets one short trial of each workload, the order turning round from round to round. Compared
//! are the trials of the same round; the median and the spread of these ratios are shown. The
//! client and the server share the processors, so the processor time of the server per request is
//! recorded as well; and since fio itself is what limits the faster servers, a lean client of our
//! own asks them too.

pub(super) mod record;

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::{Claims, Lab, to_f64};
use crate::flood::{self, Kind};
use crate::image::{self, MIB};
use crate::server::{Larder, Peer, Recipe, Server};
use crate::{fio, run};

/// So much that 1 GiB of dirty pages stays below the limit at which writers are slowed down.
const OPTIONS: &str = "--memory 3072MiB --write-mode back";

const MEMORY: &str = "nbdkit memory";
const CACHE: &str = "nbdkit cache filter";
const QEMU: &str = "qemu-nbd writeback";

/// Who asks.
#[derive(Debug)]
enum Client {
    /// fio with these options: one look at the clock and more for each request.
    Fio(&'static [&'static str]),
    /// Our own, which costs next to nothing, with so many requests in flight.
    Flood(Kind, usize),
}

/// One workload, and how many times the peer's rate is promised.
#[derive(Debug)]
struct Workload {
    name: &'static str,
    client: Client,
    least: &'static [(&'static str, f64)],
    /// Whether the server must also use less processor time than the first peer.
    less_cpu: bool,
}

const WORKLOADS: &[Workload] = &[
    Workload {
        name: "4 KiB random read, depth 32",
        client: Client::Fio(&["--rw=randread", "--bs=4k", "--iodepth=32"]),
        least: &[(MEMORY, 1.35)],
        less_cpu: false,
    },
    Workload {
        name: "4 KiB random read, depth 1",
        client: Client::Fio(&["--rw=randread", "--bs=4k", "--iodepth=1"]),
        least: &[(MEMORY, 1.0)],
        less_cpu: false,
    },
    Workload {
        name: "1 MiB read, depth 4",
        client: Client::Fio(&["--rw=read", "--bs=1m", "--iodepth=4"]),
        least: &[(MEMORY, 1.25)],
        less_cpu: false,
    },
    Workload {
        name: "4 KiB random read, depth 32, lean client",
        client: Client::Flood(Kind::Read, 32),
        least: &[(MEMORY, 1.0), (CACHE, 3.0), (QEMU, 3.0)],
        less_cpu: true,
    },
    // Last: they make everything dirty.
    Workload {
        name: "4 KiB random write, depth 32",
        client: Client::Fio(&["--rw=randwrite", "--bs=4k", "--iodepth=32"]),
        least: &[(MEMORY, 0.95)],
        less_cpu: true,
    },
    Workload {
        name: "4 KiB random write, depth 32, lean client",
        client: Client::Flood(Kind::Write, 32),
        least: &[(MEMORY, 0.95), (CACHE, 3.0), (QEMU, 3.0)],
        less_cpu: true,
    },
];

/// What the trials of one server with one workload gave, in the order of the rounds.
#[derive(Debug, Default, Clone)]
struct Samples {
    per_s: Vec<f64>,
    cpu_ns: Vec<f64>,
}

/// Ours against a peer's; a ratio above 1 says that ours is better.
#[derive(Debug)]
struct Comparison {
    what: String,
    peer: &'static str,
    unit: &'static str,
    ours: f64,
    theirs: f64,
    ratio_median: f64,
    ratio_min: f64,
    ratio_max: f64,
    required: f64,
}

impl Comparison {
    fn holds(&self) -> bool {
        self.ratio_median >= self.required
    }
}

/// Runs the proof.
pub(super) fn run(lab: &Lab, claims: &mut Claims) -> Result<()> {
    let (mib, rounds, seconds) = lab.either((1024, 7, 3), (128, 3, 1));
    let servers = start(lab, mib)?;
    let started = record::now()?;
    let mut comparisons = Vec::new();
    let mut table = Vec::new();
    for workload in WORKLOADS {
        println!("   {}", workload.name);
        let samples = trials(&servers, workload, rounds, seconds)?;
        for &(peer, required) in workload.least {
            let theirs = servers.iter().position(|(name, _)| name == peer);
            let theirs = &samples[theirs.context("a peer that was not started")?];
            let first = comparisons.len();
            comparisons.push(rates(workload, &samples[0], theirs, peer, required));
            if workload.less_cpu && peer == MEMORY {
                comparisons.push(times(workload, &samples[0], theirs, peer));
            }
            comparisons[first..].iter().for_each(|comparison| claim(comparison, claims));
        }
        let names = servers.iter().map(|(name, _)| name.clone());
        table.extend(names.zip(samples).map(|(name, samples)| (workload.name, name, samples)));
    }
    if !lab.options.quick {
        let path = record::write(&lab.root, &started, &table, &comparisons, (seconds, mib))?;
        println!("   recorded in {}", path.display());
    }
    Ok(())
}

/// Starts all servers and makes each hold everything.
fn start(lab: &Lab, mib: u64) -> Result<Vec<(String, Server)>> {
    let ours = image::filled(&lab.file("speed.img"), mib, lab.options.seed)?;
    let copy = |name: &str| -> Result<_> {
        let path = lab.file(name);
        run::text(Command::new("cp").arg("--sparse=never").arg(&ours).arg(&path))?;
        Ok(path)
    };
    let recipes: [Box<dyn Recipe>; 4] = [
        Box::new(Larder::serving(&lab.binary, &ours, OPTIONS)),
        Box::new(Peer::NbdkitMemory(mib * MIB)),
        Box::new(Peer::NbdkitCache(copy("speed-cache.img")?)),
        Box::new(Peer::QemuNbd(copy("speed-qemu.img")?)),
    ];
    let mut servers = Vec::new();
    for recipe in recipes {
        let server = Server::start(recipe.as_ref(), lab.dir())?;
        if recipe.name() == MEMORY {
            fill(&server, &ours)?;
        }
        fio::run(&server.uri(), 0, &["--rw=read", "--bs=1m", "--iodepth=4"])?;
        servers.push((recipe.name(), server));
    }
    Ok(servers)
}

/// Memory that was never written would be read faster than data.
fn fill(server: &Server, image: &Path) -> Result<()> {
    run::text(run::client(300, "nbdcopy").args(["--sparse=0"]).arg(image).arg(server.uri()))?;
    Ok(())
}

/// Samples of each server, alternating.
fn trials(
    servers: &[(String, Server)],
    workload: &Workload,
    rounds: usize,
    seconds: u64,
) -> Result<Vec<Samples>> {
    let mut samples = vec![Samples::default(); servers.len()];
    for round in 0..rounds {
        for turn in 0..servers.len() {
            let index = (round + turn) % servers.len();
            let (name, server) = &servers[index];
            // Server after server is asked even where nothing is promised against it: the record
            // shows them all.
            let before = server.cpu()?;
            let outcome = match workload.client {
                Client::Fio(options) => fio::run(&server.uri(), seconds, options),
                Client::Flood(kind, depth) => flood::run(&server.socket(), kind, depth, seconds),
            };
            let outcome = outcome.with_context(|| format!("{} of {name}", workload.name))?;
            let used = server.cpu()?.saturating_sub(before);
            samples[index].per_s.push(outcome.per_s);
            samples[index].cpu_ns.push(used.as_secs_f64() * 1e9 / to_f64(outcome.requests));
        }
    }
    Ok(samples)
}

/// More requests are better.
fn rates(
    workload: &Workload,
    ours: &Samples,
    theirs: &Samples,
    peer: &'static str,
    required: f64,
) -> Comparison {
    let ratios: Vec<f64> = ours.per_s.iter().zip(&theirs.per_s).map(|(a, b)| a / b).collect();
    Comparison {
        what: format!("{}: requests", workload.name),
        peer,
        unit: "per s",
        ours: median(&ours.per_s),
        theirs: median(&theirs.per_s),
        ratio_median: median(&ratios),
        ratio_min: ratios.iter().copied().fold(f64::INFINITY, f64::min),
        ratio_max: ratios.iter().copied().fold(0.0, f64::max),
        required,
    }
}

/// Less processor time is better.
fn times(workload: &Workload, ours: &Samples, theirs: &Samples, peer: &'static str) -> Comparison {
    let swapped = Samples { per_s: theirs.cpu_ns.clone(), cpu_ns: Vec::new() };
    let other = Samples { per_s: ours.cpu_ns.clone(), cpu_ns: Vec::new() };
    let made = rates(workload, &swapped, &other, peer, 1.0);
    Comparison {
        what: format!("{}: processor time per request", workload.name),
        unit: "ns",
        ours: made.theirs,
        theirs: made.ours,
        ..made
    }
}

fn claim(made: &Comparison, claims: &mut Claims) {
    let Comparison { what, peer, unit, ours, theirs, required, .. } = made;
    claims.against(
        format!("{what}, at least {required} times as good as {peer}"),
        format!(
            "{:.2} times ({:.2} to {:.2}), {ours:.0} {unit}",
            made.ratio_median, made.ratio_min, made.ratio_max
        ),
        format!("{theirs:.0} {unit}"),
        made.holds(),
    );
}

/// The middle value, or the mean of the two in the middle.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_the_median_of_the_rounds_and_above_one_is_better() {
        let samples = |values: [f64; 3]| Samples { per_s: values.into(), cpu_ns: values.into() };
        let (ours, theirs) = (samples([150.0, 130.0, 140.0]), samples([100.0, 100.0, 100.0]));
        let made = rates(&WORKLOADS[0], &ours, &theirs, MEMORY, 1.4);
        assert!((made.ratio_median - 1.4).abs() < 1e-9 && made.holds());
        assert!((made.ratio_min - 1.3).abs() < 1e-9 && (made.ratio_max - 1.5).abs() < 1e-9);
        let made = times(&WORKLOADS[0], &ours, &theirs, MEMORY);
        assert!((made.ratio_median - 1.0 / 1.4).abs() < 1e-9 && !made.holds());
        assert!((made.ours - 140.0).abs() < 1e-9 && (made.theirs - 100.0).abs() < 1e-9);
        assert!((median(&[1.0, 4.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
    }
}
