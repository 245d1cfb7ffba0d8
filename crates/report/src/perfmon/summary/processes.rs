//! Activity of processes.

use super::super::counters::{Counter, Object};
use super::SummaryInput;
use larder_schema::perfmon::Process;

/// Maximum number of reported processes; those with the most I/O come first.
const PROCESSES_MAX: usize = 12;

impl SummaryInput<'_> {
    pub(super) fn processes(&self) -> Vec<Process> {
        let is_program = |instance: &&str| !["_Total", "Idle"].contains(instance);
        let instances = self.log.instances(Object::Process).into_iter().filter(is_program);
        let mut processes: Vec<Process> = instances
            .map(|instance| {
                let values = |counter| self.log.instance(Object::Process, instance, counter);
                let mean = |counter| values(counter).and_then(|v| self.intervals.mean(v));
                let private = values(Counter::PrivateBytes).unwrap_or_default();
                let mut seen = private.iter().copied().flatten();
                let first = seen.next();
                let sum = |one: Option<f64>, other: Option<f64>| Some(one? + other?);
                let (read, written) = (mean(Counter::IoReadBytes), mean(Counter::IoWriteBytes));
                let (reads, writes) = (mean(Counter::IoReads), mean(Counter::IoWrites));
                Process {
                    process: instance.to_owned(),
                    read_bytes_per_s: read,
                    write_bytes_per_s: written,
                    data_bytes_per_s: mean(Counter::IoDataBytes).or_else(|| sum(read, written)),
                    other_bytes_per_s: mean(Counter::IoOtherBytes),
                    reads_per_s: reads,
                    writes_per_s: writes,
                    data_operations_per_s: mean(Counter::IoData).or_else(|| sum(reads, writes)),
                    other_operations_per_s: mean(Counter::IoOthers),
                    processor_time: mean(Counter::ProcessTime).map(|percent| percent / 100.0),
                    private_first_bytes: first,
                    private_last_bytes: seen.last().or(first),
                    private_bytes: self.levels(private),
                }
            })
            .collect();
        let weight = |process: &Process| {
            let of_one =
                process.read_bytes_per_s.unwrap_or(0.0) + process.write_bytes_per_s.unwrap_or(0.0);
            let io = process.data_bytes_per_s.unwrap_or(of_one);
            (io, process.private_last_bytes.unwrap_or(0.0))
        };
        processes.sort_by(|a, b| {
            let (a, b) = (weight(a), weight(b));
            b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1))
        });
        processes.truncate(PROCESSES_MAX);
        processes
    }
}
