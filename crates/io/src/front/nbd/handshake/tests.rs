//! Tests of the handshake, byte by byte: every option, malformed, truncated and random input.

mod fuzz;
mod refusals;
mod starttls;

use super::*;
use crate::nbd_wire::*;

pub(super) fn exports() -> Vec<ExportInfo> {
    let disk = ExportInfo {
        name: "disk".into(),
        description: "a disk".into(),
        length: 1 << 20,
        read_only: false,
        block_sizes: BlockSizes { min: 512, preferred: 4096, max: 1 << 20 },
        features: FLAG_SEND_FLUSH | FLAG_SEND_FUA,
        default: true,
    };
    let rom = ExportInfo {
        name: "rom".into(),
        description: String::new(),
        length: 512,
        read_only: true,
        block_sizes: BlockSizes::default(),
        features: 0,
        default: false,
    };
    vec![disk, rom]
}

pub(super) fn option(option: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend(option.to_be_bytes());
    bytes.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
    bytes.extend(data);
    bytes
}

/// Returns the bytes of a client: its flags, then options.
pub(super) fn session(flags: u32, options: &[(u32, &[u8])]) -> Vec<u8> {
    let mut bytes = flags.to_be_bytes().to_vec();
    for (number, data) in options {
        bytes.extend(option(*number, data));
    }
    bytes
}

fn reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0, 3, 0xe8, 0x89, 4, 0x55, 0x65, 0xa9];
    bytes.extend(option.to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
    bytes.extend(data);
    bytes
}

type Outcome = (Vec<u8>, Result<(usize, Progress), HandshakeError>);

/// Feeds the input in pieces of `piece` bytes; the greeting is removed from the output.
pub(super) fn run_in_pieces(limits: HandshakeLimits, input: &[u8], piece: usize) -> Outcome {
    run_with_tls(limits, TlsMode::Off, input, piece)
}

/// Does the same with TLS; the input after `STARTTLS` stands for the decrypted bytes.
pub(super) fn run_with_tls(
    limits: HandshakeLimits,
    tls: TlsMode,
    input: &[u8],
    piece: usize,
) -> Outcome {
    let mut handshake = Handshake::new(&exports(), limits).with_tls(tls);
    let mut output = Vec::new();
    assert_eq!(handshake.feed(&[], &mut output), Ok((0, Progress::NeedMore)));
    assert_eq!(output, b"NBDMAGICIHAVEOPT\0\x03");
    output.clear();
    let mut used = 0;
    let mut last = Progress::NeedMore;
    for mut part in input.chunks(piece) {
        let fed = loop {
            match handshake.feed(part, &mut output) {
                Ok((bytes, Progress::StartTls | Progress::SendFirst)) => {
                    used += bytes;
                    part = &part[bytes..];
                }
                fed => break fed,
            }
        };
        match fed {
            Ok((bytes, progress)) => {
                used += bytes;
                last = progress;
                if progress != Progress::NeedMore {
                    break;
                }
                assert_eq!(bytes, part.len(), "NeedMore uses all input");
            }
            Err(error) => {
                assert_eq!(handshake.feed(&[], &mut output), Err(HandshakeError::Failed));
                return (output, Err(error));
            }
        }
    }
    assert_eq!(handshake.feed(&[], &mut output), Ok((0, last)), "the end is the end");
    (output, Ok((used, last)))
}

/// Returns the outcome of all input at once, and asserts that single bytes have the same outcome.
fn run(input: &[u8]) -> Outcome {
    let whole = run_in_pieces(HandshakeLimits::default(), input, usize::MAX);
    let single = run_in_pieces(HandshakeLimits::default(), input, 1);
    assert_eq!(whole, single);
    whole
}

/// Sends one option that has an answer and leaves the handshake open.
fn reply_to_option(number: u32, data: &[u8]) -> Vec<u8> {
    let input = session(3, &[(number, data)]);
    let (output, end) = run(&input);
    assert_eq!(end, Ok((input.len(), Progress::NeedMore)));
    output
}

fn kind_of(reply: &[u8]) -> u32 {
    u32::from_be_bytes(reply[12..16].try_into().unwrap())
}

fn name_and(name: &str, tail: &[u8]) -> Vec<u8> {
    let mut data = u32::try_from(name.len()).unwrap().to_be_bytes().to_vec();
    data.extend(name.as_bytes());
    data.extend(tail);
    data
}

fn queries(name: &str, queries: &[&str]) -> Vec<u8> {
    let count = u32::try_from(queries.len()).unwrap().to_be_bytes();
    let mut data = name_and(name, &count);
    for query in queries {
        data.extend(name_and(query, &[]));
    }
    data
}

