//! Enumerations whose values have names on the command line, and settings of their types.

use crate::sync::atomic::{AtomicU8, Ordering};
use std::marker::PhantomData;

/// An enumeration of a few values.
pub(crate) trait Named: Copy + PartialEq + 'static {
    /// All values.
    const VALUES: &'static [Self];
}

macro_rules! named {
    ($enum:ident: $($variant:ident = $name:literal),*) => {
        impl $enum {
            /// All values.
            pub const ALL: &'static [$enum] = &[$($enum::$variant),*];

            /// Returns the name on the command line.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $($enum::$variant => $name),* }
            }
        }

        impl $crate::named::Named for $enum {
            const VALUES: &'static [$enum] = $enum::ALL;
        }

        impl std::fmt::Display for $enum {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

pub(crate) use named;

/// A setting that one thread changes while others read it.
#[derive(Debug)]
pub(crate) struct Live<T> {
    /// Index in [`Named::VALUES`].
    index: AtomicU8,
    of: PhantomData<T>,
}

impl<T: Named> Live<T> {
    pub(crate) fn new(value: T) -> Self {
        Live { index: AtomicU8::new(Self::index(value)), of: PhantomData }
    }

    #[inline]
    pub(crate) fn get(&self) -> T {
        T::VALUES[usize::from(self.index.load(Ordering::Acquire))]
    }

    pub(crate) fn set(&self, value: T) {
        self.index.store(Self::index(value), Ordering::Release);
    }

    fn index(value: T) -> u8 {
        let index = T::VALUES.iter().position(|other| *other == value).expect("one of all");
        u8::try_from(index).expect("few values")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mode::WriteMode;

    #[test]
    fn a_setting_has_the_value_that_was_set_last() {
        let live = Live::new(WriteMode::Around);
        assert_eq!(live.get(), WriteMode::Around);
        for &mode in WriteMode::ALL {
            live.set(mode);
            assert_eq!(live.get(), mode);
        }
    }
}
