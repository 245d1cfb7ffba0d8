//! A warm restart: the time until the hit ratio has recovered, and its effect on clients in the
//! meantime.
//!
//! The store is an NBD server that performs one request at a time and takes [`STORE_TIME`] for
//! each. Clients read random blocks, nine of ten in a hot set of extents. Once the hit ratio is
//! steady the server is stopped. It is then started alternately with and without the list that it
//! left, and the proof counts the page misses of the clients until the hit ratio over the last
//! [`WINDOW_PAGES`] pages is 95 % of the former one (docs/serve.md).

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

use super::prelude::*;
use crate::nbd::Client;
use crate::stats::{Spread, run_alternating};

/// The time of the store for a request of any length.
const STORE_TIME: Duration = Duration::from_millis(1);
const IMAGE_BYTES: u64 = 512 * MIB;
const OPTIONS: &str = "--memory 48MiB --warm-list-every off";
/// The hot set: extents at equal distances, half of the capacity of the cache.
const EXTENTS: u64 = 80;
const EXTENT_BYTES: u64 = 256 << 10;
const BLOCK_BYTES: u64 = 4096;
const CLIENTS: u64 = 4;
/// The number of pages over which the hit ratio is measured.
const WINDOW_PAGES: f64 = 1000.0;
/// The share of the former hit ratio at which it has recovered.
const RECOVERED_SHARE: f64 = 0.95;
/// The first seconds, in which clients must not be affected.
const FIRST_S: f64 = 3.0;
/// The maximum duration of a trial, recovered or not.
const TRIAL_MAX_S: f64 = 20.0;
const PAUSE: Duration = Duration::from_millis(20);
/// The relative repeatability of figures on this machine.
const RATIO_MAX: f64 = 1.05;

/// The counters at a time after the start of the load.
#[derive(Debug, Clone, Copy, Default)]
struct Sample {
    at: f64,
    pages: f64,
    hits: f64,
    read_blocks: f64,
}

impl Sample {
    fn misses(&self) -> f64 {
        self.pages - self.hits
    }
}

/// A request of a client: seconds since the start of the load, and its latency in milliseconds.
type Request = (f64, f64);

/// The sample at which the hit ratio has recovered, if it has, and the p99 latencies of the first
/// second and of the first [`FIRST_S`] seconds, in milliseconds.
type Trial = (Option<Sample>, [f64; 2]);

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    let store = Peer::nbdkit_slow(IMAGE_BYTES, STORE_TIME, 1).start(env.dir())?;
    let image = PathBuf::from(store.uri());
    let lists = env.file("lists");
    std::fs::create_dir(&lists).context("make a directory for lists")?;
    let with_list = format!("{OPTIONS} --warm-list {}", lists.display());
    let before = steady_hit_ratio(env, &image, &with_list)?;
    outln!("   hit ratio before: {:.1} %", 100.0 * before);
    let misses_in_order = misses_in_order(env, &image)?;
    outln!("   misses to read the hot set once in order: {misses_in_order}");
    let (mut round, mut trials) = (0, [vec![], vec![]]);
    let options = [with_list, format!("{OPTIONS} --warm-list none")];
    run_alternating(env.choose(5, 2), 2, |index| {
        let trial = trial(env, &image, &options[index], RECOVERED_SHARE * before, round / 2)?;
        outln!("   {}: {trial:?}", ["with the list", "without"][index]);
        trials[index].push(trial);
        round += 1;
        Ok(())
    })?;
    store.stop()?;
    judge(&trials, (before, misses_in_order), claims);
    Ok(())
}

