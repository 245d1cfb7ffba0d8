//! Line charts: as SVG for HTML and as text for terminals, from one description.
//!
//! Invariants: both axes show their unit; points that are not finite (or not above zero on a
//! logarithmic axis) are omitted; the same chart yields the same bytes. No font file is read: text
//! widths are estimates, and the viewer's sans-serif font renders the text. Values are in the unit
//! of their axis.

pub(crate) mod plot;
mod text;

use crate::page::{self, CSS};
use crate::table::Table;
use larder_schema::{as_u64, format};
use plot::Plot;

/// Maximum number of marks on an axis. The chosen step yields far fewer; the limit matters only for
/// values so large that adding a step changes nothing.
const MARKS_MAX: u8 = 32;

/// Scale of an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Linear: equal steps are equal differences.
    #[default]
    Linear,
    /// Logarithmic: equal steps are equal factors; suitable for cache sizes.
    Log2,
    /// Of a share: each step leaves a tenth of what is above it, as from 90 to 99 %; suitable for
    /// distributions of which the upper end matters.
    Tail,
}

/// Number format of an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Labels {
    /// Plain numbers with three digits.
    #[default]
    Number,
    /// Whole numbers.
    Count,
    /// Binary units of bytes.
    Bytes,
    /// Binary units of bytes per second.
    ByteRate,
    /// A share from 0 to 1, as a percentage.
    Percent,
    /// Nanoseconds, in a suitable unit.
    Duration,
    /// Seconds, in a suitable unit.
    Seconds,
}

/// One axis of a [`Chart`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axis {
    /// The measured quantity.
    pub title: String,
    /// Unit; empty if the values include it.
    pub unit: String,
    /// Linear or logarithmic.
    pub scale: Scale,
    /// Number format.
    pub labels: Labels,
    /// First value shown; derived from the data if `None`.
    pub min: Option<f64>,
    /// Last value shown; derived from the data if `None`.
    pub max: Option<f64>,
}

/// One line of a chart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Class of the line in the style sheet; empty for the next color.
    pub class: String,
    /// Points in drawing order.
    pub points: Vec<(f64, f64)>,
}

/// A line chart with one or more series.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chart {
    /// Title.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The lines.
    pub series: Vec<Series>,
}

impl Axis {
    /// Creates an axis whose range is derived from the data.
    pub fn new(title: impl Into<String>, unit: impl Into<String>) -> Self {
        Axis { title: title.into(), unit: unit.into(), ..Axis::default() }
    }

    /// Sets the scale.
    #[must_use]
    pub fn scale(mut self, scale: Scale) -> Self {
        self.scale = scale;
        self
    }

    /// Sets the number format.
    #[must_use]
    pub fn labels(mut self, labels: Labels) -> Self {
        self.labels = labels;
        self
    }

    /// Sets the range; points outside it are drawn on the edge.
    #[must_use]
    pub fn range(mut self, min: f64, max: f64) -> Self {
        (self.min, self.max) = (Some(min), Some(max));
        self
    }

    /// Starts the axis at 0.
    #[must_use]
    pub fn from_zero(mut self) -> Self {
        self.min = Some(0.0);
        self
    }

    pub(crate) fn heading(&self) -> String {
        if self.unit.is_empty() {
            self.title.clone()
        } else {
            format!("{} [{}]", self.title, self.unit)
        }
    }

    /// Returns the position of a value on the axis, or `None` if the axis cannot show it.
    pub(crate) fn position(&self, value: f64) -> Option<f64> {
        let position = match self.scale {
            Scale::Linear => value,
            Scale::Log2 => value.log2(),
            Scale::Tail => -(1.0 - value).log10(),
        };
        position.is_finite().then_some(position)
    }

    /// Formats the value at a position.
    pub(crate) fn label(&self, position: f64) -> String {
        let value = match self.scale {
            Scale::Linear => position,
            Scale::Log2 => position.exp2(),
            Scale::Tail => 1.0 - 10_f64.powf(-position),
        };
        let whole = as_u64(value);
        match self.labels {
            Labels::Number | Labels::Count
                if value != 0.0 && value.fract() == 0.0 && value.abs() < 1e15 =>
            {
                format!(
                    "{}{}",
                    if value < 0.0 { "-" } else { "" },
                    format::count(as_u64(value.abs()))
                )
            }
            Labels::Number | Labels::Count => trimmed_number(value),
            Labels::Bytes => format::bytes(whole),
            Labels::ByteRate => format::byte_rate(value),
            Labels::Percent => format!("{} %", trimmed_number((value * 1e6).round() / 1e4)),
            Labels::Duration => short_duration(whole),
            Labels::Seconds => short_duration(as_u64(value * 1e9)),
        }
    }

