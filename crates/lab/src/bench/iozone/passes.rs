//! The passes of the tests: each pass goes once over the records of a file.
//!
//! As in IOzone, the second pass of a test works on the file that the first one left, and that of
//! fwrite keeps the file as that of write does.

use super::order;

/// The I/O method of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoMethod {
    /// Sequential at the file position: read(2), write(2).
    Next,
    /// By offset: pread(2), pwrite(2).
    At,
    /// Through a buffer of one record, as stdio with setvbuf: one system call for each record.
    Stream,
}

/// The order of the records in a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// From this record to the last.
    From(u64),
    /// From the last to the first.
    Backward,
    /// The order of the random tests.
    Random,
    /// The order of the stride test.
    Strided,
    /// The first record, repeatedly.
    Again,
}

/// A pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pass {
    /// The I/O method.
    pub method: IoMethod,
    /// The order of the records.
    pub order: Order,
    /// True if the records are written.
    pub writes: bool,
    /// True if the pass creates the file.
    pub makes: bool,
}

const fn read(method: IoMethod, order: Order) -> Pass {
    Pass { method, order, writes: false, makes: false }
}

const fn write(method: IoMethod, order: Order) -> Pass {
    Pass { method, order, writes: true, makes: false }
}

const fn make(method: IoMethod) -> Pass {
    Pass { method, order: Order::From(0), writes: true, makes: true }
}

/// Makes a file with all its records.
pub(super) const MAKE: Pass = make(IoMethod::Next);

const START: Order = Order::From(0);

/// Returns the passes of a test of `-i`, one for each of its columns; none for a test that is not
/// in the grid.
pub(super) fn passes(test: u8) -> &'static [Pass] {
    use IoMethod::{At, Next, Stream};
    match test {
        0 => const { &[MAKE, write(Next, START)] },
        1 => const { &[read(Next, START), read(Next, START)] },
        2 => const { &[read(At, Order::Random), write(At, Order::Random)] },
        3 => const { &[read(At, Order::Backward)] },
        4 => const { &[write(At, Order::Again)] },
        5 => const { &[read(At, Order::Strided)] },
        6 => const { &[make(Stream), write(Stream, START)] },
        7 => const { &[read(Stream, START), read(Stream, START)] },
        9 => const { &[make(At), write(At, START)] },
        10 => const { &[read(At, START), read(At, START)] },
        _ => &[],
    }
}

impl Order {
    /// Returns the record numbers of a file that has `records`, with this stride.
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
    use crate::bench::iozone::{LAST_TEST, columns};

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
