//! FUSE over io_uring, which a kernel may have disabled: enabled for the duration of a proof.

use anyhow::{Context as _, Result};

use crate::cleanup::Cleanup;
use crate::run;

/// The module parameter, of kernels that have it.
const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Returns true if new mounts may use it.
pub(crate) fn are_on() -> bool {
    std::fs::read_to_string(SWITCH).is_ok_and(|state| state.trim() == "Y")
}

/// Returns the reason if mounts cannot use it here.
pub(crate) fn unavailable_reason() -> Option<&'static str> {
    match std::fs::metadata(SWITCH) {
        Err(_) => Some("this kernel has no FUSE over io_uring"),
        Ok(_) if !are_on() && !run::is_root() => Some("only root may switch it on"),
        Ok(_) => None,
    }
}

/// Enables it, if necessary, until the returned value is dropped.
pub(crate) fn on() -> Result<Option<Cleanup>> {
    if are_on() || std::fs::metadata(SWITCH).is_err() {
        return Ok(None);
    }
    let cleanup = Cleanup::start("echo N > \"$1\"", &[SWITCH])?;
    std::fs::write(SWITCH, "Y").with_context(|| format!("switch {SWITCH} on"))?;
    Ok(Some(cleanup))
}
