//! The long proofs: each claim has a statement, a figure, the peer's figure, and a verdict.
//!
//! Each proof is a function that fills a list of claims; an error ends the proof and becomes a
//! failed claim. Proofs that measure no time run three at a time.
#![expect(clippy::unnecessary_wraps, reason = "all proofs have the same signature")]

mod advise;
mod auto;
mod balance;
mod bottleneck;
mod changes;
mod clients;
mod compare;
mod counters;
mod faults;
mod frag;
mod frag_repair;
mod fuse_volume;
mod fuzz;
mod guest;
mod hostile_clients;
mod iozone;
mod kernel_nbd;
mod kill;
mod lazy;
mod leak;
mod like;
mod long_tests;
mod md_members;
mod models;
mod mount;
mod mount_speed;
mod mutants;
mod package;
mod pages;
mod pairs;
mod policies;
mod policy_table;
mod posix;
mod postmark;
mod public_traces;
mod ranks;
mod recipes;
mod rss;
mod same_cache;
mod sim_memory;
mod sim_speed;
mod size;
mod slow_disk;
mod speed;
mod stack;
mod store_model;
mod supercache;
mod swap;
mod truth;
mod upstream;
mod warm;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use crate::cleanup::Scratch;
use crate::out::{self, outln};
use crate::server::{Larder, Server};
use crate::table::{self, Verdict};
use crate::{TaskStatus, packages, run};

/// Names that most proofs use.
mod prelude {
    pub(super) use std::path::{Path, PathBuf};
    pub(super) use std::process::Command;
    pub(super) use std::time::{Duration, Instant};

    pub(super) use anyhow::{Context as _, Result, bail, ensure};
    pub(super) use fastrand::Rng;
    pub(super) use serde_json::{Value, json};

    pub(super) use super::{Claims, Env, require};
    pub(super) use crate::fio;
    pub(super) use crate::image::{self, MIB};
    pub(super) use crate::out::outln;
    pub(super) use crate::record::{self, number};
    pub(super) use crate::run::{self, capture, cmd, json_of, missing_program, stdout_of};
    pub(super) use crate::server::{Peer, Server};
    pub(super) use crate::stats::to_f64;
}

/// The condition under which a proof may run in parallel with others.
enum Parallel {
    Always,
    /// In the short form, which checks no times.
    IfQuick,
    /// The proof measures time, or uses the whole machine.
    Never,
}

pub(crate) struct Proof {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// The subject of the proof.
    pub(crate) description: &'static str,
    parallel: Parallel,
    /// False if the proof builds all that it runs.
    uses_binary: bool,
    run: Run,
}

type Run = fn(&Env, &mut Claims) -> Result<()>;

const fn proof(
    name: &'static str,
    description: &'static str,
    parallel: Parallel,
    run: Run,
) -> Proof {
    Proof { name, description, parallel, uses_binary: true, run }
}

/// A proof that does not run in parallel.
const fn serial(name: &'static str, description: &'static str, run: Run) -> Proof {
    proof(name, description, Parallel::Never, run)
}

/// A proof that does not run in parallel, and that needs no binary.
const fn of_sources(name: &'static str, description: &'static str, run: Run) -> Proof {
    Proof { uses_binary: false, ..serial(name, description, run) }
}

use Parallel::{Always, IfQuick};
use long_tests::bench;

