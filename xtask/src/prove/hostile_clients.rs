//! Hostile clients against the real server. For each kind of client, with a small cache: the peak
//! memory of the server, and the longest wait of another client. For all kinds together: their
//! effect on the latency of another client.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

use larder_testing::hostile::{Counts, Endpoint, Kind, Reader, Target, attack, read_a_block};

use super::prelude::*;
use super::upstream::CERTIFICATES;
use crate::daemon::Daemon;
use crate::processor_group::HalfProcessor;

/// The maximum resident memory in addition to `--memory`.
const OVERHEAD_BYTES_MAX: u64 = 32 * MIB;
/// The memory of the cache in MiB: with one kind of client, and with all together.
const SMALL_CACHE_MIB: u64 = 16;
const ALL_MIB: [(Transport, u64); 4] = [
    (Transport::Tcp, 16),
    (Transport::Tcp, 128),
    (Transport::Tcp, 1024),
    (Transport::Tls, SMALL_CACHE_MIB),
];
/// The maximum ratio of another client's p99 latency during the attacks to that without attacks.
/// With TLS, where clients cause computation on the server, it is only reported.
const LATENCY_RATIO_MAX: f64 = 10.0;
/// The number of hostile connections: two fewer than the server accepts.
const CONNECTIONS: usize = 62;
/// The time within which another client must be served.
const SERVED_WITHIN: Duration = Duration::from_secs(10);
const IMAGE_BYTES: u64 = 64 * MIB;
/// The interval of memory samples.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Unix,
    Tcp,
    Tls,
}

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    let image =
        image::create_filled(&env.file("hostile.img"), IMAGE_BYTES / MIB, env.options.seed)?;
    let certificates = env.file("certificates");
    std::fs::create_dir(&certificates).context("make a directory for certificates")?;
    stdout_of(cmd!("sh -c {CERTIFICATES}").current_dir(&certificates))?;
    for kind in Kind::ALL {
        for transport in [Transport::Unix, Transport::Tcp, Transport::Tls] {
            let statement = format!("{CONNECTIONS} x {}, {transport:?}", kind.name());
            claims.check(statement, || {
                attack_with_one_kind(env, &image, &certificates, kind, transport)
            });
        }
    }
    for (transport, mib) in ALL_MIB {
        let statement =
            format!("{CONNECTIONS} clients of all kinds, {transport:?}, {mib} MiB of memory");
        match HalfProcessor::unavailable_reason() {
            Some(reason) => claims.skip(&statement, &reason),
            None => claims.check(statement, || {
                attack_with_all_kinds(env, &image, &certificates, transport, mib)
            }),
        }
    }
    std::fs::remove_file(&image).context("remove the image")
}

/// Returns a free port.
fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("find a free port")?;
    listener.local_addr().context("find a free port")
}

/// Runs one kind of client against a separate server.
fn attack_with_one_kind(
    env: &Env,
    image: &Path,
    certificates: &Path,
    kind: Kind,
    transport: Transport,
) -> Result<String> {
    let (server, target) = serve(env, image, certificates, transport, SMALL_CACHE_MIB)?;
    // An empty cache would leave its memory to buffers for the hostile clients.
    drop(connect_and_fill(&target)?);
    let seconds = Duration::from_secs(env.choose(60, 3));
    let outcome = resist(&server, kind, &target, seconds)?;
    server.stop_clean()?;
    Ok(outcome)
}

/// Starts a server with `mib` MiB of memory. Returns the server and its export.
fn serve(
    env: &Env,
    image: &Path,
    certificates: &Path,
    transport: Transport,
    mib: u64,
) -> Result<(Server, Target)> {
    let address = free_address()?;
    let larder = env.larder.clone();
    let memory = format!("{mib}MiB");
    let start = |dir: &Path| {
        let listen = match transport {
            Transport::Unix => format!("unix:{}", dir.join("socket").display()),
            Transport::Tcp | Transport::Tls => format!("tcp:{address}"),
        };
        let mut command = Command::new(&larder);
        command.arg("serve").arg(image).args(["--memory", &memory, "--control", "none"]);
        if transport == Transport::Tls {
            command.arg("--tls").arg(certificates);
        }
        command.args(["--listen", &listen]);
        command
    };
    let mut server = Server(Daemon::start("larder", env.dir(), start)?);
    let socket = server.socket();
    server.0.wait_until(|_| match transport {
        Transport::Unix => std::os::unix::net::UnixStream::connect(&socket).is_ok(),
        Transport::Tcp | Transport::Tls => TcpStream::connect(address).is_ok(),
    })?;
    let endpoint = match transport {
        Transport::Unix => Endpoint::Unix(socket),
        Transport::Tcp | Transport::Tls => Endpoint::Tcp(address),
    };
    let target = match transport {
        Transport::Tls => Target::with_tls(endpoint, "hostile", &certificates.join("ca-cert.pem")),
        Transport::Unix | Transport::Tcp => Target::in_clear(endpoint, "hostile"),
    };
    Ok((server, target))
}

