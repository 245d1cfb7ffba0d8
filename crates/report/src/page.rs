//! HTML reports: one self-contained file, with light, dark and print styles.
//!
//! A report has the answer first: a head with the verdict and the figures that carry it, then a
//! section for each question, then details, which are folded.
//!
//! Invariants: all foreign text is escaped; the page contains its data as JSON, unless that is
//! longer than 128 KiB, in a script element that browsers do not execute, so that programs can
//! extract the numbers. The page executes no script and loads no other file. Charts and tables that
//! are wider than the screen scroll on their own.

mod style;

pub(crate) use style::CSS;

use crate::escape::{html as escape, line};
use crate::table::{Column, Table};
use larder_schema::format;
use larder_schema::watch::Finding;
use std::collections::BTreeSet;

/// Width of a chart, in pixels.
pub(crate) const WIDE: f64 = 760.0;
/// Width of the same chart on a narrow screen.
const NARROW: f64 = 360.0;
/// Maximum length of the embedded data, so that a page remains quick to load.
const DATA_BYTES_MAX: usize = 128 << 10;
/// Replacement of longer data.
const DATA_OMITTED: &str =
    r#"{"omitted": "the record from which this page was made has the data"}"#;
/// Units that stay on the line of their number.
const UNITS: [&str; 16] = [
    "%", "B", "KiB", "MiB", "GiB", "TiB", "KiB/s", "MiB/s", "GiB/s", "ns", "us", "ms", "s", "min",
    "h", "MB/s",
];
/// Minimum number of columns of a table that narrow screens show as a list of its rows.
const COLUMNS_MIN: usize = 4;
/// Maximum number of rows of a table before the others are folded.
const ROWS_MAX: usize = 10;
/// Number of rows that a longer table shows.
const ROWS_SHOWN: usize = 7;

/// The head of a report.
#[derive(Debug, Default)]
pub(crate) struct Head {
    /// The command that made the data.
    pub(crate) kind: String,
    /// The answer: one sentence with its figures.
    pub(crate) verdict: String,
    /// At most four figures that carry the answer.
    pub(crate) cards: Vec<Card>,
    /// The subject and its circumstances, a sentence each.
    pub(crate) subject: Vec<String>,
}

/// A prominent single figure.
#[derive(Debug)]
pub(crate) struct Card {
    title: String,
    value: String,
    note: String,
}

impl Card {
    pub(crate) fn new(
        title: impl Into<String>,
        value: impl Into<String>,
        note: impl Into<String>,
    ) -> Self {
        Card { title: title.into(), value: value.into(), note: note.into() }
    }

    /// Returns the card that states the confidence in a result.
    pub(crate) fn confidence(confidence: Confidence) -> Self {
        let (value, note) = match confidence {
            Confidence::Good(note) => ("good", note.to_owned()),
            Confidence::Doubtful(note) => ("doubtful", note),
            Confidence::Unknown(note) => ("unknown", note),
        };
        Card::new("Confidence", value, note)
    }
}

/// The confidence in a result, with its reason.
#[derive(Debug)]
pub(crate) enum Confidence {
    /// Nothing speaks against the result.
    Good(&'static str),
    /// Something limits the result.
    Doubtful(String),
    /// Too little is known for a statement.
    Unknown(String),
}

impl Confidence {
    /// Returns the confidence in a result with this number of doubts, which the page lists.
    pub(crate) fn of_doubts(count: usize) -> Self {
        match count as u64 {
            0 => Confidence::Good("no reason for doubt was found"),
            count => {
                let reasons = format::counted(count, "reason");
                Confidence::Doubtful(format!("for {reasons}, see below"))
            }
        }
    }
}

/// Sentences below the charts of a page, none of which is repeated.
#[derive(Debug, Default)]
pub(crate) struct Captions(BTreeSet<String>);

impl Captions {
    /// Returns the sentences that no earlier chart has.
    pub(crate) fn unseen(&mut self, sentences: &[&str]) -> String {
        let mut is_unseen = |sentence: &&&str| self.0.insert((**sentence).to_owned());
        let unseen: Vec<&str> = sentences.iter().filter(&mut is_unseen).copied().collect();
        unseen.join(" ")
    }
}

/// Returns a page with its head, an HTML body and the data that it shows.
pub(crate) fn page(head: &Head, body: &str, data: &serde_json::Value) -> String {
    // "<" may end a script element; JSON has an escape for it. `line` escapes control characters,
    // since a user may print the page on a terminal.
    let data = line(&data.to_string()).replace('<', "\\u003c");
    let json = if data.len() <= DATA_BYTES_MAX { &data } else { DATA_OMITTED };
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<meta \
         name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>{} - {}</title>\n<style>{CSS}</style>\n</head>\n<body>\n<main>\n{}{body}</main>\n\
         <script type=\"application/json\" id=\"data\">{json}</script>\n</body>\n</html>\n",
        escape(&head.verdict),
        escape(&head.kind),
        head_html(head)
    )
}

