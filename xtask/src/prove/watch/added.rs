//! What a read costs more by something, measured in pairs; and the record of them.

use std::fmt;

use serde_json::{Value, json};

/// Nanoseconds of a read without it and with it.
#[derive(Debug, Default)]
pub(super) struct Added {
    pairs: Vec<(f64, f64)>,
}

impl Added {
    pub(super) fn put(&mut self, off: f64, on: f64) {
        self.pairs.push((off, on));
    }

    pub(super) fn pairs(&self) -> usize {
        self.pairs.len()
    }

    fn sorted(&self, part: fn(&(f64, f64)) -> f64) -> Vec<f64> {
        let mut all: Vec<f64> = self.pairs.iter().map(part).collect();
        all.sort_by(f64::total_cmp);
        all
    }

    fn median(&self, part: fn(&(f64, f64)) -> f64) -> f64 {
        self.sorted(part).get(self.pairs.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// The share, by the median.
    pub(super) fn ratio(&self) -> f64 {
        self.median(share)
    }

    /// Between what the median lies, at 95 %: a root of the number of pairs away from the middle
    /// one, whatever their spread (the binomial law, by its normal approximation).
    pub(super) fn bounds(&self) -> [f64; 2] {
        let all = self.sorted(share);
        let (middle, away) = (all.len() / 2, all.len().isqrt());
        [middle.saturating_sub(away), middle + away]
            .map(|place| all.get(place).or(all.last()).copied().unwrap_or(f64::NAN))
    }

    /// Both series of a record.
    pub(super) fn series(&self, what: &str) -> [Value; 2] {
        let series = |side: &str, part: fn(&(f64, f64)) -> f64| {
            let values: Vec<f64> = self.pairs.iter().map(|pair| part(pair).round()).collect();
            json!({ "series": name(side, what), "unit": "ns", "values": values })
        };
        [series("without", |pair| pair.0), series("with", |pair| pair.1)]
    }

    /// How much of its speed a read keeps: above what is `required` it holds.
    pub(super) fn comparison(&self, what: &str, slower_max: f64) -> Value {
        let kept = |share: f64| (1000.0 / (1.0 + share)).round() / 1000.0;
        let all = self.sorted(share);
        let [least, most] = [all.first(), all.last()].map(|it| it.copied().unwrap_or(f64::NAN));
        json!({
            "what": what,
            "ours": name("with", what),
            "theirs": name("without", what),
            "ratio_median": kept(self.ratio()),
            "ratio_min": kept(most),
            "ratio_max": kept(least),
            "required": kept(slower_max),
            "holds": self.ratio() <= slower_max,
        })
    }
}

fn share((off, on): &(f64, f64)) -> f64 {
    on / off - 1.0
}

fn name(side: &str, what: &str) -> String {
    format!("{side}: {what}")
}

impl fmt::Display for Added {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [low, high] = self.bounds().map(|bound| 100.0 * bound);
        let ns = self.median(|(off, on)| on - off);
        write!(out, "{:+.1} % ({low:+.1} to {high:+.1}; {ns:+.0} ns)", 100.0 * self.ratio())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_pairs_is_told_with_between_what_it_lies() {
        let mut added = Added::default();
        for on in [1010.0, 1050.0, 1500.0, 1030.0] {
            added.put(1000.0, on);
        }
        added.put(2000.0, 2080.0);
        assert_eq!(added.to_string(), "+4.0 % (+1.0 to +50.0; +50 ns)");
        let found = added.comparison("a read", 0.12);
        assert_eq!((&found["ratio_median"], &found["required"]), (&json!(0.962), &json!(0.893)));
        assert_eq!((&found["ratio_min"], &found["ratio_max"]), (&json!(0.667), &json!(0.99)));
        assert_eq!(found["holds"], true);
        let [without, with] = added.series("a read");
        assert_eq!(without["values"], json!([1000.0, 1000.0, 1000.0, 1000.0, 2000.0]));
        assert_eq!((&with["series"], &with["unit"]), (&json!("with: a read"), &json!("ns")));
    }
}
