//! The policy of a volume as the user selects it: a fixed policy, or the one that hits most.

use larder_core::curve::candidates::CANDIDATES;
use larder_core::policy::PolicyKind;
use larder_io::engine::policy_bytes;

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
