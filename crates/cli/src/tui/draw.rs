//! Drawing: a line of memory, the views, the grid, and the keys. Readable from 80 by 24 on: columns
//! that have no room are left out from the right, names are cut at their front.

use super::snapshot::{Grid, TopSnapshot, Value, View};
use super::state::State;
use larder_report::escape;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table};

/// The first column, the one of names, is never narrower.
const NAME_MIN: usize = 20;
/// Other columns of words are never wider.
const WORD_MAX: usize = 24;
/// Blanks between columns.
const GAP: usize = 2;
const KEYS: &str = "1-5 Tab view  s r sort  / filter  Space freeze  w record  q quit";

/// Draws a picture as the user wants it.
pub(crate) fn draw(frame: &mut Frame<'_>, picture: &TopSnapshot, state: &State) {
    let grid = picture.grid(state.view);
    let note = status_line(grid, state, frame.area());
    let note_lines = wrapped(&escape::line(&note), frame.area().width);
    let [memory, tabs, table, said, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(u16::try_from(note_lines.len()).unwrap_or(u16::MAX)),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(escape::line(&picture.memory)), memory);
    draw_views(frame, tabs, picture, state);
    draw_grid(frame, table, grid, state);
    let said_lines: Vec<Line<'_>> = note_lines.into_iter().map(Line::from).collect();
    frame.render_widget(Paragraph::new(said_lines).dim(), said);
    let bottom = if state.typing {
        let filter = escape::line(state.filter());
        Line::from(format!("/{filter}_   Enter keeps it, Esc forgets it"))
    } else if let Some(said) = &state.said {
        Line::from(escape::line(said)).bold()
    } else {
        Line::from(KEYS).dim()
    };
    frame.render_widget(Paragraph::new(bottom), keys);
}

/// What is said of a grid, and of a column of it if that is shown.
fn status_line(grid: &Grid, state: &State, area: Rect) -> String {
    let note = grid.note.clone().unwrap_or_default();
    match grid.of_column {
        Some((title, words)) if is_shown(grid, state, title, area) => format!("{note} {words}"),
        _ => note,
    }
}

/// Whether a column has room.
fn is_shown(grid: &Grid, state: &State, title: &str, area: Rect) -> bool {
    let Shown { kept, .. } = shown(grid, state, area);
    kept.iter().any(|&(place, _)| grid.columns[place] == title)
}

/// A sentence in lines of this width, cut between words.
fn wrapped(text: &str, width: u16) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= usize::from(width) => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// The views, the filter, and the state. The state is there as a whole; where there is no room for
/// the rest, views that are not shown lose their counts, and then the filter its end.
fn draw_views(frame: &mut Frame<'_>, area: Rect, picture: &TopSnapshot, state: &State) {
    let said = Line::from(doing(state)).bold();
    let room = usize::from(area.width).saturating_sub(said.width());
    let whole = views(picture, state, true);
    let shown = if whole.width() <= room { whole } else { views(picture, state, false) };
    let width = u16::try_from(shown.width().min(room)).unwrap_or(u16::MAX);
    let [left, right] =
        Layout::horizontal([Constraint::Length(width), Constraint::Min(0)]).areas(area);
    frame.render_widget(Paragraph::new(shown), left);
    frame.render_widget(Paragraph::new(said), right);
}

/// What goes on beside looking.
fn doing(state: &State) -> &'static str {
    match (state.frozen, state.recording) {
        (false, false) => "",
        (true, false) => "  frozen",
        (false, true) => "  recording",
        (true, true) => "  frozen  recording",
    }
}

fn views(picture: &TopSnapshot, state: &State, counts: bool) -> Line<'static> {
    let mut spans = Vec::new();
    for (number, view) in (1..).zip(View::ALL) {
        let (is_shown, rows) = (view == state.view, picture.grid(view).rows.len());
        let count = if counts || is_shown { format!("{rows} ") } else { String::new() };
        let text = format!(" {number} {} {count}", view.name());
        spans.push(if is_shown { text.reversed() } else { Span::from(text) });
    }
    if !state.filter().is_empty() && !state.typing {
        spans.push(format!("  /{}", escape::line(state.filter())).bold());
    }
    Line::from(spans)
}

