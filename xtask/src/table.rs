//! Plain tables and the verdicts that fill their last column.

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It was shown.
    Holds,
    /// It was shown to be wrong, or the check broke.
    Fails,
    /// It could not be tried here; the figure says why.
    Skipped,
}

impl Verdict {
    /// The word in the table.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Holds => "yes",
            Self::Fails => "NO",
            Self::Skipped => "skipped",
        }
    }

    /// The verdict of a word; any other word is a failure.
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

/// Prints rows under a head, each column as wide as its widest cell.
pub(crate) fn print(head: &[&str], rows: &[Vec<String>]) {
    let mut widths: Vec<usize> = head.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: Vec<&str>| {
        let padded: Vec<String> =
            cells.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
        crate::out::line(padded.join("  ").trim_end());
    };
    line(head.to_vec());
    let rules: Vec<String> = widths.iter().map(|&width| "-".repeat(width)).collect();
    line(rules.iter().map(String::as_str).collect());
    for row in rows {
        line(row.iter().map(String::as_str).collect());
    }
}
