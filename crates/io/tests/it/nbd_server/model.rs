//! Random operations of several clients, pipelined, against vectors of bytes.

use super::{MIB, Service};
use crate::common::{
    Random,
    rig::{Memory, engine, volume},
};
use larder_core::cache::cut;
use larder_io::front::nbd::ServerLimits;
use larder_io::nbd_client::{Client, Request};
use larder_io::nbd_wire as wire;
use larder_io::store::SolidMap;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of one client's part; the borders are in the middle of sectors.
const PART: u64 = 7 * MIB + 333;
const LENGTH: u64 = 21 * MIB + 512 * 3;

/// One client, its part of the volume and the expected content.
struct ModelClient {
    client: Client,
    random: Random,
    base: u64,
    model: Vec<u8>,
    in_flight: HashMap<u64, (Range<usize>, Option<Vec<u8>>)>,
}

impl ModelClient {
    fn range(&mut self) -> Range<usize> {
        // Mostly small, up to 4 MiB, rarely aligned.
        let bits = self.random.below(23);
        let len = (1 + self.random.below(1 << bits)).min(self.model.len());
        let start = self.random.below(self.model.len() - len + 1);
        if self.random.below(4) == 0 {
            start & !4095..(start & !4095) + len
        } else {
            start..start + len
        }
    }

    fn wait(&mut self) {
        let completion = self.client.wait().expect("the server answers");
        completion.result.expect("nothing fails here");
        let (range, expected) = self.in_flight.remove(&completion.cookie).expect("once");
        if let Some(expected) = expected {
            assert!(completion.data == expected, "{range:?} of {} brought other bytes", self.base);
        }
    }

    fn step(&mut self) {
        let range = self.range();
        let overlaps =
            |(other, _): &(Range<usize>, _)| other.start < range.end && range.start < other.end;
        while self.in_flight.len() >= 8 || self.in_flight.values().any(overlaps) {
            self.wait();
        }
        let (offset, len) = (self.base + range.start as u64, range.len());
        let short = u32::try_from(len).expect("at most 4 MiB");
        let mut expected = None;
        let fua = if self.random.below(4) == 0 { wire::CMD_FLAG_FUA } else { 0 };
        let request = match self.random.below(20) {
            0 => Request::flush(),
            1 => Request::cache(offset, short),
            2 => {
                // Whole blocks are discarded, and this store then returns zeros for them.
                let whole = cut(offset..offset + len as u64, LENGTH).blocks;
                let start = (whole.start * 4096).max(self.base) - self.base;
                let end = (whole.end * 4096).min(LENGTH).max(start + self.base) - self.base;
                if !whole.is_empty() {
                    let small = |n| usize::try_from(n).expect("inside the part");
                    self.model[small(start)..small(end)].fill(0);
                }
                Request::trim(offset, short).with_flags(fua)
            }
            n @ 3..5 => {
                self.model[range.clone()].fill(0);
                let no_hole = if n == 3 { wire::CMD_FLAG_NO_HOLE } else { 0 };
                Request::write_zeroes(offset, short).with_flags(no_hole | fua)
            }
            5..12 => {
                let bytes = self.random.bytes(len);
                self.model[range.clone()].copy_from_slice(&bytes);
                Request::write(offset, bytes).with_flags(fua)
            }
            _ => {
                expected = Some(self.model[range.clone()].to_vec());
                Request::read(offset, vec![0xee; len])
            }
        };
        let cookie = self.client.submit(request).expect("the server listens");
        self.in_flight.insert(cookie, (range, expected));
    }

    /// Runs the steps; returns the expected content of this part of the volume.
    fn run(mut self, steps: usize) -> Vec<u8> {
        for _ in 0..steps {
            self.step();
        }
        while !self.in_flight.is_empty() {
            self.wait();
        }
        self.client.disconnect().expect("a clean end");
        self.model
    }
}

/// The transport between client and server.
#[derive(Clone, Copy)]
enum Transport {
    Unix,
    Tcp,
    Tls,
}

fn clients_match_their_models(structured: bool, transport: Transport) {
    let engine = engine(16 * MIB);
    let memory = Memory::new(LENGTH);
    let volume = volume(&engine, "disk", LENGTH, memory.clone());
    let limits = ServerLimits::default();
    let service = match transport {
        Transport::Unix => Service::start(engine, volume, Arc::new(SolidMap), limits, false),
        Transport::Tcp => Service::start(engine, volume, Arc::new(SolidMap), limits, true),
        Transport::Tls => Service::start_tls(engine, volume, true, true),
    };
    let models: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let start = |i: u64| {
            let base = i * PART;
            let model = vec![0; usize::try_from(PART.min(LENGTH - base)).expect("megabytes")];
            let seed = i + 10 * u64::from(structured) + 100 * transport as u64;
            let (client, random) = (service.connect(structured), Random::new(seed));
            let in_flight = HashMap::new();
            scope.spawn(move || ModelClient { client, random, base, model, in_flight }.run(250))
        };
        let threads: Vec<_> = (0..3).map(start).collect();
        threads.into_iter().map(|thread| thread.join().expect("no player fails")).collect()
    });
    let mut client = service.connect(!structured);
    for (i, model) in models.iter().enumerate() {
        let mut bytes = vec![1; model.len()];
        client.read_at(i as u64 * PART, &mut bytes).expect("all can be read");
        assert!(bytes == *model, "part {i} as another client reads it");
    }
    client.flush().expect("the store works");
    for (i, model) in models.iter().enumerate() {
        let bytes = memory.bytes(i as u64 * PART, model.len());
        assert!(bytes == *model, "part {i} as the store has it after a flush");
    }
    drop(client);
    service.end();
}

#[test]
fn structured_replies_over_a_unix_socket_match_the_models() {
    clients_match_their_models(true, Transport::Unix);
}

#[test]
fn simple_replies_over_a_unix_socket_match_the_models() {
    clients_match_their_models(false, Transport::Unix);
}

#[test]
fn structured_replies_over_tcp_match_the_models() {
    clients_match_their_models(true, Transport::Tcp);
}

#[test]
fn simple_replies_over_tcp_match_the_models() {
    clients_match_their_models(false, Transport::Tcp);
}

#[test]
fn structured_replies_with_tls_match_the_models() {
    clients_match_their_models(true, Transport::Tls);
}

#[test]
fn simple_replies_with_tls_match_the_models() {
    clients_match_their_models(false, Transport::Tls);
}
