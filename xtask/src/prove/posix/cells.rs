//! The suites and the variants of `prove posix`, and which suite runs on which variant.

/// What lies between the suite and the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing.
    Native,
    /// libfuse's example `passthrough_ll`.
    Passthrough,
    /// `larder mount` of a directory.
    Mount,
    /// `larder serve` with a volume as a file, a loop device, and the file system on it.
    Volume,
}

impl Kind {
    /// The word for the script.
    pub(super) fn word(self) -> &'static str {
        match self {
            Kind::Native => "native",
            Kind::Passthrough => "passthrough",
            Kind::Mount => "mount",
            Kind::Volume => "volume",
        }
    }

    pub(super) fn is_larder(self) -> bool {
        matches!(self, Kind::Mount | Kind::Volume)
    }
}

pub(super) struct Variant {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// The file system below a mount, or on a volume.
    pub(super) fs: &'static str,
    /// Options of larder.
    pub(super) options: &'static str,
    /// Requests come by io_uring.
    pub(super) rings: bool,
    /// It needs the kernel of the guest.
    pub(super) in_guest: bool,
    /// It is part of the short form.
    pub(super) is_quick: bool,
}

const fn variant(name: &'static str, kind: Kind, fs: &'static str) -> Variant {
    let (options, is_quick) = ("", false);
    Variant { name, kind, fs, options, rings: false, in_guest: false, is_quick }
}

const fn quick(name: &'static str, kind: Kind, fs: &'static str) -> Variant {
    Variant { is_quick: true, ..variant(name, kind, fs) }
}

const fn guest(name: &'static str, kind: Kind, fs: &'static str) -> Variant {
    Variant { in_guest: true, ..variant(name, kind, fs) }
}

const fn ext4(name: &'static str, options: &'static str, rings: bool) -> Variant {
    Variant { options, rings, ..variant(name, Kind::Mount, "ext4") }
}

/// A third of the files is not cached, a third is written through.
const RULES: &str = "--rule *[0-4]=no-cache --rule *[5-9a-f]=through,16KiB";

/// All variants: what is compared with, then mounts, then volumes.
pub(super) const VARIANTS: &[Variant] = &[
    quick("native-ext4", Kind::Native, "ext4"),
    variant("native-xfs", Kind::Native, "xfs"),
    variant("native-btrfs", Kind::Native, "btrfs"),
    variant("native-tmpfs", Kind::Native, "tmpfs"),
    variant("native-overlay", Kind::Native, "overlay"),
    guest("native-nfs", Kind::Native, "nfs"),
    guest("native-smb", Kind::Native, "smb"),
    variant("passthrough", Kind::Passthrough, "ext4"),
    quick("mount-ext4", Kind::Mount, "ext4"),
    ext4("mount-through", "--write-mode through", false),
    ext4("mount-shared", "--shared", false),
    ext4("mount-rules", RULES, false),
    ext4("mount-uring", "", true),
    variant("mount-xfs", Kind::Mount, "xfs"),
    variant("mount-btrfs", Kind::Mount, "btrfs"),
    variant("mount-tmpfs", Kind::Mount, "tmpfs"),
    variant("mount-overlay", Kind::Mount, "overlay"),
    variant("mount-iso", Kind::Mount, "iso"),
    guest("mount-nfs", Kind::Mount, "nfs"),
    guest("mount-smb", Kind::Mount, "smb"),
    quick("volume-ext4", Kind::Volume, "ext4"),
    variant("volume-xfs", Kind::Volume, "xfs"),
    variant("volume-btrfs", Kind::Volume, "btrfs"),
];

impl Variant {
    /// The variant without Larder on the same file system.
    pub(super) fn below(&self) -> &'static str {
        let native = |it: &&Variant| it.kind == Kind::Native && it.fs == self.fs;
        VARIANTS.iter().find(native).map_or("", |it| it.name)
    }
}

pub(super) struct Suite {
    pub(super) name: &'static str,
    pub(super) needs: &'static [&'static str],
    /// Units (a seed, a round, a test of xfstests, or the whole suite) of one run, of one run in
    /// the short form, and of all runs.
    pub(super) step: u64,
    pub(super) quick_step: u64,
    pub(super) goal: u64,
    pub(super) limit_s: u64,
    pub(super) is_quick: bool,
}

const fn suite(
    name: &'static str,
    needs: &'static [&'static str],
    [step, quick_step, goal]: [u64; 3],
    limit_s: u64,
) -> Suite {
    Suite { name, needs, step, quick_step, goal, limit_s, is_quick: quick_step > 0 }
}

pub(super) const SUITES: &[Suite] = &[
    suite("pjdfstest", &[], [1, 1, 1], 1200),
    suite("fsx", &[], [10, 2, 1000], 1800),
    suite("xfstests", &["bc"], [100, 0, 1000], 7200),
    suite("stress-ng", &["stress-ng"], [1, 0, 1], 3600),
    suite("sqlite", &["sqlite3"], [10, 2, 200], 1200),
    suite("postgres", &["pgbench"], [5, 0, 100], 1200),
    suite("read", &["xorriso"], [1, 0, 1], 300),
];

/// The reason why a suite is not run on a variant.
pub(super) fn not_selected(suite: &Suite, variant: &Variant) -> Option<&'static str> {
    let (kind, fs) = (variant.kind, variant.fs);
    if (fs == "iso") != (suite.name == "read") {
        return Some(if fs == "iso" { "the source is read-only" } else { "made for images" });
    }
    match suite.name {
        "sqlite" | "postgres" if kind == Kind::Native => Some("no server to kill"),
        "sqlite" | "postgres" if fs == "tmpfs" => Some("no fsync to keep"),
        "pjdfstest" | "fsx" | "read" => None,
        _ if variant.in_guest => Some("it would take a day in the emulated guest"),
        "xfstests" if matches!(fs, "tmpfs" | "overlay") => {
            Some("its helper puts ext4, xfs or btrfs below")
        }
        _ => None,
    }
}
