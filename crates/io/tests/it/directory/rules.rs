//! Rules: files with other options than the rest, and the effect of renames on them.

use super::promises::SmallFileSystem;
use super::{MIB, Rule, Service, Setting, can_mount, rule};
use crate::common::rig;
use larder_core::counters::Counter;
use larder_core::mode::WriteMode;
use larder_io::front::fuse::{FileOptions, KernelPages};
use larder_testing::skip;
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::time::Duration;
use tempfile::TempDir;

const PLAIN: FileOptions =
    FileOptions { kernel_pages: KernelPages::Off, uncached: false, pin: false, read_only: false };

fn count(service: &Service, volume: usize, counter: Counter) -> u64 {
    service.volumes()[volume].totals().get(counter)
}

#[test]
fn files_of_a_rule_are_a_volume_with_a_mode_and_a_page_size_of_its_own() {
    const RULES: [Rule; 1] =
        [Rule { glob: "*.db", files: PLAIN, mode: WriteMode::Through, page_blocks: 16 }];
    if !can_mount() {
        return;
    }
    let service = Service::new(Setting { lazy: true, rules: &RULES, ..Setting::default() });
    fs::create_dir(service.path("deep")).expect("a directory");
    for name in ["deep/one.db", "rest"] {
        fs::write(service.path(name), vec![3; 100_001]).expect("room");
    }
    assert!(fs::read(service.behind("deep/one.db")).expect("it") == vec![3; 100_001], "through");
    assert_eq!(fs::metadata(service.behind("rest")).expect("it").len(), 0, "not yet");
    let [rest, rule] = service.volumes() else { panic!("one for the rule") };
    assert_eq!((rest.name(), rest.page_bytes()), ("files", 4096));
    assert_eq!((rule.name(), rule.page_bytes()), ("*.db", 65_536));
    for volume in 0..2 {
        // The last sector is padded to a whole one.
        assert_eq!(count(&service, volume, Counter::WriteBytes), 100_352, "of one file each");
    }
    let mut files = service.mount.as_ref().expect("a mount").files();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    let named: Vec<_> = files.iter().map(|file| file.path.as_str()).collect();
    assert_eq!(named, ["deep/one.db", "rest"]);
    assert_eq!((files[0].unclean_bytes, files[1].unclean_bytes), (0, 102_400));
    let source = service.end();
    assert!(fs::read(source.path().join("rest")).expect("it") == vec![3; 100_001]);
}

#[test]
fn what_a_rule_keeps_from_change_can_be_read_renamed_and_removed_alone() {
    const FIXED: FileOptions = FileOptions { read_only: true, ..PLAIN };
    const RULES: [Rule; 2] = [
        Rule { glob: "*.iso", files: FIXED, mode: WriteMode::ReadOnly, page_blocks: 1 },
        Rule {
            glob: "*.img",
            files: FileOptions { uncached: true, ..FIXED },
            mode: WriteMode::Back,
            page_blocks: 1,
        },
    ];
    if !can_mount() {
        return;
    }
    let source = tempfile::tempdir().expect("a directory");
    for name in ["a.iso", "a.img"] {
        fs::write(source.path().join(name), "text").expect("a file");
    }
    let service = Service::over(source, Setting { rules: &RULES, ..Setting::default() });
    let errno = |error: std::io::Error| Errno::from_io_error(&error);
    for name in ["a.iso", "a.img"] {
        let path = service.path(name);
        assert_eq!(fs::read(&path).expect("it"), b"text");
        let refused = OpenOptions::new().write(true).open(&path).expect_err("it is fixed");
        assert_eq!(errno(refused), Some(Errno::ROFS), "{name}");
        let refused = OpenOptions::new().write(true).truncate(true).open(&path);
        assert_eq!(errno(refused.expect_err("it is fixed")), Some(Errno::ROFS), "{name}");
        let refused = rustix::fs::open(
            &path,
            rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::TRUNC,
            rustix::fs::Mode::empty(),
        );
        assert_eq!(refused.expect_err("it is fixed"), Errno::ROFS, "{name}");
        let new = service.path(&format!("new-{name}"));
        assert_eq!(errno(File::create(&new).expect_err("the same")), Some(Errno::ROFS));
        assert!(!new.exists(), "nothing is left of what was refused");
        fs::rename(&path, service.path("other")).expect("a name is no content");
        fs::rename(service.path("other"), &path).expect("a name is no content");
        assert_eq!(fs::read(&path).expect("it"), b"text");
        fs::remove_file(&path).expect("it can go");
    }
    fs::write(service.path("rest"), "x").expect("the rest is as ever");
    service.end();
}

