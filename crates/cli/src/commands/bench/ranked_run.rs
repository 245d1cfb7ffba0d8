//! The execution of a benchmark alone, as one of several ranks, or as the leader of ranks.

use super::local_host::LocalHost;
use super::ranks::{Communicator, RESULT};
use super::run_args::{RunArgs, Trials};
use crate::signals::Stop;
use anyhow::{Context, Result, anyhow, bail, ensure};
use larder_lab::bench::{BenchError, Ranks, RunResult, Start, total};
use larder_schema::run::Part;
use larder_schema::run::Run;
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;

/// Combines the results of all ranks into one run. If a host has only one rank, the part is named
/// after the host.
fn combine_results(run_args: &RunArgs, hosts: &[String], results: Vec<Value>) -> Result<Run> {
    ensure!(hosts.len() == results.len(), "gather the results: not every rank has one");
    let part = |(rank, (host, value)): (usize, (&String, Value))| {
        let run = Run::from_json(&value.to_string())?;
        let is_only_rank = hosts.iter().filter(|other| *other == host).count() == 1;
        let name = if is_only_rank { host.clone() } else { format!("{host}, rank {rank}") };
        let labels: BTreeMap<String, String> =
            [("host".to_owned(), host.clone()), ("rank".to_owned(), rank.to_string())].into();
        Ok(Part { name, labels, run })
    };
    let parts = hosts.iter().zip(results).enumerate().map(part).collect::<Result<Vec<Part>>>()?;
    // The repetitions are as in this process; the parts contain the start.
    Ok(total(parts, &run_args.plan(Start::default())))
}

impl RunArgs {
    /// Leads ranks on other hosts, if `--hosts` is given; returns `None` otherwise. It is called
    /// before any file of the benchmark is examined, as those are on the hosts.
    pub(super) fn lead_ranks(&self, name: &str) -> Result<Option<ExitCode>> {
        if self.multi_host.hosts().is_empty() {
            return Ok(None);
        }
        let stop = Stop::listen()?;
        let hosts = self.multi_host.hosts();
        match self.multi_host.lead(stop.flag()) {
            Ok(results) => {
                let run = combine_results(self, hosts, results)?;
                self.finish(name, (stop, Ok(RunResult { run, stopped: false }))).map(Some)
            }
            Err(error) => {
                stop.reraise_signal()?;
                Err(anyhow!("run {name} together: {error}"))
            }
        }
    }

    /// Runs the benchmark alone or as one of several ranks, and prints the result. `play` gets the
    /// host, the flag that stops it, and the progress display.
    pub(super) fn run_ranked(
        &self,
        name: &str,
        description: &str,
        play: impl FnOnce(&LocalHost, &AtomicBool, &mut Trials) -> Result<RunResult, BenchError>,
    ) -> Result<ExitCode> {
        let stop = Stop::listen()?;
        let Some((communicator, leader)) = self.multi_host.join(name, description, &stop)? else {
            let mut bar = Trials::new("");
            let result = play(&self.host(), stop.flag(), &mut bar);
            bar.end();
            return self.finish(name, (stop, result));
        };
        let communicator = Arc::new(communicator);
        let mut bar = if communicator.is_rank_0() { Trials::new("") } else { Trials::hidden() };
        let host = self.host().with(Arc::<Communicator>::clone(&communicator));
        let result = play(&host, stop.flag(), &mut bar);
        bar.end();
        let run = match send_result(&communicator, result) {
            Ok(()) => {
                communicator.leave(None);
                let Some(leader) = leader else { return Ok(ExitCode::SUCCESS) };
                let results = leader.join().expect("the leader does not panic");
                let (hosts, results) =
                    results.map_err(|error| anyhow!("run {name} together: {error}"))?;
                combine_results(self, &hosts, results)?
            }
            Err(error) => {
                let leader_reason = communicator.reason();
                let own_reason = error.is_stop().then(|| "it was stopped".to_owned());
                let own_reason = own_reason.unwrap_or_else(|| error.to_string());
                communicator.leave(leader_reason.is_none().then_some(own_reason.as_str()));
                // The leader waits until the other ranks have cleaned up.
                drop(leader.map(JoinHandle::join));
                if let Some(reason) = leader_reason {
                    bail!("run {name} together: {reason}; what was made here is removed");
                }
                if error.is_stop() {
                    eprintln!("larder: stopped; what it made is removed");
                    stop.reraise_signal()?;
                }
                return Err(error).context(format!("run {name}"));
            }
        };
        self.finish(name, (stop, Ok(RunResult { run, stopped: false })))
    }
}

/// Sends the record to the leader, after all ranks have one. A stopped run is an error.
fn send_result(
    communicator: &Communicator,
    result: Result<RunResult, BenchError>,
) -> Result<(), BenchError> {
    let result = result?;
    if result.stopped {
        return Err(BenchError::Stopped);
    }
    let run = serde_json::to_value(&result.run);
    let run = run.map_err(|error| BenchError::Workload(format!("hand over: {error}")))?;
    communicator.wait_at_barrier(RESULT, run).map(drop)
}
