//! Which export stands for which volume of a trace.

use anyhow::{Context, Result, bail, ensure};
use larder_io::front::nbd::wire;
use larder_io::nbd_client::{Client, ConnectOptions, ExportDetails, NbdUri};
use larder_lab::trace::{NameOf, Op, Source};
use std::collections::HashMap;
use std::time::Duration;

/// How long a server may say nothing while something is due.
const ANSWER_MAX: Duration = Duration::from_mins(1);
/// The longest discard or zeroing in one request; no server has to take longer ones.
const EXCLUDE_BYTES_MAX: u64 = 1 << 30;

/// `NAME=URI`. A name may hold a "=" itself.
pub(super) fn volume(text: &str) -> Result<(String, NbdUri), String> {
    let at = ["=nbd://", "=nbd+unix://"].iter().filter_map(|scheme| text.find(scheme)).min();
    let at = at.ok_or("write it as NAME=nbd+unix://... or NAME=nbd://...")?;
    let uri: NbdUri = text[at + 1..].parse().map_err(|error| format!("{error}"))?;
    Ok((text[..at].to_owned(), uri))
}

/// An export.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// The volume that it stands for; none if for the only one.
    volume: Option<String>,
    uri: NbdUri,
    /// What is known of it, once there is a connection.
    info: Option<ExportDetails>,
}

impl Target {
    fn info(&self) -> &ExportDetails {
        self.info.as_ref().expect("it is connected")
    }

    /// Bytes of the export.
    pub(super) fn length(&self) -> u64 {
        self.info().length
    }

    /// Its address, for messages.
    pub(super) fn uri(&self) -> &NbdUri {
        &self.uri
    }

    pub(super) fn is_read_only(&self) -> bool {
        self.info().has(wire::FLAG_READ_ONLY)
    }

    /// Whether its server knows such requests.
    pub(super) fn offers(&self, op: Op) -> bool {
        match op {
            Op::Read | Op::Write => true,
            Op::Flush => self.info().has(wire::FLAG_SEND_FLUSH),
            Op::Discard => self.info().has(wire::FLAG_SEND_TRIM),
            Op::Zero => self.info().has(wire::FLAG_SEND_WRITE_ZEROES),
        }
    }

    /// What offsets and lengths must be multiples of.
    pub(super) fn granule(&self) -> u64 {
        u64::from(self.info().block_sizes.min)
    }

    /// The longest request of this kind, in bytes.
    pub(super) fn bytes_max(&self, op: Op) -> u64 {
        let max = if op.transfers() {
            u64::from(self.info().block_sizes.max.min(wire::DEFAULT_BLOCK_BYTES_MAX))
        } else {
            EXCLUDE_BYTES_MAX
        };
        (max - max % self.granule()).max(self.granule())
    }
}

/// All exports, and which volume has which.
#[derive(Clone, Debug)]
pub(super) struct Targets {
    list: Vec<Target>,
    /// By number of the volume, what was found for it.
    found: HashMap<u32, usize>,
}

impl Targets {
    /// One export for the only volume, whatever it is called.
    pub(super) fn one(uri: NbdUri) -> Self {
        let list = vec![Target { volume: None, uri, info: None }];
        Targets { list, found: HashMap::new() }
    }

    /// An export for each volume.
    pub(super) fn by_name(volumes: &[(String, NbdUri)]) -> Result<Self> {
        for (i, (name, _)) in volumes.iter().enumerate() {
            let again = volumes[..i].iter().any(|(other, _)| other == name);
            ensure!(!again, "replay volume {name} to two exports: name each volume once");
        }
        let target = |(name, uri): &(String, NbdUri)| Target {
            volume: Some(name.clone()),
            uri: uri.clone(),
            info: None,
        };
        Ok(Targets { list: volumes.iter().map(target).collect(), found: HashMap::new() })
    }

    /// Connects so many times to each export; the clients of each worker, in the order of the
    /// targets.
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

    /// One export of which everything is known.
    #[cfg(test)]
    pub(super) fn known(uri: NbdUri, info: ExportDetails) -> Self {
        let list = vec![Target { volume: None, uri, info: Some(info) }];
        Targets { list, found: HashMap::new() }
    }

    pub(super) fn get(&self, index: usize) -> &Target {
        &self.list[index]
    }

    /// The export of a volume of `source`.
    pub(super) fn of(&mut self, volume: u32, source: &dyn Source) -> Result<usize> {
        if let Some(&index) = self.found.get(&volume) {
            return Ok(index);
        }
        let name = source.name(NameOf::Volume, volume);
        let name = name.map_or_else(|| volume.to_string(), str::to_owned);
        let is_it = |target: &Target| target.volume.as_ref().is_none_or(|own| *own == name);
        let Some(index) = self.list.iter().position(is_it) else {
            bail!("no export is given for volume {name}: add --volume {name}=URI");
        };
        if self.list[index].volume.is_none() && !self.found.is_empty() {
            bail!(
                "the trace has more than one volume, and {name} is another one: give --volume \
                 NAME=URI for each instead of --to, or keep one with larder trace filter"
            );
        }
        self.found.insert(volume, index);
        Ok(index)
    }

    /// Names of volumes that were given an export and are not in the trace.
    pub(super) fn unused(&self) -> Vec<String> {
        let is_unused = |(index, _): &(usize, &Target)| !self.found.values().any(|i| i == index);
        let named = self.list.iter().enumerate().filter(is_unused);
        named.filter_map(|(_, target)| target.volume.clone()).collect()
    }
}
