//! Processor, memory and kernel of the host, for records. The host name is left out.

use crate::proc;
use larder_schema::format;
use larder_schema::run::Machine;
use std::num::NonZero;

/// Describes this machine. A value that the system does not report is empty or 0.
#[must_use]
pub fn machine() -> Machine {
    let cores = std::thread::available_parallelism().map_or(0, NonZero::get);
    Machine {
        cpu: first_value("/proc/cpuinfo", "model name"),
        cores: u32::try_from(cores).unwrap_or(u32::MAX),
        memory_bytes: memory_bytes(),
        kernel: proc::read("/proc/sys/kernel/osrelease").unwrap_or_default(),
        distribution: first_value("/etc/os-release", "PRETTY_NAME"),
    }
}

/// Returns the physical memory that the kernel manages, in bytes; 0 if the kernel does not report
/// it.
#[must_use]
pub fn memory_bytes() -> u64 {
    proc::meminfo()("MemTotal").unwrap_or(0)
}

/// Returns the ID of this machine, which `machine-id(5)` describes; empty if it has none.
#[must_use]
pub fn id() -> String {
    proc::read("/etc/machine-id").unwrap_or_default()
}

/// Returns the time of day in UTC, RFC 3339, to the second.
#[must_use]
pub fn time_of_day() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    rfc3339(since.map_or(0, |time| time.as_secs()))
}

fn rfc3339(seconds: u64) -> String {
    format::date_and_time(i64::try_from(seconds).unwrap_or(i64::MAX), 'T') + "Z"
}

/// Returns the first value in lines such as `NAME : value` or `NAME="value"`.
fn first_value(path: &str, name: &str) -> String {
    let text = proc::read(path).unwrap_or_default();
    let value = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    value.trim_matches([' ', '\t', ':', '=', '"']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(rfc3339(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(951_868_800), "2000-03-01T00:00:00Z");
        assert_eq!(rfc3339(1_735_689_599), "2024-12-31T23:59:59Z");
        assert_eq!(rfc3339(4_107_542_400), "2100-03-01T00:00:00Z", "2100 is no leap year");
    }

    #[test]
    fn a_machine_has_cores_memory_and_a_kernel() {
        let machine = machine();
        assert!(machine.cores > 0 && machine.memory_bytes > 1 << 20, "{machine:?}");
        assert!(machine.kernel.starts_with(|c: char| c.is_ascii_digit()), "{machine:?}");
    }
}
