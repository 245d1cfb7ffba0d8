//! A ring entry, into which the kernel puts a request and from which it takes the reply: headers,
//! and a payload buffer.
//!
//! Invariant: either the kernel or this process owns an entry; the owner alone accesses its memory.

use super::super::abi::{self, InHeader, OutHeader, RingHeader, opcode};
use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::Arc;
use zerocopy::{FromZeros, IntoBytes};

/// Memory of several payload buffers in one piece, for which the kernel may use huge pages.
#[derive(Debug)]
struct RingMemory(Box<[UnsafeCell<u8>]>);

// SAFETY: each thread accesses only the payload buffers that it owns.
unsafe impl Sync for RingMemory {}

impl RingMemory {
    fn new(bytes: usize) -> Self {
        let zeros: Box<[u8]> = vec![0; bytes].into();
        // SAFETY: an `UnsafeCell<u8>` has the layout of a byte, and the box is converted as a
        // whole.
        RingMemory(unsafe { Box::from_raw(Box::into_raw(zeros) as *mut [UnsafeCell<u8>]) })
    }
}

/// Payload buffer of a ring entry. Only the owner of the entry accesses it.
#[derive(Debug)]
pub(super) struct RingBuffer {
    memory: Arc<RingMemory>,
    range: Range<usize>,
}

impl RingBuffer {
    /// Allocates `count` buffers of `bytes` bytes each.
    pub(super) fn allocate(count: usize, bytes: usize) -> impl Iterator<Item = RingBuffer> {
        let memory = Arc::new(RingMemory::new(count * bytes));
        let payload_buffer = move |number: usize| RingBuffer {
            memory: Arc::clone(&memory),
            range: number * bytes..(number + 1) * bytes,
        };
        (0..count).map(payload_buffer)
    }

    fn cells(&self) -> &[UnsafeCell<u8>] {
        &self.memory.0[self.range.clone()]
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the caller owns the entry, so the kernel does not write; writes of this process
        // take `&mut self`.
        unsafe { std::slice::from_raw_parts(self.cells().as_ptr().cast(), self.range.len()) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        let first = UnsafeCell::raw_get(self.cells().as_ptr());
        // SAFETY: as above, and the borrow is the only one.
        unsafe { std::slice::from_raw_parts_mut(first, self.range.len()) }
    }
}

/// Payload of a write in a ring entry, borrowed from the entry until it is returned.
#[derive(Debug)]
pub(crate) struct RingPayload {
    pub(super) entry_index: usize,
    payload_buffer: RingBuffer,
    len: usize,
}

impl RingPayload {
    pub(crate) fn data(&self) -> &[u8] {
        &self.payload_buffer.bytes()[..self.len]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The kernel owns the entry.
    InKernel,
    /// The entry holds a request that is not answered.
    Received,
    /// The entry holds the reply.
    Answered,
}

#[derive(Debug)]
pub(super) struct RingEntry {
    /// Queue of the entry: the number of its processor.
    pub(super) queue: u16,
    ring_header: Box<UnsafeCell<RingHeader>>,
    /// Payload buffer; none while a [`RingPayload`] borrows it.
    payload_buffer: Option<RingBuffer>,
    /// Headers and payload buffer, for the kernel.
    iovecs: Box<[libc::iovec; 2]>,
    state: State,
    unique: u64,
    pub(super) commit_id: u64,
    /// True if a process waits for the reply.
    pub(super) is_awaited: bool,
    deferred_reply: Vec<u8>,
}

// SAFETY: `parts` points to memory that the entry owns.
unsafe impl Send for RingEntry {}

impl RingEntry {
    /// Returns an entry that is about to be registered.
    pub(super) fn new(queue: u16, payload_buffer: RingBuffer) -> Self {
        let ring_header = Box::new(UnsafeCell::new(RingHeader::new_zeroed()));
        let iovec = |base: *mut libc::c_void, len| libc::iovec { iov_base: base, iov_len: len };
        let iovecs = Box::new([
            iovec(ring_header.get().cast(), size_of::<RingHeader>()),
            iovec(payload_buffer.cells().as_ptr().cast_mut().cast(), payload_buffer.range.len()),
        ]);
        RingEntry {
            queue,
            ring_header,
            payload_buffer: Some(payload_buffer),
            iovecs,
            state: State::InKernel,
            unique: 0,
            commit_id: 0,
            is_awaited: true,
            deferred_reply: Vec::new(),
        }
    }

