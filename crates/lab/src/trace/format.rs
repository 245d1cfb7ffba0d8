//! The trace formats by name, and the detection of the format of a file.

use super::read::{
    Blkparse, Blktrace, Filemon, Fio, Lcs, OracleGeneral, PerfScript, Procmon, Vscsi,
    perfmon_refusal, twitter_operation,
};
use super::text::{Words, is_heading, leading_decimal, read_or_write, whole_number};
use super::{csv, ltr};

/// A format that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the table of names below says what each is")]
pub enum Format {
    Larder,
    Parquet,
    Csv,
    Vscsi1,
    Vscsi2,
    OracleGeneral,
    Lcs,
    Lis,
    Msr,
    Alibaba,
    Tencent,
    Systor,
    Spc,
    Twitter,
    DiskSim,
    Blktrace,
    Blkparse,
    Fio,
    Keys32Le,
    Keys32Be,
    Keys64Le,
    Keys64Be,
    Procmon,
    PerfScript,
    Perfmon,
    Filemon,
}

/// Format, name on the command line, description, and file name extensions.
const TABLE: &[(Format, &str, &str, &[&str])] = &[
    (Format::Larder, "larder", "Larder's own", &["ltr"]),
    (Format::Parquet, "parquet", "Parquet with the fields as columns", &["parquet"]),
    (Format::Csv, "csv", "CSV with the fields as columns", &[]),
    (Format::Vscsi1, "vscsi1", "vscsi, version 1", &[]),
    (Format::Vscsi2, "vscsi2", "vscsi, version 2", &[]),
    (Format::OracleGeneral, "oracle-general", "oracleGeneral of libCacheSim", &["oraclegeneral"]),
    (Format::Lcs, "lcs", "lcs of libCacheSim, versions 1 to 8", &["lcs"]),
    (Format::Lis, "lis", ".lis of the ARC papers", &["lis"]),
    (Format::Msr, "msr", "MSR Cambridge CSV", &[]),
    (Format::Alibaba, "alibaba", "Alibaba block CSV", &[]),
    (Format::Tencent, "tencent", "Tencent CBS CSV", &[]),
    (Format::Systor, "systor", "Systor '17 CSV", &[]),
    (Format::Spc, "spc", "UMass SPC", &["spc"]),
    (Format::Twitter, "twitter", "Twitter cache CSV", &[]),
    (Format::DiskSim, "disksim", "DiskSim and MQSim ASCII", &[]),
    (Format::Blktrace, "blktrace", "blktrace, binary, version 7", &[]),
    (Format::Blkparse, "blkparse", "blkparse text", &[]),
    (Format::Fio, "fio", "fio iolog, versions 2 and 3", &[]),
    (Format::Keys32Le, "keys32le", "raw keys of 32 bits, little-endian", &["u32", "u32le"]),
    (Format::Keys32Be, "keys32be", "raw keys of 32 bits, big-endian", &["u32be"]),
    (Format::Keys64Le, "keys64le", "raw keys of 64 bits, little-endian", &["u64", "u64le"]),
    (Format::Keys64Be, "keys64be", "raw keys of 64 bits, big-endian", &["u64be"]),
    (Format::Procmon, "procmon", "Process Monitor CSV", &[]),
    (Format::PerfScript, "perf-script", "perf script of page-cache events", &[]),
    (Format::Perfmon, "perfmon", "Perfmon CSV (counters; refused with a sentence)", &[]),
    (Format::Filemon, "filemon", "Filemon log", &[]),
];

/// Returns true if the beginning of a file is that of a format.
type Begins = fn(&[u8]) -> bool;

/// Formats that any file with this beginning has.
const BY_BEGINNING: [(Begins, Format); 4] = [
    (|head| head.starts_with(&ltr::MAGIC), Format::Larder),
    (|head| head.starts_with(b"PAR1"), Format::Parquet),
    (Lcs::looks_like, Format::Lcs),
    (|head| Blktrace::from_head(head).is_some(), Format::Blktrace),
];

/// Formats that a text with this beginning has.
const BY_FIRST_LINES: [(Begins, Format); 6] = [
    (|head| csv::addressing(head).is_some(), Format::Csv),
    (|head| Fio::from_head(head).is_some(), Format::Fio),
    (|head| perfmon_refusal(head).is_some(), Format::Perfmon),
    (|head| Procmon::from_head(head).is_some(), Format::Procmon),
    (PerfScript::looks_like, Format::PerfScript),
    (Filemon::looks_like, Format::Filemon),
];

impl Format {
    /// Returns all formats, in the order of the table in docs/trace.md.
    pub fn all() -> impl Iterator<Item = Format> {
        TABLE.iter().map(|row| row.0)
    }

