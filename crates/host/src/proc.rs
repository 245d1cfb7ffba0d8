//! Reading small files of procfs and sysfs.

use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// Returns the text of a file without surrounding white space, or `None` if the file is missing,
/// empty or not readable.
pub(crate) fn read(path: impl AsRef<Path>) -> Option<String> {
    let text = read_lossy(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// Returns the text of a file. Names in it may have any bytes, since every user can name a process
/// or a directory: those that are not UTF-8 become U+FFFD.
pub(crate) fn read_lossy(path: impl AsRef<Path>) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&std::fs::read(path)?).into_owned())
}

/// Returns the paths in a directory; none if it is missing or not readable.
pub(crate) fn entries(directory: impl AsRef<Path>) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path()))
}

/// Returns the names in a directory that are UTF-8.
pub(crate) fn names(directory: impl AsRef<Path>) -> impl Iterator<Item = String> {
    entries(directory).filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
}

/// Returns the path of a descriptor of this process.
pub(crate) fn descriptor(file: &impl AsRawFd) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// Returns the IDs of all processes, in ascending order.
pub(crate) fn pids() -> Vec<u32> {
    let mut pids: Vec<u32> = names("/proc").filter_map(|name| name.parse().ok()).collect();
    pids.sort_unstable();
    pids
}

/// Returns the text after `name` in lines such as `Name:   larder`.
pub(crate) fn text<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

/// Returns the value of `name` in lines such as `MemTotal:   24683644 kB` or `read_bytes: 4096`.
pub(crate) fn field(lines: &str, name: &str) -> Option<u64> {
    text(lines, name)?.split_whitespace().next()?.parse().ok()
}

/// Returns the value of `name` in lines such as `nr_dirty 5`; 0 if it is missing.
pub(crate) fn counter(lines: &str, name: &str) -> u64 {
    let value = lines.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.and_then(|number| number.trim().parse().ok()).unwrap_or(0)
}

/// Reads /proc/meminfo; the function returns the bytes under a name.
pub(crate) fn meminfo() -> impl Fn(&str) -> Option<u64> {
    let text = read("/proc/meminfo").unwrap_or_default();
    move |name| Some(field(&text, name)?.saturating_mul(1024))
}

/// Returns the word in brackets, as in `none [mq-deadline] kyber`, or the whole text if it has
/// none.
pub(crate) fn selected(text: &str) -> &str {
    let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or(text, |(word, _)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "rchar: 1\nread_bytes: 4096\nMemTotal:       24683644 kB\n";
        assert_eq!(field(text, "read_bytes"), Some(4096));
        assert_eq!(field(text, "MemTotal"), Some(24_683_644));
        assert_eq!(field(text, "bytes"), None);
        assert_eq!(field("x: -", "x"), None);
    }

    #[test]
    fn the_word_in_brackets_is_the_one_in_force() {
        assert_eq!(selected("none [mq-deadline] kyber"), "mq-deadline");
        assert_eq!(selected("write back"), "write back");
    }
}
