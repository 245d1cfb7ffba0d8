//! Inspections of many processes in a limited time.
//!
//! Invariants: a scan inspects every process for a short time before one gets more, and the
//! processes of a user that took long come after those of others. The start of an inspector does
//! not count as time of a process: on a busy machine it takes longer than an inspection.

use crate::inspect::{ROOT, Subject, Uninspectable, WAIT_MAX, run, user};
use crate::{inspector_client, proc};
use larder_schema::control::UNINSPECTED;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Maximum time of the inspection of all processes; then the others are not inspected. Tests
/// also pass on a busy machine.
const SCAN_TIME_MAX: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 2 });
/// Maximum time that a scan waits for the start of an inspector, which no other user delays.
const START_TIME_MAX: Duration = Duration::from_secs(1);
/// Maximum time for a process in the first round of a scan.
const FIRST_TIME_MAX: Duration = Duration::from_millis(100);
/// Time of a scan from which on the processes of a user other than root have to wait for its second
/// round, and come last in the next scan.
const USER_TIME_MAX: Duration = Duration::from_millis(50);

/// Limits of the time that inspections take in each second. That of a user applies to all processes
/// of the user: new ones do not renew it.
#[derive(Debug)]
pub(crate) struct TimeBudget {
    user_max: Duration,
    /// Maximum time for the users other than root together.
    max: Duration,
    /// Begin of the current second.
    begun: Instant,
    spent: BTreeMap<u32, Duration>,
}

impl TimeBudget {
    pub(crate) fn new(user_max: Duration, max: Duration) -> TimeBudget {
        TimeBudget { user_max, max, begun: Instant::now(), spent: BTreeMap::new() }
    }

    /// Inspects a process or thread in the time that its user has left in this second.
    ///
    /// # Errors
    /// As those of [`crate::inspect::inspect`], or no time is left.
    pub(crate) fn inspect<T: Send + 'static>(
        &mut self,
        task: u32,
        action: impl FnOnce(Instant) -> T + Send + 'static,
    ) -> Result<T, Uninspectable> {
        let process = Subject::of(task);
        let now = Instant::now();
        if now.duration_since(self.begun) >= Duration::from_secs(1) {
            self.begun = now;
            self.spent.clear();
        }
        let wait = self.left(process.user);
        if wait.is_zero() {
            return Err(Uninspectable);
        }
        inspector_client::prepare(Duration::ZERO);
        let result = run(process, wait, action);
        *self.spent.entry(process.user).or_default() += now.elapsed();
        result
    }

    fn left(&self, user: u32) -> Duration {
        let spent = self.spent.get(&user).copied().unwrap_or_default();
        let of_user = self.user_max.saturating_sub(spent);
        if user == ROOT {
            return of_user;
        }
        let users = self.spent.iter().filter(|(user, _)| **user != ROOT);
        of_user.min(self.max.saturating_sub(users.map(|(_, spent)| spent).sum()))
    }
}

/// Times of the inspections of the users whose processes took long in a scan.
#[derive(Debug)]
struct SlowUsers(BTreeMap<u32, Duration>);

static SLOW_USERS: Mutex<SlowUsers> = Mutex::new(SlowUsers(BTreeMap::new()));

impl SlowUsers {
    /// Adds the times of the users in a scan. A user who took long stays slow for a few scans.
    /// Root, who has most processes, is never slow.
    fn add_scan(&mut self, times: &BTreeMap<u32, Duration>) {
        for (user, time) in times.iter().filter(|(user, _)| **user != ROOT) {
            let before = self.0.remove(user).unwrap_or_default();
            let time = (*time).max(before / 2);
            if time >= USER_TIME_MAX {
                self.0.insert(*user, time);
            }
        }
    }

    /// Returns the place of the processes of a user in the order of inspection.
    fn rank(&self, user: u32) -> u128 {
        self.0.get(&user).map_or(0, |time| time.as_millis() / USER_TIME_MAX.as_millis())
    }
}

