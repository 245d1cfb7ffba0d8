//! What is measured in a mounted folder, and how.

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use rustix::fs::{Advice, fadvise};

use crate::image::{self, MIB};
use crate::prove::{Lab, to_f64};
use crate::{fio, run};

/// Bytes of the file that is read.
const FILE_MIB: u64 = 128;
/// Files that are made and removed: so few that all who take part have their turn in one and the
/// same state of the machine.
const FILES: u64 = 1000;

/// How much of each workload.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    /// Files and transactions of PostMark.
    postmark: (u64, u64),
    /// Seconds of reading.
    seconds: u64,
}

impl Size {
    pub(super) const LONG: Size = Size { postmark: (1000, 4000), seconds: 3 };
    pub(super) const QUICK: Size = Size { postmark: (200, 800), seconds: 1 };
}

/// One workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Workload {
    /// Empty files, made and closed one after the other.
    Creates,
    /// The same, removed.
    Deletes,
    /// Debian's PostMark.
    PostMark,
    /// Random reads of 4 KiB with so many jobs, opened for direct I/O.
    Direct(usize),
    /// The same, opened without that.
    Buffered(usize),
    /// Reads of 1 MiB in order, opened for direct I/O.
    DirectLarge,
    /// Random reads of 4 KiB that the kernel answers from its own pages.
    Kept,
    /// The same of 1 MiB in order.
    KeptLarge,
}

impl Workload {
    pub(super) const ALL: [Workload; 10] = [
        Workload::Creates,
        Workload::Deletes,
        Workload::PostMark,
        Workload::Direct(1),
        Workload::Buffered(1),
        Workload::Direct(2),
        Workload::Buffered(2),
        Workload::DirectLarge,
        Workload::Kept,
        Workload::KeptLarge,
    ];

    pub(super) fn name(self) -> String {
        let jobs = |jobs: usize| if jobs == 1 { "1 job".into() } else { format!("{jobs} jobs") };
        match self {
            Workload::Creates => "creates".into(),
            Workload::Deletes => "deletes".into(),
            Workload::PostMark => "PostMark".into(),
            Workload::Direct(count) => format!("4 KiB direct random hits, {}", jobs(count)),
            Workload::Buffered(count) => format!("4 KiB random hits, {}", jobs(count)),
            Workload::DirectLarge => "1 MiB direct reads".into(),
            Workload::Kept => "4 KiB random reads of kernel pages".into(),
            Workload::KeptLarge => "1 MiB reads of kernel pages".into(),
        }
    }

    pub(super) fn unit(self) -> &'static str {
        match self {
            Workload::Creates | Workload::Deletes => "files/s",
            Workload::PostMark => "transactions/s",
            Workload::Direct(_) | Workload::Buffered(_) | Workload::Kept => "reads/s",
            Workload::DirectLarge | Workload::KeptLarge => "MB/s",
        }
    }

    /// Rounds, at full length or not. Where a trial takes a tenth of a second there are many.
    pub(super) fn rounds(self, full: bool) -> usize {
        match (full, self) {
            (false, _) => 3,
            (true, Workload::Creates | Workload::Deletes) => 35,
            (true, _) => 7,
        }
    }

    /// Whether a file is read.
    fn reads(self) -> bool {
        !matches!(self, Workload::Creates | Workload::Deletes | Workload::PostMark)
    }

    /// Makes what the trials at a mountpoint need, once.
    pub(super) fn prepare(self, point: &Path) -> Result<()> {
        let file = point.join("file");
        if self.reads() && !file.exists() {
            image::filled(&file, FILE_MIB, 1)?;
            // On the disk, so that no trial waits for it.
            File::open(&file).and_then(|file| file.sync_all()).context("write the file out")?;
        }
        Ok(())
    }

    /// What is done in a second.
    pub(super) fn trial(self, lab: &Lab, point: &Path, size: Size) -> Result<f64> {
        match self {
            Workload::Creates => made_and_removed(point).map(|(creates, _)| creates),
            Workload::Deletes => made_and_removed(point).map(|(_, deletes)| deletes),
            Workload::PostMark => postmark(lab, point, size.postmark),
            Workload::Direct(jobs) => {
                let jobs = format!("--numjobs={jobs}");
                reads(point, size, &["--direct=1", "--rw=randread", "--bs=4k", &jobs])
            }
            Workload::Buffered(jobs) => {
                let jobs = format!("--numjobs={jobs}");
                reads(point, size, &["--rw=randread", "--bs=4k", &jobs])
            }
            // Who shows the folder makes the difference.
            Workload::Kept => Workload::Buffered(1).trial(lab, point, size),
            Workload::DirectLarge => large_reads(point, size, "--direct=1"),
            Workload::KeptLarge => large_reads(point, size, "--direct=0"),
        }
    }
}

