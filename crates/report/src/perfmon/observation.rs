//! Conversion of a Perfmon log to an observation.

use crate::findings::{MachineSnapshot, Observation, ProcessUse};
use larder_schema::as_u64;
use larder_schema::perfmon::Summary;

/// Page size of the machines that Perfmon runs on.
const PAGE_BYTES: u64 = 4096;

impl From<&Summary> for Observation {
    fn from(log: &Summary) -> Observation {
        let line = |name: &str| log.lines.iter().find(|line| line.name == name);
        let mut times: Vec<f64> =
            log.lines.iter().flat_map(|line| &line.points).map(|p| p.0).collect();
        times.sort_by(f64::total_cmp);
        times.dedup();
        let at = |name: &str, time: f64| {
            let points = &line(name)?.points;
            points.iter().find(|point| point.0.total_cmp(&time).is_eq()).map(|point| point.1)
        };
        let moments: Vec<MachineSnapshot> = times
            .iter()
            .map(|&time| MachineSnapshot {
                at_s: time,
                cache_bytes: at("cache", time),
                available_bytes: at("available", time),
                paging_per_s: at("pages of paging", time),
                ..MachineSnapshot::default()
            })
            .collect();
        // A single sample counts as one second.
        let interval = log.interval_s.unwrap_or(1.0);
        let seconds = times.last().copied().unwrap_or_default() + interval;
        let processes = log.processes.iter().map(|process| ProcessUse {
            process: process.process.clone(),
            throttled_s: None,
            private_bytes: process.private_bytes.clone(),
        });
        let writes = log.bursts.iter().find(|bursts| bursts.what == "lazy write");
        Observation {
            seconds,
            page_bytes: PAGE_BYTES,
            moments,
            processes: processes.collect(),
            dirtied_pages: writes.map(|bursts| as_u64(bursts.pages_per_s * seconds)),
            ..Observation::default()
        }
    }
}
