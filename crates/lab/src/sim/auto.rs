//! Replacement only, under the policy that the engine's own tracker selects: `--policy auto`,
//! reference by reference.

use super::replace::Changeable;
use larder_core::curve::tracker::Tracker;
use larder_core::policy::PolicyKind;

/// A cache that changes its policy.
#[derive(Debug)]
pub struct AutoCache {
    cache: Changeable,
    tracker: Tracker,
    references: u64,
    switches: Vec<(u64, PolicyKind)>,
}

impl AutoCache {
    /// Creates a cache of `pages` that begins under `policy`; the seed selects the sampled pages.
    #[must_use]
    pub fn new(policy: PolicyKind, pages: u32, seed: u64) -> Self {
        AutoCache {
            cache: Changeable::new(policy, pages),
            tracker: Tracker::new(Tracker::bytes_max(), pages.into(), policy, seed)
                .expect("bytes for the largest tracker"),
            references: 0,
            switches: Vec::new(),
        }
    }

    /// References a page. Returns true if it hits.
    pub fn touch(&mut self, page: u64) -> bool {
        self.references += 1;
        let hit = self.cache.touch(page);
        if let Some(kind) = self.tracker.reference(page, !hit) {
            self.cache.set_policy(kind);
            self.tracker.note_policy(kind);
            self.switches.push((self.references, kind));
        }
        hit
    }

    /// Returns the policy changes: the number of references before each, and the new policy.
    #[must_use]
    pub fn switches(&self) -> &[(u64, PolicyKind)] {
        &self.switches
    }

    /// Returns the tracker.
    #[must_use]
    pub fn tracker(&self) -> &Tracker {
        &self.tracker
    }

    /// Asserts every invariant; for tests.
    pub fn check(&self) {
        self.cache.check();
    }
}