    /// Allocates its memory before the kernel fills it.
    pub(super) fn prefault(&mut self) {
        if let Some(payload_buffer) = &mut self.payload_buffer {
            payload_buffer.bytes_mut().fill(1);
        }
    }

    /// Returns the address of the iovecs, for the kernel.
    pub(super) fn iovec_address(&self) -> u64 {
        self.iovecs.as_ptr() as u64
    }

    fn ring_header(&mut self) -> &mut RingHeader {
        // SAFETY: callers own the entry, and the borrow is the only one.
        unsafe { &mut *self.ring_header.get() }
    }

    /// Copies the request that the kernel has put into the entry to `buffer`, except for the data
    /// of a write, which it lends. Returns the length of the copy; `None` if no kernel sends such a
    /// request.
    pub(super) fn take(
        &mut self,
        index: usize,
        buffer: &mut [u8],
    ) -> Option<(usize, Option<RingPayload>)> {
        debug_assert_eq!(self.state, State::InKernel, "a place was handed over twice");
        self.state = State::Received;
        let ring_header = self.ring_header();
        let header: InHeader = abi::head_of(&ring_header.head);
        let payload_len = ring_header.payload_bytes as usize;
        let commit_id = ring_header.commit_id;
        let rest = (header.len as usize).checked_sub(abi::IN_HEADER_BYTES + payload_len)?;
        let head = &ring_header.head[..abi::IN_HEADER_BYTES];
        let arguments = ring_header.operation.get(..rest)?;
        let mut len = 0;
        for part in [head, arguments] {
            buffer.get_mut(len..len + part.len())?.copy_from_slice(part);
            len += part.len();
        }
        (self.unique, self.commit_id) = (header.unique, commit_id);
        self.is_awaited = !matches!(header.opcode, opcode::RELEASE | opcode::RELEASEDIR);
        if header.opcode == opcode::WRITE {
            let payload_buffer = self.payload_buffer.take()?;
            (payload_len <= payload_buffer.range.len()).then_some(())?;
            let payload = RingPayload { entry_index: index, payload_buffer, len: payload_len };
            return Some((len, Some(payload)));
        }
        let data = self.payload_buffer.as_ref()?.bytes().get(..payload_len)?;
        buffer.get_mut(len..len + payload_len)?.copy_from_slice(data);
        Some((len + payload_len, None))
    }

    /// Returns true if the entry holds this request and it is not answered.
    pub(super) fn awaits_reply_to(&self, unique: u64) -> bool {
        self.state == State::Received && self.unique == unique
    }

    /// Stores a reply with `error`, 0 or a negative errno. Returns true if it can be committed; a
    /// lent payload has to be returned first.
    pub(super) fn answer<'a>(&mut self, error: i32, parts: impl Iterator<Item = &'a [u8]>) -> bool {
        self.state = State::Answered;
        let mut len = 0;
        if let Some(payload_buffer) = &mut self.payload_buffer {
            let payload_buffer = payload_buffer.bytes_mut();
            for part in parts {
                payload_buffer[len..len + part.len()].copy_from_slice(part);
                len += part.len();
            }
        } else {
            self.deferred_reply.clear();
            parts.for_each(|part| self.deferred_reply.extend_from_slice(part));
            len = self.deferred_reply.len();
        }
        let header = OutHeader::new(self.unique, error, len);
        let ring_header = self.ring_header();
        ring_header.head[..size_of::<OutHeader>()].copy_from_slice(header.as_bytes());
        ring_header.payload_bytes = u32::try_from(len).expect("at most 1 MiB");
        self.payload_buffer.is_some()
    }

    /// Takes back the lent payload. Returns true if a reply waited for it.
    pub(super) fn return_payload(&mut self, ring_payload: RingPayload) -> bool {
        let mut payload_buffer = ring_payload.payload_buffer;
        payload_buffer.bytes_mut()[..self.deferred_reply.len()]
            .copy_from_slice(&self.deferred_reply);
        self.deferred_reply.clear();
        self.payload_buffer = Some(payload_buffer);
        self.state == State::Answered
    }

