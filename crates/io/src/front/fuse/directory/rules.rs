//! Rules: options of the files of a directory by their names.
//!
//! Invariant: the first rule whose glob matches a file applies; a file that no rule matches belongs
//! to section 0.

mod glob;

use glob::Glob;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Pages of a file that the kernel caches in addition to Larder's cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KernelPages {
    /// Only those of mappings: Larder's cache holds the only copy of the data in memory.
    #[default]
    Off,
    /// Pages that were read, until the next open of the file.
    Open,
    /// Pages that were read, until the kernel reclaims them or the file changes in the directory.
    Keep,
}

impl KernelPages {
    /// All values.
    pub const ALL: [KernelPages; 3] = [KernelPages::Off, KernelPages::Open, KernelPages::Keep];

    /// Returns its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            KernelPages::Off => "off",
            KernelPages::Open => "open",
            KernelPages::Keep => "keep",
        }
    }

    /// Returns the value of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<KernelPages> {
        KernelPages::ALL.into_iter().find(|pages| pages.name() == name)
    }
}

/// Options of the files of a rule, or of all other files, in addition to those of their volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileOptions {
    /// Pages that the kernel caches.
    pub kernel_pages: KernelPages,
    /// True if the files are not cached, and have no volume.
    pub uncached: bool,
    /// True if an open loads the whole file into the cache and pins it there.
    pub pin: bool,
    /// True if their contents cannot be changed through the mount.
    pub read_only: bool,
}

/// Pattern that selects files of a directory.
#[derive(Clone, Debug)]
pub struct FileGlob {
    text: String,
    glob: Glob,
    /// True if the pattern applies to the path of a file, and not only to its name.
    matches_path: bool,
}

impl FileGlob {
    /// Parses a glob. One without a slash applies to the name of a file in any directory; one with
    /// a slash applies to its path in the directory. `*` and `?` match no slash, `**` does.
    ///
    /// # Errors
    /// If `text` is empty or not a glob; the reason is one sentence.
    pub fn parse(text: &str) -> Result<Self, String> {
        let pattern = text.strip_prefix('/').unwrap_or(text);
        if pattern.is_empty() {
            return Err("it names no files; write a glob such as *.db or logs/**".into());
        }
        let glob = Glob::parse(pattern);
        let glob = glob.map_err(|error| format!("\"{text}\" is not a glob: {error}"))?;
        Ok(FileGlob { text: text.to_owned(), glob, matches_path: text.contains('/') })
    }

    /// Returns the original text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns true if the pattern matches a file with this path relative to the directory.
    #[must_use]
    pub fn matches(&self, path: &Path) -> bool {
        let part = if self.matches_path { Some(path) } else { path.file_name().map(Path::new) };
        part.is_some_and(|part| self.glob.matches(part.as_os_str().as_bytes()))
    }
}

/// A rule.
#[derive(Clone, Debug)]
pub struct FileRule {
    /// Pattern of its files.
    pub glob: FileGlob,
    /// Options of these files.
    pub files: FileOptions,
}

/// The rules of a directory, which assign its files to sections.
#[derive(Debug)]
pub(super) struct Rules {
    globs: Vec<FileGlob>,
    /// A path that leads to the directory by a descriptor.
    directory: String,
}

impl Rules {
    /// Returns the rules of a directory. The path `directory` must lead to it as long as they
    /// exist.
    pub(super) fn new(rules: &[FileRule], directory: String) -> Self {
        Rules { globs: rules.iter().map(|rule| rule.glob.clone()).collect(), directory }
    }

    /// Returns the section of the file that `link` leads to. A file whose path is too long to be
    /// read belongs to section 0.
    pub(super) fn section(&self, link: &str) -> usize {
        self.section_at(link, |inside| {
            // For a file without a name, its last name decides.
            let inside = inside.strip_suffix(b" (deleted)").unwrap_or(inside);
            PathBuf::from(OsStr::from_bytes(inside))
        })
    }

