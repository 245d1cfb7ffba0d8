//! Fuzz targets for FUSE: requests of a kernel to mounts of volumes and of a directory.

use larder_io::front::fuse::fuzzing::{Mount, Sent, handshake};
use larder_io::front::fuse::{DirectoryOptions, FileGlob, FileOptions, FileRule, KernelPages};
use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::time::Duration;

const IN_HEADER_BYTES: usize = 40;
const OUT_HEADER_BYTES: usize = 16;
/// The maximum number of requests of one input.
const REQUESTS_MAX: usize = 16;
/// The maximum size of a request: a socket accepts no more.
const REQUEST_BYTES_MAX: usize = 64 << 10;
/// The opcode of the first request of a connection.
const INIT: u32 = 26;
/// A file system in memory.
const MEMORY: &str = "/dev/shm";

thread_local! {
    // The threads of a mount run until the process ends.
    static VOLUMES: RefCell<ManuallyDrop<Mount>> =
        RefCell::new(ManuallyDrop::new(Mount::of_volumes()));
    static DIRECTORY: RefCell<ManuallyDrop<Directory>> =
        RefCell::new(ManuallyDrop::new(mount_directory()));
}

/// A mounted directory.
struct Directory {
    path: PathBuf,
    mount: Mount,
    /// True if files may have changed since the directory was filled.
    is_changed: bool,
}

/// Returns the 32-bit number at an offset; bytes beyond the end are zeros.
fn number(bytes: &[u8], at: usize) -> u32 {
    let mut four = [0; 4];
    let part = bytes.get(at..).unwrap_or_default();
    let len = part.len().min(4);
    four[..len].copy_from_slice(&part[..len]);
    u32::from_le_bytes(four)
}

/// Returns the requests of an input: each begins with its length.
fn requests(mut input: &[u8]) -> impl Iterator<Item = &[u8]> {
    let requests = std::iter::from_fn(move || {
        let len = usize::try_from(number(input, 0)).unwrap_or(usize::MAX);
        let len = if len < IN_HEADER_BYTES { input.len() } else { len.min(input.len()) };
        let (request, rest) = input.split_at(len);
        input = rest;
        (!request.is_empty()).then_some(request)
    });
    requests.take(REQUESTS_MAX).filter(|request| request.len() <= REQUEST_BYTES_MAX)
}

/// Sends requests to a mount and checks each reply; returns true if files may have changed.
fn send(mount: &mut Mount, input: &[u8]) -> bool {
    let mut is_changed = false;
    for request in requests(input) {
        if number(request, 4) == INIT {
            check_handshake(request);
        }
        let (sent, answers) = mount.exchange(request);
        assert!(answers.len() <= 1, "{sent:?} has {} answers", answers.len());
        let is_done = answers.iter().any(|answer| number(answer, 4) == 0);
        is_changed |= changes(sent.opcode, is_done);
        for answer in answers {
            let unique = u64::from(number(&answer, 8)) | u64::from(number(&answer, 12)) << 32;
            assert_eq!(unique, sent.unique, "the answer is to another request");
            check_answer(&sent, request.len(), &answer);
        }
    }
    is_changed
}

/// Returns true if a request, given its success, may have changed files.
fn changes(opcode: u32, is_done: bool) -> bool {
    match opcode {
        // Setattr, write, fallocate: a failed request may have been performed in part.
        4 | 16 | 43 => true,
        // Names, and extended attributes.
        6 | 8..=13 | 21 | 24 | 35 | 45 | 51 => is_done,
        _ => false,
    }
}

/// Checks the header of a reply, and returns its body if it is not an error.
fn body(answer: &[u8]) -> Option<&[u8]> {
    assert!(answer.len() >= OUT_HEADER_BYTES);
    assert_eq!(number(answer, 0) as usize, answer.len(), "an answer has the length that it says");
    let errno = number(answer, 4).cast_signed();
    assert!((-511..=0).contains(&errno), "the kernel refuses {errno}");
    let body = &answer[OUT_HEADER_BYTES..];
    assert!(errno == 0 || body.is_empty(), "an error has no body");
    (errno == 0).then_some(body)
}

fn check_handshake(request: &[u8]) {
    for answer in handshake(request) {
        let body = body(&answer);
        assert!(body.is_none_or(|body| body.len() == 64), "it agrees on something");
    }
}

