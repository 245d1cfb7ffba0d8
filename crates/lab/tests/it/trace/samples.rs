//! A small trace in every format, generated here from the format's own description, without code of
//! the readers, and the records that a reader must return.

use larder_lab::random::Random;
use larder_lab::trace::{Format, Op, Record};
use std::fmt::Write as _;

/// A trace in one format.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) format: Format,
    /// A file name whose extension identifies the format if the content does not.
    pub(crate) name: &'static str,
    pub(crate) bytes: Vec<u8>,
    pub(crate) records: Vec<Record>,
}

/// Returns the requests before any format reduces them: times in steps of 100 ns, whole sectors,
/// three volumes, reads and writes, latencies in steps of 100 ns.
pub(crate) fn requests(count: usize, seed: u64) -> Vec<Record> {
    let mut random = Random::from_seed(seed);
    let mut time_ns = 0;
    (0..count)
        .map(|_| {
            let record = Record {
                time_ns,
                offset: random.below(1 << 31) * 512,
                len: (1 + random.below(256)) * 512,
                latency_ns: (1 + random.below(100_000)) * 100,
                volume: u32::try_from(random.below(3)).expect("below 3"),
                file: 0,
                process: 0,
                op: if random.below(3) == 0 { Op::Write } else { Op::Read },
                class: 0,
            };
            time_ns += random.below(3_000_000) * 100;
            record
        })
        .collect()
}

/// The fields that a format keeps.
#[derive(Clone, Copy)]
struct KeptFields {
    /// Nanoseconds of a tick of its clock, 0 without one; and of a tick of its latency.
    tick_ns: u64,
    latency_tick_ns: u64,
    volume: bool,
    op: bool,
}

const NOTHING: KeptFields = KeptFields { tick_ns: 0, latency_tick_ns: 0, volume: false, op: false };

/// Returns the records that a reader must return for `requests`; the clock of the format starts at
/// `start_ns`.
fn expected_records(requests: &[Record], keeps: KeptFields, start_ns: u64) -> Vec<Record> {
    let tick = |ns: u64, tick: u64| ns.checked_div(tick).unwrap_or(0) * tick;
    let first = tick(start_ns, keeps.tick_ns);
    let mut seen = Vec::new();
    let mut number = |volume: u32| {
        let at = seen.iter().position(|known| *known == volume).unwrap_or_else(|| {
            seen.push(volume);
            seen.len() - 1
        });
        u32::try_from(at).expect("three volumes")
    };
    requests
        .iter()
        .map(|record| Record {
            time_ns: tick(record.time_ns + start_ns, keeps.tick_ns) - first,
            latency_ns: tick(record.latency_ns, keeps.latency_tick_ns),
            volume: if keeps.volume { number(record.volume) } else { 0 },
            op: if keeps.op { record.op } else { Op::Read },
            ..*record
        })
        .collect()
}

/// A time in 2017 in nanoseconds since 1970, and not on a second.
const START_NS: u64 = 1_483_228_800_123_456_700;

