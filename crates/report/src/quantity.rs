//! Values with their units, as pages show them: in a suitable unit, with three significant digits.

use larder_schema::{as_u64, format};

/// Number above which digits before the decimal point are rounded.
const ROUNDED_MIN: f64 = 1000.0;

/// Formats a value of a series: `210 MiB/s`, `91.3 us`, `79,300 cycles/s`, `52.9 %`.
pub(crate) fn quantity(value: f64, unit: &str) -> String {
    scaled(value, unit).unwrap_or_else(|| match unit {
        "" => rounded(value),
        _ => format!("{} {unit}", rounded(value)),
    })
}

/// Returns true if values of a unit are shown in a suitable multiple of it.
pub(crate) fn is_scaled(unit: &str) -> bool {
    scaled(0.0, unit).is_some()
}

/// Formats a value in a suitable multiple of its unit; `None` if the unit has none.
fn scaled(value: f64, unit: &str) -> Option<String> {
    let nanoseconds = |factor: f64| format::duration(as_u64(value * factor));
    Some(match unit {
        "bytes/s" | "B/s" => format::byte_rate(value),
        "bytes" => format::bytes(as_u64(value)),
        "ns" => nanoseconds(1.0),
        "us" => nanoseconds(1e3),
        "ms" => nanoseconds(1e6),
        "s" => nanoseconds(1e9),
        _ => return None,
    })
}

/// Formats a range of values; a common unit is written once: `13,900 to 15,000 reads/s`.
pub(crate) fn quantity_range(low: f64, high: f64, unit: &str) -> String {
    let (low, high) = (quantity(low, unit), quantity(high, unit));
    match (low.split_once(' '), high.split_once(' ')) {
        (Some((number, unit)), Some((_, of_high))) if unit == of_high => {
            format!("{number} to {high}")
        }
        _ => format!("{low} to {high}"),
    }
}

/// Formats a number with three significant digits.
fn rounded(value: f64) -> String {
    if value.abs() < ROUNDED_MIN {
        return format::number(value);
    }
    let step = 10_f64.powf(value.abs().log10().floor() - 2.0);
    format::number((value / step).round() * step)
}

/// Formats a factor of speed in words: `3.10 times as fast`, `1.20 times slower`.
pub(crate) fn speed_words(factor: f64) -> String {
    if factor >= 1.0 {
        format!("{} times as fast", format::number(factor))
    } else {
        format!("{} times slower", format::number(1.0 / factor))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_a_suitable_unit_and_three_digits() {
        for (value, unit, expected) in [
            (219_938_816.0, "bytes/s", "210 MiB/s"),
            (91_256.0, "ns", "91.3 us"),
            (1.5, "s", "1.50 s"),
            (79_332.0, "cycles/s", "79,300 cycles/s"),
            (292_107.4, "", "292,000"),
            (52.94, "%", "52.9 %"),
            (0.0, "reads/s", "0 reads/s"),
        ] {
            assert_eq!(quantity(value, unit), expected);
        }
        assert_eq!(quantity_range(1.0, 2.5, "reads/s"), "1.00 to 2.50 reads/s");
        assert_eq!(quantity_range(900.0, 2500.0, "ns"), "900 ns to 2.50 us");
        assert_eq!(quantity_range(1.0, 2.0, ""), "1.00 to 2.00");
    }

    #[test]
    fn factors_below_one_are_slower() {
        assert_eq!(speed_words(12.0), "12.0 times as fast");
        assert_eq!(speed_words(0.5), "2.00 times slower");
        // Rounded once: 30.05 would be 30.1.
        assert_eq!(speed_words(30.048), "30.0 times as fast");
    }
}
