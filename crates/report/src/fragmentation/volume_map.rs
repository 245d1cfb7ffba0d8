//! The map of a volume: a square for each part of the device, with the color of its main use.

use crate::page;
use larder_schema::format;
use larder_schema::fragmentation::{Fragmentation, MapCell};

/// Parts in a row on a wide page, and on a narrow screen.
const COLUMNS: [(f64, usize); 2] = [(500.0, 64), (0.0, 32)];
/// Parts of the scan in a square: 1,024 squares.
const CELLS_PER_SQUARE: usize = 2;
/// Share of the requests of all squares together that are hot: the fewest squares that have it.
const HOT_SHARE: f64 = 0.5;

/// The main use of a part, with its CSS class and its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Free,
    Contiguous,
    Fragmented,
    Other,
}

impl Use {
    const ALL: [Use; 4] = [Use::Fragmented, Use::Contiguous, Use::Free, Use::Other];

    fn of(cell: &MapCell, cell_bytes: u64) -> Use {
        let MapCell { contiguous, fragmented, free, .. } = *cell;
        let other = cell_bytes.saturating_sub(contiguous + fragmented + free);
        // A part with fragments is shown as one as soon as they are a quarter of its files.
        if fragmented > 0
            && fragmented * 4 >= contiguous + fragmented
            && fragmented * 8 >= cell_bytes
        {
            return Use::Fragmented;
        }
        let uses =
            [(free, Use::Free), (contiguous + fragmented, Use::Contiguous), (other, Use::Other)];
        uses.into_iter().max_by_key(|(bytes, _)| *bytes).map_or(Use::Other, |it| it.1)
    }

    fn class(self) -> &'static str {
        match self {
            Use::Free => "free",
            Use::Contiguous => "soft",
            Use::Fragmented => "over",
            Use::Other => "without",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Use::Free => "free",
            Use::Contiguous => "files in one fragment",
            Use::Fragmented => "files in several fragments",
            Use::Other => "not scanned, or metadata",
        }
    }
}

/// Draws the map; `None` without extents.
pub(super) fn volume_map(found: &Fragmentation) -> Option<String> {
    let cells: Vec<MapCell> = found.map.chunks(CELLS_PER_SQUARE).map(joined).collect();
    if cells.is_empty() {
        return None;
    }
    let cell_bytes = found.map_cell_bytes * CELLS_PER_SQUARE as u64;
    let is_hot = hot(&cells);
    let label = format!(
        "Map of the device in {} squares of {} each: its main use, and the busiest squares",
        cells.len(),
        format::bytes(cell_bytes)
    );
    let draw = |width: f64| {
        let columns = COLUMNS.iter().find(|(from, _)| width >= *from).map_or(32, |it| it.1);
        draw(&cells, (cell_bytes, &is_hot), columns, width, &label)
    };
    let caption = format!(
        "Each square is {} of the device, from its begin (top left) to its end.",
        format::bytes(cell_bytes)
    );
    let mut uses: Vec<_> = Use::ALL.iter().map(|it| (it.class(), it.name())).collect();
    if is_hot.contains(&true) {
        uses.push(("bound", "half of the requests"));
    }
    Some(page::area_key(&uses) + &page::figure(draw, &caption, None))
}

fn joined(cells: &[MapCell]) -> MapCell {
    let sum = |of: fn(&MapCell) -> u64| cells.iter().map(of).sum();
    MapCell {
        contiguous: sum(|it| it.contiguous),
        fragmented: sum(|it| it.fragmented),
        free: sum(|it| it.free),
        requests: sum(|it| it.requests),
    }
}

/// Returns true for the fewest squares that have half of the requests.
fn hot(cells: &[MapCell]) -> Vec<bool> {
    let all: u64 = cells.iter().map(|it| it.requests).sum();
    let mut order: Vec<usize> = (0..cells.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(cells[*index].requests));
    let (mut is_hot, mut seen) = (vec![false; cells.len()], 0);
    for index in order {
        let requests = cells[index].requests;
        if requests == 0 || larder_schema::share(seen, all).is_some_and(|it| it >= HOT_SHARE) {
            break;
        }
        is_hot[index] = true;
        seen += requests;
    }
    is_hot
}

fn draw(
    cells: &[MapCell],
    (cell_bytes, is_hot): (u64, &[bool]),
    columns: usize,
    width: f64,
    label: &str,
) -> String {
    let side = width / larder_schema::as_f64(columns as u64);
    let rows = cells.len().div_ceil(columns);
    let height = side * larder_schema::as_f64(rows as u64);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {width} {height:.1}\" width=\"{width}\" height=\"{height:.1}\" \
         role=\"img\" aria-label=\"{}\">",
        crate::escape::html(label)
    );
    // Neighbors with the same look are one rectangle.
    let look = |index: usize| (Use::of(&cells[index], cell_bytes), is_hot[index]);
    let mut from = 0;
    while from < cells.len() {
        let (row_end, this) = ((from / columns + 1) * columns, look(from));
        let same = (from + 1..cells.len().min(row_end)).take_while(|next| look(*next) == this);
        let count = 1 + same.count();
        let at = |index: usize| larder_schema::as_f64(index as u64) * side;
        let (x, y, w) = (at(from % columns), at(from / columns), at(count));
        let (class, inner) = (this.0.class(), side - 1.0);
        put!(
            svg,
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" \
             height=\"{inner:.1}\"/>",
            w - 1.0
        );
        if this.1 {
            put!(
                svg,
                "<rect class=\"bound\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>",
                x + 1.0,
                y + 1.0,
                w - 3.0,
                inner - 2.0
            );
        }
        from += count;
    }
    svg + "</svg>"
}
