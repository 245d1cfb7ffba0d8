//! Changed settings as a table.

use crate::table::{Cell, Column, Table};
use larder_schema::control::Changed;

/// Renders the changes as a table.
#[must_use]
pub fn changes_table(changed: &Changed) -> Table {
    let columns = [
        Column::words("volume", "volume"),
        Column::words("name", "setting"),
        Column::words("from", "from"),
        Column::words("to", "to"),
        Column::words("pending", "when"),
    ];
    let mut table = Table::new("", columns);
    for change in &changed.changed {
        table.push([
            Cell::word(&change.volume),
            Cell::word(&change.name),
            Cell::word(&change.from),
            Cell::word(&change.to),
            Cell::word(if change.pending { "under way" } else { "now" }),
        ]);
    }
    table
}
