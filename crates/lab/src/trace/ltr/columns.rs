//! Records as columns of bytes: each column has the smallest width in bytes that holds its range of
//! values, and is stored plane by plane, which zstd compresses far better than rows.

use super::super::bytes;
use super::super::{Op, Record};

/// Number of columns of a block.
const COLUMNS: usize = 9;
/// Bytes of width and base.
const COLUMN_HEAD_BYTES: usize = 9;

/// Appends the columns of `records` to `raw`.
pub(super) fn encode(records: &[Record], raw: &mut Vec<u8>) {
    let mut values = Vec::with_capacity(records.len());
    for column in 0..COLUMNS {
        values.clear();
        let mut previous_ns = 0;
        values.extend(records.iter().map(|record| match column {
            0 => {
                let difference = record.time_ns.wrapping_sub(previous_ns);
                previous_ns = record.time_ns;
                difference
            }
            1 => record.offset,
            2 => record.len,
            3 => record.latency_ns,
            4 => u64::from(record.volume),
            5 => u64::from(record.file),
            6 => u64::from(record.process),
            7 => u64::from(record.op.number()),
            _ => u64::from(record.class),
        }));
        encode_column(&values, column == 0, raw);
    }
}

/// Differences of times that occasionally decrease are at both ends of the 64-bit range; so the
/// base of that column is the minimum as a signed number.
fn encode_column(values: &[u64], signed: bool, raw: &mut Vec<u8>) {
    let least =
        |value: &&u64| if signed { value.cast_signed() } else { i64::MIN ^ value.cast_signed() };
    let base = values.iter().min_by_key(least).copied().unwrap_or(0);
    let spread = values.iter().map(|value| value.wrapping_sub(base)).max().unwrap_or(0);
    let width = usize::try_from(u64::BITS - spread.leading_zeros()).expect("64").div_ceil(8);
    raw.push(u8::try_from(width).expect("at most 8"));
    raw.extend_from_slice(&base.to_le_bytes());
    for plane in 0..width {
        raw.extend(values.iter().map(|value| value.wrapping_sub(base).to_le_bytes()[plane]));
    }
}

/// Replaces `records` with the `count` records of a payload.
pub(super) fn decode(
    mut raw: &[u8],
    count: usize,
    records: &mut Vec<Record>,
) -> Result<(), &'static str> {
    records.clear();
    records.resize(count, Record::default());
    let mut values = vec![0; count];
    for column in 0..COLUMNS {
        raw = decode_column(raw, &mut values)?;
        fill(column, &values, records)?;
    }
    if raw.is_empty() { Ok(()) } else { Err("a block is longer than its columns") }
}

/// Reads the values of a column. Returns the bytes after it.
fn decode_column<'a>(raw: &'a [u8], values: &mut [u64]) -> Result<&'a [u8], &'static str> {
    let short = "a block is shorter than its columns";
    let (head, rest) = raw.split_at_checked(COLUMN_HEAD_BYTES).ok_or(short)?;
    let (width, base) = (usize::from(head[0]), bytes::u64_at(head, 1));
    if width > 8 {
        return Err("a column is wider than 8 bytes");
    }
    let (planes, rest) = rest.split_at_checked(width * values.len()).ok_or(short)?;
    values.fill(0);
    for (number, plane) in planes.chunks_exact(values.len().max(1)).enumerate() {
        for (value, &byte) in values.iter_mut().zip(plane) {
            *value |= u64::from(byte) << (8 * number);
        }
    }
    for value in values.iter_mut() {
        *value = value.wrapping_add(base);
    }
    Ok(rest)
}

/// Stores the values of a column in the records.
fn fill(column: usize, values: &[u64], records: &mut [Record]) -> Result<(), &'static str> {
    let number = "a volume, file or process is numbered beyond 2^32";
    let mut previous_ns = 0_u64;
    for (record, &value) in records.iter_mut().zip(values) {
        match column {
            0 => {
                previous_ns = previous_ns.wrapping_add(value);
                record.time_ns = previous_ns;
            }
            1 => record.offset = value,
            2 => record.len = value,
            3 => record.latency_ns = value,
            4 => record.volume = u32::try_from(value).ok().ok_or(number)?,
            5 => record.file = u32::try_from(value).ok().ok_or(number)?,
            6 => record.process = u32::try_from(value).ok().ok_or(number)?,
            7 => {
                let op = u8::try_from(value).ok().and_then(Op::from_number);
                record.op = op.ok_or("an operation that is not known")?;
            }
            _ => record.class = u8::try_from(value).ok().ok_or("a class beyond 255")?,
        }
    }
    Ok(())
}
