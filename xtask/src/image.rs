//! Disk images for the proofs: generated from a seed, sparse, compared byte by byte.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::run;

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const GIB: u64 = 1 << 30;

/// Creates an image of `mib` MiB whose bytes depend on the seed alone; every ninth MiB is a hole.
pub(crate) fn create_filled(path: &Path, mib: u64, seed: u64) -> Result<PathBuf> {
    let mut file = File::create(path).with_context(|| format!("create {}", path.display()))?;
    let mut bytes = vec![0; usize::try_from(MIB).expect("a MiB fits")];
    for index in 0..mib {
        if index % 9 == 8 {
            std::io::Seek::seek_relative(&mut file, MIB.cast_signed())?;
            continue;
        }
        fastrand::Rng::with_seed(seed ^ (index << 20)).fill(&mut bytes);
        file.write_all(&bytes).with_context(|| format!("write {}", path.display()))?;
    }
    file.set_len(mib * MIB).context("set the length of the image")?;
    Ok(path.to_path_buf())
}

/// Creates an image of `bytes` bytes without data.
pub(crate) fn create_sparse(path: &Path, bytes: u64) -> Result<PathBuf> {
    let file = File::create(path).with_context(|| format!("create {}", path.display()))?;
    file.set_len(bytes).with_context(|| format!("set the length of {}", path.display()))?;
    Ok(path.to_path_buf())
}

/// Fails, with the position, unless both files have the same content.
pub(crate) fn compare(left: &Path, right: &Path) -> Result<()> {
    run::stdout_of(Command::new("cmp").arg(left).arg(right)).context("the images differ")?;
    Ok(())
}
