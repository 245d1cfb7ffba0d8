//! Each format yields its records, whatever the compression and the size of the reads.

use super::samples::requests;
use super::{drain, open, read, samples};
use larder_lab::trace::{Addressing, Format, NameKind, Op, OpenOptions, Record, open_stream};
use std::io::Read;

#[test]
fn every_format_gives_its_records_and_is_told_without_being_named() {
    for sample in samples(&requests(500, 1)) {
        let mut source = open(sample.name, &sample.bytes, &OpenOptions::default())
            .unwrap_or_else(|error| panic!("{:?}: {error}", sample.format));
        let mut records = drain(&mut source).unwrap();
        if sample.format == Format::Twitter {
            let keys: std::collections::HashSet<u64> = records.iter().map(|r| r.offset).collect();
            assert_eq!(keys.len(), 500, "different keys have different numbers");
            for record in &mut records {
                record.offset = 0;
            }
        }
        assert_eq!(records, sample.records, "{:?}", sample.format);
        let with_format = OpenOptions { format: Some(sample.format), ..OpenOptions::default() };
        assert_eq!(
            read("-", &sample.bytes, &with_format).unwrap().len(),
            500,
            "{:?}",
            sample.format
        );
    }
}

/// Returns a few bytes per read.
struct SmallReads(std::io::Cursor<Vec<u8>>, usize);

impl Read for SmallReads {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let count = self.1.min(buf.len());
        self.0.read(&mut buf[..count])
    }
}

#[test]
fn neither_compression_nor_the_size_of_reads_changes_the_records() {
    // More than one window of each compression.
    for sample in samples(&requests(20_000, 2)) {
        let options = OpenOptions { format: Some(sample.format), ..OpenOptions::default() };
        let whole = read(sample.name, &sample.bytes, &options).unwrap();
        let zstd = zstd::encode_all(&sample.bytes[..], 1).unwrap();
        assert_eq!(read(sample.name, &zstd, &options).unwrap(), whole, "{:?}", sample.format);
        let mut gzip = flate2::read::GzEncoder::new(&sample.bytes[..], flate2::Compression::fast());
        let mut packed = Vec::new();
        gzip.read_to_end(&mut packed).unwrap();
        assert_eq!(read(sample.name, &packed, &options).unwrap(), whole, "{:?}", sample.format);
        let slow = Box::new(SmallReads(std::io::Cursor::new(sample.bytes), 8191));
        let mut source = open_stream(sample.name, slow, &options).unwrap();
        assert_eq!(drain(&mut source).unwrap(), whole, "{:?}", sample.format);
    }
}

fn read_text(name: &str, text: &str) -> Vec<Record> {
    read(name, text.as_bytes(), &OpenOptions::default()).unwrap()
}

#[test]
fn names_are_those_of_the_trace() {
    let find = |format| samples(&requests(50, 1)).into_iter().find(|s| s.format == format).unwrap();
    for (format, of, number, name) in [
        (Format::Blktrace, NameKind::Process, 1, "db (697)"),
        (Format::Blkparse, NameKind::Process, 1, "db (697)"),
        (Format::Procmon, NameKind::Process, 1, "a \"\"b\"\".exe (42)"),
        (Format::Filemon, NameKind::Process, 1, "a:b.exe (42)"),
    ] {
        let sample = find(format);
        let mut source = open(sample.name, &sample.bytes, &OpenOptions::default()).unwrap();
        drain(&mut source).unwrap();
        assert_eq!(source.name(of, number), Some(name), "{format:?}");
    }
    let mut source = open("x", b"128166372003061629,hm,1,Read,0,512,1\n", &OpenOptions::default());
    let source = source.as_mut().unwrap();
    drain(source).unwrap();
    assert_eq!(source.name(NameKind::Volume, 0), Some("hm_1"));
}

#[test]
fn tencent_offsets_in_bytes_are_noticed_and_said() {
    let sectors = "1538323200,8,8,0,7\n1538323200,1000,16,1,7\n";
    let bytes = "1538323200,4096,4096,0,7\n1538323200,512000,8192,1,7\n";
    assert_eq!(read_text("x", sectors), read_text("x", bytes));
    assert_eq!((read_text("x", bytes)[1].offset, read_text("x", bytes)[1].len), (512_000, 8192));
    let mut source = open("x", bytes.as_bytes(), &OpenOptions::default()).unwrap();
    drain(&mut source).unwrap();
    assert!(source.notes()[0].starts_with("offsets were taken for bytes"), "{:?}", source.notes());
}

