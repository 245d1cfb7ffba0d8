//! A hostile upstream server: the texts that it sends do not control the terminal.

use super::names::{HOSTILE, check_output};
use super::serving::{ctl, start, stop};
use crate::shared::program::program;
use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
const REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
const STRUCTURED_MAGIC: u32 = 0x668e_33ef;
const OPT_GO: u32 = 7;
const OPT_STRUCTURED_REPLY: u32 = 8;
const REP_ACK: u32 = 1;
const REP_INFO: u32 = 3;
const REP_ERR_UNSUP: u32 = 0x8000_0001;
const REP_ERR_POLICY: u32 = 0x8000_0002;
const INFO_EXPORT: u16 = 0;
const INFO_DESCRIPTION: u16 = 2;
const EXPORT_BYTES: u64 = 16 << 20;
/// Transmission flags: the flags field is valid, and the export accepts flushes.
const FLAGS: u16 = 0b101;
const CHUNK_DONE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;
const CHUNK_NONE: u16 = 0;
const CHUNK_ERROR: u16 = 0x8001;
const EIO: u32 = 5;

/// The moment at which the server sends its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hostility {
    /// The server refuses each option with the text.
    Refuses,
    /// The server has an export with the text as its description, and fails each request with it.
    Fails,
}

/// Serves at `socket` until the process ends.
fn serve(socket: &Path, hostility: Hostility) {
    let listener = UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            // A client that leaves in the middle of a message is no failure of the test.
            std::thread::spawn(move || serve_client(stream?, hostility));
        }
    });
}

fn read_bytes<const N: usize>(stream: &mut UnixStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn reply(stream: &mut UnixStream, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
    let head = [&REPLY_MAGIC.to_be_bytes()[..], &option.to_be_bytes(), &kind.to_be_bytes()];
    let len = u32::try_from(data.len()).unwrap().to_be_bytes();
    stream.write_all(&[&head.concat()[..], &len, data].concat())
}

fn serve_client(mut stream: UnixStream, hostility: Hostility) -> io::Result<()> {
    let stream = &mut stream;
    // Fixed newstyle without zeroes.
    stream.write_all(&[&b"NBDMAGIC"[..], &OPTION_MAGIC.to_be_bytes(), &[0, 3]].concat())?;
    read_bytes::<4>(stream)?;
    loop {
        read_bytes::<8>(stream)?;
        let option = u32::from_be_bytes(read_bytes(stream)?);
        let len = u32::from_be_bytes(read_bytes(stream)?);
        io::copy(&mut stream.take(len.into()), &mut io::sink())?;
        match option {
            _ if hostility == Hostility::Refuses => {
                reply(stream, option, REP_ERR_POLICY, HOSTILE.as_bytes())?;
            }
            OPT_STRUCTURED_REPLY => reply(stream, option, REP_ACK, &[])?,
            OPT_GO => {
                let kind = INFO_EXPORT.to_be_bytes();
                let export = [&kind[..], &EXPORT_BYTES.to_be_bytes(), &FLAGS.to_be_bytes()];
                reply(stream, option, REP_INFO, &export.concat())?;
                let description = [&INFO_DESCRIPTION.to_be_bytes(), HOSTILE.as_bytes()].concat();
                reply(stream, option, REP_INFO, &description)?;
                reply(stream, option, REP_ACK, &[])?;
                return fail_requests(stream);
            }
            _ => reply(stream, option, REP_ERR_UNSUP, HOSTILE.as_bytes())?,
        }
    }
}

/// Fails all requests except flushes. None of them has a payload, because nothing is written.
fn fail_requests(stream: &mut UnixStream) -> io::Result<()> {
    let text_len = u16::try_from(HOSTILE.len()).unwrap().to_be_bytes();
    let error = [&EIO.to_be_bytes()[..], &text_len, HOSTILE.as_bytes()].concat();
    loop {
        // The magic number and the flags.
        read_bytes::<6>(stream)?;
        let command = u16::from_be_bytes(read_bytes(stream)?);
        let cookie: [u8; 8] = read_bytes(stream)?;
        read_bytes::<12>(stream)?;
        let (kind, payload) = match command {
            DISCONNECT => return Ok(()),
            FLUSH => (CHUNK_NONE, &[][..]),
            _ => (CHUNK_ERROR, &error[..]),
        };
        let head = [&STRUCTURED_MAGIC.to_be_bytes()[..], &CHUNK_DONE.to_be_bytes()].concat();
        let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
        stream.write_all(&[&head[..], &kind.to_be_bytes(), &cookie, &len, payload].concat())?;
    }
}

#[test]
fn the_texts_of_a_hostile_upstream_server_do_not_control_the_terminal() {
    let directory = TempDir::new().unwrap();
    let uri =
        |name: &str| format!("nbd+unix:///disk?socket={}", directory.path().join(name).display());
    serve(&directory.path().join("refuses"), Hostility::Refuses);
    for args in [
        &["serve", &format!("copy={}", uri("refuses")), "--memory", "16MiB"][..],
        &["bench", "server", &uri("refuses")],
    ] {
        let mut command = Command::new(program());
        command.args(args).stdin(Stdio::null()).env("LARDER_LOG", "debug");
        let output = command.output().unwrap();
        check_output(&format!("{args:?}"), &output);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains("a\\u001b[2J"), "the text is shown: {stderr}");
    }
    serve(&directory.path().join("fails"), Hostility::Fails);
    let mut command = Command::new(program());
    command.arg("serve").arg(format!("copy={}", uri("fails"))).args(["--memory", "16MiB"]);
    command.arg("--control").arg(directory.path().join("control")).arg("--listen");
    command.arg(format!("unix:{}", directory.path().join("nbd").display()));
    command.env("LARDER_LOG", "debug");
    let (child, line) = start(&mut command);
    for format in [&[][..], &["--format", "json"]] {
        let warmed = ctl(&directory, &[&["warm", "copy", "0+4KiB"][..], format].concat());
        assert!(!warmed.status.success());
        for args in [&["stats"][..], &["volumes"], &["at-risk"]] {
            ctl(&directory, &[args, format].concat());
        }
    }
    stop(child, line);
}
