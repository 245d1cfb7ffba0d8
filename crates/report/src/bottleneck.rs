//! The bottleneck of a host: which of disks, processors and cache holds its programs up.
//!
//! [`judge`] is a pure function of counters. It asks in this order: do programs wait for disks?
//! If not, are the processors busy? If they do, for which disk: does it read again data that the
//! cache had to evict, does a request take too long, does one process fill the queue, are there
//! too many requests, or do programs wait for one request at a time?

mod show;
#[cfg(test)]
mod tests;

pub use show::{to_html, to_text};

use crate::escape;
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
    let (model, seconds, bytes_per_s) = match disk.is_rotational {
        Some(false) => ("flash", FLASH_S, FLASH_BYTES_PER_S),
        Some(true) => ("mechanical disk", MECHANICAL_S, MECHANICAL_BYTES_PER_S),
        None => {
            ("mechanical disk, since the kind is not known", MECHANICAL_S, MECHANICAL_BYTES_PER_S)
        }
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

/// Returns the disk whose requests take the most time.
fn busiest(disks: &[HostDisk]) -> Option<&HostDisk> {
    let time = |disk: &HostDisk| disk.queue.or_else(|| utilization(disk)).unwrap_or(0.0);
    let active = disks.iter().filter(|disk| time(disk) > 0.0);
    active.max_by(|a, b| time(a).total_cmp(&time(b)))
}

/// Returns the share of the time in which a disk was busy; without a counter of it, the sum of the
/// latencies is an upper bound.
fn utilization(disk: &HostDisk) -> Option<f64> {
    disk.busy.or_else(|| Some(disk.disk_time()?.min(1.0)))
}

/// Returns true if programs wait for the requests of a disk.
///
/// The kernel does not count a thread that waits for the completion of asynchronous I/O. So reads
/// in flight count as waited for too, and so do writes unless the cache writes most of them.
fn is_waited_for(counters: &HostCounters, disk: &HostDisk) -> bool {
    let is_busy = utilization(disk).is_some_and(|busy| busy >= BUSY_ALONE);
    let Some(waiting) = counters.memory.io_pressure else {
        return is_busy || disk.queue.is_some_and(|queue| queue >= QUEUE);
    };
    let is_long = |time: Option<f64>| time.is_some_and(|time| time >= BUSY_ALONE);
    let reads = is_long(disk.read_time);
    let writes = is_long(disk.write_time) && lazy_share(counters, disk) < LAZY;
    waiting >= WAITING || is_busy && (reads || writes)
}

/// Returns the share of the bytes written to a disk that the cache wrote, or a lower bound of it.
fn lazy_share(counters: &HostCounters, disk: &HostDisk) -> f64 {
    let memory = &counters.memory;
    let of_host = || Some(memory.lazy_pages_per_s? * memory.page_bytes?);
    let others = others(counters, disk, |disk| disk.write_bytes_per_s);
    let lazy = disk.lazy_bytes_per_s.or_else(|| Some((of_host()? - others).max(0.0)));
    let all = disk.write_bytes_per_s.filter(|bytes| *bytes > 0.0);
    lazy.zip(all).map_or(0.0, |(lazy, all)| (lazy / all).min(1.0))
}

/// Returns a sum over the disks that have nothing to do with this one: neither the devices below it
/// nor those above it. Devices below others are left out, since they serve the same requests.
fn others(counters: &HostCounters, disk: &HostDisk, of: fn(&HostDisk) -> Option<f64>) -> f64 {
    let is_below = |lower: &HostDisk, upper: &HostDisk| upper.below.contains(&lower.disk);
    let is_other = |it: &&HostDisk| {
        let is_top = !counters.disks.iter().any(|upper| is_below(it, upper));
        it.disk != disk.disk && !is_below(it, disk) && !is_below(disk, it) && is_top
    };
    counters.disks.iter().filter(is_other).filter_map(of).sum()
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
        "Programs wait for I/O, but no disk is busy: it is that of a network file system or of \
         FUSE, or limited before it reaches a disk (io.max, blkio.throttle)"
            .to_owned()
    } else {
        format!(
            "Cannot tell: the requests of {} are not counted",
            counters.uncounted_disks.join(", ")
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
    let busy = counters.cpu.busy;
    reasons.extend(
        busy.map(|busy| format!("The processors were busy for {}.", format::percent(busy))),
    );
    let top = counters.processes.iter().max_by(|a, b| cpu(a).total_cmp(&cpu(b)));
    if busy.is_some_and(|busy| busy >= PROCESSORS) {
        let verdict = "The processors are the bottleneck, not the disks".to_owned();
        let mut answer = Answer::new(BottleneckKind::Processor, verdict, reasons);
        answer.process = top.map(HostProcess::label);
        answer.reasons.extend(top.map(used));
        return answer;
    }
    if let Some(top) = top.filter(|it| cpu(it) >= ONE_PROCESSOR) {
        let verdict = format!(
            "The disks are not the problem: {} is held up by its use of a processor",
            label(top)
        );
        let mut answer = Answer::new(BottleneckKind::Processor, verdict, reasons);
        answer.process = Some(top.label());
        answer.reasons.push(used(top));
        return answer;
    }
    let verdict = "The disks are not the problem, nor are the processors".to_owned();
    Answer::new(BottleneckKind::Nothing, verdict, reasons)
}

fn cpu(process: &HostProcess) -> f64 {
    process.cpu.unwrap_or(0.0)
}

/// Returns the name of a process as it is printed.
fn label(process: &HostProcess) -> String {
    escape::text(&process.label()).into_owned()
}

fn used(process: &HostProcess) -> String {
    format!("{} used {} processors.", label(process), format::number(cpu(process)))
}

/// Returns the sentence about the use of a disk.
fn activity(disk: &HostDisk) -> String {
    let mut facts = Vec::new();
    facts.extend(
        utilization(disk).map(|busy| format!("was busy for {} of the time", format::percent(busy))),
    );
    facts.extend(
        disk.queue.map(|queue| format!("had {} requests in its queue", format::number(queue))),
    );
    facts.extend(
        disk.requests_per_s().map(|rate| format!("served {} requests/s", format::number(rate))),
    );
    facts.extend(
        disk.seconds_per_request().map(|s| format!("took {} for a request", show::seconds(s))),
    );
    format!("{} {}.", escape::text(&disk.disk), facts.join(", "))
}

/// Returns the answer if programs wait for a disk.
fn of_disk(counters: &HostCounters, disk: &HostDisk, expected: ExpectedDisk) -> Answer {
    let mut reasons: Vec<String> = waiting(counters).into_iter().collect();
    reasons.push(activity(disk));
    let name = escape::text(&disk.disk);
    let rate = disk.requests_per_s().filter(|rate| *rate > 0.0);
    let service = utilization(disk).zip(rate).map(|(busy, rate)| busy / rate);
    let service = service.or(disk.seconds_per_request());
    let usual = usual(disk, &expected);
    reasons.extend(service.map(|service| {
        format!(
            "While it was busy, a request took {}; expected are {} ({}).",
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
            format!("{name} is slow: its requests take {times} as long as expected"),
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
                "Programs wait for {name} with one request at a time, which takes its usual time"
            ),
        )
    };
    let answer = Answer::new(kind, verdict, reasons);
    Answer { disk: Some(disk.disk.clone()), process, expected: Some(expected), ..answer }
}

/// Returns the expected service time of the disk's mix of reads and writes.
fn usual(disk: &HostDisk, expected: &ExpectedDisk) -> f64 {
    let (reads, writes) = (disk.reads_per_s.unwrap_or(0.0), disk.writes_per_s.unwrap_or(0.0));
    if reads + writes > 0.0 {
        (reads * expected.read_s + writes * expected.write_s) / (reads + writes)
    } else {
        expected.read_s.max(expected.write_s)
    }
}

/// Returns the reason why the cache is too small, if it is.
fn rereads(counters: &HostCounters, disk: &HostDisk) -> Option<String> {
    let reads_most = disk.read_time.zip(disk.write_time).is_none_or(|(read, write)| read >= write);
    if !reads_most {
        return None;
    }
    // The kernel counts repeated reads of all disks together; others may explain them.
    let read = disk.read_bytes_per_s.filter(|bytes| *bytes > 0.0);
    if let Some((again, read)) = counters.memory.reread_bytes_per_s.zip(read) {
        let of_others = others(counters, disk, |disk| disk.read_bytes_per_s);
        let share = ((again - of_others) / read).clamp(0.0, 1.0);
        let sentence = || {
            format!(
                "At least {} of the bytes that it read had been in the cache.",
                format::percent(share)
            )
        };
        return (share >= REREAD).then(sentence);
    }
    let reads: f64 = counters.disks.iter().filter_map(|disk| disk.reads_per_s).sum();
    let (hits, misses) = counters.memory.hit_ratio.zip(counters.memory.misses_per_s)?;
    let is_small = hits < HITS && reads > 0.0 && misses / reads >= REREAD;
    is_small.then(|| {
        format!(
            "{} of the reads hit the cache; its misses are {} of the reads of the disks. Data that \
             is read only once misses too.",
            format::percent(hits),
            format::percent((misses / reads).min(1.0))
        )
    })
}

/// Returns the process whose writes fill the queue, with its share of all written bytes.
fn one_writer<'a>(counters: &'a HostCounters, disk: &HostDisk) -> Option<(&'a HostProcess, f64)> {
    let write_share = disk.write_time? / disk.disk_time().filter(|time| *time > 0.0)?;
    if write_share < ONE_WRITER || disk.queue? < QUEUE {
        return None;
    }
    let written =
        |it: &HostProcess| it.disk_write_bytes_per_s.or(it.write_bytes_per_s).unwrap_or(0.0);
    // Of several disks, the writers of this one.
    let is_here =
        |it: &&HostProcess| it.disks.as_ref().is_none_or(|disks| disks.contains(&disk.disk));
    let here = || counters.processes.iter().filter(is_here);
    let all: f64 = here().map(written).sum();
    let top = here().max_by(|a, b| written(a).total_cmp(&written(b)))?;
    let share = written(top) / all;
    (share >= ONE_WRITER).then_some((top, share))
}
