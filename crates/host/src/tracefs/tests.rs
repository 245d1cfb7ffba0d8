//! Event formats, ring buffer pages, and trace instances of the running kernel.

use super::page::Records;
use super::*;
use larder_testing::{MachineLock, skip};
use std::collections::HashMap;
use std::time::Duration;

const HEADER: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
                      \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
                      \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
                      \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";
const FORMAT: &str = "name: mm_filemap_get_pages\nID: 599\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
    \tfield:unsigned long i_ino;\toffset:8;\tsize:8;\tsigned:0;\n\
    \tfield:char name[4];\toffset:16;\tsize:4;\tsigned:0;\n\
    \tfield:__data_loc char[] cmd;\toffset:20;\tsize:4;\tsigned:0;\n\nprint fmt: \"%d\"\n";

#[test]
fn fields_lie_where_the_format_says() {
    let format = Format::parse(FORMAT).unwrap();
    assert_eq!(format.id, 599);
    assert_eq!(format.field("i_ino"), Some(Field { offset: 8, size: 8 }));
    assert_eq!(format.field("cmd"), Some(Field { offset: 20, size: 4 }));
    assert_eq!(format.field("nothing"), None);
    let mut record = vec![0; 24];
    record[4..8].copy_from_slice(&(-7_i32).to_le_bytes());
    record[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    record[16..20].copy_from_slice(b"7:0\0");
    let get = |name| format.field(name).unwrap();
    assert_eq!(get("common_pid").signed(&record), -7);
    assert_eq!(get("i_ino").unsigned(&record), u64::MAX);
    assert_eq!(get("name").text(&record), b"7:0");
    assert_eq!(get("i_ino").unsigned(&record[..12]), 0, "a record that is cut");
    assert!(Format::parse("ID: x").is_none() && Format::parse("ID: 5\n").is_none());
}

fn page(data: &[u8], flags: u64) -> Vec<u8> {
    let mut page = 1000_u64.to_le_bytes().to_vec();
    page.extend((data.len() as u64 | flags).to_le_bytes());
    page.extend(data);
    page
}

fn head(kind: u32, delta: u32) -> [u8; 4] {
    (kind | delta << 5).to_le_bytes()
}

#[test]
fn records_of_every_kind_are_taken_apart() {
    let layout = PageLayout::parse(HEADER).unwrap();
    assert_eq!(layout.bytes, 4096);
    let mut data = Vec::new();
    // Records: 4 bytes; a long one of 8 bytes; a discarded one of 4; a time extension; an absolute
    // time.
    data.extend(head(1, 5));
    data.extend([1; 4]);
    data.extend(head(0, 1));
    data.extend(12_u32.to_le_bytes());
    data.extend([2; 8]);
    data.extend(head(29, 2));
    data.extend(8_u32.to_le_bytes());
    data.extend([9; 4]);
    data.extend(head(30, 3));
    data.extend(1_u32.to_le_bytes());
    data.extend(head(1, 0));
    data.extend([3; 4]);
    data.extend(head(31, 77));
    data.extend(2_u32.to_le_bytes());
    data.extend(head(1, 1));
    data.extend([4; 4]);
    let page = page(&data, 0);
    let records: Vec<_> = layout.records(&page).collect();
    let times: Vec<u64> = records.iter().map(|(time, _)| *time).collect();
    let step = (1 << 27) + 3;
    assert_eq!(times, [1005, 1006, 1008 + step, (2 << 27) + 78]);
    assert_eq!(page[records[1].1.clone()], [2; 8]);
    assert_eq!(layout.records(&page).missed, 0);
}

#[test]
fn what_was_lost_is_told_by_the_page() {
    let layout = PageLayout::parse(HEADER).unwrap();
    let mut data = head(1, 0).to_vec();
    data.extend([1; 4]);
    let mut lossy = page(&data, 1 << 31);
    assert_eq!(layout.records(&lossy).missed, 1, "how many is not known");
    lossy = page(&data, (1 << 31) | (1 << 30));
    lossy.extend(12_u64.to_le_bytes());
    assert_eq!(layout.records(&lossy).missed, 12);
    assert_eq!(layout.records(&lossy).count(), 1);
}

#[test]
fn pages_that_are_cut_or_wrong_end_the_walk() {
    let layout = PageLayout::parse(HEADER).unwrap();
    let mut random = 88_172_645_463_325_252_u64;
    for _ in 0..2000 {
        let bytes: Vec<u8> = (0..64)
            .map(|_| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                random.to_le_bytes()[0]
            })
            .collect();
        let all: Records<'_> = layout.records(&bytes);
        assert!(all.count() <= 16, "no more records than words");
    }
    assert_eq!(layout.records(&[]).count(), 0);
}

