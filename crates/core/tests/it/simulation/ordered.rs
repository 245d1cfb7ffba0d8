//! Ordered groups: after a crash at any point, if any write of the later group is present, then all
//! writes of the earlier group are.
//!
//! The checks use only information that the clients of the cache have: the writes that were
//! acknowledged when a client requested an order, and those submitted after it. Every write has
//! distinct content and covers whole sectors, so each sector of a store identifies its write.

use super::broken::Lie;
use super::model::byte_of;
use super::random::{Rng, drain, tunables};
use super::world::{Action, Figures, Log, Setup, World};
use super::{add, with_log_on_panic};
use larder_core::clock::{MILLISECOND, SECOND};
use larder_core::mode::WriteMode;
use larder_core::policy::PolicyKind;
use larder_core::store::{Fault, Geometry, SparseBytes};
use larder_core::units::{BLOCK_BYTES_U64, SECTOR_BYTES};
use larder_core::volume::VolumeOptions;
use larder_core::write_order::{GroupId, OrderError};
use larder_testing::budget;
use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

const SECTOR: u64 = SECTOR_BYTES as u64;

/// A write in a group.
#[derive(Debug)]
struct WriteRecord {
    id: u64,
    group: GroupId,
    bytes: Range<u64>,
    acknowledged: bool,
    /// The number of polls of the store when the write was submitted.
    polls: u64,
}

/// A requirement: if a write of `after` is present, each of these sectors holds at least the given
/// write.
#[derive(Debug)]
struct Order {
    before: Vec<(u64, u64)>,
    /// The group whose writes wait.
    after: GroupId,
    from: u64,
}

/// The writes and orders, as known to the clients.
#[derive(Debug, Default)]
struct OrderRecord {
    writes: Vec<WriteRecord>,
    orders: Vec<Order>,
    /// The writes to each sector.
    writes_by_sector: BTreeMap<u64, Vec<u64>>,
    polls: u64,
    /// Writes with FUA that have not been acknowledged.
    forced: Vec<u64>,
    /// True if the cache may delay the submission of a write to the store.
    is_lazy: bool,
}

impl OrderRecord {
    fn record_write(&mut self, id: u64, group: Option<GroupId>, bytes: Range<u64>) {
        for sector in bytes.start / SECTOR..bytes.end / SECTOR {
            self.writes_by_sector.entry(sector).or_default().push(id);
        }
        if let Some(group) = group {
            let polls = self.polls;
            self.writes.push(WriteRecord { id, group, bytes, acknowledged: false, polls });
        }
    }

    /// Records an order that the cache has just accepted; `id` is that of the next write.
    fn record_order(&mut self, before: GroupId, after: GroupId, id: u64) {
        let firsts = self.writes.iter().filter(|w| w.group == before && w.acknowledged);
        let sectors = |w: &WriteRecord| {
            let id = w.id;
            (w.bytes.start / SECTOR..w.bytes.end / SECTOR).map(move |sector| (sector, id))
        };
        let before: Vec<_> = firsts.flat_map(sectors).collect();
        // Writes since the last poll have not been submitted to the store.
        let not_submitted = |w: &&WriteRecord| self.is_lazy && w.polls == self.polls;
        let from = self.writes.iter().filter(not_submitted).map(|w| w.id).min().unwrap_or(id);
        if !before.is_empty() {
            self.orders.push(Order { before, after, from });
        }
    }

    /// Returns the write whose content a sector holds; 0 for the initial content.
    fn write_in(&self, bytes: &SparseBytes, sector: u64) -> u64 {
        let mut found = vec![0; SECTOR_BYTES];
        bytes.read(sector * SECTOR, &mut found);
        let range = sector * SECTOR..(sector + 1) * SECTOR;
        let ids = self.writes_by_sector.get(&sector).into_iter().flatten().rev().copied();
        let is_of = |&id: &u64| range.clone().zip(&found).all(|(at, &b)| byte_of(id, at) == b);
        ids.chain([0]).find(is_of).unwrap_or_else(|| {
            panic!("sector {sector} holds {:02x?}, which no request wrote", &found[..8])
        })
    }

    /// Asserts that the content after a crash satisfies every order.
    fn check(&self, bytes: &SparseBytes) {
        let content: BTreeMap<_, _> = self
            .writes_by_sector
            .keys()
            .map(|&sector| (sector, self.write_in(bytes, sector)))
            .collect();
        for Order { before, after, from } in &self.orders {
            let waits = |w: &&WriteRecord| w.group == *after && w.id >= *from;
            let is_present = |w: &&WriteRecord| {
                (w.bytes.start / SECTOR..w.bytes.end / SECTOR)
                    .any(|sector| content[&sector] == w.id)
            };
            let Some(early) = self.writes.iter().filter(waits).find(is_present) else { continue };
            for (sector, id) in before {
                assert!(
                    content[sector] >= *id,
                    "out of order: write {} of {after:?} is there, write {id} of sector {sector} \
                     is not",
                    early.id
                );
            }
        }
    }
}

