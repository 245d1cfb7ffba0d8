//! Invalid input: empty, truncated, flipped, mixed, of the wrong kind. Each gives an error with its
//! position, or a count of bad records.

use super::round_trip::{decode, encode, random_records};
use super::samples::requests;
use super::{drain, open, read, samples};
use larder_lab::random::Random;
use larder_lab::trace::{Addressing, Format, OpenOptions, Target, TraceError};

fn with_format(format: Format) -> OpenOptions {
    OpenOptions { format: Some(format), ..OpenOptions::default() }
}

#[test]
fn an_empty_trace_is_said_to_be_empty() {
    for format in Format::all().filter(|format| *format != Format::Parquet) {
        let error = open("x", b"", &with_format(format)).err().unwrap();
        assert_eq!(error.to_string(), "read x: byte 0: the trace is empty", "{format:?}");
    }
    let empty = tempfile::NamedTempFile::new().unwrap();
    for options in [OpenOptions::default(), with_format(Format::Parquet)] {
        assert!(larder_lab::trace::open(empty.path(), &options).is_err());
    }
}

#[test]
fn a_trace_cut_in_the_middle_of_a_record_is_an_error_or_a_count() {
    for sample in samples(&requests(50, 1)) {
        // Cuts in the last record, at a point where a line or a record is incomplete.
        let cut = match sample.format {
            Format::Blkparse => sample.bytes.len() - 120,
            _ => sample.bytes.len() - 3,
        };
        let result = read(sample.name, &sample.bytes[..cut], &with_format(sample.format));
        let is_text = std::str::from_utf8(&sample.bytes).is_ok();
        // The last number of a line may be truncated and still be a number.
        if !is_text {
            let error = result.expect_err("the last record is not whole").to_string();
            assert!(error.contains("in the middle of a record"), "{:?}: {error}", sample.format);
            let tolerant = OpenOptions { max_bad: 1, ..with_format(sample.format) };
            let mut source = open(sample.name, &sample.bytes[..cut], &tolerant).unwrap();
            assert!(drain(&mut source).unwrap().len() >= 49, "{:?}", sample.format);
            assert!(source.notes().iter().any(|note| note.contains("1 bad record ")));
        }
    }
}

#[test]
fn one_format_under_the_name_of_another_is_an_error_with_its_place() {
    let all = samples(&requests(200, 1));
    for sample in &all {
        for format in Format::all().filter(|format| *format != sample.format) {
            // Any bytes are valid keys, and some formats accept any sequence of numbers.
            let is_keys = format.name().starts_with("keys");
            let alike = [Format::Vscsi1, Format::Vscsi2].contains(&format);
            match read("x", &sample.bytes, &with_format(format)) {
                Err(TraceError::Bad { place, .. }) => assert!(!place.is_empty()),
                Err(error) => panic!("{:?} as {format:?}: {error}", sample.format),
                Ok(records) => assert!(
                    is_keys || alike || records.is_empty() || format == Format::OracleGeneral,
                    "{:?} passes as {format:?}",
                    sample.format
                ),
            }
        }
    }
}

#[test]
fn bad_lines_are_counted_up_to_the_limit_and_placed() {
    let text = "1,R,0,512,1\nnonsense\n1,R,0,512,2\n1,R,x,512,3\n1,R,0,512,4\n";
    let of = |max_bad| OpenOptions { max_bad, ..with_format(Format::Alibaba) };
    let error = |max_bad| read("t", text.as_bytes(), &of(max_bad)).unwrap_err().to_string();
    assert_eq!(error(0), "read t: line 2: the device is not a number");
    assert_eq!(
        error(1),
        "read t: line 4: the offset is not a number; skipped 1 bad record (line 2: the device is \
         not a number)"
    );
    let mut source = open("t", text.as_bytes(), &of(2)).unwrap();
    assert_eq!(drain(&mut source).unwrap().len(), 3);
    let note = "skipped 2 bad records (the first: line 2: the device is not a number)";
    assert_eq!(source.notes(), [note]);
}

#[test]
fn ranges_that_cannot_be_are_bad_records() {
    for line in [
        "1,R,18446744073709551615,512,1",
        "1,W,0,4294967297,1",
        "1,R,0,512,18446744073709551615",
        "1,R,99999999999999999999,512,1",
    ] {
        assert!(read("t", line.as_bytes(), &with_format(Format::Alibaba)).is_err(), "{line}");
    }
    assert!(read("t", b"18446744073709551615 1 0 0\n", &with_format(Format::Lis)).is_err());
}

