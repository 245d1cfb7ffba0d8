//! Watched kernel events, and their decoding from trace records.
//!
//! One table states for each event its purpose, the fields to read and the conversion of the fields
//! to an [`Event`]. A field that a kernel lacks reads as 0. Invariant: page numbers, device numbers
//! and inode numbers are those of the kernel; a range is given by its first page and its last page
//! or its length, as the name says.

use crate::tracefs::{Field, Format};
use std::borrow::Cow;

/// A file as events identify it: device number (major << 20 | minor) and inode number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) dev: u32,
    pub(crate) ino: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum FileSystemId {
    Device(u32),
    /// Name of the backing device (BDI), such as `7:0` or `btrfs-1`.
    Backing([u8; 32]),
    /// UUID of a btrfs.
    Btrfs([u8; 16]),
}

/// Returns the text before the first zero byte.
pub(super) fn until_zero(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes.split(|&byte| byte == 0).next().unwrap_or_default())
}

/// A file whose device may require a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InodeRef {
    pub(crate) file_system: FileSystemId,
    pub(crate) ino: u64,
}

/// Reason of a background writeback (include/linux/backing-dev-defs.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WritebackReason {
    /// Dirty memory exceeds the background limit.
    Background,
    /// Reclaim requires clean pages.
    Reclaim,
    /// sync(2), syncfs(2).
    Sync,
    /// Pages exceed the expiry age.
    Periodic,
    #[default]
    Other,
}

/// A kernel event. Field names are the same throughout [`super`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A process looked up the pages from `first` to `last`; `last_in_file` is the last of them
    /// that the file contains, if that is known.
    Lookup { key: Key, first: u64, last: u64, last_in_file: Option<u64> },
    /// The kernel mapped resident pages of a range.
    MapPages { key: Key, first: u64, last: u64 },
    /// A process accessed a page that was not mapped.
    Fault { key: Key, page: u64 },
    /// The kernel added pages to the page cache.
    Add { key: Key, first: u64, order: u32 },
    /// The kernel removed pages from the page cache.
    Delete { key: Key, first: u64, order: u32 },
    /// A process requested pages that are not resident (synchronous read-ahead).
    SyncReadahead { key: Key, first: u64, count: u64 },
    /// The kernel reads pages that no process has requested yet (asynchronous read-ahead).
    AsyncReadahead,
    /// A folio became dirty.
    Dirty { inode: InodeRef, page: u64 },
    /// A clean inode with only clean pages became dirty.
    InodeDirty { inode: InodeRef },
    /// A process wrote through the file system: a whole request, or the rest of one from this
    /// offset on.
    Write { key: Key, offset: u64, bytes: u64, whole: bool },
    /// A thread writes pages of a file back, or is about to.
    WriteOut { inode: InodeRef },
    /// A flusher starts to write a file back.
    InodeStart { inode: InodeRef },
    /// A flusher finishes a file.
    InodeDone { inode: InodeRef, wrote: u64 },
    /// A flusher starts a writeback for a reason.
    WritebackStart { reason: WritebackReason },
    /// The kernel throttles a writer.
    Throttled { ms: u64 },
    /// The thread starts or ends direct reclaim.
    Reclaim { begins: bool },
    /// The file system freed an inode number.
    Removed { key: Key },
    /// The last reference to an XFS inode is gone, and the thread starts to inactivate it.
    Inactive { key: Key },
    /// The thread frees the number of the inode that it inactivates, since the file was removed.
    Unlinked,
    /// A process started direct I/O.
    Direct { key: Key },
    /// A request to a block device.
    Bio { dev: u32, sectors: u64, write: bool, meta: bool },
    /// The kernel split a request.
    Split { dev: u32 },
    /// The thread of the record created a thread, possibly in another cgroup.
    NewTask { tid: u32, thread: bool, grouped: bool },
    /// A process moved into the watched cgroup.
    Joined { tid: u32 },
    /// A thread has a new name.
    Rename { tid: u32, name: [u8; 16] },
    /// A thread ends.
    Exit { tid: u32 },
}

