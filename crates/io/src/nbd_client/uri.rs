//! Addresses of NBD exports: `nbd://host:port/NAME` and `nbd+unix:///NAME?socket=PATH`.
//!
//! NBD's uri.md, and RFC 3986 for percent-encoding. TLS and user names are not supported and
//! refused; so is every query parameter but `socket`.

use crate::front::nbd::wire::DEFAULT_PORT;
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::str::FromStr;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NbdAddress {
    /// A unix socket; a path that starts with NUL is in the abstract namespace.
    Unix(PathBuf),
    /// TCP.
    Tcp {
        /// Name or address; an IPv6 address stands here without brackets.
        host: String,
        /// Port.
        port: u16,
    },
}

/// An export of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NbdUri {
    /// The server.
    pub address: NbdAddress,
    /// The export's name; empty for the default export.
    pub export: String,
}

/// Text that is not the address of an NBD export.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UriError {
    /// Another scheme, or none.
    #[error("{0:?} is no NBD address: it starts with neither nbd:// nor nbd+unix://")]
    Scheme(String),
    /// A scheme with TLS.
    #[error("{0:?} asks for TLS, which this client does not speak")]
    Tls(String),
    /// Nothing to connect to.
    #[error("{0:?} names no {1}")]
    Missing(String, &'static str),
    /// Something that is not understood.
    #[error("{0:?} has {1}, which is not supported in an NBD address")]
    Unsupported(String, &'static str),
    /// A port that is not a number from 0 to 65535.
    #[error("{0:?} has no valid port")]
    Port(String),
    /// A percent sign without two hexadecimal digits, or bytes that are no text.
    #[error("{0:?} is not well encoded")]
    Encoding(String),
}

impl FromStr for NbdUri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, UriError> {
        let owned = || text.to_owned();
        let (scheme, rest) = text.split_once("://").ok_or_else(|| UriError::Scheme(owned()))?;
        if rest.contains('#') {
            return Err(UriError::Unsupported(owned(), "a fragment"));
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if authority.contains('@') {
            return Err(UriError::Unsupported(owned(), "a user name"));
        }
        let mut socket = None;
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            match parameter.split_once('=') {
                Some(("socket", path)) if socket.is_none() => socket = Some(path),
                _ => return Err(UriError::Unsupported(owned(), "a query parameter")),
            }
        }
        let address = match scheme {
            "nbd+unix" if !authority.is_empty() => {
                return Err(UriError::Unsupported(owned(), "a host beside the socket"));
            }
            "nbd+unix" => {
                let path = socket.filter(|path| !path.is_empty());
                let path = path.ok_or_else(|| UriError::Missing(owned(), "socket"))?;
                let path = decode(path).ok_or_else(|| UriError::Encoding(owned()))?;
                NbdAddress::Unix(OsString::from_vec(path).into())
            }
            "nbd" if socket.is_some() => {
                return Err(UriError::Unsupported(owned(), "a socket beside the host"));
            }
            "nbd" => tcp(authority, text)?,
            "nbds" | "nbds+unix" => return Err(UriError::Tls(owned())),
            _ => return Err(UriError::Scheme(owned())),
        };
        let export = decode(path)
            .and_then(|bytes| String::from_utf8(bytes).ok())
            .ok_or_else(|| UriError::Encoding(owned()))?;
        Ok(Self { address, export })
    }
}

/// Host and port, the host perhaps in brackets.
fn tcp(authority: &str, text: &str) -> Result<NbdAddress, UriError> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']').ok_or_else(|| UriError::Encoding(text.to_owned()))?,
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => DEFAULT_PORT,
        Some("") => DEFAULT_PORT,
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().or(Err(UriError::Port(text.to_owned())))?
        }
        _ => return Err(UriError::Port(text.to_owned())),
    };
    let host = decode(host).and_then(|bytes| String::from_utf8(bytes).ok());
    let host = host.ok_or_else(|| UriError::Encoding(text.to_owned()))?;
    if host.is_empty() {
        return Err(UriError::Missing(text.to_owned(), "host"));
    }
    Ok(NbdAddress::Tcp { host, port })
}

