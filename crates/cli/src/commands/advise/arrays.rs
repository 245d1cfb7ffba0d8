//! RAID level, chunk and allocation unit for the requests of a trace.

use super::AdviseArgs;
use crate::args;
use crate::commands::trace::{SAMPLE_NAME, open_trace};
use crate::commands::{simulated_cache, store_model};
use anyhow::{Context, Result, ensure};
use larder_core::hint::Hint;
use larder_core::units::as_f64;
use larder_lab::advise::{
    ArrayNeeds, DeviceRequest, MeanLoad, Traffic, TrafficError, advise_array, advise_log,
    advise_unit, find_log, level_rule, log_rule, unit_rule,
};
use larder_lab::model::{DeviceModel, StoreModel, StoreSpec};
use larder_lab::sim::engine::{
    CacheSimulationError, CacheSimulationOptions, Clients, VolumeLengths, simulate,
};
use larder_lab::trace::{BoxedSource, NameKind, TraceError};
use larder_report::escape;
use larder_schema::bottleneck::Bottleneck;
use larder_schema::format;
use larder_schema::storage_advice::{
    ArrayRow, CacheEffect, GAIN, LogAdvice, ReadAheadEffect, ReadOrder, StorageAdvice, UnitRow,
};
use std::path::Path;

/// Maximum number of files whose lengths are read.
const FILES_MAX: usize = 1_000_000;
/// Seed of the aged file systems, and of random places.
const SEED: u64 = 1;

/// Advises on the requests of a trace, or on the load of the busiest disk of counters.
pub(super) fn advise(
    arguments: &AdviseArgs,
    counters: Option<&Bottleneck>,
) -> Result<StorageAdvice> {
    let disk = arguments.disk.clone().unwrap_or(StoreSpec::Model(StoreModel::DISK));
    let StoreModel::Device(disk) = store_model::of(&disk)? else {
        anyhow::bail!("advise on disks: --disk is no device; choose one of larder model list");
    };
    let sizes = arguments.files.as_deref().map(file_sizes).transpose()?;
    let (subject, input, (traffic, cache, order)) = load(arguments, counters, disk)?;
    let requests = traffic.sample(arguments.requests);
    let (depth, failures) = (usize::from(arguments.depth), u32::from(arguments.failures));
    let needs = ArrayNeeds {
        disk,
        disks: arguments.disks.into(),
        failures,
        bytes: arguments.space.unwrap_or(0),
        price: arguments.price,
        depth,
    };
    let (arrays, advised_array) = advise_array(&traffic, &requests, &needs, args::cores());
    let summary = traffic.summary();
    let advised = advised_array.map(|index| &arrays[index]);
    let model = advised.map(|row| {
        let parsed = store_model::parse(&row.model).map_err(anyhow::Error::msg)?;
        store_model::of(&parsed)
    });
    let model = model.transpose()?;
    let (units, advised_unit) = match (advised, &model, sizes) {
        (Some(row), Some(model), Some(sizes)) => {
            advise_unit(&traffic, &requests, (model, row.usable_bytes, depth), &sizes, SEED)
        }
        _ => (Vec::<UnitRow>::new(), 0),
    };
    let (log, read_ahead) = match &input {
        Some(input) => {
            (log(input, (&traffic, &requests), &needs, &arrays)?, read_ahead(input, order, model)?)
        }
        None => (None, ReadAheadEffect { order, ..ReadAheadEffect::default() }),
    };
    let of_level = level_rule(&summary, &arrays, advised_array);
    let of_unit = unit_rule(&summary, &units, advised_unit);
    let of_log = log.as_ref().map(log_rule);
    Ok(StorageAdvice {
        subject,
        traffic: summary,
        cache,
        disk: StoreModel::Device(disk).name().into_owned(),
        disks: needs.disks,
        failures,
        needed_bytes: needs.bytes.max(summary.bytes),
        depth,
        sampled_requests: requests.len() as u64,
        arrays,
        advised_array,
        rules: of_level.into_iter().chain(of_log).chain(of_unit).collect(),
        log,
        read_ahead,
        units,
        advised_unit,
    })
}