#[test]
fn what_is_not_cached_is_in_the_directory_at_once_and_in_no_frame() {
    const RULES: [Rule; 1] = [Rule {
        glob: "*.raw",
        files: FileOptions { uncached: true, ..PLAIN },
        mode: WriteMode::Back,
        page_blocks: 1,
    }];
    if !can_mount() {
        return;
    }
    let setting = Setting { lazy: true, rules: &RULES, ..Setting::default() };
    not_cached(Service::new(setting));
    // On a stacked file system the kernel does not read the files itself.
    let (layers, merged) = (tempfile::tempdir(), tempfile::tempdir());
    let (layers, merged) = (layers.expect("a directory"), merged.expect("a directory"));
    for name in ["lower", "upper", "work"] {
        fs::create_dir(layers.path().join(name)).expect("a directory");
    }
    let at = |name: &str| layers.path().join(name).display().to_string();
    let options =
        format!("lowerdir={},upperdir={},workdir={}", at("lower"), at("upper"), at("work"));
    let options = std::ffi::CString::new(options).expect("no zero in it");
    let (path, flags) = (merged.path().to_owned(), rustix::mount::MountFlags::empty());
    if let Err(error) = rustix::mount::mount("overlay", &path, "overlay", flags, options.as_c_str())
    {
        skip(format_args!("cannot mount overlayfs: {error}"));
        return;
    }
    let mounted = SmallFileSystem(&path);
    let merged = not_cached(Service::over(merged, setting));
    drop(mounted);
    drop(merged);
}

/// Uses a file that is not cached; returns the directory afterwards.
fn not_cached(service: Service) -> TempDir {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let file = options.open(service.path("a.raw")).expect("a file");
    file.write_all_at(&[7; 300_001], 5).expect("room");
    assert_eq!(fs::metadata(service.behind("a.raw")).expect("it").len(), 300_006);
    let mut bytes = vec![0; 300_001];
    file.read_exact_at(&mut bytes, 5).expect("bytes");
    assert!(bytes == vec![7; 300_001]);
    let behind = OpenOptions::new().write(true).open(service.behind("a.raw")).expect("it");
    behind.write_all_at(b"theirs", 100).expect("room");
    file.read_exact_at(&mut bytes[..6], 100).expect("bytes");
    assert_eq!(&bytes[..6], b"theirs", "what others write is seen at once");
    file.set_len(200).expect("shorter");
    let (flags, zeroed) = (rustix::fs::FallocateFlags::ZERO_RANGE, 150);
    rustix::fs::fallocate(&file, flags, zeroed, 100).expect("the directory's file system can");
    file.sync_all().expect("the directory works");
    let kept = fs::read(service.path("a.raw")).expect("it");
    assert!(kept.len() == 250 && kept[149] == 7 && kept[150..] == [0; 100]);
    assert_eq!(service.volumes().len(), 1, "nothing is set aside for them");
    assert!(service.mount.as_ref().expect("a mount").files().is_empty(), "nothing is cached");
    drop(file);
    service.end()
}

/// Returns true if a mapping of a file immediately shows data that is written to the file behind
/// it.
fn is_the_directories(file: &File, behind: &File) -> bool {
    use rustix::mm::{MapFlags, ProtFlags};
    let (read, shared) = (ProtFlags::READ, MapFlags::SHARED);
    // SAFETY: a new mapping at an address that the kernel chooses replaces nothing.
    let start = unsafe { rustix::mm::mmap(std::ptr::null_mut(), 4096, read, shared, file, 0) };
    let start = start.expect("it can be mapped");
    // SAFETY: the mapping has this byte; others write to it, so each call reads it again.
    let read_byte = || unsafe { start.cast::<u8>().read_volatile() };
    let before = read_byte();
    behind.write_all_at(&[!before], 0).expect("room");
    let after = read_byte();
    // SAFETY: the range is the mapping from above, which is not used any more.
    unsafe { rustix::mm::munmap(start, 4096) }.expect("it is mapped");
    after == !before
}

