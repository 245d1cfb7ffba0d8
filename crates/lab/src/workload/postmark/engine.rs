//! The operations of a run, one after the other, drawn as the original draws them.
//!
//! Invariants: a configuration and a seed give the same operations everywhere; also after an
//! operation that failed they are those that the original goes on with. Sizes are bytes.

use super::config::{BIAS_MAX, Config, SIZE_MAX};
use super::counts::Counts;
use super::files::{File, Files};
use super::generator::Generator;
use super::table::{NO_DIRECTORY, Slot, Table};
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Characters of the data: those that can be printed.
const FIRST_CHARACTER: u8 = b' ';
const CHARACTERS: u32 = 95;

/// Why a run cannot begin. The message can follow "failed to".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooLarge {
    /// The data of the largest file.
    #[error("hold {bytes} bytes of data in memory; files may have up to {SIZE_MAX}")]
    Data {
        /// The largest size of a file.
        bytes: u32,
    },
    /// The table of files.
    #[error("hold a table of twice {number} files in memory")]
    Table {
        /// Files at the beginning.
        number: u32,
    },
}

/// Draws operations and has them carried out.
#[derive(Clone, Debug)]
pub struct Engine {
    config: Config,
    random: Generator,
    table: Table,
    counts: Counts,
    /// What files begin with.
    data: Vec<u8>,
    /// What stands before the names of files, for each location.
    prefixes: Vec<Vec<u8>>,
    /// The weights of the locations, added up.
    weights: Vec<u64>,
    /// Where the name of a file is put together.
    name: Vec<u8>,
}

