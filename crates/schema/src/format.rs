//! Formatting of numbers: one format per kind, so that columns are comparable.
//!
//! Invariants: the unit is always included; at most three significant digits, to suggest no more
//! precision than the measurement has; ASCII only. Durations are given in nanoseconds, sizes in
//! bytes (binary units).

use crate::{as_f64, as_u64};

/// Formats a count with thousands separators: `1,234,567`.
#[must_use]
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a count in limited width: `123,456`, `1.23 M`, `45.6 G`.
#[must_use]
pub fn short_count(value: u64) -> String {
    const UNITS: [(u64, char); 4] = [
        (1_000_000, 'M'),
        (1_000_000_000, 'G'),
        (1_000_000_000_000, 'T'),
        (1_000_000_000_000_000, 'P'),
    ];
    if value < 1_000_000 {
        return count(value);
    }
    // Without this limit 999.6 M would become 1000 M.
    let fits = |scale: u64| as_f64(value) / as_f64(scale) < 999.5;
    let (scale, unit) = *UNITS.iter().find(|(scale, _)| fits(*scale)).unwrap_or(&UNITS[3]);
    format!("{} {unit}", three_digits(as_f64(value) / as_f64(scale)))
}

/// Formats bytes in binary units: `512 B`, `4 KiB`, `1.5 GiB`.
#[must_use]
pub fn bytes(value: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut unit = 0;
    let mut scaled = as_f64(value);
    // Without this limit 1,023.5 KiB would become 1,024 KiB.
    while unit + 1 < UNITS.len() && scaled >= if unit == 0 { 1024.0 } else { 1023.5 } {
        scaled /= 1024.0;
        unit += 1;
    }
    // Most sizes are powers of two; `4.00 KiB` says no more than `4 KiB`.
    format!("{} {}", without_zeros(&three_digits(scaled)), UNITS[unit])
}

/// Returns a number without zeros at the end of its fraction.
#[must_use]
pub fn without_zeros(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

/// Formats nanoseconds as `850 ns`, `12.8 ms`, `3.40 s`, `2 min 05 s` or `3 h 02 min`.
#[must_use]
pub fn duration(nanoseconds: u64) -> String {
    const UNITS: [(u64, &str); 4] =
        [(1, "ns"), (1_000, "us"), (1_000_000, "ms"), (1_000_000_000, "s")];
    let seconds =
        (nanoseconds / 1_000_000_000) + u64::from(nanoseconds % 1_000_000_000 >= 500_000_000);
    if seconds >= 3_600 {
        let minutes = (seconds + 30) / 60;
        return format!("{} h {:02} min", minutes / 60, minutes % 60);
    }
    if seconds >= 60 {
        return format!("{} min {:02} s", seconds / 60, seconds % 60);
    }
    if nanoseconds < 1_000 {
        return format!("{nanoseconds} ns");
    }
    // Without this limit 999.6 us would become 1000 us.
    let fits = |scale: u64| as_f64(nanoseconds) / as_f64(scale) < 999.5;
    let (scale, unit) =
        *UNITS[1..].iter().find(|(scale, _)| fits(*scale)).expect("less than a minute");
    format!("{} {unit}", three_digits(as_f64(nanoseconds) / as_f64(scale)))
}

/// Formats a rate of `unit` per second: `78.2 reads/s`, `12,300 pages/s`.
#[must_use]
pub fn rate(per_second: f64, unit: &str) -> String {
    format!("{} {unit}/s", number(per_second))
}

/// Formats bytes per second in binary units: `125 MiB/s`.
#[must_use]
pub fn byte_rate(bytes_per_second: f64) -> String {
    format!("{}/s", bytes(as_u64(bytes_per_second)))
}

/// Formats a count with a regular noun: `1 file`, `1,234 files`.
#[must_use]
pub fn counted(value: u64, one: &str) -> String {
    let plural = if value == 1 { "" } else { "s" };
    format!("{} {one}{plural}", count(value))
}

/// Formats a share as a percentage with one digit: `61.0 %`. A share below 1 never becomes 100.0 %,
/// and a share above 0 never 0.0 %.
#[must_use]
pub fn percent(ratio: f64) -> String {
    let text = format!("{:.1}", ratio * 100.0);
    match text.as_str() {
        "100.0" if ratio < 1.0 => "> 99.9 %".to_owned(),
        "0.0" if ratio > 0.0 => "< 0.1 %".to_owned(),
        "-0.0" => "0.0 %".to_owned(),
        _ => format!("{text} %"),
    }
}

/// Formats a factor: `1.63x`.
#[must_use]
pub fn times(ratio: f64) -> String {
    format!("{}x", number(ratio))
}

/// Formats a number with three significant digits and separators: `0.0123`, `78.2`, `12,346`.
/// Digits before the decimal point are never rounded.
#[must_use]
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    let sign = if value < 0.0 { "-" } else { "" };
    let magnitude = value.abs();
    if magnitude >= 999.5 {
        return format!("{sign}{}", count(as_u64(magnitude)));
    }
    format!("{sign}{}", three_digits(magnitude))
}

