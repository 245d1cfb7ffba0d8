//! Ranks that `mpirun` has started.
//!
//! `mpirun` gives each rank its number, but no shared secret. So rank 0 creates a file that only
//! its user may read, with its address and a token; the other ranks poll for the file. The file and
//! the listener are removed when all ranks have joined.

use super::link::{self, HELLO_BYTES_MAX, Hello, Link, Message, RankLink};
use super::{Communicator, JOIN_MAX, RankId, RankResults, gather};
use rustix::fs::OFlags;
use std::fmt::{Display, Write as _};
use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Interval at which a rank checks for the file, and for a stop.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// Time limit for the first message of a new connection.
const HELLO_MAX: Duration = Duration::from_secs(10);
/// Bytes of a token before they are encoded as text.
const TOKEN_BYTES: usize = 32;
/// Maximum length of the file with the token and the address.
const FILE_BYTES_MAX: u64 = 4096;

/// Variables with the number of the rank, and with the number of ranks: Open MPI; PMI (MPICH,
/// Slurm).
const RANKS: [(&str, &str); 2] =
    [("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE")];
/// Variables with the identity of a job.
const JOBS: [&str; 4] = ["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID", "SLURM_JOB_ID"];

/// The leader thread in this process, with the results of all ranks.
pub type Leader = JoinHandle<Result<RankResults, String>>;

/// Returns a function that puts the failed operation before an error.
fn failed<E: Display>(operation: impl Display) -> impl FnOnce(E) -> String {
    move |error| format!("{operation}: {error}")
}

/// Returns the rank of this process from its environment, if there are several.
///
/// # Errors
/// The variables are inconsistent.
pub fn detect_rank(variable: impl Fn(&str) -> Option<String>) -> Result<Option<RankId>, String> {
    let mut known = RANKS.into_iter();
    let found = known.find_map(|names| Some((names, variable(names.0)?, variable(names.1)?)));
    let Some(((rank, ranks), number, count)) = found else { return Ok(None) };
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let rank_id = RankId::checked(&number, &count, &host);
    let wrong = || format!("find out which rank this is: {rank}={number}, {ranks}={count}");
    Ok(Some(rank_id.ok_or_else(wrong)?).filter(|rank_id| rank_id.ranks > 1))
}

/// Joins as the rank of this process; rank 0 also starts the leader, which listens at `listen` and
/// reports strangers to `note`. The ranks find it by the file `rendezvous`, by default one in the
/// temporary directory of this machine.
///
/// # Errors
/// The leader cannot be started or found, or a rank does not fit the others.
pub fn join(
    listen: SocketAddr,
    rendezvous: Option<&Path>,
    hello: Hello,
    stop: &Arc<AtomicBool>,
    note: fn(&str),
) -> Result<(Communicator, Option<Leader>), String> {
    let path = match rendezvous {
        Some(path) => path.to_path_buf(),
        None => default_path(|name| std::env::var(name).ok())?,
    };
    if hello.rank > 0 {
        let (hello, link) = find_leader(&path, hello, stop)?;
        return Ok((Communicator::join(hello, link, Arc::clone(stop))?, None));
    }
    let listener = TcpListener::bind(listen).map_err(failed(format!("listen on {listen}")))?;
    let rendezvous = Rendezvous::make(&path, listener, note)?;
    let pair = UnixStream::pair().and_then(|(ours, theirs)| {
        Ok([Link::new(ours.try_clone()?, ours), Link::new(theirs.try_clone()?, theirs)])
    });
    let [ours, theirs] = pair.map_err(failed("make a way to the leader"))?;
    let (first, stop_flag) = (hello.clone(), Arc::clone(stop));
    let leader = std::thread::spawn(move || {
        let mut rank_0 = RankLink { hello: first, link: ours };
        // The identity of rank 0 needs no proof, but its first message is the same.
        link::read(&mut rank_0.link.reader, HELLO_BYTES_MAX).map_err(failed("hear of rank 0"))?;
        rendezvous.lead(rank_0, &stop_flag)
    });
    match Communicator::join(hello, theirs, Arc::clone(stop)) {
        Ok(communicator) => Ok((communicator, Some(leader))),
        Err(error) => {
            // The leader still has to tell the other ranks, which it does before it ends.
            drop(leader.join());
            Err(error)
        }
    }
}

/// Returns the default file: in a directory of this machine.
fn default_path(variable: impl Fn(&str) -> Option<String>) -> Result<PathBuf, String> {
    let number = |name: &str| variable(name)?.parse::<usize>().ok();
    let local = number("OMPI_COMM_WORLD_LOCAL_SIZE").zip(number("OMPI_COMM_WORLD_SIZE"));
    if local.is_some_and(|(local, all)| local != all) {
        let other_machines = "meet the other ranks: they are on several machines; name a file that \
                              all of them have (--rendezvous) and an address of rank 0 (--listen)";
        return Err(other_machines.to_owned());
    }
    let job = JOBS.iter().find_map(|name| variable(name)).unwrap_or_else(|| {
        // Ranks of one machine have one parent.
        rustix::process::getppid().map_or(0, |id| id.as_raw_nonzero().get()).to_string()
    });
    let sanitize = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let job: String = job.chars().map(sanitize).collect();
    let user = rustix::process::geteuid().as_raw();
    Ok(std::env::temp_dir().join(format!("larder-ranks-{user}-{job}")))
}

