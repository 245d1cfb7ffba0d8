//! What `perf script` prints of page-cache events; ftrace's `trace` and `trace-cmd report`
//! print the same in another order: `comm tid [cpu] s.us: filemap:NAME: fields`.
//!
//! A look-up (`mm_filemap_get_pages`) is a read of its range, a fault (`mm_filemap_fault`) one of
//! its page, a page that becomes dirty (`writeback_dirty_folio`) a write of it. Each file is a
//! volume of its own, named after its device and inode; offsets are those within the file.
//!
//! Whether a read hit is told by the pages that its thread put into the cache since its last
//! look-up: those within the range were missed, those beyond it were read ahead, and the first who
//! touches such a page has a read-ahead hit. A look-up of one more batch of the same request (same
//! end, at most 31 pages further) is no new request; a fault comes before its pages, and again
//! after them.
//!
//! Invariant: bounded. A request is held back until its thread does something else, and at most
//! [`HELD_MAX`] of them.

use super::text::{LineFormat, leading_decimal, leading_number, take_word, whole_number};
use super::{FormatError, LEN_MAX, Op, Out, Record};
use larder_core::counters::Class;
use memchr::memmem;
use std::collections::{BTreeSet, HashMap, VecDeque};

/// Requests that are held back, so that what still belongs to them can be told.
const HELD_MAX: usize = 1024;
/// Threads that are remembered; with more of them all are forgotten.
const THREADS_MAX: usize = 1 << 16;
/// Pages that read-ahead brought and nobody has touched; more are not remembered.
const AHEAD_MAX: usize = 1 << 20;
/// Pages put into the cache by a thread since its last look-up; more are not remembered.
const ADDED_MAX: usize = 1 << 12;
/// Pages of a batch of one look-up: 31 folios (`PAGEVEC_SIZE` of the kernel).
const BATCH_PAGES: u64 = 31;
/// The largest folio, as a power of two of pages: that of a huge page made of pages of 64 KiB. The
/// events of larger ones are none.
const ORDER_MAX: u64 = 13;
/// Bytes of a page, of which the kernel counts offsets here.
const PAGE_BYTES: u64 = 4096;

/// A page of a file.
type Page = (File, u64);

/// Device and inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct File {
    major: u64,
    minor: u64,
    inode: u64,
}

/// The latest request of a thread, while it may go on.
#[derive(Clone, Copy, Debug)]
struct Open {
    /// Its place in all requests.
    number: u64,
    file: File,
    /// First page asked for by the latest batch, and the last one of all.
    first: u64,
    last: u64,
    is_fault: bool,
}

#[derive(Debug, Default)]
struct Thread {
    open: Option<Open>,
    /// First page and pages, in the order in which they were put into the cache.
    added: Vec<(File, u64, u64)>,
}

/// `perf script` of page-cache events.
#[derive(Debug, Default)]
pub(in super::super) struct PerfScript {
    threads: HashMap<u64, Thread>,
    ahead: BTreeSet<Page>,
    held: VecDeque<(Record, bool)>,
    /// The place of the first one that is held.
    first_held: u64,
    /// Mappings of pages that were cached, which do not say what was touched.
    mapped: u64,
    writes: u64,
}

/// A line: who, when, what, and the fields behind.
struct Event<'a> {
    comm: Vec<u8>,
    pid: &'a [u8],
    thread: u64,
    time_ns: u64,
    name: &'a [u8],
    fields: &'a [u8],
}

/// The names that are used; others are passed over.
const NAMES: [&[u8]; 6] = [
    b"mm_filemap_get_pages",
    b"mm_filemap_map_pages",
    b"mm_filemap_fault",
    b"mm_filemap_add_to_page_cache",
    b"mm_filemap_delete_from_page_cache",
    b"writeback_dirty_folio",
];

impl PerfScript {
    /// Whether a beginning holds such events.
    pub(in super::super) fn looks_like(head: &[u8]) -> bool {
        let mut lines = head.split(|&byte| byte == b'\n').take(256);
        lines.any(|line| event(line).is_some_and(|event| NAMES.contains(&event.name)))
    }

    /// A new request; what the thread did before is whole.
    fn begin(
        &mut self,
        thread: u64,
        open: Option<Open>,
        record: Record,
        out: &mut Out<'_>,
    ) -> Result<(), FormatError> {
        self.close(thread);
        let number = self.first_held + self.held.len() as u64;
        self.held.push_back((record, open.is_some()));
        if let Some(open) = open {
            let state = self.threads.entry(thread).or_default();
            state.open = Some(Open { number, ..open });
        }
        self.release(HELD_MAX, out)
    }

