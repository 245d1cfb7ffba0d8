//! A warm restart: how soon the hit ratio is back, and what clients notice of it meanwhile.
//!
//! The store is an NBD server that does one request at a time and takes [`STORE_TIME`] for each.
//! Clients read blocks at random, nine of ten in a hot set of extents. Once the hit ratio is steady
//! the server is stopped; then, in turns, it is started with the list that it left and without, and
//! the pages are counted that clients miss until the hit ratio over the last [`WINDOW_PAGES`] pages
//! is 95 % of what it was (docs/serve.md).

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

use super::prelude::*;
use crate::nbd::Client;
use crate::random::Random;
use crate::stats::{Spread, take_turns};

/// What the store takes for a request, whatever its length.
const STORE_TIME: Duration = Duration::from_millis(1);
const IMAGE_BYTES: u64 = 512 * MIB;
const OPTIONS: &str = "--memory 48MiB --warm-list-every off";
/// The hot set: extents at equal distances, half of what the cache holds.
const EXTENTS: u64 = 80;
const EXTENT_BYTES: u64 = 256 << 10;
const BLOCK_BYTES: u64 = 4096;
const CLIENTS: u64 = 4;
/// The hit ratio is taken over the last so many pages.
const WINDOW_PAGES: u64 = 1000;
/// Of what it was, the hit ratio is back.
const BACK: f64 = 0.95;
/// The first seconds, in which clients must not notice.
const FIRST: Duration = Duration::from_secs(3);
/// A trial ends after so long, back or not.
const TRIAL_MAX: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(20);
/// Figures of this machine repeat to within so much.
const NOISE: f64 = 1.05;

/// The counters at a moment.
#[derive(Debug, Clone, Copy, Default)]
struct Sample {
    at: Duration,
    pages: u64,
    hits: u64,
    read_blocks: u64,
}

impl Sample {
    fn misses(&self) -> u64 {
        self.pages - self.hits
    }
}

/// A request of a client: when it was made, and nanoseconds until its answer.
type Request = (Duration, u64);

/// What a start came to.
#[derive(Debug)]
struct Trial {
    /// When the hit ratio was back, if it was.
    back: Option<Sample>,
    /// Nanoseconds: the 99th percentile of the first second, and of the first seconds.
    p99: [f64; 2],
}

/// Runs the proof.
pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    let store = Peer::nbdkit_slow(IMAGE_BYTES, STORE_TIME, 1).start(env.dir())?;
    let image = PathBuf::from(store.uri());
    let lists = env.file("lists");
    std::fs::create_dir(&lists).context("make a directory for lists")?;
    let with_list = format!("{OPTIONS} --warm-list {}", lists.display());
    let before = steady(env, &image, &with_list)?;
    say!("   hit ratio before: {:.1} %", 100.0 * before);
    let in_order = in_order(env, &image)?;
    say!("   misses to read the hot set once in order: {in_order}");
    let (mut round, mut trials) = (0, [vec![], vec![]]);
    take_turns(env.either(5, 2), 2, |index| {
        let without = format!("{OPTIONS} --warm-list none");
        let options = if index == 0 { &with_list } else { &without };
        let trial = trial(env, &image, options, BACK * before, round / 2)?;
        say!("   {}: {trial:?}", ["with the list", "without"][index]);
        trials[index].push(trial);
        round += 1;
        Ok(())
    })?;
    let [warm, cold] = trials;
    store.stop()?;
    judge(&warm, &cold, (before, in_order), claims);
    Ok(())
}

