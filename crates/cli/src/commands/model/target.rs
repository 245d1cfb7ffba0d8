//! The device that `larder model fit` and `larder model check` measure.
//!
//! Without `--destructive` a device is opened for reading only. With it, a file or block device is
//! opened as by `larder serve`: exclusively, and not if it is mounted or in use.

use crate::commands::store_model;
use crate::signals::Stop;
use anyhow::{Context, Result, ensure};
use clap::Args;
use larder_io::nbd_client::{Client, ConnectOptions, NbdUri};
use larder_io::nbd_wire as wire;
use larder_io::store::{OpenedFile, open_file};
use larder_lab::model::measure::{Device, DeviceAccess, FileDevice};
use larder_report::escape;
use std::io;
use std::path::Path;

/// Length of the shortest operations.
const OPERATION_BYTES_MIN: u32 = 4 << 10;
/// Length of the longest operations.
const OPERATION_BYTES_MAX: u32 = 256 << 10;

#[derive(Debug, Args)]
pub(super) struct TargetArgs {
    /// Block device, file, or address of an NBD export.
    #[arg(value_name = "TARGET")]
    target: String,

    /// Write as well; this destroys the content.
    ///
    /// Name TARGET a second time. A device that is mounted or in use is refused.
    #[arg(long, value_name = "TARGET")]
    destructive: Option<String>,
}

/// An open device.
pub(super) struct Target {
    pub(super) device: Box<dyn Device>,
    /// Its name, escaped.
    pub(super) name: String,
    /// True if it may be written.
    pub(super) writes: bool,
    /// The lock and the claim of a file that may be written.
    _opened: Option<OpenedFile>,
}

impl TargetArgs {
    /// Opens the device.
    pub(super) fn open(&self) -> Result<Target> {
        let name = escape::text(&self.target).into_owned();
        if let Some(again) = &self.destructive {
            ensure!(
                *again == self.target,
                "write to {name}: --destructive names {}; name the same device twice",
                escape::text(again)
            );
        }
        let writes = self.destructive.is_some();
        let (device, opened): (Box<dyn Device>, _) = if self.target.contains("://") {
            (Box::new(NbdDevice::open(&self.target, writes)?), None)
        } else if writes {
            let (device, opened) = open_exclusively(Path::new(&self.target))?;
            (Box::new(device), Some(opened))
        } else {
            (Box::new(store_model::open(Path::new(&self.target))?), None)
        };
        Ok(Target { device, name, writes, _opened: opened })
    }
}

fn open_exclusively(path: &Path) -> Result<(FileDevice, OpenedFile)> {
    let opened = open_file(path, false)?;
    let context = || format!("measure {}", escape::path(path));
    let file = opened.direct().with_context(context)?;
    let file = file.ok_or_else(store_model::no_direct_io).with_context(context)?;
    let bytes = opened.geometry.length;
    Ok((FileDevice { file, bytes }, opened))
}

/// An export of an NBD server, with a connection for each thread.
struct NbdDevice {
    uri: NbdUri,
    bytes: u64,
}

impl NbdDevice {
    fn open(text: &str, writes: bool) -> Result<Self> {
        let name = escape::text(text).into_owned();
        let context = || format!("measure {name}");
        let uri: NbdUri = text.parse().with_context(context)?;
        let client = connect(&uri).with_context(context)?;
        let info = client.info().clone();
        drop(client);
        let is_read_only = info.has(wire::FLAG_READ_ONLY);
        ensure!(!writes || !is_read_only, "write to {name}: the export is read-only");
        let (min, max) = (info.block_sizes.min, info.block_sizes.max);
        ensure!(
            min <= OPERATION_BYTES_MIN,
            "measure {name}: its requests have at least {min} bytes, more than the \
             {OPERATION_BYTES_MIN} of a pattern"
        );
        ensure!(
            max >= OPERATION_BYTES_MAX,
            "measure {name}: its requests have at most {max} bytes"
        );
        Ok(NbdDevice { uri, bytes: info.length })
    }
}

fn connect(uri: &NbdUri) -> io::Result<Client> {
    let options =
        ConnectOptions { structured: false, base_allocation: false, ..Default::default() };
    Client::connect_with(uri, options).map_err(io::Error::other)
}

impl Device for NbdDevice {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn connect(&self) -> io::Result<Box<dyn DeviceAccess + Send + '_>> {
        Ok(Box::new(NbdAccess(connect(&self.uri)?)))
    }
}

struct NbdAccess(Client);

impl DeviceAccess for NbdAccess {
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.0.read_at(offset, buffer).map_err(io::Error::other)
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_at(offset, bytes, false).map_err(io::Error::other)
    }
}

/// Returns the result of a measurement; a measurement that a signal has stopped ends the process as
/// the signal does.
pub(super) fn finish<T>(result: io::Result<T>, name: &str, stop: &Stop) -> Result<T> {
    if matches!(&result, Err(error) if error.kind() == io::ErrorKind::Interrupted) {
        eprintln!("larder: stopped before there was a result");
        stop.reraise_signal()?;
    }
    result.with_context(|| format!("measure {name}"))
}
