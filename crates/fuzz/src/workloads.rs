//! Fuzz target for workloads: scripts of PostMark, mixes, patterns.

use larder_lab::workload::postmark::{Command, Config, show};
use larder_lab::workload::probe::parse_pattern;
use larder_lab::workload::server::Mix;
use std::path::Path;

/// Reads a description; the first byte selects its kind.
pub(crate) fn workload(input: &[u8]) {
    let (first, input) = input.split_first().unwrap_or((&0, &[]));
    let text = str::from_utf8(input);
    match (first % 4, text) {
        (0, _) => script(input),
        (2, Ok(text)) => {
            if let Ok(mix) = Mix::parse(text) {
                assert_eq!(Mix::parse(&mix.in_words()), Ok(mix));
            }
        }
        (3, Ok(text)) => {
            if let Ok(actions) = parse_pattern(text) {
                assert_eq!(actions.len(), text.chars().count());
            }
        }
        _ => {}
    }
}

/// Applies the settings of a script, and checks the invariants of the configuration.
fn script(input: &[u8]) {
    let mut config = Config::default();
    for line in input.split(|&byte| byte == b'\n') {
        let Some((command, parameter)) = Command::parse(line) else { continue };
        if let Err(error) = config.set(command, parameter) {
            assert!(!error.is_empty());
        }
        assert!(config.number > 0 && config.transactions > 0 && config.seed > 0);
        assert!((1..=config.size_high).contains(&config.size_low), "{config:?}");
        assert!(config.read_block > 0 && config.write_block > 0);
        assert!(config.locations.iter().all(|location| location.weight > 0), "{config:?}");
        assert!(config.bias_read.is_none_or(|bias| bias <= 10));
        assert!(config.bias_create.is_none_or(|bias| bias <= 10));
    }
    let printed = show(&config, Path::new("."));
    assert_eq!(printed.locations.is_empty(), config.locations.is_empty());
}
