//! Pages: one file of HTML that needs nothing else, in light and dark, on paper too.
//!
//! Invariants: every text that comes from outside is escaped; the JSON form of what is shown is
//! part of the page, in a script element that no browser runs, so that the numbers can be taken out
//! again. No script runs, and nothing is fetched.

pub(crate) mod plot;
mod style;

use crate::escape::{html as escape, line};
use crate::table::{Column, Table};

/// A page with a title, a body of HTML and the data that it shows.
pub(crate) fn page(title: &str, body: &str, data: &serde_json::Value) -> String {
    // A "<" can end a script element; in JSON it may be written so as well. The page may be printed
    // on a terminal.
    let json = line(&data.to_string()).replace('<', "\\u003c");
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<meta \
         name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>{}</title>\n\
         <style>{}</style>\n</head>\n<body>\n<main>\n{body}</main>\n<script \
         type=\"application/json\" id=\"data\">{json}</script>\n</body>\n</html>\n",
        escape(title),
        style::CSS
    )
}

/// A figure for those who look for one number first; all text is escaped here.
pub(crate) fn card(title: &str, value: &str, note: &str) -> String {
    let (title, value, note) = (escape(title), escape(value), escape(note));
    format!("<div class=\"card\"><h3>{title}</h3><p>{value}</p><small>{note}</small></div>\n")
}

/// A table as HTML.
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
