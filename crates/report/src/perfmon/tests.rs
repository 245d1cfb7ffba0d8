//! Synthetic logs: with published figures, and in each supported form.

use super::*;
use std::io::Read as _;

/// Formats a line of a log, with every field quoted.
fn line(fields: &[String]) -> String {
    let quoted: Vec<String> = fields.iter().map(|field| format!("\"{field}\"")).collect();
    quoted.join(",") + "\r\n"
}

/// Formats a log with a sample every five seconds from 10:00:00 on.
fn log(columns: &[(&str, Vec<String>)]) -> String {
    let mut head = vec!["(PDH-CSV 4.0) (Pacific Standard Time)(480)".to_owned()];
    head.extend(columns.iter().map(|(name, _)| format!("\\\\SRV\\{name}")));
    let mut text = line(&head);
    let count = columns.iter().map(|(_, values)| values.len()).max().unwrap_or(0);
    for index in 0..count {
        let at = index * 5;
        let mut fields = vec![format!("04/15/2000 10:{:02}:{:02}.166", at / 60 % 60, at % 60)];
        fields.extend(columns.iter().map(|(_, values)| values[index].clone()));
        text.push_str(&line(&fields));
    }
    text
}

fn column(values: &[f64]) -> Vec<String> {
    values.iter().map(|value| format!("{value:.17}")).collect()
}

fn summary(text: &str) -> Summary {
    read(text.as_bytes(), &Options::default()).expect("a log")
}

fn near(found: Option<f64>, wanted: f64) {
    let found = found.expect("a value");
    assert!((found - wanted).abs() < 5e-4, "{found} is not {wanted}");
}

/// Returns twelve samples whose mean is the value that a monitor showed and whose weighted mean is
/// the true one: busy intervals almost always hit, and quiet ones rarely do.
fn published() -> String {
    // Pin reads: eleven busy samples with 99.43 % and one quiet one with 10.27 %: 92.0 on average.
    let busy = [99.43; 11];
    let mut pin_hits = busy.to_vec();
    pin_hits.push(92.0 * 12.0 - 99.43 * 11.0);
    let mut pins = vec![300.0; 11];
    // The quiet sample has as many calls as yield 98.7 % hits in total.
    pins.push(300.0 * 11.0 * (99.43 - 98.7) / (98.7 - pin_hits[11]));
    // MDL reads: four busy samples with 80 %, and eight quiet ones; the mean of all is 37 %.
    let mut mdl_hits = vec![80.0; 4];
    mdl_hits.extend([(37.0 * 12.0 - 320.0) / 8.0; 8]);
    let mut mdl = vec![90.0; 4];
    mdl.extend([360.0 * (80.0 - 68.0) / (68.0 - mdl_hits[11]) / 8.0; 8]);
    log(&[
        ("Cache\\Pin Reads/sec", column(&pins)),
        ("Cache\\Pin Read Hits %", column(&pin_hits)),
        ("Cache\\MDL Reads/sec", column(&mdl)),
        ("Cache\\MDL Read Hits %", column(&mdl_hits)),
        // Run 1 of the probe: 186 reads per second, 99.9 %, 1.9 flushes with 7.6 pages.
        ("Cache\\Copy Reads/sec", column(&[186.0; 12])),
        ("Cache\\Copy Read Hits %", column(&[99.9; 12])),
        ("Cache\\Lazy Write Flushes/sec", column(&[1.9; 12])),
        ("Cache\\Lazy Write Pages/sec", column(&[7.6; 12])),
    ])
}

/// Checks that docs/perfmon.md shows the tested log.
#[test]
fn documents_show_the_log_that_is_tested() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/perfmon/published.csv");
    if std::env::var_os("LARDER_WRITE_DOCS").is_some() {
        std::fs::write(path, published()).expect("it is written");
    }
    let known = std::fs::read_to_string(path).expect("it is there");
    assert_eq!(known, published(), "renew it with LARDER_WRITE_DOCS=1");
}

