//! Background writes: the runs of the lazy writer, and dirty pages whose frames are needed.

use super::decide::{Decision, LazyState, decide};
use crate::cache::Cache;
use crate::clock::Nanos;
use crate::counters::Counter;
use crate::frames::Frames;
use crate::queue::{Batch, WriteCause};
use crate::sync::lock;
use crate::tunables::Tunable;
use crate::volume::{Call, Trigger, Volume, Writer};

impl<F: Frames> Cache<F> {
    /// Writes dirty pages whose frames are needed, before pages of the lazy writer, up to the depth
    /// of forced writes. Searches that still need frames request the remaining pages again.
    pub(in crate::cache) fn steal(&self, call: &Call<'_, F>) {
        let steals = std::mem::take(&mut lock(&call.volume.queue).steals);
        self.write_back_each(call, steals, WriteCause::Steal);
    }

    /// Runs the lazy writer up to the depth of background writes.
    pub(in crate::cache) fn write_lazily(
        &self,
        call: &Call<'_, F>,
        writer: &mut Writer,
    ) -> Option<Nanos> {
        let Call { volume, recorder, now } = *call;
        loop {
            if writer.lazy.is_empty() {
                writer.trigger = None;
                match self.decide(volume, writer, now) {
                    Decision::Rest => return None,
                    Decision::Wait(until) => return Some(until),
                    Decision::Run { trigger, dirty_before, blocks, retries } => {
                        let is_selected = |page: &crate::shard::Page| page.dirty_at <= dirty_before;
                        writer.lazy = self.gather_lazily(volume, is_selected, blocks, retries);
                        if writer.lazy.is_empty() {
                            // All dirty pages are under writeback, so a completion triggers the
                            // next run; or they wait for the next attempt.
                            return (!retries).then_some(writer.retry_at);
                        }
                        writer.trigger = Some(trigger);
                        recorder.add(run_counter(trigger), 1);
                    }
                }
            }
            if now < writer.paused_until {
                return Some(writer.paused_until);
            }
            let (background, has_waiting_reads) = {
                let queue = lock(&volume.queue);
                (queue.background.len() + queue.writes_in_flight, queue.has_waiting_reads())
            };
            if has_waiting_reads && writer.trigger == Some(Trigger::Idle) {
                // The decision is repeated after the pause: by then a page may be too old to wait.
                writer.lazy = Batch::default();
                writer.paused_until = now + volume.config.tunables.nanos(Tunable::CollisionDelay);
                recorder.add(Counter::LazyCollisions, 1);
                return Some(writer.paused_until);
            }
            let depth = if has_waiting_reads {
                1
            } else {
                volume.config.tunables.get(Tunable::BackgroundDepth)
            };
            if background as u64 >= depth {
                return None;
            }
            if let Some(block) = writer.lazy.next() {
                self.write_back_around(call, block, WriteCause::Lazy);
            }
        }
    }

    fn decide(&self, volume: &Volume<F>, writer: &mut Writer, now: Nanos) -> Decision {
        let dirty = volume.dirty.dirty();
        let state = LazyState {
            now,
            dirty,
            failing: volume.dirty.failing(),
            capacity: volume.config.capacity(),
            limit: volume.dirty_limit_blocks(),
            oldest: self.oldest_dirty(volume).map(|(at, _)| at),
            last_request: volume.last_request(),
            bulk: writer.bulk,
            retry_at: writer.retry_at,
        };
        let decision = decide(&volume.config.tunables.snapshot(), &state);
        writer.bulk = matches!(decision, Decision::Run { trigger: Trigger::Threshold, .. });
        decision
    }
}

fn run_counter(trigger: Trigger) -> Counter {
    match trigger {
        Trigger::Threshold => Counter::LazyThresholdRuns,
        Trigger::Age => Counter::LazyAgeRuns,
        Trigger::Idle => Counter::LazyIdleRuns,
    }
}
