//! HTML reports: one self-contained file, with light, dark and print styles.
//!
//! Invariants: all foreign text is escaped; the page contains its data as JSON, in a script element
//! that browsers do not execute, so that programs can extract the numbers. The page executes no
//! script and loads no other file.

mod style;

pub(crate) use style::CSS;

use crate::escape::{html as escape, line};
use crate::table::{Column, Table};

/// Returns a page with a title, an HTML body and the data that it shows.
pub(crate) fn page(title: &str, body: &str, data: &serde_json::Value) -> String {
    // "<" may end a script element; JSON has an escape for it. `line` escapes control characters,
    // since a user may print the page on a terminal.
    let json = line(&data.to_string()).replace('<', "\\u003c");
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<meta \
         name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>{}</title>\n\
         <style>{}</style>\n</head>\n<body>\n<main>\n{body}</main>\n<script \
         type=\"application/json\" id=\"data\">{json}</script>\n</body>\n</html>\n",
        escape(title),
        CSS
    )
}

/// Returns prominent single figures with title, value and note; escapes all their text.
pub(crate) fn cards<'a>(cards: impl IntoIterator<Item = (&'a str, String, String)>) -> String {
    let card = |(title, value, note): (&str, String, String)| {
        let (title, value, note) = (escape(title), escape(&value), escape(&note));
        format!("<div class=\"card\"><h3>{title}</h3><p>{value}</p><small>{note}</small></div>\n")
    };
    let cards: String = cards.into_iter().map(card).collect();
    format!("<div class=\"cards\">\n{cards}</div>\n")
}

/// Returns a section with a heading, which is escaped.
pub(crate) fn section(title: &str, body: &str) -> String {
    format!("<section>\n<h2>{}</h2>\n{body}</section>\n", escape(title))
}

/// Returns a drawing with its caption in HTML.
pub(crate) fn figure(svg: &str, caption: &str) -> String {
    format!("<figure>\n{svg}<figcaption>{caption}</figcaption>\n</figure>\n")
}

/// Returns a list of sentences, which are escaped.
pub(crate) fn list<'a>(sentences: impl IntoIterator<Item = &'a String>) -> String {
    let item = |sentence: &String| format!("<li>{}</li>\n", escape(sentence));
    let items: String = sentences.into_iter().map(item).collect();
    format!("<ul>\n{items}</ul>\n")
}

/// Renders a table as HTML.
pub(crate) fn html_table(table: &Table) -> String {
    let mut text = String::from("<div class=\"wide\"><table>\n<thead><tr>");
    let class = |column: &Column| if column.is_right() { " class=\"number\"" } else { "" };
    for column in table.columns() {
        put!(text, "<th{}>{}</th>", class(column), escape(&column.heading()));
    }
    text.push_str("</tr></thead>\n<tbody>\n");
    for row in table.rows() {
        text.push_str("<tr>");
        for (column, cell) in table.columns().iter().zip(row) {
            put!(text, "<td{}>{}</td>", class(column), escape(cell.as_shown()));
        }
        text.push_str("</tr>\n");
    }
    text.push_str("</tbody>\n</table></div>\n");
    text
}
