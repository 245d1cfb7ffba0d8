//! The cache gives memory back under memory pressure, down to the floor, and takes it again when
//! the pressure ends; the tests simulate the pressure.

use super::is_reached;
use crate::common::rig::{Memory, end, engine, eventually, volume};
use larder_core::clock::MILLISECOND;
use larder_core::counters::Gauge;
use larder_io::engine::{Engine, MemoryReturnOptions, MemoryReturnThread};
use larder_io::pressure::Pressure;
use larder_io::waker::Waker;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

const MIB: u64 = 1 << 20;

const CALM: u8 = 0;
const SHORT: u8 = 1;
const GONE: u8 = 2;
const PANIC: u8 = 3;

/// Pressure that a test sets.
#[derive(Clone, Default)]
struct SimulatedPressure(Arc<AtomicU8>);

impl SimulatedPressure {
    fn set(&self, state: u8) {
        self.0.store(state, Ordering::Release);
    }
}

impl Pressure for SimulatedPressure {
    fn wait(&mut self, waker: &Waker, time: Duration) -> io::Result<bool> {
        waker.sleep(None, Some(time))?;
        match self.0.load(Ordering::Acquire) {
            GONE => Err(io::Error::other("nothing is watched any more")),
            PANIC => panic!("a test has asked for this panic"),
            state => Ok(state == SHORT),
        }
    }

    fn watched(&self) -> Vec<String> {
        vec!["made up".to_owned()]
    }
}

/// Returns options with steps of a quarter and checks every few milliseconds.
fn options(floor_bytes: u64) -> MemoryReturnOptions {
    let (step, calm, interval) = (250, 20 * MILLISECOND, Duration::from_millis(5));
    MemoryReturnOptions { floor_bytes, step, calm, interval }
}

fn start(
    engine: &Arc<Engine>,
    floor_bytes: u64,
    pressure: &SimulatedPressure,
) -> MemoryReturnThread {
    let source = Box::new(pressure.clone());
    MemoryReturnThread::start(engine, options(floor_bytes), source).expect("a thread")
}

/// Returns the bytes for data that are in service.
fn usable(engine: &Engine) -> u64 {
    u64::from(engine.cache().memory().usable) * 4096
}

#[test]
fn it_goes_down_to_the_floor_and_back_to_what_was_asked_for() {
    let engine = engine(64 * MIB);
    let memory = Memory::new(64 * MIB);
    let served = volume(&engine, "served", 64 * MIB, memory);
    let (before, pressure) = (usable(&engine), SimulatedPressure::default());
    let giving = start(&engine, 24 * MIB, &pressure);
    assert_eq!(giving.watched(), ["made up"]);
    assert_eq!(giving.state().kept_bytes, 64 * MIB);
    pressure.set(SHORT);
    eventually("the floor is reached", || {
        let state = giving.state();
        state.kept_bytes == 24 * MIB && usable(&engine) < 24 * MIB
    });
    let state = giving.state();
    assert_eq!((state.full_bytes, state.floor_bytes), (64 * MIB, 24 * MIB));
    assert!(state.pressures >= 3 && state.pressed_at.is_some(), "{state:?}");
    assert!(usable(&engine) > 20 * MIB, "the floor holds but for its tables");
    assert_eq!(engine.cache().gauge(&served, Gauge::GivenBack), 40 * MIB);
    assert_eq!(engine.memory_bytes(), 64 * MIB, "what was asked for stays so");
    // A size that is set meanwhile is recorded but not yet in force. Each quiet second adds a
    // sixteenth of it.
    engine.set_memory(32 * MIB).expect("enough for the volume");
    eventually("the requested size is recorded", || giving.state().full_bytes == 32 * MIB);
    assert!(usable(&engine) < 24 * MIB);
    pressure.set(CALM);
    eventually("all memory is back", || giving.state().kept_bytes == 32 * MIB);
    eventually("it is in service", || is_reached(&engine));
    assert!((26 * MIB..before).contains(&usable(&engine)));
    assert_eq!(engine.cache().gauge(&served, Gauge::GivenBack), 0);
    drop(giving);
    end(&engine);
}

#[test]
fn what_a_volume_is_promised_is_kept_and_the_end_takes_all_again() {
    let engine = engine(64 * MIB);
    let memory = Memory::new(64 * MIB);
    let served = volume(&engine, "served", 64 * MIB, memory);
    let promised = u32::try_from(32 * MIB / 4096).expect("few");
    engine.cache().set_bounds(&served, promised, u32::MAX).expect("there is as much");
    let before = usable(&engine);
    let pressure = SimulatedPressure::default();
    let giving = start(&engine, 0, &pressure);
    pressure.set(SHORT);
    eventually("the least is reached", || {
        let state = giving.state();
        state.kept_bytes == state.floor_bytes && state.kept_bytes < 40 * MIB
    });
    eventually("memory follows", || usable(&engine) < 34 * MIB);
    assert!(usable(&engine) >= 32 * MIB, "{} of what was promised", usable(&engine));
    drop(giving);
    eventually("nothing is given back any more", || usable(&engine) == before);
    end(&engine);
}

#[test]
fn where_nothing_can_be_told_any_more_all_is_taken_again() {
    for (end_of_pressure, error) in [
        (GONE, "nothing is watched any more"),
        (PANIC, "internal error: a test has asked for this panic"),
    ] {
        let engine = engine(32 * MIB);
        let (before, pressure) = (usable(&engine), SimulatedPressure::default());
        let giving = start(&engine, 0, &pressure);
        pressure.set(SHORT);
        eventually("some is given back", || usable(&engine) < before);
        pressure.set(end_of_pressure);
        eventually("all is back", || {
            usable(&engine) == before && giving.state().kept_bytes == 32 * MIB
        });
        let failed = format!("memory is not given back any more: {error}");
        assert!(larder_io::fault::failed_parts().contains(&failed));
        drop(giving);
        end(&engine);
    }
}
