//! Times of a log: Perfmon writes `MM/DD/YYYY HH:MM:SS.mmm`; spreadsheets change order, separators,
//! the digits of the year, and the clock to 12 hours.
//!
//! Times are seconds since 1970-01-01 on the clock of the log, without time zones.

use larder_schema::format;

/// Order of the fields of a date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Year, month, day.
    Year,
    /// Month, day, year.
    Month,
    /// Day, month, year.
    Day,
}

/// A time whose field order is not determined yet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct UnorderedTime {
    parts: [u32; 3],
    separator: char,
    year_first: bool,
    two_digits: bool,
    /// Seconds of the day.
    seconds: f64,
}

/// First two-digit year that means 19xx: Perfmon dates from 1993.
const FIRST_YEAR_19XX: u32 = 70;

impl UnorderedTime {
    /// Parses a time; returns `None` if the text is not one.
    pub(super) fn parse(text: &str) -> Option<UnorderedTime> {
        let text = text.trim();
        let (date, clock) = text.split_once([' ', 'T'])?;
        let separator = date.chars().find(|c| !c.is_ascii_digit())?;
        if !['/', '.', '-'].contains(&separator) {
            return None;
        }
        let fields: Vec<&str> = date.trim_end_matches('.').split(separator).collect();
        let [a, b, c] = fields.try_into().ok()?;
        let digits = |field: &str| {
            let plain = (1..=4).contains(&field.len()) && field.bytes().all(|b| b.is_ascii_digit());
            plain.then(|| field.parse::<u32>().ok()).flatten()
        };
        let year_first = a.len() == 4;
        let year = if year_first { a } else { c };
        if year.len() != 4 && year.len() != 2 {
            return None;
        }
        Some(UnorderedTime {
            parts: [digits(a)?, digits(b)?, digits(c)?],
            separator,
            year_first,
            two_digits: year.len() == 2,
            seconds: seconds_of_day(clock.trim())?,
        })
    }

    pub(super) fn has_two_digits(&self) -> bool {
        self.two_digits
    }

    /// Returns the seconds since 1970, or `None` if the date does not exist.
    fn at(&self, order: Order) -> Option<f64> {
        let [a, b, c] = self.parts;
        let (year, month, day) = match order {
            Order::Year => (a, b, c),
            Order::Month => (c, a, b),
            Order::Day => (c, b, a),
        };
        let year = match year {
            year if !self.two_digits => year,
            year if year >= FIRST_YEAR_19XX => 1900 + year,
            year => 2000 + year,
        };
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let days = match month {
            1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
            4 | 6 | 9 | 11 => 30,
            2 if leap => 29,
            2 => 28,
            _ => return None,
        };
        let valid = (1..=days).contains(&day) && (1601..=9999).contains(&year);
        valid.then(|| f64::from(days_since_1970(year, month, day)) * 86_400.0 + self.seconds)
    }
}

/// Parses times such as `14:05:09.166`, `2:05:09 PM`, `14:05`.
fn seconds_of_day(clock: &str) -> Option<f64> {
    let upper = clock.to_ascii_uppercase();
    let (digits, meridiem) = match upper.strip_suffix("AM").or_else(|| upper.strip_suffix("PM")) {
        Some(digits) => (digits.trim_end(), upper.chars().rev().nth(1)),
        None => (upper.as_str(), None),
    };
    let mut fields = digits.splitn(3, ':');
    let whole = |field: Option<&str>| {
        field.filter(|field| field.len() <= 2).and_then(|field| field.parse::<u32>().ok())
    };
    let hours = whole(fields.next())?;
    let minutes = whole(fields.next())?;
    let seconds = match fields.next() {
        Some(field) => {
            let plain = field.bytes().all(|b| b.is_ascii_digit() || b == b'.' || b == b',');
            field.replace(',', ".").parse::<f64>().ok().filter(|_| plain)?
        }
        None => 0.0,
    };
    let hours = match meridiem {
        Some(_) if hours == 0 || hours > 12 => return None,
        Some('A') => hours % 12,
        Some(_) => hours % 12 + 12,
        None => hours,
    };
    let valid = hours < 24 && minutes < 60 && seconds < 61.0;
    valid.then(|| f64::from(hours * 60 + minutes) * 60.0 + seconds)
}

/// Returns the days from 1970-01-01 to a valid date; years start in March, so that the leap day is
/// the last one.
fn days_since_1970(year: u32, month: u32, day: u32) -> i32 {
    let is_before_march = month <= 2;
    let year = year - u32::from(is_before_march);
    let of_year = (153 * (if is_before_march { month + 9 } else { month - 3 }) + 2) / 5 + day - 1;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + of_year;
    // 719,468 days lie between March of the year 0 and 1970.
    i32::try_from(days).expect("years have four digits") - 719_468
}

/// Formats seconds since 1970 as `2000-04-15 10:00:05`.
pub(super) fn format_time(seconds: f64) -> String {
    #[expect(clippy::cast_possible_truncation, reason = "four digits of years")]
    let whole = seconds.floor() as i64;
    format::date_and_time(whole, ' ')
}

/// The times of all lines, and notes on ambiguities.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Times {
    /// Seconds since 1970, one per stamp.
    pub(super) seconds: Vec<f64>,
    pub(super) notes: Vec<String>,
}

