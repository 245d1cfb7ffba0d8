//! A queue of jobs for several equal threads: a job wakes one of them, and none if all are busy.

use super::Job;
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Time after which a delayed job is done.
const DELAY: Duration = Duration::from_millis(20);
const DELAYED_MAX: usize = 1024;

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Jobs to do later, with their times, the earliest first.
    delayed: VecDeque<(Instant, Job)>,
    idle: usize,
    is_closed: bool,
}

#[derive(Default)]
pub(super) struct JobQueue {
    state: Mutex<State>,
    added: Condvar,
}

impl JobQueue {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }

    /// Adds a job. A closed queue drops it: the mount has ended, and no process waits for the
    /// result.
    pub(super) fn add(&self, job: Job) {
        let mut state = self.state();
        if state.is_closed {
            drop(state);
            tracing::debug!("a job came after the end");
            return;
        }
        state.jobs.push_back(job);
        let has_idle = state.idle > 0;
        drop(state);
        if has_idle {
            self.added.notify_one();
        }
    }

    /// Adds a job to be done after a delay. Returns the job if the queue is closed, or if this many
    /// of them are delayed; there are never more than [`DELAYED_MAX`].
    pub(super) fn add_delayed(&self, job: Job, count_max: usize) -> Option<Job> {
        let mut state = self.state();
        if state.is_closed || state.delayed.len() >= count_max.min(DELAYED_MAX) {
            return Some(job);
        }
        state.delayed.push_back((Instant::now() + DELAY, job));
        None
    }

    /// Waits for the next job. `None` when the queue is closed and empty.
    pub(super) fn next(&self) -> Option<Job> {
        let mut state = self.state();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            let next =
                state.delayed.front().map(|(at, _)| at.saturating_duration_since(Instant::now()));
            match next {
                Some(left) if left.is_zero() || state.is_closed => {
                    return state.delayed.pop_front().map(|(_, job)| job);
                }
                None if state.is_closed => return None,
                _ => {}
            }
            state.idle += 1;
            state = match next {
                Some(left) => self.added.wait_timeout(state, left).expect("no holder panics").0,
                None => self.added.wait(state).expect("no holder panics"),
            };
            state.idle -= 1;
        }
    }

    /// Closes the queue for further jobs. The queued jobs are still done.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.added.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_bounded_number_of_jobs_is_delayed_and_a_closed_queue_does_them_at_once() {
        let jobs = JobQueue::default();
        let taken =
            (0..2 * DELAYED_MAX).filter(|_| jobs.add_delayed(Job::PruneIdle, usize::MAX).is_none());
        assert_eq!(taken.count(), DELAYED_MAX);
        assert!(jobs.add_delayed(Job::PruneIdle, 1).is_some(), "there are more than one");
        assert!(jobs.next().is_some(), "after the delay");
        assert!(jobs.add_delayed(Job::PruneIdle, usize::MAX).is_none(), "there is room again");
        jobs.close();
        assert!(jobs.add_delayed(Job::PruneIdle, usize::MAX).is_some());
        assert_eq!(std::iter::from_fn(|| jobs.next()).count(), DELAYED_MAX);
    }

    #[test]
    fn each_job_is_done_once_and_a_closed_queue_is_emptied() {
        const JOBS: usize = 1000;
        let (jobs, done) = (JobQueue::default(), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while let Some(job) = jobs.next() {
                        assert!(matches!(job, Job::PruneIdle));
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            for _ in 0..JOBS {
                jobs.add(Job::PruneIdle);
            }
            jobs.close();
        });
        assert_eq!(done.into_inner(), JOBS);
        jobs.add(Job::PruneIdle);
        assert!(jobs.next().is_none(), "a job after the end is dropped");
    }
}
