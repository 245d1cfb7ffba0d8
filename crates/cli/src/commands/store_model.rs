//! `--store`: the model of a store, which may be in a file, or fitted to a device or file of this
//! machine.

use crate::args;
use anyhow::{Context, Result, anyhow};
use larder_io::owned_file::{self, FileError, FileReaders};
use larder_lab::model::measure::{self, DEPTHS, FileDevice, Measurement};
use larder_lab::model::{DeviceRates, SpecSyntax, StoreModel, StoreSpec};
use larder_report::escape;
use larder_schema::format;
use larder_schema::model::ModelDescription;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// The unit of `st_blocks`.
const SECTOR_BYTES: u64 = 512;
/// Length of the reads that are compared.
const READ_BYTES: u64 = 4096;
/// Maximum length of a file with a model.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// Parses the value of `--store`.
pub(crate) fn parse(text: &str) -> Result<StoreSpec, String> {
    let unknown = |kind: &str, name: &str, known: &[&str]| {
        larder_server::value::unknown_model(kind, name, known.iter().copied())
    };
    StoreSpec::parse(text, &SpecSyntax { bytes: args::bytes, time: args::time, unknown })
}

/// Returns the model of a specification; measures the device or file that it names.
pub(crate) fn of(spec: &StoreSpec) -> Result<StoreModel> {
    match spec {
        StoreSpec::Model(model) => Ok(*model),
        StoreSpec::Measure(path) => measured(path).map(StoreModel::rated),
        StoreSpec::File(path) => read(path),
    }
}

/// Reads the model in a file.
pub(super) fn read(path: &Path) -> Result<StoreModel> {
    let context = || format!("read the model {}", escape::path(path));
    let json = owned_file::read(path, FileReaders::Public, FILE_BYTES_MAX).with_context(context)?;
    let text = ModelDescription::specification_of(&json).with_context(context)?;
    match parse(&text).map_err(|error| anyhow!("{error}")).with_context(context)? {
        StoreSpec::Model(model) => Ok(model),
        _ => Err(anyhow!("it names another file")).with_context(context),
    }
}

fn measured(path: &Path) -> Result<DeviceRates> {
    let name = escape::path(path);
    let context = || format!("measure {name}");
    let device = open(path)?;
    let never = AtomicBool::new(false);
    let measurement = measure::measure(&device, false, &never).with_context(context)?;
    let rates = measurement.fit();
    eprintln!("larder: note: {name} measured: --store {rates}; {}", residual(&measurement, &rates));
    Ok(rates)
}

/// Opens a block device or file that is measured by reads.
pub(super) fn open(path: &Path) -> Result<FileDevice> {
    let name = escape::path(path);
    let context = || format!("measure {name}");
    let (file, bytes) =
        owned_file::open_direct(path).map_err(with_next_step).with_context(context)?;
    if has_holes(&file).with_context(context)? {
        eprintln!(
            "larder: note: {name} has holes, which are read without the disk; measure a file that \
             is allocated, or the device"
        );
    }
    Ok(FileDevice { file, bytes })
}

fn with_next_step(error: FileError) -> anyhow::Error {
    match error {
        FileError::System(error) if error.kind() == io::ErrorKind::InvalidInput => no_direct_io(),
        error => error.into(),
    }
}

/// Returns the reason why a file without direct I/O is not measured.
pub(super) fn no_direct_io() -> anyhow::Error {
    anyhow!(
        "its file system has no direct I/O (O_DIRECT); name the block device, or a file on another \
         file system"
    )
}

/// Returns the sentence that compares the model with the measurement.
fn residual(measurement: &Measurement, rates: &DeviceRates) -> String {
    let at_depth = |(depth, measured): (u32, f64)| {
        let predicted = rates.reads_per_s(depth, READ_BYTES);
        let [predicted, measured] = [predicted, measured].map(format::number);
        format!("{predicted} and {measured} at depth {depth}")
    };
    let measured = measurement.read.small.map(|it| it.operations_per_s);
    let all: Vec<String> = DEPTHS.into_iter().zip(measured).map(at_depth).collect();
    format!("reads/s predicted and measured: {}", all.join(", "))
}

fn has_holes(file: &File) -> io::Result<bool> {
    let metadata = file.metadata()?;
    Ok(metadata.is_file() && metadata.blocks() * SECTOR_BYTES < metadata.len())
}
