//! What a volume suffers from: what was seen, and what is done about it or could be, in words.

use crate::format;
use serde::{Deserialize, Serialize};

/// What was seen of a volume. Shares are of its references, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum VolumeFinding<'a> {
    /// Pages are missed that were there a moment ago: twice the memory would hit far more.
    Thrashing {
        /// Hits now.
        hit_ratio: f64,
        /// Hits with twice the memory.
        with_twice: f64,
        /// Memory that is missing to reach what can be reached, bytes; 0 if it is not known.
        more_bytes: u64,
        /// Hits with that.
        with_more: f64,
    },
    /// Half of the memory would do.
    TooLarge {
        /// Memory that could go, bytes.
        spare_bytes: u64,
    },
    /// Another policy hits more.
    BetterPolicy {
        /// Which.
        policy: &'a str,
        /// So much.
        gain: f64,
    },
    /// Most references are out of reach of any memory.
    Scanned {
        /// Their share.
        share: f64,
    },
    /// Much of what is read ahead is not touched.
    AheadWasted {
        /// The share of the pages.
        share: f64,
    },
    /// Much is written because its room is wanted.
    Stolen {
        /// The share of what is written back.
        share: f64,
        /// The tunable `dirty-threshold` of the volume, per mille of the memory.
        dirty_threshold: u64,
    },
    /// The store writes more than clients do.
    WriteAmplification {
        /// Bytes for each byte.
        factor: f64,
    },
}

/// What the cache does by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AutomaticAction {
    /// It changes the policy of the volume.
    pub policy: bool,
    /// It moves memory between volumes.
    pub share: bool,
}

/// A finding as it is told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Its name, one of [`FINDINGS`].
    pub finding: String,
    /// What was seen.
    pub seen: String,
    /// What the cache does about it, or what to try.
    pub answer: String,
}

/// The names of all findings.
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
            VolumeFinding::Thrashing { hit_ratio, with_twice, .. } => format!(
                "it thrashes: pages are missed that were there a moment ago; with twice the \
                 memory {} would hit, with this {}",
                format::percent(with_twice),
                format::percent(hit_ratio)
            ),
            VolumeFinding::TooLarge { spare_bytes } => {
                format!("{} of its memory bring next to nothing", format::bytes(spare_bytes))
            }
            VolumeFinding::BetterPolicy { policy, gain } => {
                format!("{policy} would hit {:.1} of 100 references more", gain * 100.0)
            }
            VolumeFinding::Scanned { share } => format!(
                "{} of its references are to pages that no memory would still hold: it is gone \
                 through once",
                format::percent(share)
            ),
            VolumeFinding::AheadWasted { share } => {
                format!("{} of what was read ahead was not touched", format::percent(share))
            }
            VolumeFinding::Stolen { share, .. } => format!(
                "{} of what is written back is written because its room is wanted",
                format::percent(share)
            ),
            VolumeFinding::WriteAmplification { factor } => {
                format!("the store writes {factor:.1} bytes for each byte that clients write")
            }
        }
    }

    fn answer(self, volume: &str, by_itself: AutomaticAction) -> String {
        match self {
            VolumeFinding::Thrashing { more_bytes: 0, .. } => "give it more memory".to_owned(),
            VolumeFinding::Thrashing { more_bytes, with_more, .. } => {
                let moved = if by_itself.share {
                    "; what other volumes do not gain from is moved to it"
                } else {
                    ""
                };
                let (more, reached) = (format::bytes(more_bytes), format::percent(with_more));
                format!("it needs {more} more to reach {reached}{moved}")
            }
            VolumeFinding::TooLarge { .. } if by_itself.share => {
                "they are moved to other volumes that gain from them".to_owned()
            }
            VolumeFinding::TooLarge { .. } => {
                "`larder ctl curve` shows which volumes would gain from them".to_owned()
            }
            VolumeFinding::BetterPolicy { .. } if by_itself.policy => {
                "the policy is changed if that lasts".to_owned()
            }
            VolumeFinding::BetterPolicy { policy, .. } => {
                format!(
                    "`larder ctl set {volume}.policy={policy}` changes to it, and `larder ctl set \
                     {volume}.policy=auto` lets the cache choose"
                )
            }
            VolumeFinding::Scanned { .. } if by_itself.share => {
                "its memory goes to volumes that gain more".to_owned()
            }
            VolumeFinding::Scanned { .. } => {
                "where there are other volumes, `larder ctl set share=auto` keeps it from taking \
                 their memory"
                    .to_owned()
            }
            VolumeFinding::AheadWasted { .. } => format!(
                "windows were made smaller and begin later; `larder ctl set {volume}.hint=random` \
                 ends read-ahead"
            ),
            // Less than the least value is no setting.
            VolumeFinding::Stolen { dirty_threshold: 0..=1, .. } => "more memory helps".to_owned(),
            VolumeFinding::Stolen { dirty_threshold, .. } => format!(
                "`larder ctl set {volume}.dirty-threshold={}` starts write-back earlier, in the \
                 order of the store; more memory helps as well",
                dirty_threshold / 2
            ),
            VolumeFinding::WriteAmplification { .. } => {
                "writes of less than a block that are each flushed do that, and writes that failed \
                 and were tried again; let clients flush less often"
                    .to_owned()
            }
        }
    }
}

impl Finding {
    /// The words for what was seen of `volume`.
    #[must_use]
    pub fn of(volume: &str, symptom: VolumeFinding<'_>, by_itself: AutomaticAction) -> Finding {
        Finding {
            finding: symptom.name().to_owned(),
            seen: symptom.seen(),
            answer: symptom.answer(volume, by_itself),
        }
    }

    /// As a line: what was seen, and what is done about it.
    #[must_use]
    pub fn line(&self, volume: &str) -> String {
        format!("{volume}: {}; {}", self.seen, self.answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_symptom_has_its_name_and_an_answer_that_fits_what_is_done_already() {
        let symptoms = [
            VolumeFinding::Thrashing {
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
        for (name, symptom) in FINDINGS.iter().zip(symptoms) {
            for by_itself in
                [AutomaticAction::default(), AutomaticAction { policy: true, share: true }]
            {
                let found = Finding::of("data", symptom, by_itself);
                assert_eq!(found.finding, *name);
                assert!(found.line("data").is_ascii() && !found.answer.is_empty());
            }
        }
        let of = |symptom, policy, share| {
            Finding::of("data", symptom, AutomaticAction { policy, share }).line("data")
        };
        assert_eq!(
            of(symptoms[0], false, false),
            "data: it thrashes: pages are missed that were there a moment ago; with twice the \
             memory 50.0 % would hit, with this 10.0 %; it needs 8 MiB more to reach 60.0 %"
        );
        let known = "data: 2q would hit 3.4 of 100 references more; `larder ctl set \
                     data.policy=2q` changes to it, and `larder ctl set data.policy=auto` lets \
                     the cache choose";
        assert_eq!(of(symptoms[2], false, false), known);
        let known = "data: 30.0 % of what is written back is written because its room is wanted; \
                     `larder ctl set data.dirty-threshold=187` starts write-back earlier, in the \
                     order of the store; more memory helps as well";
        assert_eq!(of(symptoms[5], false, false), known);
        let least = VolumeFinding::Stolen { share: 0.3, dirty_threshold: 1 };
        assert!(of(least, false, false).ends_with("wanted; more memory helps"));
        assert!(of(symptoms[2], true, false).ends_with("changed if that lasts"));
        assert!(of(symptoms[3], false, true).ends_with("volumes that gain more"));
    }
}
