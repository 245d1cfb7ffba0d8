//! Ranks that `mpirun` has started.
//!
//! It tells each which one it is, and nothing that only they know. So rank 0 makes a file that only
//! its user may read, with the address that it listens on and a token; the others look for it. The
//! file is gone when all have come, and so is the listener.

use super::communicator::Communicator;
use super::coordinator::{RankLink, lead};
use super::link::{self, HELLO_BYTES_MAX, Hello, Link, Message};
use super::{JOIN_MAX, Leader, MultiHostArgs, RANKS_MAX, Seat, fits, turn_away};
use crate::control::Token;
use crate::signals::Stop;
use anyhow::{Context, Result, ensure};
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

/// Time between two looks for the file, and for a wish to stop.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long somebody who has come may take to say who it is.
const HELLO_MAX: Duration = Duration::from_secs(10);
/// Bytes of a token before they are written as text.
const TOKEN_BYTES: usize = 32;

/// Variables with a rank, and those with their number: Open MPI; what PMI gives (MPICH, Slurm).
const RANKS: [(&str, &str); 2] =
    [("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE")];
/// What tells one job from another.
const JOBS: [&str; 4] = ["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID", "SLURM_JOB_ID"];

/// Which rank this is, if there are several.
pub(super) fn seat(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Seat>> {
    for (rank, ranks) in RANKS {
        let (Some(rank_is), Some(ranks_are)) = (variable(rank), variable(ranks)) else { continue };
        let numbers = rank_is.parse().ok().zip(ranks_are.parse().ok());
        let numbers: Option<(usize, usize)> =
            numbers.filter(|(rank, ranks)| rank < ranks && *ranks <= RANKS_MAX);
        let (rank, ranks) = numbers.with_context(|| {
            format!("find out which rank this is: {rank}={rank_is}, {ranks}={ranks_are}")
        })?;
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        return Ok((ranks > 1).then_some(Seat { rank, ranks, host }));
    }
    Ok(None)
}

/// Joins as the rank that it is; rank 0 leads as well.
pub(super) fn join(
    together: &MultiHostArgs,
    hello: Hello,
    stop: &Stop,
) -> Result<(Communicator, Option<Leader>)> {
    let path = match &together.rendezvous {
        Some(path) => path.to_path_buf(),
        None => usual_place(|name| std::env::var(name).ok())?,
    };
    if hello.rank > 0 {
        let link = look_for(&path, &hello, stop.flag())?;
        return Ok((Communicator::join(link.0, link.1, stop.raised())?, None));
    }
    let listener = TcpListener::bind(together.listen)
        .with_context(|| format!("listen on {}", together.listen))?;
    let meeting = Meeting::make(&path, listener, hello.ranks)?;
    let (ours, theirs) = UnixStream::pair().context("make a way to the leader")?;
    let mut member = RankLink { hello: hello.clone(), link: Link::new(ours.try_clone()?, ours) };
    let raised = stop.raised();
    let leader = std::thread::spawn(move || {
        // Who this one is needs no proof, but it says so as all do.
        let hello = link::read(&mut member.link.reader, HELLO_BYTES_MAX);
        hello.map_err(|error| format!("hear of rank 0: {error}"))?;
        let members = meeting.gather(member, &raised)?;
        let hosts = members.iter().map(|member| member.hello.host.clone()).collect();
        // A wish to stop is that of this rank, which says so itself.
        lead(members, &AtomicBool::new(false)).map(|handed| (hosts, handed))
    });
    let company = Communicator::join(hello, Link::new(theirs.try_clone()?, theirs), stop.raised())?;
    Ok((company, Some(leader)))
}

/// The file where nobody names one: in a directory of this machine.
fn usual_place(variable: impl Fn(&str) -> Option<String>) -> Result<PathBuf> {
    let number = |name: &str| variable(name)?.parse::<usize>().ok();
    let here = number("OMPI_COMM_WORLD_LOCAL_SIZE").zip(number("OMPI_COMM_WORLD_SIZE"));
    ensure!(
        here.is_none_or(|(here, all)| here == all),
        "meet the other ranks: they are on several machines; name a file that all of them have \
         (--rendezvous) and an address of rank 0 (--listen)"
    );
    let job = JOBS.iter().find_map(|name| variable(name)).unwrap_or_else(|| {
        // Ranks of one machine have one parent.
        rustix::process::getppid().map_or(0, |id| id.as_raw_nonzero().get()).to_string()
    });
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let job: String = job.chars().map(plain).collect();
    let user = rustix::process::geteuid().as_raw();
    Ok(std::env::temp_dir().join(format!("larder-ranks-{user}-{job}")))
}

/// Where ranks meet: a listener, and the file that says where and with which token. The file is
/// removed when this is dropped.
struct Meeting {
    path: PathBuf,
    listener: TcpListener,
    token: Token,
    ranks: usize,
}

impl Meeting {
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
        let what = || format!("make {}", path.display());
        // What a run of ours that was killed has left is in the way; what is of others stays there.
        let old = std::fs::symlink_metadata(path).ok();
        if old.is_some_and(|old| old.is_file() && is_ours(&old)) {
            std::fs::remove_file(path).with_context(what)?;
        }
        // Under its name only when it is whole.
        let mut new = PathBuf::from(path);
        new.as_mut_os_string().push(format!(".{}", std::process::id()));
        let mut options = OpenOptions::new();
        let mut file =
            options.write(true).create_new(true).mode(0o600).open(&new).with_context(what)?;
        let made = file.write_all(format!("{line}\n").as_bytes());
        let made = made.and_then(|()| std::fs::hard_link(&new, path));
        std::fs::remove_file(&new).with_context(what)?;
        made.with_context(what)?;
        Ok(Meeting { path: path.to_path_buf(), listener, token, ranks })
    }

    /// Waits until all have come; in their order. An error has been said to all who were there.
    fn gather(self, first: RankLink, stop: &AtomicBool) -> Result<Vec<RankLink>, String> {
        let mut there: Vec<Option<RankLink>> = Vec::new();
        there.resize_with(self.ranks, || None);
        there[0] = Some(first);
        let gathered = self.wait_for_all(&mut there, stop);
        match gathered {
            Ok(()) => Ok(there.into_iter().flatten().collect()),
            Err(why) => {
                turn_away(there, &why);
                Err(why)
            }
        }
    }

    fn wait_for_all(
        &self,
        there: &mut [Option<RankLink>],
        stop: &AtomicBool,
    ) -> Result<(), String> {
        let failed = |error: std::io::Error| format!("wait for the other ranks: {error}");
        self.listener.set_nonblocking(true).map_err(failed)?;
        let (came, comes) = channel();
        let begun = Instant::now();
        while there.iter().any(Option::is_none) {
            match self.listener.accept() {
                Ok((stream, from)) => receive_hello(stream, from, came.clone()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    std::thread::sleep(LOOK_EVERY / 10);
                }
                Err(error) => return Err(failed(error)),
            }
            while let Ok((hello, link, from)) = comes.try_recv() {
                let hello: Hello = hello;
                // Whoever does not know the token is nobody; the run goes on without it.
                if !self.token.is_shown_by(hello.token.as_bytes()) {
                    eprintln!("larder: note: somebody at {from} has not the token of this run");
                    continue;
                }
                if let Err(why) = fits(&hello, self.ranks, there) {
                    let mut link: Link = link;
                    drop(link::write(&mut link.writer, &Message::Ends(why.clone())));
                    return Err(why);
                }
                let rank = hello.rank;
                there[rank] = Some(RankLink { hello, link });
            }
            if stop.load(Ordering::Relaxed) {
                return Err("it was stopped".to_owned());
            }
            if begun.elapsed() > JOIN_MAX {
                let rank = there.iter().position(Option::is_none).unwrap_or_default();
                let seconds = JOIN_MAX.as_secs();
                return Err(format!("rank {rank} did not come within {seconds} seconds"));
            }
        }
        Ok(())
    }
}

