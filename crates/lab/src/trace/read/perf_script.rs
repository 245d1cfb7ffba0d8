//! Page-cache events as `perf script` prints them; ftrace's `trace` and `trace-cmd report` print
//! the same fields in another order: `comm tid [cpu] s.us: filemap:NAME: fields`.
//!
//! A lookup (`mm_filemap_get_pages`) is a read of its range, a fault (`mm_filemap_fault`) a read of
//! its page, and a page that becomes dirty (`writeback_dirty_folio`) a write of the page. Each file
//! is a separate volume, named after its device and inode; offsets are relative to the file.
//!
//! The class of a read is derived from the pages that its thread added to the cache since its last
//! lookup: pages inside the range are misses, pages outside it are read-ahead, and the first access
//! to such a page is a read-ahead hit. A lookup of one more batch of the same request (same end, at
//! most 31 pages further) is not a new request; the kernel reports a fault before it adds the
//! pages, and again afterwards.
//!
//! Invariant: memory is bounded. A request is buffered until its thread does something else, and at
//! most [`BUFFERED_MAX`] requests are buffered; the state of all threads is dropped beyond
//! [`THREADS_MAX`] threads or [`FOLIOS_MAX`] folios.

use super::text::{LineFormat, leading_decimal, leading_number, take_word, whole_number};
use super::{DecodeOutput, Decoded, FormatError, LEN_MAX, Op, Record};
use larder_core::counters::Class;
use memchr::memmem;
use std::collections::{BTreeSet, HashMap, VecDeque};

/// Maximum number of buffered requests, whose class may still change.
const BUFFERED_MAX: usize = 1024;
/// Maximum number of threads with state; the state of all threads is dropped beyond it.
const THREADS_MAX: usize = 1 << 16;
/// Maximum number of folios that all threads added since their last lookups; the state of all
/// threads is dropped beyond it.
const FOLIOS_MAX: usize = 1 << 20;
/// Maximum number of pages that read-ahead added and no request has accessed; more are ignored.
const AHEAD_MAX: usize = 1 << 20;
/// Maximum number of folios that a thread added since its last lookup; more are ignored.
const ADDED_MAX: usize = 1 << 12;
/// Pages of a batch of one lookup: 31 folios (`PAGEVEC_SIZE` of the kernel).
const BATCH_PAGES: u64 = 31;
/// Maximum order of a folio: that of a huge page with 64 KiB base pages. An event with a larger
/// order is invalid.
const ORDER_MAX: u64 = 13;
/// Bytes of a page, the unit of the kernel's offsets in these events.
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

/// The latest request of a thread, while more events may belong to it.
#[derive(Clone, Copy, Debug)]
struct OpenRequest {
    /// Its number among all requests.
    number: u64,
    file: File,
    /// First page of the latest batch, and last page of the request.
    first: u64,
    last: u64,
    is_fault: bool,
}

#[derive(Debug, Default)]
struct Thread {
    open: Option<OpenRequest>,
    /// Folios in the order of addition: file, first page, number of pages.
    added: Vec<(File, u64, u64)>,
}

/// `perf script` of page-cache events.
#[derive(Debug, Default)]
pub(in super::super) struct PerfScript {
    threads: HashMap<u64, Thread>,
    /// Number of folios in the state of all threads.
    folios: usize,
    ahead: BTreeSet<Page>,
    buffered: VecDeque<(Record, bool)>,
    /// Number of the first buffered request.
    first_buffered: u64,
    /// Number of mapping events of cached pages, which do not show the accessed page.
    mapped: u64,
    writes: u64,
}

/// An event line: command, process, thread, time, name and fields.
struct Event<'a> {
    comm: Vec<u8>,
    pid: &'a [u8],
    thread: u64,
    time_ns: u64,
    name: &'a [u8],
    fields: &'a [u8],
}

/// Names of the events in use; others are skipped.
const NAMES: [&[u8]; 6] = [
    b"mm_filemap_get_pages",
    b"mm_filemap_map_pages",
    b"mm_filemap_fault",
    b"mm_filemap_add_to_page_cache",
    b"mm_filemap_delete_from_page_cache",
    b"writeback_dirty_folio",
];