    /// The held request with this number, if it has not been given away.
    fn held(&mut self, number: u64) -> Option<&mut (Record, bool)> {
        let place = usize::try_from(number.checked_sub(self.first_held)?).ok()?;
        self.held.get_mut(place)
    }

    /// Says that nothing more belongs to the latest request of a thread.
    fn close(&mut self, thread: u64) {
        let open = self.threads.get_mut(&thread).and_then(|state| state.open.take());
        if let Some(held) = open.and_then(|open| self.held(open.number)) {
            held.1 = false;
        }
    }

    /// Gives away what is whole at the front, and more until only `keep` are held.
    fn release(&mut self, keep: usize, out: &mut Out<'_>) -> Result<(), FormatError> {
        while let Some(&(record, open)) = self.held.front() {
            if open && self.held.len() <= keep {
                break;
            }
            self.held.pop_front();
            self.first_held += 1;
            out.push(record)?;
        }
        Ok(())
    }

    /// Makes a held request a miss.
    fn miss(&mut self, number: u64) {
        if let Some((record, _)) = self.held(number) {
            record.class = Class::ReadMiss.number();
        }
    }

    /// Remembers pages that nobody asked for.
    fn bring_ahead(&mut self, file: File, first: u64, pages: u64, asked: (u64, u64)) {
        for page in first..first.saturating_add(pages) {
            if (page < asked.0 || page > asked.1) && self.ahead.len() < AHEAD_MAX {
                self.ahead.insert((file, page));
            }
        }
    }

    /// Forgets what was read ahead of these pages; answers whether there was any.
    fn touch(&mut self, file: File, first: u64, last: u64) -> bool {
        let found: Vec<Page> = self.ahead.range((file, first)..=(file, last)).copied().collect();
        for page in &found {
            self.ahead.remove(page);
        }
        !found.is_empty()
    }

    /// A look-up: whether what its thread added lies within, and the rest was read ahead.
    fn settle(&mut self, thread: u64, file: File, first: u64, last: u64) -> bool {
        let state = self.threads.entry(thread).or_default();
        let added = std::mem::take(&mut state.added);
        let mut missed = false;
        for (of, from, pages) in added {
            let within = of == file && from <= last && from.saturating_add(pages) > first;
            missed |= within;
            let asked = if of == file { (first, last) } else { (1, 0) };
            self.bring_ahead(of, from, pages, asked);
        }
        missed
    }

    fn get_pages(&mut self, event: &Event<'_>, out: &mut Out<'_>) -> Result<(), FormatError> {
        let file = file(event.fields)?;
        let range = behind(event.fields, b"ofs=").ok_or("no ofs=")?;
        let (begin, len) = leading_number(range).ok_or("ofs= is not a number")?;
        let rest = range.get(len..).and_then(|rest| rest.strip_prefix(b"-"));
        let (end, _) = rest.and_then(leading_number).ok_or("ofs= has no end")?;
        if end < begin {
            return Err("the range ends before it begins");
        }
        let (first, last) = (begin / PAGE_BYTES, end / PAGE_BYTES);
        let missed = self.settle(event.thread, file, first, last);
        let ahead = self.touch(file, first, last);
        let open = self.threads.get(&event.thread).and_then(|state| state.open);
        if let Some(open) = open {
            let more =
                first.checked_sub(open.first).is_some_and(|n| (1..=BATCH_PAGES).contains(&n));
            if !open.is_fault && (open.file, open.last) == (file, last) && more {
                if missed {
                    self.miss(open.number);
                }
                if let Some(state) = self.threads.get_mut(&event.thread) {
                    state.open = Some(Open { first, ..open });
                }
                return Ok(());
            }
        }
        let class = match (missed, ahead) {
            (true, _) => Class::ReadMiss,
            (false, true) => Class::ReadAheadHit,
            (false, false) => Class::ReadHit,
        };
        let len = (last - first + 1).saturating_mul(PAGE_BYTES);
        if len > LEN_MAX || (first * PAGE_BYTES).checked_add(len).is_none() {
            return Err("a read of more than 4 GiB, or beyond 2^64");
        }
        let record = Record {
            offset: first * PAGE_BYTES,
            len,
            class: class.number(),
            ..named(event, file, out)
        };
        let open = Open { number: 0, file, first, last, is_fault: false };
        self.begin(event.thread, Some(open), record, out)
    }

