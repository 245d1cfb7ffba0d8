//! `larder sim --level inputs`: replays the inputs of a server's cache, and compares the counters.

use super::{Arguments, print};
use anyhow::{Context, Result, bail};
use larder_lab::inputs::replay::{ComparedCounter, Replayed, replay};
use larder_report::format;
use larder_report::table::{Cell, Column, Table};
use std::fs::File;
use std::io::BufReader;

pub(super) fn run(arguments: &Arguments) -> Result<()> {
    let mut different = 0;
    for path in &arguments.traces {
        let what = || format!("replay {}", path.display());
        let file = File::open(path).with_context(what)?;
        let replayed = replay(BufReader::with_capacity(1 << 20, file)).with_context(what)?;
        different += replayed.count_differences();
        print(&table(&replayed), arguments.format)?;
        let inputs = format::count(replayed.inputs);
        eprintln!("larder: replayed {inputs} inputs of {}", path.display());
    }
    if different > 0 {
        bail!("{different} counters of the replay differ from those of the server");
    }
    Ok(())
}

/// Returns the counters of the server and of the replay, except for those that are 0 in both.
fn table(replayed: &Replayed) -> Table {
    let mut table = Table::new(
        "inputs",
        [
            Column::words("volume", "volume"),
            Column::words("counter", "counter"),
            Column::numbers("recorded", "recorded"),
            Column::numbers("replayed", "replayed"),
        ],
    );
    let value = |count: Option<u64>| count.map_or_else(Cell::missing, Cell::count);
    for ComparedCounter { volume, name, recorded, replayed } in replayed.counters() {
        if (recorded, replayed) != (Some(0), Some(0)) {
            table.push([Cell::word(volume), Cell::word(name), value(recorded), value(replayed)]);
        }
    }
    table
}