/// Files made in a second, and removed.
fn made_and_removed(point: &Path) -> Result<(f64, f64)> {
    let folder = point.join("files");
    std::fs::create_dir(&folder).context("make a folder for files")?;
    let name = |number: u64| folder.join(number.to_string());
    let mut how = OpenOptions::new();
    how.write(true).create_new(true);
    let begun = Instant::now();
    for number in 0..FILES {
        how.open(name(number)).context("make a file")?;
    }
    let made = begun.elapsed();
    for number in 0..FILES {
        std::fs::remove_file(name(number)).context("remove a file")?;
    }
    let removed = begun.elapsed().saturating_sub(made);
    std::fs::remove_dir(&folder).context("remove the folder of the files")?;
    Ok((to_f64(FILES) / made.as_secs_f64(), to_f64(FILES) / removed.as_secs_f64()))
}

/// Transactions of Debian's PostMark in a second of its whole run: it counts whole seconds alone.
fn postmark(lab: &Lab, point: &Path, (files, transactions): (u64, u64)) -> Result<f64> {
    let folder = point.join("postmark");
    std::fs::create_dir(&folder).context("make a folder for PostMark")?;
    let script = lab.file("mount-speed.script");
    crate::postmark::write_script(&script, &folder, (files, transactions), 10_000)?;
    let begun = Instant::now();
    let out = run::keep(run::client(60, "postmark").arg(&script))?;
    let took = begun.elapsed().as_secs_f64();
    let words = run::tail(&out.stderr);
    ensure!(out.ok() && out.stdout.contains("deleted"), "PostMark failed: {words}");
    ensure!(!out.stderr.contains("Error"), "PostMark says: {words}");
    std::fs::remove_dir(&folder).context("PostMark left something")?;
    Ok(to_f64(transactions) / took)
}

/// Megabytes in a second, by reads of 1 MiB in order.
fn large_reads(point: &Path, size: Size, direct: &str) -> Result<f64> {
    Ok(reads(point, size, &[direct, "--rw=read", "--bs=1m"])? * to_f64(MIB) / 1e6)
}

/// Reads in a second, of a file that was read just before.
fn reads(point: &Path, size: Size, options: &[&str]) -> Result<f64> {
    let file = point.join("file");
    let mut read = File::open(&file).context("open the file")?;
    // Where the kernel's pages happen to lie in memory is worth a fifth of the speed of reading
    // them, and they would lie there in all rounds if they were kept.
    fadvise(&read, 0, None, Advice::DontNeed).context("have the kernel forget the file")?;
    std::io::copy(&mut read, &mut std::io::sink()).context("read the file once")?;
    let mut fio = run::client(size.seconds + 60, "fio");
    fio.args(["--name=job", "--ioengine=psync", "--readonly", "--group_reporting", "--thread"]);
    fio.args(["--output-format=json", "--time_based", "--invalidate=0"]);
    fio.arg(format!("--runtime={}", size.seconds)).arg(format!("--size={FILE_MIB}m"));
    fio.arg(format!("--filename={}", file.display())).args(options);
    Ok(fio::parse(&run::text(&mut fio)?)?.per_s)
}
