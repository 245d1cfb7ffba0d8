//! The policy of a volume as the user has it: one by name, or whichever hits most.

use larder_core::curve::candidates::CANDIDATES;
use larder_core::policy::PolicyKind;
use larder_io::engine::policy_bytes;

/// What `--policy` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PolicyChoice {
    /// This one.
    Fixed(PolicyKind),
    /// The cache chooses, and changes it when another one hits clearly more.
    Auto,
}

impl PolicyChoice {
    /// As it is written on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            PolicyChoice::Fixed(kind) => kind.name(),
            PolicyChoice::Auto => "auto",
        }
    }

    /// The policy that a volume begins with.
    pub(crate) fn first(self) -> PolicyKind {
        match self {
            PolicyChoice::Fixed(kind) => kind,
            PolicyChoice::Auto => CANDIDATES[0],
        }
    }

    /// Bytes for each frame that it may need.
    pub(crate) fn bytes_per_page(self) -> usize {
        policy_bytes(self.first(), self == PolicyChoice::Auto)
    }
}

impl Default for PolicyChoice {
    fn default() -> Self {
        PolicyChoice::Fixed(PolicyKind::S3Fifo)
    }
}
