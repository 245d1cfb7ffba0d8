//! The kernel's NBD client on `larder serve`, in the guest: file systems, verified loads, a larger
//! volume, a server that hangs and a server that is killed.
//!
//! This file runs twice: [`run()`] boots the guest, which calls [`inside`] there. Each claim
//! crosses as one line of JSON. The guest is thrown away, so a step that fails cleans nothing up:
//! each group of steps has a server, a device and a mount point of its own.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{Claims, Env};
use crate::cleanup::Cleanup;
use crate::image::{self, MIB};
use crate::random::Random;
use crate::server::{Larder, Server};
use crate::{Ending, fio, guest, run};

/// What [`inside`] is called on the command line of xtask.
pub(crate) const INSIDE: &str = "kernel-nbd-inside";
/// The file that attaches the device at boot, as it is shipped.
const NBDTAB: &str = include_str!("../../../packaging/nbdtab");
/// The socket that the file names.
const NBDTAB_SOCKET: &str = "/run/larder/nbd.sock";
/// The disk of the guest, which is the store of the first server.
const DISK: &str = "/dev/vda";
const DISK_MIB: u64 = 384;
/// The volumes in the guest's memory.
const SMALL_MIB: u64 = 64;
/// The server caches less than the load touches.
const OPTIONS: &str = "--memory 64MiB";
/// It writes to the store what a flush covers, and nothing else for as long as a step takes.
const LAZY: &str = "--memory 64MiB --set first-delay=60000 --set idle-delay=60000 \
                    --set age-max=600000";
/// How long the guest may take.
const GUEST_MAX_S: u64 = 600;
/// How long one program in the guest may take.
const PROGRAM_MAX_S: u64 = 200;
/// The timeout that nbd-client sets, and how long a request may take to fail with it.
const TIMEOUT_S: u64 = 3;
const FAILS_WITHIN: Duration = Duration::from_secs(10);
/// Files in the tree that is compared, and the size of the largest.
const FILES: u64 = 200;
const FILE_BYTES_MAX: u64 = 100_000;
/// Processes that write and fsync while the server is killed, and the size of a write.
const WRITERS: usize = 3;
const WRITE_BYTES: u64 = 16 << 10;
const KILL_AFTER: Duration = Duration::from_secs(6);

/// Runs the proof.
pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    let what = "the kernel's NBD client";
    let programs = ["nbd-client", "mkfs.ext4", "e2fsck", "resize2fs", "fio"];
    if let Some(program) = programs.into_iter().find(|program| !run::installed(program)) {
        claims.skip(what, format!("{program} is not installed"));
        return Ok(());
    }
    let disk = image::sparse(&env.file("guest.disk"), DISK_MIB * MIB)?;
    // The guest does not see the directory for temporary files, where a tree can lie.
    let out = env.file("guest");
    std::fs::create_dir(&out).context("make a directory")?;
    let xtask = std::env::current_exe().context("find this program")?;
    std::fs::copy(env.larder.as_path(), out.join("larder")).context("copy larder")?;
    std::fs::copy(xtask, out.join("xtask")).context("copy this program")?;
    let notes = env.file("guest.notes");
    let mut guest = guest::script()?;
    guest.args(["--timeout", &GUEST_MAX_S.to_string(), "--disk"]).arg(disk).arg("--out").arg(out);
    guest.arg(format!("cp /out/larder /out/xtask /tmp && /tmp/xtask {INSIDE} /tmp/larder"));
    guest.stdin(Stdio::null()).stdout(Stdio::piped());
    guest.stderr(File::create(&notes).context("make a file for the notes of the guest")?);
    let begun = Instant::now();
    let mut guest = guest.spawn().context("start the guest")?;
    let mut cleanup = Cleanup::with("kill \"$1\"", &[&guest.id().to_string()])?;
    let lines = BufReader::new(guest.stdout.take().context("the guest has no output")?).lines();
    for line in lines {
        relay(&line.context("read from the guest")?, claims);
    }
    let status = guest.wait().context("wait for the guest")?;
    cleanup.cancel();
    let notes = std::fs::read_to_string(notes).context("read the notes of the guest")?;
    print!("{notes}");
    if status.code() == Some(guest::CANNOT_START) {
        claims.skip(what, notes.lines().last().unwrap_or_default());
        return Ok(());
    }
    let seconds = begun.elapsed().as_secs();
    claims.add(
        "the guest carries out all steps",
        format!("{status}, {seconds} s with an emulated processor"),
        status.success(),
    );
    Ok(())
}

