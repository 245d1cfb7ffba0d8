//! The state of the service in the schema of the control API.

use super::{curves, retention};
use crate::memory_return::MemoryReturn;
use crate::service::{ServedVolume, Service};
use crate::volume_plan::VolumePlan;
use larder_core::clock::Nanos;
use larder_core::counters::{Counter, Gauge, Latency, Totals};
use larder_core::request::{BudgetUsage, PoolUsage};
use larder_core::tunables::{TUNABLES, Tunable};
use larder_core::units::BLOCK_BYTES_U64;
use larder_core::volume::PolicySwitch;
use larder_io::engine::ArenaVolume;
use larder_io::fault::failed_parts;
use larder_io::front::fuse::{FailingFile, FileCounters};
use larder_schema::control::{
    AtRisk, Budget, BudgetPool, ByteRange, FileAtRisk, FileStats, Files, GiveBack, LatencyStats,
    Pinned, PolicyInForce, ResponseHead, Stats, Switch, Volume, VolumeAtRisk, VolumeStats, Volumes,
};
use std::collections::BTreeMap;

/// Maximum number of failing ranges listed per volume.
const RANGES_MAX: usize = 100;
/// Maximum number of files listed.
const FILES_MAX: usize = 1000;
/// Nanoseconds per millisecond, the unit of tunables.
const MILLISECOND: u64 = 1_000_000;

pub(super) fn stats(service: &Service) -> Stats {
    let volumes = service.volumes();
    let cache = service.engine.cache();
    let of_pool = |gauge| Some((name_of(gauge), cache.pool_gauge(gauge)?));
    let pool = Gauge::ALL.into_iter().filter_map(of_pool).collect();
    Stats {
        head: ResponseHead::default(),
        uptime_ns: u64::try_from(service.started_at.elapsed().as_nanos()).unwrap_or(u64::MAX),
        stopping: service.is_stopping(),
        pool,
        budget: service.budget().map(budget),
        give_back: give_back(service),
        failed_parts: failed_parts(),
        volumes: volumes.iter().map(|served| volume_stats(service, served)).collect(),
    }
}

fn budget(usage: BudgetUsage) -> Budget {
    let pool = |usage: PoolUsage| {
        let PoolUsage { size_bytes, leased_bytes, peak_bytes, refusals } = usage;
        BudgetPool { size_bytes, leased_bytes, peak_bytes, refusals }
    };
    let BudgetUsage { sessions, sessions_max, pinned, parked } = usage;
    Budget { sessions, sessions_max, payloads: pool(parked), frames: pool(pinned) }
}

fn give_back(service: &Service) -> Option<GiveBack> {
    match service.memory_return.as_ref()? {
        MemoryReturn::Active(memory_return) => {
            let state = memory_return.state();
            let age = |at| service.engine.now().saturating_sub(at);
            Some(GiveBack {
                full_bytes: state.full_bytes,
                kept_bytes: state.kept_bytes,
                floor_bytes: state.floor_bytes,
                pressures: state.pressures,
                last_pressure_age_ns: state.pressed_at.map(age),
                watched: memory_return.watched().to_vec(),
                error: None,
            })
        }
        MemoryReturn::Unavailable(error) => {
            let bytes = service.engine.memory_bytes();
            let error = Some(error.clone());
            Some(GiveBack { full_bytes: bytes, kept_bytes: bytes, error, ..GiveBack::default() })
        }
    }
}

fn name_of(gauge: Gauge) -> String {
    gauge.meaning().name.to_owned()
}

fn volume_stats(service: &Service, served: &ServedVolume) -> VolumeStats {
    let ServedVolume { volume, .. } = served;
    let totals = volume.totals();
    let cache = service.engine.cache();
    let counter = |counter: Counter| (counter.meaning().name.to_owned(), totals.get(counter));
    let of_volume = Gauge::ALL.into_iter().filter(|gauge| !gauge.is_of_pool());
    let latency =
        |latency: Latency| (latency.meaning().name.to_owned(), latency_stats(&totals, latency));
    VolumeStats {
        name: volume.name().to_owned(),
        read_pages: totals.read_pages(),
        read_hits: totals.read_hits(),
        read_hit_ratio: totals.read_hit_ratio(),
        counters: Counter::ALL.into_iter().map(counter).collect(),
        gauges: of_volume.map(|gauge| (name_of(gauge), cache.gauge(volume, gauge))).collect(),
        latencies: Latency::ALL.into_iter().map(latency).collect(),
        findings: curves::findings(service, served),
    }
}

fn latency_stats(totals: &Totals, latency: Latency) -> LatencyStats {
    let histogram = totals.latency(latency);
    LatencyStats {
        count: histogram.count(),
        sum: histogram.sum(),
        p50: histogram.quantile(0.5),
        p99: histogram.quantile(0.99),
        max: histogram.max(),
    }
}

