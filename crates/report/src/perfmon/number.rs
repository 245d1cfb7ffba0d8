//! Numbers in national formats: a point or a comma as decimal separator, thousands separators,
//! blanks for missing values.
//!
//! Invariant: nothing is guessed. A number with two different readings is an error, unless the
//! caller specifies the separator or another number of the log reveals it.

/// A decimal separator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decimal {
    /// `1.5`, which Perfmon writes in every country.
    Point,
    /// `1,5`, which spreadsheets write in many countries.
    Comma,
}

/// Information from one number about the decimal separator of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Evidence {
    /// The number is valid with this separator only.
    Requires(Decimal),
    /// The number has a comma before three digits: decimals or thousands.
    Ambiguous,
    /// The number is valid with either separator.
    Neutral,
}

/// Parser for the numbers of one log, which all use the same decimal separator.
#[derive(Debug)]
pub(super) struct Numbers {
    /// The decimal separator, once it is known.
    decimal: Option<Decimal>,
    /// The line that reveals it; `None` if the caller specifies it.
    evidence_line: Option<u64>,
    /// Positions of numbers with one comma, read as thousands before the separator was known.
    ambiguous: Vec<(usize, usize)>,
    first_ambiguous: Option<(u64, String)>,
}

impl Numbers {
    /// Creates a parser; `decimal` is the separator, if the caller knows it.
    pub(super) fn new(decimal: Option<Decimal>) -> Self {
        Numbers { decimal, evidence_line: None, ambiguous: Vec::new(), first_ambiguous: None }
    }

    /// Parses the field at this position of a table; returns `None` if it is blank.
    ///
    /// # Errors
    /// A sentence: the field is not a number, or uses another decimal separator than an earlier
    /// one.
    pub(super) fn take(
        &mut self,
        field: &str,
        position: (usize, usize),
        line: u64,
    ) -> Result<Option<f64>, String> {
        if self.decimal.is_none() || self.evidence_line.is_some() {
            match (evidence(field.trim()), self.decimal) {
                (Evidence::Requires(decimal), Some(known)) if decimal != known => {
                    let first = self.evidence_line.unwrap_or(0);
                    return Err(format!(
                        "{field:?} uses another decimal separator than line {first}"
                    ));
                }
                (Evidence::Requires(decimal), None) => {
                    (self.decimal, self.evidence_line) = (Some(decimal), Some(line));
                }
                (Evidence::Ambiguous, None) => {
                    self.ambiguous.push(position);
                    self.first_ambiguous.get_or_insert_with(|| (line, field.to_owned()));
                }
                _ => {}
            }
        }
        let decimal = self.decimal.unwrap_or(Decimal::Point);
        parse(field, decimal).map_err(|()| format!("{field:?} is not a number"))
    }

    /// Returns the positions of numbers that are thousandths of the value that [`Numbers::take`]
    /// returned.
    ///
    /// # Errors
    /// A line with an ambiguous number, in a log that does not show the decimal separator.
    pub(super) fn finish(self) -> Result<Vec<(usize, usize)>, (u64, String)> {
        match (self.decimal, self.first_ambiguous) {
            (Some(Decimal::Comma), _) => Ok(self.ambiguous),
            (None, Some((line, field))) => Err((
                line,
                format!(
                    "{field:?} may have decimals or thousands, and nothing else shows which; use \
                     --decimal"
                ),
            )),
            _ => Ok(Vec::new()),
        }
    }
}

/// Determines the decimal separator from one field.
fn evidence(field: &str) -> Evidence {
    let (comma, point) = (field.rfind(','), field.rfind('.'));
    match (comma, point) {
        (None, None) => Evidence::Neutral,
        (Some(comma), Some(point)) if comma > point => Evidence::Requires(Decimal::Comma),
        // Several points can only separate thousands.
        (None, Some(_)) if field.matches('.').count() > 1 => Evidence::Requires(Decimal::Comma),
        (_, Some(_)) => Evidence::Requires(Decimal::Point),
        (Some(_), None) if field.matches(',').count() > 1 => Evidence::Requires(Decimal::Point),
        (Some(comma), None) => {
            let before = field[..comma].trim_start_matches(['-', ' ']);
            let after_comma = &field[comma + 1..];
            let is_group =
                after_comma.len() == 3 && after_comma.bytes().all(|byte| byte.is_ascii_digit());
            let is_group_start = (1..=3).contains(&before.len()) && before != "0";
            if is_group && is_group_start {
                Evidence::Ambiguous
            } else {
                Evidence::Requires(Decimal::Comma)
            }
        }
    }
}

