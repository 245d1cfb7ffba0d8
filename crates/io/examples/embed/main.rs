//! A journal on a cache of its own, inside a program: `cargo run --release --example embed FILE`.
//!
//! Appends records to a journal in FILE, which is made where it is missing, and says what is in it.
//! Kill it at any time and start it again: every record that the index has is there.

#![expect(clippy::print_stdout, reason = "it prints its result")]

mod journal;

use journal::{Journal, LOG};
use larder_core::counters::Counter;
use larder_io::embed::Caches;
use std::error::Error;
use std::fs::OpenOptions;
use std::path::PathBuf;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let path: PathBuf = arguments.next().ok_or("usage: embed FILE [RECORDS]")?.into();
    let count: u64 = match arguments.next() {
        Some(text) => text.to_str().ok_or("RECORDS is a number")?.parse()?,
        None => 10_000,
    };
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
    if file.metadata()?.len() == 0 {
        file.set_len(LOG * 65)?;
    }
    drop(file);
    let caches = Caches::new(16 << 20)?;
    let volume = caches.open(&path, |_| {})?;
    let mut journal = Journal::open(&volume)?;
    println!("{} records, all of them there", journal.len());
    let started = Instant::now();
    for i in 0..count {
        let text = format!("record {i} of this run");
        journal.append(text.repeat(1 + usize::try_from(i % 20)?).as_bytes())?;
    }
    println!("appended {count} records in {:?}, without waiting for the store", started.elapsed());
    journal.flush()?;
    let counters = volume.counters();
    println!(
        "stable after {:?}: {} writes to the store, {} flushes of it, {} of them for the order",
        started.elapsed(),
        counters.get(Counter::StoreWrites),
        counters.get(Counter::StoreFlushes),
        counters.get(Counter::OrderFlushes)
    );
    drop(journal);
    caches.close()?;
    Ok(())
}