/// Adds the claim on a line of the guest; prints any other line.
fn relay(line: &str, claims: &mut Claims) {
    let claim: Option<Value> = serde_json::from_str(line).ok();
    let claim = claim.as_ref();
    let text = |key: &str| claim.and_then(|claim| claim[key].as_str());
    match (text("what"), text("figure"), claim.and_then(|claim| claim["holds"].as_bool())) {
        (Some(what), Some(figure), Some(holds)) => claims.add(what, figure, holds),
        _ => println!("{line}"),
    }
}

/// Carries out the steps in the guest with the binary that the arguments name.
pub(crate) fn inside(args: &[String]) -> Result<Ending> {
    let [binary] = args else { anyhow::bail!("{INSIDE} takes the binary of larder") };
    let bench = Bench { binary: PathBuf::from(binary), dir: PathBuf::from("/tmp") };
    sh("modprobe nbd nbds_max=4 max_part=0; mkdir -p /run/larder /mnt/a /mnt/b /mnt/c")?;
    whole_life(&bench)?;
    tried("the image grows: remove and add the volume, connect again, resize2fs", || grow(&bench));
    tried("the server hangs (SIGSTOP), nbd-client -timeout 3", || hang(&bench));
    tried("kill -9 of the server under fio with fsync on ext4", || kill(&bench));
    Ok(Ending::Holds)
}

/// Prints the outcome of a step as a claim.
fn tried(what: &str, step: impl FnOnce() -> Result<String>) {
    let outcome = step();
    let holds = outcome.is_ok();
    let figure = outcome.unwrap_or_else(|error| {
        println!("{error:#}");
        format!("{error:#}").lines().next().unwrap_or_default().to_owned()
    });
    println!("{}", json!({ "what": what, "figure": figure, "holds": holds }));
}

/// Runs a shell script; returns what it printed.
fn sh(script: &str) -> Result<String> {
    run::text(run::within(PROGRAM_MAX_S, &Command::new("sh")).args(["-euc", script]))
}

/// Where the servers in the guest come from.
#[derive(Debug)]
struct Bench {
    binary: PathBuf,
    dir: PathBuf,
}

impl Bench {
    /// Serves a file or device as the volume `data`.
    fn serve(&self, store: &Path, options: &str) -> Result<Server> {
        let volumes = vec![format!("data={}", store.display())];
        Larder { binary: &self.binary, volumes, options: options.to_owned() }.start(&self.dir)
    }

    /// Makes and serves an image in the memory of the guest.
    fn serve_image(&self, name: &str) -> Result<(PathBuf, Server)> {
        let image = image::sparse(&self.dir.join(name), SMALL_MIB * MIB)?;
        let server = self.serve(&image, OPTIONS)?;
        Ok((image, server))
    }
}

/// Connects a device of the kernel.
fn connect(server: &Server, device: &str, options: &str) -> Result<()> {
    let socket = server.socket();
    sh(&format!("nbd-client -unix {} -name data {options} {device}", socket.display()))?;
    Ok(())
}

fn disconnect(device: &str) -> Result<()> {
    sh(&format!("nbd-client -d {device}; while nbd-client -c {device}; do sleep 0.1; done"))?;
    Ok(())
}