/// Connects a well-behaved client, which reads the whole image into the cache.
fn connect_and_fill(target: &Target) -> Result<Reader> {
    let mut reader = Reader::connect(target).context("connect a well-behaved client")?;
    reader.read_all(IMAGE_BYTES).context("fill the cache")?;
    Ok(reader)
}

/// Runs clients of all kinds with half a CPU, in parallel with the reads of a well-behaved client.
fn attack_with_all_kinds(
    env: &Env,
    image: &Path,
    certificates: &Path,
    transport: Transport,
    mib: u64,
) -> Result<String> {
    let (server, target) = serve(env, image, certificates, transport, mib)?;
    let time = Duration::from_secs(env.choose(60, 3));
    let mut reader = connect_and_fill(&target)?;
    let mut most_bytes = 0;
    let mut latencies = || -> Result<f64> {
        let mut found = Vec::new();
        let begun = Instant::now();
        while begun.elapsed() < time {
            let sent = Instant::now();
            reader.read_a_block().context("serve another client")?;
            found.push(sent.elapsed().as_secs_f64() * 1e6);
            most_bytes = most_bytes.max(server.memory_bytes("VmRSS")?);
            std::thread::sleep(Duration::from_millis(1));
        }
        found.sort_unstable_by(f64::total_cmp);
        Ok(found[found.len() * 99 / 100])
    };
    let alone = latencies()?;
    let group = HalfProcessor::new()?;
    let (stop, counts) = (AtomicBool::new(false), Counts::default());
    let (kinds, target, stop, counts) = (Kind::ALL.len(), &target, &stop, &counts);
    let attacked = std::thread::scope(|scope| {
        for (index, kind) in Kind::ALL.into_iter().enumerate() {
            let connections = (CONNECTIONS - 1 - index) / kinds + 1;
            let group = &group;
            scope.spawn(move || {
                group.enter_thread()?;
                attack(kind, target, connections, stop, counts);
                anyhow::Ok(())
            });
        }
        let _stop = StopAtEnd(stop);
        latencies()
    })?;
    server.stop_clean()?;
    let attacks = counts.attacks.load(Ordering::Relaxed);
    ensure!(attacks > 0, "no attack took place");
    let figure = format!(
        "peak RSS {:.1} MiB; p99 latency {alone:.0} us alone, {attacked:.0} us under attack",
        to_f64(most_bytes) / to_f64(MIB),
    );
    ensure!(most_bytes <= mib * MIB + OVERHEAD_BYTES_MAX, "too much memory: {figure}");
    let is_late = attacked > alone * LATENCY_RATIO_MAX;
    ensure!(transport == Transport::Tls || !is_late, "another client waits too long: {figure}");
    Ok(figure)
}

/// Runs clients of one kind; fails if the server uses too much memory, or serves another client too
/// late.
fn resist(server: &Server, kind: Kind, target: &Target, time: Duration) -> Result<String> {
    let (stop, counts) = (AtomicBool::new(false), Counts::default());
    let (mut most_bytes, mut slowest) = (0, Duration::ZERO);
    let watched = std::thread::scope(|scope| -> Result<()> {
        scope.spawn(|| attack(kind, target, CONNECTIONS, &stop, &counts));
        let _stop = StopAtEnd(&stop);
        let begun = Instant::now();
        while begun.elapsed() < time {
            let sent = Instant::now();
            while let Err(error) = read_a_block(target) {
                ensure!(sent.elapsed() < SERVED_WITHIN, "another client was not served: {error}");
            }
            slowest = slowest.max(sent.elapsed());
            most_bytes = most_bytes.max(server.memory_bytes("VmRSS")?);
            std::thread::sleep(SAMPLE_INTERVAL);
        }
        Ok(())
    });
    watched?;
    let attacks = counts.attacks.load(Ordering::Relaxed);
    ensure!(attacks > 0, "no attack took place");
    let figure = format!(
        "{:.1} MiB resident at most; another client waited {} ms at most; {attacks} connections",
        to_f64(most_bytes) / to_f64(MIB),
        slowest.as_millis()
    );
    let bytes_max = SMALL_CACHE_MIB * MIB + OVERHEAD_BYTES_MAX;
    ensure!(most_bytes <= bytes_max, "more than {} MiB: {figure}", bytes_max / MIB);
    Ok(figure)
}

/// Ends the attack, even after an error.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
