//! Simulated database accesses: transactions walk an index of three levels to a row; some write the
//! row and then the log, followed by a flush; from time to time a report reads a part of the table
//! in large requests.

use super::super::{NameKind, Op, Record};
use crate::random::Random;
use std::collections::VecDeque;

/// Children of an index page: keys and pointers of 8 bytes, two thirds full, in 4 KiB.
const FAN_OUT: u64 = 170;
/// Transactions between two reports.
const REPORT_EVERY: u64 = 2_000;
/// Requests of a report, and pages of each request.
const REPORT_REQUESTS: u64 = 64;
const REPORT_PAGES: u64 = 16;
/// Pages of the log, which is circular.
const LOG_PAGES: u64 = 16_384;

/// Volumes.
const DATA: u32 = 0;
const LOG: u32 = 1;
/// Files.
const TABLE: u32 = 1;
const INDEX: u32 = 2;
const LOG_FILE: u32 = 3;
/// Processes.
const TRANSACTIONS: u32 = 1;
const REPORTS: u32 = 2;

/// The state of the database.
#[derive(Debug)]
pub(super) struct Database {
    pages: u64,
    page_bytes: u64,
    transactions: u64,
    log: u64,
    /// Remaining requests of the current transaction or report.
    queued: VecDeque<Record>,
}

/// Returns the name of a number.
pub(super) fn name(kind: NameKind, number: u32) -> Option<&'static str> {
    match (kind, number) {
        (NameKind::Volume, DATA) => Some("data"),
        (NameKind::Volume, LOG) | (NameKind::File, LOG_FILE) => Some("log"),
        (NameKind::File, TABLE) => Some("table"),
        (NameKind::File, INDEX) => Some("index"),
        (NameKind::Process, TRANSACTIONS) => Some("transactions"),
        (NameKind::Process, REPORTS) => Some("reports"),
        _ => None,
    }
}

impl Database {
    pub(super) fn new(pages: u64, page_bytes: u64) -> Self {
        Database { pages, page_bytes, transactions: 0, log: 0, queued: VecDeque::new() }
    }

    /// Returns the next request; `hot` draws a page of the table.
    pub(super) fn next(
        &mut self,
        random: &mut Random,
        hot: &mut dyn FnMut(&mut Random) -> u64,
        writes: f64,
    ) -> Record {
        if self.queued.is_empty() {
            self.transactions += 1;
            if self.transactions.is_multiple_of(REPORT_EVERY) {
                self.report(random);
            } else {
                let row = hot(random);
                let write = random.unit() < writes;
                self.transaction(row, write);
            }
        }
        self.queued.pop_front().expect("a transaction has requests")
    }

    /// Queues the requests of a transaction. The index follows the table: leaves, then the level
    /// above, then the root.
    fn transaction(&mut self, row: u64, write: bool) {
        let leaves = self.pages.div_ceil(FAN_OUT);
        let inner = leaves.div_ceil(FAN_OUT);
        let leaf = row / FAN_OUT;
        let [root_page, inner_page, leaf_page] =
            [self.pages + leaves + inner, self.pages + leaves + leaf / FAN_OUT, self.pages + leaf];
        for page in [root_page, inner_page, leaf_page] {
            self.push_request(Op::Read, (DATA, INDEX), page, 1);
        }
        self.push_request(Op::Read, (DATA, TABLE), row, 1);
        if write {
            self.push_request(Op::Write, (DATA, TABLE), row, 1);
            self.push_request(Op::Write, (LOG, LOG_FILE), self.log % LOG_PAGES, 1);
            self.log += 1;
            self.push_request(Op::Flush, (LOG, LOG_FILE), 0, 0);
        }
    }

    fn report(&mut self, random: &mut Random) {
        let mut page = random.below(self.pages);
        for _ in 0..REPORT_REQUESTS {
            let count = REPORT_PAGES.min(self.pages - page);
            self.push_request(Op::Read, (DATA, TABLE), page, count);
            page = (page + count) % self.pages;
        }
        for record in &mut self.queued {
            record.process = REPORTS;
        }
    }

    fn push_request(&mut self, op: Op, (volume, file): (u32, u32), page: u64, count: u64) {
        self.queued.push_back(Record {
            offset: page * self.page_bytes,
            len: count * self.page_bytes,
            volume,
            file,
            process: TRANSACTIONS,
            op,
            ..Record::default()
        });
    }
}
