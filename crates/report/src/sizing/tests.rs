//! Three renderings of one artificial result: they agree, and the HTML is well-formed.

use super::*;
use crate::advise::regions;
use larder_schema::advice::{Attainment, SizingGoal};
use larder_schema::curve::{Curve, Point};
use larder_schema::sizing::*;

const MIB: u64 = 1 << 20;

#[expect(clippy::too_many_lines, reason = "one value of each field")]
fn sizing(trace: &str) -> Sizing {
    let ratios = [(8, 0.1), (16, 0.25), (32, 0.5), (64, 0.58), (128, 0.6)];
    let points: Vec<Point> =
        ratios.iter().map(|&(mib, ratio)| Point::exact(mib * MIB, ratio)).collect();
    let curve = Curve::new(points.clone());
    let regions = regions::find(&curve, 0.6).unwrap();
    let ratio = |policy: &str, hit_ratio| PolicyRatio {
        policy: policy.to_owned(),
        hit_ratio,
        low: hit_ratio - 0.01,
        high: hit_ratio + 0.01,
    };
    let effect = |what: &str, point: Point| Effect {
        what: what.to_owned(),
        point,
        counted: false,
        misses_per_hour: Some(1234.0),
        store_bytes: 77 * MIB,
        server: None,
        policies: vec![ratio("arc", point.hit_ratio), ratio("lru", point.hit_ratio - 0.02)],
    };
    let windows: Vec<Window> = (0..8)
        .map(|number| Window {
            begin_ns: number * 1_000_000_000,
            references: 125_000,
            needed_bytes: Some((30 + number) * MIB),
            ceiling: 0.6,
            hit_ratio: 0.55,
        })
        .collect();
    let volumes = vec![Share {
        volume: "a<b>&\"c\"".to_owned(),
        references: 10,
        footprint_bytes: MIB,
        bytes: MIB,
        hit_ratio: 0.5,
        low: 0.4,
        high: 0.6,
    }];
    Sizing {
        workload: Workload {
            trace: trace.to_owned(),
            page_bytes: 4096,
            requests: 500_000,
            references: 1_000_000,
            bytes: 1 << 30,
            duration_ns: Some(8_000_000_000),
            footprint_pages: 400_000,
            footprint_exact: true,
            compulsory_misses: 400_000,
            ceiling: 0.6,
        },
        goal: SizingGoal { target: 0.95, budget_bytes: None },
        exact: false,
        server: None,
        seed: 1,
        curve: points.iter().map(|&point| BestPoint { policy: "arc".to_owned(), point }).collect(),
        policies: vec![PolicyCurve { policy: "lru".to_owned(), points: curve }],
        regions_why: regions::reasons(&regions).into(),
        recommendation: Some(Recommendation {
            bytes: 64 * MIB,
            memory_bytes: 67 * MIB,
            policy: "arc".to_owned(),
            page_bytes: 16_384,
            reach: Attainment::Reached,
            wanted_hit_ratio: 0.57,
            target_bytes: Some(64 * MIB),
            region: Some(regions::region(&regions, 64 * MIB)),
        }),
        regions: Some(regions),
        effects: vec![
            effect("half", points[2]),
            effect("recommended", points[3]),
            effect("twice", points[4]),
        ],
        min_hit_ratio: Some(0.59),
        stability: crate::advise::stability::assess(&windows, 64 * MIB),
        windows,
        volumes,
        page_sizes: vec![PageSize {
            page_bytes: 16_384,
            byte_hit_ratio: 0.57,
            low: 0.57,
            high: 0.57,
            store_bytes: 99 * MIB,
            read_misses: 6336,
            footprint_bytes: 1600 * MIB,
            server: None,
        }],
        slices: vec![Slice { begin: 0, references: 10, pages: 9 }; 64],
        heat: AccessHeat {
            volumes: vec![HeatVolume {
                volume: "0".to_owned(),
                rows: 2,
                begin_bytes: 0,
                end_bytes: MIB,
            }],
            rows: vec![vec![0, 3, 3, 9], vec![1, 0, 0, 0]],
        },
        notes: vec!["the trace was <cut> short".to_owned()],
    }
}

