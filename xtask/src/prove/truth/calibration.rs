//! The disk of the workloads, and the properties of this machine that a prediction needs: the time
//! that a server and its clients need for a byte, and the latency and bandwidth of the disk without
//! its limit.

use crate::cleanup::Scratch;
use crate::disk::Disk;
use crate::prove::prelude::*;

/// Reads, and writes, per second that the disk completes.
pub(super) const PER_S: u32 = 2_000;
/// Numbers of requests in flight.
pub(super) const DEPTHS: [u32; 3] = [1, 8, 32];
/// Runs of a measurement, of which the fastest counts.
const RUNS: usize = 3;
/// Requests of a measurement.
const REQUESTS: u64 = 20_000;
/// Bytes of the image of a measurement, and of the part of it whose pages all hit.
const IMAGE_BYTES: u64 = 256 * MIB;
const HIT_AREA_BYTES: u64 = 16 * MIB;
/// Bytes of small and of large requests.
const LENGTHS: [u64; 2] = [4 << 10, 64 << 10];

/// The image of a disk, in memory if a file system in memory exists: its own latency is then small
/// and the same everywhere.
pub(super) struct DiskImage {
    pub(super) path: PathBuf,
    _scratch: Scratch,
}

impl DiskImage {
    /// Creates an image of `bytes` bytes without data.
    pub(super) fn create(bytes: u64) -> Result<Self> {
        let memory = Path::new("/dev/shm");
        let scratch = if memory.is_dir() { Scratch::new_in(memory)? } else { Scratch::new()? };
        let path = image::create_sparse(&scratch.path().join("disk.img"), bytes)?;
        Ok(DiskImage { path, _scratch: scratch })
    }
}

/// Measured properties of this machine.
pub(super) struct Calibration {
    /// Nanoseconds that each byte adds to a request that hits, by depth.
    pub(super) byte_ns: [f64; DEPTHS.len()],
    /// Bytes per second that the disk transfers.
    pub(super) transfer: f64,
}

/// Times of operations of the store without its limit, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoreTimes {
    /// Until the store thread of the server takes a read, for `--wake`.
    pub(super) wake: f64,
    /// In the store, without the transfer: mean times.
    pub(super) read: f64,
    pub(super) write: f64,
    /// The median of a read and of a write, as a share of the mean.
    medians: [f64; 2],
}

impl Calibration {
    /// Measures with a disk that has no limit.
    pub(super) fn measure(env: &Env) -> Result<Self> {
        let image = DiskImage::create(IMAGE_BYTES)?;
        let disk = Disk::attach(&image.path)?;
        let hits = |depth| Replays { cached: true, depth }.each_ns(env, &disk);
        let large_bytes = to_f64(LENGTHS[1] - LENGTHS[0]);
        let own = hits(1)?;
        let byte_ns = |[small, large]: [f64; 2]| (large - small).max(0.0) / large_bytes;
        let [some, many] = [hits(DEPTHS[1])?, hits(DEPTHS[2])?];
        let missed = Replays { cached: false, depth: 1 }.each_ns(env, &disk)?;
        // The time of a hit is part of the time of a miss.
        let [small_ns, large_ns] = [0, 1].map(|at| missed[at] - own[at]);
        let transfer = large_bytes / (large_ns - small_ns).max(1.0) * 1e9;
        Ok(Calibration { byte_ns: [own, some, many].map(byte_ns), transfer })
    }

    /// Returns the store times, without the transfer, of a server that has written its counters.
    pub(super) fn times_of(&self, counters: &Path) -> Result<StoreTimes> {
        let volume = read_volume(counters)?;
        let counted = |name: &str| number(&volume["counters"], name);
        let service = |direction: &str| -> Result<f64> {
            let mean = mean_ns(&volume, &format!("store_{direction}_service_ns"))?;
            let operations = counted(&format!("store_{direction}s"))?.max(1.0);
            let bytes = counted(&format!("store_{direction}_bytes"))? / operations;
            Ok((mean - bytes / self.transfer * 1e9).max(0.0))
        };
        Ok(StoreTimes {
            wake: mean_ns(&volume, "store_read_queue_ns")?,
            read: service("read")?,
            write: service("write")?,
            medians: [median_share(&volume, "read")?, median_share(&volume, "write")?],
        })
    }

