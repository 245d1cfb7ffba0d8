//! The list of the policies and their names.

use super::Policy;
use super::arc::Arc;
use super::clock::Clock;
use super::clock2q_plus::Clock2QPlus;
use super::fifo::Fifo;
use super::linux::Linux;
use super::lirs::Lirs;
use super::lru::Lru;
use super::random::Random;
use super::s3fifo::S3Fifo;
use super::sieve::Sieve;
use super::slru::Slru;
use super::two_q::TwoQ;
use super::wtinylfu::WTinyLfu;

/// The name of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum PolicyKind {
    /// Uniformly random.
    Random,
    /// First in, first out.
    Fifo,
    /// Least recently used.
    Lru,
    /// Second chance.
    Clock,
    /// A1in, A1out and Am.
    TwoQ,
    /// Segmented LRU.
    Slru,
    /// Adaptive replacement cache.
    Arc,
    /// Low inter-reference recency set.
    Lirs,
    /// Three static FIFO queues.
    S3Fifo,
    /// A queue with a hand that moves towards new pages.
    Sieve,
    /// A window, and admission by frequency.
    WTinyLfu,
    /// A small queue with a correlation window, and a clock.
    Clock2QPlus,
    /// Active and inactive lists with refault distance.
    Linux,
}

impl PolicyKind {
    /// All policies, in the order of the documentation.
    pub const ALL: [PolicyKind; 13] = [
        PolicyKind::Random,
        PolicyKind::Fifo,
        PolicyKind::Lru,
        PolicyKind::Clock,
        PolicyKind::TwoQ,
        PolicyKind::Slru,
        PolicyKind::Arc,
        PolicyKind::Lirs,
        PolicyKind::S3Fifo,
        PolicyKind::Sieve,
        PolicyKind::WTinyLfu,
        PolicyKind::Clock2QPlus,
        PolicyKind::Linux,
    ];

    /// Returns its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            PolicyKind::Random => "random",
            PolicyKind::Fifo => "fifo",
            PolicyKind::Lru => "lru",
            PolicyKind::Clock => "clock",
            PolicyKind::TwoQ => "2q",
            PolicyKind::Slru => "slru",
            PolicyKind::Arc => "arc",
            PolicyKind::Lirs => "lirs",
            PolicyKind::S3Fifo => "s3fifo",
            PolicyKind::Sieve => "sieve",
            PolicyKind::WTinyLfu => "wtinylfu",
            PolicyKind::Clock2QPlus => "clock2q+",
            PolicyKind::Linux => "linux",
        }
    }

    /// Returns the policy of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<PolicyKind> {
        PolicyKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Returns a new, empty policy.
    #[must_use]
    pub fn build(self) -> Box<dyn Policy> {
        match self {
            PolicyKind::Random => Box::new(Random::default()),
            PolicyKind::Fifo => Box::new(Fifo::default()),
            PolicyKind::Lru => Box::new(Lru::default()),
            PolicyKind::Clock => Box::new(Clock::default()),
            PolicyKind::TwoQ => Box::new(TwoQ::default()),
            PolicyKind::Slru => Box::new(Slru::default()),
            PolicyKind::Arc => Box::new(Arc::default()),
            PolicyKind::Lirs => Box::new(Lirs::default()),
            PolicyKind::S3Fifo => Box::new(S3Fifo::default()),
            PolicyKind::Sieve => Box::new(Sieve::default()),
            PolicyKind::WTinyLfu => Box::new(WTinyLfu::default()),
            PolicyKind::Clock2QPlus => Box::new(Clock2QPlus::default()),
            PolicyKind::Linux => Box::new(Linux::default()),
        }
    }

    /// Returns true if the policy evicts the least recently referenced page. Only then does the age
    /// of its last victim indicate the age of the next one.
    #[must_use]
    pub fn evicts_by_age(self) -> bool {
        self == PolicyKind::Lru
    }

    /// Returns the memory per resident page in bytes, ghosts included; counted into the memory
    /// bound.
    #[must_use]
    pub fn bytes_per_page(self) -> usize {
        match self {
            PolicyKind::Random => Random::BYTES,
            PolicyKind::Fifo => Fifo::BYTES,
            PolicyKind::Lru => Lru::BYTES,
            PolicyKind::Clock => Clock::BYTES,
            PolicyKind::TwoQ => TwoQ::BYTES,
            PolicyKind::Slru => Slru::BYTES,
            PolicyKind::Arc => Arc::BYTES,
            PolicyKind::Lirs => Lirs::BYTES,
            PolicyKind::S3Fifo => S3Fifo::BYTES,
            PolicyKind::Sieve => Sieve::BYTES,
            PolicyKind::WTinyLfu => WTinyLfu::BYTES,
            PolicyKind::Clock2QPlus => Clock2QPlus::BYTES,
            PolicyKind::Linux => Linux::BYTES,
        }
    }
}
