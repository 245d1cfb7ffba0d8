//! Where a server is controlled.

use super::server::ControlListener;
use super::token::Token;
use crate::args::PathOrNone;
use crate::commands::serve::Arguments;
use crate::commands::serve::service;
use crate::output::sentence;
use crate::runtime_directory::{known_runtime_directory, runtime_directory};
use anyhow::{Result, ensure};
use larder_io::front::listen::{ListenAddress, ListenError, Listener};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The end of the name of a control socket.
const ENDING: &str = ".control";

/// The sockets to listen on.
pub(super) fn doors(
    arguments: &Arguments,
    handed_over: Option<Listener>,
) -> Result<Vec<ControlListener>> {
    let mut doors = Vec::new();
    if let Some(listener) = handed_over {
        let is_tcp = matches!(listener.address(), ListenAddress::Tcp(_));
        ensure!(
            !is_tcp,
            "use the socket for control that was handed over: it is one of TCP, which needs \
             --control-tcp and --control-token instead"
        );
        doors.push(ControlListener { listener, token: None });
    } else {
        doors.extend(on_unix(arguments)?);
    }
    if let (Some(address), Some(file)) = (arguments.control_tcp, &arguments.control_token) {
        let token = Some(Token::read(file)?);
        let listener = Listener::bind(&ListenAddress::Tcp(address))?;
        doors.push(ControlListener { listener, token });
    }
    Ok(doors)
}

fn on_unix(arguments: &Arguments) -> Result<Option<ControlListener>> {
    let bind = |path: PathBuf| Listener::bind(&ListenAddress::Unix(path));
    let bound = match &arguments.control {
        Some(PathOrNone::None) => return Ok(None),
        Some(PathOrNone::Path(path)) => bind(path.clone())?,
        None => match in_runtime_directory(arguments) {
            Ok(listener) => listener,
            Err(error) => {
                let error = sentence(&error);
                eprintln!("larder: note: larder ctl cannot reach this server: failed to {error}");
                return Ok(None);
            }
        },
    };
    Ok(Some(ControlListener { listener: bound, token: None }))
}

/// Listens at the path that `larder ctl` searches.
fn in_runtime_directory(arguments: &Arguments) -> Result<Listener> {
    let directory = runtime_directory()?;
    let stem = stem(arguments)?;
    let bind = |name: String| {
        Listener::bind(&ListenAddress::Unix(directory.join(format!("{name}{ENDING}"))))
    };
    match bind(stem.clone()) {
        // Another server has a volume or a socket with this name.
        Err(ListenError::Busy(_)) => Ok(bind(format!("{stem}-{}", std::process::id()))?),
        bound => Ok(bound?),
    }
}

/// Returns the name of a control socket without its suffix: the name of the unix socket for
/// clients, or else its port.
fn stem(arguments: &Arguments) -> Result<String> {
    Ok(match &service::address(arguments)? {
        ListenAddress::Unix(path) => {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            name.strip_suffix(".sock").unwrap_or(&name).to_owned()
        }
        ListenAddress::Tcp(address) => address.port().to_string(),
    })
}

/// Control sockets that `larder ctl` finds by itself, live or not.
pub(crate) fn known_sockets() -> Vec<PathBuf> {
    let Ok(directory) = known_runtime_directory() else { return Vec::new() };
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    let mut found: Vec<_> =
        paths.filter(|path| path.as_os_str().as_bytes().ends_with(ENDING.as_bytes())).collect();
    found.sort();
    found
}
