//! Problems of a volume: the observation, and the automatic or recommended action, as text.

use larder_schema::control::Finding;
use larder_schema::format;

/// An observed problem of a volume. Shares are of its references, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum VolumeFinding<'a> {
    /// Misses on recently evicted pages: twice the memory would hit far more.
    Thrashing {
        /// The policy of these hit ratios.
        policy: &'a str,
        /// Current hit ratio.
        hit_ratio: f64,
        /// Hit ratio with twice the memory.
        with_twice: f64,
        /// Additional memory to attain the reachable hits, bytes; 0 if unknown.
        more_bytes: u64,
        /// Hit ratio with the additional memory.
        with_more: f64,
    },
    /// Half of the memory would be sufficient.
    TooLarge {
        /// Memory that the volume does not need, bytes.
        spare_bytes: u64,
    },
    /// Another policy has a higher hit ratio.
    BetterPolicy {
        /// Name of that policy.
        policy: &'a str,
        /// Gain in hit ratio.
        gain: f64,
    },
    /// No amount of memory would hit most references.
    Scanned {
        /// Share of these references.
        share: f64,
    },
    /// A large part of the read-ahead pages is unused.
    AheadWasted {
        /// Share of the read-ahead pages.
        share: f64,
    },
    /// A large part of the writeback happens to free memory.
    Stolen {
        /// Share of the writeback.
        share: f64,
        /// The tunable `dirty-threshold` of the volume, per mille of the memory.
        dirty_threshold: u64,
    },
    /// The store writes more bytes than clients do.
    WriteAmplification {
        /// Bytes written to the store per byte from clients.
        factor: f64,
    },
}

/// Adjustments that the cache makes automatically.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AutomaticAction {
    /// True if the cache changes the policy of the volume.
    pub policy: bool,
    /// True if the cache moves memory between volumes.
    pub share: bool,
}

/// Names of all findings.
pub const FINDINGS: [&str; 7] = [
    "thrashing",
    "too-large",
    "better-policy",
    "scanned",
    "read-ahead-wasted",
    "stolen",
    "write-amplification",
];

impl VolumeFinding<'_> {
    fn name(self) -> &'static str {
        FINDINGS[match self {
            VolumeFinding::Thrashing { .. } => 0,
            VolumeFinding::TooLarge { .. } => 1,
            VolumeFinding::BetterPolicy { .. } => 2,
            VolumeFinding::Scanned { .. } => 3,
            VolumeFinding::AheadWasted { .. } => 4,
            VolumeFinding::Stolen { .. } => 5,
            VolumeFinding::WriteAmplification { .. } => 6,
        }]
    }

    fn seen(self) -> String {
        match self {
            VolumeFinding::Thrashing { policy, hit_ratio, with_twice, .. } => format!(
                "thrashing: pages are evicted shortly before they are used again; {policy} hits {} \
                 with this size, and would hit {} with twice the size",
                format::percent(hit_ratio),
                format::percent(with_twice)
            ),
            VolumeFinding::TooLarge { spare_bytes } => {
                format!("{} of its memory gain almost no hits", format::bytes(spare_bytes))
            }
            VolumeFinding::BetterPolicy { policy, gain } => {
                format!("the policy {policy} would hit {:.1} more of 100 references", gain * 100.0)
            }
            VolumeFinding::Scanned { share } => format!(
                "{} of its references are to pages that a cache of any size would miss: most \
                 of its data is used once",
                format::percent(share)
            ),
            VolumeFinding::AheadWasted { share } => {
                format!("{} of the data read ahead was not used", format::percent(share))
            }
            VolumeFinding::Stolen { share, .. } => format!(
                "{} of the bytes written back are written to make room for other pages",
                format::percent(share)
            ),
            VolumeFinding::WriteAmplification { factor } => {
                format!("the store writes {factor:.1} bytes for each byte that clients write")
            }
        }
    }

    fn answer(self, volume: &str, automatic: AutomaticAction) -> String {
        match self {
            VolumeFinding::Thrashing { more_bytes: 0, .. } => "give it more memory".to_owned(),
            VolumeFinding::Thrashing { policy, more_bytes, with_more, .. } => {
                let share_note = if automatic.share {
                    "; memory that gains other volumes nothing moves to it"
                } else {
                    ""
                };
                let (more, reached) = (format::bytes(more_bytes), format::percent(with_more));
                format!("with {more} more, {policy} would hit {reached}{share_note}")
            }
            VolumeFinding::TooLarge { .. } if automatic.share => {
                "this memory moves to other volumes that gain from it".to_owned()
            }
            VolumeFinding::TooLarge { .. } => {
                "`larder ctl curve` shows whether other volumes would gain from it".to_owned()
            }
            VolumeFinding::BetterPolicy { .. } if automatic.policy => {
                "the cache changes the policy if that lasts".to_owned()
            }
            VolumeFinding::BetterPolicy { policy, .. } => {
                format!(
                    "`larder ctl set {volume}.policy={policy}` changes to it, and `larder ctl set \
                     {volume}.policy=auto` lets the cache choose"
                )
            }
            VolumeFinding::Scanned { .. } if automatic.share => {
                "its memory goes to volumes that gain more".to_owned()
            }
            VolumeFinding::Scanned { .. } => {
                "with several volumes, `larder ctl set share=auto` keeps it from taking the memory \
                 of the others"
                    .to_owned()
            }
            VolumeFinding::AheadWasted { .. } => format!(
                "read-ahead windows are smaller and begin later now; `larder ctl set \
                 {volume}.hint=random` disables read-ahead"
            ),
            // A threshold below the minimum is not a valid setting.
            VolumeFinding::Stolen { dirty_threshold: 0..=1, .. } => "more memory helps".to_owned(),
            VolumeFinding::Stolen { dirty_threshold, .. } => format!(
                "`larder ctl set {volume}.dirty-threshold={}` starts write-back earlier, in the \
                 order of the store; more memory helps as well",
                dirty_threshold / 2
            ),
            VolumeFinding::WriteAmplification { .. } => {
                "flushed writes of less than a block and repeated writes after errors are the \
                 usual reasons; let clients flush less often"
                    .to_owned()
            }
        }
    }
}

