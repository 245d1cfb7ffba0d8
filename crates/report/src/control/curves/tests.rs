//! Advice from artificial curves.

use super::*;
use larder_schema::curve::{Curve, Point};

const MIB: u64 = 1 << 20;

/// Creates a volume whose hit ratio rises linearly to `most` at `knee` MiB and is constant beyond.
fn volume(name: &str, mib: u64, knee: u64, most: f64) -> VolumeCurve {
    let sizes = (0..=40).map(|step| {
        let bytes = MIB << (step / 4);
        bytes + bytes / 4 * (step % 4)
    });
    let ratio = |bytes: u64| {
        let part = larder_schema::as_f64(bytes) / larder_schema::as_f64(knee * MIB);
        most * part.min(1.0)
    };
    VolumeCurve {
        name: name.to_owned(),
        bytes: mib * MIB,
        room_bytes: mib * MIB,
        sample_rate: 0.01,
        references: 100_000,
        references_ever: 100_000,
        hit_ratio: 0.5,
        policy: "s3fifo".to_owned(),
        points: Curve::new(sizes.map(|bytes| Point::exact(bytes, ratio(bytes)))),
        ..VolumeCurve::default()
    }
}

fn advised(share: &str, volumes: Vec<VolumeCurve>) -> Curves {
    let mut curves = Curves { share: share.to_owned(), volumes, ..Curves::default() };
    advise(&mut curves);
    curves
}

#[test]
fn what_is_missing_is_said_in_bytes() {
    let curves = advised("coldest", vec![volume("data", 16, 64, 0.8)]);
    let data = &curves.volumes[0];
    assert_eq!(data.region, Some(Region::Steep));
    // 95 % of 0.8 are reached at 95 % of 64 MiB.
    let text = "data needs 44.8 MiB more to reach 76.0 % hits; with 16 MiB, in region 1, steep, \
                it has 20.0 % (LRU).";
    assert_eq!(data.advice[0], text);
    assert!(data.advice[1].contains("95.0 % of the reachable hits"), "{:?}", data.advice);
    assert!(data.advice[1].starts_with("60.8 MiB: The smallest size with"), "{:?}", data.advice);
}

#[test]
fn what_is_spare_goes_to_who_gains_most() {
    let rich = volume("rich", 64, 8, 0.8);
    let poor = volume("poor", 16, 32, 0.8);
    let other = VolumeCurve { references_ever: 1_000, ..volume("other", 16, 32, 0.8) };
    let all = vec![rich.clone(), other, poor];
    let coldest = advised("coldest", all.clone());
    let advice = &coldest.volumes[0].advice[0];
    assert!(advice.starts_with("rich is in region 3, flat: 56"), "{advice}");
    assert!(
        advice.contains(" of it to poor, which would hit 76.0 % instead of 40.0 %"),
        "{advice}"
    );
    assert!(advice.ends_with("larder ctl set share=auto moves it."), "{advice}");
    let auto = advised("auto", all);
    assert!(auto.volumes[0].advice[0].ends_with("it is moved by itself."));
    let limited = VolumeCurve { max_bytes: Some(16 * MIB), ..volume("poor", 16, 32, 0.8) };
    let curves = advised("auto", vec![rich.clone(), limited]);
    let advice = &curves.volumes[0].advice[0];
    assert!(advice.ends_with("its --max is in the way: larder ctl set poor.max=all."), "{advice}");
    let alone = advised("auto", vec![rich]);
    let advice = &alone.volumes[0].advice[0];
    assert!(advice.ends_with("could go; no other volume would gain from it."), "{advice}");
}

#[test]
fn room_that_is_free_is_not_missing() {
    let cold = VolumeCurve { room_bytes: 62 * MIB, ..volume("cold", 2, 64, 0.8) };
    let curves = advised("coldest", vec![cold]);
    let advice = &curves.volumes[0].advice[0];
    assert!(advice.starts_with("cold has what it needs: 62 MiB lie in region 2"), "{advice}");
}

#[test]
fn too_few_references_and_scans_get_no_regions() {
    let young = VolumeCurve { references: 10, ..volume("young", 16, 64, 0.8) };
    let scanned = volume("scanned", 16, 64, 0.0);
    let curves = advised("coldest", vec![young, scanned]);
    assert_eq!(curves.volumes[0].advice, ["Nothing is known yet: 10 references are too few."]);
    assert!(curves.volumes[1].advice[0].starts_with("No memory helps"));
    assert!(curves.volumes.iter().all(|volume| volume.regions.is_none()));
    assert!(
        curves_to_text(&curves)
            .contains("young: 16 MiB with s3fifo; 50.0 % of 10 recent references")
    );
}

#[test]
fn a_first_fill_does_not_show_that_memory_has_no_effect() {
    let young = |volume| VolumeCurve { references_missing: 5_000, ..volume };
    let filled = young(volume("filled", 16, 64, 0.0));
    let flat = young(volume("flat", 64, 8, 0.8));
    let steep = young(volume("steep", 16, 64, 0.8));
    let curves = advised("coldest", vec![filled, flat, steep]);
    for volume in &curves.volumes[..2] {
        let name = &volume.name;
        let expected =
            format!("Too few references to tell if {name} uses its memory: 5,000 more are needed.");
        assert_eq!(volume.advice, [expected]);
        assert_eq!((&volume.regions, &volume.needed), (&None, &None));
    }
    let advice = &curves.volumes[2].advice[0];
    assert!(advice.starts_with("steep needs 44.8 MiB more"), "hits are evidence: {advice}");
}

#[test]
fn it_is_the_same_as_text_json_and_csv() {
    let mut one = volume("one", 16, 64, 0.8);
    one.policies =
        vec![PolicyRatio { policy: "lru".to_owned(), hit_ratio: 0.2, low: 0.1, high: 0.3 }];
    let curves = advised("coldest", vec![one, volume("two", 1, 64, 0.8)]);
    let text = curves_to_text(&curves);
    let head = "one: 16 MiB with s3fifo";
    for part in [head, "one page in 100 is sampled", "Regions", "in miniature", "Advice"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(text.lines().all(|line| line.is_ascii() || line.contains(|c: char| c > '\u{27ff}')));
    let csv = curves_table(&curves).to_csv();
    assert!(csv.starts_with("volume,bytes,hit_ratio,low,high\none,1048576,"), "{csv}");
    assert_eq!(csv.lines().count(), 1 + 2 * 41);
    let json = serde_json::to_value(&curves).unwrap();
    assert_eq!(json["schema"], "larder-control");
    assert_eq!(json["volumes"][0]["points"][0]["bytes"], MIB);
    assert_eq!(json["volumes"][0]["region"], "steep");
    let read: Curves = serde_json::from_value(json).unwrap();
    assert_eq!(read, curves);
}
