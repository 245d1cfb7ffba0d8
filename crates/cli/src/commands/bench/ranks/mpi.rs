//! Ranks that `mpirun` has started.
//!
//! `mpirun` gives each rank its number, but no shared secret. So rank 0 creates a file that only
//! its user may read, with its address and a token; the other ranks poll for the file. The file and
//! the listener are removed when all ranks have joined.

use super::communicator::Communicator;
use super::coordinator::{RankLink, lead};
use super::link::{self, HELLO_BYTES_MAX, Hello, Link, Message};
use super::{JOIN_MAX, Leader, MultiHostArgs, RANKS_MAX, RankId, check_peer, notify_failure};
use crate::signals::Stop;
use anyhow::{Context, Result, ensure};
use larder_server::control::Token;
use rustix::fs::OFlags;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

/// Interval at which a rank checks for the file, and for a stop.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Time limit for the first message of a new connection.
const HELLO_MAX: Duration = Duration::from_secs(10);
/// Bytes of a token before they are encoded as text.
const TOKEN_BYTES: usize = 32;

/// Variables with the number of the rank, and with the number of ranks: Open MPI; PMI (MPICH,
/// Slurm).
const RANKS: [(&str, &str); 2] =
    [("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE")];
/// Variables with the identity of a job.
const JOBS: [&str; 4] = ["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID", "SLURM_JOB_ID"];

/// Returns the rank of this process, if there are several.
pub(super) fn detect_rank(variable: impl Fn(&str) -> Option<String>) -> Result<Option<RankId>> {
    for (rank, ranks) in RANKS {
        let (Some(rank_value), Some(count_value)) = (variable(rank), variable(ranks)) else {
            continue;
        };
        let numbers = rank_value.parse().ok().zip(count_value.parse().ok());
        let numbers: Option<(usize, usize)> =
            numbers.filter(|(rank, ranks)| rank < ranks && *ranks <= RANKS_MAX);
        let (rank, ranks) = numbers.with_context(|| {
            format!("find out which rank this is: {rank}={rank_value}, {ranks}={count_value}")
        })?;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        return Ok((ranks > 1).then_some(RankId { rank, ranks, host }));
    }
    Ok(None)
}

/// Joins as the rank of this process; rank 0 also starts the leader.
pub(super) fn join(
    multi_host: &MultiHostArgs,
    hello: Hello,
    stop: &Stop,
) -> Result<(Communicator, Option<Leader>)> {
    let path = match &multi_host.rendezvous {
        Some(path) => path.to_path_buf(),
        None => default_path(|name| std::env::var(name).ok())?,
    };
    if hello.rank > 0 {
        let link = find_leader(&path, &hello, stop.flag())?;
        return Ok((Communicator::join(link.0, link.1, stop.shared_flag())?, None));
    }
    let listener = TcpListener::bind(multi_host.listen)
        .with_context(|| format!("listen on {}", multi_host.listen))?;
    let rendezvous = Rendezvous::make(&path, listener, hello.ranks)?;
    let (ours, theirs) = UnixStream::pair().context("make a way to the leader")?;
    let mut rank_0 = RankLink { hello: hello.clone(), link: Link::new(ours.try_clone()?, ours) };
    let stop_flag = stop.shared_flag();
    let leader = std::thread::spawn(move || {
        // The identity of rank 0 needs no proof, but its first message is the same.
        let hello = link::read(&mut rank_0.link.reader, HELLO_BYTES_MAX);
        hello.map_err(|error| format!("hear of rank 0: {error}"))?;
        let ranks = rendezvous.wait_for_ranks(rank_0, &stop_flag)?;
        let hosts = ranks.iter().map(|rank| rank.hello.host.clone()).collect();
        // The stop flag belongs to this rank, which reports a stop itself.
        lead(ranks, &AtomicBool::new(false)).map(|results| (hosts, results))
    });
    let communicator =
        Communicator::join(hello, Link::new(theirs.try_clone()?, theirs), stop.shared_flag())?;
    Ok((communicator, Some(leader)))
}

