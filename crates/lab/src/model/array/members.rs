//! Sets of members of an array.

use std::fmt;

/// Members of an array, by number.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct MemberSet(u64);

impl MemberSet {
    /// Maximum number of members of an array.
    pub const MAX: u32 = u64::BITS;
    /// No member.
    pub const EMPTY: MemberSet = MemberSet(0);

    /// Returns the set with one more member.
    ///
    /// # Panics
    /// If the number is not below [`MemberSet::MAX`].
    #[must_use]
    pub const fn with(self, member: u32) -> MemberSet {
        assert!(member < MemberSet::MAX, "arrays have at most 64 members");
        MemberSet(self.0 | 1 << member)
    }

    /// Returns true if the set contains a member.
    #[must_use]
    pub const fn contains(self, member: usize) -> bool {
        member < MemberSet::MAX as usize && self.0 >> member & 1 == 1
    }

    /// Returns the number of members.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.0.count_ones()
    }

    /// Returns the members in order.
    pub fn iter(self) -> impl Iterator<Item = u32> {
        (0..MemberSet::MAX).filter(move |member| self.0 >> member & 1 == 1)
    }
}

impl FromIterator<u32> for MemberSet {
    fn from_iter<I: IntoIterator<Item = u32>>(members: I) -> Self {
        members.into_iter().fold(MemberSet::EMPTY, MemberSet::with)
    }
}

/// The numbers with `+` between them, as in specifications.
impl fmt::Display for MemberSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, member) in self.iter().enumerate() {
            let separator = if index == 0 { "" } else { "+" };
            write!(f, "{separator}{member}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for MemberSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}
