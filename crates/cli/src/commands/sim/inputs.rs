//! `larder sim --level inputs`: replays the inputs of a server's cache, and compares the counters.

use super::{SimArgs, print};
use crate::progress;
use anyhow::{Context, Result, bail, ensure};
use larder_lab::inputs::replay::{ComparedCounter, ReplayResult, replay};
use larder_report::table::{Cell, Column, Table};
use larder_schema::format;
use std::fs::File;
use std::io::BufReader;

pub(super) fn run(arguments: &SimArgs) -> Result<()> {
    let selections = [
        ("--policy", arguments.policy != ["all"]),
        ("--page-size", !arguments.page_size.is_empty()),
        ("--curve", arguments.curve.is_some()),
        ("--sample", arguments.sample),
    ];
    for (option, is_given) in selections {
        ensure!(
            !is_given,
            "replay inputs with {option}: the recording determines the cache; leave out {option}"
        );
    }
    let mut different = 0;
    for path in &arguments.traces {
        let context = || format!("replay {}", path.display());
        let file = File::open(path).with_context(context)?;
        let bytes = file.metadata().map_or(0, |file| file.len());
        let bar = progress::byte_bar(bytes, "replaying");
        let file = BufReader::with_capacity(1 << 20, bar.wrap_read(file));
        let result = replay(file).with_context(context);
        bar.finish_and_clear();
        let result = result?;
        different += result.count_differences();
        print(&table(&result), arguments.format.get(), &[])?;
        let inputs = format::count(result.inputs);
        eprintln!("larder: replayed {inputs} inputs of {}", path.display());
    }
    if different > 0 {
        let differ = if different == 1 {
            "1 counter differs"
        } else {
            &format!("{different} counters differ")
        };
        bail!(
            "reproduce the counters of the server: {differ} (--format json lists them; replay with \
             the version of Larder that made the recording)"
        );
    }
    Ok(())
}

/// Returns the counters of the server and of the replay, except for those that are 0 in both.
fn table(result: &ReplayResult) -> Table {
    let mut table = Table::new(
        "",
        [
            Column::words("volume", "volume"),
            Column::words("counter", "counter"),
            Column::numbers("recorded", "recorded"),
            Column::numbers("replayed", "replayed"),
        ],
    );
    let value = |count: Option<u64>| Cell::count(count);
    for ComparedCounter { volume, name, recorded, replayed } in result.counters() {
        if (recorded, replayed) != (Some(0), Some(0)) {
            table.push([Cell::word(volume), Cell::word(name), value(recorded), value(replayed)]);
        }
    }
    table
}