    fn fault(&mut self, event: &Event<'_>, out: &mut Out<'_>) -> Result<(), FormatError> {
        let file = file(event.fields)?;
        let page = number_behind(event.fields, b"ofs=").ok_or("no ofs=")? / PAGE_BYTES;
        let open = self.threads.get(&event.thread).and_then(|state| state.open);
        if open.is_some_and(|open| open.is_fault && (open.file, open.first) == (file, page)) {
            return Ok(());
        }
        // What was added before belongs to nothing that is known.
        self.settle(event.thread, file, 1, 0);
        let class = if self.touch(file, page, page) { Class::ReadAheadHit } else { Class::ReadHit };
        let record = Record {
            offset: page * PAGE_BYTES,
            len: PAGE_BYTES,
            class: class.number(),
            ..named(event, file, out)
        };
        let open = Open { number: 0, file, first: page, last: page, is_fault: true };
        self.begin(event.thread, Some(open), record, out)
    }

    fn add(&mut self, event: &Event<'_>) -> Result<(), FormatError> {
        let (file, first, pages) = folio(event.fields)?;
        if self.threads.len() >= THREADS_MAX {
            self.threads.clear();
        }
        let state = self.threads.entry(event.thread).or_default();
        match state.open {
            Some(open) if open.is_fault && open.file == file => {
                let within = first <= open.first && open.first < first.saturating_add(pages);
                if within {
                    self.miss(open.number);
                }
                self.bring_ahead(file, first, pages, (open.first, open.first));
            }
            _ if state.added.len() < ADDED_MAX => state.added.push((file, first, pages)),
            _ => {}
        }
        Ok(())
    }

    fn dirty(&mut self, event: &Event<'_>, out: &mut Out<'_>) -> Result<(), FormatError> {
        let fields = &mut &*event.fields;
        take_word(fields);
        let (major, minor) = device(take_word(fields)).ok_or("no device")?;
        let inode = number_behind(event.fields, b"ino=").ok_or("no ino=")?;
        let page = number_behind(event.fields, b"index=").ok_or("no index=")?;
        let file = File { major, minor, inode };
        // A page that was put there to be written was not read.
        if let Some(state) = self.threads.get_mut(&event.thread) {
            state.added.retain(|(of, first, pages)| {
                *of != file || page < *first || page >= first.saturating_add(*pages)
            });
        }
        self.writes += 1;
        let record = Record {
            offset: page.checked_mul(PAGE_BYTES).ok_or("a page beyond 2^64 bytes")?,
            len: PAGE_BYTES,
            op: Op::Write,
            class: Class::WriteNewDirty.number(),
            ..named(event, file, out)
        };
        self.begin(event.thread, None, record, out)
    }
}

/// A record with what all of them have.
fn named(event: &Event<'_>, file: File, out: &mut Out<'_>) -> Record {
    let File { major, minor, inode } = file;
    let name = format!("{major}:{minor} inode {inode}");
    let process = [&event.comm, &b" ("[..], event.pid, b")"].concat();
    Record {
        time_ns: event.time_ns,
        volume: out.names.volumes.number(name.as_bytes()),
        file: out.names.files.number(name.as_bytes()),
        process: out.names.processes.number(&process),
        ..Record::default()
    }
}

/// What follows a key.
fn behind<'a>(fields: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    fields.get(memmem::find(fields, key)? + key.len()..)
}

fn number_behind(fields: &[u8], key: &[u8]) -> Option<u64> {
    leading_number(behind(fields, key)?).map(|(number, _)| number)
}

/// `254:0`, with or without a colon behind.
fn device(word: &[u8]) -> Option<(u64, u64)> {
    let word = word.strip_suffix(b":").unwrap_or(word);
    let at = word.iter().position(|&byte| byte == b':')?;
    Some((whole_number(&word[..at])?, whole_number(&word[at + 1..])?))
}

/// `dev 254:0 ino 3c520` or `dev=254:0 ino=3c520`: the inode has hexadecimal digits.
fn file(fields: &[u8]) -> Result<File, FormatError> {
    const WRONG: FormatError = "no device and inode";
    let skip =
        |bytes: &[u8]| bytes.iter().take_while(|byte| **byte == b' ' || **byte == b'=').count();
    let of_device = behind(fields, b"dev").ok_or(WRONG)?;
    let mut of_device = &of_device[skip(of_device)..];
    let (major, minor) = device(take_word(&mut of_device)).ok_or(WRONG)?;
    let of_inode = behind(fields, b"ino").ok_or(WRONG)?;
    let mut of_inode = &of_inode[skip(of_inode)..];
    let digits = take_word(&mut of_inode);
    let digits = digits.strip_prefix(b"0x").unwrap_or(digits);
    let text = std::str::from_utf8(digits).map_err(|_not_text| WRONG)?;
    let inode = u64::from_str_radix(text, 16).map_err(|_no_number| WRONG)?;
    Ok(File { major, minor, inode })
}

