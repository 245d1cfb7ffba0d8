//! Warm restarts: the server reads cached data back after a stop and after a kill. It reports a
//! list that it cannot use, and serves the volume cold.

use super::rig::{MIB, Server, eventually, images, larder, text};
use larder_io::warm_list::{self, StoreIdentity};
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

const BLOCK: usize = 4096;

/// Returns the blocks that clients read: spread over the volume, some of them adjacent.
fn hot_blocks() -> impl Iterator<Item = u64> {
    (0..512_u64).map(|i| i / 4 * 32 + i % 4)
}

/// Creates a directory with an image, each block of which holds its own number, and with a
/// directory for lists.
fn data() -> TempDir {
    let directory = TempDir::new().unwrap();
    images(directory.path(), &["one"]);
    let bytes: Vec<_> = (0..16 * MIB / BLOCK as u64)
        .flat_map(|block| block.to_le_bytes().into_iter().cycle().take(BLOCK))
        .collect();
    std::fs::write(directory.path().join("one.img"), bytes).unwrap();
    std::fs::create_dir(directory.path().join("lists")).unwrap();
    directory
}

fn command(data: &Path, directory: &TempDir, options: &[&str]) -> Command {
    let mut command = larder();
    command.arg("serve").arg(data.join("one.img")).args(["--memory", "16MiB", "--listen"]);
    command.arg(format!("unix:{}", directory.path().join("nbd.sock").display())).args(options);
    command
}

/// Serves the image, with lists saved at this interval.
fn serve(data: &TempDir, save_interval: &str) -> Server {
    let directory = TempDir::new().unwrap();
    let mut command =
        command(data.path(), &directory, &["--warm-list-every", save_interval, "--warm-list"]);
    command.arg(data.path().join("lists"));
    Server::spawn(directory, command, 1)
}

/// Reads all hot blocks and checks their content.
fn read_hot(server: &Server) {
    let mut client = server.client(0);
    for block in hot_blocks() {
        let mut read = [0; BLOCK];
        client.read_at(block * BLOCK as u64, &mut read).unwrap();
        assert_eq!(read[BLOCK - 8..], block.to_le_bytes());
    }
}

fn number(server: &Server, kind: &str, name: &str) -> u64 {
    server.get("/v1/stats").json()["volumes"][0][kind][name].as_u64().unwrap()
}

fn resident_blocks(server: &Server) -> u64 {
    number(server, "gauges", "resident_bytes") / BLOCK as u64
}

/// Waits until everything is read back, then checks that all hot blocks hit.
fn check_warm(server: &Server, data: &TempDir) {
    // Read-ahead may make more than the hot set resident, and the last reads may still be in flight
    // when `warming_bytes` is 0.
    let expected: u64 = load_list(data).unwrap().iter().map(|range| range.end - range.start).sum();
    eventually("what was cached is read back", || {
        let volume = &server.get("/v1/volumes").json()["volumes"][0];
        volume["warming_bytes"] == 0 && resident_blocks(server) >= expected.max(512)
    });
    let misses = number(server, "counters", "read_miss_pages");
    read_hot(server);
    assert_eq!(number(server, "counters", "read_miss_pages"), misses);
}

#[test]
fn what_was_cached_is_read_back_after_a_stop() {
    let data = data();
    let server = serve(&data, "off");
    read_hot(&server);
    server.client(0).write_at(0, &0_u64.to_le_bytes(), false).unwrap();
    assert!(!data.path().join("lists/one.warm").exists(), "it is saved at the end only");
    server.stop();
    for _ in 0..3 {
        let server = serve(&data, "off");
        check_warm(&server, &data);
        let log = server.stop();
        assert!(!log.contains("cold"), "{log}");
    }
}

/// Returns the ranges of the list, or `None` if there is no list or it is about another image.
fn load_list(data: &TempDir) -> Option<Vec<Range<u64>>> {
    let image = StoreIdentity::of_path(&data.path().join("one.img"), 16 * MIB).unwrap();
    warm_list::load(&data.path().join("lists/one.warm"), &image, usize::MAX).unwrap()
}