fn start(export: usize, flags: u16) -> Negotiated {
    Negotiated { export, flags, structured: false, base_allocation: false, no_zeroes: false }
}

#[test]
fn export_name_starts_transmission_with_and_without_zeros() {
    for (flags, padding) in [(0, 124), (1, 124), (2, 0), (3, 0)] {
        let mut input = session(flags, &[(OPT_EXPORT_NAME, b"rom")]);
        let used = input.len();
        input.extend(b"first request");
        let (output, end) = run(&input);
        let mut expected = vec![0, 0, 0, 0, 0, 0, 2, 0, 0, 3];
        expected.resize(10 + padding, 0);
        assert_eq!(output, expected);
        let negotiated = Negotiated { no_zeroes: padding == 0, ..start(1, 3) };
        assert_eq!(end, Ok((used, Progress::Transmission(negotiated))));
    }
}

#[test]
fn export_name_takes_the_default_and_cannot_refuse_otherwise() {
    let (_, end) = run(&session(0, &[(OPT_EXPORT_NAME, b"")]));
    assert_eq!(end, Ok((20, Progress::Transmission(start(0, 0b1101)))));
    let (output, end) = run(&session(1, &[(OPT_EXPORT_NAME, b"nope")]));
    assert_eq!((output.len(), end), (0, Err(HandshakeError::UnknownExport("nope".into()))));
    let (_, end) = run(&session(1, &[(OPT_EXPORT_NAME, &[b'n'; 4097])]));
    assert_eq!(end, Err(HandshakeError::NameTooLong(4097)));
}

#[test]
fn abort_is_acknowledged_whatever_data_it_has() {
    for data in [&b""[..], b"good bye"] {
        let (output, end) = run(&session(1, &[(OPT_ABORT, data)]));
        assert_eq!(output, reply(OPT_ABORT, REP_ACK, b""));
        assert_eq!(end, Ok((20 + data.len(), Progress::Aborted)));
    }
}

#[test]
fn list_names_and_describes_all_exports() {
    let mut expected = reply(OPT_LIST, REP_SERVER, b"\0\0\0\x04diska disk");
    expected.extend(reply(OPT_LIST, REP_SERVER, b"\0\0\0\x03rom"));
    expected.extend(reply(OPT_LIST, REP_ACK, b""));
    assert_eq!(reply_to_option(OPT_LIST, b""), expected);
    assert_eq!(kind_of(&reply_to_option(OPT_LIST, b"x")), REP_ERR_INVALID);
}

#[test]
fn info_tells_what_was_asked_for() {
    let flags = [0, 0b1101];
    let export = [&[0, 0, 0, 0, 0, 0, 0, 16, 0, 0][..], &flags].concat();
    let plain = [reply(OPT_INFO, REP_INFO, &export), reply(OPT_INFO, REP_ACK, b"")].concat();
    assert_eq!(reply_to_option(OPT_INFO, &name_and("disk", b"\0\0")), plain);
    // The unknown request 9 and EXPORT itself change nothing.
    assert_eq!(reply_to_option(OPT_INFO, &name_and("", b"\0\x02\0\x09\0\0")), plain);
    let all = reply_to_option(OPT_INFO, &name_and("", b"\0\x03\0\x03\0\x02\0\x01"));
    let expected = [
        reply(OPT_INFO, REP_INFO, &export),
        reply(OPT_INFO, REP_INFO, b"\0\x01disk"),
        reply(OPT_INFO, REP_INFO, b"\0\x02a disk"),
        reply(OPT_INFO, REP_INFO, b"\0\x03\0\0\x02\0\0\0\x10\0\0\x10\0\0"),
        reply(OPT_INFO, REP_ACK, b""),
    ]
    .concat();
    assert_eq!(all, expected);
}

#[test]
fn go_starts_transmission_or_refuses_and_goes_on() {
    let go = name_and("rom", b"\0\0");
    let missing = name_and("nope", b"\0\0");
    let long = name_and(&"n".repeat(4097), b"\0\0");
    let input = session(1, &[(OPT_GO, &missing), (OPT_GO, &long), (OPT_GO, b"\0"), (OPT_GO, &go)]);
    let (output, end) = run(&input);
    let tail = [
        reply(OPT_GO, REP_INFO, &[0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 3]),
        reply(OPT_GO, REP_ACK, b""),
    ]
    .concat();
    assert!(output.ends_with(&tail));
    assert_eq!(kind_of(&output), REP_ERR_UNKNOWN);
    let second = &output[20 + UNKNOWN_EXPORT_TEXT_BYTES..];
    assert_eq!(kind_of(second), REP_ERR_TOO_BIG);
    assert_eq!(end, Ok((input.len(), Progress::Transmission(start(1, 3)))));
}