/// File, first page and pages of a folio; without an order it is one page.
fn folio(fields: &[u8]) -> Result<(File, u64, u64), FormatError> {
    let first = number_behind(fields, b"ofs=").ok_or("no ofs=")? / PAGE_BYTES;
    let order = number_behind(fields, b"order=").unwrap_or(0);
    if order > ORDER_MAX {
        return Err("the order is none of a folio");
    }
    Ok((file(fields)?, first, 1 << order))
}

/// Cuts a line; none if it is no event.
fn event(line: &[u8]) -> Option<Event<'_>> {
    let mut rest = line;
    let mut words: Vec<&[u8]> = Vec::with_capacity(8);
    // A command may have blanks, but no more than fit into its 15 bytes.
    let time_ns = loop {
        let word = take_word(&mut rest);
        if word.is_empty() || words.len() > 12 {
            return None;
        }
        let time = word.strip_suffix(b":").and_then(|word| {
            let (time_ns, len) = leading_decimal(word, b'.', 9)?;
            (len == word.len() && word.contains(&b'.') && !words.is_empty()).then_some(time_ns)
        });
        match time {
            Some(time_ns) => break time_ns,
            None => words.push(word),
        }
    };
    let name = take_word(&mut rest).strip_suffix(b":")?;
    let name = name.rsplit(|&byte| byte == b':').next().unwrap_or(name);
    // From the right: flags of ftrace, the CPU, the thread.
    let is_cpu = |word: &&[u8]| word.starts_with(b"[") && word.ends_with(b"]");
    if words.len() > 1 && words.get(words.len() - 2).is_some_and(is_cpu) {
        words.pop();
    }
    if words.last().is_some_and(is_cpu) {
        words.pop();
    }
    let last = *words.last()?;
    let of_thread = last.rsplit(|&byte| byte == b'/' || byte == b'-').next().unwrap_or(last);
    let thread = whole_number(of_thread)?;
    let before = words.get(..words.len() - 1).unwrap_or_default();
    let mut comm = before.join(&b' ');
    if let Some(cut) = last.len().checked_sub(of_thread.len() + 1)
        && last.get(cut) == Some(&b'-')
    {
        // ftrace: the command may have blanks of its own, and ends with the dash.
        if !comm.is_empty() {
            comm.push(b' ');
        }
        comm.extend(&last[..cut]);
    }
    if comm.is_empty() {
        return None;
    }
    let pid = last.split(|&byte| byte == b'/').next().filter(|pid| whole_number(pid).is_some());
    let pid = pid.unwrap_or(of_thread);
    Some(Event { comm, pid, thread, time_ns, name, fields: rest })
}

impl LineFormat for PerfScript {
    fn line(&mut self, line: &[u8], out: &mut Out<'_>) -> Result<(), FormatError> {
        let Some(event) = event(line) else {
            // Comments, call chains, and what trace-cmd says first.
            let passed = [&b"#"[..], b"\t", b"cpus=", b"CPU "];
            let blank = line.iter().all(u8::is_ascii_whitespace);
            let is_passed = blank || passed.iter().any(|begin| line.starts_with(begin));
            return if is_passed { Ok(()) } else { Err("the line is no event") };
        };
        match event.name {
            b"mm_filemap_get_pages" => self.get_pages(&event, out),
            b"mm_filemap_fault" => self.fault(&event, out),
            b"mm_filemap_add_to_page_cache" => self.add(&event),
            b"mm_filemap_delete_from_page_cache" => {
                let (file, first, pages) = folio(event.fields)?;
                self.touch(file, first, first.saturating_add(pages - 1));
                Ok(())
            }
            b"writeback_dirty_folio" => self.dirty(&event, out),
            b"mm_filemap_map_pages" => {
                self.mapped += 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn end(&mut self, out: &mut Out<'_>) -> Result<(), FormatError> {
        self.release(0, out)
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.mapped > 0 {
            notes.push(format!(
                "{} mappings of cached pages do not say which page was touched; they were passed \
                 over",
                self.mapped
            ));
        }
        if self.writes > 0 {
            notes.push(
                "writes are pages that became dirty, 4 KiB each; those to pages that were dirty \
                 already do not show"
                    .to_owned(),
            );
        }
        notes
    }
}

#[cfg(test)]
mod tests;
