//! The users that own a TCP port of this machine, from the socket tables of the kernel
//! (`Documentation/networking/proc_net_tcp.rst`).
//!
//! A token must not be sent to another user that listens at the port while the server is not
//! running.

use std::io;
use std::net::{IpAddr, SocketAddr};

/// Socket tables of this network namespace.
const TABLES: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];
/// State of a socket that accepts connections.
const LISTEN: &str = "0A";

/// A line of a table.
#[derive(Debug, PartialEq, Eq)]
struct Socket {
    local: SocketAddr,
    remote: SocketAddr,
    listens: bool,
    uid: u32,
}

/// Returns the users of the sockets behind a connection: of those that listen at the server's
/// address, and of the server's end. An end that is not accepted yet belongs to uid 0.
///
/// # Errors
/// The tables cannot be read, or have no socket that listens there.
pub(super) fn owners(server: SocketAddr, client: SocketAddr) -> io::Result<Vec<u32>> {
    let mut sockets = Vec::new();
    for table in TABLES {
        match std::fs::read_to_string(table) {
            Ok(text) => sockets.extend(text.lines().filter_map(parse)),
            // A kernel without IPv6 has one table.
            Err(error) if error.kind() == io::ErrorKind::NotFound && table != TABLES[0] => {}
            Err(error) => return Err(error),
        }
    }
    owners_in(&sockets, server, client)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no socket listens there"))
}

fn owners_in(sockets: &[Socket], server: SocketAddr, client: SocketAddr) -> Option<Vec<u32>> {
    let accepts = |local: SocketAddr| {
        local.port() == server.port() && (local.ip() == server.ip() || local.ip().is_unspecified())
    };
    let users = |filter: &dyn Fn(&&Socket) -> bool| {
        sockets.iter().filter(filter).map(|socket| socket.uid).collect::<Vec<_>>()
    };
    let mut uids = users(&|socket| socket.listens && accepts(socket.local));
    if uids.is_empty() {
        return None;
    }
    uids.extend(users(&|socket| socket.local == server && socket.remote == client));
    Some(uids)
}

/// Parses a line: number, local address, remote address, state, queues, timer, retransmits, user.
fn parse(line: &str) -> Option<Socket> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let (local, remote) = (address(words.next()?)?, address(words.next()?)?);
    let listens = words.next()? == LISTEN;
    let uid = words.nth(3)?.parse().ok()?;
    Some(Socket { local, remote, listens, uid })
}

/// Parses an address and a port in hexadecimal; the address consists of 32-bit words in host byte
/// order.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |word: &[u8]| u32::from_str_radix(str::from_utf8(word).ok()?, 16).ok();
    let words: Option<Vec<_>> = ip.as_bytes().chunks(8).map(word).collect();
    let bytes: Vec<u8> = words?.into_iter().flat_map(u32::to_ne_bytes).collect();
    let ip = if let Ok(four) = <[u8; 4]>::try_from(&bytes[..]) {
        IpAddr::from(four)
    } else {
        IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?).to_canonical()
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn sockets_of_this_process_belong_to_its_user() {
        let user = rustix::process::geteuid().as_raw();
        for at in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"] {
            let Ok(listener) = TcpListener::bind(at) else { continue };
            let port = listener.local_addr().unwrap().port();
            let loopback = if at == "[::1]:0" { "::1" } else { "127.0.0.1" };
            let server = SocketAddr::new(loopback.parse().unwrap(), port);
            let client = TcpStream::connect(server).unwrap();
            let accepted = listener.accept().unwrap();
            let uids = owners(server, client.local_addr().unwrap()).unwrap();
            // The kernel lists a socket again if the table changes while it is read.
            assert!(uids.len() >= 2 && uids.iter().all(|&owner| owner == user), "{at}: {uids:?}");
            drop(listener);
            assert!(owners(server, client.local_addr().unwrap()).is_err(), "{at}");
            drop(accepted);
        }
    }

    #[test]
    fn lines_of_the_kernel_are_parsed() {
        let header = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt";
        assert_eq!(parse(header), None);
        assert_eq!(parse(""), None);
        let line = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 \
                    54321        0 20 1 0000000000000000 100 0 0 10 0";
        let listener = parse(line).unwrap();
        if cfg!(target_endian = "little") {
            assert_eq!(listener.local, SocketAddr::from(([127, 0, 0, 1], 8080)));
        }
        assert!(listener.listens && listener.uid == 54321, "{listener:?}");
    }

    #[test]
    fn a_user_who_listens_at_all_addresses_is_among_the_owners() {
        let socket = |local: &str, remote: &str, listens, uid| {
            let (local, remote) = (local.parse().unwrap(), remote.parse().unwrap());
            Socket { local, remote, listens, uid }
        };
        let (server, client) = ("127.0.0.1:80", "127.0.0.1:4000");
        let sockets = [
            socket("0.0.0.0:80", "0.0.0.0:0", true, 7),
            socket("127.0.0.1:80", "0.0.0.0:0", true, 0),
            socket("127.0.0.1:81", "0.0.0.0:0", true, 8),
            socket("127.0.0.2:80", "0.0.0.0:0", true, 9),
            socket(server, client, false, 10),
            socket(server, "127.0.0.1:4001", false, 11),
            socket(client, server, false, 12),
        ];
        let owners = |sockets: &[Socket]| {
            owners_in(sockets, server.parse().unwrap(), client.parse().unwrap())
        };
        assert_eq!(owners(&sockets), Some(vec![7, 0, 10]));
        assert_eq!(owners(&sockets[2..]), None, "no socket listens there any more");
    }
}