/// Returns the default file: in a directory of this machine.
fn default_path(variable: impl Fn(&str) -> Option<String>) -> Result<PathBuf> {
    let number = |name: &str| variable(name)?.parse::<usize>().ok();
    let local = number("OMPI_COMM_WORLD_LOCAL_SIZE").zip(number("OMPI_COMM_WORLD_SIZE"));
    ensure!(
        local.is_none_or(|(local, all)| local == all),
        "meet the other ranks: they are on several machines; name a file that all of them have \
         (--rendezvous) and an address of rank 0 (--listen)"
    );
    let job = JOBS.iter().find_map(|name| variable(name)).unwrap_or_else(|| {
        // Ranks of one machine have one parent.
        rustix::process::getppid().map_or(0, |id| id.as_raw_nonzero().get()).to_string()
    });
    let sanitize = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let job: String = job.chars().map(sanitize).collect();
    let user = rustix::process::geteuid().as_raw();
    Ok(std::env::temp_dir().join(format!("larder-ranks-{user}-{job}")))
}

/// The rendezvous of the ranks: a listener, and the file with its address and token. The file is
/// removed when this is dropped.
struct Rendezvous {
    path: PathBuf,
    listener: TcpListener,
    token: Token,
    ranks: usize,
}

impl Rendezvous {
    fn make(path: &Path, listener: TcpListener, ranks: usize) -> Result<Self> {
        let address = listener.local_addr().context("find out where we listen")?;
        let mut bytes = [0; TOKEN_BYTES];
        File::open("/dev/urandom")
            .and_then(|mut file| file.read_exact(&mut bytes))
            .context("read /dev/urandom")?;
        let mut line = String::new();
        for byte in bytes {
            write!(line, "{byte:02x}").expect("a string takes all");
        }
        line = format!("{line}@{address}");
        let token = Token::of(&line);
        let context = || format!("make {}", path.display());
        // A file of this user is from a killed run and is removed; files of other users are not
        // touched.
        let old = std::fs::symlink_metadata(path).ok();
        if old.is_some_and(|old| old.is_file() && is_owned(&old)) {
            std::fs::remove_file(path).with_context(context)?;
        }
        // The file is written under a temporary name and linked when it is complete.
        let mut new = PathBuf::from(path);
        new.as_mut_os_string().push(format!(".{}", std::process::id()));
        let mut options = OpenOptions::new();
        let mut file =
            options.write(true).create_new(true).mode(0o600).open(&new).with_context(context)?;
        let result = file.write_all(format!("{line}\n").as_bytes());
        let result = result.and_then(|()| std::fs::hard_link(&new, path));
        std::fs::remove_file(&new).with_context(context)?;
        result.with_context(context)?;
        Ok(Rendezvous { path: path.to_path_buf(), listener, token, ranks })
    }

    /// Waits until all ranks have joined; returns them in order. On an error, sends it to the ranks
    /// that have joined.
    fn wait_for_ranks(self, first: RankLink, stop: &AtomicBool) -> Result<Vec<RankLink>, String> {
        let mut joined: Vec<Option<RankLink>> = Vec::new();
        joined.resize_with(self.ranks, || None);
        joined[0] = Some(first);
        let result = self.wait_for_all(&mut joined, stop);
        match result {
            Ok(()) => Ok(joined.into_iter().flatten().collect()),
            Err(error) => {
                notify_failure(joined, &error);
                Err(error)
            }
        }
    }

    fn wait_for_all(
        &self,
        joined: &mut [Option<RankLink>],
        stop: &AtomicBool,
    ) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("wait for the other ranks: {error}");
        self.listener.set_nonblocking(true).map_err(failed)?;
        let (sender, receiver) = channel();
        let started_at = Instant::now();
        while joined.iter().any(Option::is_none) {
            match self.listener.accept() {
                Ok((stream, from)) => receive_hello(stream, from, sender.clone()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    std::thread::sleep(CHECK_INTERVAL / 10);
                }
                Err(error) => return Err(failed(error)),
            }
            while let Ok((hello, link, from)) = receiver.try_recv() {
                let hello: Hello = hello;
                // A peer without the token is ignored; the run continues.
                if !self.token.matches_header(hello.token.as_bytes()) {
                    eprintln!("larder: note: somebody at {from} has not the token of this run");
                    continue;
                }
                if let Err(error) = check_peer(&hello, self.ranks, joined) {
                    let mut link: Link = link;
                    drop(link::write(&mut link.writer, &Message::Ends(error.clone())));
                    return Err(error);
                }
                let rank = hello.rank;
                joined[rank] = Some(RankLink { hello, link });
            }
            if stop.load(Ordering::Relaxed) {
                return Err("it was stopped".to_owned());
            }
            if started_at.elapsed() > JOIN_MAX {
                let rank = joined.iter().position(Option::is_none).unwrap_or_default();
                let seconds = JOIN_MAX.as_secs();
                return Err(format!("rank {rank} did not come within {seconds} seconds"));
            }
        }
        Ok(())
    }
}

