//! TLS: accepted and refused clients, attacks by clients, and other programs as clients.

use super::{MIB, Service};
use crate::common::{
    Random, TIMEOUT,
    certificates::Authority,
    rig::{self, Memory},
    spawn::starting,
};
use larder_io::front::nbd::ServerLimits;
use larder_io::nbd_client::{Client, ClientError, ConnectOptions, NbdUri, UriTls, list_exports};
use larder_io::nbd_wire as wire;
use larder_io::tls::TlsServer;
use larder_testing::has_tool;
use rustls::pki_types::ServerName;
use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Instant;
use tempfile::TempDir;

fn service(required: bool, verify_peer: bool) -> Service {
    let engine = rig::engine(16 * MIB);
    let volume = rig::volume(&engine, "disk", 8 * MIB, Memory::new(8 * MIB));
    Service::start_tls(engine, volume, required, verify_peer)
}

fn connect(uri: &NbdUri) -> Result<Client, ClientError> {
    let options = ConnectOptions { timeout: Some(TIMEOUT), ..ConnectOptions::default() };
    Client::connect_with(uri, options)
}

/// Returns the address of `service` with the certificates of `directory`.
fn with(service: &Service, directory: &Path) -> NbdUri {
    let tls = UriTls { certificates: Some(directory.to_owned()), hostname: None };
    NbdUri { tls: Some(tls), ..service.uri() }
}

fn in_clear(service: &Service) -> NbdUri {
    NbdUri { tls: None, ..service.uri() }
}

/// Checks that a client reads the data that it wrote.
fn works(mut client: Client) {
    client.write_at(MIB - 100, &vec![7; 300_000], true).expect("nothing fails here");
    let mut bytes = vec![0; 300_000];
    client.read_at(MIB - 100, &mut bytes).expect("nothing fails here");
    assert!(bytes.iter().all(|&byte| byte == 7));
    client.flush().expect("nothing fails here");
    client.disconnect().expect("nothing fails here");
}

/// Returns the error of a client: at the connection, or when it receives the server's alert.
fn refusal(uri: &NbdUri) -> String {
    let refused = connect(uri).and_then(|mut client| client.read_at(0, &mut [0; 512]));
    refused.expect_err("it is refused").to_string()
}

#[test]
fn where_tls_is_required_nothing_is_told_before_it() {
    let service = service(true, false);
    let refused = connect(&in_clear(&service)).unwrap_err();
    let ClientError::Refused { reply, .. } = refused else { panic!("{refused}") };
    assert_eq!(reply, wire::REP_ERR_TLS_REQD);
    let listed = list_exports(&in_clear(&service)).unwrap_err();
    assert!(matches!(listed, ClientError::Refused { reply: wire::REP_ERR_TLS_REQD, .. }));
    assert_eq!(list_exports(&service.uri()).unwrap()[0].name, "disk");
    works(connect(&service.uri()).unwrap());
    service.end();
}

#[test]
fn where_tls_is_allowed_both_are_served() {
    let service = service(false, false);
    works(connect(&in_clear(&service)).unwrap());
    works(connect(&service.uri()).unwrap());
    service.end();
}

#[test]
fn a_server_without_tls_says_so() {
    let with_certificates = service(true, false);
    let plain = Service::new(16 * MIB, MIB, Memory::new(MIB));
    let directory = with_certificates.certificates.as_ref().unwrap();
    let refused = connect(&with(&plain, directory.path())).unwrap_err();
    assert!(
        matches!(
            refused,
            ClientError::Refused { option: wire::OPT_STARTTLS, reply: wire::REP_ERR_UNSUP, .. }
        ),
        "{refused}"
    );
    plain.end();
    with_certificates.end();
}