/// A world with a record of its writes and orders.
struct Ordered {
    world: World,
    record: OrderRecord,
    /// True if the orders are passed to the cache; if not, the checks must detect it.
    reports_orders: bool,
}

impl Ordered {
    fn new(setup: &Setup, log: Log, reports_orders: bool) -> Self {
        let mut world = World::new(setup, log);
        world.open(0);
        let is_lazy = setup.volumes[0].write_mode == WriteMode::Back;
        Ordered { world, record: OrderRecord { is_lazy, ..OrderRecord::default() }, reports_orders }
    }

    fn group(&self) -> GroupId {
        self.world.cache.group(&self.world.disks[0].volume)
    }

    fn write(&mut self, client: usize, group: Option<GroupId>, bytes: Range<u64>, fua: bool) {
        if self.world.disks[0].model.is_busy(&bytes) {
            return;
        }
        self.world.group = group;
        self.world.submit(client, Action::Write { bytes: bytes.clone(), fua });
        self.world.group = None;
        let id = self.world.last_token();
        self.record.record_write(id, group, bytes);
        self.record.forced.extend(fua.then_some(id));
        self.count_forced_poll();
        self.update_acknowledged();
    }

    /// Updates the set of acknowledged writes.
    fn update_acknowledged(&mut self) {
        let waiting: Vec<_> = self
            .world
            .clients
            .iter()
            .flatten()
            .flat_map(|c| &c.requests)
            .map(|r| r.token)
            .collect();
        let failed = &self.world.failed;
        self.record.forced.retain(|id| waiting.contains(id));
        for write in &mut self.record.writes {
            write.acknowledged |= !waiting.contains(&write.id) && !failed.contains(&write.id);
        }
    }

    /// Counts a poll if a FUA write is pending: the cache submits its pages to the store as soon as
    /// they can be written, i.e. at the request, after a read that it needs, or after an earlier
    /// write.
    fn count_forced_poll(&mut self) {
        self.record.polls += u64::from(!self.record.forced.is_empty());
    }

    fn order(&mut self, before: GroupId, after: GroupId) -> Result<(), OrderError> {
        let world = &self.world;
        let result = if self.reports_orders {
            world.cache.order(&world.disks[0].volume, before, after)
        } else {
            Ok(())
        };
        world.log_event(|| format!("order {before:?} before {after:?}: {result:?}"));
        if result.is_ok() {
            self.record.record_order(before, after, world.last_token() + 1);
        }
        result
    }

    fn poll(&mut self) -> usize {
        self.record.polls += 1;
        self.world.poll(0)
    }

    fn crash(&mut self, seed: u64) {
        self.world.crash(0, seed);
        let bytes = self.world.disks[0].media.lock().unwrap().after_crash(seed);
        self.record.check(&bytes);
    }
}

fn block(first: u64, count: u64) -> Range<u64> {
    first * BLOCK_BYTES_U64..(first + count) * BLOCK_BYTES_U64
}

fn setup(rng: &mut Rng, lie: Lie) -> Setup {
    let granule = rng.pick(&[512, 512, 4096]);
    let length = (8 + rng.below(40)) * BLOCK_BYTES_U64;
    let mut options = VolumeOptions::new("v", Geometry { length, granule, read_only: false });
    options.page_blocks = rng.pick(&[1, 1, 1, 2, 4]);
    options.policy = rng.pick(&PolicyKind::ALL);
    options.write_mode = rng.pick(&[
        WriteMode::Back,
        WriteMode::Back,
        WriteMode::Back,
        WriteMode::Through,
        WriteMode::Around,
    ]);
    options.tunables = tunables(rng);
    let delay = rng.one_in(4).then(|| rng.below(20) * MILLISECOND);
    let (frames, shards) = (rng.pick(&[24, 48, 96]), rng.pick(&[1, 2]));
    let (depth, seed) = (rng.pick(&[1, 2, 4, 16]), rng.next());
    Setup { frames, shards, volumes: vec![options], seed, delay, depth, lie }
}

