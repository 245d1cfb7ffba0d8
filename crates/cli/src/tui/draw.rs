//! Drawing: a line of memory, the views, the grid, and the keys. Readable from 80 by 24 on: columns
//! that do not fit are left out from the right, names are cut at their front.

use super::snapshot::{Grid, TopSnapshot, Value, View};
use super::state::{Mode, State};
use crate::colors::Meaning;
use clap::ValueEnum;
use larder_report::escape;
use larder_schema::format::wrapped;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Table};

/// Minimum width of the first column, which holds names.
const NAME_MIN: usize = 20;
/// Maximum width of other columns of words.
const WORD_MAX: usize = 24;
/// Spaces between columns.
const GAP: usize = 2;
const KEYS: &str = "1-5 Tab view  s r sort  / filter  Space freeze  w record  ? help  q quit";
const HELP: &str = "\
1-5, Tab, Shift-Tab  select a view: files, processes, disks, caches, uses
s or right           sort by the next column; v marks it
S or left            sort by the previous column
r                    reverse the order
/                    show rows whose names contain a text; Esc shows all
arrows, PgUp, PgDn   scroll; Home returns to the first row
Space                freeze the screen, or continue
w                    start or stop a recording
?                    show this help
q, Ctrl-C            quit";

pub(crate) fn draw(frame: &mut Frame<'_>, snapshot: &TopSnapshot, state: &State) {
    let grid = snapshot.grid(state.view);
    let note = status_line(grid, state, frame.area());
    let note_lines = wrapped(&escape::line(&note), usize::from(frame.area().width));
    let [memory, tabs, table, message, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(u16::try_from(note_lines.len()).unwrap_or(u16::MAX)),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(memory_spans(&snapshot.memory, state)), memory);
    draw_views(frame, tabs, snapshot, state);
    draw_grid(frame, table, grid, state);
    let message_lines: Vec<Line<'_>> = note_lines.into_iter().map(Line::from).collect();
    frame.render_widget(Paragraph::new(message_lines).dim(), message);
    let bottom = if state.mode == Mode::TypingFilter {
        let filter = escape::line(state.filter());
        Line::from(format!("/{filter}_   Enter keeps it, Esc forgets it"))
    } else if let Some(message) = &state.message {
        Line::from(escape::line(message)).bold()
    } else {
        Line::from(KEYS).dim()
    };
    frame.render_widget(Paragraph::new(bottom), keys);
    if state.mode == Mode::Help {
        draw_help(frame, state);
    }
}

/// Returns the color of a meaning, if values have colors.
fn style(meaning: Option<Meaning>, state: &State) -> Style {
    let color = meaning.filter(|_| state.colors).map(|it| Color::Indexed(it.color()));
    color.map_or_else(Style::new, |color| Style::new().fg(color))
}

/// Returns the meaning of the values of a column.
fn meaning(column: &str) -> Option<Meaning> {
    Some(match column {
        "hits" | "trend" | "of it" => Meaning::Hit,
        "read-ahead" => Meaning::ReadAhead,
        "missed" | "from disk" | "store reads/s" => Meaning::Miss,
        "bypassed/s" => Meaning::Bypass,
        _ => return None,
    })
}

/// Returns the line of memory: the cache in the color of hits, available memory in that of good.
fn memory_spans(memory: &str, state: &State) -> Line<'static> {
    let meaning = |part: &str| match part.trim_start().split(' ').next() {
        Some("cache") => Some(Meaning::Hit),
        Some("available") => Some(Meaning::Good),
        _ => None,
    };
    let parts = memory.split_inclusive(',');
    let span =
        |part: &str| Span::styled(escape::line(part).into_owned(), style(meaning(part), state));
    Line::from(parts.map(span).collect::<Vec<_>>())
}

/// Draws the help over the view.
fn draw_help(frame: &mut Frame<'_>, state: &State) {
    let mut lines: Vec<Line<'_>> = HELP.lines().map(Line::from).collect();
    let colors = [
        (Meaning::Hit, "hits  "),
        (Meaning::ReadAhead, "read-ahead  "),
        (Meaning::Miss, "misses  "),
        (Meaning::Bypass, "bypass  "),
        (Meaning::Good, "good"),
    ];
    if state.colors {
        let spans = colors.map(|(meaning, name)| Span::styled(name, style(Some(meaning), state)));
        lines.extend([Line::default(), Line::from(spans.to_vec())]);
    }
    let all = frame.area();
    let size = |content: usize, most: u16| u16::try_from(content + 2).unwrap_or(most).min(most);
    let width = size(lines.iter().map(Line::width).max().unwrap_or(0), all.width);
    let height = size(lines.len(), all.height);
    let area = Rect::new((all.width - width) / 2, (all.height - height) / 2, width, height);
    frame.render_widget(Clear, area);
    let title = "Keys (any key closes)";
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(title)), area);
}

/// Returns the note of a grid, with that of a column if the column is visible.
fn status_line(grid: &Grid, state: &State, area: Rect) -> String {
    let note = grid.note.clone().unwrap_or_default();
    let visible_columns = visible_grid(grid, state, area).visible_columns;
    let is_shown = |title| visible_columns.iter().any(|&(column, _)| grid.columns[column] == title);
    match grid.column_note {
        Some((title, words)) if is_shown(title) => format!("{note} {words}"),
        _ => note,
    }
}

