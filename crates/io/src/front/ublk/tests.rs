//! Devices on a kernel that is only pretended, through the real engine.

use super::abi::{Control, IoDescriptor, attribute, feature, flag, op};
use super::pretended::Pretended;
use super::*;
use crate::engine::{ArenaVolume, Engine, EngineOptions};
use crate::store::Timed;
use larder_core::counters::Counter;
use larder_core::mode::WriteMode;
use larder_core::store::{Fault, FaultPlan, FaultyStore, Geometry, MemoryStore};
use larder_core::volume::VolumeOptions;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use rustix::io::Errno;
use std::sync::Arc;

const MIB: u64 = 1 << 20;
/// Larger than the cache, so that much of it has to come from the store again.
const LENGTH: u64 = 24 * MIB;

struct Rig {
    engine: Arc<Engine>,
    volume: Arc<ArenaVolume>,
    kernel: Pretended,
    faults: FaultPlan,
}

impl Rig {
    fn new(mode: WriteMode) -> Rig {
        let options = EngineOptions {
            memory_bytes: 8 * MIB,
            huge_pages: false,
            lock: false,
            threads: 4,
            policy_bytes: 28,
        };
        let engine = Arc::new(Engine::new(options).expect("memory for a test"));
        let read_only = mode == WriteMode::ReadOnly;
        let geometry = Geometry { length: LENGTH, granule: 512, read_only };
        let faults = FaultPlan::default();
        let store = FaultyStore::new(MemoryStore::new(geometry), faults.clone());
        let store = Box::new(Timed::new(store, engine.clock()));
        let options = VolumeOptions { write_mode: mode, ..VolumeOptions::new("disk", geometry) };
        let volume = engine.add_volume(options, store).expect("a thread for a volume");
        Rig { engine, volume, kernel: Pretended::new(), faults }
    }

    fn try_start(&self, options: DeviceOptions) -> Result<BlockDevice, UblkError> {
        let driver = Arc::new(self.kernel.clone());
        BlockDevice::start(&self.engine, &self.volume, driver, options)
    }

    /// A device with this many queues; its number is 0.
    fn start(&self, queues: u16) -> BlockDevice {
        let options = DeviceOptions { queues: Some(queues), ..DeviceOptions::default() };
        self.try_start(options).expect("a device")
    }

    /// What a program gets that asks queue 0.
    fn ask(
        &self,
        op: u8,
        flags: u32,
        (sector, sectors): (u64, u32),
        data: &[u8],
    ) -> (i32, Vec<u8>) {
        self.kernel.ask((0, 0), descriptor(op, flags, sector, sectors), data)
    }

    fn write(&self, flags: u32, sector: u64, data: &[u8]) -> i32 {
        let sectors = u32::try_from(data.len() / 512).unwrap();
        self.ask(op::WRITE, flags, (sector, sectors), data).0
    }

    fn read(&self, sector: u64, sectors: u32) -> Vec<u8> {
        let (result, data) = self.ask(op::READ, 0, (sector, sectors), &[]);
        assert_eq!(result, i32::try_from(sectors * 512).unwrap());
        data
    }

    fn counted(&self, counter: Counter) -> u64 {
        self.volume.totals().get(counter)
    }

    /// Everything is given back and every number adds up.
    fn end(self) {
        self.engine.shut_down();
        self.engine.cache().check(self.engine.now());
        assert_eq!(self.engine.cache().frames().arena().frames_held(), 0, "frames are held");
    }
}

fn descriptor(op: u8, flags: u32, start_sector: u64, sectors: u32) -> IoDescriptor {
    IoDescriptor { op_flags: u32::from(op) | flags, sectors, start_sector, addr: 0 }
}

fn errno(errno: Errno) -> i32 {
    -errno.raw_os_error()
}

#[test]
fn the_kernel_is_told_what_the_volume_is_like_and_everything_is_undone_in_order() {
    let rig = Rig::new(WriteMode::Back);
    let mut device = rig.start(2);
    assert_eq!(device.path(), "/dev/ublkb0");
    let begun = [Control::GetFeatures, Control::AddDev, Control::SetParams, Control::StartDev];
    assert_eq!(rig.kernel.asked(), begun);
    let info = rig.kernel.info(0).unwrap();
    assert_eq!((info.queues, info.server_pid), (2, i32::try_from(std::process::id()).unwrap()));
    assert_eq!(info.flags, feature::USER_COPY | feature::CMD_IOCTL_ENCODE, "it ends with us");
    let told = rig.kernel.parameters(0);
    assert_eq!((told.len, told.types, told.basic.sectors), (60, 3, LENGTH / 512));
    assert_eq!((told.basic.logical_shift, told.basic.physical_shift), (9, 12));
    assert_eq!(told.basic.attributes, attribute::VOLATILE_CACHE | attribute::FUA);
    assert_eq!(told.basic.max_sectors, 512);
    device.close(false).unwrap();
    assert_eq!(rig.kernel.asked(), [Control::StopDev, Control::DelDev]);
    device.close(false).unwrap();
    drop(device);
    assert_eq!(rig.kernel.asked(), [], "once");
    rig.end();
}

