//! Perfmon CSV: a log of counters (`(PDH-CSV 4.0) (zone)(minutes)`, then a column per counter). It
//! holds samples of rates and averages instead of requests, so it cannot be converted to a trace;
//! the error message explains this.

use super::text::take_field;

/// Returns the error message for a Perfmon log; `None` if the file is not one.
pub(in super::super) fn refusal(head: &[u8]) -> Option<String> {
    let head = head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head);
    let start = head.strip_prefix(b"\"").unwrap_or(head);
    if !start.starts_with(b"(PDH-CSV") {
        return None;
    }
    let line = head.split(|&byte| byte == b'\n').next().unwrap_or(head);
    let mut rest = line;
    let mut columns = 0_usize;
    while !rest.is_empty() {
        take_field(&mut rest, b',');
        columns += 1;
    }
    let counters = columns.saturating_sub(1);
    Some(format!(
        "this is a Perfmon log of {counters} counters, sampled now and then; it holds no requests, \
         so it is no trace; larder report shows what it says"
    ))
}