    fn row(self) -> &'static (Format, &'static str, &'static str, &'static [&'static str]) {
        TABLE.iter().find(|row| row.0 == self).expect("each format has a row")
    }

    /// Returns the name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Returns the description for users.
    #[must_use]
    pub fn about(self) -> &'static str {
        self.row().2
    }

    /// Returns the format with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Format> {
        TABLE.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// Returns the format of a file name extension; extensions of compression are ignored.
    #[must_use]
    pub fn from_file_name(name: &str) -> Option<Format> {
        let mut name = name.to_ascii_lowercase();
        for compression in [".zst", ".gz"] {
            name.truncate(name.strip_suffix(compression).unwrap_or(&name).len());
        }
        let name = name.strip_suffix(".bin").unwrap_or(&name);
        let extension = name.rsplit_once('.')?.1;
        TABLE.iter().find(|row| row.3.contains(&extension)).map(|row| row.0)
    }

    /// Returns the format that the (decompressed) first bytes show, if any.
    pub(super) fn from_content(head: &[u8]) -> Option<Format> {
        let found = BY_BEGINNING.iter().find(|(begins, _)| begins(head));
        if let Some((_, format)) = found {
            return Some(*format);
        }
        let text = head.iter().take(4096).all(|&b| b >= b' ' || b"\t\r\n".contains(&b));
        match text {
            true => from_text(head),
            false if Vscsi::new(false).looks_like(head) => Some(Format::Vscsi1),
            false if Vscsi::new(true).looks_like(head) => Some(Format::Vscsi2),
            false => OracleGeneral::looks_like(head).then_some(Format::OracleGeneral),
        }
    }
}

/// Detects a text format from the header line, else from the fields of the first record.
fn from_text(head: &[u8]) -> Option<Format> {
    let found = BY_FIRST_LINES.iter().find(|(begins, _)| begins(head));
    if let Some((_, format)) = found {
        return Some(*format);
    }
    let mut lines = head.split(|&byte| byte == b'\n').enumerate().filter_map(|(number, line)| {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let skipped = line.is_empty() || (number == 0 && is_heading(line));
        (!skipped).then_some(line)
    });
    let line = lines.next()?;
    if Blkparse::looks_like(line) {
        return Some(Format::Blkparse);
    }
    if line.contains(&b',') { from_commas(line) } else { from_words(line) }
}

fn from_commas(line: &[u8]) -> Option<Format> {
    let fields: Vec<&[u8]> = line.split(|&byte| byte == b',').take(64).collect();
    let op = |at: usize| fields.get(at).is_some_and(|field| read_or_write(field).is_some());
    let number = |at: usize| fields.get(at).is_some_and(|field| whole_number(field).is_some());
    let twitter = |at: usize| fields.get(at).is_some_and(|field| twitter_operation(field));
    match fields.len() {
        count @ 7.. if number(0) && twitter(count - 2) && number(count - 1) => {
            Some(Format::Twitter)
        }
        7 if number(0) && op(3) && number(4) => Some(Format::Msr),
        6 if op(2) && number(4) && number(5) => Some(Format::Systor),
        5.. if number(0) && number(1) && number(2) && op(3) => Some(Format::Spc),
        5 if number(0) && op(1) && number(2) => Some(Format::Alibaba),
        5 if (0..5).all(number) && [b"0", b"1"].contains(&fields[3].try_into().ok()?) => {
            Some(Format::Tencent)
        }
        _ => None,
    }
}

fn from_words(line: &[u8]) -> Option<Format> {
    let mut fields = Words::of(line);
    let words = std::iter::from_fn(|| Some(fields.text()).filter(|word| !word.is_empty()));
    let words: Vec<&[u8]> = words.take(6).collect();
    let numbers = words.iter().skip(1).all(|word| whole_number(word).is_some());
    let first = words.first()?;
    let decimal = leading_decimal(first, b'.', 6).is_some_and(|(_, len)| len == first.len());
    match words.len() {
        4 if numbers && whole_number(first).is_some() => Some(Format::Lis),
        5 if numbers && decimal => Some(Format::DiskSim),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_extensions_are_told_apart() {
        for format in Format::all() {
            assert_eq!(Format::from_name(format.name()), Some(format));
            assert!(!format.about().is_empty());
        }
        assert_eq!(Format::all().count(), TABLE.len());
        assert_eq!(Format::from_file_name("a.b.LIS.zst"), Some(Format::Lis));
        assert_eq!(Format::from_file_name("x.oracleGeneral.bin.gz"), Some(Format::OracleGeneral));
        assert_eq!(Format::from_file_name("keys.u64"), Some(Format::Keys64Le));
        assert_eq!(Format::from_file_name("noextension"), None);
    }
}
