//! Tables: the same rows as plain text, Markdown, JSON and CSV.
//!
//! A column has a key (for JSON and CSV, with the unit in its name: `read_bytes`) and a title
//! (for users). A cell contains a value and its formatted text, so programs get numbers and
//! users get `12.8 ms`. Invariants: every row has one cell per column; cells and headings are
//! escaped in text, Markdown and CSV. Cells have the unit of their column.

mod text;

pub use text::fit_terminal;
pub(crate) use text::line_width;

use crate::escape;
use larder_schema::{as_u64, format};
use serde_json::{Map, Value, json};
use std::borrow::Cow;
use std::path::Path;

/// A column of a [`Table`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    key: String,
    title: String,
    is_right_aligned: bool,
}

impl Column {
    /// Creates a left-aligned column of text.
    pub fn words(key: impl Into<String>, title: impl Into<String>) -> Self {
        Column { key: key.into(), title: title.into(), is_right_aligned: false }
    }

    /// Creates a right-aligned column of numbers.
    pub fn numbers(key: impl Into<String>, title: impl Into<String>) -> Self {
        Column { is_right_aligned: true, ..Column::words(key, title) }
    }

    pub(crate) fn is_right(&self) -> bool {
        self.is_right_aligned
    }

    pub(crate) fn heading(&self) -> Cow<'_, str> {
        escape::text(&self.title)
    }
}

/// A value and its formatted text.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    value: Value,
    shown: String,
}

/// Defines constructors of cells from one value, which is missing if it is `None`.
macro_rules! cells {
    ($($(#[$doc:meta])* $name:ident($type:ty) => $format:expr;)*) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $name(value: impl Into<Option<$type>>) -> Self {
            value.into().map_or_else(Cell::missing, |value| Cell::shown(value, ($format)(value)))
        }
    )*};
}

impl Cell {
    cells! {
        /// Creates a cell with a whole number, formatted with separators.
        count(u64) => format::count;
        /// Creates a cell with bytes, formatted in binary units.
        bytes(u64) => format::bytes;
        /// Creates a cell with nanoseconds, formatted in a suitable unit.
        duration(u64) => format::duration;
        /// Creates a cell with a number, formatted with three digits.
        number(f64) => format::number;
        /// Creates a cell with a share from 0 to 1, formatted as a percentage.
        percent(f64) => format::percent;
        /// Creates a cell with a mean number of bytes, formatted in binary units.
        mean_bytes(f64) => |bytes| format::bytes(as_u64(bytes));
        /// Creates a cell with seconds, formatted in a suitable unit.
        seconds(f64) => |seconds| format::duration(as_u64(seconds * 1e9));
    }

    /// Creates a cell with a name or word.
    pub fn word(text: impl Into<String>) -> Self {
        let text = text.into();
        let shown = escape::text(&text).into_owned();
        Cell { value: Value::from(text), shown }
    }

    /// Creates a cell with a path. In JSON it is text, with U+FFFD for bytes that are not UTF-8.
    #[must_use]
    pub fn path(path: &Path) -> Self {
        let value = Value::from(path.to_string_lossy());
        Cell { value, shown: escape::path(path).into_owned() }
    }

    /// Creates a cell with a number and the caller's text; a missing value if it is not finite.
    pub fn shown(value: impl Into<Value>, shown: impl Into<String>) -> Self {
        match value.into() {
            Value::Null => Cell::missing(),
            value => Cell { value, shown: escape::text(&shown.into()).into_owned() },
        }
    }

    /// Creates a cell without a value: `-` in text, `null` in JSON, empty in CSV.
    #[must_use]
    pub fn missing() -> Self {
        Cell { value: Value::Null, shown: "-".to_owned() }
    }

    pub(crate) fn as_shown(&self) -> &str {
        &self.shown
    }
}

/// A column, and its cell in the row of a `T`.
pub(crate) struct Field<T> {
    column: Column,
    cell: Box<dyn Fn(&T) -> Cell>,
}

/// Defines constructors of fields with right-aligned numbers.
macro_rules! fields {
    ($($name:ident($type:ty),)*) => {$(
        pub(crate) fn $name<R: Into<Option<$type>> + 'static>(
            key: &str,
            title: &str,
            value: fn(&T) -> R,
        ) -> Self {
            Field::of(Column::numbers(key, title), move |row| Cell::$name(value(row)))
        }
    )*};
}

impl<T: 'static> Field<T> {
    fields! {
        count(u64), bytes(u64), duration(u64), number(f64), percent(f64), mean_bytes(f64),
        seconds(f64),
    }

    pub(crate) fn of(column: Column, cell: impl Fn(&T) -> Cell + 'static) -> Self {
        Field { column, cell: Box::new(cell) }
    }

    /// Creates a left-aligned field with text of the row.
    pub(crate) fn word(key: &str, title: &str, word: fn(&T) -> &str) -> Self {
        Field::of(Column::words(key, title), move |row| Cell::word(word(row)))
    }

    /// Creates a left-aligned field with text that is made for the row.
    pub(crate) fn text(key: &str, title: &str, text: fn(&T) -> String) -> Self {
        Field::of(Column::words(key, title), move |row| Cell::word(text(row)))
    }
}

