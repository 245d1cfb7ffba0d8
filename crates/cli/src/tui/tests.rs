//! Tests of the drawn view at its minimum and other sizes, and of the keys.

use super::snapshot::{Grid, Value};
use super::terminal::Key;
use super::*;
use crate::colors::Meaning;
use larder_host::scratch::{KINDS, Scratch, ScratchOptions};
use larder_host::stack::{Roots, Stack};
use larder_testing::skip;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;

/// Returns a synthetic snapshot with forty files.
fn snapshot() -> TopSnapshot {
    let rows = (0..40_u32)
        .map(|number| {
            vec![
                Value::Word(format!("/srv/a-long-directory-name/with/more/below/file-{number:02}")),
                Value::Bytes(u64::from(number) * 4096),
                Value::Share(f64::from(number) / 40.0),
                Value::Missing,
                Value::Word("postgres (12345)".to_owned()),
                Value::Bytes(1 << 30),
            ]
        })
        .collect();
    let mut snapshot = TopSnapshot { memory: "memory 2 GiB".to_owned(), ..TopSnapshot::default() };
    snapshot.grids[0] = Grid {
        columns: vec!["open file", "resident", "of it", "dirty", "opened by", "size"],
        sort: 1,
        rows,
        note: Some(
            "What is not seen is said here, in a sentence that may be longer than the \
                    screen is wide."
                .to_owned(),
        ),
        column_note: None,
    };
    snapshot
}

fn screen(snapshot: &TopSnapshot, state: &State, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, snapshot, state)).unwrap();
    let buffer = terminal.backend().buffer();
    let cells: Vec<&str> = buffer.content().iter().map(ratatui::buffer::Cell::symbol).collect();
    cells.chunks(usize::from(width)).map(|line| line.concat().trim_end().to_owned()).collect()
}

fn press(state: &mut State, snapshot: &TopSnapshot, keys: &[Key]) -> ViewAction {
    let grid = snapshot.grids[state.view.index()].clone();
    keys.iter().map(|key| state.key(*key, &grid)).last().expect("a key")
}

#[test]
fn eighty_columns_and_twenty_four_lines_are_enough() {
    let (snapshot, state) = (snapshot(), State::new(View::Files));
    let lines = screen(&snapshot, &state, 80, 24);
    assert_eq!(lines.len(), 24);
    assert!(lines[0].starts_with("memory 2 GiB"));
    assert!(lines[1].contains("1 files (40)"), "{}", lines[1]);
    assert!(lines[2].contains("resident v") && lines[2].contains("opened by"), "{}", lines[2]);
    // The largest first; the end of the name is kept, and the last column did not fit.
    assert!(lines[3].contains("file-39") && lines[3].contains("156 KiB"), "{}", lines[3]);
    assert!(lines[3].contains("97.5 %"), "{}", lines[3]);
    assert!(lines.iter().all(|line| line.chars().count() <= 80));
    assert!(lines[21].contains("not seen") && lines[23].contains("q quit"), "{lines:#?}");
}

#[test]
fn no_name_and_no_filter_controls_the_terminal() {
    let hostile = "a\u{1b}[2J\u{7}\r\n\u{7f}\u{9b}31m\u{202e}\u{2066}\u{200f}z";
    let (mut snapshot, mut state) = (snapshot(), State::new(View::Files));
    hostile.clone_into(&mut snapshot.memory);
    for row in &mut snapshot.grids[0].rows {
        row[0] = Value::Word(hostile.to_owned());
        row[4] = Value::Word(hostile.to_owned());
    }
    snapshot.grids[0].note = Some(hostile.to_owned());
    state.message = Some(hostile.to_owned());
    let check = |state: &State| {
        for line in screen(&snapshot, state, 200, 24) {
            assert!(!line.contains(larder_report::escape::is_unsafe), "{line:?}");
        }
    };
    check(&state);
    assert!(screen(&snapshot, &state, 200, 24)[3].starts_with("$'a\\033[2J"));
    press(&mut state, &snapshot, &[Key::Char('/')]);
    let typed: Vec<Key> = hostile.chars().map(Key::Char).collect();
    press(&mut state, &snapshot, &typed);
    check(&state);
    press(&mut state, &snapshot, &[Key::Enter]);
    check(&state);
}

#[test]
fn more_room_shows_more() {
    let (snapshot, state) = (snapshot(), State::new(View::Files));
    let lines = screen(&snapshot, &state, 200, 50);
    assert!(lines[2].ends_with("size"), "{}", lines[2]);
    assert!(
        lines[3].contains("/srv/a-long-directory-name/with/more/below/file-39"),
        "{}",
        lines[3]
    );
    assert!(lines[42].contains("file-00"), "{}", lines[42]);
}

