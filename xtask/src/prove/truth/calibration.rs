//! The disk of the workloads, and the properties of this machine that a prediction needs: the time
//! of a hit, and the latency and bandwidth of the disk without its limit.

use crate::cleanup::Scratch;
use crate::disk::Disk;
use crate::prove::prelude::*;

/// Reads, and writes, per second that the disk completes.
pub(super) const PER_S: u32 = 2_000;
/// Numbers of requests in flight.
pub(super) const DEPTHS: [u32; 3] = [1, 8, 32];
/// Requests of a measurement.
const REQUESTS: u64 = 20_000;
/// Bytes of the image of a measurement, and of its large reads.
const IMAGE_BYTES: u64 = 256 * MIB;
const LARGE_READ_BYTES: u64 = MIB;

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
    /// Nanoseconds from one request to the next if all of them hit, by depth.
    pub(super) hit_ns: [u64; 3],
    /// The model of the disk with its limit, for `--store`.
    pub(super) store: String,
}

impl Calibration {
    /// Measures with a disk that has no limit.
    pub(super) fn measure(env: &Env) -> Result<Self> {
        let image = DiskImage::create(IMAGE_BYTES)?;
        let disk = Disk::attach(&image.path)?;
        let mut hit_ns = [0; 3];
        for (time, depth) in hit_ns.iter_mut().zip(DEPTHS) {
            *time = hit_time(env, &disk, depth)?;
        }
        let small = |writes| synthetic(env, writes, IMAGE_BYTES / 4096);
        let [reads, writes] = [small("0%")?, small("100%")?];
        let replay = |trace: &Path, uri: &str| replay_ns(env, trace, uri, 1).map(drop);
        let read_ns = store_ns(env, &disk, "read", |uri| replay(&reads, uri))?;
        let write_ns = store_ns(env, &disk, "write", |uri| replay(&writes, uri))?;
        let large_ns = store_ns(env, &disk, "read", |uri| {
            fio::run(uri, 0, &["--rw=read", "--bs=1m", &format!("--size={IMAGE_BYTES}")]).map(drop)
        })?;
        let bytes_per_s = to_f64(LARGE_READ_BYTES) / (large_ns - read_ns).max(1.0) * 1e9;
        // The kernel's throttle grants the operations of 100 ms at once.
        let store = format!(
            "read-iops:{PER_S},write-iops:{PER_S},burst:100ms,transfer:{bytes_per_s:.0},\
             read-latency:{read_ns:.0}ns,write-latency:{write_ns:.0}ns"
        );
        Ok(Calibration { hit_ns, store })
    }
}

/// Creates a trace of random requests of 4 KiB.
fn synthetic(env: &Env, writes: &str, pages: u64) -> Result<PathBuf> {
    let trace = env.file(&format!("random-{writes}-{pages}.ltr"));
    let (larder, requests, pages) = (&env.larder, REQUESTS.to_string(), pages.to_string());
    let shape = ["--requests", &requests, "--pages", &pages, "--writes", writes];
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

/// Returns the nanoseconds per request of a replay whose pages are all in memory.
fn hit_time(env: &Env, disk: &Disk, depth: u32) -> Result<u64> {
    let trace = synthetic(env, "0%", 4096)?;
    let server = env.serve(disk.path(), "--memory 64MiB")?;
    replay_ns(env, &trace, &server.uri(), depth)?;
    let each = replay_ns(env, &trace, &server.uri(), depth)? / to_f64(REQUESTS);
    server.stop_clean()?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "nanoseconds")]
    let each = each as u64;
    Ok(each)
}

/// Runs requests that miss, one at a time, and returns the mean time in nanoseconds that the store
/// took for a read or a write.
fn store_ns(
    env: &Env,
    disk: &Disk,
    kind: &str,
    run: impl FnOnce(&str) -> Result<()>,
) -> Result<f64> {
    let counters = env.file("calibration.json");
    let options = "--memory 8MiB --write-mode write-through --read-ahead off --counters";
    let server = env.serve(disk.path(), &format!("{options} {}", counters.display()))?;
    run(&server.uri())?;
    server.stop_clean()?;
    let whole = record::read(&counters)?;
    number(&whole["volumes"][0]["latencies"][format!("store_{kind}_service_ns")], "mean")
}
