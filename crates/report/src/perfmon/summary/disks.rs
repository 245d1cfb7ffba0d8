//! Activity of disks: a value per transfer is weighted by the transfers, a share of the time by the
//! interval. Disks whose counters were switched off have no values.

use super::super::counters::{Counter, Kind, Object};
use super::super::weighting::{range, unweighted_mean};
use super::SummaryInput;
use larder_schema::perfmon::Disk;

/// Maximum number of disks that a note names.
const NAMES_MAX: usize = 3;

/// State of the counters of a disk. Windows NT and 2000 have a switch, `diskperf`, and show 0 for
/// all counters without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counting {
    On,
    Off,
    /// All counters are 0, and the log lacks the one that would tell.
    Unknown,
}

/// Returns the mean over reads and writes from their rates and their own means.
fn of_both(rates: [Option<f64>; 2], means: [Option<f64>; 2]) -> Option<f64> {
    let transfers = rates[0]? + rates[1]?;
    let part = |index: usize| {
        let rate = rates[index]?;
        // A direction without transfers has no mean.
        if rate > 0.0 { Some(rate * means[index]?) } else { Some(0.0) }
    };
    let sum = part(0)? + part(1)?;
    (transfers > 0.0).then(|| sum / transfers)
}

impl SummaryInput<'_> {
    pub(super) fn disks(&self) -> Vec<Disk> {
        let mut disks = Vec::new();
        for object in [Object::LogicalDisk, Object::PhysicalDisk] {
            let mut instances = self.log.instances(object);
            // Totals come last.
            instances.sort_by_key(|instance| *instance == "_Total");
            disks.extend(instances.into_iter().map(|instance| self.disk(object, instance)));
        }
        disks
    }

    /// Returns the state of the counters of a disk.
    fn counting(&self, object: Object, instance: &str) -> Counting {
        let mut columns = Counter::of(Kind::Disk)
            .filter_map(|counter| self.log.instance(object, instance, counter))
            .flatten()
            .flatten();
        if columns.any(|value| *value != 0.0) {
            return Counting::On;
        }
        // An idle disk that is counted has an idle time of 100 %.
        match self.log.instance(object, instance, Counter::IdleTime) {
            Some(_) => Counting::Off,
            None => Counting::Unknown,
        }
    }

    /// Returns notes on the disks whose counters may have been switched off.
    pub(super) fn disk_notes(&self) -> Vec<String> {
        let mut names: [Vec<String>; 2] = [Vec::new(), Vec::new()];
        for object in [Object::LogicalDisk, Object::PhysicalDisk] {
            for instance in self.log.instances(object) {
                let name = || format!("{} {instance}", object.english());
                match self.counting(object, instance) {
                    Counting::On => {}
                    Counting::Off => names[0].push(name()),
                    Counting::Unknown => names[1].push(name()),
                }
            }
        }
        let reasons = [
            "not counted: all counters are 0, the idle time too, as before diskperf -y",
            "all counters are 0: without activity, or not counted, as before diskperf -y; record \
             % Idle Time as well",
        ];
        let note = |(names, reason): (&Vec<String>, &str)| {
            let shown = names.get(..NAMES_MAX).unwrap_or(names).join(", ");
            let more = match names.len().saturating_sub(NAMES_MAX) {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            (!names.is_empty()).then(|| format!("{shown}{more}: {reason}"))
        };
        names.iter().zip(reasons).filter_map(note).collect()
    }

    fn disk(&self, object: Object, instance: &str) -> Disk {
        let is_off = self.counting(object, instance) == Counting::Off;
        let values = |counter| self.log.instance(object, instance, counter).filter(|_| !is_off);
        let mean = |counter| values(counter).and_then(|v| self.intervals.mean(v));
        let plain = |counter| values(counter).and_then(unweighted_mean);
        let per_call = |counter, calls| match values(calls) {
            Some(calls) => values(counter).and_then(|v| self.intervals.per_call(v, calls)),
            None => plain(counter),
        };
        let share = |counter| mean(counter).map(|percent: f64| percent / 100.0);
        let max = |counter| values(counter).and_then(range).map(|ends| ends.1);
        let rates = [mean(Counter::DiskReads), mean(Counter::DiskWrites)];
        let seconds = [
            per_call(Counter::SecPerRead, Counter::DiskReads),
            per_call(Counter::SecPerWrite, Counter::DiskWrites),
        ];
        let transfers = values(Counter::DiskTransfers).map(<[Option<f64>]>::to_vec).or_else(|| {
            let pairs = values(Counter::DiskReads)?.iter().zip(values(Counter::DiskWrites)?);
            Some(pairs.map(|(reads, writes)| Some((*reads)? + (*writes)?)).collect())
        });
        let idle = values(Counter::IdleTime).and_then(range).map(|ends| ends.0);
        // Rounding and clocks of several processors yield shares a little outside of 0 to 100 %.
        let busy = |idle: f64| (1.0 - idle / 100.0).clamp(0.0, 1.0);
        let queue =
            [Counter::AvgDiskQueue, Counter::DiskQueue].into_iter().find(|it| mean(*it).is_some());
        Disk {
            object: object.english(),
            disk: instance.to_owned(),
            reads_per_s: rates[0],
            writes_per_s: rates[1],
            seconds_per_read: seconds[0],
            averaged_seconds_per_read: plain(Counter::SecPerRead),
            seconds_per_write: seconds[1],
            averaged_seconds_per_write: plain(Counter::SecPerWrite),
            bytes_per_read: per_call(Counter::BytesPerRead, Counter::DiskReads),
            bytes_per_write: per_call(Counter::BytesPerWrite, Counter::DiskWrites),
            read_time: share(Counter::ReadTime),
            write_time: share(Counter::WriteTime),
            queue: queue.and_then(mean),
            queue_max: queue.and_then(max),
            read_queue: mean(Counter::ReadQueue),
            write_queue: mean(Counter::WriteQueue),
            transfers_per_s: mean(Counter::DiskTransfers).or_else(|| Some(rates[0]? + rates[1]?)),
            seconds_per_transfer: match values(Counter::SecPerTransfer) {
                Some(seconds) => match transfers {
                    Some(transfers) => self.intervals.per_call(seconds, &transfers),
                    None => unweighted_mean(seconds),
                },
                None => of_both(rates, seconds),
            },
            disk_time: share(Counter::DiskTime)
                .or_else(|| Some(share(Counter::ReadTime)? + share(Counter::WriteTime)?)),
            disk_time_max: max(Counter::DiskTime).map(|percent| percent / 100.0),
            busy: mean(Counter::IdleTime).map(busy),
            busy_max: idle.map(busy),
            splits_per_s: mean(Counter::SplitIo),
        }
    }
}
