//! Refusals and limits of a handshake, and incomplete input.

use super::{exports, kind_of, name_and, queries, reply_to_option, run, run_in_pieces, session};
use crate::front::nbd::handshake::{Handshake, HandshakeError, HandshakeLimits, Progress};
use crate::nbd_wire::*;

#[test]
fn what_is_not_supported_is_skipped_and_named() {
    assert_eq!(kind_of(&reply_to_option(OPT_STARTTLS, b"")), REP_ERR_UNSUP);
    assert_eq!(kind_of(&reply_to_option(OPT_STARTTLS, b"x")), REP_ERR_INVALID);
    for number in [OPT_PEEK_EXPORT, OPT_EXTENDED_HEADERS, 0, 999, u32::MAX] {
        for data in [0, 1, 300_000] {
            assert_eq!(kind_of(&reply_to_option(number, &vec![1; data])), REP_ERR_UNSUP);
        }
    }
    assert_eq!(kind_of(&reply_to_option(OPT_INFO, &vec![0; 16_385])), REP_ERR_TOO_BIG);
}

#[test]
fn an_option_that_claims_4_gib_takes_no_memory() {
    for number in [OPT_GO, 999] {
        let mut handshake = Handshake::new(&exports(), HandshakeLimits::default());
        let mut output = Vec::new();
        let mut input = session(1, &[(number, b"")]);
        input.splice(16..20, [0xff; 4]);
        handshake.feed(&input, &mut output).unwrap();
        for _ in 0..100 {
            handshake.feed(&[0; 10_000], &mut output).unwrap();
        }
        assert!(handshake.buffer.capacity() < 1000);
        assert_eq!(output.len(), GREETING_BYTES, "answered after the data");
    }
}

#[test]
fn an_option_takes_its_length_in_memory_until_it_is_answered() {
    let mut handshake = Handshake::new(&exports(), HandshakeLimits::default());
    let mut output = Vec::new();
    let names = vec!["base:allocation"; 700];
    let data = queries("disk", &names);
    assert!((13_000..16_384).contains(&data.len()));
    let input = session(1, &[(OPT_STRUCTURED_REPLY, b""), (OPT_SET_META_CONTEXT, &data)]);
    let (last, first) = input.split_last().expect("it is not empty");
    for piece in first.chunks(1000) {
        handshake.feed(piece, &mut output).unwrap();
        assert!(handshake.buffer.capacity() <= data.len(), "{}", handshake.buffer.capacity());
    }
    output.clear();
    handshake.feed(&[*last], &mut output).unwrap();
    assert!(!output.is_empty(), "answered");
    assert!(handshake.buffer.capacity() <= 4096, "{}", handshake.buffer.capacity());
}

#[test]
fn what_has_no_reply_ends_the_session_with_one_sentence() {
    let cases: [(Vec<u8>, &str); 4] = [
        (session(4, &[]), "the NBD client set unknown flags 0x4"),
        (session(0xffff_fffd, &[]), "the NBD client set unknown flags 0xfffffffc"),
        (
            session(0, &[(OPT_GO, b"")]),
            "the NBD client sent option 7 without fixed newstyle, where only EXPORT_NAME may be",
        ),
        (
            [session(1, &[]), b"IHAVEOPX\0\0\0\0\0\0\0\0".to_vec()].concat(),
            "the NBD client sent something else than an option: option starts with \
             0x49484156454f5058 instead of 0x49484156454f5054",
        ),
    ];
    for (input, text) in cases {
        assert_eq!(run(&input).1.unwrap_err().to_string(), text);
    }
}

#[test]
fn options_and_output_are_limited() {
    let many = vec![(OPT_INFO, &b""[..]); 129];
    assert_eq!(run(&session(1, &many)).1, Err(HandshakeError::TooManyOptions(128)));
    let limits = HandshakeLimits { output_bytes_max: 200, ..HandshakeLimits::default() };
    let (output, end) = run_in_pieces(limits, &session(1, &[(OPT_LIST, &b""[..]); 9]), usize::MAX);
    assert_eq!(end, Err(HandshakeError::TooMuchOutput));
    assert!(output.len() <= 200);
}

#[test]
fn a_session_cut_at_any_byte_waits_for_more() {
    let set = queries("disk", &["base:allocation"]);
    let go = name_and("disk", b"\0\x01\0\x03");
    let input = session(
        3,
        &[
            (OPT_LIST, b""),
            (99, b"unknown"),
            (OPT_STRUCTURED_REPLY, b""),
            (OPT_SET_META_CONTEXT, &set),
            (OPT_INFO, &go),
            (OPT_GO, &go),
        ],
    );
    let (full, end) = run(&input);
    assert!(matches!(end, Ok((_, Progress::Transmission(_)))));
    for cut in 0..input.len() {
        let (output, end) = run(&input[..cut]);
        assert_eq!(end, Ok((cut, Progress::NeedMore)), "cut at {cut}");
        assert!(full.starts_with(&output), "cut at {cut}");
    }
}
