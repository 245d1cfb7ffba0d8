//! Charts for HTML reports: SVG with the colors of the page's style sheet, for light, dark and
//! print styles. Sizes are pixels of the drawing, which scales with the page.

use super::{Axis, Frame};
use crate::escape::html as escape;
use crate::page::WIDE;
use std::ops::RangeInclusive;

/// Margins around the plane: left, right, top, bottom.
const MARGIN: [f64; 4] = [96.0, 36.0, 14.0, 46.0];
/// Margins of a narrow chart.
const MARGIN_NARROW: [f64; 4] = [96.0, 26.0, 14.0, 46.0];
/// Margin at the left of a plane without marks beside it.
const MARGIN_ALONE: f64 = 16.0;
/// Estimated width of a character in bold, in pixels.
const BOLD_WIDTH: f64 = 7.8;
/// Width of the column of [`Plot::with_names`], in pixels.
const NAMES_WIDTH: RangeInclusive<f64> = 160.0..=390.0;
/// As [`NAMES_WIDTH`], in a narrow chart.
const NAMES_WIDTH_NARROW: RangeInclusive<f64> = 110.0..=130.0;

/// Number of line colors in the style sheet, and maximum number of lines of a chart.
pub(crate) const LINES_MAX: usize = 6;

/// A plane with two axes to draw on.
#[derive(Debug)]
pub(crate) struct Plot {
    size: (f64, f64),
    /// Margins around the plane, as [`MARGIN`].
    margin: [f64; 4],
    axes: (Axis, Axis),
    frames: (Frame, Frame),
    svg: String,
}

impl Plot {
    /// Creates a plane for these values.
    pub(crate) fn new(size: (f64, f64), x: Axis, y: Axis, xs: &[f64], ys: &[f64]) -> Self {
        let positions = |axis: &Axis, values: &[f64]| {
            let known_positions: Vec<f64> =
                values.iter().filter_map(|value| axis.position(*value)).collect();
            axis.frame(if known_positions.is_empty() { &[0.0] } else { &known_positions })
        };
        let frames = (positions(&x, xs), positions(&y, ys));
        let margin = if size.0 < WIDE { MARGIN_NARROW } else { MARGIN };
        Plot { size, margin, axes: (x, y), frames, svg: String::new() }
    }

