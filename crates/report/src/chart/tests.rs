//! Charts: marks on round values, every series and unit in the drawing, and aligned text.

use super::*;

fn curve(top: f64) -> impl Iterator<Item = (f64, f64)> {
    (0..=12).map(move |power| {
        let size = f64::from(1 << power) * 1_048_576.0;
        (size, top * (1.0 - (-f64::from(power) / 4.0).exp()))
    })
}

fn chart() -> Chart {
    let x = Axis::new("cache", "").scale(Scale::Log2).labels(Labels::Bytes);
    let y = Axis::new("read hits", "").labels(Labels::Percent).range(0.0, 1.0);
    let mut chart = Chart::new("Hit ratio by size <of the cache>", x, y);
    chart.line("larder", curve(0.98));
    chart.line("page cache", curve(0.8));
    chart.line("nothing", [(1e6, 0.0), (f64::NAN, 0.5), (-4.0, 0.2), (4e9, 0.0)]);
    chart
}

#[test]
fn svg_names_what_it_shows_and_needs_nothing_else() {
    let svg = chart().to_svg(800, 480).unwrap();
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
    for text in ["Hit ratio by size &lt;of", "larder", "page cache", "4 GiB", "80 %", "read hits"] {
        assert!(svg.contains(text), "{text} in {svg}");
    }
    assert!(!svg.contains("NaN") && !svg.contains("href"), "{svg}");
    assert_eq!(svg, chart().to_svg(800, 480).unwrap());
}

#[test]
fn a_point_that_is_not_drawn_widens_no_axis() {
    let mut chart = Chart::new("", Axis::new("x", ""), Axis::new("y", ""));
    chart.line("one", [(1.0, 1.0), (2.0, 2.0)]);
    let drawn = chart.to_svg(400, 300);
    chart.series.clear();
    chart.line("one", [(1.0, 1.0), (2.0, 2.0), (900.0, f64::NAN)]);
    assert_eq!(chart.to_svg(400, 300), drawn);
}

#[test]
fn marks_lie_on_round_values() {
    let labels = |axis: Axis, low: f64, high: f64| {
        let frame = axis.frame(&[low, high]);
        frame.marks.iter().map(|mark| axis.label(*mark)).collect::<Vec<_>>()
    };
    let number = Axis::new("rate", "1/s");
    assert_eq!(labels(number.clone(), 3.0, 4_970.0).join(" "), "0 1,000 2,000 3,000 4,000 5,000");
    assert_eq!(labels(number.clone(), 0.0, 0.7).join(" "), "0 0.1 0.2 0.3 0.4 0.5 0.6 0.7");
    assert_eq!(labels(number, -2.0, 2.0).join(" "), "-2 -1.5 -1 -0.5 0 0.5 1 1.5 2");
    let bytes = Axis::new("size", "").labels(Labels::Bytes);
    let gib = f64::from(1 << 30);
    assert_eq!(
        labels(bytes, 0.0, 2.0 * gib).join(", "),
        "0 B, 256 MiB, 512 MiB, 768 MiB, 1 GiB, \
        1.25 GiB, 1.5 GiB, 1.75 GiB, 2 GiB"
    );
    let mib = f64::from(1 << 20);
    let rate = Axis::new("throughput", "").labels(Labels::ByteRate);
    assert_eq!(labels(rate, 0.0, 2.0 * mib)[..3].join(", "), "0 B/s, 256 KiB/s, 512 KiB/s");
    let seconds = Axis::new("time", "").labels(Labels::Seconds);
    assert_eq!(labels(seconds, 0.0, 0.004)[..3].join(" "), "0 ns 500 us 1 ms");
    let percent = Axis::new("hits", "").labels(Labels::Percent).range(0.0, 1.0);
    assert_eq!(labels(percent, 0.3, 0.4).join(" "), "0 % 20 % 40 % 60 % 80 % 100 %");
}

#[test]
fn values_near_the_largest_number_have_finite_positions() {
    for values in [[-1e308, 1e308], [1.6e308, 1.7e308], [0.0, f64::MAX]] {
        let mut chart = Chart::new("large", Axis::new("x", ""), Axis::new("y", ""));
        chart.line("points", values.map(|value| (value, value)));
        let drawn = format!("{:?} {:?}", chart.to_svg(400, 300), chart.to_text(20, 5));
        assert!(!drawn.contains("NaN") && !drawn.contains("\"inf"), "{drawn}");
    }
}