/// Checks that the kernel accepts a reply.
fn check_answer(sent: &Sent, request_bytes: usize, answer: &[u8]) {
    let Some(body) = body(answer) else { return };
    let (len, size) = (body.len(), sent.size as usize);
    let is_right = match sent.opcode {
        // Lookup, symlink, mknod, mkdir, link.
        1 | 6 | 8 | 9 | 13 => len == 128,
        // Getattr, setattr.
        3 | 4 => len == 104,
        // Readlink.
        5 => (1..=4096).contains(&len),
        // Open, opendir.
        14 | 27 => len == 16,
        // Read.
        15 => len <= size,
        // Write.
        16 => len == 8 && number(body, 0) as usize <= size.min(request_bytes),
        // Statfs.
        17 => len == 80,
        // Getxattr, listxattr.
        22 | 23 => {
            if size == 0 {
                len == 8
            } else {
                len <= size
            }
        }
        // Readdir, readdirplus.
        28 => len <= size && is_listing(body, 0),
        44 => len <= size && is_listing(body, 128),
        // Create, tmpfile.
        35 | 51 => len == 144,
        // Lseek.
        46 => len == 8,
        // Statx.
        52 => len == 288,
        _ => len == 0,
    };
    assert!(is_right, "{sent:?} is answered with {len} bytes");
}

/// Returns true if a body consists of whole directory entries, each after `before` bytes.
fn is_listing(mut body: &[u8], before: usize) -> bool {
    const HEAD_BYTES: usize = 24;
    while !body.is_empty() {
        let Some(entry) = body.get(before..) else { return false };
        let name = number(entry, 16) as usize;
        let end = (before + HEAD_BYTES + name).next_multiple_of(8);
        let named = entry.get(HEAD_BYTES..HEAD_BYTES + name);
        let is_name = named.is_some_and(|it| !it.is_empty() && !it.contains(&b'/'));
        if !is_name || end > body.len() {
            return false;
        }
        body = &body[end..];
    }
    true
}

/// Sends requests to a mount of volumes.
pub(crate) fn volumes(input: &[u8]) {
    VOLUMES.with_borrow_mut(|mount| {
        send(mount, input);
    });
}

/// Mounts a directory with several file rules, selected by the first letters of the names.
fn mount_directory() -> Directory {
    let directory =
        tempfile::tempdir_in(MEMORY).or_else(|_| tempfile::tempdir()).expect("a directory");
    let path = directory.keep();
    let files = FileOptions::default();
    let rules = [
        ("u*", FileOptions { uncached: true, ..files }),
        ("p*", FileOptions { pin: true, ..files }),
        ("k*", FileOptions { kernel_pages: KernelPages::Keep, ..files }),
        ("r*", FileOptions { read_only: true, ..files }),
    ];
    let rules = rules.map(|(glob, files)| {
        let glob = FileGlob::parse(glob).expect("a glob");
        FileRule { glob, files }
    });
    let options = DirectoryOptions {
        rules: rules.into(),
        ttl: Duration::from_secs(1),
        ..DirectoryOptions::default()
    };
    let mount = Mount::of_directory(&path, options);
    Directory { path, mount, is_changed: true }
}

/// Restores the initial content of the directory.
fn fill(path: &Path) -> std::io::Result<()> {
    for entry in path.read_dir()? {
        let entry = entry?;
        let at = entry.path();
        if entry.file_type()?.is_dir() {
            std::fs::remove_dir_all(at)?;
        } else {
            std::fs::remove_file(at)?;
        }
    }
    std::fs::create_dir(path.join("dir"))?;
    std::fs::write(path.join("dir/inner"), "inside")?;
    std::os::unix::fs::symlink("file", path.join("link"))?;
    for name in ["file", "keep", "pin", "raw", "u"] {
        std::fs::write(path.join(name), [b'x'; 5000])?;
    }
    Ok(())
}

/// Sends requests to a mount of a directory.
pub(crate) fn directory(input: &[u8]) {
    DIRECTORY.with_borrow_mut(|directory| {
        let Directory { path, mount, is_changed } = &mut **directory;
        if *is_changed {
            fill(path).expect("this user may change the directory");
        }
        mount.reset();
        *is_changed = send(mount, input);
    });
}
