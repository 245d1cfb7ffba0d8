//! Processor, memory, kernel: what a record says about where it was made. No name of the machine.

use crate::proc;
use larder_report::run::Machine;
use std::num::NonZero;

/// What this machine is. What the system does not tell is empty or 0.
#[must_use]
pub fn machine() -> Machine {
    let cores = std::thread::available_parallelism().map_or(0, NonZero::get);
    Machine {
        cpu: named("/proc/cpuinfo", "model name"),
        cores: u32::try_from(cores).unwrap_or(u32::MAX),
        memory_bytes: memory_bytes(),
        kernel: proc::read("/proc/sys/kernel/osrelease").unwrap_or_default(),
        distribution: named("/etc/os-release", "PRETTY_NAME"),
    }
}

/// Physical memory that the kernel manages, in bytes; 0 if it does not tell.
#[must_use]
pub fn memory_bytes() -> u64 {
    let text = proc::read("/proc/meminfo").unwrap_or_default();
    proc::field(&text, "MemTotal").unwrap_or(0) * 1024
}

/// The first value in lines such as `NAME : value` or `NAME="value"`.
fn named(path: &str, name: &str) -> String {
    let text = proc::read(path).unwrap_or_default();
    let value = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    value.trim_matches([' ', '\t', ':', '=', '"']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_has_cores_memory_and_a_kernel() {
        let machine = machine();
        assert!(machine.cores > 0 && machine.memory_bytes > 1 << 20, "{machine:?}");
        assert!(machine.kernel.starts_with(|c: char| c.is_ascii_digit()), "{machine:?}");
    }
}
