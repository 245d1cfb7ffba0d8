//! Tables of the counters, gauges and latencies of a server.
//!
//! Hit ratios are weighted: hits over references, both summed over the whole interval and all
//! selected volumes, never a mean of ratios.

use crate::escape;
use crate::table::{Cell, Column, Field, Table};
use larder_schema::control::{Budget, BudgetPool, Finding, GiveBack, Stats, VolumeStats};
use larder_schema::{as_f64, as_u64, format};

/// Maximum length of a line of the summary, so that it fits on every terminal.
pub const WATCH_COLUMNS_MAX: usize = 80;
/// Maximum length of a volume name in the summary; longer names are truncated.
const NAME_MAX: usize = 12;

/// Returns the figures as names and values.
fn figures(budget: &Budget) -> Vec<(String, u64)> {
    let mut figures = vec![
        ("sessions".to_owned(), budget.sessions),
        ("sessions_max".to_owned(), budget.sessions_max),
    ];
    for (name, pool) in [("payloads", &budget.payloads), ("frames", &budget.frames)] {
        let BudgetPool { size_bytes, leased_bytes, peak_bytes, refusals } = *pool;
        figures.extend([
            (format!("budget_{name}_size_bytes"), size_bytes),
            (format!("budget_{name}_leased_bytes"), leased_bytes),
            (format!("budget_{name}_peak_bytes"), peak_bytes),
            (format!("budget_{name}_refusals"), refusals),
        ]);
    }
    figures
}

/// Returns the field of a counter: its total, or its rate per second in an interval.
fn counter(key: &'static str, title: &str, seconds: Option<f64>) -> Field<VolumeStats> {
    let column = match seconds {
        Some(_) => Column::numbers(format!("{key}_per_s"), format!("{title}/s")),
        None => Column::numbers(key, title),
    };
    Field::of(column, move |volume: &VolumeStats| {
        let total = volume.counter(key);
        let value = seconds.map_or(total, |seconds| as_u64(as_f64(total) / seconds));
        if key.ends_with("_bytes") {
            Cell::bytes(value)
        } else {
            Cell::shown(value, format::short_count(value))
        }
    })
}

/// Returns one line on the server and its pool.
#[must_use]
pub fn heading(stats: &Stats) -> String {
    let pool = |name: &str| stats.pool.get(name).copied().unwrap_or(0);
    let (memory, free) = (pool("memory_bytes"), pool("free_bytes"));
    let stopping = if stats.stopping { "; stopping" } else { "" };
    let target = stats.pool.get("memory_target_bytes").copied().unwrap_or(memory);
    let resizing = if target == memory {
        String::new()
    } else {
        format!("; on the way to {}", format::bytes(target))
    };
    let warming = |volume: &VolumeStats| volume.gauges.get("warming_bytes").copied();
    let warming = match stats.volumes.iter().filter_map(warming).sum() {
        0 => String::new(),
        left => format!("; warming, {} to read back", format::bytes(left)),
    };
    let is_short = |it: &&GiveBack| it.kept_bytes < it.full_bytes;
    let short = stats.give_back.as_ref().filter(is_short).map_or_else(String::new, |give_back| {
        let (kept, full) =
            (format::bytes(give_back.kept_bytes), format::bytes(give_back.full_bytes));
        format!("; keeping {kept} of {full}, since the system is short of memory")
    });
    let refusals =
        |budget: &Budget| budget.payloads.refusals.saturating_add(budget.frames.refusals);
    let refused = match stats.budget.as_ref().map_or(0, refusals) {
        0 => String::new(),
        count => format!("; request memory exhausted {}", format::counted(count, "time")),
    };
    format!(
        "up {}; {} of {} in use{resizing}{warming}{short}{refused}{stopping}",
        format::duration(stats.uptime_ns),
        format::bytes(memory.saturating_sub(free)),
        format::bytes(memory),
    )
}

/// Returns the volumes, and the total if there are several.
fn rows(stats: &Stats) -> Vec<VolumeStats> {
    let mut rows = stats.volumes.clone();
    if rows.len() > 1 {
        let mut all = VolumeStats { name: "all".to_owned(), ..VolumeStats::default() };
        for volume in &stats.volumes {
            all.add(volume);
        }
        rows.push(all);
    }
    rows
}

/// Returns the client requests and cache contents: totals, or rates over `seconds`.
#[must_use]
pub fn requests_table(stats: &Stats, seconds: Option<f64>) -> Table {
    let fields = [
        Field::text("volume", "volume", short_name),
        counter("read_requests", "reads", seconds),
        counter("read_bytes", "read", seconds),
        Field::percent("read_hit_ratio", "hits", |it| it.read_hit_ratio),
        counter("write_requests", "writes", seconds),
        counter("write_bytes", "written", seconds),
        Field::bytes("dirty_bytes", "dirty", |it| {
            it.gauge("dirty_bytes") + it.gauge("writing_bytes")
        }),
        Field::bytes("resident_bytes", "cached", |it| it.gauge("resident_bytes")),
    ];
    Table::of("", &rows(stats), fields)
}

