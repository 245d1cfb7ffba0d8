//! Text rendering of a chart. A single line is drawn in Braille (two by four dots per character);
//! several lines get one letter each, since a terminal may lack colors. Sizes are characters.

use super::plot::count_f64;
use super::{Chart, Frame};

/// Letters of the series, in order.
const LETTERS: [char; 8] = ['*', 'o', '+', 'x', '#', '@', '%', '='];
/// First of the 256 Braille patterns.
const BRAILLE: u32 = 0x2800;
/// Bits of the dots of a pattern, by row and column.
const DOTS: [[u32; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];

impl Chart {
    /// Renders the chart as lines of text with a plane of `width` by at most `height` characters,
    /// at least 16 by 4, plus axes and title; `None` if no series has a drawable point. A lower
    /// plane than `height` has the same number of rows between all marks of the vertical axis.
    #[must_use]
    pub fn to_text(&self, width: usize, height: usize) -> Option<String> {
        let positions = self.positions()?;
        let (x, y) = self.frames(&positions);
        let (height, y) = with_even_rows(height.max(4), y);
        let width = width.max(16);
        let plane = if positions.len() == 1 {
            braille(&positions[0], (&x, &y), width, height)
        } else {
            letters(&positions, (&x, &y), width, height)
        };
        let mut text = format!("{}\n", self.title);
        if positions.len() > 1 {
            for (number, series) in self.series.iter().enumerate() {
                text.push(' ');
                text.push(LETTERS[number % LETTERS.len()]);
                text.push(' ');
                text.push_str(&series.name);
            }
            text.push('\n');
        }
        text.push_str(&self.y.heading());
        text.push('\n');
        self.push_rows(&mut text, &plane, &y);
        self.push_foot(&mut text, &x, &y, width);
        Some(text)
    }

    /// Appends the rows of the plane, each after its mark on the vertical axis.
    fn push_rows(&self, text: &mut String, plane: &[String], y: &Frame) {
        let margin = self.margin(y);
        let mut labels = vec![String::new(); plane.len()];
        for mark in &y.marks {
            let row = plane.len() - 1 - cell(*mark, y, plane.len());
            // In a low chart two marks may share a row; the upper one is kept.
            if labels[row].is_empty() {
                labels[row] = self.y.label(*mark);
            }
        }
        for (label, row) in labels.iter().zip(plane) {
            let edge = if label.is_empty() { '|' } else { '+' };
            let line = format!("{label:>margin$} {edge}{row}");
            text.push_str(line.trim_end());
            text.push('\n');
        }
    }

    /// Appends the horizontal axis, with the marks whose labels fit, and its heading.
    fn push_foot(&self, text: &mut String, x: &Frame, y: &Frame, width: usize) {
        let margin = self.margin(y);
        let mut rule = vec!['-'; width];
        let mut labels = String::new();
        for mark in &x.marks {
            let column = cell(*mark, x, width);
            let label = self.x.label(*mark);
            // The label is centered below its mark, but stays inside the plane.
            let begin =
                column.saturating_sub(label.len() / 2).min(width.saturating_sub(label.len()));
            if labels.is_empty() || begin > labels.len() {
                rule[column] = '+';
                labels.push_str(&" ".repeat(begin - labels.len()));
                labels.push_str(&label);
            }
        }
        let rule: String = rule.into_iter().collect();
        let heading = self.x.heading();
        let blank = " ".repeat(margin + 2);
        let before = " ".repeat(width.saturating_sub(heading.len()) / 2);
        let lines = [format!("{} +{rule}", " ".repeat(margin)), blank.clone() + &labels];
        for line in lines.into_iter().chain([blank + &before + &heading]) {
            text.push_str(line.trim_end());
            text.push('\n');
        }
    }

    fn margin(&self, y: &Frame) -> usize {
        y.marks.iter().map(|mark| self.y.label(*mark).len()).max().unwrap_or(1)
    }
}

/// Makes the rows between two marks equally many, in a plane of at most `height` rows: returns its
/// height, and extends the frame to whole rows.
fn with_even_rows(height: usize, mut y: Frame) -> (usize, Frame) {
    let [first, second, ..] = y.marks[..] else { return (height, y) };
    let step = second - first;
    let steps = (y.high - y.low) / step;
    let rows_per_step = (count_f64(height - 1) / steps).floor();
    if first > y.low || rows_per_step < 1.0 {
        return (height, y);
    }
    let spans = (2..height).find(|it| count_f64(*it) >= rows_per_step * steps);
    let spans = spans.unwrap_or(height - 1);
    y.high = y.low + step * count_f64(spans) / rows_per_step;
    (spans + 1, y)
}

/// Returns the cell, of `count`, that contains a position on the axis.
fn cell(position: f64, frame: &Frame, count: usize) -> usize {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a chart has few cells"
    )]
    let cell = (frame.fraction(position) * (count - 1) as f64).round() as usize;
    cell
}

/// Calls `dot` with the column and row (from below) of every cell on the lines between the points.
fn trace(
    points: &[(f64, f64)],
    (x, y): (&Frame, &Frame),
    (columns, rows): (usize, usize),
    mut dot: impl FnMut(usize, usize),
) {
    let cell_of = |(horizontal, vertical): (f64, f64)| {
        (cell(horizontal, x, columns), cell(vertical, y, rows))
    };
    if let [only] = points {
        let (column, row) = cell_of(*only);
        dot(column, row);
    }
    for pair in points.windows(2) {
        let (from, to) = (cell_of(pair[0]), cell_of(pair[1]));
        let steps = from.0.abs_diff(to.0).max(from.1.abs_diff(to.1)).max(1);
        for step in 0..=steps {
            #[expect(clippy::cast_precision_loss, reason = "a chart has few cells")]
            let fraction = step as f64 / steps as f64;
            let interpolate = |from: f64, to: f64| from + (to - from) * fraction;
            let point = (interpolate(pair[0].0, pair[1].0), interpolate(pair[0].1, pair[1].1));
            let (column, row) = cell_of(point);
            dot(column, row);
        }
    }
}

fn braille(
    points: &[(f64, f64)],
    frames: (&Frame, &Frame),
    width: usize,
    height: usize,
) -> Vec<String> {
    let mut bits = vec![vec![0_u32; width]; height];
    trace(points, frames, (width * 2, height * 4), |column, row| {
        let from_top = height * 4 - 1 - row;
        bits[from_top / 4][column / 2] |= DOTS[from_top % 4][column % 2];
    });
    let pattern = |bits: &u32| match bits {
        0 => ' ',
        bits => char::from_u32(BRAILLE + bits).expect("256 patterns"),
    };
    bits.iter().map(|row| row.iter().map(pattern).collect()).collect()
}

fn letters(
    positions: &[Vec<(f64, f64)>],
    frames: (&Frame, &Frame),
    width: usize,
    height: usize,
) -> Vec<String> {
    let mut plane = vec![vec![' '; width]; height];
    // The first series is drawn last, so its letter is visible where lines cross.
    for (number, points) in positions.iter().enumerate().rev() {
        trace(points, frames, (width, height), |column, row| {
            plane[height - 1 - row][column] = LETTERS[number % LETTERS.len()];
        });
    }
    plane.iter().map(|row| row.iter().collect()).collect()
}