/// Returns one sample of every text format, made of these requests.
pub(crate) fn texts(requests: &[Record]) -> Vec<Sample> {
    let ops = KeptFields { op: true, volume: true, ..NOTHING };
    let us = KeptFields { tick_ns: 1_000, ..ops };
    let ns = KeptFields { tick_ns: 1, ..ops };
    let s = KeptFields { tick_ns: 1_000_000_000, ..ops };
    let text = |format, name, keeps, start_ns, line: &dyn Fn(&mut String, &Record, u64)| {
        let mut text = String::new();
        for record in requests {
            line(&mut text, record, record.time_ns + start_ns);
        }
        Sample {
            format,
            name,
            bytes: text.into_bytes(),
            records: expected_records(requests, keeps, start_ns),
        }
    };
    let mut all = vec![
        text(Format::Lis, "a.lis", NOTHING, 0, &|out, r, _| {
            writeln!(out, "{} {} 0 17", r.offset / 512, r.len / 512).unwrap();
        }),
        text(
            Format::Msr,
            "msr.csv",
            KeptFields { tick_ns: 100, latency_tick_ns: 100, ..ops },
            // Since 1601, but within 64 bits of nanoseconds.
            12_816_637_200_306_162_900,
            &|out, r, at| {
                let (op, ms) =
                    (if r.op == Op::Read { "Read" } else { "Write" }, r.latency_ns / 100);
                let (volume, at) = (r.volume, at / 100);
                writeln!(out, "{at},hm,{volume},{op},{},{},{ms}", r.offset, r.len).unwrap();
            },
        ),
        text(Format::Alibaba, "alibaba.csv", us, START_NS, &|out, r, at| {
            let (op, at) = (letter(r), at / 1_000);
            writeln!(out, "{},{op},{},{},{at}", r.volume + 400, r.offset, r.len).unwrap();
        }),
        text(Format::Tencent, "tencent.csv", s, START_NS, &|out, r, at| {
            let (op, at) = (u8::from(r.op == Op::Write), at / 1_000_000_000);
            let (offset, size) = (r.offset / 512, r.len / 512);
            writeln!(out, "{at},{offset},{size},{op},{}", r.volume + 1000).unwrap();
        }),
        text(
            Format::Systor,
            "systor.csv",
            KeptFields { latency_tick_ns: 1, ..ns },
            START_NS,
            &|out, r, at| {
                let [at, took] = [at, r.latency_ns].map(decimal);
                let op = letter(r);
                writeln!(out, "{at},{took},{op},{},{},{}", r.volume, r.offset, r.len).unwrap();
            },
        ),
        text(Format::Spc, "a.spc", ns, 0, &|out, r, at| {
            let (op, at) = (letter(r).to_lowercase(), decimal(at));
            writeln!(out, "{},{},{},{op},{at}", r.volume, r.offset / 512, r.len).unwrap();
        }),
        text(Format::DiskSim, "mqsim.trace", ns, 17, &|out, r, at| {
            let op = u8::from(r.op == Op::Read);
            writeln!(out, "{at} {} {} {} {op}", r.volume, r.offset / 512, r.len / 512).unwrap();
        }),
    ];
    all.extend([blkparse(requests), fio(requests, true), fio(requests, false), procmon(requests)]);
    all.extend([twitter(requests), csv(requests), perf_script(requests), filemon(requests)]);
    all
}

fn letter(record: &Record) -> &'static str {
    if record.op == Op::Read { "R" } else { "W" }
}

