//! Plain text of a table, divided into blocks of columns if a terminal is too narrow for it.

use super::{Column, Table};
use comfy_table::{CellAlignment, presets};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Blanks between columns.
const GAP: u16 = 2;

/// Characters in a line of the terminal; 0 if there is none.
static LINE_WIDTH: AtomicUsize = AtomicUsize::new(0);

/// Limits tables of this process to a terminal with lines of `characters`; 0 ends the limit.
pub fn fit_terminal(characters: usize) {
    LINE_WIDTH.store(characters, Ordering::Relaxed);
}

/// Returns the number of characters in a line of the terminal, if tables are limited to it.
pub(crate) fn line_width() -> Option<usize> {
    Some(LINE_WIDTH.load(Ordering::Relaxed)).filter(|&characters| characters > 0)
}

impl Table {
    /// Renders plain text, ending with a line break: on a terminal that is too narrow in several
    /// blocks, each with the first columns of text.
    #[must_use]
    pub fn to_text(&self) -> String {
        self.to_text_within(line_width())
    }

    /// Renders plain text as wide as necessary, for a log.
    #[must_use]
    pub fn to_whole_text(&self) -> String {
        self.to_text_within(None)
    }

    fn to_text_within(&self, width_max: Option<usize>) -> String {
        let blocks: Vec<String> =
            self.blocks(width_max).iter().map(|columns| self.block(columns)).collect();
        let body = blocks.join("\n\n");
        if self.title.is_empty() {
            format!("{body}\n")
        } else {
            format!("{}\n\n{body}\n", self.title)
        }
    }

    /// Divides the columns, by index, into blocks of at most `width_max` characters.
    fn blocks(&self, width_max: Option<usize>) -> Vec<Vec<usize>> {
        let all: Vec<usize> = (0..self.columns.len()).collect();
        let Some(width_max) = width_max else { return vec![all] };
        let widths = self.inner(&all).column_max_content_widths();
        let width = |&column: &usize| usize::from(widths[column]) + usize::from(GAP);
        let total = |columns: &[usize]| columns.iter().map(width).sum::<usize>();
        let fits = |columns: &[usize]| total(columns) <= width_max.saturating_add(GAP.into());
        if fits(&all) {
            return vec![all];
        }
        // The columns that name a row, as far as they leave room for each of the others.
        let names = self.columns.iter().take_while(|column| !column.is_right_aligned).count();
        let has_room = |names: &usize| {
            let widest = all[*names..].iter().max_by_key(|column| width(column));
            fits(&all[..*names].iter().chain(widest).copied().collect::<Vec<_>>())
        };
        let names = (1..=names).rev().find(has_room).unwrap_or(1);
        let mut blocks = vec![all[..names].to_vec()];
        for &column in &all[names..] {
            let block = blocks.last_mut().expect("it is not empty");
            block.push(column);
            if block.len() > names + 1 && !fits(block) {
                block.pop();
                blocks.push(all[..names].iter().copied().chain([column]).collect());
            }
        }
        blocks
    }

    fn inner(&self, columns: &[usize]) -> comfy_table::Table {
        let mut inner = comfy_table::Table::new();
        inner.load_style(presets::NOTHING);
        inner.set_header(columns.iter().map(|&column| self.columns[column].heading()));
        for row in &self.rows {
            inner.add_row(columns.iter().map(|&column| row[column].shown.as_str()));
        }
        for (inner, &column) in inner.column_iter_mut().zip(columns) {
            let Column { is_right_aligned, .. } = self.columns[column];
            let alignment =
                if is_right_aligned { CellAlignment::Right } else { CellAlignment::Left };
            inner.set_cell_alignment(alignment);
            // Blanks between columns, and none at the edges.
            inner.set_padding((0, GAP));
        }
        inner
    }

    /// Renders some of the columns, without a line break at the end.
    fn block(&self, columns: &[usize]) -> String {
        let inner = self.inner(columns);
        let mut lines: Vec<String> = inner.lines().map(|line| line.trim_end().to_owned()).collect();
        let width = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
        lines.insert(1, "-".repeat(width));
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::super::Cell;
    use super::*;

    #[test]
    fn a_table_wider_than_the_terminal_is_continued_below() {
        let columns = [
            Column::words("file", "file"),
            Column::numbers("reads", "reads"),
            Column::numbers("hits", "hits"),
            Column::numbers("missed", "missed"),
        ];
        let mut table = Table::new("", columns);
        table.push([Cell::word("a.bin"), Cell::count(10), Cell::count(9), Cell::count(1)]);
        let whole = "file   reads  hits  missed\n\
                     --------------------------\n\
                     a.bin     10     9       1\n";
        let halves = "file   reads  hits\n\
                      ------------------\n\
                      a.bin     10     9\n\
                      \n\
                      file   missed\n\
                      -------------\n\
                      a.bin       1\n";
        assert_eq!(table.to_text_within(Some(26)), whole);
        assert_eq!(table.to_text_within(Some(25)), halves);
        assert_eq!(
            table.to_text_within(Some(1)).matches("file").count(),
            3,
            "a column in each block"
        );
    }
}
