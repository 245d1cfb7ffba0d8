//! Lines as the original interprets them, determined by running it.

use super::*;

fn set(lines: &[&str]) -> (Config, Vec<String>) {
    let mut config = Config::default();
    let mut errors = Vec::new();
    for line in lines {
        let (command, parameter) = Command::parse(line.as_bytes()).expect("a command");
        if let Err(error) = config.set(command, parameter) {
            errors.push(error);
        }
    }
    (config, errors)
}

fn locations(lines: &[&str]) -> Vec<(String, u32)> {
    let (config, _) = set(lines);
    let shown = |location: Location| (location.path.into_string().unwrap(), location.weight);
    config.locations.into_iter().map(shown).collect()
}

#[test]
fn a_command_is_what_the_line_begins_with() {
    let parse = |line: &str| {
        Command::parse(line.as_bytes()).map(|(command, parameter)| {
            (command, parameter.map(|text| String::from_utf8(text.to_vec()).unwrap()))
        })
    };
    assert_eq!(parse("run"), Some((Command::Run, None)));
    assert_eq!(parse("run "), Some((Command::Run, Some(String::new()))));
    assert_eq!(parse("runs out"), Some((Command::Run, Some(" out".into()))));
    assert_eq!(parse("quitxyz"), Some((Command::Quit, Some("yz".into()))));
    assert_eq!(parse("set bias read -1"), Some((Command::BiasRead, Some("-1".into()))));
    for line in ["", " run", "RUN", "set", "set bias", "ru", "exit", "?"] {
        assert_eq!(parse(line), None, "{line:?}");
    }
}

#[test]
fn numbers_are_what_atoi_makes_of_them() {
    let cases = [
        ("12abc", 12),
        (" \t-7", -7),
        ("+3", 3),
        ("x", 0),
        ("", 0),
        ("- 3", 0),
        ("9999999999", 1_410_065_407),
        ("4294967297", 1),
        ("2147483648", i32::MIN),
        ("99999999999999999999", -1),
        ("-99999999999999999999", 0),
    ];
    for (text, number) in cases {
        assert_eq!(integer(text.as_bytes()), number, "{text:?}");
    }
}

#[test]
fn sizes_have_a_lower_and_perhaps_an_upper_end() {
    let cases = [
        ("set size 10 20", (10, 20)),
        ("set size 10", (10, 10)),
        ("set size 10 5", (10, 10)),
        ("set size 10 -3", (10, 10)),
        ("set size 10 20 30", (10, 20)),
        ("set size  30   40", (30, 30)),
        ("set size 1 3000000000", (1, 1)),
        ("set sizes3 4", (3, 4)),
    ];
    for (line, size) in cases {
        let (config, errors) = set(&[line]);
        assert_eq!((config.size_low, config.size_high), size, "{line}");
        assert_eq!(errors, [""; 0]);
    }
}

#[test]
fn locations_are_replaced_added_and_taken_away() {
    let own = |path: &str, weight| (path.to_owned(), weight);
    assert_eq!(locations(&["set location a", "set location b 3"]), [own("b", 3)]);
    let lines = ["set location a b c 2", "set location +d", "set location -a b c"];
    assert_eq!(locations(&lines), [own("d", 1)]);
    assert_eq!(locations(&["set location x  5"]), [own("x ", 5)]);
    assert_eq!(locations(&["set location x 2y"]), [own("x", 2)]);
    assert_eq!(locations(&["set location + 4"]), [own("", 4)]);
    let (config, errors) = set(&["set location x 0", "set location +y ", "set location -z "]);
    assert_eq!(config.locations.iter().map(|each| each.weight).collect::<Vec<_>>(), [1, 1]);
    let expected =
        ["ignoring invalid weight '0'", "ignoring invalid weight ''", "cannot find location 'z '"];
    assert_eq!(errors, expected);
}

#[test]
fn wrong_parameters_change_nothing() {
    let invalid = [
        "set size",
        "set size 0 5",
        "set number -5",
        "set seed 0",
        "set transactions x",
        "set location",
        "set subdirectories 0",
        "set read 0",
        "set write -1",
        "set buffering maybe",
        "set bias read 11",
        "set bias create",
        "set bias create -2",
        "set report TERSE",
    ];
    let (config, errors) = set(&invalid);
    assert_eq!(config, Config::default());
    assert_eq!(errors.len(), invalid.len());
    assert_eq!(errors[0], "no file size low or high bounds specified");
    assert_eq!(errors[10], "no bias specified (0-10 for greater chance,-1 to disable)");
}

#[test]
fn biases_may_be_switched_off() {
    let (config, _) = set(&["set bias read -1", "set bias create 10", "set buffering false"]);
    assert_eq!((config.bias_read, config.bias_create, config.buffered), (None, Some(10), false));
    assert_eq!(set(&["set bias read x"]).0.bias_read, Some(0), "a word counts as 0");
}