/// Unmounts and checks the file system.
fn unmount(device: &str, point: &str) -> Result<()> {
    sh(&format!("umount {point}; e2fsck -fn {device} 2>&1"))?;
    Ok(())
}

/// Returns the SHA-256 of a device or file.
fn sum(path: &str) -> Result<String> {
    let line = sh(&format!("sha256sum {path}"))?;
    Ok(line.split_whitespace().next().context("sha256sum prints nothing")?.to_owned())
}

fn length(device: &str) -> Result<u64> {
    sh(&format!("blockdev --getsize64 {device}"))?.trim().parse().context("read a length")
}

/// Writes 256 MiB in random order and reads them back with their checksums.
fn verify(place: &str) -> Result<String> {
    let load = "--rw=randwrite --bs=64k --iodepth=16 --ioengine=libaio --direct=1 --end_fsync=1";
    let check = "--verify=crc32c --verify_fatal=1 --output-format=json";
    let outcome = sh(&format!("fio --name=verify {place} --size=256m {load} {check}"))?;
    Ok(fio::parse_text(&outcome)?.in_words())
}

/// A file system and a load on a volume whose server and connections go well.
fn whole_life(bench: &Bench) -> Result<()> {
    let (device, point) = ("/dev/nbd0", "/mnt/a");
    let server = bench.serve(Path::new(DISK), OPTIONS)?;
    tried("packaging/nbdtab attaches a device that flushes and has FUA", || {
        std::fs::write("/etc/nbdtab", NBDTAB).context("write nbdtab")?;
        std::os::unix::fs::symlink(server.socket(), NBDTAB_SOCKET).context("name the socket")?;
        sh("nbd-client nbd0")?;
        let mib = length(device)? / MIB;
        ensure!(mib == DISK_MIB, "the device has {mib} MiB");
        let queue = sh("cd /sys/block/nbd0/queue && cat write_cache fua")?;
        ensure!(queue == "write back\n1\n", "write_cache and fua of the device: {queue:?}");
        disconnect(device)?;
        Ok(format!("{mib} MiB, write back, FUA"))
    });
    connect(&server, device, "-connections 4")?;
    tried("ext4: files the same after a second mount, fstrim", || {
        sh(&format!("mkfs.ext4 -q {device}; mount {device} {point}"))?;
        let bytes = tree(Path::new(point), true)?;
        sh(&format!("fstrim {point}; umount {point}; blockdev --flushbufs {device}"))?;
        sh(&format!("mount {device} {point}"))?;
        ensure!(tree(Path::new(point), false)? == bytes, "the files have other bytes");
        Ok(format!("{FILES} files, {} KiB", bytes >> 10))
    });
    tried("ext4: fio with verify (crc32c) of 256 MiB, 64 KiB, depth 16", || {
        verify(&format!("--directory={point}"))
    });
    let reconnected = || {
        unmount(device, point)?;
        let before = sum(device)?;
        disconnect(device)?;
        connect(&server, device, "-connections 4")?;
        ensure!(sum(device)? == before, "the device has other contents");
        Ok(format!("SHA-256 of {DISK_MIB} MiB the same, e2fsck -fn clean"))
    };
    tried("umount, e2fsck, disconnect, connect", reconnected);
    tried("device: fio with verify (crc32c) of 256 MiB, 64 KiB, depth 16", || {
        verify(&format!("--filename={device}"))
    });
    tried("the store without the server holds what the device held", || {
        let before = sum(device)?;
        disconnect(device)?;
        server.stop_clean()?;
        sh(&format!("blockdev --flushbufs {DISK}"))?;
        ensure!(sum(DISK)? == before, "the store has other contents");
        Ok(format!("SHA-256 of {DISK_MIB} MiB the same"))
    });
    Ok(())
}

