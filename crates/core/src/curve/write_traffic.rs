//! Recent write traffic of a volume: its counters, decayed by windows of references like its curve.
//!
//! Counters only grow. Amounts counted since the end of the last window have full weight; the
//! weight of earlier amounts shrinks with each window, so that a finding disappears when its reason
//! has ended.

use super::report::RecentTraffic;
use super::tracker::KEEP;
use crate::counters::{Counter, Totals};
use crate::units::as_f64;

/// Bytes of clients, bytes of the store, blocks written back, and blocks of them whose frame was
/// needed.
type Amounts = [f64; 4];

/// Amounts counted, weighted by age.
#[derive(Clone, Debug, Default)]
pub(crate) struct DecayingCounter {
    /// The counters at the end of the last window.
    last: Amounts,
    /// The decayed amounts up to that time.
    recent: Amounts,
}

fn amounts(totals: &Totals) -> Amounts {
    let of = |counter: Counter| as_f64(totals.get(counter));
    let stolen = of(Counter::StealWriteBlocks);
    let blocks = of(Counter::LazyWriteBlocks) + of(Counter::ForcedWriteBlocks) + stolen;
    [of(Counter::WriteBytes), of(Counter::StoreWriteBytes), blocks, stolen]
}

impl DecayingCounter {
    /// Ends a window of references.
    pub(crate) fn end_window(&mut self, totals: &Totals) {
        let now = amounts(totals);
        for ((recent, last), now) in self.recent.iter_mut().zip(&self.last).zip(now) {
            *recent = *recent * KEEP + (now - last);
        }
        self.last = now;
    }

    /// Returns the current amounts, with the given share of wasted read-ahead.
    pub(crate) fn now(&self, totals: &Totals, ahead_wasted: f64) -> RecentTraffic {
        let since = amounts(totals);
        let of = |index: usize| self.recent[index] + since[index] - self.last[index];
        RecentTraffic {
            client_bytes: of(0),
            store_bytes: of(1),
            blocks: of(2),
            stolen_blocks: of(3),
            ahead_wasted,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Recorder;

    #[test]
    fn what_was_written_long_ago_hardly_weighs() {
        let (recorder, mut decaying) = (Recorder::default(), DecayingCounter::default());
        let totals = |recorder: &Recorder| {
            let mut totals = Totals::default();
            recorder.add_to(&mut totals);
            totals
        };
        recorder.add(Counter::WriteBytes, 100);
        recorder.add(Counter::StoreWriteBytes, 1_000);
        let factor = |decaying: &DecayingCounter, totals: &Totals| {
            let traffic = decaying.now(totals, 0.0);
            traffic.store_bytes / traffic.client_bytes
        };
        assert!((factor(&decaying, &totals(&recorder)) - 10.0).abs() < 1e-9, "before any window");
        for window in 0..60 {
            decaying.end_window(&totals(&recorder));
            let same = factor(&decaying, &totals(&recorder));
            assert!(window > 0 || (same - 10.0).abs() < 1e-9, "a window's end changes nothing");
            recorder.add(Counter::WriteBytes, 100);
            recorder.add(Counter::StoreWriteBytes, 100);
        }
        let late = factor(&decaying, &totals(&recorder));
        assert!(late < 1.05, "{late}");
    }
}
