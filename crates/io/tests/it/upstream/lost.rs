//! An upstream that is killed and restarted: clients notice only the delay.

use super::{Downstream, MIB, Origin, connect};
use crate::common::{Random, rig};
use larder_core::counters::Counter;
use larder_core::mode::WriteMode;
use larder_io::nbd_client::{Client, ClientError, Request};
use larder_io::nbd_wire::{self as wire, Errno};
use larder_io::store::NbdOptions;
use larder_testing::budget;
use std::collections::HashMap;
use std::ops::Range;
use std::time::Duration;

const LENGTH: u64 = 20 * MIB;

/// A client with requests in flight, and its expected content.
struct ModelClient {
    client: Client,
    random: Random,
    model: Vec<u8>,
    in_flight: HashMap<u64, (Range<usize>, Option<Vec<u8>>)>,
}

impl ModelClient {
    fn new(client: Client, seed: u64) -> Self {
        let model = vec![0; usize::try_from(LENGTH).expect("megabytes")];
        ModelClient { client, random: Random::new(seed), model, in_flight: HashMap::new() }
    }

    fn wait(&mut self) {
        let completion = self.client.wait().expect("the server answers");
        completion.result.expect("nothing fails: the upstream comes back");
        let (range, expected) = self.in_flight.remove(&completion.cookie).expect("once");
        if let Some(expected) = expected {
            assert!(completion.data == expected, "{range:?} brought other bytes");
        }
    }

    fn wait_all(&mut self) {
        while !self.in_flight.is_empty() {
            self.wait();
        }
    }

    fn step(&mut self) {
        let bits = self.random.below(19);
        let len = 1 + self.random.below(1 << bits);
        let start = self.random.below(self.model.len() - len + 1);
        let range = if self.random.below(2) == 0 {
            let start = start & !4095;
            start..(start + len).next_multiple_of(4096).min(self.model.len())
        } else {
            start..start + len
        };
        let overlaps =
            |(other, _): &(Range<usize>, _)| other.start < range.end && range.start < other.end;
        while self.in_flight.len() >= 16 || self.in_flight.values().any(overlaps) {
            self.wait();
        }
        let (offset, short) = (range.start as u64, u32::try_from(range.len()).expect("short"));
        let mut expected = None;
        let fua = if self.random.below(8) == 0 { wire::CMD_FLAG_FUA } else { 0 };
        let request = match self.random.below(12) {
            0 => Request::flush(),
            1 => {
                self.model[range.clone()].fill(0);
                Request::write_zeroes(offset, short).with_flags(fua)
            }
            2..8 => {
                let bytes = self.random.bytes(range.len());
                self.model[range.clone()].copy_from_slice(&bytes);
                Request::write(offset, bytes).with_flags(fua)
            }
            _ => {
                expected = Some(self.model[range.clone()].to_vec());
                Request::read(offset, vec![0xee; range.len()])
            }
        };
        let cookie = self.client.submit(request).expect("the server listens");
        self.in_flight.insert(cookie, (range, expected));
    }
}

/// Rounds of work; in each the upstream is killed at some moment and restarted a little later.
/// Reads always return written data; flushed data is on the upstream's disk after a kill.
fn an_upstream_that_is_killed_again_and_again(mode: WriteMode, seed: u64) {
    let mut origin = Origin::new(LENGTH, mode);
    // Small, so that the store must also flush by itself.
    let options = NbdOptions { memory_bytes: 6 << 20, ..NbdOptions::default() };
    let downstream = Downstream::new(&origin.uri(), options).expect("a good export");
    let mut worker = ModelClient::new(downstream.connect(), seed);
    let mut random = Random::new(seed ^ 0xffff);
    for round in 0..8 {
        for _ in 0..random.below(120) {
            worker.step();
        }
        origin.kill();
        // The store notices immediately, or only when the upstream is back.
        let away = Duration::from_millis(random.below(150) as u64);
        std::thread::scope(|scope| {
            let back = scope.spawn(|| {
                std::thread::sleep(away);
                origin.start();
            });
            for _ in 0..random.below(60) {
                worker.step();
            }
            back.join().expect("it starts");
        });
        worker.wait_all();
        if round % 2 == 1 {
            worker.client.flush().expect("the upstream is there");
            origin.kill();
            assert!(origin.bytes() == worker.model, "round {round}: flushed and not there");
            origin.start();
        }
    }
    let mut all = vec![0; worker.model.len()];
    worker.client.read_at(0, &mut all).expect("it can be read");
    assert!(all == worker.model, "read through the cache");
    drop(worker.client);
    downstream.end();
    origin.kill();
    assert!(origin.bytes() == worker.model, "written at the stop and not there");
}

#[test]
fn nothing_is_lost_with_an_upstream_in_write_through() {
    (0..budget(1, 6))
        .for_each(|seed| an_upstream_that_is_killed_again_and_again(WriteMode::Through, seed));
}

