//! Plain tables and the verdicts in their last column.

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The statement holds.
    Holds,
    /// The statement does not hold, or the check failed.
    Fails,
    /// The check could not run here; the figure contains the reason.
    Skipped,
}

impl Verdict {
    /// Returns the word in the table.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Holds => "yes",
            Self::Fails => "NO",
            Self::Skipped => "skipped",
        }
    }

    /// Returns the verdict of a word; an unknown word is a failure.
    pub(crate) fn of_word(word: &str) -> Self {
        let all = [Self::Holds, Self::Skipped];
        all.into_iter().find(|verdict| verdict.word() == word).unwrap_or(Self::Fails)
    }
}

impl From<bool> for Verdict {
    fn from(holds: bool) -> Self {
        if holds { Self::Holds } else { Self::Fails }
    }
}

/// Prints rows below a heading, each column as wide as its widest cell.
pub(crate) fn print(head: &[&str], rows: &[Vec<String>]) {
    let head: Vec<String> = head.iter().map(ToString::to_string).collect();
    let all = || rows.iter().chain([&head]);
    let widest = |column: usize| all().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(widest).collect();
    let rule = widths.iter().map(|&width| "-".repeat(width)).collect();
    for row in [&head, &rule].into_iter().chain(rows) {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}"));
        crate::out::line(cells.collect::<Vec<_>>().join("  ").trim_end());
    }
}