#[test]
fn clients_without_a_certificate_of_the_authority_are_refused() {
    let service = service(true, true);
    let directory = service.certificates.as_ref().unwrap().path();
    let none = TempDir::new().unwrap();
    std::fs::copy(directory.join("ca-cert.pem"), none.path().join("ca-cert.pem")).unwrap();
    let text = refusal(&with(&service, none.path()));
    assert!(text.contains("CertificateRequired"), "{text}");
    // A client with a certificate of another authority.
    let stranger = TempDir::new().unwrap();
    Authority::new().write_client(stranger.path());
    std::fs::copy(directory.join("ca-cert.pem"), stranger.path().join("ca-cert.pem")).unwrap();
    let text = refusal(&with(&service, stranger.path()));
    assert!(text.starts_with("speak TLS with the NBD server: received fatal alert"), "{text}");
    // A certificate of a server is not valid for a client.
    let server = TempDir::new().unwrap();
    for (from, to) in
        [("ca-cert", "ca-cert"), ("server-cert", "client-cert"), ("server-key", "client-key")]
    {
        let (from, to) = (format!("{from}.pem"), format!("{to}.pem"));
        std::fs::copy(directory.join(from), server.path().join(to)).unwrap();
    }
    let text = refusal(&with(&service, server.path()));
    assert!(text.starts_with("speak TLS with the NBD server: received fatal alert"), "{text}");
    works(connect(&service.uri()).unwrap());
    service.end();
}

/// Returns a directory of client certificates whose chain has at least `bytes` in DER.
fn long_chain(service: &Service, bytes: usize) -> TempDir {
    let from = service.certificates.as_ref().expect("it has certificates").path();
    let directory = TempDir::new().expect("nothing fails here");
    let read = |name: &str| std::fs::read(from.join(name)).expect("nothing fails here");
    let write = |name: &str, bytes: &[u8]| {
        let path = directory.path().join(name);
        std::fs::write(&path, bytes).expect("nothing fails here");
        std::fs::set_permissions(path, Permissions::from_mode(0o600)).expect("nothing fails here");
    };
    let (authority, mut chain) = (read("ca-cert.pem"), read("client-cert.pem"));
    // In PEM, three bytes take four characters.
    while chain.len() * 2 < bytes * 3 {
        chain.extend(&authority);
    }
    write("ca-cert.pem", &authority);
    write("client-cert.pem", &chain);
    write("client-key.pem", &read("client-key.pem"));
    directory
}

#[test]
fn a_client_whose_certificate_chain_is_too_long_is_refused() {
    let service = service(true, true);
    works(connect(&with(&service, long_chain(&service, 16 << 10).path())).unwrap());
    let longer = long_chain(&service, 32 << 10);
    let refused = connect(&with(&service, longer.path()));
    let refused = refused.and_then(|mut client| client.read_at(0, &mut [0; 512]));
    refused.expect_err("its chain is too long");
    works(connect(&service.uri()).unwrap());
    service.end();
}

#[test]
fn a_client_that_announces_a_long_tls_message_is_refused_before_its_end() {
    let service = service(true, false);
    let mut stream = raw(&service, &[]);
    let begun = Instant::now();
    // A hello of 60,000 bytes, of which 40,000 are sent, in records of 4,000 bytes.
    let mut message = vec![1, 0, 0xea, 0x60];
    message.resize(40_000, 0);
    for part in message.chunks(4_000) {
        let record = [&[22, 3, 1][..], &4_000u16.to_be_bytes(), part].concat();
        // The server may close before it has read all records.
        if stream.write_all(&record).is_err() {
            break;
        }
    }
    until_closed(&mut stream);
    let limit = ServerLimits::default().handshake_time_max;
    assert!(begun.elapsed() < limit / 2, "closed after {:?}", begun.elapsed());
    service.end();
}

#[test]
fn a_client_does_not_believe_every_server() {
    let service = service(true, false);
    let stranger = TempDir::new().unwrap();
    Authority::new().write_certificate(stranger.path());
    let text = refusal(&with(&service, stranger.path()));
    assert!(text.contains("UnknownIssuer") || text.contains("BadSignature"), "{text}");
    let mut uri = service.uri();
    uri.tls.as_mut().unwrap().hostname = Some("elsewhere.example".into());
    let text = refusal(&uri);
    assert!(text.contains("not valid for name"), "{text}");
    uri.tls.as_mut().unwrap().hostname = Some("localhost".into());
    works(connect(&uri).unwrap());
    uri.tls = Some(UriTls::default());
    let text = refusal(&uri);
    assert!(text.contains("tls-certificates"), "{text}");
    service.end();
}

