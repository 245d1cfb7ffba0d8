//! A tree of ten million files on a loop device: rate, memory, and a scan that is killed again and
//! again and continues.

use std::fs::File;

use super::*;
use crate::daemon::Daemon;
use rustix::process::Signal;

const FILES: u64 = 10_000_000;
const FILES_QUICK: u64 = 200_000;
/// Files of a directory.
const OF_DIRECTORY: u64 = 5_000;
/// The minimum rate, files per second, and the maximum memory.
const RATE_MIN: f64 = 20_000.0;
const MEMORY_MAX: u64 = 300 << 20;

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    let files = env.choose(FILES, FILES_QUICK);
    let directory = env.file("million");
    std::fs::create_dir_all(&directory).context("make a directory")?;
    // An inode of 256 bytes and, for one of eight files, a block.
    let image =
        image::create_sparse(&directory.join("million.img"), (files * 1500).max(512 * MIB))?;
    let disk = Disk::attach(&image)?;
    let (device, inodes) = (disk.path(), (files + files / 8).to_string());
    stdout_of(cmd!(300, "mkfs.ext4 -q -F -N {inodes} -E lazy_itable_init=1 {device}"))?;
    let file_system = FileSystem::on(&directory, device, Kind::Ext4)?;
    file_system.mount()?;
    let tree = file_system.point();
    make_tree(tree, files)?;
    stdout_of(cmd!(300, "sync"))?;
    file_system.unmount()?;
    file_system.mount()?;
    // The image is in the page cache of the host's file system otherwise.
    std::fs::write("/proc/sys/vm/drop_caches", "3").context("drop the page cache")?;
    let (larder, out) = (&env.larder, env.file("million.json"));
    let begun = Instant::now();
    let scan = |name: &str, file: &Path, resume: Option<&Path>| {
        let options = resume.map(|it| vec!["--resume".to_owned(), it.display().to_string()]);
        let options = options.unwrap_or_default();
        Daemon::start(name, env.dir(), |_| cmd!("{larder} frag {tree} {options...} -o {file}"))
    };
    let mut whole = scan("scan", &out, None)?;
    let mut peak = 0;
    while !whole.has_ended()? {
        peak = peak.max(memory_of(whole.pid()));
        std::thread::sleep(Duration::from_millis(20));
    }
    let seconds = begun.elapsed().as_secs_f64();
    let ended = whole.wait(Duration::from_secs(10))?;
    ensure!(ended.code == Some(0), "the scan failed: {}", ended.stderr);
    let found = record::read(&out)?;
    let rate = number(&found["scan"], "files")? / seconds;
    let text = format!("{:.0} files/s, {} MiB", rate, peak >> 20);
    claims.add(
        format!(
            "{} million files, cold: at least 20,000 files/s, below 300 MiB",
            to_f64(files) / 1e6
        ),
        text,
        rate >= RATE_MIN && peak < MEMORY_MAX && number(&found["scan"], "files")? >= to_f64(files),
    );
    let (position, again) = (env.file("position.json"), env.file("again.json"));
    let mut kills = 0;
    let mut random = Rng::with_seed(env.options.seed);
    let resumed = loop {
        let mut part = scan("part", &again, Some(&position))?;
        let limit =
            Duration::from_millis(env.choose(random.u64(1_000..12_000), random.u64(100..600)));
        let begun = Instant::now();
        while begun.elapsed() < limit && !part.has_ended()? {
            std::thread::sleep(Duration::from_millis(10));
        }
        if part.has_ended()? {
            break part.wait(Duration::from_secs(10))?;
        }
        // Half of the ends are Ctrl-C, which keeps the position; the others are as a loss of power.
        let signal = if random.bool() { Signal::INT } else { Signal::KILL };
        drop(part.end(signal)?);
        kills += 1;
    };
    ensure!(resumed.code == Some(0), "the scan failed: {}", resumed.stderr);
    let again = record::read(&again)?;
    claims.add(
        "killed and continued: the totals of an undisturbed scan",
        format!("{kills} kills and interrupts"),
        again["scan"] == found["scan"] && again["map"] == found["map"] && kills > 0,
    );
    drop(file_system);
    Ok(())
}

/// Makes empty files, every eighth with a block.
fn make_tree(root: &Path, files: u64) -> Result<()> {
    for directory in 0..files.div_ceil(OF_DIRECTORY) {
        let path = root.join(format!("{}/{directory}", directory / 100));
        std::fs::create_dir_all(&path)?;
        for number in 0..OF_DIRECTORY {
            let file = File::create(path.join(format!("file-{number}")))?;
            if number % 8 == 0 {
                std::os::unix::fs::FileExt::write_all_at(&file, b"data", 0)?;
            }
        }
    }
    Ok(())
}

/// Returns the resident memory of a process; 0 once it has ended.
fn memory_of(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    crate::server::kib_field(&text, "VmHWM").unwrap_or(0)
}
