//! SVG rendering of a chart. Sizes are pixels.

use super::{Chart, ChartError, Frame};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint};
use plotters::prelude::*;

/// Colours that remain distinct with any colour vision (Okabe and Ito), darkest first.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(0, 0, 0),
];
const GRID: RGBColor = RGBColor(225, 225, 225);
const TEXT: RGBColor = RGBColor(60, 60, 60);
/// Maximum number of points of a series that are marked individually, because the lines between
/// sparse points are not measured.
const MARKED_POINTS_MAX: usize = 40;
/// Estimated width of a letter in a label, and height of the text below the x axis, in pixels.
const LETTER_WIDTH: usize = 8;
const FOOT: u32 = 52;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Plane<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Frame, Frame>>;
type Failure<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;

impl Chart {
    /// Renders the chart as an SVG document of `width` by `height` pixels, at least 160 by 120.
    ///
    /// # Errors
    /// No series has a drawable point.
    pub fn to_svg(&self, width: u32, height: u32) -> Result<String, ChartError> {
        let positions = self.positions()?;
        let mut text = String::new();
        {
            let size = (width.max(160), height.max(120));
            let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
            self.draw(&area, &positions).map_err(|failure| ChartError::Draw {
                title: self.title.clone(),
                reason: failure.to_string(),
            })?;
        }
        Ok(text)
    }

    fn draw<'a>(&self, area: &Area<'a>, positions: &[Vec<(f64, f64)>]) -> Result<(), Failure<'a>> {
        let (x, y) = self.frames(positions);
        let widest = y.marks.iter().map(|mark| self.y.label(*mark).len()).max().unwrap_or(1);
        let margin = u32::try_from(widest * LETTER_WIDTH).unwrap_or(0) + 28;
        let foot = FOOT;
        area.fill(&WHITE)?;
        let mut plane = ChartBuilder::on(area)
            .margin(12)
            .margin_right(28)
            .caption(&self.title, ("sans-serif", 20, &TEXT))
            .set_label_area_size(LabelAreaPosition::Left, margin)
            .set_label_area_size(LabelAreaPosition::Bottom, foot)
            .build_cartesian_2d(x, y)?;
        plane
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(TEXT)
            .label_style(("sans-serif", 15, &TEXT))
            .axis_desc_style(("sans-serif", 16, &TEXT))
            .x_label_formatter(&|position| self.x.label(*position))
            .y_label_formatter(&|position| self.y.label(*position))
            .x_desc(self.x.heading())
            .y_desc(self.y.heading())
            .draw()?;
        self.draw_lines(&mut plane, positions)?;
        if self.series.len() > 1 {
            plane
                .configure_series_labels()
                .position(self.legend_position(positions))
                .background_style(WHITE.mix(0.85))
                .border_style(GRID)
                .label_font(("sans-serif", 15, &TEXT))
                .draw()?;
        }
        area.present()
    }

    fn draw_lines<'b>(
        &self,
        plane: &mut Plane<'_, 'b>,
        positions: &[Vec<(f64, f64)>],
    ) -> Result<(), Failure<'b>> {
        for (number, (series, points)) in self.series.iter().zip(positions).enumerate() {
            let style = COLOURS[number % COLOURS.len()].stroke_width(2);
            let marks = if points.len() <= MARKED_POINTS_MAX { 3 } else { 0 };
            plane
                .draw_series(LineSeries::new(points.iter().copied(), style).point_size(marks))?
                .label(&series.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
        }
        Ok(())
    }

    /// Returns the corner of the plane with the fewest points.
    fn legend_position(&self, positions: &[Vec<(f64, f64)>]) -> SeriesLabelPosition {
        let (x, y) = self.frames(positions);
        let fraction = |value: f64, frame: &Frame| (value - frame.low) / (frame.high - frame.low);
        let corners = [
            (SeriesLabelPosition::UpperRight, 1.0, 1.0),
            (SeriesLabelPosition::LowerRight, 1.0, 0.0),
            (SeriesLabelPosition::UpperLeft, 0.0, 1.0),
            (SeriesLabelPosition::LowerLeft, 0.0, 0.0),
        ];
        let points_near = |(_, right, top): &(SeriesLabelPosition, f64, f64)| {
            let is_near = |(horizontal, vertical): &&(f64, f64)| {
                (fraction(*horizontal, &x) - right).abs() < 0.4
                    && (fraction(*vertical, &y) - top).abs() < 0.4
            };
            positions.iter().flatten().filter(is_near).count()
        };
        corners.into_iter().min_by_key(points_near).expect("four corners").0
    }
}

impl Ranged for Frame {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, position: &f64, (first, last): (i32, i32)) -> i32 {
        let fraction = ((position - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        #[expect(clippy::cast_possible_truncation, reason = "a pixel")]
        let pixels = (fraction * f64::from(last - first)).round() as i32;
        first + pixels
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.marks.clone()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.low..self.high
    }
}
