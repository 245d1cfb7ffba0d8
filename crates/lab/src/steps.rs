//! Independent steps of a computation, on threads.

use std::num::NonZero;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

/// Runs `count` steps on threads, and returns their results in order. `progress` is called after
/// each step.
///
/// # Panics
/// If a step panics.
pub(crate) fn run_all<T: Send>(
    count: usize,
    threads: NonZero<usize>,
    step: impl Fn(usize) -> T + Sync,
    progress: &mut dyn FnMut(),
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let mut results: Vec<Option<T>> = (0..count).map(|_| None).collect();
    std::thread::scope(|scope| {
        let (done, all_done) = mpsc::channel();
        for _ in 0..threads.get().min(count) {
            let (done, next, step) = (done.clone(), &next, &step);
            scope.spawn(move || {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count || done.send((index, step(index))).is_err() {
                        break;
                    }
                }
            });
        }
        drop(done);
        for (index, result) in all_done {
            results[index] = Some(result);
            progress();
        }
    });
    results.into_iter().map(|result| result.expect("each step was run")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_order_and_each_step_is_reported() {
        for threads in [1, 3, 50] {
            let mut reported = 0;
            let threads = NonZero::new(threads).unwrap();
            let results = run_all(20, threads, |index| index * index, &mut || reported += 1);
            assert!(results.into_iter().eq((0..20).map(|index| index * index)));
            assert_eq!(reported, 20);
        }
        assert!(run_all(0, NonZero::<usize>::MIN, |index| index, &mut || ()).is_empty());
    }
}
