//! Memory, processors and paging files of the machine.

use super::super::counters::{Counter, Object};
use super::super::weighting::{range, unweighted_mean};
use super::SummaryInput;
use larder_schema::perfmon::{Memory, PagingFile, Processor};

const TOTAL: &str = "_Total";

/// Converts a percentage to a share.
fn share(percent: f64) -> f64 {
    percent / 100.0
}

/// Returns the largest value.
fn max(values: &[Option<f64>]) -> Option<f64> {
    range(values).map(|ends| ends.1)
}

impl SummaryInput<'_> {
    /// Returns the available memory in bytes, from any of its units.
    pub(super) fn available(&self) -> Option<Vec<Option<f64>>> {
        let units = [
            (Counter::AvailableBytes, 1.0),
            (Counter::AvailableKBytes, 1024.0),
            (Counter::AvailableMBytes, 1024.0 * 1024.0),
        ];
        units.into_iter().find_map(|(counter, unit)| {
            let values = self.log.values(Object::Memory, counter)?;
            Some(values.iter().map(|value| value.map(|value| value * unit)).collect())
        })
    }

    /// Returns the cache size; the system working set if the log has only that.
    pub(super) fn resident(&self) -> Option<&[Option<f64>]> {
        let memory = |counter| self.log.values(Object::Memory, counter);
        memory(Counter::CacheResident).or_else(|| memory(Counter::CacheBytes))
    }

    pub(super) fn memory(&self) -> Option<Memory> {
        self.log.columns.iter().find(|column| column.object == Object::Memory)?;
        let available = self.available();
        let pages = self.log.values(Object::Memory, Counter::PagesPerSec);
        let mean =
            |counter| self.log.values(Object::Memory, counter).and_then(|v| self.intervals.mean(v));
        let cache = self.resident();
        let ends = cache.and_then(range);
        let mut seen = cache.into_iter().flatten().copied().flatten();
        let first = seen.next();
        Some(Memory {
            available_min_bytes: available.as_deref().and_then(range).map(|ends| ends.0),
            available_mean_bytes: available.as_deref().and_then(|v| self.intervals.mean(v)),
            pages_per_s: pages.and_then(|v| self.intervals.mean(v)),
            pages_per_s_max: pages.and_then(range).map(|ends| ends.1),
            pages_input_per_s: mean(Counter::PagesInput),
            page_reads_per_s: mean(Counter::PageReads),
            cache_faults_per_s: mean(Counter::CacheFaults),
            cache_first_bytes: first,
            cache_min_bytes: ends.map(|ends| ends.0),
            cache_max_bytes: ends.map(|ends| ends.1),
            cache_last_bytes: seen.last().or(first),
        })
    }

    /// Returns the busy percentage of all processors: the total, or the mean of the processors if
    /// the log lacks it.
    fn processor_time(&self) -> Option<Vec<Option<f64>>> {
        let of =
            |instance: &str| self.log.instance(Object::Processor, instance, Counter::ProcessorTime);
        if let Some(total) = of(TOTAL) {
            return Some(total.to_vec());
        }
        let all: Vec<_> =
            self.log.instances(Object::Processor).into_iter().filter_map(of).collect();
        let sample = |index: usize| {
            let values: Vec<Option<f64>> = all.iter().map(|values| values[index]).collect();
            unweighted_mean(&values)
        };
        (!all.is_empty()).then(|| (0..self.log.times.len()).map(sample).collect())
    }

    pub(super) fn processor(&self) -> Option<Processor> {
        let time = self.processor_time();
        let queue = self.log.values(Object::System, Counter::ProcessorQueue);
        if time.is_none() && queue.is_none() {
            return None;
        }
        let time = time.as_deref();
        Some(Processor {
            time: time.and_then(|v| self.intervals.mean(v)).map(share),
            time_max: time.and_then(max).map(share),
            queue: queue.and_then(|v| self.intervals.mean(v)),
            queue_max: queue.and_then(max),
        })
    }

    pub(super) fn paging_files(&self) -> Vec<PagingFile> {
        let mut instances = self.log.instances(Object::PagingFile);
        instances.sort_by_key(|instance| *instance == TOTAL);
        let file = |instance: &str| {
            let values = |counter| self.log.instance(Object::PagingFile, instance, counter);
            let usage = values(Counter::PagingUse);
            PagingFile {
                file: instance.to_owned(),
                usage: usage.and_then(|v| self.intervals.mean(v)).map(share),
                usage_max: usage.and_then(max).map(share),
                usage_peak: values(Counter::PagingUsePeak).and_then(max).map(share),
            }
        };
        instances.into_iter().map(file).collect()
    }
}
