//! `larder sim --level inputs`: replays what a server's cache was given, and compares the counters.

use super::{Arguments, print};
use anyhow::{Context, Result, bail};
use larder_lab::inputs::Counters;
use larder_lab::inputs::replay::{Replayed, replay};
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
        different += count_different(&replayed);
        print(&table(&replayed), arguments.format)?;
        let inputs = format::count(replayed.inputs);
        eprintln!("larder: replayed {inputs} inputs of {}", path.display());
    }
    if different > 0 {
        bail!("{different} counters of the replay differ from those of the server");
    }
    Ok(())
}

fn count_different(replayed: &Replayed) -> usize {
    let differ = |(recorded, again): &(Counters, Counters)| {
        again.iter().filter(|(name, value)| recorded.get(*name) != Some(value)).count()
    };
    replayed.volumes.values().map(differ).sum()
}

/// The counters that are not 0, as the server had them and as the replay has them.
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
    for (volume, (recorded, again)) in &replayed.volumes {
        for (name, &value) in again {
            let before = recorded.get(name).copied();
            if value > 0 || before != Some(0) {
                let before = before.map_or_else(Cell::missing, Cell::count);
                table.push([
                    Cell::word(volume.as_str()),
                    Cell::word(name.as_str()),
                    before,
                    Cell::count(value),
                ]);
            }
        }
    }
    table
}
