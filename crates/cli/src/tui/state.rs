//! The user's settings of the view: the selected view, its sort order and filter, and the freeze.

use super::snapshot::{Grid, VIEWS, Value, View};
use super::terminal::Key;

/// The action that a key requests from the owner of the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ViewAction {
    Draw,
    Record,
    Quit,
}

/// The use of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Browsing,
    TypingFilter,
    /// The help covers the view until the next key.
    Help,
}

#[derive(Clone, Debug, Default)]
struct ViewSettings {
    sort: Option<usize>,
    reverse: bool,
    filter: String,
    /// Number of rows scrolled past.
    first: usize,
}

/// The settings of all views, and the state of the screen.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) view: View,
    settings: [ViewSettings; VIEWS],
    pub(crate) mode: Mode,
    pub(crate) frozen: bool,
    pub(crate) recording: bool,
    /// True if values have colors.
    pub(crate) colors: bool,
    /// A message in place of the key help, until the next key.
    pub(crate) message: Option<String>,
}

impl State {
    pub(crate) fn new(view: View) -> Self {
        State {
            view,
            settings: Default::default(),
            mode: Mode::Browsing,
            frozen: false,
            recording: false,
            colors: false,
            message: None,
        }
    }

    fn view_settings(&self) -> &ViewSettings {
        &self.settings[self.view.index()]
    }

    pub(crate) fn filter(&self) -> &str {
        &self.view_settings().filter
    }

    pub(crate) fn first(&self) -> usize {
        self.view_settings().first
    }

    /// Returns the sort column of this view, and true if the order is reversed.
    pub(crate) fn sort(&self, grid: &Grid) -> (usize, bool) {
        let settings = self.view_settings();
        let column = settings.sort.unwrap_or(grid.sort);
        (column.min(grid.columns.len().saturating_sub(1)), settings.reverse)
    }

    /// Returns the rows that match the filter, sorted.
    pub(crate) fn rows<'a>(&self, grid: &'a Grid) -> Vec<&'a [Value]> {
        let pattern = self.filter().to_lowercase();
        let passes = |row: &&[Value]| {
            pattern.is_empty()
                || row.iter().any(|value| match value {
                    Value::Word(word) => word.to_lowercase().contains(&pattern),
                    _ => false,
                })
        };
        let mut rows: Vec<&[Value]> = grid.rows.iter().map(Vec::as_slice).filter(passes).collect();
        let (column, reverse) = self.sort(grid);
        rows.sort_by(|a, b| match (a.get(column), b.get(column)) {
            (Some(a), Some(b)) if reverse => b.order(a),
            (Some(a), Some(b)) => a.order(b),
            _ => std::cmp::Ordering::Equal,
        });
        rows
    }

    /// Handles a key; `grid` is the grid of the view.
    pub(crate) fn key(&mut self, key: Key, grid: &Grid) -> ViewAction {
        self.message = None;
        if key == Key::Interrupt {
            return ViewAction::Quit;
        }
        match self.mode {
            Mode::Browsing => {}
            Mode::TypingFilter => {
                self.type_filter(key);
                return ViewAction::Draw;
            }
            Mode::Help => {
                self.mode = Mode::Browsing;
                return ViewAction::Draw;
            }
        }
        let columns = grid.columns.len().max(1);
        let (sort, reverse) = self.sort(grid);
        let settings = &mut self.settings[self.view.index()];
        match key {
            Key::Char('q') => return ViewAction::Quit,
            Key::Char('w') => return ViewAction::Record,
            Key::Char(' ') => self.frozen = !self.frozen,
            Key::Char('/') => self.mode = Mode::TypingFilter,
            Key::Char('?') => self.mode = Mode::Help,
            Key::Char('r') => settings.reverse = !reverse,
            Key::Char('s') | Key::Right => settings.sort = Some((sort + 1) % columns),
            Key::Char('S') | Key::Left => settings.sort = Some((sort + columns - 1) % columns),
            Key::Down => settings.first += 1,
            Key::Up => settings.first = settings.first.saturating_sub(1),
            Key::PageDown => settings.first += 10,
            Key::PageUp => settings.first = settings.first.saturating_sub(10),
            Key::Home => settings.first = 0,
            Key::Esc => settings.filter.clear(),
            Key::Tab => self.view = self.view.later(1),
            Key::BackTab => self.view = self.view.later(VIEWS - 1),
            Key::Char(digit @ '1'..='5') => {
                self.view = View::Files.later(digit as usize - '1' as usize);
            }
            _ => {}
        }
        let last = self.rows(grid).len().saturating_sub(1);
        let settings = &mut self.settings[self.view.index()];
        settings.first = settings.first.min(last);
        ViewAction::Draw
    }

    fn type_filter(&mut self, key: Key) {
        let settings = &mut self.settings[self.view.index()];
        match key {
            Key::Enter => self.mode = Mode::Browsing,
            Key::Esc => {
                self.mode = Mode::Browsing;
                settings.filter.clear();
            }
            Key::Backspace => drop(settings.filter.pop()),
            Key::Char(letter) => settings.filter.push(letter),
            _ => {}
        }
        settings.first = 0;
    }
}