#[test]
fn nothing_is_lost_with_an_upstream_in_write_back() {
    (10..10 + budget(1, 6))
        .for_each(|seed| an_upstream_that_is_killed_again_and_again(WriteMode::Back, seed));
}

/// The check above can fail: an upstream that is killed loses the data of a client that keeps no
/// copies.
#[test]
fn the_origin_of_these_tests_does_lose_what_was_not_flushed() {
    let mut origin = Origin::new(LENGTH, WriteMode::Back);
    let mut client = connect(&origin.uri());
    client.write_at(0, &vec![7; 1 << 20], false).unwrap();
    origin.kill();
    assert!(origin.bytes()[..1 << 20].contains(&0));
}

/// Operations wait as long as the options say; then they fail, and no data is lost.
#[test]
fn while_the_upstream_is_away_requests_fail_and_afterwards_all_is_well() {
    let mut origin = Origin::new(LENGTH, WriteMode::Back);
    let away_after = Duration::from_millis(200);
    let options = NbdOptions { away_after, ..NbdOptions::default() };
    let downstream = Downstream::new(&origin.uri(), options).unwrap();
    let mut client = downstream.connect();
    let mut other = downstream.connect();
    // Some data has been sent to the store, unflushed; the rest is dirty.
    client.write_at(0, &vec![1; 3 << 20], true).unwrap();
    client.write_at(4 * MIB, &vec![2; 1 << 20], false).unwrap();
    origin.kill();
    let errno = |result: Result<(), ClientError>| result.expect_err("it is away").errno();
    assert_eq!(errno(client.read_at(10 * MIB, &mut [0; 4096])), Some(Errno::Io));
    assert_eq!(errno(client.flush()), Some(Errno::Io));
    let mut hit = [0; 4096];
    client.read_at(4 * MIB, &mut hit).unwrap();
    assert_eq!(hit, [2; 4096], "hits go on");
    client.write_at(5 * MIB, &[3; 4096], false).unwrap();
    origin.start();
    rig::eventually("a flush succeeds again", || client.flush().is_ok());
    // The other client gets one report of the failed write; it gets none of the flush that failed.
    rig::eventually("no more than one report", || other.flush().is_ok());
    client.read_at(10 * MIB, &mut [0; 4096]).unwrap();
    origin.kill();
    let bytes = origin.bytes();
    assert!(bytes[..3 << 20].iter().all(|&byte| byte == 1));
    assert!(bytes[4 << 20..5 << 20].iter().all(|&byte| byte == 2));
    assert_eq!(bytes[5 << 20..(5 << 20) + 4096], [3; 4096]);
    origin.start();
    drop((client, other));
    downstream.end();
}

/// All data is written and not flushed when the upstream goes away: a flush fails for now, not
/// forever.
#[test]
fn a_flush_that_finds_the_upstream_away_is_not_final() {
    let mut origin = Origin::new(LENGTH, WriteMode::Back);
    let away_after = Duration::from_millis(100);
    let options = NbdOptions { away_after, ..NbdOptions::default() };
    let downstream = Downstream::new(&origin.uri(), options).unwrap();
    let mut client = downstream.connect();
    client.write_at(0, &vec![5; 1 << 20], false).unwrap();
    rig::eventually("the lazy writer has written it", || downstream.volume.unclean_blocks() == 0);
    assert_eq!(downstream.volume.totals().get(Counter::StoreFlushes), 0);
    origin.kill();
    // A read notices the loss.
    assert!(client.read_at(10 * MIB, &mut [0; 4096]).is_err());
    assert!(client.flush().is_err(), "it is away");
    assert!(client.flush().is_err(), "it is still away");
    origin.start();
    rig::eventually("a flush succeeds again", || client.flush().is_ok());
    origin.kill();
    assert!(origin.bytes()[..1 << 20].iter().all(|&byte| byte == 5));
    origin.start();
    drop(client);
    downstream.end();
}

#[test]
fn an_export_that_came_back_as_another_one_is_not_written() {
    let mut origin = Origin::new(LENGTH, WriteMode::Back);
    let away_after = Duration::from_secs(2);
    let options = NbdOptions { away_after, ..NbdOptions::default() };
    let downstream = Downstream::new(&origin.uri(), options).unwrap();
    let mut client = downstream.connect();
    client.write_at(0, &vec![5; 1 << 20], false).unwrap();
    origin.kill();
    origin.length = 2 * LENGTH;
    origin.start();
    let error = client.read_at(10 * MIB, &mut [0; 4096]).unwrap_err().to_string();
    assert!(error.contains("it was 20971520 bytes long and now is 41943040"), "{error}");
    assert!(client.flush().is_err());
    origin.kill();
    assert!(origin.bytes().iter().all(|&byte| byte == 0), "nothing was written");
    origin.length = LENGTH;
    origin.start();
    rig::eventually("a flush succeeds again", || client.flush().is_ok());
    drop(client);
    downstream.end();
}
