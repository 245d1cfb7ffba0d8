//! From records to the plan with its checks.

use super::BalanceArgs;
use super::alternatives::alternatives;
use super::inventory::Inventory;
use super::items::{self, Item, PlacedLoad};
use super::journal::add_journal_writes;
use super::record::Recording;
use anyhow::{Context, Result};
use larder_host::machine;
use larder_host::move_checks::{
    Backup, MoveCandidate, MoveRoots, TreeFacts, check, last_backup, no_backup,
};
use larder_lab::balance::{
    self, BalanceProblem, BalancedDisk, DiskLoad, DiskUse, MovePlan, PlacedItem, PlannedMove,
    busy_share,
};
use larder_report::balance::nanoseconds;
use larder_report::escape;
use larder_schema::as_f64;
use larder_schema::balance::{
    Balance, BalanceDisk, BalanceSummary, BalanceUse, FileLoad, FileMove, MoveIdentity, MoveLink,
};
use std::cmp::Ordering;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Number of loads that a result shows.
const LOADS_MAX: usize = 20;
/// Utilization above which programs may have waited for the disk.
const SATURATED: f64 = 0.9;

/// Plans the moves.
pub(super) fn plan(arguments: &BalanceArgs, mut recording: Recording) -> Result<Balance> {
    let mut inventory = Inventory::of(arguments, &recording)?;
    let loads = loads_per_second(&recording, &inventory);
    let items = items::items(arguments, &loads, &inventory);
    let problem = problem(&recording, &inventory, &loads, &items);
    let plan = balance::plan(&problem);
    let is_here = inventory.places.iter().all(|place| place.stack.is_some());
    let backup = if is_here && !plan.moves.is_empty() {
        last_backup(&MoveRoots::default(), arguments.backup.as_deref())
            .context("read the time of the last backup")?
    } else {
        None
    };
    let moves: Vec<FileMove> = plan
        .moves
        .iter()
        .map(|planned| {
            file_move(arguments, &inventory, &problem, &items, *planned, backup.as_ref())
        })
        .collect();
    let findings = match &backup {
        _ if moves.is_empty() || !is_here => Vec::new(),
        Some(backup) => vec![backup.age_finding()],
        None => vec![no_backup()],
    };
    let mut notes = std::mem::take(&mut recording.notes);
    notes.append(&mut inventory.notes);
    notes.extend(assumptions(&inventory, &plan, &items));
    let disks = disks(&inventory, &problem, &plan);
    let (loads, loads_all) = file_loads(&inventory, &loads);
    Ok(Balance {
        records: recording.names,
        duration_ns: recording.duration_ns,
        machine_id: is_here.then(machine::id),
        before: summary(&inventory, &plan.before),
        after: summary(&inventory, &plan.after),
        alternatives: alternatives(&inventory, &moves),
        disks,
        loads,
        loads_all,
        moves,
        findings,
        notes,
    })
}

/// Returns the loads with the writes that they cause.
fn loads_per_second(recording: &Recording, inventory: &Inventory) -> Vec<PlacedLoad> {
    let mut loads = items::placed_loads(recording, inventory);
    if !recording.is_partial {
        add_journal_writes(&mut loads, inventory);
    }
    let per_s = 1e9 / as_f64(recording.duration_ns);
    for load in &mut loads {
        load.recorded.load = load.recorded.load.scaled(per_s, per_s);
    }
    loads
}

fn problem(
    recording: &Recording,
    inventory: &Inventory,
    loads: &[PlacedLoad],
    items: &[Item],
) -> BalanceProblem {
    let seconds = as_f64(recording.duration_ns) / 1e9;
    let sums = items::disk_sums(loads, inventory);
    let disks = inventory.disks.iter().zip(sums).map(|(disk, sum)| {
        let counted = disk.counted.unwrap_or_default().scaled(1.0 / seconds, 1.0 / seconds);
        let fixed = DiskLoad {
            reads: (counted.reads - sum.reads).max(0.0),
            read_bytes: (counted.read_bytes - sum.read_bytes).max(0.0),
            writes: (counted.writes - sum.writes).max(0.0),
            write_bytes: (counted.write_bytes - sum.write_bytes).max(0.0),
        };
        BalancedDisk { limits: disk.limits.clone(), fixed }
    });
    let item = |item: &Item| PlacedItem {
        bytes: item.bytes,
        load: item.load,
        place: item.place,
        is_movable: item.is_movable,
    };
    BalanceProblem {
        disks: disks.collect(),
        places: inventory.places.iter().map(|place| place.balanced.clone()).collect(),
        items: items.iter().map(item).collect(),
    }
}

/// Returns the disk of a file system that a load keeps most busy, and for which share of the time.
fn busiest_share(inventory: &Inventory, place: usize, load: &DiskLoad) -> (String, f64) {
    let shares = &inventory.places[place].balanced.shares;
    let costs = shares.iter().map(|&(disk, read, write)| {
        let disk = &inventory.disks[disk];
        (disk.name.clone(), busy_share(&disk.limits, &load.scaled(read, write)))
    });
    let higher = |a: (String, f64), b: (String, f64)| if b.1 > a.1 { b } else { a };
    costs.reduce(higher).unwrap_or_default()
}

