//! Addresses of NBD exports: `nbd://host:port/NAME` and `nbd+unix:///NAME?socket=PATH`, with TLS
//! `nbds://` and `nbds+unix://`.
//!
//! NBD's uri.md, and RFC 3986 for percent-encoding. With TLS the parser accepts the parameters
//! `tls-certificates`, a directory, and `tls-hostname` of libnbd(3). It refuses user names and
//! every other parameter. The client refuses TLS without the certificate of an authority.

use crate::nbd_wire::DEFAULT_PORT;
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::str::FromStr;

/// Address of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum NbdAddress {
    /// A unix socket; a path that starts with NUL is in the abstract namespace.
    Unix(PathBuf),
    /// TCP.
    Tcp {
        /// Name or address; an IPv6 address without brackets.
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
    /// Parameters of TLS, if TLS is used.
    pub tls: Option<UriTls>,
}

/// The TLS parameters of an address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct UriTls {
    /// The directory of the certificates; the client cannot connect without one.
    pub certificates: Option<PathBuf>,
    /// The name in the server's certificate, if it is not the host.
    pub hostname: Option<String>,
}

/// Text that is not the address of an NBD export.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} {fault}")]
pub struct UriError {
    text: String,
    fault: UriFault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum UriFault {
    #[error("is no NBD address: it starts with none of nbd://, nbd+unix://, nbds://, nbds+unix://")]
    Scheme,
    #[error("names no {0}")]
    Missing(&'static str),
    #[error("has {0}, which is not supported in an NBD address")]
    Unsupported(&'static str),
    #[error("has no valid port")]
    Port,
    /// A percent sign without two hexadecimal digits, or bytes that are not text.
    #[error("is not well encoded")]
    Encoding,
}

impl FromStr for NbdUri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, UriError> {
        parse(text).map_err(|fault| UriError { text: text.to_owned(), fault })
    }
}

fn parse(text: &str) -> Result<NbdUri, UriFault> {
    let (scheme, rest) = text.split_once("://").ok_or(UriFault::Scheme)?;
    if rest.contains('#') {
        return Err(UriFault::Unsupported("a fragment"));
    }
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    if authority.contains('@') {
        return Err(UriFault::Unsupported("a user name"));
    }
    let plain_scheme = scheme.strip_prefix("nbds").map(|rest| format!("nbd{rest}"));
    let with_tls = plain_scheme.is_some();
    let mut parameters = Parameters::default();
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        if !parameters.take(parameter, with_tls) {
            return Err(UriFault::Unsupported("a query parameter"));
        }
    }
    let address = match (plain_scheme.as_deref().unwrap_or(scheme), parameters.socket) {
        ("nbd+unix", _) if !authority.is_empty() => {
            return Err(UriFault::Unsupported("a host beside the socket"));
        }
        ("nbd+unix", None | Some("")) => return Err(UriFault::Missing("socket")),
        ("nbd+unix", Some(path)) => NbdAddress::Unix(decode_path(path)?),
        ("nbd", Some(_)) => return Err(UriFault::Unsupported("a socket beside the host")),
        ("nbd", None) => tcp(authority)?,
        _ => return Err(UriFault::Scheme),
    };
    let export = decode_text(path)?;
    let tls = if with_tls {
        let certificates = parameters.certificates.map(decode_path).transpose()?;
        let hostname = parameters.hostname.map(decode_text).transpose()?;
        Some(UriTls { certificates, hostname })
    } else {
        None
    };
    Ok(NbdUri { address, export, tls })
}

/// The query parameters of an address.
#[derive(Default)]
struct Parameters<'a> {
    socket: Option<&'a str>,
    certificates: Option<&'a str>,
    hostname: Option<&'a str>,
}

impl<'a> Parameters<'a> {
    /// Stores a parameter; returns false if it is unknown or a duplicate.
    fn take(&mut self, parameter: &'a str, with_tls: bool) -> bool {
        let Some((name, value)) = parameter.split_once('=') else { return false };
        let field = match name {
            "socket" => &mut self.socket,
            "tls-certificates" if with_tls => &mut self.certificates,
            "tls-hostname" if with_tls => &mut self.hostname,
            _ => return false,
        };
        field.replace(value).is_none()
    }
}

/// Parses host and port; the host may be in brackets.
fn tcp(authority: &str) -> Result<NbdAddress, UriFault> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']').ok_or(UriFault::Encoding)?,
        None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
    };
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => DEFAULT_PORT,
        Some("") => DEFAULT_PORT,
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse().or(Err(UriFault::Port))?
        }
        _ => return Err(UriFault::Port),
    };
    let host = decode_text(host)?;
    if host.is_empty() {
        Err(UriFault::Missing("host"))
    } else {
        Ok(NbdAddress::Tcp { host, port })
    }
}

fn decode_text(text: &str) -> Result<String, UriFault> {
    String::from_utf8(decode(text)?).or(Err(UriFault::Encoding))
}

fn decode_path(text: &str) -> Result<PathBuf, UriFault> {
    Ok(OsString::from_vec(decode(text)?).into())
}

