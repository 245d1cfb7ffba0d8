//! Tests of the renderings of an experiment.

use super::*;
use larder_schema::experiment::{Figure, Line, Variation};

fn experiment() -> Experiment {
    let figure = |name, agrees, values: &[f64], reason| Figure {
        name,
        published: "about 10 %",
        agrees,
        unit: "%",
        values: values.to_vec(),
        reason,
    };
    let points = (0..40_u32).map(|at| (f64::from(at), 2.0)).collect();
    Experiment {
        name: "test",
        title: "Study of 1999",
        machine: vec!["Disk: one <fast>.".to_owned()],
        seeds: 2,
        figures: vec![
            figure("first", [5.0, 15.0], &[8.0, 12.0], ""),
            figure("second", [5.0, 15.0], &[20.0, 30.0], "it is another disk."),
        ],
        curves: vec![Curve {
            name: "rate over size",
            over: "MB",
            unit: "x",
            lines: vec![Line { name: "small".to_owned(), points }],
        }],
        variations: vec![Variation { name: "faster", means: vec![1.0, 9.0] }],
    }
}

#[test]
fn text_has_each_figure_and_the_reason_of_each_difference() {
    let text = to_text(&experiment());
    let row = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(row("first ").ends_with("yes") && row("second ").ends_with("no"), "{text}");
    assert!(row("second:").contains("it is another disk."), "{text}");
    assert!(text.contains("1 of 2 published figures agree"), "{text}");
    let rows = text.lines().filter(|line| line.ends_with("2.00 x")).count();
    assert_eq!(rows, 10, "every fourth of 40 points: {text}");
    assert!(text.contains("With other assumptions"), "{text}");
}

#[test]
fn the_page_has_the_answer_first_and_all_points_and_no_foreign_markup() {
    let page = to_html(&experiment());
    let verdict = page.find("1 of 2 published figures agree").unwrap();
    assert!(verdict < page.find("Published and modeled").unwrap());
    assert!(page.contains("one &lt;fast&gt;."), "{page}");
    assert!(!page.contains("<fast>"));
    assert!(page.matches("<svg").count() >= 2);
    assert!(page.contains("it is another disk."));
}

#[test]
fn without_seeds_nothing_agrees() {
    let mut experiment = experiment();
    experiment.figures.iter_mut().for_each(|figure| figure.values.clear());
    assert!(to_text(&experiment).contains("0 of 2 published figures agree"));
}
