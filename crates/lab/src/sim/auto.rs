//! Replacement only, under the policy that the engine's own tracker chooses: what `--policy auto`
//! does, reference by reference.

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
    /// A cache of `pages` that begins under `policy`; the seed decides which pages are sampled.
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

    /// References a page; whether it was there.
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

    /// When it changed to what: after so many references.
    #[must_use]
    pub fn switches(&self) -> &[(u64, PolicyKind)] {
        &self.switches
    }

    /// What the tracker knows.
    #[must_use]
    pub fn tracker(&self) -> &Tracker {
        &self.tracker
    }

    /// Asserts every invariant; for tests.
    pub fn check(&self) {
        self.cache.check();
    }
}