/// Describes a finding of `volume`.
#[must_use]
pub fn describe(volume: &str, finding: VolumeFinding<'_>, automatic: AutomaticAction) -> Finding {
    Finding {
        finding: finding.name().to_owned(),
        seen: finding.seen(),
        answer: finding.answer(volume, automatic),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_symptom_has_its_name_and_an_answer_that_fits_what_is_done_already() {
        let findings = [
            VolumeFinding::Thrashing {
                policy: "LRU",
                hit_ratio: 0.1,
                with_twice: 0.5,
                more_bytes: 8 << 20,
                with_more: 0.6,
            },
            VolumeFinding::TooLarge { spare_bytes: 1 << 20 },
            VolumeFinding::BetterPolicy { policy: "2q", gain: 0.034 },
            VolumeFinding::Scanned { share: 0.9 },
            VolumeFinding::AheadWasted { share: 0.6 },
            VolumeFinding::Stolen { share: 0.3, dirty_threshold: 375 },
            VolumeFinding::WriteAmplification { factor: 2.0 },
        ];
        for (name, finding) in FINDINGS.iter().zip(findings) {
            for automatic in
                [AutomaticAction::default(), AutomaticAction { policy: true, share: true }]
            {
                let found = describe("data", finding, automatic);
                assert_eq!(found.finding, *name);
                assert!(found.line("data").is_ascii() && !found.answer.is_empty());
            }
        }
        let of = |finding, policy, share| {
            describe("data", finding, AutomaticAction { policy, share }).line("data")
        };
        assert_eq!(
            of(findings[0], false, false),
            "data: thrashing: pages are evicted shortly before they are used again; LRU hits \
             10.0 % with this size, and would hit 50.0 % with twice the size; with 8 MiB more, \
             LRU would hit 60.0 %"
        );
        let known = "data: the policy 2q would hit 3.4 more of 100 references; `larder ctl set \
                     data.policy=2q` changes to it, and `larder ctl set data.policy=auto` lets \
                     the cache choose";
        assert_eq!(of(findings[2], false, false), known);
        let known = "data: 30.0 % of the bytes written back are written to make room for other \
                     pages; `larder ctl set data.dirty-threshold=187` starts write-back earlier, \
                     in the order of the store; more memory helps as well";
        assert_eq!(of(findings[5], false, false), known);
        let lowest = VolumeFinding::Stolen { share: 0.3, dirty_threshold: 1 };
        assert!(of(lowest, false, false).ends_with("pages; more memory helps"));
        assert!(of(findings[2], true, false).ends_with("changes the policy if that lasts"));
        assert!(of(findings[3], false, true).ends_with("volumes that gain more"));
    }
}
