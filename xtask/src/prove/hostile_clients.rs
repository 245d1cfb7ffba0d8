//! Hostile clients against the real server with little memory: its peak memory for each kind of
//! client, and the longest time that another client waits.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

use larder_testing::hostile::{Counts, Endpoint, Kind, Target, attack, read_a_block};

use super::prelude::*;
use super::upstream::CERTIFICATES;
use crate::daemon::Daemon;

/// Maximum resident memory with `--memory 16MiB`.
const RESIDENT_BYTES_MAX: u64 = 48 * MIB;
/// Number of hostile connections: all but two that the server accepts.
const CONNECTIONS: usize = 62;
/// Time within which another client must be served.
const SERVED_WITHIN: Duration = Duration::from_secs(10);
const IMAGE_BYTES: u64 = 64 * MIB;
/// Interval of memory samples.
const LOOK_EVERY: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Unix,
    Tcp,
    Tls,
}

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    let image = image::filled(&env.file("hostile.img"), IMAGE_BYTES / MIB, env.options.seed)?;
    let certificates = env.file("certificates");
    std::fs::create_dir(&certificates).context("make a directory for certificates")?;
    text(cmd!("sh -c {CERTIFICATES}").current_dir(&certificates))?;
    for kind in Kind::ALL {
        for transport in [Transport::Unix, Transport::Tcp, Transport::Tls] {
            let what = format!("{CONNECTIONS} x {}, {transport:?}", kind.name());
            claims.tried(what, || one(env, &image, &certificates, kind, transport));
        }
    }
    std::fs::remove_file(&image).context("remove the image")
}

/// Returns a free port.
fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("find a free port")?;
    listener.local_addr().context("find a free port")
}

/// Runs one kind of client against a server of its own.
fn one(
    env: &Env,
    image: &Path,
    certificates: &Path,
    kind: Kind,
    transport: Transport,
) -> Result<String> {
    let address = free_address()?;
    let larder = env.larder.clone();
    let start = |dir: &Path| {
        let listen = match transport {
            Transport::Unix => format!("unix:{}", dir.join("socket").display()),
            Transport::Tcp | Transport::Tls => format!("tcp:{address}"),
        };
        let mut command = Command::new(&larder);
        command.arg("serve").arg(image).args(["--memory", "16MiB", "--control", "none"]);
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
    let seconds = Duration::from_secs(env.either(60, 3));
    let outcome = resist(&server, kind, &target, seconds)?;
    server.stop_clean()?;
    Ok(outcome)
}

/// Lets clients of one kind attack; fails if the server uses too much memory, or serves another
/// client too late.
fn resist(server: &Server, kind: Kind, target: &Target, time: Duration) -> Result<String> {
    let (stop, counts) = (AtomicBool::new(false), Counts::default());
    let (mut most_bytes, mut slowest) = (0, Duration::ZERO);
    let watched = std::thread::scope(|scope| -> Result<()> {
        scope.spawn(|| attack(kind, target, CONNECTIONS, &stop, &counts));
        let _stop = StopAtEnd(&stop);
        let begun = Instant::now();
        while begun.elapsed() < time {
            let asked = Instant::now();
            while let Err(error) = read_a_block(target) {
                ensure!(asked.elapsed() < SERVED_WITHIN, "another client was not served: {error}");
            }
            slowest = slowest.max(asked.elapsed());
            most_bytes = most_bytes.max(server.memory_bytes("VmRSS")?);
            std::thread::sleep(LOOK_EVERY);
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
    ensure!(
        most_bytes <= RESIDENT_BYTES_MAX,
        "more than {} MiB: {figure}",
        RESIDENT_BYTES_MAX / MIB
    );
    Ok(figure)
}

/// Ends the attack, even after an error.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