impl Engine {
    /// A run that has done nothing but draw its data. The files are put into the locations of the
    /// configuration, or into `places` instead, one for each.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn new(config: &Config, places: Option<&[PathBuf]>) -> Result<Self, TooLarge> {
        let mut random = Generator::from_seed(config.seed);
        let data = draw_data(&mut random, config.size_high)?;
        let number = config.number;
        let table = Table::new(number).ok_or(TooLarge::Table { number })?;
        let prefix = |path: &OsStr| [path.as_bytes(), b"/"].concat();
        let mut prefixes: Vec<_> = match places {
            Some(places) => places.iter().map(|place| prefix(place.as_os_str())).collect(),
            None => config.locations.iter().map(|location| prefix(&location.path)).collect(),
        };
        if prefixes.is_empty() {
            prefixes.push(Vec::new());
        }
        let mut sum = 0;
        let weights = config.locations.iter().map(|location| {
            sum += u64::from(location.weight);
            sum
        });
        Ok(Engine {
            weights: weights.collect(),
            config: config.clone(),
            random,
            table,
            counts: Counts::default(),
            data,
            prefixes,
            name: Vec::new(),
        })
    }

    /// What was done so far.
    #[must_use]
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// What it was made for.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What files begin with, as long as the largest of them.
    pub fn data_mut(&mut self) -> &mut [u8] {
        &mut self.data
    }

    /// Random numbers that were drawn so far.
    #[must_use]
    pub fn draws(&self) -> u64 {
        self.random.draws()
    }

    /// Whether there is no file left, so that no transaction can be done.
    #[must_use]
    pub fn is_out_of_files(&self) -> bool {
        self.counts.created == self.counts.deleted
    }

    /// Makes one file, unless the table is full.
    ///
    /// # Errors
    /// `files` said that the run has to stop.
    pub fn create<F: Files>(&mut self, files: &mut F) -> Result<(), F::Stop> {
        let Some(place) = self.table.free() else { return Ok(()) };
        let location = self.draw_location();
        let directories = self.config.directories();
        let directory = if directories > 0 { self.random.below(directories) } else { NO_DIRECTORY };
        self.counts.created += 1;
        let number = u32::try_from(self.counts.created).unwrap_or(u32::MAX);
        let (low, high) = (self.config.size_low, self.config.size_high);
        let bytes = low + self.random.below(high - low);
        // It is in the table from now on, since a file that was half written has to go, too.
        self.table.put(place, Slot { bytes, number, location, directory });
        let data = &mut self.data[..bytes as usize];
        let slot = Slot { bytes: 0, number, location, directory };
        if files.create(file(&mut self.name, &self.prefixes, slot), data)? {
            self.counts.bytes_written.add(bytes);
        }
        Ok(())
    }

    /// Does one transaction: reads or appends, and creates or deletes. There must be a file.
    ///
    /// # Errors
    /// `files` said that the run has to stop.
    pub fn transaction<F: Files>(&mut self, files: &mut F) -> Result<(), F::Stop> {
        if let Some(bias) = self.config.bias_read {
            if self.random.below(BIAS_MAX) < bias {
                self.read(files)?;
            } else {
                self.append(files)?;
            }
        }
        if let Some(bias) = self.config.bias_create {
            if self.random.below(BIAS_MAX) < bias {
                self.create(files)?;
            } else {
                let place = self.table.pick(&mut self.random);
                self.delete(place, files)?;
            }
        }
        self.counts.transactions += 1;
        Ok(())
    }

    /// How many places the table has, for [`Engine::delete_at`].
    #[must_use]
    pub fn places(&self) -> usize {
        self.table.len()
    }

    /// Files that are there now.
    #[must_use]
    pub fn files(&self) -> usize {
        self.table.used()
    }

    /// Deletes what is left in a place of the table, if anything is.
    ///
    /// # Errors
    /// `files` said that the run has to stop.
    pub fn delete_at<F: Files>(&mut self, place: usize, files: &mut F) -> Result<(), F::Stop> {
        if self.table.get(place).bytes > 0 && self.delete(place, files)? {
            self.counts.deleted_at_end += 1;
        }
        Ok(())
    }

    fn draw_location(&mut self) -> u32 {
        // With one location nothing is drawn.
        let [.., sum] = self.weights[..] else { return 0 };
        if self.weights.len() < 2 {
            return 0;
        }
        let drawn = self.random.below(u32::try_from(sum).unwrap_or(u32::MAX));
        let place = self.weights.partition_point(|&sum| sum <= u64::from(drawn));
        u32::try_from(place).expect("fewer locations than weights")
    }

    fn read<F: Files>(&mut self, files: &mut F) -> Result<(), F::Stop> {
        let slot = self.table.get(self.table.pick(&mut self.random));
        if files.read(file(&mut self.name, &self.prefixes, slot))? {
            self.counts.read += 1;
            self.counts.bytes_read.add(slot.bytes);
        }
        Ok(())
    }

    /// Appends, unless the file is as long as files may be.
    fn append<F: Files>(&mut self, files: &mut F) -> Result<(), F::Stop> {
        let place = self.table.pick(&mut self.random);
        let slot = self.table.get(place);
        if slot.bytes >= self.config.size_high {
            return Ok(());
        }
        let more = self.random.below(self.config.size_high - slot.bytes) + 1;
        let data = &mut self.data[..more as usize];
        if files.append(file(&mut self.name, &self.prefixes, slot), data)? {
            self.table.grow(place, more);
            self.counts.appended += 1;
            self.counts.bytes_written.add(more);
        } else {
            // The original draws how much only after it has opened the file.
            self.random.put_back();
        }
        Ok(())
    }

    fn delete<F: Files>(&mut self, place: usize, files: &mut F) -> Result<bool, F::Stop> {
        let slot = self.table.get(place);
        let done = files.delete(file(&mut self.name, &self.prefixes, slot))?;
        if done {
            self.table.clear(place);
            self.counts.deleted += 1;
        }
        Ok(done)
    }
}

/// The data that files begin with. Twice as much is drawn as a file can hold.
fn draw_data(random: &mut Generator, bytes: u32) -> Result<Vec<u8>, TooLarge> {
    let too_large = TooLarge::Data { bytes };
    if bytes > SIZE_MAX {
        return Err(too_large);
    }
    let len = bytes as usize;
    let mut data = Vec::new();
    data.try_reserve_exact(len).map_err(|_out_of_memory| too_large)?;
    let mut character = || {
        let offset = u8::try_from(random.below(CHARACTERS)).expect("below 95");
        FIRST_CHARACTER + offset
    };
    data.extend((0..len).map(|_| character()));
    for _ in 0..len {
        character();
    }
    Ok(data)
}

/// A file by its slot; its name is put together in `name`.
fn file<'a>(name: &'a mut Vec<u8>, prefixes: &[Vec<u8>], slot: Slot) -> File<'a> {
    let location = slot.location as usize;
    name.clear();
    name.extend_from_slice(&prefixes[location]);
    let written = if slot.directory == NO_DIRECTORY {
        write!(name, "{}", slot.number)
    } else {
        write!(name, "s{}/{}", slot.directory, slot.number)
    };
    written.expect("memory takes every byte");
    File { path: Path::new(OsStr::from_bytes(name)), location, bytes: slot.bytes }
}

#[cfg(test)]
mod tests;
