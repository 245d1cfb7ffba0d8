//! The HTML report is complete and escaped, with a chart of each kind, and contains the record.

use super::to_html;
use crate::run::gathered;
use larder_schema::run::trial::{Doubt, DoubtReason, Latency, MeasuredStart, Start, Trial};
use larder_schema::run::{Direction, Machine, Part, Run, Sample};
use std::collections::BTreeMap;

fn grouped(group: &str, at: &[(&str, f64)], values: &[f64]) -> Sample {
    let at: BTreeMap<String, f64> = at.iter().map(|(name, at)| ((*name).to_owned(), *at)).collect();
    let name = format!("{group} {at:?}");
    Sample {
        values: values.to_vec(),
        group: Some(group.to_owned()),
        at,
        ..Sample::new(name, "MB/s", Some(Direction::Higher))
    }
}

fn run() -> Run {
    let machine = Machine { cores: 2, memory_bytes: 8 << 30, ..Machine::default() };
    let mut run = Run::new("reads <b>& writes", "2026-11-21T03:22:11Z", machine);
    let values = vec![10.0, 11.0, 9.0, 10.0, 10.5, 9.5];
    run.samples = vec![
        Sample {
            values: values.clone(),
            ..Sample::new("rate", "reads/s", Some(Direction::Higher))
        },
        Sample { values, ..Sample::new("other", "reads/s", None) },
        grouped("load", &[("clients", 1.0)], &[5.0]),
        grouped("load", &[("clients", 16.0)], &[9.0]),
        grouped("write", &[("file_bytes", 65_536.0), ("record_bytes", 4096.0)], &[100.0]),
        grouped("write", &[("file_bytes", 131_072.0), ("record_bytes", 4096.0)], &[50.0]),
        grouped("write", &[("file_bytes", 131_072.0), ("record_bytes", 8192.0)], &[25.0]),
    ];
    let latency = Latency {
        what: "reads".to_owned(),
        sum_ns: 50_000,
        max_ns: 20_500,
        buckets: vec![(9_000, 1), (20_480, 2)],
    };
    let started =
        MeasuredStart { start: Start::Cold, files: 1, pages: Some(256), resident: Some(0) };
    let trial = Trial { number: 1, started, latencies: vec![latency], ..Trial::default() };
    run.trials = vec![trial];
    run.doubts =
        vec![Doubt { why: DoubtReason::Steal, text: "time was < stolen, +-7 %".to_owned() }];
    run
}

#[test]
fn the_page_is_whole_and_escaped() {
    let page = to_html(&run()).replace("&#160;", " ");
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    for tag in ["section", "figure", "table", "svg", "main", "script", "ul", "details", "dl"] {
        let (open, close) = (format!("<{tag}"), format!("</{tag}>"));
        assert_eq!(page.matches(&open).count(), page.matches(&close).count(), "{tag}");
    }
    assert!(!page.contains("<b>") && page.contains("Reads &lt;b&gt;&amp; writes"));
    assert!(page.contains("time was &lt; stolen, \u{b1}7 %"));
    assert!(!page.contains("http") && !page.contains("NaN") && !page.contains("inf\""));
}

#[test]
fn each_kind_of_series_has_its_chart() {
    let page = to_html(&run()).replace("&#160;", " ");
    for chart in [
        "Medians: rate: 10.0 reads/s (9.00 to 11.0 reads/s); other: 10.0 reads/s",
        "rate by trial, around 10.0 reads/s",
        "load over clients",
        "write over file size, a line for each record size",
        "Share of requests by latency; medians: reads 20.5 us",
    ] {
        assert!(page.contains(&format!("aria-label=\"{chart}")), "{chart}");
    }
    assert!(page.contains("<td class=\"s7\">100 MB/s</td><td></td>"), "the highest, and none");
    let [lines, table] = ["write over file size, a line for each record size", "write, all sizes"]
        .map(|label| page.find(&format!("aria-label=\"{label}\"")).expect("a chart and a table"));
    assert!(page[lines..table].contains("<summary>All sizes</summary>"), "the table is folded");
    assert!(page.contains("64 KiB") && page.contains("128 KiB"), "sizes are written as sizes");
    assert!(page.contains("none of 256 pages of 1 file was in memory"));
    assert!(page.contains(">9.00 MB/s</text>"), "the points of a line have their values");
    assert!(page.contains(">100 MB/s</text>"), "and the highest of a grid");
    assert!(page.contains("Median of 1 trial, cold start. The thin line is the 95 % interval"));
}

