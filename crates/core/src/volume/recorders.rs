//! The counters of a volume: one recorder per thread, and the sums of the threads that have ended.

use crate::counters::{Recorder, Totals};
use crate::sync::{Arc, Mutex, lock};

/// The recorders of a volume.
#[derive(Debug)]
pub(crate) struct Recorders {
    all: Mutex<Vec<Arc<Recorder>>>,
    /// Recorder of the thread that runs maintenance.
    pub(crate) maintenance: Arc<Recorder>,
    retired: Mutex<Totals>,
}

impl Default for Recorders {
    fn default() -> Self {
        let maintenance = Arc::new(Recorder::default());
        Recorders {
            all: Mutex::new(vec![Arc::clone(&maintenance)]),
            maintenance,
            retired: Mutex::default(),
        }
    }
}

impl Recorders {
    pub(super) fn totals(&self) -> Totals {
        let mut totals = lock(&self.retired).clone();
        for recorder in lock(&self.all).iter() {
            recorder.add_to(&mut totals);
        }
        totals
    }

    /// Adds a recorder whose counters are part of the totals.
    pub(crate) fn add(&self) -> Arc<Recorder> {
        let recorder = Arc::new(Recorder::default());
        lock(&self.all).push(Arc::clone(&recorder));
        recorder
    }

    /// Adds the counters of a recorder to the totals, and removes it.
    pub(crate) fn remove(&self, recorder: &Arc<Recorder>) {
        let mut all = lock(&self.all);
        all.retain(|other| !Arc::ptr_eq(other, recorder));
        recorder.add_to(&mut lock(&self.retired));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Counter;

    #[test]
    fn counts_of_threads_that_have_ended_stay_in_the_totals() {
        let recorders = Recorders::default();
        recorders.maintenance.add(Counter::Stalls, 1);
        let [first, second] = [10, 100].map(|n| {
            let recorder = recorders.add();
            recorder.add(Counter::Stalls, n);
            recorder
        });
        assert_eq!(recorders.totals().get(Counter::Stalls), 111);
        recorders.remove(&first);
        second.add(Counter::Stalls, 1000);
        assert_eq!(recorders.totals().get(Counter::Stalls), 1111);
    }
}
