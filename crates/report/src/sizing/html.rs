//! HTML report of `larder size`; [`crate::page`] has the common parts of reports.

mod charts;

use super::server;
use super::text::{
    CEILING_MIN, SizedCache, all_curve_rows, effects_table, page_size_rule, page_sizes_table,
    policies_table, reason, region_text, serve, serve_title, unavoidable, volumes_table,
    windows_table,
};
use crate::advise::page_size;
use crate::chart::svg_file;
use crate::escape::html as escape;
use crate::page::{self, Card, Head, WIDE, details, figure, html_table, list, section};
use crate::table::{Cell, Column, Table};
use charts::{
    compared_effects, curve_chart, curve_key, heat_chart, load_chart, policies_chart, policies_key,
    windows_chart, working_set_chart,
};
use larder_schema::advice::Attainment;
use larder_schema::format;
use larder_schema::sizing::{Recommendation, Sizing, Slice};

/// Draws the hit-ratio curve with its regions and the recommended size, as an SVG file.
#[must_use]
pub fn to_curve_svg(sizing: &Sizing) -> String {
    svg_file(&curve_chart(sizing, WIDE, true))
}

/// Renders the report.
#[must_use]
pub fn to_html(sizing: &Sizing, cache: SizedCache) -> String {
    let head = Head {
        kind: "larder size".to_owned(),
        verdict: verdict(sizing),
        cards: head_cards(sizing),
        subject: vec![subject(sizing), stability(sizing)],
    };
    let mut body = advice_html(sizing, cache);
    body.push_str(&curve_section(sizing));
    body.push_str(&policies_section(sizing));
    body.push_str(&time_section(sizing));
    body.push_str(&tables_section(sizing));
    body.push_str(&method_section(sizing));
    page::page(&head, &body, &sizing.to_json())
}

/// Returns the answer in one sentence.
fn verdict(sizing: &Sizing) -> String {
    let (Some(advice), Some(effect)) = (&sizing.recommendation, sizing.recommended()) else {
        return "No cache can help: no page is referenced twice".to_owned();
    };
    let hits = format::percent(effect.point.hit_ratio);
    if sizing.workload.ceiling < CEILING_MIN {
        let missing = format::percent(1.0 - sizing.workload.ceiling);
        let counted = server::counted(sizing);
        return format!(
            "A cache is hardly worth its memory: {missing} of the {counted} miss in any cache"
        );
    }
    let limit = match advice.reach {
        Attainment::Budget => ", all that the budget allows,",
        Attainment::Reached | Attainment::End => "",
    };
    let twice = sizing.effects.iter().find(|effect| effect.what == "twice").map(|twice| {
        let points = (twice.point.hit_ratio - effect.point.hit_ratio) * 100.0;
        format!("; twice as much adds {points:.1} points")
    });
    format!(
        "{} of cache{limit} hits {hits} of the {}{}",
        format::bytes(advice.bytes),
        server::counted(sizing),
        twice.unwrap_or_default()
    )
}

/// Returns whether the recommended size is enough at all times.
fn stability(sizing: &Sizing) -> String {
    sizing.stability.as_ref().map_or_else(String::new, |stability| stability.judgment.clone())
}

fn head_cards(sizing: &Sizing) -> Vec<Card> {
    let (Some(advice), Some(effect)) = (&sizing.recommendation, sizing.recommended()) else {
        return Vec::new();
    };
    let reachable =
        format!("a cache of all pages hits {}", format::percent(sizing.workload.ceiling));
    let policies = format!("of {} compared, pages of {}", effect.policies.len(), page_size(advice));
    let half = sizing.effects.iter().find(|effect| effect.what == "half");
    let mut cards = vec![
        Card::new("Size", format::bytes(advice.bytes), region_text(sizing, advice)),
        Card::new("Hits", format::percent(effect.point.hit_ratio), reachable),
    ];
    cards.extend(half.map(|half| {
        let note = format!("hits with half, {}", format::bytes(half.point.bytes));
        Card::new("Half the size", format::percent(half.point.hit_ratio), note)
    }));
    cards.push(Card::new("Policy", advice.policy.clone(), policies));
    cards
}

fn page_size(advice: &Recommendation) -> String {
    format::bytes(advice.page_bytes.into())
}

fn subject(sizing: &Sizing) -> String {
    let work = &sizing.workload;
    let time = work.duration_ns.map_or(String::new(), |ns| format!(" in {}", format::duration(ns)));
    format!(
        "{}: {} requests{time} for {} of data; {} references to {} different pages of {} ({}).",
        work.trace,
        format::count(work.requests),
        format::bytes(work.bytes),
        format::count(work.references),
        format::count(work.footprint_pages),
        format::bytes(work.page_bytes.into()),
        format::bytes(work.footprint_bytes()),
    )
}

/// Renders the reason for the size, and the command that serves a volume so.
fn advice_html(sizing: &Sizing, cache: SizedCache) -> String {
    let Some(advice) = &sizing.recommendation else { return String::new() };
    let mut text = format!("<p class=\"subject\">{}</p>\n", escape(&reason(sizing, advice)));
    if cache == SizedCache::Server {
        put_line!(text, "<p>{}</p>\n<pre>{}</pre>", serve_title(advice), escape(&serve(advice)));
    }
    text
}

