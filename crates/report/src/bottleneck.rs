//! The bottleneck of a host: the disk, the processors or the cache that limits its programs.
//!
//! [`judge`] is a pure function of counters. It checks in this order: waiting for disks, and if
//! there is none, busy processors; then, of the disk that is waited for, data that the cache had to
//! evict, slow requests, one process that fills the queue, too many requests, and programs that
//! wait for one request at a time.

mod evidence;
mod show;
#[cfg(test)]
mod tests;

pub use show::{to_html, to_text};

use crate::escape;
use evidence::{
    believable, busiest, is_waited_for, knows_disks, metadata, one_writer, peak, rereads, usual,
    utilization,
};
use larder_schema::bottleneck::{Bottleneck, BottleneckKind, ExpectedDisk};
use larder_schema::format;
use larder_schema::host_counters::{HostCounters, HostDisk, HostProcess};

/// Share of the time in which a task waits for I/O, from which on disks hold programs up.
pub const WAITING: f64 = 0.3;
/// Utilization for each share of waiting tasks, from which on a disk is what they wait for.
pub const CAUSE: f64 = 0.5;
/// Share of the written bytes from which on the writes of the cache are most of them.
pub const LAZY: f64 = 0.5;
/// Utilization that stands for waiting programs, if the source does not count waiting tasks.
pub const BUSY_ALONE: f64 = 0.7;
/// Mean queue from which on requests wait for others: the published rule of two.
pub const QUEUE: f64 = 2.0;
/// Multiple of the expected service time from which on a disk is slow.
pub const SLOW: f64 = 2.0;
/// Share of the bytes read that the cache had held before, from which on it is too small.
pub const REREAD: f64 = 1.0 / 3.0;
/// Hit ratio below which a cache can be too small, if the source does not count repeated reads.
pub const HITS: f64 = 0.9;
/// Share of the disk time and of the written bytes, from which on the writes of one process count
/// as the cause of a queue.
pub const ONE_WRITER: f64 = 0.7;
/// Use of all processors from which on they hold programs up.
pub const PROCESSORS: f64 = 0.9;
/// Use of one processor from which on a process with one thread is held up by it.
pub const ONE_PROCESSOR: f64 = 0.9;

/// Share of the processors' time that the hypervisor gave to others, from which on it is named.
pub const STEAL: f64 = 0.1;

/// Expected seconds of a random request of a mechanical disk: seek and half a turn at 7,200 rpm.
const MECHANICAL_S: f64 = 0.0127;
/// Bytes per second of a mechanical disk.
const MECHANICAL_BYTES_PER_S: f64 = 100e6;
/// Expected seconds of a request of flash memory or of a network volume.
const FLASH_S: f64 = 0.001;
/// Bytes per second of flash memory.
const FLASH_BYTES_PER_S: f64 = 300e6;

/// Returns the expected service times of a disk by its kind; a disk of unknown kind counts as a
/// mechanical one.
#[must_use]
pub fn expected_by_kind(disk: &HostDisk) -> ExpectedDisk {
    let is_rotational = disk.is_rotational.or(disk.disk.starts_with("nvme").then_some(false));
    let (model, seconds, bytes_per_s) = match is_rotational {
        Some(false) => ("flash", FLASH_S, FLASH_BYTES_PER_S),
        Some(true) => ("mechanical disk", MECHANICAL_S, MECHANICAL_BYTES_PER_S),
        None => (
            "mechanical disk, since the source does not name the kind",
            MECHANICAL_S,
            MECHANICAL_BYTES_PER_S,
        ),
    };
    let bytes =
        |bytes: Option<f64>| bytes.or(disk.bytes_per_request()).unwrap_or(0.0) / bytes_per_s;
    ExpectedDisk {
        disk: Some(disk.disk.clone()),
        model: model.to_owned(),
        read_s: seconds + bytes(disk.bytes_per_read()),
        write_s: seconds + bytes(disk.bytes_per_write()),
    }
}

/// Finds the bottleneck. `expected` returns the service times of a disk for its requests.
#[must_use]
pub fn judge(
    subject: String,
    counters: HostCounters,
    expected: impl Fn(&HostDisk) -> ExpectedDisk,
) -> Bottleneck {
    let counters = believable(counters);
    let found = find(&counters, &expected);
    Bottleneck {
        subject,
        kind: found.kind,
        disk: found.disk,
        process: found.process,
        verdict: found.verdict,
        reasons: found.reasons,
        next: found.next.iter().map(|step| (*step).to_owned()).collect(),
        expected: found.expected,
        counters,
    }
}