    /// Returns the visible range of the axis for `positions`, and the positions of its marks.
    pub(crate) fn frame(&self, positions: &[f64]) -> Frame {
        let minimum = positions.iter().copied().fold(f64::INFINITY, f64::min);
        let maximum = positions.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let fixed = |bound: Option<f64>| bound.and_then(|value| self.position(value));
        let mut low = fixed(self.min).unwrap_or(minimum);
        let mut high = fixed(self.max).unwrap_or(maximum);
        if high <= low {
            low = fixed(self.min).unwrap_or(low - 0.5);
            high = low + 1.0;
        }
        if self.scale == Scale::Log2 && self.labels == Labels::Duration {
            return decimal_frame(low, high);
        }
        if self.scale == Scale::Tail {
            let shares = [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999_999];
            let marks = shares.iter().filter_map(|share| self.position(*share));
            let marks = marks.filter(|mark| (low..=high).contains(mark)).collect();
            return Frame { low, high, marks };
        }
        // The marks around such values would be above the largest number.
        if low.abs().max(high.abs()) > f64::MAX / 4.0 {
            return Frame { low: 0.0, high: 1.0, marks: Vec::new() };
        }
        let step = step(high - low, self.scale, self.labels);
        // A range derived from the data starts and ends on a mark.
        if fixed(self.min).is_none() {
            low = (low / step + 1e-9).floor() * step;
        }
        if fixed(self.max).is_none() {
            high = (high / step - 1e-9).ceil() * step;
        }
        let first = (low / step - 1e-9).ceil();
        let marks = (0..=MARKS_MAX).map(|number| (first + f64::from(number)) * step);
        let marks = marks.take_while(|mark| *mark <= high + step * 1e-9).collect();
        Frame { low, high, marks }
    }
}

/// The visible part of an axis.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Frame {
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) marks: Vec<f64>,
}

