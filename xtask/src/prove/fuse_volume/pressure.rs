//! Memory runs out while a file system on a cached volume is written: the kernel has to write to it
//! before it can free memory, and the server must not wait for that itself.

use anyhow::{Context as _, Result, ensure};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::mounted::{FileSystem, Kind, PATIENCE_S, Setup};
use crate::image::{self, MIB};
use crate::memory_group::MemoryGroup;
use crate::prove::Lab;
use crate::run;

/// All memory that there is, for the server, for who writes and for who leaks.
const LIMIT_MIB: u64 = 512;
const IMAGE_MIB: u64 = 1024;
const OPTIONS: &str = "--memory 128MiB";
/// Writes files through the page cache until it is told to stop, and notes each round that is over.
const WRITER: &str = "round=0
while [ ! -e \"$2.stop\" ]; do
  dd if=/dev/zero of=\"$1/file\" bs=1M count=200 2> /dev/null || exit 1
  rm \"$1/file\"; round=$((round + 1)); echo $round > \"$2\"
done";
/// Leaks 8 MiB at a time, all kept in memory, until the kernel ends it.
const LEAK: &str = "echo 1000 > /proc/self/oom_score_adj
while head -c 8388608 /dev/zero; do sleep 0.05; done | tail";
/// Uses 300 MiB twice over, in a group where only swap has room for that.
const SWAPPER: &str = "import sys
pages = [bytearray(b'%08d' % i * 512) for i in range(76800)]
for again in range(2):
    for i in range(0, 76800):
        if pages[i][:8] != b'%08d' % i: sys.exit('other bytes')
print('fine')";

/// A leak beside a writer; what came out.
pub(super) fn leak(lab: &Lab) -> Result<String> {
    if let Some(reason) = MemoryGroup::missing() {
        anyhow::bail!("it {reason}");
    }
    let group = MemoryGroup::of(LIMIT_MIB)?;
    let image = image::sparse(&lab.file("pressed.img"), IMAGE_MIB * MIB)?;
    let setup = Setup { lab, image: &image, options: OPTIONS };
    let spared = can_be_spared();
    let served = setup.serve_in(spared.then_some(&group))?;
    let mut file_system = FileSystem::attach(lab, &served.file(), Kind::Ext4)?;
    file_system.make()?;
    file_system.mount()?;
    let rounds = lab.file("rounds");
    let mut writer = Command::new("sh");
    writer.args(["-c", WRITER, "writer"]).arg(file_system.point()).arg(&rounds);
    let mut writer = begin(&group, &writer)?;
    eventually("a round before the leak", || Ok(count(&rounds) > 0))?;
    let begun = Instant::now();
    let mut leak = begin(&group, Command::new("sh").args(["-c", LEAK]))?;
    let ended = eventually("the end of the leak", || Ok(leak.try_wait()?.is_some()));
    let (took, during) = (begun.elapsed().as_secs_f64(), count(&rounds));
    let after = ended.and_then(|()| {
        eventually("two more rounds after the leak", || {
            ensure!(writer.try_wait()?.is_none(), "the writer failed");
            Ok(count(&rounds) >= during + 2)
        })
    });
    drop(leak.kill());
    leak.wait().context("end the leak")?;
    after?;
    std::fs::write(lab.file("rounds.stop"), "").context("stop the writer")?;
    eventually("the end of the writer", || Ok(writer.try_wait()?.is_some()))?;
    for file in ["rounds", "rounds.stop"] {
        std::fs::remove_file(lab.file(file)).context("remove what the writer said")?;
    }
    file_system.unmount()?;
    file_system.check()?;
    file_system.detach()?;
    served.stop_clean()?;
    std::fs::remove_file(&image).context("remove the image")?;
    let place = if spared { "server inside" } else { "server outside: no CAP_SYS_RESOURCE" };
    Ok(format!("{LIMIT_MIB} MiB gone in {took:.1} s ({place}); the writer went on, fsck clean"))
}

/// Whether a server may ask to be spared (`CAP_SYS_RESOURCE`, bit 24). One that may not can wait
/// for itself inside of a group that is full: for the kernel's memory of its io_uring requests.
fn can_be_spared() -> bool {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let sets = line.and_then(|line| u64::from_str_radix(line.trim(), 16).ok());
    sets.is_some_and(|sets| sets & 1 << 24 != 0)
}

/// Swap on the loop device; what came out.
pub(super) fn swap(lab: &Lab) -> Result<String> {
    let group = MemoryGroup::of(LIMIT_MIB / 4)?;
    let image = image::sparse(&lab.file("swap.img"), IMAGE_MIB * MIB)?;
    let setup = Setup { lab, image: &image, options: OPTIONS };
    let served = setup.serve()?;
    let device = FileSystem::attach(lab, &served.file(), Kind::Ext4)?;
    run::text(run::client(30, "mkswap").arg(device.device()))?;
    let undo = crate::undo::Undo::with("swapoff \"$1\"", &[&device.device().to_string_lossy()])?;
    run::text(run::client(30, "swapon").arg(device.device()))?;
    let mut swapper = Command::new("timeout");
    swapper.args([&PATIENCE_S.to_string(), "python3", "-c", SWAPPER]);
    let said = run::text(&mut group.enter(&swapper));
    run::text(run::client(PATIENCE_S, "swapoff").arg(device.device()))?;
    drop(undo);
    ensure!(said?.trim() == "fine", "what was swapped out came back as something else");
    device.detach()?;
    let written = served.server.stderr();
    served.stop_clean()?;
    std::fs::remove_file(&image).context("remove the image")?;
    let spared = if written.contains("be spared") { "without CAP_SYS_RESOURCE" } else { "spared" };
    Ok(format!("300 MiB in a group of {} MiB, read back twice ({spared})", LIMIT_MIB / 4))
}

fn begin(group: &MemoryGroup, command: &Command) -> Result<Child> {
    let mut inside = group.enter(command);
    inside.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    inside.spawn().context("start a process in the group")
}

fn count(rounds: &Path) -> u64 {
    let text = std::fs::read_to_string(rounds).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

fn eventually(what: &str, mut condition: impl FnMut() -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    while !condition()? {
        ensure!(begun.elapsed().as_secs() < PATIENCE_S, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
