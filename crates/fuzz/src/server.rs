//! Fuzz targets for `larder serve`: configuration files, and connections of the control interface.

use larder_report::escape;
use larder_schema::control::Refusal;
use larder_server::fuzzing::{Conversation, ValidPlan, converse};
use std::path::Path;

/// The token of the control interface.
const TOKEN: &str = "0123456789abcdef";

/// Reads a configuration file, and checks that its printed form reads back as the same.
pub(crate) fn config(input: &[u8]) {
    let Ok(text) = str::from_utf8(input) else { return };
    // A host name would cause a DNS lookup.
    if text.contains("tcp:") {
        return;
    }
    let read = match ValidPlan::read(text) {
        Ok(read) => read,
        Err(error) => {
            assert!(error.starts_with("use fuzz.toml: "), "{error}");
            assert!(error.len() > "use fuzz.toml: ".len() && !error.contains(escape::is_unsafe));
            return;
        }
    };
    let table: toml::Table = text.parse().expect("an accepted file is TOML");
    let volumes = table
        .get("volume")
        .map_or(&[][..], |volumes| volumes.as_array().expect("volumes are tables of an array"));
    let paths: Vec<_> = read.volumes().map(|(_, path)| path).collect();
    let written = volumes.iter().map(|volume| Path::new(volume["path"].as_str().expect("a path")));
    assert!(paths.iter().copied().eq(written), "{paths:?}");
    let names = volumes.iter().map(|volume| volume.get("name"));
    for ((name, _), written) in read.volumes().zip(names) {
        assert!(written.is_none_or(|written| written.as_str() == Some(name)), "{name}");
    }
    let again = read.to_toml().expect("paths come from a text");
    assert_eq!(ValidPlan::read(&again).as_ref(), Ok(&read), "{again}");
}

/// The maximum number of pieces of a connection: each piece parses the header of a request again.
const PIECES_MAX: usize = 32;

/// Serves a connection, whole and in pieces, and checks the replies.
pub(crate) fn control_api(input: &[u8]) {
    let (first, input) = input.split_first().unwrap_or((&0, &[]));
    let token = (!first.is_multiple_of(2)).then_some(TOKEN);
    let shows_token = input.windows(TOKEN.len()).any(|part| part == TOKEN.as_bytes());
    for piece in [usize::MAX, usize::from(*first).max(input.len() / PIECES_MAX)] {
        let Conversation { output, commands } = converse(input, piece, token);
        assert!(token.is_none() || shows_token || commands == 0, "the token is not shown");
        check_answers(&output, commands);
    }
}

/// Checks that each reply is complete, and that a refusal has a reason.
fn check_answers(output: &[u8], commands: usize) {
    let (mut rest, mut done) = (output, 0);
    while !rest.is_empty() {
        let end = rest.windows(4).position(|part| part == b"\r\n\r\n").expect("a head ends");
        let head = str::from_utf8(&rest[..end]).expect("heads of ours are ASCII");
        rest = &rest[end + 4..];
        if head == "HTTP/1.1 100 Continue" {
            continue;
        }
        let status = head.strip_prefix("HTTP/1.1 ").or(head.strip_prefix("HTTP/1.0 "));
        let status: u16 = status.and_then(|it| it.get(..3)?.parse().ok()).expect("a status");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length = length.map_or(0, |length| length.parse().expect("a number"));
        // A reply to HEAD has the length of a body, but no body.
        let has_body = rest.first().is_some_and(|first| *first == b'{');
        let (body, next) = rest.split_at(if has_body { length } else { 0 });
        rest = next;
        done += usize::from(status == 200);
        if status != 200 && has_body {
            let refusal: Refusal = serde_json::from_slice(body).expect("a refusal");
            assert!(!refusal.error.is_empty());
        }
    }
    assert_eq!(done, commands, "{}", String::from_utf8_lossy(output));
}
