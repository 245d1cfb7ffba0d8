//! Information that is unavailable on a machine: one sentence each on the limitation and its
//! remedy.

use super::event::EventPurpose;
use super::scope::Scope;
use crate::tracefs::TraceError;

/// Returns the reason for the lack of all events. With `references_only` nothing else is available.
pub(super) fn all(error: &TraceError, references_only: bool) -> String {
    let error = error.to_string();
    let reason = error.trim_start_matches("trace: ");
    if references_only {
        return reason.to_owned();
    }
    format!("hits, misses, files and processes ({reason}); disks and memory are shown")
}

/// Returns the information that is lost without a kind of event. The counts are the same without
/// the other kinds, or almost the same.
pub(super) fn purpose(purpose: EventPurpose, kernel: &str) -> Option<String> {
    let sentence = match purpose {
        EventPurpose::Lookups => {
            "hit ratios: the kernel tells of lookups from Linux 6.12 on, and this is KERNEL; \
             pages that came into the cache are shown, which are the misses"
        }
        EventPurpose::Mappings => {
            "reads through mappings: the kernel tells of them from Linux 6.12 on, and this is \
             KERNEL"
        }
        EventPurpose::Pages => {
            "pages that come and go: this kernel has no events of its page cache \
             (CONFIG_EVENT_TRACING)"
        }
        EventPurpose::Dirty => {
            "pages that become dirty: the event came as writeback_dirty_folio with Linux 5.16"
        }
        EventPurpose::Physical => {
            "which file a disk works for: this kernel has no events of its block layer \
             (CONFIG_BLOCK)"
        }
        EventPurpose::Writeback => "the lazy writer: this kernel has no events of it",
        _ => return None,
    };
    Some(sentence.replace("KERNEL", kernel))
}

/// Returns the information that a file system does not report.
pub(super) fn scope(scope: &Scope) -> Option<String> {
    let mount = &scope.path.as_ref()?.mount;
    if mount.is_memory() {
        return Some(format!(
            "reads and writes of {}: its files are memory themselves, and the kernel does not tell \
             of them; watch the disk behind, or --pid",
            mount.fs_type
        ));
    }
    if mount.fs_type == "overlay" {
        return Some(
            "files of an overlay by their path: the kernel caches those of the directories that it \
             is made of; watch these, or --pid"
                .to_owned(),
        );
    }
    if mount.fs_type == "fuse.larder" {
        return Some(
            "reads through this Larder mount: they do not use the page cache, so the kernel does \
             not tell of them; larder ctl files shows what Larder has cached of each file"
                .to_owned(),
        );
    }
    let tells = matches!(mount.fs_type.as_str(), "ext2" | "ext3" | "ext4" | "xfs");
    (!tells).then(|| {
        format!(
            "pages of {} that are written while they are dirty: it does not tell of single writes; \
             pages that become dirty are shown",
            mount.fs_type
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::WatchScope;
    use std::path::Path;

    #[test]
    fn each_sentence_says_what_and_how_to_get_it() {
        let sentence = all(&TraceError::not_allowed(), false);
        assert!(sentence.contains("is for root") && sentence.ends_with("are shown"), "{sentence}");
        let sentence = all(&TraceError::not_allowed(), true);
        assert!(sentence.starts_with("tracefs is for root"), "{sentence}");
        assert!(!sentence.contains("shown"), "nothing is: {sentence}");
        let sentence = purpose(EventPurpose::Lookups, "6.1.0").unwrap();
        assert!(sentence.contains("6.12") && sentence.contains("6.1.0"), "{sentence}");
        assert_eq!(purpose(EventPurpose::Tasks, "6.1.0"), None);
        let memory = Path::new("/dev/shm");
        if crate::mounts::Mount::of(memory).is_ok_and(|mount| mount.is_memory()) {
            let scope_of = Scope::find(&WatchScope::Path(memory.into())).unwrap();
            assert!(scope(&scope_of).unwrap().contains("memory themselves"));
        }
        let mut scope_of = Scope::find(&WatchScope::Path("/".into())).unwrap();
        scope_of.path.as_mut().unwrap().mount.fs_type = "fuse.larder".to_owned();
        let sentence = scope(&scope_of).unwrap();
        assert!(sentence.contains("do not use the page cache"), "{sentence}");
        assert!(sentence.contains("larder ctl files"), "{sentence}");
    }
}