#[test]
fn values_have_the_color_of_their_meaning_if_wanted() {
    let (snapshot, mut state) = (snapshot(), State::new(View::Files));
    let colors = |state: &State, width, height| {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, &snapshot, state)).unwrap();
        let cells = terminal.backend().buffer().content().to_vec();
        let shown = cells.into_iter().filter(|cell| cell.symbol() != " ");
        shown.map(|cell| cell.fg).collect::<std::collections::HashSet<_>>()
    };
    assert_eq!(colors(&state, 80, 24), [Color::Reset].into(), "plain");
    state.colors = true;
    let hit = Color::Indexed(Meaning::Hit.color());
    for (width, height) in [(80, 24), (200, 60)] {
        assert!(colors(&state, width, height).contains(&hit), "the share of a file in memory");
    }
    press(&mut state, &snapshot, &[Key::Char('?')]);
    assert_eq!(colors(&state, 80, 24).len(), 6, "the legend");
}

#[test]
fn a_key_shows_the_help_and_the_next_one_hides_it() {
    let (snapshot, mut state) = (snapshot(), State::new(View::Files));
    press(&mut state, &snapshot, &[Key::Char('?')]);
    for (width, height) in [(80, 24), (200, 60), (20, 5), (1, 1)] {
        let text = screen(&snapshot, &state, width, height).join("\n");
        assert!(width < 80 || text.contains("start or stop a recording"), "{text}");
    }
    assert_eq!(press(&mut state, &snapshot, &[Key::Char('q')]), ViewAction::Draw);
    assert!(!screen(&snapshot, &state, 80, 24).join("\n").contains("recording"));
}

#[test]
fn a_trend_is_a_line_on_the_screen_and_not_recorded() {
    let (mut snapshot, state) = (snapshot(), State::new(View::Files));
    snapshot.grids[0].columns[2] = "trend";
    snapshot.grids[0].rows[39][2] = Value::Trend(vec![0.0, 0.5, 1.0]);
    let lines = screen(&snapshot, &state, 80, 24);
    assert!(lines[3].contains("\u{2581}\u{2585}\u{2588}"), "{}", lines[3]);
    assert_eq!(snapshot.to_json()["files"][39].get("trend"), None);
}

#[test]
fn any_size_of_screen_is_drawn() {
    let snapshot = snapshot();
    for (width, height) in [(1, 1), (5, 3), (20, 5), (79, 4), (300, 2)] {
        let lines = screen(&snapshot, &State::new(View::Files), width, height);
        assert_eq!(lines.len(), usize::from(height));
        assert!(
            !screen(&TopSnapshot::default(), &State::new(View::Disks), width, height).is_empty()
        );
    }
}

#[test]
fn keys_sort_filter_scroll_and_freeze() {
    use Key::{Backspace, Char, Down, Enter, Esc, Tab};
    let (snapshot, mut state) = (snapshot(), State::new(View::Files));
    let grid = &snapshot.grids[0];
    let first = |state: &State| state.rows(grid)[0][0].to_text();
    assert!(first(&state).ends_with("39"));
    press(&mut state, &snapshot, &[Char('r')]);
    assert!(first(&state).ends_with("00"), "backwards");
    press(&mut state, &snapshot, &[Char('S'), Char('r')]);
    assert_eq!(state.sort(grid), (0, false));
    assert!(first(&state).ends_with("00"), "by name");
    press(&mut state, &snapshot, &[Char('/'), Char('-'), Char('1'), Char('q'), Backspace, Enter]);
    assert_eq!((state.filter(), state.rows(grid).len()), ("-1", 10));
    press(&mut state, &snapshot, &[Down, Down]);
    assert_eq!(state.first(), 2);
    assert_eq!(press(&mut state, &snapshot, &[Esc]), ViewAction::Draw);
    assert_eq!(state.rows(grid).len(), 40);
    press(&mut state, &snapshot, &[Char(' ')]);
    assert!(state.frozen);
    press(&mut state, &snapshot, &[Tab]);
    assert_eq!((state.view, state.filter()), (View::Processes, ""));
    press(&mut state, &snapshot, &[Char('4')]);
    assert_eq!(state.view, View::Caches);
    assert_eq!(press(&mut state, &snapshot, &[Char('w')]), ViewAction::Record);
    assert_eq!(press(&mut state, &snapshot, &[Char('q')]), ViewAction::Quit);
}

