//! Selection of the records of a trace.

use super::{NameKind, Op, Record, Source};
use std::ops::Range;

/// A filter of records; an empty or absent condition matches all. Names are those of the source; a
/// number matches a volume, file or process without a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Volumes.
    pub volumes: Vec<String>,
    /// Files.
    pub files: Vec<String>,
    /// Processes.
    pub processes: Vec<String>,
    /// Operations.
    pub ops: Vec<Op>,
    /// Times, in nanoseconds since the beginning of the trace.
    pub times: Option<Range<u64>>,
    /// Offsets: records that touch the range.
    pub range: Option<Range<u64>>,
}

impl Filter {
    /// Returns true if the filter matches the record.
    #[must_use]
    pub fn takes(&self, record: &Record, source: &dyn Source) -> bool {
        let matches_name = |wanted_names: &[String], kind| {
            let number = record.number_of(kind);
            let matches = |wanted_name: &String| match source.name(kind, number) {
                Some(name) if kind == NameKind::Process => is_process(name, wanted_name),
                Some(name) => name == wanted_name,
                None => wanted_name.parse() == Ok(number),
            };
            wanted_names.is_empty() || wanted_names.iter().any(matches)
        };
        let touches = |range: &Range<u64>| {
            let end = record.offset.saturating_add(record.len.max(1));
            record.offset < range.end && end > range.start
        };
        (self.ops.is_empty() || self.ops.contains(&record.op))
            && self.times.as_ref().is_none_or(|times| times.contains(&record.time_ns))
            && self.range.as_ref().is_none_or(touches)
            && matches_name(&self.volumes, NameKind::Volume)
            && matches_name(&self.files, NameKind::File)
            && matches_name(&self.processes, NameKind::Process)
    }
}

/// Returns true if `want` is the name of a process. Larder records processes as `name number`;
/// either part is enough.
fn is_process(name: &str, wanted_name: &str) -> bool {
    let parts = name.rsplit_once(' ');
    let parts = parts.filter(|(_, number)| number.bytes().all(|byte| byte.is_ascii_digit()));
    name == wanted_name
        || parts.is_some_and(|(title, number)| title == wanted_name || number == wanted_name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{OpenOptions, open_stream};

    #[test]
    fn each_choice_narrows_down() {
        let text = "128166372003061629,hm,0,Read,0,4096,100\n\
                    128166372003061639,hm,1,Write,8192,4096,100\n\
                    128166372003061729,hm,1,Read,8192,512,100\n";
        let stream = Box::new(std::io::Cursor::new(text));
        let mut source = open_stream("test", stream, &OpenOptions::default()).unwrap();
        let mut records = Vec::new();
        source.read_batch(&mut records).unwrap();
        let count = |filter: &Filter| records.iter().filter(|r| filter.takes(r, &*source)).count();
        assert_eq!(count(&Filter::default()), 3);
        assert_eq!(count(&Filter { volumes: vec!["hm_1".into()], ..Filter::default() }), 2);
        assert_eq!(count(&Filter { ops: vec![Op::Write], ..Filter::default() }), 1);
        assert_eq!(count(&Filter { times: Some(0..1_000), ..Filter::default() }), 1);
        assert_eq!(count(&Filter { times: Some(1_000..1_001), ..Filter::default() }), 1);
        assert_eq!(count(&Filter { range: Some(4096..8192), ..Filter::default() }), 0);
        assert_eq!(count(&Filter { range: Some(4095..8193), ..Filter::default() }), 3);
        assert_eq!(count(&Filter { processes: vec!["0".into()], ..Filter::default() }), 3);
        assert_eq!(count(&Filter { files: vec!["a".into()], ..Filter::default() }), 0);
    }

    #[test]
    fn processes_are_called_by_their_names_or_numbers() {
        for wanted_name in ["fio", "1234", "fio 1234"] {
            assert!(is_process("fio 1234", wanted_name), "{wanted_name}");
        }
        assert!(!is_process("fio 1234", "fi") && !is_process("fio 1234", "123"));
        assert!(is_process("Web Content 7", "Web Content") && !is_process("a copy", "a"));
    }
}