#[test]
fn what_is_not_cached_the_kernel_reads_by_itself_or_says_why_not() {
    const RULES: [Rule; 1] = [Rule {
        glob: "*.raw",
        files: FileOptions { uncached: true, ..PLAIN },
        mode: WriteMode::Back,
        page_blocks: 1,
    }];
    if !can_mount() {
        return;
    }
    let service = Service::new(Setting { rules: &RULES, ..Setting::default() });
    let mut notes = service.mount.as_ref().expect("a mount").notes();
    // Notes on the transport of requests do not matter here.
    notes.retain(|note| !note.contains("io_uring"));
    if let [note] = &notes[..] {
        assert!(note.contains("past the cache, and not by the kernel itself: "), "{note}");
        skip(note);
        return;
    }
    assert!(notes.is_empty(), "{notes:?}");
    fs::write(service.path("a.raw"), vec![1; 500_000]).expect("room");
    // Two programs have it open in different modes, and one of them maps it.
    let reader = File::open(service.path("a.raw")).expect("it");
    let both = OpenOptions::new().read(true).write(true).open(service.path("a.raw")).expect("it");
    both.write_all_at(&[2; 5000], 1000).expect("room");
    let mut bytes = [0; 5000];
    reader.read_exact_at(&mut bytes, 1000).expect("bytes");
    assert!(bytes == [2; 5000]);
    assert_eq!(fs::read(service.behind("a.raw")).expect("it").len(), 500_000);
    // A mapping through the cache has separate pages; a mapping by the kernel has those of the file
    // in the directory.
    let behind = OpenOptions::new().write(true).open(service.behind("a.raw")).expect("it");
    assert!(is_the_directories(&reader, &behind));
    drop((reader, both));
    // When no program has it open, it can become cached, and uncached again.
    fs::rename(service.path("a.raw"), service.path("a")).expect("a name");
    rig::eventually("it is cached", || {
        assert_eq!(fs::read(service.path("a")).expect("it").len(), 500_000);
        count(&service, 0, Counter::ReadRequests) > 0
    });
    fs::rename(service.path("a"), service.path("b.raw")).expect("a name");
    rig::eventually("the kernel reads it by itself again", || {
        let before = count(&service, 0, Counter::ReadRequests);
        assert_eq!(fs::read(service.path("b.raw")).expect("it").len(), 500_000);
        count(&service, 0, Counter::ReadRequests) == before
    });
    let again = File::open(service.path("b.raw")).expect("it");
    assert!(is_the_directories(&again, &behind));
    drop(again);
    service.end();
}

#[test]
fn a_pinned_file_is_in_the_cache_as_a_whole_and_stays_until_it_is_gone() {
    const RULES: [Rule; 1] = [Rule {
        glob: "*.hot",
        files: FileOptions { pin: true, ..PLAIN },
        mode: WriteMode::Back,
        page_blocks: 4,
    }];
    if !can_mount() {
        return;
    }
    let source = tempfile::tempdir().expect("a directory");
    let hot = vec![1; 1_000_001];
    fs::write(source.path().join("a.hot"), &hot).expect("a file");
    fs::write(source.path().join("large.hot"), vec![3; 12 << 20]).expect("a file");
    fs::write(source.path().join("much"), vec![2; 40 << 20]).expect("a file");
    let service = Service::over(source, Setting { rules: &RULES, ..Setting::default() });
    let resident = |name: &str| {
        let files = service.mount.as_ref().expect("a mount").files();
        files.iter().find(|file| file.path == name).map_or(0, |file| file.resident_bytes)
    };
    let pinned = || -> u64 {
        let ranges = service.engine.cache().pinned(&service.volumes()[1]);
        ranges.iter().map(|range| range.end - range.start).sum()
    };
    drop(File::open(service.path("a.hot")).expect("it"));
    rig::eventually("all of it is read in", || resident("a.hot") >= 1_000_001);
    assert_eq!(fs::read(service.path("much")).expect("it").len(), 40 << 20);
    assert!(resident("a.hot") >= 1_000_001, "it stays whatever else is read");
    let before = count(&service, 1, Counter::ReadMiss);
    assert!(fs::read(service.path("a.hot")).expect("it") == hot);
    assert_eq!(count(&service, 1, Counter::ReadMiss), before, "all of it hits");
    // The pin of a file of more than half of the memory is refused, and the file is served without
    // it.
    assert_eq!(fs::read(service.path("large.hot")).expect("it").len(), 12 << 20);
    rig::eventually("only the first is pinned", || pinned() == 1_015_808);
    let file = OpenOptions::new().write(true).open(service.path("a.hot")).expect("it");
    file.set_len(100_000).expect("shorter");
    assert_eq!(pinned(), 114_688, "what was cut off needs no room");
    file.write_all_at(&[9; 100_000], 100_000).expect("room");
    drop(file);
    rig::eventually("what was added is pinned when it is closed", || pinned() == 212_992);
    fs::rename(service.path("a.hot"), service.path("cold")).expect("a name");
    rig::eventually("it is one of the rest now", || pinned() == 0);
    fs::rename(service.path("cold"), service.path("b.hot")).expect("a name");
    assert_eq!(fs::read(service.path("b.hot")).expect("it").len(), 200_000);
    rig::eventually("and pinned again", || pinned() == 212_992);
    fs::remove_file(service.path("b.hot")).expect("it can go");
    rig::eventually("a file that is gone needs no room", || pinned() == 0);
    service.end();
}

