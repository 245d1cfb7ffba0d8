//! What the tests consist of: one pass over the records of a file at a time.
//!
//! As in IOzone, the second pass of a test meets what the first one left, and the second one of
//! fwrite keeps the file as the one of write does.

use super::order;

/// In which way the records of a pass are read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordOrder {
    /// One after the other where the file stands: read(2), write(2).
    Next,
    /// By place: pread(2), pwrite(2).
    At,
    /// Through a buffer of one record, as stdio with setvbuf: one system call for each record.
    Stream,
}

/// In which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// From this record to the last.
    From(u64),
    /// From the last to the first.
    Backward,
    /// As the random tests go.
    Random,
    /// As the stride test goes.
    Strided,
    /// The first one again and again.
    Again,
}

/// A pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    /// How records are read or written.
    pub way: RecordOrder,
    /// In which order.
    pub order: Order,
    /// Whether they are written.
    pub writes: bool,
    /// Whether the file is made for it.
    pub makes: bool,
}

const fn read(way: RecordOrder, order: Order) -> Pass {
    Pass { way, order, writes: false, makes: false }
}

const fn write(way: RecordOrder, order: Order) -> Pass {
    Pass { way, order, writes: true, makes: false }
}

const fn make(way: RecordOrder) -> Pass {
    Pass { way, order: Order::From(0), writes: true, makes: true }
}

/// Makes a file with all its records.
pub const MAKE: Pass = make(RecordOrder::Next);

const START: Order = Order::From(0);
const WRITE: [Pass; 2] = [MAKE, write(RecordOrder::Next, START)];
const READ: [Pass; 2] = [read(RecordOrder::Next, START); 2];
const RANDOM: [Pass; 2] =
    [read(RecordOrder::At, Order::Random), write(RecordOrder::At, Order::Random)];
const BACKWARD: [Pass; 1] = [read(RecordOrder::At, Order::Backward)];
const AGAIN: [Pass; 1] = [write(RecordOrder::At, Order::Again)];
const STRIDED: [Pass; 1] = [read(RecordOrder::At, Order::Strided)];
const FWRITE: [Pass; 2] = [make(RecordOrder::Stream), write(RecordOrder::Stream, START)];
const FREAD: [Pass; 2] = [read(RecordOrder::Stream, START); 2];
const PWRITE: [Pass; 2] = [make(RecordOrder::At), write(RecordOrder::At, START)];
const PREAD: [Pass; 2] = [read(RecordOrder::At, START); 2];

/// The passes of a test of `-i`, one for each of its columns; none of a test that is not of the
/// grid.
#[must_use]
pub fn passes(test: u8) -> &'static [Pass] {
    match test {
        0 => &WRITE,
        1 => &READ,
        2 => &RANDOM,
        3 => &BACKWARD,
        4 => &AGAIN,
        5 => &STRIDED,
        6 => &FWRITE,
        7 => &FREAD,
        9 => &PWRITE,
        10 => &PREAD,
        _ => &[],
    }
}

impl Order {
    /// The numbers of records of a file that has `records`, with this stride.
    pub(super) fn numbers(self, records: u64, stride: u64) -> Box<dyn Iterator<Item = u64>> {
        match self {
            Order::From(first) => Box::new(first..records),
            Order::Backward => Box::new(order::backward(records)),
            Order::Random => Box::new(order::random(records).into_iter()),
            Order::Strided => Box::new(order::strided(records, stride)),
            Order::Again => Box::new((0..records).map(|_| 0)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::iozone::{LAST_TEST, columns};

    #[test]
    fn each_column_has_its_pass_and_writes_as_its_name_says() {
        for test in 0..=LAST_TEST {
            let (columns, passes) = (columns(&[test]), passes(test));
            assert_eq!(columns.len(), passes.len(), "test {test}");
            for (column, pass) in columns.iter().zip(passes) {
                assert_eq!(column.writes(), pass.writes, "{column:?}");
                assert!(!pass.makes || !column.name.starts_with("re"), "{column:?}");
            }
            // Only the first pass of a test makes its file.
            assert!(passes.iter().skip(1).all(|pass| !pass.makes), "test {test}");
        }
    }

    #[test]
    fn orders_are_as_many_records_as_there_are() {
        let of = |order: Order| order.numbers(4, 17).collect::<Vec<_>>();
        assert_eq!(of(Order::From(1)), [1, 2, 3]);
        assert_eq!(of(Order::Backward), [3, 2, 1, 0]);
        assert_eq!(of(Order::Random), [0, 3, 1, 2]);
        assert_eq!(of(Order::Strided), [0, 0, 0, 0]);
        assert_eq!(of(Order::Again), [0, 0, 0, 0]);
    }
}