/// Runs the world of one seed; returns the numbers of accepted and refused orders.
fn run(seed: u64, lie: Lie, reports_orders: bool, log: Log) -> (Figures, u64, u64) {
    let mut rng = Rng(seed);
    let setup = setup(&mut rng, lie);
    let length = setup.volumes[0].geometry.length;
    let faulty = lie == Lie::Nothing && rng.one_in(3);
    let mut ordered = Ordered::new(&setup, log, reports_orders);
    ordered.world.log_event(|| format!("{setup:?}"));
    ordered.world.open(0);
    let mut groups: Vec<_> = (0..2 + rng.below(4)).map(|_| ordered.group()).collect();
    let (mut accepted, mut refused) = (0, 0);
    for number in 0..80 + rng.below(120) {
        let client = rng.index(2);
        match rng.below(100) {
            0..36 => {
                let unit = rng.pick(&[BLOCK_BYTES_U64, BLOCK_BYTES_U64, SECTOR]);
                let start = rng.below(length / unit) * unit;
                let bytes = start..length.min(start + (1 + rng.below(3)) * unit);
                let group = (!rng.one_in(5)).then(|| rng.pick(&groups));
                ordered.write(client, group, bytes, rng.one_in(12));
            }
            36..46 => {
                let (before, after) = (rng.pick(&groups), rng.pick(&groups));
                match ordered.order(before, after) {
                    Ok(()) => accepted += 1,
                    Err(_) => refused += 1,
                }
            }
            46..50 => {
                let index = rng.index(groups.len());
                groups[index] = ordered.group();
            }
            // Violations by a store that lies about flushes must be detected by an order, not by a
            // flush guarantee.
            50..53 if lie == Lie::Nothing && reports_orders => {
                ordered.world.submit(client, Action::Flush);
            }
            53..70 => {
                ordered.poll();
            }
            70..80 => {
                ordered.world.reap(0);
                ordered.count_forced_poll();
            }
            80..88 => {
                ordered.world.deliver(client);
                ordered.count_forced_poll();
            }
            88..92 => ordered.world.now += rng.below(3 * SECOND),
            92 => {
                ordered.world.retry(client);
                ordered.count_forced_poll();
            }
            93 if faulty => {
                let start = rng.below(length);
                let fault = Fault::Writes(start..length.min(start + 8 * BLOCK_BYTES_U64));
                let set = if rng.one_in(2) { vec![fault] } else { Vec::new() };
                ordered.world.set_faults(0, set);
            }
            _ => ordered.crash(rng.next()),
        }
        ordered.update_acknowledged();
        if number % 4 == 0 {
            ordered.world.cache.check(ordered.world.now);
            ordered.crash(rng.next());
        }
    }
    if lie == Lie::Nothing {
        drain(&mut ordered.world, &mut rng);
        ordered.crash(rng.next());
    }
    (ordered.world.figures, accepted, refused)
}

#[test]
fn a_random_world_keeps_every_order() {
    let (mut sum, mut accepted, mut refused) = (Figures::default(), 0, 0);
    let seeds = match super::number("LARDER_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..super::number("LARDER_SEEDS").unwrap_or(budget(250, 20_000)),
    };
    for seed in seeds {
        let name = format!(
            "rerun with LARDER_SEED={seed} cargo test -p larder-core --test it every_order"
        );
        let world = |log| {
            let (figures, yes, no) = run(seed, Lie::Nothing, true, log);
            accepted += yes;
            refused += no;
            figures
        };
        add(&mut sum, with_log_on_panic(&name, world));
    }
    println!("ordered: {accepted} orders, {refused} refused, {} crashes", sum.crashes);
    assert!(accepted > 0 && refused > 0 && sum.crashes > 0, "nothing was shown");
}

/// Returns true if some seed detects a violated order.
fn is_detected(lie: Lie, reports_orders: bool) -> bool {
    (0..300).any(|seed| {
        let run = || run(seed, lie, reports_orders, Log::default());
        let Err(panic) = catch_unwind(AssertUnwindSafe(run)) else { return false };
        panic.downcast_ref::<String>().is_some_and(|message| message.contains("out of order"))
    })
}

#[test]
fn a_store_that_lies_about_flushes_breaks_an_order_and_is_caught() {
    assert!(is_detected(Lie::Flush, true), "the checks cannot fail");
}

#[test]
fn an_order_that_the_cache_is_not_told_of_is_not_kept() {
    assert!(is_detected(Lie::Nothing, false), "the checks cannot fail");
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Write a block of this group only.
    WriteOwnBlock(usize),
    /// Write the block that both groups change.
    WriteSharedBlock(usize),
    /// Write the block next to that of the other group, in the same page if a page has two blocks.
    WriteAdjacentBlock(usize),
    /// Order this group before the other one.
    Order(usize),
    Flush,
    Poll,
    Quiesce,
    WaitAndQuiesce,
}