/// The answer, without the counters.
struct Answer {
    kind: BottleneckKind,
    disk: Option<String>,
    process: Option<String>,
    verdict: String,
    reasons: Vec<String>,
    next: &'static [&'static str],
    expected: Option<ExpectedDisk>,
}

impl Answer {
    fn new(kind: BottleneckKind, verdict: String, reasons: Vec<String>) -> Answer {
        let next = show::next_steps(kind);
        Answer { kind, disk: None, process: None, verdict, reasons, next, expected: None }
    }
}

fn find(counters: &HostCounters, expected: impl Fn(&HostDisk) -> ExpectedDisk) -> Answer {
    let Some(disk) = busiest(&counters.disks) else {
        return without_disk(counters);
    };
    if !is_waited_for(counters, disk) {
        return without_waiting(counters, Some(disk));
    }
    let waiting = counters.memory.io_pressure.unwrap_or(0.0);
    let is_cause = utilization(disk).is_none_or(|busy| busy >= CAUSE * waiting);
    if !is_cause && rereads(counters, disk).is_none() {
        return elsewhere(counters, disk);
    }
    of_disk(counters, disk, expected(disk))
}

/// Returns the sentence about waiting tasks, if they were counted.
fn waiting(counters: &HostCounters) -> Option<String> {
    let share = format::percent(counters.memory.io_pressure?);
    Some(format!("A task waited for I/O for {share} of the time."))
}

fn without_disk(counters: &HostCounters) -> Answer {
    if counters.memory.io_pressure.is_some_and(|waiting| waiting >= WAITING)
        || !counters.uncounted_disks.is_empty()
    {
        return unknown(counters, Vec::new());
    }
    without_waiting(counters, None)
}

fn elsewhere(counters: &HostCounters, disk: &HostDisk) -> Answer {
    let busy = format::percent(utilization(disk).unwrap_or(0.0));
    unknown(
        counters,
        vec![format!(
            "The busiest disk, {}, was busy for {busy} of the time.",
            escape::text(&disk.disk)
        )],
    )
}

fn unknown(counters: &HostCounters, busy: Vec<String>) -> Answer {
    let verdict = if counters.uncounted_disks.is_empty() {
        "Programs wait for I/O, but no disk is busy: the I/O goes to a network or FUSE file \
         system, or a cgroup limits it (io.max, blkio.throttle)"
            .to_owned()
    } else {
        let names: Vec<_> = counters.uncounted_disks.iter().map(|it| escape::text(it)).collect();
        format!(
            "Cannot tell: the kernel does not count the requests of {} (queue/iostats is 0)",
            names.join(", ")
        )
    };
    let reasons = waiting(counters).into_iter().chain(busy).collect();
    Answer::new(BottleneckKind::Unknown, verdict, reasons)
}

/// Returns the answer if no program waits for a disk.
fn without_waiting(counters: &HostCounters, disk: Option<&HostDisk>) -> Answer {
    let mut reasons: Vec<String> = waiting(counters).into_iter().collect();
    if let Some(disk) = disk {
        reasons.push(activity(disk));
    }
    reasons.extend(peak(counters).map(|(disk, busy)| {
        format!(
            "In one sample {} was busy for {}: judge that time by itself.",
            escape::text(&disk.disk),
            format::percent(busy)
        )
    }));
    let busy = counters.cpu.busy;
    reasons.extend(
        busy.map(|busy| format!("The processors were busy for {}.", format::percent(busy))),
    );
    let steal = counters.cpu.steal.filter(|steal| *steal >= STEAL);
    reasons.extend(steal.map(|steal| {
        format!("The hypervisor gave {} of their time to other guests.", format::percent(steal))
    }));
    let top = counters.processes.iter().max_by(|a, b| cpu(a).total_cmp(&cpu(b)));
    let are_full = busy.is_some_and(|busy| busy >= PROCESSORS);
    let limited = top.filter(|it| cpu(it) >= ONE_PROCESSOR);
    let verdict = match limited {
        _ if are_full => "The processors are the bottleneck, not the disks".to_owned(),
        Some(limited) => format!(
            "The disks are not the problem: {} uses a whole processor, which limits it",
            label(limited)
        ),
        None => return neither(counters, reasons),
    };
    reasons.extend(top.map(used));
    let answer = Answer::new(BottleneckKind::Processor, verdict, reasons);
    Answer { process: top.map(HostProcess::label), ..answer }
}

