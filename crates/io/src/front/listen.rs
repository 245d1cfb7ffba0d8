//! Sockets that servers listen on: a unix socket that only its owner can open, a TCP socket, or a
//! listening socket inherited from the parent process.
//!
//! Invariants: a lock file next to a unix socket path ensures that only one of two servers that
//! start together gets the path; dropping a listener removes a path that it created, but not the
//! path of an inherited socket.

use crate::owned_file::{self, FileError};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, FlockOperation, Mode};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Address of a listening socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// A unix socket.
    Unix(PathBuf),
    /// TCP.
    Tcp(SocketAddr),
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAddress::Unix(path) => write!(f, "unix:{}", path.display()),
            ListenAddress::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

/// Failure to listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another server listens on the address.
    #[error("listen on {0}: another server is listening there")]
    Busy(ListenAddress),
    /// The path exists and is not a socket.
    #[error("listen on {0}: the path exists and is not a socket; remove it, or name another path")]
    NotASocket(ListenAddress),
    /// The kernel reports an error.
    #[error("listen on {address}: {source}")]
    Refused {
        /// Address of the socket.
        address: ListenAddress,
        /// Error of the kernel or of the check.
        source: io::Error,
    },
    /// The inherited descriptor is not a usable listening socket.
    #[error("use the socket \"{name}\" that was handed over: {source}")]
    HandedOver {
        /// Name of the descriptor.
        name: String,
        /// Error of the kernel or of the check.
        source: io::Error,
    },
}

/// A non-blocking listening socket.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    address: ListenAddress,
    /// Lock on the path of a unix socket that this listener created; none for TCP and inherited
    /// sockets.
    lock: Option<OwnedFd>,
}

impl Listener {
    /// Listens on an address. A unix socket can be opened by its owner only.
    ///
    /// # Errors
    /// If the address is in use or cannot be listened on.
    pub fn bind(address: &ListenAddress) -> Result<Self, ListenError> {
        let refused = |source: io::Error| ListenError::Refused { address: address.clone(), source };
        let busy = || ListenError::Busy(address.clone());
        match address {
            ListenAddress::Unix(path) => {
                let kind =
                    rustix::fs::lstat(path).map(|stat| FileType::from_raw_mode(stat.st_mode));
                if kind.is_ok_and(|kind| kind != FileType::Socket) {
                    return Err(ListenError::NotASocket(address.clone()));
                }
                let (fd, lock) =
                    listen_unix(path).map_err(|error| error.map_or_else(busy, refused))?;
                Ok(Listener { fd, address: address.clone(), lock: Some(lock) })
            }
            ListenAddress::Tcp(socket) => {
                let listener = TcpListener::bind(socket).map_err(|error| match error.kind() {
                    io::ErrorKind::AddrInUse => busy(),
                    _ => refused(error),
                })?;
                listener.set_nonblocking(true).map_err(refused)?;
                let bound = listener.local_addr().map_err(refused)?;
                let address = ListenAddress::Tcp(bound);
                Ok(Listener { fd: listener.into(), address, lock: None })
            }
        }
    }

    /// Takes over a listening socket with the name `name` from the parent process. Its path, if it
    /// has one, is not removed.
    ///
    /// # Errors
    /// If it is not a listening stream socket, or of another address family than unix and IP.
    pub fn handed_over(name: &str, fd: OwnedFd) -> Result<Self, ListenError> {
        let identify = || -> io::Result<ListenAddress> {
            let listens = rustix::net::sockopt::socket_acceptconn(&fd)?;
            if !listens || rustix::net::sockopt::socket_type(&fd)? != SocketType::STREAM {
                return Err(io::Error::other("it is not a stream socket that listens"));
            }
            rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)?;
            rustix::io::ioctl_fionbio(&fd, true)?;
            let address = rustix::net::getsockname(&fd)?;
            if let Ok(socket) = SocketAddr::try_from(address.clone()) {
                return Ok(ListenAddress::Tcp(socket));
            }
            let unix = SocketAddrUnix::try_from(address)?;
            let path = unix.path().ok_or_else(|| io::Error::other("it has no path"))?;
            let path = std::ffi::OsStr::from_bytes(path.as_ref().to_bytes());
            Ok(ListenAddress::Unix(path.into()))
        };
        let refused = |source| ListenError::HandedOver { name: name.to_owned(), source };
        let address = identify().map_err(refused)?;
        Ok(Listener { fd, address, lock: None })
    }

    /// Returns the address, with the port that the kernel has chosen if port 0 was requested.
    #[must_use]
    pub fn address(&self) -> &ListenAddress {
        &self.address
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let (ListenAddress::Unix(path), Some(_)) = (&self.address, &self.lock) {
            for path in [path.clone(), lock_path(path)] {
                if let Err(error) = std::fs::remove_file(&path) {
                    tracing::debug!(path = %path.display(), %error, "was not there any more");
                }
            }
        }
    }
}

fn lock_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".lock");
    name.into()
}

/// Listens on a unix socket. The holder of the lock file next to it may replace a stale path, so
/// that two servers that start together cannot both succeed.
fn listen_unix(path: &Path) -> Result<(OwnedFd, OwnedFd), Option<io::Error>> {
    let lock = owned_file::open_or_create(&lock_path(path)).map_err(|error| match error {
        FileError::System(error) => error,
        error => io::Error::other(format!("use {}: {error}", lock_path(path).display())),
    });
    let lock = lock.map_err(Some)?;
    rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)
        .map_err(|error| (error != Errno::AGAIN).then(|| error.into()))?;
    match bind_unix(path) {
        Ok(listener) => Ok((listener, lock.into())),
        Err(error) => {
            // This process holds the lock, so it may remove the lock file.
            if let Err(error) = std::fs::remove_file(lock_path(path)) {
                tracing::debug!(%error, "the lock file was not there any more");
            }
            Err(error.map(io::Error::from))
        }
    }
}

fn bind_unix(path: &Path) -> Result<OwnedFd, Option<Errno>> {
    let address = SocketAddrUnix::new(path)?;
    let socket = || {
        rustix::net::socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )
    };
    if rustix::fs::lstat(path).is_ok() {
        match rustix::net::connect(&socket()?, &address) {
            Ok(()) | Err(Errno::AGAIN) => return Err(None),
            Err(_) => rustix::fs::unlink(path)?,
        }
    }
    let listener = socket()?;
    // The path gets the mode of the socket (unix(7)). Only its owner may connect, because a client
    // has full access to the volumes.
    rustix::fs::fchmod(&listener, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&listener, &address)?;
    rustix::net::listen(&listener, 128)?;
    Ok(listener)
}