/// A first message, the connection that it came from, and the address of the peer.
type Peer = (Hello, Link, SocketAddr);

/// The rendezvous of the ranks: a listener, and the file with its token and address. The file is
/// removed when this is dropped.
struct Rendezvous {
    path: PathBuf,
    listener: TcpListener,
    /// The line of the file.
    token: String,
    note: fn(&str),
    peers: (Sender<Peer>, Receiver<Peer>),
}

impl Rendezvous {
    fn make(path: &Path, listener: TcpListener, note: fn(&str)) -> Result<Self, String> {
        let address = listener.local_addr().map_err(failed("find out where we listen"))?;
        listener.set_nonblocking(true).map_err(failed("wait for the other ranks"))?;
        let mut bytes = [0; TOKEN_BYTES];
        File::open("/dev/urandom")
            .and_then(|mut file| file.read_exact(&mut bytes))
            .map_err(failed("read /dev/urandom"))?;
        let mut token = String::new();
        for byte in bytes {
            write!(token, "{byte:02x}").expect("a string takes all");
        }
        let token = format!("{token}@{address}");
        publish(path, &token).map_err(failed(format!("make {}", path.display())))?;
        Ok(Rendezvous { path: path.to_path_buf(), listener, token, note, peers: channel() })
    }

    /// Waits until all ranks have joined, and leads them to the end. A stop after all have joined
    /// is that of rank 0, which reports it like any other rank.
    fn lead(self, first: RankLink, stop: &AtomicBool) -> Result<RankResults, String> {
        let ranks = first.hello.ranks;
        let next = move || self.next();
        let ranks = gather(ranks, Some(first), stop, next, |rank| format!("rank {rank}"))?;
        super::lead(ranks, &AtomicBool::new(false))
    }

    /// Returns the next peer that has the token, if there is one.
    fn next(&self) -> Result<Option<RankLink>, String> {
        match self.listener.accept() {
            Ok((stream, from)) => receive_hello(stream, from, self.peers.0.clone()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                std::thread::sleep(CHECK_INTERVAL / 10);
            }
            Err(error) => return Err(format!("wait for the other ranks: {error}")),
        }
        let Ok((hello, link, from)) = self.peers.1.try_recv() else { return Ok(None) };
        if is_same_secret(&hello.token, &self.token) {
            return Ok(Some(RankLink { hello, link }));
        }
        // A peer without the token is ignored; the run continues.
        (self.note)(&format!("a peer at {from} has not the token of this run"));
        Ok(None)
    }
}

impl Drop for Rendezvous {
    fn drop(&mut self) {
        // The file is no longer needed; it may be removed already.
        drop(std::fs::remove_file(&self.path));
    }
}

/// Creates the file with this line, which only this user may read.
fn publish(path: &Path, line: &str) -> io::Result<()> {
    // A file of this user is from a killed run and is removed; files of other users are not
    // touched.
    let old = std::fs::symlink_metadata(path).ok();
    if old.is_some_and(|old| old.is_file() && is_owned(&old)) {
        std::fs::remove_file(path)?;
    }
    // The file is written under a temporary name and linked when it is complete.
    let mut new = PathBuf::from(path);
    new.as_mut_os_string().push(format!(".{}", std::process::id()));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let result = file.write_all(format!("{line}\n").as_bytes());
    let result = result.and_then(|()| std::fs::hard_link(&new, path));
    std::fs::remove_file(&new).and(result)
}

/// Returns true if both are the same; the time does not depend on the position of a difference.
fn is_same_secret(presented: &str, secret: &str) -> bool {
    let pairs = presented.bytes().zip(secret.bytes());
    let differs = pairs.fold(0, |differs, (a, b)| differs | black_box(a ^ b));
    presented.len() == secret.len() && black_box(differs) == 0
}

