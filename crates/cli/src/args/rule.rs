//! Rules of `larder mount`: a file glob, and the options of the files that match.

use super::{NamedValue, bytes, named, page_blocks, unknown};
use larder_core::hint::Hint;
use larder_core::mode::WriteMode;
use larder_io::front::fuse::{FileGlob, FileOptions, FileRule, KernelPages};

/// Prefix of the word that selects the page cache mode of the kernel.
const KERNEL_PAGES: &str = "kernel-pages=";
const PIN: &str = "pin";
const NO_CACHE: &str = "no-cache";

/// A parsed rule.
#[derive(Clone, Debug)]
pub(crate) struct RuleArgument {
    pub(crate) rule: FileRule,
    pub(crate) hint: Option<Hint>,
    pub(crate) write_mode: Option<WriteMode>,
    pub(crate) page_blocks: Option<u32>,
}

/// Sets an option; refuses a second value.
fn set<T>(slot: &mut Option<T>, value: T, option: &str) -> Result<(), String> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(format!("it is the second {option}")),
    }
}

/// Parses `GLOB=WORD,...`, each word a hint, a write mode, a page size, `pin`, `no-cache` or
/// `kernel-pages=...`; every word is optional.
pub(crate) fn rule(text: &str) -> Result<RuleArgument, String> {
    let (glob, words) = text.split_once('=').ok_or(
        "write it as GLOB=hint,mode,page-size,pin,no-cache,kernel-pages=off|open|keep, of which \
         all may be left out",
    )?;
    let rule = FileRule { glob: FileGlob::parse(glob)?, files: FileOptions::default() };
    let mut found = RuleArgument { rule, hint: None, write_mode: None, page_blocks: None };
    let mut kernel_pages = None;
    for (index, word) in words.split(',').map(str::trim).enumerate() {
        let with_position =
            |reason| format!("in \"{text}\", word {}, \"{word}\": {reason}", index + 1);
        found.parse_word(word, &mut kernel_pages).map_err(with_position)?;
    }
    found.rule.files.kernel_pages = kernel_pages.unwrap_or_default();
    found.check(kernel_pages.is_some()).map_err(|reason| format!("in \"{text}\": {reason}"))?;
    Ok(found)
}

impl RuleArgument {
    fn parse_word(
        &mut self,
        word: &str,
        kernel_pages: &mut Option<KernelPages>,
    ) -> Result<(), String> {
        let files = &mut self.rule.files;
        if word.is_empty() {
            return Ok(());
        }
        if word == PIN {
            files.pin = true;
        } else if word == NO_CACHE {
            files.uncached = true;
        } else if let Some(name) = word.strip_prefix(KERNEL_PAGES) {
            let pages = KernelPages::from_name(name);
            let pages = pages.ok_or_else(|| {
                let names = KernelPages::ALL.map(KernelPages::name).join(", ");
                format!("the kernel keeps pages in one of these ways: {names}")
            })?;
            set(kernel_pages, pages, "way to keep pages")?;
        } else if let Ok(hint) = named::<Hint>(word) {
            set(&mut self.hint, hint, "hint")?;
        } else if let Ok(mode) = named::<WriteMode>(word) {
            set(&mut self.write_mode, mode, "write mode")?;
            files.read_only = mode == WriteMode::ReadOnly;
        } else if word.starts_with(|first: char| first.is_ascii_digit()) {
            bytes(word)?;
            set(&mut self.page_blocks, page_blocks(word)?, "page size")?;
        } else {
            let (hints, modes) = (Hint::names(), WriteMode::names());
            let pages = KernelPages::ALL.map(KernelPages::name).join("|");
            let pages = format!("{KERNEL_PAGES}{pages}");
            let others = [PIN, NO_CACHE, &pages, "64KiB"];
            return Err(unknown("rule option", word, hints.into_iter().chain(modes).chain(others)));
        }
        Ok(())
    }

    /// Refuses combinations of words that exclude each other.
    fn check(&self, has_kernel_pages: bool) -> Result<(), String> {
        let is_cached = self.hint.is_some()
            || self.page_blocks.is_some()
            || self.rule.files.pin
            || has_kernel_pages
            || self.write_mode.is_some_and(|mode| mode != WriteMode::ReadOnly);
        if self.rule.files.uncached && is_cached {
            return Err("no-cache goes with nothing but read-only".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_may_be_left_out_and_stands_anywhere() {
        let all = rule("*.db=random,through,64KiB,pin,kernel-pages=keep").unwrap();
        assert_eq!(all.rule.glob.text(), "*.db");
        assert_eq!((all.hint, all.write_mode), (Some(Hint::Random), Some(WriteMode::Through)));
        assert_eq!(all.page_blocks, Some(16));
        let files = all.rule.files;
        assert!(files.pin && !files.uncached && !files.read_only);
        assert_eq!(files.kernel_pages, KernelPages::Keep);
        let reordered = rule("*.db=pin, 64KiB,,through,random").unwrap();
        assert_eq!((reordered.hint, reordered.page_blocks), (all.hint, all.page_blocks));
        let none = rule("logs/**=").unwrap();
        assert_eq!((none.hint, none.write_mode, none.page_blocks), (None, None, None));
        assert_eq!(none.rule.files, FileOptions::default());
        let fixed = rule("*.iso=no-cache,read-only").unwrap().rule.files;
        assert!(fixed.uncached && fixed.read_only);
    }

    #[test]
    fn a_wrong_rule_is_refused_with_place_and_reason() {
        let error = |text: &str| rule(text).unwrap_err();
        assert!(error("*.db").starts_with("write it as GLOB="));
        assert!(error("=pin").contains("names no files"));
        assert!(error("a[=pin").contains("is not a glob"));
        let word = error("*.db=random,seqential");
        assert_eq!(
            word,
            "in \"*.db=random,seqential\", word 2, \"seqential\": there is no rule option \
             \"seqential\"; did you mean \"sequential\"?"
        );
        assert!(error("x=random,normal").ends_with("\"normal\": it is the second hint"));
        assert!(error("x=back,around").ends_with("it is the second write mode"));
        assert!(error("x=4KiB,8KiB").ends_with("it is the second page size"));
        assert!(error("x=12KiB").contains("write a power of two"));
        assert!(error("x=12parsecs").contains("is not a size"));
        assert!(error("x=kernel-pages=some").ends_with("ways: off, open, keep"));
        let both = "in \"x=no-cache,pin\": no-cache goes with nothing but read-only";
        assert_eq!(error("x=no-cache,pin"), both);
        assert!(error("x=no-cache,back").ends_with("read-only"));
    }
}
