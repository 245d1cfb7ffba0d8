//! A volume that comes to a running server and goes again, again and again, and is used in between.
//!
//! What is written to it is not flushed: that all of it is in the image once the volume is gone is
//! up to the server.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};

use super::Lab;
use crate::image::{self, MIB};
use crate::nbd::Client;
use crate::random::Random;
use crate::run;
use crate::server::Server;

const NAME: &str = "guest";
const BYTES: u64 = 16 * MIB;
const BLOCK: usize = 4096;
/// Writes of a visit, each of up to sixteen blocks.
const WRITES: usize = 200;
const RUN_MAX: usize = 16;

/// The volume and what must be in it.
#[derive(Debug)]
pub(super) struct Guest {
    binary: PathBuf,
    control: PathBuf,
    socket: PathBuf,
    image: PathBuf,
    content: Vec<u8>,
    random: Random,
    is_there: bool,
}

impl Guest {
    /// A guest that is not there yet.
    pub(super) fn new(lab: &Lab, server: &Server) -> Result<Self> {
        let image = image::sparse(&lab.file("guest.img"), BYTES)?;
        Ok(Guest {
            binary: lab.binary.clone(),
            control: server.control(),
            socket: server.socket(),
            image,
            content: vec![0; usize::try_from(BYTES)?],
            random: Random::seeded(lab.options.seed),
            is_there: false,
        })
    }

    /// Comes and is used; or goes, and has left everything in its image.
    pub(super) fn come_or_go(&mut self) -> Result<()> {
        if self.is_there {
            self.ctl(&["remove".as_ref(), NAME.as_ref()])?;
            self.is_there = false;
            let left = std::fs::read(&self.image).context("read the image of the guest")?;
            ensure!(left == self.content, "the guest went, and its image is not what was written");
            return Ok(());
        }
        let mut volume = std::ffi::OsString::from(format!("{NAME}="));
        volume.push(&self.image);
        self.ctl(&["add".as_ref(), &volume])?;
        self.is_there = true;
        self.visit().context("use the guest")
    }

    fn visit(&mut self) -> Result<()> {
        let mut client = Client::connect(&self.socket, NAME)?;
        let mut read = Vec::new();
        for _ in 0..WRITES {
            let blocks = 1 + self.random.below(RUN_MAX);
            let start = self.random.below(self.content.len() / BLOCK - blocks) * BLOCK;
            let range = start..start + blocks * BLOCK;
            self.random.fill(&mut self.content[range.clone()]);
            let at = u64::try_from(start)?;
            ensure!(client.write(at, &self.content[range])?.is_ok(), "a write was refused");
            // Somewhere else: what earlier visits left.
            let start = self.random.below(self.content.len() / BLOCK) * BLOCK;
            read.resize(BLOCK, 0);
            let at = u64::try_from(start)?;
            ensure!(client.read(at, &mut read)?.is_ok(), "a read was refused");
            ensure!(read == self.content[start..start + BLOCK], "a read at {at} gave other bytes");
        }
        Ok(())
    }

    fn ctl(&self, words: &[&std::ffi::OsStr]) -> Result<()> {
        let mut ctl = run::client(60, &self.binary.to_string_lossy());
        ctl.arg("ctl").args(&words[..1]).arg("--control").arg(&self.control).args(&words[1..]);
        run::text(&mut ctl)
            .with_context(|| format!("larder ctl {}", words[0].to_string_lossy()))?;
        Ok(())
    }
}
