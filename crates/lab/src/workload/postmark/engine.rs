//! The operations of a run in order, drawn as the original draws them.
//!
//! Invariants: a configuration and a seed give the same operations everywhere; after a failed
//! operation they continue as in the original. Sizes are bytes.

use super::config::{BIAS_MAX, Config, SIZE_MAX};
use super::counts::Counts;
use super::files::{File, Files};
use super::generator::Generator;
use super::table::{NO_DIRECTORY, Slot, Table};
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Characters of the data: printable ones.
const FIRST_CHARACTER: u8 = b' ';
const CHARACTERS: u32 = 95;

/// Draws operations and executes them through [`Files`].
#[derive(Clone, Debug)]
pub(crate) struct Engine {
    pub(crate) config: Config,
    random: Generator,
    table: Table,
    /// The counts so far.
    pub(crate) counts: Counts,
    /// Data with which files begin, as long as the largest of them.
    pub(crate) data: Vec<u8>,
    /// Prefix of the names of files, for each location.
    prefixes: Vec<Vec<u8>>,
    /// Cumulative weights of the locations.
    weights: Vec<u64>,
    /// Buffer for the name of a file.
    name: Vec<u8>,
}

impl Engine {
    /// Returns an engine that has only drawn its data. Files go to the locations of the
    /// configuration, or instead to `directories`, one for each.
    ///
    /// # Errors
    /// There is not enough memory; a verb phrase that can follow "cannot".
    pub(crate) fn new(config: &Config, directories: Option<&[PathBuf]>) -> Result<Self, String> {
        let mut random = Generator::from_seed(config.seed);
        let data = draw_data(&mut random, config.size_high)?;
        let number = config.number;
        let table = Table::new(number)
            .ok_or_else(|| format!("hold a table of twice {number} files in memory"))?;
        let prefix = |path: &OsStr| [path.as_bytes(), b"/"].concat();
        let mut prefixes: Vec<_> = match directories {
            Some(directories) => {
                directories.iter().map(|directory| prefix(directory.as_os_str())).collect()
            }
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

    /// Returns true if no file is left, so that no transaction can be done.
    pub(crate) fn is_out_of_files(&self) -> bool {
        self.counts.created == self.counts.deleted
    }

    /// Creates one file, unless the table is full.
    pub(crate) fn create<F: Files>(&mut self, files: &mut F) -> Result<(), F::Stop> {
        let Some(index) = self.table.free() else { return Ok(()) };
        let location = self.draw_location();
        let directories = self.config.directories();
        let directory = if directories > 0 { self.random.below(directories) } else { NO_DIRECTORY };
        self.counts.created += 1;
        let number = u32::try_from(self.counts.created).unwrap_or(u32::MAX);
        let (low, high) = (self.config.size_low, self.config.size_high);
        let bytes = low + self.random.below(high - low);
        // The file is in the table from now on, since a partly written file has to be deleted, too.
        self.table.put(index, Slot { bytes, number, location, directory });
        let data = &mut self.data[..bytes as usize];
        let slot = Slot { bytes: 0, number, location, directory };
        if files.create(file(&mut self.name, &self.prefixes, slot), data)? {
            self.counts.bytes_written.add(bytes);
        }
        Ok(())
    }

    /// Does one transaction: reads or appends, and creates or deletes. There must be a file.
    pub(crate) fn transaction<F: Files>(&mut self, files: &mut F) -> Result<(), F::Stop> {
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
                let index = self.table.pick(&mut self.random);
                self.delete(index, files)?;
            }
        }
        self.counts.transactions += 1;
        Ok(())
    }

    /// Returns the number of slots of the table, for [`Engine::delete_at`].
    pub(crate) fn places(&self) -> usize {
        self.table.len()
    }

    /// Deletes the file in a slot of the table, if there is one.
    pub(crate) fn delete_at<F: Files>(
        &mut self,
        index: usize,
        files: &mut F,
    ) -> Result<(), F::Stop> {
        if self.table.get(index).bytes > 0 && self.delete(index, files)? {
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
        let index = self.weights.partition_point(|&sum| sum <= u64::from(drawn));
        u32::try_from(index).expect("fewer locations than weights")
    }

    fn read<F: Files>(&mut self, files: &mut F) -> Result<(), F::Stop> {
        let slot = self.table.get(self.table.pick(&mut self.random));
        if files.read(file(&mut self.name, &self.prefixes, slot))? {
            self.counts.read += 1;
            self.counts.bytes_read.add(slot.bytes);
        }
        Ok(())
    }

    /// Appends to a file, unless it has the maximum length.
    fn append<F: Files>(&mut self, files: &mut F) -> Result<(), F::Stop> {
        let index = self.table.pick(&mut self.random);
        let slot = self.table.get(index);
        if slot.bytes >= self.config.size_high {
            return Ok(());
        }
        let more = self.random.below(self.config.size_high - slot.bytes) + 1;
        let data = &mut self.data[..more as usize];
        if files.append(file(&mut self.name, &self.prefixes, slot), data)? {
            self.table.grow(index, more);
            self.counts.appended += 1;
            self.counts.bytes_written.add(more);
        } else {
            // The original draws the length only after it has opened the file.
            self.random.put_back();
        }
        Ok(())
    }

    fn delete<F: Files>(&mut self, index: usize, files: &mut F) -> Result<bool, F::Stop> {
        let slot = self.table.get(index);
        let done = files.delete(file(&mut self.name, &self.prefixes, slot))?;
        if done {
            self.table.clear(index);
            self.counts.deleted += 1;
        }
        Ok(done)
    }
}

/// Draws the data with which files begin. Twice as much is drawn as a file can hold.
fn draw_data(random: &mut Generator, bytes: u32) -> Result<Vec<u8>, String> {
    let (len, mut data) = (bytes as usize, Vec::new());
    if bytes > SIZE_MAX || data.try_reserve_exact(len).is_err() {
        let limit = format!("files may have up to {SIZE_MAX}");
        return Err(format!("hold {bytes} bytes of data in memory; {limit}"));
    }
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

/// Returns the file of a slot; its name is built in `name`.
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
