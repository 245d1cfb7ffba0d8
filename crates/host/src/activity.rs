//! Counters of processors and disks since boot, and the share of this process.
//!
//! Counters only grow; the activity of an interval is the difference of two readings. Two limits: a
//! write counts for this process when it dirties a page and for the disk when the kernel writes the
//! page back, up to half a minute later; and the file system's own writes (its journal) belong to
//! no process.

use crate::disk::Disk;
use crate::{disk_counters, proc};
use larder_schema::watch::Disk as DiskCounters;

/// Readings of all counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Processor time of the whole machine, in kernel clock ticks.
    pub cpu: Cpu,
    /// I/O of the watched disks.
    pub disks: IoBytes,
    /// I/O of this process, over all devices.
    pub own: IoBytes,
}

/// Processor time in clock ticks (usually a hundredth of a second), summed over all processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// Total time.
    pub total: u64,
    /// Idle time, including the time in which a processor only waited for I/O.
    pub idle: u64,
    /// Part of the idle time in which a task of the processor waited for I/O.
    pub io_wait: u64,
    /// Time in which a task was runnable and the hypervisor ran another guest.
    pub steal: u64,
}

/// Bytes from and to block devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoBytes {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

impl Activity {
    /// Reads the counters. A counter that the kernel does not report is 0.
    #[must_use]
    pub fn now(disks: &[Disk]) -> Activity {
        let io = proc::read("/proc/self/io").unwrap_or_default();
        Activity {
            cpu: Cpu::now().unwrap_or_default(),
            disks: disk_bytes(disks, &disk_counters::with_partitions()),
            own: process_bytes(&io),
        }
    }

    /// Returns the activity since `before`.
    #[must_use]
    pub fn since(&self, before: &Activity) -> Activity {
        Activity {
            cpu: self.cpu.since(before.cpu),
            disks: self.disks.since(before.disks),
            own: self.own.since(before.own),
        }
    }
}

/// Returns the number of processors that are online, whichever this process may use.
pub(crate) fn processors() -> Option<u32> {
    let stat = proc::read("/proc/stat")?;
    let is_processor = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    u32::try_from(stat.lines().filter(is_processor).count()).ok().filter(|count| *count > 0)
}

impl Cpu {
    /// Reads the counters, or returns `None` if the kernel does not report them.
    pub(crate) fn now() -> Option<Cpu> {
        cpu_of(&proc::read("/proc/stat")?)
    }

    /// Returns the time since `before`.
    pub(crate) fn since(self, before: Cpu) -> Cpu {
        Cpu {
            total: self.total.saturating_sub(before.total),
            idle: self.idle.saturating_sub(before.idle),
            io_wait: self.io_wait.saturating_sub(before.io_wait),
            steal: self.steal.saturating_sub(before.steal),
        }
    }
}

impl IoBytes {
    /// Returns the sum of both directions.
    #[must_use]
    pub fn bytes(self) -> u64 {
        self.read_bytes + self.written_bytes
    }

    fn since(self, before: IoBytes) -> IoBytes {
        IoBytes {
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
        }
    }
}

/// Parses the first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal, and
/// two kinds of guest time that are part of user and nice.
fn cpu_of(stat: &str) -> Option<Cpu> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let steal = *ticks.get(7)?;
    let (idle, io_wait) = (ticks[3] + ticks[4], ticks[4]);
    Some(Cpu { total: ticks.iter().take(8).sum(), idle, io_wait, steal })
}

/// Returns the sum of the bytes of some disks.
fn disk_bytes(disks: &[Disk], counters: &[(u32, DiskCounters)]) -> IoBytes {
    let counters = counters.iter().map(|(_, counted)| counted);
    let of_disks = counters.filter(|it| disks.iter().any(|disk| disk.name == it.name));
    of_disks.fold(IoBytes::default(), |sum, disk| IoBytes {
        read_bytes: sum.read_bytes + disk.read_bytes(),
        written_bytes: sum.written_bytes + disk.write_bytes(),
    })
}

fn process_bytes(io: &str) -> IoBytes {
    let field = |name| proc::field(io, name).unwrap_or(0);
    IoBytes {
        read_bytes: field("read_bytes"),
        written_bytes: field("write_bytes").saturating_sub(field("cancelled_write_bytes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_testing::skip;
    use std::io::Write;
    use std::path::Path;

    #[test]
    fn counters_are_taken_from_their_places() {
        let stat = "cpu  10 20 30 400 50 6 7 8 9 9\ncpu0 1 2 3 4 5 6 7 8 9 9\n";
        let cpu = cpu_of(stat).unwrap();
        assert_eq!(cpu, Cpu { total: 531, idle: 450, io_wait: 50, steal: 8 });
        assert_eq!(cpu_of("cpu 1 2 3\n"), None);
        let lines =
            [" 254       0 vda 100 2 16 4 5 6 32 8 0 1 2", " 254 1 vda1 1 1 1 1 1 1 1 1 0 1 1"];
        let counters = lines.map(|line| disk_counters::parse_line(line).unwrap());
        let disk = |name: &str| Disk { name: name.to_owned() };
        let total = disk_bytes(&[disk("vda")], &counters);
        assert_eq!(total, IoBytes { read_bytes: 8192, written_bytes: 16_384 });
        assert_eq!(disk_bytes(&[disk("vdb")], &counters), IoBytes::default());
        let io = "read_bytes: 4096\nwrite_bytes: 8192\ncancelled_write_bytes: 4096\n";
        assert_eq!(process_bytes(io), IoBytes { read_bytes: 4096, written_bytes: 4096 });
    }

    #[test]
    fn what_we_write_is_ours_and_on_the_disk() {
        let mut file = tempfile::tempfile().unwrap();
        let disks: Vec<Disk> = Disk::of(&std::env::temp_dir()).unwrap().into_iter().collect();
        let before = Activity::now(&disks);
        file.write_all(&vec![1; 4 << 20]).unwrap();
        file.sync_all().unwrap();
        let since = Activity::now(&disks).since(&before);
        assert!(since.cpu.total >= since.cpu.idle + since.cpu.steal, "{since:?}");
        // In a container procfs may hide the I/O counters of the process.
        if disks.is_empty() || !Path::new("/proc/self/io").exists() {
            skip("the temporary directory is not on a disk, or /proc/self/io is missing");
            return;
        }
        assert!(since.own.written_bytes >= 4 << 20, "{since:?}");
        assert!(since.disks.written_bytes >= 4 << 20, "{since:?}");
    }
}
