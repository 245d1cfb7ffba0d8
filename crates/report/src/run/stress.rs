//! Stress point of a server: the step from which on additional clients do not increase throughput.
//!
//! The rule: a step *gains* if its throughput is more than 5 % above that of the last step that
//! gained; the first step gains. The stress point is the first step that does not gain and whose
//! throughput is more than 5 % below that of the last gaining step (it turned down), or whose
//! response time is at least twice that of the last gaining step (clients only wait). Values are
//! the medians of the trials.

use crate::stats::median;
use larder_schema::format;
use larder_schema::run::{Run, Sample};

/// Group name of throughputs by step.
pub const THROUGHPUT: &str = "throughput";
/// Group name of mean response times by step, in nanoseconds.
pub const RESPONSE_TIME: &str = "response time";
/// Coordinate of the steps in these groups.
pub const CLIENTS: &str = "clients";

/// Minimum relative change of throughput that counts as a gain or a loss.
const GAIN_MIN: f64 = 0.05;
/// Factor of the response time at which clients only wait.
const WAITING_FACTOR: f64 = 2.0;

/// A step of a server load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Number of concurrent clients.
    pub clients: f64,
    /// Throughput, in the unit of the run.
    pub throughput: f64,
    /// Mean response time in nanoseconds.
    pub response_ns: f64,
}

/// Reason why a step is the stress point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StressReason {
    /// Throughput turned down.
    TurnsDown,
    /// Response times doubled without a gain.
    Waits,
}

/// The stress point of a server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StressPoint {
    /// The step.
    pub at: Step,
    /// The last step that gained.
    pub gained: Step,
    /// The reason.
    pub reason: StressReason,
}

/// Returns the stress point of steps in the order of their client counts, if any.
#[must_use]
pub fn stress_point(steps: &[Step]) -> Option<StressPoint> {
    let (first, more) = steps.split_first()?;
    let mut gained = *first;
    for &at in more {
        if at.throughput > gained.throughput * (1.0 + GAIN_MIN) {
            gained = at;
            continue;
        }
        let reason = if at.throughput < gained.throughput * (1.0 - GAIN_MIN) {
            StressReason::TurnsDown
        } else if at.response_ns >= gained.response_ns * WAITING_FACTOR {
            StressReason::Waits
        } else {
            continue;
        };
        return Some(StressPoint { at, gained, reason });
    }
    None
}

/// Returns the steps of a server load, in the order of their client counts; empty in other
/// runs.
#[must_use]
pub fn steps(run: &Run) -> Vec<Step> {
    let group = |name: &str| {
        let of_group = run.samples.iter().filter(|it| it.group.as_deref() == Some(name));
        let mut found: Vec<(f64, f64)> = of_group.filter_map(clients_and_median).collect();
        found.sort_by(|a, b| a.0.total_cmp(&b.0));
        found
    };
    let (throughput, answer) = (group(THROUGHPUT), group(RESPONSE_TIME));
    let step = |&(clients, throughput): &(f64, f64)| {
        let same = answer.iter().find(|(other, _)| other.total_cmp(&clients).is_eq())?;
        Some(Step { clients, throughput, response_ns: same.1 })
    };
    throughput.iter().filter_map(step).collect()
}

/// Describes the stress point; returns `None` for runs without steps.
#[must_use]
pub fn stress_in_words(run: &Run) -> Option<String> {
    let steps = steps(run);
    let last = steps.last().filter(|_| steps.len() > 1)?;
    let Some(StressPoint { at, gained, reason }) = stress_point(&steps) else {
        return Some(format!(
            "No stress point up to {} clients: throughput neither turned down nor did answer \
             times double without a gain of more than {}.",
            last.clients,
            format::percent(GAIN_MIN)
        ));
    };
    let percent = format::percent((at.throughput / gained.throughput - 1.0).abs());
    // Client counts are whole numbers, which format without a fraction.
    let (at_clients, gained_clients) = (at.clients, gained.clients);
    let times = format::times(at.response_ns / gained.response_ns);
    Some(match reason {
        StressReason::TurnsDown => format!(
            "Stress point at {at_clients} clients: throughput turns down, {percent} below that \
             with {gained_clients}, and answers take {times} as long."
        ),
        StressReason::Waits => {
            let less = if at.throughput < gained.throughput { "less" } else { "more" };
            format!(
                "Stress point at {at_clients} clients: answers take {times} as long as with \
                 {gained_clients}, for {percent} {less} throughput."
            )
        }
    })
}

