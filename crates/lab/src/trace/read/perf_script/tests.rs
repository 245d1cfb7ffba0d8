//! Tests with lines that perf 6.1 printed on Linux 6.18, and of the classification of reads.

use super::*;
use crate::trace::{NameKind, OpenOptions, Source, open_stream};

fn read(text: &str) -> (Vec<Record>, Vec<String>, Vec<String>) {
    let stream = Box::new(std::io::Cursor::new(text.as_bytes().to_vec()));
    let mut source = open_stream("p.txt", stream, &OpenOptions::default()).expect("it is reported");
    let (mut all, mut batch) = (Vec::new(), Vec::new());
    while source.next_batch(&mut batch).expect("good lines") {
        all.append(&mut batch);
    }
    let names = |kind: NameKind, numbers: &mut dyn Iterator<Item = u32>| -> Vec<String> {
        numbers.map(|number| source.name(kind, number).unwrap_or("-").to_owned()).collect()
    };
    let processes = names(NameKind::Process, &mut all.iter().map(|record| record.process));
    let files = names(NameKind::File, &mut all.iter().map(|record| record.file));
    (all, processes, files)
}

fn classes(text: &str) -> Vec<u8> {
    read(text).0.iter().map(|record| record.class).collect()
}

const HIT: u8 = 1;
const AHEAD: u8 = 2;
const MISS: u8 = 5;

/// Returns a line of `dd` in this thread.
fn dd(thread: u64, us: u64, event: &str) -> String {
    format!("              dd  {thread} [001] 76316.{us:06}: {event}\n")
}

fn add(page: u64, order: u64) -> String {
    let ofs = page * 4096;
    format!(
        "filemap:mm_filemap_add_to_page_cache: dev 254:0 ino 9883a4 pfn=0x4109d0 ofs={ofs} \
         order={order}"
    )
}

fn get(first: u64, last: u64) -> String {
    let (from, to) = (first * 4096, last * 4096 + 4095);
    format!("filemap:mm_filemap_get_pages: dev=254:0 ino=9883a4 ofs={from}-{to}")
}

#[test]
fn lines_of_perf_of_ftrace_and_of_trace_cmd() {
    let event = "mm_filemap_get_pages: dev=254:0 ino=3c520 ofs=8192-16383";
    let known = [
        format!("   dd  3352 [001] 76316.481397: filemap:{event}\n"),
        format!("   dd  3352/3352 [001] 76316.481397:   filemap:{event}\n"),
        format!("   dd  3352 76316.481397: filemap:{event}\n"),
        format!("# tracer: nop\n#\n  dd-3352    [001] .....  76316.481397: {event}\n"),
        format!("cpus=2\n  dd-3352  [001] 76316.481397: {event}\n"),
    ];
    for text in known {
        let (records, processes, files) = read(&text);
        let [record] = records.as_slice() else { panic!("{text}: {records:?}") };
        assert_eq!((record.offset, record.len, record.op), (8192, 8192, Op::Read), "{text}");
        assert_eq!(processes, ["dd (3352)"], "{text}");
        assert_eq!(files, ["254:0 inode 247072"], "{text}");
    }
    // perf pads the command with spaces and does not quote it.
    let spaces =
        "Web Content  17 [000] 1.000001: filemap:mm_filemap_get_pages: dev=8:1 ino=2 ofs=0-4095\n";
    assert_eq!(read(spaces).1, ["Web Content (17)"]);
}

#[test]
fn what_a_thread_brought_before_its_look_up_was_missed_and_the_rest_read_ahead() {
    let text = [
        dd(1, 1, &add(0, 2)),
        dd(1, 2, &get(0, 0)),
        dd(1, 3, &get(1, 1)),
        dd(1, 4, &get(1, 1)),
        dd(2, 5, &get(0, 3)),
        dd(2, 6, &get(0, 3)),
    ];
    // The first page is a miss; the second was added with it; the last two are not accessed yet.
    assert_eq!(classes(&text.concat()), [MISS, AHEAD, HIT, AHEAD, HIT]);
}

#[test]
fn batches_of_one_request_are_one_and_a_miss_in_a_later_one_counts() {
    let whole = [
        dd(1, 1, &get(0, 255)),
        dd(2, 2, &get(300, 300)),
        dd(1, 3, &get(31, 255)),
        dd(1, 4, &add(62, 0)),
        dd(1, 5, &get(62, 255)),
        dd(1, 6, &get(0, 255)),
    ];
    let (records, _, _) = read(&whole.concat());
    let requests: Vec<_> =
        records.iter().map(|r| (r.offset / 4096, r.len / 4096, r.class)).collect();
    assert_eq!(requests, [(0, 256, MISS), (300, 1, HIT), (0, 256, HIT)]);
    assert!(records.windows(2).all(|pair| pair[0].time_ns <= pair[1].time_ns));
}

#[test]
fn a_fault_comes_before_its_pages_and_again_after_them() {
    let fault = "filemap:mm_filemap_fault: dev=254:0 ino=9883a4 ofs=40960";
    let text = [
        dd(1, 1, fault),
        dd(1, 2, &add(8, 2)),
        dd(1, 3, fault),
        dd(1, 4, &get(9, 9)),
        dd(1, 5, fault),
    ];
    assert_eq!(classes(&text.concat()), [MISS, AHEAD, HIT]);
}

#[test]
fn dirty_pages_are_writes_and_what_was_made_for_them_was_not_missed() {
    let text = [
        dd(1, 1, &add(0, 0)),
        dd(1, 2, "writeback:writeback_dirty_folio: bdi 254:0: ino=9995172 index=0"),
        dd(1, 3, &get(0, 0)),
        dd(1, 4, "filemap:mm_filemap_map_pages: dev=254:0 ino=9883a4 ofs=0-65535"),
        dd(1, 5, "sched:sched_switch: prev_comm=dd"),
    ];
    let (records, _, files) = read(&text.concat());
    assert_eq!(files[0], files[1], "one inode, decimal and hexadecimal");
    assert_eq!(records[0].op, Op::Write);
    assert_eq!(records[1].class, HIT);
}

#[test]
fn what_is_no_event_has_its_line() {
    let text = dd(1, 1, &get(0, 0)) + "nonsense\n";
    let stream = Box::new(std::io::Cursor::new(text.into_bytes()));
    let mut source = open_stream("p.txt", stream, &OpenOptions::default()).expect("it is reported");
    let mut batch = Vec::new();
    let error = loop {
        match source.next_batch(&mut batch) {
            Ok(true) => {}
            Ok(false) => panic!("a bad line was passed over"),
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("line 2: the line is no event"), "{error}");
}

#[test]
fn the_state_of_threads_is_bounded_in_threads_and_in_folios() {
    let mut perf = PerfScript::default();
    let file = File { major: 254, minor: 0, inode: 1 };
    for thread in 0..2 * THREADS_MAX as u64 {
        perf.classify_added(thread, file, 1, 0);
        assert!(perf.threads.len() <= THREADS_MAX);
    }
    let line = dd(1, 481_397, &add(7, 0));
    for number in 0..(FOLIOS_MAX + 2 * ADDED_MAX) as u64 {
        let event = Event { thread: number / ADDED_MAX as u64, ..event(line.as_bytes()).unwrap() };
        perf.add(&event).unwrap();
    }
    let folios: usize = perf.threads.values().map(|thread| thread.added.len()).sum();
    assert_eq!(perf.folios, folios);
    assert!(folios <= FOLIOS_MAX, "{folios}");
    for thread in 0..1000 {
        perf.classify_added(thread, file, 1, 0);
    }
    assert_eq!(perf.folios, 0);
}