/// Converts stamps to one clock. An error contains the index of the stamp and the reason.
pub(super) fn resolve(stamps: &[UnorderedTime]) -> Result<Times, (usize, &'static str)> {
    let year_first = stamps.iter().any(|stamp| stamp.year_first);
    let mut candidates = if year_first {
        vec![Order::Year]
    } else if stamps.iter().any(|stamp| stamp.separator == '.') {
        vec![Order::Day, Order::Month]
    } else {
        vec![Order::Month, Order::Day]
    };
    let all = |order: Order| -> Option<Vec<f64>> { stamps.iter().map(|s| s.at(order)).collect() };
    candidates.retain(|&order| all(order).is_some());
    let Some(&first) = candidates.first() else {
        let order = if year_first { Order::Year } else { Order::Month };
        let other = if year_first { Order::Year } else { Order::Day };
        // Finds the first stamp that is valid in no order; without one, the log mixes both orders.
        let none = |s: &UnorderedTime| s.at(order).is_none() && s.at(other).is_none();
        let index = stamps.iter().position(none).unwrap_or_default();
        return Err((index, "there is no such date, or the order of day and month changes"));
    };
    let backward_steps = |order: Order| {
        let times = all(order).unwrap_or_default();
        times.windows(2).filter(|pair| pair[1] < pair[0]).count()
    };
    let chosen = match candidates.get(1) {
        Some(&second) if backward_steps(second) < backward_steps(first) => second,
        _ => first,
    };
    let mut notes = Vec::new();
    if candidates.len() == 2 && backward_steps(Order::Day) == backward_steps(Order::Month) {
        let order = if chosen == Order::Month { "month first" } else { "day first" };
        notes
            .push(format!("the dates do not show whether day or month comes first; taken {order}"));
    }
    if stamps.iter().any(UnorderedTime::has_two_digits) {
        notes.push(format!(
            "years have two digits; from {FIRST_YEAR_19XX} on they are taken as 19xx, else as 20xx"
        ));
    }
    let seconds = all(chosen).unwrap_or_default();
    Ok(Times { seconds, notes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(texts: &[&str]) -> Result<Times, (usize, &'static str)> {
        let stamps: Vec<UnorderedTime> =
            texts.iter().map(|text| UnorderedTime::parse(text).expect("a time")).collect();
        resolve(&stamps)
    }

    #[test]
    fn what_perfmon_writes_and_what_others_make_of_it() {
        let same = [
            "04/15/2000 14:05:09.500",
            "4/15/00 2:05:09.5 PM",
            "15.04.2000 14:05:09,500",
            "15/04/2000 14:05:09.5",
            "2000-04-15 14:05:09.5",
            "2000-04-15T14:05:09.5",
        ];
        for text in same {
            let found = times(&[text]).expect("a date").seconds[0];
            assert!((found - 955_807_509.5).abs() < 1e-6, "{text}: {found}");
            assert_eq!(format_time(found), "2000-04-15 14:05:09");
        }
        for wrong in
            ["", "yesterday", "04/15/2000", "04/15/200 1:00:00", "4.15.2000 24:00", "a/b/c d"]
        {
            assert_eq!(UnorderedTime::parse(wrong), None, "{wrong}");
        }
        assert_eq!(seconds_of_day("12:00:00 AM"), Some(0.0));
        assert_eq!(seconds_of_day("13:00 PM"), None);
    }

    #[test]
    fn two_digits_of_a_year_mean_the_years_of_perfmon() {
        let shown =
            |text| times(&[text]).map(|found| (format_time(found.seconds[0]), found.notes.len()));
        assert_eq!(shown("06/30/99 10:00:00"), Ok(("1999-06-30 10:00:00".to_owned(), 1)));
        assert_eq!(shown("06/30/26 10:00:00"), Ok(("2026-06-30 10:00:00".to_owned(), 1)));
    }

    #[test]
    fn the_order_is_told_by_other_lines_and_by_time_that_goes_forward() {
        let day_first = times(&["03/04/2000 23:59:59", "13/04/2000 00:00:00"]).expect("dates");
        assert_eq!(format_time(day_first.seconds[0]), "2000-04-03 23:59:59");
        // As month first, 2 March would follow 1 April.
        let forward = times(&["31/03/2000 23:59:59", "01/04/2000 00:00:00"]).expect("dates");
        assert_eq!(format_time(forward.seconds[1]), "2000-04-01 00:00:00");
        let forward = times(&["02/03/2000 23:59:59", "03/03/2000 00:00:00"]).expect("dates");
        assert_eq!(format_time(forward.seconds[1]), "2000-03-03 00:00:00");
        assert_eq!(forward.notes.len(), 1, "{:?}", forward.notes);
        assert_eq!(times(&["13/04/2000 1:00:00", "04/13/2000 1:00:00"]).expect_err("mixed").0, 0);
        assert_eq!(times(&["01/01/2000 1:00:00", "30/30/2000 1:00:00"]).expect_err("no date").0, 1);
    }

    #[test]
    fn every_day_comes_back() {
        let mut day = days_since_1970(1993, 1, 1);
        for year in 1993..2033_u32 {
            for (month, days) in (1..).zip([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]) {
                let leap = u32::from(month == 2 && year % 4 == 0);
                for of_month in 1..=days + leap {
                    assert_eq!(days_since_1970(year, month, of_month), day);
                    let shown = format_time(f64::from(day) * 86_400.0);
                    assert_eq!(shown, format!("{year}-{month:02}-{of_month:02} 00:00:00"));
                    day += 1;
                }
            }
        }
    }
}
