//! The policy of a volume as the user selects it: a fixed one, or the one that hits most.

use super::candidates::CANDIDATES;
use crate::policy::PolicyKind;

/// A value of `--policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyChoice {
    /// A policy chosen by the user.
    Fixed(PolicyKind),
    /// The cache chooses a policy, and switches when another one hits clearly more.
    Auto,
}

impl PolicyChoice {
    /// Returns the name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            PolicyChoice::Fixed(kind) => kind.name(),
            PolicyChoice::Auto => "auto",
        }
    }

    /// Returns the initial policy of a volume.
    #[must_use]
    pub fn first(self) -> PolicyKind {
        match self {
            PolicyChoice::Fixed(kind) => kind,
            PolicyChoice::Auto => CANDIDATES[0],
        }
    }

    /// Returns the bytes of policy metadata that each frame may need.
    #[must_use]
    pub fn bytes_per_page(self) -> usize {
        policy_bytes(self.first(), self == PolicyChoice::Auto)
    }
}

impl Default for PolicyChoice {
    fn default() -> Self {
        PolicyChoice::Fixed(PolicyKind::S3Fifo)
    }
}

impl From<PolicyKind> for PolicyChoice {
    fn from(kind: PolicyKind) -> Self {
        PolicyChoice::Fixed(kind)
    }
}

/// Returns the metadata bytes per frame that a policy needs; with `auto`, the maximum over all
/// policies that may replace it.
#[must_use]
pub fn policy_bytes(kind: PolicyKind, auto: bool) -> usize {
    let others = CANDIDATES.iter().filter(|_| auto);
    others.chain([&kind]).map(|kind| kind.bytes_per_page()).max().expect("at least the one")
}