    /// Records that the kernel owns the entry from now on.
    pub(super) fn give_to_kernel(&mut self) {
        debug_assert!(self.payload_buffer.is_some(), "nothing of it is lent");
        self.state = State::InKernel;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_entry() -> RingEntry {
        RingEntry::new(0, RingBuffer::allocate(3, 4096).nth(1).unwrap())
    }

    /// Puts a request into an entry, as the kernel does.
    fn put(ring_entry: &mut RingEntry, opcode: u32, arguments: &[u8], payload: &[u8]) {
        let len = u32::try_from(abi::IN_HEADER_BYTES + arguments.len() + payload.len()).unwrap();
        let header = InHeader {
            len,
            opcode,
            unique: 7,
            nodeid: 1,
            uid: 0,
            gid: 0,
            pid: 0,
            total_extlen: 0,
            padding: 0,
        };
        let ring_header = ring_entry.ring_header();
        ring_header.head[..abi::IN_HEADER_BYTES].copy_from_slice(header.as_bytes());
        ring_header.operation[..arguments.len()].copy_from_slice(arguments);
        ring_header.payload_bytes = u32::try_from(payload.len()).unwrap();
        ring_header.commit_id = 9;
        ring_entry.payload_buffer.as_mut().unwrap().bytes_mut()[..payload.len()]
            .copy_from_slice(payload);
    }

    #[test]
    fn a_request_is_put_together_and_its_answer_lies_where_it_came() {
        let mut ring_entry = new_entry();
        put(&mut ring_entry, opcode::LOOKUP, b"12345678", b"name\0");
        let mut buffer = [0; 256];
        let (len, ring_payload) = ring_entry.take(3, &mut buffer).unwrap();
        assert!(ring_payload.is_none() && buffer[abi::IN_HEADER_BYTES..len] == *b"12345678name\0");
        assert!(
            ring_entry.awaits_reply_to(7)
                && !ring_entry.awaits_reply_to(8)
                && ring_entry.commit_id == 9
        );
        assert!(ring_entry.is_awaited, "a lookup waits");
        assert!(ring_entry.answer(0, [&b"ab"[..], b"c"].into_iter()), "nothing is lent");
        assert!(!ring_entry.awaits_reply_to(7), "one answer");
        assert_eq!(&ring_entry.payload_buffer.as_ref().unwrap().bytes()[..3], b"abc");
        assert_eq!(ring_entry.ring_header().payload_bytes, 3);
        let header: OutHeader = abi::head_of(&ring_entry.ring_header().head);
        assert_eq!((header.error, header.unique, header.len), (0, 7, 19));
        ring_entry.give_to_kernel();
    }

    #[test]
    fn the_data_of_a_write_stays_and_the_answer_waits_for_it() {
        let mut ring_entry = new_entry();
        put(&mut ring_entry, opcode::WRITE, &[5; 40], b"data");
        let mut buffer = [0; 256];
        let (len, ring_payload) = ring_entry.take(3, &mut buffer).unwrap();
        let ring_payload = ring_payload.unwrap();
        assert_eq!(
            (len, ring_payload.data(), ring_payload.entry_index),
            (abi::IN_HEADER_BYTES + 40, &b"data"[..], 3)
        );
        assert!(!ring_entry.answer(0, std::iter::once(&b"12345678"[..])), "it is lent");
        assert_eq!(ring_payload.data(), b"data", "the bytes are not written yet");
        assert!(ring_entry.return_payload(ring_payload), "now it can be committed");
        assert_eq!(&ring_entry.payload_buffer.as_ref().unwrap().bytes()[..8], b"12345678");
        ring_entry.give_to_kernel();
        put(&mut ring_entry, opcode::WRITE, &[5; 40], b"more");
        let (_, ring_payload) = ring_entry.take(3, &mut buffer).unwrap();
        assert!(!ring_entry.return_payload(ring_payload.unwrap()), "it is not answered yet");
        assert!(ring_entry.answer(-28, std::iter::empty()));
        let header: OutHeader = abi::head_of(&ring_entry.ring_header().head);
        assert_eq!(header.error, -28);
    }

    #[test]
    fn what_no_kernel_makes_is_none() {
        let mut buffer = [0; 256];
        let mut ring_entry = new_entry();
        put(&mut ring_entry, opcode::LOOKUP, b"1", b"name\0");
        ring_entry.ring_header().payload_bytes = 4000;
        assert!(ring_entry.take(0, &mut buffer).is_none(), "longer than it says");
        let mut ring_entry = new_entry();
        put(&mut ring_entry, opcode::LOOKUP, b"1", &[0; 1000]);
        assert!(ring_entry.take(0, &mut buffer).is_none(), "longer than the buffer");
    }
}