const UNKNOWN_EXPORT_TEXT_BYTES: usize = "there is no such export".len();

#[test]
fn structured_replies_and_contexts_are_negotiated_per_export() {
    let set = queries("disk", &["base:allocation", "qemu:dirty-bitmap:x"]);
    let go = |name| name_and(name, b"\0\0");
    for (name, base_allocation) in [("disk", true), ("", true), ("rom", false)] {
        let input = session(
            1,
            &[(OPT_STRUCTURED_REPLY, b""), (OPT_SET_META_CONTEXT, &set), (OPT_GO, &go(name))],
        );
        let (output, end) = run(&input);
        let mut expected = reply(OPT_STRUCTURED_REPLY, REP_ACK, b"");
        expected.extend(reply(
            OPT_SET_META_CONTEXT,
            REP_META_CONTEXT,
            b"\0\0\0\x01base:allocation",
        ));
        expected.extend(reply(OPT_SET_META_CONTEXT, REP_ACK, b""));
        assert!(output.starts_with(&expected));
        let Ok((_, Progress::Transmission(negotiated))) = end else { panic!("{end:?}") };
        assert!(negotiated.structured);
        assert_ne!(negotiated.flags & FLAG_SEND_DF, 0);
        assert_eq!(negotiated.base_allocation, base_allocation, "{name:?}");
    }
}

#[test]
fn a_later_selection_of_contexts_replaces_even_when_it_fails() {
    let set = queries("disk", &["base:allocation"]);
    let none = queries("disk", &[]);
    let unknown = queries("nope", &["base:allocation"]);
    let wildcard = queries("disk", &["base:"]);
    let huge = vec![0; 70_000];
    for second in [&none, &unknown, &wildcard, &huge, &vec![0]] {
        let input = session(
            1,
            &[
                (OPT_STRUCTURED_REPLY, b""),
                (OPT_SET_META_CONTEXT, &set),
                (OPT_SET_META_CONTEXT, second),
                (OPT_EXPORT_NAME, b"disk"),
            ],
        );
        let (_, end) = run(&input);
        let Ok((_, Progress::Transmission(negotiated))) = end else { panic!("{end:?}") };
        assert!(negotiated.structured && !negotiated.base_allocation);
    }
}

#[test]
fn contexts_are_listed_by_name_by_namespace_and_all() {
    let listed = [
        reply(OPT_LIST_META_CONTEXT, REP_META_CONTEXT, b"\0\0\0\0base:allocation"),
        reply(OPT_LIST_META_CONTEXT, REP_ACK, b""),
    ]
    .concat();
    let none = reply(OPT_LIST_META_CONTEXT, REP_ACK, b"");
    for (query, expected) in [
        (queries("", &[]), &listed),
        (queries("", &["base:"]), &listed),
        (queries("rom", &["x:y", "base:allocation", "base:allocation"]), &listed),
        (queries("", &["base:other"]), &none),
        (queries("", &["x:allocation"]), &none),
    ] {
        let input = session(1, &[(OPT_STRUCTURED_REPLY, b""), (OPT_LIST_META_CONTEXT, &query)]);
        let (output, _) = run(&input);
        assert_eq!(output[20..], expected[..]);
    }
    let early = reply_to_option(OPT_LIST_META_CONTEXT, &queries("", &[]));
    assert_eq!(kind_of(&early), REP_ERR_INVALID);
    assert_eq!(kind_of(&reply_to_option(OPT_STRUCTURED_REPLY, b"x")), REP_ERR_INVALID);
}

#[test]
fn answers_are_sent_before_more_options_are_answered() {
    let exports: Vec<_> = (0..4)
        .map(|i| ExportInfo { description: "long ".repeat(200), ..exports().swap_remove(i % 2) })
        .collect();
    let mut handshake = Handshake::new(&exports, HandshakeLimits::default());
    let input = session(3, &[(OPT_LIST, &[][..]); 100]);
    let (mut used, mut rounds, mut sent) = (0, 0, 0);
    loop {
        let mut output = Vec::new();
        let (bytes, progress) = handshake.feed(&input[used..], &mut output).unwrap();
        (used, rounds, sent) = (used + bytes, rounds + 1, sent + output.len());
        assert!(output.len() < OUTPUT_BYTES_MAX + 8192, "{} bytes at once", output.len());
        if progress == Progress::NeedMore {
            break;
        }
        assert_eq!(progress, Progress::SendFirst);
    }
    assert_eq!(used, input.len(), "all options are answered");
    assert!(sent > 100 * 4000 && rounds > sent / (2 * OUTPUT_BYTES_MAX), "{sent} in {rounds}");
}
