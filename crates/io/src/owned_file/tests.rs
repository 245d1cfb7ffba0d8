//! Files, links and pipes of another user, which only root can create, and those of this user.

use super::*;
use larder_testing::is_root;
use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::time::{Duration, Instant};

/// A user that is unrelated to this process.
const OTHER: u32 = 54_321;

fn file(path: &Path, text: &str, mode: u32) {
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn read_text(path: &Path, secrecy: FileReaders) -> Result<String, String> {
    let bytes = read(path, secrecy, 1000).map_err(|error| error.to_string())?;
    Ok(String::from_utf8(bytes).unwrap())
}

fn replace(path: &Path, text: &str) -> Result<(), FileError> {
    let new = Replacement::begin(path, ".part", 0o644)?;
    new.file().write_all(text.as_bytes())?;
    new.finish()
}

#[test]
fn secrets_are_read_only_where_others_may_not_touch_them() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("secret");
    for mode in [0o600, 0o400] {
        file(&path, "secret", mode);
        assert_eq!(read_text(&path, FileReaders::Secret).unwrap(), "secret");
        std::fs::remove_file(&path).unwrap();
    }
    for mode in [0o640, 0o604, 0o620, 0o644, 0o666, 0o610] {
        file(&path, "secret", mode);
        let error = read_text(&path, FileReaders::Secret).unwrap_err();
        assert!(error.contains("other than its owner may use"), "{mode:o}: {error}");
        let public = read_text(&path, FileReaders::Public);
        assert_eq!(public.is_ok(), mode & 0o022 == 0, "{mode:o}: {public:?}");
    }
    file(&path, &"x".repeat(1001), 0o600);
    assert!(read_text(&path, FileReaders::Secret).unwrap_err().contains("longer than 1000"));
    assert!(
        read_text(directory.path(), FileReaders::Secret)
            .unwrap_err()
            .contains("not a regular file")
    );
    assert!(read_text(&directory.path().join("none"), FileReaders::Secret).is_err());
    // Links of this user are followed, as certbot(1) makes them.
    file(&path, "secret", 0o600);
    symlink("secret", directory.path().join("link")).unwrap();
    symlink(directory.path().join("link"), directory.path().join("link to it")).unwrap();
    let found = read_text(&directory.path().join("link to it"), FileReaders::Secret);
    assert_eq!(found.unwrap(), "secret");
    symlink("circle", directory.path().join("circle")).unwrap();
    let circle = read(&directory.path().join("circle"), FileReaders::Secret, 10).unwrap_err();
    assert!(matches!(circle, FileError::System(_)), "{circle}");
}

#[test]
fn a_pipe_is_no_secret_and_nobody_waits_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
    let begun = Instant::now();
    assert!(read_text(&pipe, FileReaders::Secret).unwrap_err().contains("not a regular file"));
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn what_another_user_has_put_there_is_not_followed() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    std::fs::create_dir(at("ours")).unwrap();
    file(&at("ours/victim"), "ours", 0o600);
    file(&at("theirs"), "theirs", 0o600);
    chown(at("theirs"), Some(OTHER), None).unwrap();
    let error = read_text(&at("theirs"), FileReaders::Secret).unwrap_err();
    assert!(error.contains("belongs to uid 54321"), "{error}");
    // A link to a file, to a directory, to nothing, and to a device.
    for (link, target) in [
        ("to file", "ours/victim"),
        ("to directory", "ours"),
        ("to nothing", "ours/new"),
        ("to device", "/dev/full"),
    ] {
        symlink(target, at(link)).unwrap();
        lchown(at(link), Some(OTHER), None).unwrap();
    }
    for name in ["to file", "to directory/victim", "to nothing", "to device"] {
        let path = at(name);
        let refused = |result: Result<(), FileError>| {
            assert!(matches!(result, Err(FileError::ForeignLink { .. })), "{name}: {result:?}");
        };
        refused(read(&path, FileReaders::Secret, 10).map(drop));
        refused(replace(&path, "theirs"));
        refused(create(&path, 0o644).map(drop));
        refused(create_new(&path, 0o644).map(drop));
        refused(open_special(&path).map(drop));
    }
    assert_eq!(std::fs::read_to_string(at("ours/victim")).unwrap(), "ours");
    assert_eq!(std::fs::read_dir(at("ours")).unwrap().count(), 1);
    // A file of another user is replaced, not written into; the new file takes no mode bits from
    // it.
    std::fs::set_permissions(at("theirs"), Permissions::from_mode(0o4777)).unwrap();
    let before = File::open(at("theirs")).unwrap();
    replace(&at("theirs"), "new").unwrap();
    let new = rustix::fs::stat(at("theirs")).unwrap();
    assert_eq!((new.st_uid, new.st_mode & 0o7000), (rustix::process::geteuid().as_raw(), 0));
    assert_eq!(new.st_mode & 0o022, 0);
    let mut old = String::new();
    (&before).read_to_string(&mut old).unwrap();
    assert_eq!(old, "theirs");
    chown(at("theirs"), Some(OTHER), None).unwrap();
    assert!(matches!(create(&at("theirs"), 0o644), Err(FileError::ForeignFile { .. })));
    assert_eq!(std::fs::read_to_string(at("theirs")).unwrap(), "new");
    let pipe = at("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
    chown(&pipe, Some(OTHER), None).unwrap();
    assert!(matches!(open_special(&pipe), Err(FileError::ForeignFile { .. })));
}

