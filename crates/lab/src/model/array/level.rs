//! The levels of arrays.

/// The way in which an array distributes its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayLevel {
    /// One member after the other.
    Linear,
    /// Level 0: chunks in turn, without redundancy.
    Stripe,
    /// Level 1: all data on every member.
    Mirror,
    /// Level 5: chunks in turn, with one parity chunk for each stripe.
    Parity,
    /// Level 6: chunks in turn, with two parity chunks for each stripe.
    DoubleParity,
    /// Level 10: chunks in turn, each on two members (near copies).
    StripedMirrors,
    /// Level 10 with far copies: a stripe over the first half of all members, and its copies,
    /// moved by one member, over the second.
    FarMirrors,
    /// Level 10 with offset copies: after each row of chunks follows its copy, moved by one member.
    OffsetMirrors,
}

impl ArrayLevel {
    /// All levels.
    pub const ALL: [ArrayLevel; 8] = [
        ArrayLevel::Linear,
        ArrayLevel::Stripe,
        ArrayLevel::Mirror,
        ArrayLevel::Parity,
        ArrayLevel::DoubleParity,
        ArrayLevel::StripedMirrors,
        ArrayLevel::FarMirrors,
        ArrayLevel::OffsetMirrors,
    ];

    /// Returns the name in specifications.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            ArrayLevel::Linear => "linear",
            ArrayLevel::Stripe => "raid0",
            ArrayLevel::Mirror => "raid1",
            ArrayLevel::Parity => "raid5",
            ArrayLevel::DoubleParity => "raid6",
            ArrayLevel::StripedMirrors => "raid10",
            ArrayLevel::FarMirrors => "raid10-far",
            ArrayLevel::OffsetMirrors => "raid10-offset",
        }
    }

    /// Returns the minimum number of members.
    #[must_use]
    pub const fn members_min(self) -> u32 {
        match self {
            ArrayLevel::Linear => 1,
            ArrayLevel::Parity => 3,
            ArrayLevel::DoubleParity => 4,
            _ => 2,
        }
    }

    /// Returns the number of parity chunks in a stripe.
    pub(super) const fn parities(self) -> u64 {
        match self {
            ArrayLevel::Parity => 1,
            ArrayLevel::DoubleParity => 2,
            _ => 0,
        }
    }
}