/// The kind of information that depends on an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EventPurpose {
    /// Hits and misses.
    Lookups,
    ReadAhead,
    /// Addition and removal of pages.
    Pages,
    /// Access through mappings.
    Mappings,
    Dirty,
    /// Writes on one type of file system.
    Writes,
    Writeback,
    /// Throttled writers.
    Throttle,
    /// Direct reclaim.
    Reclaim,
    Removals,
    /// Disk I/O.
    Physical,
    /// Access time updates.
    AccessTimes,
    /// Names of starting and ending processes.
    Tasks,
    /// Processes that move into the watched cgroup.
    Cgroups,
}

/// Description of an event to enable and decode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventRequest {
    /// Group and name.
    pub(crate) name: &'static str,
    /// The information that depends on it.
    pub(crate) purpose: EventPurpose,
    /// Filter fields of device and inode; empty if the event has none.
    pub(crate) file_fields: (&'static str, &'static str),
    fields: &'static [&'static str],
    convert: fn(&RecordView<'_>) -> Event,
}

/// The selected fields of a record.
struct RecordView<'a> {
    fields: &'a [Field],
    record: &'a [u8],
}

impl RecordView<'_> {
    fn number(&self, index: usize) -> u64 {
        self.fields[index].unsigned(self.record)
    }

    fn word(&self, index: usize) -> u32 {
        self.fields[index].word(self.record)
    }

    fn key(&self) -> Key {
        Key { dev: self.word(0), ino: self.number(1) }
    }

    fn bytes<const N: usize>(&self, index: usize) -> [u8; N] {
        let mut bytes = [0; N];
        let text = self.fields[index].text(self.record);
        let length = text.len().min(N);
        bytes[..length].copy_from_slice(&text[..length]);
        bytes
    }

    fn device(&self) -> InodeRef {
        InodeRef { file_system: FileSystemId::Device(self.word(0)), ino: self.number(1) }
    }

    fn backing(&self) -> InodeRef {
        InodeRef { file_system: FileSystemId::Backing(self.bytes(0)), ino: self.number(1) }
    }

    fn btrfs(&self) -> InodeRef {
        let field = self.fields[0];
        let mut id = [0; 16];
        if let Some(bytes) = self.record.get(field.offset..field.offset + field.size.min(16)) {
            id[..bytes.len()].copy_from_slice(bytes);
        }
        InodeRef { file_system: FileSystemId::Btrfs(id), ino: self.number(1) }
    }
}

/// Filter fields of a file in most page cache events.
const S_DEV: (&str, &str) = ("s_dev", "i_ino");
/// Filter fields of a file in file system events.
const DEV: (&str, &str) = ("dev", "ino");
const NONE: (&str, &str) = ("", "");
const RANGE_FIELDS: &[&str] = &["s_dev", "i_ino", "index", "last_index"];
const FOLIO_FIELDS: &[&str] = &["s_dev", "i_ino", "index", "order"];
const WRITE_FIELDS: &[&str] = &["dev", "ino", "pos", "len"];
const WRITEBACK_FIELDS: &[&str] = &["name", "ino", "wrote"];

const fn event(
    name: &'static str,
    purpose: EventPurpose,
    file_fields: (&'static str, &'static str),
    fields: &'static [&'static str],
    convert: fn(&RecordView<'_>) -> Event,
) -> EventRequest {
    EventRequest { name, purpose, file_fields, fields, convert }
}

/// ext4 reports each folio of a request, with the length of the rest of the request; before Linux
/// 6.16 it reports each page with its part.
fn ext4_write(view: &RecordView<'_>) -> Event {
    Event::Write { key: view.key(), offset: view.number(2), bytes: view.number(3), whole: false }
}

fn xfs_write(view: &RecordView<'_>) -> Event {
    Event::Write { key: view.key(), offset: view.number(2), bytes: view.number(3), whole: true }
}

fn is(rwbs: [u8; 10], letter: u8) -> bool {
    rwbs.contains(&letter)
}

