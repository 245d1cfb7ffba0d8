//! Counts of a run.
//!
//! Invariant: next to each exact sum of bytes is the sum as the original keeps it, in single
//! precision and in the order of the operations, since its rounding shows in the reports: 1157.99
//! megabytes are printed as 1158.00. Sizes are bytes.

/// A sum of bytes, exact and as a C `float`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Sum {
    /// The exact sum.
    pub(crate) bytes: u64,
    /// The sum as the original computes it.
    pub(crate) single: f32,
}

impl Sum {
    pub(super) fn add(&mut self, bytes: u32) {
        self.bytes += u64::from(bytes);
        #[expect(clippy::cast_precision_loss, reason = "the rounding of the original")]
        let rounded = bytes as f32;
        self.single += rounded;
    }
}

/// Numbers of operations.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counts {
    /// Files created, including those that could not be opened (classic mode continues then).
    pub(crate) created: u64,
    /// Files deleted.
    pub(crate) deleted: u64,
    /// Files among them that were left after the transactions.
    pub(crate) deleted_at_end: u64,
    /// Files read.
    pub(crate) read: u64,
    /// Files appended to.
    pub(crate) appended: u64,
    /// Bytes read.
    pub(crate) bytes_read: Sum,
    /// Bytes written.
    pub(crate) bytes_written: Sum,
    /// Completed transactions.
    pub(crate) transactions: u64,
}

impl Counts {
    /// Adds the counts of another thread.
    pub(crate) fn add(&mut self, other: &Counts) {
        self.created += other.created;
        self.deleted += other.deleted;
        self.deleted_at_end += other.deleted_at_end;
        self.read += other.read;
        self.appended += other.appended;
        self.transactions += other.transactions;
        for (sum, more) in [
            (&mut self.bytes_read, other.bytes_read),
            (&mut self.bytes_written, other.bytes_written),
        ] {
            sum.bytes += more.bytes;
            sum.single += more.single;
        }
    }
}