    /// Makes room for a column at the left with the names of rows, which nothing crosses.
    pub(crate) fn with_names<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        let longest = names.into_iter().map(|name| name.chars().count()).max().unwrap_or(0);
        let width = count_f64(longest) * BOLD_WIDTH + 20.0;
        let range = if self.size.0 < WIDE { NAMES_WIDTH_NARROW } else { NAMES_WIDTH };
        self.margin[0] = width.clamp(*range.start(), *range.end());
        self
    }

    /// Uses the space at the left, if nothing is written beside the plane.
    pub(crate) fn without_names(mut self) -> Self {
        self.margin[0] = MARGIN_ALONE;
        self
    }

    /// Returns the first of some texts in bold that fits into this width, else the last one, cut.
    pub(crate) fn fitting(width: f64, texts: &[&str]) -> String {
        let characters = larder_schema::as_u64((width / BOLD_WIDTH).max(1.0));
        let characters = usize::try_from(characters).unwrap_or(usize::MAX);
        let fits = |text: &&&str| text.chars().count() <= characters;
        match texts.iter().find(fits) {
            Some(text) => (*text).to_owned(),
            None => shortened(texts.last().unwrap_or(&""), characters),
        }
    }

    /// Returns the maximum width of a text in pixels.
    pub(crate) fn text_width(text: &str) -> f64 {
        count_f64(text.chars().count()) * BOLD_WIDTH
    }

    /// Draws the name of a row in the column at the left, and a line below it.
    pub(crate) fn name_row(&mut self, y: f64, name: &str, below: &str) {
        let characters = larder_schema::as_u64((self.margin[0] - 16.0) / BOLD_WIDTH);
        let shown = shortened(name, usize::try_from(characters).unwrap_or(usize::MAX));
        self.words("label", (4.0, y - 3.0), "start", &shown);
        self.words("mark", (4.0, y + 14.0), "start", below);
    }

    /// Returns the pixel position of a value on the horizontal axis.
    pub(crate) fn x(&self, value: f64) -> f64 {
        let position = self.axes.0.position(value).unwrap_or(self.frames.0.low);
        let [left, right, ..] = self.ends();
        left + self.frames.0.fraction(position) * (right - left)
    }

    /// Returns the pixel position of a value on the vertical axis.
    pub(crate) fn y(&self, value: f64) -> f64 {
        let position = self.axes.1.position(value).unwrap_or(self.frames.1.low);
        let fraction = self.frames.1.fraction(position);
        let [_, _, top, bottom] = self.ends();
        top + (1.0 - fraction) * (bottom - top)
    }

    /// Returns the bounds of the plane: left, right, top, bottom.
    pub(crate) fn ends(&self) -> [f64; 4] {
        let [left, right, top, bottom] = self.margin;
        [left, self.size.0 - right, top, self.size.1 - bottom]
    }

    /// Draws a rectangle between two horizontal and two vertical positions, in pixels.
    pub(crate) fn rectangle(&mut self, class: &str, x: (f64, f64), y: (f64, f64), title: &str) {
        let (left, width) = (x.0.min(x.1), (x.1 - x.0).abs());
        let (top, height) = (y.0.min(y.1), (y.1 - y.0).abs());
        put!(
            self.svg,
            "<rect class=\"{class}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" \
             height=\"{height:.1}\">{}</rect>\n",
            title_element(title)
        );
    }

    /// Draws a line through values.
    pub(crate) fn line(&mut self, class: &str, points: &[(f64, f64)]) {
        let points = self.path(points.iter().copied());
        put_line!(self.svg, "<polyline class=\"{class}\" points=\"{points}\"/>");
    }

    /// Fills the area between two lines that run from left to right.
    pub(crate) fn band(&mut self, class: &str, low: &[(f64, f64)], high: &[(f64, f64)]) {
        let points = self.path(high.iter().copied().chain(low.iter().rev().copied()));
        put_line!(self.svg, "<polygon class=\"{class}\" points=\"{points}\"/>");
    }

    fn path(&self, points: impl Iterator<Item = (f64, f64)>) -> String {
        let at = |(x, y)| format!("{:.1},{:.1}", self.x(x), self.y(y));
        points.map(at).collect::<Vec<_>>().join(" ")
    }

    /// Draws a dot at a position in pixels, with a tooltip.
    pub(crate) fn dot(&mut self, class: &str, (x, y): (f64, f64), title: &str) {
        put_line!(
            self.svg,
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\">{}</circle>",
            title_element(title)
        );
    }

    /// Draws a straight line in pixels.
    pub(crate) fn stroke(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        put_line!(
            self.svg,
            "<line class=\"{class}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>",
            from.0,
            from.1,
            to.0,
            to.1
        );
    }

    /// Draws an interval of values on the horizontal axis as a line with a tick at each end.
    pub(crate) fn interval(&mut self, (low, high): (f64, f64), y: f64) {
        let (low, high) = (self.x(low), self.x(high));
        self.stroke("error", (low, y), (high, y));
        for end in [low, high] {
            self.stroke("error", (end, y - 6.0), (end, y + 6.0));
        }
    }

    /// Draws text at a position in pixels; `anchor` is start, middle or end.
    pub(crate) fn words(&mut self, class: &str, (x, y): (f64, f64), anchor: &str, text: &str) {
        put_line!(
            self.svg,
            "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
            escape(text)
        );
    }

    /// Draws the label of a point of a line within the plane, on the side that the line does not
    /// use: `before` and `after` are the positions of its neighbors.
    pub(crate) fn label_beside(
        &mut self,
        (x, y): (f64, f64),
        [before, after]: [Option<(f64, f64)>; 2],
        text: &str,
    ) {
        let [left, right, top, bottom] = self.ends();
        // Positions grow downwards.
        let is_higher = |point: Option<(f64, f64)>| point.is_some_and(|it| it.1 < y - 4.0);
        let (rises, fell) = (is_higher(after), is_higher(before));
        let width = count_f64(text.len()) * 7.2;
        let is_at_end = (rises && x - width < left) || (fell && x + width > right);
        let is_below = (rises && fell) || (is_at_end && y + 24.0 < bottom) || y - 24.0 < top;
        let (part_at_left, anchor) = match (rises, fell) {
            (true, false) if !is_below => (1.0, "end"),
            (false, true) if !is_below => (0.0, "start"),
            _ => (0.5, "middle"),
        };
        let begin = x - width * part_at_left;
        let (x, anchor) = if begin < left {
            (left + 6.0, "start")
        } else if begin + width > right {
            (right - 2.0, "end")
        } else {
            (x, anchor)
        };
        self.words("label", (x, if is_below { y + 20.0 } else { y - 10.0 }), anchor, text);
    }

    /// Draws an entry of the legend: a piece of a line, and its name.
    pub(crate) fn key(&mut self, class: &str, (x, y): (f64, f64), name: &str) {
        self.stroke(class, (x, y), (x + 26.0, y));
        self.words("mark", (x + 34.0, y + 4.0), "start", name);
    }

    /// Draws the grid lines, marks and heading of the horizontal axis.
    pub(crate) fn draw_x(&mut self) {
        let [left, right, top, bottom] = self.ends();
        let mut free = 0.0;
        for mark in self.frames.0.marks.clone() {
            let x = left + self.frames.0.fraction(mark) * (right - left);
            self.stroke("grid", (x, top), (x, bottom));
            let label = self.axes.0.label(mark);
            let half = count_f64(label.len()) * 3.6;
            if x - half > free {
                self.words("mark", (x, bottom + 18.0), "middle", &label);
                free = x + half + 8.0;
            }
        }
        let heading = self.axes.0.heading();
        self.words("axis", (f64::midpoint(left, right), self.size.1 - 6.0), "middle", &heading);
    }

    /// Draws the grid lines, marks and heading of the vertical axis.
    pub(crate) fn draw_y(&mut self) {
        let [left, right, top, bottom] = self.ends();
        for mark in self.frames.1.marks.clone() {
            let y = bottom - self.frames.1.fraction(mark) * (bottom - top);
            self.stroke("grid", (left, y), (right, y));
            let label = self.axes.1.label(mark);
            self.words("mark", (left - 8.0, y + 4.0), "end", &label);
        }
        let heading = self.axes.1.heading();
        let middle = f64::midpoint(top, bottom);
        put_line!(
            self.svg,
            "<text class=\"axis\" transform=\"translate(13 {middle:.1}) rotate(-90)\" \
             text-anchor=\"middle\">{}</text>",
            escape(&heading)
        );
    }

    /// Returns the drawing, with a description for screen readers.
    pub(crate) fn finish(self, description: &str) -> String {
        format!(
            "<svg viewBox=\"0 0 {:.0} {:.0}\" role=\"img\" aria-label=\"{}\">\n{}</svg>\n",
            self.size.0,
            self.size.1,
            escape(description),
            self.svg
        )
    }
}

/// Returns a name of at most this many characters, with an ellipsis for its middle.
fn shortened(name: &str, characters: usize) -> String {
    let all: Vec<char> = name.chars().collect();
    if all.len() <= characters {
        return name.to_owned();
    }
    // Names of series of one group differ in their ends.
    let head = characters / 3;
    let tail = characters.saturating_sub(head + 1);
    let parts = [&all[..head], &['\u{2026}'], &all[all.len() - tail..]];
    parts.concat().into_iter().collect()
}

fn title_element(title: &str) -> String {
    if title.is_empty() { String::new() } else { format!("<title>{}</title>", escape(title)) }
}

/// Returns the class of the line with this number; colors repeat.
pub(crate) fn line_class(number: usize) -> String {
    format!("line c{}", number % LINES_MAX)
}

/// Converts a small number.
pub(crate) fn count_f64(count: usize) -> f64 {
    larder_schema::as_f64(count as u64)
}
