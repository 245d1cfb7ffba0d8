//! Runs of many caches over the trace, in full or in miniature, and their results.
//!
//! Caches in full are run in as many passes as it takes to keep their tables within
//! [`TABLES_BYTES_MAX`].

use super::server::{self, Server, ServerResult};
use super::{
    COUNTED_MAX, PAGE_SIZES, Progress, ProgressCallback, SizingContext, SizingError, page_bytes,
};
use crate::sim::sweep::{self, SweepItem};
use larder_core::curve::estimate::Estimate;
use larder_core::curve::miniature::Miniature;
use larder_core::policy::PolicyKind;
use larder_core::replace::Counts;
use larder_core::units::as_f64;
use larder_schema::curve::{Curve, Point};
use larder_schema::share;
use larder_schema::sizing::ServerRun;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum memory of the tables of caches that run together.
pub(super) const TABLES_BYTES_MAX: u64 = 256 << 20;
/// Approximate memory of the table, the keys and the policy per page.
pub(super) const TABLE_BYTES_PER_PAGE: u64 = 128;

/// The measured or estimated result of one cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CacheResult {
    /// Hit ratio of references; of a server, that of reads.
    pub(super) hits: Estimate,
    /// Hit ratio of requested bytes; of a server, the share of requests that did not wait.
    pub(super) byte_hits: Estimate,
    /// Reads that missed.
    pub(super) read_misses: u64,
    /// True if the whole trace ran through a cache of full size.
    pub(super) counted: bool,
    /// The work of a server, and its reads in each part, if the whole cache was simulated.
    pub(super) server: Option<ServerResult>,
}

impl CacheResult {
    fn counted(counts: &Counts) -> CacheResult {
        let (hits, all) = (counts.hits(), counts.all());
        let ratio = |hits, all| Estimate::exact(share(hits, all).unwrap_or(0.0));
        CacheResult {
            hits: ratio(hits.references, all.references),
            byte_hits: ratio(hits.bytes, all.bytes),
            read_misses: counts.read_misses.references,
            counted: true,
            server: None,
        }
    }

    fn of_server(result: &ServerResult) -> CacheResult {
        let run = result.0;
        CacheResult {
            hits: Estimate::exact(run.read_hit_ratio),
            byte_hits: Estimate::exact(run.request_hit_ratio),
            read_misses: run.waiting_pages,
            counted: true,
            server: Some(*result),
        }
    }

    /// Returns the work of a server, if the whole cache was simulated.
    pub(super) fn run(&self) -> Option<ServerRun> {
        self.server.map(|(run, _)| run)
    }

    /// Returns the bytes read from the store, with pages of `page_bytes`.
    pub(super) fn store_bytes(&self, page_bytes: u32) -> u64 {
        let pages = self.read_misses.saturating_mul(page_bytes.into());
        self.run().map_or(pages, |run| run.read_bytes)
    }

    /// Returns the hit ratio as a point of a curve at `bytes`.
    pub(super) fn point(&self, bytes: u64) -> Point {
        let Estimate { hit_ratio, low, high } = self.hits;
        Point { bytes, hit_ratio, low, high }
    }
}