/// The inspection of several processes, with a common limit of time.
#[derive(Debug)]
pub(crate) struct Scan {
    end: Instant,
    /// Time that the processes of each user took.
    times: BTreeMap<u32, Duration>,
    /// Processes that were not inspected, or not completely.
    pub(crate) incomplete: Vec<u32>,
}

impl Scan {
    pub(crate) fn start() -> Scan {
        inspector_client::prepare(START_TIME_MAX);
        Scan { end: Instant::now() + SCAN_TIME_MAX, times: BTreeMap::new(), incomplete: Vec::new() }
    }

    /// Returns all processes in the order of inspection: by process ID, after those of other users
    /// if the processes of their user took long in earlier scans.
    pub(crate) fn processes() -> Vec<u32> {
        let mut pids = proc::pids();
        if let Ok(slow) = SLOW_USERS.lock()
            && !slow.0.is_empty()
        {
            pids.sort_by_cached_key(|pid| slow.rank(user(*pid)));
        }
        pids
    }

    /// Inspects processes in two rounds: the first is short for each, and the second is for those
    /// that need longer, in the order of the time that their users have taken. `found` gets each
    /// process once with its result, as far as it is known, until it breaks.
    pub(crate) fn inspect_all<T, A>(
        &mut self,
        pids: impl IntoIterator<Item = u32>,
        action: impl Fn(u32) -> A,
        mut found: impl FnMut(u32, Result<T, Uninspectable>) -> ControlFlow<()>,
    ) where
        T: Send + 'static,
        A: FnOnce(Instant) -> (T, bool) + Send + 'static,
    {
        let mut slow = Vec::new();
        for pid in pids {
            let user = user(pid);
            let is_slow = self.time_of(user) >= USER_TIME_MAX;
            let wait = if is_slow { Duration::ZERO } else { FIRST_TIME_MAX };
            match self.run(pid, wait, action(pid)) {
                Ok((result, true)) => {
                    if found(pid, Ok(result)).is_break() {
                        return;
                    }
                }
                partial => slow.push((pid, user, partial)),
            }
        }
        slow.sort_by_cached_key(|(_, user, _)| self.time_of(*user));
        for (pid, _, partial) in slow {
            let result = self.run(pid, WAIT_MAX, action(pid)).or(partial);
            if !matches!(result, Ok((_, true))) {
                self.incomplete.push(pid);
            }
            if found(pid, result.map(|(result, _)| result)).is_break() {
                return;
            }
        }
    }

    /// Returns the time of a user; root does not have to wait for others.
    fn time_of(&self, user: u32) -> Duration {
        let time = self.times.get(&user).filter(|_| user != ROOT);
        time.copied().unwrap_or_default()
    }

