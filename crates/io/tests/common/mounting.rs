//! Whether tests that mount can do so.

use std::fs::OpenOptions;

/// Whether anything can be mounted here; says why not.
pub(crate) fn can_mount() -> bool {
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let is_root = rustix::process::geteuid().is_root();
    if let Err(error) = &device {
        eprintln!("skipped: /dev/fuse cannot be opened: {error}");
    } else if !is_root {
        eprintln!("skipped: this user may not mount");
    }
    device.is_ok() && is_root
}