#[test]
fn directories_of_no_use_are_named() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name);
    let error =
        |verify| TlsServer::from_directory(directory.path(), verify).unwrap_err().to_string();
    assert!(error(false).contains("server-cert.pem for TLS: No such file"), "{}", error(false));
    std::fs::write(path("server-cert.pem"), "nothing").unwrap();
    assert!(error(false).contains("it contains no certificate"), "{}", error(false));
    let authority = Authority::new();
    authority.write_server(directory.path(), &["localhost"]);
    let key = std::fs::read(path("server-key.pem")).unwrap();
    std::fs::write(path("server-key.pem"), "nothing").unwrap();
    assert!(error(false).contains("it contains no private key"), "{}", error(false));
    // The key of another certificate.
    let other = TempDir::new().unwrap();
    authority.write_server(other.path(), &["localhost"]);
    std::fs::copy(other.path().join("server-key.pem"), path("server-key.pem")).unwrap();
    assert!(error(false).contains("server-cert.pem for TLS"), "{}", error(false));
    std::fs::write(path("server-key.pem"), key).unwrap();
    TlsServer::from_directory(directory.path(), false).unwrap();
    assert!(error(true).contains("ca-cert.pem for TLS: No such file"), "{}", error(true));
}

/// Returns a connection on which the server has agreed to TLS, followed by the bytes `also`.
fn raw(service: &Service, also: &[u8]) -> TcpStream {
    let larder_io::front::nbd::ListenAddress::Tcp(address) = service.server.address() else {
        panic!("TLS is tried over TCP")
    };
    let mut stream = TcpStream::connect(address).expect("nothing fails here");
    stream.set_read_timeout(Some(TIMEOUT)).expect("nothing fails here");
    stream.read_exact(&mut [0; wire::GREETING_BYTES]).expect("nothing fails here");
    let mut hello = (wire::CLIENT_FIXED_NEWSTYLE | wire::CLIENT_NO_ZEROES).to_be_bytes().to_vec();
    hello.extend(wire::OPTION_MAGIC.to_be_bytes());
    hello.extend(wire::OPT_STARTTLS.to_be_bytes());
    hello.extend(0u32.to_be_bytes());
    hello.extend(also);
    stream.write_all(&hello).expect("nothing fails here");
    let mut reply = [0; wire::OPTION_REPLY_HEADER_BYTES];
    stream.read_exact(&mut reply).expect("nothing fails here");
    assert_eq!(reply[12..16], wire::REP_ACK.to_be_bytes());
    stream
}

/// Returns all bytes until the server closes.
fn until_closed(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A reset is an end, too.
    if let Err(error) = stream.read_to_end(&mut bytes) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
    }
    bytes
}

#[test]
fn options_in_clear_behind_starttls_are_not_obeyed() {
    let service = service(false, false);
    let mut list = wire::OPTION_MAGIC.to_be_bytes().to_vec();
    list.extend(wire::OPT_LIST.to_be_bytes());
    list.extend(0u32.to_be_bytes());
    let mut stream = raw(&service, &list);
    let answer = until_closed(&mut stream);
    let magic = wire::OPTION_REPLY_MAGIC.to_be_bytes();
    assert!(!answer.windows(8).any(|window| window == magic), "{answer:x?}");
    service.end();
}

/// Returns the first message of a real client.
fn client_hello() -> Vec<u8> {
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(
        rustls::crypto::ring::default_provider(),
    ))
    .with_safe_default_protocol_versions()
    .expect("nothing fails here")
    .with_root_certificates(rustls::RootCertStore::empty())
    .with_no_client_auth();
    let name = ServerName::try_from("localhost").expect("nothing fails here");
    let mut client =
        rustls::ClientConnection::new(Arc::new(config), name).expect("nothing fails here");
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).expect("nothing fails here");
    bytes
}

/// 400 clients with seeded bytes that are almost TLS, or begin as TLS and then are not. The test
/// closes each connection, or waits for its end, and another client is not affected.
#[test]
fn malformed_tls_hurts_nobody_else() {
    let service = service(true, false);
    let mut good = connect(&service.uri()).unwrap();
    let mut random = Random::new(0x0074_6c73);
    for round in 0..400_usize {
        let mut bytes = client_hello();
        for _ in 0..=random.below(4) {
            let at = random.below(bytes.len());
            bytes[at] ^= 1 << random.below(8);
        }
        match random.below(4) {
            0 => bytes.truncate(random.below(bytes.len())),
            1 => {
                let len = random.below(5000);
                bytes.extend(random.bytes(len));
            }
            2 => bytes = [client_hello(), bytes].concat(),
            _ => {}
        }
        let mut stream = raw(&service, &[]);
        // The server may close before it has read all bytes.
        let sent = stream.write_all(&bytes);
        if sent.is_ok() && round % 2 == 0 {
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            until_closed(&mut stream);
        }
        let mut sector = [0; 512];
        good.read_at(random.below(8192) as u64 * 512, &mut sector).unwrap();
        assert_eq!(sector, [0; 512], "round {round}");
    }
    good.disconnect().unwrap();
    service.end();
}

