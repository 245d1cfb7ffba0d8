//! `larder demo`: a demonstration in one minute that needs only this binary.
//!
//! It creates an image, puts a cache in front of it, and runs the Probe workload (random 4 KiB, one
//! read to three writes) through NBD: with a working set that fits the cache and with one of eight
//! times the cache size, each without and with the cache, on the disk of this machine and on a
//! modeled 7,200 rpm disk in real time. The image is unlinked once it is open, so no file remains
//! however the demo ends, except the copies that `--keep` requests.

mod disk;
mod kept;
mod outcome;
mod trial;

use crate::args;
use crate::free_space;
use crate::signals::Stop;
use anyhow::{Result, bail};
use clap::Args;
use disk::{Disk, DiskKind};
use kept::KeptFiles;
use larder_io::clock::MonotonicClock;
use larder_lab::workload::probe::Probe;
use larder_server::plan::check_memory;
use outcome::Outcome;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The seed of the workload: the same requests without and with the cache.
const SEED: u64 = 1998;
/// Working sets in multiples of the cache.
const SIZES: [(f64, &str); 2] = [(0.5, "fits the cache"), (8.0, "8 times the cache")];

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Memory of the cache.
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = args::bytes)]
    memory: u64,

    /// Directory for the image.
    ///
    /// The directory determines the disk that is measured.
    #[arg(long, value_name = "DIRECTORY", default_value = ".")]
    directory: PathBuf,

    /// Duration of each trial, 1s to 10m.
    ///
    /// Duration of each of the eight trials; the second half of each is measured.
    #[arg(long = "for", value_name = "TIME", default_value = "5s", value_parser = trial_time)]
    time: u64,

    /// Keep image, trace and record in this directory.
    ///
    /// The files are demo.img, demo.ltr with the requests of the larger working set (the first
    /// million), and demo.json with the rates, for larder size, serve, trace replay and report. The
    /// directory is created if it does not exist.
    #[arg(long, value_name = "DIRECTORY")]
    keep: Option<PathBuf>,
}

/// Parses the duration of a trial.
fn trial_time(text: &str) -> Result<u64, String> {
    let ns = args::time(text)?;
    let is_valid =
        (Duration::from_secs(1)..=Duration::from_mins(10)).contains(&Duration::from_nanos(ns));
    if is_valid { Ok(ns) } else { Err("a trial takes from 1s to 10m".to_owned()) }
}

/// Data that all parts of the demo share.
struct DemoContext {
    memory: u64,
    image_bytes: u64,
    trial: Duration,
    clock: Arc<MonotonicClock>,
    stop: Stop,
    /// True if the requests of a trial are recorded.
    keeps_requests: bool,
}

impl DemoContext {
    /// Fails if Ctrl-C was pressed.
    fn check(&self) -> Result<()> {
        if self.stop.flag().load(Ordering::Acquire) {
            bail!("finish the demo: it was stopped");
        }
        Ok(())
    }
}

pub(crate) fn run(arguments: &DemoArgs) -> Result<()> {
    check_memory(arguments.memory)?;
    let largest = SIZES.map(|(times, _)| Probe::sized(arguments.memory, times).file_bytes);
    let image_bytes = largest.into_iter().max().expect("two sizes").next_multiple_of(4096);
    free_space::check(&arguments.directory, image_bytes)?;
    let kept =
        arguments.keep.as_deref().map(|directory| KeptFiles::prepare(directory, image_bytes));
    let kept = kept.transpose()?;
    let mut image = disk::Image::create(&arguments.directory)?;
    let context = DemoContext {
        memory: arguments.memory,
        image_bytes,
        trial: Duration::from_nanos(arguments.time),
        clock: Arc::new(MonotonicClock::new()),
        stop: Stop::listen()?,
        keeps_requests: kept.is_some(),
    };
    let result = demonstrate(arguments, &context, &mut image, kept);
    if result.is_err() && context.check().is_err() {
        eprintln!("larder: stopped; nothing is left behind");
        context.stop.reraise_signal()?;
    }
    result
}

fn demonstrate(
    arguments: &DemoArgs,
    context: &DemoContext,
    image: &mut disk::Image,
    kept: Option<KeptFiles>,
) -> Result<()> {
    println!(
        "One program, one request at a time: random blocks of 4 KiB, one read to three writes,\n\
         without a cache (direct I/O) and with {} of larder over NBD. Each trial runs {};\n\
         its second half is measured. With the cache, a working set that fits is read in first.\n",
        larder_schema::format::bytes(arguments.memory),
        larder_schema::format::duration(arguments.time)
    )?;
    image.fill(context)?;
    let mut all = Vec::new();
    for kind in [DiskKind::Real, DiskKind::Modeled] {
        let mut outcomes = Vec::new();
        for (times, title) in SIZES {
            outcomes.push(compare(context, image, kind, times, title)?);
        }
        println!("{}", outcome::table(kind.title(), &outcomes).to_text())?;
        all.push((kind, outcomes));
    }
    if let Some(kept) = kept {
        kept.write(context, image, &all)?;
        println!("{}", kept.next_commands())?;
        return Ok(());
    }
    println!(
        "Next: larder serve YOUR.img --memory 1GiB, and point any NBD client at the address it \
         prints."
    )?;
    Ok(())
}

/// Measures one working set on one disk, without and with the cache.
fn compare(
    context: &DemoContext,
    image: &disk::Image,
    kind: DiskKind,
    times: f64,
    title: &'static str,
) -> Result<Outcome> {
    let probe = Probe::sized(context.memory, times);
    let uncached = trial::uncached(context, Disk::open(kind, image, context)?, &probe, title)?;
    context.check()?;
    let fits = times <= 1.0;
    let disk = Disk::open(kind, image, context)?;
    let records = context.keeps_requests && kept::keeps_requests(kind, title);
    let cached = trial::cached(context, disk, &probe, [fits, records], title)?;
    context.check()?;
    Ok(Outcome { title, uncached, cached })
}