/// Returns a line for each failed component of the server and each finding of a volume.
#[must_use]
pub fn failures_and_findings(stats: &Stats) -> String {
    let lines = |volume: &VolumeStats| -> String {
        let line = |finding: &Finding| ["\n", &finding.line(&volume.name), "\n"].concat();
        volume.findings.iter().map(line).collect()
    };
    let failed = |part: &String| format!("\n{}\n", escape::line(part));
    let failed = stats.failed_parts.iter().map(failed);
    failed.chain(stats.volumes.iter().map(lines)).collect()
}

/// Returns the requests to the stores: totals, or rates over `seconds`.
#[must_use]
pub fn stores_table(stats: &Stats, seconds: Option<f64>) -> Table {
    let fields = [
        Field::text("volume", "store of", short_name),
        counter("store_reads", "reads", seconds),
        counter("store_read_bytes", "read", seconds),
        Field::duration("store_read_service_mean_ns", "mean", |it| {
            it.mean("store_read_service_ns")
        }),
        counter("store_writes", "writes", seconds),
        counter("store_write_bytes", "written", seconds),
        Field::duration("store_write_service_mean_ns", "mean", |it| {
            it.mean("store_write_service_ns")
        }),
        counter("store_flushes", "flushes", seconds),
    ];
    Table::of("", &rows(stats), fields)
}

/// Returns all values: one row per counter, gauge and latency of each volume.
#[must_use]
pub fn everything_table(stats: &Stats) -> Table {
    let columns = [
        Column::words("volume", "volume"),
        Column::words("name", "name"),
        Column::numbers("value", "value"),
    ];
    let mut table = Table::new("", columns);
    let mut push = |volume: &str, name: String, value: Cell| {
        table.push([Cell::word(volume), Cell::word(name), value]);
    };
    for (gauge, &value) in &stats.pool {
        push("", gauge.clone(), with_unit(gauge, value));
    }
    for (figure, value) in stats.budget.iter().flat_map(figures) {
        let cell = with_unit(&figure, value);
        push("", figure, cell);
    }
    for volume in &stats.volumes {
        for (counter, &value) in volume.counters.iter().chain(&volume.gauges) {
            push(&volume.name, counter.clone(), with_unit(counter, value));
        }
        push(&volume.name, "read_hit_ratio".into(), Cell::percent(volume.read_hit_ratio));
        for (latency, stats) in &volume.latencies {
            push(&volume.name, format!("{latency}_count"), Cell::count(stats.count));
            push(&volume.name, format!("{latency}_mean"), Cell::duration(volume.mean(latency)));
            push(&volume.name, format!("{latency}_p50"), Cell::duration(stats.p50));
            push(&volume.name, format!("{latency}_p99"), Cell::duration(stats.p99));
            push(&volume.name, format!("{latency}_max"), Cell::duration(stats.max));
        }
    }
    table
}

/// Formats a value in the unit that its name ends in.
fn with_unit(name: &str, value: u64) -> Cell {
    if name.ends_with("_bytes") {
        Cell::bytes(value)
    } else if name.ends_with("_ns") {
        Cell::duration(value)
    } else {
        Cell::count(value)
    }
}