#[test]
fn a_tls_handshake_that_takes_too_long_is_ended() {
    use larder_io::front::nbd::{ServerOptions, TlsOptions};
    let template = service(true, false);
    let directory = template.certificates.as_ref().unwrap();
    let tls = TlsOptions::new(TlsServer::from_directory(directory.path(), false).unwrap(), true);
    let handshake_time_max = std::time::Duration::from_secs(3);
    let limits = ServerLimits { handshake_time_max, ..ServerLimits::default() };
    let options = ServerOptions { limits, tls, ..ServerOptions::default() };
    let engine = rig::engine(16 * MIB);
    let volume = rig::volume(&engine, "disk", MIB, Memory::new(MIB));
    let map = Arc::new(larder_io::store::SolidMap);
    let limited = Service::start_with(engine, volume, map, true, options);
    // No bytes, half a hello, and an incomplete record.
    let hello = client_hello();
    let begun = [&[][..], &hello[..hello.len() / 2], &[22, 3, 1, 0x40, 0][..]].map(|bytes| {
        let mut stream = raw(&limited, &[]);
        stream.write_all(bytes).unwrap();
        stream
    });
    for mut stream in begun {
        until_closed(&mut stream);
    }
    limited.end();
    template.end();
}

/// Runs another program, if it is installed; returns its success and its output.
fn tool(name: &str, args: &[&str]) -> Option<(bool, String)> {
    if !has_tool(name) {
        return None;
    }
    let mut command = Command::new(name);
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null());
    let guard = starting();
    let child = command.spawn().expect("it is installed");
    drop(guard);
    let output = child.wait_with_output().expect("it ends");
    let (out, err) = (output.stdout, output.stderr);
    let text = String::from_utf8_lossy(&out).into_owned() + &String::from_utf8_lossy(&err);
    Some((output.status.success(), text))
}

#[test]
fn libnbd_and_qemu_are_served_with_their_certificates_only() {
    let service = service(true, true);
    let directory = service.certificates.as_ref().unwrap().path();
    let uri = service.uri().to_string();
    let image = directory.join("image");
    let bytes = Random::new(9).bytes(8 << 20);
    std::fs::write(&image, &bytes).unwrap();
    let image = image.to_str().unwrap();
    if let Some((ok, text)) = tool("nbdinfo", &[&uri]) {
        assert!(ok && text.contains("with TLS"), "{text}");
        let (ok, text) = tool("nbdcopy", &[image, &uri]).unwrap();
        assert!(ok, "{text}");
        let back = directory.join("back");
        let (ok, text) = tool("nbdcopy", &[&uri, back.to_str().unwrap()]).unwrap();
        assert!(ok, "{text}");
        assert!(std::fs::read(&back).unwrap() == bytes, "nbdcopy there and back");
        let (ok, text) = tool("nbdinfo", &[&in_clear(&service).to_string()]).unwrap();
        assert!(!ok, "without TLS: {text}");
    }
    let larder_io::front::nbd::ListenAddress::Tcp(address) = service.server.address() else {
        panic!("TLS is tried over TCP")
    };
    let credentials = |dir: &str| format!("tls-creds-x509,id=tls0,endpoint=client,dir={dir}");
    let image_options =
        format!("driver=nbd,host=127.0.0.1,port={},export=disk,tls-creds=tls0", address.port());
    let info = |dir: &str| {
        let credentials = credentials(dir);
        tool("qemu-img", &["info", "--object", &credentials, "--image-opts", &image_options])
    };
    if let Some((ok, text)) = info(directory.to_str().unwrap()) {
        assert!(ok && text.contains("8 MiB"), "{text}");
        let none = TempDir::new().unwrap();
        std::fs::copy(directory.join("ca-cert.pem"), none.path().join("ca-cert.pem")).unwrap();
        let (ok, text) = info(none.path().to_str().unwrap()).unwrap();
        assert!(!ok, "without a certificate: {text}");
    }
    service.end();
}