/// All proofs, in the order of the output.
pub(crate) const PROOFS: &[Proof] = &[
    proof("clients", "real clients get no error, no wrong data", Always, clients::run),
    proof("faults", "a store that fills, shrinks, stalls, is shared", IfQuick, faults::run),
    proof(
        "wrong-input",
        "fuzzing of NBD beside a healthy client",
        IfQuick,
        long_tests::wrong_input,
    ),
    serial("hostile-clients", "memory and service under hostile clients", hostile_clients::run),
    proof("kill", "kill -9 under load loses nothing flushed", Always, kill::run),
    serial("kernel-nbd", "the kernel's NBD client, in a virtual machine", kernel_nbd::run),
    serial("swap", "PostMark while memory is short, in a virtual machine", swap::run),
    of_sources("md-members", "operations of arrays, against Linux md's", md_members::run),
    serial("package", "the packages, from installation to purge (root)", package::run),
    serial("fuse-volume", "ext4, xfs, btrfs on a volume as a file (root)", fuse_volume::run),
    serial("mount", "everyday programs on a mounted directory (root)", mount::run),
    serial("posix", "external test suites on mounts and volumes (root)", posix::run),
    serial("mount-speed", "against bindfs, mergerfs and rclone (root)", mount_speed::run),
    serial("supercache", "a disk of 100 operations per second, cached (root)", supercache::run),
    serial("setuid", "writes that take rights, and programs at once (root)", long_tests::setuid),
    proof("live", "clients verify while every setting changes", IfQuick, changes::run),
    proof("rss", "memory stays within --memory plus 32 MiB", IfQuick, rss::run),
    serial("lazy", "lazy write on a slow disk (root)", lazy::run),
    serial("speed", "all hits, against the peers", speed::run),
    serial("pairs", "the speed of two binaries, alternating (root)", pairs::run),
    serial("in-process", "hits without a socket", |env, claims| {
        bench(env, claims, "larder-io --bench hit --")
    }),
    proof("trace-fuzz", "malformed traces of every format", IfQuick, long_tests::trace_fuzz),
    serial("default-policy", "the default policy, against all others on traces", |env, claims| {
        bench(env, claims, "larder-lab --bench tuning -- default-policy")
    }),
    serial("policies", "all policies, against libCacheSim's", policy_table::run),
    proof("like", "traces fitted to others, against their curves", Always, like::run),
    serial("same-cache", "a trace replayed to the server and simulated", same_cache::run),
    serial("store-model", "predicted times on a throttled disk (root)", store_model::run),
    serial("models", "models fitted to devices of four kinds (root)", models::run),
    proof("advise", "the advised array, against all candidates", Always, advise::run),
    serial("counters", "counters of the host, beside iostat and sar (root)", counters::run),
    serial("bottleneck", "six provoked situations, each with its answer (root)", bottleneck::run),
    serial("balance", "moves between four disks, planned and made (root)", balance::run),
    serial("frag", "extents, free space and cost, beside filefrag and a disk (root)", frag::run),
    serial("frag-repair", "repairs that are killed, beside e4defrag (root)", frag_repair::run),
    serial("stack", "devices between a file and its disks (a virtual machine)", stack::run),
    serial("truth", "predictions beside measurements (root)", truth::run),
    serial("sim-speed", "the simulator, against libCacheSim", sim_speed::run),
    serial("sim-memory", "memory of a sweep, against that of its caches", sim_memory::run),
    serial("intervals", "intervals of samples, against caches of full size", |env, claims| {
        bench(env, claims, "larder-lab --bench intervals --")
    }),
    serial("size", "the recommended size, against full sweeps", size::run),
    serial("leak", "a floor, a flood and a leak (root)", leak::run),
    serial("page-size", "page sizes and client threads under a database", policies::page_size),
    serial("auto", "--policy auto, against each policy", auto::run),
    serial("online-curve", "the online curve, against the exact one", |env, claims| {
        bench(env, claims, "larder-lab --bench tuning -- curve")
    }),
    serial("curve-cost", "instructions that the curve adds to a hit", |env, claims| {
        bench(env, claims, "larder-io --bench hit_cost -- claims")
    }),
    serial("share", "--share auto, against fixed divisions", |env, claims| {
        bench(env, claims, "larder-lab --bench tuning -- share")
    }),
    serial("warm", "a restart that reads back what was cached", warm::run),
    serial("compare", "larder compare, against known differences", compare::run),
    proof("iozone", "the grid of IOzone on 4 GiB (root)", IfQuick, iozone::run),
    serial("slow-disk", "benchmarks on a disk of 100 operations per second", slow_disk::run),
    proof("postmark", "PostMark, against Debian's", IfQuick, postmark::run),
    serial("matrix", "file systems and schedulers (root)", long_tests::matrix),
    serial("ranks", "mpirun and two namespaces: one barrier, one total", ranks::run),
    proof("pages", "the pages of all commands in Chromium, with axe-core", Always, pages::run),
    serial("watch", "hits and misses, exact and cheap (root)", watch::run),
    serial("size-live", "a recording predicts the kernel's cache (root)", watch::size_live),
    serial("fuzz", "fuzzing of all readers and parsers; counts executions", fuzz::run),
    of_sources("mutants", "mutations of the core that its tests catch", mutants::run),
    of_sources("recipes", "the recipes of docs/ARCHITECTURE.md, followed", recipes::run),
    serial("simulation", "20,000 seeds of crashes and faults", long_tests::simulation),
];