    /// Returns the section of the name `name` in the directory that `link` leads to.
    pub(super) fn section_of_name(&self, link: &str, name: &[u8]) -> usize {
        self.section_at(link, |inside| {
            Path::new(OsStr::from_bytes(inside)).join(OsStr::from_bytes(name))
        })
    }

    /// Returns the section of the path that `path` makes of the one inside of the directory that
    /// `link` leads to.
    fn section_at(&self, link: &str, path: impl FnOnce(&[u8]) -> PathBuf) -> usize {
        if self.globs.is_empty() {
            return 0;
        }
        let read = |link: &str| rustix::fs::readlink(link, Vec::new());
        let (Ok(directory), Ok(file)) = (read(&self.directory), read(link)) else { return 0 };
        let file = file.as_bytes();
        let inside = file.strip_prefix(directory.as_bytes()).unwrap_or(file);
        let path = path(inside.strip_prefix(b"/").unwrap_or(inside));
        self.globs.iter().position(|glob| glob.matches(&path)).map_or(0, |rule| rule + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(glob: &str, path: &str) -> bool {
        FileGlob::parse(glob).unwrap().matches(Path::new(path))
    }

    #[test]
    fn a_glob_is_about_a_name_or_about_a_place() {
        for path in ["a.db", "deep/down/a.db"] {
            assert!(matches("*.db", path), "{path}");
        }
        assert!(!matches("*.db", "a.db-wal") && !matches("*.db", "x.db/file"));
        assert!(matches("logs/*.log", "logs/a.log"));
        assert!(!matches("logs/*.log", "logs/old/a.log"), "a star matches no slash");
        assert!(!matches("logs/*.log", "srv/logs/a.log"), "from the directory on");
        assert!(matches("logs/**", "logs/old/a.log") && matches("**/logs/*", "srv/logs/a"));
        assert!(matches("/top", "top") && !matches("/top", "a/top"));
        assert!(matches("*.{iso,img}", "a/b.img") && matches("[a-c]?", "b1"));
        assert_eq!(FileGlob::parse("/top").unwrap().text(), "/top");
    }

    #[test]
    fn what_is_no_glob_is_refused_with_the_reason() {
        let reason_of = |glob: &str| FileGlob::parse(glob).unwrap_err();
        assert!(reason_of("").contains("names no files"));
        assert!(reason_of("/").contains("names no files"));
        let unclosed = reason_of("a[b");
        assert!(unclosed.starts_with("\"a[b\" is not a glob: "), "{unclosed}");
        assert!(!unclosed.contains('\n'), "one sentence: {unclosed}");
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let rules = ["a/*.db", "*.db", "a/**"].map(|glob| FileRule {
            glob: FileGlob::parse(glob).unwrap(),
            files: FileOptions::default(),
        });
        let link = |path: &Path| {
            let link = root.join(format!("link{}", std::fs::read_dir(&root).unwrap().count()));
            std::os::unix::fs::symlink(path, &link).unwrap();
            link.to_str().unwrap().to_owned()
        };
        let rules = Rules::new(&rules, link(&root));
        let section = |name: &str| rules.section(&link(&root.join(name)));
        assert_eq!(["a/x.db", "x.db", "a/x", "x"].map(section), [1, 2, 3, 0]);
        assert_eq!(section("a/x.db (deleted)"), 1);
        let parent = link(&root.join("a"));
        assert_eq!(rules.section_of_name(&parent, b"x.db"), 1);
        assert_eq!(rules.section_of_name(&link(&root), b"x.db"), 2);
        assert_eq!(Rules::new(&[], "/none".into()).section("/none"), 0);
    }

    #[test]
    fn ways_to_keep_pages_have_names() {
        for pages in KernelPages::ALL {
            assert_eq!(KernelPages::from_name(pages.name()), Some(pages));
        }
        assert_eq!(KernelPages::from_name("on"), None);
    }
}
