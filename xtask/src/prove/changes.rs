//! Changes every setting while clients verify their data: no error, no wrong data, and bounded
//! latency.
//!
//! An extra volume is added, used by a separate client that does not flush, and removed. The same
//! load runs on an unchanged server before and after, to compare the latency.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;

use super::clients::{fio_verify, verify_image};
use super::prelude::*;
use crate::fio::LoadResult;
use crate::nbd::Client;

/// The interval between changes.
const PAUSE: Duration = Duration::from_secs(1);
/// The memory sizes, and the initial options of the server.
const MEMORY: [&str; 5] = ["16MiB", "32MiB", "64MiB", "96MiB", "128MiB"];
const OPTIONS: &str = "--memory 64MiB";
const IMAGE_MIB: u64 = 256;
/// The maximum ratio to the latency of an unchanged server, at the 99.9th percentile.
const DELAY_MAX: f64 = 2.0;

const PAGE_SIZES: [&str; 5] = ["4KiB", "16KiB", "64KiB", "256KiB", "1MiB"];
const POLICIES: [&str; 13] = [
    "random", "fifo", "lru", "clock", "2q", "slru", "arc", "lirs", "s3fifo", "sieve", "wtinylfu",
    "clock2q+", "linux",
];
const WRITE_MODES: [&str; 3] = ["back", "through", "around"];

const VOLUME: &str = "extra";
const VOLUME_BYTES: u64 = 16 * MIB;
const BLOCK: usize = 4096;
/// The number of writes while the volume is in service, each of up to sixteen blocks.
const WRITES: usize = 200;
const WRITE_BLOCKS_MAX: usize = 16;

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    let seconds = env.choose(60, 4);
    let image = image::create_sparse(&env.file("live.img"), IMAGE_MIB * MIB)?;
    let before = run_unchanged(env, &image, seconds)?;
    let mut changed = None;
    let statement = "while all settings change and a volume is added or removed every second";
    claims.check(format!("fio verify for {seconds} s {statement}"), || {
        let (outcome, count) = run_with_changes(env, &image, seconds)?;
        changed = Some(outcome);
        Ok(format!("{count} changes, {} requests, no error, no difference", outcome.requests))
    });
    let after = run_unchanged(env, &image, seconds)?;
    let Some(changed) = changed else { return Ok(()) };
    let ratio = changed.p999_ms / before.p999_ms.midpoint(after.p999_ms);
    // The short form runs in parallel with other tests, whose load may dominate the latency.
    let bound = env.choose(
        format!("at most {DELAY_MAX} times that without changes"),
        "compared with that without changes (not judged)".to_owned(),
    );
    claims.add_with_peer(
        format!("p99.9 of these requests, {bound}"),
        format!("{:.0} ms, {ratio:.2} times", changed.p999_ms),
        format!("{:.0} and {:.0} ms", before.p999_ms, after.p999_ms),
        env.options.quick || ratio <= DELAY_MAX,
    );
    Ok(())
}

/// Runs the load on a server whose settings do not change.
fn run_unchanged(env: &Env, image: &Path, seconds: u64) -> Result<LoadResult> {
    let server = env.serve(image, OPTIONS)?;
    let outcome = fio_verify(&server.uri(), IMAGE_MIB, seconds)?;
    server.stop_clean()?;
    Ok(outcome)
}

/// Runs the load on a server whose settings change. Returns the outcome and the number of changes.
fn run_with_changes(env: &Env, image: &Path, seconds: u64) -> Result<(LoadResult, usize)> {
    let server = env.serve(image, OPTIONS)?;
    let volume = Some(ExtraVolume::new(env, &server)?);
    let changes = Changes::begin(env, &server, &MEMORY, PAUSE, env.options.seed, volume);
    let outcome = fio_verify(&server.uri(), IMAGE_MIB, seconds);
    let (count, error) = changes.end();
    error.map_or(Ok(()), |error| Err(error.context(format!("after {count} changes"))))?;
    let least = env.choose(seconds / 2 + 1, 2);
    ensure!(count as u64 >= least, "only {count} changes in {seconds} s");
    verify_image(env, server, image)?;
    Ok((outcome?, count))
}

/// A thread that changes the settings of a server repeatedly.
pub(super) struct Changes {
    /// Dropped to end the thread.
    quit: Sender<()>,
    thread: JoinHandle<(usize, Option<anyhow::Error>)>,
}