#[test]
fn a_replacement_is_whole_or_nothing_and_keeps_links_and_modes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    replace(&path, "one").unwrap();
    file(&path, "one", 0o640);
    symlink("file", directory.path().join("link")).unwrap();
    let unfinished = Replacement::begin(&path, ".part", 0o644).unwrap();
    assert!(unfinished.part().starts_with(directory.path().canonicalize().unwrap()));
    assert!(unfinished.part().is_file());
    replace(&directory.path().join("link"), "two").unwrap();
    drop(unfinished);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "two");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
    assert!(directory.path().join("link").is_symlink());
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2, "nothing is left");
    let replaced = Replacement::begin(directory.path(), "", 0o644);
    assert!(matches!(replaced, Err(FileError::Directory)));
    assert!(Replacement::begin(&directory.path().join("no/file"), "", 0o644).is_err());
    assert!(create_new(&path, 0o644).is_err());
    create(&path, 0o644).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"");
}

#[test]
fn devices_and_open_files_are_written_through_their_names() {
    let directory = tempfile::tempdir().unwrap();
    assert!(open_special(Path::new("/dev/null")).unwrap().is_some());
    assert!(open_special(&directory.path().join("none")).unwrap().is_none());
    let mut open = tempfile::tempfile().unwrap();
    open.write_all(b"before ").unwrap();
    let number = std::os::fd::AsRawFd::as_raw_fd(&open);
    for name in [format!("/dev/fd/{number}"), format!("/proc/self/fd/{number}")] {
        let mut again = open_special(Path::new(&name)).unwrap().expect("an open file");
        again.write_all(b"after ").unwrap();
    }
    let mut text = String::new();
    std::io::Seek::rewind(&mut open).unwrap();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "before after after ");
}

#[test]
fn storage_is_opened_for_direct_reads_only_and_never_through_a_foreign_link() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    file(&at("file"), &"x".repeat(8192), 0o600);
    symlink("file", at("link")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    assert!(matches!(open_direct(directory.path()), Err(FileError::Directory)));
    for other in [at("pipe"), "/dev/null".into()] {
        assert!(matches!(open_direct(&other), Err(FileError::NotStorage)), "{other:?}");
    }
    assert!(matches!(open_direct(&at("none")), Err(FileError::System(_))));
    match open_direct(&at("link")) {
        Ok((mut open, bytes)) => {
            assert_eq!(bytes, 8192);
            let flags = rustix::fs::fcntl_getfl(&open).unwrap();
            assert!(flags.contains(OFlags::DIRECT), "{flags:?}");
            assert!(open.write_all(b"x").is_err());
        }
        Err(FileError::System(error)) if error.kind() == io::ErrorKind::InvalidInput => {
            larder_testing::skip("the file system has no direct I/O");
        }
        Err(error) => panic!("{error}"),
    }
    if is_root() {
        lchown(at("link"), Some(OTHER), None).unwrap();
        assert!(matches!(open_direct(&at("link")), Err(FileError::ForeignLink { .. })));
    }
}
