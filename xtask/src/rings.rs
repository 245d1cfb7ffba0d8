//! FUSE over io_uring, which a kernel can have switched off: on for as long as a proof takes.

use anyhow::{Context as _, Result};

use crate::cleanup::Cleanup;
use crate::run;

/// The switch, of kernels that have it.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Whether mounts that begin now may use it.
pub(crate) fn are_on() -> bool {
    std::fs::read_to_string(SWITCH).is_ok_and(|state| state.trim() == "Y")
}

/// Why mounts cannot use it here, if so.
pub(crate) fn missing() -> Option<&'static str> {
    match std::fs::metadata(SWITCH) {
        Err(_) => Some("this kernel has no FUSE over io_uring"),
        Ok(_) if !are_on() && !run::is_root() => Some("only root may switch it on"),
        Ok(_) => None,
    }
}

/// Switches it on, where that takes something, until this is dropped.
pub(crate) fn on() -> Result<Option<Cleanup>> {
    if are_on() || std::fs::metadata(SWITCH).is_err() {
        return Ok(None);
    }
    let cleanup = Cleanup::with("echo N > \"$1\"", &[SWITCH])?;
    std::fs::write(SWITCH, "Y").with_context(|| format!("switch {SWITCH} on"))?;
    Ok(Some(cleanup))
}
