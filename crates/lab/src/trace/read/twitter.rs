//! Twitter cache clusters: time (s), key, key size, value size, client, operation, time to live.
//!
//! Objects: the offset is a hash of the key, the length is key and value, the process the client.
//! A key may contain commas, so the other fields are counted from the end.

use super::text::{take_number, whole_number};
use super::{DecodeOutput, Decoded, Op, Record, bytes, time};
use memchr::memrchr;

/// Decodes a line of Twitter CSV.
pub(in super::super) fn twitter(line: &[u8], out: &mut DecodeOutput<'_>) -> Decoded {
    let rest = &mut &*line;
    let at = take_number(rest, b',').ok_or("the time is not a number")?;
    let mut last = || {
        let comma = memrchr(b',', rest).ok_or("fewer than seven fields")?;
        let field = &rest[comma + 1..];
        *rest = &rest[..comma];
        Ok(field)
    };
    whole_number(last()?).ok_or("the time to live is not a number")?;
    let op = operation(last()?).ok_or("an operation that is not known")?;
    let client = last()?;
    let value = whole_number(last()?).ok_or("the value size is not a number")?;
    let key = whole_number(last()?).ok_or("the key size is not a number")?;
    let record = Record {
        time_ns: time(at, 1_000_000_000)?,
        offset: bytes::hash(rest),
        len: key.checked_add(value).ok_or("a size beyond 2^64")?,
        process: out.names.processes.number(client),
        op,
        ..Record::default()
    };
    out.push(record)
}

/// Returns true if a field is an operation.
pub(in super::super) fn is_operation(field: &[u8]) -> bool {
    operation(field).is_some()
}

/// Returns the operation of a memcached command.
fn operation(field: &[u8]) -> Option<Op> {
    match field {
        b"get" | b"gets" => Some(Op::Read),
        b"set" | b"add" | b"replace" | b"cas" | b"append" | b"prepend" | b"incr" | b"decr" => {
            Some(Op::Write)
        }
        b"delete" => Some(Op::Discard),
        _ => None,
    }
}
