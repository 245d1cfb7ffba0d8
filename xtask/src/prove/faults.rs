//! Faults of the store as a user meets them: the failure rules from outside of the binary.
//!
//! The faults that need a double (a read or a write that fails, torn and reordered writes) are
//! tests of larder-core. Here are those that a real machine gives: the image served twice, an image
//! that shrinks behind the cache, a file system that is full, a disk that stalls.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::{Claims, Lab, wrong_input};
use crate::disk::SlowDisk;
use crate::image::{self, MIB};
use crate::nbd::{Client, Refused};
use crate::random::Random;
use crate::run;
use crate::undo::Undo;

/// A hit that takes longer is held up, by the store or by the machine.
const HIT_MAX: Duration = Duration::from_millis(200);

/// Runs the proof.
pub(super) fn run(lab: &Lab, claims: &mut Claims) -> Result<()> {
    std::fs::create_dir(lab.file("faults")).context("make a directory")?;
    claims.tried("the image served twice is refused", || twice(lab));
    claims.tried("an image that shrinks: errors there, service elsewhere", || shrinks(lab));
    if run::is_root() {
        claims.tried("a file system that is full: errors, then nothing lost", || fills(lab));
    } else {
        claims.skip("a file system that is full", "needs root");
    }
    match SlowDisk::missing() {
        Some(reason) => claims.skip("a disk that stalls", reason),
        None => claims.tried("a disk that stalls: hits go on", || stalls(lab)),
    }
    Ok(())
}

fn twice(lab: &Lab) -> Result<String> {
    let image = image::sparse(&lab.file("faults/twice.img"), 8 * MIB)?;
    let first = lab.serve(&image, "--memory 16MiB")?;
    let listen = format!("unix:{}", lab.file("faults/twice.socket").display());
    let mut second = run::client(wrong_input::REFUSAL_MAX_S, &lab.binary.to_string_lossy());
    second.arg("serve").arg(&image).args(["--memory", "16MiB", "--listen", &listen]);
    let sentence = wrong_input::refusal(&mut second, &["twice.img"])?;
    let mut client = Client::connect(&first.socket(), "")?;
    expect(client.write(0, &[7; 4096])?, "the first server still writes")?;
    drop(client);
    first.stop_clean()?;
    Ok(sentence)
}

fn shrinks(lab: &Lab) -> Result<String> {
    let image = image::filled(&lab.file("faults/shrinks.img"), 64, 3)?;
    let mut server = lab.serve(&image, "--memory 16MiB")?;
    let file = OpenOptions::new().write(true).open(&image).context("open the image")?;
    file.set_len(32 * MIB).context("shrink the image")?;
    let mut client = Client::connect(&server.socket(), "")?;
    let mut bytes = vec![0; 4096];
    let beyond = client.read(48 * MIB, &mut bytes)?;
    ensure!(beyond.is_err(), "a read beyond the end was answered with data");
    expect(client.read(MIB, &mut bytes)?, "a read before the end")?;
    let mut made = vec![0; 4096];
    Random::seeded(3 ^ (1 << 20)).fill(&mut made);
    ensure!(bytes == made, "a read before the end brought other data");
    server.check_alive()?;
    drop(client);
    server.stop_clean()?;
    Ok(format!("error {}", beyond.map_or_else(|refused| refused.0, |()| 0)))
}

/// A small file system in memory, taken away at the end.
#[derive(Debug)]
struct SmallFs {
    path: PathBuf,
    _undo: Undo,
}

impl SmallFs {
    fn new(path: PathBuf, mib: u64) -> Result<Self> {
        std::fs::create_dir(&path).context("make a mount point")?;
        let undo = Undo::with("umount --lazy \"$1\"", &[&path.to_string_lossy()])?;
        let size = format!("size={mib}m");
        run::text(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&path))?;
        Ok(Self { path, _undo: undo })
    }

    fn grow(&self, mib: u64) -> Result<()> {
        let size = format!("remount,size={mib}m");
        run::text(Command::new("mount").args(["-o", &size]).arg(&self.path))?;
        Ok(())
    }
}

