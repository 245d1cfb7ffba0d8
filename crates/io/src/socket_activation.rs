//! Sockets that the service manager created before it started this process (socket activation): the
//! descriptors from 3 on, as `LISTEN_PID`, `LISTEN_FDS` and `LISTEN_FDNAMES` specify; see
//! `sd_listen_fds(3)`.

use rustix::fd::{FromRawFd, OwnedFd, RawFd};
use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};

/// The first inherited descriptor.
const FIRST: RawFd = 3;
/// Maximum number of inherited descriptors; no service manager passes more.
const COUNT_MAX: RawFd = 64;

/// True once the descriptors have been taken, which is possible only once.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Returns the names and numbers of the descriptors in these variables, if they name process `pid`.
fn parse(
    pid: u32,
    listen_pid: Option<OsString>,
    listen_fds: Option<OsString>,
    names: Option<OsString>,
) -> Vec<(String, RawFd)> {
    let number = |text: Option<OsString>| text?.to_str()?.parse::<u32>().ok();
    if number(listen_pid) != Some(pid) {
        return Vec::new();
    }
    let count = number(listen_fds).and_then(|count| RawFd::try_from(count).ok()).unwrap_or(0);
    let names = names.and_then(|names| names.into_string().ok()).unwrap_or_default();
    let mut names = names.split(':');
    let name = |fd| {
        let name = names.next().filter(|name| !name.is_empty()).unwrap_or("unknown");
        (name.to_owned(), fd)
    };
    (FIRST..FIRST + count.min(COUNT_MAX)).map(name).collect()
}

/// Takes the inherited sockets of this process, with their names; none from the second call on.
pub fn take() -> Vec<(String, OwnedFd)> {
    if TAKEN.swap(true, Ordering::AcqRel) {
        return Vec::new();
    }
    let variable = |name: &str| std::env::var_os(name);
    let found = parse(
        std::process::id(),
        variable("LISTEN_PID"),
        variable("LISTEN_FDS"),
        variable("LISTEN_FDNAMES"),
    );
    let owned = |(name, fd)| {
        // SAFETY: the variables name this very process, so its parent left these descriptors open
        // for it; no other code in it owns them, and they are taken once.
        (name, unsafe { OwnedFd::from_raw_fd(fd) })
    };
    found.into_iter().map(owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_meant_for_this_process_is_taken() {
        let parse = |pid: &str, fds: &str, names: &str| {
            parse(7, Some(pid.into()), Some(fds.into()), Some(names.into()))
        };
        let named = |name: &str, fd| (name.to_owned(), fd);
        assert_eq!(parse("7", "2", "nbd:control"), [named("nbd", 3), named("control", 4)]);
        assert_eq!(parse("7", "2", "nbd"), [named("nbd", 3), named("unknown", 4)]);
        assert_eq!(parse("8", "2", "nbd:control"), []);
        assert_eq!(parse("7", "many", ""), []);
        assert_eq!(parse("7", "4000000000", ""), []);
        assert_eq!(parse("7", "100000", "").len(), 64);
        assert_eq!(super::parse(7, None, Some("1".into()), None), []);
    }
}
