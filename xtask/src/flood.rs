//! A client that costs next to nothing: 4 KiB requests at random places, a fixed number in flight.
//!
//! Beside fio, whose own work for each request is what limits the rate of a fast server: here one
//! receive takes in all answers that have come, and one send carries as many new requests. So what
//! is measured is the server. Simple replies; each is looked at for its form, its error and that
//! it answers a request in flight.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::fio::Outcome;
use crate::nbd::{self, Client, SIMPLE_REPLY_MAGIC};
use crate::random::Random;

const BLOCK_BYTES: usize = 4096;
const REPLY_BYTES: usize = 16;
const BUFFER_BYTES: usize = 1 << 20;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
}

impl Kind {
    fn command(self) -> u16 {
        match self {
            Kind::Read => nbd::command::READ,
            Kind::Write => nbd::command::WRITE,
        }
    }

    /// What an answer without an error takes.
    fn answer_bytes(self) -> usize {
        match self {
            Kind::Read => REPLY_BYTES + BLOCK_BYTES,
            Kind::Write => REPLY_BYTES,
        }
    }
}

/// Keeps `depth` requests in flight for `seconds`.
pub(crate) fn run(socket: &Path, kind: Kind, depth: usize, seconds: u64) -> Result<Outcome> {
    let mut flood = Flood {
        client: Client::connect(socket, "")?,
        kind,
        random: Random::seeded(seconds),
        waiting: vec![false; depth],
        out: Vec::new(),
        data: vec![0xa5; BLOCK_BYTES],
    };
    let begin = Instant::now();
    let requests = flood.run(begin + Duration::from_secs(seconds))?;
    let per_s = super::prove::to_f64(requests) / begin.elapsed().as_secs_f64();
    Ok(Outcome { requests, per_s, bytes: requests * BLOCK_BYTES as u64, p999_ms: 0.0 })
}

struct Flood {
    client: Client,
    kind: Kind,
    random: Random,
    /// Of each handle, whether it waits for its answer.
    waiting: Vec<bool>,
    /// Requests to be sent.
    out: Vec<u8>,
    data: Vec<u8>,
}

impl Flood {
    fn run(&mut self, end: Instant) -> Result<u64> {
        for handle in 0..self.waiting.len() {
            self.ask(handle)?;
        }
        self.client.put(&self.out)?;
        let mut buffer = vec![0; BUFFER_BYTES];
        let (mut filled, mut answered, mut in_flight) = (0, 0, self.waiting.len());
        while in_flight > 0 {
            filled += self.client.take_some(&mut buffer[filled..])?;
            let whole = filled / self.kind.answer_bytes() * self.kind.answer_bytes();
            let more = Instant::now() < end;
            self.out.clear();
            for answer in buffer[..whole].chunks_exact(self.kind.answer_bytes()) {
                let handle = self.settle(answer)?;
                (answered, in_flight) = (answered + 1, in_flight - 1);
                if more {
                    self.ask(handle)?;
                    in_flight += 1;
                }
            }
            buffer.copy_within(whole..filled, 0);
            filled -= whole;
            self.client.put(&self.out)?;
        }
        Ok(answered)
    }

    /// Queues a request at a random block.
    fn ask(&mut self, handle: usize) -> Result<()> {
        let blocks = usize::try_from(self.client.bytes())? / BLOCK_BYTES;
        let offset = (self.random.below(blocks) * BLOCK_BYTES) as u64;
        let head = nbd::request_head(
            self.kind.command(),
            0,
            handle as u64,
            offset,
            u32::try_from(BLOCK_BYTES)?,
        );
        self.out.extend_from_slice(&head);
        if self.kind == Kind::Write {
            self.out.extend_from_slice(&self.data);
        }
        self.waiting[handle] = true;
        Ok(())
    }

    /// Looks at the head of an answer; the handle that it is for.
    fn settle(&mut self, answer: &[u8]) -> Result<usize> {
        let word = |at: usize| u32::from_be_bytes(answer[at..at + 4].try_into().expect("four"));
        ensure!(word(0) == SIMPLE_REPLY_MAGIC, "a reply of an unknown form");
        ensure!(word(4) == 0, "a request failed with error {}", word(4));
        let handle = u64::from_be_bytes(answer[8..16].try_into().expect("eight bytes"));
        let slot = usize::try_from(handle).ok().and_then(|slot| self.waiting.get_mut(slot));
        ensure!(slot.is_some_and(std::mem::take), "a reply to a request that was not made");
        Ok(usize::try_from(handle)?)
    }
}
