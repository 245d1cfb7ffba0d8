//! Faults of the store as seen by users, tested with the program.
//!
//! The faults that need a test store (a read or a write that fails, torn and reordered writes) are
//! tests of larder-core. These are the faults of a real machine: an image served twice, an image
//! that shrinks while in service, a full file system, a disk that stalls.

use std::fs::OpenOptions;

use super::prelude::*;
use crate::cleanup::Cleanup;
use crate::daemon::poll_until;
use crate::disk::Disk;
use crate::nbd::{Client, Refused};

/// The latency above which a hit waited for the store, or for the machine.
const HIT_MAX: Duration = Duration::from_millis(200);

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    claims.check("a second server of the same image is refused", || serve_twice(env));
    claims.check("an image that shrinks: errors only beyond its end", || shrink_image(env));
    claims.check("a file system that is full: errors, then nothing lost", || fill_file_system(env));
    claims.check("a disk that stalls: hits continue", || stall_disk(env));
    Ok(())
}

fn serve_twice(env: &Env) -> Result<String> {
    let image = image::create_sparse(&env.file("twice.img"), 8 * MIB)?;
    let first = env.serve(&image, "--memory 16MiB")?;
    let (larder, listen) = (&env.larder, env.file("twice.socket"));
    let out = capture(cmd!(60, "{larder} serve {image} --memory 16MiB --listen unix:{listen}"))?;
    let lines: Vec<&str> = out.stderr.lines().filter(|line| !line.trim().is_empty()).collect();
    let [sentence] = lines[..] else { bail!("the message is not one sentence: {}", out.stderr) };
    let is_clear = sentence.contains("twice.img") && !sentence.contains("panicked");
    ensure!(out.code == Some(2) && is_clear, "exit code {:?}: {sentence}", out.code);
    let written = Client::connect(&first.socket(), "")?.write(0, &[7; 4096])?;
    expect_success(written, "a write to the first server")?;
    first.stop_clean()?;
    Ok(sentence.replace(&format!("{}/", env.dir().display()), ""))
}

fn shrink_image(env: &Env) -> Result<String> {
    let image = image::create_filled(&env.file("shrinks.img"), 64, 3)?;
    let mut server = env.serve(&image, "--memory 16MiB")?;
    let file = OpenOptions::new().write(true).open(&image).context("open the image")?;
    file.set_len(32 * MIB).context("shrink the image")?;
    let mut client = Client::connect(&server.socket(), "")?;
    let mut bytes = vec![0; 4096];
    let Err(beyond) = client.read(48 * MIB, &mut bytes)? else {
        bail!("a read beyond the end was answered with data");
    };
    expect_success(client.read(MIB, &mut bytes)?, "a read before the end")?;
    ensure!(
        bytes == random_bytes(3 ^ (1 << 20), 4096),
        "a read before the end returned other data"
    );
    server.0.check_alive()?;
    drop(client);
    server.stop_clean()?;
    Ok(format!("error {}", beyond.0))
}

fn fill_file_system(env: &Env) -> Result<String> {
    require(run::unmet_requirement(&[]))?;
    let point = env.file("small-fs");
    std::fs::create_dir(&point).context("make a mount point")?;
    let _cleanup = Cleanup::start("umount --lazy \"$1\"", &[&point.to_string_lossy()])?;
    stdout_of(cmd!("mount -t tmpfs -o size=8m tmpfs {point}"))?;
    let image = image::create_sparse(&point.join("fills.img"), 64 * MIB)?;
    let server = env.serve(&image, "--memory 64MiB")?;
    let mut client = Client::connect(&server.socket(), "")?;
    let content = |index: u64| random_bytes(index + 1, 1 << 20);
    let mut refused = Vec::new();
    for index in 0..16 {
        refused
            .extend(client.write(index * MIB, &content(index))?.err().map(|error| (index, error)));
    }
    let flush = client.flush()?;
    ensure!(!refused.is_empty() || flush.is_err(), "a full file system, but no error");
    stdout_of(cmd!("mount -o remount,size=128m {point}"))?;
    // Only refused writes are repeated: accepted ones must not be lost.
    for &(index, _) in &refused {
        expect_success(client.write(index * MIB, &content(index))?, "a write with room")?;
    }
    // The error of an earlier writeback is reported once to each client.
    poll_until("a flush succeeds", Duration::from_secs(30), || Ok(client.flush()?.is_ok()))?;
    drop(client);
    server.stop_clean()?;
    let bytes = std::fs::read(&image).context("read the image")?;
    for (index, mib) in (0..16).zip(bytes.chunks(1 << 20)) {
        ensure!(mib == content(index), "MiB {index} is not what was written");
    }
    let error = flush.err().or(refused.first().map(|(_, error)| *error));
    Ok(format!("error {}, all there once there is room", error.map_or(0, |refused| refused.0)))
}

fn stall_disk(env: &Env) -> Result<String> {
    require(Disk::unavailable_reason())?;
    let disk = Disk::attach(&image::create_filled(&env.file("stalls.img"), 64, 5)?)?;
    disk.limit(1)?;
    let server = env.serve(disk.path(), "--memory 32MiB --page-size 4KiB")?;
    let mut hits = Client::connect(&server.socket(), "")?;
    let mut bytes = vec![0; 4096];
    expect_success(hits.read(0, &mut bytes)?, "the first read")?;
    let socket = server.socket();
    let misses = std::thread::spawn(move || misses(&socket));
    let (mut count, mut slowest, mut held_up) = (0_u32, Duration::ZERO, Duration::ZERO);
    while !misses.is_finished() {
        let begun = Instant::now();
        expect_success(hits.read(0, &mut bytes)?, "a hit")?;
        let took = begun.elapsed();
        slowest = slowest.max(took);
        held_up += if took > HIT_MAX { took } else { Duration::ZERO };
        count += 1;
    }
    let stalled = misses.join().ok().context("the client of misses panicked")??;
    ensure!(stalled > Duration::from_millis(500), "the disk did not stall");
    // If hits waited for the store, they would be delayed nearly all of the time. The machine may
    // delay a few, in particular in the short form, which runs in parallel with tests.
    let (part, held_up, stalled) = (env.choose(10, 2), held_up.as_millis(), stalled.as_millis());
    ensure!(held_up * part < stalled, "hits were held up for {held_up} of {stalled} ms");
    drop(hits);
    server.stop_clean()?;
    Ok(format!("{count} hits, slowest {:.1} ms", slowest.as_secs_f64() * 1000.0))
}

/// Returns the time of three reads of blocks that are not cached.
fn misses(socket: &Path) -> Result<Duration> {
    let mut client = Client::connect(socket, "")?;
    let begun = Instant::now();
    for index in 1..4 {
        expect_success(client.read(index * 16 * MIB + MIB, &mut [0; 4096])?, "a miss")?;
    }
    Ok(begun.elapsed())
}

/// Returns random bytes from a seed.
fn random_bytes(seed: u64, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    Rng::with_seed(seed).fill(&mut bytes);
    bytes
}

fn expect_success(answer: std::result::Result<(), Refused>, statement: &str) -> Result<()> {
    ensure!(answer.is_ok(), "{statement}: refused with {answer:?}");
    Ok(())
}
