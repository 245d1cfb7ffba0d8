//! The load of a file server: transactions of clients that read, write and copy whole items, with
//! think time between them.
//!
//! Modeled after the file tests of Dynameasure (1996 to 1998): the number of clients increases in
//! steps; each client thinks, then reads an item from the server, writes one, or copies one (reads
//! it and writes it again). No I/O here. Invariants: every item belongs to the client; a copy has
//! two different items unless there is only one; the same seed gives the same transactions. Times
//! are nanoseconds.

use crate::random::{Random, Spread};
use larder_core::clock::Nanos;

/// The operation of a transaction on an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads the whole item.
    Read,
    /// Overwrites the whole item.
    Write,
    /// Reads the item and writes its content to another one.
    Copy,
}

/// Relative frequency of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    /// Weight of reads.
    pub read: u32,
    /// Weight of writes.
    pub write: u32,
    /// Weight of copies.
    pub copy: u32,
}

/// A mix that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("read the mix {text:?}: {why}; write something like read=70,write=20,copy=10")]
pub struct MixError {
    text: String,
    why: &'static str,
}

impl Mix {
    /// Parses a mix such as `read=70,write=20,copy=10`; kinds that are not named have the weight 0.
    ///
    /// # Errors
    /// A part is not the weight of a kind, a kind occurs twice, or all weights are 0.
    pub fn parse(text: &str) -> Result<Mix, MixError> {
        let mix_error = |why| MixError { text: text.to_owned(), why };
        let mut mix = Mix { read: 0, write: 0, copy: 0 };
        let mut seen: Vec<&str> = Vec::new();
        for part in text.split(',') {
            let (kind, weight) = part.split_once('=').ok_or(mix_error("a part has no \"=\""))?;
            let weight_slot = match kind {
                "read" => &mut mix.read,
                "write" => &mut mix.write,
                "copy" => &mut mix.copy,
                _ => return Err(mix_error("there are read, write and copy")),
            };
            if seen.contains(&kind) {
                return Err(mix_error("a kind comes twice"));
            }
            seen.push(kind);
            let weight = weight.parse().ok().filter(|weight| *weight <= 1_000_000);
            *weight_slot = weight.ok_or(mix_error("a weight is a whole number up to 1000000"))?;
        }
        if mix.sum() == 0 { Err(mix_error("nothing has a weight")) } else { Ok(mix) }
    }

    /// Returns the mix in the form that [`Mix::parse`] parses.
    #[must_use]
    pub fn in_words(&self) -> String {
        let all = [("read", self.read), ("write", self.write), ("copy", self.copy)];
        let weighted = all.iter().filter(|(_, weight)| *weight > 0);
        weighted.map(|(kind, weight)| format!("{kind}={weight}")).collect::<Vec<_>>().join(",")
    }

    /// Returns true if any transaction writes.
    #[must_use]
    pub fn writes(&self) -> bool {
        self.write > 0 || self.copy > 0
    }

    fn sum(&self) -> u64 {
        u64::from(self.read) + u64::from(self.write) + u64::from(self.copy)
    }

    fn draw(&self, random: &mut Random) -> Kind {
        let drawn = random.below(self.sum());
        if drawn < u64::from(self.read) {
            Kind::Read
        } else if drawn < u64::from(self.read) + u64::from(self.write) {
            Kind::Write
        } else {
            Kind::Copy
        }
    }
}

/// The load of a client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ServerLoad {
    /// Relative frequency of each kind of transaction.
    pub mix: Mix,
    /// Nanoseconds of think time before each; a negative draw becomes its absolute value.
    pub think: Spread,
    /// Items of each client; at least 1.
    pub items: u64,
}

/// One transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transaction {
    /// Nanoseconds of think time before it.
    pub think: Nanos,
    /// The operation.
    pub kind: Kind,
    /// The item, from 0.
    pub item: u64,
    /// The item to which a copy is written; unused for other kinds.
    pub to: u64,
}

impl ServerLoad {
    /// Returns the endless sequence of transactions for `seed`.
    pub fn transactions(self, seed: u64) -> impl Iterator<Item = Transaction> + Send {
        assert!(self.items > 0, "there is something to work on");
        let mut random = Random::from_seed(seed);
        std::iter::repeat_with(move || {
            let think = random.normal_within(self.think, u64::MAX);
            let kind = self.mix.draw(&mut random);
            let item = random.below(self.items);
            // Another item, all with the same probability.
            let to = (item + 1 + random.below((self.items - 1).max(1))) % self.items;
            Transaction { think, kind, item, to }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: ServerLoad = ServerLoad {
        mix: Mix { read: 70, write: 20, copy: 10 },
        think: Spread { mean: 5e6, sdev: 1e6 },
        items: 16,
    };

    #[test]
    fn kinds_come_as_often_as_the_mix_says_and_items_evenly() {
        let mut counts = [0_i32; 3];
        let mut items = [0_i32; 16];
        let mut think = 0.0;
        for it in LOAD.transactions(1).take(100_000) {
            counts[it.kind as usize] += 1;
            items[usize::try_from(it.item).unwrap()] += 1;
            assert!(it.to < 16 && it.to != it.item);
            #[expect(clippy::cast_precision_loss, reason = "a few milliseconds")]
            let one = it.think as f64;
            think += one / 100_000.0;
        }
        for (count, expected) in counts.into_iter().zip([70_000, 20_000, 10_000]) {
            assert!((count - expected).abs() < 700, "{counts:?}");
        }
        assert!(items.iter().all(|count| (count - 6250).abs() < 400), "{items:?}");
        assert!((think - 5e6).abs() < 2e4, "{think}");
    }

    #[test]
    fn the_same_seed_does_the_same_and_one_item_is_copied_to_itself() {
        let first_transactions = |seed| LOAD.transactions(seed).take(50).collect::<Vec<_>>();
        assert_eq!(first_transactions(3), first_transactions(3));
        assert_ne!(first_transactions(3), first_transactions(4));
        let one = ServerLoad { items: 1, ..LOAD };
        assert!(one.transactions(1).take(50).all(|it| (it.item, it.to) == (0, 0)));
    }

    #[test]
    fn a_mix_is_read_and_written_and_what_is_none_is_refused() {
        let mix = Mix::parse("copy=1,read=7").unwrap();
        assert_eq!(mix, Mix { read: 7, write: 0, copy: 1 });
        assert_eq!(mix.in_words(), "read=7,copy=1");
        assert!(mix.writes() && !Mix::parse("read=1").unwrap().writes());
        for wrong in ["", "read", "read=1,read=2", "move=1", "read=-1", "read=0", "read=1e9"] {
            let error = Mix::parse(wrong).unwrap_err().to_string();
            assert!(error.starts_with("read the mix"), "{error}");
        }
    }
}