fn file_loads(inventory: &Inventory, loads: &[PlacedLoad]) -> (Vec<FileLoad>, u64) {
    let of = |it: &PlacedLoad| {
        let (disk, utilization) = busiest_share(inventory, it.place, &it.recorded.load);
        let load = &it.recorded.load;
        FileLoad {
            disk,
            file: it.recorded.file.clone(),
            process: it.recorded.process.clone(),
            pid: it.recorded.pid,
            reads_per_s: load.reads,
            read_bytes_per_s: load.read_bytes,
            writes_per_s: load.writes,
            write_bytes_per_s: load.write_bytes,
            utilization,
        }
    };
    let mut all: Vec<FileLoad> = loads.iter().map(of).collect();
    all.sort_by(|a, b| {
        let by_use = b.utilization.partial_cmp(&a.utilization).unwrap_or(Ordering::Equal);
        by_use.then_with(|| (&a.file, &a.process, a.pid).cmp(&(&b.file, &b.process, b.pid)))
    });
    let count = all.len() as u64;
    all.truncate(LOADS_MAX);
    (all, count)
}

fn disks(inventory: &Inventory, problem: &BalanceProblem, plan: &MovePlan) -> Vec<BalanceDisk> {
    let of = |number: usize| {
        let disk = &inventory.disks[number];
        let has_disk = |shares: &[(usize, f64, f64)]| shares.iter().any(|it| it.0 == number);
        let on_it = inventory.places.iter().filter(|place| has_disk(&place.balanced.shares));
        let balanced = &problem.disks[number];
        BalanceDisk {
            name: disk.name.clone(),
            file_systems: on_it.clone().map(|place| place.name.clone()).collect(),
            stacks: on_it.filter_map(|it| Some(it.stack.as_ref()?.describe())).collect(),
            service: disk.service.clone(),
            unattributed_utilization: busy_share(&balanced.limits, &balanced.fixed),
            before: usage(plan.before.get(number)),
            after: usage(plan.after.get(number)),
        }
    };
    let mut disks: Vec<BalanceDisk> = (0..inventory.disks.len()).map(of).collect();
    disks.sort_by(|a, b| {
        let by_use = b.before.utilization.partial_cmp(&a.before.utilization);
        by_use.unwrap_or(Ordering::Equal).then_with(|| a.name.cmp(&b.name))
    });
    disks
}

fn usage(of: Option<&DiskUse>) -> BalanceUse {
    let of = of.copied().unwrap_or_default();
    BalanceUse {
        requests_per_s: of.requests_per_s,
        utilization: of.utilization,
        response_ns: nanoseconds(of.response_s),
    }
}

fn summary(inventory: &Inventory, uses: &[DiskUse]) -> BalanceSummary {
    let peak = balance::peak(uses);
    let busiest = uses.iter().position(|it| it.utilization >= peak).filter(|_| peak > 0.0);
    BalanceSummary {
        disk: busiest.map_or_else(String::new, |it| inventory.disks[it].name.clone()),
        utilization: peak,
        response_ns: nanoseconds(balance::mean_response(uses)),
    }
}

fn file_move(
    arguments: &BalanceArgs,
    inventory: &Inventory,
    problem: &BalanceProblem,
    items: &[Item],
    planned: PlannedMove,
    backup: Option<&Backup>,
) -> FileMove {
    let item = &items[planned.item];
    let target_place = &inventory.places[planned.place];
    let target = target_place.target.clone().unwrap_or_default();
    let disks = |place: usize| {
        let shares = &problem.places[place].shares;
        shares.iter().map(|share| inventory.disks[share.0].name.clone()).collect()
    };
    let link: MoveLink = arguments.link.into();
    let mut made = FileMove {
        from: item.path.clone(),
        target: target.display().to_string(),
        is_directory: item.is_directory,
        bytes: item.bytes,
        from_disks: disks(item.place),
        to_disks: disks(planned.place),
        utilization: busiest_share(inventory, item.place, &item.load).1,
        link,
        ..FileMove::default()
    };
    if target_place.stack.is_none() {
        let below = item.path.split_once(":\\").map_or(&*item.path, |(_, below)| below);
        made.to = format!("{}{below}", made.target);
        return made;
    }
    let candidate = MoveCandidate { path: item.path.clone().into(), target, link };
    made.to = candidate.destination().display().to_string();
    made.identity = identity(&candidate);
    let facts = TreeFacts::of(&candidate.path);
    made.findings = check(&MoveRoots::default(), &candidate, &facts, backup);
    made
}

fn identity(candidate: &MoveCandidate) -> Option<MoveIdentity> {
    let found = std::fs::symlink_metadata(&candidate.path).ok()?;
    let target = std::fs::metadata(&candidate.target).ok()?;
    Some(MoveIdentity { device: found.dev(), inode: found.ino(), target_device: target.dev() })
}

/// Returns sentences on what limits the prediction.
fn assumptions(inventory: &Inventory, plan: &MovePlan, items: &[Item]) -> Vec<String> {
    let mut notes = Vec::new();
    for (disk, before) in inventory.disks.iter().zip(&plan.before) {
        if before.utilization > SATURATED {
            notes.push(format!(
                "{} was busy for {:.0} % of the time, so that programs may have waited for it: \
                 they may do more work after the moves than the prediction has.",
                disk.name,
                100.0 * before.utilization
            ));
        }
    }
    let has_measured = inventory.disks.iter().any(|it| it.service.starts_with("measured"));
    if has_measured && !plan.moves.is_empty() {
        notes.push(
            "Measured service times are those of the requests in the record: for moved files with \
             longer or shorter requests, name the model of the disk with --disk."
                .to_owned(),
        );
    }
    let gone = items.iter().filter(|it| !it.is_movable && Path::new(&it.path).is_absolute());
    let gone: Vec<&Item> = gone.filter(|it| it.load.requests() > 0.0).collect();
    if let Some(first) = gone.first() {
        let others = match gone.len() {
            1 => String::new(),
            count => format!(" and {} others", count - 1),
        };
        notes.push(format!(
            "Files that stay, since the system needs them, or they are excluded, replaced or gone: \
             {}{others}.",
            escape::text(&first.path)
        ));
    }
    notes
}
