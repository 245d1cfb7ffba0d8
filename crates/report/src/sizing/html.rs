//! HTML report of `larder size`; [`crate::page`] has the common parts of reports.

mod charts;

use super::text::{
    SERVE_TITLE, advice, effects_table, page_size_rule, page_sizes_table, reason, region_text,
    serve, unavoidable, volumes_table,
};
use crate::advise::page_size;
use crate::escape::html as escape;
use crate::page::{self, card, html_table};
use charts::{
    curve_chart, heat_chart, load_chart, policies_chart, windows_chart, working_set_chart,
};
use larder_schema::format;
use larder_schema::sizing::Sizing;

/// Renders the report.
#[must_use]
pub fn to_html(sizing: &Sizing) -> String {
    let mut body = heading(sizing, &escape(&sizing.workload.trace));
    body.push_str(&curve_section(sizing));
    body.push_str(&effects_section(sizing));
    body.push_str(&time_section(sizing));
    body.push_str(&tables_section(sizing));
    body.push_str(&notes_section(sizing));
    page::page(&format!("How much cache: {}", sizing.workload.trace), &body, &sizing.to_json())
}

fn heading(sizing: &Sizing, trace: &str) -> String {
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
        put_line!(text, "<p class=\"why\">{}</p>", escape(advice(sizing).trim()));
        return text;
    };
    text.push_str("<div class=\"cards\">\n");
    text.push_str(&card("Size", &format::bytes(advice.bytes), &region_text(sizing, advice)));
    let note = format!("the best of {}, or as good", effect.policies.len());
    text.push_str(&card("Policy", &advice.policy, &note));
    text.push_str(&card("Page", &format::bytes(advice.page_bytes.into()), "of the cache"));
    let reachable = format!("of {} that can be reached", format::percent(work.ceiling));
    text.push_str(&card("Hits", &format::percent(effect.point.hit_ratio), &reachable));
    text.push_str("</div>\n");
    put_line!(
        text,
        "<p class=\"why\">{}</p>\n<p>{SERVE_TITLE}</p>\n<pre>{}</pre>",
        escape(&reason(sizing, advice)),
        escape(&serve(advice))
    );
    text
}

fn curve_section(sizing: &Sizing) -> String {
    let method = if sizing.exact {
        "Every point was counted over the whole trace."
    } else {
        "Points were estimated from samples of the pages; the band is the 95 % error bar. \
         Around the recommended size they were counted wherever the band has no width."
    };
    let mut text = format!(
        "<section>\n<h2>Hit ratio by size</h2>\n<figure>\n{}<figcaption>The best policy at \
         each size. {method} The dashed line is what a cache for everything reaches; the \
         vertical line is the recommended size, with half and twice of it. Where the curve is \
         steep, a little memory decides much; where it is flat, more memory is \
         wasted.</figcaption>\n\
         </figure>\n",
        curve_chart(sizing)
    );
    if !sizing.regions_why.is_empty() {
        text.push_str("<ul class=\"regions\">\n");
        for reason in &sizing.regions_why {
            put_line!(text, "<li>{}</li>", escape(reason));
        }
        text.push_str("</ul>\n");
    }
    text.push_str("</section>\n");
    text
}

fn effects_section(sizing: &Sizing) -> String {
    if sizing.effects.is_empty() {
        return String::new();
    }
    format!(
        "<section>\n<h2>Half, this, twice</h2>\n{}<p>{}</p>\n<figure>\n{}<figcaption>All \
         policies at half the recommended size (hollow), at that size (full) and at twice of \
         it (light), best first. Far apart dots mean that size matters; rows that look alike, \
         that the policy does not.</figcaption>\n</figure>\n</section>\n",
        html_table(&effects_table(sizing)),
        escape(unavoidable(sizing).trim()),
        policies_chart(sizing)
    )
}

fn time_section(sizing: &Sizing) -> String {
    let mut text = format!(
        "<section>\n<h2>Over time</h2>\n<figure>\n{}<figcaption>Working set: how much \
         different data each 64th of the trace touches. Peaks above the line do not fit into \
         the recommended size, whatever the policy.</figcaption>\n</figure>\n<figure>\n{}\
         <figcaption>Load: how many pages are referenced in each 64th of the trace.\
         </figcaption>\n</figure>\n<figure>\n{}<figcaption>Addresses, low ones below: the \
         darker, the more references. Horizontal bands are data that is used again and again, \
         which a cache can hold; rising lines are scans, which it cannot.</figcaption>\n\
         </figure>\n",
        working_set_chart(sizing),
        load_chart(sizing),
        heat_chart(sizing)
    );
    if let Some(stability) = &sizing.stability {
        put!(
            text,
            "<figure>\n{}<figcaption>What each eighth of the references would need for the \
             same target. {}</figcaption>\n</figure>\n",
            windows_chart(sizing),
            escape(&stability.judgement)
        );
    }
    text.push_str("</section>\n");
    text
}

fn tables_section(sizing: &Sizing) -> String {
    let mut text = String::new();
    if let Some(table) = page_sizes_table(sizing) {
        let chosen = page_size::choose(&sizing.page_sizes).map_or_else(String::new, |index| {
            format!("Chosen: {}. ", format::bytes(sizing.page_sizes[index].page_bytes.into()))
        });
        put!(
            text,
            "<section>\n<h2>Page size</h2>\n{}<p>{chosen}{}</p>\n</section>\n",
            html_table(&table),
            escape(&page_size_rule())
        );
    }
    if let Some(table) = volumes_table(sizing) {
        put!(
            text,
            "<section>\n<h2>Memory among volumes</h2>\n{}<p>Each byte goes where it gains the \
             most hits, on the concave hulls of the curves (LRU, each volume for itself).</p>\n\
             </section>\n",
            html_table(&table)
        );
    }
    text
}

fn notes_section(sizing: &Sizing) -> String {
    let mut text = String::from("<section>\n<h2>How this was made</h2>\n<ul>\n");
    for note in &sizing.notes {
        put_line!(text, "<li>{}</li>", escape(note));
    }
    put_line!(
        text,
        "<li>Replacement only: each reference touches one page, a miss brings the page in. No \
         read-ahead, no lazy write. Samples come from seed {}.</li>\n</ul>\n</section>",
        sizing.seed
    );
    text
}