/// Requests that reach the disks, the effect of the cache, if there is one, and the order of the
/// reads of the clients.
type Load = (Traffic, Option<CacheEffect>, ReadOrder);

/// Returns the name of the load, the trace, if it is one, and the load.
fn load<'a>(
    arguments: &'a AdviseArgs,
    counters: Option<&Bottleneck>,
    disk: DeviceModel,
) -> Result<(String, Option<Input<'a>>, Load)> {
    if let Some(counters) = counters {
        let (disk, traffic) = of_counters(counters, arguments.space.unwrap_or(0))?;
        let order = traffic.read_order();
        let subject = format!("{disk} of {}, at random places", counters.subject);
        return Ok((subject, None, (traffic, None, order)));
    }
    let name = arguments.file.as_deref();
    let name = name.map_or_else(|| SAMPLE_NAME.into(), |path| escape::path(path).into_owned());
    let input = Input::open(arguments)?;
    let traffic = traffic(&input, disk)?;
    Ok((name, Some(input), traffic))
}

/// Returns the name of the busiest disk, and requests with its rates and mean lengths.
fn of_counters(found: &Bottleneck, bytes: u64) -> Result<(String, Traffic)> {
    let disks = &found.counters.disks;
    let named = disks.iter().find(|disk| Some(&disk.disk) == found.disk.as_ref());
    let disk = named.or(disks.first()).context("advise an array: no disk was active")?;
    let is_separate = disk.reads_per_s.is_some() || disk.writes_per_s.is_some();
    ensure!(
        is_separate,
        "advise an array: {} does not separate reads and writes; use iostat -x or larder watch",
        found.counters.source
    );
    let load = MeanLoad {
        reads_per_s: disk.reads_per_s.unwrap_or(0.0),
        bytes_per_read: disk.bytes_per_read().unwrap_or(0.0),
        writes_per_s: disk.writes_per_s.unwrap_or(0.0),
        bytes_per_write: disk.bytes_per_write().unwrap_or(0.0),
    };
    Ok((escape::text(&disk.disk).into_owned(), Traffic::of_load(&load, bytes, SEED)?))
}

/// A trace that is read several times.
struct Input<'a> {
    arguments: &'a AdviseArgs,
    lengths: VolumeLengths,
}

impl Input<'_> {
    fn open(arguments: &AdviseArgs) -> Result<Input<'_>> {
        ensure!(
            arguments.file.as_deref() != Some(Path::new("-")),
            "advise on standard input: a trace is read several times, so it must be a file"
        );
        let mut input = Input { arguments, lengths: VolumeLengths::default() };
        input.lengths = VolumeLengths::of(&mut *input.source()?)?;
        Ok(input)
    }

    fn source(&self) -> Result<BoxedSource, TraceError> {
        open_trace(self.arguments.file.as_deref(), &self.arguments.input.options())
    }

    fn clients(&self) -> Clients {
        Clients { number: 1, depth: self.arguments.depth.into() }
    }

    /// Returns the options of a simulated cache in front of a store.
    fn cache(&self, memory_bytes: u64, store: StoreModel) -> CacheSimulationOptions {
        simulated_cache::options(memory_bytes, store, self.clients())
    }
}

fn traffic(input: &Input<'_>, disk: DeviceModel) -> Result<Load> {
    let all = Traffic::of_trace(&mut *input.source()?, &input.lengths)?;
    let order = all.read_order();
    let Some(memory_bytes) = input.arguments.cache else {
        return Ok((all, None, order));
    };
    // Twice the memory is simulated as well.
    simulated_cache::check(memory_bytes, 2, input.clients())?;
    let requests = all.requests().len() as u64;
    drop(all);
    let behind = |bytes: u64| -> Result<Traffic, TrafficError> {
        let cache = input.cache(bytes, StoreModel::Device(disk));
        let mut source = input.source().map_err(CacheSimulationError::from)?;
        Traffic::behind_cache(&mut *source, &input.lengths, &cache)
    };
    let traffic = behind(memory_bytes)?;
    let behind_twice = match behind(memory_bytes.saturating_mul(2)) {
        Ok(twice) => twice.requests().len() as u64,
        Err(TrafficError::Empty) => 0,
        Err(error) => return Err(error.into()),
    };
    let behind = traffic.requests().len() as u64;
    let effect = CacheEffect { memory_bytes, requests, behind, behind_twice };
    Ok((traffic, Some(effect), order))
}

