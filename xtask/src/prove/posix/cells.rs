//! The suites and the variants of `prove posix`, and the combinations that run.

/// A file system, and the layers between it and the suite.
pub(super) struct Variant {
    pub(super) name: &'static str,
    /// `native`; `passthrough`, libfuse's example; `mount`, a directory under `larder mount`; or
    /// `volume`, a loop device on a file of `larder serve --fuse`.
    pub(super) kind: &'static str,
    /// The file system below a mount, or on a volume.
    pub(super) fs: &'static str,
    /// Options of larder, or the name of libfuse's example.
    pub(super) options: &'static str,
}

const fn variant(
    name: &'static str,
    [kind, fs]: [&'static str; 2],
    options: &'static str,
) -> Variant {
    Variant { name, kind, fs, options }
}

/// Caching rules by file name: a third of the files is not cached, and a third is written through.
const RULES: &str = "--rule *[0-4]=no-cache --rule *[5-9a-f]=through,16KiB";

/// The reason for running nothing on an example of libfuse.
pub(super) const PASSTHROUGH_MISSING: &str =
    "no passthrough_ll (Debian's libfuse3-dev) or passthrough_hp (LARDER_PASSTHROUGH_HP)";

/// All variants: first those for comparison, then mounts, then volumes.
pub(super) const VARIANTS: &[Variant] = &[
    variant("native-ext4", ["native", "ext4"], ""),
    variant("native-xfs", ["native", "xfs"], ""),
    variant("native-btrfs", ["native", "btrfs"], ""),
    variant("native-tmpfs", ["native", "tmpfs"], ""),
    variant("native-overlay", ["native", "overlay"], ""),
    variant("native-nfs", ["native", "nfs"], ""),
    variant("native-smb", ["native", "smb"], ""),
    variant("passthrough-ll", ["passthrough", "ext4"], "passthrough_ll"),
    variant("passthrough-hp", ["passthrough", "ext4"], "passthrough_hp"),
    variant("mount-ext4", ["mount", "ext4"], ""),
    variant("mount-through", ["mount", "ext4"], "--write-mode through"),
    variant("mount-shared", ["mount", "ext4"], "--shared"),
    variant("mount-rules", ["mount", "ext4"], RULES),
    variant("mount-uring", ["mount", "ext4"], ""),
    variant("mount-xfs", ["mount", "xfs"], ""),
    variant("mount-btrfs", ["mount", "btrfs"], ""),
    variant("mount-tmpfs", ["mount", "tmpfs"], ""),
    variant("mount-overlay", ["mount", "overlay"], ""),
    variant("mount-iso", ["mount", "iso"], ""),
    variant("mount-nfs", ["mount", "nfs"], ""),
    variant("mount-smb", ["mount", "smb"], ""),
    variant("volume-ext4", ["volume", "ext4"], ""),
    variant("volume-xfs", ["volume", "xfs"], ""),
    variant("volume-btrfs", ["volume", "btrfs"], ""),
];

impl Variant {
    /// Returns the variant without Larder on the same file system.
    pub(super) fn below(&self) -> Option<&'static Self> {
        VARIANTS.iter().find(|it| it.kind == "native" && it.fs == self.fs)
    }

    pub(super) fn has_larder(&self) -> bool {
        matches!(self.kind, "mount" | "volume")
    }

    /// Returns true if requests use io_uring.
    pub(super) fn has_rings(&self) -> bool {
        self.name == "mount-uring"
    }

    /// Returns true if the variant runs in the virtual machine.
    pub(super) fn is_in_guest(&self) -> bool {
        matches!(self.fs, "nfs" | "smb" | "iso")
    }
}

/// A suite: its name, the programs that it needs, the time limit of one run in seconds, and the
/// number of units (a seed, a round, a test of xfstests, or the whole suite) of one run, of one run
/// in the short form, and of all runs together.
pub(super) struct Suite {
    pub(super) name: &'static str,
    pub(super) needs: &'static [&'static str],
    pub(super) limit_s: u64,
    pub(super) units: [u64; 3],
}

const fn suite(
    name: &'static str,
    needs: &'static [&'static str],
    limit_s: u64,
    units: [u64; 3],
) -> Suite {
    Suite { name, needs, limit_s, units }
}

pub(super) const SUITES: &[Suite] = &[
    suite("pjdfstest", &[], 1200, [1, 1, 1]),
    suite("fsx", &[], 1800, [10, 2, 1000]),
    suite("tree", &["tar"], 600, [2, 1, 2]),
    suite("xfstests", &["bc"], 7200, [100, 0, 1000]),
    suite("stress-ng", &["stress-ng"], 3600, [1, 0, 1]),
    suite("sqlite", &["sqlite3"], 1200, [10, 2, 200]),
    suite("postgres", &["pgbench"], 1200, [5, 0, 100]),
    suite("read", &["xorriso"], 300, [1, 0, 1]),
];

/// Returns the reason why a suite does not run on a variant.
pub(super) fn not_selected(suite: &Suite, variant: &Variant) -> Option<&'static str> {
    match suite.name {
        "read" if variant.fs != "iso" => Some("for read-only sources"),
        "read" => None,
        _ if variant.fs == "iso" => Some("the source is read-only"),
        "sqlite" | "postgres" if variant.kind == "native" => Some("no server to kill"),
        "pjdfstest" | "fsx" | "tree" => None,
        _ if variant.is_in_guest() => Some("would take a day on the emulated processor"),
        "sqlite" | "postgres" => None,
        _ if matches!(variant.fs, "tmpfs" | "overlay") => Some("a choice, to bound the time"),
        _ => None,
    }
}
