//! The layouts of the transmission phase, byte by byte, against proto.md's "Transmission phase".

use super::*;

const COOKIE: u64 = 0x0102_0304_0506_0708;

#[test]
fn request_is_28_bytes_in_the_documented_order() {
    let request = Request {
        flags: CMD_FLAG_FUA,
        command: CMD_WRITE,
        cookie: COOKIE,
        offset: 0x1112_1314_1516_1718,
        len: 0x2122_2324,
    };
    let bytes = request.to_bytes();
    let expected: [u8; 28] = [
        0x25, 0x60, 0x95, 0x13, 0, 1, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0x11, 0x12, 0x13, 0x14, 0x15,
        0x16, 0x17, 0x18, 0x21, 0x22, 0x23, 0x24,
    ];
    assert_eq!(bytes, expected);
    assert_eq!(Request::parse(&bytes).unwrap(), request);
}

#[test]
fn wrong_magic_is_refused_at_each_byte() {
    let good = Request { command: CMD_READ, ..Request::default() }.to_bytes();
    for at in 0..4 {
        let mut bad = good;
        bad[at] ^= 0x40;
        let error = Request::parse(&bad).unwrap_err();
        assert_eq!(error.message, "request");
        assert_eq!(error.expected, u64::from(REQUEST_MAGIC));
    }
    let text = Request::parse(&[0; 28]).unwrap_err().to_string();
    assert_eq!(text, "request starts with 0x0 instead of 0x25609513");
}

#[test]
fn simple_reply_carries_the_error_value() {
    let ok = simple_reply(COOKIE, Ok(()));
    assert_eq!(ok, [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    let bad = simple_reply(COOKIE, Err(Errno::NoSpace));
    assert_eq!(bad[4..8], [0, 0, 0, 28]);
    assert_eq!(parse_simple_reply(&bad).unwrap(), (COOKIE, 28));
    assert!(parse_simple_reply(&[1; 16]).is_err());
}

#[test]
fn chunks_carry_flag_type_length_and_payload() {
    let head = |flags: u8, kind: [u8; 2], len: u8| {
        let mut bytes = vec![0x66, 0x8e, 0x33, 0xef, 0, flags];
        bytes.extend(kind);
        bytes.extend([1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, len]);
        bytes
    };
    assert_eq!(chunk_none(COOKIE).to_vec(), head(1, [0, 0], 0));

    let mut data = head(0, [0, 1], 8 + 5);
    data.extend([0, 0, 0, 1, 0, 0, 0, 2]);
    assert_eq!(chunk_data(COOKIE, false, 0x1_0000_0002, 5).to_vec(), data);

    let mut status = head(1, [0, 5], 4 + 16);
    status.extend([0, 0, 0, 1]);
    assert_eq!(chunk_block_status(COOKIE, true, BASE_ALLOCATION_ID, 2).to_vec(), status);
    assert_eq!(extent(4096, STATE_HOLE | STATE_ZERO), [0, 0, 16, 0, 0, 0, 0, 3]);

    let mut error = head(1, [0x80, 1], 6 + 3);
    error.extend([0, 0, 0, 5, 0, 3]);
    assert_eq!(chunk_error(COOKIE, true, Errno::Io, 3).to_vec(), error);
}

#[test]
fn chunk_header_reads_back() {
    let bytes = chunk_none(COOKIE);
    let chunk = Chunk { flags: CHUNK_FLAG_DONE, kind: CHUNK_NONE, cookie: COOKIE, len: 0 };
    assert_eq!(Chunk::parse(&bytes).unwrap(), chunk);
    assert!(Chunk::parse(&[0; CHUNK_BYTES]).is_err());
}

#[test]
fn errno_is_a_closed_list_both_ways() {
    for code in 0..200 {
        let errno = Errno::from_code(code);
        assert!(errno.code() == code || errno == Errno::Inval, "{code}");
    }
}

#[test]
fn handshake_headers_have_the_documented_bytes() {
    let greeting = ServerGreeting::new(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES);
    assert_eq!(greeting.as_bytes(), b"NBDMAGICIHAVEOPT\0\x03");
    assert_eq!(ServerGreeting::parse(*b"NBDMAGICIHAVEOPT\0\x03").unwrap(), 3);
    assert_eq!(
        ServerGreeting::parse(*b"NBDMAGICIHAVENOT\0\x03").unwrap_err().message,
        "newstyle greeting"
    );
    assert_eq!(OptionHeader::new(OPT_GO, 258).as_bytes(), b"IHAVEOPT\0\0\0\x07\0\0\x01\x02");
    assert_eq!(OptionHeader::parse(*b"IHAVEOPT\0\0\0\x07\0\0\x01\x02").unwrap(), (7, 258));
    let reply = OptionReplyHeader::new(OPT_GO, REP_ERR_UNKNOWN, 1);
    let bytes = *b"\0\x03\xe8\x89\x04\x55\x65\xa9\0\0\0\x07\x80\0\0\x06\0\0\0\x01";
    assert_eq!(reply.as_bytes(), bytes);
    assert_eq!(OptionReplyHeader::parse(bytes).unwrap(), (OPT_GO, REP_ERR_UNKNOWN, 1));
    let export = ExportInfoReply::new(512, 0x105);
    assert_eq!(export.as_bytes(), b"\0\0\0\0\0\0\0\0\x02\0\x01\x05");
    let sizes = BlockSizeReply::new(1, 4096, 1 << 20);
    assert_eq!(sizes.as_bytes(), b"\0\x03\0\0\0\x01\0\0\x10\0\0\x10\0\0");
}
