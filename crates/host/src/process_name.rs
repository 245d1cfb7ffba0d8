//! Command names of processes and threads.

use crate::proc;

/// Text for a process whose name is empty.
const NO_NAME: &str = "(no name)";

/// Returns the command name of a process or thread, at most 15 bytes before the conversion to
/// UTF-8; `None` if the process has ended.
pub(crate) fn of(pid: u32) -> Option<String> {
    proc::read_lossy(format!("/proc/{pid}/comm")).ok().map(|name| shown(&name).to_owned())
}

/// Describes a process by its ID and its name, if it has not ended.
pub(crate) fn describe(pid: u32) -> String {
    of(pid).map_or_else(|| format!("process {pid}"), |name| format!("process {pid} ({name})"))
}

/// Returns a command name as it is shown: a process may choose an empty name, but is not to hide by
/// it.
pub(crate) fn shown(name: &str) -> &str {
    let name = name.trim();
    if name.is_empty() { NO_NAME } else { name }
}