/// Returns the answer if neither disks nor processors are busy.
fn neither(counters: &HostCounters, reasons: Vec<String>) -> Answer {
    let (kind, verdict) = if !knows_disks(counters) {
        (
            BottleneckKind::Unknown,
            "Cannot tell: the source has no utilization of disks; record with iostat -x 5 60 or \
             larder watch",
        )
    } else if counters.cpu.busy.is_some() {
        (BottleneckKind::Nothing, "Neither disks nor processors limit the programs")
    } else {
        (
            BottleneckKind::Nothing,
            "The disks do not limit the programs; the source does not count processors",
        )
    };
    Answer::new(kind, verdict.to_owned(), reasons)
}

fn cpu(process: &HostProcess) -> f64 {
    process.cpu.unwrap_or(0.0)
}

/// Returns the name of a process as it is printed.
fn label(process: &HostProcess) -> String {
    escape::text(&process.label()).into_owned()
}

fn used(process: &HostProcess) -> String {
    format!("{} used {} of one processor.", label(process), format::percent(cpu(process)))
}

/// Returns the sentence about the use of a disk.
fn activity(disk: &HostDisk) -> String {
    let mut facts = Vec::new();
    facts.extend(
        utilization(disk).map(|busy| format!("was busy for {} of the time", format::percent(busy))),
    );
    facts.extend(
        disk.queue
            .map(|queue| format!("had {} requests queued or in flight", format::number(queue))),
    );
    facts.extend(
        disk.requests_per_s().map(|rate| format!("served {} requests/s", format::number(rate))),
    );
    facts.extend(
        disk.seconds_per_request().map(|each| format!("took {} for each", show::seconds(each))),
    );
    format!("{} {}.", escape::text(&disk.disk), facts.join(", "))
}

/// Returns the answer if programs wait for a disk.
fn of_disk(counters: &HostCounters, disk: &HostDisk, expected: ExpectedDisk) -> Answer {
    let mut reasons: Vec<String> = waiting(counters).into_iter().collect();
    reasons.push(activity(disk));
    let name = escape::text(&disk.disk);
    let rate = disk.requests_per_s().filter(|rate| *rate > 0.0);
    let busy = utilization(disk).filter(|busy| *busy > 0.0);
    let service = busy.zip(rate).map(|(busy, rate)| busy / rate);
    let service = service.or(disk.seconds_per_request());
    let usual = usual(disk, &expected);
    reasons.extend(service.map(|service| {
        format!(
            "A request kept it busy for {}; {} is expected of a {}.",
            show::seconds(service),
            show::seconds(usual),
            expected.model
        )
    }));
    let mut process = None;
    let (kind, verdict) = if let Some(reason) = rereads(counters, disk) {
        reasons.push(reason);
        (
            BottleneckKind::SmallCache,
            format!("The cache is too small: {name} reads data again that the cache had evicted"),
        )
    } else if service.is_some_and(|service| service > SLOW * usual) {
        let times = format::times(service.unwrap_or(0.0) / usual);
        (
            BottleneckKind::SlowDisk,
            format!("{name} is slow: a request takes {times} as long as expected"),
        )
    } else if let Some((writer, share)) = one_writer(counters, disk) {
        reasons.push(format!(
            "{} wrote {} of the bytes of all processes.",
            label(writer),
            format::percent(share)
        ));
        process = Some(writer.label());
        (
            BottleneckKind::OneWriter,
            format!("{} fills the queue of {name} with its writes", label(writer)),
        )
    } else if disk.queue.is_none_or(|queue| queue >= QUEUE) {
        (
            BottleneckKind::SaturatedDisk,
            format!("{name} is saturated: it has more requests than it can serve"),
        )
    } else {
        (
            BottleneckKind::SerialRequests,
            format!(
                "Programs send {name} one request at a time and wait for it, for its usual time"
            ),
        )
    };
    reasons.extend(metadata(counters, disk));
    let answer = Answer::new(kind, verdict, reasons);
    Answer { disk: Some(disk.disk.clone()), process, expected: Some(expected), ..answer }
}
