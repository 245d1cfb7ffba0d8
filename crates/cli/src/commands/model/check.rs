//! `larder model check`: eight patterns on a device, beside the predictions of a model.

use super::comparison::{compare, to_text};
use super::fit::fit;
use super::target::{Target, TargetArgs, finish};
use crate::args;
use crate::args::{FormatArgs, TextOrJson};
use crate::commands::store_model;
use crate::output;
use crate::signals::Stop;
use anyhow::{Result, ensure};
use clap::Args;
use larder_lab::model::measure::{PATTERNS, READ_PATTERNS, limits_of, run as run_pattern};
use larder_lab::model::{StoreModel, StoreSpec};
use larder_schema::model::{ModelCheck, PatternComparison};
use std::io::{self, Write};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Maximum time of a pattern.
const TIME_MAX: Duration = Duration::from_mins(10);

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    #[command(flatten)]
    target: TargetArgs,

    /// Model; if not given, the fitted one.
    ///
    /// Without it, the device is measured first, as by larder model fit.
    #[arg(long, value_name = "MODEL", value_parser = store_model::parse)]
    store: Option<StoreSpec>,

    /// Duration of each pattern.
    ///
    /// A pattern ends earlier after 1 GiB, or 200,000 operations.
    #[arg(long = "for", value_name = "TIME", default_value = "3s", value_parser = time)]
    time: Duration,

    #[command(flatten)]
    format: FormatArgs<TextOrJson>,
}

fn time(text: &str) -> Result<Duration, String> {
    let time = Duration::from_nanos(args::time(text)?);
    let is_valid = !time.is_zero() && time <= TIME_MAX;
    is_valid.then_some(time).ok_or_else(|| "a pattern takes more than 0s, and at most 10m".into())
}

pub(super) fn run(arguments: &CheckArgs) -> Result<()> {
    let target = arguments.target.open()?;
    let model = arguments.store.as_ref().map(store_model::of).transpose()?;
    ensure!(
        model != Some(StoreModel::Instant),
        "check the model instant: its operations take no time; choose one of larder model list"
    );
    let stop = Stop::listen()?;
    let model = match model {
        Some(model) => model,
        None => finish(fit(&target, stop.flag()), &target.name, &stop)?.0,
    };
    let measured = measure(&target, &model, arguments.time, stop.flag());
    let comparisons = finish(measured, &target.name, &stop)?;
    let check = ModelCheck { device: target.name, model: model.name().into_owned(), comparisons };
    let text = match arguments.format.get() {
        TextOrJson::Json => format!("{:#}\n", check.to_json()),
        TextOrJson::Text => format!("{}\n--store {}\n", to_text(&check.comparisons), check.model),
    };
    // A closed pipe is not a failure, so the error must reach the caller without context.
    Ok(output::stdout().write_all(text.as_bytes())?)
}

/// Runs the patterns on the device and on the model.
fn measure(
    target: &Target,
    model: &StoreModel,
    time: Duration,
    stop: &AtomicBool,
) -> io::Result<Vec<PatternComparison>> {
    let patterns = if target.writes { PATTERNS } else { READ_PATTERNS };
    let of = |pattern| {
        let limits = limits_of(&pattern, time);
        output::progress_line(&format!("larder: {}", pattern.name()));
        let measured = run_pattern(&*target.device, &pattern, limits, stop)?;
        Ok(compare(model, target.device.bytes(), (pattern, limits, measured)))
    };
    patterns.into_iter().map(of).collect()
}