#[test]
fn after_a_kill_the_last_list_is_used() {
    let data = data();
    let server = serve(&data, "20ms");
    read_hot(&server);
    server.client(0).write_at(0, &0_u64.to_le_bytes(), false).unwrap();
    eventually("all that is hot is listed", || {
        let ranges = load_list(&data).unwrap_or_default();
        hot_blocks().all(|block| ranges.iter().any(|range| range.contains(&block)))
    });
    drop(server);
    for _ in 0..2 {
        let server = serve(&data, "off");
        check_warm(&server, &data);
        drop(server);
    }
}

#[test]
fn a_list_of_no_use_is_said_and_the_volume_is_served_cold() {
    let data = data();
    let server = serve(&data, "off");
    read_hot(&server);
    server.stop();
    let (list, image) = (data.path().join("lists/one.warm"), data.path().join("one.img"));
    let whole = std::fs::read(&list).unwrap();
    let check_cold = |reason: &str| {
        let mut server = serve(&data, "off");
        let note = server.wait_for_line(|line| line.contains("cold"));
        let prefix = "larder: note: one starts cold: cannot use the list ";
        assert!(note.starts_with(prefix) && note.ends_with(reason), "{note}");
        assert_eq!(resident_blocks(&server), 0);
        drop(server);
        std::fs::write(&list, &whole).unwrap();
    };
    let mut damaged = whole.clone();
    *damaged.last_mut().unwrap() ^= 1;
    std::fs::write(&list, damaged).unwrap();
    check_cold("it is damaged: its checksum is wrong");
    std::fs::write(&list, &whole[..20]).unwrap();
    check_cold("it is damaged: it is cut short");
    std::fs::write(&list, "something else").unwrap();
    check_cold("it is not a list of resident blocks");
    let mut newer = whole.clone();
    newer[8] = 7;
    std::fs::write(&list, newer).unwrap();
    check_cold("its version is 7, and 1 is the latest known here");
    let file = std::fs::File::options().write(true).open(&image).unwrap();
    let original = file.metadata().unwrap().modified().unwrap();
    file.set_modified(SystemTime::now() + Duration::from_secs(7)).unwrap();
    check_cold("it is stale: the file was changed by others since");
    file.set_modified(original).unwrap();
    file.set_len(17 * MIB).unwrap();
    file.set_modified(original).unwrap();
    check_cold("it is stale: the store was 16777216 bytes long and now is 17825792");
    file.set_len(16 * MIB).unwrap();
    file.set_modified(original).unwrap();
    let server = serve(&data, "off");
    check_warm(&server, &data);
    server.stop();
}

#[test]
fn lists_are_kept_where_it_was_said_and_nowhere_else() {
    let data = data();
    let start = |options: &[&str]| {
        let directory = TempDir::new().unwrap();
        let mut command = command(data.path(), &directory, options);
        command.env("STATE_DIRECTORY", data.path().join("lists"));
        let server = Server::spawn(directory, command, 1);
        read_hot(&server);
        server.stop();
        data.path().join("lists/one.warm").exists()
    };
    assert!(!start(&["--warm-list", "none"]));
    assert!(start(&[]), "the directory for state that the service manager gives");
    let nowhere = data.path().join("nowhere").display().to_string();
    for (path, reason) in [
        (nowhere.as_str(), "there is no such directory; create it first"),
        (&data.path().join("one.img").display().to_string(), "it is not a directory"),
    ] {
        let directory = TempDir::new().unwrap();
        let mut command = command(data.path(), &directory, &["--warm-list", path]);
        let output = command.output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        let prefix = format!("larder: cannot keep warm lists in {path}: {reason}");
        assert!(stderr.starts_with(&prefix), "{stderr}");
    }
}

#[test]
fn a_volume_that_goes_and_comes_back_is_warm() {
    let data = data();
    let server = serve(&data, "off");
    read_hot(&server);
    eventually("no client is connected", || server.ctl(&["remove", "one"]).status.success());
    let image = data.path().join("one.img").display().to_string();
    server.ctl_text(&["add", &image]);
    check_warm(&server, &data);
    server.stop();
}
