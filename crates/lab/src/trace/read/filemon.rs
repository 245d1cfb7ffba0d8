//! Filemon logs, of the program before Process Monitor: lines of seven fields between tabs, which
//! are number, time, process with its number, request, path, result, and `Offset: n Length: n`. A
//! line that begins with `#` names the columns.
//!
//! Each file is a separate volume, because offsets are relative to the file. Times are times of
//! day, see [`DayClock`]; or durations, of which a log has no other times. Only successful reads,
//! writes and flushes are requests: a fast I/O call that fails is followed by its IRP.

use super::procmon::{DayClock, number_after, process_number, time_of_day};
use super::text::{LineFormat, take_decimal, take_field, whole_number};
use super::{DecodeOutput, Decoded, Op, Record};

/// A Filemon log.
#[derive(Debug, Default)]
pub(in super::super) struct Filemon {
    clock: DayClock,
    /// Number of lines with a duration instead of a time.
    durations: u64,
    /// Number of reads and writes that failed, and of those without an offset.
    failed: u64,
    without_offset: u64,
}

/// The fields of a line.
struct Line<'a> {
    number: &'a [u8],
    time: &'a [u8],
    process: &'a [u8],
    request: &'a [u8],
    path: &'a [u8],
    result: &'a [u8],
    other: &'a [u8],
}

impl<'a> Line<'a> {
    fn of(mut rest: &'a [u8]) -> Self {
        let mut next = || take_field(&mut rest, b'\t');
        Line {
            number: next(),
            time: next(),
            process: next(),
            request: next(),
            path: next(),
            result: next(),
            other: next(),
        }
    }

    /// Returns the time of day, or the duration, in nanoseconds.
    fn time(&self) -> Option<Time> {
        let duration = || take_decimal(&mut &*self.time, b' ', 9).map(Time::Duration);
        time_of_day(self.time).map(Time::OfDay).or_else(duration)
    }
}

enum Time {
    OfDay(u64),
    Duration(u64),
}

/// Returns the operation of a request such as `READ `, `FASTIO_READ` or `IRP_MJ_READ*`, where the
/// asterisk is that of paging I/O; `None` for others.
fn operation(request: &[u8]) -> Option<Op> {
    let request = request.trim_ascii();
    let request = request.strip_suffix(b"*").unwrap_or(request);
    match request {
        b"READ" | b"IRP_MJ_READ" | b"FASTIO_READ" | b"FASTIO_MDL_READ" => Some(Op::Read),
        b"WRITE" | b"IRP_MJ_WRITE" | b"FASTIO_WRITE" | b"FASTIO_MDL_WRITE" => Some(Op::Write),
        b"FLUSH" | b"IRP_MJ_FLUSH_BUFFERS" => Some(Op::Flush),
        _ => None,
    }
}

impl Filemon {
    /// Returns true if a file begins with the columns or a line of Filemon.
    pub(in super::super) fn looks_like(head: &[u8]) -> bool {
        let line = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let line = Line::of(line.strip_suffix(b"\r").unwrap_or(line));
        let is_heading = line.number == b"#" && line.process == b"Process" && line.path == b"Path";
        let is_line = whole_number(line.number).is_some()
            && line.time().is_some()
            && line.process.contains(&b':')
            && !line.request.is_empty()
            && !line.result.is_empty();
        is_heading || is_line
    }
}

impl LineFormat for Filemon {
    fn line(&mut self, line: &[u8], out: &mut DecodeOutput<'_>) -> Decoded {
        if line.starts_with(b"#") {
            return Ok(());
        }
        let line = Line::of(line);
        whole_number(line.number).ok_or("the first field is not a number")?;
        let (time_ns, latency_ns) = match line.time().ok_or("the time is not one")? {
            Time::OfDay(at) => (self.clock.absolute(at), 0),
            Time::Duration(took) => {
                self.durations += 1;
                (0, took)
            }
        };
        let Some(op) = operation(line.request) else { return Ok(()) };
        if line.result != b"SUCCESS" {
            self.failed += 1;
            return Ok(());
        }
        let (mut offset, mut len) = (0, 0);
        if op.transfers() {
            let Some(parsed_offset) = number_after(line.other, b"Offset: ") else {
                self.without_offset += 1;
                return Ok(());
            };
            offset = parsed_offset;
            len = number_after(line.other, b"Length: ").ok_or("the request has no length")?;
        }
        let file = out.names.files.number(line.path);
        let volume = out.names.volumes.number(line.path);
        let at = line.process.iter().rposition(|&byte| byte == b':');
        let (name, number) = line.process.split_at(at.unwrap_or(line.process.len()));
        let process = process_number(name, number.get(1..).unwrap_or_default(), out);
        let class = 0;
        out.push(Record { time_ns, offset, len, latency_ns, volume, file, process, op, class })
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.durations > 0 {
            notes.push(format!(
                "{} lines have a duration instead of a time: record with the option Clock Time",
                self.durations
            ));
        }
        if self.failed > 0 {
            notes.push(format!("skipped {} requests that failed", self.failed));
        }
        if self.without_offset > 0 {
            notes.push(format!("skipped {} requests without an offset", self.without_offset));
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_both_kinds_of_output() {
        for (request, op) in [
            (&b"READ "[..], Some(Op::Read)),
            (b"FASTIO_READ", Some(Op::Read)),
            (b"IRP_MJ_WRITE* ", Some(Op::Write)),
            (b"IRP_MJ_FLUSH_BUFFERS", Some(Op::Flush)),
            (b"OPEN", None),
            (b"FASTIO_CHECK_IF_POSSIBLE", None),
        ] {
            assert_eq!(operation(request), op, "{}", request.escape_ascii());
        }
    }

    #[test]
    fn the_beginning_is_a_heading_or_a_line() {
        for (head, is_it) in [
            ("#\tTime\tProcess\tRequest\tPath\tResult\tOther\r\n", true),
            ("1\t10:00:01 AM\ta.exe:7\tOPEN\tC:\\x\tSUCCESS\tOptions: Open  \r\n", true),
            ("1\t0.00012\ta.exe:7\tREAD \tC:\\x\tSUCCESS\tOffset: 0 Length: 8", true),
            ("1\t10:00:01\ta.exe\tOPEN\tC:\\x\tSUCCESS\t\n", false),
            ("1 10:00:01 a.exe:7 OPEN C:\\x SUCCESS\n", false),
            ("x\t10:00:01\ta.exe:7\tOPEN\tC:\\x\tSUCCESS\t\n", false),
            ("", false),
        ] {
            assert_eq!(Filemon::looks_like(head.as_bytes()), is_it, "{head}");
        }
    }
}