/// Options of the command line.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// True for seconds instead of minutes.
    pub(crate) quick: bool,
    /// The time for fuzzing or simulation.
    pub(crate) time: Option<Duration>,
    /// The seed of all random numbers.
    pub(crate) seed: u64,
    /// The binary to test, instead of a new build.
    pub(crate) binary: Option<PathBuf>,
    /// The binary that `pairs` compares with.
    pub(crate) against: Option<PathBuf>,
    /// The executable of the bench `hit` that `pairs` compares with.
    pub(crate) against_hits: Option<PathBuf>,
    /// The suites and the variants of `posix`, or words of the loads of `pairs`, separated by
    /// commas; all if `None`.
    pub(crate) suite: Option<String>,
    pub(crate) variant: Option<String>,
    /// The sources of xfstests.
    pub(crate) xfstests: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            quick: false,
            time: None,
            seed: 1,
            binary: None,
            against: None,
            against_hits: None,
            suite: None,
            variant: None,
            xfstests: std::env::var_os("LARDER_XFSTESTS").map(PathBuf::from),
        }
    }
}

/// The environment of one proof: options, the binary, and its scratch directory.
pub(crate) struct Env {
    options: Options,
    larder: PathBuf,
    root: PathBuf,
    scratch: Scratch,
}

impl Env {
    /// Returns the directory for images and sockets.
    fn dir(&self) -> &Path {
        self.scratch.path()
    }

    /// Returns the path of a file in that directory.
    fn file(&self, name: &str) -> PathBuf {
        self.dir().join(name)
    }

    /// Returns the first value in the long form, the second in the short one.
    fn choose<T>(&self, long: T, quick: T) -> T {
        if self.options.quick { quick } else { long }
    }

    fn fuzz_seconds(&self) -> u64 {
        let default = self.choose(Duration::from_hours(1), Duration::from_secs(5));
        self.options.time.unwrap_or(default).as_secs()
    }

    /// Returns the path of a shared trace next to the repository, if it exists.
    fn trace(&self, name: &str) -> Option<PathBuf> {
        Some(self.root.join("../shared/traces").join(name)).filter(|path| path.exists())
    }

    /// Prepares `larder serve` with volumes, each `PATH` or `NAME=PATH`, and options in one line.
    fn larder(&self, volumes: &[&str], options: &str) -> Larder<'_> {
        let volumes = volumes.iter().map(|&volume| volume.to_owned()).collect();
        Larder { binary: &self.larder, volumes, options: options.to_owned() }
    }

    /// Starts a server of one image, with options in one line.
    fn serve(&self, image: &Path, options: &str) -> Result<Server> {
        self.larder(&[&image.to_string_lossy()], options).start(self.dir())
    }
}

/// A line of the final table.
#[derive(Debug)]
pub(crate) struct Claim {
    /// The proof of this claim.
    pub(crate) proof: &'static str,
    /// The statement.
    pub(crate) statement: String,
    pub(crate) figure: String,
    pub(crate) peer: String,
    pub(crate) verdict: Verdict,
}

/// The claims of a proof, printed as they are added.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    proof: &'static str,
    list: Vec<Claim>,
}

impl Claims {
    /// Adds a claim with the figure of the peer.
    fn add_with_peer(
        &mut self,
        statement: impl Into<String>,
        figure: impl Into<String>,
        peer: impl Into<String>,
        verdict: impl Into<Verdict>,
    ) {
        let (statement, figure, peer) = (statement.into(), figure.into(), peer.into());
        let verdict = verdict.into();
        outln!("   {statement}: {figure} [{}]", verdict.word());
        self.list.push(Claim { proof: self.proof, statement, figure, peer, verdict });
    }

    /// Adds a claim without a peer.
    fn add(&mut self, statement: impl Into<String>, figure: impl Into<String>, holds: bool) {
        self.add_with_peer(statement, figure, "", holds);
    }

    /// Adds a claim that cannot be checked on this machine.
    fn skip(&mut self, statement: impl Into<String>, reason: impl Into<String>) {
        self.add_with_peer(statement, reason, "", Verdict::Skipped);
    }

    /// Adds the claims that a test or a benchmark printed, and prints the rest of its output.
    fn collect(&mut self, out: &str) -> Result<()> {
        let before = self.list.len();
        for line in out.lines() {
            // libtest prints the first line of a test after its name.
            let fields = line.split_once("claim\t").map(|(_, rest)| rest.split('\t').collect());
            match fields.unwrap_or(Vec::new())[..] {
                [statement, figure, peer, verdict] => {
                    self.add_with_peer(statement, figure, peer, Verdict::of_word(verdict));
                }
                _ => outln!("   {line}"),
            }
        }
        ensure!(self.list.len() > before, "the output contains no claim:\n{}", run::tail(out));
        Ok(())
    }