#[test]
fn a_single_value_still_has_a_frame() {
    let axis = Axis::new("x", "");
    let frame = axis.frame(&[5.0]);
    assert!(frame.low < 5.0 && frame.high > 5.0 && frame.marks.len() > 2, "{frame:?}");
    let mut chart = Chart::new("one", Axis::new("x", ""), Axis::new("y", ""));
    chart.line("point", [(5.0, 5.0)]);
    assert!(chart.to_svg(400, 300).is_some());
    assert!(chart.to_text(20, 5).is_some());
}

#[test]
fn a_chart_without_points_is_none() {
    let mut chart = Chart::new("empty", Axis::new("x", ""), Axis::new("y", ""));
    chart.line("none", [(f64::NAN, 1.0)]);
    assert_eq!(chart.to_svg(400, 300), None);
    assert_eq!(chart.to_text(40, 10), None);
}

#[test]
fn text_of_several_series_has_letters_and_a_legend() {
    let mut chart = Chart::new("Two", Axis::new("time", "s"), Axis::new("rate", "1/s"));
    chart.line("up", [(0.0, 0.0), (10.0, 10.0)]);
    chart.line("level", [(0.0, 5.0), (10.0, 5.0)]);
    let known = "\
Two
 * up o level
rate [1/s]
10 +                  ***
 8 +              ****
 6 +oooooooooo****ooooooo
 4 +      ****
 2 +  ****
 0 +**
   ++---+---+---+---+---+
    0   2   4   6   8  10
          time [s]
";
    assert_eq!(chart.to_text(21, 8).unwrap(), known);
}

#[test]
fn values_of_any_size_have_marks_and_stay_inside_the_plane() {
    let mut chart = Chart::new("far", Axis::new("x", ""), Axis::new("y", "").range(0.0, 1.0));
    chart.line("far", [(1e17, 0.5), (1e17 + 16.0, 7e9), (1e17 + 32.0, -3.0)]);
    let svg = chart.to_svg(400, 300).unwrap();
    let line = svg.lines().find(|line| line.starts_with("<polyline") && line.contains("line c0"));
    let points = line.and_then(|line| line.split("points=\"").nth(1)).unwrap();
    let numbers = points.split('"').next().unwrap().split([',', ' ']).filter(|n| !n.is_empty());
    for number in numbers {
        let pixel: f64 = number.parse().unwrap();
        assert!((0.0..=400.0).contains(&pixel), "{points}");
    }
    assert!(chart.to_text(20, 6).is_some());
}

#[test]
fn text_of_one_series_is_braille() {
    let mut chart = Chart::new("One", Axis::new("time", "s"), Axis::new("rate", "1/s"));
    chart.line("up", [(0.0, 0.0), (10.0, 10.0)]);
    let text = chart.to_text(20, 6).unwrap();
    let dots = text.chars().filter(|letter| (0x2801..=0x28ff).contains(&u32::from(*letter)));
    assert!(dots.count() >= 10, "{text}");
}

#[test]
fn the_upper_end_of_a_distribution_has_room() {
    let axis = Axis::new("requests", "").labels(Labels::Percent).scale(Scale::Tail);
    let axis = axis.range(0.0, 1.0 - 0.5 / 20_000.0);
    let frame = axis.frame(&[0.1]);
    let labels: Vec<String> = frame.marks.iter().map(|mark| axis.label(*mark)).collect();
    assert_eq!(labels, ["0 %", "50 %", "90 %", "99 %", "99.9 %", "99.99 %"]);
    let step = |from: f64, to: f64| axis.position(to).unwrap() - axis.position(from).unwrap();
    assert!((step(0.9, 0.99) - step(0.99, 0.999)).abs() < 1e-9);
    assert_eq!(axis.position(1.0), None, "nothing is above all");
}

#[test]
fn logarithmic_durations_have_decimal_marks() {
    let axis = Axis::new("latency", "").scale(Scale::Log2).labels(Labels::Duration);
    let labels = |low: f64, high: f64| -> Vec<String> {
        let frame = axis.frame(&[low.log2(), high.log2()]);
        frame.marks.iter().map(|mark| axis.label(*mark)).collect()
    };
    assert_eq!(
        labels(1_470.0, 75_100.0),
        ["1 us", "2 us", "5 us", "10 us", "20 us", "50 us", "100 us"]
    );
    assert_eq!(labels(150.0, 2e6), ["100 ns", "1 us", "10 us", "100 us", "1 ms", "10 ms"]);
    assert_eq!(labels(20.0, 20.0), ["10 ns", "20 ns", "50 ns"]);
}
