//! Reception of replies: simple ones, and the chunks of structured ones.
//!
//! NBD's proto.md, "Simple reply message", "Structured reply chunk message" and "Structured reply
//! types". Data goes from the socket into the request's buffer. A violation of the protocol ends
//! the connection with an error that names it: this client also tests Larder's server.

use super::Client;
use super::deadline::Deadline;
use super::error::{ClientError, RequestError};
use super::pipeline::{Extent, Slot};
use crate::nbd_wire::{self as wire, CHUNK_BYTES, Chunk, SIMPLE_REPLY_BYTES};
use std::io::{BufRead, Read};

/// Maximum payload of an error chunk: a string, its header, an offset, and a margin.
const ERROR_BYTES_MAX: u32 = wire::STRING_BYTES_MAX + 64;
/// Maximum number of extents in one reply.
const EXTENTS_MAX: u32 = 1 << 20;
/// Maximum number of extents of one reply that are kept. Later ones are read and discarded: their
/// state stays unknown.
pub(super) const EXTENTS_KEPT_MAX: usize = 4096;
/// Maximum number of separate parts of a read that have been received at any time.
pub(super) const PARTS_MAX: usize = 4096;

fn protocol<T>(text: &str) -> Result<T, ClientError> {
    Err(ClientError::Protocol(text.to_owned()))
}

impl Client {
    /// Receives one simple reply or one chunk, and completes its request if it is the last one.
    pub(super) fn receive(&mut self) -> Result<(), ClientError> {
        self.set_deadline(0);
        if self.stream.buffer().is_empty() {
            self.stream.fill_buf()?;
            // The server has begun its reply.
            self.set_deadline(0);
        }
        let mut head = [0; CHUNK_BYTES];
        let (first, rest) = head.split_at_mut(SIMPLE_REPLY_BYTES);
        self.stream.read_exact(first)?;
        if !first.starts_with(&wire::STRUCTURED_REPLY_MAGIC.to_be_bytes()) {
            return self.receive_simple(first.first_chunk().expect("a simple reply"));
        }
        self.stream.read_exact(rest)?;
        let chunk = Chunk::parse(&head)?;
        if !self.details.structured {
            return protocol("it sent a chunk, but structured replies were not negotiated");
        }
        let index = self.slot_of(chunk.cookie)?;
        self.continue_answer(index)?;
        match chunk.kind {
            wire::CHUNK_NONE => {
                if chunk.len != 0 || chunk.flags & wire::CHUNK_FLAG_DONE == 0 {
                    return protocol("it sent a NONE chunk with data or without DONE");
                }
            }
            wire::CHUNK_OFFSET_DATA => self.receive_data(index, chunk.len)?,
            wire::CHUNK_OFFSET_HOLE => self.receive_hole(index, chunk.len)?,
            wire::CHUNK_BLOCK_STATUS => self.receive_status(index, chunk.len)?,
            kind if kind & wire::CHUNK_ERROR_BIT != 0 => self.receive_error(index, chunk)?,
            _ => return protocol("it sent a chunk of an unknown type"),
        }
        if chunk.flags & wire::CHUNK_FLAG_DONE != 0 {
            self.slots[index].check_complete()?;
            self.finish(index);
        }
        Ok(())
    }

    /// Sets the deadline of the whole reply to a request, which begins with its first chunk.
    fn continue_answer(&mut self, index: usize) -> Result<(), ClientError> {
        let slot = &mut self.slots[index];
        let new_deadline = || Deadline::after(self.timeout, slot.data.len());
        let deadline = *slot.deadline.get_or_insert_with(new_deadline);
        self.stream.get_mut().deadline = deadline;
        if deadline.is_over() { Err(ClientError::TimedOut) } else { Ok(()) }
    }

    fn receive_simple(&mut self, bytes: &[u8; SIMPLE_REPLY_BYTES]) -> Result<(), ClientError> {
        let (cookie, code) = wire::parse_simple_reply(bytes)?;
        let index = self.slot_of(cookie)?;
        self.continue_answer(index)?;
        let slot = &mut self.slots[index];
        let with_payload = matches!(slot.request.command, wire::CMD_READ | wire::CMD_BLOCK_STATUS);
        if self.details.structured
            && with_payload
            && (slot.request.command == wire::CMD_READ || code == 0)
        {
            return protocol("it sent a simple reply where a structured one is due");
        }
        if code != 0 {
            slot.error = Some(RequestError::of_code(code));
        } else if slot.request.command == wire::CMD_READ {
            self.stream.read_exact(&mut slot.data)?;
        }
        self.finish(index);
        Ok(())
    }

    fn receive_data(&mut self, index: usize, len: u32) -> Result<(), ClientError> {
        if len <= 8 {
            return protocol("it sent a data chunk without data");
        }
        let offset = self.read_u64()?;
        let slot = &mut self.slots[index];
        let range = slot.record_chunk(offset, len - 8)?;
        Ok(self.stream.read_exact(&mut slot.data[range])?)
    }

    fn receive_hole(&mut self, index: usize, len: u32) -> Result<(), ClientError> {
        if len != 12 {
            return protocol("it sent a hole chunk of a wrong length");
        }
        let offset = self.read_u64()?;
        let len = self.read_u32()?;
        let slot = &mut self.slots[index];
        let range = slot.record_chunk(offset, len)?;
        slot.data[range].fill(0);
        Ok(())
    }

