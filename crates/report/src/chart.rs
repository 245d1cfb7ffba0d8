//! Line charts: as SVG for pages and as text for terminals, from one description.
//!
//! Invariants: both axes say their unit; points that are not finite (or not above zero on a
//! logarithmic axis) are left out; the same chart gives the same bytes. No font is read: widths of
//! text are estimated, and the viewer's own sans-serif draws it. Values are in the unit of their
//! axis.

mod svg;
mod text;

use crate::format;

/// Marks on an axis, at most; far more than the step between them leads to, and a bound where
/// values are so large that adding a step changes nothing.
const MARKS_MAX: u8 = 32;

/// How an axis is divided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Equal steps are equal differences.
    #[default]
    Linear,
    /// Equal steps are equal factors; right for the size of a cache.
    Log2,
}

/// How the values of an axis are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Labels {
    /// Three digits.
    #[default]
    Number,
    /// Binary units of bytes.
    Bytes,
    /// A share from 0 to 1, as per cent.
    Percent,
    /// Nanoseconds, in the unit that fits.
    Duration,
}

/// One axis of a [`Chart`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axis {
    /// What it measures.
    pub title: String,
    /// In which unit; empty where the values are written with theirs.
    pub unit: String,
    /// How it is divided.
    pub scale: Scale,
    /// How its values are written.
    pub labels: Labels,
    /// The first value shown; from the data if not given.
    pub min: Option<f64>,
    /// The last value shown; from the data if not given.
    pub max: Option<f64>,
}

/// One line of a chart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// What the legend says.
    pub name: String,
    /// Points in the order in which they are joined.
    pub points: Vec<(f64, f64)>,
}

/// A line chart with one or more series.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The lines.
    pub series: Vec<Series>,
}

/// Why a chart was not drawn.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChartError {
    /// No series has a point that can be drawn.
    #[error("draw the chart {title:?}: there is no point to draw")]
    Empty {
        /// Title of the chart.
        title: String,
    },
    /// The drawing library refused.
    #[error("draw the chart {title:?}: {reason}")]
    Draw {
        /// Title of the chart.
        title: String,
        /// What it said.
        reason: String,
    },
}

impl Axis {
    /// An axis from what the data holds.
    pub fn new(title: impl Into<String>, unit: impl Into<String>) -> Self {
        Axis { title: title.into(), unit: unit.into(), ..Axis::default() }
    }

    /// The same, divided as said.
    #[must_use]
    pub fn scale(mut self, scale: Scale) -> Self {
        self.scale = scale;
        self
    }

    /// The same with its values written as said.
    #[must_use]
    pub fn labels(mut self, labels: Labels) -> Self {
        self.labels = labels;
        self
    }

    /// The same from `min` to `max`; what lies beyond is drawn on the edge.
    #[must_use]
    pub fn range(mut self, min: f64, max: f64) -> Self {
        (self.min, self.max) = (Some(min), Some(max));
        self
    }

    pub(crate) fn heading(&self) -> String {
        if self.unit.is_empty() {
            self.title.clone()
        } else {
            format!("{} [{}]", self.title, self.unit)
        }
    }

    /// Where a value lies on the axis, if it can be shown at all.
    pub(crate) fn place(&self, value: f64) -> Option<f64> {
        let place = match self.scale {
            Scale::Linear => value,
            Scale::Log2 => value.log2(),
        };
        place.is_finite().then_some(place)
    }

    /// How the value at `place` is written.
    pub(crate) fn label(&self, place: f64) -> String {
        let value = match self.scale {
            Scale::Linear => place,
            Scale::Log2 => place.exp2(),
        };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let whole = value.round() as u64;
        match self.labels {
            Labels::Number if value != 0.0 && value.fract() == 0.0 && value.abs() < 1e15 => {
                format!("{}{}", if value < 0.0 { "-" } else { "" }, plain(value.abs()))
            }
            Labels::Number => shortest(value),
            Labels::Bytes => format::bytes(whole),
            Labels::Percent => format!("{} %", shortest((value * 1e6).round() / 1e4)),
            Labels::Duration => format::duration(whole),
        }
    }

    /// First and last place of the axis over `places`, and the places of its marks.
    pub(crate) fn frame(&self, places: &[f64]) -> Frame {
        let least = places.iter().copied().fold(f64::INFINITY, f64::min);
        let most = places.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let given = |bound: Option<f64>| bound.and_then(|value| self.place(value));
        let mut low = given(self.min).unwrap_or(least);
        let mut high = given(self.max).unwrap_or(most);
        if high <= low {
            (low, high) = (low - 0.5, low + 0.5);
        }
        let step = step(high - low, self.scale, self.labels);
        // An axis from the data begins and ends on a mark.
        if given(self.min).is_none() {
            low = (low / step + 1e-9).floor() * step;
        }
        if given(self.max).is_none() {
            high = (high / step - 1e-9).ceil() * step;
        }
        let first = (low / step - 1e-9).ceil();
        let marks = (0..=MARKS_MAX).map(|number| (first + f64::from(number)) * step);
        let marks = marks.take_while(|mark| *mark <= high + step * 1e-9).collect();
        Frame { low, high, marks }
    }
}

/// The part of an axis that is shown.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Frame {
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) marks: Vec<f64>,
}

/// A round distance between marks, for four to nine of them.
fn step(span: f64, scale: Scale, labels: Labels) -> f64 {
    let rough = span / 8.0;
    if scale == Scale::Log2 {
        return rough.ceil().max(1.0);
    }
    let base: f64 = if labels == Labels::Bytes { 2.0 } else { 10.0 };
    let power = base.powf((rough.ln() / base.ln()).floor());
    let factors: &[f64] =
        if labels == Labels::Bytes { &[1.0, 2.0] } else { &[1.0, 2.0, 5.0, 10.0] };
    let fits = |factor: &&f64| **factor * power >= rough * (1.0 - 1e-9);
    factors.iter().find(fits).map_or(power * base, |factor| factor * power)
}

/// A whole number with separators.
fn plain(value: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 1e15")]
    let whole = value as u64;
    format::count(whole)
}

/// A number without the zeros that say nothing; binary dust of a mark such as 0.30000000000000004
/// is taken off.
fn shortest(value: f64) -> String {
    if value.abs() < 1e-12 {
        return "0".to_owned();
    }
    let rounded: f64 = format!("{value:.9e}").parse().unwrap_or(value);
    format!("{rounded}")
}

impl Chart {
    /// A chart without lines.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Chart { title: title.into(), x, y, series: Vec::new() }
    }

    /// Adds a line.
    pub fn line(&mut self, name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) {
        self.series.push(Series { name: name.into(), points: points.into_iter().collect() });
    }

    /// The points of each series as places on the axes, without those that cannot be shown.
    fn placed(&self) -> Result<Vec<Vec<(f64, f64)>>, ChartError> {
        let place = |(x, y): &(f64, f64)| Some((self.x.place(*x)?, self.y.place(*y)?));
        let placed: Vec<Vec<(f64, f64)>> = self
            .series
            .iter()
            .map(|series| series.points.iter().filter_map(place).collect())
            .collect();
        if placed.iter().all(Vec::is_empty) {
            return Err(ChartError::Empty { title: self.title.clone() });
        }
        Ok(placed)
    }

    fn frames(&self, placed: &[Vec<(f64, f64)>]) -> (Frame, Frame) {
        let (across, up): (Vec<f64>, Vec<f64>) = placed.iter().flatten().copied().unzip();
        (self.x.frame(&across), self.y.frame(&up))
    }
}

#[cfg(test)]
mod tests;
