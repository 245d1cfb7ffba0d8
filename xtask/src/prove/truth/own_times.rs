//! The times of a workload without the limit of the disk, which a prediction needs.

use super::calibration::{Calibration, DEPTHS, StoreTimes, read_volume};
use super::combination::Combination;
use super::simulation::{ELAPSED, memory_bytes, simulate};
use super::workload::{TraceSummary, Workload};
use crate::disk::Disk;
use crate::prove::prelude::*;

/// Steps of the search for a time.
const STEPS: usize = 10;

/// The times of a workload without the limit of the disk, with a number of requests in flight.
pub(super) struct OwnTimes {
    /// The time that clients and server themselves need for a request, for `--think` and `--gap`:
    /// `20us+2GiB/s`.
    pub(super) request: String,
    /// The time until the client of a request that has waited for the store gets the reply,
    /// nanoseconds.
    pub(super) reply: f64,
    pub(super) store: StoreTimes,
}

impl OwnTimes {
    /// Measures with a small cache, and the time of a request that hits with one that holds all
    /// pages. The disk has no limit.
    pub(super) fn measure(
        env: &Env,
        (workload, trace, summary): (&Workload, &Path, &TraceSummary),
        disk: &Disk,
        calibration: &Calibration,
    ) -> Result<Vec<Self>> {
        let program = Unlimited { env, workload, trace, summary, disk, calibration };
        if !workload.is_direct() {
            let store = program.run(0, &Combination::base(0).common())?.0;
            return Ok(vec![OwnTimes { request: String::new(), reply: 0.0, store }]);
        }
        let mut all = vec![program.of_one_request()?];
        for at in 1..DEPTHS.len() {
            all.push(program.of_requests(at, all[0].reply)?);
        }
        Ok(all)
    }

    /// Returns the options of a simulation with these times.
    pub(super) fn options(&self, workload: &Workload, depth: u32) -> String {
        let OwnTimes { request, reply, store } = self;
        let pace = workload.pace(depth, request);
        format!("{pace} --wake {:.0}ns --reply {reply:.0}ns", store.wake)
    }
}

/// A workload on a disk without a limit.
struct Unlimited<'a> {
    env: &'a Env,
    workload: &'a Workload,
    trace: &'a Path,
    summary: &'a TraceSummary,
    disk: &'a Disk,
    calibration: &'a Calibration,
}

impl Unlimited<'_> {
    /// Runs the workload with the cache of [`Combination::base`]. Returns the times of the store,
    /// the memory of the cache in bytes, and the time of the run in seconds.
    fn run(&self, at: usize, options: &str) -> Result<(StoreTimes, u64, Option<f64>)> {
        let counters = self.env.file("own.json");
        let memory = Combination::base(at).memory(self.summary.footprint_bytes);
        let options = format!("{options} --counters {} --memory {memory}", counters.display());
        let elapsed_s = self.workload.run(self.env, self.disk, &options, DEPTHS[at])?;
        let size = memory_bytes(&read_volume(&counters)?)?;
        Ok((self.calibration.times_of(&counters)?, size, elapsed_s))
    }

    /// Measures the time of a request that hits, and finds that of a reply, with one request in
    /// flight.
    fn of_one_request(&self) -> Result<OwnTimes> {
        let TraceSummary { footprint_bytes, requests, transferred_bytes } = self.summary;
        let memory = footprint_bytes * 5 / 4 + 64 * MIB;
        let server = self.env.serve(self.disk.path(), &format!("--memory {memory}"))?;
        self.workload.send(self.env, &server.uri(), 1)?;
        let each_ns = self.workload.send(self.env, &server.uri(), 1)? * 1e9 / requests;
        server.stop_clean()?;
        let bytes_ns = transferred_bytes / requests * self.calibration.byte_ns[0];
        let request = self.own_time(0, (each_ns - bytes_ns).max(0.0));
        self.find(0, |reply, store| OwnTimes { request: request.clone(), reply, store })
    }

    /// Finds the own time of requests, with several of them in flight.
    fn of_requests(&self, at: usize, reply: f64) -> Result<OwnTimes> {
        self.find(at, |own, store| OwnTimes { request: self.own_time(at, own), reply, store })
    }

    /// Finds the time with which the simulation takes as long as the run.
    fn find(&self, at: usize, times: impl Fn(f64, StoreTimes) -> OwnTimes) -> Result<OwnTimes> {
        let options = "--read-ahead off";
        let (store, size, elapsed_s) = self.run(at, options)?;
        let elapsed_s = elapsed_s.context("a workload without a time")?;
        let model = self.calibration.unlimited_store(&store);
        // Each request in flight may have such a time.
        let longest = elapsed_s * 1e9 / self.summary.requests * f64::from(DEPTHS[at]);
        let (mut low, mut high) = (0.0, longest);
        for _ in 0..STEPS {
            let middle = f64::midpoint(low, high);
            let own = times(middle, store).options(self.workload, DEPTHS[at]);
            let options = format!("{options} {own} --store {model}");
            let predicted_s = number(&simulate(self.env, self.trace, size, &options)?, ELAPSED)?;
            if predicted_s / 1e9 < elapsed_s { low = middle } else { high = middle }
        }
        Ok(times(low, store))
    }

    fn own_time(&self, at: usize, fixed_ns: f64) -> String {
        // On one connection, the time of the bytes passes for all requests in flight.
        let shared_by =
            if self.workload.has_one_connection() { f64::from(DEPTHS[at]) } else { 1.0 };
        let byte_ns = self.calibration.byte_ns[at] * shared_by;
        let rate = if byte_ns > 0.0 { format!("+{:.0}/s", 1e9 / byte_ns) } else { String::new() };
        format!("{fixed_ns:.0}ns{rate}")
    }
}
