//! What can go wrong when an arena is made. Each message can follow "failed to".

use std::io;

/// Why there is no arena.
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    /// An arena without frames was asked for.
    #[error("make an arena of 0 frames: the smallest has 1")]
    NoFrames,
    /// More frames were asked for than an arena has, or than this machine can address.
    #[error("make an arena of {frames} frames: the largest has {frames_max}")]
    TooManyFrames {
        /// Frames asked for.
        frames: u32,
        /// The most there can be.
        frames_max: u32,
    },
    /// The kernel did not give the address space.
    #[error("map {bytes} bytes of memory for the cache")]
    Map {
        /// Bytes asked for.
        bytes: usize,
        /// What the kernel said.
        source: io::Error,
    },
    /// The kernel did not lock the memory.
    #[error(
        "lock {bytes} bytes of memory: RLIMIT_MEMLOCK is {limit}; raise it (`ulimit -l`, or \
         LimitMEMLOCK= of a service), grant CAP_IPC_LOCK, or ask for less memory or none locked",
        limit = limit_text(*.limit_bytes)
    )]
    Lock {
        /// Bytes to be locked.
        bytes: usize,
        /// What the process may lock without `CAP_IPC_LOCK`; `None` is no limit.
        limit_bytes: Option<u64>,
        /// What the kernel said.
        source: io::Error,
    },
}

fn limit_text(limit_bytes: Option<u64>) -> String {
    limit_bytes.map_or_else(|| "unlimited".to_owned(), |bytes| format!("{bytes} bytes"))
}