fn head_html(head: &Head) -> String {
    let mut text = format!(
        "<header>\n<p class=\"kind\">{}</p>\n<h1>{}</h1>\n</header>\n",
        escape(&head.kind),
        prose(&head.verdict)
    );
    if !head.cards.is_empty() {
        text.push_str("<dl class=\"cards\">\n");
        for Card { title, value, note } in &head.cards {
            let (title, value, note) = (escape(title), value_html(value), prose(note));
            put_line!(
                text,
                "<div class=\"card\"><dt>{title}</dt><dd class=\"value\">{value}</dd>\
                 <dd class=\"note\">{note}</dd></div>"
            );
        }
        text.push_str("</dl>\n");
    }
    for sentence in head.subject.iter().filter(|sentence| !sentence.is_empty()) {
        put_line!(text, "<p class=\"subject\">{}</p>", prose(sentence));
    }
    text
}

/// Returns escaped text in which no line ends between a number and its unit.
pub(crate) fn prose(text: &str) -> String {
    let mut whole = String::with_capacity(text.len());
    for word in text.split_inclusive(' ') {
        let unit = word.trim_end_matches([' ', ',', '.', ';', ':', ')']);
        let before = whole.strip_suffix(' ').filter(|_| UNITS.contains(&unit));
        if before.is_some_and(|it| it.ends_with(|last: char| last.is_ascii_digit())) {
            whole.pop();
            whole.push('\u{a0}');
        }
        whole.push_str(word);
    }
    escape(&whole).replace('\u{a0}', "&#160;")
}

/// Returns the value of a card, with a long unit such as transactions/s in small letters.
fn value_html(value: &str) -> String {
    match value.split_once(' ') {
        Some((number, unit)) if unit.contains('/') && !unit.contains(' ') => {
            format!("{} <span class=\"unit\">{}</span>", escape(number), escape(unit))
        }
        _ => escape(value),
    }
}

/// Returns a section with a heading, which is escaped.
pub(crate) fn section(title: &str, body: &str) -> String {
    format!("<section>\n<h2>{}</h2>\n{body}</section>\n", escape(title))
}

/// Returns a marked section of sentences that limit the confidence, which are escaped; nothing
/// without sentences.
pub(crate) fn doubts<'a>(title: &str, sentences: impl IntoIterator<Item = &'a String>) -> String {
    let items = list(sentences);
    if items.is_empty() {
        return items;
    }
    format!("<section class=\"doubts\">\n<h2>{}</h2>\n{items}</section>\n", escape(title))
}

/// Returns the section of findings; nothing without findings.
pub(crate) fn findings(findings: &[Finding]) -> String {
    if findings.is_empty() {
        return String::new();
    }
    let text = escape(&crate::findings::to_text(findings));
    section("Findings", &format!("<pre>{text}</pre>\n"))
}

/// Returns details that are folded behind their title, which is escaped; nothing without a body.
pub(crate) fn details(title: &str, body: &str) -> String {
    if body.is_empty() {
        return String::new();
    }
    format!("<details>\n<summary>{}</summary>\n{body}</details>\n", escape(title))
}

/// Returns a chart with its caption, which is escaped, and its data as a folded table if no table
/// beside it has them. `draw` returns the SVG element of this width; the page shows the one that
/// fits the screen.
pub(crate) fn figure(draw: impl Fn(f64) -> String, caption: &str, data: Option<&Table>) -> String {
    let for_screen =
        |width, class| draw(width).replacen("<svg ", &format!("<svg class=\"{class}\" "), 1);
    let svg = for_screen(WIDE, "page") + &for_screen(NARROW, "phone");
    let caption = match caption {
        "" => String::new(),
        caption => format!("<figcaption>{}</figcaption>\n", prose(caption)),
    };
    let data = data.map_or_else(String::new, |table| details("Data", &all_rows(table)));
    format!("<figure>\n{}{caption}</figure>\n{data}", scrolling("Chart", &svg))
}

