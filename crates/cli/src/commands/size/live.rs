//! `larder size --live`: compares the memory of this machine with the need of its files.
//!
//! It records the requests of programs for a while, and computes the curve of the kernel's own
//! policy from them. A page that read-ahead brought in is a miss of that curve, since a cache
//! cannot know of it before; so the kernel's own ratio is also shown without those pages.

use super::{SizeArgs, measure, policies, print};
use crate::live::{self, RecordOptions};
use crate::signals::Stop;
use anyhow::{Result, ensure};
use larder_core::curve::tracker::TURNS_FOR_MISSES;
use larder_core::policy::PolicyKind;
use larder_host::watch::WatchScope;
use larder_report::escape;
use larder_schema::curve::{Curve, Point};
use larder_schema::format;
use larder_schema::sizing::{Sizing, Workload};
use larder_schema::watch::Watch;
use serde_json::{Value, json};
use std::fmt::Write;
use std::num::NonZero;
use std::time::Duration;

pub(super) fn run(arguments: &SizeArgs) -> Result<()> {
    let scope = match (&arguments.trace, arguments.pid, &arguments.cgroup) {
        (Some(path), ..) => WatchScope::Path(path.clone()),
        (_, Some(pid), _) => WatchScope::Process(pid),
        (.., Some(group)) => WatchScope::Group(group.clone()),
        (None, None, None) => WatchScope::Machine,
    };
    let stop = Stop::listen()?;
    let time = arguments.time.map(Duration::from_nanos);
    let plan = RecordOptions { scope, time, sample: NonZero::<u32>::MIN };
    let file = tempfile::Builder::new().prefix(".larder-").suffix(".ltr").tempfile()?;
    let (recorded, file) = live::record(&plan, &stop, std::io::BufWriter::new(file))?;
    let file = file.into_inner()?;
    ensure!(
        recorded.requests > 0,
        "size the cache of {}: nothing was read or written while it was watched",
        recorded.watch.scope
    );
    let selected = if arguments.policy.is_empty() {
        vec![PolicyKind::Linux]
    } else {
        policies(&arguments.policy)
    };
    let mut sizing = measure(arguments, Some(file.path()), recorded.watch.scope.clone(), selected)?;
    let memory = MachineMemory::of(&recorded.watch, &sizing);
    sizing.notes.extend(doubt(&sizing.workload, memory.resident_bytes));
    print(arguments, &sizing, Some(&memory))
}

/// The memory of this machine, and points of the curve.
#[derive(Debug)]
pub(super) struct MachineMemory {
    /// The processes and files that were watched.
    scope: String,
    resident_bytes: u64,
    /// Hit ratio of the kernel's page cache, with and without pages from read-ahead.
    hit_ratios: Option<(f64, f64)>,
    lost_events: u64,
    sizes: Vec<(&'static str, Point)>,
}

impl MachineMemory {
    fn of(watch: &Watch, sizing: &Sizing) -> MachineMemory {
        let resident_bytes = watch.total.memory.resident_bytes;
        let curve = sizing.policies.first().map(|it| it.points.clone()).unwrap_or_default();
        let sum = watch.total.sum;
        let hit_ratios = sum.hit_ratio().map(|all| {
            #[expect(clippy::cast_precision_loss, reason = "a share needs no more than 53 bits")]
            let plain = sum.hit_pages as f64 / sum.read_pages as f64;
            (all, plain)
        });
        let sizes = sizes(&curve, resident_bytes);
        MachineMemory {
            scope: watch.scope.clone(),
            resident_bytes,
            hit_ratios,
            lost_events: watch.total.lost_events,
            sizes,
        }
    }

    pub(super) fn to_json(&self) -> Value {
        let at = |name: &str| self.sizes.iter().find(|(known, _)| *known == name).map(|it| it.1);
        json!({
            "resident_bytes": self.resident_bytes,
            "hit_ratio": self.hit_ratios.map(|(all, _)| all),
            "hit_ratio_without_read_ahead": self.hit_ratios.map(|(_, plain)| plain),
            "lost_events": self.lost_events,
            "half": at("half"),
            "now": at("now"),
            "twice": at("twice"),
        })
    }