#[test]
fn random_requests_on_two_queues_read_what_a_plain_array_has() {
    let rig = Rig::new(WriteMode::Back);
    let device = rig.start(2);
    let mut model = vec![0_u8; usize::try_from(LENGTH).unwrap()];
    let mut random = Xoshiro256PlusPlus::seed_from_u64(11);
    for step in 0..4000 {
        let sectors = 1 + random.next_u64() % 64;
        let sector = random.next_u64() % (LENGTH / 512 - sectors);
        let range = usize::try_from(sector * 512).unwrap()..;
        let range = range.start..range.start + usize::try_from(sectors * 512).unwrap();
        let queue = u16::try_from(random.next_u64() % 2).unwrap();
        let many = u32::try_from(sectors).unwrap();
        let asked = |op, flags| descriptor(op, flags, sector, many);
        let ask = |asked, data: &[u8]| rig.kernel.ask((0, queue), asked, data);
        match random.next_u64() % 10 {
            0..4 => {
                let (result, data) = ask(asked(op::READ, 0), &[]);
                assert_eq!(result, i32::try_from(range.len()).unwrap(), "step {step}");
                assert!(data == model[range], "step {step}");
            }
            4..8 => {
                let flags = if random.next_u64().is_multiple_of(8) { flag::FUA } else { 0 };
                let byte = random.next_u64().to_le_bytes()[0];
                let data: Vec<u8> =
                    (0..=250_u8).cycle().take(range.len()).map(|at| byte ^ at).collect();
                let (result, _) = ask(asked(op::WRITE, flags), &data);
                assert_eq!(result, i32::try_from(data.len()).unwrap(), "step {step}");
                model[range].copy_from_slice(&data);
            }
            8 => {
                let flags = if random.next_u64().is_multiple_of(2) { flag::NOUNMAP } else { 0 };
                assert!(ask(asked(op::WRITE_ZEROES, flags), &[]).0 >= 0, "step {step}");
                model[range].fill(0);
            }
            _ => assert_eq!(ask(descriptor(op::FLUSH, 0, 0, 0), &[]).0, 0, "step {step}"),
        }
    }
    assert!(rig.counted(Counter::StoreReads) > 100, "the cache is too small for all of it");
    drop(device);
    rig.end();
}

#[test]
fn what_is_flushed_or_written_with_fua_is_in_the_store() {
    let rig = Rig::new(WriteMode::Back);
    for name in ["first-delay", "idle-delay", "age-max"] {
        rig.volume.set_tunable(name, 60_000).unwrap();
    }
    let device = rig.start(1);
    assert_eq!(rig.write(0, 0, &[1; 4096]), 4096);
    assert_eq!(rig.volume.unclean_blocks(), 1, "it is lazy");
    assert_eq!(rig.write(flag::FUA, 64, &[2; 4096]), 4096);
    assert_eq!(rig.volume.unclean_blocks(), 1, "that one is written");
    assert_eq!(rig.ask(op::FLUSH, 0, (0, 0), &[]).0, 0);
    assert_eq!(rig.volume.unclean_blocks(), 0);
    assert!(rig.counted(Counter::StoreFlushes) > 0);
    // Zeros that are to be stable are flushed as well.
    let before = rig.counted(Counter::StoreFlushes);
    assert!(rig.ask(op::WRITE_ZEROES, flag::FUA, (0, 16), &[]).0 >= 0);
    assert!(rig.counted(Counter::StoreFlushes) > before);
    assert_eq!(rig.read(0, 16), [0; 8192]);
    assert_eq!(rig.read(64, 8), [2; 4096]);
    drop(device);
    rig.end();
}

