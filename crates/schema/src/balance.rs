//! Load balance over disks: `larder-balance`, version 1, the result of `larder balance`.
//!
//! Utilization is a share of time, above 1 if a disk cannot serve its load. Rates are per second.

use serde::Serialize;

/// Schema name of the JSON form.
pub const SCHEMA: &str = "larder-balance";
/// Schema version of the JSON form.
pub const VERSION: u32 = 1;

/// The load of disks, and a plan of moves.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Balance {
    /// The records, as named on the command line.
    pub records: Vec<String>,
    /// Duration of the records together.
    pub duration_ns: u64,
    /// Content of /etc/machine-id of the machine with the files; `None` if the records are of
    /// another machine, so that the plan has no checks and no script.
    pub machine_id: Option<String>,
    /// The disks, the busiest first.
    pub disks: Vec<BalanceDisk>,
    /// The files and processes with the most load, in descending order.
    pub loads: Vec<FileLoad>,
    /// Number of loads before truncation.
    pub loads_all: u64,
    /// The moves, in order.
    pub moves: Vec<FileMove>,
    /// All disks together, before the moves.
    pub before: BalanceSummary,
    /// All disks together, predicted for after the moves.
    pub after: BalanceSummary,
    /// Findings about the plan as a whole.
    pub findings: Vec<MoveFinding>,
    /// Other ways to move the data, a sentence or a command each.
    pub alternatives: Vec<String>,
    /// Assumptions, and what was left out, a sentence each.
    pub notes: Vec<String>,
}

/// A disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BalanceDisk {
    /// Name, such as `sda`.
    pub name: String,
    /// File systems on it: mount points or drives.
    pub file_systems: Vec<String>,
    /// Devices between these file systems and the disk.
    pub stacks: Vec<String>,
    /// Origin of the service times, and their figures.
    pub service: String,
    /// Load that no file has, as a share of time.
    pub unattributed_utilization: f64,
    /// Measured use.
    pub before: BalanceUse,
    /// Predicted use after the moves.
    pub after: BalanceUse,
}

/// Use of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct BalanceUse {
    /// Reads and writes.
    pub requests_per_s: f64,
    /// Share of the time in which it is busy.
    pub utilization: f64,
    /// Mean response time of a request.
    pub response_ns: u64,
}

/// All disks together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BalanceSummary {
    /// Name of the busiest disk; empty without one.
    pub disk: String,
    /// Its utilization.
    pub utilization: f64,
    /// Mean response time of all requests.
    pub response_ns: u64,
}

/// The load that a process causes through a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FileLoad {
    /// Name of the disk; of a file on several disks the one with the most of its load.
    pub disk: String,
    /// Path.
    pub file: String,
    /// Process.
    pub process: String,
    /// Process ID; 0 if the record has none.
    pub pid: u32,
    /// Reads.
    pub reads_per_s: f64,
    /// Bytes read.
    pub read_bytes_per_s: f64,
    /// Writes, with those of the journal that it causes.
    pub writes_per_s: f64,
    /// Bytes written.
    pub write_bytes_per_s: f64,
    /// Share of the time for which it keeps the disk busy.
    pub utilization: f64,
}

/// A replacement of the moved path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MoveLink {
    /// A symbolic link to the new place.
    #[default]
    Symlink,
    /// A bind mount of the new place.
    Bind,
}

/// A move of a file or directory.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FileMove {
    /// Path.
    pub from: String,
    /// New path.
    pub to: String,
    /// Directory below which the new path has the whole old one.
    pub target: String,
    /// True for a directory.
    pub is_directory: bool,
    /// Allocated bytes.
    pub bytes: u64,
    /// Disks that hold it, and those that will.
    pub from_disks: Vec<String>,
    /// See [`FileMove::from_disks`].
    pub to_disks: Vec<String>,
    /// Load of the file, as a share of the time of its busiest disk.
    pub utilization: f64,
    /// Replacement of the path.
    pub link: MoveLink,
    /// Identity of the file and of the file system of `target`; `None` if the file is not of this
    /// machine.
    pub identity: Option<MoveIdentity>,
    /// Obstacles and advice.
    pub findings: Vec<MoveFinding>,
}

/// Identity of a file to move: the script refuses another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MoveIdentity {
    /// Device number, as stat(2) returns it.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
    /// Device number of the target directory.
    pub target_device: u64,
}

/// Weight of a finding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FindingLevel {
    /// The move must wait until the cause is gone.
    Stop,
    /// The move needs a decision.
    Warning,
    /// For information.
    #[default]
    Note,
}

impl FindingLevel {
    /// Returns the level as a word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            FindingLevel::Stop => "stop",
            FindingLevel::Warning => "warning",
            FindingLevel::Note => "note",
        }
    }
}

/// A finding about a move or a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MoveFinding {
    /// Name of the check, such as `open-files`.
    pub check: &'static str,
    /// Weight.
    pub level: FindingLevel,
    /// Observation and next step, a sentence.
    pub text: String,
}

impl MoveFinding {
    /// Returns a finding.
    #[must_use]
    pub fn new(check: &'static str, level: FindingLevel, text: impl Into<String>) -> Self {
        MoveFinding { check, level, text: text.into() }
    }
}

impl Balance {
    /// Returns the JSON form.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        crate::with_head(SCHEMA, VERSION, self)
    }

    /// Returns the number of moves with a finding of level stop.
    #[must_use]
    pub fn stopped_moves(&self) -> usize {
        let is_stopped =
            |it: &&FileMove| it.findings.iter().any(|it| it.level == FindingLevel::Stop);
        self.moves.iter().filter(is_stopped).count()
    }

    /// Returns the bytes of all moves.
    #[must_use]
    pub fn moved_bytes(&self) -> u64 {
        self.moves.iter().fold(0, |sum, it| sum.saturating_add(it.bytes))
    }
}