/// Makes a tree of files, or compares it if not `make`; returns its bytes.
fn tree(point: &Path, make: bool) -> Result<u64> {
    let mut random = Random::seeded(1);
    let mut total = 0;
    for number in 0..FILES {
        let folder = point.join(format!("{}", number % 7));
        let path = folder.join(format!("{number}"));
        let len = 1 + random.next() % FILE_BYTES_MAX;
        let mut bytes = vec![0; usize::try_from(len)?];
        random.fill(&mut bytes);
        if make {
            std::fs::create_dir_all(folder).context("make a directory")?;
            std::fs::write(&path, bytes).with_context(|| format!("write {}", path.display()))?;
        } else {
            let found = std::fs::read(&path).with_context(|| path.display().to_string())?;
            ensure!(found == bytes, "{} has other bytes", path.display());
        }
        total += len;
    }
    Ok(total)
}

/// A volume whose image grows: the server opens it again, and the kernel connects again.
fn grow(bench: &Bench) -> Result<String> {
    let (device, point) = ("/dev/nbd1", "/mnt/b");
    let (image, server) = bench.serve_image("growing.img")?;
    connect(&server, device, "")?;
    sh(&format!("mkfs.ext4 -q {device}; mount {device} {point}"))?;
    tree(Path::new(point), true)?;
    sh(&format!("umount {point}"))?;
    File::options().write(true).open(&image)?.set_len(2 * SMALL_MIB * MIB).context("grow it")?;
    ensure!(length(device)? == SMALL_MIB * MIB, "a connected device changed its length");
    disconnect(device)?;
    let (larder, control) = (bench.binary.display(), server.control());
    let ctl = |words: &str| sh(&format!("{larder} ctl {words} --control {}", control.display()));
    ctl("remove data")?;
    ctl(&format!("add data={}", image.display()))?;
    connect(&server, device, "")?;
    let mib = length(device)? / MIB;
    ensure!(mib == 2 * SMALL_MIB, "the device has {mib} MiB");
    sh(&format!("e2fsck -fp {device}; resize2fs {device} 2>&1; mount {device} {point}"))?;
    tree(Path::new(point), false)?;
    let size = format!("{}m", SMALL_MIB * 5 / 4);
    sh(&format!("fallocate -l {size} {point}/large; head -c {size} /dev/urandom >{point}/large"))?;
    unmount(device, point)?;
    disconnect(device)?;
    server.stop_clean()?;
    sh(&format!("e2fsck -fn {} 2>&1", image.display()))?;
    Ok(format!("{SMALL_MIB} MiB became {mib} MiB, files the same, e2fsck -fn clean"))
}

/// A server that hangs: requests fail in time, and after a new connection they succeed.
fn hang(bench: &Bench) -> Result<String> {
    let device = "/dev/nbd2";
    let (_, server) = bench.serve_image("hanging.img")?;
    let options = format!("-timeout {TIMEOUT_S}");
    let direct = "bs=64k count=1 oflag=direct conv=fsync";
    connect(&server, device, &options)?;
    sh(&format!("head -c {SMALL_MIB}M /dev/urandom | dd of={device} bs=1M iflag=fullblock 2>&1"))?;
    sh(&format!("blockdev --flushbufs {device}"))?;
    let before = sum(device)?;
    let mut took = Vec::new();
    let requests = [
        format!("dd if={device} of=/dev/null bs=64k count=1 iflag=direct"),
        format!("dd if=/dev/zero of={device} {direct}"),
    ];
    for request in &requests {
        server.0.signal(Signal::STOP)?;
        let begun = Instant::now();
        let out = run::keep(run::within(PROGRAM_MAX_S, &Command::new("sh")).args(["-c", request]))?;
        let elapsed = begun.elapsed();
        server.0.signal(Signal::CONT)?;
        ensure!(
            out.code == Some(1) && out.stderr.contains("Input/output error"),
            "'{request}' at a server that hangs: exit code {:?}, {}",
            out.code,
            out.stderr
        );
        ensure!(elapsed <= FAILS_WITHIN, "'{request}' took {elapsed:.1?}");
        took.push(format!("{:.1} s", elapsed.as_secs_f64()));
        disconnect(device)?;
        connect(&server, device, &options)?;
        if took.len() == 1 {
            ensure!(sum(device)? == before, "the device has other contents");
        }
    }
    // The write that failed may have been done or not; afterwards one succeeds.
    sh(&requests[1])?;
    let zeros = sh(&format!("cmp -n 65536 {device} /dev/zero && echo same"))?;
    ensure!(zeros == "same\n", "a write after the reconnection is not read back");
    disconnect(device)?;
    server.stop_clean()?;
    Ok(format!("read fails after {}, write after {}; both succeed again", took[0], took[1]))
}

