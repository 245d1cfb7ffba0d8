//! A ring entry, into which the kernel puts a request and from which it takes the reply: headers,
//! and a payload buffer.
//!
//! Invariant: either the kernel or this process owns an entry; the owner alone accesses its memory.

use super::super::abi::{self, InHeader, OutHeader, opcode};
use super::abi::RequestHeader;
use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::Arc;
use zerocopy::{FromZeros, IntoBytes};

/// Memory of several payload buffers in one piece, for which the kernel may use huge pages.
#[derive(Debug)]
struct Memory(Box<[UnsafeCell<u8>]>);

// SAFETY: each thread accesses only the payload buffers that it owns.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(bytes: usize) -> Self {
        let zeros: Box<[u8]> = vec![0; bytes].into();
        // SAFETY: an `UnsafeCell<u8>` has the layout of a byte, and the box is converted as a
        // whole.
        Memory(unsafe { Box::from_raw(Box::into_raw(zeros) as *mut [UnsafeCell<u8>]) })
    }
}

/// Payload buffer of a ring entry. Only the owner of the entry accesses it.
#[derive(Debug)]
pub(super) struct RingBuffer {
    memory: Arc<Memory>,
    part: Range<usize>,
}

impl RingBuffer {
    /// Allocates `count` buffers of `bytes` bytes each.
    pub(super) fn several(count: usize, bytes: usize) -> impl Iterator<Item = RingBuffer> {
        let memory = Arc::new(Memory::new(count * bytes));
        let room = move |number: usize| RingBuffer {
            memory: Arc::clone(&memory),
            part: number * bytes..(number + 1) * bytes,
        };
        (0..count).map(room)
    }

    fn cells(&self) -> &[UnsafeCell<u8>] {
        &self.memory.0[self.part.clone()]
    }

    /// Returns the contents.
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the caller owns the entry, so the kernel does not write; writes of this process
        // take `&mut self`.
        unsafe { std::slice::from_raw_parts(self.cells().as_ptr().cast(), self.part.len()) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        let first = UnsafeCell::raw_get(self.cells().as_ptr());
        // SAFETY: as above, and the borrow is the only one.
        unsafe { std::slice::from_raw_parts_mut(first, self.part.len()) }
    }
}

/// Payload of a write in a ring entry, borrowed from the entry until it is returned.
#[derive(Debug)]
pub(in crate::front::fuse) struct RingPayload {
    pub(super) place: usize,
    room: RingBuffer,
    len: usize,
}

impl RingPayload {
    /// Returns the data.
    pub(in crate::front::fuse) fn data(&self) -> &[u8] {
        &self.room.bytes()[..self.len]
    }
}

/// State of a ring entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The kernel owns the entry.
    Kernels,
    /// The entry holds a request that is not answered.
    Asked,
    /// The entry holds the reply.
    Answered,
}

/// A ring entry.
#[derive(Debug)]
pub(super) struct Place {
    /// Queue of the entry: the number of its processor.
    pub(super) queue: u16,
    heads: Box<UnsafeCell<RequestHeader>>,
    /// Payload buffer; none while a [`RingPayload`] borrows it.
    room: Option<RingBuffer>,
    /// Headers and payload buffer, for the kernel.
    parts: Box<[libc::iovec; 2]>,
    state: State,
    unique: u64,
    pub(super) commit_id: u64,
    /// True if a process waits for the reply.
    pub(super) is_awaited: bool,
    /// Reply that waits for the payload buffer.
    kept: Vec<u8>,
}

// SAFETY: `parts` points to memory that the entry owns.
unsafe impl Send for Place {}

