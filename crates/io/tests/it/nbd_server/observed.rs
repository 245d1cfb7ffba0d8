//! An observer of a server gets every request that was answered, in order, with classes that agree
//! with the counters.

use super::{MIB, Service, common::Random};
use crate::common::{
    lazy::keep_dirty,
    rig::{self, Memory},
};
use larder_core::counters::{Class, Counter};
use larder_io::front::observe::{Event, EventReceiver, Observer, Operation};
use larder_io::nbd_client::{Client, ZeroFlags};
use std::sync::{Arc, Mutex};

const BLOCK: u64 = 4096;

/// Keeps all rings.
#[derive(Default)]
struct RingCollector(Mutex<Vec<(String, EventReceiver)>>);

impl Observer for RingCollector {
    fn connected(&self, export: &str, events: EventReceiver) {
        self.0.lock().expect("no holder panics").push((export.to_owned(), events));
    }

    fn wake(&self) {}
}

impl RingCollector {
    /// Returns the events of the only connection, once it has ended.
    fn events(&self) -> Vec<Event> {
        let mut rings = self.0.lock().expect("no holder panics");
        let [(export, ring)] = &mut rings[..] else { panic!("one connection") };
        assert_eq!(export, "disk");
        rig::eventually("the connection ends", || ring.is_over());
        let mut events = Vec::new();
        ring.drain(|event| events.push(event));
        assert_eq!(ring.take_lost(), 0);
        events
    }
}

#[test]
fn every_answered_request_is_told_in_order_with_its_class() {
    let collector = Arc::new(RingCollector::default());
    let service = Service::observed(16 * MIB, 8 * MIB, Memory::new(8 * MIB), collector.clone());
    let mut client = service.connect(true);
    let mut random = Random::new(7);
    let mut expected = Vec::new();
    let block = |random: &mut Random| random.below(64) as u64 * BLOCK;
    for _ in 0..500 {
        let offset = block(&mut random);
        let operation = match random.below(10) {
            0..=3 => {
                client.read_at(offset, &mut [0; 4096]).unwrap();
                Operation::Read
            }
            4..=6 => {
                client.write_at(offset, &random.bytes(4096), false).unwrap();
                Operation::Write
            }
            7 => {
                client.flush().unwrap();
                Operation::Flush
            }
            8 => {
                client.trim(offset, 4096, false).unwrap();
                Operation::Trim
            }
            _ => {
                client.write_zeroes(offset, 4096, ZeroFlags::default()).unwrap();
                Operation::Zero
            }
        };
        let range = if operation == Operation::Flush { (0, 0) } else { (offset, 4096) };
        expected.push((operation, range.0, range.1));
        if random.below(10) == 0 {
            // Refused requests, and requests that transfer no data, are not reported.
            client.read_at(8 * MIB, &mut [0; 1]).unwrap_err();
            client.block_status(0, 4096).unwrap();
        }
    }
    client.disconnect().unwrap();
    let events = collector.events();
    let events_seen: Vec<_> = events.iter().map(|e| (e.operation, e.offset, e.len)).collect();
    assert_eq!(events_seen, expected);
    assert!(events.is_sorted_by_key(|event| event.at), "in the order of their arrival");
    let totals = service.volume.totals();
    for class in Class::ALL {
        let count = events.iter().filter(|event| event.class == Some(class)).count() as u64;
        assert_eq!(count, totals.get(class.counter()), "{class:?}");
    }
    assert!(totals.get(Counter::ReadHit) > 0 && totals.get(Counter::WriteAbsorbed) > 0);
    let transfers = |e: &&Event| matches!(e.operation, Operation::Read | Operation::Write);
    assert!(events.iter().filter(transfers).all(|event| event.class.is_some()));
    service.end();
}

#[test]
fn the_worst_page_stands_for_a_request() {
    let collector = Arc::new(RingCollector::default());
    let service = Service::observed(16 * MIB, 8 * MIB, Memory::new(8 * MIB), collector.clone());
    // Dirty data stays dirty.
    keep_dirty(&service.volume);
    let mut client = service.connect(false);
    let read = |client: &mut Client, blocks: std::ops::Range<u64>| {
        let len = usize::try_from((blocks.end - blocks.start) * BLOCK).unwrap();
        client.read_at(blocks.start * BLOCK, &mut vec![0; len]).unwrap();
    };
    read(&mut client, 0..1);
    read(&mut client, 0..4);
    read(&mut client, 0..4);
    client.write_at(0, &[1; 4096], false).unwrap();
    client.write_at(0, &[1; 8192], false).unwrap();
    client.write_at(0, &[1; 8192], false).unwrap();
    client.write_at(512, &[1; 512], true).unwrap();
    // Longer than a piece, and not resident: still one event.
    client.write_at(MIB, &vec![1; 3 << 20], false).unwrap();
    read(&mut client, 1000..1700);
    client.disconnect().unwrap();
    let classes: Vec<_> = collector.events().iter().map(|event| event.class.unwrap()).collect();
    assert_eq!(
        classes,
        [
            Class::ReadMiss,
            Class::ReadMiss,
            Class::ReadHit,
            Class::WriteNewDirty,
            Class::WriteNewDirty,
            Class::WriteAbsorbed,
            Class::WriteThrough,
            Class::WriteNewDirty,
            Class::ReadMiss,
        ]
    );
    service.end();
}

#[test]
fn who_drops_the_ring_is_not_told_and_nobody_else_notices() {
    struct DroppingObserver;
    impl Observer for DroppingObserver {
        fn connected(&self, _export: &str, _events: EventReceiver) {}
        fn wake(&self) {
            panic!("no thread sleeps");
        }
    }
    let service =
        Service::observed(16 * MIB, 8 * MIB, Memory::new(8 * MIB), Arc::new(DroppingObserver));
    let mut client = service.connect(true);
    for _ in 0..20_000 {
        client.read_at(0, &mut [0; 512]).unwrap();
    }
    client.disconnect().unwrap();
    service.end();
}
