//! Misbehaving clients: partial requests, unread replies, kills. Other clients must not be
//! affected.

use super::{MIB, Service, request};
use crate::common::{
    Random,
    rig::{Memory, engine, eventually, volume},
};
use larder_core::clock::MILLISECOND;
use larder_core::counters::Gauge;
use larder_core::store::DelayStore;
use larder_io::front::nbd::ServerLimits;
use larder_io::nbd_client::Request;
use larder_io::nbd_wire as wire;
use larder_io::store::SolidMap;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

#[test]
fn half_a_request_of_a_client_that_goes_away_does_nothing() {
    let memory = Memory::new(8 * MIB);
    let service = Service::new(16 * MIB, 8 * MIB, memory.clone());
    let mut header = service.connect_raw();
    header.write_all(&request(wire::CMD_WRITE, 1, 0, 4096)[..20]).unwrap();
    drop(header);
    let mut payload = service.connect_raw();
    payload.write_all(&request(wire::CMD_WRITE, 1, 0, 1 << 20)).unwrap();
    payload.write_all(&[1; 5000]).unwrap();
    drop(payload);
    let mut refused = service.connect_raw();
    refused.write_all(&request(wire::CMD_WRITE, 1, 8 * MIB, 1 << 20)).unwrap();
    refused.write_all(&[1; 5000]).unwrap();
    drop(refused);
    let mut client = service.connect(true);
    let mut bytes = [9; 8192];
    client.read_at(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 8192]);
    client.disconnect().unwrap();
    service.end();
}

/// One client requests as much as it can and reads nothing; another one reads and writes
/// everything.
fn a_slow_reader_is_nobodys_burden(lengths: &[u32]) {
    let length = 48 * MIB;
    let memory = Memory::new(length);
    let service = Service::new(16 * MIB, length, memory.clone());
    let free = |service: &Service| service.engine.cache().gauge(&service.volume, Gauge::Free);
    let all_free = free(&service);
    let mut slow = service.connect_raw();
    for (i, &len) in lengths.iter().enumerate() {
        let offset = i as u64 * MIB % (length - u64::from(len) + 1);
        slow.write_all(&request(wire::CMD_READ, i as u64, offset, len)).expect("it is served");
    }
    eventually("its answers wait", || service.frames_held() > 256);
    let mut client = service.connect(true);
    eventually("both sessions are open", || service.server.budget().sessions == 2);
    let budget = service.server.budget();
    assert_eq!(budget.sessions_max, 64);
    let pinned = budget.pinned;
    assert!(pinned.leased_bytes > 0 && pinned.leased_bytes <= pinned.peak_bytes, "{pinned:?}");
    assert!(pinned.peak_bytes <= pinned.size_bytes, "{pinned:?}");
    let (mut random, mut model) = (Random::new(4), vec![0; 48 << 20]);
    for i in 0..48u64 {
        let bytes = random.bytes(1 << 20);
        let at = usize::try_from(i).expect("it is served") << 20;
        client.write_at(i * MIB, &bytes, false).expect("it is served");
        model[at..at + (1 << 20)].copy_from_slice(&bytes);
    }
    client.flush().expect("it is served");
    let mut bytes = vec![0; 48 << 20];
    client.read_at(0, &mut bytes).expect("it is served");
    assert!(bytes == model, "other bytes");
    assert!(service.frames_held() > 0, "the slow reader has not read");
    drop(slow);
    eventually("its frames come back", || service.frames_held() == 0);
    client.trim(0, 48 << 20, false).expect("it is served");
    client.disconnect().expect("it is served");
    eventually("its lease comes back", || {
        let budget = service.server.budget();
        (budget.sessions, budget.pinned.leased_bytes) == (0, 0)
    });
    assert!(service.server.budget().pinned.peak_bytes >= pinned.peak_bytes);
    eventually("all frames are free", || {
        service.engine.cache().check(service.engine.now());
        free(&service) + 64 * 4096 >= all_free
    });
    service.end();
}

#[test]
fn a_slow_reader_of_many_requests_is_nobodys_burden() {
    a_slow_reader_is_nobodys_burden(&[1 << 20; 48]);
}

#[test]
fn a_slow_reader_of_one_huge_request_is_nobodys_burden() {
    a_slow_reader_is_nobodys_burden(&[32 << 20]);
}

#[test]
fn a_client_that_is_killed_leaves_nothing_behind() {
    let memory = Memory::new(16 * MIB);
    let store = DelayStore::new(memory.clone(), 3 * MILLISECOND);
    let service = Service::new(16 * MIB, 16 * MIB, store);
    for round in 0..10u64 {
        let mut client = service.connect(round % 2 == 0);
        for i in 0..40 {
            let offset = (round * 40 + i) * 30_011 % (12 * MIB);
            let request = match i % 6 {
                0 => Request::write(offset, vec![1; 20_000]).with_flags(wire::CMD_FLAG_FUA),
                1 => Request::write(offset, vec![2; 20_000]),
                2 => Request::write_zeroes(offset, 50_000),
                3 => Request::trim(offset, 50_000).with_flags(wire::CMD_FLAG_FUA),
                4 => Request::flush(),
                _ => Request::read(offset, vec![0; 3 << 20]),
            };
            client.submit(request).unwrap();
        }
        drop(client);
    }
    let mut client = service.connect(true);
    client.write_at(14 * MIB, &[7; 9999], true).unwrap();
    assert_eq!(memory.bytes(14 * MIB, 9999), [7; 9999]);
    client.disconnect().unwrap();
    eventually("nothing is held", || service.frames_held() == 0);
    service.end();
}