impl Place {
    /// Returns an entry that is about to be registered.
    pub(super) fn new(queue: u16, room: RingBuffer) -> Self {
        let heads = Box::new(UnsafeCell::new(RequestHeader::new_zeroed()));
        let part = |base: *mut libc::c_void, len| libc::iovec { iov_base: base, iov_len: len };
        let parts = Box::new([
            part(heads.get().cast(), size_of::<RequestHeader>()),
            part(room.cells().as_ptr().cast_mut().cast(), room.part.len()),
        ]);
        Place {
            queue,
            heads,
            room: Some(room),
            parts,
            state: State::Kernels,
            unique: 0,
            commit_id: 0,
            is_awaited: true,
            kept: Vec::new(),
        }
    }

    /// Allocates its memory before the kernel fills it.
    pub(super) fn touch(&mut self) {
        if let Some(room) = &mut self.room {
            room.bytes_mut().fill(1);
        }
    }

    /// Returns the address of the iovecs, for the kernel.
    pub(super) fn address(&self) -> u64 {
        self.parts.as_ptr() as u64
    }

    fn heads(&mut self) -> &mut RequestHeader {
        // SAFETY: callers own the entry, and the borrow is the only one.
        unsafe { &mut *self.heads.get() }
    }

    /// Copies the request that the kernel has put into the entry to `buffer`, except for the data
    /// of a write, which it lends. Returns the length of the copy; `None` if no kernel sends such a
    /// request.
    pub(super) fn take(
        &mut self,
        index: usize,
        buffer: &mut [u8],
    ) -> Option<(usize, Option<RingPayload>)> {
        debug_assert_eq!(self.state, State::Kernels, "a place was handed over twice");
        self.state = State::Asked;
        let heads = self.heads();
        let header: InHeader = abi::head_of(&heads.head);
        let payload = heads.payload_bytes as usize;
        let commit_id = heads.commit_id;
        let rest = (header.len as usize).checked_sub(abi::IN_HEADER_BYTES + payload)?;
        let head = &heads.head[..abi::IN_HEADER_BYTES];
        let own = heads.operation.get(..rest)?;
        let mut len = 0;
        for part in [head, own] {
            buffer.get_mut(len..len + part.len())?.copy_from_slice(part);
            len += part.len();
        }
        (self.unique, self.commit_id) = (header.unique, commit_id);
        self.is_awaited = !matches!(header.opcode, opcode::RELEASE | opcode::RELEASEDIR);
        if header.opcode == opcode::WRITE {
            let room = self.room.take()?;
            (payload <= room.part.len()).then_some(())?;
            return Some((len, Some(RingPayload { place: index, room, len: payload })));
        }
        let data = self.room.as_ref()?.bytes().get(..payload)?;
        buffer.get_mut(len..len + payload)?.copy_from_slice(data);
        Some((len + payload, None))
    }

    /// Returns true if the entry holds this request and it is not answered.
    pub(super) fn is_asked(&self, unique: u64) -> bool {
        self.state == State::Asked && self.unique == unique
    }