/// Returns the client count of a sample, and its median.
fn clients_and_median(sample: &Sample) -> Option<(f64, f64)> {
    let clients = sample.at.get(CLIENTS).filter(|_| sample.at.len() == 1)?;
    Some((*clients, median(&sample.values)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_schema::run::{Direction, Machine};

    fn series(of: &[(f64, f64, f64)]) -> Vec<Step> {
        let step = |&(clients, throughput, response_ns)| Step { clients, throughput, response_ns };
        of.iter().map(step).collect()
    }

    #[test]
    fn throughput_that_turns_down_is_a_stress_point() {
        let found =
            series(&[(1.0, 10.0, 5.0), (2.0, 19.0, 5.0), (4.0, 18.5, 9.0), (8.0, 17.0, 20.0)]);
        let point = stress_point(&found).unwrap();
        // 18.5 is within 5 % of 19, and 9 is less than twice 5; 17 is below.
        assert_eq!(
            (point.at, point.gained, point.reason),
            (found[3], found[1], StressReason::TurnsDown)
        );
    }

    #[test]
    fn waiting_without_a_gain_is_a_stress_point_however_small_the_steps() {
        let found = series(&[
            (8.0, 100.0, 10.0),
            (10.0, 102.0, 13.0),
            (12.0, 104.0, 16.0),
            (14.0, 104.9, 20.0),
        ]);
        let point = stress_point(&found).unwrap();
        assert_eq!(
            (point.at, point.gained, point.reason),
            (found[3], found[0], StressReason::Waits)
        );
    }

    #[test]
    fn a_gain_that_costs_response_time_is_no_stress_point() {
        assert_eq!(stress_point(&[]), None);
        assert_eq!(stress_point(&series(&[(1.0, 1.0, 1.0)])), None);
        let found = series(&[(1.0, 10.0, 5.0), (2.0, 11.0, 50.0), (4.0, 13.0, 500.0)]);
        assert_eq!(stress_point(&found), None);
        // Neither a gain nor longer response times.
        assert_eq!(stress_point(&series(&[(1.0, 10.0, 5.0), (2.0, 10.0, 5.0)])), None);
    }

    /// Creates a run with throughput and response time for each step, in reverse order.
    fn run(of: &[(f64, f64, f64)]) -> Run {
        let mut run = Run::new("load", "2026-11-21T03:22:11Z", Machine::default());
        for &(clients, throughput, answer) in of.iter().rev() {
            for (group, value) in [(THROUGHPUT, throughput), (RESPONSE_TIME, answer)] {
                let mut sample = Sample::new(group, "unit", Some(Direction::Higher));
                sample.group = Some(group.to_owned());
                sample.at = [(CLIENTS.to_owned(), clients)].into();
                sample.values = vec![value, value * 3.0, value];
                run.samples.push(sample);
            }
        }
        run
    }

    #[test]
    fn a_run_says_its_stress_point_in_the_medians() {
        let loaded = run(&[(1.0, 10.0, 5.0), (2.0, 20.0, 5.0), (4.0, 15.0, 12.0)]);
        assert_eq!(steps(&loaded).len(), 3);
        let sentence = stress_in_words(&loaded).unwrap();
        assert_eq!(
            sentence,
            "Stress point at 4 clients: throughput turns down, 25.0 % below that with 2, and \
             answers take 2.40x as long."
        );
        assert!(
            crate::run::to_text(&loaded).contains(&sentence),
            "{}",
            crate::run::to_text(&loaded)
        );
        let page = crate::run::to_html(&loaded);
        assert!(page.contains(&sentence) && page.contains("stress point"), "{page}");
        let waiting = stress_in_words(&run(&[(1.0, 10.0, 5.0), (2.0, 10.1, 10.0)])).unwrap();
        assert!(waiting.starts_with("Stress point at 2 clients: answers take 2.00x"), "{waiting}");
        let calm = run(&[(1.0, 10.0, 5.0), (2.0, 20.0, 5.0)]);
        assert!(stress_in_words(&calm).unwrap().starts_with("No stress point up to 2 clients"));
        assert!(!crate::run::to_html(&calm).contains("stress point</text>"));
        assert_eq!(stress_in_words(&run(&[(1.0, 10.0, 5.0)])), None);
        assert_eq!(stress_in_words(&run(&[])), None);
    }
}
