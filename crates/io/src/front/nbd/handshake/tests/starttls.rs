//! TLS in the handshake: options before it, its start, and the state that it discards.

use super::{exports, kind_of, name_and, run_with_tls, session};
use crate::front::nbd::handshake::{Handshake, HandshakeError, HandshakeLimits, Progress};
use crate::nbd_wire::*;
use crate::tls::TlsMode;

/// Returns the types of all replies.
fn kinds(mut output: &[u8]) -> Vec<u32> {
    let mut kinds = Vec::new();
    while output.len() >= OPTION_REPLY_HEADER_BYTES {
        kinds.push(kind_of(output));
        let len = u32::from_be_bytes(output[16..20].try_into().unwrap());
        output = &output[OPTION_REPLY_HEADER_BYTES + len as usize..];
    }
    kinds
}

fn answers(tls: TlsMode, options: &[(u32, &[u8])]) -> Vec<u32> {
    let input = session(3, options);
    let whole = run_with_tls(HandshakeLimits::default(), tls, &input, usize::MAX);
    let single = run_with_tls(HandshakeLimits::default(), tls, &input, 1);
    assert_eq!(whole, single);
    kinds(&whole.0)
}

#[test]
fn where_tls_is_required_all_else_is_refused_before_it() {
    let go = name_and("disk", &[0, 0]);
    let required = |options: &[(u32, &[u8])]| answers(TlsMode::Required, options);
    for (option, data) in [
        (OPT_LIST, &b""[..]),
        (OPT_GO, &go),
        (OPT_INFO, &go),
        (OPT_STRUCTURED_REPLY, b""),
        (OPT_SET_META_CONTEXT, b"\0\0\0\0\0\0\0\0"),
        (OPT_EXTENDED_HEADERS, b""),
        (999, b"data"),
        // The data of a refused option is ignored.
        (OPT_LIST, b"too long"),
    ] {
        assert_eq!(required(&[(option, data)]), [REP_ERR_TLS_REQD], "option {option}");
        let after = required(&[(OPT_STARTTLS, b""), (option, data)]);
        assert!(after[0] == REP_ACK && !after.contains(&REP_ERR_TLS_REQD), "{option}: {after:?}");
    }
    assert_eq!(required(&[(OPT_ABORT, b"")]), [REP_ACK]);
    assert_eq!(required(&[(OPT_STARTTLS, b"x")]), [REP_ERR_INVALID]);
    let name = session(3, &[(OPT_EXPORT_NAME, b"disk")]);
    let (output, end) = run_with_tls(HandshakeLimits::default(), TlsMode::Required, &name, 1);
    assert_eq!((output, end), (vec![], Err(HandshakeError::TlsRequired)));
    let name = session(3, &[(OPT_STARTTLS, b""), (OPT_EXPORT_NAME, b"disk")]);
    let (_, end) = run_with_tls(HandshakeLimits::default(), TlsMode::Required, &name, 1);
    assert!(matches!(end, Ok((_, Progress::Transmission(_)))), "{end:?}");
}

#[test]
fn tls_begins_once_and_only_where_it_is_there() {
    let twice: &[(u32, &[u8])] = &[(OPT_STARTTLS, b""), (OPT_STARTTLS, b"")];
    assert_eq!(answers(TlsMode::Off, twice), [REP_ERR_UNSUP, REP_ERR_UNSUP]);
    assert_eq!(answers(TlsMode::Allowed, twice), [REP_ACK, REP_ERR_INVALID]);
    assert_eq!(answers(TlsMode::Required, twice), [REP_ACK, REP_ERR_INVALID]);
}

#[test]
fn what_was_agreed_on_in_clear_is_forgotten() {
    let meta = name_and("disk", b"\0\0\0\x01\0\0\0\x0fbase:allocation");
    let go = name_and("disk", &[0, 0]);
    let options: &[(u32, &[u8])] = &[
        (OPT_STRUCTURED_REPLY, b""),
        (OPT_SET_META_CONTEXT, &meta),
        (OPT_STARTTLS, b""),
        (OPT_GO, &go),
    ];
    let input = session(3, options);
    let (_, end) = run_with_tls(HandshakeLimits::default(), TlsMode::Allowed, &input, 5);
    let Ok((_, Progress::Transmission(negotiated))) = end else { panic!("{end:?}") };
    assert!(!negotiated.structured && !negotiated.base_allocation, "{negotiated:?}");
    assert!(negotiated.no_zeroes, "client flags stay");
}

#[test]
fn what_follows_starttls_is_left_for_tls() {
    let mut handshake =
        Handshake::new(&exports(), HandshakeLimits::default()).with_tls(TlsMode::Allowed);
    let options = session(3, &[(OPT_STARTTLS, b"")]);
    let input = [&options[..], b"the first record"].concat();
    let mut output = Vec::new();
    let fed = handshake.feed(&input, &mut output);
    assert_eq!(fed, Ok((options.len(), Progress::StartTls)));
    assert_eq!(kind_of(&output[GREETING_BYTES..]), REP_ACK);
    assert_eq!(handshake.feed(&[], &mut output), Ok((0, Progress::NeedMore)));
}
