//! Private loop devices: addition, attachment to an image, and removal.
//!
//! Invariant: an existing device is never reused, so every setting that the kernel changes when it
//! attaches a device disappears with the device.

use super::tool::{run, tool};
use super::{BUSY_MAX, ScratchError, retry_while_busy};
use crate::{proc, syscall};
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Control device that adds and removes loop devices (include/uapi/linux/loop.h).
const CONTROL: &str = "/dev/loop-control";
/// Number of device numbers to try before giving up.
const NUMBERS_MAX: u32 = 4096;

pub(super) fn name(number: u32) -> String {
    format!("loop{number}")
}

fn sysfs_path(name: &str) -> PathBuf {
    Path::new("/sys/block").join(name)
}

fn control(command: syscall::LoopControl, number: u32) -> std::io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(CONTROL)?;
    syscall::loop_control(&file, command, number)
}

/// Adds a loop device. It calls `record` with the number before it adds the device, so that the
/// device can be removed after a crash at any point.
pub(super) fn add(
    mut record: impl FnMut(u32) -> Result<(), ScratchError>,
) -> Result<u32, ScratchError> {
    for number in 0..NUMBERS_MAX {
        if sysfs_path(&name(number)).exists() {
            continue;
        }
        record(number)?;
        match control(syscall::LoopControl::Add, number) {
            Ok(()) => return Ok(number),
            // Another process took the number first.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(ScratchError::io(format!("add a loop device in {CONTROL}"))(error));
            }
        }
    }
    let already_exists = std::io::Error::from(ErrorKind::AlreadyExists);
    Err(ScratchError::io(format!("add one of {NUMBERS_MAX} loop devices"))(already_exists))
}

/// Attaches an image with direct I/O, so that its file system's page cache is bypassed.
pub(super) fn attach(number: u32, image: &Path) -> Result<PathBuf, ScratchError> {
    let device = Path::new("/dev").join(name(number));
    run(tool("losetup", "mount")?.arg("--direct-io=on").arg(&device).arg(image))?;
    let direct = proc::read(sysfs_path(&name(number)).join("loop/dio"));
    if direct.as_deref() == Some("1") {
        return Ok(device);
    }
    // The data of the image would be cached twice.
    Err(ScratchError::Other(format!(
        "attach {}: its file system has no direct I/O, so it would be cached twice; name another \
         directory",
        image.display()
    )))
}

/// Returns the backing file of a device, or `None` if nothing is attached.
pub(super) fn backing(name: &str) -> Option<PathBuf> {
    let path = proc::read(sysfs_path(name).join("loop/backing_file"))?;
    // The kernel appends this suffix to deleted files.
    Some(PathBuf::from(path.strip_suffix(" (deleted)").unwrap_or(&path)))
}

/// Returns the attached loop devices with their backing files.
pub(super) fn attached() -> Vec<(String, PathBuf)> {
    proc::names("/sys/block").filter_map(|name| backing(&name).map(|file| (name, file))).collect()
}

/// Detaches a device and waits until it is detached.
pub(super) fn detach(name: &str) -> Result<(), ScratchError> {
    let device = Path::new("/dev").join(name);
    let operation = format!("detach {}", device.display());
    let file = backing(name);
    retry_while_busy(BUSY_MAX, || {
        if backing(name).is_none() || backing(name) != file {
            return Ok(());
        }
        run(tool("losetup", "mount")?.arg("--detach").arg(&device))?;
        // A device that another process has open is detached when that process closes it.
        if backing(name).is_none() { Ok(()) } else { Err(ScratchError::busy(&operation)) }
    })
}

/// Removes a device that this process added, unless another process has attached it meanwhile.
pub(super) fn remove(number: u32) -> Result<(), ScratchError> {
    let name = name(number);
    let operation = format!("remove the device {name}");
    retry_while_busy(BUSY_MAX, || {
        if !sysfs_path(&name).exists() || backing(&name).is_some() {
            return Ok(());
        }
        control(syscall::LoopControl::Remove, number).map_err(ScratchError::io(&operation))
    })
}

/// Sets the scheduler and verifies it.
pub(super) fn set_scheduler(number: u32, scheduler: &str) -> Result<(), ScratchError> {
    let path = sysfs_path(&name(number)).join("queue/scheduler");
    // The kernel loads the scheduler's module if there is one.
    let written = std::fs::write(&path, scheduler);
    let available = proc::read(&path).unwrap_or_default();
    if proc::selected(&available) == scheduler {
        return Ok(());
    }
    let available = available.replace(['[', ']'], "");
    let available: Vec<&str> = available.split_whitespace().collect();
    if available.contains(&scheduler) {
        let unknown = std::io::Error::from(ErrorKind::Other);
        let error = written.err().unwrap_or(unknown);
        return Err(ScratchError::io(format!("write {scheduler} to {}", path.display()))(error));
    }
    Err(ScratchError::NoScheduler { name: scheduler.to_owned(), known: available.join(", ") })
}
