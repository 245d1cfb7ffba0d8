//! Two binaries of larder, alternating: the one under test, and one of another commit or profile
//! given by `--against`. Rates in pairs, with the 95 % interval of the median ratio.
//!
//! The two run concurrently on separate data. They are restarted for every few pairs, since the
//! placement of a process in memory changes its speed.

use super::mount::fuse::{FuseMount, Program};
use super::mount_speed::{postmark, reads};
use super::prelude::*;
use super::selected;
use crate::cleanup::Scratch;
use crate::disk::FileSystem;
use crate::flood;
use crate::nbd::Command as Request;
use crate::record::Record;
use crate::server::Larder;
use crate::stats::{Interval, Spread, median, run_alternating};
use tempfile::TempDir;

/// The number of starts of both binaries, and of pairs of trials after each.
const STARTS: usize = 10;
const PAIRS: usize = 4;
/// Below this ratio a binary is slower, if the interval does not contain 1.
const RATIO_MIN: f64 = 0.97;
/// A wider interval that contains 1 proves nothing.
const WIDTH_MAX: f64 = 0.1;
const IMAGE_MIB: u64 = 256;
const DISK_MIB: u64 = 1024;
const SIMULATED_REQUESTS: u32 = 500_000;
const SERVE: &str = "--memory 512MiB --write-mode back";
const MOUNT: Program =
    Program { name: "larder", line: "LARDER mount --control none --memory 512MiB" };

/// The workload of a trial.
#[derive(Clone, Copy)]
enum Load {
    /// Requests of the lean NBD client, with a number of them in flight.
    Flood(Request, usize),
    /// fio on the export.
    Fio(&'static str),
    /// fio on a file of a mounted directory.
    Reads(&'static str),
    /// Debian's PostMark in a mounted directory.
    PostMark,
    /// A simulation of the whole cache, without a server.
    Simulation,
}

const LOADS: [(&str, &str, Load); 8] = [
    ("NBD, 4 KiB random reads, depth 1", "reads/s", Load::Flood(Request::Read, 1)),
    ("NBD, 4 KiB random reads, depth 32", "reads/s", Load::Flood(Request::Read, 32)),
    ("NBD, 4 KiB random writes, depth 32", "writes/s", Load::Flood(Request::Write, 32)),
    ("NBD, 1 MiB reads, depth 4", "reads/s", Load::Fio("--rw=read --bs=1m --iodepth=4")),
    ("FUSE, 4 KiB random reads", "reads/s", Load::Reads("--direct=1 --rw=randread --bs=4k")),
    (
        "FUSE, 4 KiB random reads, 2 jobs",
        "reads/s",
        Load::Reads("--direct=1 --rw=randread --bs=4k --numjobs=2 --group_reporting"),
    ),
    ("FUSE, PostMark", "transactions/s", Load::PostMark),
    ("simulation of the whole cache", "requests/s", Load::Simulation),
];

/// Hits without a server, and the rows of the bench `hit` with their times.
const HITS: [(&str, &str); 2] = [
    ("4 KiB hits in the process", "hit of 4 KiB alone, ns"),
    ("4 KiB hits in the process, 8 at a time", "hit of 4 KiB in a batch, ns"),
];

/// A running instance of one of the two binaries.
struct Side<'a> {
    env: &'a Env,
    server: Server,
    mount: FuseMount,
    /// The mounted directory, which is removed after the mount.
    source: TempDir,
}

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    require(run::unmet_requirement(&["losetup", "mkfs.ext4", "fio", "postmark"]))?;
    let Some(against) = &env.options.against else {
        claims.skip("the speed of two binaries", "--against PATH names the other one");
        return Ok(());
    };
    let larder = against.canonicalize().with_context(|| format!("find {}", against.display()))?;
    let (options, root) = (env.options.clone(), env.root.clone());
    let other = Env { options, larder, root, scratch: Scratch::new()? };
    let (starts, pairs) = env.choose((STARTS, PAIRS), (2, 3));
    let settings = json!({
        "serve": SERVE, "mount": MOUNT.line, "starts": starts, "pairs of a start": pairs,
        "other binary": record::version(&other.larder.to_string_lossy()),
    });
    let mut record = Record::new(&env.root, "two binaries of larder", &["fio"], &settings)?;
    let image = image::create_sparse(&env.file("pairs.img"), DISK_MIB * MIB)?;
    let file_system = FileSystem::new(env.dir(), &image)?;
    let loads = selected("--suite", env.options.suite.as_deref(), &LOADS, |load| load.0)?;
    let mut rates = vec![[Vec::new(), Vec::new()]; loads.len()];
    for start in 0..starts {
        outln!("   start {} of {starts}", start + 1);
        let sides = [env, &other].map(|it| Side::start(it, &file_system));
        let [ours, theirs] = sides;
        let sides = [ours?, theirs?];
        for ((.., load), rates) in loads.iter().zip(&mut rates) {
            run_alternating(pairs, 2, |index| {
                // The binaries alternate as the first one.
                let index = (index + start) % 2;
                rates[index].push(sides[index].trial(*load)?);
                Ok(())
            })?;
        }
        sides.into_iter().try_for_each(Side::stop)?;
    }
    file_system.end()?;
    let width_max = env.choose(WIDTH_MAX, f64::INFINITY);
    for ((statement, unit, _), rates) in loads.iter().zip(&rates) {
        judge((statement, unit), rates, width_max, claims, &mut record);
    }
    compare_hits(env, starts * pairs, claims, &mut record)?;
    if !env.options.quick {
        outln!("   recorded in {}", record.write("pairs")?);
    }
    Ok(())
}

