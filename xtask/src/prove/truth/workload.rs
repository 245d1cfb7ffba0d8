//! The workloads: block traces, patterns of fio, PostMark and a database on a file system.

use super::calibration::replay_ns;
use crate::disk::{Disk, FileSystem, Kind};
use crate::memory_group::MemoryGroup;
use crate::prove::fuse_volume::ServedVolume;
use crate::prove::policies::{database, traces};
use crate::prove::prelude::*;
use crate::prove::same_cache::one_volume;

/// The block traces, and the number of requests of each that are replayed: half a minute of the
/// throttled disk at most.
const REQUESTS: [(&str, &str); 3] =
    [("OLTP", "150000"), ("P3", "20000"), ("CloudPhysics", "40000")];
/// Requests to the image of a synthetic database.
const DATABASE_REQUESTS: &str = "40000";
const FIO_BYTES: u64 = 256 * MIB;
const FILE_SYSTEM_BYTES: u64 = 1024 * MIB;
/// The memory of the server that records a workload.
const RECORDER: &str = "--memory 64MiB --policy lru";
/// Maximum requests in flight of a loop device, on which the file system is (drivers/block/loop.c).
const FILE_SYSTEM_DEPTH: u32 = 128;
/// The memory of the programs on a file system, with the kernel's cache of their files.
const PROGRAMS_MIB: u64 = 48;
/// Patterns of fio on [`FIO_BYTES`], each a fixed sequence of requests.
const PATTERNS: [(&str, &str); 3] = [
    ("fio zipf reads", "--rw=randread --bs=4k --random_distribution=zipf:0.9 --number_ios=30000"),
    (
        "fio mixed",
        "--rw=randrw --rwmixread=70 --bsrange=4k-64k --random_distribution=zipf:1.1 \
         --number_ios=48000 --io_size=2g",
    ),
    (
        "fio runs",
        "--rw=randread:16 --bs=16k --rw_sequencer=sequential --random_distribution=zipf:0.8 \
         --number_ios=16000",
    ),
];
/// A database: point reads of hot rows, ranges, and updates in transactions, from a fixed seed.
const DATABASE: &str = r#"set -e
sqlite3 $1/rows.db 'PRAGMA journal_mode=DELETE; PRAGMA page_size=4096;
  CREATE TABLE rows (id INTEGER PRIMARY KEY, value BLOB);
  WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 120000)
  INSERT INTO rows SELECT i, zeroblob(900) FROM n;' >/dev/null
awk 'BEGIN { srand(7); for (t = 0; t < 1500; t++) {
  for (k = 0; k < 8; k++) { id = int(120000 * rand() ^ 3) + 1;
    print "SELECT length(value) FROM rows WHERE id = " id ";" }
  id = int(120000 * rand()) + 1;
  range = "WHERE id BETWEEN " id " AND " id + 200 ";"
  if (t % 5 == 0) print "SELECT sum(length(value)) FROM rows " range;
  id = int(120000 * rand() ^ 3) + 1;
  if (t % 3 == 0) print "UPDATE rows SET value = zeroblob(900) WHERE id = " id ";" } }' >$2
sqlite3 $1/rows.db <$2 >/dev/null"#;

/// The way in which a workload runs.
pub(super) enum Load {
    /// The requests of the trace, sent by `larder trace replay`.
    Replay(PathBuf),
    /// fio with these options.
    Fio(&'static str),
    /// PostMark on an ext4.
    PostMark,
    /// A database on an ext4.
    Database,
}

/// A workload on a volume.
pub(super) struct Workload {
    pub(super) name: &'static str,
    pub(super) load: Load,
    pub(super) image_bytes: u64,
}

/// Returns the workloads: the available traces, the patterns of fio, and the programs.
pub(super) fn all(env: &Env) -> Result<Vec<Workload>> {
    let mut all = Vec::new();
    for (path, name) in traces(env) {
        let Some((_, requests)) = REQUESTS.iter().find(|it| it.0 == name) else { continue };
        all.push(replayed(env, &path, name, requests)?);
    }
    let path = database(env, DATABASE_REQUESTS)?;
    all.push(replayed(env, &path, "database", DATABASE_REQUESTS)?);
    let fio = PATTERNS.map(|(name, options)| (name, Load::Fio(options), FIO_BYTES));
    let programs = [
        ("PostMark", Load::PostMark, FILE_SYSTEM_BYTES),
        ("SQLite", Load::Database, FILE_SYSTEM_BYTES),
    ];
    let others = fio.into_iter().chain(programs);
    all.extend(others.map(|(name, load, image_bytes)| Workload { name, load, image_bytes }));
    Ok(all)
}

/// Returns the workload of the first requests of a trace, or of its busiest volume.
fn replayed(env: &Env, path: &Path, name: &'static str, requests: &str) -> Result<Workload> {
    let (whole, image_bytes) = one_volume(env, path, name)?;
    let larder = &env.larder;
    let head = stdout_of(cmd!("{larder} trace head {whole} -n {requests}"))?;
    let path = env.file(&format!("{name}.csv"));
    std::fs::write(&path, head).context("write a trace")?;
    Ok(Workload { name, load: Load::Replay(path), image_bytes })
}

/// Sums over a trace.
#[derive(Clone, Copy, Debug)]
pub(super) struct TraceSummary {
    /// Bytes of all pages.
    pub(super) footprint_bytes: u64,
    pub(super) requests: f64,
    /// Bytes that all requests read and write.
    pub(super) transferred_bytes: f64,
}

impl TraceSummary {
    pub(super) fn of(env: &Env, trace: &Path) -> Result<Self> {
        let larder = &env.larder;
        let summary = json_of(cmd!("{larder} trace summary --json {trace}"))?;
        let footprint = &summary["footprint"];
        let of = |name: &str| footprint[name].as_u64().with_context(|| format!("no {name}"));
        let ops = &summary["total"]["ops"];
        let transferred = ["read", "write"].map(|op| ops[op]["bytes"].as_f64().unwrap_or(0.0));
        Ok(TraceSummary {
            footprint_bytes: of("pages")? * of("page_bytes")?,
            requests: number(&summary, "requests")?,
            transferred_bytes: transferred.iter().sum(),
        })
    }
}

impl Workload {
    /// Returns true if the requests reach the volume without a file system.
    pub(super) fn is_direct(&self) -> bool {
        matches!(self.load, Load::Replay(_) | Load::Fio(_))
    }