const STEPS: [Step; 12] = [
    Step::WriteOwnBlock(0),
    Step::WriteOwnBlock(1),
    Step::WriteSharedBlock(0),
    Step::WriteSharedBlock(1),
    Step::WriteAdjacentBlock(0),
    Step::WriteAdjacentBlock(1),
    Step::Order(0),
    Step::Order(1),
    Step::Flush,
    Step::Poll,
    Step::Quiesce,
    Step::WaitAndQuiesce,
];

fn crashes(ordered: &mut Ordered) {
    for seed in 0..2 {
        ordered.crash(seed);
    }
}

/// Runs until there is no progress, with crashes after every event.
fn run_until_idle(ordered: &mut Ordered) {
    for _ in 0..1000 {
        let mut moved = ordered.poll() > 0;
        while ordered.world.reap(0) > 0 {
            moved = true;
            crashes(ordered);
        }
        while ordered.world.deliver(0) {
            moved = true;
        }
        ordered.update_acknowledged();
        if moved {
            continue;
        }
        let Some(due) = ordered.world.next_reply() else { return };
        ordered.world.now = due.max(ordered.world.now);
    }
    panic!("a few writes do not come to rest");
}

fn run_sequence(steps: &[Step], mode: WriteMode, page_blocks: u32) -> u64 {
    let geometry = Geometry { length: 8 * BLOCK_BYTES_U64, granule: 512, read_only: false };
    let mut options = VolumeOptions::new("v", geometry);
    (options.write_mode, options.page_blocks) = (mode, page_blocks);
    let volumes = vec![options];
    let (delay, depth, lie) = (None, 4, Lie::Nothing);
    let setup = Setup { frames: 24, shards: 1, volumes, seed: 1, delay, depth, lie };
    let name = format!("sequence {steps:?} with {mode}, pages of {page_blocks} blocks");
    let figures = with_log_on_panic(&name, |log| {
        let mut ordered = Ordered::new(&setup, log, true);
        let groups = [ordered.group(), ordered.group()];
        for &step in steps {
            match step {
                Step::WriteOwnBlock(i) => {
                    ordered.write(0, Some(groups[i]), block(i as u64 * 2, 1), false);
                }
                Step::WriteSharedBlock(i) => ordered.write(0, Some(groups[i]), block(4, 1), false),
                Step::WriteAdjacentBlock(i) => {
                    ordered.write(0, Some(groups[i]), block(6 + i as u64, 1), false);
                }
                Step::Order(i) => {
                    // The cache refuses the order if the two groups wait for each other already.
                    let _may_be_refused = ordered.order(groups[i], groups[1 - i]);
                }
                Step::Flush => ordered.world.submit(0, Action::Flush),
                Step::Poll => {
                    ordered.poll();
                    ordered.world.reap(0);
                }
                Step::Quiesce => run_until_idle(&mut ordered),
                Step::WaitAndQuiesce => {
                    ordered.world.now += 10 * SECOND;
                    run_until_idle(&mut ordered);
                }
            }
            crashes(&mut ordered);
        }
        for _ in 0..2 {
            ordered.world.submit(0, Action::Flush);
            run_until_idle(&mut ordered);
        }
        ordered.world.cache.check(ordered.world.now);
        let client = ordered.world.clients[0].as_ref().unwrap();
        assert_eq!(client.requests.len(), 0, "requests never end");
        assert!(ordered.world.cache.is_at_rest(&ordered.world.disks[0].volume), "dirty at the end");
        ordered.world.close(0);
        ordered.world.figures
    });
    figures.crashes
}

#[test]
fn every_short_sequence_keeps_every_order() {
    let (mut sequences, mut crashes) = (0, 0);
    let long = budget(3, 4);
    let longest = [(WriteMode::Back, 1, 3), (WriteMode::Back, 2, long), (WriteMode::Through, 1, 3)];
    for (mode, page_blocks, longest) in longest {
        let mut each = |steps: &[Step]| {
            sequences += 1;
            crashes += run_sequence(steps, mode, page_blocks);
        };
        for a in STEPS {
            for b in STEPS {
                for c in STEPS {
                    each(&[a, b, c]);
                    for d in STEPS.iter().copied().filter(|_| longest == 4) {
                        each(&[a, b, c, d]);
                    }
                }
            }
        }
    }
    println!("ordered: {sequences} sequences, {crashes} crashes");
}