impl PerfScript {
    /// Returns the state of a thread. The state of all others is dropped if it is too large.
    fn thread(&mut self, thread: u64) -> &mut Thread {
        let is_full = self.threads.len() >= THREADS_MAX && !self.threads.contains_key(&thread);
        if is_full || self.folios >= FOLIOS_MAX {
            self.threads.clear();
            self.folios = 0;
        }
        self.threads.entry(thread).or_default()
    }

    /// Returns true if the first lines contain such events.
    pub(in super::super) fn looks_like(head: &[u8]) -> bool {
        let mut lines = head.split(|&byte| byte == b'\n').take(256);
        lines.any(|line| event(line).is_some_and(|event| NAMES.contains(&event.name)))
    }

    /// Begins a new request; the previous request of the thread is complete.
    fn begin(
        &mut self,
        thread: u64,
        open: Option<OpenRequest>,
        record: Record,
        out: &mut DecodeOutput<'_>,
    ) -> Decoded {
        self.close(thread);
        let number = self.first_buffered + self.buffered.len() as u64;
        self.buffered.push_back((record, open.is_some()));
        if let Some(open) = open {
            self.thread(thread).open = Some(OpenRequest { number, ..open });
        }
        self.release(BUFFERED_MAX, out)
    }

    /// Returns the buffered request with this number, if it has not been released.
    fn buffered_request(&mut self, number: u64) -> Option<&mut (Record, bool)> {
        let index = usize::try_from(number.checked_sub(self.first_buffered)?).ok()?;
        self.buffered.get_mut(index)
    }

    /// Marks the latest request of a thread as complete.
    fn close(&mut self, thread: u64) {
        let open = self.threads.get_mut(&thread).and_then(|state| state.open.take());
        if let Some(request) = open.and_then(|open| self.buffered_request(open.number)) {
            request.1 = false;
        }
    }

    /// Releases complete requests at the front, and more until only `keep` are buffered.
    fn release(&mut self, keep: usize, out: &mut DecodeOutput<'_>) -> Decoded {
        while let Some(&(record, open)) = self.buffered.front() {
            if open && self.buffered.len() <= keep {
                break;
            }
            self.buffered.pop_front();
            self.first_buffered += 1;
            out.push(record)?;
        }
        Ok(())
    }

    /// Changes the class of a buffered request to a miss.
    fn miss(&mut self, number: u64) {
        if let Some((record, _)) = self.buffered_request(number) {
            record.class = Class::ReadMiss.number();
        }
    }

    /// Records the added pages outside the `requested` range as read-ahead.
    fn add_read_ahead(&mut self, file: File, first: u64, pages: u64, requested: (u64, u64)) {
        for page in first..first.saturating_add(pages) {
            if (page < requested.0 || page > requested.1) && self.ahead.len() < AHEAD_MAX {
                self.ahead.insert((file, page));
            }
        }
    }

    /// Removes these pages from the read-ahead pages. Returns true if there were any.
    fn remove_read_ahead(&mut self, file: File, first: u64, last: u64) -> bool {
        let found: Vec<Page> = self.ahead.range((file, first)..=(file, last)).copied().collect();
        for page in &found {
            self.ahead.remove(page);
        }
        !found.is_empty()
    }

    /// Processes a lookup: pages that the thread added outside the range are read-ahead. Returns
    /// true if it added pages inside.
    fn classify_added(&mut self, thread: u64, file: File, first: u64, last: u64) -> bool {
        let added = std::mem::take(&mut self.thread(thread).added);
        self.folios -= added.len();
        let mut is_miss = false;
        for (added_file, from, pages) in added {
            let is_inside =
                added_file == file && from <= last && from.saturating_add(pages) > first;
            is_miss |= is_inside;
            let requested = if added_file == file { (first, last) } else { (1, 0) };
            self.add_read_ahead(added_file, from, pages, requested);
        }
        is_miss
    }

