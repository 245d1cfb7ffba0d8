//! Classes: the outcome of a request for each page that it references.
//!
//! Each class has a counter, which counts pages. A request keeps the set of the classes of its
//! pages, and traces record the worst of them. Invariant: a class is counted and added to the set
//! in one call, so counters and traces cannot disagree.

use super::{Counter, Recorder};

/// The outcome of one request for one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Read: all its blocks were resident.
    ReadHit,
    /// Read: all its blocks were resident from read-ahead, and this was the first reference.
    ReadAheadHit,
    /// Read: its read-ahead had not completed.
    ReadAheadWait,
    /// Read: some blocks were resident and some not.
    ReadPartialHit,
    /// Read: no block was resident.
    ReadMiss,
    /// Read: served from the store without caching the page.
    ReadBypass,
    /// Write: the page was dirty already.
    WriteAbsorbed,
    /// Write: it made the page dirty.
    WriteNewDirty,
    /// Write: a part of the page had to be read first.
    WritePartial,
    /// Write: it waited for the store.
    WriteThrough,
    /// Write: it went to the store without caching the page.
    WriteBypass,
}

impl Class {
    /// All classes, in the order of their numbers: among reads, and among writes, a later class is
    /// worse.
    pub const ALL: [Class; 11] = [
        Class::ReadHit,
        Class::ReadAheadHit,
        Class::ReadAheadWait,
        Class::ReadPartialHit,
        Class::ReadMiss,
        Class::ReadBypass,
        Class::WriteAbsorbed,
        Class::WriteNewDirty,
        Class::WritePartial,
        Class::WriteThrough,
        Class::WriteBypass,
    ];

    /// Returns its number in traces, from 1 to 31.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Class::ReadHit => 1,
            Class::ReadAheadHit => 2,
            Class::ReadAheadWait => 3,
            Class::ReadPartialHit => 4,
            Class::ReadMiss => 5,
            Class::ReadBypass => 6,
            Class::WriteAbsorbed => 16,
            Class::WriteNewDirty => 17,
            Class::WritePartial => 18,
            Class::WriteThrough => 19,
            Class::WriteBypass => 20,
        }
    }

    /// Returns the class with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Class> {
        Class::ALL.into_iter().find(|class| class.number() == number)
    }

    /// Returns the counter of its pages.
    #[must_use]
    pub fn counter(self) -> Counter {
        match self {
            Class::ReadHit => Counter::ReadHit,
            Class::ReadAheadHit => Counter::ReadAheadHit,
            Class::ReadAheadWait => Counter::ReadAheadWait,
            Class::ReadPartialHit => Counter::ReadPartialHit,
            Class::ReadMiss => Counter::ReadMiss,
            Class::ReadBypass => Counter::ReadBypass,
            Class::WriteAbsorbed => Counter::WriteAbsorbed,
            Class::WriteNewDirty => Counter::WriteNewDirty,
            Class::WritePartial => Counter::WritePartial,
            Class::WriteThrough => Counter::WriteThrough,
            Class::WriteBypass => Counter::WriteBypass,
        }
    }
}

/// The set of the classes of one request's pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Classes(u32);

impl Classes {
    /// Counts a page of this class, and adds the class to the set.
    #[inline]
    pub(crate) fn count(&mut self, recorder: &Recorder, class: Class) {
        recorder.add(class.counter(), 1);
        self.0 |= 1 << class.number();
    }

    /// Adds the classes of another part of the request.
    pub fn add(&mut self, other: Classes) {
        self.0 |= other.0;
    }

    /// Returns the worst class; `None` if the request referenced no page.
    #[must_use]
    pub fn worst(self) -> Option<Class> {
        let number = u8::try_from(self.0.checked_ilog2()?).expect("one of 32");
        Class::from_number(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::Totals;

    #[test]
    fn numbers_grow_and_lead_back() {
        assert!(Class::ALL.is_sorted_by_key(|class| class.number()));
        for class in Class::ALL {
            assert_eq!(Class::from_number(class.number()), Some(class));
        }
        for none in [0, 7, 15, 21, 255] {
            assert_eq!(Class::from_number(none), None, "{none}");
        }
    }

    #[test]
    fn the_worst_class_stands_for_the_request_and_every_page_is_counted() {
        for (i, first) in Class::ALL.into_iter().enumerate() {
            for (j, second) in Class::ALL.into_iter().enumerate() {
                let (recorder, mut one) = (Recorder::default(), Classes::default());
                let mut two = Classes::default();
                assert_eq!(Classes::worst(one), None);
                one.count(&recorder, first);
                two.count(&recorder, second);
                one.add(two);
                assert_eq!(one.worst(), Some(Class::ALL[i.max(j)]));
                let mut totals = Totals::default();
                recorder.add_to(&mut totals);
                let pages = |class: Class| totals.get(class.counter());
                assert_eq!(pages(first) + pages(second), if i == j { 4 } else { 2 });
            }
        }
    }
}
