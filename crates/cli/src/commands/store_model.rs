//! `--store`: the model of a store, which may be fitted to a device or file of this machine.

use crate::args;
use anyhow::{Context, Result};
use larder_io::owned_file::{self, FileError};
use larder_lab::model::measure::{self, DEPTHS, Measurement};
use larder_lab::model::{DeviceRates, SpecSyntax, StoreModel, StoreSpec};
use larder_report::escape;
use larder_schema::format;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The unit of `st_blocks`.
const SECTOR_BYTES: u64 = 512;
/// Length of the reads that are compared.
const READ_BYTES: u64 = 4096;

/// Parses the value of `--store`.
pub(crate) fn parse(text: &str) -> Result<StoreSpec, String> {
    let unknown = |kind: &str, name: &str, known: &[&str]| {
        args::one_of::<()>(kind, name, None, known).expect_err("it was not found")
    };
    StoreSpec::parse(text, &SpecSyntax { bytes: args::bytes, time: args::time, unknown })
}

/// Returns the model of a specification; measures the device or file that it names.
pub(crate) fn of(spec: &StoreSpec) -> Result<StoreModel> {
    match spec {
        StoreSpec::Model(model) => Ok(*model),
        StoreSpec::Measure(path) => measured(path).map(StoreModel::rated),
    }
}

fn measured(path: &Path) -> Result<DeviceRates> {
    let name = escape::path(path);
    let context = || format!("measure {name}");
    let (file, bytes) =
        owned_file::open_direct(path).map_err(with_next_step).with_context(context)?;
    let measurement = measure::measure(&file, bytes).with_context(context)?;
    let rates = measurement.fit();
    eprintln!("larder: note: {name} measured: --store {rates}; {}", residual(&measurement, &rates));
    if has_holes(&file).with_context(context)? {
        eprintln!(
            "larder: note: {name} has holes, which are read without the disk; measure a file that \
             is allocated, or the device"
        );
    }
    Ok(rates)
}

fn with_next_step(error: FileError) -> anyhow::Error {
    match error {
        FileError::System(error) if error.kind() == io::ErrorKind::InvalidInput => {
            anyhow::anyhow!(
                "its file system has no direct I/O (O_DIRECT); name the block device, or a file on \
                 another file system"
            )
        }
        error => error.into(),
    }
}

/// Returns the sentence that compares the model with the measurement.
fn residual(measurement: &Measurement, rates: &DeviceRates) -> String {
    let at_depth = |(depth, measured): (u32, f64)| {
        let predicted = rates.reads_per_s(depth, READ_BYTES);
        let [predicted, measured] = [predicted, measured].map(format::number);
        format!("{predicted} and {measured} at depth {depth}")
    };
    let all: Vec<String> = DEPTHS.into_iter().zip(measurement.reads_per_s).map(at_depth).collect();
    format!("reads/s predicted and measured: {}", all.join(", "))
}

fn has_holes(file: &File) -> io::Result<bool> {
    let metadata = file.metadata()?;
    Ok(metadata.is_file() && metadata.blocks() * SECTOR_BYTES < metadata.len())
}