/// In the `rwbs` letters of a request, a leading F may be a preceding flush; W, D and others follow
/// it.
fn bio(view: &RecordView<'_>) -> Event {
    let rwbs: [u8; 10] = view.bytes(2);
    let sectors = view.number(1);
    let transfers = is(rwbs, b'W') || is(rwbs, b'R');
    Event::Bio {
        dev: view.word(0),
        sectors: if transfers && !is(rwbs, b'D') { sectors } else { 0 },
        write: is(rwbs, b'W'),
        meta: is(rwbs, b'M'),
    }
}

/// All events that the watcher enables.
#[rustfmt::skip]
pub(crate) const EVENTS: &[EventRequest] = &[
    event("filemap/mm_filemap_get_pages", EventPurpose::Lookups, S_DEV, RANGE_FIELDS,
        |v| Event::Lookup {
            key: v.key(), first: v.number(2), last: v.number(3), last_in_file: None,
        }),
    event("filemap/mm_filemap_map_pages", EventPurpose::Mappings, S_DEV, RANGE_FIELDS,
        |v| Event::MapPages { key: v.key(), first: v.number(2), last: v.number(3) }),
    event("filemap/mm_filemap_fault", EventPurpose::Mappings, S_DEV, &["s_dev", "i_ino", "index"],
        |v| Event::Fault { key: v.key(), page: v.number(2) }),
    event("filemap/mm_filemap_add_to_page_cache", EventPurpose::Pages, S_DEV, FOLIO_FIELDS,
        |v| Event::Add { key: v.key(), first: v.number(2), order: v.word(3) }),
    event("filemap/mm_filemap_delete_from_page_cache", EventPurpose::Pages, S_DEV, FOLIO_FIELDS,
        |v| Event::Delete { key: v.key(), first: v.number(2), order: v.word(3) }),
    event("readahead/page_cache_sync_ra", EventPurpose::ReadAhead, S_DEV,
        &["s_dev", "i_ino", "index", "req_count"],
        |v| Event::SyncReadahead { key: v.key(), first: v.number(2), count: v.number(3) }),
    event("readahead/page_cache_async_ra", EventPurpose::ReadAhead, S_DEV, &["s_dev"],
        |_| Event::AsyncReadahead),
    event("writeback/writeback_dirty_folio", EventPurpose::Dirty, NONE, &["name", "ino", "index"],
        |v| Event::Dirty { inode: v.backing(), page: v.number(2) }),
    event("writeback/writeback_mark_inode_dirty", EventPurpose::AccessTimes, NONE, &["name", "ino"],
        |v| Event::InodeDirty { inode: v.backing() }),
    event("ext4/ext4_da_write_begin", EventPurpose::Writes, DEV, WRITE_FIELDS, ext4_write),
    event("ext4/ext4_write_begin", EventPurpose::Writes, DEV, WRITE_FIELDS, ext4_write),
    event("xfs/xfs_file_buffered_write", EventPurpose::Writes, DEV,
        &["dev", "ino", "offset", "count"], xfs_write),
    event("ext4/ext4_writepages", EventPurpose::Writeback, DEV, &["dev", "ino"],
        |v| Event::WriteOut { inode: v.device() }),
    event("iomap/iomap_writeback_folio", EventPurpose::Writeback, DEV, &["dev", "ino"],
        |v| Event::WriteOut { inode: v.device() }),
    event("btrfs/extent_writepage", EventPurpose::Writeback, NONE, &["fsid", "ino"],
        |v| Event::WriteOut { inode: v.btrfs() }),
    event("writeback/sb_mark_inode_writeback", EventPurpose::Writeback, DEV, &["dev", "ino"],
        |v| Event::WriteOut { inode: v.device() }),
    event("writeback/writeback_single_inode_start", EventPurpose::Writeback, NONE, WRITEBACK_FIELDS,
        |v| Event::InodeStart { inode: v.backing() }),
    event("writeback/writeback_single_inode", EventPurpose::Writeback, NONE, WRITEBACK_FIELDS,
        |v| Event::InodeDone { inode: v.backing(), wrote: v.number(2) }),
    event("writeback/writeback_start", EventPurpose::Writeback, NONE, &["reason"],
        |v| Event::WritebackStart { reason: match v.word(0) {
            0 => WritebackReason::Background,
            1 => WritebackReason::Reclaim,
            2 => WritebackReason::Sync,
            3 => WritebackReason::Periodic,
            _ => WritebackReason::Other,
        } }),
    event("writeback/balance_dirty_pages", EventPurpose::Throttle, NONE, &["pause"],
        |v| Event::Throttled { ms: u64::try_from(v.fields[0].signed(v.record)).unwrap_or(0) }),
    event("vmscan/mm_vmscan_direct_reclaim_begin", EventPurpose::Reclaim, NONE, &[],
        |_| Event::Reclaim { begins: true }),
    event("vmscan/mm_vmscan_direct_reclaim_end", EventPurpose::Reclaim, NONE, &[],
        |_| Event::Reclaim { begins: false }),
    event("vmscan/mm_vmscan_memcg_reclaim_begin", EventPurpose::Reclaim, NONE, &[],
        |_| Event::Reclaim { begins: true }),
    event("vmscan/mm_vmscan_memcg_reclaim_end", EventPurpose::Reclaim, NONE, &[],
        |_| Event::Reclaim { begins: false }),
    event("ext4/ext4_free_inode", EventPurpose::Removals, DEV, &["dev", "ino"],
        |v| Event::Removed { key: v.key() }),
    event("xfs/xfs_inode_inactivating", EventPurpose::Removals, DEV, &["dev", "ino"],
        |v| Event::Inactive { key: v.key() }),
    event("xfs/xfs_iunlink_remove", EventPurpose::Removals, DEV, &[], |_| Event::Unlinked),
    event("iomap/iomap_dio_rw_begin", EventPurpose::Physical, DEV, &["dev", "ino"],
        |v| Event::Direct { key: v.key() }),
    event("block/block_bio_queue", EventPurpose::Physical, NONE,
        &["dev", "nr_sector", "rwbs"], bio),
    event("block/block_split", EventPurpose::Physical, NONE, &["dev"],
        |v| Event::Split { dev: v.word(0) }),
    event("task/task_newtask", EventPurpose::Tasks, NONE, &["pid", "clone_flags"],
        |v| Event::NewTask {
            tid: v.word(0),
            thread: v.number(1) & CLONE_THREAD != 0,
            grouped: v.number(1) & CLONE_INTO_CGROUP != 0,
        }),
    event("cgroup/cgroup_attach_task", EventPurpose::Cgroups, NONE, &["pid"],
        |v| Event::Joined { tid: v.word(0) }),
    event("task/task_rename", EventPurpose::Tasks, NONE, &["pid", "newcomm"],
        |v| Event::Rename { tid: v.word(0), name: v.bytes(1) }),
    event("sched/sched_process_exit", EventPurpose::Tasks, NONE, &["pid"],
        |v| Event::Exit { tid: v.word(0) }),
];

