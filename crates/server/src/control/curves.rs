//! Workload analysis: `GET /v1/curve`, and the findings that other responses include.

use crate::service::{ServedVolume, Service};
use larder_core::cache::ShareMode;
use larder_core::counters::Gauge;
use larder_core::curve::report::{self, CandidateRatio, CurvePoint, CurveReport};
use larder_core::tunables::Tunable;
use larder_core::units::BLOCK_BYTES_U64;
use larder_report::control::{
    self, AutomaticAction, MemoryAdvice, REFERENCES_MIN, VolumeFinding, advising_curve,
    advising_policy, decide, needed_memory,
};
use larder_schema::control::{Curves, Finding, ResponseHead, VolumeCurve};
use larder_schema::curve::{Curve, Point};
use larder_schema::sizing::PolicyRatio;

/// Standard deviations of a 95 % confidence interval, to each side.
const Z_95: f64 = 1.96;

pub(super) fn curves(service: &Service) -> Curves {
    let share = service.engine.cache().share_mode().name().to_owned();
    let volumes = service.volumes().iter().map(|served| volume(service, served)).collect();
    let mut curves = Curves { head: ResponseHead::default(), share, volumes };
    control::advise(&mut curves);
    curves
}

pub(super) fn findings(service: &Service, served: &ServedVolume) -> Vec<Finding> {
    volume(service, served).findings
}

/// Returns the workload of a volume, without the fields of [`control::advise`].
pub(super) fn volume(service: &Service, served: &ServedVolume) -> VolumeCurve {
    let ServedVolume { volume, .. } = served;
    let cache = service.engine.cache();
    let bytes = cache.gauge(volume, Gauge::Resident);
    let totals = volume.totals();
    let most = u64::from(volume.bounds().1).saturating_mul(BLOCK_BYTES_U64);
    let unknown = VolumeCurve {
        name: volume.name().to_owned(),
        bytes,
        max_bytes: (volume.bounds().1 < u32::MAX).then_some(most),
        room_bytes: most.min(bytes + cache.gauge(volume, Gauge::Free)),
        references_ever: totals.read_pages() + totals.write_pages(),
        policy: volume.policy().name().to_owned(),
        auto: volume.policy_auto(),
        ..VolumeCurve::default()
    };
    let Some(report) = cache.curve(volume, service.engine.now()) else { return unknown };
    let known = VolumeCurve {
        sample_rate: report.sample_rate,
        references: report.references,
        references_missing: report.references_missing,
        hit_ratio: report.hit_ratio,
        points: curve(&report.points),
        policy_points: curve(&report.policy_points),
        policies: report.candidates.iter().map(policy).collect(),
        ..unknown
    };
    VolumeCurve { findings: curve_findings(service, served, &known, &report), ..known }
}

fn curve(points: &[CurvePoint]) -> Curve {
    let point = |CurvePoint { bytes, estimate }: &CurvePoint| Point {
        bytes: *bytes,
        hit_ratio: estimate.hit_ratio,
        low: estimate.low,
        high: estimate.high,
    };
    Curve::new(points.iter().map(point))
}

fn policy(CandidateRatio { policy, hit_ratio, deviation }: &CandidateRatio) -> PolicyRatio {
    PolicyRatio {
        policy: policy.name().to_owned(),
        hit_ratio: *hit_ratio,
        low: (hit_ratio - Z_95 * deviation).max(0.0),
        high: (hit_ratio + Z_95 * deviation).min(1.0),
    }
}

/// Converts the findings of a report to those of the API.
fn curve_findings(
    service: &Service,
    ServedVolume { volume, .. }: &ServedVolume,
    known: &VolumeCurve,
    report: &CurveReport,
) -> Vec<Finding> {
    let automatic = AutomaticAction {
        policy: volume.policy_auto(),
        share: service.engine.cache().share_mode() == ShareMode::Auto,
    };
    let curve = advising_curve(known);
    let advice = decide(known);
    let convert = |finding: &report::Finding| match finding {
        report::Finding::TooSmall { hit_ratio, .. } => {
            let at = |bytes| curve.at(bytes).map_or(0.0, |point| point.hit_ratio);
            let needed = needed_memory(&curve).map_or(0, |needed| needed.point.bytes);
            VolumeFinding::Thrashing {
                policy: advising_policy(known),
                hit_ratio: *hit_ratio,
                with_twice: at(report.bytes.saturating_mul(2)),
                more_bytes: needed.saturating_sub(report.bytes),
                with_more: at(needed),
            }
        }
        report::Finding::TooLarge { spare_bytes, .. } => {
            VolumeFinding::TooLarge { spare_bytes: *spare_bytes }
        }
        report::Finding::BetterPolicy { policy, gain } => {
            VolumeFinding::BetterPolicy { policy: policy.name(), gain: *gain }
        }
        report::Finding::Scanned { share } => VolumeFinding::Scanned { share: *share },
        report::Finding::AheadWasted { share } => VolumeFinding::AheadWasted { share: *share },
        report::Finding::Stolen { share } => VolumeFinding::Stolen {
            share: *share,
            dirty_threshold: volume.tunables().get(Tunable::DirtyThreshold),
        },
        report::Finding::WriteAmplification { factor } => {
            VolumeFinding::WriteAmplification { factor: *factor }
        }
    };
    // Few references do not support a finding.
    let reliable = report.findings.iter().filter(|_| report.references >= REFERENCES_MIN);
    let agrees = |finding: &&report::Finding| match finding {
        report::Finding::TooSmall { .. } => matches!(advice, MemoryAdvice::More { .. }),
        report::Finding::TooLarge { .. } => matches!(advice, MemoryAdvice::Spare { .. }),
        _ => true,
    };
    let findings = reliable.filter(agrees).map(convert);
    findings.map(|finding| control::describe(volume.name(), finding, automatic)).collect()
}
