//! Direct I/O and file handles: a mount refuses the same requests as SOURCE's file system, and has
//! no file handles.

use super::restrictions::Mounted;
use super::{Aligned, Service, Setting, can_mount};
use larder_testing::skip;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use std::fs;
use std::path::Path;

/// Returns the results of reads and writes at various offsets, of various lengths.
fn transfers(path: &Path) -> Vec<String> {
    fs::write(path, vec![1; 20_000]).expect("room");
    let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => file,
        Err(error) => return vec![format!("{error:?}")],
    };
    let mut buffer = Box::new(Aligned([7; 16_384]));
    let mut results = Vec::new();
    for at in [0, 1, 100, 512, 4096, 4608, 19_968, 20_000, 20_480, 30_000] {
        for len in [1, 100, 511, 512, 513, 4096, 4608, 8192, 16_384] {
            let read = rustix::io::pread(&file, &mut buffer.0[..len], at);
            results.push(format!("read {len} at {at}: {read:?}"));
        }
    }
    for at in [0, 1, 100, 512, 4096, 4608] {
        for len in [1, 100, 512, 513, 4096, 4608, 8192] {
            let written = rustix::io::pwrite(&file, &buffer.0[..len], at);
            results.push(format!("write {len} at {at}: {written:?}"));
        }
    }
    results
}

#[test]
fn direct_io_must_be_aligned_as_on_the_directory() {
    if !can_mount() {
        return;
    }
    let source = tempfile::tempdir().expect("a directory");
    let expected = transfers(&source.path().join("f"));
    let service = Service::over(source, Setting::default());
    assert_eq!(transfers(&service.path("f")), expected);
    service.end();
}

#[test]
fn direct_io_on_what_takes_anything_takes_anything() {
    if !can_mount() {
        return;
    }
    let source = tempfile::tempdir().expect("a directory");
    let mounted = Mounted::new(source.path(), MountFlags::empty());
    let expected = transfers(&source.path().join("f"));
    let service = Service::over(source, Setting::default());
    let found = transfers(&service.path("f"));
    let source = service.end();
    drop((mounted, source));
    if expected.len() > 1 {
        assert_eq!(found, expected);
    }
}

/// Requests the handle of a file; returns the error, if any.
fn handle_error(path: &Path) -> Option<Errno> {
    #[repr(C)]
    struct Handle {
        bytes: u32,
        kind: i32,
        data: [u8; 128],
    }
    let path = std::ffi::CString::new(path.to_str().expect("text")).expect("no zero in it");
    let mut handle = Handle { bytes: 128, kind: 0, data: [0; 128] };
    let mut mount = 0_i32;
    let (to, id) = (std::ptr::from_mut(&mut handle), std::ptr::from_mut(&mut mount));
    // SAFETY: the path ends in a zero, and the buffer is as long as the header says.
    let got = unsafe {
        libc::syscall(libc::SYS_name_to_handle_at, libc::AT_FDCWD, path.as_ptr(), to, id, 0)
    };
    (got != 0).then(|| {
        let error = std::io::Error::last_os_error();
        Errno::from_io_error(&error).expect("of the kernel")
    })
}

#[test]
fn no_handle_is_given_that_would_lead_to_nothing() {
    if !can_mount() {
        return;
    }
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut words = release.split(['.', '-']).map(|word| word.parse().unwrap_or(0));
    let version = (words.next().unwrap_or(0), words.next().unwrap_or(0));
    if version < (6, 9) {
        skip("file handles cannot be switched off before Linux 6.9");
        return;
    }
    let service = Service::new(Setting::default());
    fs::write(service.path("f"), "x").expect("room");
    assert_eq!(handle_error(&service.behind("f")), None, "the directory has them");
    assert_eq!(handle_error(&service.path("f")), Some(Errno::OPNOTSUPP));
    assert_eq!(handle_error(service.at.path()), Some(Errno::OPNOTSUPP));
    service.end();
}