    /// Returns true if all requests reach the server on one connection.
    pub(super) fn has_one_connection(&self) -> bool {
        !matches!(self.load, Load::Replay(_))
    }

    /// Returns the options of a simulation with `depth` requests in flight, of which each takes
    /// `own_time` in clients and server. A replay has a connection for each; fio and a file system
    /// have one.
    pub(super) fn pace(&self, depth: u32, own_time: &str) -> String {
        match self.load {
            Load::PostMark | Load::Database => {
                format!("--pace recorded --depth {FILE_SYSTEM_DEPTH}")
            }
            Load::Fio(_) => format!("--depth {depth} --think {own_time}"),
            Load::Replay(_) if depth == 1 => format!("--think {own_time}"),
            Load::Replay(_) => format!("--clients {depth} --gap {own_time}"),
        }
    }

    /// Returns the trace of the workload, recorded unless it is one.
    pub(super) fn trace(&self, env: &Env, disk: &Disk) -> Result<PathBuf> {
        if let Load::Replay(path) = &self.load {
            return Ok(path.clone());
        }
        let path = env.file(&format!("{}.ltr", self.name.replace(' ', "-")));
        self.run(env, disk, &format!("{RECORDER} --record {}", path.display()), 1)?;
        Ok(path)
    }

    /// Runs the workload on a server with these options and `depth` requests in flight. Returns the
    /// time in seconds, except on a file system.
    pub(super) fn run(
        &self,
        env: &Env,
        disk: &Disk,
        options: &str,
        depth: u32,
    ) -> Result<Option<f64>> {
        if !self.is_direct() {
            self.run_on_file_system(env, disk, options)?;
            return Ok(None);
        }
        let server = env.serve(disk.path(), options)?;
        let elapsed_s = self.send(env, &server.uri(), depth)?;
        server.stop_clean()?;
        Ok(Some(elapsed_s))
    }

    /// Sends the requests to a server, with `depth` of them in flight; returns the time in seconds.
    pub(super) fn send(&self, env: &Env, uri: &str, depth: u32) -> Result<f64> {
        match &self.load {
            Load::Replay(trace) => Ok(replay_ns(env, trace, uri, depth)? / 1e9),
            Load::Fio(options) => {
                let size = format!("--size={FIO_BYTES}");
                let iodepth = format!("--iodepth={depth}");
                let fixed = ["--randseed=7", "--norandommap", &size, &iodepth];
                let options: Vec<&str> = options.split_whitespace().chain(fixed).collect();
                let result = fio::run(uri, 0, &options)?;
                Ok(to_f64(result.requests) / result.per_s)
            }
            Load::PostMark | Load::Database => bail!("a program needs a file system"),
        }
    }

    fn run_on_file_system(&self, env: &Env, disk: &Disk, options: &str) -> Result<()> {
        let served = ServedVolume::start(env, disk.path(), options, None)?;
        let file_system = FileSystem::attach(env.dir(), &served.file(), Kind::Ext4)?;
        file_system.make()?;
        file_system.mount()?;
        let group = MemoryGroup::with_limit(PROGRAMS_MIB)?;
        let (point, script) = (file_system.point(), env.file("script"));
        let command = if matches!(self.load, Load::PostMark) {
            fio::postmark_script(&script, point, (3_000, 6_000), 60_000)?;
            cmd!("postmark {script}")
        } else {
            cmd!("sh -c {DATABASE} database {point} {script}")
        };
        stdout_of(group.wrap(&command))?;
        file_system.unmount_unchecked()?;
        drop(group);
        served.stop_clean()
    }
}