    /// Adds a claim that holds if `work` succeeds, with its figure. The claim is skipped if a
    /// requirement is missing.
    fn check(&mut self, statement: impl Into<String>, work: impl FnOnce() -> Result<String>) {
        match work() {
            Ok(figure) => self.add(statement, figure, true),
            Err(error) => {
                let message = format!("{error:#}");
                let first = message.lines().next().unwrap_or_default();
                if error.is::<MissingRequirement>() {
                    return self.skip(statement, first);
                }
                outln!("{message}");
                self.add(statement, first, false);
            }
        }
    }
}

/// A requirement that is missing on this machine.
#[derive(Debug)]
struct MissingRequirement(String);

impl std::fmt::Display for MissingRequirement {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

/// Returns an error that skips the claim, if a requirement is missing.
fn require(missing: Option<String>) -> Result<()> {
    missing.map_or(Ok(()), |reason| bail!(MissingRequirement(reason)))
}

/// Returns the binary under test; builds it if the options name none.
fn binary(options: &Options) -> Result<PathBuf> {
    if let Some(path) = &options.binary {
        return path.canonicalize().with_context(|| format!("find {}", path.display()));
    }
    println!("building larder");
    run::build_executable(
        &run::workspace()?,
        &["build", "--profile", "dist", "--features", "full", "--package", "larder"],
        "larder",
    )
}

/// Runs the named proofs: first those that may run in parallel, three at a time.
pub(crate) fn claims(names: &[&str], options: &Options) -> Result<Vec<Claim>> {
    let unknown = names.iter().find(|&&name| PROOFS.iter().all(|proof| proof.name != name));
    ensure!(unknown.is_none(), "no proof '{}'", unknown.unwrap_or(&""));
    let uses_binary =
        |name: &&str| PROOFS.iter().any(|proof| proof.name == *name && proof.uses_binary);
    let larder = if names.iter().any(uses_binary) { binary(options)? } else { PathBuf::new() };
    let root = run::workspace()?;
    let run_proof = |proof: &Proof| -> Vec<Claim> {
        let mut claims = Claims { proof: proof.name, list: Vec::new() };
        outln!("\n== prove {}: {}", proof.name, proof.description);
        let done = Scratch::new().and_then(|scratch| {
            let (options, larder, root) = (options.clone(), larder.clone(), root.clone());
            (proof.run)(&Env { options, larder, root, scratch }, &mut claims)
        });
        if let Err(error) = done {
            claims.check("the proof can be carried out", || Err(error));
        } else if claims.list.is_empty() {
            claims.add("the proof makes a claim", "no claim", false);
        }
        claims.list
    };
    let may_run_parallel = |proof: &&Proof| match proof.parallel {
        Parallel::Always => true,
        Parallel::IfQuick => options.quick,
        Parallel::Never => false,
    };
    let wanted = PROOFS.iter().filter(|proof| names.contains(&proof.name));
    let (shared, alone): (Vec<_>, Vec<_>) = wanted.partition(may_run_parallel);
    let (queue, done) = (Mutex::new(shared.into_iter()), Mutex::new(Vec::new()));
    let next = || queue.lock().expect("no proof panics while it holds the queue").next();
    let work = || {
        while let Some(proof) = next() {
            out::start_buffering();
            let made = run_proof(proof);
            let mut done = done.lock().expect("nothing panics while it holds the claims");
            print!("{}", out::take_buffered());
            done.extend(made);
        }
    };
    std::thread::scope(|scope| [(); 3].map(|()| drop(scope.spawn(work))));
    let mut all = done.into_inner().expect("nothing panics while it holds the claims");
    all.extend(alone.into_iter().flat_map(run_proof));
    all.sort_by_key(|claim| PROOFS.iter().position(|proof| proof.name == claim.proof));
    Ok(all)
}

/// `prove [NAME...] [OPTIONS]`.
pub(crate) fn command(args: &[String]) -> Result<TaskStatus> {
    let (names, options) = parse(args)?;
    if let Err(error) = packages::install() {
        println!("{error:#}; claims that need them fail or are skipped");
    }
    let claims = claims(&names, &options)?;
    let row = |claim: &Claim| {
        let statement = format!("{}: {}", claim.proof, claim.statement);
        vec![statement, claim.figure.clone(), claim.peer.clone(), claim.verdict.word().to_owned()]
    };
    let rows: Vec<_> = claims.iter().map(row).collect();
    println!();
    table::print(&["what was to be shown", "figure", "peer's figure", "holds"], &rows);
    let count = |verdict| claims.iter().filter(|claim| claim.verdict == verdict).count();
    let [hold, fail, skipped] = [Verdict::Holds, Verdict::Fails, Verdict::Skipped].map(count);
    println!("\n{hold} hold, {fail} do not hold, {skipped} skipped");
    // A run that skips every claim is a failure.
    Ok(if fail == 0 && hold > 0 { TaskStatus::Passed } else { TaskStatus::Failed })
}

fn parse(args: &[String]) -> Result<(Vec<&str>, Options)> {
    let mut names = Vec::new();
    let mut options = Options::default();
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let mut value = || rest.next().with_context(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--quick" => options.quick = true,
            "--for" => options.time = Some(duration(value()?)?),
            "--seed" => options.seed = value()?.parse().context("--seed needs a number")?,
            "--binary" => options.binary = Some(PathBuf::from(value()?)),
            "--against" => options.against = Some(PathBuf::from(value()?)),
            "--against-hits" => options.against_hits = Some(PathBuf::from(value()?)),
            "--suite" => options.suite = Some(value()?.to_owned()),
            "--variant" => options.variant = Some(value()?.to_owned()),
            "--xfstests" => options.xfstests = Some(PathBuf::from(value()?)),
            name if PROOFS.iter().any(|proof| proof.name == name) => names.push(name),
            other => bail!("no proof and no option '{other}'; see `cargo xtask help`"),
        }
    }
    if names.is_empty() {
        names.extend(PROOFS.iter().map(|proof| proof.name));
    }
    Ok((names, options))
}

