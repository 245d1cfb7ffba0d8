//! Images that are cut, full or deleted while they are served.

use super::rig::{MIB, Server};
use std::fs::File;

#[test]
fn the_log_says_once_that_a_store_cannot_be_written_to_and_that_it_can_again() {
    let mut server = Server::start(&["cut"], &["--set", "first-delay=10"]);
    let cut = File::options().write(true).open(server.path("cut.img")).expect("it is there");
    cut.set_len(MIB).expect("it is cut");
    server.client(0).write_at(8 * MIB, &[7; 16_384], false).expect("it is accepted");
    let said = server.hear(|line| line.contains("WARN"));
    assert!(said.contains("stays in memory") && said.contains("cut.img"), "{said}");
    let at_risk = server.ctl(&["at-risk"]);
    assert_eq!(at_risk.status.code(), Some(1), "{at_risk:?}");
    cut.set_len(16 * MIB).expect("it is long again");
    let said = server.hear(|line| line.contains("WARN"));
    assert!(said.contains("can be written to again"), "{said}");
    server.stop();
}