/// Receives the first message of a new connection, in a thread, so that a silent peer does not
/// block others.
fn receive_hello(stream: TcpStream, from: SocketAddr, sender: Sender<Peer>) {
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
fn find_leader(path: &Path, hello: Hello, stop: &AtomicBool) -> Result<(Hello, Link), String> {
    let operation = format!("find rank 0 by {}", path.display());
    let started_at = Instant::now();
    loop {
        let error = match connect(path) {
            Ok((token, link)) => return Ok((Hello { token, ..hello }, link)),
            Err(error) => error,
        };
        if stop.load(Ordering::Relaxed) {
            return Err(format!("{operation}: it was stopped"));
        }
        if started_at.elapsed() > JOIN_MAX {
            return Err(format!("{operation} within {} seconds: {error}", JOIN_MAX.as_secs()));
        }
        std::thread::sleep(CHECK_INTERVAL);
    }
}

/// Makes one attempt; returns the token, and a connection.
fn connect(path: &Path) -> Result<(String, Link), String> {
    // A symbolic link of another user is not followed.
    let flags = i32::try_from(OFlags::NOFOLLOW.bits()).map_err(failed("open it"))?;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let mut token = String::new();
    let metadata = file.and_then(|file| {
        let metadata = file.metadata()?;
        file.take(FILE_BYTES_MAX).read_to_string(&mut token)?;
        Ok(metadata)
    });
    let metadata = metadata.map_err(|error| error.to_string())?;
    if !is_owned(&metadata) || metadata.mode() & 0o077 != 0 {
        return Err("it belongs to another user, or others may read it".to_owned());
    }
    let token = token.trim_end().to_owned();
    let address = token.rsplit_once('@').map(|(_, address)| address).unwrap_or_default();
    let link = TcpStream::connect(address).and_then(|stream| {
        stream.set_nodelay(true)?;
        Ok(Link::new(stream.try_clone()?, stream))
    });
    let link = link.map_err(failed(format!("connect to {address}")))?;
    Ok((token, link))
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
        let detect = |list: &[(&str, &str)]| detect_rank(variables(list));
        assert_eq!(detect(&[]), Ok(None));
        let open = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "3")];
        let rank_id = detect(&open).unwrap().unwrap();
        assert_eq!((rank_id.rank, rank_id.ranks), (1, 3));
        assert_eq!(detect(&[("PMI_RANK", "0"), ("PMI_SIZE", "1")]), Ok(None), "alone");
        let wrong = [("PMI_RANK", "2"), ("PMI_SIZE", "2")];
        assert!(detect(&wrong).unwrap_err().contains("PMI_RANK=2, PMI_SIZE=2"));
        let several_machines = [("OMPI_COMM_WORLD_LOCAL_SIZE", "1"), ("OMPI_COMM_WORLD_SIZE", "2")];
        let error = default_path(variables(&several_machines)).unwrap_err();
        assert!(error.contains("--rendezvous") && error.contains("--listen"), "{error}");
        let path = default_path(variables(&[("PMIX_NAMESPACE", "a/../b")])).unwrap();
        assert!(
            path.ends_with(format!("larder-ranks-{}-a----b", rustix::process::geteuid().as_raw()))
        );
    }

    fn hello(rank: usize) -> Hello {
        Hello::new(&RankId { rank, ranks: 2, host: "h".to_owned() }, String::new())
    }

    /// Starts a rendezvous of two ranks, of which the first has joined; returns its file, its
    /// thread, its stop flag, and the connection of the first rank.
    fn test_meeting(directory: &Path) -> (PathBuf, Leader, Arc<AtomicBool>, UnixStream) {
        let path = directory.join("meeting");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let rendezvous = Rendezvous::make(&path, listener, |_| ()).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let link = Link::new(ours.try_clone().unwrap(), ours);
        let first = RankLink { hello: hello(0), link };
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        (path, std::thread::spawn(move || rendezvous.lead(first, &stopped)), stop, theirs)
    }

    #[test]
    fn who_has_the_token_joins_and_others_do_not() {
        let directory = tempfile::tempdir().unwrap();
        let (path, thread, _, first) = test_meeting(directory.path());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let (mut token, link) = connect(&path).unwrap();
        drop(link);
        // A peer without the token, and one with another protocol, are ignored.
        let address = token.rsplit_once('@').unwrap().1.to_owned();
        let mut stranger = TcpStream::connect(&address).unwrap();
        token.replace_range(10..11, "x");
        let without = Hello { token, ..hello(1) };
        link::write(&mut stranger, &Message::Hello(without)).unwrap();
        TcpStream::connect(&address).unwrap().write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let (hello, mut link) = find_leader(&path, hello(1), &AtomicBool::new(false)).unwrap();
        link::write(&mut link.writer, &Message::Hello(hello)).unwrap();
        assert_eq!(link::read(&mut link.reader, 1000).unwrap(), Some(Message::Welcome));
        assert!(!path.exists() && TcpStream::connect(&address).is_err(), "the listener is closed");
        drop(first);
        while link::read(&mut link.reader, 1000).unwrap() == Some(Message::Alive) {}
        drop(link);
        let error = thread.join().unwrap().unwrap_err();
        assert_eq!(error, "rank 0 on h ended unexpectedly");
    }

    #[test]
    fn another_version_and_a_wish_to_stop_end_it() {
        let directory = tempfile::tempdir().unwrap();
        let (path, thread, _, _first) = test_meeting(directory.path());
        let old = Hello { version: "0.0.1".to_owned(), ..hello(1) };
        let (hello, mut link) = find_leader(&path, old, &AtomicBool::new(false)).unwrap();
        link::write(&mut link.writer, &Message::Hello(hello)).unwrap();
        let error = thread.join().unwrap().unwrap_err();
        assert!(error.contains("is larder 0.0.1"), "{error}");
        let message = link::read(&mut link.reader, 1000).unwrap();
        assert_eq!(message, Some(Message::Ends(error)));
        let (path, thread, stop, _first) = test_meeting(directory.path());
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
        let error = Rendezvous::make(&path, listener, |_| ()).err().unwrap();
        assert!(error.contains("File exists"), "{error}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
    }
}