/// Opens tracefs, if this process is root and the kernel has it. The lock serializes the tests,
/// since creating an instance removes left-over ones.
fn tracefs() -> Option<(Tracefs, MachineLock)> {
    match Tracefs::open() {
        Ok(tracefs) => Some((tracefs, MachineLock::exclusive("tracefs"))),
        Err(error) => {
            skip(error);
            None
        }
    }
}

#[test]
fn an_instance_is_made_read_and_removed_again() {
    let Some((tracefs, _alone)) = tracefs() else { return };
    let instance = Instance::make(&tracefs, 64).unwrap();
    let path = instance.path.clone();
    assert!(path.is_dir());
    instance.enable("task/task_newtask", "").unwrap();
    let format = tracefs.format("task/task_newtask").unwrap();
    let mut reader = Reader::open(&tracefs, &instance).unwrap();
    instance.record(true).unwrap();
    for _ in 0..50 {
        std::thread::spawn(|| ()).join().unwrap();
    }
    instance.record(false).unwrap();
    let (mut latest, mut makers) = (0, HashMap::new());
    while reader
        .read_with(
            true,
            |_| (),
            |time, record| {
                assert!(time >= latest, "in the order of time");
                latest = time;
                let id = Field { offset: 0, size: 2 }.unsigned(record);
                assert_eq!(id, u64::from(format.id));
                let maker = Field { offset: 4, size: 4 }.unsigned(record);
                *makers.entry(maker).or_insert(0) += 1;
            },
        )
        .unwrap()
    {}
    // The kernel assigns thread IDs from the start again, and a container has its own PID
    // namespace.
    assert!(makers.values().any(|&threads| threads >= 50), "{makers:?}");
    assert_eq!((instance.lost(), reader.missed), (0, 0));
    drop(reader);
    drop(instance);
    assert!(!path.exists());
}

#[test]
fn who_has_it_open_for_a_moment_is_waited_for() {
    let Some((tracefs, _alone)) = tracefs() else { return };
    let instance = Instance::make(&tracefs, 64).unwrap();
    let path = instance.path.clone();
    // Simulates a child process, which inherits the descriptors of its parent until it executes its
    // program.
    let open_file = std::fs::File::open(path.join("trace_pipe")).unwrap();
    assert!(std::fs::remove_dir(&path).is_err(), "it can be removed while it is open");
    let child = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        drop(open_file);
    });
    drop(instance);
    child.join().unwrap();
    assert!(!path.exists());
}

#[test]
fn what_a_killed_process_left_is_removed_and_what_is_open_is_not() {
    let Some((tracefs, _alone)) = tracefs() else { return };
    let instances = tracefs.root().join("instances");
    // No process has this ID and start time.
    let left = instances.join(format!("larder-{}-1-7", u32::MAX));
    std::fs::create_dir(&left).unwrap();
    let open = instances.join(format!("larder-{}-1-8", u32::MAX));
    std::fs::create_dir(&open).unwrap();
    let open_file = std::fs::File::open(open.join("trace_pipe")).unwrap();
    let instance = Instance::make(&tracefs, 64).unwrap();
    assert!(!left.exists(), "its maker is gone");
    assert!(open.exists(), "a process has it open");
    assert!(instance.path.exists());
    drop(open_file);
    // A child that another test has just forked keeps the instance open until it executes its
    // program.
    let removed = (0..4000).any(|_| {
        std::thread::sleep(Duration::from_millis(5));
        instance::remove_left_over(&tracefs) == 1
    });
    assert!(removed && !open.exists());
}

#[test]
fn only_an_unknown_file_system_means_that_there_is_no_tracefs() {
    let message = |number| mount_error(io::Error::from_raw_os_error(number)).to_string();
    for number in [libc::ENODEV, libc::ENOENT] {
        assert!(message(number).contains("built without tracefs"), "{}", message(number));
    }
    for number in [libc::EPERM, libc::EACCES] {
        assert!(message(number).contains("tracefs is for root"), "{}", message(number));
    }
    assert_eq!(message(libc::EMFILE), "trace: mount tracefs: Too many open files (os error 24)");
}
