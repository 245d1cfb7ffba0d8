//! Where a server is controlled.

use super::server::Door;
use super::token::Token;
use crate::args::PathOrNone;
use crate::commands::serve::Arguments;
use crate::commands::serve::service;
use anyhow::{Result, ensure};
use larder_io::front::listen::{ListenAddress, Listener};
use std::path::PathBuf;

/// The end of the name of a control socket.
const ENDING: &str = ".control";

/// The sockets to listen on.
pub(super) fn doors(arguments: &Arguments, handed_over: Option<Listener>) -> Result<Vec<Door>> {
    let mut doors = Vec::new();
    if let Some(listener) = handed_over {
        let is_tcp = matches!(listener.address(), ListenAddress::Tcp(_));
        ensure!(
            !is_tcp,
            "use the socket for control that was handed over: it is one of TCP, which needs \
             --control-tcp and --control-token instead"
        );
        doors.push(Door { listener, token: None });
    } else {
        doors.extend(on_unix(arguments)?);
    }
    if let (Some(address), Some(file)) = (arguments.control_tcp, &arguments.control_token) {
        let token = Some(Token::read(file)?);
        let listener = Listener::bind(&ListenAddress::Tcp(address))?;
        doors.push(Door { listener, token });
    }
    Ok(doors)
}

fn on_unix(arguments: &Arguments) -> Result<Option<Door>> {
    let (path, asked_for) = match &arguments.control {
        Some(PathOrNone::None) => return Ok(None),
        Some(PathOrNone::Path(path)) => (path.clone(), true),
        None => (default_path(&service::address(arguments)), false),
    };
    match Listener::bind(&ListenAddress::Unix(path)) {
        Ok(listener) => Ok(Some(Door { listener, token: None })),
        Err(error) if asked_for => Err(error.into()),
        Err(error) => {
            eprintln!("larder: note: larder ctl cannot reach this server: failed to {error}");
            Ok(None)
        }
    }
}

/// The control socket of a server that listens here: beside its unix socket, else in the runtime
/// directory.
pub(crate) fn default_path(listen: &ListenAddress) -> PathBuf {
    match listen {
        ListenAddress::Unix(path) => {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let name = name.strip_suffix(".sock").unwrap_or(&name);
            path.with_file_name(format!("{name}{ENDING}"))
        }
        ListenAddress::Tcp(address) => {
            runtime_directory().join(format!("larder-{}{ENDING}", address.port()))
        }
    }
}

/// `$XDG_RUNTIME_DIR`; without it /run for root, and the folder for temporary files for others.
fn runtime_directory() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(directory) if !directory.is_empty() => directory.into(),
        _ if rustix::process::geteuid().is_root() => "/run".into(),
        _ => std::env::temp_dir(),
    }
}

/// Control sockets that `larder ctl` finds by itself, live or not.
pub(crate) fn known_sockets() -> Vec<PathBuf> {
    let mut directories =
        vec![runtime_directory(), "/run".into(), "/run/larder".into(), std::env::temp_dir()];
    directories.dedup();
    let mut found = Vec::new();
    for directory in directories {
        let Ok(entries) = std::fs::read_dir(directory) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("larder") && name.ends_with(ENDING) {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_socket_is_beside_the_other_one() {
        let beside = |path: &str| default_path(&ListenAddress::Unix(path.into()));
        assert_eq!(beside("/run/larder-db.sock"), PathBuf::from("/run/larder-db.control"));
        assert_eq!(beside("/x/socket"), PathBuf::from("/x/socket.control"));
        let tcp = default_path(&ListenAddress::Tcp("0.0.0.0:10809".parse().unwrap()));
        assert_eq!(tcp.file_name().unwrap(), "larder-10809.control");
    }
}
