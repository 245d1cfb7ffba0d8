//! Errors of the construction of an arena. Each message can follow "cannot".

use std::io;

/// The reason why an arena could not be created.
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    /// The caller requested an arena without frames.
    #[error("make an arena of 0 frames: the smallest has 1")]
    NoFrames,
    /// The caller requested more frames than an arena supports, or than this machine can address.
    #[error("make an arena of {frames} frames: the largest has {frames_max}")]
    TooManyFrames {
        /// The requested number of frames.
        frames: u32,
        /// The maximum number of frames.
        frames_max: u32,
    },
    /// The kernel did not provide the address space.
    #[error(
        "map {} of address space for the cache: {source}; raise the limit (`ulimit -v`), or ask \
         for less memory",
        size_text(*.bytes as u64)
    )]
    Map {
        /// The requested size in bytes.
        bytes: usize,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The kernel did not lock the memory.
    #[error(
        "lock {} of memory: RLIMIT_MEMLOCK is {limit}; raise it (`ulimit -l`, or \
         LimitMEMLOCK= of a service), grant CAP_IPC_LOCK, or ask for less memory or none locked",
        size_text(*.bytes as u64),
        limit = limit_text(*.limit_bytes)
    )]
    Lock {
        /// The number of bytes to lock.
        bytes: usize,
        /// The limit of the process without `CAP_IPC_LOCK` in bytes; `None` is no limit.
        limit_bytes: Option<u64>,
        /// The error of the kernel.
        source: io::Error,
    },
}

fn limit_text(limit_bytes: Option<u64>) -> String {
    limit_bytes.map_or_else(|| "unlimited".to_owned(), size_text)
}

fn size_text(bytes: u64) -> String {
    match bytes >> 20 {
        0..10 => format!("{} KiB", bytes >> 10),
        mib => format!("{mib} MiB"),
    }
}