/// Returns the advice on the place of the log, if there is one.
fn log(
    input: &Input<'_>,
    traffic: (&Traffic, &[DeviceRequest]),
    needs: &ArrayNeeds,
    arrays: &[ArrayRow],
) -> Result<Option<LogAdvice>> {
    let Some(log) = find_log(traffic.0) else { return Ok(None) };
    let number = u32::try_from(log.number).context("the number of a volume")?;
    // A source knows a name once it has read a record with it.
    let (mut source, mut batch) = (input.source()?, Vec::new());
    while source.name(NameKind::Volume, number).is_none() && source.next_batch(&mut batch)? {}
    let name = source.name(NameKind::Volume, number);
    let volume = name.map_or_else(|| number.to_string(), |it| escape::text(it).into_owned());
    Ok(advise_log(traffic, &log, volume, needs, arrays, args::cores()))
}

/// Returns the order of the reads, and with a cache the rates of the clients with and without
/// read-ahead from the advised array, unless too few reads are in order.
fn read_ahead(
    input: &Input<'_>,
    order: ReadOrder,
    model: Option<StoreModel>,
) -> Result<ReadAheadEffect> {
    let is_possible = order.in_order_share >= GAIN;
    let (Some(memory_bytes), Some(store), true) = (input.arguments.cache, model, is_possible)
    else {
        return Ok(ReadAheadEffect { order, ..ReadAheadEffect::default() });
    };
    let rate = |hint: Hint| -> Result<f64> {
        let options = CacheSimulationOptions { hint, ..input.cache(memory_bytes, store) };
        let result = simulate(&mut *input.source()?, &input.lengths, &options, |_| ())?;
        Ok(as_f64(input.lengths.requests()) * 1e9 / as_f64(result.elapsed.max(1)))
    };
    let (with_per_s, without_per_s) = (Some(rate(Hint::Normal)?), Some(rate(Hint::Random)?));
    Ok(ReadAheadEffect { order, with_per_s, without_per_s })
}

/// Returns the lengths of the files below a directory that have bytes.
fn file_sizes(directory: &Path) -> Result<Vec<u64>> {
    let name = escape::path(directory);
    let (mut sizes, mut directories) = (Vec::new(), vec![directory.to_owned()]);
    let mut unreadable = 0;
    while let Some(below) = directories.pop() {
        let entries = match std::fs::read_dir(&below) {
            Ok(entries) => entries,
            Err(error) if below == directory => {
                return Err(error).with_context(|| format!("list {name}"));
            }
            // Such as lost+found, for other users than root.
            Err(_) => {
                unreadable += 1;
                continue;
            }
        };
        for entry in entries {
            let entry = entry.with_context(|| format!("list {}", escape::path(&below)))?;
            // Of the entry itself: a link is not followed.
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                directories.push(entry.path());
            } else if metadata.is_file() && metadata.len() > 0 {
                sizes.push(metadata.len());
            }
        }
        if sizes.len() >= FILES_MAX {
            break;
        }
    }
    if unreadable > 0 {
        let count = format::counted(unreadable, "directory");
        eprintln!("larder: note: {count} below {name} could not be read, and is not counted");
    }
    if sizes.len() >= FILES_MAX && !directories.is_empty() {
        eprintln!("larder: note: only the first {FILES_MAX} files below {name} are counted");
    }
    ensure!(!sizes.is_empty(), "read the lengths of files in {name}: it has no file with data");
    Ok(sizes)
}
