//! Charts for HTML reports: SVG with the colors of the page's style sheet, for light, dark and
//! print styles. Sizes are pixels of the drawing, which scales with the page.

use super::{Axis, Frame};
use crate::escape::html as escape;

/// Width of the charts of reports.
pub(crate) const WIDTH: f64 = 760.0;

/// Margins around the plane: left, right, top, bottom.
const MARGIN: [f64; 4] = [96.0, 36.0, 14.0, 46.0];

/// Number of line colors in the style sheet, and maximum number of lines of a chart.
pub(crate) const LINES_MAX: usize = 6;

/// A plane with two axes to draw on.
#[derive(Debug)]
pub(crate) struct Plot {
    size: (f64, f64),
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
        Plot { size, axes: (x, y), frames, svg: String::new() }
    }

    /// Returns the pixel position of a value on the horizontal axis.
    pub(crate) fn x(&self, value: f64) -> f64 {
        let position = self.axes.0.position(value).unwrap_or(self.frames.0.low);
        MARGIN[0] + self.frames.0.fraction(position) * (self.size.0 - MARGIN[0] - MARGIN[1])
    }

    /// Returns the pixel position of a value on the vertical axis.
    pub(crate) fn y(&self, value: f64) -> f64 {
        let position = self.axes.1.position(value).unwrap_or(self.frames.1.low);
        let fraction = self.frames.1.fraction(position);
        MARGIN[2] + (1.0 - fraction) * (self.size.1 - MARGIN[2] - MARGIN[3])
    }

    /// Returns the bounds of the plane: left, right, top, bottom.
    pub(crate) fn ends(&self) -> [f64; 4] {
        [MARGIN[0], self.size.0 - MARGIN[1], MARGIN[2], self.size.1 - MARGIN[3]]
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

    /// Draws a label above a point of a line, within the plane: beside it at the left and right
    /// ends, and below it at the upper end.
    pub(crate) fn label_beside(&mut self, (x, y): (f64, f64), text: &str) {
        let [left, right, top, _] = self.ends();
        let half = count_f64(text.len()) * 3.6;
        let (x, anchor) = if x - half < left {
            (left + 6.0, "start")
        } else if x + half > right {
            (right - 2.0, "end")
        } else {
            (x, "middle")
        };
        let y = if y - 24.0 < top { y + 20.0 } else { y - 10.0 };
        self.words("label", (x, y), anchor, text);
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
