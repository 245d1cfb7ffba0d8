//! `larder model list` and `larder model show`.

use crate::args::{FormatArgs, TextOrJson};
use crate::commands::store_model;
use anyhow::{Result, bail};
use clap::Args;
use larder_lab::model::{DEVICES, StoreModel, StoreSpec};
use larder_report::table::{Cell, Column, Table};
use larder_schema::format;
use larder_schema::model::{Figure, ModelDescription};
use serde_json::json;
use std::io::Write;

#[derive(Debug, Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    format: FormatArgs<TextOrJson>,
}

#[derive(Debug, Args)]
pub(super) struct ShowArgs {
    /// A name of the list, or any other value of --store of larder sim.
    #[arg(value_name = "MODEL", value_parser = store_model::parse)]
    model: StoreSpec,

    #[command(flatten)]
    format: FormatArgs<TextOrJson>,
}

pub(super) fn list(arguments: &ListArgs) -> Result<()> {
    let mut table = Table::new(
        "",
        [
            Column::words("name", "name"),
            Column::words("kind", "kind"),
            Column::words("summary", "summary"),
        ],
    );
    for device in &DEVICES {
        let words = [device.name, device.device.kind(), device.summary];
        table.push(words.map(Cell::word));
    }
    let text = match arguments.format.get() {
        TextOrJson::Text => table.to_text(),
        TextOrJson::Json => {
            let models = &table.to_json()["rows"];
            format!("{:#}\n", json!({"schema": "larder-models", "version": 1, "models": models}))
        }
    };
    // A closed pipe is not a failure, so the error must reach the caller without context.
    Ok(crate::output::stdout().write_all(text.as_bytes())?)
}

pub(super) fn show(arguments: &ShowArgs) -> Result<()> {
    if let StoreSpec::Measure(_) = arguments.model {
        bail!("show a model that has to be measured first: use larder model fit");
    }
    let description = describe(&store_model::of(&arguments.model)?);
    let text = match arguments.format.get() {
        TextOrJson::Text => to_text(&description),
        TextOrJson::Json => format!("{:#}\n", description.to_json()),
    };
    Ok(crate::output::stdout().write_all(text.as_bytes())?)
}

/// Returns the description of a model.
pub(super) fn describe(model: &StoreModel) -> ModelDescription {
    let name = model.name().into_owned();
    let named = DEVICES.iter().find(|it| it.name == name);
    let sources = named.map_or(&[][..], |it| it.sources);
    ModelDescription {
        kind: model.kind(),
        summary: named.map_or_else(String::new, |it| it.summary.to_owned()),
        model: name.clone(),
        name,
        figures: model.figures(),
        sources: sources.iter().map(|&it| it.to_owned()).collect(),
        comparisons: Vec::new(),
    }
}

pub(super) fn to_text(description: &ModelDescription) -> String {
    let ModelDescription { name, kind, summary, model, figures, sources, .. } = description;
    let summary = if summary.is_empty() { kind } else { &summary[..] };
    let mut text = format!("{name}: {summary}\n\n");
    let columns = [Column::words("figure", "figure"), Column::numbers("value", "value")];
    let mut table = Table::new("", columns);
    for figure in figures {
        table.push([Cell::word(&figure.name), Cell::shown(figure.value, value(figure))]);
    }
    if !figures.is_empty() {
        text += &table.to_text();
    }
    if !sources.is_empty() {
        text += "\nSources:\n";
        text.extend(sources.iter().map(|source| format!("* {source}\n")));
    }
    text + &format!("\nUse it: larder sim TRACE --level whole --store {model}\n")
}

/// Returns the value of a figure with its unit.
fn value(figure: &Figure) -> String {
    match figure.unit {
        "bytes" => format::bytes(figure.value),
        "bytes/s" => format!("{}/s", format::bytes(figure.value)),
        "ns" => format::duration(figure.value),
        unit => format!("{} {unit}", format::count(figure.value)).trim_end().to_owned(),
    }
}