impl Drop for Rendezvous {
    fn drop(&mut self) {
        // The file is no longer needed; it may be removed already.
        drop(std::fs::remove_file(&self.path));
    }
}

/// Receives the first message of a new connection, in a thread, so that a silent peer does not
/// block others.
fn receive_hello(stream: TcpStream, from: SocketAddr, sender: Sender<(Hello, Link, SocketAddr)>) {
    std::thread::spawn(move || {
        let ready = stream.set_nonblocking(false).and_then(|()| stream.set_nodelay(true));
        let ready = ready.and_then(|()| stream.set_read_timeout(Some(HELLO_MAX)));
        let Ok(reader) = ready.and_then(|()| stream.try_clone()) else { return };
        let Ok(clock) = stream.try_clone() else { return };
        let mut link = Link::new(reader, stream);
        if let Ok(Some(Message::Hello(hello))) = link::read(&mut link.reader, HELLO_BYTES_MAX)
            && clock.set_read_timeout(None).is_ok()
        {
            // The run may have begun without this peer, or ended.
            drop(sender.send((hello, link, from)));
        }
    });
}

fn is_owned(found: &std::fs::Metadata) -> bool {
    found.uid() == rustix::process::geteuid().as_raw()
}

/// Waits for the file and connects to its address; returns the first message with the token, and
/// the connection.
fn find_leader(path: &Path, hello: &Hello, stop: &AtomicBool) -> Result<(Hello, Link)> {
    let context = || format!("find rank 0 by {}", path.display());
    let started_at = Instant::now();
    loop {
        let error = match connect(path) {
            Ok((token, stream)) => {
                let link = Link::new(stream.try_clone().with_context(context)?, stream);
                return Ok((Hello { token, ..hello.clone() }, link));
            }
            Err(error) => error,
        };
        ensure!(!stop.load(Ordering::Relaxed), "{}: it was stopped", context());
        if started_at.elapsed() > JOIN_MAX {
            let seconds = JOIN_MAX.as_secs();
            return Err(error).with_context(|| format!("{} within {seconds} seconds", context()));
        }
        std::thread::sleep(CHECK_INTERVAL);
    }
}

