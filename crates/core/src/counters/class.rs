//! Classes: the outcome of a request for each page that it references.
//!
//! Each class has a counter, which counts pages. A request keeps the set of the classes of its
//! pages, and traces record the worst of them. Invariant: a class is counted and added to the set
//! in one call, so counters and traces cannot disagree.

use super::{Counter, Recorder};

/// Makes the enumeration of the classes. Each has a counter of the same name.
macro_rules! classes {
    ($($(#[$doc:meta])* $class:ident = $number:literal,)*) => {
        /// The outcome of one request for one page.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Class { $($(#[$doc])* $class = $number,)* }

        impl Class {
            /// All classes, in the order of their numbers: among reads, and among writes, a later
            /// class is worse.
            pub const ALL: [Class; [$($number,)*].len()] = [$(Class::$class,)*];

            /// Returns the counter of its pages.
            #[must_use]
            pub fn counter(self) -> Counter {
                match self { $(Class::$class => Counter::$class,)* }
            }
        }
    };
}

classes! {
    /// Read: all its blocks were resident.
    ReadHit = 1,
    /// Read: all its blocks were resident from read-ahead, and this was the first reference.
    ReadAheadHit = 2,
    /// Read: its read-ahead had not completed.
    ReadAheadWait = 3,
    /// Read: some blocks were resident and some not.
    ReadPartialHit = 4,
    /// Read: no block was resident.
    ReadMiss = 5,
    /// Read: served from the store without caching the page.
    ReadBypass = 6,
    /// Write: the page was dirty already.
    WriteAbsorbed = 16,
    /// Write: it made the page dirty.
    WriteNewDirty = 17,
    /// Write: a part of the page had to be read first.
    WritePartial = 18,
    /// Write: it waited for the store.
    WriteThrough = 19,
    /// Write: it went to the store without caching the page.
    WriteBypass = 20,
}

impl Class {
    /// Returns its number in traces, from 1 to 31.
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }

    /// Returns the class with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Class> {
        Class::ALL.into_iter().find(|class| class.number() == number)
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
