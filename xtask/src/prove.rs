//! The long proofs: what was to be shown, the figure, the peer's figure, whether it holds.
//!
//! Each proof is a module. It fills a list of claims; an error ends the proof and becomes a claim
//! that does not hold, so that nothing is left out in silence.

mod clients;
mod compare;
mod default_policy;
mod faults;
mod fuse_volume;
mod fuzz;
mod guest;
mod in_process;
mod iozone;
pub(crate) mod kernel_nbd;
mod kill;
mod lazy;
mod leak;
mod live;
mod matrix;
mod mount;
mod mount_speed;
mod page_size;
mod postmark;
mod ranks;
mod rss;
mod same_cache;
mod settings;
mod sim_memory;
mod sim_speed;
mod simulation;
mod size;
mod slow_disk;
mod speed;
mod supercache;
mod trace_fuzz;
mod tuning;
mod unrest;
mod upstream;
mod warm;
mod watch;
mod wrong_input;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::server::{Larder, Server};
use crate::table::{self, Verdict};
use crate::undo::Scratch;
use crate::{Ending, packages, run};

/// One proof.
#[derive(Debug)]
pub(crate) struct Proof {
    /// What it is called on the command line.
    pub(crate) name: &'static str,
    /// What it shows.
    pub(crate) about: &'static str,
    run: fn(&Lab, &mut Claims) -> Result<()>,
}

/// All proofs, in the order in which they run.
pub(crate) const PROOFS: &[Proof] = &[
    Proof {
        name: "clients",
        about: "real clients meet no error, no difference",
        run: clients::run,
    },
    Proof {
        name: "faults",
        about: "a store that fills, shrinks, stalls, is shared",
        run: faults::run,
    },
    Proof { name: "wrong-input", about: "one clear sentence each; fuzzing", run: wrong_input::run },
    Proof { name: "kill", about: "kill -9 under load loses nothing flushed", run: kill::run },
    Proof {
        name: "kernel-nbd",
        about: "the kernel's NBD client, in a virtual machine",
        run: kernel_nbd::run,
    },
    Proof {
        name: "fuse-volume",
        about: "ext4, xfs, btrfs on a volume as a file (root)",
        run: fuse_volume::run,
    },
    Proof {
        name: "mount",
        about: "the programs that people use, on a mounted folder (root)",
        run: mount::run,
    },
    Proof {
        name: "mount-speed",
        about: "a mounted folder, against bindfs, mergerfs and rclone (root)",
        run: mount_speed::run,
    },
    Proof {
        name: "supercache",
        about: "a disk of 100 operations per second, without and with a cache (root)",
        run: supercache::run,
    },
    Proof { name: "live", about: "clients verify while every setting changes", run: live::run },
    Proof { name: "rss", about: "memory stays within what was asked for", run: rss::run },
    Proof { name: "lazy", about: "lazy write on a slow disk (root)", run: lazy::run },
    Proof { name: "speed", about: "all hits, against the peers", run: speed::run },
    Proof { name: "in-process", about: "hits without a socket", run: in_process::run },
    Proof {
        name: "trace-fuzz",
        about: "wrong traces of every format harm nobody",
        run: trace_fuzz::run,
    },
    Proof {
        name: "default-policy",
        about: "the default hits most over the block traces",
        run: default_policy::run,
    },
    Proof {
        name: "same-cache",
        about: "a trace replayed to the server and simulated",
        run: same_cache::run,
    },
    Proof { name: "sim-speed", about: "the simulator, against libCacheSim", run: sim_speed::run },
    Proof {
        name: "sim-memory",
        about: "memory of a sweep, beside what its caches need",
        run: sim_memory::run,
    },
    Proof { name: "size", about: "the recommended size, against full sweeps", run: size::run },
    Proof { name: "leak", about: "a floor, a flood and a leak (root)", run: leak::run },
    Proof {
        name: "page-size",
        about: "page sizes and client threads under a database",
        run: page_size::run,
    },
    Proof { name: "auto", about: "--policy auto, against each policy", run: tuning::auto },
    Proof {
        name: "online-curve",
        about: "the curve of the running cache, against the exact one",
        run: tuning::online_curve,
    },
    Proof { name: "curve-cost", about: "what the curve costs a hit", run: tuning::curve_cost },
    Proof { name: "share", about: "--share auto, against fixed divisions", run: tuning::share },
    Proof { name: "warm", about: "a restart that reads back what was cached", run: warm::run },
    Proof {
        name: "compare",
        about: "larder compare, against what is known to be so",
        run: compare::run,
    },
    Proof { name: "iozone", about: "the grid of IOzone on 4 GiB (root)", run: iozone::run },
    Proof {
        name: "slow-disk",
        about: "the benchmarks on a disk of 100 operations per second (root)",
        run: slow_disk::run,
    },
    Proof { name: "postmark", about: "PostMark, beside Debian's", run: postmark::run },
    Proof {
        name: "matrix",
        about: "file systems and schedulers, the machine as before (root)",
        run: matrix::run,
    },
    Proof {
        name: "ranks",
        about: "mpirun and two namespaces: one barrier, one total",
        run: ranks::run,
    },
    Proof {
        name: "watch",
        about: "hits and misses by file and process, exact and cheap (root)",
        run: watch::run,
    },
    Proof {
        name: "size-live",
        about: "a live recording predicts the kernel's cache (root)",
        run: watch::size_live,
    },
    Proof { name: "simulation", about: "20,000 seeds of crashes and faults", run: simulation::run },
];