/// Checks the tags of a page; panics if one is not closed in order.
fn assert_well_formed(page: &str) {
    let body = page.strip_prefix("<!DOCTYPE html>\n").unwrap();
    let mut open: Vec<&str> = Vec::new();
    let mut rest = body;
    while let Some(begin) = rest.find('<') {
        let end = begin + rest[begin..].find('>').expect("a tag that ends");
        let tag = &rest[begin + 1..end];
        let name = tag.trim_start_matches('/').split([' ', '/', '\n']).next().unwrap();
        assert!(!name.is_empty() && name.chars().all(char::is_alphanumeric), "<{tag}>");
        assert!(tag.matches('"').count().is_multiple_of(2), "<{tag}>");
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "{}", &rest[..begin]);
        } else if !tag.ends_with('/') {
            open.push(name);
        }
        rest = &rest[end + 1..];
    }
    assert_eq!(open, Vec::<&str>::new());
}

#[test]
fn the_page_is_well_formed_whatever_the_names() {
    assert_well_formed(&to_html(&sizing("a</script><b>&\"x\".csv"), SizedCache::Server));
    let mut nothing = sizing("nothing");
    nothing.recommendation = None;
    nothing.effects.clear();
    nothing.regions = None;
    nothing.curve.clear();
    nothing.windows.clear();
    nothing.stability = None;
    nothing.workload.duration_ns = None;
    nothing.workload.ceiling = 0.0;
    nothing.heat = AccessHeat::default();
    nothing.slices.clear();
    assert_well_formed(&to_html(&nothing, SizedCache::Server));
    assert!(
        to_text(&nothing, SizedCache::Server).contains("no cache"),
        "{}",
        to_text(&nothing, SizedCache::Server)
    );
}

#[test]
fn the_page_has_no_character_that_controls_a_terminal() {
    let page = to_html(&sizing("a\u{1b}[31m\u{9b}31m\u{7f}\u{202e}.csv"), SizedCache::Server);
    let unsafe_ones = page.matches(|c| crate::escape::is_unsafe(c) && c != '\n');
    assert_eq!(unsafe_ones.collect::<Vec<_>>(), Vec::<&str>::new());
}

#[test]
fn the_page_fetches_nothing_and_holds_the_json() {
    let made = sizing("trace.csv");
    let page = to_html(&made, SizedCache::Server);
    for outside in ["http:", "https:", "src=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    let begin = page.find("id=\"data\">").unwrap() + "id=\"data\">".len();
    let end = begin + page[begin..].find("</script>").unwrap();
    let held = page[begin..end].replace("\\u003c", "<");
    // The comparison uses text: parsing a number may change its last digit.
    assert_eq!(held, made.to_json().to_string());
    let json: serde_json::Value = serde_json::from_str(&page[begin..end]).unwrap();
    assert_eq!(json["volumes"][0]["volume"], "a<b>&\"c\"");
}

#[test]
fn text_page_and_json_say_the_same() {
    let made = sizing("trace.csv");
    let (text, page, json) =
        (to_text(&made, SizedCache::Server), to_html(&made, SizedCache::Server), made.to_json());
    assert_eq!(json["schema"], SCHEMA);
    assert_eq!(json["version"], VERSION);
    assert_eq!(json["recommendation"]["bytes"], 64 * MIB);
    assert_eq!(json["recommendation"]["reach"], "reached");
    assert_eq!(json["effects"][0]["bytes"], 32 * MIB);
    for said in [
        "64 MiB",
        "arc",
        "16 KiB",
        "58.0 %",
        "59.0 %",
        "400,000",
        "77 MiB",
        "1,234",
        "99 MiB",
        "--memory 67MiB",
        "region 3, flat",
    ] {
        assert!(text.contains(said), "{said} in {text}");
        assert!(page.contains(said), "{said} in the page");
    }
    assert!(page.contains("a&lt;b&gt;&amp;"), "names are escaped");
}

#[test]
fn no_line_crosses_the_text_of_the_curve() {
    let page = to_html(&sizing("trace.csv"), SizedCache::Server);
    let chart = page.split("</svg>").next().unwrap();
    let last_line = chart.rfind("class=\"beside\"").unwrap();
    for text in [">recommended: 64 MiB, 58.0 %<", "class=\"region\""] {
        assert!(chart.rfind(text).unwrap() > last_line, "{text} is below the lines");
    }
    assert!(page.contains(".label,.mark,.region{paint-order:stroke;stroke:var(--paper)"));
}

#[test]
fn each_dot_of_the_policies_is_in_the_key() {
    let page = to_html(&sizing("trace.csv"), SizedCache::Server).replace("&#160;", " ");
    for (class, name) in
        [("half", "half: 32 MiB"), ("here", "recommended: 64 MiB"), ("twice", "twice: 128 MiB")]
    {
        assert!(page.contains(&format!("<circle class=\"{class}\"")), "{class}");
        assert!(
            page.contains(&format!("<span class=\"key {class}\"></span>{name}</span>")),
            "{name}"
        );
    }
}

