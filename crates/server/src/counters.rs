//! The tables of counters and latencies, with the definitions of the catalogue. Zero counters and
//! latencies without measurements are left out; gauges are always shown.

use larder_core::counters::Unit;
use larder_core::counters::{
    COUNTERS, Counter, GAUGES, Gauge, HISTOGRAMS, Latency, MetricDefinition, Totals,
};
use larder_io::engine::{ArenaCache, ArenaVolume};
use larder_report::table::{Cell, Column, Table};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Returns a value of the catalogue as a cell, in its unit.
#[must_use]
pub fn value(definition: &MetricDefinition, value: u64) -> Cell {
    match definition.unit {
        Unit::Bytes => Cell::bytes(value),
        Unit::Nanoseconds => Cell::duration(value),
        Unit::Operations | Unit::Pages | Unit::Blocks => Cell::count(value),
    }
}

/// Returns the unit of a count; sizes and durations carry their unit in the value.
fn unit(definition: &MetricDefinition) -> Cell {
    Cell::word(match definition.unit {
        Unit::Bytes | Unit::Nanoseconds => "",
        unit => unit.name(),
    })
}

/// Returns counters and gauges of one volume.
pub(crate) fn counters(cache: &ArenaCache, volume: &ArenaVolume) -> Table {
    let totals = volume.totals();
    let columns = [
        Column::words("name", "counter"),
        Column::numbers("value", "value"),
        Column::words("unit", "unit"),
    ];
    let mut table = Table::new(format!("volume {}", volume.name()), columns);
    for (counter, definition) in Counter::ALL.into_iter().zip(&COUNTERS) {
        let count = totals.get(counter);
        if count > 0 {
            table.push([Cell::word(definition.name), value(definition, count), unit(definition)]);
        }
    }
    if let Some(ratio) = totals.read_hit_ratio() {
        table.push([Cell::word("read_hit_ratio"), Cell::percent(ratio), Cell::word("of pages")]);
    }
    for (gauge, definition) in Gauge::ALL.into_iter().zip(&GAUGES) {
        table.push([
            Cell::word(definition.name),
            value(definition, cache.gauge(volume, gauge)),
            unit(definition),
        ]);
    }
    table
}

/// Returns counters and gauges of all volumes as one JSON object, with exact values;
/// docs/FORMATS.md.
pub(crate) fn json(cache: &ArenaCache, volumes: &[Arc<ArenaVolume>]) -> Value {
    let of = |volume: &Arc<ArenaVolume>| {
        let totals = volume.totals();
        let counter = |counter: Counter| (counter.meaning().name.to_owned(), totals.get(counter));
        let gauge = |gauge: Gauge| (gauge.meaning().name.to_owned(), cache.gauge(volume, gauge));
        let latency = |latency: Latency| {
            let histogram = totals.latency(latency);
            let value = json!({
                "count": histogram.count(),
                "mean": histogram.mean(),
                "p50": histogram.quantile(0.5),
                "p99": histogram.quantile(0.99),
                "max": histogram.max(),
            });
            (latency.meaning().name.to_owned(), value)
        };
        json!({
            "name": volume.name(),
            "counters": Counter::ALL.into_iter().map(counter).collect::<BTreeMap<_, _>>(),
            "gauges": Gauge::ALL.into_iter().map(gauge).collect::<BTreeMap<_, _>>(),
            "latencies": Latency::ALL.into_iter().map(latency).collect::<BTreeMap<_, _>>(),
        })
    };
    let volumes: Vec<Value> = volumes.iter().map(of).collect();
    json!({ "schema": "larder-counters", "version": 1, "volumes": volumes })
}

pub(crate) fn latencies(volume: &ArenaVolume, totals: &Totals) -> Option<Table> {
    let columns = [
        Column::words("name", "latency"),
        Column::numbers("count", "count"),
        Column::numbers("mean", "mean"),
        Column::numbers("p50", "median"),
        Column::numbers("p99", "99 %"),
        Column::numbers("max", "max"),
    ];
    let mut table = Table::new(format!("latencies of {}", volume.name()), columns);
    for (latency, definition) in Latency::ALL.into_iter().zip(&HISTOGRAMS) {
        let histogram = totals.latency(latency);
        let Some(mean) = histogram.mean() else { continue };
        let at = |q| Cell::duration(histogram.quantile(q));
        table.push([
            Cell::word(definition.name),
            Cell::count(histogram.count()),
            Cell::duration(mean),
            at(0.5),
            at(0.99),
            Cell::duration(histogram.max()),
        ]);
    }
    (!table.is_empty()).then_some(table)
}