fn decode(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first == b'%' {
            let ([high, low], tail) = rest.split_first_chunk::<2>()?;
            bytes.push(digit(*high)? << 4 | digit(*low)?);
            rest = tail;
        } else {
            bytes.push(*first);
        }
    }
    Some(bytes)
}

/// Writes what RFC 3986 calls unreserved, and slashes, as they are.
fn encode(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    for &byte in bytes {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                write!(f, "{}", char::from(byte))?;
            }
            _ => write!(f, "%{byte:02X}")?,
        }
    }
    Ok(())
}

impl fmt::Display for NbdUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            NbdAddress::Unix(path) => {
                f.write_str("nbd+unix:///")?;
                encode(f, self.export.as_bytes())?;
                f.write_str("?socket=")?;
                encode(f, path.as_os_str().as_bytes())
            }
            NbdAddress::Tcp { host, port } => {
                if host.contains(':') {
                    write!(f, "nbd://[{host}]:{port}/")?;
                } else {
                    f.write_str("nbd://")?;
                    encode(f, host.as_bytes())?;
                    write!(f, ":{port}/")?;
                }
                encode(f, self.export.as_bytes())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16, export: &str) -> NbdUri {
        NbdUri { address: NbdAddress::Tcp { host: host.into(), port }, export: export.into() }
    }

    fn unix(path: &str, export: &str) -> NbdUri {
        NbdUri { address: NbdAddress::Unix(path.into()), export: export.into() }
    }

    #[test]
    fn addresses_are_read_and_written_back() {
        for (text, uri, again) in [
            ("nbd://example.com", tcp("example.com", 10809, ""), "nbd://example.com:10809/"),
            ("nbd://h:1/disk", tcp("h", 1, "disk"), "nbd://h:1/disk"),
            ("nbd://h//disk", tcp("h", 10809, "/disk"), "nbd://h:10809//disk"),
            (
                "nbd://h/hello%20world",
                tcp("h", 10809, "hello world"),
                "nbd://h:10809/hello%20world",
            ),
            ("nbd://[::1]:7/x", tcp("::1", 7, "x"), "nbd://[::1]:7/x"),
            ("nbd://[::1]", tcp("::1", 10809, ""), "nbd://[::1]:10809/"),
            ("nbd+unix:///?socket=/a/b", unix("/a/b", ""), "nbd+unix:///?socket=/a/b"),
            ("nbd+unix://?socket=s", unix("s", ""), "nbd+unix:///?socket=s"),
            (
                "nbd+unix:///d%3fisk?socket=/tmp/a%26b",
                unix("/tmp/a&b", "d?isk"),
                "nbd+unix:///d%3Fisk?socket=/tmp/a%26b",
            ),
            ("nbd+unix:///?socket=%00x", unix("\0x", ""), "nbd+unix:///?socket=%00x"),
        ] {
            assert_eq!(text.parse::<NbdUri>(), Ok(uri.clone()), "{text}");
            assert_eq!(uri.to_string(), again);
            assert_eq!(again.parse::<NbdUri>(), Ok(uri));
        }
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for text in [
            "",
            "disk.img",
            "http://h/",
            "nbds://h/",
            "nbds+unix:///?socket=s",
            "nbd://",
            "nbd:///disk",
            "nbd://h:x/",
            "nbd://h:+1/",
            "nbd://h:70000/",
            "nbd://[::1/",
            "nbd://[::1]7/",
            "nbd://user@h/",
            "nbd://h/%4",
            "nbd://h/%zz",
            "nbd://h/%ff",
            "nbd://h/a#b",
            "nbd://h/?socket=s",
            "nbd://h/?tls-type=psk",
            "nbd+unix:///disk",
            "nbd+unix:///?socket=",
            "nbd+unix:///?socket=a&socket=b",
            "nbd+unix://h/?socket=a",
        ] {
            assert!(text.parse::<NbdUri>().is_err(), "{text}");
        }
        let error = "nbds://h/".parse::<NbdUri>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"nbds://h/\" asks for TLS, which this client does not speak"
        );
    }
}
