//! Writer for the text format of OpenMetrics 1.0.
//!
//! Invariants: families are contiguous, with their metadata before their first sample; a counter's
//! samples end in `_total`; a histogram's buckets are cumulative, end in `+Inf`, and agree with its
//! count; the text ends in `# EOF`. Whole numbers are written without a fraction.

use crate::escape::label;
use std::fmt::Write as _;

/// Media type of the text.
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Names and values of labels.
pub type Labels<'a> = [(&'a str, &'a str)];

/// The type of a metric family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A value that only grows.
    Counter,
    /// A current value.
    Gauge,
    /// Cumulative counts by upper bound.
    Histogram,
    /// Texts as labels.
    Info,
}

impl Kind {
    fn type_name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Info => "info",
        }
    }
}

/// A text under construction.
#[derive(Debug, Default)]
pub struct Exposition {
    text: String,
    names: Vec<String>,
    /// Type of the current family.
    kind: Option<Kind>,
}

/// A histogram of whole numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buckets {
    /// Upper bounds, ascending, with the number of values up to each bound.
    pub up_to: Vec<(u64, u64)>,
    /// Number of all values.
    pub count: u64,
    /// Sum of all values.
    pub sum: u64,
}

impl Exposition {
    /// Creates an empty text.
    #[must_use]
    pub fn new() -> Self {
        Exposition::default()
    }

    /// Starts a family. The name must end in `unit`, if there is one.
    ///
    /// # Panics
    /// If the name is not valid in OpenMetrics, was used before, has a reserved suffix, or does not
    /// end in its unit.
    pub fn family(&mut self, name: &str, kind: Kind, unit: Option<&str>, help: &str) {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        assert!(
            name.chars().all(is_name) && name.starts_with(|c: char| !c.is_ascii_digit()),
            "{name:?} cannot be the name of a metric"
        );
        for reserved in ["_total", "_created", "_count", "_sum", "_bucket", "_info"] {
            assert!(!name.ends_with(reserved), "{name} ends in {reserved}");
        }
        assert!(!self.names.iter().any(|used| used == name), "{name} was there already");
        self.names.push(name.to_owned());
        self.kind = Some(kind);
        self.line(format_args!("# TYPE {name} {}", kind.type_name()));
        if let Some(unit) = unit {
            assert!(name.strip_suffix(unit).is_some_and(|rest| rest.ends_with('_')), "{name}");
            self.line(format_args!("# UNIT {name} {unit}"));
        }
        self.line(format_args!("# HELP {name} {}", label(help)));
    }

    /// Writes a sample of the current family, which is a counter, a gauge or an info (with value
    /// 1).
    ///
    /// # Panics
    /// If there is no family, or it is a histogram.
    pub fn sample(&mut self, labels: &Labels<'_>, value: u64) {
        let suffix = match self.kind {
            Some(Kind::Counter) => "_total",
            Some(Kind::Gauge) => "",
            Some(Kind::Info) => "_info",
            other => panic!("a plain sample of {other:?}"),
        };
        self.write(suffix, labels, None, &value.to_string());
    }

    /// Writes a gauge with a fraction.
    ///
    /// # Panics
    /// If the current family is not a gauge.
    pub fn fraction(&mut self, labels: &Labels<'_>, value: f64) {
        assert_eq!(self.kind, Some(Kind::Gauge), "a fraction is a gauge");
        self.write("", labels, None, &value.to_string());
    }

    /// Writes a histogram of the current family.
    ///
    /// # Panics
    /// If the current family is not a histogram, or the buckets are not cumulative.
    pub fn histogram(&mut self, labels: &Labels<'_>, buckets: &Buckets) {
        assert_eq!(self.kind, Some(Kind::Histogram), "buckets are of a histogram");
        let counts = buckets.up_to.iter().map(|&(_, count)| count).chain([buckets.count]);
        assert!(counts.is_sorted(), "buckets are cumulative");
        for (bound, count) in &buckets.up_to {
            // In this format bounds are floating-point numbers.
            self.write("_bucket", labels, Some(&format!("{bound}.0")), &count.to_string());
        }
        self.write("_bucket", labels, Some("+Inf"), &buckets.count.to_string());
        self.write("_count", labels, None, &buckets.count.to_string());
        self.write("_sum", labels, None, &buckets.sum.to_string());
    }

    fn write(&mut self, suffix: &str, labels: &Labels<'_>, bound: Option<&str>, value: &str) {
        let name = self.names.last().expect("a family");
        let all = labels.iter().copied().chain(bound.map(|bound| ("le", bound)));
        let all: Vec<_> = all.map(|(name, value)| format!("{name}=\"{}\"", label(value))).collect();
        let braced = if all.is_empty() { String::new() } else { format!("{{{}}}", all.join(",")) };
        let line = format!("{name}{suffix}{braced} {value}");
        self.line(format_args!("{line}"));
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.text, "{line}").expect("a string takes everything");
    }

    /// Returns the complete text.
    #[must_use]
    pub fn finish(mut self) -> String {
        self.text.push_str("# EOF\n");
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_what_the_specification_says() {
        let mut text = Exposition::new();
        text.family("a_reads", Kind::Counter, None, "Reads, \"all\".");
        text.sample(&[("volume", "a\"b\\c\nd")], 7);
        text.family("a_free_bytes", Kind::Gauge, Some("bytes"), "Free.");
        text.sample(&[], 0);
        text.fraction(&[("x", "y")], 0.25);
        text.family("a_read_ns", Kind::Histogram, Some("ns"), "Took.");
        let buckets = Buckets { up_to: vec![(255, 1), (511, 1)], count: 3, sum: 9000 };
        text.histogram(&[("volume", "a")], &buckets);
        text.family("a", Kind::Info, None, "Who.");
        text.sample(&[("version", "1")], 1);
        let known = "# TYPE a_reads counter\n\
                     # HELP a_reads Reads, \\\"all\\\".\n\
                     a_reads_total{volume=\"a\\\"b\\\\c\\nd\"} 7\n\
                     # TYPE a_free_bytes gauge\n\
                     # UNIT a_free_bytes bytes\n\
                     # HELP a_free_bytes Free.\n\
                     a_free_bytes 0\n\
                     a_free_bytes{x=\"y\"} 0.25\n\
                     # TYPE a_read_ns histogram\n\
                     # UNIT a_read_ns ns\n\
                     # HELP a_read_ns Took.\n\
                     a_read_ns_bucket{volume=\"a\",le=\"255.0\"} 1\n\
                     a_read_ns_bucket{volume=\"a\",le=\"511.0\"} 1\n\
                     a_read_ns_bucket{volume=\"a\",le=\"+Inf\"} 3\n\
                     a_read_ns_count{volume=\"a\"} 3\n\
                     a_read_ns_sum{volume=\"a\"} 9000\n\
                     # TYPE a info\n\
                     # HELP a Who.\n\
                     a_info{version=\"1\"} 1\n\
                     # EOF\n";
        assert_eq!(text.finish(), known);
    }

    #[test]
    #[should_panic(expected = "ends in _total")]
    fn reserved_endings_are_refused() {
        Exposition::new().family("reads_total", Kind::Counter, None, "");
    }

    #[test]
    #[should_panic(expected = "cumulative")]
    fn buckets_that_fall_are_refused() {
        let mut text = Exposition::new();
        text.family("t", Kind::Histogram, None, "");
        text.histogram(&[], &Buckets { up_to: vec![(1, 5)], count: 4, sum: 0 });
    }
}
