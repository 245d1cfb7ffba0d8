//! The answer: whether contiguous files would be faster, and why.

use larder_report::escape;
use larder_schema::fragmentation::{
    FragmentationCost, FragmentationVerdict, LayoutCost, RequestsFrom, ScanTotals, VerdictKind,
};
use larder_schema::{as_f64, format};

/// Minimum share of the time that contiguous files must save: less is within the noise of
/// measurements, and within the error of the models.
pub const NOISE: f64 = 0.05;

/// Returns the answer for files, and the cost of their requests. `arguments` are those of a repair
/// of the same files for the same requests, as words of a shell.
#[must_use]
pub fn verdict(
    scan: &ScanTotals,
    cost: Option<&FragmentationCost>,
    arguments: &str,
) -> FragmentationVerdict {
    let answer = |kind, reason| FragmentationVerdict { kind, reason, commands: Vec::new() };
    if scan.fragmented == 0 {
        let reason = "no file has more than one fragment: nothing to gain".to_owned();
        return answer(VerdictKind::NotFragmented, reason);
    }
    let Some(cost) = cost.filter(|cost| cost.device_requests > 0) else {
        let reason = match cost {
            Some(cost) if cost.cached_requests > 0 => {
                "the cache served all requests: nothing to gain".to_owned()
            }
            _ => "no request reaches the scanned files on the device: nothing to gain".to_owned(),
        };
        return answer(VerdictKind::NotWorthIt, reason);
    };
    let share = format::percent(cost.crossing_share());
    let requests = match cost.from {
        RequestsFrom::OneRead => "reads of whole files",
        RequestsFrom::Trace | RequestsFrom::Record => "requests",
    };
    let device = escape::text(&cost.device);
    if cost.gain() >= NOISE {
        let ratio = cost.now.seconds / cost.contiguous.seconds;
        let seeks = |layout: &LayoutCost| format::number(layout.seeks_per_1000);
        let reason = format!(
            "{share} of the {requests} cross the end of a fragment, and 1,000 of them need {} \
             seeks instead of {}: expect {ratio:.2}x as many requests/s from contiguous files on \
             {device}",
            seeks(&cost.now),
            seeks(&cost.contiguous)
        );
        let mut found = answer(VerdictKind::Repair, reason);
        found.commands = vec![format!("larder frag repair {arguments}")];
        return found;
    }
    let reason = if cost.crossing_requests == 0 {
        format!("no request crosses the end of a fragment: contiguous files gain {}", gain(cost))
    } else {
        // The time of one request more, at the depth of the run.
        let saved = (cost.now.seconds - cost.contiguous.seconds).max(0.0);
        let crossing = cost.crossing_share() * as_f64(cost.sampled_requests);
        let each = larder_schema::as_u64(saved * 1e9 / crossing.max(1.0));
        let each = match each {
            0..1_000 => "less than 1 us".to_owned(),
            each => format::duration(each),
        };
        format!(
            "{share} of the {requests} cross the end of a fragment, which costs {} each on \
             {device}: contiguous files gain {}",
            each,
            gain(cost)
        )
    };
    answer(VerdictKind::NotWorthIt, reason)
}

/// Describes a gain below [`NOISE`].
fn gain(cost: &FragmentationCost) -> String {
    if cost.gain() <= 0.0 { "nothing".to_owned() } else { format::percent(cost.gain()) }
}