/// What was asked for on the command line.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// Seconds instead of minutes.
    pub(crate) quick: bool,
    /// How long to fuzz, if said.
    pub(crate) fuzz: Option<Duration>,
    /// The seed of everything random.
    pub(crate) seed: u64,
    /// The binary to prove instead of building one.
    pub(crate) binary: Option<PathBuf>,
    /// Whether to keep new inputs of the fuzzer.
    pub(crate) keep: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { quick: false, fuzz: None, seed: 1, binary: None, keep: false }
    }
}

/// Where a proof works.
#[derive(Debug)]
pub(crate) struct Lab {
    options: Options,
    binary: PathBuf,
    root: PathBuf,
    scratch: Scratch,
}

impl Lab {
    fn new(options: &Options) -> Result<Self> {
        let binary = match &options.binary {
            Some(path) => {
                path.canonicalize().with_context(|| format!("find {}", path.display()))?
            }
            None => build()?,
        };
        let (root, scratch) = (run::workspace()?, Scratch::new()?);
        Ok(Self { options: options.clone(), binary, root, scratch })
    }

    /// The directory for images and sockets.
    fn dir(&self) -> &Path {
        self.scratch.path()
    }

    /// A file in that directory.
    fn file(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    /// One value for the long form, another for the short one.
    fn either<T>(&self, long: T, quick: T) -> T {
        if self.options.quick { quick } else { long }
    }

    /// Serves one image with options given as one line.
    fn serve(&self, image: &Path, options: &str) -> Result<Server> {
        Server::start(&Larder::serving(&self.binary, image, options), self.dir())
    }
}

/// One line of the final table.
#[derive(Debug)]
pub(crate) struct Claim {
    /// The proof it comes from.
    pub(crate) proof: &'static str,
    /// What was to be shown.
    pub(crate) what: String,
    /// What came out.
    pub(crate) figure: String,
    /// What came out with the peer.
    pub(crate) peer: String,
    /// Whether it was shown.
    pub(crate) verdict: Verdict,
}

/// The claims of a run, printed as they come.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    proof: &'static str,
    list: Vec<Claim>,
}

impl Claims {
    /// A claim with the peer's figure beside.
    fn against(
        &mut self,
        what: impl Into<String>,
        figure: impl Into<String>,
        peer: impl Into<String>,
        verdict: impl Into<Verdict>,
    ) {
        let (what, figure, peer) = (what.into(), figure.into(), peer.into());
        let verdict = verdict.into();
        println!("   {what}: {figure} [{}]", verdict.word());
        self.list.push(Claim { proof: self.proof, what, figure, peer, verdict });
    }

    /// A claim without a peer.
    fn add(&mut self, what: impl Into<String>, figure: impl Into<String>, holds: bool) {
        self.against(what, figure, "", holds);
    }

    /// A claim that cannot be tried here.
    fn skip(&mut self, what: impl Into<String>, reason: impl Into<String>) {
        self.against(what, reason, "", Verdict::Skipped);
    }

    /// A claim that holds, with the figure, unless the work fails.
    fn tried(&mut self, what: impl Into<String>, work: impl FnOnce() -> Result<String>) {
        match work() {
            Ok(figure) => self.add(what, figure, true),
            Err(error) => {
                let message = format!("{error:#}");
                println!("{message}");
                self.add(what, message.lines().next().unwrap_or_default(), false);
            }
        }
    }
}

