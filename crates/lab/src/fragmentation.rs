//! The cost of fragmented files: requests to files become requests to the device, once with the
//! files as they lie and once with each file in one fragment, and both run on a model of the
//! device.
//!
//! Invariants: the requests, their order and their number in flight are the same in both runs;
//! bytes without a place on the device (holes, bytes appended since) cost nothing in either.

mod behind_cache;
mod layout;
mod requests;
mod verdict;
mod writers;

pub use behind_cache::behind_cache;
pub use layout::FileLayouts;
pub use requests::{FileRequest, of_counts, one_read};
pub use verdict::{NOISE, verdict};
pub use writers::{WriterFile, find_writers};

use crate::model::{StoreModel, run_loop};
use larder_core::clock::Nanos;
use larder_core::store::{Geometry, StoreOpKind};
use larder_core::units::as_f64;
use larder_schema::fragmentation::{FragmentationCost, LayoutCost, RequestsFrom};
use layout::Layout;
use std::ops::Range;

/// Requests of a file in the sample, and their time in the two layouts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileCost {
    /// Requests to the device.
    pub requests: u64,
    /// Of these, those that cross the end of a fragment.
    pub crossing_requests: u64,
    /// Time with the files as they lie.
    pub now_ns: Nanos,
    /// Time with each file in one fragment.
    pub contiguous_ns: Nanos,
}

/// The device and the requests in flight.
#[derive(Clone, Copy, Debug)]
pub struct CostOptions {
    /// Model of the device.
    pub device: StoreModel,
    /// Bytes of the device.
    pub device_bytes: u64,
    /// Requests in flight.
    pub depth: usize,
    /// Maximum number of requests that are run on the model.
    pub sample: usize,
    /// Origin of the requests.
    pub from: RequestsFrom,
}

/// A request that reaches the device, in the bytes of all files that have a place.
struct PlacedRequest {
    file: usize,
    kind: StoreOpKind,
    range: Range<u64>,
}

/// Returns the cost of fragmentation for requests to files, and that of each file. `on_device` gets
/// the place of each request on the device.
#[must_use]
pub fn cost(
    layouts: &FileLayouts,
    requests: &[FileRequest],
    options: &CostOptions,
    mut on_device: impl FnMut(u64),
) -> (FragmentationCost, Vec<FileCost>) {
    let mut files = vec![FileCost::default(); layouts.files()];
    let mut cost = FragmentationCost {
        from: options.from,
        device: options.device.name().into_owned(),
        depth: options.depth,
        requests: requests.len() as u64,
        ..FragmentationCost::default()
    };
    let mut placed = Vec::new();
    for request in requests {
        let Some(range) = layouts.placed(request.file, request.offset..request.end()) else {
            cost.unplaced_requests += 1;
            continue;
        };
        let mut parts = layouts.now.map.on_device(range.clone());
        on_device(parts.next().map_or(0, |part| part.start));
        cost.crossing_requests += u64::from(parts.next().is_some());
        placed.push(PlacedRequest { file: request.file, kind: request.kind, range });
    }
    cost.device_requests = placed.len() as u64;
    let sample = match options.from {
        // The most fragmented files come first.
        RequestsFrom::OneRead => placed.iter().take(options.sample).collect(),
        RequestsFrom::Trace | RequestsFrom::Record => sample(&placed, options.sample),
    };
    cost.sampled_requests = sample.len() as u64;
    for request in &sample {
        let file = &mut files[request.file];
        file.requests += 1;
        let parts = layouts.now.map.on_device(request.range.clone()).take(2).count();
        file.crossing_requests += u64::from(parts > 1);
    }
    cost.now = run(&layouts.now, &sample, options, |file, time| files[file].now_ns += time);
    cost.contiguous = run(&layouts.contiguous, &sample, options, |file, time| {
        files[file].contiguous_ns += time;
    });
    (cost, files)
}

/// Returns at most `count` requests: all, or those of evenly spaced windows.
fn sample(all: &[PlacedRequest], count: usize) -> Vec<&PlacedRequest> {
    const WINDOWS: usize = 10;
    if all.len() <= count {
        return all.iter().collect();
    }
    let window = (count / WINDOWS).max(1);
    let step = (all.len() - window) / (WINDOWS - 1);
    (0..WINDOWS).flat_map(|index| &all[index * step..index * step + window]).take(count).collect()
}

/// Runs requests on the model of the device, and calls `took` for each with its file and its time.
fn run(
    layout: &Layout,
    requests: &[&PlacedRequest],
    options: &CostOptions,
    mut took: impl FnMut(usize, Nanos),
) -> LayoutCost {
    let (mut end, mut seeks, mut operations) = (None, 0_u64, 0_u64);
    for request in requests {
        for part in layout.map.on_device(request.range.clone()) {
            seeks += u64::from(end != Some(part.start));
            end = Some(part.end);
            operations += 1;
        }
    }
    // A file system that is shorter than the disk takes its begin.
    let capacity = match options.device {
        StoreModel::Device(device) => device.capacity_bytes().unwrap_or(0),
        _ => 0,
    };
    let length = options.device_bytes.max(layout.end).max(capacity).next_multiple_of(4096);
    let geometry = Geometry { length, granule: 512, read_only: false };
    let mut store = layout.store(options.device.build(geometry));
    let at = |number: u64| usize::try_from(number).ok().and_then(|it| requests.get(it));
    let mut last = 0;
    run_loop(
        &mut store,
        (options.depth, Nanos::MAX),
        |number| {
            let request = at(number)?;
            let (start, len) = (request.range.start, request.range.end - request.range.start);
            Some((request.kind, start, len))
        },
        |done| {
            last = last.max(done.finished_at);
            if let Some(request) = at(done.op.tag) {
                took(request.file, done.finished_at.saturating_sub(done.op.queued_at));
            }
        },
    );
    let number = as_f64((requests.len() as u64).max(1));
    LayoutCost {
        seconds: as_f64(last) / 1e9,
        seeks_per_1000: as_f64(seeks) * 1000.0 / number,
        operations_per_request: as_f64(operations) / number,
    }
}

#[cfg(test)]
mod tests;