#[test]
fn a_file_that_is_renamed_is_of_the_new_names_rule_once_nobody_has_it_open() {
    const RULES: [Rule; 1] =
        [Rule { glob: "*.db", files: PLAIN, mode: WriteMode::Through, page_blocks: 1 }];
    if !can_mount() {
        return;
    }
    let service = Service::new(Setting { lazy: true, rules: &RULES, ..Setting::default() });
    fs::write(service.path("a.tmp"), vec![1; 50_001]).expect("room");
    fs::rename(service.path("a.tmp"), service.path("a.db")).expect("a name");
    rig::eventually("it is read as one of the rule", || {
        assert!(fs::read(service.path("a.db")).expect("it") == vec![1; 50_001]);
        count(&service, 1, Counter::ReadRequests) > 0
    });
    let open = OpenOptions::new().write(true).open(service.path("a.db")).expect("it");
    fs::rename(service.path("a.db"), service.path("b")).expect("a name");
    open.write_all_at(&[2; 100], 0).expect("room");
    assert!(fs::read(service.behind("b")).expect("it").starts_with(&[2; 100]), "still through");
    drop(open);
    rig::eventually("it is one of the rest once it is closed", || {
        let before = count(&service, 0, Counter::ReadRequests);
        assert!(fs::read(service.path("b")).expect("it").starts_with(&[2; 100]));
        count(&service, 0, Counter::ReadRequests) > before
    });
    let again = OpenOptions::new().write(true).open(service.path("b")).expect("it");
    again.write_all_at(&[3; 100], 0).expect("room");
    drop(again);
    assert!(fs::read(service.path("b")).expect("it").starts_with(&[3; 100]));
    assert!(fs::read(service.behind("b")).expect("it").starts_with(&[2; 100]), "lazily now");
    service.end();
}

#[test]
fn the_kernel_keeps_the_pages_that_a_rule_lets_it_keep() {
    const fn kept(glob: &'static str, kernel_pages: KernelPages) -> Rule {
        let files = FileOptions { kernel_pages, ..PLAIN };
        Rule { glob, files, mode: WriteMode::Back, page_blocks: 1 }
    }
    const RULES: [Rule; 2] = [kept("open", KernelPages::Open), kept("keep", KernelPages::Keep)];
    if !can_mount() {
        return;
    }
    let source = tempfile::tempdir().expect("a directory");
    for name in ["off", "open", "keep"] {
        fs::write(source.path().join(name), vec![1; 500_000]).expect("a file");
    }
    let ttl = Duration::ZERO;
    let service = Service::over(source, Setting { ttl, rules: &RULES, ..Setting::default() });
    // True if the cache gets the second of two reads of an open file, and a read after it was
    // opened again.
    for (volume, name, again, anew) in
        [(0, "off", true, true), (1, "open", false, true), (2, "keep", false, false)]
    {
        let mut bytes = vec![0; 500_000];
        let mut reads = |file: &File| {
            let before = count(&service, volume, Counter::ReadRequests);
            file.read_exact_at(&mut bytes, 0).expect("bytes");
            count(&service, volume, Counter::ReadRequests) > before
        };
        let file = File::open(service.path(name)).expect("it");
        assert!(reads(&file), "{name}: the first time");
        assert_eq!(reads(&file), again, "{name}: once more");
        drop(file);
        let file = File::open(service.path(name)).expect("it");
        assert_eq!(reads(&file), anew, "{name}: reopened");
        fs::write(service.behind(name), vec![2; 500_000]).expect("a file");
        let bytes = fs::read(service.path(name)).expect("it");
        assert!(bytes == vec![2; 500_000], "{name}: what others write is seen when it is opened");
        let file = OpenOptions::new().read(true).write(true).open(service.path(name)).expect("it");
        file.write_all_at(&[3; 5000], 1000).expect("room");
        let mut bytes = [0; 5000];
        file.read_exact_at(&mut bytes, 1000).expect("bytes");
        assert!(bytes == [3; 5000]);
    }
    let source = service.end();
    for name in ["off", "open", "keep"] {
        let bytes = fs::read(source.path().join(name)).expect("it");
        assert!(bytes[1000..6000] == [3; 5000] && bytes[6000..] == vec![2; 494_000], "{name}");
    }
}

#[test]
fn many_rules_end_as_one_does() {
    static RULES: std::sync::LazyLock<Vec<Rule>> = std::sync::LazyLock::new(|| {
        ["*.a", "*.b", "*.c", "*.d", "*.e", "*.f", "*.g", "*.h"].map(rule).to_vec()
    });
    if !can_mount() {
        return;
    }
    let rules = RULES.as_slice();
    let setting = Setting { memory: 32 * MIB, lazy: true, rules, ..Setting::default() };
    let service = Service::new(setting);
    for ending in ["a", "b", "c", "d", "e", "f", "g", "h", "i"] {
        fs::write(service.path(&format!("x.{ending}")), ending.repeat(9000)).expect("room");
    }
    assert_eq!(service.dirty(), 9 * 12_288);
    let source = service.end();
    let text = fs::read_to_string(source.path().join("x.h")).expect("it");
    assert_eq!(text, "h".repeat(9000));
}