fn judge(
    [warm, cold]: &[Vec<Trial>; 2],
    (before, misses_in_order): (f64, f64),
    claims: &mut Claims,
) {
    let spread = |trials: &[Trial], of: fn(&Sample) -> f64| {
        let values: Option<Vec<f64>> = trials.iter().map(|it| it.0.as_ref().map(of)).collect();
        values.map(|values| Spread::of(&values))
    };
    let summary = |trials: &[Trial]| {
        let mib = spread(trials, |it| it.read_blocks / to_f64(MIB / BLOCK_BYTES));
        match (spread(trials, Sample::misses), mib, spread(trials, |it| it.at)) {
            (Some(misses), Some(mib), Some(seconds)) => {
                format!("{misses:.0} misses, {mib:.0} MiB read, {seconds:.1} s")
            }
            _ => "not recovered in time".to_owned(),
        }
    };
    let is_soon =
        |trials| spread(trials, Sample::misses).is_some_and(|it| it.max < misses_in_order);
    claims.add_with_peer(
        format!(
            "hit ratio back to 95 % of {:.1} % before as many misses as it takes to read the hot \
             set once in order ({misses_in_order}), which a cold start does not do",
            100.0 * before
        ),
        summary(warm),
        format!("cold: {}", summary(cold)),
        is_soon(warm) && !is_soon(cold),
    );
    for (place, statement) in ["first second", "first three seconds"].iter().enumerate() {
        let [warm, cold] = [warm, cold].map(|all| all.iter().map(|it| it.1[place]).collect());
        let (warm, cold): (Vec<f64>, Vec<f64>) = (warm, cold);
        let ratio = Spread::of_ratios(&warm, &cold);
        claims.add_with_peer(
            format!("p99 of clients in the {statement}, at most that of a cold start"),
            format!("{} ms, {ratio} of cold", Spread::of(&warm)),
            format!("cold: {} ms", Spread::of(&cold)),
            ratio.median <= RATIO_MAX,
        );
    }
}

/// Reads the hot set once, in order, block by block.
fn read_hot_set(server: &Server) -> Result<()> {
    let mut client = Client::connect(&server.socket(), "")?;
    let mut bytes = vec![0; usize::try_from(BLOCK_BYTES)?];
    for extent in 0..EXTENTS {
        for block in 0..EXTENT_BYTES / BLOCK_BYTES {
            let offset = extent * (IMAGE_BYTES / EXTENTS) + block * BLOCK_BYTES;
            ensure!(client.read(offset, &mut bytes)?.is_ok(), "a read of the hot set failed");
        }
    }
    Ok(())
}

/// Returns the number of misses for reading the hot set once in order into a cold cache.
fn misses_in_order(env: &Env, image: &Path) -> Result<f64> {
    let server = env.serve(image, &format!("{OPTIONS} --warm-list none"))?;
    read_hot_set(&server)?;
    let misses = sample(&server, Instant::now())?.misses();
    server.stop_clean()?;
    Ok(misses)
}

/// Returns the hit ratio of a server with all hot data in its cache, and stops the server.
fn steady_hit_ratio(env: &Env, image: &Path, options: &str) -> Result<f64> {
    let server = env.serve(image, options)?;
    read_hot_set(&server)?;
    let seconds = env.choose(8.0, 3.0);
    let (samples, _) =
        load(&server, 1, |samples| samples.last().is_some_and(|it| it.at >= seconds))?;
    server.stop_clean()?;
    let (last, half) = (samples[samples.len() - 1], samples[samples.len() / 2]);
    let ratio = (last.hits - half.hits) / (last.pages - half.pages);
    ensure!(ratio > 0.8, "the hot set does not hit: {:.1} %", 100.0 * ratio);
    Ok(ratio)
}

/// Starts a server and runs clients until the hit ratio has recovered.
fn trial(env: &Env, image: &Path, options: &str, wanted: f64, round: u64) -> Result<Trial> {
    let server = env.serve(image, options)?;
    let (samples, requests) = load(&server, round, |samples| {
        let at = samples.last().map_or(0.0, |last| last.at);
        at >= TRIAL_MAX_S || at >= FIRST_S && recovery(samples, wanted).is_some()
    })?;
    // Like a power failure: the list stays unchanged for the next round.
    server.kill()?;
    let p99 = |end: f64| {
        let first = requests.iter().filter(|(at, _)| *at < end);
        let mut times: Vec<f64> = first.map(|(_, ms)| *ms).collect();
        times.sort_unstable_by(f64::total_cmp);
        times[times.len() * 99 / 100]
    };
    Ok((recovery(&samples, wanted), [p99(1.0), p99(FIRST_S)]))
}