/// Builds the product; answers where the binary is.
fn build() -> Result<PathBuf> {
    println!("building larder");
    let mut cargo = run::cargo(&run::workspace()?);
    cargo.args(["build", "--release", "--package", "larder", "--message-format=json"]);
    let text = run::text(&mut cargo)?;
    let mut executables = text.lines().filter_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        Some(PathBuf::from(message["executable"].as_str()?))
    });
    executables
        .rfind(|path| path.file_name().is_some_and(|name| name == "larder"))
        .context("cargo built no binary called larder")
}

/// Runs the named proofs.
pub(crate) fn claims(names: &[&str], options: &Options) -> Result<Vec<Claim>> {
    let lab = Lab::new(options)?;
    let mut claims = Claims::default();
    for proof in PROOFS.iter().filter(|proof| names.contains(&proof.name)) {
        println!("\n== prove {}: {}", proof.name, proof.about);
        claims.proof = proof.name;
        if let Err(error) = (proof.run)(&lab, &mut claims) {
            claims.tried("the proof can be carried out", || Err(error));
        }
    }
    Ok(claims.list)
}

/// `prove [NAME...] [OPTIONS]`.
pub(crate) fn command(args: &[String]) -> Result<Ending> {
    let (names, options) = parse(args)?;
    if let Err(error) = packages::install() {
        println!("{error:#}; what needs them will fail");
    }
    let claims = claims(&names, &options)?;
    let rows: Vec<Vec<String>> = claims
        .iter()
        .map(|claim| {
            let what = format!("{}: {}", claim.proof, claim.what);
            vec![what, claim.figure.clone(), claim.peer.clone(), claim.verdict.word().to_owned()]
        })
        .collect();
    println!();
    table::print(&["what was to be shown", "figure", "peer's figure", "holds"], &rows);
    let broken = claims.iter().any(|claim| claim.verdict == Verdict::Fails);
    Ok(if broken { Ending::Broken } else { Ending::Holds })
}

fn parse(args: &[String]) -> Result<(Vec<&str>, Options)> {
    let mut names = Vec::new();
    let mut options = Options::default();
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let mut value = || rest.next().with_context(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--quick" => options.quick = true,
            "--keep" => options.keep = true,
            "--for" => options.fuzz = Some(duration(value()?)?),
            "--seed" => options.seed = value()?.parse().context("--seed needs a number")?,
            "--binary" => options.binary = Some(PathBuf::from(value()?)),
            name if PROOFS.iter().any(|proof| proof.name == name) => names.push(name),
            other => bail!("no proof and no option '{other}'; see `cargo xtask help`"),
        }
    }
    if names.is_empty() {
        names.extend(PROOFS.iter().map(|proof| proof.name));
    }
    Ok((names, options))
}

/// A time such as 90s, 10m, 1h.
fn duration(text: &str) -> Result<Duration> {
    let seconds = [("s", 1), ("m", 60), ("h", 3600)].iter().find_map(|(unit, seconds)| {
        let count: u64 = text.strip_suffix(unit)?.parse().ok()?;
        count.checked_mul(*seconds)
    });
    seconds.map(Duration::from_secs).with_context(|| format!("no time: '{text}'; try 90s, 10m, 1h"))
}

/// A count as a number to calculate with.
#[expect(clippy::cast_precision_loss, reason = "counts here stay far below 2^53")]
pub(crate) fn to_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_name_proofs_and_options() {
        let args = ["kill", "--quick", "--for", "10m", "rss", "--seed", "7"].map(str::to_owned);
        let (names, options) = parse(&args).unwrap();
        assert_eq!(names, ["kill", "rss"]);
        assert!(options.quick && options.seed == 7);
        assert_eq!(options.fuzz, Some(Duration::from_mins(10)));
        assert_eq!(parse(&[]).unwrap().0.len(), PROOFS.len());
        assert!(parse(&["nothing".to_owned()]).is_err());
        assert!(duration("10").is_err() && duration("h").is_err());
    }

    #[test]
    fn a_broken_proof_is_a_claim_that_fails() {
        let mut claims = Claims::default();
        claims.tried("it works", || bail!("why\nmore"));
        assert_eq!(claims.list[0].figure, "why");
        assert_eq!(claims.list[0].verdict, Verdict::Fails);
    }
}