#[test]
fn published_averages_and_the_true_ratios() {
    let found = summary(&published());
    let interface = |name| {
        found.interfaces.iter().find(|i| i.interface == name).expect("the interface is there")
    };
    near(interface("pin").averaged_hit_ratio, 0.920);
    near(interface("pin").hit_ratio, 0.987);
    near(interface("mdl").averaged_hit_ratio, 0.37);
    near(interface("mdl").hit_ratio, 0.68);
    near(interface("copy").hit_ratio, 0.999);
    near(interface("copy").misses_per_s, 0.186);
    near(found.bursts[0].pages_per_burst, 4.0);
    assert_eq!((found.samples, found.host.as_str()), (12, "SRV"));
    assert_eq!(found.begin, "2000-04-15 10:00:00");
    let text = to_text(&found);
    for part in [
        "98.7 %",
        "92.0 %",
        "68.0 %",
        "37.0 %",
        "misleads for pin: it is 92.0 %",
        "; for mdl: it is",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    assert!(to_csv(&found).contains("Reads of the cache,mdl,hit_ratio,0.6"), "{}", to_csv(&found));
    let page = to_html(&found).replace("&#160;", " ");
    for part in ["Hit ratio over time", "Misses over time", "all, 96.9 %", "mdl, 68.0 %"] {
        assert!(page.contains(part), "{part}");
    }
    // 11.7 of 15.5 misses per second.
    assert!(page.contains("mdl, 75.7 % of all misses"), "{page}");
    let falls = "the average of samples is 92.0 %; the lowest sample is 10.3 %, after 55.0 s";
    assert!(page.contains(falls), "{page}");
    let line = |name, unit| {
        found.lines.iter().find(|line| (line.name, line.unit) == (name, unit)).expect("a line")
    };
    near(line("mdl", "misses per second").points.first().map(|point| point.1), 18.0);
    let of_first = 300.0 * 0.9943 + 90.0 * 0.8 + 186.0 * 0.999;
    near(line("all", "ratio").points.first().map(|point| point.1), of_first / 576.0);
    assert_eq!(found.to_json()["schema"], "larder-perfmon");
}

#[test]
fn a_german_log_in_windows_1252_with_semicolons_and_commas() {
    let text = "\"(PDH-CSV 4.0) (Mitteleurop\u{e4}ische Zeit)(-60)\";\
        \"\\\\SRV\\Cache\\Kopieren - Lesevorg\u{e4}nge/s\";\
        \"\\\\SRV\\Cache\\Kopieren - Lesetreffer (%)\";\
        \"\\\\SRV\\Physikalischer Datentr\u{e4}ger(0 C:)\\Mittlere Sek./Lesevorg\u{e4}nge\";\
        \"\\\\SRV\\Arbeitsspeicher\\Verf\u{fc}gbare Bytes\"\r\n\
        \"15.04.2000 10:00:00\";\"1.186,5\";\"99,9\";\"0,012\";\"4.194.304\"\r\n\
        \"15.04.2000 10:00:05\";\"10,5\";\"50\";\"0,008\";\" \"\r\n";
    let ansi: Vec<u8> = text.chars().map(|c| u8::try_from(u32::from(c)).expect("Latin")).collect();
    let found = read(&ansi[..], &Options::default()).expect("a log");
    assert_eq!(found.language, "German");
    near(found.interfaces[0].hit_ratio, (1186.5 * 0.999 + 10.5 * 0.5) / 1197.0);
    near(found.disks[0].averaged_seconds_per_read, 0.010);
    assert_eq!(found.disks[0].object, "PhysicalDisk");
    assert_eq!(found.memory.expect("memory").available_min_bytes, Some(4_194_304.0));
    assert_eq!(found.begin, "2000-04-15 10:00:00");
}

#[test]
fn french_and_spanish_disks_and_memory() {
    let french = log(&[
        ("Disque logique(C:)\\Moyenne disque s/\u{e9}criture", column(&[0.02])),
        ("Disque logique(C:)\\\u{c9}critures disque/s", column(&[70.0])),
        ("M\u{e9}moire\\Pages/s", column(&[45.0])),
    ]);
    let found = summary(&french);
    assert_eq!(found.language, "French");
    near(found.disks[0].seconds_per_write, 0.02);
    let spanish = log(&[
        ("Disco f\u{ed}sico(0 C:)\\Promedio de segundos de disco/lectura", column(&[0.01])),
        ("Memoria\\Mbytes disponibles", column(&[512.0])),
    ]);
    let found = summary(&spanish);
    assert_eq!(found.language, "Spanish");
    let memory = found.memory.expect("memory");
    assert_eq!(memory.available_mean_bytes, Some(512.0 * 1024.0 * 1024.0));
}

#[test]
fn what_is_missing_is_named() {
    let found = summary(&log(&[("Cache\\Copy Read Hits %", column(&[90.0, 80.0]))]));
    assert_eq!(found.interfaces[0].hit_ratio, None);
    near(found.interfaces[0].averaged_hit_ratio, 0.85);
    let text = to_text(&found);
    assert!(text.contains("hits but no calls of copy"), "{text}");
    assert!(text.contains("not known: Copy Reads/sec, "), "{text}");
    assert!(!text.contains("Lazy Write Flushes/sec"), "its table is not shown: {text}");
    assert!(found.missing.contains(&"Lazy Write Flushes/sec"));
    assert!(!found.missing.contains(&"Copy Read Hits %"));

    assert_eq!(found.absent, ["memory", "disks"]);
    let spanish = summary(&log(&[
        ("Cach\u{e9}\\Lecturas de copia/s", column(&[1.0])),
        ("Memoria\\P\u{e1}ginas/s", column(&[1.0])),
    ]));
    let text = to_text(&spanish);
    assert!(text.contains("Available Bytes") && text.contains("Lecturas de copia/s"), "{text}");

    let polish = log(&[("Pami\u{119}\u{107} podr\u{119}czna\\Odczyty/s", column(&[1.0]))]);
    let error = read(polish.as_bytes(), &Options::default()).expect_err("no name is known");
    assert!(error.to_string().contains("Odczyty/s"), "{error}");
    let list = "86\nPami\u{119}\u{107} podr\u{119}czna\n106\nOdczyty/s\n";
    let names = Names::read(list.as_bytes()).expect("it can be read").expect("a list");
    let options = Options { names: Some(&names), ..Options::default() };
    let found = read(polish.as_bytes(), &options).expect("a log");
    assert_eq!(found.interfaces[0].calls_per_s, Some(1.0));
}

#[test]
fn blanks_resets_and_clocks_that_go_back() {
    let mut text = log(&[
        ("Cache\\Copy Reads/sec", vec![" ".into(), "100".into(), "-4294967".into(), "100".into()]),
        ("Cache\\Copy Read Hits %", vec![String::new(), "90".into(), "120".into(), "80".into()]),
    ]);
    text.push_str("\"04/15/2000 09:00:00.000\",\"1\",\"0\"\r\n");
    let found = summary(&text);
    near(found.interfaces[0].hit_ratio, 0.85);
    assert_eq!(found.interfaces[0].calls_per_s, Some(100.0));
    let notes = found.notes.join("\n");
    assert!(notes.contains("left out: 2 values that cannot be"), "{notes}");
    assert!(notes.contains("the first of them line 6"), "{notes}");
    assert_eq!(found.samples, 4);
}

#[test]
fn wrong_lines_are_refused_with_their_place() {
    let good = log(&[("Cache\\Copy Reads/sec", column(&[1.0, 2.0]))]);
    let known = [
        (good.replace("\"2.0", "\"x2.0"), "line 3: \"x2.0"),
        (good.replace("04/15/2000 10:00:05.166", "today"), "line 3: \"today\" is not a time"),
        (good.replace("04/15/2000 10:00:05", "17/17/2000 10:00:05"), "line 3"),
        (
            good.clone() + "\"04/15/2000 10:00:10.0\"\r\n",
            "line 4: it has 1 field, the first line has 2",
        ),
        ("a,b\r\n1,2\r\n".to_owned(), "it is not a Perfmon log"),
        (String::new(), "it is not a Perfmon log"),
        (
            log(&[("Cache\\Copy Reads/sec", vec!["1,234".into()])]),
            "decimals or thousands, and nothing else shows which; use --decimal",
        ),
    ];
    for (text, reason) in known {
        let error = read(text.as_bytes(), &Options::default()).expect_err(reason);
        assert!(error.to_string().contains(reason), "{error} has no {reason}");
    }
    let ambiguous = log(&[("Cache\\Copy Reads/sec", vec!["1,234".into()])]);
    for (decimal, value) in [(Decimal::Comma, 1.234), (Decimal::Point, 1234.0)] {
        let options = Options { decimal: Some(decimal), ..Options::default() };
        let found = read(ambiguous.as_bytes(), &options).expect("it is said which");
        near(found.interfaces[0].calls_per_s, value);
    }
}

#[test]
fn a_log_without_samples_is_refused() {
    let text = log(&[("Cache\\Copy Reads/sec", Vec::new())]);
    assert_eq!(read(text.as_bytes(), &Options::default()), Err(PerfmonError::NoSamples));
}

#[test]
fn a_log_with_one_sample_has_no_interval() {
    let found = summary(&log(&[("Cache\\Copy Reads/sec", column(&[5.0]))]));
    assert_eq!((found.samples, found.interval_s), (1, None));
    let text = to_text(&found);
    assert!(text.contains("SRV: one sample at 2000-04-15 10:00:00; names"), "{text}");
    assert!(to_html(&found).contains("</html>"));
}

#[test]
fn a_quote_without_end_costs_one_line() {
    let text = log(&[("Cache\\Copy Reads/sec", column(&[1.0, 2.0]))]);
    let torn = text.replacen("\"04/15/2000 10:00:00.166\"", "\"04/15/2000 10:00:00.166", 1);
    let error = read(torn.as_bytes(), &Options::default()).expect_err("a quote is open");
    assert_eq!(error.to_string(), "line 2: a quote is not closed");
    let endless = std::io::BufReader::new(b"\"(PDH-CSV".chain(std::io::repeat(b'x')));
    let error = read(endless, &Options::default()).expect_err("a line has no end");
    assert_eq!(error.to_string(), "line 1: it is longer than 16777216 bytes");
}

#[test]
fn a_log_of_many_counters_takes_no_longer_for_each() {
    // An algorithm with quadratic time would take minutes.
    let names: Vec<String> = (0..20_000)
        .map(|process| format!("Process(p#{process})\\IO Read Bytes/sec"))
        .chain((0..20_000).map(|disk| format!("LogicalDisk(d{disk})\\Disk Reads/sec")))
        .collect();
    let columns: Vec<_> = names.iter().map(|name| (name.as_str(), column(&[1.0, 2.0]))).collect();
    let found = summary(&log(&columns));
    assert_eq!((found.disks.len(), found.samples), (20_000, 2));
}

#[test]
fn weights_make_the_difference() {
    let disk = "PhysicalDisk(0 C:)\\";
    let found = summary(&log(&[
        (&format!("{disk}Disk Reads/sec"), column(&[100.0, 1.0])),
        (&format!("{disk}Avg. Disk sec/Read"), column(&[0.001, 0.101])),
        (&format!("{disk}% Disk Read Time"), column(&[10.0, 250.0])),
    ]));
    near(found.disks[0].averaged_seconds_per_read, 0.051);
    near(found.disks[0].seconds_per_read, 0.201 / 101.0);
    near(found.disks[0].read_time, 1.3);
}

#[test]
fn disks_are_weighted_by_transfers_and_shares_by_intervals() {
    let disk = "PhysicalDisk(0 C:)\\";
    let name = |counter: &str| format!("{disk}{counter}");
    let found = summary(&log(&[
        (&name("Disk Reads/sec"), column(&[90.0, 1.0])),
        (&name("Disk Writes/sec"), column(&[9.0, 0.0])),
        (&name("Avg. Disk sec/Transfer"), column(&[0.001, 0.1])),
        (&name("% Idle Time"), column(&[60.0, 0.0])),
        (&name("% Disk Time"), column(&[40.0, 260.0])),
        (&name("Avg. Disk Queue Length"), column(&[0.4, 2.6])),
        (&name("Avg. Disk Read Queue Length"), column(&[0.3, 2.6])),
        (&name("Avg. Disk Write Queue Length"), column(&[0.1, 0.0])),
    ]));
    let disk = &found.disks[0];
    near(disk.transfers_per_s, 50.0);
    near(disk.seconds_per_transfer, (99.0 * 0.001 + 0.1) / 100.0);
    near(disk.busy, 0.7);
    near(disk.busy_max, 1.0);
    near(disk.disk_time, 1.5);
    near(disk.disk_time_max, 2.6);
    near(disk.read_queue, 1.45);
    near(disk.write_queue, 0.05);
    near(disk.queue_max, 2.6);
    assert!(!found.missing.contains(&"Disk Transfers/sec"), "it follows from reads and writes");

    let name = |counter: &str| format!("LogicalDisk(D:)\\{counter}");
    let found = summary(&log(&[
        (&name("Disk Reads/sec"), column(&[30.0])),
        (&name("Avg. Disk sec/Read"), column(&[0.01])),
        (&name("Disk Writes/sec"), column(&[10.0])),
        (&name("Avg. Disk sec/Write"), column(&[0.03])),
    ]));
    near(found.disks[0].seconds_per_transfer, 0.015);
    assert_eq!((found.disks[0].busy, found.disks[0].disk_time), (None, None));
}

#[test]
fn disks_that_are_not_counted_are_not_idle() {
    let name = |disk: &str, counter: &str| format!("PhysicalDisk({disk})\\{counter}");
    let found = summary(&log(&[
        (&name("off", "Disk Reads/sec"), column(&[0.0, 0.0])),
        (&name("off", "% Idle Time"), column(&[0.0, 0.0])),
        (&name("idle", "Disk Reads/sec"), column(&[0.0, 0.0])),
        (&name("idle", "% Idle Time"), column(&[100.0, 100.0])),
        (&name("unknown", "Disk Reads/sec"), column(&[0.0, 0.0])),
    ]));
    let rates: Vec<Option<f64>> = found.disks.iter().map(|disk| disk.reads_per_s).collect();
    assert_eq!(rates, [None, Some(0.0), Some(0.0)]);
    assert_eq!((found.disks[0].busy, found.disks[1].busy), (None, Some(0.0)));
    let notes = found.notes.join("\n");
    assert!(notes.contains("PhysicalDisk off: not counted: all counters are 0"), "{notes}");
    assert!(notes.contains("PhysicalDisk unknown: all counters are 0: without"), "{notes}");
    assert!(!notes.contains("idle:"), "{notes}");
}

#[test]
fn processors_paging_and_operations_are_in_the_tables() {
    let found = summary(&log(&[
        ("Processor(0)\\% Processor Time", column(&[80.0, 100.0])),
        ("Processor(1)\\% Processor Time", column(&[0.0, 100.0])),
        ("System\\Processor Queue Length", column(&[1.0, 11.0])),
        ("Paging File(_Total)\\% Usage", column(&[10.0, 30.0])),
        ("Paging File(\\??\\C:\\pagefile.sys)\\% Usage", column(&[10.0, 30.0])),
        ("Paging File(\\??\\C:\\pagefile.sys)\\% Usage Peak", column(&[40.0, 45.0])),
        ("Memory\\Cache Faults/sec", column(&[200.0, 100.0])),
        ("Memory\\Page Reads/sec", column(&[20.0, 10.0])),
        ("Memory\\Pages Input/sec", column(&[80.0, 10.0])),
        ("Process(probe)\\% Processor Time", column(&[150.0, 50.0])),
        ("Process(probe)\\IO Read Operations/sec", column(&[100.0, 300.0])),
        ("Process(probe)\\IO Write Operations/sec", column(&[10.0, 30.0])),
        ("Process(probe)\\IO Other Operations/sec", column(&[1.0, 3.0])),
        ("Process(probe)\\IO Other Bytes/sec", column(&[64.0, 64.0])),
        ("Process(quiet)\\IO Data Bytes/sec", column(&[4.0, 4.0])),
        ("Process(quiet)\\IO Data Operations/sec", column(&[1.0, 1.0])),
    ]));
    let processor = found.processor.as_ref().expect("processors");
    near(processor.time, 0.7);
    near(processor.time_max, 1.0);
    near(processor.queue, 6.0);
    near(processor.queue_max, 11.0);
    let files: Vec<&str> = found.paging_files.iter().map(|it| it.file.as_str()).collect();
    assert_eq!(files, ["\\??\\C:\\pagefile.sys", "_Total"]);
    near(found.paging_files[0].usage, 0.2);
    near(found.paging_files[0].usage_max, 0.3);
    near(found.paging_files[0].usage_peak, 0.45);
    let memory = found.memory.as_ref().expect("memory");
    near(memory.cache_faults_per_s, 150.0);
    near(memory.page_reads_per_s, 15.0);
    near(memory.pages_input_per_s, 45.0);
    let process =
        |name| found.processes.iter().find(|it| it.process == name).expect("the process is there");
    near(process("probe").processor_time, 1.0);
    near(process("probe").data_operations_per_s, 220.0);
    near(process("probe").other_operations_per_s, 2.0);
    near(process("probe").other_bytes_per_s, 64.0);
    near(process("quiet").data_bytes_per_s, 4.0);
    near(process("quiet").data_operations_per_s, 1.0);
    let text = to_text(&found);
    for part in ["Processors", "Paging files", "I/O operations", "cache faults/s", "45.0 %"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    let plain = summary(&published());
    assert_eq!((plain.processor, plain.paging_files), (None, Vec::new()));
}

#[test]
fn any_bytes_give_a_result_or_an_error() {
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{Rng, SeedableRng};
    let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
    let whole = published().into_bytes();
    let mut read_anyway = 0;
    for _ in 0..2_000 {
        let mut bytes = whole.clone();
        for _ in 0..=random.next_u64() % 6 {
            let at = usize::try_from(random.next_u64()).expect("64 bits") % bytes.len().max(1);
            match random.next_u64() % 4 {
                0 => bytes.truncate(at),
                1 if at < bytes.len() => bytes[at] = random.next_u64().to_le_bytes()[0],
                2 => bytes.insert(at, b"\",;\n\\().-#"[at % 10]),
                _ if at < bytes.len() => drop(bytes.drain(at..(at + 9).min(bytes.len()))),
                _ => {}
            }
        }
        if let Ok(found) = read(&bytes[..], &Options::default()) {
            read_anyway += 1;
            assert!(!to_text(&found).is_empty());
            for ratio in found.interfaces.iter().filter_map(|interface| interface.hit_ratio) {
                assert!((0.0..=1.0).contains(&ratio));
            }
        }
    }
    assert!(read_anyway > 50, "only {read_anyway} were read");
}