/// Rows under named columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    title: String,
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// Creates a table without rows. An empty title is not shown.
    pub fn new(title: impl Into<String>, columns: impl IntoIterator<Item = Column>) -> Self {
        let columns: Vec<Column> = columns.into_iter().collect();
        assert!(!columns.is_empty(), "a table with columns");
        Table { title: title.into(), columns, rows: Vec::new() }
    }

    /// Creates a table with a row for each item.
    pub(crate) fn of<'a, T: 'a>(
        title: &str,
        items: impl IntoIterator<Item = &'a T>,
        fields: impl IntoIterator<Item = Field<T>>,
    ) -> Self {
        let (columns, cells): (Vec<Column>, Vec<_>) =
            fields.into_iter().map(|field| (field.column, field.cell)).unzip();
        let row = |item: &T| cells.iter().map(|cell| cell(item)).collect();
        Table { title: title.into(), columns, rows: items.into_iter().map(row).collect() }
    }

    /// Adds a row with one cell per column.
    pub fn push(&mut self, row: impl IntoIterator<Item = Cell>) {
        let row: Vec<Cell> = row.into_iter().collect();
        assert_eq!(row.len(), self.columns.len(), "one cell for each column of {:?}", self.title);
        self.rows.push(row);
    }

    pub(crate) fn title(&self) -> &str {
        &self.title
    }

    pub(crate) fn columns(&self) -> &[Column] {
        &self.columns
    }

    pub(crate) fn rows(&self) -> &[Vec<Cell>] {
        &self.rows
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns true if the table has no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Renders a Markdown table, with the title as a paragraph in bold.
    #[must_use]
    pub fn to_markdown(&self) -> String {
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let escaped = |text: &str| text.replace('|', "\\|");
        let mut text = String::new();
        if !self.title.is_empty() {
            text.push_str("**");
            text.push_str(&self.title);
            text.push_str("**\n\n");
        }
        text.push_str(&line(self.columns.iter().map(|c| escaped(&c.heading())).collect()));
        let rule =
            |column: &Column| if column.is_right_aligned { "---:" } else { "---" }.to_owned();
        text.push_str(&line(self.columns.iter().map(rule).collect()));
        for row in &self.rows {
            text.push_str(&line(row.iter().map(|cell| escaped(&cell.shown)).collect()));
        }
        text
    }

    /// Returns `{title, columns: [{key, title, unit}], rows: [{key: value}]}` with plain numbers.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let column = |it: &Column| json!({"key": it.key, "title": it.title, "unit": null});
        let columns: Vec<Value> = self.columns.iter().map(column).collect();
        let row = |row: &Vec<Cell>| {
            let pairs = self.columns.iter().zip(row);
            pairs.map(|(column, cell)| (column.key.clone(), cell.value.clone())).collect()
        };
        let rows: Vec<Map<String, Value>> = self.rows.iter().map(row).collect();
        json!({"title": self.title, "columns": columns, "rows": rows})
    }

    /// Renders CSV as in RFC 4180, except for plain line feeds: the keys, then plain numbers.
    #[must_use]
    pub fn to_csv(&self) -> String {
        let keys: Vec<String> = self.columns.iter().map(|column| csv_field(&column.key)).collect();
        let mut text = keys.join(",") + "\n";
        for row in &self.rows {
            let fields: Vec<String> = row.iter().map(|cell| csv_value(&cell.value)).collect();
            text.push_str(&fields.join(","));
            text.push('\n');
        }
        text
    }
}

fn csv_value(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => csv_field(text),
        other => other.to_string(),
    }
}

fn csv_field(text: &str) -> String {
    let text = escape::text(text);
    if text.contains([',', '"']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let columns = [
            Column::words("volume", "volume"),
            Column::numbers("reads", "reads"),
            Column::numbers("mean_ns", "mean"),
            Column::numbers("hit_ratio", "hits"),
        ];
        let mut table = Table::new("What was read", columns);
        table.push([
            Cell::word("a|b, c"),
            Cell::count(1_234_567),
            Cell::duration(12_800_000),
            Cell::percent(0.61),
        ]);
        table.push([Cell::word("d"), Cell::count(7), Cell::missing(), Cell::number(f64::NAN)]);
        table
    }

    #[test]
    fn text_aligns_numbers_to_the_right() {
        let known = "What was read\n\n\
                     volume      reads     mean    hits\n\
                     ----------------------------------\n\
                     a|b, c  1,234,567  12.8 ms  61.0 %\n\
                     d               7        -       -\n";
        assert_eq!(table().to_text(), known);
    }

    #[test]
    fn markdown_escapes_what_would_end_a_cell() {
        let known = "**What was read**\n\n\
                     | volume | reads | mean | hits |\n\
                     | --- | ---: | ---: | ---: |\n\
                     | a\\|b, c | 1,234,567 | 12.8 ms | 61.0 % |\n\
                     | d | 7 | - | - |\n";
        assert_eq!(table().to_markdown(), known);
    }

    #[test]
    fn machines_get_plain_numbers() {
        let json = table().to_json();
        assert_eq!(json["rows"][0]["mean_ns"], 12_800_000);
        assert_eq!(json["rows"][1]["mean_ns"], Value::Null);
        let known = "volume,reads,mean_ns,hit_ratio\n\"a|b, c\",1234567,12800000,0.61\nd,7,,\n";
        assert_eq!(table().to_csv(), known);
        assert_eq!(csv_field("say \"x\""), "\"say \"\"x\"\"\"");
    }

    #[test]
    #[should_panic(expected = "one cell for each column")]
    fn a_row_with_a_cell_missing_is_refused() {
        table().push([Cell::word("x")]);
    }
}
