//! The text of a claim file: the process, its data, and one line per part of the footprint.
//!
//! Another user may have written the file, so every field is checked: malformed numbers and unknown
//! lines are skipped.

use super::footprint::{FootprintPart, FsPath, Node};
use crate::mount_table::unescape;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

const TITLE: &str = "larder-claim 1";

/// A claim, as other processes read it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    /// The process that caches the data.
    pub(crate) pid: u32,
    pub(crate) data: String,
    pub(crate) read_only: bool,
    /// True until the claim has been compared with those of others. It may still be refused.
    pub(crate) pending: bool,
    /// The device number of the file system that the process has mounted for the claim.
    pub(crate) mount: Option<u64>,
    /// The mountpoint of that file system; after an unmount, another mount may get its number.
    pub(crate) at: Option<PathBuf>,
    /// The file systems that were mounted in the claimed directory, each with its device number and
    /// mountpoint; after an unmount, another file system may get the number.
    pub(crate) nested: Vec<(u64, PathBuf)>,
    pub(crate) parts: Vec<FootprintPart>,
}

impl Record {
    pub(crate) fn encode(&self) -> String {
        let mut text = format!("{TITLE}\npid {}\n", self.pid);
        let data = escape(self.data.as_bytes());
        // Writing to a string does not fail.
        let _never_fails = writeln!(text, "what {data}\nread-only {}", self.read_only);
        if self.pending {
            text.push_str("pending true\n");
        }
        if let Some(mount) = self.mount {
            let _never_fails = writeln!(text, "mount {mount}");
        }
        if let Some(at) = &self.at {
            let _never_fails = writeln!(text, "at {}", escape(at.as_os_str().as_bytes()));
        }
        for (filesystem, at) in &self.nested {
            let at = escape(at.as_os_str().as_bytes());
            let _never_fails = writeln!(text, "nested {filesystem} {at}");
        }
        for FootprintPart { node, range, owned } in &self.parts {
            let owned = if *owned { "owned" } else { "within" };
            let (start, end) = (range.start, range.end);
            let _never_fails = match node {
                Node::File((device, inode)) => {
                    writeln!(text, "{owned} file {start} {end} {device} {inode}")
                }
                Node::Disk(number) => writeln!(text, "{owned} disk {start} {end} {number}"),
                Node::SomeDirectory(filesystem) => {
                    writeln!(text, "{owned} filesystem {start} {end} {filesystem}")
                }
                Node::Export(name) => {
                    writeln!(text, "{owned} export {start} {end} {}", escape(name.as_bytes()))
                }
                Node::Directory { fs_path, inode } => {
                    let (filesystem, path) =
                        fs_path.as_ref().map_or(("-".to_owned(), "-".to_owned()), |fs_path| {
                            let path = escape(fs_path.path.as_os_str().as_bytes());
                            (fs_path.filesystem.to_string(), path)
                        });
                    let inode =
                        inode.map_or("-".to_owned(), |(device, inode)| format!("{device} {inode}"));
                    writeln!(text, "{owned} directory {start} {end} {filesystem} {path} {inode}")
                }
            };
        }
        text
    }

    /// Parses a claim; returns `None` if the text is not a claim.
    pub(crate) fn decode(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        lines.next().filter(|line| *line == TITLE)?;
        let mut record = Record::default();
        for line in lines {
            let (key, rest) = line.split_once(' ').unwrap_or((line, ""));
            match key {
                "pid" => record.pid = rest.parse().ok()?,
                "what" => {
                    record.data = String::from_utf8_lossy(&unescape(rest.as_bytes())).into_owned();
                }
                "read-only" => record.read_only = rest == "true",
                "pending" => record.pending = rest == "true",
                "mount" => record.mount = rest.parse().ok(),
                "at" => record.at = Some(path(rest)),
                "nested" => record.nested.extend(
                    rest.split_once(' ')
                        .and_then(|(number, at)| Some((number.parse().ok()?, path(at)))),
                ),
                "owned" | "within" => record.parts.extend(part(key == "owned", rest)),
                _ => {}
            }
        }
        (record.pid != 0).then_some(record)
    }
}

fn path(text: &str) -> PathBuf {
    OsString::from_vec(unescape(text.as_bytes())).into()
}

fn part(owned: bool, text: &str) -> Option<FootprintPart> {
    let words: Vec<_> = text.split(' ').collect();
    let number = |index: usize| words.get(index)?.parse::<u64>().ok();
    let node = match *words.first()? {
        "file" => Node::File((number(3)?, number(4)?)),
        "disk" => Node::Disk(number(3)?),
        "filesystem" => Node::SomeDirectory(number(3)?),
        "export" => Node::Export(String::from_utf8(unescape(words.get(3)?.as_bytes())).ok()?),
        "directory" => {
            let fs_path = number(3).zip(words.get(4));
            let fs_path = fs_path.map(|(filesystem, name)| FsPath { filesystem, path: path(name) });
            Node::Directory { fs_path, inode: number(5).zip(number(6)) }
        }
        _ => return None,
    };
    Some(FootprintPart { node, range: number(1)?..number(2)?, owned })
}

/// Returns bytes as printable characters without spaces.
fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        if byte.is_ascii_graphic() && byte != b'\\' {
            text.push(char::from(byte));
        } else {
            let _never_fails = write!(text, "\\{byte:03o}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let directory = |fs_path, inode| Node::Directory { fs_path, inode };
        let fs_path = FsPath { filesystem: 7, path: "/a b\\c\n\u{e4}".into() };
        let nodes = [
            Node::File((1, 2)),
            directory(Some(fs_path), Some((3, 4))),
            directory(None, Some((3, 4))),
            directory(Some(FsPath { filesystem: 9, path: "/".into() }), None),
            Node::SomeDirectory(5),
            Node::Disk(2049),
            Node::Export("host:1 a\tb".into()),
        ];
        let part =
            |(index, node)| FootprintPart { node, range: 5..u64::MAX, owned: index % 2 == 0 };
        let parts: Vec<_> = nodes.into_iter().enumerate().map(part).collect();
        let data = "the directory /x\u{1b}[2J".to_owned();
        let at = Some(PathBuf::from("/a b"));
        let mount = Some(45);
        for pending in [true, false] {
            let (data, at, parts) = (data.clone(), at.clone(), Vec::clone(&parts));
            let nested = vec![(45, "/x y".into()), (46, "/".into())];
            let record =
                Record { pid: 12, data, read_only: true, pending, mount, at, nested, parts };
            let text = record.encode();
            let is_plain = |byte: u8| byte == b'\n' || byte == b' ' || byte.is_ascii_graphic();
            assert!(text.bytes().all(is_plain));
            assert_eq!(Record::decode(&text), Some(record));
        }
    }

    #[test]
    fn what_is_no_claim_is_left_out() {
        assert_eq!(Record::decode(""), None);
        assert_eq!(Record::decode("larder-claim 1\n"), None, "of no process");
        assert_eq!(Record::decode("something else\npid 1\n"), None);
        let text = "larder-claim 1\npid 3\nowned file 0 x 1 2\nowned\nwithin disk 0 1\nnew thing\n";
        let read = Record::decode(text).unwrap();
        assert!(read.parts.is_empty() && !read.read_only && read.mount.is_none());
    }
}
