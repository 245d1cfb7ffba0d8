//! Guarantees of replies: large reads are complete, flushes and FUA are stable, each request is
//! answered once.

use super::{MIB, Service};
use crate::common::{Random, rig::Memory};
use larder_core::clock::MILLISECOND;
use larder_core::store::DelayStore;
use larder_io::nbd_client::Request;

#[test]
fn a_large_read_in_simple_replies_is_served_alone_among_others() {
    let memory = Memory::new(32 * MIB);
    let store = DelayStore::new(memory, MILLISECOND);
    let service = Service::new(24 * MIB, 32 * MIB, store);
    let mut client = service.connect(false);
    let data = Random::new(1).bytes(8 << 20);
    client.write_at(4 * MIB, &data, false).unwrap();
    let mut expected = std::collections::HashMap::new();
    for i in 0..40u64 {
        let (offset, len) = (4 * MIB + i * 1000, 1 + usize::try_from(i).unwrap() * 3000);
        let request = match i {
            10 | 11 | 30 => Request::read(4 * MIB, vec![0; 8 << 20]),
            _ if i % 3 == 0 => Request::write(20 * MIB + i * 50_000, vec![7; 40_000]),
            _ => Request::read(offset, vec![0; len]),
        };
        let bytes = match i {
            10 | 11 | 30 => data.clone(),
            _ if i % 3 == 0 => vec![7; 40_000],
            _ => {
                let start = usize::try_from(i * 1000).unwrap();
                data[start..start + len].to_vec()
            }
        };
        expected.insert(client.submit(request).unwrap(), bytes);
    }
    while !expected.is_empty() {
        let completion = client.wait().unwrap();
        completion.result.unwrap();
        let bytes = expected.remove(&completion.cookie).expect("answered once");
        assert!(completion.data == bytes, "the bytes of {:#x}", completion.cookie);
    }
    client.disconnect().unwrap();
    service.end();
}

#[test]
fn a_flush_on_one_connection_makes_the_writes_of_another_stable() {
    let memory = Memory::new(8 * MIB);
    let service = Service::new(16 * MIB, 8 * MIB, memory.clone());
    let (mut one, mut other) = (service.connect(true), service.connect(false));
    for round in 1..20u8 {
        one.write_at(u64::from(round) * 10_001, &vec![round; 70_000], false).unwrap();
        other.flush().unwrap();
        assert_eq!(memory.bytes(u64::from(round) * 10_001, 70_000), vec![round; 70_000]);
    }
    drop((one, other));
    service.end();
}

#[test]
fn an_answered_fua_is_in_the_store() {
    let memory = Memory::new(8 * MIB);
    let service = Service::new(16 * MIB, 8 * MIB, memory.clone());
    let mut client = service.connect(true);
    for len in [1, 511, 4096, 300_000] {
        let data = Random::new(9).bytes(len);
        client.write_at(12_345, &data, true).unwrap();
        assert!(memory.bytes(12_345, len) == data, "{len} bytes");
    }
    let zero = larder_io::nbd_client::ZeroFlags { fua: true, ..Default::default() };
    client.write_zeroes(12_000, 9000, zero).unwrap();
    assert_eq!(memory.bytes(12_000, 9000), vec![0; 9000]);
    drop(client);
    service.end();
}

#[test]
fn all_that_was_asked_before_a_goodbye_is_answered() {
    let memory = Memory::new(8 * MIB);
    let store = DelayStore::new(memory.clone(), 5 * MILLISECOND);
    let service = Service::new(16 * MIB, 8 * MIB, store);
    let mut client = service.connect(true);
    for i in 0..50u64 {
        client.submit(Request::write(i * 5000, vec![5; 3000])).unwrap();
        client.submit(Request::read(4 * MIB + i * 5000, vec![0; 3000])).unwrap();
    }
    client.submit(Request::flush()).unwrap();
    client.disconnect().unwrap();
    let mut client = service.connect(true);
    let mut bytes = vec![0; 250_000];
    client.read_at(0, &mut bytes).unwrap();
    client.disconnect().unwrap();
    service.end();
    for i in 0..50 {
        let at = usize::try_from(i * 5000).unwrap();
        assert!(bytes[at..at + 3000] == [5; 3000], "write {i} was answered");
        assert!(memory.bytes(i * 5000, 3000) == [5; 3000], "write {i} in the store");
    }
}
