//! What the user has chosen: the view, how it is sorted and filtered, whether it stands still.

use super::snapshot::{Grid, VIEWS, Value, View};
use super::terminal::Key;

/// What a key asks of whoever owns the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ViewAction {
    /// To draw again.
    Draw,
    /// To begin or end the recording.
    Record,
    /// To end.
    Quit,
}

/// The choices of one view.
#[derive(Clone, Debug, Default)]
struct Choice {
    sort: Option<usize>,
    reverse: bool,
    filter: String,
    /// Rows that have been scrolled past.
    first: usize,
}

/// All of it.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) view: View,
    choices: [Choice; VIEWS],
    /// A filter is being typed.
    pub(crate) typing: bool,
    pub(crate) frozen: bool,
    pub(crate) recording: bool,
    /// A sentence in place of the keys, until the next one is pressed.
    pub(crate) said: Option<String>,
}

impl State {
    pub(crate) fn new(view: View) -> Self {
        State {
            view,
            choices: Default::default(),
            typing: false,
            frozen: false,
            recording: false,
            said: None,
        }
    }

    fn choice(&mut self) -> &mut Choice {
        &mut self.choices[self.view.place()]
    }

    fn chosen(&self) -> &Choice {
        &self.choices[self.view.place()]
    }

    /// The filter of this view.
    pub(crate) fn filter(&self) -> &str {
        &self.chosen().filter
    }

    /// Rows that have been scrolled past.
    pub(crate) fn first(&self) -> usize {
        self.chosen().first
    }

    /// The column that this view is sorted by, and whether backwards.
    pub(crate) fn sort(&self, grid: &Grid) -> (usize, bool) {
        let choice = self.chosen();
        let column = choice.sort.unwrap_or(grid.sort);
        (column.min(grid.columns.len().saturating_sub(1)), choice.reverse)
    }

    /// The rows that pass the filter, sorted.
    pub(crate) fn rows<'a>(&self, grid: &'a Grid) -> Vec<&'a [Value]> {
        let wanted = self.filter().to_lowercase();
        let passes = |row: &&[Value]| {
            wanted.is_empty()
                || row.iter().any(|value| match value {
                    Value::Word(word) => word.to_lowercase().contains(&wanted),
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

    /// A key; `grid` is what the view shows now.
    pub(crate) fn key(&mut self, key: Key, grid: &Grid) -> ViewAction {
        self.said = None;
        if key == Key::Interrupt {
            return ViewAction::Quit;
        }
        if self.typing {
            self.type_filter(key);
            return ViewAction::Draw;
        }
        let columns = grid.columns.len().max(1);
        let (sort, reverse) = self.sort(grid);
        match key {
            Key::Char('q') => return ViewAction::Quit,
            Key::Char('w') => return ViewAction::Record,
            Key::Char(' ') => self.frozen = !self.frozen,
            Key::Char('/') => self.typing = true,
            Key::Char('r') => self.choice().reverse = !reverse,
            Key::Char('s') | Key::Right => self.choice().sort = Some((sort + 1) % columns),
            Key::Char('S') | Key::Left => {
                self.choice().sort = Some((sort + columns - 1) % columns);
            }
            Key::Down => self.choice().first = self.first() + 1,
            Key::Up => self.choice().first = self.first().saturating_sub(1),
            Key::PageDown => self.choice().first = self.first() + 10,
            Key::PageUp => self.choice().first = self.first().saturating_sub(10),
            Key::Home => self.choice().first = 0,
            Key::Esc => self.choice().filter.clear(),
            Key::Tab => self.view = View::ALL[(self.view.place() + 1) % View::ALL.len()],
            Key::BackTab => {
                self.view = View::ALL[(self.view.place() + View::ALL.len() - 1) % View::ALL.len()];
            }
            Key::Char(digit @ '1'..='5') => {
                let place = digit.to_digit(10).and_then(|digit| usize::try_from(digit).ok());
                self.view = View::ALL[place.map_or(0, |place| place - 1)];
            }
            _ => {}
        }
        let rows = self.rows(grid).len();
        let choice = self.choice();
        choice.first = choice.first.min(rows.saturating_sub(1));
        ViewAction::Draw
    }

    fn type_filter(&mut self, key: Key) {
        match key {
            Key::Enter => self.typing = false,
            Key::Esc => {
                self.typing = false;
                self.choice().filter.clear();
            }
            Key::Backspace => drop(self.choice().filter.pop()),
            Key::Char(letter) => self.choice().filter.push(letter),
            _ => {}
        }
        self.choice().first = 0;
    }
}
