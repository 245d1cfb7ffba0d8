//! Records as columns of bytes: each column has the smallest width in bytes that holds its range of
//! values, and is stored plane by plane, which zstd compresses far better than rows.

use super::super::bytes;
use super::super::record::{COLUMNS, Record};

/// The column of the times, which are stored as differences.
const TIME: usize = 0;
/// Bytes of width and base.
const COLUMN_HEAD_BYTES: usize = 9;

/// Appends the columns of `records` to `raw`.
pub(super) fn encode(records: &[Record], raw: &mut Vec<u8>) {
    let mut values = Vec::with_capacity(records.len());
    for column in 0..COLUMNS {
        values.clear();
        values.extend(records.iter().map(|record| record.column(column)));
        if column == TIME {
            let mut previous_ns = 0;
            for value in &mut values {
                let time_ns = std::mem::replace(value, value.wrapping_sub(previous_ns));
                previous_ns = time_ns;
            }
        }
        encode_column(&values, column == TIME, raw);
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
        if column == TIME {
            let mut time_ns = 0_u64;
            for value in &mut values {
                time_ns = time_ns.wrapping_add(*value);
                *value = time_ns;
            }
        }
        for (record, &value) in records.iter_mut().zip(&values) {
            record.set_column(column, value)?;
        }
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
