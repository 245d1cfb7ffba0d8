//! Series of a group with two coordinates, such as the sizes of files and records, as a table
//! whose cells are the darker, the higher their values.

use crate::escape::html as escape;
use crate::quantity::quantity;
use crate::setting::coordinate;
use crate::stats::median;
use larder_schema::as_u64;
use larder_schema::run::Sample;

/// Number of shades.
const SHADES: f64 = 7.0;

/// Medians by two coordinates.
#[derive(Debug)]
pub(super) struct Grid<'a> {
    /// Names of the coordinates of rows and of columns.
    pub(super) names: [&'a str; 2],
    /// Coordinates of the rows, rising.
    pub(super) rows: Vec<f64>,
    /// Coordinates of the columns, rising.
    pub(super) columns: Vec<f64>,
    /// Medians by row and column; `None` if not measured.
    pub(super) medians: Vec<Vec<Option<f64>>>,
    /// Unit of the medians.
    pub(super) unit: &'a str,
}

impl<'a> Grid<'a> {
    /// Arranges series that have two coordinates of the same names.
    pub(super) fn new(samples: &[&'a Sample]) -> Option<Self> {
        let first = samples.first()?;
        let mut names = first.at.keys().map(String::as_str);
        let names = [names.next()?, names.next()?];
        let [rows, columns] = names.map(|name| coordinates(samples, name));
        let mut medians = vec![vec![None; columns.len()]; rows.len()];
        for sample in samples {
            let index = |values: &[f64], name: &str| {
                let at = sample.at.get(name)?;
                values.iter().position(|value| value.total_cmp(at).is_eq())
            };
            let (row, column) = (index(&rows, names[0])?, index(&columns, names[1])?);
            medians[row][column] = median(&sample.values);
        }
        Some(Grid { names, rows, columns, medians, unit: &first.unit })
    }

    /// Returns the name of a column for readers.
    pub(super) fn column_name(&self, column: usize) -> String {
        coordinate(self.names[1], self.columns[column])
    }

    /// Renders the table.
    pub(super) fn to_html(&self) -> String {
        let highest = self.medians.iter().flatten().flatten().copied().fold(0.0, f64::max);
        let mut text = String::from("<table class=\"map\">\n<thead><tr><td></td>");
        for column in 0..self.columns.len() {
            let name = escape(&self.column_name(column));
            put!(text, "<th scope=\"col\" class=\"number\">{name}</th>");
        }
        text.push_str("</tr></thead>\n<tbody>\n");
        for (row, values) in self.rows.iter().zip(&self.medians) {
            let name = escape(&coordinate(self.names[0], *row));
            put!(text, "<tr><th scope=\"row\">{name}</th>");
            for value in values {
                match value {
                    Some(value) => {
                        let part = if highest > 0.0 { value / highest } else { 0.0 };
                        let shade = as_u64((part * SHADES).ceil().clamp(1.0, SHADES));
                        let shown = escape(&quantity(*value, self.unit));
                        put!(text, "<td class=\"s{shade}\">{shown}</td>");
                    }
                    None => text.push_str("<td></td>"),
                }
            }
            text.push_str("</tr>\n");
        }
        text + "</tbody>\n</table>\n"
    }
}

/// Returns the distinct values of a coordinate, rising.
fn coordinates(samples: &[&Sample], name: &str) -> Vec<f64> {
    let mut coordinates: Vec<f64> =
        samples.iter().filter_map(|sample| sample.at.get(name).copied()).collect();
    coordinates.sort_by(f64::total_cmp);
    coordinates.dedup_by(|a, b| a.total_cmp(b).is_eq());
    coordinates
}