impl Drop for Meeting {
    fn drop(&mut self) {
        // Nobody else needs it; one that is gone already is as good.
        drop(std::fs::remove_file(&self.path));
    }
}

/// Asks somebody who has come who it is, in a thread, so that one who says nothing holds up nobody.
fn receive_hello(stream: TcpStream, from: SocketAddr, came: Sender<(Hello, Link, SocketAddr)>) {
    std::thread::spawn(move || {
        let ready = stream.set_nonblocking(false).and_then(|()| stream.set_nodelay(true));
        let ready = ready.and_then(|()| stream.set_read_timeout(Some(HELLO_MAX)));
        let Ok(reader) = ready.and_then(|()| stream.try_clone()) else { return };
        let Ok(clock) = stream.try_clone() else { return };
        let mut link = Link::new(reader, stream);
        if let Ok(Some(Message::Hello(hello))) = link::read(&mut link.reader, HELLO_BYTES_MAX)
            && clock.set_read_timeout(None).is_ok()
        {
            // The run may have begun without it, or ended.
            drop(came.send((hello, link, from)));
        }
    });
}

fn is_ours(found: &std::fs::Metadata) -> bool {
    found.uid() == rustix::process::geteuid().as_raw()
}

/// Waits for the file and goes where it says; who we are, with the token, and the way.
fn look_for(path: &Path, hello: &Hello, stop: &AtomicBool) -> Result<(Hello, Link)> {
    let what = || format!("find rank 0 by {}", path.display());
    let begun = Instant::now();
    loop {
        let error = match connect(path) {
            Ok((token, stream)) => {
                let link = Link::new(stream.try_clone().with_context(what)?, stream);
                return Ok((Hello { token, ..hello.clone() }, link));
            }
            Err(error) => error,
        };
        ensure!(!stop.load(Ordering::Relaxed), "{}: it was stopped", what());
        if begun.elapsed() > JOIN_MAX {
            let seconds = JOIN_MAX.as_secs();
            return Err(error).with_context(|| format!("{} within {seconds} seconds", what()));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// One try: the token as it is shown, and a connection.
fn connect(path: &Path) -> Result<(String, TcpStream)> {
    // No link that somebody else has laid there is followed.
    let flags = i32::try_from(OFlags::NOFOLLOW.bits()).context("open it")?;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    ensure!(is_ours(&file.metadata()?), "it belongs to somebody else");
    let token = Token::read(path)?;
    let shown = token.header();
    let address = shown.rsplit_once('@').map(|(_, address)| address).unwrap_or_default();
    let stream = TcpStream::connect(address).with_context(|| format!("connect to {address}"))?;
    stream.set_nodelay(true)?;
    Ok((shown, stream))
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
        let found = |list: &[(&str, &str)]| seat(variables(list)).map_err(|it| it.to_string());
        assert_eq!(found(&[]), Ok(None));
        let open = [("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "3")];
        let seat = found(&open).unwrap().unwrap();
        assert_eq!((seat.rank, seat.ranks), (1, 3));
        assert_eq!(found(&[("PMI_RANK", "0"), ("PMI_SIZE", "1")]), Ok(None), "alone");
        let wrong = [("PMI_RANK", "2"), ("PMI_SIZE", "2")];
        assert!(found(&wrong).unwrap_err().contains("PMI_RANK=2, PMI_SIZE=2"));
        let apart = [("OMPI_COMM_WORLD_LOCAL_SIZE", "1"), ("OMPI_COMM_WORLD_SIZE", "2")];
        let error = usual_place(variables(&apart)).unwrap_err().to_string();
        assert!(error.contains("--rendezvous") && error.contains("--listen"), "{error}");
        let place = usual_place(variables(&[("PMIX_NAMESPACE", "a/../b")])).unwrap();
        assert!(
            place.ends_with(format!("larder-ranks-{}-a----b", rustix::process::geteuid().as_raw()))
        );
    }

    fn hello(rank: usize) -> Hello {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Hello { protocol: link::PROTOCOL, version, rank, ranks: 2, ..Hello::default() }
    }

    type Gathered = std::thread::JoinHandle<Result<Vec<RankLink>, String>>;

    /// A meeting of two, of which the first has come; its file, and what comes of it.
    fn test_meeting(directory: &Path) -> (PathBuf, Gathered, Arc<AtomicBool>) {
        let path = directory.join("meeting");
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let meeting = Meeting::make(&path, listener, 2).unwrap();
        let link = Link::new(std::io::empty(), std::io::sink());
        let first = RankLink { hello: hello(0), link };
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        (path, std::thread::spawn(move || meeting.gather(first, &stopped)), stop)
    }

    #[test]
    fn who_has_the_token_joins_and_others_do_not() {
        let directory = tempfile::tempdir().unwrap();
        let (path, gathered, _) = test_meeting(directory.path());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let (mut shown, stream) = connect(&path).unwrap();
        drop(stream);
        // Somebody without it, and somebody who says something else, are passed over.
        let address = shown.rsplit_once('@').unwrap().1.to_owned();
        let mut stranger = TcpStream::connect(&address).unwrap();
        shown.replace_range(10..11, "x");
        let without = Hello { token: shown, ..hello(1) };
        link::write(&mut stranger, &Message::Hello(without)).unwrap();
        TcpStream::connect(&address).unwrap().write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let (hello, mut link) = look_for(&path, &hello(1), &AtomicBool::new(false)).unwrap();
        link::write(&mut link.writer, &Message::Hello(hello)).unwrap();
        let members = gathered.join().unwrap().unwrap();
        assert_eq!(members.iter().map(|it| it.hello.rank).collect::<Vec<_>>(), [0, 1]);
        assert!(!path.exists() && TcpStream::connect(&address).is_err(), "nobody listens any more");
    }

    #[test]
    fn another_version_and_a_wish_to_stop_end_it() {
        let directory = tempfile::tempdir().unwrap();
        let (path, gathered, _) = test_meeting(directory.path());
        let old = Hello { version: "0.0.1".to_owned(), ..hello(1) };
        let (hello, mut link) = look_for(&path, &old, &AtomicBool::new(false)).unwrap();
        link::write(&mut link.writer, &Message::Hello(hello)).unwrap();
        let why = gathered.join().unwrap().unwrap_err();
        assert!(why.contains("is larder 0.0.1"), "{why}");
        let told = link::read(&mut link.reader, 1000).unwrap();
        assert_eq!(told, Some(Message::Ends(why)));
        let (path, gathered, stop) = test_meeting(directory.path());
        stop.store(true, Ordering::Relaxed);
        assert_eq!(gathered.join().unwrap().unwrap_err(), "it was stopped");
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
        let error = Meeting::make(&path, listener, 2).err().unwrap();
        assert!(format!("{error:#}").contains("File exists"), "{error:#}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
    }
}
