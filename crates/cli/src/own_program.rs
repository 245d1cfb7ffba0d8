//! The path under which this program starts itself.

use std::io;
use std::path::{Path, PathBuf};

/// Returns a path of this program. If its file was replaced or removed after the start, as by an
/// upgrade, the path is that of the kernel's reference to the file that runs.
pub(crate) fn own_program() -> io::Result<PathBuf> {
    existing_or_running(std::env::current_exe()?)
}

fn existing_or_running(path: PathBuf) -> io::Result<PathBuf> {
    let running = Path::new("/proc/self/exe");
    Ok(if path.try_exists()? { path } else { running.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_whose_file_is_gone_can_still_be_started() {
        let path = own_program().unwrap();
        assert_eq!(existing_or_running(path.clone()).unwrap(), path);
        let gone = existing_or_running(path.with_file_name("larder (deleted)")).unwrap();
        let output = std::process::Command::new(gone).arg("--list").output().unwrap();
        let tests = String::from_utf8(output.stdout).unwrap();
        assert!(tests.contains("a_program_whose_file_is_gone_can_still_be_started"), "{tests}");
    }
}
