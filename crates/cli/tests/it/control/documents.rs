//! The server has the paths that docs/control.md lists.

use super::rig::Server;

#[test]
fn the_paths_in_the_document_are_there() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/control.md");
    let text = std::fs::read_to_string(path).unwrap();
    let server = Server::start(&["one"], &[]);
    let mut paths = 0;
    for line in text.lines() {
        let mut cells = line.split('|').map(str::trim).skip(1);
        let (Some(method @ ("GET" | "POST")), Some(path)) = (cells.next(), cells.next()) else {
            continue;
        };
        let path = path.trim_matches('`');
        // The server checks path and method before it rejects the body.
        let answer = if method == "GET" { server.get(path) } else { server.post(path, "[]") };
        let expected = match (method, path) {
            // This server has no directory.
            (_, "/v1/files") => 404,
            ("GET", _) => 200,
            _ => 400,
        };
        assert_eq!(answer.status, expected, "{method} {path}: {answer:?}");
        paths += 1;
    }
    assert!(paths >= 8, "{paths} paths were tried");
    server.stop();
}
