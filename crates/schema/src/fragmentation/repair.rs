//! A repair of fragmentation: `larder-repair`, version 1, the result of `larder frag repair`.

use super::FragmentationVerdict;
use serde::Serialize;

/// Schema name of the JSON form.
pub const REPAIR_SCHEMA: &str = "larder-repair";

/// A repair.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FragmentationRepair {
    /// The answer before the repair.
    pub verdict: FragmentationVerdict,
    /// True if nothing was moved since that was not requested (`--dry-run`).
    pub is_dry_run: bool,
    /// Moved files, or those that would be moved, in order.
    pub moved: Vec<MovedFile>,
    /// Files with fragments that stay, with the reason.
    pub skipped: Vec<SkippedFile>,
    /// Moves that an earlier repair had begun when it ended, a sentence each.
    pub interrupted: Vec<String>,
    /// Reason for the end.
    pub end: RepairEnd,
    /// Bytes that were written.
    pub written_bytes: u64,
    /// Duration of the moves.
    pub seconds: f64,
    /// Time of the sampled requests on the model: with the files as they lay.
    pub before_s: f64,
    /// The same with each file in one fragment.
    pub predicted_s: f64,
    /// The same with the files as they lie now.
    pub after_s: f64,
    /// Time of reads of the moved files on the device, past the page cache, before and after;
    /// `None` if none was measured.
    pub measured_s: Option<(f64, f64)>,
    /// Number of these reads.
    pub measured_reads: u64,
}

impl FragmentationRepair {
    /// Returns the JSON form.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        crate::with_head(REPAIR_SCHEMA, super::VERSION, self)
    }
}

/// Reason for the end of a repair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RepairEnd {
    /// No file is left whose move gains.
    #[default]
    Complete,
    /// The target share of the gain is reached.
    Target,
    /// The time is over.
    Time,
    /// The write budget is used up.
    WriteBudget,
    /// A signal ended it.
    Signal,
    /// Contiguous files would gain too little.
    NotWorthIt,
}

/// A moved file.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MovedFile {
    /// Its path.
    pub path: String,
    /// Bytes of its extents.
    pub bytes: u64,
    /// Fragments before.
    pub fragments_before: u64,
    /// Fragments after; 0 in a dry run.
    pub fragments_after: u64,
    /// Predicted gain in the sample, nanoseconds.
    pub gain_ns: u64,
    /// False if another process changed the file meanwhile, so that its content was not compared.
    pub is_compared: bool,
}

/// A file that stays.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SkippedFile {
    /// Its path.
    pub path: String,
    /// The reason.
    pub reason: String,
}