/// What of a grid is shown.
struct Shown {
    headings: Vec<String>,
    /// As text, and whether it is a word.
    rows: Vec<Vec<(String, bool)>>,
    /// Columns that are shown, and how wide.
    kept: Vec<(usize, usize)>,
}

/// What has room in an area.
fn shown(grid: &Grid, state: &State, area: Rect) -> Shown {
    let (sort, reverse) = state.sort(grid);
    let heading = |place: usize, title: &str| match (place == sort, reverse) {
        (true, false) => format!("{title} v"),
        (true, true) => format!("{title} ^"),
        _ => title.to_owned(),
    };
    let headings: Vec<String> =
        grid.columns.iter().enumerate().map(|(place, title)| heading(place, title)).collect();
    let height = usize::from(area.height.saturating_sub(1));
    let rows: Vec<Vec<(String, bool)>> = state
        .rows(grid)
        .into_iter()
        .skip(state.first())
        .take(height)
        .map(|row| row.iter().map(|value| (value.shown(), value.is_word())).collect())
        .collect();
    let kept = widths(&headings, &rows, usize::from(area.width), sort);
    Shown { headings, rows, kept }
}

fn draw_grid(frame: &mut Frame<'_>, area: Rect, grid: &Grid, state: &State) {
    let Shown { headings, rows, kept } = shown(grid, state, area);
    let cell = |width: usize, text: &str, word: bool| {
        Cell::from(if word { cut(text, width) } else { format!("{text:>width$}") })
    };
    let is_word = |place: usize| {
        let first = grid.rows.first().and_then(|row| row.get(place));
        place == 0 || first.is_some_and(Value::is_word)
    };
    let header =
        Row::new(kept.iter().map(|&(place, width)| cell(width, &headings[place], is_word(place))));
    let body = rows.iter().map(|row| {
        Row::new(kept.iter().map(|&(place, width)| {
            let (text, word) = &row[place];
            cell(width, text, *word)
        }))
    });
    let constraints =
        kept.iter().map(|&(_, width)| Constraint::Length(u16::try_from(width).unwrap_or(u16::MAX)));
    let table = Table::new(body, constraints)
        .header(header.style(Style::new().bold()))
        .column_spacing(u16::try_from(GAP).unwrap_or(1));
    frame.render_widget(table, area);
}

/// Which columns are shown, and how wide: as many as there is room for, and always the one that
/// rows are sorted by. The first takes what is left.
fn widths(
    headings: &[String],
    rows: &[Vec<(String, bool)>],
    room: usize,
    sort: usize,
) -> Vec<(usize, usize)> {
    let width = |place: usize| {
        let cells = rows.iter().filter_map(|row| row.get(place));
        let widest = cells.map(|(text, word)| {
            let count = text.chars().count();
            if *word { count.min(WORD_MAX) } else { count }
        });
        widest.max().unwrap_or(0).max(headings[place].chars().count())
    };
    let mut left = room.saturating_sub(NAME_MIN);
    let mut kept: Vec<(usize, usize)> = Vec::new();
    let first = (sort > 0 && sort < headings.len()).then_some(sort);
    for place in first.into_iter().chain((1..headings.len()).filter(|place| *place != sort)) {
        let needs = width(place) + GAP;
        if needs > left {
            break;
        }
        left -= needs;
        kept.push((place, width(place)));
    }
    kept.sort_unstable();
    if !headings.is_empty() {
        kept.insert(0, (0, (NAME_MIN + left).min(room)));
    }
    kept
}

/// A name of at most `width` characters; its end says more than its beginning.
fn cut(text: &str, width: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().skip(count - width.saturating_sub(2)).collect();
    format!("..{kept}")
}
