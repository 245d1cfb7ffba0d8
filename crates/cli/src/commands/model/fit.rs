//! `larder model fit`: measures a device and writes the model that fits it.

use super::comparison::{compare, to_text};
use super::show::describe;
use super::target::{Target, TargetArgs, finish};
use crate::args::{FormatArgs, TextOrJson};
use crate::output;
use crate::output_file::OutputFile;
use crate::signals::Stop;
use anyhow::Result;
use clap::Args;
use larder_lab::model::StoreModel;
use larder_lab::model::measure::measure;
use larder_schema::model::ModelDescription;
use std::io::{self, Write};
use std::sync::atomic::AtomicBool;

#[derive(Debug, Args)]
pub(super) struct FitArgs {
    #[command(flatten)]
    target: TargetArgs,

    /// Write the model into a file.
    ///
    /// Other commands use it as --store `file:FILE`.
    #[arg(short, long, value_name = "FILE")]
    output: Option<OutputFile>,

    #[command(flatten)]
    format: FormatArgs<TextOrJson>,
}

pub(super) fn run(arguments: &FitArgs) -> Result<()> {
    let target = arguments.target.open()?;
    let stop = Stop::listen()?;
    let (_, description) = finish(fit(&target, stop.flag()), &target.name, &stop)?;
    let json = || format!("{:#}\n", description.to_json());
    let text = match arguments.format.get() {
        TextOrJson::Json => json(),
        TextOrJson::Text => {
            let model = &description.model;
            format!("{}\n--store {model}\n", to_text(&description.comparisons))
        }
    };
    let printed = output::stdout().write_all(text.as_bytes());
    // A closed pipe does not prevent writing the file.
    if let Some(file) = &arguments.output {
        output::write_atomically(file, &json())?;
    }
    Ok(printed?)
}

/// Measures the device; returns the model that fits it, with the predictions of the steps.
pub(super) fn fit(
    target: &Target,
    stop: &AtomicBool,
) -> io::Result<(StoreModel, ModelDescription)> {
    output::progress_line(&format!("larder: measuring {}", target.name));
    let measurement = measure(&*target.device, target.writes, stop)?;
    let model = StoreModel::rated(measurement.fit());
    let bytes = target.device.bytes();
    let comparisons = measurement.steps().map(|step| compare(&model, bytes, step)).collect();
    let operations = if target.writes { "reads and writes" } else { "reads" };
    let description = ModelDescription {
        name: target.name.clone(),
        summary: format!("fitted to {operations} of {}", target.name),
        comparisons,
        ..describe(&model)
    };
    Ok((model, description))
}
