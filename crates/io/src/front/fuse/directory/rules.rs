//! Rules: how files of a directory are handled, by what they are called.
//!
//! Invariant: the first rule whose glob matches a file decides about it; what no rule matches is of
//! section 0, the rest.

mod glob;

use glob::Glob;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Which pages of a file the kernel keeps beside the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KernelPages {
    /// None but those of mappings: data is in memory once, in the cache.
    #[default]
    Off,
    /// Those that were read, until the file is opened the next time.
    Open,
    /// Those that were read, until the kernel wants their memory or the file changes in the directory.
    Keep,
}

impl KernelPages {
    /// All of them.
    pub const ALL: [KernelPages; 3] = [KernelPages::Off, KernelPages::Open, KernelPages::Keep];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            KernelPages::Off => "off",
            KernelPages::Open => "open",
            KernelPages::Keep => "keep",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<KernelPages> {
        KernelPages::ALL.into_iter().find(|pages| pages.name() == name)
    }
}

/// How the files of a rule, or all others, are handled, beyond what their volume says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileOptions {
    /// Which of their pages the kernel keeps.
    pub kernel_pages: KernelPages,
    /// They are not cached at all, and have no volume.
    pub uncached: bool,
    /// They are in the cache as a whole once they were opened, and stay there.
    pub pin: bool,
    /// Their contents cannot be changed through the mount.
    pub read_only: bool,
}

/// Which files of a directory are meant.
#[derive(Clone, Debug)]
pub struct FileGlob {
    text: String,
    glob: Glob,
    /// Whether it is about where a file is, and not only about its name.
    whole: bool,
}

impl FileGlob {
    /// The glob that `text` is. One without a slash is about the name of a file, whatever
    /// directory it is in; one with a slash about where it is in the directory. `*` and `?` match no
    /// slash, `**` does.
    ///
    /// # Errors
    /// One sentence: it is empty, or no glob.
    pub fn parse(text: &str) -> Result<Self, String> {
        let pattern = text.strip_prefix('/').unwrap_or(text);
        if pattern.is_empty() {
            return Err("it names no files; write a glob such as *.db or logs/**".into());
        }
        let glob = Glob::parse(pattern);
        let glob = glob.map_err(|error| format!("\"{text}\" is not a glob: {error}"))?;
        Ok(FileGlob { text: text.to_owned(), glob, whole: text.contains('/') })
    }

    /// As it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether a file is meant that lies at `path`, seen from the directory.
    #[must_use]
    pub fn matches(&self, path: &Path) -> bool {
        let part = if self.whole { Some(path) } else { path.file_name().map(Path::new) };
        part.is_some_and(|part| self.glob.matches(part.as_os_str().as_bytes()))
    }
}

/// A rule.
#[derive(Clone, Debug)]
pub struct FileRule {
    /// Which files it is about.
    pub glob: FileGlob,
    /// How they are handled.
    pub files: FileOptions,
}

/// The rules of a directory, by which its files are of sections.
#[derive(Debug)]
pub(super) struct Rules {
    globs: Vec<FileGlob>,
    /// A path that leads to the directory by a descriptor.
    directory: String,
}

impl Rules {
    /// Of a directory that `directory` leads to, for as long as they are there.
    pub(super) fn new(rules: &[FileRule], directory: String) -> Self {
        Rules { globs: rules.iter().map(|rule| rule.glob.clone()).collect(), directory }
    }

    /// The section of a file that `link` leads to.
    pub(super) fn section(&self, link: &str) -> usize {
        if self.globs.is_empty() {
            return 0;
        }
        let path = |link: &str| rustix::fs::readlink(link, Vec::new());
        // Where a path is too long to be told, the file is one of the rest.
        let (Ok(directory), Ok(file)) = (path(&self.directory), path(link)) else { return 0 };
        let (directory, file) = (directory.as_bytes(), file.as_bytes());
        // One that has no name any more is what it was called last.
        let file = file.strip_suffix(b" (deleted)").unwrap_or(file);
        let inside = file.strip_prefix(directory).unwrap_or(file);
        let inside = inside.strip_prefix(b"/").unwrap_or(inside);
        self.section_at(Path::new(OsStr::from_bytes(inside)))
    }

    /// The section of what is called `name` in a directory that `link` leads to.
    pub(super) fn section_in(&self, link: &str, name: &[u8]) -> usize {
        if self.globs.is_empty() {
            return 0;
        }
        let path = |link: &str| rustix::fs::readlink(link, Vec::new());
        let (Ok(directory), Ok(parent)) = (path(&self.directory), path(link)) else { return 0 };
        let (directory, parent) = (directory.as_bytes(), parent.as_bytes());
        let inside = parent.strip_prefix(directory).unwrap_or(parent);
        let inside = Path::new(OsStr::from_bytes(inside.strip_prefix(b"/").unwrap_or(inside)));
        self.section_at(&inside.join(OsStr::from_bytes(name)))
    }

    fn section_at(&self, path: &Path) -> usize {
        self.globs.iter().position(|glob| glob.matches(path)).map_or(0, |rule| rule + 1)
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
        let why = |glob: &str| FileGlob::parse(glob).unwrap_err();
        assert!(why("").contains("names no files"));
        assert!(why("/").contains("names no files"));
        let unclosed = why("a[b");
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
        assert_eq!(rules.section_in(&parent, b"x.db"), 1);
        assert_eq!(rules.section_in(&link(&root), b"x.db"), 2);
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