    fn receive_status(&mut self, index: usize, len: u32) -> Result<(), ClientError> {
        if len < 12 || !(len - 4).is_multiple_of(8) || len / 8 > EXTENTS_MAX {
            return protocol("it sent a block status of a wrong length");
        }
        if self.slots[index].request.command != wire::CMD_BLOCK_STATUS {
            return protocol("it sent a block status to another request");
        }
        if !self.slots[index].extents.is_empty() {
            return protocol("it sent two block statuses for one context");
        }
        if Some(self.read_u32()?) != self.details.base_allocation {
            return protocol("it sent a block status of a context that was not selected");
        }
        let slot = &self.slots[index];
        let (requested, only_one) =
            (u64::from(slot.request.len), slot.request.flags & wire::CMD_FLAG_REQ_ONE != 0);
        let (mut sum, mut is_full) = (0, false);
        for number in 0..len / 8 {
            let extent = Extent { len: self.read_u32()?, state: self.read_u32()? };
            if extent.len == 0 {
                return protocol("it sent an extent without a length");
            }
            // All extents but the last lie in the request; a single one must not exceed it.
            let is_beyond = sum >= requested || (only_one && number > 0);
            sum += u64::from(extent.len);
            if is_beyond || (only_one && sum > requested) {
                return protocol("it sent more extents than were asked for");
            }
            is_full = is_full || !self.slots[index].keep_extent(extent);
        }
        Ok(())
    }

    fn receive_error(&mut self, index: usize, chunk: Chunk) -> Result<(), ClientError> {
        if chunk.len < 6 || chunk.len > ERROR_BYTES_MAX {
            return protocol("it sent an error chunk of a wrong length");
        }
        let mut error = RequestError::of_code(self.read_u32()?);
        let message_len = u32::from(self.read_u16()?);
        let Some(tail) = (chunk.len - 6).checked_sub(message_len) else {
            return protocol("it sent an error whose message is longer than its chunk");
        };
        let mut message = vec![0; message_len as usize];
        self.stream.read_exact(&mut message)?;
        error.message = String::from_utf8_lossy(&message).into_owned();
        let mut tail_left = tail;
        if chunk.kind == wire::CHUNK_ERROR_OFFSET {
            let Some(left) = tail.checked_sub(8) else {
                return protocol("it sent an error at an offset without the offset");
            };
            error.offset = Some(self.read_u64()?);
            tail_left = left;
        }
        self.stream.read_exact(&mut vec![0; tail_left as usize])?;
        self.slots[index].error.get_or_insert(error);
        Ok(())
    }

    fn read_array<const N: usize>(&mut self) -> Result<[u8; N], ClientError> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn read_u16(&mut self) -> Result<u16, ClientError> {
        Ok(u16::from_be_bytes(self.read_array()?))
    }

    fn read_u32(&mut self) -> Result<u32, ClientError> {
        Ok(u32::from_be_bytes(self.read_array()?))
    }

    fn read_u64(&mut self) -> Result<u64, ClientError> {
        Ok(u64::from_be_bytes(self.read_array()?))
    }
}

impl Slot {
    /// Records a data chunk; returns its range in the buffer. It must lie inside the request and
    /// must not overlap another one.
    fn record_chunk(
        &mut self,
        offset: u64,
        len: u32,
    ) -> Result<std::ops::Range<usize>, ClientError> {
        if self.request.command != wire::CMD_READ {
            return protocol("it sent data to a request that reads none");
        }
        let start =
            offset.checked_sub(self.request.offset).and_then(|start| u32::try_from(start).ok());
        let end =
            start.and_then(|start| start.checked_add(len)).filter(|&end| end <= self.request.len);
        let (Some(start), Some(end), true) = (start, end, len > 0) else {
            return protocol("it sent data outside of the request");
        };
        let at = self.covered.partition_point(|&(other, _)| other < start);
        let after_previous = at == 0 || self.covered[at - 1].1 <= start;
        let before_next = self.covered.get(at).is_none_or(|&(next, _)| end <= next);
        if !(after_previous && before_next) {
            return protocol("it sent the same data twice");
        }
        if self.request.flags & wire::CMD_FLAG_DF != 0 && !self.covered.is_empty() {
            return protocol("it fragmented an answer that it was asked not to");
        }
        let continues = at > 0 && self.covered[at - 1].1 == start;
        let precedes = self.covered.get(at).is_some_and(|&(next, _)| next == end);
        match (continues, precedes) {
            (true, true) => self.covered[at - 1].1 = self.covered.remove(at).1,
            (true, false) => self.covered[at - 1].1 = end,
            (false, true) => self.covered[at].0 = start,
            (false, false) if self.covered.len() == PARTS_MAX => {
                return protocol("it sent a read in too many separate parts");
            }
            (false, false) => self.covered.insert(at, (start, end)),
        }
        Ok(start as usize..end as usize)
    }

    /// Keeps an extent that follows the others, as a part of the last one if the state is the same.
    /// Returns false if too many are kept already.
    fn keep_extent(&mut self, extent: Extent) -> bool {
        if let Some(last) = self.extents.last_mut().filter(|last| last.state == extent.state)
            && let Some(len) = last.len.checked_add(extent.len)
        {
            last.len = len;
        } else if self.extents.len() < EXTENTS_KEPT_MAX {
            self.extents.push(extent);
        } else {
            return false;
        }
        true
    }

    /// Checks that a request without an error has received all requested data.
    fn check_complete(&self) -> Result<(), ClientError> {
        if self.error.is_some() {
            return Ok(());
        }
        let covered: u32 = self.covered.iter().map(|(start, end)| end - start).sum();
        match self.request.command {
            wire::CMD_READ if covered != self.request.len => {
                protocol("it ended a read without all data")
            }
            wire::CMD_BLOCK_STATUS if self.extents.is_empty() => {
                protocol("it ended a block status without extents")
            }
            _ => Ok(()),
        }
    }
}