/// Returns the key of a chart: the class of each line, and its name, which is escaped.
pub(crate) fn key(lines: &[(String, String)]) -> String {
    let entry = |(class, name): &(String, String)| {
        format!("<span class=\"entry\"><span class=\"key {class}\"></span>{}</span> ", prose(name))
    };
    format!("<p class=\"keys\">{}</p>\n", lines.iter().map(entry).collect::<String>())
}

/// Returns the key of areas: the class of each, and its name, which is escaped.
pub(crate) fn area_key(areas: &[(&str, &str)]) -> String {
    let entry = |(class, name): &(&str, &str)| {
        format!(
            "<span class=\"entry\"><svg class=\"area\" width=\"14\" height=\"14\" \
             aria-hidden=\"true\"><rect class=\"{class}\" width=\"14\" height=\"14\"/></svg>{}\
             </span> ",
            prose(name)
        )
    };
    format!("<p class=\"keys\">{}</p>\n", areas.iter().map(entry).collect::<String>())
}

/// Returns content that scrolls on its own if the screen is too narrow for it, also by keyboard.
pub(crate) fn scrolling(label: &str, content: &str) -> String {
    format!(
        "<div class=\"wide\" tabindex=\"0\" role=\"group\" aria-label=\"{}\">\n{content}</div>\n",
        escape(label)
    )
}

/// Returns a list of sentences, which are escaped; nothing without sentences.
pub(crate) fn list<'a>(sentences: impl IntoIterator<Item = &'a String>) -> String {
    let item = |sentence: &String| format!("<li>{}</li>\n", prose(sentence));
    let items: String = sentences.into_iter().map(item).collect();
    if items.is_empty() { items } else { format!("<ul>\n{items}</ul>\n") }
}

/// Renders a table as HTML; the rows of a long one are folded after the first.
pub(crate) fn html_table(table: &Table) -> String {
    if table.len() <= ROWS_MAX {
        return all_rows(table);
    }
    let title = format!("{} rows", format::count(table.len() as u64));
    rows(table, ROWS_SHOWN) + &details(&title, &all_rows(table))
}

/// Renders all rows of a table.
pub(crate) fn all_rows(table: &Table) -> String {
    rows(table, table.len())
}

fn rows(table: &Table, count: usize) -> String {
    let is_list = table.columns().len() >= COLUMNS_MIN;
    let opening = if is_list { "<table class=\"rows\">" } else { "<table>" };
    let mut text = format!("{opening}\n<thead><tr>");
    let class = |column: &Column| if column.is_right() { " class=\"number\"" } else { "" };
    let attributes = |column: &Column| match escape(&column.heading()) {
        title if is_list && !title.is_empty() => {
            format!("{} data-title=\"{title}\"", class(column))
        }
        _ => class(column).to_owned(),
    };
    let attributes: Vec<String> = table.columns().iter().map(attributes).collect();
    for column in table.columns() {
        put!(text, "<th scope=\"col\"{}>{}</th>", class(column), escape(&column.heading()));
    }
    text.push_str("</tr></thead>\n<tbody>\n");
    for row in table.rows().iter().take(count) {
        text.push_str("<tr>");
        for (attributes, cell) in attributes.iter().zip(row) {
            put!(text, "<td{attributes}>{}</td>", escape(cell.as_shown()));
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</tbody>\n</table>\n");
    let label = if table.title().is_empty() { "Table" } else { table.title() };
    scrolling(label, &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_and_its_unit_are_on_one_line() {
        for (text, expected) in [
            ("52.9 % of 3 MiB, 4 s later.", "52.9&#160;% of 3&#160;MiB, 4&#160;s later."),
            ("(10 ms) in 3 trials of a s", "(10&#160;ms) in 3 trials of a s"),
            ("% 5  % <5 %>", "% 5  % &lt;5 %&gt;"),
        ] {
            assert_eq!(prose(text), expected);
        }
    }

    #[test]
    fn the_cells_of_a_wide_table_have_the_titles_of_their_columns() {
        let table = |columns: &[&str]| {
            let mut table = Table::new("", columns.iter().map(|it| Column::words(*it, *it)));
            table.push(columns.iter().map(|_| crate::table::Cell::word("x")));
            all_rows(&table)
        };
        let wide = table(&["", "a\"b", "c", "d"]);
        assert!(wide.contains("<tr><td>x</td><td data-title=\"a&quot;b\">x</td>"), "{wide}");
        assert!(wide.contains("<table class=\"rows\">"), "{wide}");
        assert!(!table(&["a", "b", "c"]).contains("data-title"));
    }
}