/// Returns the description of these volumes.
pub(super) fn volumes(service: &Service, volumes: Vec<ServedVolume>) -> Volumes {
    let cache = service.engine.cache();
    // The length of a directory is the size of its address space for files, which is of no use to a
    // client.
    let has_length = !service.is_directory();
    let one = |served: ServedVolume| {
        let findings = curves::findings(service, &served);
        let ServedVolume { volume, plan, .. } = served;
        let (settings, tunables) = settings(&plan);
        let Pinned { pinned_bytes, ranges, .. } = retention::pinned(cache, &volume);
        Volume {
            frozen: volume.is_frozen(),
            pinned_bytes,
            pinned: ranges,
            findings,
            name: volume.name().to_owned(),
            path: plan.path.display().to_string(),
            uri: service.uri(volume.name()),
            length_bytes: has_length.then(|| volume.geometry().length),
            resident_bytes: cache.gauge(&volume, Gauge::Resident),
            warming_bytes: cache.gauge(&volume, Gauge::Warming),
            target_bytes: volume.target_frames().map(|frames| u64::from(frames) * BLOCK_BYTES_U64),
            policy: policy(&volume, service.engine.now()),
            settings,
            tunables,
        }
    };
    Volumes {
        head: ResponseHead::default(),
        share: cache.share_mode().name().to_owned(),
        volumes: volumes.into_iter().map(one).collect(),
    }
}

fn policy(volume: &ArenaVolume, now: Nanos) -> PolicyInForce {
    let switch = |switch: PolicySwitch| Switch {
        age_ns: now.saturating_sub(switch.at),
        from: switch.from.name().to_owned(),
        to: switch.to.name().to_owned(),
        gain: switch.gain,
    };
    PolicyInForce {
        name: volume.policy().name().to_owned(),
        auto: volume.policy_auto(),
        switches: volume.policy_switches().into_iter().map(switch).collect(),
    }
}

/// Returns the settings of a volume as command-line values, and its tunables.
fn settings(plan: &VolumePlan) -> (BTreeMap<String, String>, BTreeMap<String, u64>) {
    let is_tunable = |name: &str| TUNABLES.iter().any(|tunable| tunable.name == name);
    let flags = plan.settings().into_iter().filter(|(name, _)| !is_tunable(name));
    let flags = flags.map(|(name, value)| (name.to_owned(), value)).collect();
    let tunables = TUNABLES.iter().zip(plan.tunables.values());
    (flags, tunables.map(|(tunable, &value)| (tunable.name.to_owned(), value)).collect())
}

/// Returns the files of a mounted directory with the most cached data; `None` if the server serves
/// volumes.
pub(super) fn files(service: &Service) -> Option<Files> {
    let found = service.cached_files()?;
    let total = found.len() as u64;
    let one = |file: FileCounters| FileStats {
        path: file.path,
        size_bytes: file.size_bytes,
        resident_bytes: file.resident_bytes,
        dirty_bytes: file.unclean_bytes,
        opens: file.opens as u64,
        requests: file
            .requests
            .into_iter()
            .map(|(class, count)| (class.counter().meaning().name.to_owned(), count))
            .collect(),
    };
    let files = found.into_iter().take(FILES_MAX).map(one).collect();
    Some(Files { head: ResponseHead::default(), total, files })
}

/// Returns the unwritten data of all volumes.
pub(super) fn at_risk(service: &Service) -> AtRisk {
    let now = service.engine.now();
    let lost = service.stores.known_lost();
    let one = |ServedVolume { volume, plan, .. }: ServedVolume| {
        let risk = service.engine.cache().at_risk(&volume, RANGES_MAX);
        let file = |file: FailingFile| FileAtRisk {
            path: file.path,
            failing_bytes: file.failing_bytes,
            error: file.error,
        };
        let files = service.failing_files(volume.name(), &risk.failing);
        VolumeAtRisk {
            name: volume.name().to_owned(),
            flush: volume.flush_mode().name().to_owned(),
            lost_by_kill_bytes: risk.blocks * BLOCK_BYTES_U64,
            writing_bytes: risk.writing_blocks * BLOCK_BYTES_U64,
            lost_by_kill_bytes_max: risk.blocks_max * BLOCK_BYTES_U64,
            oldest_age_ns: risk.oldest.map(|since| now.saturating_sub(since)),
            age_max_ns: plan.tunables.get(Tunable::AgeMax) * MILLISECOND,
            failing_bytes: risk.failing_blocks * BLOCK_BYTES_U64,
            failing: risk.failing.into_iter().map(ByteRange::from).collect(),
            files: files.into_iter().map(file).collect(),
            error: risk.error.map(|error| error.to_string()),
            flush_failed: risk.flush_failed.map(|error| error.to_string()),
            lost_path: lost.contains(&plan.path).then(|| plan.path.display().to_string()),
        }
    };
    AtRisk {
        head: ResponseHead::default(),
        volumes: service.volumes().into_iter().map(one).collect(),
    }
}