fn curve_section(sizing: &Sizing) -> String {
    let is_counted = sizing.curve.iter().all(|it| it.point.high <= it.point.low);
    let method = if server::is_searched(sizing) {
        "The curve is fitted to simulations of a server over the whole trace."
    } else if sizing.exact || is_counted {
        "Every point was counted over the whole trace."
    } else {
        "Points are estimates from samples of the pages, with their 95 % interval as a band. \
         Points without a band were counted over the whole trace."
    };
    let caption = format!("{method} Reachable is the hit ratio of a cache of all pages.");
    let key = page::key(&curve_key(sizing));
    let chart = key
        + &figure(
            |width| curve_chart(sizing, width, false),
            &caption,
            Some(&all_curve_rows(sizing)),
        );
    let regions = list(&sizing.regions_why);
    let effects = match sizing.effects.as_slice() {
        [] => String::new(),
        _ => match (server::description(sizing), server::table(sizing)) {
            (Some(description), Some(table)) => {
                format!("{}<p>{}</p>\n", html_table(&table), escape(&description))
            }
            _ => html_table(&effects_table(sizing)),
        },
    };
    let unavoidable = escape(unavoidable(sizing).trim());
    section("More or less memory?", &format!("{chart}{effects}{regions}<p>{unavoidable}</p>\n"))
}

fn policies_section(sizing: &Sizing) -> String {
    let Some(recommended) = sizing.recommended() else { return String::new() };
    let caption = match compared_effects(sizing).len() {
        1 => "The best policy at the recommended size is first.",
        _ => {
            "The best policy at the recommended size is first. Distant dots mean that the size \
             matters; rows that look alike mean that the policy does not."
        }
    };
    let figure =
        figure(|width| policies_chart(sizing, width), caption, Some(&policies_table(recommended)));
    section("Another policy?", &(page::key(&policies_key(sizing)) + &figure))
}

fn time_section(sizing: &Sizing) -> String {
    let mut body = String::new();
    let limit = sizing.recommendation.as_ref().map_or_else(String::new, |advice| {
        let size = format!("recommended size, {}", format::bytes(advice.bytes));
        page::key(&[("chosen".to_owned(), size)])
    });
    if sizing.stability.is_some() {
        let caption = "The size that each eighth needs for the same target; orange: more than the \
                       recommended size.";
        let table = windows_table(sizing);
        body.push_str(&limit);
        body.push_str(&figure(|width| windows_chart(sizing, width), caption, Some(&table)));
    }
    let caption = "Working set: the different data that each 64th of the trace touches. Peaks \
                   above the line do not fit into the recommended size, whatever the policy.";
    let slices = slices_table(sizing);
    let others = limit
        + &figure(|width| working_set_chart(sizing, width), caption, Some(&slices))
        + &figure(
            |width| load_chart(sizing, width),
            "References to pages in each 64th of the trace.",
            None,
        )
        + &figure(
            |width| heat_chart(sizing, width),
            "Addresses, low ones below: the darker, the more references. Horizontal bands are data \
             that is used repeatedly, which a cache can hold; rising lines are scans, which it \
             cannot.",
            None,
        );
    body.push_str(&details("Working set, load and addresses over time", &others));
    section("The same all the time?", &body)
}

fn slices_table(sizing: &Sizing) -> Table {
    let columns = [
        Column::numbers("begin", "from"),
        Column::numbers("references", "references"),
        Column::numbers("pages", "different pages"),
    ];
    let mut table = Table::new("", columns);
    let has_times = sizing.workload.duration_ns.is_some();
    for Slice { begin, references, pages } in &sizing.slices {
        let begin = if has_times { Cell::duration(*begin) } else { Cell::count(*begin) };
        table.push([begin, Cell::count(*references), Cell::count(*pages)]);
    }
    table
}

fn tables_section(sizing: &Sizing) -> String {
    let mut text = String::new();
    if let Some(table) = page_sizes_table(sizing) {
        let chosen = page_size::choose(&sizing.page_sizes).map_or_else(String::new, |index| {
            format!("Chosen: {}. ", format::bytes(sizing.page_sizes[index].page_bytes.into()))
        });
        let (table, rule) = (html_table(&table), escape(&page_size_rule(sizing)));
        text.push_str(&section("Larger pages?", &format!("{table}<p>{chosen}{rule}</p>\n")));
    }
    if let Some(table) = volumes_table(sizing) {
        let rule = "<p>Each byte goes where it gains the most hits, on the concave hulls of the \
                    curves (LRU, each volume for itself).</p>\n";
        text.push_str(&section("Memory among volumes", &(html_table(&table) + rule)));
    }
    text
}

fn method_section(sizing: &Sizing) -> String {
    let covered = if server::is_searched(sizing) {
        "The simulation of a server covers requests with their sizes, read-ahead and lazy writes; \
         that of volumes covers replacement only"
    } else {
        "The simulation of the curve covers replacement only"
    };
    let method = format!(
        "{covered}: there each reference touches one page, and a miss brings the page in. Samples \
         come from seed {}.",
        sizing.seed
    );
    details("Method and notes", &list(sizing.notes.iter().chain([&method])))
}