/// Clone flag: the new thread belongs to its creator's process (include/uapi/linux/sched.h).
const CLONE_THREAD: u64 = 0x1_0000;
/// Clone flag: the new process starts in another cgroup than its creator.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Event number, at the start of every record.
const ID: Field = Field { offset: 0, size: 2 };
/// Thread ID, after the flags.
const THREAD: Field = Field { offset: 4, size: 4 };

/// A lookup of pages by a thread, as a separate type from [`Event::Lookup`]: a machine may perform
/// a million of them per second, and moving values as large as [`Event`] costs more than counting
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lookup {
    pub(crate) thread: u32,
    pub(crate) key: Key,
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) last_in_file: Option<u64>,
}

/// Decoder of the records of known events.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// Events and fields, by event number.
    by_id: Vec<Option<(&'static EventRequest, Vec<Field>)>>,
    /// Event number of lookups and their fields, in the order of [`RANGE_FIELDS`].
    lookup: Option<(u64, [Field; 4])>,
}

impl Decoder {
    /// Stores the number and field offsets of an event.
    pub(crate) fn register(&mut self, event: &'static EventRequest, format: &Format) {
        let id = usize::from(format.id);
        if self.by_id.len() <= id {
            self.by_id.resize(id + 1, None);
        }
        let fields = event.fields.iter().map(|name| format.field(name).unwrap_or_default());
        let fields: Vec<Field> = fields.collect();
        if event.purpose == EventPurpose::Lookups {
            self.lookup =
                fields.as_slice().try_into().ok().map(|fields| (format.id.into(), fields));
        }
        self.by_id[id] = Some((event, fields));
    }

