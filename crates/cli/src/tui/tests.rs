//! The view as it is drawn, on the sizes that it must be readable on, and what keys do.

use super::snapshot::{Grid, Value};
use super::terminal::Key;
use super::*;
use ratatui::Terminal;
use ratatui::backend::TestBackend;

/// A made-up moment with forty files.
fn picture() -> TopSnapshot {
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
    let mut picture = TopSnapshot { memory: "memory 2 GiB".to_owned(), ..TopSnapshot::default() };
    picture.grids[0] = Grid {
        columns: vec!["open file", "resident", "of it", "dirty", "opened by", "size"],
        sort: 1,
        rows,
        note: Some(
            "What is not seen is said here, in a sentence that may be longer than the \
                    screen is wide."
                .to_owned(),
        ),
        of_column: None,
    };
    picture
}

fn screen(picture: &TopSnapshot, state: &State, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, picture, state)).unwrap();
    let buffer = terminal.backend().buffer();
    let cells: Vec<&str> = buffer.content().iter().map(ratatui::buffer::Cell::symbol).collect();
    cells.chunks(usize::from(width)).map(|line| line.concat().trim_end().to_owned()).collect()
}

fn press(state: &mut State, picture: &TopSnapshot, keys: &[Key]) -> ViewAction {
    let grid = picture.grids[state.view.place()].clone();
    keys.iter().map(|key| state.key(*key, &grid)).last().expect("a key")
}

#[test]
fn eighty_columns_and_twenty_four_lines_are_enough() {
    let (picture, state) = (picture(), State::new(View::Files));
    let lines = screen(&picture, &state, 80, 24);
    assert_eq!(lines.len(), 24);
    assert!(lines[0].starts_with("memory 2 GiB"));
    assert!(lines[1].contains("1 files 40"), "{}", lines[1]);
    assert!(lines[2].contains("resident v") && lines[2].contains("opened by"), "{}", lines[2]);
    // The largest first; the end of the name is kept, and the last column had no room.
    assert!(lines[3].contains("file-39") && lines[3].contains("156 KiB"), "{}", lines[3]);
    assert!(lines[3].contains("97.5 %"), "{}", lines[3]);
    assert!(lines.iter().all(|line| line.chars().count() <= 80));
    assert!(lines[21].contains("not seen") && lines[23].contains("q quit"), "{lines:#?}");
}

#[test]
fn no_name_and_no_filter_controls_the_terminal() {
    let hostile = "a\u{1b}[2J\u{7}\r\n\u{7f}\u{9b}31m\u{202e}\u{2066}\u{200f}z";
    let (mut picture, mut state) = (picture(), State::new(View::Files));
    hostile.clone_into(&mut picture.memory);
    for row in &mut picture.grids[0].rows {
        row[0] = Value::Word(hostile.to_owned());
        row[4] = Value::Word(hostile.to_owned());
    }
    picture.grids[0].note = Some(hostile.to_owned());
    state.said = Some(hostile.to_owned());
    let check = |state: &State| {
        for line in screen(&picture, state, 200, 24) {
            assert!(!line.contains(larder_report::escape::is_unsafe), "{line:?}");
        }
    };
    check(&state);
    assert!(screen(&picture, &state, 200, 24)[3].starts_with("$'a\\033[2J"));
    press(&mut state, &picture, &[Key::Char('/')]);
    let typed: Vec<Key> = hostile.chars().map(Key::Char).collect();
    press(&mut state, &picture, &typed);
    check(&state);
    press(&mut state, &picture, &[Key::Enter]);
    check(&state);
}

#[test]
fn more_room_shows_more() {
    let (picture, state) = (picture(), State::new(View::Files));
    let lines = screen(&picture, &state, 200, 50);
    assert!(lines[2].ends_with("size"), "{}", lines[2]);
    assert!(
        lines[3].contains("/srv/a-long-directory-name/with/more/below/file-39"),
        "{}",
        lines[3]
    );
    assert!(lines[42].contains("file-00"), "{}", lines[42]);
}

#[test]
fn any_size_of_screen_is_drawn() {
    let picture = picture();
    for (width, height) in [(1, 1), (5, 3), (20, 5), (79, 4), (300, 2)] {
        let lines = screen(&picture, &State::new(View::Files), width, height);
        assert_eq!(lines.len(), usize::from(height));
        assert!(
            !screen(&TopSnapshot::default(), &State::new(View::Disks), width, height).is_empty()
        );
    }
}

