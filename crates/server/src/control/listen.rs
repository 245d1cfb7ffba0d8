//! The listening sockets of the control interface.

use super::server::ControlListener;
use super::token::Token;
use crate::output::sentence;
use crate::runtime_directory::{known_runtime_directory, runtime_directory};
use crate::service::{self, Service};
use crate::value::OptionalPath;
use anyhow::{Result, ensure};
use larder_io::front::listen::{ListenAddress, ListenError, Listener};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Suffix of the name of a control socket.
const SUFFIX: &str = ".control";

/// Opens the sockets to listen on.
pub(super) fn open_listeners(
    service: &Service,
    inherited: Option<Listener>,
) -> Result<Vec<ControlListener>> {
    let mut listeners = Vec::new();
    if let Some(listener) = inherited {
        let is_tcp = matches!(listener.address(), ListenAddress::Tcp(_));
        ensure!(
            !is_tcp,
            "use the socket for control that was handed over: it is one of TCP, which needs \
             --control-tcp and --control-token instead"
        );
        listeners.push(ControlListener { listener, token: None });
    } else {
        listeners.extend(unix_listener(service)?);
    }
    let settings = service.settings();
    if let (Some(address), Some(file)) = (settings.control_tcp, &settings.control_token) {
        let token = Some(Token::read(file)?);
        let listener = Listener::bind(&ListenAddress::Tcp(address))?;
        listeners.push(ControlListener { listener, token });
    }
    Ok(listeners)
}

fn unix_listener(service: &Service) -> Result<Option<ControlListener>> {
    let bind = |path: PathBuf| Listener::bind(&ListenAddress::Unix(path));
    let bound = match &service.settings().control {
        Some(OptionalPath::None) => return Ok(None),
        Some(OptionalPath::Path(path)) => bind(path.clone())?,
        None => match in_runtime_directory(service) {
            Ok(listener) => listener,
            Err(error) => {
                let error = sentence(&error);
                eprintln!("larder: note: larder ctl cannot reach this server: cannot {error}");
                return Ok(None);
            }
        },
    };
    Ok(Some(ControlListener { listener: bound, token: None }))
}

/// Listens at the path that `larder ctl` searches.
fn in_runtime_directory(service: &Service) -> Result<Listener> {
    let directory = runtime_directory()?;
    let stem = stem(service)?;
    let bind = |name: String| {
        Listener::bind(&ListenAddress::Unix(directory.join(format!("{name}{SUFFIX}"))))
    };
    match bind(stem.clone()) {
        // Another server has a volume or a socket with this name.
        Err(ListenError::Busy(_)) => Ok(bind(format!("{stem}-{}", std::process::id()))?),
        bound => Ok(bound?),
    }
}

/// Returns the name of a control socket without its suffix: the name of the unix socket for
/// clients, or else its port.
fn stem(service: &Service) -> Result<String> {
    Ok(match &service::address(&service.settings(), &service.plan().volumes)? {
        ListenAddress::Unix(path) => {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            name.strip_suffix(".sock").unwrap_or(&name).to_owned()
        }
        ListenAddress::Tcp(address) => address.port().to_string(),
    })
}

/// Returns the control sockets in the runtime directory, live or stale.
#[must_use]
pub fn known_sockets() -> Vec<PathBuf> {
    let Ok(directory) = known_runtime_directory() else { return Vec::new() };
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    let mut sockets: Vec<_> =
        paths.filter(|path| path.as_os_str().as_bytes().ends_with(SUFFIX.as_bytes())).collect();
    sockets.sort();
    sockets
}
