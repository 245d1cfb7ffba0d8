//! The exports of the volumes of a trace.

use anyhow::{Context, Result, bail, ensure};
use larder_io::nbd_client::{Client, ConnectOptions, ExportDetails, NbdUri};
use larder_io::nbd_wire as wire;
use larder_lab::trace::{NameOf, Op, Source};
use std::collections::HashMap;
use std::time::Duration;

/// Time limit for the reply of a server to a request.
const ANSWER_MAX: Duration = Duration::from_mins(1);
/// Maximum length of a discard or write-zeroes request; servers need not accept longer ones.
const EXCLUDE_BYTES_MAX: u64 = 1 << 30;

/// Parses `NAME=URI`. A name may contain "=".
pub(super) fn volume(text: &str) -> Result<(String, NbdUri), String> {
    let at = ["=nbd://", "=nbd+unix://"].iter().filter_map(|scheme| text.find(scheme)).min();
    let at = at.ok_or("write it as NAME=nbd+unix://... or NAME=nbd://...")?;
    let uri: NbdUri = text[at + 1..].parse().map_err(|error| format!("{error}"))?;
    Ok((text[..at].to_owned(), uri))
}

/// An export.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// Its volume; `None` for the only one.
    volume: Option<String>,
    uri: NbdUri,
    /// Its properties, once there is a connection.
    info: Option<ExportDetails>,
}

impl Target {
    fn info(&self) -> &ExportDetails {
        self.info.as_ref().expect("it is connected")
    }

    /// Returns the bytes of the export.
    pub(super) fn length(&self) -> u64 {
        self.info().length
    }

    /// Returns its address, for messages.
    pub(super) fn uri(&self) -> &NbdUri {
        &self.uri
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.info().has(wire::FLAG_READ_ONLY)
    }

    /// Returns true if its server supports such requests.
    pub(super) fn offers(&self, op: Op) -> bool {
        match op {
            Op::Read | Op::Write => true,
            Op::Flush => self.info().has(wire::FLAG_SEND_FLUSH),
            Op::Discard => self.info().has(wire::FLAG_SEND_TRIM),
            Op::Zero => self.info().has(wire::FLAG_SEND_WRITE_ZEROES),
        }
    }

    /// Returns the unit of offsets and lengths.
    pub(super) fn granule(&self) -> u64 {
        u64::from(self.info().block_sizes.min)
    }

    /// Returns the maximum length of a request of this kind, in bytes.
    pub(super) fn bytes_max(&self, op: Op) -> u64 {
        let max = if op.transfers() {
            u64::from(self.info().block_sizes.max.min(wire::DEFAULT_BLOCK_BYTES_MAX))
        } else {
            EXCLUDE_BYTES_MAX
        };
        (max - max % self.granule()).max(self.granule())
    }
}

/// All exports, and their volumes.
#[derive(Clone, Debug)]
pub(super) struct Targets {
    list: Vec<Target>,
    /// Index of the export, by number of the volume.
    index_by_volume: HashMap<u32, usize>,
}

impl Targets {
    /// Returns one export for the only volume, regardless of its name.
    pub(super) fn single(uri: NbdUri) -> Self {
        let list = vec![Target { volume: None, uri, info: None }];
        Targets { list, index_by_volume: HashMap::new() }
    }

    /// Returns an export for each volume.
    pub(super) fn by_name(volumes: &[(String, NbdUri)]) -> Result<Self> {
        for (i, (name, _)) in volumes.iter().enumerate() {
            let is_duplicate = volumes[..i].iter().any(|(other, _)| other == name);
            ensure!(!is_duplicate, "replay volume {name} to two exports: name each volume once");
        }
        let target = |(name, uri): &(String, NbdUri)| Target {
            volume: Some(name.clone()),
            uri: uri.clone(),
            info: None,
        };
        Ok(Targets { list: volumes.iter().map(target).collect(), index_by_volume: HashMap::new() })
    }

    /// Opens `connections` connections to each export; returns the clients of each worker, in the
    /// order of the targets.
    pub(super) fn connect(mut self, connections: usize) -> Result<(Self, Vec<Vec<Client>>)> {
        let mut workers: Vec<Vec<Client>> = (0..connections).map(|_| Vec::new()).collect();
        for target in &mut self.list {
            for clients in &mut workers {
                let options = ConnectOptions {
                    structured: true,
                    base_allocation: false,
                    timeout: Some(ANSWER_MAX),
                };
                let client = Client::connect_with(&target.uri, options)
                    .with_context(|| format!("replay to {}", target.uri))?;
                let info = client.info();
                let shared = connections == 1 || info.has(wire::FLAG_CAN_MULTI_CONN);
                ensure!(
                    shared,
                    "replay to {} over {connections} connections: its server does not offer \
                     that they see each other's writes",
                    target.uri
                );
                ensure!(info.length > 0, "replay to {}: it is empty", target.uri);
                target.info = Some(info.clone());
                clients.push(client);
            }
        }
        Ok((self, workers))
    }

    /// Returns one export with known properties.
    #[cfg(test)]
    pub(super) fn connected(uri: NbdUri, info: ExportDetails) -> Self {
        let list = vec![Target { volume: None, uri, info: Some(info) }];
        Targets { list, index_by_volume: HashMap::new() }
    }

    pub(super) fn get(&self, index: usize) -> &Target {
        &self.list[index]
    }

    /// Returns the index of the export for a volume of `source`.
    pub(super) fn index_of(&mut self, volume: u32, source: &dyn Source) -> Result<usize> {
        if let Some(&index) = self.index_by_volume.get(&volume) {
            return Ok(index);
        }
        let name = source.name(NameOf::Volume, volume);
        let name = name.map_or_else(|| volume.to_string(), str::to_owned);
        let matches =
            |target: &Target| target.volume.as_ref().is_none_or(|volume_name| *volume_name == name);
        let Some(index) = self.list.iter().position(matches) else {
            bail!("no export is given for volume {name}: add --volume {name}=URI");
        };
        if self.list[index].volume.is_none() && !self.index_by_volume.is_empty() {
            bail!(
                "the trace has more than one volume, and {name} is another one: give --volume \
                 NAME=URI for each instead of --to, or keep one with larder trace filter"
            );
        }
        self.index_by_volume.insert(volume, index);
        Ok(index)
    }

    /// Returns the names of volumes that have an export and are not in the trace.
    pub(super) fn unused(&self) -> Vec<String> {
        let is_unused =
            |(index, _): &(usize, &Target)| !self.index_by_volume.values().any(|i| i == index);
        let unused = self.list.iter().enumerate().filter(is_unused);
        unused.filter_map(|(_, target)| target.volume.clone()).collect()
    }
}
