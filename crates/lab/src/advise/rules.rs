//! The rules of the published RAID guide, about 1999, for the same traffic.

use larder_schema::as_u64;
use larder_schema::format;
use larder_schema::storage_advice::{ArrayRow, LogAdvice, PublishedRule, TrafficSummary, UnitRow};

/// Share of reads from which the guide chooses level 5.
const READS: f64 = 0.8;
/// Share of writes from which it chooses mirrors, a stripe or one disk.
const WRITES: f64 = 0.9;
/// Share of requests in order from which traffic counts as sequential.
const SEQUENTIAL: f64 = 0.5;
/// Allocation units up to this size are small.
const SMALL_BYTES: u64 = 16 << 10;

/// Returns the verdict on the rule about levels, if one applies to the traffic.
#[must_use]
pub fn level_rule(
    summary: &TrafficSummary,
    rows: &[ArrayRow],
    advised: Option<usize>,
) -> Option<PublishedRule> {
    let writes = summary.write_share();
    let (rule, levels): (String, &[&str]) = if 1.0 - writes >= READS {
        (format!("{} reads: RAID 5", format::percent(1.0 - writes)), &["raid5"])
    } else if writes >= WRITES {
        let levels = &["raid1", "raid10", "raid0", "one disk"];
        (format!("{} writes: RAID 1, 0 or one disk", format::percent(writes)), levels)
    } else {
        return None;
    };
    let text = |row: &ArrayRow| {
        format!(
            "{} completes {} requests/s with {:.2} disk operations for each request",
            row.model,
            format::count(as_u64(row.requests_per_s.round())),
            row.operations_per_request
        )
    };
    let advised = &rows[advised?];
    let is_of_rule = |row: &&ArrayRow| row.suffices && levels.contains(&row.level);
    let of_rule = Some(advised).filter(is_of_rule).or_else(|| rows.iter().find(is_of_rule));
    Some(verdict(rule, advised, of_rule, text))
}

/// Returns the verdict on the rule about allocation units.
#[must_use]
pub fn unit_rule(
    summary: &TrafficSummary,
    rows: &[UnitRow],
    advised: usize,
) -> Option<PublishedRule> {
    let is_large = summary.sequential_share >= SEQUENTIAL && summary.write_share() > 1.0 - READS;
    let rule = if is_large {
        "written in order: a large allocation unit"
    } else {
        "at random or read: a small allocation unit"
    };
    let text = |row: &UnitRow| {
        format!(
            "with {} the disks complete {} requests/s, {:.2} parts for each",
            format::bytes(row.unit_bytes),
            format::count(as_u64(row.requests_per_s.round())),
            row.parts_per_request
        )
    };
    let of_rule = rows.iter().filter(|row| (row.unit_bytes > SMALL_BYTES) == is_large);
    let fastest = of_rule.max_by(|a, b| a.requests_per_s.total_cmp(&b.requests_per_s));
    let advised = rows.get(advised)?;
    let follows = (advised.unit_bytes > SMALL_BYTES) == is_large;
    let of_rule = if follows { Some(advised) } else { fastest };
    Some(verdict(rule.to_owned(), advised, of_rule, text))
}

/// Returns the verdict on the rule about logs.
#[must_use]
pub fn log_rule(log: &LogAdvice) -> PublishedRule {
    let rate = |row: &ArrayRow| format::count(as_u64(row.requests_per_s.round()));
    let follows = log.advised_apart().is_some();
    let reason = match &log.apart {
        _ if follows => String::new(),
        Some(apart) => format!(
            "{} requests/s with the log on {} and the rest on {}; {} with all on {}",
            rate(apart),
            log.log_model,
            apart.model,
            rate(&log.together),
            log.together.model
        ),
        None => "the other disks lack space, or survive too few failures".to_owned(),
    };
    PublishedRule { rule: "a log beside random data: disks of its own".to_owned(), follows, reason }
}

/// Compares the advised row with one that the rule chooses; it follows the rule if they are the
/// same. `text` describes a row.
fn verdict<T: PartialEq>(
    rule: String,
    advised: &T,
    of_rule: Option<&T>,
    text: impl Fn(&T) -> String,
) -> PublishedRule {
    let follows = of_rule == Some(advised);
    let reason = match of_rule {
        Some(_) if follows => String::new(),
        Some(of_rule) => format!("{}; {}", text(advised), text(of_rule)),
        None => "its arrays lack space, or survive too few failures".to_owned(),
    };
    PublishedRule { rule, follows, reason }
}