/// Makes one attempt; returns the token in its header form, and a connection.
fn connect(path: &Path) -> Result<(String, TcpStream)> {
    // A symbolic link of another user is not followed.
    let flags = i32::try_from(OFlags::NOFOLLOW.bits()).context("open it")?;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    ensure!(is_owned(&file.metadata()?), "it belongs to somebody else");
    let token = Token::read(path)?;
    let header = token.header();
    let address = header.rsplit_once('@').map(|(_, address)| address).unwrap_or_default();
    let stream = TcpStream::connect(address).with_context(|| format!("connect to {address}"))?;
    stream.set_nodelay(true)?;
    Ok((header, stream))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Arc;

    fn variables<'a>(list: &'a [(&str, &str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |name| list.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn the_rank_comes_from_whoever_started_it() {
        let detect =
            |list: &[(&str, &str)]| detect_rank(variables(list)).map_err(|it| it.to_string());
        assert_eq!(detect(&[]), Ok(None));
        let open = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "3")];
        let rank_id = detect(&open).unwrap().unwrap();
        assert_eq!((rank_id.rank, rank_id.ranks), (1, 3));
        assert_eq!(detect(&[("PMI_RANK", "0"), ("PMI_SIZE", "1")]), Ok(None), "alone");
        let wrong = [("PMI_RANK", "2"), ("PMI_SIZE", "2")];
        assert!(detect(&wrong).unwrap_err().contains("PMI_RANK=2, PMI_SIZE=2"));
        let several_machines = [("OMPI_COMM_WORLD_LOCAL_SIZE", "1"), ("OMPI_COMM_WORLD_SIZE", "2")];
        let error = default_path(variables(&several_machines)).unwrap_err().to_string();
        assert!(error.contains("--rendezvous") && error.contains("--listen"), "{error}");
        let path = default_path(variables(&[("PMIX_NAMESPACE", "a/../b")])).unwrap();
        assert!(
            path.ends_with(format!("larder-ranks-{}-a----b", rustix::process::geteuid().as_raw()))
        );
    }

    fn hello(rank: usize) -> Hello {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Hello { protocol: link::PROTOCOL, version, rank, ranks: 2, ..Hello::default() }
    }

    type RendezvousThread = std::thread::JoinHandle<Result<Vec<RankLink>, String>>;

    /// Starts a rendezvous of two ranks, of which the first has joined; returns its file, its
    /// thread and its stop flag.
    fn test_meeting(directory: &Path) -> (PathBuf, RendezvousThread, Arc<AtomicBool>) {
        let path = directory.join("meeting");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let rendezvous = Rendezvous::make(&path, listener, 2).unwrap();
        let link = Link::new(std::io::empty(), std::io::sink());
        let first = RankLink { hello: hello(0), link };
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        (path, std::thread::spawn(move || rendezvous.wait_for_ranks(first, &stopped)), stop)
    }

    #[test]
    fn who_has_the_token_joins_and_others_do_not() {
        let directory = tempfile::tempdir().unwrap();
        let (path, thread, _) = test_meeting(directory.path());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let (mut header, stream) = connect(&path).unwrap();
        drop(stream);
        // A peer without the token, and one with another protocol, are ignored.
        let address = header.rsplit_once('@').unwrap().1.to_owned();
        let mut stranger = TcpStream::connect(&address).unwrap();
        header.replace_range(10..11, "x");
        let without = Hello { token: header, ..hello(1) };
        link::write(&mut stranger, &Message::Hello(without)).unwrap();
        TcpStream::connect(&address).unwrap().write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let (hello, mut link) = find_leader(&path, &hello(1), &AtomicBool::new(false)).unwrap();
        link::write(&mut link.writer, &Message::Hello(hello)).unwrap();
        let ranks = thread.join().unwrap().unwrap();
        assert_eq!(ranks.iter().map(|it| it.hello.rank).collect::<Vec<_>>(), [0, 1]);
        assert!(!path.exists() && TcpStream::connect(&address).is_err(), "nobody listens any more");
    }

    #[test]
    fn another_version_and_a_wish_to_stop_end_it() {
        let directory = tempfile::tempdir().unwrap();
        let (path, thread, _) = test_meeting(directory.path());
        let old = Hello { version: "0.0.1".to_owned(), ..hello(1) };
        let (hello, mut link) = find_leader(&path, &old, &AtomicBool::new(false)).unwrap();
        link::write(&mut link.writer, &Message::Hello(hello)).unwrap();
        let error = thread.join().unwrap().unwrap_err();
        assert!(error.contains("is larder 0.0.1"), "{error}");
        let message = link::read(&mut link.reader, 1000).unwrap();
        assert_eq!(message, Some(Message::Ends(error)));
        let (path, thread, stop) = test_meeting(directory.path());
        stop.store(true, Ordering::Relaxed);
        assert_eq!(thread.join().unwrap().unwrap_err(), "it was stopped");
        assert!(!path.exists());
    }

    #[test]
    fn a_file_of_others_is_not_believed() {
        let directory = tempfile::tempdir().unwrap();
        let (path, other) = (directory.path().join("meeting"), directory.path().join("other"));
        std::fs::write(&other, "x").unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        assert!(connect(&path).is_err(), "a link");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let error = Rendezvous::make(&path, listener, 2).err().unwrap();
        assert!(format!("{error:#}").contains("File exists"), "{error:#}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
    }
}