/// A server that is killed: the new one has everything that was fsynced.
fn kill(bench: &Bench) -> Result<String> {
    let (device, point) = ("/dev/nbd3", "/mnt/c");
    let server = bench.serve(Path::new(DISK), LAZY)?;
    connect(&server, device, "-connections 2")?;
    sh(&format!("mkfs.ext4 -q {device}; mount {device} {point}"))?;
    let jobs: Vec<Child> =
        (0..WRITERS).map(|job| write_and_fsync(point, job)).collect::<Result<_>>()?;
    std::thread::sleep(KILL_AFTER);
    server.kill()?;
    let mut kept = Vec::new();
    for job in jobs {
        kept.push(fsynced(job)?);
    }
    let promised: u64 = kept.iter().sum();
    ensure!(kept.iter().all(|&writes| writes > 0), "a writer had nothing fsynced: {kept:?}");
    // The device is dead, and the file system on it cannot write any more.
    sh(&format!("umount {point}"))?;
    disconnect(device)?;
    let server = bench.serve(Path::new(DISK), LAZY)?;
    connect(&server, device, "-connections 2")?;
    sh(&format!("mount {device} {point}")).context("mount, which replays the journal")?;
    for (job, writes) in kept.iter().enumerate() {
        let read = format!("--rw=read --size={} --verify_fatal=1", writes * WRITE_BYTES);
        sh(&format!("{} {read} --output-format=json", writer(point, job)))
            .and_then(|text| fio::parse_text(&text))
            .with_context(|| format!("verify the {writes} fsynced writes of job {job}"))?;
    }
    unmount(device, point)?;
    disconnect(device)?;
    server.stop_clean()?;
    Ok(format!("{promised} fsynced writes of {WRITERS} processes all there, e2fsck -fn clean"))
}

/// Returns what the jobs that write and those that verify have in common.
fn writer(point: &str, job: usize) -> String {
    let seed = 7919 * (job + 1);
    format!(
        "fio --name=job{job} --filename={point}/job{job} --bs={WRITE_BYTES} --ioengine=psync \
         --randseed={seed} --verify=crc32c"
    )
}

/// Starts a process that writes and calls fsync after each write, until that fails.
fn write_and_fsync(point: &str, job: usize) -> Result<Child> {
    let load = "--rw=write --size=96m --fsync=1 --fallocate=none --do_verify=0";
    let line = format!("{} {load} --output-format=json", writer(point, job));
    let mut shell = run::within(PROGRAM_MAX_S, &Command::new("sh"));
    shell.args(["-c", &line]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    shell.spawn().context("start fio")
}

/// Waits for a writer that must have met an error; returns how many of its writes were fsynced.
fn fsynced(job: Child) -> Result<u64> {
    let out = job.wait_with_output().context("wait for fio")?;
    let text = String::from_utf8_lossy(&out.stdout);
    let start = text.find('{').context("fio printed no JSON")?;
    let report: Value = serde_json::from_str(&text[start..]).context("parse what fio printed")?;
    let job = &report["jobs"][0];
    ensure!(job["error"].as_i64().is_some_and(|error| error != 0), "fio met no error: no kill");
    let syncs = job["sync"]["total_ios"].as_u64().context("fio reports no fsync")?;
    // The last one may be the one that failed.
    Ok(syncs.saturating_sub(1))
}
