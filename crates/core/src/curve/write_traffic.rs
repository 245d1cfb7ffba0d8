//! What a volume wrote lately: its counters, aged by windows of references as its curve is.
//!
//! Counters only grow. What was counted since the last window ended weighs fully, what came before
//! it a part less with each window, so that a finding goes when its reason has gone.

use super::estimate::as_f64;
use super::report::Traffic;
use super::tracker::KEEP;
use crate::counters::{Counter, Totals};

/// Bytes of clients, bytes of the store, blocks written back, blocks of them that were stolen.
type Amounts = [f64; 4];

/// What was counted, by age.
#[derive(Clone, Debug, Default)]
pub(crate) struct DecayingCounter {
    /// The counters when the last window ended.
    last: Amounts,
    /// What weighs up to then.
    recent: Amounts,
}

fn amounts(totals: &Totals) -> Amounts {
    let of = |counter: Counter| as_f64(totals.get(counter));
    let stolen = of(Counter::StealWriteBlocks);
    let blocks = of(Counter::LazyWriteBlocks) + of(Counter::ForcedWriteBlocks) + stolen;
    [of(Counter::WriteBytes), of(Counter::StoreWriteBytes), blocks, stolen]
}

impl DecayingCounter {
    /// A window has ended.
    pub(crate) fn turn(&mut self, totals: &Totals) {
        let now = amounts(totals);
        for ((recent, last), now) in self.recent.iter_mut().zip(&self.last).zip(now) {
            *recent = *recent * KEEP + (now - last);
        }
        self.last = now;
    }

    /// What weighs now, with the share of reads ahead that are wasted.
    pub(crate) fn now(&self, totals: &Totals, ahead_wasted: f64) -> Traffic {
        let since = amounts(totals);
        let of = |place: usize| self.recent[place] + since[place] - self.last[place];
        Traffic {
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
        let (recorder, mut aged) = (Recorder::default(), DecayingCounter::default());
        let totals = |recorder: &Recorder| {
            let mut totals = Totals::default();
            recorder.add_to(&mut totals);
            totals
        };
        recorder.add(Counter::WriteBytes, 100);
        recorder.add(Counter::StoreWriteBytes, 1_000);
        let factor = |aged: &DecayingCounter, totals: &Totals| {
            let traffic = aged.now(totals, 0.0);
            traffic.store_bytes / traffic.client_bytes
        };
        assert!((factor(&aged, &totals(&recorder)) - 10.0).abs() < 1e-9, "before any window");
        for window in 0..60 {
            aged.turn(&totals(&recorder));
            let same = factor(&aged, &totals(&recorder));
            assert!(window > 0 || (same - 10.0).abs() < 1e-9, "a window's end changes nothing");
            recorder.add(Counter::WriteBytes, 100);
            recorder.add(Counter::StoreWriteBytes, 100);
        }
        let late = factor(&aged, &totals(&recorder));
        assert!(late < 1.05, "{late}");
    }
}