#[test]
fn keys_sort_filter_scroll_and_freeze() {
    use Key::{Backspace, Char, Down, Enter, Esc, Tab};
    let (picture, mut state) = (picture(), State::new(View::Files));
    let grid = &picture.grids[0];
    let first = |state: &State| state.rows(grid)[0][0].shown();
    assert!(first(&state).ends_with("39"));
    press(&mut state, &picture, &[Char('r')]);
    assert!(first(&state).ends_with("00"), "backwards");
    press(&mut state, &picture, &[Char('S'), Char('r')]);
    assert_eq!(state.sort(grid), (0, false));
    assert!(first(&state).ends_with("00"), "by name");
    press(&mut state, &picture, &[Char('/'), Char('-'), Char('1'), Char('q'), Backspace, Enter]);
    assert_eq!((state.filter(), state.rows(grid).len()), ("-1", 10));
    press(&mut state, &picture, &[Down, Down]);
    assert_eq!(state.first(), 2);
    assert_eq!(press(&mut state, &picture, &[Esc]), ViewAction::Draw);
    assert_eq!(state.rows(grid).len(), 40);
    press(&mut state, &picture, &[Char(' ')]);
    assert!(state.frozen);
    press(&mut state, &picture, &[Tab]);
    assert_eq!((state.view, state.filter()), (View::Processes, ""));
    press(&mut state, &picture, &[Char('4')]);
    assert_eq!(state.view, View::Caches);
    assert_eq!(press(&mut state, &picture, &[Char('w')]), ViewAction::Record);
    assert_eq!(press(&mut state, &picture, &[Char('q')]), ViewAction::Quit);
}

#[test]
fn the_state_is_whole_whatever_else_there_is() {
    let (picture, mut state) = (picture(), State::new(View::Files));
    let second = |state: &State| screen(&picture, state, 80, 24)[1].clone();
    assert!(second(&state).ends_with("5 uses 0"), "{}", second(&state));
    let letters = "/a-long-name-of-a-file".chars().map(Key::Char);
    let keys: Vec<Key> = letters.chain([Key::Enter]).collect();
    press(&mut state, &picture, &keys);
    state.recording = true;
    let line = second(&state);
    assert!(line.contains("1 files 40") && line.contains("  /a-long-name"), "{line}");
    assert!(line.ends_with("  recording"), "{line}");
    state.frozen = true;
    assert!(second(&state).ends_with("  frozen  recording"), "{}", second(&state));
    for width in [20, 40, 60, 79] {
        let line = screen(&picture, &state, width, 24)[1].clone();
        assert!(line.ends_with("  frozen  recording"), "{width}: {line}");
    }
}

#[test]
fn a_column_is_explained_where_it_is_shown() {
    let (mut picture, state) = (picture(), State::new(View::Files));
    picture.grids[0].of_column = Some(("size", "Size is what it would be as a whole."));
    let explained = |width| screen(&picture, &state, width, 24).join(" ").contains("Size is what");
    assert!(explained(80) && !explained(60));
}

#[test]
fn what_is_said_of_a_recording_stands_until_the_next_key() {
    let (picture, mut state) = (picture(), State::new(View::Files));
    state.said = Some("recording to larder-top-2.json".to_owned());
    assert_eq!(screen(&picture, &state, 80, 24)[23], "recording to larder-top-2.json");
    press(&mut state, &picture, &[Key::Down]);
    assert!(screen(&picture, &state, 80, 24)[23].contains("q quit"));
}

#[test]
fn a_recorded_line_has_plain_numbers_under_the_names_of_columns() {
    let json = picture().to_json();
    assert_eq!(json["schema"], "larder-top");
    assert_eq!(json["files"][3]["resident"], 3 * 4096);
    assert_eq!(json["files"][3]["dirty"], serde_json::Value::Null);
    assert_eq!(json["disks"], serde_json::json!([]));
}

#[test]
fn this_machine_is_seen() {
    let mut eye = Procfs::new();
    assert!(
        eye.collect(View::Processes).grids[View::Disks.place()].rows.is_empty(),
        "no rates at first"
    );
    let picture = eye.collect(View::Processes);
    let processes = &picture.grids[View::Processes.place()];
    let own = format!("({})", std::process::id());
    let ours = |row: &&Vec<Value>| row[0].shown().ends_with(&own);
    let row = processes.rows.iter().find(ours).expect("we are there");
    assert!(matches!(row[1], Value::ByteRate(rate) if rate >= 0.0), "{row:?}");
    for grid in &picture.grids {
        assert!(grid.rows.iter().all(|row| row.len() == grid.columns.len()));
    }
    assert!(picture.memory.contains("available"));
}