    fn run<T: Send + 'static>(
        &mut self,
        pid: u32,
        wait: Duration,
        action: impl FnOnce(Instant) -> (T, bool) + Send + 'static,
    ) -> Result<(T, bool), Uninspectable> {
        let begun = Instant::now();
        if wait.is_zero() || begun >= self.end {
            return Err(Uninspectable);
        }
        let process = Subject::of(pid);
        inspector_client::prepare(START_TIME_MAX);
        let result = run(process, wait, action);
        *self.times.entry(process.user).or_default() += begun.elapsed();
        result
    }

    /// Describes the processes that were not inspected completely, for a message; `None` if there
    /// are none.
    pub(crate) fn describe_incomplete(&self) -> Option<String> {
        let first = *self.incomplete.first()?;
        let first = crate::process_name::describe(first);
        let others = match self.incomplete.len() - 1 {
            0 => String::new(),
            count => format!(" and {count} more"),
        };
        Some(format!("{UNINSPECTED}{first}{others}"))
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        if let Ok(mut slow) = SLOW_USERS.lock() {
            slow.add_scan(&self.times);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::tests::block;

    #[test]
    fn processes_that_are_not_inspected_completely_are_known() {
        let blocked = block(1);
        let mut scan = Scan::start();
        let (mut found, is_complete) = (Vec::new(), |pid| pid != 3);
        let action = |pid| move |_| (pid, is_complete(pid));
        scan.inspect_all([1, 2, 3], action, |pid, result| {
            found.push((pid, result));
            ControlFlow::Continue(())
        });
        assert_eq!(found, [(2, Ok(2)), (1, Err(Uninspectable)), (3, Ok(3))]);
        assert_eq!(scan.incomplete, [1, 3]);
        let description = scan.describe_incomplete().unwrap();
        assert!(description.ends_with(") and 1 more"));
        drop(blocked);
    }

    #[test]
    fn new_processes_of_a_user_do_not_renew_the_time() {
        let second = Duration::from_secs(1);
        let mut budget = TimeBudget::new(second / 10, second / 4);
        assert_eq!(budget.inspect(std::process::id(), |_| 5), Ok(5));
        budget.begun = Instant::now();
        budget.spent = [(1000, second / 20), (1001, second / 10), (1002, second / 20)].into();
        let left = [ROOT, 1000, 1001, 1003].map(|user| budget.left(user));
        assert_eq!(left, [second / 10, second / 20, Duration::ZERO, second / 20]);
        let own_user = user(std::process::id());
        budget.spent.insert(own_user, second / 10);
        assert_eq!(budget.inspect(std::process::id(), |_| 5), Err(Uninspectable));
        budget.begun = budget.begun.checked_sub(second).unwrap();
        assert_eq!(budget.inspect(std::process::id(), |_| 5), Ok(5), "the next second");
    }

    #[test]
    fn processes_of_a_slow_user_come_last_for_a_few_scans() {
        let mut slow = SlowUsers(BTreeMap::new());
        let scan = |times: &[(u32, u64)]| {
            times.iter().map(|&(user, ms)| (user, Duration::from_millis(ms))).collect()
        };
        slow.add_scan(&scan(&[(ROOT, 1900), (1, 1900), (2, 10)]));
        assert_eq!(slow.rank(ROOT), 0);
        assert!(slow.rank(1) > slow.rank(2));
        slow.add_scan(&scan(&[(2, 10)]));
        assert!(slow.rank(1) > slow.rank(2), "no time was left for it");
        slow.add_scan(&scan(&[(1, 0)]));
        assert!(slow.rank(1) > slow.rank(2), "one fast scan is not enough");
        for _ in 0..5 {
            slow.add_scan(&scan(&[(1, 0)]));
        }
        assert!(slow.0.is_empty());
    }

    #[test]
    fn slow_processes_do_not_keep_later_ones_from_being_inspected() {
        let mut scan = Scan::start();
        let (is_slow, mut found) = (|pid| pid < 100, Vec::new());
        let action = |pid| {
            move |deadline: Instant| {
                let left = deadline.saturating_duration_since(Instant::now());
                let has_time = left > FIRST_TIME_MAX;
                (pid, !is_slow(pid) || has_time)
            }
        };
        scan.inspect_all([1, 2, 100, 3, 101], action, |pid, _| {
            found.push(pid);
            ControlFlow::Continue(())
        });
        found[2..].sort_unstable();
        assert_eq!(found, [100, 101, 1, 2, 3]);
        assert_eq!(scan.incomplete, Vec::<u32>::new());
    }

    #[test]
    fn a_scan_has_a_limit_of_time() {
        let mut scan = Scan::start();
        scan.end = Instant::now();
        scan.inspect_all(
            [1],
            |_| |_| (5, true),
            |_, result| {
                assert_eq!(result, Err(Uninspectable));
                ControlFlow::Continue(())
            },
        );
        assert_eq!(scan.incomplete, [1]);
    }
}