/// Formats nanoseconds as seconds.
fn decimal(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

/// Readers skip the summary at the end, and events that are not queued requests.
fn blkparse(requests: &[Record]) -> Sample {
    let mut text = String::new();
    for (number, r) in requests.iter().enumerate() {
        let (op, at, volume) = (letter(r), decimal(r.time_ns + 5), r.volume);
        let (sector, count) = (r.offset / 512, r.len / 512);
        for action in ["Q", "D"] {
            writeln!(
                text,
                "  8,{volume}    3 {number:8} {at:>14}   697  {action}  {op}S \
                 {sector} + {count} [db]"
            )
            .unwrap();
        }
    }
    text.push_str("CPU3 (8,0):\n Reads Queued:           1,        4KiB\n\n");
    text.push_str("Total (8,0):\n Events: 17 entries\n");
    let keeps = KeptFields { tick_ns: 1, op: true, volume: true, ..NOTHING };
    let mut records = expected_records(requests, keeps, 5);
    for record in &mut records {
        record.process = 1;
    }
    Sample { format: Format::Blkparse, name: "trace.txt", bytes: text.into_bytes(), records }
}

fn fio(requests: &[Record], third: bool) -> Sample {
    let mut text = format!("fio version {} iolog\n", if third { 3 } else { 2 });
    let stamp = |us: u64| if third { format!("{us} ") } else { String::new() };
    for volume in 0..3 {
        writeln!(text, "{}/dev/sd{volume} add", stamp(0)).unwrap();
        writeln!(text, "{}/dev/sd{volume} open", stamp(0)).unwrap();
    }
    let mut before_us = 0;
    for r in requests {
        let (us, volume) = (r.time_ns / 1_000, r.volume);
        if !third && us > before_us {
            writeln!(text, "/dev/sd{volume} wait {}", us - before_us).unwrap();
            before_us = us;
        }
        let op = if r.op == Op::Read { "read" } else { "write" };
        writeln!(text, "{}/dev/sd{volume} {op} {} {}", stamp(us), r.offset, r.len).unwrap();
    }
    let keeps = KeptFields { tick_ns: 1_000, op: true, volume: true, ..NOTHING };
    let mut records = expected_records(requests, keeps, 0);
    for record in &mut records {
        record.file = record.volume + 1;
    }
    Sample { format: Format::Fio, name: "fio.log", bytes: text.into_bytes(), records }
}

/// Columns in another order than usual, numbers with separators, lines that are not requests.
fn procmon(requests: &[Record]) -> Sample {
    let mut text = String::from(
        "\u{feff}\"Time of Day\",\"Operation\",\"Process Name\",\
         \"PID\",\"Detail\",\"Path\",\"Result\"\r\n",
    );
    for r in requests {
        let day = r.time_ns % 86_400_000_000_000;
        let (s, fraction) = (day / 1_000_000_000, day % 1_000_000_000 / 100);
        let (h, half) = (s / 3600, if s < 43_200 { "AM" } else { "PM" });
        let h = if h % 12 == 0 { 12 } else { h % 12 };
        let at = format!("{h}:{:02}:{:02}.{fraction:07} {half}", s / 60 % 60, s % 60);
        let op = if r.op == Op::Read { "ReadFile" } else { "WriteFile" };
        let [offset, len] = [r.offset, r.len].map(larder_schema::format::count);
        let volume = r.volume;
        for op in [op, "QueryNameInformationFile"] {
            write!(
                text,
                "\"{at}\",\"{op}\",\"a \"\"b\"\".exe\",\"42\",\"Offset: {offset}, Length: {len}, \
                 Priority: Normal\",\"C:\\x, {volume}\",\"SUCCESS\"\r\n"
            )
            .unwrap();
        }
    }
    let keeps = KeptFields { tick_ns: 100, op: true, volume: true, ..NOTHING };
    let mut records = expected_records(requests, keeps, 0);
    for record in &mut records {
        record.file = record.volume + 1;
        record.process = 1;
    }
    Sample { format: Format::Procmon, name: "Logfile.CSV", bytes: text.into_bytes(), records }
}

/// A heading, requests with and without asterisk, and lines that are not requests.
fn filemon(requests: &[Record]) -> Sample {
    let mut text = String::from("#\tTime\tProcess\tRequest\tPath\tResult\tOther\r\n");
    for (number, r) in requests.iter().enumerate() {
        let day = r.time_ns % 86_400_000_000_000;
        let (s, ms) = (day / 1_000_000_000, day % 1_000_000_000 / 1_000_000);
        let at = format!("{:02}:{:02}:{:02}.{ms:03}", s / 3600, s / 60 % 60, s % 60);
        let reads = ["READ ", "FASTIO_READ", "IRP_MJ_READ*"];
        let op = if r.op == Op::Read { reads[number % 3] } else { "WRITE " };
        for (op, result) in [(op, "SUCCESS"), (op, "FAILURE"), ("OPEN", "SUCCESS")] {
            write!(
                text,
                "{number}\t{at}\ta:b.exe:42\t{op}\tC:\\x, {}\t{result}\tOffset: {} Length: {}\r\n",
                r.volume, r.offset, r.len
            )
            .unwrap();
        }
    }
    let keeps = KeptFields { tick_ns: 1_000_000, op: true, volume: true, ..NOTHING };
    let mut records = expected_records(requests, keeps, 0);
    for record in &mut records {
        record.file = record.volume + 1;
        record.process = 1;
    }
    Sample { format: Format::Filemon, name: "Filemon.LOG", bytes: text.into_bytes(), records }
}

/// The offsets are hashes, so the expected records have 0.
fn twitter(requests: &[Record]) -> Sample {
    let mut text = String::new();
    for r in requests {
        let (s, op) = (r.time_ns / 1_000_000_000, if r.op == Op::Read { "get" } else { "set" });
        let key = format!("k,{:016x}", r.offset);
        writeln!(text, "{s},{key},18,{},{},{op},0", r.len - 18, r.volume).unwrap();
    }
    let keeps = KeptFields { tick_ns: 1_000_000_000, op: true, volume: true, ..NOTHING };
    let mut records = expected_records(requests, keeps, 0);
    for record in &mut records {
        record.process = record.volume + 1;
        (record.volume, record.offset) = (0, 0);
    }
    Sample { format: Format::Twitter, name: "cluster.csv", bytes: text.into_bytes(), records }
}

/// Lookups of whole pages, and pages that become dirty.
fn perf_script(requests: &[Record]) -> Sample {
    let mut text = String::from("# what perf script --ns prints\n");
    let keeps = KeptFields { tick_ns: 1, op: true, volume: true, ..NOTHING };
    let mut records = expected_records(requests, keeps, START_NS);
    for (r, out) in requests.iter().zip(&mut records) {
        let (first, last) = (r.offset / 4096, (r.offset + r.len - 1) / 4096);
        let (s, ns) =
            ((r.time_ns + START_NS) / 1_000_000_000, (r.time_ns + START_NS) % 1_000_000_000);
        let inode = r.volume + 500_000;
        let head = format!("  fio  {} [001] {s}.{ns:09}: ", 3300 + r.volume);
        if r.op == Op::Read {
            let (from, to) = (first * 4096, last * 4096 + 4095);
            let event = "filemap:mm_filemap_get_pages";
            writeln!(text, "{head}  {event}: dev=254:0 ino={inode:x} ofs={from}-{to}").unwrap();
            (out.len, out.class) = ((last - first + 1) * 4096, 1);
        } else {
            let event = "writeback:writeback_dirty_folio";
            writeln!(text, "{head}  {event}: bdi 254:0: ino={inode} index={first}").unwrap();
            (out.len, out.class) = (4096, 17);
        }
        out.offset = first * 4096;
        (out.file, out.process) = (out.volume + 1, out.volume + 1);
    }
    Sample { format: Format::PerfScript, name: "p.txt", bytes: text.into_bytes(), records }
}

fn csv(requests: &[Record]) -> Sample {
    let mut text = String::from(
        "time_ns,offset,len,latency_ns,volume,file,process,op,class,volume_name,file_name,\
         process_name\n",
    );
    for r in requests {
        let (volume, op) = (r.volume, if r.op == Op::Read { "read" } else { "write" });
        let Record { time_ns, offset, len, latency_ns, .. } = r;
        writeln!(
            text,
            "{time_ns},{offset},{len},{latency_ns},{volume},0,0,{op},0,\"v,\"\"{volume}\",,"
        )
        .unwrap();
    }
    let (bytes, records) = (text.into_bytes(), requests.to_vec());
    Sample { format: Format::Csv, name: "trace.csv", bytes, records }
}

/// Returns one sample of every other format, except for Larder's own and Parquet, which have no
/// independent writer.
pub(crate) fn binaries(requests: &[Record]) -> Vec<Sample> {
    let us = KeptFields { tick_ns: 1_000, op: true, ..NOTHING };
    let s = KeptFields { tick_ns: 1_000_000_000, ..NOTHING };
    let binary = |format, name, keeps, start_ns, put: &dyn Fn(&mut Vec<u8>, &Record, u64)| {
        let mut bytes = Vec::new();
        for record in requests {
            put(&mut bytes, record, record.time_ns + start_ns);
        }
        Sample { format, name, bytes, records: expected_records(requests, keeps, start_ns) }
    };
    let command = |r: &Record| if r.op == Op::Read { 0x28_u16 } else { 0x2a };
    let word = |value: u64| u32::try_from(value).expect("32 bits").to_le_bytes();
    let mut all = vec![
        binary(Format::Vscsi1, "a.vscsi", us, START_NS, &|out, r, at| {
            out.extend(7_u32.to_le_bytes());
            out.extend(word(r.len));
            out.extend(1_u32.to_le_bytes());
            out.extend(command(r).to_le_bytes());
            out.extend(0x0100_u16.to_le_bytes());
            out.extend((r.offset / 512).to_le_bytes());
            out.extend((at / 1_000).to_le_bytes());
        }),
        binary(
            Format::Vscsi2,
            "b.vscsi",
            KeptFields { latency_tick_ns: 1_000, ..us },
            START_NS,
            &|out, r, at| {
                out.extend(command(r).to_le_bytes());
                out.extend(0x0200_u16.to_le_bytes());
                out.extend(7_u32.to_le_bytes());
                out.extend(word(r.len));
                out.extend(1_u32.to_le_bytes());
                out.extend((r.offset / 512).to_le_bytes());
                out.extend((at / 1_000).to_le_bytes());
                out.extend((r.latency_ns / 1_000).to_le_bytes());
            },
        ),
        binary(Format::OracleGeneral, "a.oracleGeneral.bin", s, 0, &|out, r, at| {
            out.extend(word(at / 1_000_000_000));
            out.extend(r.offset.to_le_bytes());
            out.extend(word(r.len));
            out.extend((-1_i64).to_le_bytes());
        }),
    ];
    all.extend((1..=3).map(|version| lcs(requests, version)));
    all.extend([false, true].map(|big_endian| blktrace(requests, big_endian)));
    all.extend(keys(requests));
    all
}

fn lcs(requests: &[Record], version: u64) -> Sample {
    let mut bytes = vec![0; 8192];
    let magic = 0x1234_5678_9abc_def0_u64.to_le_bytes();
    bytes[..8].copy_from_slice(&magic);
    bytes[8..16].copy_from_slice(&version.to_le_bytes());
    bytes[8184..].copy_from_slice(&magic);
    for r in requests {
        let seconds = u32::try_from(r.time_ns / 1_000_000_000).expect("32 bits");
        bytes.extend(seconds.to_le_bytes());
        bytes.extend(r.offset.to_le_bytes());
        match version {
            3 => bytes.extend(r.len.to_le_bytes()),
            _ => bytes.extend(u32::try_from(r.len).expect("32 bits").to_le_bytes()),
        }
        if version > 1 {
            let op = if r.op == Op::Read { 1 } else { 3 };
            bytes.extend((op | r.volume << 8).to_le_bytes());
        }
        if version > 2 {
            bytes.extend(60_u32.to_le_bytes());
        }
        bytes.extend((-1_i64).to_le_bytes());
    }
    let more = version > 1;
    let keeps = KeptFields { tick_ns: 1_000_000_000, op: more, volume: more, ..NOTHING };
    Sample {
        format: Format::Lcs,
        name: "a.lcs",
        bytes,
        records: expected_records(requests, keeps, 0),
    }
}

/// A notification names the process; each request is queued and completed.
fn blktrace(requests: &[Record], big_endian: bool) -> Sample {
    const QUEUED: u32 = 1 | 1 << 20;
    const COMPLETED: u32 = 8 | 1 << 23;
    const PROCESS: u32 = 1 << 26;
    let mut bytes = Vec::new();
    let mut event = |time: u64, sector: u64, len: u64, action: u32, device: u32, pdu: &[u8]| {
        macro_rules! put {
            ($value:expr) => {
                bytes.extend(if big_endian { $value.to_be_bytes() } else { $value.to_le_bytes() })
            };
        }
        put!(0x6561_7407_u32);
        put!(1_u32);
        put!(time);
        put!(sector);
        put!(u32::try_from(len).expect("32 bits"));
        put!(action);
        put!(697_u32);
        put!(device);
        put!(3_u32);
        put!(0_u16);
        put!(u16::try_from(pdu.len()).expect("16 bits"));
        bytes.extend(pdu);
    };
    event(1, 0, 0, PROCESS, 0, b"db\0");
    for r in requests {
        let device = 8 << 20 | r.volume;
        let op = 1 << (16 + u32::from(r.op == Op::Write));
        event(r.time_ns + 9, r.offset / 512, r.len, QUEUED | op, device, b"");
        event(r.time_ns + 10, r.offset / 512, r.len, COMPLETED | op, device, b"pdu");
    }
    let keeps = KeptFields { tick_ns: 1, op: true, volume: true, ..NOTHING };
    let mut records = expected_records(requests, keeps, 9);
    for record in &mut records {
        record.process = 1;
    }
    Sample { format: Format::Blktrace, name: "sda.blktrace.0", bytes, records }
}

fn keys(requests: &[Record]) -> Vec<Sample> {
    let sample = |format, name, bytes: Vec<u8>, mask: u64| {
        let key = |r: &Record| Record { offset: r.offset & mask, ..Record::default() };
        Sample { format, name, bytes, records: requests.iter().map(key).collect() }
    };
    let wide = |put: fn(u64) -> [u8; 8]| requests.iter().flat_map(|r| put(r.offset)).collect();
    let narrow = |put: fn(u32) -> [u8; 4]| {
        let low = |r: &Record| u32::try_from(r.offset & 0xffff_ffff).expect("masked");
        requests.iter().flat_map(|r| put(low(r))).collect()
    };
    vec![
        sample(Format::Keys64Le, "a.u64", wide(u64::to_le_bytes), u64::MAX),
        sample(Format::Keys64Be, "a.u64be", wide(u64::to_be_bytes), u64::MAX),
        sample(Format::Keys32Le, "a.u32", narrow(u32::to_le_bytes), 0xffff_ffff),
        sample(Format::Keys32Be, "a.u32be", narrow(u32::to_be_bytes), 0xffff_ffff),
    ]
}