impl<'a> Side<'a> {
    fn start(env: &'a Env, file_system: &FileSystem) -> Result<Self> {
        let image = env.file("pairs-export.img");
        if !image.exists() {
            image::create_filled(&image, IMAGE_MIB, env.options.seed)?;
        }
        let volumes = vec![format!("disk={}", image.display())];
        let server = Larder { binary: &env.larder, volumes, options: SERVE.to_owned() };
        let server = server.start(env.dir())?;
        // Every later read is a hit.
        fio::run(&server.uri(), 0, &["--rw=read", "--bs=1m", "--iodepth=4"])?;
        let source = tempfile::tempdir_in(file_system.point()).context("make a directory")?;
        let mount = FuseMount::start(env, MOUNT, source.path())?;
        Ok(Side { env, server, mount, source })
    }

    /// Returns the rate of one trial.
    fn trial(&self, load: Load) -> Result<f64> {
        let seconds = self.env.choose(2, 1);
        let rate = |outcome: fio::LoadResult| outcome.per_s;
        match load {
            Load::Flood(command, depth) => {
                flood::run(&self.server.socket(), command, depth, seconds).map(rate)
            }
            Load::Fio(options) => {
                let options: Vec<&str> = options.split(' ').collect();
                fio::run(&self.server.uri(), seconds, &options).map(rate)
            }
            Load::Reads(options) => reads(self.env, &self.mount.point, options),
            Load::PostMark => postmark(self.env, &self.mount.point),
            Load::Simulation => simulate(self.env),
        }
    }

    fn stop(self) -> Result<()> {
        self.server.stop_clean()?;
        self.mount.stop_clean()?;
        self.source.close().context("remove the mounted directory")
    }
}

/// Returns the rate at which the binary simulates its whole cache on a synthetic trace.
fn simulate(env: &Env) -> Result<f64> {
    let (larder, trace) = (&env.larder, env.file("pairs.ltr"));
    if !trace.exists() {
        let requests = SIMULATED_REQUESTS.to_string();
        let arguments = "--pages 100000 --exponent 0.9 --writes 30%".split(' ');
        stdout_of(cmd!("{larder} trace synth zipf {trace} --requests {requests} {arguments...}"))?;
    }
    let begun = Instant::now();
    let arguments = "--level whole --policy s3fifo --size 10%".split(' ');
    stdout_of(cmd!("{larder} sim {trace} {arguments...}"))?;
    Ok(f64::from(SIMULATED_REQUESTS) / begun.elapsed().as_secs_f64())
}

/// Compares hits without a server: the benches `hit` of both commits, alternating.
fn compare_hits(env: &Env, pairs: usize, claims: &mut Claims, record: &mut Record) -> Result<()> {
    let Some(theirs) = &env.options.against_hits else {
        claims.skip("hits in the process", "--against-hits PATH names the other bench");
        return Ok(());
    };
    let arguments = "bench --no-run --package larder-io --bench hit";
    let ours = run::build_executable(&env.root, &arguments.split(' ').collect::<Vec<_>>(), "hit")?;
    let benches = [&ours, theirs];
    let mut rates = [const { [Vec::new(), Vec::new()] }; HITS.len()];
    run_alternating(pairs, 2, |index| {
        let bench = benches[index];
        let out = stdout_of(cmd!("{bench} --bench --quick"))?;
        for ((statement, name), rates) in HITS.iter().zip(&mut rates) {
            let row = out.lines().find_map(|line| line.strip_prefix(name));
            let row = row.with_context(|| format!("find \"{name}\" in:\n{out}"))?;
            let ns = row.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok());
            let ns = ns.with_context(|| format!("read the median of {statement} in:\n{out}"))?;
            rates[index].push(1e9 / ns);
        }
        Ok(())
    })?;
    let width_max = env.choose(WIDTH_MAX, f64::INFINITY);
    for ((statement, _), rates) in HITS.iter().zip(&rates) {
        judge((statement, "reads/s"), rates, width_max, claims, record);
    }
    Ok(())
}

fn judge(
    (statement, unit): (&str, &str),
    [ours, theirs]: &[Vec<f64>; 2],
    width_max: f64,
    claims: &mut Claims,
    record: &mut Record,
) {
    let ratios: Vec<f64> = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
    let Interval { low, high } = Interval::of_median(&ratios);
    let names = ["this", "other"].map(|binary| format!("{binary}: {statement}"));
    record.series(&names[0], unit, ours, 0);
    record.series(&names[1], unit, theirs, 0);
    record.comparison(statement, [&names[0], &names[1]], Spread::of(&ratios), RATIO_MIN);
    claims.add_with_peer(
        format!("{statement}: not slower"),
        format!(
            "{:.0} {unit}, {:.3} times (95 % interval {low:.3} to {high:.3}, {} pairs)",
            median(ours),
            median(&ratios),
            ratios.len()
        ),
        format!("{:.0} {unit}", median(theirs)),
        low > RATIO_MIN || (low <= 1.0 && high >= 1.0 && high - low <= width_max),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_is_slower_if_the_whole_interval_says_so_and_a_wide_one_says_nothing() {
        let mut record = Record::new(Path::new("."), "a test", &[], &json!({})).unwrap();
        let mut claims = Claims::default();
        let mut judge = |ours: Vec<f64>| {
            let rates = [ours, vec![1.0; 40]];
            judge(("reads", "reads/s"), &rates, WIDTH_MAX, &mut claims, &mut record);
        };
        for ratio in [1.0, 0.98, 0.96] {
            judge(vec![ratio; 40]);
        }
        judge([0.9, 1.1].repeat(20));
        judge([1.1, 1.3].repeat(20));
        let verdicts: Vec<_> = claims.list.iter().map(|it| it.verdict.word()).collect();
        assert_eq!(verdicts, ["yes", "yes", "NO", "NO", "yes"]);
    }
}