    pub(super) fn to_text(&self) -> String {
        let mut text = format!(
            "\nThe page cache of this machine holds {}; the curve describes {}.\n",
            format::bytes(self.resident_bytes),
            escape::line(&self.scope)
        );
        let mut line = |words: std::fmt::Arguments<'_>| {
            text.write_fmt(words).expect("a text takes everything");
        };
        if let Some((all, plain)) = self.hit_ratios {
            line(format_args!(
                "The kernel's own hit ratio was {}.\n\
                 It was {} if first uses of pages from read-ahead count as misses.\n",
                format::percent(all),
                format::percent(plain)
            ));
        }
        for (name, point) in &self.sizes {
            let size = match *name {
                "now" => "all of this memory".to_owned(),
                "twice" => "twice as much".to_owned(),
                name => format!("{name} of this memory"),
            };
            line(format_args!(
                "With {size} ({}) {} of the references would hit.\n",
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

/// Returns the reason why a recording is too short for a recommendation, if it is. The rule is that
/// of the findings of a server: first references miss at every size, and are at most half of twice
/// as many references as the memory has pages.
fn doubt(work: &Workload, resident_bytes: u64) -> Option<String> {
    let wanted = TURNS_FOR_MISSES * (resident_bytes / u64::from(work.page_bytes));
    let time = work.duration_ns.map_or(String::new(), |ns| format!(" in {}", format::duration(ns)));
    (work.references < wanted).then(|| {
        format!(
            "The recording is too short for a reliable recommendation: {} references{time}. To \
             judge the {} of this machine's page cache takes {}.",
            format::count(work.references),
            format::bytes(resident_bytes),
            format::count(wanted)
        )
    })
}

/// Returns the curve at half of a size, the size, and twice of it.
fn sizes(curve: &Curve, bytes: u64) -> Vec<(&'static str, Point)> {
    let requested = [("half", bytes / 2), ("now", bytes), ("twice", bytes.saturating_mul(2))];
    requested.into_iter().filter_map(|(name, bytes)| Some((name, curve.at(bytes)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_recording_is_no_basis_of_a_recommendation() {
        let work = |references| Workload {
            page_bytes: 4096,
            references,
            duration_ns: Some(3_000_000_000),
            ..Workload::default()
        };
        let text = "The recording is too short for a reliable recommendation: 2,047 references in \
                    3.00 s. To judge the 4 MiB of this machine's page cache takes 2,048.";
        let found = doubt(&work(2_047), 4 << 20);
        assert_eq!(found.as_deref(), Some(text));
        assert_eq!(doubt(&work(2_048), 4 << 20), None);
    }

    #[test]
    fn half_now_and_twice_are_read_from_the_curve() {
        let curve = Curve::new([Point::exact(100, 0.5), Point::exact(200, 0.8)]);
        let memory = MachineMemory {
            scope: "/srv/data".to_owned(),
            resident_bytes: 100,
            hit_ratios: Some((0.75, 0.5)),
            lost_events: 0,
            sizes: sizes(&curve, 100),
        };
        let json = memory.to_json();
        assert_eq!(
            (&json["half"]["hit_ratio"], &json["twice"]["hit_ratio"]),
            (&json!(0.25), &json!(0.8))
        );
        let text = memory.to_text();
        let holds = "The page cache of this machine holds 100 B; the curve describes /srv/data.";
        assert!(text.contains(holds), "{text}");
        assert!(text.contains("ratio was 75.0 %.\nIt was 50.0 % if"), "{text}");
        assert!(text.contains("With twice as much (200 B) 80.0 %"), "{text}");
        assert!(!text.contains("lost"));
    }
}