/// Parses a number; returns `Ok(None)` if the field is blank or marks a missing value.
fn parse(field: &str, decimal: Decimal) -> Result<Option<f64>, ()> {
    let field = field.trim();
    // Windows writes invalid numbers as 1.#IND, -1.#QNAN, 1.#INF.
    if field.is_empty() || field.contains('#') {
        return Ok(None);
    }
    let (point, thousands) = match decimal {
        Decimal::Point => ('.', ','),
        Decimal::Comma => (',', '.'),
    };
    let plain: String = field
        .chars()
        .filter(|&c| c != thousands && c != '\'' && c != '\u{2019}' && !c.is_whitespace())
        .map(|c| if c == point { '.' } else { c })
        .collect();
    let digits = plain.bytes().any(|byte| byte.is_ascii_digit());
    let shaped = plain.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
    match plain.parse::<f64>() {
        Ok(value) if digits && shaped => Ok(value.is_finite().then_some(value)),
        _ => Err(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_both_kinds() {
        use Decimal::{Comma, Point};
        let known = [
            ("186.5", Point, 186.5),
            ("1,234,567.5", Point, 1_234_567.5),
            ("1.234.567,5", Comma, 1_234_567.5),
            ("1 234,5", Comma, 1_234.5),
            ("1'234.5", Point, 1_234.5),
            ("1\u{a0}234,5", Comma, 1_234.5),
            ("7.06e-05", Point, 7.06e-5),
            ("7,06E-05", Comma, 7.06e-5),
            (" -1", Point, -1.0),
        ];
        for (field, decimal, value) in known {
            let found = parse(field, decimal).expect("a number").expect("not blank");
            assert!((found - value).abs() < 1e-9, "{field}: {found}");
        }
        for blank in ["", " ", "1.#IND", "-1.#QNAN0", "1e999"] {
            assert_eq!(parse(blank, Point), Ok(None), "{blank:?}");
        }
        for wrong in ["abc", "1.2.3", "-", "nan", "inf", "0x10", "1-2"] {
            assert_eq!(parse(wrong, Point), Err(()), "{wrong}");
        }
    }

    #[test]
    fn a_number_that_shows_how_all_are_written_may_come_late() {
        let read = |fields: &[&str]| -> Result<Vec<f64>, String> {
            let mut numbers = Numbers::new(None);
            let taken = fields.iter().enumerate();
            let taken: Result<Vec<_>, _> =
                taken.map(|(row, field)| numbers.take(field, (0, row), row as u64 + 2)).collect();
            let mut values: Vec<f64> = taken?.into_iter().flatten().collect();
            for (_, row) in
                numbers.finish().map_err(|(line, reason)| format!("{line}: {reason}"))?
            {
                values[row] /= 1000.0;
            }
            Ok(values)
        };
        assert_eq!(read(&["1,234", "7", "0,5", "-2,345"]), Ok(vec![1.234, 7.0, 0.5, -2.345]));
        assert_eq!(read(&["1,234", "7", "0.5", "2,345"]), Ok(vec![1234.0, 7.0, 0.5, 2345.0]));
        let refused =
            |fields: &[&str], reason: &str| assert!(read(fields).unwrap_err().contains(reason));
        refused(&["7", "1,234"], "3: \"1,234\" may have decimals or thousands");
        refused(&["1.5", "1,234", "1,5"], "another decimal separator than line 2");
    }

    #[test]
    fn what_may_be_read_in_two_ways_says_so() {
        use Decimal::{Comma, Point};
        let known = [
            ("12", Evidence::Neutral),
            ("12.5", Evidence::Requires(Point)),
            ("12,5", Evidence::Requires(Comma)),
            ("0,123", Evidence::Requires(Comma)),
            ("1234,567", Evidence::Requires(Comma)),
            ("1,234", Evidence::Ambiguous),
            ("-1,234", Evidence::Ambiguous),
            ("1,234,567", Evidence::Requires(Point)),
            ("1.234.567", Evidence::Requires(Comma)),
            ("1.234,5", Evidence::Requires(Comma)),
            ("1,234.5", Evidence::Requires(Point)),
        ];
        for (field, shown) in known {
            assert_eq!(evidence(field), shown, "{field}");
        }
    }
}