#[test]
fn the_command_stands_alone_and_can_be_pasted() {
    let made = sizing("trace.csv");
    let command = "larder serve VOLUME --memory 67MiB --policy arc --page-size 16KiB";
    let text = to_text(&made, SizedCache::Server);
    assert!(text.lines().any(|line| line.trim() == command), "{text}");
    assert!(to_html(&made, SizedCache::Server).contains(&format!("<pre>{command}</pre>")));
    // A server refuses less than its minimum.
    let mut small = made;
    small.recommendation.as_mut().unwrap().memory_bytes = 3 << 20;
    let text = to_text(&small, SizedCache::Server);
    assert!(text.contains("--memory 8MiB --policy arc"), "{text}");
    assert!(text.contains("the minimum memory of a server, which is more"), "{text}");
}

#[test]
fn a_budget_that_ends_early_is_said() {
    let mut made = sizing("trace.csv");
    let advice = made.recommendation.as_mut().unwrap();
    (advice.reach, advice.bytes) = (Attainment::Budget, 16 * MIB);
    assert!(to_text(&made, SizedCache::Server).contains("All that the budget allows"));
    assert!(
        to_text(&made, SizedCache::Server).contains("needs about 64 MiB"),
        "{}",
        to_text(&made, SizedCache::Server)
    );
}

#[test]
fn a_page_cache_has_no_command_of_a_server() {
    let text = to_text(&sizing("trace.csv"), SizedCache::PageCache);
    assert!(text.contains("Recommendation: 64 MiB") && !text.contains("larder serve"), "{text}");
    assert!(!to_html(&sizing("trace.csv"), SizedCache::PageCache).contains("larder serve"));
}

#[test]
fn counted_results_have_no_error_bars() {
    let text = |sizing: &Sizing| to_text(sizing, SizedCache::Server);
    let mut made = sizing("trace.csv");
    assert!(text(&made).contains("\npolicy    hits    from      to\n"), "{}", text(&made));
    assert!(text(&made).contains("\narc     58.0 %  57.0 %  59.0 %\n"), "{}", text(&made));
    for effect in &mut made.effects {
        effect.counted = true;
        for ratio in &mut effect.policies {
            (ratio.low, ratio.high) = (ratio.hit_ratio, ratio.hit_ratio);
        }
    }
    made.volumes.clear();
    let counted = text(&made);
    assert!(counted.contains("\npolicy    hits\n--------------\narc     58.0 %\n"), "{counted}");
    assert!(!counted.contains("from      to"), "{counted}");
    made.effects[0].point.high += 0.01;
    assert!(text(&made).contains("from      to  misses per hour"), "{}", text(&made));
}

#[test]
fn a_prediction_of_a_server_has_its_work_in_text_page_and_json() {
    let mut sizing = sizing("db");
    let is_searched = true;
    let [write_mode, store] = ["write-back", "ssd"].map(str::to_owned);
    sizing.server = Some(ServerModel { write_mode, store, is_searched });
    let run = ServerRun {
        read_hit_ratio: 0.541,
        request_hit_ratio: 0.532,
        read_bytes: 123 * MIB,
        written_bytes: 45 * MIB,
        read_p99_ns: Some(7_000_000),
        elapsed_ns: 90_000_000_000,
        ..ServerRun::default()
    };
    sizing.effects.iter_mut().for_each(|effect| effect.server = Some(run));
    let (text, page) = (to_text(&sizing, SizedCache::Server), to_html(&sizing, SizedCache::Server));
    assert_well_formed(&page);
    for found in [&text, &page] {
        for part in ["58.0 %", "53.2 %", "123 MiB", "45 MiB", "7.00 ms", "1 min 30 s"] {
            assert!(found.contains(part), "{part}: {found}");
        }
        assert!(found.contains("write-back, read-ahead and the store model ssd"), "{found}");
        assert!(found.contains("of the page reads"), "{found}");
        assert!(!found.contains("by replacement alone, without read-ahead"), "{found}");
    }
    assert_eq!(sizing.to_json()["effects"][0]["server"]["written_bytes"], 45 * MIB);
    sizing.server.as_mut().unwrap().is_searched = false;
    let text = to_text(&sizing, SizedCache::Server);
    assert!(text.contains("The size was chosen by replacement alone"), "{text}");
    assert!(text.contains("of the references") && text.contains("54.1 %"), "{text}");
    let json = sizing.to_json();
    let read: Sizing = serde_json::from_value(json).unwrap();
    assert_eq!(read, sizing);
}
