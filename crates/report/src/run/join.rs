//! Combination of several runs: parts of one measurement that ran one after another.
//!
//! Invariant: no value, doubt or setting change of any part is lost; trial `i` of the whole is
//! trial `i` of every part.

use larder_schema::run::Run;
use larder_schema::run::trial::Trial;

/// Adds the results of another part. Description, settings and main series of the whole remain
/// those of the first part.
pub fn join(run: &mut Run, part: Run) {
    run.samples.extend(part.samples);
    run.set_aside += part.set_aside;
    for (index, trial) in part.trials.into_iter().enumerate() {
        match run.trials.get_mut(index) {
            Some(sum) => add(sum, trial, |one, other| one + other),
            None => run.trials.push(trial),
        }
    }
    for change in part.environment_changes {
        if !run.environment_changes.contains(&change) {
            run.environment_changes.push(change);
        }
    }
    for doubt in part.doubts {
        if !run.doubts.contains(&doubt) {
            run.doubts.push(doubt);
        }
    }
}

/// Adds a trial: counts are summed and times combined by `times`; of stolen time and speed the
/// worse value is kept.
pub(super) fn add(sum: &mut Trial, more: Trial, times: fn(u64, u64) -> u64) {
    sum.duration_ns = times(sum.duration_ns, more.duration_ns);
    sum.started.files += more.started.files;
    let add = |one: Option<u64>, other: Option<u64>| Some(one? + other?);
    sum.started.pages = add(sum.started.pages, more.started.pages);
    sum.started.resident = add(sum.started.resident, more.started.resident);
    sum.steal = sum.steal.zip(more.steal).map(|(one, other)| one.max(other));
    sum.speed = sum.speed.zip(more.speed).map(|(one, other)| one.min(other));
    sum.disk_bytes = add(sum.disk_bytes, more.disk_bytes);
    sum.own_bytes = add(sum.own_bytes, more.own_bytes);
    for phase in more.phases {
        match sum.phases.iter_mut().find(|one| one.name == phase.name) {
            Some(one) => one.duration_ns = times(one.duration_ns, phase.duration_ns),
            None => sum.phases.push(phase),
        }
    }
    for latency in more.latencies {
        match sum.latencies.iter_mut().find(|one| one.what == latency.what) {
            Some(one) => one.add(&latency),
            None => sum.latencies.push(latency),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_schema::run::trial::{
        Doubt, DoubtReason, Latency, MeasuredStart, Phase, SettingChange,
    };
    use larder_schema::run::{Machine, Sample};

    fn part(name: &str, trials: u64, steal: Option<f64>) -> Run {
        let mut run = Run::new(name, "2026-11-21T03:22:11Z", Machine::default());
        let values = vec![1.0; usize::try_from(trials).unwrap()];
        run.samples.push(Sample { values, ..Sample::new(name, "1/s", None) });
        let trial = |number| Trial {
            number,
            duration_ns: 10,
            started: MeasuredStart {
                files: 1,
                pages: Some(8),
                resident: Some(0),
                ..MeasuredStart::default()
            },
            phases: vec![Phase { name: "read".to_owned(), duration_ns: 7 }],
            steal,
            disk_bytes: Some(100),
            own_bytes: None,
            latencies: vec![Latency { what: name.to_owned(), ..Latency::default() }],
            speed: steal.map(|steal| 1.0 - steal),
        };
        run.set_aside = trials;
        run.trials = (1..=trials).map(trial).collect();
        run.doubts = vec![Doubt { why: DoubtReason::Steal, text: "it was stolen".to_owned() }];
        run.environment_changes =
            vec![SettingChange { name: format!("changed by {name}"), before: None, after: None }];
        run
    }

    #[test]
    fn trials_of_parts_add_up_and_nothing_is_lost() {
        let mut whole = part("one", 2, Some(0.1));
        join(&mut whole, part("two", 3, Some(0.3)));
        assert_eq!(whole.what, "one");
        let series: Vec<_> =
            whole.samples.iter().map(|it| (&*it.series, it.values.len())).collect();
        assert_eq!(series, [("one", 2), ("two", 3)]);
        assert_eq!(whole.trials.len(), 3);
        let first = &whole.trials[0];
        assert_eq!((first.duration_ns, first.phases[0].duration_ns), (20, 14));
        assert_eq!((first.started.files, first.started.pages), (2, Some(16)));
        assert_eq!((first.disk_bytes, first.own_bytes), (Some(200), None));
        assert_eq!((first.steal, first.speed), (Some(0.3), Some(0.7)));
        assert_eq!(whole.set_aside, 5);
        assert_eq!(first.latencies.len(), 2);
        // Only the second part has a third trial.
        assert_eq!(whole.trials[2].duration_ns, 10);
        assert_eq!(whole.doubts.len(), 1, "the same is said once");
        assert_eq!(whole.environment_changes.len(), 2);
    }
}