fn decode(text: &str) -> Result<Vec<u8>, UriFault> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes().iter().copied();
    while let Some(byte) = rest.next() {
        bytes.push(if byte == b'%' {
            let [high, low] = [rest.next(), rest.next()].map(|byte| byte.and_then(digit));
            high.ok_or(UriFault::Encoding)? << 4 | low.ok_or(UriFault::Encoding)?
        } else {
            byte
        });
    }
    Ok(bytes)
}

/// Writes the unreserved characters of RFC 3986, and `delimiters`, as they are.
fn encode(f: &mut fmt::Formatter<'_>, bytes: &[u8], delimiters: &[u8]) -> fmt::Result {
    for &byte in bytes {
        let is_unreserved = byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
        if is_unreserved || delimiters.contains(&byte) {
            write!(f, "{}", char::from(byte))?;
        } else {
            write!(f, "%{byte:02X}")?;
        }
    }
    Ok(())
}

/// Writes a path or a name; slashes stay as they are.
fn encode_path(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    encode(f, bytes, b"/")
}

impl fmt::Display for NbdUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.tls.is_some() { "nbds" } else { "nbd" };
        let mut mark = '?';
        match &self.address {
            NbdAddress::Unix(path) => {
                write!(f, "{scheme}+unix:///")?;
                encode_path(f, self.export.as_bytes())?;
                f.write_str("?socket=")?;
                encode_path(f, path.as_os_str().as_bytes())?;
                mark = '&';
            }
            NbdAddress::Tcp { host, port } => {
                let is_ipv6 = host.contains(':');
                let [open, close, delimiters] = if is_ipv6 { ["[", "]", ":"] } else { [""; 3] };
                write!(f, "{scheme}://{open}")?;
                encode(f, host.as_bytes(), delimiters.as_bytes())?;
                write!(f, "{close}:{port}/")?;
                encode_path(f, self.export.as_bytes())?;
            }
        }
        let Some(UriTls { certificates, hostname }) = &self.tls else { return Ok(()) };
        let certificates = certificates.as_ref().map(|path| path.as_os_str().as_bytes());
        let hostname = hostname.as_ref().map(String::as_bytes);
        for (name, value) in [("tls-certificates", certificates), ("tls-hostname", hostname)] {
            if let Some(value) = value {
                write!(f, "{mark}{name}=")?;
                encode_path(f, value)?;
                mark = '&';
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16, export: &str) -> NbdUri {
        NbdUri {
            address: NbdAddress::Tcp { host: host.into(), port },
            export: export.into(),
            tls: None,
        }
    }

    fn unix(path: &str, export: &str) -> NbdUri {
        NbdUri { address: NbdAddress::Unix(path.into()), export: export.into(), tls: None }
    }

    fn with_tls(uri: NbdUri, certificates: Option<&str>, hostname: Option<&str>) -> NbdUri {
        let certificates = certificates.map(Into::into);
        NbdUri { tls: Some(UriTls { certificates, hostname: hostname.map(Into::into) }), ..uri }
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
            ("nbd://a%2fb/x", tcp("a/b", 10809, "x"), "nbd://a%2Fb:10809/x"),
            ("nbd://[a:%5d%2f]:7/x", tcp("a:]/", 7, "x"), "nbd://[a:%5D%2F]:7/x"),
            ("nbd+unix:///?socket=/a/b", unix("/a/b", ""), "nbd+unix:///?socket=/a/b"),
            ("nbd+unix://?socket=s", unix("s", ""), "nbd+unix:///?socket=s"),
            (
                "nbd+unix:///d%3fisk?socket=/tmp/a%26b",
                unix("/tmp/a&b", "d?isk"),
                "nbd+unix:///d%3Fisk?socket=/tmp/a%26b",
            ),
            ("nbd+unix:///?socket=%00x", unix("\0x", ""), "nbd+unix:///?socket=%00x"),
            ("nbds://h/", with_tls(tcp("h", 10809, ""), None, None), "nbds://h:10809/"),
            (
                "nbds://h/d?tls-hostname=a.b&tls-certificates=/c%20d",
                with_tls(tcp("h", 10809, "d"), Some("/c d"), Some("a.b")),
                "nbds://h:10809/d?tls-certificates=/c%20d&tls-hostname=a.b",
            ),
            (
                "nbds+unix:///?tls-certificates=c&socket=s",
                with_tls(unix("s", ""), Some("c"), None),
                "nbds+unix:///?socket=s&tls-certificates=c",
            ),
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
            "nbds://",
            "nbds+unix:///disk",
            "nbds://h/?tls-certificates=%4",
            "nbds://h/?tls-hostname=%ff",
            "nbds://h/?tls-hostname=a&tls-hostname=b",
            "nbds://h/?tls-verify-peer=false",
            "nbds://h/?tls-psk-file=f",
            "nbdss://h/",
            "nbd://h/?tls-certificates=c",
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
        let error = "nbds://h/?x=y".parse::<NbdUri>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"nbds://h/?x=y\" has a query parameter, which is not supported in an NBD address"
        );
    }
}
