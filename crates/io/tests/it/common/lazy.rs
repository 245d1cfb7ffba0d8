//! Write-back tunables that delay writeback for longer than any test takes.

use larder_io::engine::ArenaVolume;

/// Keeps dirty data in the cache until it is flushed.
pub(crate) fn keep_dirty(volume: &ArenaVolume) {
    for name in ["first-delay", "idle-delay", "age-max"] {
        volume.set_tunable(name, 60_000).expect("in range");
    }
}
