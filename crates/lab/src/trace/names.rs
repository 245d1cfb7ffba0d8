//! The names of volumes, files and processes of one trace.
//!
//! Invariant: memory is bounded. A trace with more than [`NAMES_MAX`] names, or more than
//! [`BYTES_MAX`] bytes of names, keeps its records; a volume, file or process whose name
//! does not fit gets the number 0.

use super::NameKind;
use std::collections::HashMap;

/// Maximum number of names of one kind.
const NAMES_MAX: usize = 1 << 20;
/// Maximum bytes of names of one kind.
const BYTES_MAX: usize = 64 << 20;
/// Maximum length of a name; longer ones are truncated.
pub(super) const NAME_BYTES_MAX: usize = 4096;

/// Names of one kind, numbered in the order of their first use.
#[derive(Debug)]
pub(super) struct Names {
    /// Number of the first name: 1 if 0 means "not known".
    base: u32,
    numbers: HashMap<Box<[u8]>, u32>,
    /// Name by number minus base; `None` for a number without a name.
    list: Vec<Option<Box<str>>>,
    bytes: usize,
    lost: u64,
    /// The key of the last lookup: requests of one volume, file or process often follow each other.
    last: Option<(Box<[u8]>, u32)>,
}

impl Names {
    fn new(base: u32) -> Self {
        let (numbers, list) = (HashMap::new(), Vec::new());
        Names { base, numbers, list, bytes: 0, lost: 0, last: None }
    }

    /// Returns the number of `key`; a new one gets the key as its name.
    pub(super) fn number(&mut self, key: &[u8]) -> u32 {
        self.number_with_name(key, |key| String::from_utf8_lossy(key).into_owned())
    }

    /// Returns the number of `key`; a new one gets the name that `name` derives from the key.
    pub(super) fn number_with_name(&mut self, key: &[u8], name: impl Fn(&[u8]) -> String) -> u32 {
        let key = &key[..key.len().min(NAME_BYTES_MAX)];
        if let Some((last, number)) = &self.last
            && **last == *key
        {
            return *number;
        }
        let number = match self.numbers.get(key) {
            Some(&number) => number,
            None => match self.add(key, &name(key)) {
                Some(number) => number,
                None => return 0,
            },
        };
        self.last = Some((key.into(), number));
        number
    }

    fn add(&mut self, key: &[u8], name: &str) -> Option<u32> {
        let number = u32::try_from(self.list.len()).ok()?.checked_add(self.base)?;
        if self.list.len() >= NAMES_MAX || self.bytes + name.len() > BYTES_MAX {
            self.lost += 1;
            return None;
        }
        self.numbers.insert(key.into(), number);
        self.list.push(Some(name.into()));
        self.bytes += name.len();
        Some(number)
    }

    /// Assigns a name to a number, for files that store numbers. Returns false if it does not fit;
    /// [`AllNames::note`] reports it.
    pub(super) fn set(&mut self, number: u32, name: &str) -> bool {
        let Some(index) = number.checked_sub(self.base).and_then(|n| usize::try_from(n).ok())
        else {
            return false;
        };
        if self.get(number) == Some(name) {
            return true;
        }
        if index >= NAMES_MAX || self.bytes + name.len() > BYTES_MAX {
            self.lost += 1;
            return false;
        }
        if self.list.len() <= index {
            self.list.resize(index + 1, None);
        }
        self.bytes += name.len();
        if let Some(old) = self.list[index].replace(name.into()) {
            self.bytes -= old.len();
        }
        true
    }

    fn get(&self, number: u32) -> Option<&str> {
        let index = usize::try_from(number.checked_sub(self.base)?).ok()?;
        self.list.get(index)?.as_deref()
    }
}

/// The names of all three kinds.
#[derive(Debug)]
pub(super) struct AllNames {
    pub(super) volumes: Names,
    pub(super) files: Names,
    pub(super) processes: Names,
}

impl AllNames {
    pub(super) fn new() -> Self {
        AllNames { volumes: Names::new(0), files: Names::new(1), processes: Names::new(1) }
    }

    pub(super) fn of_kind(&mut self, kind: NameKind) -> &mut Names {
        match kind {
            NameKind::Volume => &mut self.volumes,
            NameKind::File => &mut self.files,
            NameKind::Process => &mut self.processes,
        }
    }

    pub(super) fn get(&self, kind: NameKind, number: u32) -> Option<&str> {
        match kind {
            NameKind::Volume => self.volumes.get(number),
            NameKind::File => self.files.get(number),
            NameKind::Process => self.processes.get(number),
        }
    }

    /// Returns a note for the user if names were lost.
    pub(super) fn note(&self) -> Option<String> {
        let lost = self.volumes.lost + self.files.lost + self.processes.lost;
        (lost > 0).then(|| {
            format!("{lost} requests name more volumes, files or processes than are kept apart")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_numbered_in_order_and_found_again() {
        let mut names = AllNames::new();
        assert_eq!([b"b", b"a", b"b"].map(|key| names.volumes.number(key)), [0, 1, 0]);
        assert_eq!(names.files.number(b"f"), 1, "0 stands for not known");
        assert_eq!(names.get(NameKind::Volume, 1), Some("a"));
        assert_eq!(names.get(NameKind::File, 0), None);
        assert!(names.processes.set(5, "p"));
        assert!(!names.processes.set(0, "unnamed"));
        assert_eq!(names.get(NameKind::Process, 5), Some("p"));
        assert_eq!(names.get(NameKind::Process, 4), None);
    }

    #[test]
    fn a_number_far_away_allocates_nothing() {
        let mut names = AllNames::new();
        assert!(!names.files.set(u32::MAX, "far"));
        assert!(names.note().is_some());
    }
}
