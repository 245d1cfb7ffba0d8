//! Reading tables for spreadsheets as a person's script would: quoted words and numbers.

use anyhow::{Context as _, Result, ensure};

/// Bytes of a kB of IOzone.
pub(super) const KIB: u64 = 1024;

/// A table: record sizes, and file sizes with a rate for each; all in kB.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Table {
    records: Vec<u64>,
    files: Vec<(u64, Vec<Option<u64>>)>,
}

impl Table {
    /// Bytes of a file, of a record, and the rate in kB per second.
    pub(super) fn cells(&self) -> impl Iterator<Item = (u64, u64, Option<u64>)> {
        self.files.iter().flat_map(|(file, rates)| {
            let cells = self.records.iter().zip(rates);
            cells.map(move |(record, rate)| (file * KIB, record * KIB, *rate))
        })
    }
}

/// All tables of a text.
pub(super) fn parse(text: &str) -> Result<Vec<Table>> {
    let mut tables: Vec<Table> = Vec::new();
    let mut is_heading = false;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if line.ends_with(" report\"") {
            is_heading = true;
        } else if is_heading {
            is_heading = false;
            let records = words.iter().map(|word| quoted(word)).collect::<Result<_>>()?;
            tables.push(Table { records, files: Vec::new() });
        } else if let (Some(table), Some(file)) = (tables.last_mut(), words.first())
            && file.starts_with('"')
        {
            let rate = |word: &&str| -> Result<Option<u64>> {
                if *word == "-" { Ok(None) } else { number(word).map(Some) }
            };
            let rates = words[1..].iter().map(rate).collect::<Result<Vec<_>>>()?;
            ensure!(rates.len() == table.records.len(), "a row of another length: {line}");
            table.files.push((quoted(file)?, rates));
        }
    }
    Ok(tables)
}

fn number(word: &str) -> Result<u64> {
    word.parse().with_context(|| format!("no number: {word}"))
}

fn quoted(word: &str) -> Result<u64> {
    let inside = word.strip_prefix('"').and_then(|word| word.strip_suffix('"'));
    number(inside.with_context(|| format!("not quoted: {word}"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_read_and_rows_of_another_length_refused() {
        let text = "\n\"Writer report\"\n   \"4\"  \"8\"\n\"64\"   12  -\n\nkB per second\n";
        let tables = parse(text).unwrap();
        let cells: Vec<_> = tables[0].cells().collect();
        assert_eq!(cells, [(65_536, 4096, Some(12)), (65_536, 8192, None)]);
        assert!(parse("\"Writer report\"\n\"4\"\n\"64\" 1 2\n").is_err());
        assert!(parse("\"Writer report\"\n\"4\"\n\"64\" 1234567890123456x\n").is_err());
    }
}