    /// Returns the model of the disk with its limit, for `--store`. The kernel's throttle admits
    /// the operations of 100 ms together.
    pub(super) fn store(&self, times: &StoreTimes) -> String {
        let times = self.unlimited_store(times);
        format!("read-iops:{PER_S},write-iops:{PER_S},slice:100ms,{times}")
    }

    /// Returns the model of the disk without its limit.
    pub(super) fn unlimited_store(&self, times: &StoreTimes) -> String {
        let (Calibration { transfer, .. }, StoreTimes { read, write, medians, .. }) = (self, times);
        // Whole nanoseconds, of which the median is at most the mean.
        let latency = |side: &str, mean: f64, share: f64| {
            let (mean, median) = (mean.round(), (mean.round() * share).ceil());
            format!("{side}-latency:{mean:.0}ns,{side}-median:{median:.0}ns")
        };
        let [read, write] =
            [latency("read", *read, medians[0]), latency("write", *write, medians[1])];
        format!("transfer:{transfer:.0},{read},{write}")
    }
}

/// Returns the counters of the first volume.
pub(super) fn read_volume(counters: &Path) -> Result<Value> {
    Ok(record::read(counters)?["volumes"][0].clone())
}

/// Returns the mean of a latency, 0 if nothing was measured.
fn mean_ns(volume: &Value, latency: &str) -> Result<f64> {
    let latency = &volume["latencies"][latency];
    if number(latency, "count")? == 0.0 { Ok(0.0) } else { number(latency, "mean") }
}

/// Returns the median of the times in the store of a direction as a share of the mean, within the
/// limits of a model; 1 if nothing was measured.
fn median_share(volume: &Value, direction: &str) -> Result<f64> {
    let latency = &volume["latencies"][format!("store_{direction}_service_ns")];
    if number(latency, "count")? == 0.0 {
        return Ok(1.0);
    }
    Ok((number(latency, "p50")? / number(latency, "mean")?).clamp(0.1, 1.0))
}

/// Replays of random reads of each of [`LENGTHS`].
struct Replays {
    /// True if all pages hit.
    cached: bool,
    /// Requests in flight.
    depth: u32,
}

impl Replays {
    /// Returns the nanoseconds per request of each length.
    fn each_ns(&self, env: &Env, disk: &Disk) -> Result<[f64; LENGTHS.len()]> {
        let (memory, area) =
            if self.cached { ("64MiB", HIT_AREA_BYTES) } else { ("8MiB", IMAGE_BYTES) };
        let options = "--write-mode write-through --read-ahead off --memory";
        let options = format!("{options} {memory}");
        let mut each_ns = [0.0; LENGTHS.len()];
        for (each, length) in each_ns.iter_mut().zip(LENGTHS) {
            let trace = synthetic(env, length, area)?;
            let server = env.serve(disk.path(), &options)?;
            replay_ns(env, &trace, &server.uri(), self.depth)?;
            // Others on the machine only make a run slower.
            let mut fastest = f64::INFINITY;
            for _ in 0..RUNS {
                fastest = replay_ns(env, &trace, &server.uri(), self.depth)?.min(fastest);
            }
            *each = fastest / to_f64(REQUESTS);
            server.stop_clean()?;
        }
        Ok(each_ns)
    }
}

/// Creates a trace of random reads of `page` bytes to an area of `bytes` bytes.
fn synthetic(env: &Env, page: u64, bytes: u64) -> Result<PathBuf> {
    let trace = env.file(&format!("random-{page}-{bytes}.ltr"));
    let (larder, requests, pages) = (&env.larder, REQUESTS.to_string(), bytes / page);
    let (page, pages) = (page.to_string(), pages.to_string());
    let shape = ["--requests", &requests, "--pages", &pages, "--page-size", &page];
    let shape = shape.into_iter().chain(["--writes", "0%"]);
    if !trace.exists() {
        stdout_of(cmd!("{larder} trace synth uniform {trace} {shape...}"))?;
    }
    Ok(trace)
}

/// Replays a trace; returns the duration in nanoseconds.
pub(super) fn replay_ns(env: &Env, trace: &Path, uri: &str, depth: u32) -> Result<f64> {
    let (larder, depth) = (&env.larder, depth.to_string());
    let line = cmd!("{larder} trace replay {trace} --to {uri} --json --connections {depth}");
    number(&json_of(line)?, "duration_ns")
}
