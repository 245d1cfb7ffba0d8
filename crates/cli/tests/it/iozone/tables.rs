//! Tables for spreadsheets, as a program reads them.

const KIB: u64 = 1024;

/// The rates of one column over the grid.
#[derive(Debug)]
pub(crate) struct RateTable {
    /// The heading, such as `Writer report`.
    pub(crate) report: String,
    /// Record sizes in bytes, ascending.
    pub(crate) records: Vec<u64>,
    /// File sizes in bytes, ascending, with a rate in bytes per second for each record size;
    /// `None` if it was not measured.
    pub(crate) files: Vec<(u64, Vec<Option<u64>>)>,
}

/// Reads all tables of a text.
pub(crate) fn parse_tables(text: &str) -> Vec<RateTable> {
    let bytes = |word: &str| word.trim_matches('"').parse::<u64>().unwrap() * KIB;
    let mut tables: Vec<RateTable> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.ends_with(" report\"") {
            let sizes = lines.next().unwrap().split_whitespace();
            let (report, records) = (line.trim_matches('"').to_owned(), sizes.map(bytes).collect());
            tables.push(RateTable { report, records, files: Vec::new() });
        } else if let Some(table) = tables.last_mut().filter(|_| line.starts_with('"')) {
            let mut words = line.split_whitespace();
            let file = bytes(words.next().unwrap());
            let rates: Vec<_> = words.map(|word| (word != "-").then(|| bytes(word))).collect();
            assert_eq!(rates.len(), table.records.len(), "{line}");
            table.files.push((file, rates));
        }
    }
    tables
}
