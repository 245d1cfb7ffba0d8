//! `larder size --live`: is the memory of this machine enough for its files.
//!
//! What programs ask for is recorded for a while, and the curve of the kernel's own policy is made
//! of it. A page that read-ahead brought is a miss of that curve, since a cache cannot know it
//! before; so the kernel's own ratio is shown without those as well.

use super::{Arguments, measure, policies, print};
use crate::live::{self, Plan};
use crate::signals::Stop;
use anyhow::{Result, ensure};
use larder_core::policy::PolicyKind;
use larder_host::watch::WatchScope;
use larder_report::advise::curve::{Curve, Point};
use larder_report::format;
use larder_report::sizing::Sizing;
use larder_report::watch::Watch;
use serde_json::{Value, json};
use std::fmt::Write;
use std::num::NonZero;
use std::time::Duration;

pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let wanted = match (&arguments.trace, arguments.pid, &arguments.cgroup) {
        (Some(path), ..) => WatchScope::Path(path.clone()),
        (_, Some(pid), _) => WatchScope::Process(pid),
        (.., Some(group)) => WatchScope::Group(group.clone()),
        (None, None, None) => WatchScope::Machine,
    };
    let stop = Stop::listen()?;
    let time = arguments.time.map(Duration::from_nanos);
    let plan = Plan { wanted, time, sample: NonZero::<u32>::MIN };
    let file = tempfile::Builder::new().prefix(".larder-").suffix(".ltr").tempfile()?;
    let (recorded, file) = live::record(&plan, &stop, std::io::BufWriter::new(file))?;
    let file = file.into_inner()?;
    ensure!(
        recorded.requests > 0,
        "size the cache of {}: nothing was read or written while it was watched",
        recorded.watch.scope
    );
    let chosen = if arguments.policy.is_empty() {
        vec![PolicyKind::Linux]
    } else {
        policies(&arguments.policy)
    };
    let found = measure(arguments, file.path(), recorded.watch.scope.clone(), chosen)?;
    let memory = Memory::of(&recorded.watch, &found);
    print(arguments, &found, Some(&memory))
}

/// What this machine has, beside what the curve says.
#[derive(Debug)]
pub(super) struct Memory {
    resident_bytes: u64,
    /// The kernel's own ratio, with and without what read-ahead brought.
    told: Option<(f64, f64)>,
    lost_events: u64,
    sizes: Vec<(&'static str, Point)>,
}

impl Memory {
    fn of(watch: &Watch, found: &Sizing) -> Memory {
        let resident_bytes = watch.total.memory.resident_bytes;
        let curve = found.policies.first().map(|it| it.points.clone()).unwrap_or_default();
        let sum = watch.total.sum;
        let told = sum.hit_ratio().map(|all| {
            #[expect(clippy::cast_precision_loss, reason = "a share needs no more than 53 bits")]
            let plain = sum.hit_pages as f64 / sum.read_pages as f64;
            (all, plain)
        });
        let sizes = sizes(&curve, resident_bytes);
        Memory { resident_bytes, told, lost_events: watch.total.lost_events, sizes }
    }

    pub(super) fn to_json(&self) -> Value {
        let at = |name: &str| self.sizes.iter().find(|(known, _)| *known == name).map(|it| it.1);
        json!({
            "resident_bytes": self.resident_bytes,
            "hit_ratio": self.told.map(|(all, _)| all),
            "hit_ratio_without_read_ahead": self.told.map(|(_, plain)| plain),
            "lost_events": self.lost_events,
            "half": at("half"),
            "now": at("now"),
            "twice": at("twice"),
        })
    }

    pub(super) fn to_text(&self) -> String {
        let mut text = format!(
            "\nThis machine holds {} of files in memory.\n",
            format::bytes(self.resident_bytes)
        );
        let mut line = |words: std::fmt::Arguments<'_>| {
            text.write_fmt(words).expect("a text takes everything");
        };
        if let Some((all, plain)) = self.told {
            line(format_args!(
                "Of the pages read {} were resident, {} without what read-ahead had just \
                 brought.\n",
                format::percent(all),
                format::percent(plain)
            ));
        }
        for (name, point) in &self.sizes {
            let name = if *name == "now" { "all" } else { *name };
            line(format_args!(
                "With {name} of it ({}) {} of the references would hit.\n",
                format::bytes(point.bytes),
                format::percent(point.hit_ratio)
            ));
        }
        if self.lost_events > 0 {
            line(format_args!(
                "{} events were lost, so there is more than was seen.\n",
                format::count(self.lost_events)
            ));
        }
        text
    }
}

/// The curve at half of a size, the size, and twice of it.
fn sizes(curve: &Curve, bytes: u64) -> Vec<(&'static str, Point)> {
    let wanted = [("half", bytes / 2), ("now", bytes), ("twice", bytes.saturating_mul(2))];
    wanted.into_iter().filter_map(|(name, bytes)| Some((name, curve.at(bytes)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_now_and_twice_are_read_from_the_curve() {
        let curve = Curve::new([Point::exact(100, 0.5), Point::exact(200, 0.8)]);
        let memory = Memory {
            resident_bytes: 100,
            told: Some((0.75, 0.5)),
            lost_events: 0,
            sizes: sizes(&curve, 100),
        };
        let json = memory.to_json();
        assert_eq!(
            (&json["half"]["hit_ratio"], &json["twice"]["hit_ratio"]),
            (&json!(0.25), &json!(0.8))
        );
        let text = memory.to_text();
        assert!(text.contains("75.0 % were resident, 50.0 % without"), "{text}");
        assert!(text.contains("With twice of it (200 B) 80.0 %"), "{text}");
        assert!(!text.contains("lost"));
    }
}