    /// Stores a reply. Returns true if it can be committed; a lent payload has to be returned
    /// first.
    pub(super) fn answer<'a>(&mut self, error: i32, parts: impl Iterator<Item = &'a [u8]>) -> bool {
        self.state = State::Answered;
        let mut len = 0;
        if let Some(room) = &mut self.room {
            let room = room.bytes_mut();
            for part in parts {
                room[len..len + part.len()].copy_from_slice(part);
                len += part.len();
            }
        } else {
            self.kept.clear();
            parts.for_each(|part| self.kept.extend_from_slice(part));
            len = self.kept.len();
        }
        let len = u32::try_from(len).expect("a small answer");
        let unique = self.unique;
        let head_bytes = u32::try_from(size_of::<OutHeader>()).expect("small");
        let header = OutHeader { len: head_bytes + len, error: -error, unique };
        let heads = self.heads();
        heads.head[..size_of::<OutHeader>()].copy_from_slice(header.as_bytes());
        heads.payload_bytes = len;
        self.room.is_some()
    }

    /// Takes back the lent payload. Returns true if a reply waited for it.
    pub(super) fn give_back(&mut self, lent: RingPayload) -> bool {
        let mut room = lent.room;
        room.bytes_mut()[..self.kept.len()].copy_from_slice(&self.kept);
        self.kept.clear();
        self.room = Some(room);
        self.state == State::Answered
    }

    /// Records that the kernel owns the entry from now on.
    pub(super) fn hand_over(&mut self) {
        debug_assert!(self.room.is_some(), "nothing of it is lent");
        self.state = State::Kernels;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn a_place() -> Place {
        Place::new(0, RingBuffer::several(3, 4096).nth(1).unwrap())
    }

    /// Puts a request into an entry, as the kernel does.
    fn put(place: &mut Place, opcode: u32, own: &[u8], payload: &[u8]) {
        let len = u32::try_from(abi::IN_HEADER_BYTES + own.len() + payload.len()).unwrap();
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
        let heads = place.heads();
        heads.head[..abi::IN_HEADER_BYTES].copy_from_slice(header.as_bytes());
        heads.operation[..own.len()].copy_from_slice(own);
        heads.payload_bytes = u32::try_from(payload.len()).unwrap();
        heads.commit_id = 9;
        place.room.as_mut().unwrap().bytes_mut()[..payload.len()].copy_from_slice(payload);
    }

    #[test]
    fn a_request_is_put_together_and_its_answer_lies_where_it_came() {
        let mut place = a_place();
        put(&mut place, opcode::LOOKUP, b"12345678", b"name\0");
        let mut buffer = [0; 256];
        let (len, lent) = place.take(3, &mut buffer).unwrap();
        assert!(lent.is_none() && buffer[abi::IN_HEADER_BYTES..len] == *b"12345678name\0");
        assert!(place.is_asked(7) && !place.is_asked(8) && place.commit_id == 9);
        assert!(place.is_awaited, "whoever looks up waits");
        assert!(place.answer(0, [&b"ab"[..], b"c"].into_iter()), "nothing is lent");
        assert!(!place.is_asked(7), "one answer");
        assert_eq!(&place.room.as_ref().unwrap().bytes()[..3], b"abc");
        assert_eq!(place.heads().payload_bytes, 3);
        let header: OutHeader = abi::head_of(&place.heads().head);
        assert_eq!((header.error, header.unique, header.len), (0, 7, 19));
        place.hand_over();
    }

    #[test]
    fn the_data_of_a_write_stays_and_the_answer_waits_for_it() {
        let mut place = a_place();
        put(&mut place, opcode::WRITE, &[5; 40], b"data");
        let mut buffer = [0; 256];
        let (len, lent) = place.take(3, &mut buffer).unwrap();
        let lent = lent.unwrap();
        assert_eq!((len, lent.data(), lent.place), (abi::IN_HEADER_BYTES + 40, &b"data"[..], 3));
        assert!(!place.answer(0, std::iter::once(&b"12345678"[..])), "it is lent");
        assert_eq!(lent.data(), b"data", "nobody has written there");
        assert!(place.give_back(lent), "now it can be committed");
        assert_eq!(&place.room.as_ref().unwrap().bytes()[..8], b"12345678");
        place.hand_over();
        put(&mut place, opcode::WRITE, &[5; 40], b"more");
        let (_, lent) = place.take(3, &mut buffer).unwrap();
        assert!(!place.give_back(lent.unwrap()), "it is not answered yet");
        assert!(place.answer(28, std::iter::empty()));
        let header: OutHeader = abi::head_of(&place.heads().head);
        assert_eq!(header.error, -28);
    }

    #[test]
    fn what_no_kernel_makes_is_none() {
        let mut buffer = [0; 256];
        let mut place = a_place();
        put(&mut place, opcode::LOOKUP, b"1", b"name\0");
        place.heads().payload_bytes = 4000;
        assert!(place.take(0, &mut buffer).is_none(), "longer than it says");
        let mut place = a_place();
        put(&mut place, opcode::LOOKUP, b"1", &[0; 1000]);
        assert!(place.take(0, &mut buffer).is_none(), "longer than the buffer");
    }
}