/// After the client has read the replies that filled the backlog, the server must continue with the
/// requests that it had received together with them, without a further request that wakes the
/// connection.
#[test]
fn requests_at_hand_go_on_when_the_client_reads_its_answers() {
    const EACH: u32 = 256 << 10;
    let service = Service::new(8 * MIB, 32 * MIB, Memory::new(32 * MIB));
    let mut client = service.connect_raw();
    let requests: Vec<u8> =
        (0..96).flat_map(|i| request(wire::CMD_READ, i, (i % 32) * MIB, EACH)).collect();
    client.write_all(&requests).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut answers = vec![0; 96 * (16 + EACH as usize)];
    client.read_exact(&mut answers).expect("all answers come");
    drop(client);
    service.end();
}

/// Starts a server whose store can be stalled, and that disconnects clients that receive nothing
/// for `send_time_max`.
fn service_with_send_limit(send_time_max: Duration) -> (Service, Arc<AtomicBool>) {
    let store = DelayStore::new(Memory::new(32 * MIB), 0);
    let stalled = store.stall_switch();
    let engine = engine(16 * MIB);
    let volume = volume(&engine, "disk", 32 * MIB, store);
    let limits = ServerLimits { send_time_max: Some(send_time_max), ..ServerLimits::default() };
    (Service::start(engine, volume, Arc::new(SolidMap), limits, false), stalled)
}

/// Requests 8 MiB, more than a socket holds.
fn request_8_mib(service: &Service) -> UnixStream {
    let mut client = service.connect_raw();
    for i in 0..8 {
        client.write_all(&request(wire::CMD_READ, i, i * MIB, 1 << 20)).expect("it is served");
    }
    client
}

#[test]
fn a_client_that_takes_no_replies_is_closed_after_the_time() {
    let limit = Duration::from_secs(1);
    let (service, _) = service_with_send_limit(limit);
    let mut idle = service.connect(true);
    let begun = Instant::now();
    let mut stuck = request_8_mib(&service);
    // This waits for the end of the connection, and not for a state that ends with it: on a busy
    // machine this thread may see only the end.
    let mut end = [PollFd::new(&stuck, PollFlags::empty())];
    let timeout = Timespec { tv_sec: 240, tv_nsec: 0 };
    assert_eq!(poll(&mut end, Some(&timeout)), Ok(1), "it is closed");
    eventually("its pins are released", || service.frames_held() == 0);
    assert!(begun.elapsed() >= limit, "closed after {:?}", begun.elapsed());
    let mut received = Vec::new();
    stuck.read_to_end(&mut received).expect("the end of the connection");
    assert!(received.len() < 8 << 20, "all replies came");
    // An idle client without waiting replies is not disconnected.
    idle.read_at(0, &mut [0; 4096]).expect("it is served");
    idle.disconnect().expect("it is served");
    service.end();
}

/// A server that has no room for more writes does not read from their clients. It must notice all
/// the same that they are gone, and free their connections for others.
#[test]
fn clients_that_are_gone_free_their_places_while_their_writes_wait_for_the_store() {
    let (service, stalled) = service_with_send_limit(Duration::from_mins(10));
    stalled.store(true, Ordering::Release);
    let clients: Vec<_> = (0..4).map(|_| service.connect_raw()).collect();
    let volume = Arc::clone(&service.volume);
    std::thread::scope(|scope| {
        for (number, client) in (0..).zip(&clients) {
            let mut client = client.try_clone().expect("a descriptor");
            scope.spawn(move || {
                for cookie in 0..200 {
                    let offset = (number * 50 + cookie) % 256 * (128 << 10);
                    let header = request(wire::CMD_WRITE, cookie, offset, 128 << 10);
                    let sent = client.write_all(&header);
                    if sent.and_then(|()| client.write_all(&vec![1; 128 << 10])).is_err() {
                        return;
                    }
                }
            });
        }
        eventually("the cache takes no more", || {
            volume.unclean_blocks() >= volume.dirty_limit_blocks()
        });
        assert_eq!(service.server.clients("disk"), 4);
        for client in &clients {
            client.shutdown(std::net::Shutdown::Both).expect("it is connected");
        }
    });
    drop(clients);
    eventually("their places are free", || service.server.clients("disk") == 0);
    stalled.store(false, Ordering::Release);
    service.connect(true).read_at(0, &mut [0; 4096]).expect("it is served");
    service.end();
}

#[test]
fn a_slow_client_and_one_whose_store_stalls_are_not_closed() {
    let limit = Duration::from_secs(1);
    let (service, stalled) = service_with_send_limit(limit);
    // The slow client reads cached data.
    let mut waiting = service.connect(true);
    waiting.read_at(0, &mut vec![0; 8 << 20]).expect("it is served");
    let mut slow = request_8_mib(&service);
    stalled.store(true, Ordering::Release);
    waiting.submit(Request::read(20 * MIB, vec![0; 1 << 20])).expect("it is served");
    let begun = Instant::now();
    let mut left = 8 * (16 + (1 << 20));
    let mut some = vec![0; 128 << 10];
    // The client receives slowly, for three times the limit.
    while begun.elapsed() < 3 * limit {
        let count = slow.read(&mut some).expect("it is served");
        left -= count;
        std::thread::sleep(limit / 4);
    }
    while left > 0 {
        let count = slow.read(&mut some).expect("it is served");
        assert!(count > 0, "{left} bytes have not come");
        left -= count;
    }
    stalled.store(false, Ordering::Release);
    // Another request wakes the store.
    service.connect(true).read_at(30 * MIB, &mut [0; 4096]).expect("it is served");
    waiting.wait().expect("the store goes on").result.expect("it is served");
    drop((slow, waiting));
    service.end();
}