/// Returns the first sample at which the ratio over the last pages was as wanted.
fn recovery(samples: &[Sample], wanted: f64) -> Option<Sample> {
    samples.iter().enumerate().find_map(|(now, sample)| {
        let is_window = |from: &&Sample| sample.pages - from.pages >= WINDOW_PAGES;
        let from = samples[..now].iter().rfind(is_window)?;
        let is_back = sample.hits - from.hits >= wanted * (sample.pages - from.pages);
        is_back.then_some(*sample)
    })
}

/// Runs clients until the counters suffice; returns the samples of the counters and the requests.
fn load(
    server: &Server,
    seed: u64,
    mut is_enough: impl FnMut(&[Sample]) -> bool,
) -> Result<(Vec<Sample>, Vec<Request>)> {
    let (is_ending, begun) = (AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (is_ending, socket) = (&is_ending, server.socket());
                scope.spawn(move || run_client(&socket, seed * CLIENTS + client, begun, is_ending))
            })
            .collect();
        let mut watch = || -> Result<Vec<Sample>> {
            let mut samples = Vec::new();
            while !is_enough(&samples) {
                samples.push(sample(server, begun)?);
                std::thread::sleep(PAUSE);
            }
            Ok(samples)
        };
        let watched = watch();
        is_ending.store(true, Ordering::Release);
        let mut requests = Vec::new();
        for client in clients {
            requests.extend(client.join().expect("a client does not panic")?);
        }
        Ok((watched?, requests))
    })
}

/// Runs one client, which reads blocks one after the other.
fn run_client(
    socket: &Path,
    seed: u64,
    begun: Instant,
    is_ending: &AtomicBool,
) -> Result<Vec<Request>> {
    let mut client = Client::connect(socket, "")?;
    let mut random = Rng::with_seed(seed);
    let mut below = |count: u64| random.u64(..count);
    let mut bytes = vec![0; usize::try_from(BLOCK_BYTES)?];
    let mut requests = Vec::new();
    while !is_ending.load(Ordering::Acquire) {
        let offset = if below(10) == 0 {
            below(IMAGE_BYTES / BLOCK_BYTES) * BLOCK_BYTES
        } else {
            let within = below(EXTENT_BYTES / BLOCK_BYTES) * BLOCK_BYTES;
            below(EXTENTS) * (IMAGE_BYTES / EXTENTS) + within
        };
        let (at, sent) = (begun.elapsed(), Instant::now());
        ensure!(client.read(offset, &mut bytes)?.is_ok(), "a read at {offset} failed");
        requests.push((at.as_secs_f64(), sent.elapsed().as_secs_f64() * 1e3));
    }
    Ok(requests)
}

/// Returns the current counters, from the control interface.
fn sample(server: &Server, begun: Instant) -> Result<Sample> {
    let mut stream = UnixStream::connect(server.control()).context("connect to the control")?;
    stream.write_all(b"GET /v1/stats HTTP/1.1\r\nHost: larder\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).context("read the statistics")?;
    let volume = &run::json_in(&answer)?["volumes"][0];
    Ok(Sample {
        at: begun.elapsed().as_secs_f64(),
        pages: number(volume, "read_pages")?,
        hits: number(volume, "read_hits")?,
        read_blocks: number(volume, "/counters/filled_blocks")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_back_when_the_last_pages_say_so() {
        let sample = |pages, hits| Sample { pages, hits, ..Sample::default() };
        let mut samples = vec![sample(0.0, 0.0), sample(900.0, 900.0), sample(1000.0, 900.0)];
        assert!(recovery(&samples, 0.91).is_none(), "too few pages, then too few hits");
        samples.push(sample(2000.0, 1850.0));
        let pages = |wanted| recovery(&samples, wanted).map(|sample| sample.pages);
        assert_eq!([pages(0.91), pages(0.90)], [Some(2000.0), Some(1000.0)]);
    }
}