fn short_name(volume: &VolumeStats) -> String {
    if volume.name.chars().count() <= NAME_MAX {
        return volume.name.clone();
    }
    let cut: String = volume.name.chars().take(NAME_MAX - 2).collect();
    format!("{cut}..")
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_schema::control::{LatencyStats, ResponseHead};

    fn volume(name: &str, factor: u64) -> VolumeStats {
        let numbers = |names: &[(&str, u64)]| {
            names.iter().map(|&(name, value)| (name.to_owned(), value * factor)).collect()
        };
        let latency =
            LatencyStats { count: 10 * factor, sum: 1_000_000 * factor, ..LatencyStats::default() };
        let mut volume = VolumeStats {
            name: name.to_owned(),
            read_pages: 100 * factor,
            read_hits: 90 * factor,
            counters: numbers(&[("read_requests", 60), ("read_bytes", 400 << 10)]),
            gauges: numbers(&[("dirty_bytes", 4096), ("writing_bytes", 4096)]),
            latencies: [("store_read_service_ns".to_owned(), latency)].into(),
            ..VolumeStats::default()
        };
        volume.read_hit_ratio = Some(0.9);
        volume
    }

    fn stats(seconds: u64, volumes: Vec<VolumeStats>) -> Stats {
        Stats {
            head: ResponseHead::default(),
            uptime_ns: seconds * 1_000_000_000,
            stopping: false,
            budget: None,
            give_back: None,
            failed_parts: Vec::new(),
            pool: [("memory_bytes".to_owned(), 64 << 20), ("free_bytes".to_owned(), 4 << 20)]
                .into(),
            volumes,
        }
    }

    #[test]
    fn rates_are_of_the_interval_and_ratios_are_weighted() {
        let before = stats(10, vec![volume("a", 1)]);
        let mut b = volume("a volume with a long name", 2);
        b.read_hits = 0;
        b.read_hit_ratio = Some(0.0);
        let now = stats(12, vec![volume("a", 3), b]);
        let (difference, seconds) = now.since(&before);
        assert!((seconds - 2.0).abs() < 1e-9);
        let known = "\
volume        reads/s   read/s    hits  writes/s  written/s   dirty  cached
---------------------------------------------------------------------------
a                  60  400 KiB  90.0 %         0        0 B  24 KiB     0 B
a volume w..       60  400 KiB   0.0 %         0        0 B  16 KiB     0 B
all               120  800 KiB  45.0 %         0        0 B  40 KiB     0 B
";
        assert_eq!(requests_table(&difference, Some(seconds)).to_text(), known);
        let rows = requests_table(&difference, Some(seconds)).to_json();
        assert_eq!(rows["rows"][2]["read_requests_per_s"], 120);
        assert!((rows["rows"][2]["read_hit_ratio"].as_f64().unwrap() - 0.45).abs() < 1e-9);
        let stores = stores_table(&now, None).to_json();
        assert_eq!(stores["rows"][0]["store_read_service_mean_ns"], 100_000);
        assert_eq!(heading(&now), "up 12.0 s; 60 MiB of 64 MiB in use");
        let mut growing = now.clone();
        growing.pool.insert("memory_target_bytes".into(), 96 << 20);
        assert!(heading(&growing).ends_with("in use; on the way to 96 MiB"));
        let given = GiveBack { full_bytes: 96 << 20, kept_bytes: 64 << 20, ..GiveBack::default() };
        let short = Stats { give_back: Some(given), ..now.clone() };
        let known = "; keeping 64 MiB of 96 MiB, since the system is short of memory";
        assert!(heading(&short).ends_with(known), "{}", heading(&short));
    }

    #[test]
    fn the_budget_of_requests_is_listed_and_refusals_are_in_the_heading() {
        let payloads =
            BudgetPool { size_bytes: 4 << 20, peak_bytes: 1 << 20, ..Default::default() };
        let mut budget = Budget { sessions: 2, sessions_max: 64, payloads, ..Budget::default() };
        let now = Stats { budget: Some(budget.clone()), ..stats(12, vec![volume("a", 1)]) };
        assert_eq!(heading(&now), "up 12.0 s; 60 MiB of 64 MiB in use");
        let listed = everything_table(&now).to_json();
        let value = |name: &str| {
            let rows = listed["rows"].as_array().unwrap();
            let found: Vec<_> = rows.iter().filter(|row| row["name"] == name).collect();
            assert_eq!(found.len(), 1, "{name}");
            assert_eq!(found[0]["volume"], "");
            found[0]["value"].as_u64().unwrap()
        };
        assert_eq!((value("sessions"), value("sessions_max")), (2, 64));
        assert_eq!(value("budget_payloads_size_bytes"), 4 << 20);
        assert_eq!(value("budget_payloads_peak_bytes"), 1 << 20);
        assert_eq!(value("budget_frames_leased_bytes"), 0);
        assert_eq!(value("budget_frames_refusals"), 0);
        (budget.payloads.refusals, budget.frames.refusals) = (2, 1);
        let refused = Stats { budget: Some(budget), ..now };
        assert!(heading(&refused).ends_with("in use; request memory exhausted 3 times"));
    }

    #[test]
    fn a_volume_that_came_again_begins_anew() {
        let before = stats(1, vec![volume("a", 5)]);
        let (difference, _) = stats(2, vec![volume("a", 1)]).since(&before);
        assert_eq!(difference.volumes[0].counter("read_requests"), 0);
        assert_eq!(difference.volumes[0].read_hit_ratio, None);
    }

    #[test]
    fn no_line_is_wider_than_a_terminal() {
        let mut wide = volume("abcdefghijklmnop", 1);
        for name in ["read_requests", "write_requests", "store_reads", "store_writes"] {
            wide.counters.insert(name.to_owned(), 987_654_321_987);
        }
        for name in ["read_bytes", "write_bytes", "store_read_bytes", "store_write_bytes"] {
            wide.counters.insert(name.to_owned(), 1_019 << 30);
        }
        wide.gauges.insert("resident_bytes".to_owned(), 1_019 << 20);
        wide.gauges.insert("dirty_bytes".to_owned(), 1_019 << 20);
        let stats = stats(9, vec![wide]);
        for table in [
            requests_table(&stats, Some(1.0)),
            stores_table(&stats, Some(1.0)),
            requests_table(&stats, None),
        ] {
            for line in table.to_text().lines() {
                assert!(line.chars().count() <= WATCH_COLUMNS_MAX, "{line}");
            }
        }
    }

    #[test]
    fn what_a_newer_server_adds_is_passed_over() {
        let mut json = serde_json::to_value(stats(1, vec![volume("a", 1)])).unwrap();
        json["more"] = 1.into();
        json["volumes"][0]["counters"]["more_pages"] = 2.into();
        let read: Stats = serde_json::from_value(json).unwrap();
        assert_eq!(read.volumes[0].counter("more_pages"), 2);
        assert_eq!((read.head.schema.as_str(), read.head.version), ("larder-control", 1));
    }
}