#[test]
fn the_state_is_whole_whatever_else_there_is() {
    let (snapshot, mut state) = (snapshot(), State::new(View::Files));
    let second = |state: &State| screen(&snapshot, state, 80, 24)[1].clone();
    assert!(second(&state).ends_with("5 uses (0)"), "{}", second(&state));
    let letters = "/a-long-name-of-a-file".chars().map(Key::Char);
    let keys: Vec<Key> = letters.chain([Key::Enter]).collect();
    press(&mut state, &snapshot, &keys);
    state.recording = true;
    let line = second(&state);
    assert!(line.contains("1 files (40)") && line.contains("  /a-long-name"), "{line}");
    assert!(line.ends_with("  recording"), "{line}");
    state.frozen = true;
    assert!(second(&state).ends_with("  frozen  recording"), "{}", second(&state));
    for width in [20, 40, 60, 79] {
        let line = screen(&snapshot, &state, width, 24)[1].clone();
        assert!(line.ends_with("  frozen  recording"), "{width}: {line}");
    }
}

#[test]
fn a_column_is_explained_where_it_is_shown() {
    let (mut snapshot, state) = (snapshot(), State::new(View::Files));
    snapshot.grids[0].column_note = Some(("size", "Size is what it would be as a whole."));
    let explained = |width| screen(&snapshot, &state, width, 24).join(" ").contains("Size is what");
    assert!(explained(80) && !explained(60));
}

#[test]
fn what_is_said_of_a_recording_stands_until_the_next_key() {
    let (snapshot, mut state) = (snapshot(), State::new(View::Files));
    state.message = Some("recording to larder-top-2.json".to_owned());
    assert_eq!(screen(&snapshot, &state, 80, 24)[23], "recording to larder-top-2.json");
    press(&mut state, &snapshot, &[Key::Down]);
    assert!(screen(&snapshot, &state, 80, 24)[23].contains("q quit"));
}

#[test]
fn a_recorded_line_has_plain_numbers_under_the_names_of_columns() {
    let json = snapshot().to_json();
    assert_eq!(json["schema"], "larder-top");
    assert_eq!(json["files"][3]["resident"], 3 * 4096);
    assert_eq!(json["files"][3]["dirty"], serde_json::Value::Null);
    assert_eq!(json["disks"], serde_json::json!([]));
}

#[test]
fn this_machine_is_seen() {
    let mut collector = Collector::default();
    let rename = |name| std::fs::write("/proc/self/comm", name).unwrap();
    rename("first");
    assert!(
        collector.collect(View::Processes).grids[View::Disks.index()].rows.is_empty(),
        "no rates at first"
    );
    rename("second");
    let snapshot = collector.collect(View::Processes);
    let processes = &snapshot.grids[View::Processes.index()];
    let pid = format!("second ({})", std::process::id());
    let is_this_process = |row: &&Vec<Value>| row[0].to_text() == pid;
    let row = processes.rows.iter().find(is_this_process).expect("we are there");
    assert!(matches!(row[1], Value::ByteRate(rate) if rate >= 0.0), "{row:?}");
    for grid in &snapshot.grids {
        assert!(grid.rows.iter().all(|row| row.len() == grid.columns.len()));
    }
    assert!(snapshot.memory.contains("available"));
}

/// Switches the counters of a loop device on again, which keeps the setting without its file.
struct SwitchedOn(String);

impl Drop for SwitchedOn {
    fn drop(&mut self) {
        // The test has ended; the device may be gone.
        drop(std::fs::write(&self.0, "1"));
    }
}

#[test]
fn a_disk_that_is_not_counted_has_no_values_and_a_note() {
    let directory = tempfile::tempdir().unwrap();
    let options = ScratchOptions {
        kind: KINDS.iter().find(|kind| kind.name == "ext4").unwrap(),
        bytes: 64 << 20,
        scheduler: "none".to_owned(),
        make_options: Vec::new(),
        mount_options: String::new(),
    };
    let scratch = match Scratch::make(directory.path(), &options) {
        Ok(scratch) => scratch,
        Err(error) => return skip(error),
    };
    let disk = Stack::of_path(&Roots::default(), scratch.path()).unwrap().name;
    let setting = SwitchedOn(format!("/sys/block/{disk}/queue/iostats"));
    std::fs::write(&setting.0, "0").unwrap();
    let mut collector = Collector::default();
    collector.collect(View::Disks);
    let grid = &collector.collect(View::Disks).grids[View::Disks.index()];
    let of_disk = |row: &&Vec<Value>| row[0].to_text() == disk;
    let row = grid.rows.iter().find(of_disk).expect("it is not left out");
    assert!(row[1..].iter().all(|value| *value == Value::Missing), "{row:?}");
    let note = grid.note.as_deref().unwrap_or_default();
    assert!(note.contains(&format!("{disk}: not counted (queue/iostats is 0")), "{note}");
}
