//! Settings and series of runs in words: in a record the unit of a value is part of its name, as in
//! `compute_ns`; for readers it follows the value.

use crate::quantity::quantity;
use larder_schema::run::trial::SettingChange;
use larder_schema::{as_u64, format};
use serde_json::Value;

/// Settings that are a normal distribution: mean and standard deviation.
const DISTRIBUTIONS: [&str; 4] = ["compute_ns", "cycle_records", "seek_records", "think_ns"];

/// Names that need other words than those of the record.
const NAMES: [(&str, &str); 14] = [
    ("compute_ns", "computing time per cycle"),
    ("cycle_records", "records per cycle"),
    ("file_bytes", "file size"),
    ("item_bytes", "item size"),
    ("measure_ns", "measured time"),
    ("read_bytes", "read size"),
    ("record_bytes", "record size"),
    ("seek_records", "seek distance"),
    ("size_high_bytes", "largest size"),
    ("size_low_bytes", "smallest size"),
    ("think_ns", "think time"),
    ("trial_ns", "length of a trial"),
    ("warm_up_ns", "warm-up time"),
    ("write_bytes", "write size"),
];

/// Ends of names that are units.
const UNITS: [(&str, &str); 3] = [("_bytes", "bytes"), ("_ns", "ns"), ("_records", "records")];

/// Returns the unit of a setting, and its name without it; `None` if the name has none. Settings of
/// the system, such as `vm.dirty_bytes`, keep the names and values that the system has for them.
fn unit(name: &str) -> Option<(&str, &'static str)> {
    if name.contains('.') && !name.starts_with("machine.") {
        return None;
    }
    UNITS.iter().find_map(|(end, unit)| Some((name.strip_suffix(end)?, *unit)))
}

/// Returns the name of a setting for readers.
pub(crate) fn name_in_words(name: &str) -> String {
    if let Some((_, words)) = NAMES.iter().find(|(known, _)| *known == name) {
        return (*words).to_owned();
    }
    match unit(name) {
        Some((name, _)) => name.replace('_', " "),
        None if name.contains('.') => name.to_owned(),
        None => name.replace('_', " "),
    }
}

/// Returns the value of a setting for readers, from its text in the record.
pub(crate) fn value_in_words(name: &str, value: &str) -> String {
    let Some((_, unit)) = unit(name) else { return value.to_owned() };
    let Ok(parsed) = serde_json::from_str::<Value>(value) else { return value.to_owned() };
    if DISTRIBUTIONS.contains(&name)
        && let Some([mean, deviation]) = numbers(&parsed).as_deref()
    {
        let mean = with_unit(*mean, unit);
        return if *deviation > 0.0 {
            format!("{mean} (standard deviation {})", with_unit(*deviation, unit))
        } else {
            mean
        };
    }
    match (parsed.as_f64(), numbers(&parsed)) {
        (Some(number), _) => with_unit(number, unit),
        (None, Some(numbers)) => {
            let all: Vec<String> = numbers.iter().map(|it| with_unit(*it, unit)).collect();
            all.join(", ")
        }
        (None, None) => value.to_owned(),
    }
}

/// Returns the name of a changed setting, and both values; the name and values of the record if the
/// values differ in digits that [`value_in_words`] does not show.
pub(crate) fn change_in_words(change: &SettingChange) -> [String; 3] {
    let SettingChange { name, before, after } = change;
    let shown = |words: fn(&str, &str) -> String| {
        [before, after].map(|value| {
            value.as_deref().map_or_else(|| "-".to_owned(), |value| words(name, value))
        })
    };
    let [a, b] = shown(value_in_words);
    if a != b {
        return [name_in_words(name), a, b];
    }
    let [a, b] = shown(|_, value| value.to_owned());
    [name.clone(), a, b]
}

/// Returns the name of a series for readers, from that of the record: `throughput, read 4 KiB` for
/// `throughput at read_bytes 4096`.
#[must_use]
pub fn series_in_words(series: &str) -> String {
    let coordinate = |text: &str| {
        let (name, value) = text.rsplit_once(' ')?;
        Some(coordinate(name, value.parse().ok()?))
    };
    let words = series.rsplit_once(" at ").and_then(|(group, coordinates)| {
        let all: Option<Vec<String>> = coordinates.split(", ").map(coordinate).collect();
        Some(format!("{group}, {}", all?.join(", ")))
    });
    words.unwrap_or_else(|| series.to_owned())
}

/// Formats a coordinate of a series: `record 4 KiB`, `clients 16`.
pub(crate) fn coordinate(name: &str, value: f64) -> String {
    match name.strip_suffix("_bytes") {
        Some(name) => format!("{} {}", name.replace('_', " "), quantity(value, "bytes")),
        None => format!("{} {}", name.replace('_', " "), plain_number(value)),
    }
}

/// Formats a number of clients, or another coordinate, without a fraction if it is whole.
pub(crate) fn plain_number(value: f64) -> String {
    if value.fract() == 0.0 { format::count(as_u64(value)) } else { format::number(value) }
}

/// Returns the numbers of a list; `None` for other values.
fn numbers(value: &Value) -> Option<Vec<f64>> {
    value.as_array()?.iter().map(Value::as_f64).collect()
}

/// Formats a number with its unit; `records` has no other, and counts.
fn with_unit(number: f64, unit: &str) -> String {
    if unit == "records" && number >= 0.0 && number.fract() == 0.0 {
        return format::counted(as_u64(number), "record");
    }
    quantity(number, unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_words_and_units() {
        for (name, value, expected) in [
            ("compute_ns", "[1000000.0,0.0]", "computing time per cycle: 1.00 ms"),
            (
                "seek_records",
                "[512.0,170.666]",
                "seek distance: 512 records (standard deviation 171 records)",
            ),
            ("cycle_records", "[1.0,0.0]", "records per cycle: 1 record"),
            ("file_bytes", "4194304", "file size: 4 MiB"),
            ("read_bytes", "[4096,65536]", "read size: 4 KiB, 64 KiB"),
            ("size_bytes", "500", "size: 500 B"),
            ("machine.memory_bytes", "1073741824", "machine.memory: 1 GiB"),
            ("in_flight", "1", "in flight: 1"),
            ("file_bytes", "{\"a\":[1]}", "file size: {\"a\":[1]}"),
            ("vm.dirty_bytes", "0", "vm.dirty_bytes: 0"),
            ("disk.read_ahead_kib", "8192", "disk.read_ahead_kib: 8192"),
        ] {
            let words = format!("{}: {}", name_in_words(name), value_in_words(name, value));
            assert_eq!(words, expected);
        }
    }

    #[test]
    fn a_change_that_words_do_not_show_is_shown_as_recorded() {
        let change = |before: &str, after: &str| {
            let (name, after) = ("machine.memory_bytes".to_owned(), Some(after.to_owned()));
            change_in_words(&SettingChange { name, before: Some(before.to_owned()), after })
        };
        assert_eq!(change("1073741824", "2147483648"), ["machine.memory", "1 GiB", "2 GiB"]);
        assert_eq!(
            change("1073741824", "1073741825"),
            ["machine.memory_bytes", "1073741824", "1073741825"]
        );
    }

    #[test]
    fn names_of_series_have_words_and_units() {
        for (series, words) in [
            ("write at file_bytes 65536, record_bytes 4096", "write, file 64 KiB, record 4 KiB"),
            ("throughput at clients 4", "throughput, clients 4"),
            ("cycles", "cycles"),
            ("looks at things", "looks at things"),
        ] {
            assert_eq!(series_in_words(series), words);
        }
    }
}
