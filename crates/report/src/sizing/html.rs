//! HTML report of `larder size`; [`crate::page`] has the common parts of reports.

mod charts;

use super::Sizing;
use super::text::{SERVE_TITLE, serve};
use crate::advise::page_size;
use crate::escape::html as escape;
use crate::format;
use crate::page::{self, card, html_table};
use crate::table::Table;

impl Sizing {
    /// Renders the report.
    #[must_use]
    pub fn to_html(&self) -> String {
        let mut body = self.heading(&escape(&self.workload.trace));
        body.push_str(&self.curve_section());
        body.push_str(&self.effects_section());
        body.push_str(&self.time_section());
        body.push_str(&self.tables_section());
        body.push_str(&self.notes_section());
        page::page(&format!("How much cache: {}", self.workload.trace), &body, &self.to_json())
    }

    fn heading(&self, trace: &str) -> String {
        let work = &self.workload;
        let mut text = format!("<header>\n<p class=\"kind\">larder size</p>\n<h1>{trace}</h1>\n");
        let time =
            work.duration_ns.map_or(String::new(), |ns| format!(" in {}", format::duration(ns)));
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
        let (Some(advice), Some(effect)) = (&self.recommendation, self.recommended()) else {
            put_line!(text, "<p class=\"why\">{}</p>", escape(self.advice().trim()));
            return text;
        };
        text.push_str("<div class=\"cards\">\n");
        text.push_str(&card("Size", &format::bytes(advice.bytes), &self.region_text(advice)));
        let note = format!("the best of {}, or as good", effect.policies.len());
        text.push_str(&card("Policy", &advice.policy, &note));
        text.push_str(&card("Page", &format::bytes(advice.page_bytes.into()), "of the cache"));
        let reachable = format!("of {} that can be reached", format::percent(work.ceiling));
        text.push_str(&card("Hits", &format::percent(effect.point.hit_ratio), &reachable));
        text.push_str("</div>\n");
        put_line!(
            text,
            "<p class=\"why\">{}</p>\n<p>{SERVE_TITLE}</p>\n<pre>{}</pre>",
            escape(&self.reason(advice)),
            escape(&serve(advice))
        );
        text
    }

    fn curve_section(&self) -> String {
        let method = if self.exact {
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
            self.curve_chart()
        );
        if !self.regions_why.is_empty() {
            text.push_str("<ul class=\"regions\">\n");
            for reason in &self.regions_why {
                put_line!(text, "<li>{}</li>", escape(reason));
            }
            text.push_str("</ul>\n");
        }
        text.push_str("</section>\n");
        text
    }

    fn effects_section(&self) -> String {
        if self.effects.is_empty() {
            return String::new();
        }
        let mut table = Table::new("", Self::effects_columns());
        self.effects.iter().for_each(|effect| table.push(Self::effect_cells(effect)));
        format!(
            "<section>\n<h2>Half, this, twice</h2>\n{}<p>{}</p>\n<figure>\n{}<figcaption>All \
             policies at half the recommended size (hollow), at that size (full) and at twice of \
             it (light), best first. Far apart dots mean that size matters; rows that look alike, \
             that the policy does not.</figcaption>\n</figure>\n</section>\n",
            html_table(&table),
            escape(self.unavoidable().trim()),
            self.policies_chart()
        )
    }

    fn time_section(&self) -> String {
        let mut text = format!(
            "<section>\n<h2>Over time</h2>\n<figure>\n{}<figcaption>Working set: how much \
             different data each 64th of the trace touches. Peaks above the line do not fit into \
             the recommended size, whatever the policy.</figcaption>\n</figure>\n<figure>\n{}\
             <figcaption>Load: how many pages are referenced in each 64th of the trace.\
             </figcaption>\n</figure>\n<figure>\n{}<figcaption>Addresses, low ones below: the \
             darker, the more references. Horizontal bands are data that is used again and again, \
             which a cache can hold; rising lines are scans, which it cannot.</figcaption>\n\
             </figure>\n",
            self.working_set_chart(),
            self.load_chart(),
            self.heat_chart()
        );
        if let Some(stability) = &self.stability {
            put!(
                text,
                "<figure>\n{}<figcaption>What each eighth of the references would need for the \
                 same target. {}</figcaption>\n</figure>\n",
                self.windows_chart(),
                escape(&stability.judgement)
            );
        }
        text.push_str("</section>\n");
        text
    }

    fn tables_section(&self) -> String {
        let mut text = String::new();
        if let Some(table) = self.page_sizes_table_of() {
            let chosen = page_size::choose(&self.page_sizes).map_or_else(String::new, |index| {
                format!("Chosen: {}. ", format::bytes(self.page_sizes[index].page_bytes.into()))
            });
            put!(
                text,
                "<section>\n<h2>Page size</h2>\n{}<p>{chosen}{}</p>\n</section>\n",
                html_table(&table),
                escape(&Self::page_size_rule())
            );
        }
        if let Some(table) = self.volumes_table_of() {
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

    fn notes_section(&self) -> String {
        let mut text = String::from("<section>\n<h2>How this was made</h2>\n<ul>\n");
        for note in &self.notes {
            put_line!(text, "<li>{}</li>", escape(note));
        }
        put_line!(
            text,
            "<li>Replacement only: each reference touches one page, a miss brings the page in. No \
             read-ahead, no lazy write. Samples come from seed {}.</li>\n</ul>\n</section>",
            self.seed
        );
        text
    }
}
