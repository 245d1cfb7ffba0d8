//! `larder trace synth`: a trace from a pattern and a seed; equal arguments give the same file.

use super::input::Input;
use super::output::target;
use super::write_all;
use crate::args;
use crate::output_file::OutputFile;
use anyhow::{Result, anyhow};
use clap::Args;
use larder_lab::trace::Target;
use larder_lab::trace::synth::{Pattern, Synth, SynthOptions};

#[derive(Debug, Args)]
pub(super) struct SynthArgs {
    /// Pattern, such as zipf, scan, loop, mix or database.
    ///
    /// Patterns: zipf, scan, loop, backward, stride, interleave, uniform, mix, database, and
    /// sample, the trace of larder size --sample, which has only a seed.
    #[arg(value_name = "PATTERN", value_parser = pattern)]
    pattern: Pattern,

    /// The file to write; - is standard output.
    #[arg(value_name = "FILE")]
    file: OutputFile,

    /// Output format, if the extension does not tell.
    ///
    /// If not given, by the extension of the file, else larder.
    #[arg(long, value_name = "FORMAT", value_parser = target)]
    to_format: Option<Target>,

    /// Total number of requests.
    #[arg(long, value_name = "NUMBER", default_value_t = 1_000_000)]
    requests: u64,

    /// Pages of the volume.
    #[arg(long, value_name = "NUMBER", default_value_t = 262_144)]
    pages: u64,

    /// Bytes of a page.
    ///
    /// Each request is one page, except the reports of a database.
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = args::bytes)]
    page_size: u64,

    /// Exponent of Zipf's law.
    ///
    /// 0.6 is flat, 1.2 is steep.
    #[arg(long, value_name = "NUMBER", default_value_t = 1.0)]
    exponent: f64,

    /// Percentage of writes.
    ///
    /// In a database, the percentage of transactions that write.
    #[arg(long, value_name = "PERCENT", default_value = "30%", value_parser = percent)]
    writes: f64,

    /// Requests per second.
    #[arg(long, value_name = "NUMBER", default_value_t = 1000.0)]
    rate: f64,

    /// Seed of all random numbers.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
}

fn pattern(text: &str) -> Result<Pattern, String> {
    args::one_of("pattern", text, Pattern::from_name(text), &Pattern::ALL.map(Pattern::name))
}

fn percent(text: &str) -> Result<f64, String> {
    let share = args::per_cent(text)
        .map(|number| number / 100.0)
        .filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| format!("\"{text}\" is not a share; write 30%"))
}

pub(super) fn run(arguments: &SynthArgs) -> Result<()> {
    let options = SynthOptions {
        pattern: arguments.pattern,
        requests: arguments.requests,
        pages: arguments.pages,
        page_bytes: arguments.page_size,
        exponent: arguments.exponent,
        writes: arguments.writes,
        rate: arguments.rate,
        seed: arguments.seed,
    };
    let synth = Synth::new(options).map_err(|reason| anyhow!("make a trace: {reason}"))?;
    write_all(
        Input::from_generator(synth, arguments.requests),
        &arguments.file,
        arguments.to_format,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_writes_needs_no_sign() {
        assert_eq!((percent("30"), percent("30%"), percent("0")), (Ok(0.3), Ok(0.3), Ok(0.0)));
        for wrong in ["0.3", "101", "-1", "x", ""] {
            assert!(percent(wrong).unwrap_err().contains("not a share"), "{wrong}");
        }
    }
}