    /// Decodes a lookup; returns `None` for records of other events.
    pub(crate) fn lookup(&self, record: &[u8]) -> Option<Lookup> {
        let (id, [dev, ino, first, last]) = &self.lookup?;
        (ID.unsigned(record) == *id).then(|| Lookup {
            thread: THREAD.word(record),
            key: Key { dev: dev.word(record), ino: ino.unsigned(record) },
            first: first.unsigned(record),
            last: last.unsigned(record),
            last_in_file: None,
        })
    }

    /// Decodes the thread and the event of a record; returns `None` for unknown events.
    pub(crate) fn decode(&self, record: &[u8]) -> Option<(u32, Event)> {
        let id = usize::try_from(ID.unsigned(record)).ok()?;
        let (event, fields) = self.by_id.get(id)?.as_ref()?;
        Some((THREAD.word(record), (event.convert)(&RecordView { fields, record })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(text: &str) -> Format {
        Format::parse(text).unwrap()
    }

    #[test]
    fn a_record_becomes_what_its_format_says() {
        let mut decoder = Decoder::default();
        let lookup = &EVENTS[0];
        decoder.register(
            lookup,
            &format(
                "ID: 3\n\tfield:unsigned long index;\toffset:8;\tsize:8;\tsigned:0;\n\
                 \tfield:unsigned long i_ino;\toffset:16;\tsize:8;\tsigned:0;\n\
                 \tfield:dev_t s_dev;\toffset:24;\tsize:4;\tsigned:0;\n\
                 \tfield:unsigned long last_index;\toffset:32;\tsize:8;\tsigned:0;\n",
            ),
        );
        let mut record = vec![0; 40];
        record[0] = 3;
        record[4] = 77;
        record[8] = 5;
        record[16] = 12;
        record[24..28].copy_from_slice(&0x0070_0001_u32.to_le_bytes());
        record[32] = 9;
        let key = Key { dev: 0x0070_0001, ino: 12 };
        let expected = Event::Lookup { key, first: 5, last: 9, last_in_file: None };
        assert_eq!(decoder.decode(&record), Some((77, expected)));
        let lookup = Lookup { thread: 77, key, first: 5, last: 9, last_in_file: None };
        assert_eq!(decoder.lookup(&record), Some(lookup));
        record[0] = 4;
        assert_eq!(decoder.lookup(&record), None);
        assert_eq!(decoder.decode(&record), None);
        assert_eq!(decoder.decode(&[]), None);
    }

    #[test]
    fn requests_to_devices_are_told_apart_by_their_letters() {
        let bio = EVENTS.iter().find(|event| event.name == "block/block_bio_queue").unwrap();
        let mut decoder = Decoder::default();
        decoder.register(
            bio,
            &format(
                "ID: 1\n\tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\
                 \tfield:unsigned int nr_sector;\toffset:12;\tsize:4;\tsigned:0;\n\
                 \tfield:char rwbs[10];\toffset:16;\tsize:10;\tsigned:0;\n",
            ),
        );
        for (letters, expected) in [
            ("R", (8, false, false)),
            ("RM", (8, false, true)),
            ("WS", (8, true, false)),
            ("FWFSM", (8, true, true)),
            ("D", (0, false, false)),
            ("FN", (0, false, false)),
        ] {
            let mut record = vec![0; 26];
            (record[0], record[12]) = (1, 8);
            record[16..16 + letters.len()].copy_from_slice(letters.as_bytes());
            let Some((_, Event::Bio { sectors, write, meta, .. })) = decoder.decode(&record) else {
                panic!("{letters}");
            };
            assert_eq!((sectors, write, meta), expected, "{letters}");
        }
    }
}