fn judge(warm: &[Trial], cold: &[Trial], (before, in_order): (f64, u64), claims: &mut Claims) {
    let misses = |trials: &[Trial]| -> Option<Vec<f64>> {
        trials.iter().map(|trial| Some(to_f64(trial.back?.misses()))).collect()
    };
    let in_words = |trials: &[Trial]| {
        let Some(misses) = misses(trials) else { return "not back in time".to_owned() };
        let back = trials.iter().filter_map(|trial| trial.back);
        let seconds: Vec<_> = back.clone().map(|back| back.at.as_secs_f64()).collect();
        let mib: Vec<_> = back.map(|it| to_f64(it.read_blocks * BLOCK_BYTES / MIB)).collect();
        let [misses, mib, seconds] = [misses, mib, seconds].map(|values| Spread::of(&values));
        format!("{misses:.0} misses, {mib:.0} MiB read, {seconds:.1} s")
    };
    let is_soon = |trials: &[Trial]| {
        misses(trials).is_some_and(|misses| misses.iter().all(|&misses| misses < to_f64(in_order)))
    };
    claims.against(
        format!(
            "hit ratio back to 95 % of {:.1} % before as many misses as it takes to read the hot \
             set once in order ({in_order}), which a cold start does not do",
            100.0 * before
        ),
        in_words(warm),
        format!("cold: {}", in_words(cold)),
        is_soon(warm) && !is_soon(cold),
    );
    for (place, what) in ["first second", "first three seconds"].iter().enumerate() {
        let ms = |trials: &[Trial]| -> Vec<f64> {
            trials.iter().map(|trial| trial.p99[place] / 1e6).collect()
        };
        let ratio = Spread::of_ratios(&ms(warm), &ms(cold));
        let [warm, cold] = [ms(warm), ms(cold)].map(|ms| Spread::of(&ms));
        claims.against(
            format!("p99 of clients in the {what}, at most that of a cold start"),
            format!("{warm} ms, {ratio} of cold"),
            format!("cold: {cold} ms"),
            ratio.median <= NOISE,
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

/// The misses that it takes a cold cache to read the hot set once in order.
fn in_order(env: &Env, image: &Path) -> Result<u64> {
    let options = format!("{OPTIONS} --warm-list none");
    let server = env.serve(image, &options)?;
    read_hot_set(&server)?;
    let misses = sample(&server, Instant::now())?.misses();
    server.stop_clean()?;
    Ok(misses)
}

/// The hit ratio of a server with everything hot in its cache, which is then stopped.
fn steady(env: &Env, image: &Path, options: &str) -> Result<f64> {
    let server = env.serve(image, options)?;
    read_hot_set(&server)?;
    let seconds = env.either(8, 3);
    let (samples, _) = load(&server, 1, |samples| {
        samples.last().is_some_and(|last| last.at >= Duration::from_secs(seconds))
    })?;
    server.stop_clean()?;
    let (last, half) = (samples[samples.len() - 1], samples[samples.len() / 2]);
    let ratio = to_f64(last.hits - half.hits) / to_f64(last.pages - half.pages);
    ensure!(ratio > 0.8, "the hot set does not hit: {:.1} %", 100.0 * ratio);
    Ok(ratio)
}

/// Starts a server and has clients ask until the hit ratio is back.
fn trial(env: &Env, image: &Path, options: &str, wanted: f64, round: u64) -> Result<Trial> {
    let server = env.serve(image, options)?;
    let (samples, requests) = load(&server, round, |samples| {
        let Some(last) = samples.last() else { return false };
        last.at >= TRIAL_MAX || last.at >= FIRST && back(samples, wanted).is_some()
    })?;
    // As the power fails: the list stays what it was for the next round.
    server.kill()?;
    let p99 = |end: Duration| {
        let first = requests.iter().filter(|(at, _)| *at < end);
        let mut times: Vec<u64> = first.map(|(_, ns)| *ns).collect();
        times.sort_unstable();
        to_f64(times[times.len() * 99 / 100])
    };
    Ok(Trial { back: back(&samples, wanted), p99: [p99(Duration::from_secs(1)), p99(FIRST)] })
}

/// The first moment at which the ratio over the last pages was as wanted.
fn back(samples: &[Sample], wanted: f64) -> Option<Sample> {
    let mut from = 0;
    samples.iter().enumerate().find_map(|(now, sample)| {
        let is_window = |from: usize| sample.pages - samples[from].pages >= WINDOW_PAGES;
        if !is_window(from) {
            return None;
        }
        while from < now && is_window(from + 1) {
            from += 1;
        }
        let (pages, hits) = (sample.pages - samples[from].pages, sample.hits - samples[from].hits);
        (to_f64(hits) >= wanted * to_f64(pages)).then_some(*sample)
    })
}

/// Has clients ask until what the counters say is enough; the counters and the requests.
fn load(
    server: &Server,
    seed: u64,
    mut is_enough: impl FnMut(&[Sample]) -> bool,
) -> Result<(Vec<Sample>, Vec<Request>)> {
    let (ending, begun) = (AtomicBool::new(false), Instant::now());
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (ending, socket) = (&ending, server.socket());
                scope.spawn(move || ask(&socket, seed * CLIENTS + client, begun, ending))
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
        ending.store(true, Ordering::Release);
        let mut requests = Vec::new();
        for client in clients {
            requests.extend(client.join().expect("a client does not panic")?);
        }
        Ok((watched?, requests))
    })
}

/// One client, which asks for a block after the other.
fn ask(socket: &Path, seed: u64, begun: Instant, ending: &AtomicBool) -> Result<Vec<Request>> {
    let mut client = Client::connect(socket, "")?;
    let mut random = Random::seeded(seed);
    let mut below = |count: u64| random.next() % count;
    let mut bytes = vec![0; usize::try_from(BLOCK_BYTES)?];
    let mut requests = Vec::new();
    while !ending.load(Ordering::Acquire) {
        let offset = if below(10) == 0 {
            below(IMAGE_BYTES / BLOCK_BYTES) * BLOCK_BYTES
        } else {
            let within = below(EXTENT_BYTES / BLOCK_BYTES) * BLOCK_BYTES;
            below(EXTENTS) * (IMAGE_BYTES / EXTENTS) + within
        };
        let (at, asked) = (begun.elapsed(), Instant::now());
        ensure!(client.read(offset, &mut bytes)?.is_ok(), "a read at {offset} failed");
        requests.push((at, u64::try_from(asked.elapsed().as_nanos())?));
    }
    Ok(requests)
}

/// The counters now, from the control interface.
fn sample(server: &Server, begun: Instant) -> Result<Sample> {
    let control = server.socket().with_extension("control");
    let mut stream = UnixStream::connect(&control).context("connect to the control socket")?;
    stream.write_all(b"GET /v1/stats HTTP/1.1\r\nHost: larder\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).context("read the statistics")?;
    let (_, body) = answer.split_once("\r\n\r\n").context("the statistics have no body")?;
    let stats: Value = serde_json::from_str(body).context("parse the statistics")?;
    let volume = &stats["volumes"][0];
    let number = |value: &Value| value.as_u64().context("a number is missing in the statistics");
    Ok(Sample {
        at: begun.elapsed(),
        pages: number(&volume["read_pages"])?,
        hits: number(&volume["read_hits"])?,
        read_blocks: number(&volume["counters"]["filled_blocks"])?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_back_when_the_last_pages_say_so() {
        let sample = |pages, hits| Sample { pages, hits, ..Sample::default() };
        let mut samples = vec![sample(0, 0), sample(900, 900), sample(1000, 900)];
        assert!(back(&samples, 0.91).is_none(), "too few pages, then too few hits");
        samples.push(sample(2000, 1850));
        assert_eq!(back(&samples, 0.91).unwrap().pages, 2000);
        assert_eq!(back(&samples, 0.90).unwrap().pages, 1000);
    }
}