#[test]
fn a_discard_is_given_to_the_store_and_leaves_its_neighbours() {
    let rig = Rig::new(WriteMode::Back);
    let device = rig.start(1);
    assert_eq!(rig.write(0, 0, &[7; 16384]), 16384);
    // One and a half blocks: only the whole one goes.
    assert!(rig.ask(op::DISCARD, 0, (8, 12), &[]).0 >= 0);
    assert_eq!(rig.counted(Counter::StoreDiscards), 1);
    assert_eq!(rig.read(0, 8), [7; 4096]);
    assert_eq!(rig.read(16, 16), [7; 8192]);
    drop(device);
    rig.end();
}

#[test]
fn what_cannot_be_done_is_answered_with_an_errno() {
    let rig = Rig::new(WriteMode::Through);
    let device = rig.start(1);
    let end = LENGTH / 512;
    for (op, place) in [
        (op::READ, (end - 1, 2)),
        (op::WRITE, (end, 1)),
        (op::READ, (u64::MAX / 512, 8)),
        (op::READ, (0, 0)),
        (op::DISCARD, (end, 8)),
        (op::READ, (0, 1024)),
    ] {
        assert_eq!(rig.ask(op, 0, place, &[]).0, errno(Errno::INVAL), "{op} at {place:?}");
    }
    // Writing the same again and again, and what nobody knows.
    for op in [4, 77] {
        assert_eq!(rig.ask(op, 0, (0, 8), &[]).0, errno(Errno::OPNOTSUPP));
    }
    rig.faults.set(vec![Fault::Reads(0..LENGTH)]);
    assert_eq!(rig.ask(op::READ, 0, (0, 8), &[]).0, errno(Errno::IO));
    rig.faults.set(vec![Fault::NoSpace]);
    assert_eq!(rig.write(0, 0, &[1; 4096]), errno(Errno::NOSPC));
    rig.faults.set(Vec::new());
    assert_eq!(rig.write(0, 0, &[1; 4096]), 4096);
    assert_eq!(rig.read(0, 8), [1; 4096], "and goes on");
    drop(device);
    rig.end();
    let rig = Rig::new(WriteMode::ReadOnly);
    let device = rig.start(1);
    let told = rig.kernel.parameters(0).basic.attributes;
    assert_eq!(told & attribute::READ_ONLY, attribute::READ_ONLY);
    assert_eq!(rig.write(0, 0, &[1; 512]), errno(Errno::ROFS));
    assert_eq!(rig.ask(op::DISCARD, 0, (0, 8), &[]).0, errno(Errno::ROFS));
    assert_eq!(rig.read(0, 8), [0; 4096]);
    drop(device);
    rig.end();
}

#[test]
fn a_stop_in_the_middle_answers_what_is_under_way() {
    let rig = Rig::new(WriteMode::Back);
    let mut device = rig.start(2);
    // Nothing can be read meanwhile, so that requests are under way for certain.
    rig.faults.set(vec![Fault::Away]);
    let tags: Vec<(u16, u16)> = (0..16)
        .map(|number: u16| {
            let queue = number % 2;
            let asked = descriptor(op::READ, 0, u64::from(number) * 64, 8);
            (queue, rig.kernel.begin((0, queue), asked, &[]))
        })
        .collect();
    let results: Vec<i32> = std::thread::scope(|scope| {
        let closing = scope.spawn(|| device.close(false));
        rig.faults.set(Vec::new());
        let ends = tags.iter().map(|(queue, tag)| rig.kernel.end((0, *queue), *tag).0).collect();
        closing.join().unwrap().unwrap();
        ends
    });
    assert!(results.iter().all(|result| *result == 4096 || *result < 0), "{results:?}");
    assert!(rig.kernel.info(0).is_none(), "it is removed");
    drop(device);
    rig.end();
}

#[test]
fn a_device_in_use_is_not_hidden_unless_it_has_to_be() {
    let rig = Rig::new(WriteMode::Back);
    let mut device = rig.start(1);
    rig.kernel.set_used(true);
    let error = device.close(false).unwrap_err().to_string();
    assert_eq!(error, "hide /dev/ublkb0: it is in use");
    assert_eq!(rig.write(0, 0, &[1; 512]), 512, "it is served all the same");
    device.close(true).unwrap();
    drop(device);
    rig.end();
}