impl Changes {
    /// Starts a thread that makes a change every `pause`. The memory size is one of `memory`. The
    /// volume, if there is one, is alternately added and removed.
    pub(super) fn begin(
        env: &Env,
        server: &Server,
        memory: &'static [&'static str],
        pause: Duration,
        seed: u64,
        mut volume: Option<ExtraVolume>,
    ) -> Self {
        let (larder, control) = (env.larder.clone(), server.control());
        let (quit, quit_receiver) = channel();
        let thread = std::thread::spawn(move || {
            let (mut random, mut count) = (Rng::with_seed(seed), 0);
            let begun = Instant::now();
            loop {
                let settings = settings(&mut random, memory);
                let set = stdout_of(cmd!(60, "{larder} ctl set --control {control} {settings...}"));
                let set =
                    set.and_then(|_| volume.as_mut().map_or(Ok(()), ExtraVolume::add_or_remove));
                if let Err(error) = set {
                    return (count, Some(error));
                }
                count += 1;
                // At a fixed rate, independent of the duration of the changes.
                let next = begun + pause * u32::try_from(count).expect("few");
                let wait = next.saturating_duration_since(Instant::now());
                if quit_receiver.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                    return (count, None);
                }
            }
        });
        Self { quit, thread }
    }

    /// Ends the thread. Returns the number of changes, and the error of a failed change, for
    /// example because the server was killed.
    pub(super) fn end(self) -> (usize, Option<anyhow::Error>) {
        drop(self.quit);
        self.thread.join().expect("the thread that changes settings does not panic")
    }
}

/// Chooses a value for each setting.
fn settings(random: &mut Rng, memory: &[&str]) -> [String; 4] {
    [
        ("memory", memory),
        ("page-size", &PAGE_SIZES),
        ("policy", &POLICIES),
        ("write-mode", &WRITE_MODES),
    ]
    .map(|(name, values)| format!("{name}={}", values[random.usize(..values.len())]))
}

/// A volume that is added and removed, and its expected content.
pub(super) struct ExtraVolume {
    larder: PathBuf,
    control: PathBuf,
    socket: PathBuf,
    image: PathBuf,
    content: Vec<u8>,
    random: Rng,
    is_added: bool,
}

impl ExtraVolume {
    fn new(env: &Env, server: &Server) -> Result<Self> {
        Ok(Self {
            larder: env.larder.clone(),
            control: server.control(),
            socket: server.socket(),
            image: image::create_sparse(&env.file("extra.img"), VOLUME_BYTES)?,
            content: vec![0; usize::try_from(VOLUME_BYTES)?],
            random: Rng::with_seed(env.options.seed),
            is_added: false,
        })
    }

    /// Adds the volume and uses it, or removes it and compares its image.
    fn add_or_remove(&mut self) -> Result<()> {
        let (larder, control, image) = (&self.larder, &self.control, &self.image);
        self.is_added = !self.is_added;
        if self.is_added {
            stdout_of(cmd!(60, "{larder} ctl add --control {control} {VOLUME}={image}"))?;
            return self.write_and_read().context("use the volume");
        }
        stdout_of(cmd!(60, "{larder} ctl remove --control {control} {VOLUME}"))?;
        let left = std::fs::read(image).context("read the image of the volume")?;
        ensure!(left == self.content, "the image of a removed volume is not what was written");
        Ok(())
    }

    fn write_and_read(&mut self) -> Result<()> {
        let mut client = Client::connect(&self.socket, VOLUME)?;
        let mut read = vec![0; BLOCK];
        for _ in 0..WRITES {
            let blocks = 1 + self.random.usize(..WRITE_BLOCKS_MAX);
            let start = self.random.usize(..self.content.len() / BLOCK - blocks) * BLOCK;
            let range = start..start + blocks * BLOCK;
            self.random.fill(&mut self.content[range.clone()]);
            let written = client.write(u64::try_from(start)?, &self.content[range])?;
            ensure!(written.is_ok(), "a write was refused");
            // A read of another block must return the data of earlier writes.
            let start = self.random.usize(..self.content.len() / BLOCK) * BLOCK;
            ensure!(client.read(u64::try_from(start)?, &mut read)?.is_ok(), "a read was refused");
            ensure!(read == self.content[start..start + BLOCK], "wrong bytes at {start}");
        }
        Ok(())
    }
}
