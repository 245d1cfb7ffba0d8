//! Creation, failure and cleanup of scratch file systems; skipped on machines that do not permit
//! them.

use super::*;
use crate::{mounts::Mount, state};
use larder_schema::run::trial::SettingChange;
use larder_testing::{MachineLock, skip};

const MIB: u64 = 1 << 20;

/// Lock for tests that leave scratch file systems behind or clean up: they run one at a time.
pub(super) fn scratch_lock() -> MachineLock {
    MachineLock::exclusive("scratch")
}

/// Returns the parameters of these tests; returns `None` and reports a skip if the machine does not
/// support them.
fn options() -> Option<ScratchOptions> {
    let kind = Kind::from_name("ext4").unwrap();
    let missing = if !rustix::process::geteuid().is_root() {
        Some("root")
    } else if !Path::new("/dev/loop-control").exists() {
        Some("loop devices")
    } else if kind.maker().is_none() || !kind.is_in_kernel() {
        Some("ext4")
    } else {
        None
    };
    if let Some(missing) = missing {
        skip(format_args!("needs {missing}"));
        return None;
    }
    Some(ScratchOptions {
        kind,
        bytes: 32 * MIB,
        scheduler: "none".to_owned(),
        make_options: vec!["-b".to_owned(), "1024".to_owned()],
        mount_options: "noatime".to_owned(),
    })
}

/// Returns the changes of host state that concern `parent`; other processes attach and mount
/// meanwhile.
fn changed(before: &std::collections::BTreeMap<String, String>, parent: &Path) -> Vec<String> {
    let parent_path = parent.to_string_lossy();
    SettingChange::between(before, &state::of_machine(parent))
        .into_iter()
        .filter(|change| {
            let values = [&change.before, &change.after].into_iter().flatten();
            change.name.contains(parent_path.as_ref())
                || values.into_iter().any(|value| value.contains(parent_path.as_ref()))
        })
        .map(|change| change.name)
        .collect()
}

#[test]
fn a_file_system_is_made_as_wanted_and_nothing_stays() {
    let Some(mut options) = options() else { return };
    let _lock = scratch_lock();
    let parent = tempfile::tempdir().unwrap();
    let parent = parent.path();
    let before = state::of_machine(parent);
    for scheduler in ["none", "mq-deadline"] {
        scheduler.clone_into(&mut options.scheduler);
        let scratch = match Scratch::make(parent, &options) {
            Err(ScratchError::NoScheduler { known, .. }) => {
                skip(format_args!("this kernel has {known}"));
                continue;
            }
            made => made.unwrap(),
        };
        let mount = Mount::of(scratch.path()).unwrap();
        assert_eq!((mount.fs_type.as_str(), mount.point.as_path()), ("ext4", scratch.path()));
        assert!(mount.options.contains("noatime"), "{mount:?}");
        let disk = crate::disk::Disk::of(scratch.path()).unwrap().unwrap();
        assert_eq!(disk.queue("scheduler").as_deref(), Some(scheduler));
        assert!(!before.contains_key(&format!("device {}", disk.name)), "it was there before");
        assert_eq!(rustix::fs::statvfs(scratch.path()).unwrap().f_bsize, 1024);
        std::fs::write(scratch.path().join("file"), vec![7; 4096]).unwrap();
        assert!(!changed(&before, parent).is_empty(), "a mount is a difference");
        // A cleanup leaves a scratch file system in use alone.
        let left_over = remove_left_over(parent);
        assert!(
            !left_over.removed.iter().any(|directory| directory.starts_with(parent)),
            "{left_over:?}"
        );
        scratch.remove().unwrap();
        assert_eq!(changed(&before, parent), [""; 0]);
    }
}

#[test]
fn what_cannot_be_made_is_named_and_leaves_nothing() {
    let Some(good) = options() else { return };
    let _lock = scratch_lock();
    let parent = tempfile::tempdir().unwrap();
    let parent = parent.path();
    let before = state::of_machine(parent);
    let refused = |options: &ScratchOptions| {
        let error = Scratch::make(parent, options).unwrap_err().to_string();
        assert_eq!(changed(&before, parent), [""; 0], "{error}");
        error
    };
    let error = refused(&ScratchOptions { bytes: 1 << 60, ..good.clone() });
    assert!(error.contains("it may grow to 1 EiB and "), "{error}");
    let error = refused(&ScratchOptions { scheduler: "cfq".to_owned(), ..good.clone() });
    assert!(error.starts_with("use the scheduler \"cfq\": this kernel has none"), "{error}");
    let error =
        refused(&ScratchOptions { make_options: vec!["--no-such".to_owned()], ..good.clone() });
    assert!(error.starts_with("run mkfs.ext4 ") && error.contains("--no-such"), "{error}");
    let error =
        refused(&ScratchOptions { mount_options: "no_such_option".to_owned(), ..good.clone() });
    assert!(error.starts_with("run mount -t ext4 -o no_such_option"), "{error}");
    let absent = parent.join("absent");
    let error = Scratch::make(&absent, &good).unwrap_err().to_string();
    assert!(
        error.starts_with("find out the free space of ") && error.contains("absent"),
        "{error}"
    );
}

#[test]
fn what_a_killed_process_left_is_undone_by_the_next() {
    let Some(options) = options() else { return };
    let _lock = scratch_lock();
    let parent = tempfile::tempdir().unwrap();
    let before = state::of_machine(parent.path());
    let mut killed = Scratch::make(parent.path(), &options).unwrap();
    let point = killed.path().to_path_buf();
    // Simulates a killed process: nothing is undone, and the lock is free.
    drop(killed.directory.take());
    let path = point.parent().unwrap().to_path_buf();
    // An open file keeps the mount busy; the result names it.
    let busy = File::create(point.join("file")).unwrap();
    // The cleanup finds the directory through its loop device, from any other parent.
    let elsewhere = tempfile::tempdir().unwrap();
    let left_over =
        directory::remove_left_over_within(elsewhere.path(), Duration::from_millis(100));
    let stays = left_over.stays.iter().find(|(stays, _)| *stays == path);
    let (_, reason) = stays.unwrap_or_else(|| panic!("{left_over:?}"));
    assert!(reason.starts_with("unmount ") && reason.contains("busy"), "{reason}");
    drop(busy);
    let left_over = remove_left_over(elsewhere.path());
    assert!(left_over.removed.contains(&path), "{left_over:?}");
    assert_eq!(changed(&before, parent.path()), [""; 0]);
}
