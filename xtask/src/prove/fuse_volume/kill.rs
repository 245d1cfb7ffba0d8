//! The server is killed while files are written and fsynced; after the journal has been replayed
//! all of them must be there, whole.

use anyhow::{Context as _, Result, ensure};
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::mounted::{FileSystem, IMAGE_MIB, Kind, Setup};
use crate::image::{self, MIB};
use crate::prove::Lab;
use crate::random::Random;

/// Writing before the kill, in milliseconds: at least, and at most.
const SPAN_MS: (u64, u64) = (500, 2500);
/// Files of a thread, and threads.
const FILE_BYTES_MAX: u64 = 200_000;
const THREADS: u64 = 4;
/// How long a writer may wait for a server that is gone.
const PATIENCE: Duration = Duration::from_mins(1);

/// So many rounds on one image; what came out.
pub(super) fn rounds(lab: &Lab, kind: Kind, rounds: u64) -> Result<String> {
    let image = image::sparse(&lab.file("killed.img"), IMAGE_MIB * MIB)?;
    let lazy = "--memory 64MiB --set first-delay=60000 --set idle-delay=60000 --set age-max=600000";
    let mut random = Random::seeded(lab.options.seed);
    let (mut promised, mut made) = (0, false);
    for round in 0..rounds {
        let setup = Setup { lab, image: &image, options: lazy };
        let served = setup.serve()?;
        let mut file_system = FileSystem::attach(lab, &served.file(), kind)?;
        if !made {
            file_system.make()?;
            made = true;
        }
        file_system.mount().context("mount after a kill")?;
        let folder = file_system.point().join(format!("round-{round}"));
        std::fs::create_dir(&folder).context("make a folder")?;
        File::open(&folder).and_then(|folder| folder.sync_all()).context("fsync a folder")?;
        File::open(file_system.point()).and_then(|top| top.sync_all()).context("fsync the top")?;
        let span = SPAN_MS.0 + random.next() % (SPAN_MS.1 - SPAN_MS.0);
        let seed = random.next();
        let stop = AtomicBool::new(false);
        let kept = std::thread::scope(|scope| {
            let (stop, folder) = (&stop, folder.as_path());
            let write = |thread| scope.spawn(move || write(folder, seed ^ thread, thread, stop));
            let writers: Vec<_> = (0..THREADS).map(write).collect();
            std::thread::sleep(Duration::from_millis(span));
            let killed = served.kill();
            stop.store(true, Ordering::Release);
            let kept: Result<Vec<_>> = writers
                .into_iter()
                .map(|writer| writer.join().expect("a writer does not panic"))
                .collect();
            killed?;
            kept
        })?;
        // What is left of the file system has no disk any more.
        file_system.unmount().context("unmount what has lost its disk")?;
        file_system.detach()?;
        promised += look(&Setup { lab, image: &image, options: lazy }, kind, &folder, seed, &kept)?;
    }
    std::fs::remove_file(&image).context("remove the image")?;
    ensure!(promised > 0, "nothing was promised");
    Ok(format!("{rounds} kills, {promised} fsynced files whole, fsck clean"))
}

fn content(seed: u64, number: u64) -> Vec<u8> {
    let mut random = Random::seeded(seed ^ (number << 8));
    let len = 1 + random.next() % FILE_BYTES_MAX;
    let mut bytes = vec![0; usize::try_from(len).expect("small")];
    random.fill(&mut bytes);
    bytes
}

fn name(thread: u64, number: u64) -> String {
    format!("{thread}-{number}")
}

/// Writes files until that fails; how many of them, and of their names, were fsynced.
fn write(folder: &Path, seed: u64, thread: u64, stop: &AtomicBool) -> Result<u64> {
    let begun = Instant::now();
    let mut number = 0;
    let one = |number: u64| -> std::io::Result<()> {
        let mut file = File::create(folder.join(name(thread, number)))?;
        file.write_all(&content(seed, number))?;
        file.sync_all()?;
        File::open(folder)?.sync_all()
    };
    while !stop.load(Ordering::Acquire) && one(number).is_ok() {
        number += 1;
    }
    ensure!(begun.elapsed() < PATIENCE, "a writer waited {} s", begun.elapsed().as_secs());
    Ok(number)
}

/// Looks for what was promised, on a new server; how much that was.
fn look(setup: &Setup<'_>, kind: Kind, folder: &Path, seed: u64, kept: &[u64]) -> Result<u64> {
    let served = setup.serve()?;
    let mut file_system = FileSystem::attach(setup.lab, &served.file(), kind)?;
    file_system.mount().context("mount, which replays the journal")?;
    for (thread, &kept) in (0..).zip(kept) {
        for number in 0..kept {
            let path = folder.join(name(thread, number));
            let found = std::fs::read(&path).with_context(|| format!("{}", path.display()))?;
            let expected = content(seed ^ thread, number);
            ensure!(found == expected, "{} is not what was fsynced", path.display());
        }
    }
    file_system.unmount()?;
    file_system.check()?;
    file_system.detach()?;
    served.stop_clean()?;
    Ok(kept.iter().sum())
}
