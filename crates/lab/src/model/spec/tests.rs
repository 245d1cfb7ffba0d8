//! Tests of the texts of store models.

use super::devices::limits;
use super::*;
use crate::model::Latency;
use crate::random::Random;

fn parse(text: &str) -> Result<StoreSpec, String> {
    let syntax = SpecSyntax {
        bytes: |text| scaled(text, &[("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)]),
        time: |text| {
            scaled(text, &[("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)])
        },
        unknown: |kind, name, known| format!("no {kind} {name} in {}", known.join(" ")),
    };
    StoreSpec::parse(text, &syntax)
}

fn scaled(text: &str, units: &[(&str, u64)]) -> Result<u64, String> {
    let unit = units.iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, *scale)));
    let (number, scale) = unit.unwrap_or((text, 1));
    let number = number.parse().map(|number: u64| number * scale);
    number.map_err(|error| format!("bad {text}: {error}"))
}

fn rates(text: &str) -> DeviceRates {
    match parse(text) {
        Ok(StoreSpec::Model(StoreModel::Device(DeviceModel::Rated(rates)))) => rates,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn each_part_is_optional_and_has_its_place() {
    assert_eq!(rates("latency:10ms"), DeviceRates::fixed(10_000_000));
    assert_eq!(rates("latency:10ms"), rates("fixed:10ms"));
    let all = rates("depth:8,bytes:100MiB,iops:100,latency:2ms,burst:100ms,slice:1s");
    let total = limits(100, 100 << 20);
    let expected = DeviceRates {
        total,
        depth: 8,
        burst: 100_000_000,
        slice: 1_000_000_000,
        ..DeviceRates::fixed(2_000_000)
    };
    assert_eq!(all, expected);
    let sides = rates("write-iops:5,read-bytes:1KiB,read-latency:3us,latency:2us");
    assert_eq!(sides.write.operations_per_s, Some(5));
    assert_eq!((sides.read.bytes_per_s, sides.total), (Some(1024), RateLimits::default()));
    let latencies = [3_000, 2_000].map(Latency::constant);
    assert_eq!([sides.read_latency, sides.write_latency], latencies);
    let varied = rates("latency:3us,read-median:2us");
    assert_eq!(varied.read_latency, Latency { mean: 3_000, median: 2_000 });
    assert_eq!(varied.write_latency, Latency::constant(3_000));
    let transfer = rates("transfer:1GiB");
    assert_eq!(transfer.transfer_bytes_per_s, Some(1 << 30));
    assert_eq!(transfer.read_latency, Latency::default());
    assert_eq!(parse("measure:/dev/sda:1,x"), Ok(StoreSpec::Measure("/dev/sda:1,x".into())));
    assert_eq!(parse("file:a/b.json"), Ok(StoreSpec::File("a/b.json".into())));
}

#[test]
fn wrong_texts_are_refused_with_the_reason() {
    for (text, reason) in [
        ("iops:0", "\"0\" is not a rate; write iops:N"),
        ("iops:-1", "is not a rate"),
        ("iops:99999999999999999999", "is not a rate"),
        ("iops:1.5", "is not a rate"),
        ("read-bytes:0KiB", "write read-bytes:N"),
        ("iops:10,iops:20", "\"iops\" is there twice"),
        ("iops:10,", "\"\" is not KEY:VALUE"),
        ("iops:10,disk", "\"disk\" is not KEY:VALUE"),
        ("iops", "no store model iops in instant disk scsi-1999"),
        ("", "no store model"),
        ("latency:", "bad :"),
        ("latency:4000s", "the latency of a store model is at most 1h"),
        ("fixed:4000s", "at most 1h"),
        ("latency:1us,median:2us", "of reads, the median is not between 1/10 of the latency and"),
        ("median:0s", "neither a rate nor a latency"),
        ("read-latency:2ms,median:1ms", "of writes, the median is not between"),
        ("latency:1us,read-median:99ns", "of reads, the median"),
        ("iops:1,write-median:1ns", "of writes, the median"),
        ("burst:1ms", "neither a rate nor a latency"),
        ("depth:8,burst:1ms,slice:1ms", "neither a rate nor a latency"),
        ("iops:1,slice:4000s", "the slice of a store model is at most 1h"),
        ("iops:1,credits:5", "credit-iops:N and credits:N belong together"),
        ("credit-iops:5", "belong together"),
        ("credit-iops:0,credits:1", "write credit-iops:N"),
        ("iops:1,depth:0", "\"0\" is not a depth"),
        ("iops:1,depth:1025", "from 1 to 1024"),
        ("read-depth:4", "no part of a store model read-depth"),
        ("write-iops-:4", "no part"),
        (":", "no part"),
        ("measure:", "write measure:PATH"),
        ("file:", "write file:PATH"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.contains(reason), "{text}: {error}");
    }
}

#[test]
fn names_are_texts_of_the_same_model() {
    for name in DEVICES.iter().map(|it| it.name).chain(["instant"]) {
        let Ok(StoreSpec::Model(model)) = parse(name) else { panic!("{name}") };
        assert_eq!(model.name(), name);
    }
    for NamedDevice { name, device, .. } in DEVICES {
        if let DeviceModel::Rated(device) = device {
            assert_eq!(rates(&device.to_string()), device, "{name}");
        }
    }
    assert_eq!(StoreModel::rated(DeviceRates::fixed(4_000)).name(), "fixed:4us");
    let mut random = Random::from_seed(11);
    for _ in 0..500 {
        let mut some = |below: u64| (random.below(2) == 0).then(|| 1 + random.below(below));
        let mut limits =
            || RateLimits { operations_per_s: some(1 << 20), bytes_per_s: some(1 << 40) };
        let (total, read, write) = (limits(), limits(), limits());
        let transfer_bytes_per_s = limits().bytes_per_s;
        let mut some_latency = || {
            let mean = random.below(3) * 1_000_500;
            Latency { mean, median: mean / (1 + random.below(2)) }
        };
        let device = DeviceRates {
            total,
            read,
            write,
            credit: (transfer_bytes_per_s.is_some())
                .then_some(BurstCredit { operations_per_s: 3, operations: 5_400_000 }),
            read_latency: some_latency(),
            write_latency: some_latency(),
            transfer_bytes_per_s,
            burst: random.below(3) * 1_500_000,
            slice: random.below(3) * 1_500_000,
            depth: DEPTH_MAX - u32::try_from(random.below(2) * 1_000).unwrap(),
        };
        assert_eq!(rates(&device.to_string()), device, "{device}");
    }
}

#[test]
fn the_devices_complete_what_their_data_sheets_state() {
    for (name, depth, rate) in [
        ("ssd", 1, 13_000.0),
        ("ssd", 32, 98_000.0),
        ("nvme", 1, 22_000.0),
        ("nvme", 64, 1_000_000.0),
        ("cloud-general", 8, 3_000.0),
        ("cloud-standard", 8, 500.0),
        ("cloud-burst", 8, 3_000.0),
        ("network-volume", 1, 2_000.0),
    ] {
        let found = rates(name).reads_per_s(depth, 4096);
        assert!((found / rate - 1.0_f64).abs() < 0.03, "{name} at depth {depth}: {found}");
    }
}

#[test]
fn every_named_device_has_figures_and_sources() {
    for NamedDevice { name, summary, device, sources } in &DEVICES {
        let model = StoreModel::Device(*device);
        let figures = model.figures();
        assert!(figures.len() >= 3 && !sources.is_empty(), "{name}");
        assert!(!summary.ends_with('.') && !model.kind().is_empty(), "{name}");
        let mut names: Vec<_> = figures.iter().map(|it| &it.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), figures.len(), "{name}");
        assert!(sources.iter().all(|it| it.ends_with('.')), "{name}");
    }
    let Ok(StoreSpec::Model(array)) = parse("raid5:3xdisk,failed=1") else { panic!() };
    assert_eq!((array.kind(), array.figures()[2].value), ("array", 1));
}

#[test]
fn arrays_are_written_with_the_text_of_their_devices() {
    for text in [
        "linear:2xdisk",
        "raid0:4xssd",
        "raid1:2xdisk,failed=1",
        "raid5:3xread-iops:100,latency:5ms,chunk=64KiB",
        "raid5:3xscsi-1999,chunk=64KiB",
        "raid5:3xscsi-1999,chunk=64KiB,cache=16MiB",
        "raid1:2xdisk,cache=4MiB,battery=no",
        "raid0:2xdual-actuator",
        "raid6:64xnvme,chunk=1GiB,failed=0+63",
        "raid10:4xdisk,failed=0,rebuild=2",
        "raid10:3xfixed:2ms,chunk=4KiB",
    ] {
        let Ok(StoreSpec::Model(model)) = parse(text) else { panic!("{text}: {:?}", parse(text)) };
        assert_eq!(model.name(), text);
        let store = model.build(Geometry { length: 1 << 30, granule: 512, read_only: false });
        assert_eq!(store.geometry().length, 1 << 30);
    }
    let defaults = parse("raid5:3xdisk,chunk=512KiB");
    assert_eq!(defaults, parse("raid5:3xdisk"));
    for (text, reason) in [
        ("raid5:disk,chunk=4KiB", "names no members; write raid5:3xdisk"),
        ("raid5:3xdisk,cache=1MiB", "the cache of a controller has 4MiB to 4GiB"),
        ("raid5:3xdisk,battery=no", "a battery belongs to a cache; add cache=SIZE"),
        ("raid5:3xdisk,cache=4MiB,battery=full", "\"full\" is neither yes nor no"),
        ("raid5:3xdisk,cache=4MiB,cache=8MiB", "\"cache\" is there twice"),
        ("raid5:2xdisk", "raid5 has 3 to 64 members, not \"2\""),
        ("raid0:65xdisk", "raid0 has 2 to 64 members"),
        ("raid5:3x", "no store model"),
        ("raid5:3xinstant", "the members of an array are devices, which instant is not"),
        ("raid1:2xraid1:2xdisk", "the members of an array are devices"),
        ("raid1:2xmeasure:/dev/sda", "the members of an array are devices"),
        ("raid1:2xfile:a.json", "the members of an array are devices"),
        ("raid0:2xdisk,chunk=3KiB", "a power of two"),
        ("raid0:2xdisk,chunk=2GiB", "4KiB to 1GiB"),
        ("raid0:2xdisk,chunk=4KiB,chunk=8KiB", "\"chunk\" is there twice"),
        ("raid0:2xdisk,failed=0", "this raid0 has lost data without member 0"),
        ("raid1:2xdisk,failed=2", "the numbers 0 to 1"),
        ("raid10:4xdisk,failed=0+1", "this raid10 has lost data without members 0+1"),
        ("raid5:3xdisk,failed=0,rebuild=1", "this raid5 has lost data without members 0+1"),
        ("raid5:3xdisk,failed=0,rebuild=0", "member 0 is rebuilt or has failed"),
        ("raid0:2xdisk,rebuild=1", "this raid0 has lost data without member 1"),
        (
            "raid1:2xdisk,size=1MiB",
            "no part of an array size in chunk=SIZE failed=NUMBER rebuild=NUMBER cache=SIZE",
        ),
        ("raid7:2xdisk", "no part of a store model raid7"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.contains(reason), "{text}: {error}");
    }
}