/// Draws the views, the filter, and the state. The state is always complete; if space is short,
/// views that are not selected lose their counts, and then the filter is truncated.
fn draw_views(frame: &mut Frame<'_>, area: Rect, snapshot: &TopSnapshot, state: &State) {
    let states = [(state.frozen, "  frozen"), (state.recording, "  recording")];
    let label: String = states.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
    let label = Line::from(label).bold();
    let available = usize::from(area.width).saturating_sub(label.width());
    let full = views(snapshot, state, true);
    let shown = if full.width() <= available { full } else { views(snapshot, state, false) };
    let width = u16::try_from(shown.width().min(available)).unwrap_or(u16::MAX);
    let [left, right] =
        Layout::horizontal([Constraint::Length(width), Constraint::Min(0)]).areas(area);
    frame.render_widget(Paragraph::new(shown), left);
    frame.render_widget(Paragraph::new(label), right);
}

fn views(snapshot: &TopSnapshot, state: &State, counts: bool) -> Line<'static> {
    let mut spans = Vec::new();
    for (number, &view) in (1..).zip(View::value_variants()) {
        let (is_shown, rows) = (view == state.view, snapshot.grid(view).rows.len());
        let count = if counts || is_shown { format!("({rows}) ") } else { String::new() };
        let text = format!(" {number} {} {count}", view.name());
        spans.push(if is_shown { text.reversed() } else { Span::from(text) });
    }
    if !state.filter().is_empty() && state.mode != Mode::TypingFilter {
        spans.push(format!("  /{}", escape::line(state.filter())).bold());
    }
    Line::from(spans)
}

struct VisibleGrid {
    headings: Vec<String>,
    /// Cells as text, and true for words.
    rows: Vec<Vec<(String, bool)>>,
    /// Visible columns: index and width.
    visible_columns: Vec<(usize, usize)>,
}

/// Returns the part of a grid that fits an area.
fn visible_grid(grid: &Grid, state: &State, area: Rect) -> VisibleGrid {
    let (sort, reverse) = state.sort(grid);
    let heading = |column: usize, title: &str| match (column == sort, reverse) {
        (true, false) => format!("{title} v"),
        (true, true) => format!("{title} ^"),
        _ => title.to_owned(),
    };
    let headings: Vec<String> =
        grid.columns.iter().enumerate().map(|(column, title)| heading(column, title)).collect();
    let height = usize::from(area.height.saturating_sub(1));
    let rows: Vec<Vec<(String, bool)>> = state
        .rows(grid)
        .into_iter()
        .skip(state.first())
        .take(height)
        .map(|row| row.iter().map(|value| (value.to_text(), value.is_word())).collect())
        .collect();
    let visible_columns = widths(&headings, &rows, usize::from(area.width), sort);
    VisibleGrid { headings, rows, visible_columns }
}

fn draw_grid(frame: &mut Frame<'_>, area: Rect, grid: &Grid, state: &State) {
    let VisibleGrid { headings, rows, visible_columns } = visible_grid(grid, state, area);
    let cell = |width: usize, text: &str, word: bool| {
        Cell::from(if word { cut(text, width) } else { format!("{text:>width$}") })
    };
    let is_word = |column: usize| {
        let first = grid.rows.first().and_then(|row| row.get(column));
        column == 0 || first.is_some_and(Value::is_word)
    };
    let header = Row::new(
        visible_columns
            .iter()
            .map(|&(column, width)| cell(width, &headings[column], is_word(column))),
    );
    let body = rows.iter().map(|row| {
        Row::new(visible_columns.iter().map(|&(column, width)| {
            let (text, word) = &row[column];
            cell(width, text, *word).style(style(meaning(grid.columns[column]), state))
        }))
    });
    let constraints = visible_columns
        .iter()
        .map(|&(_, width)| Constraint::Length(u16::try_from(width).unwrap_or(u16::MAX)));
    let table = Table::new(body, constraints)
        .header(header.style(Style::new().bold()))
        .column_spacing(u16::try_from(GAP).unwrap_or(1));
    frame.render_widget(table, area);
}

/// Selects the visible columns: index and width. As many columns as fit, and always the sort
/// column. The first column takes the remaining width.
fn widths(
    headings: &[String],
    rows: &[Vec<(String, bool)>],
    width: usize,
    sort: usize,
) -> Vec<(usize, usize)> {
    let width_of = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        let widest = cells.map(|(text, word)| {
            let count = text.chars().count();
            if *word { count.min(WORD_MAX) } else { count }
        });
        widest.max().unwrap_or(0).max(headings[column].chars().count())
    };
    let mut left = width.saturating_sub(NAME_MIN);
    let mut columns: Vec<(usize, usize)> = Vec::new();
    let first = (sort > 0 && sort < headings.len()).then_some(sort);
    for column in first.into_iter().chain((1..headings.len()).filter(|column| *column != sort)) {
        let needs = width_of(column) + GAP;
        if needs > left {
            break;
        }
        left -= needs;
        columns.push((column, width_of(column)));
    }
    columns.sort_unstable();
    if !headings.is_empty() {
        columns.insert(0, (0, (NAME_MIN + left).min(width)));
    }
    columns
}

/// Truncates a name to `width` characters; the end is kept, as it identifies a file best.
fn cut(text: &str, width: usize) -> String {
    let count = text.chars().count();
    if count <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().skip(count - width.saturating_sub(2)).collect();
    format!("..{kept}")
}