/// Results by policy and size in pages; counted results are never replaced.
#[derive(Clone, Debug, Default)]
pub(super) struct ResultTable(BTreeMap<(u32, &'static str), CacheResult>);

impl ResultTable {
    /// Inserts a result; an estimate never replaces a counted result.
    fn insert(&mut self, policy: PolicyKind, pages: u32, result: &CacheResult) {
        let entry = self.0.entry((pages, policy.name())).or_insert(*result);
        if !entry.counted {
            *entry = *result;
        }
    }

    pub(super) fn get(&self, policy: PolicyKind, pages: u32) -> Option<&CacheResult> {
        self.0.get(&(pages, policy.name()))
    }

    /// Returns the results of a policy at all sizes.
    pub(super) fn of(&self, policy: PolicyKind) -> impl Iterator<Item = (u32, &CacheResult)> {
        self.0
            .iter()
            .filter(move |((_, name), _)| *name == policy.name())
            .map(|((pages, _), result)| (*pages, result))
    }

    /// Returns the results of sizes up to `pages`.
    pub(super) fn up_to(&self, pages: u32) -> ResultTable {
        let range = self.0.iter().filter(|((size, _), _)| *size <= pages);
        ResultTable(range.map(|(key, result)| (*key, *result)).collect())
    }

    /// Replaces the hit ratios of a policy's servers by the non-decreasing ones that are closest in
    /// the mean square (isotonic regression, by pooling adjacent violators): a difference of one
    /// page changes which requests meet read-ahead in time, so that neighboring sizes differ by up
    /// to a point in either direction.
    pub(super) fn smooth(&mut self, policy: PolicyKind) {
        let own = self.0.iter_mut().filter(|((_, name), _)| *name == policy.name());
        let mut results: Vec<&mut CacheResult> =
            own.map(|(_, result)| result).filter(|result| result.server.is_some()).collect();
        // The mean of each block, and its number of results.
        let mut blocks: Vec<(f64, usize)> = Vec::new();
        for result in &results {
            let mut block = (result.run().map_or(0.0, |run| run.read_hit_ratio), 1);
            while let Some((mean, count)) = blocks.pop_if(|(mean, _)| *mean > block.0) {
                let all = count + block.1;
                let sum = mean * as_f64(count as u64) + block.0 * as_f64(block.1 as u64);
                block = (sum / as_f64(all as u64), all);
            }
            blocks.push(block);
        }
        let fitted = blocks.into_iter().flat_map(|(mean, count)| std::iter::repeat_n(mean, count));
        for (result, hit_ratio) in results.iter_mut().zip(fitted) {
            result.hits = Estimate::exact(hit_ratio);
        }
    }

    /// Returns the largest difference between the hit ratio of a policy's server and that of the
    /// curve.
    pub(super) fn spread(&self, policy: PolicyKind) -> f64 {
        let difference = |(_, result): (u32, &CacheResult)| {
            Some((result.run()?.read_hit_ratio - result.hits.hit_ratio).abs())
        };
        self.of(policy).filter_map(difference).fold(0.0, f64::max)
    }

    /// Moves the results of another table into this one. Estimates between counted results would
    /// make the curve jump, so those between the smallest and the largest counted size are removed.
    pub(super) fn merge(&mut self, other: ResultTable) {
        let mut counted = other.0.iter().filter(|(_, result)| result.counted).map(|(key, _)| key.0);
        if let Some(least) = counted.next() {
            let most = counted.next_back().unwrap_or(least);
            self.0.retain(|(pages, _), result| result.counted || !(least..=most).contains(pages));
        }
        self.0.extend(other.0);
    }

    /// Returns the curve of a policy.
    pub(super) fn curve(&self, policy: PolicyKind) -> Curve {
        let pages = self.of(policy);
        Curve::new(pages.map(|(pages, result)| result.point(page_bytes(pages.into()))))
    }

    /// Copies the results of another table at one size.
    pub(super) fn copy_size(&mut self, other: &ResultTable, pages: u32) {
        for (key, result) in other.0.iter().filter(|(key, _)| key.0 == pages) {
            self.0.insert(*key, *result);
        }
    }

    /// Returns the results of all policies at a size, best first.
    pub(super) fn at(&self, pages: u32) -> Vec<(&'static str, &CacheResult)> {
        let range = (pages, "")..(pages + 1, "");
        let mut result: Vec<_> =
            self.0.range(range).map(|((_, name), result)| (*name, result)).collect();
        result.sort_by(|(_, a), (_, b)| b.hits.hit_ratio.total_cmp(&a.hits.hit_ratio));
        result
    }

    /// Returns the highest hit ratio.
    pub(super) fn highest(&self) -> f64 {
        self.0.values().map(|result| result.hits.hit_ratio).fold(0.0, f64::max)
    }

    /// Returns all sizes.
    pub(super) fn sizes(&self) -> Vec<u32> {
        let mut sizes: Vec<u32> = self.0.keys().map(|(pages, _)| *pages).collect();
        sizes.dedup();
        sizes
    }
}

/// The caches of one step.
#[derive(Debug)]
pub(super) struct CachePlan<'a> {
    pub(super) policies: &'a [PolicyKind],
    /// Sizes in pages; of a server in pages of 4 KiB, whatever its page size.
    pub(super) pages: &'a [u32],
    /// Index in [`PAGE_SIZES`].
    pub(super) page_size: usize,
    pub(super) step: &'static str,
    /// The server that is simulated; `None` for replacement alone.
    pub(super) server: Option<&'a Server>,
}

impl CachePlan<'_> {
    /// Returns true if the caches run in full.
    pub(super) fn runs_in_full(&self, context: &SizingContext<'_>) -> bool {
        let caches = (self.policies.len() * self.pages.len()) as u64;
        let largest = self.pages.iter().copied().max().unwrap_or(0);
        !context.uses_samples()
            && context.survey.references[self.page_size].saturating_mul(caches) <= COUNTED_MAX
            && u64::from(largest) * TABLE_BYTES_PER_PAGE <= TABLES_BYTES_MAX
    }

    /// Runs the caches and inserts their results into the table.
    pub(super) fn run(
        &self,
        context: &SizingContext<'_>,
        table: &mut ResultTable,
        progress: &mut ProgressCallback<'_>,
    ) -> Result<(), SizingError> {
        if self.pages.is_empty() || self.policies.is_empty() {
            return Ok(());
        }
        if let Some(server) = self.server {
            self.serve(server, context, table, progress)
        } else if self.runs_in_full(context) {
            self.count(context, table, progress)
        } else {
            self.estimate(context, table, progress)
        }
    }

    /// Simulates a server with the caches that the table does not have. Sizes below the minimum of
    /// a simulation are left out.
    fn serve(
        &self,
        server: &Server,
        context: &SizingContext<'_>,
        table: &mut ResultTable,
        progress: &mut ProgressCallback<'_>,
    ) -> Result<(), SizingError> {
        let pages_min = server::pages_min(PAGE_SIZES[self.page_size]);
        let sizes = self.pages.iter().filter(|&&pages| u64::from(pages) >= pages_min);
        let caches: Vec<(PolicyKind, u32)> = sizes
            .flat_map(|&pages| self.policies.iter().map(move |&policy| (policy, pages)))
            .filter(|&(policy, pages)| table.get(policy, pages).is_none())
            .collect();
        let results = server.run(context, (&caches, self.page_size), self.step, progress)?;
        for ((policy, pages), result) in caches.into_iter().zip(results) {
            table.insert(policy, pages, &CacheResult::of_server(&result));
        }
        self.policies.iter().for_each(|&policy| table.smooth(policy));
        Ok(())
    }

    fn count(
        &self,
        context: &SizingContext<'_>,
        table: &mut ResultTable,
        progress: &mut ProgressCallback<'_>,
    ) -> Result<(), SizingError> {
        let mut caches: Vec<(PolicyKind, u32)> = self
            .pages
            .iter()
            .flat_map(|&pages| self.policies.iter().map(move |&policy| (policy, pages)))
            .filter(|&(policy, pages)| {
                !table.get(policy, pages).is_some_and(|result| result.counted)
            })
            .collect();
        let mut passes: Vec<Vec<(PolicyKind, u32)>> = Vec::new();
        let mut bytes = u64::MAX;
        for (policy, pages) in caches.drain(..) {
            let table_bytes = u64::from(pages) * TABLE_BYTES_PER_PAGE;
            if bytes.saturating_add(table_bytes) > TABLES_BYTES_MAX {
                passes.push(Vec::new());
                bytes = 0;
            }
            bytes += table_bytes;
            passes.last_mut().expect("a pass was begun").push((policy, pages));
        }
        let references = context.survey.references[self.page_size];
        let total = references * passes.len() as u64;
        for (number, pass) in (0..).zip(passes) {
            let stream = context.references(PAGE_SIZES[self.page_size])?;
            let footprint = context.survey.footprints[self.page_size].pages;
            let item = |&(policy, capacity): &(PolicyKind, u32)| SweepItem {
                policy: policy.into(),
                capacity,
            };
            let plan: Vec<SweepItem> = pass.iter().map(item).collect();
            let counts =
                sweep::run(stream, &plan, Some(footprint), context.options.threads, |done| {
                    progress(Progress { step: self.step, done: number * references + done, total });
                })?;
            for ((policy, pages), counts) in pass.into_iter().zip(counts) {
                table.insert(policy, pages, &CacheResult::counted(&counts));
            }
        }
        Ok(())
    }

    /// Estimates with miniatures. Each thread takes some of the policies and reads the trace
    /// itself.
    fn estimate(
        &self,
        context: &SizingContext<'_>,
        table: &mut ResultTable,
        progress: &mut ProgressCallback<'_>,
    ) -> Result<(), SizingError> {
        let threads = context.options.threads.get().min(self.policies.len());
        // The policies are dealt in turn, because neighbors in the list cost about the same.
        let policy_groups: Vec<Vec<PolicyKind>> = (0..threads)
            .map(|first| self.policies.iter().copied().skip(first).step_by(threads).collect())
            .collect();
        let total = context.survey.references[self.page_size];
        let done = AtomicU64::new(0);
        let miniatures = std::thread::scope(|scope| {
            let others: Vec<_> = policy_groups[1..]
                .iter()
                .map(|group| scope.spawn(|| self.miniatures(context, group, &mut |_| ())))
                .collect();
            let mut report = |more| {
                let done = done.fetch_add(more, Ordering::Relaxed) + more;
                progress(Progress { step: self.step, done, total });
            };
            let mut miniatures = vec![self.miniatures(context, &policy_groups[0], &mut report)];
            for other in others {
                miniatures.push(other.join().expect("a thread that did not panic"));
            }
            miniatures
        });
        for (group, miniature) in policy_groups.iter().zip(miniatures) {
            self.insert_estimates(context, group, &miniature?, table);
        }
        Ok(())
    }

    fn miniatures(
        &self,
        context: &SizingContext<'_>,
        policies: &[PolicyKind],
        report: &mut dyn FnMut(u64),
    ) -> Result<Miniature, SizingError> {
        let footprint = context.survey.footprints[self.page_size].pages;
        let mut miniature = Miniature::new(policies, self.pages, footprint, context.options.seed);
        let mut references = context.references(PAGE_SIZES[self.page_size])?;
        let mut unreported = 0;
        references.for_each_batch(|batch| {
            miniature.run(&batch.references);
            unreported += batch.references.len() as u64;
            if unreported >= 1 << 18 {
                report(std::mem::take(&mut unreported));
            }
            Ok::<_, SizingError>(())
        })?;
        Ok(miniature)
    }

    fn insert_estimates(
        &self,
        context: &SizingContext<'_>,
        policies: &[PolicyKind],
        miniature: &Miniature,
        table: &mut ResultTable,
    ) {
        for (policy, &kind) in policies.iter().enumerate() {
            for (size, &pages) in self.pages.iter().enumerate() {
                let missed = |counts: &Counts| counts.misses().bytes;
                let hits = miniature.hit_ratio(policy, size);
                let byte_hits = miniature.share_without(policy, size, context.survey.bytes, missed);
                let reads = |counts: &Counts| counts.read_misses.references;
                let read_misses = miniature.total(policy, size, reads);
                let (Some(hits), Some(byte_hits), Some((read_misses, _))) =
                    (hits, byte_hits, read_misses)
                else {
                    continue;
                };
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a count, never negative"
                )]
                let read_misses = read_misses.round() as u64;
                let counted = miniature.is_whole(size);
                let result = CacheResult { hits, byte_hits, read_misses, counted, server: None };
                table.insert(kind, pages, &result);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_of_a_server_rises_and_has_the_means_of_what_falls() {
        let mut table = ResultTable::default();
        let policy = PolicyKind::Lru;
        for (pages, read_hit_ratio) in [(1, 0.1), (2, 0.4), (3, 0.3), (4, 0.2), (5, 0.6)] {
            let run = ServerRun { read_hit_ratio, ..ServerRun::default() };
            table.insert(policy, pages, &CacheResult::of_server(&(run, Default::default())));
        }
        let other = CacheResult::counted(&Counts::default());
        table.insert(PolicyKind::S3Fifo, 3, &other);
        table.smooth(policy);
        let ratios: Vec<f64> = table.of(policy).map(|(_, result)| result.hits.hit_ratio).collect();
        for (ratio, expected) in ratios.iter().zip([0.1, 0.3, 0.3, 0.3, 0.6]) {
            assert!((ratio - expected).abs() < 1e-9, "{ratios:?}");
        }
        assert!((table.spread(policy) - 0.1).abs() < 1e-9);
        assert_eq!(table.get(PolicyKind::S3Fifo, 3), Some(&other));
    }
}
