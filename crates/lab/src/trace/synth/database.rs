//! A database as a cache sees it: transactions walk an index of three levels to a row, some write
//! it and then the log with a flush; now and then a report reads a stretch of the table in large
//! requests.

use super::super::{NameOf, Op, Record};
use crate::random::Random;
use std::collections::VecDeque;

/// Children of an index page: 8-byte keys and pointers, two thirds full, in 4 KiB.
const FAN_OUT: u64 = 170;
/// Transactions between two reports.
const REPORT_EVERY: u64 = 2_000;
/// Requests of a report, and pages of each.
const REPORT_REQUESTS: u64 = 64;
const REPORT_PAGES: u64 = 16;
/// Pages of the log before it starts anew.
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
    /// The rest of what is going on.
    waiting: VecDeque<Record>,
}

/// The name of a number.
pub(super) fn name(of: NameOf, number: u32) -> Option<&'static str> {
    match (of, number) {
        (NameOf::Volume, DATA) => Some("data"),
        (NameOf::Volume, LOG) | (NameOf::File, LOG_FILE) => Some("log"),
        (NameOf::File, TABLE) => Some("table"),
        (NameOf::File, INDEX) => Some("index"),
        (NameOf::Process, TRANSACTIONS) => Some("transactions"),
        (NameOf::Process, REPORTS) => Some("reports"),
        _ => None,
    }
}

impl Database {
    pub(super) fn new(pages: u64, page_bytes: u64) -> Self {
        Database { pages, page_bytes, transactions: 0, log: 0, waiting: VecDeque::new() }
    }

    /// The next request; `hot` draws a page of the table.
    pub(super) fn next(
        &mut self,
        random: &mut Random,
        hot: &mut dyn FnMut(&mut Random) -> u64,
        writes: f64,
    ) -> Record {
        if self.waiting.is_empty() {
            self.transactions += 1;
            if self.transactions.is_multiple_of(REPORT_EVERY) {
                self.report(random);
            } else {
                let row = hot(random);
                let write = random.unit() < writes;
                self.transaction(row, write);
            }
        }
        self.waiting.pop_front().expect("a transaction has requests")
    }

    /// The index lies behind the table: leaves, then the level above, then the root.
    fn transaction(&mut self, row: u64, write: bool) {
        let leaves = self.pages.div_ceil(FAN_OUT);
        let inner = leaves.div_ceil(FAN_OUT);
        let leaf = row / FAN_OUT;
        let [root_page, inner_page, leaf_page] =
            [self.pages + leaves + inner, self.pages + leaves + leaf / FAN_OUT, self.pages + leaf];
        for page in [root_page, inner_page, leaf_page] {
            self.ask(Op::Read, (DATA, INDEX), page, 1);
        }
        self.ask(Op::Read, (DATA, TABLE), row, 1);
        if write {
            self.ask(Op::Write, (DATA, TABLE), row, 1);
            self.ask(Op::Write, (LOG, LOG_FILE), self.log % LOG_PAGES, 1);
            self.log += 1;
            self.ask(Op::Flush, (LOG, LOG_FILE), 0, 0);
        }
    }

    fn report(&mut self, random: &mut Random) {
        let mut page = random.below(self.pages);
        for _ in 0..REPORT_REQUESTS {
            let count = REPORT_PAGES.min(self.pages - page);
            self.ask(Op::Read, (DATA, TABLE), page, count);
            page = (page + count) % self.pages;
        }
        for record in &mut self.waiting {
            record.process = REPORTS;
        }
    }

    fn ask(&mut self, op: Op, (volume, file): (u32, u32), page: u64, count: u64) {
        self.waiting.push_back(Record {
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