    fn get_pages(&mut self, event: &Event<'_>, out: &mut DecodeOutput<'_>) -> Decoded {
        let file = file(event.fields)?;
        let range = value_after(event.fields, b"ofs=").ok_or("no ofs=")?;
        let (begin, len) = leading_number(range).ok_or("ofs= is not a number")?;
        let rest = range.get(len..).and_then(|rest| rest.strip_prefix(b"-"));
        let (end, _) = rest.and_then(leading_number).ok_or("ofs= has no end")?;
        if end < begin {
            return Err("the range ends before it begins");
        }
        let (first, last) = (begin / PAGE_BYTES, end / PAGE_BYTES);
        let is_miss = self.classify_added(event.thread, file, first, last);
        let ahead = self.remove_read_ahead(file, first, last);
        let open = self.threads.get(&event.thread).and_then(|state| state.open);
        if let Some(open) = open {
            let is_next_batch =
                first.checked_sub(open.first).is_some_and(|n| (1..=BATCH_PAGES).contains(&n));
            if !open.is_fault && (open.file, open.last) == (file, last) && is_next_batch {
                if is_miss {
                    self.miss(open.number);
                }
                if let Some(state) = self.threads.get_mut(&event.thread) {
                    state.open = Some(OpenRequest { first, ..open });
                }
                return Ok(());
            }
        }
        let class = match (is_miss, ahead) {
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
            ..base_record(event, file, out)
        };
        let open = OpenRequest { number: 0, file, first, last, is_fault: false };
        self.begin(event.thread, Some(open), record, out)
    }

    fn fault(&mut self, event: &Event<'_>, out: &mut DecodeOutput<'_>) -> Decoded {
        let file = file(event.fields)?;
        let page = number_after(event.fields, b"ofs=").ok_or("no ofs=")? / PAGE_BYTES;
        let open = self.threads.get(&event.thread).and_then(|state| state.open);
        if open.is_some_and(|open| open.is_fault && (open.file, open.first) == (file, page)) {
            return Ok(());
        }
        // Pages that the thread added before the fault belong to no known request.
        self.classify_added(event.thread, file, 1, 0);
        let class = if self.remove_read_ahead(file, page, page) {
            Class::ReadAheadHit
        } else {
            Class::ReadHit
        };
        let record = Record {
            offset: page * PAGE_BYTES,
            len: PAGE_BYTES,
            class: class.number(),
            ..base_record(event, file, out)
        };
        let open = OpenRequest { number: 0, file, first: page, last: page, is_fault: true };
        self.begin(event.thread, Some(open), record, out)
    }

    fn add(&mut self, event: &Event<'_>) -> Decoded {
        let (file, first, pages) = folio(event.fields)?;
        let state = self.thread(event.thread);
        match state.open {
            Some(open) if open.is_fault && open.file == file => {
                let is_inside = first <= open.first && open.first < first.saturating_add(pages);
                if is_inside {
                    self.miss(open.number);
                }
                self.add_read_ahead(file, first, pages, (open.first, open.first));
            }
            _ if state.added.len() < ADDED_MAX => {
                state.added.push((file, first, pages));
                self.folios += 1;
            }
            _ => {}
        }
        Ok(())
    }

    fn dirty(&mut self, event: &Event<'_>, out: &mut DecodeOutput<'_>) -> Decoded {
        let fields = &mut &*event.fields;
        take_word(fields);
        let (major, minor) = device(take_word(fields)).ok_or("no device")?;
        let inode = number_after(event.fields, b"ino=").ok_or("no ino=")?;
        let page = number_after(event.fields, b"index=").ok_or("no index=")?;
        let file = File { major, minor, inode };
        // The kernel added this page for the write, so it was not read.
        if let Some(state) = self.threads.get_mut(&event.thread) {
            let before = state.added.len();
            state.added.retain(|(added_file, first, pages)| {
                *added_file != file || page < *first || page >= first.saturating_add(*pages)
            });
            self.folios -= before - state.added.len();
        }
        self.writes += 1;
        let record = Record {
            offset: page.checked_mul(PAGE_BYTES).ok_or("a page beyond 2^64 bytes")?,
            len: PAGE_BYTES,
            op: Op::Write,
            class: Class::WriteNewDirty.number(),
            ..base_record(event, file, out)
        };
        self.begin(event.thread, None, record, out)
    }
}