/// Formats a number below 1,024 with three significant digits.
fn three_digits(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    if value < 0.000_999_5 {
        return format!("{value:.2e}");
    }
    for (below, digits) in [(0.009_995, 5), (0.099_95, 4), (0.999_5, 3), (9.995, 2), (99.95, 1)] {
        if value < below {
            return format!("{value:.digits$}");
        }
    }
    format!("{value:.0}")
}

/// Formats seconds since 1970 as a date and a time of UTC, with `between` between them:
/// `2000-04-15 10:00:05`. The year starts in March here, so that the leap day is its last day.
#[must_use]
pub fn date_and_time(seconds: i64, between: char) -> String {
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // 719,468 days lie between the 1st of March of the year 0 and 1970; 146,097 make 400 years.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + next_year;
    let (hours, minutes, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}{between}{hours:02}:{minutes:02}:{second:02}")
}

/// Wraps a sentence between words, into lines of at most this many characters.
#[must_use]
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_counts_are_short() {
        let known = [
            (0, "0"),
            (999_999, "999,999"),
            (1_000_000, "1.00 M"),
            (999_499_999, "999 M"),
            (999_600_000, "1.00 G"),
            (45_600_000_000, "45.6 G"),
            (u64::MAX, "18447 P"),
        ];
        for (value, text) in known {
            assert_eq!(short_count(value), text);
        }
    }

    #[test]
    fn counts_have_separators() {
        let texts = [0, 999, 1_000, 1_234_567, u64::MAX].map(count);
        assert_eq!(texts, ["0", "999", "1,000", "1,234,567", "18,446,744,073,709,551,615"]);
    }

    #[test]
    fn one_is_no_plural() {
        let texts = [0, 1, 2_000].map(|value| counted(value, "line"));
        assert_eq!(texts, ["0 lines", "1 line", "2,000 lines"]);
    }

    #[test]
    fn bytes_are_binary_and_short() {
        let values = [0, 512, 1_023, 1_024, 4_096, 1_536, 10_000_000, 1 << 30, (1 << 30) - 1];
        let known =
            ["0 B", "512 B", "1023 B", "1 KiB", "4 KiB", "1.5 KiB", "9.54 MiB", "1 GiB", "1 GiB"];
        assert_eq!(values.map(bytes), known);
        assert_eq!([100 << 20, 1_000 << 20].map(bytes), ["100 MiB", "1000 MiB"]);
        assert_eq!(bytes(u64::MAX), "16 EiB");
        assert_eq!(byte_rate(125.0 * 1024.0 * 1024.0), "125 MiB/s");
    }

    #[test]
    fn durations_change_their_unit() {
        let values = [0, 850, 1_000, 12_800_000, 999_600, 3_400_000_000, 59_400_000_000];
        let known = ["0 ns", "850 ns", "1.00 us", "12.8 ms", "1.00 ms", "3.40 s", "59.4 s"];
        assert_eq!(values.map(duration), known);
        let values = [59_700_000_000, 125_000_000_000, 10_920_000_000_000];
        assert_eq!(values.map(duration), ["1 min 00 s", "2 min 05 s", "3 h 02 min"]);
        assert!(duration(u64::MAX).ends_with("min"));
    }

    #[test]
    fn numbers_have_three_digits_and_keep_the_large_ones_whole() {
        let values = [0.0, 0.012_34, 0.5, 1.0, 78.23, 999.4, 999.6, 12_345.6, -2.5, 1e-7];
        let known =
            ["0", "0.0123", "0.500", "1.00", "78.2", "999", "1,000", "12,346", "-2.50", "1.00e-7"];
        assert_eq!(values.map(number), known);
        assert_eq!(number(f64::NAN), "-");
        assert_eq!(rate(78.23, "reads"), "78.2 reads/s");
        assert_eq!(times(1.634), "1.63x");
    }

    #[test]
    fn per_cents_never_round_to_all_or_nothing() {
        let values = [0.0, 0.61, 0.999_9, 1.0, 0.000_1, -0.000_1];
        assert_eq!(
            values.map(percent),
            ["0.0 %", "61.0 %", "> 99.9 %", "100.0 %", "< 0.1 %", "0.0 %"]
        );
    }
}