/// Returns the entries whose name contains one of the words of an option, which commas separate;
/// all entries without words.
///
/// # Errors
/// A word is in no name.
fn selected<'a, T>(
    option: &str,
    words: Option<&str>,
    entries: &'a [T],
    name: impl Fn(&T) -> &'static str,
) -> Result<Vec<&'a T>> {
    let Some(words) = words else { return Ok(entries.iter().collect()) };
    let has = |entry: &T, word: &str| name(entry).contains(word);
    for word in words.split(',') {
        ensure!(
            entries.iter().any(|entry| has(entry, word)),
            "{option} {word}: no name contains it; the names are {}",
            entries.iter().map(&name).collect::<Vec<_>>().join("; ")
        );
    }
    Ok(entries.iter().filter(|entry| words.split(',').any(|word| has(entry, word))).collect())
}

/// Parses a time such as 90s, 10m, 1h.
fn duration(text: &str) -> Result<Duration> {
    let seconds = [("s", 1), ("m", 60), ("h", 3600)].iter().find_map(|(unit, seconds)| {
        let count: u64 = text.strip_suffix(unit)?.parse().ok()?;
        count.checked_mul(*seconds)
    });
    seconds.map(Duration::from_secs).with_context(|| format!("no time: '{text}'; try 90s, 10m, 1h"))
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
        assert_eq!(options.time, Some(Duration::from_mins(10)));
        assert_eq!(parse(&[]).unwrap().0.len(), PROOFS.len());
        assert!(parse(&["nothing".to_owned()]).is_err());
        assert!(duration("10").is_err() && duration("h").is_err());
    }

    #[test]
    fn an_option_selects_by_words_of_which_each_is_in_a_name() {
        let names = ["fsx", "tree", "stress-ng"];
        let of = |words| selected("--suite", words, &names, |name| name);
        assert_eq!(of(None).unwrap().len(), 3);
        assert_eq!(of(Some("stress,fsx")).unwrap(), [&"fsx", &"stress-ng"]);
        let error = of(Some("fsx,nothing")).unwrap_err().to_string();
        let expected = "--suite nothing: no name contains it; the names are fsx; tree; stress-ng";
        assert_eq!(error, expected);
    }

    #[test]
    fn claims_come_from_code_and_from_output() {
        let mut claims = Claims::default();
        claims.check("it works", || bail!("why\nmore"));
        claims.collect("noise\ntest x ... claim\tfast\t1 s\t2 s\tyes\n").unwrap();
        let [failed, fast] = &claims.list[..] else { panic!("{claims:?}") };
        assert_eq!((&*failed.figure, failed.verdict), ("why", Verdict::Fails));
        assert_eq!((&*fast.figure, &*fast.peer, fast.verdict), ("1 s", "2 s", Verdict::Holds));
        assert!(claims.collect("running 0 tests").is_err(), "nothing was shown");
    }
}