/// Returns a record with the fields that all records have.
fn base_record(event: &Event<'_>, file: File, out: &mut DecodeOutput<'_>) -> Record {
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

/// Returns the bytes after a key.
fn value_after<'a>(fields: &'a [u8], key: &[u8]) -> Option<&'a [u8]> {
    fields.get(memmem::find(fields, key)? + key.len()..)
}

fn number_after(fields: &[u8], key: &[u8]) -> Option<u64> {
    leading_number(value_after(fields, key)?).map(|(number, _)| number)
}

/// Parses `254:0`, with or without a colon at the end.
fn device(word: &[u8]) -> Option<(u64, u64)> {
    let word = word.strip_suffix(b":").unwrap_or(word);
    let at = word.iter().position(|&byte| byte == b':')?;
    Some((whole_number(&word[..at])?, whole_number(&word[at + 1..])?))
}

/// Parses `dev 254:0 ino 3c520` or `dev=254:0 ino=3c520`: the inode has hexadecimal digits.
fn file(fields: &[u8]) -> Result<File, FormatError> {
    const INVALID: FormatError = "no device and inode";
    let skip =
        |bytes: &[u8]| bytes.iter().take_while(|byte| **byte == b' ' || **byte == b'=').count();
    let of_device = value_after(fields, b"dev").ok_or(INVALID)?;
    let mut of_device = &of_device[skip(of_device)..];
    let (major, minor) = device(take_word(&mut of_device)).ok_or(INVALID)?;
    let of_inode = value_after(fields, b"ino").ok_or(INVALID)?;
    let mut of_inode = &of_inode[skip(of_inode)..];
    let digits = take_word(&mut of_inode);
    let digits = digits.strip_prefix(b"0x").unwrap_or(digits);
    let text = std::str::from_utf8(digits).map_err(|_not_text| INVALID)?;
    let inode = u64::from_str_radix(text, 16).map_err(|_no_number| INVALID)?;
    Ok(File { major, minor, inode })
}

/// Returns file, first page and number of pages of a folio; without an order it is one page.
fn folio(fields: &[u8]) -> Result<(File, u64, u64), FormatError> {
    let first = number_after(fields, b"ofs=").ok_or("no ofs=")? / PAGE_BYTES;
    let order = number_after(fields, b"order=").unwrap_or(0);
    if order > ORDER_MAX {
        return Err("the order is none of a folio");
    }
    Ok((file(fields)?, first, 1 << order))
}

/// Parses a line; `None` if it is not an event.
fn event(line: &[u8]) -> Option<Event<'_>> {
    let mut rest = line;
    let mut words: Vec<&[u8]> = Vec::with_capacity(8);
    // A command may contain spaces, but no more than fit into its 15 bytes.
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
    // From the right: ftrace flags, CPU, thread.
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
        // ftrace: the command may contain spaces, and ends before the dash.
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
    fn line(&mut self, line: &[u8], out: &mut DecodeOutput<'_>) -> Decoded {
        let Some(event) = event(line) else {
            // Comments, call chains, and the header of trace-cmd.
            let skipped = [&b"#"[..], b"\t", b"cpus=", b"CPU "];
            let blank = line.iter().all(u8::is_ascii_whitespace);
            let is_skipped = blank || skipped.iter().any(|begin| line.starts_with(begin));
            return if is_skipped { Ok(()) } else { Err("the line is no event") };
        };
        match event.name {
            b"mm_filemap_get_pages" => self.get_pages(&event, out),
            b"mm_filemap_fault" => self.fault(&event, out),
            b"mm_filemap_add_to_page_cache" => self.add(&event),
            b"mm_filemap_delete_from_page_cache" => {
                let (file, first, pages) = folio(event.fields)?;
                self.remove_read_ahead(file, first, first.saturating_add(pages - 1));
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

    fn end(&mut self, out: &mut DecodeOutput<'_>) -> Decoded {
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
