//! HTML report of `larder size`; [`crate::page`] has the common parts of reports.

mod charts;

use super::text::{
    SERVE_TITLE, SizedCache, advice, effects_table, page_size_rule, page_sizes_table, reason,
    region_text, serve, unavoidable, volumes_table,
};
use crate::advise::page_size;
use crate::chart::svg_file;
use crate::escape::html as escape;
use crate::page::{self, cards, figure, html_table, list, section};
use charts::{
    curve_chart, heat_chart, load_chart, policies_chart, windows_chart, working_set_chart,
};
use larder_schema::format;
use larder_schema::sizing::Sizing;

/// Draws the hit-ratio curve with its regions and the recommended size, as an SVG file.
#[must_use]
pub fn to_curve_svg(sizing: &Sizing) -> String {
    svg_file(&curve_chart(sizing))
}

/// Renders the report.
#[must_use]
pub fn to_html(sizing: &Sizing, cache: SizedCache) -> String {
    let mut body = heading(sizing, &escape(&sizing.workload.trace), cache);
    body.push_str(&curve_section(sizing));
    body.push_str(&effects_section(sizing));
    body.push_str(&time_section(sizing));
    body.push_str(&tables_section(sizing));
    body.push_str(&notes_section(sizing));
    page::page(&format!("How much cache: {}", sizing.workload.trace), &body, &sizing.to_json())
}

fn heading(sizing: &Sizing, trace: &str, cache: SizedCache) -> String {
    let work = &sizing.workload;
    let mut text = format!("<header>\n<p class=\"kind\">larder size</p>\n<h1>{trace}</h1>\n");
    let time = work.duration_ns.map_or(String::new(), |ns| format!(" in {}", format::duration(ns)));
    put_line!(
        text,
        "<p>{} requests{time} for {} of data: {} references to {} different pages of {} \
         ({}).</p>\n</header>",
        format::count(work.requests),
        format::bytes(work.bytes),
        format::count(work.references),
        format::count(work.footprint_pages),
        format::bytes(work.page_bytes.into()),
        format::bytes(work.footprint_bytes()),
    );
    let (Some(advice), Some(effect)) = (&sizing.recommendation, sizing.recommended()) else {
        put_line!(text, "<p class=\"why\">{}</p>", escape(advice(sizing, cache).trim()));
        return text;
    };
    let reachable = format!("of {} that can be reached", format::percent(work.ceiling));
    let policies = format!("the best of {}, or as good", effect.policies.len());
    text.push_str(&cards([
        ("Size", format::bytes(advice.bytes), region_text(sizing, advice)),
        ("Policy", advice.policy.clone(), policies),
        ("Page", format::bytes(advice.page_bytes.into()), "of the cache".to_owned()),
        ("Hits", format::percent(effect.point.hit_ratio), reachable),
    ]));
    put_line!(text, "<p class=\"why\">{}</p>", escape(&reason(sizing, advice)));
    if cache == SizedCache::Server {
        put_line!(text, "<p>{SERVE_TITLE}</p>\n<pre>{}</pre>", escape(&serve(advice)));
    }
    text
}

fn curve_section(sizing: &Sizing) -> String {
    let method = if sizing.exact {
        "Every point was counted over the whole trace."
    } else {
        "Points were estimated from samples of the pages; the band is the 95 % error bar. \
         Around the recommended size they were counted wherever the band has no width."
    };
    let caption = format!(
        "The best policy at each size. {method} The dashed line is what a cache for everything \
         reaches; the vertical line is the recommended size, with half and twice of it. Where the \
         curve is steep, a little memory decides much; where it is flat, more memory is wasted."
    );
    let regions = if sizing.regions_why.is_empty() {
        String::new()
    } else {
        list(&sizing.regions_why).replacen("<ul>", "<ul class=\"regions\">", 1)
    };
    section("Hit ratio by size", &(figure(&curve_chart(sizing), &caption) + &regions))
}

fn effects_section(sizing: &Sizing) -> String {
    if sizing.effects.is_empty() {
        return String::new();
    }
    let policies = figure(
        &policies_chart(sizing),
        "All policies at half the recommended size (hollow), at that size (full) and at twice of \
         it (light), best first. Far apart dots mean that size matters; rows that look alike, that \
         the policy does not.",
    );
    let table = html_table(&effects_table(sizing));
    let unavoidable = escape(unavoidable(sizing).trim());
    section("Half, this, twice", &format!("{table}<p>{unavoidable}</p>\n{policies}"))
}

fn time_section(sizing: &Sizing) -> String {
    let mut body = figure(
        &working_set_chart(sizing),
        "Working set: how much different data each 64th of the trace touches. Peaks above the line \
         do not fit into the recommended size, whatever the policy.",
    );
    let load = "Load: how many pages are referenced in each 64th of the trace.";
    body.push_str(&figure(&load_chart(sizing), load));
    body.push_str(&figure(
        &heat_chart(sizing),
        "Addresses, low ones below: the darker, the more references. Horizontal bands are data \
         that is used again and again, which a cache can hold; rising lines are scans, which it \
         cannot.",
    ));
    if let Some(stability) = &sizing.stability {
        let caption = format!(
            "What each eighth of the references would need for the same target. {}",
            escape(&stability.judgment)
        );
        body.push_str(&figure(&windows_chart(sizing), &caption));
    }
    section("Over time", &body)
}

fn tables_section(sizing: &Sizing) -> String {
    let mut text = String::new();
    if let Some(table) = page_sizes_table(sizing) {
        let chosen = page_size::choose(&sizing.page_sizes).map_or_else(String::new, |index| {
            format!("Chosen: {}. ", format::bytes(sizing.page_sizes[index].page_bytes.into()))
        });
        let (table, rule) = (html_table(&table), escape(&page_size_rule()));
        text.push_str(&section("Page size", &format!("{table}<p>{chosen}{rule}</p>\n")));
    }
    if let Some(table) = volumes_table(sizing) {
        let rule = "<p>Each byte goes where it gains the most hits, on the concave hulls of the \
                    curves (LRU, each volume for itself).</p>\n";
        text.push_str(&section("Memory among volumes", &(html_table(&table) + rule)));
    }
    text
}

fn notes_section(sizing: &Sizing) -> String {
    let method = format!(
        "Replacement only: each reference touches one page, a miss brings the page in. No \
         read-ahead, no lazy write. Samples come from seed {}.",
        sizing.seed
    );
    section("How this was made", &list(sizing.notes.iter().chain([&method])))
}