#[test]
fn a_line_without_an_end_does_not_take_all_memory() {
    let endless = vec![b'1'; 20 << 20];
    let error = read("t", &endless, &with_format(Format::Alibaba)).unwrap_err().to_string();
    assert!(error.contains("longer than"), "{error}");
}

#[test]
fn noise_is_told_to_be_noise() {
    let mut random = Random::from_seed(9);
    let noise: Vec<u8> = (0..100_000).map(|_| random.bits().to_le_bytes()[0]).collect();
    let error = open("noise.bin", &noise, &OpenOptions::default()).err().unwrap().to_string();
    assert!(error.contains("no known format"), "{error}");
    let text = b"to be, or not to be\nthat is the question\n";
    assert!(open("hamlet.txt", text, &OpenOptions::default()).is_err());
}

#[test]
fn damaged_parquet_is_an_error_and_not_a_panic() {
    let records = random_records(&mut Random::from_seed(5), 2_000, Addressing::Bytes);
    let Some(target) = Target::from_name("parquet") else {
        larder_testing::skip("this build does not have the feature parquet");
        return;
    };
    let bytes = encode(&records, target, Addressing::Bytes);
    for cut in [5, 100, bytes.len() / 2, bytes.len() - 1] {
        assert!(decode(&bytes[..cut], target, 0).is_err(), "cut at {cut}");
    }
    let mut random = Random::from_seed(6);
    for _ in 0..300 {
        let mut flipped = bytes.clone();
        let at = usize::try_from(random.below(bytes.len() as u64)).unwrap();
        flipped[at] ^= 1 << random.below(8);
        if let Ok(mut source) = decode(&flipped, target, 0) {
            // Without checksums a flipped value may go unnoticed; it must only not break anything.
            drop(drain(&mut source));
        }
    }
}

/// The Parquet crate decompresses a page as a whole.
#[test]
fn a_page_of_parquet_that_unpacks_to_two_gigabytes_is_refused() {
    let records = random_records(&mut Random::from_seed(5), 2_000, Addressing::Bytes);
    let Some(target) = Target::from_name("parquet") else {
        larder_testing::skip("this build does not have the feature parquet");
        return;
    };
    let mut bytes = encode(&records, target, Addressing::Bytes);
    // The first page follows the magic number. Its header is in Thrift's compact protocol.
    let lengths = b"\x15\0\x15\xfe\xff\xff\xff\x0f\x15\x10";
    let data_page = b"\x2c\x15\x02\x15\0\x15\x06\x15\x06\0\0";
    let header = [&lengths[..], data_page].concat();
    bytes[4..4 + header.len()].copy_from_slice(&header);
    let mut source = decode(&bytes, target, 0).unwrap();
    let error = drain(&mut source).unwrap_err().to_string();
    assert!(error.contains("a page has 2147483647 bytes"), "{error}");
}

#[test]
fn times_and_volumes_beyond_what_consumers_expect_are_bad_records() {
    let header = "time_ns,offset,len,latency_ns,volume,file,process,op,class,\
                  volume_name,file_name,process_name";
    for (line, why) in [
        ("18446744073709551615,0,4096,0,0,0,0,read,0,,,", "more than 146 years after the first"),
        ("1,0,4096,0,4294967295,0,0,read,0,,,", "the number of the volume is above 1,048,575"),
    ] {
        let text = format!("{header}\n0,0,4096,0,0,0,0,read,0,,,\n{line}\n");
        let error = read("t", text.as_bytes(), &OpenOptions::default()).unwrap_err().to_string();
        assert!(error.starts_with("read t: line 3: ") && error.contains(why), "{error}");
    }
}

#[test]
fn an_unknown_format_names_the_option_of_the_command() {
    let message_with = |format_option| {
        let options = OpenOptions { format_option, ..OpenOptions::default() };
        open("x", b"\x01\x02\x03", &options).err().unwrap().to_string()
    };
    assert_eq!(
        message_with("--trace-format"),
        "read x: byte 0: no known format begins like this (name the format with --trace-format)"
    );
    assert_eq!(message_with(""), "read x: byte 0: no known format begins like this");
}
