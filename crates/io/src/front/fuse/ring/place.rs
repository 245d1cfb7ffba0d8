//! A place where the kernel puts a request and finds the answer: heads, and room for the rest.
//!
//! Invariant: either the kernel has a place or we have; what is in it is touched by us alone while
//! we have it.

use super::super::abi::{self, InHeader, OutHeader, opcode};
use super::abi::RequestHeader;
use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::Arc;
use zerocopy::{FromZeros, IntoBytes};

/// The memory of rooms in one piece, for which the kernel may grant huge pages.
#[derive(Debug)]
struct Memory(Box<[UnsafeCell<u8>]>);

// SAFETY: nobody touches it but whoever has a room of it, and that room alone.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(bytes: usize) -> Self {
        let zeros: Box<[u8]> = vec![0; bytes].into();
        // SAFETY: an `UnsafeCell<u8>` is laid out as a byte, and the box is turned as a whole.
        Memory(unsafe { Box::from_raw(Box::into_raw(zeros) as *mut [UnsafeCell<u8>]) })
    }
}

/// Room for what does not fit the heads. Only whoever has the place touches it.
#[derive(Debug)]
pub(super) struct RingBuffer {
    memory: Arc<Memory>,
    part: Range<usize>,
}

impl RingBuffer {
    /// So many of them, each of so many bytes.
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

    /// What is in it.
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: whoever calls has the place, so that the kernel writes nothing there; writing by
        // us takes `&mut self`.
        unsafe { std::slice::from_raw_parts(self.cells().as_ptr().cast(), self.part.len()) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        let first = UnsafeCell::raw_get(self.cells().as_ptr());
        // SAFETY: as above, and the borrow is the only one.
        unsafe { std::slice::from_raw_parts_mut(first, self.part.len()) }
    }
}

/// What of a request stays where the kernel has put it, while its place is not answered.
#[derive(Debug)]
pub(in crate::front::fuse) struct RingPayload {
    pub(super) place: usize,
    room: RingBuffer,
    len: usize,
}

impl RingPayload {
    /// The data.
    pub(in crate::front::fuse) fn data(&self) -> &[u8] {
        &self.room.bytes()[..self.len]
    }
}

/// What became of the request of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The kernel has it.
    Kernels,
    /// It is to be answered.
    Asked,
    /// The answer is there.
    Answered,
}

/// A place.
#[derive(Debug)]
pub(super) struct Place {
    /// Of which processor.
    pub(super) queue: u16,
    heads: Box<UnsafeCell<RequestHeader>>,
    /// Not there while it is lent.
    room: Option<RingBuffer>,
    /// Heads and room, as the kernel is told of them.
    parts: Box<[libc::iovec; 2]>,
    state: State,
    unique: u64,
    pub(super) commit_id: u64,
    /// Whether somebody waits for the answer.
    pub(super) is_awaited: bool,
    /// An answer that waits for the room.
    kept: Vec<u8>,
}

// SAFETY: what `parts` points at belongs to the place.
unsafe impl Send for Place {}

impl Place {
    /// A place that the kernel is about to be given.
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

    /// Has its memory there before the kernel wants to fill it.
    pub(super) fn touch(&mut self) {
        if let Some(room) = &mut self.room {
            room.bytes_mut().fill(1);
        }
    }

    /// Where it is, for the kernel.
    pub(super) fn address(&self) -> u64 {
        self.parts.as_ptr() as u64
    }

    fn heads(&mut self) -> &mut RequestHeader {
        // SAFETY: callers have the place, and the borrow is the only one.
        unsafe { &mut *self.heads.get() }
    }

    /// The kernel has put a request there: it is copied to `buffer`, but for the data of a write,
    /// which is lent. How long it is; `None` if it is none that the kernel makes.
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

    /// Whether this request is to be answered there.
    pub(super) fn is_asked(&self, unique: u64) -> bool {
        self.state == State::Asked && self.unique == unique
    }

    /// Puts an answer there; whether it can be committed, which waits for what is lent.
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

    /// What was lent is back; whether there is an answer that waited for it.
    pub(super) fn give_back(&mut self, lent: RingPayload) -> bool {
        let mut room = lent.room;
        room.bytes_mut()[..self.kept.len()].copy_from_slice(&self.kept);
        self.kept.clear();
        self.room = Some(room);
        self.state == State::Answered
    }

    /// The kernel is given it.
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

    /// What the kernel puts at a place.
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
