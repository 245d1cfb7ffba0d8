//! The protocol between the service manager (systemd) and the server: sockets that the manager
//! opened before the start, and state messages of the server; see `sd_notify(3)` and
//! `sd_listen_fds(3)`.
//!
//! Without a service manager these functions do nothing. If a message cannot be sent, the server
//! logs a warning and continues to serve.

use anyhow::{Result, ensure};
use larder_io::front::listen::Listener;
use larder_io::socket_activation;
use larder_report::escape;
use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Extension of the stop timeout that each message requests.
const EXTENSION_US: u64 = 30_000_000;

/// Sockets inherited from the service manager (socket activation).
#[derive(Debug, Default)]
pub(crate) struct InheritedSockets {
    pub(crate) nbd: Option<Listener>,
    pub(crate) control: Option<Listener>,
}

/// Takes the inherited sockets. A socket whose name (`FileDescriptorName=`, else the name of the
/// socket unit) contains "control" is for control, any other for NBD.
pub(crate) fn take_inherited_sockets() -> Result<InheritedSockets> {
    let mut sockets = InheritedSockets::default();
    for (name, fd) in socket_activation::take() {
        let listener = Listener::handed_over(&name, fd)?;
        let is_control = name.contains("control");
        let slot = if is_control { &mut sockets.control } else { &mut sockets.nbd };
        let purpose = if is_control { "control" } else { "NBD" };
        ensure!(
            slot.is_none(),
            "use the socket \"{name}\" that was handed over: there is another one for {purpose}"
        );
        *slot = Some(listener);
    }
    Ok(sockets)
}

/// The service manager that started the server, if it expects state messages.
#[derive(Debug)]
pub(crate) struct ServiceManager {
    socket: Option<UnixDatagram>,
}

impl ServiceManager {
    /// Connects to the socket that `NOTIFY_SOCKET` names, if it is set.
    pub(crate) fn from_environment() -> Self {
        let Some(name) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return ServiceManager { socket: None };
        };
        match connect(&name) {
            Ok(socket) => ServiceManager { socket: Some(socket) },
            Err(error) => {
                let name = name.display();
                tracing::warn!(%name, %error, "the service manager cannot be reached");
                ServiceManager { socket: None }
            }
        }
    }

    /// Reports that all volumes are served, after the start and after a reload.
    pub(crate) fn ready(&self, status: &str) {
        let status = escape::line(status);
        self.notify_manager(&format!("READY=1\nSTATUS={status}\nMAINPID={}", std::process::id()));
    }

    /// Reports that a reload of the configuration has begun.
    pub(crate) fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let us = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
        self.notify_manager(&format!("RELOADING=1\nMONOTONIC_USEC={us}"));
    }

    /// Reports that a stop has begun.
    pub(crate) fn stopping(&self) {
        self.notify_manager("STOPPING=1");
    }

    /// Extends the stop timeout; otherwise the manager would kill the server and lose dirty data.
    pub(crate) fn still_stopping(&self, status: &str) {
        let status = escape::line(status);
        self.notify_manager(&format!("EXTEND_TIMEOUT_USEC={EXTENSION_US}\nSTATUS={status}"));
    }

    fn notify_manager(&self, message: &str) {
        if let Some(socket) = &self.socket
            && let Err(error) = socket.send(message.as_bytes())
        {
            tracing::warn!(%error, "the service manager received no notification");
        }
    }
}

/// Connects a socket to `name`, a path or, after an `@`, an abstract name.
fn connect(name: &OsStr) -> std::io::Result<UnixDatagram> {
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    // A manager that does not receive must not block the server.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut message = [0; 1024];
        let length = socket.recv(&mut message).expect("a message");
        String::from_utf8(message[..length].to_vec()).expect("text")
    }

    #[test]
    fn messages_reach_paths_and_abstract_names() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        let by_path = UnixDatagram::bind(&path).unwrap();
        let abstract_name = format!("larder-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        let by_name = UnixDatagram::bind_addr(&address).unwrap();
        for (name, socket) in
            [(path.into_os_string(), by_path), (format!("@{abstract_name}").into(), by_name)]
        {
            let manager = ServiceManager { socket: Some(connect(&name).unwrap()) };
            manager.ready("serving");
            let ready = received(&socket);
            assert!(ready.starts_with("READY=1\nSTATUS=serving\nMAINPID="), "{ready}");
            manager.reloading();
            assert!(received(&socket).starts_with("RELOADING=1\nMONOTONIC_USEC="));
            manager.stopping();
            assert_eq!(received(&socket), "STOPPING=1");
            manager.still_stopping("4 KiB left");
            assert!(received(&socket).starts_with("EXTEND_TIMEOUT_USEC=30000000\n"));
            // A name in the text is neither another message nor a control sequence.
            manager.still_stopping("a\u{1b}[2J\nREADY=1");
            assert!(received(&socket).ends_with("\nSTATUS=a\\u001b[2J\\nREADY=1"));
        }
        assert!(connect(OsStr::new("/there/is/no/such/socket")).is_err());
        ServiceManager { socket: None }.stopping();
    }
}