fn fills(lab: &Lab) -> Result<String> {
    let small = SmallFs::new(lab.file("faults/small-fs"), 8)?;
    let image = image::sparse(&small.path.join("fills.img"), 64 * MIB)?;
    let server = lab.serve(&image, "--memory 64MiB")?;
    let mut client = Client::connect(&server.socket(), "")?;
    let mut data = vec![0; usize::try_from(MIB).context("a MiB fits")?];
    let mut made = |index: u64| {
        Random::seeded(index + 1).fill(&mut data);
        data.clone()
    };
    let mut refused = Vec::new();
    for index in 0..16 {
        if let Err(error) = client.write(index * MIB, &made(index))? {
            refused.push((index, error));
        }
    }
    let flush = client.flush()?;
    ensure!(!refused.is_empty() || flush.is_err(), "a full file system and nobody said so");
    small.grow(128)?;
    // Only what was refused is written again: what was accepted must not be lost.
    for &(index, _) in &refused {
        expect(client.write(index * MIB, &made(index))?, "a write with room")?;
    }
    flush_until(&mut client, Duration::from_secs(30))?;
    drop(client);
    server.stop_clean()?;
    let bytes = std::fs::read(&image).context("read the image")?;
    for index in 0..16 {
        let start = usize::try_from(index * MIB).context("an offset fits")?;
        ensure!(bytes[start..].starts_with(&made(index)), "MiB {index} is not what was written");
    }
    let error = flush.err().or(refused.first().map(|(_, error)| *error));
    Ok(format!("error {}, all there once there is room", error.map_or(0, |refused| refused.0)))
}

/// The error of an earlier write-back is told once to each client; then a flush must succeed.
fn flush_until(client: &mut Client, limit: Duration) -> Result<()> {
    let begun = Instant::now();
    while let Err(refused) = client.flush()? {
        ensure!(begun.elapsed() < limit, "flush still fails with error {}", refused.0);
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

fn stalls(lab: &Lab) -> Result<String> {
    let image = image::filled(&lab.file("faults/stalls.img"), 64, 5)?;
    let disk = SlowDisk::over(&image, 1)?;
    let server = lab.serve(disk.path(), "--memory 32MiB --page-size 4KiB")?;
    let mut hits = Client::connect(&server.socket(), "")?;
    let mut bytes = vec![0; 4096];
    expect(hits.read(0, &mut bytes)?, "the first read")?;
    let socket = server.socket();
    let misses = std::thread::spawn(move || misses(&socket));
    let (mut count, mut slowest, mut held_up) = (0_u32, Duration::ZERO, Duration::ZERO);
    while !misses.is_finished() {
        let asked = Instant::now();
        expect(hits.read(0, &mut bytes)?, "a hit")?;
        let took = asked.elapsed();
        slowest = slowest.max(took);
        if took > HIT_MAX {
            held_up += took;
        }
        count += 1;
    }
    let stalled = misses.join().ok().context("the client of misses panicked")??;
    ensure!(stalled > Duration::from_millis(500), "the disk did not stall");
    // Were hits to wait for the store, they would be held up nearly all of the time. The machine
    // may hold up a few, most of all in the short form, which runs among tests.
    let part = lab.either(10, 2);
    ensure!(
        held_up * part < stalled,
        "hits were held up for {} of {} ms",
        held_up.as_millis(),
        stalled.as_millis()
    );
    drop(hits);
    server.stop_clean()?;
    Ok(format!("{count} hits, slowest {:.1} ms", slowest.as_secs_f64() * 1000.0))
}

/// Reads far apart, none of which the cache holds; answers how long three of them took.
fn misses(socket: &Path) -> Result<Duration> {
    let mut client = Client::connect(socket, "")?;
    let mut bytes = vec![0; 4096];
    let begun = Instant::now();
    for index in 1..4 {
        expect(client.read(index * 16 * MIB + MIB, &mut bytes)?, "a miss")?;
    }
    Ok(begun.elapsed())
}

fn expect(answer: std::result::Result<(), Refused>, what: &str) -> Result<()> {
    ensure!(answer.is_ok(), "{what}: refused with {answer:?}");
    Ok(())
}
