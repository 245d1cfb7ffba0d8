//! Private loop devices: addition, attachment to an image, and removal.
//!
//! Invariant: an existing device is never reused, so every setting that the kernel changes when it
//! attaches a device disappears with the device.

use super::tool::{run, tool};
use super::{BUSY_MAX, ScratchError, eventually};
use crate::{proc, syscall};
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Control device that adds and removes loop devices (include/uapi/linux/loop.h).
const CONTROL: &str = "/dev/loop-control";
/// Number of device numbers to try before giving up.
const NUMBERS_MAX: u32 = 4096;

/// Returns the name of the device with a number.
pub(super) fn name(number: u32) -> String {
    format!("loop{number}")
}

fn in_sysfs(name: &str) -> PathBuf {
    Path::new("/sys/block").join(name)
}

fn control(command: syscall::LoopControl, number: u32) -> std::io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(CONTROL)?;
    syscall::loop_control(&file, command, number)
}

/// Adds a loop device. It calls `note` with the number before it adds the device, so that the
/// device can be removed after a crash at any point.
pub(super) fn add(
    mut note: impl FnMut(u32) -> Result<(), ScratchError>,
) -> Result<u32, ScratchError> {
    for number in 0..NUMBERS_MAX {
        if in_sysfs(&name(number)).exists() {
            continue;
        }
        note(number)?;
        match control(syscall::LoopControl::Add, number) {
            Ok(()) => return Ok(number),
            // Another process took the number first.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(ScratchError::io(format!("add a loop device in {CONTROL}"))(error));
            }
        }
    }
    let taken = std::io::Error::from(ErrorKind::AlreadyExists);
    Err(ScratchError::io(format!("add one of {NUMBERS_MAX} loop devices"))(taken))
}

/// Attaches an image with direct I/O, so that its file system's page cache is bypassed.
pub(super) fn attach(number: u32, image: &Path) -> Result<PathBuf, ScratchError> {
    let device = Path::new("/dev").join(name(number));
    run(tool("losetup", "mount")?.arg("--direct-io=on").arg(&device).arg(image))?;
    let direct = proc::read(in_sysfs(&name(number)).join("loop/dio"));
    if direct.as_deref() == Some("1") {
        return Ok(device);
    }
    Err(ScratchError::NoDirectIo { image: image.to_path_buf() })
}

/// Returns the backing file of a device, or `None` if nothing is attached.
pub(super) fn backing(name: &str) -> Option<PathBuf> {
    let path = proc::read(in_sysfs(name).join("loop/backing_file"))?;
    // The kernel appends this suffix to deleted files.
    Some(PathBuf::from(path.strip_suffix(" (deleted)").unwrap_or(&path)))
}

/// Returns the attached loop devices with their backing files.
pub(super) fn attached() -> Vec<(String, PathBuf)> {
    let Ok(devices) = std::fs::read_dir("/sys/block") else { return Vec::new() };
    let names = devices.filter_map(|device| device.ok()?.file_name().into_string().ok());
    names.filter_map(|name| backing(&name).map(|file| (name, file))).collect()
}

/// Detaches a device and waits until it is detached.
pub(super) fn detach(name: &str) -> Result<(), ScratchError> {
    let device = Path::new("/dev").join(name);
    let what = format!("detach {}", device.display());
    let file = backing(name);
    eventually(BUSY_MAX, || {
        if backing(name).is_none() || backing(name) != file {
            return Ok(());
        }
        run(tool("losetup", "mount")?.arg("--detach").arg(&device))?;
        // A device that another process has open is detached when that process closes it.
        if backing(name).is_none() { Ok(()) } else { Err(ScratchError::busy(&what)) }
    })
}

/// Removes a device that this process added, unless another process has attached it meanwhile.
pub(super) fn remove(number: u32) -> Result<(), ScratchError> {
    let name = name(number);
    let what = format!("remove the device {name}");
    eventually(BUSY_MAX, || {
        if !in_sysfs(&name).exists() || backing(&name).is_some() {
            return Ok(());
        }
        control(syscall::LoopControl::Remove, number).map_err(ScratchError::io(&what))
    })
}

/// Sets the scheduler and verifies it.
pub(super) fn set_scheduler(number: u32, scheduler: &str) -> Result<(), ScratchError> {
    let path = in_sysfs(&name(number)).join("queue/scheduler");
    // The kernel loads the scheduler's module if there is one.
    let written = std::fs::write(&path, scheduler);
    let known = proc::read(&path).unwrap_or_default();
    if proc::chosen(&known) == scheduler {
        return Ok(());
    }
    let known = known.replace(['[', ']'], "");
    let known: Vec<&str> = known.split_whitespace().collect();
    if known.contains(&scheduler) {
        let refused = std::io::Error::from(ErrorKind::Other);
        let refused = written.err().unwrap_or(refused);
        return Err(ScratchError::io(format!("write {scheduler} to {}", path.display()))(refused));
    }
    Err(ScratchError::NoScheduler { name: scheduler.to_owned(), known: known.join(", ") })
}
