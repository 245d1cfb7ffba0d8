//! What the service manager (systemd) and the server tell each other: sockets that it made before
//! the start, and messages on where the server is; see `sd_notify(3)` and `sd_listen_fds(3)`.
//!
//! Without a service manager all of it does nothing. A message that cannot be sent is a note in the
//! log and no failure: the volumes are served all the same.

use anyhow::{Result, ensure};
use larder_io::front::listen::Listener;
use larder_io::socket_activation;
use larder_report::escape;
use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// How much more time the manager gives to a stop with each message.
const EXTENSION_US: u64 = 30_000_000;

/// Sockets that were handed over.
#[derive(Debug, Default)]
pub(crate) struct HandedOver {
    pub(crate) nbd: Option<Listener>,
    pub(crate) control: Option<Listener>,
}

/// Takes the sockets that were handed over. One whose name (`FileDescriptorName=`, else the name of
/// the socket unit) has "control" in it is for control, any other for NBD.
pub(crate) fn handed_over() -> Result<HandedOver> {
    let mut sockets = HandedOver::default();
    for (name, fd) in socket_activation::take() {
        let listener = Listener::handed_over(&name, fd)?;
        let is_control = name.contains("control");
        let place = if is_control { &mut sockets.control } else { &mut sockets.nbd };
        let what = if is_control { "control" } else { "NBD" };
        ensure!(
            place.is_none(),
            "use the socket \"{name}\" that was handed over: there is another one for {what}"
        );
        *place = Some(listener);
    }
    Ok(sockets)
}

/// Whoever started the server and wants to know where it is.
#[derive(Debug)]
pub(crate) struct Manager {
    socket: Option<UnixDatagram>,
}

impl Manager {
    /// The one that `NOTIFY_SOCKET` names, if it does.
    pub(crate) fn from_environment() -> Self {
        let Some(name) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Manager { socket: None };
        };
        match connect(&name) {
            Ok(socket) => Manager { socket: Some(socket) },
            Err(error) => {
                let name = name.display();
                tracing::warn!(%name, %error, "the service manager cannot be told anything");
                Manager { socket: None }
            }
        }
    }

    /// Everything is served, as it is after a reload.
    pub(crate) fn ready(&self, status: &str) {
        let status = escape::line(status);
        self.notify_manager(&format!("READY=1\nSTATUS={status}\nMAINPID={}", std::process::id()));
    }

    /// The configuration is being read again.
    pub(crate) fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let us = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
        self.notify_manager(&format!("RELOADING=1\nMONOTONIC_USEC={us}"));
    }

    /// A stop has begun.
    pub(crate) fn stopping(&self) {
        self.notify_manager("STOPPING=1");
    }

    /// A stop goes on; the manager must not lose patience, or what is dirty would be lost.
    pub(crate) fn still_stopping(&self, status: &str) {
        let status = escape::line(status);
        self.notify_manager(&format!("EXTEND_TIMEOUT_USEC={EXTENSION_US}\nSTATUS={status}"));
    }

    fn notify_manager(&self, message: &str) {
        if let Some(socket) = &self.socket
            && let Err(error) = socket.send(message.as_bytes())
        {
            tracing::warn!(%error, "the service manager could not be told");
        }
    }
}

/// A socket whose messages go to `name`, a path or, after an `@`, an abstract name.
fn connect(name: &OsStr) -> std::io::Result<UnixDatagram> {
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    // A manager that does not listen must not stop the server.
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
            let manager = Manager { socket: Some(connect(&name).unwrap()) };
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
        Manager { socket: None }.stopping();
    }
}