#[test]
fn whatever_step_fails_nothing_is_left() {
    for (failing, said) in [
        (Control::AddDev, "make a block device: "),
        (Control::SetParams, "say what a block device is like: "),
        (Control::StartDev, "show a block device: "),
    ] {
        let rig = Rig::new(WriteMode::Back);
        rig.kernel.fail(failing, Errno::PERM);
        let error = rig.try_start(DeviceOptions::default()).unwrap_err().to_string();
        assert!(error.starts_with(said), "{error}");
        assert!(rig.kernel.info(0).is_none(), "{failing:?}");
        rig.end();
    }
    let rig = Rig::new(WriteMode::Back);
    rig.kernel.open_no_queue();
    let error = rig.try_start(DeviceOptions::default()).unwrap_err().to_string();
    assert!(error.contains("of a block device: Permission denied"), "{error}");
    assert!(rig.kernel.info(0).is_none());
    rig.end();
    let rig = Rig::new(WriteMode::Back);
    rig.kernel.take_no_fetch();
    let error = rig.try_start(DeviceOptions::default()).unwrap_err().to_string();
    assert!(error.contains("of a block device: Invalid argument"), "{error}");
    assert!(rig.kernel.info(0).is_none(), "it was not waited for the start for ever");
    rig.end();
    let rig = Rig { kernel: Pretended::old(), ..Rig::new(WriteMode::Back) };
    let error = rig.try_start(DeviceOptions::default()).unwrap_err();
    assert!(matches!(error, UblkError::TooOld), "{error}");
    assert_eq!(rig.kernel.asked(), [Control::GetFeatures]);
    rig.end();
}

#[test]
fn only_a_device_that_keeps_nothing_back_outlives_its_server() {
    let recovery = feature::USER_RECOVERY | feature::USER_RECOVERY_REISSUE;
    for (mode, outlives) in [
        (WriteMode::Back, false),
        (WriteMode::Through, true),
        (WriteMode::Around, true),
        (WriteMode::ReadOnly, true),
    ] {
        let rig = Rig::new(mode);
        let options = DeviceOptions { outlives: true, mark: 42, ..DeviceOptions::default() };
        let device = rig.try_start(options).unwrap();
        let info = rig.kernel.info(0).unwrap();
        assert_eq!((info.flags & recovery == recovery, info.mark), (outlives, 42), "{mode}");
        assert_eq!(left_behind(&rig.kernel, 42), None, "it is served");
        drop(device);
        rig.end();
    }
    let rig = Rig::new(WriteMode::Through);
    rig.kernel.leave_behind(7, 42);
    assert_eq!(left_behind(&rig.kernel, 41), None, "another volume's");
    let taken_over = left_behind(&rig.kernel, 42);
    assert_eq!(taken_over, Some(7));
    let device = rig.try_start(DeviceOptions { taken_over, ..DeviceOptions::default() }).unwrap();
    let begun = [Control::GetFeatures, Control::StartUserRecovery, Control::EndUserRecovery];
    assert_eq!(
        (rig.kernel.asked().as_slice(), device.path().as_str()),
        (&begun[..], "/dev/ublkb7")
    );
    let lazy = Rig { kernel: rig.kernel.clone(), ..Rig::new(WriteMode::Back) };
    let options = DeviceOptions { taken_over, ..DeviceOptions::default() };
    let error = lazy.try_start(options).unwrap_err().to_string();
    assert!(error.starts_with("take over /dev/ublkb7: those who use it"), "{error}");
    lazy.end();
    let asked = descriptor(op::READ, 0, 0, 8);
    assert_eq!(rig.kernel.ask((7, 0), asked, &[]), (4096, vec![0; 4096]));
    drop(device);
    rig.end();
}

#[test]
fn the_panic_of_a_queue_fails_its_device_and_leaves_the_volume_unused() {
    let rig = Rig::new(WriteMode::Back);
    let mut device = rig.start(1);
    assert_eq!(rig.write(0, 0, &[7; 4096]), 4096);
    rig.kernel.panic();
    assert_eq!(rig.ask(op::READ, 0, (0, 8), &[]).0, errno(Errno::IO));
    device.close(false).unwrap();
    let failed = "the block device of disk has failed: internal error: a test has asked";
    assert!(crate::fault::failed_parts().iter().any(|part| part.starts_with(failed)));
    rig.engine.drain(|_| ()).unwrap();
    rig.engine.cache().close_volume(&rig.volume).expect("no lane is open");
    rig.end();
}

#[test]
fn a_kernel_without_ublk_is_named_with_what_to_use_instead() {
    if std::path::Path::new("/dev/ublk-control").exists() {
        larder_testing::skip("needs a kernel without ublk");
        return;
    }
    let error = KernelDriver::open().unwrap_err().to_string();
    for word in ["CONFIG_BLK_DEV_UBLK", "modprobe ublk_drv", "--fuse", "NBD"] {
        assert!(error.contains(word), "{error}");
    }
}
