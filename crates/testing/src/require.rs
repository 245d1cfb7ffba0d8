//! Requirements of tests on the machine. Unless its comment says otherwise, a function reports a
//! skip if the requirement is missing.

use crate::skip;
use std::fs::OpenOptions;
use std::path::PathBuf;

/// Returns true if the test runs as root.
#[must_use]
pub fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip("needs root");
    }
    is_root
}

/// Returns true if the program is installed.
#[must_use]
pub fn has_tool(program: &str) -> bool {
    let found = find_tool(program).is_some();
    if !found {
        skip(format_args!("{program} is not installed"));
    }
    found
}

/// Returns the path of a program, without a report if it is not installed.
#[must_use]
pub fn find_tool(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|directory| directory.join(program))
        .find(|path| path.is_file())
}

/// Returns true if the test may mount FUSE file systems.
#[must_use]
pub fn can_mount() -> bool {
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    if let Err(error) = &device {
        skip(format_args!("cannot open /dev/fuse: {error}"));
    }
    device.is_ok() && is_root()
}