#[test]
fn operations_beyond_reads_and_writes() {
    let ops = |records: Vec<Record>| records.iter().map(|r| r.op).collect::<Vec<_>>();
    let fio = "fio version 2 iolog\n/x add\n/x trim 0 4096\n/x datasync 0 0\n/x write 0 1\n";
    assert_eq!(ops(read_text("x", fio)), [Op::Discard, Op::Flush, Op::Write]);
    let blkparse = "8,0 1 1 0.1 5 Q FWFS 8 + 8 [a]\n8,0 1 1 0.1 5 Q FWS [a]\n\
                    8,0 1 1 0.1 5 Q DS 8 + 8 [a]\n8,0 1 1 0.1 5 P N [a]\n";
    assert_eq!(ops(read_text("x", blkparse)), [Op::Write, Op::Flush, Op::Discard]);
    let twitter = "0,k,1,1,c,gets,0\n0,k,1,1,c,incr,0\n0,k,1,1,c,delete,0\n";
    assert_eq!(ops(read_text("x", twitter)), [Op::Read, Op::Write, Op::Discard]);
}

#[test]
fn headings_and_empty_answers_are_passed_over() {
    let systor = "Timestamp,Response,IOType,LUN,Offset,Size\r\n1455505300.5,,R,2,4096,8192\r\n";
    let records = read_text("x", systor);
    assert_eq!((records.len(), records[0].latency_ns, records[0].len), (1, 0, 8192));
    let disksim = "0.5 0 8 8 1\n1.25 0 8 8 0\n";
    assert_eq!(read_text("x", disksim)[1].time_ns, 750_000, "a decimal point means milliseconds");
}

#[test]
fn process_monitor_goes_past_midnight_and_passes_failures_over() {
    let text = "\"Time of Day\",\"Operation\",\"Path\",\"Detail\",\"Result\"\n\
        \"23:59:59,5\",\"ReadFile\",\"a\",\"Offset: 0, Length: 8\",\"SUCCESS\"\n\
        \"23:59:59,6\",\"ReadFile\",\"a\",\"Offset: 8, Length: 8\",\"END OF FILE\"\n\
        \"00:00:00,5\",\"WriteFile\",\"a\",\"Offset: 1.024, Length: 8\",\"SUCCESS\"\n";
    let records = read_text("x", text);
    let seen: Vec<_> = records.iter().map(|r| (r.time_ns, r.offset)).collect();
    assert_eq!(seen, [(0, 0), (1_000_000_000, 1_024)]);
}

#[test]
fn filemon_goes_past_midnight_and_passes_failures_over() {
    let text = "1\t11:59:59 PM\ta.exe:7\tREAD \tC:\\a\tSUCCESS\tOffset: 0 Length: 8\r\n\
        2\t11:59:59 PM\ta.exe:7\tFASTIO_READ\tC:\\a\tFAILURE\tOffset: 8 Length: 8\r\n\
        3\t11:59:59 PM\ta.exe:7\tREAD \tC:\\a\tSUCCESS\tMore Info\r\n\
        4\t12:00:00 AM\ta.exe:7\tIRP_MJ_WRITE*\tC:\\a\tSUCCESS\tOffset: 1024 Length: 8\r\n";
    let mut source = open("x", text.as_bytes(), &OpenOptions::default()).unwrap();
    let records = drain(&mut source).unwrap();
    let seen: Vec<_> = records.iter().map(|r| (r.time_ns, r.offset, r.op)).collect();
    assert_eq!(seen, [(0, 0, Op::Read), (1_000_000_000, 1_024, Op::Write)]);
    assert_eq!(
        source.notes(),
        ["skipped 1 requests that failed", "skipped 1 requests without an offset"]
    );
    let text = "1\t0.0005\ta.exe:7\tREAD\tC:\\a\tSUCCESS\tOffset: 0 Length: 8\n";
    let mut source = open("x", text.as_bytes(), &OpenOptions::default()).unwrap();
    let records = drain(&mut source).unwrap();
    assert_eq!((records[0].time_ns, records[0].latency_ns), (0, 500_000));
    assert!(source.notes()[0].contains("Clock Time"), "{:?}", source.notes());
}

#[test]
fn a_perfmon_log_is_refused_with_what_it_is() {
    let text = "\"(PDH-CSV 4.0) (W. Europe Standard Time)(-60)\",\
        \"\\\\H\\Memory\\Cache Bytes\",\"\\\\H\\x\"\n";
    let error = open("perf.csv", text.as_bytes(), &OpenOptions::default()).err().unwrap();
    assert!(error.to_string().contains("a Perfmon log of 2 counters"), "{error}");
}

#[test]
fn objects_are_told_from_bytes() {
    for sample in samples(&requests(50, 1)) {
        let source = open(sample.name, &sample.bytes, &OpenOptions::default()).unwrap();
        let objects = matches!(
            sample.format,
            Format::OracleGeneral
                | Format::Lcs
                | Format::Twitter
                | Format::Keys32Le
                | Format::Keys32Be
                | Format::Keys64Le
                | Format::Keys64Be
        );
        assert_eq!(source.addressing() == Addressing::Objects, objects, "{:?}", sample.format);
    }
}