#[test]
fn bars_without_intervals_are_outlines_and_are_not_to_be_ranked() {
    let mut run = run();
    run.samples.truncate(2);
    run.samples.iter_mut().for_each(|sample| sample.values.truncate(3));
    let page = to_html(&run);
    assert!(page.contains("<rect class=\"unsure\"") && !page.contains("<rect class=\"soft\""));
    assert!(page.contains("too few for an interval: do not rank by these bars"));
}

#[test]
fn bars_that_allow_a_verdict_can_be_ranked_as_it_does() {
    let side = |side: &str, middle: f64, trials: usize| {
        let mut run = run();
        run.samples.truncate(1);
        run.samples[0].values.truncate(trials);
        run.samples[0].values.iter_mut().for_each(|value| *value *= middle);
        let labels = [("side".to_owned(), side.to_owned())].into();
        Part { name: side.to_owned(), labels, run }
    };
    let page = |trials| {
        to_html(&gathered("x", vec![side("native", 1.0, trials), side("larder", 2.0, trials)]))
    };
    let (few, enough) = (page(3), page(4));
    assert!(few.contains("cannot tell") && few.contains("do not rank"), "{few}");
    assert!(enough.contains("2.00 times as fast") && !enough.contains("do not rank"), "{enough}");
    assert!(enough.contains("rank two bars only if all dots of one lie beyond"), "{enough}");
}

#[test]
fn no_explanation_is_repeated_below_the_charts() {
    let mut run = run();
    run.samples.push(grouped("reread", &[("file_bytes", 1.0), ("record_bytes", 1.0)], &[1.0]));
    run.samples.push(grouped("answers", &[("clients", 1.0)], &[5.0]));
    let time = Sample::new("response time", "ns", Some(Direction::Lower));
    run.samples.push(Sample { values: run.samples[0].values.clone(), ..time });
    let page = to_html(&run);
    let count = |words: &str| page.matches(words).count();
    for words in [
        "Median of 1 trial, cold start",
        "The thin line is",
        "Medians of 1 trial, cold start.",
        "with the value of the highest point",
        "The darker, the higher",
    ] {
        assert_eq!(count(words), 1, "{words}");
    }
    assert!(page.contains("<figcaption>Less is better.</figcaption>"), "{page}");
}

#[test]
fn the_record_can_be_taken_out_again() {
    let run = run();
    let page = to_html(&run);
    let begin = page.find("id=\"data\">").unwrap() + 10;
    let json = &page[begin..begin + page[begin..].find("</script>").unwrap()];
    assert_eq!(Run::from_json(json).unwrap(), run);
}

#[test]
fn a_run_without_trials_or_values_is_a_page_too() {
    let mut bare = Run::new("old", "2026-11-21T03:22:11Z", Machine::default());
    assert!(to_html(&bare).contains("<h1>old</h1>"));
    bare.samples = vec![Sample::new("empty", "ms", None)];
    assert!(to_html(&bare).contains("<h1>old</h1>"));
    assert!(
        crate::run::to_text(&bare).contains("empty")
            && crate::run::to_csv(&bare).starts_with("series,unit,trial")
    );
}

#[test]
fn text_says_start_interval_and_doubts() {
    let text = crate::run::to_text(&run());
    for words in
        ["rate", "reads/s", "latency", "p99.9", "Doubtful because time was < stolen, +-7 %."]
    {
        assert!(text.contains(words), "{words} in {text}");
    }
    assert!(text.contains("1 trial from a cold start: before each, none of 256 pages"), "{text}");
    let csv = crate::run::to_csv(&run());
    assert!(csv.contains("rate,reads/s,1,cold,10"), "{csv}");
    assert!(csv.contains("rate,reads/s,2,,11"), "no trial, no start: {csv}");
}

#[test]
fn the_page_names_the_command() {
    let mut run = run();
    for (workload, command) in
        [("try", "larder try"), ("probe", "larder bench probe"), ("", "larder")]
    {
        workload.clone_into(&mut run.workload);
        let kind = format!("<p class=\"kind\">{command}</p>");
        assert!(to_html(&run).contains(&kind), "{command}");
    }
}
