//! Bars of shares, from 0 to 1 and more, for each of several names.

use crate::escape;
use larder_schema::format;

/// Distance between two bars of a name, and their height, in pixels.
const BAR: f64 = 18.0;
const BAR_HEIGHT: f64 = 16.0;
/// Space between names.
const SPACE: f64 = 8.0;
/// Place of the names.
const NAMES: f64 = 110.0;
/// Place of the figures behind the bars.
const FIGURES: f64 = 80.0;
/// Maximum characters of a name.
const NAME_MAX: usize = 14;

/// Draws bars as SVG of this width: for each name some, with their CSS class. A line marks 1.
pub(crate) fn share_bars(
    label: &str,
    rows: &[(String, Vec<(&'static str, f64)>)],
    width: f64,
) -> String {
    let highest = rows.iter().flat_map(|(_, bars)| bars).map(|bar| bar.1).fold(1.0, f64::max);
    let scale = (width - NAMES - FIGURES) / highest;
    let space = |bars: usize| BAR * f64::from(u32::try_from(bars).unwrap_or(u32::MAX)) + SPACE;
    let height: f64 = rows.iter().map(|(_, bars)| space(bars.len())).sum();
    let mut svg = format!(
        "<svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\" \
         aria-label=\"{}\">",
        escape::html(label)
    );
    let full = NAMES + scale;
    put!(svg, "<line class=\"grid\" x1=\"{full:.1}\" x2=\"{full:.1}\" y1=\"0\" y2=\"{height}\"/>");
    let mut top = 0.0;
    for (name, bars) in rows {
        let name: String = name.chars().take(NAME_MAX).collect();
        let middle = top + space(bars.len()) / 2.0 + 3.0;
        put!(
            svg,
            "<text class=\"label axis\" x=\"0\" y=\"{middle:.1}\">{}</text>",
            escape::html(&name)
        );
        let mut y = top + SPACE / 2.0;
        for (class, share) in bars {
            let length = (scale * share).max(1.0);
            put!(
                svg,
                "<rect class=\"{class}\" x=\"{NAMES}\" y=\"{y:.1}\" width=\"{length:.1}\" \
                 height=\"{BAR_HEIGHT}\"/><text class=\"axis\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                NAMES + length + 6.0,
                y + 13.0,
                format::percent(*share)
            );
            y += BAR;
        }
        top += space(bars.len());
    }
    svg + "</svg>"
}