impl Frame {
    /// Returns the share of the frame, 0 to 1, that is below a position on the axis.
    fn fraction(&self, position: f64) -> f64 {
        ((position - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }
}

/// Returns a frame with marks at 1, 2 and 5 times powers of ten, or at powers of ten for a wide
/// range, from binary logarithms.
fn decimal_frame(low: f64, high: f64) -> Frame {
    let digits: &[f64] = if high - low > 10.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let powers = (-1_i32..20).map(|power| 10_f64.powi(power));
    let all = powers.flat_map(|power| digits.iter().map(move |digit| (digit * power).log2()));
    let all: Vec<f64> = all.collect();
    let low = all.iter().copied().rfind(|mark| *mark <= low + 1e-9).unwrap_or(low);
    let high = all.iter().copied().find(|mark| *mark >= high - 1e-9).unwrap_or(high);
    let is_shown = |mark: &f64| (low..=high).contains(mark);
    Frame { low, high, marks: all.into_iter().filter(is_shown).collect() }
}

/// Returns a round distance between marks, for four to nine of them.
fn step(span: f64, scale: Scale, labels: Labels) -> f64 {
    let rough = span / 8.0;
    if scale == Scale::Log2 {
        return rough.ceil().max(1.0);
    }
    let rough = if labels == Labels::Count { rough.max(1.0) } else { rough };
    let is_binary = matches!(labels, Labels::Bytes | Labels::ByteRate);
    let base: f64 = if is_binary { 2.0 } else { 10.0 };
    let power = base.powf((rough.ln() / base.ln()).floor());
    let factors: &[f64] = if is_binary { &[1.0, 2.0] } else { &[1.0, 2.0, 5.0, 10.0] };
    let fits = |factor: &&f64| **factor * power >= rough * (1.0 - 1e-9);
    factors.iter().find(fits).map_or(power * base, |factor| factor * power)
}

/// Formats nanoseconds in a suitable unit, without trailing zeros.
fn short_duration(ns: u64) -> String {
    let duration = format::duration(ns);
    match duration.split_once(' ') {
        Some((number, unit)) => format!("{} {unit}", format::without_zeros(number)),
        None => duration,
    }
}

/// Formats a number without trailing zeros; rounds away binary artifacts such as
/// 0.30000000000000004.
fn trimmed_number(value: f64) -> String {
    if value.abs() < 1e-12 {
        return "0".to_owned();
    }
    let rounded: f64 = format!("{value:.9e}").parse().unwrap_or(value);
    format!("{rounded}")
}

/// Returns an SVG element of a page as a file, with the styles of the pages.
pub(crate) fn svg_file(element: &str) -> String {
    let style = format!("<style>{CSS}svg{{background:var(--paper)}}</style>");
    let body = element.replacen('\n', &format!("\n{style}\n"), 1);
    body.replacen("<svg", "<svg xmlns=\"http://www.w3.org/2000/svg\"", 1)
}

impl Series {
    /// Returns the class of the line, which is the one with this number in its chart.
    fn class(&self, number: usize) -> String {
        if self.class.is_empty() { plot::line_class(number) } else { self.class.clone() }
    }
}

impl Chart {
    /// Creates a chart without lines.
    pub fn new(title: impl Into<String>, x: Axis, y: Axis) -> Self {
        Chart { title: title.into(), x, y, series: Vec::new() }
    }

    /// Adds a line.
    pub fn line(&mut self, name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) {
        self.line_as(name, "", points);
    }

    /// Adds a line of a class of the style sheet, whose color has a meaning.
    pub fn line_as(
        &mut self,
        name: impl Into<String>,
        class: impl Into<String>,
        points: impl IntoIterator<Item = (f64, f64)>,
    ) {
        let (name, class) = (name.into(), class.into());
        self.series.push(Series { name, class, points: points.into_iter().collect() });
    }

    /// Renders the chart as an SVG file of its own, with the styles of the pages; otherwise like
    /// [`Chart::to_svg`].
    #[must_use]
    pub fn to_svg_file(&self, width: u32, height: u32) -> Option<String> {
        self.to_svg(width, height).map(|svg| svg_file(&svg))
    }

    /// Renders the chart as an SVG element of `width` by `height` pixels, for a page with the
    /// styles; `None` if no series has a drawable point.
    #[must_use]
    pub fn to_svg(&self, width: u32, height: u32) -> Option<String> {
        let size = (width.max(160).into(), height.max(120).into());
        self.draw(size, &self.title, self.series.len() > 1)
    }

    /// Renders the chart as a figure of a page, with its key, a description for screen readers and
    /// a caption, which may be empty; `None` if no series has a drawable point.
    pub(crate) fn to_figure(
        &self,
        height: f64,
        description: &str,
        caption: &str,
        data: Option<&Table>,
    ) -> Option<String> {
        let draw = |width| self.draw((width, height), description, false);
        draw(page::WIDE)?;
        let keys: Vec<(String, String)> = self
            .series
            .iter()
            .enumerate()
            .map(|(number, series)| (series.class(number), series.name.clone()))
            .collect();
        let keys = if keys.len() > 1 { page::key(&keys) } else { String::new() };
        Some(keys + &page::figure(|width| draw(width).unwrap_or_default(), caption, data))
    }

    fn draw(&self, size: (f64, f64), description: &str, has_key: bool) -> Option<String> {
        let is_drawable =
            |(x, y): &&(f64, f64)| self.x.position(*x).is_some() && self.y.position(*y).is_some();
        let drawable_points = |series: &Series| -> Vec<(f64, f64)> {
            series.points.iter().filter(is_drawable).copied().collect()
        };
        let lines: Vec<_> = self.series.iter().map(drawable_points).collect();
        let (xs, ys): (Vec<f64>, Vec<f64>) = lines.iter().flatten().copied().unzip();
        if xs.is_empty() {
            return None;
        }
        let mut plot = Plot::new(size, self.x.clone(), self.y.clone(), &xs, &ys);
        plot.draw_x();
        plot.draw_y();
        let [left, _, top, _] = plot.ends();
        let mut y = top + 18.0;
        if !self.title.is_empty() {
            plot.words("label", (left + 12.0, y), "start", &self.title);
            y += 20.0;
        }
        for (number, (series, points)) in self.series.iter().zip(&lines).enumerate() {
            let class = series.class(number);
            plot.line(&class, points);
            if has_key {
                plot.key(&class, (left + 12.0, y), &series.name);
                y += 20.0;
            }
        }
        Some(plot.finish(description))
    }

    /// Returns the points of each series as positions on the axes, without those that cannot be
    /// shown; `None` if there are none.
    fn positions(&self) -> Option<Vec<Vec<(f64, f64)>>> {
        let position = |(x, y): &(f64, f64)| Some((self.x.position(*x)?, self.y.position(*y)?));
        let positions: Vec<Vec<(f64, f64)>> = self
            .series
            .iter()
            .map(|series| series.points.iter().filter_map(position).collect())
            .collect();
        positions.iter().any(|points| !points.is_empty()).then_some(positions)
    }

    fn frames(&self, positions: &[Vec<(f64, f64)>]) -> (Frame, Frame) {
        let (horizontal, vertical): (Vec<f64>, Vec<f64>) =
            positions.iter().flatten().copied().unzip();
        (self.x.frame(&horizontal), self.y.frame(&vertical))
    }
}

#[cfg(test)]
mod tests;
