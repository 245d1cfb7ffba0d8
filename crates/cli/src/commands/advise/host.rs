//! The bottleneck, from counters in a file or of this machine.

use super::AdviseArgs;
use crate::commands::report;
use crate::commands::store_model;
use crate::signals::Stop;
use anyhow::{Context, Result, ensure};
use larder_host::watch::HostSampler;
use larder_lab::balance::{DiskLoad, busy_share, limits_of_model};
use larder_lab::model::StoreModel;
use larder_report::bottleneck::{expected_by_kind, judge};
use larder_report::{escape, host_counters, perfmon, system_activity};
use larder_schema::bottleneck::{Bottleneck, ExpectedDisk};
use larder_schema::host_counters::{HostCounters, HostDisk};
use larder_schema::watch::{self, Watch};
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, IsTerminal};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Default duration of `--live`.
const LIVE: Duration = Duration::from_secs(10);
/// Length of a sample.
const SAMPLE: Duration = Duration::from_secs(1);
/// Maximum time until Ctrl-C ends the sampling.
const PAUSE: Duration = Duration::from_millis(50);
/// Capacity of the device of a model, which bounds its seeks.
const DEVICE_BYTES: u64 = 1 << 40;

/// Returns the bottleneck, or `None` if the file has no counters: then it is a trace.
pub(super) fn bottleneck(arguments: &AdviseArgs) -> Result<Option<Bottleneck>> {
    let (subject, counters) = match &arguments.file {
        None if arguments.live => ("this machine".to_owned(), live(arguments)?),
        None => return Ok(None),
        // Standard input, which the reader of traces refuses.
        Some(file) if file == Path::new("-") => return Ok(None),
        Some(file) => match of_file(file, arguments)? {
            Some(counters) => (escape::path(file).into_owned(), counters),
            None => return Ok(None),
        },
    };
    let model = arguments.disk.as_ref().map(store_model::of).transpose()?;
    let expected = |disk: &HostDisk| {
        model.as_ref().map_or_else(|| expected_by_kind(disk), |model| expected_of(model, disk))
    };
    Ok(Some(judge(subject, counters, expected)))
}

/// Returns the service times of a model for requests of the lengths of a disk.
fn expected_of(model: &StoreModel, disk: &HostDisk) -> ExpectedDisk {
    let limits = limits_of_model(model, DEVICE_BYTES);
    let bytes = |each: Option<f64>| each.or(disk.bytes_per_request()).unwrap_or(0.0);
    let none = DiskLoad::default();
    let read = DiskLoad { reads: 1.0, read_bytes: bytes(disk.bytes_per_read()), ..none };
    let write = DiskLoad { writes: 1.0, write_bytes: bytes(disk.bytes_per_write()), ..none };
    ExpectedDisk {
        disk: Some(disk.disk.clone()),
        model: model.name().into_owned(),
        read_s: busy_share(&limits, &read),
        write_s: busy_share(&limits, &write),
    }
}

/// Samples this machine; Ctrl-C ends it early.
fn live(arguments: &AdviseArgs) -> Result<HostCounters> {
    let stop = Stop::listen()?;
    let length = arguments.time.map_or(LIVE, Duration::from_nanos);
    ensure!(length >= SAMPLE, "sample this machine: --for must be at least 1s");
    if std::io::stderr().is_terminal() {
        eprintln!("sampling this machine for {} s (Ctrl-C: stop and report now)", length.as_secs());
    }
    let mut sampler = HostSampler::start();
    let (started, mut next) = (Instant::now(), SAMPLE);
    while started.elapsed() < length && !stop.flag().load(Ordering::Acquire) {
        std::thread::sleep(PAUSE.min(length.saturating_sub(started.elapsed())));
        if started.elapsed() >= next {
            sampler.step();
            next += SAMPLE;
        }
    }
    sampler.step();
    Ok(sampler.counters())
}

/// Reads the counters in a file; `None` if it is no format of counters.
fn of_file(file: &Path, arguments: &AdviseArgs) -> Result<Option<HostCounters>> {
    let name = escape::path(file);
    let context = || format!("read {name}");
    let mut text = BufReader::new(File::open(file).with_context(context)?);
    let head = text.fill_buf().with_context(context)?;
    if perfmon::is_log(head) {
        let log = report::log(file, text, &arguments.perfmon)?;
        return Ok(Some(host_counters::of_log(&log)));
    }
    if system_activity::is_text(head) {
        return system_activity::read_text(text).map(Some).with_context(context);
    }
    if !head.trim_ascii_start().starts_with(b"{") {
        return Ok(None);
    }
    let value: Value = serde_json::from_str(&report::read(file, text)?).with_context(context)?;
    if system_activity::is_json(&value) {
        return system_activity::read_json(&value).map(Some).with_context(context);
    }
    ensure!(
        value["schema"] == watch::SCHEMA,
        "{}: it is not JSON of larder watch, iostat or sadf",
        context()
    );
    let watch: Watch = serde_json::from_value(value).with_context(context)?;
    let counters = host_counters::of_watch(&watch).with_context(|| {
        format!("{}: it has no counters of the host; record it again with this version", context())
    })?;
    Ok(Some(counters))
}
