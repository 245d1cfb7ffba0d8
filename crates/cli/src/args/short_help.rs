//! One line for each setting that `larder serve -h` and `larder mount -h` show; `--help` shows all
//! settings with the texts of the table of settings.

/// Names and texts, each short enough for one line of 80 columns.
const LINES: [(&str, &str); 17] = [
    ("memory", "Memory of the cache"),
    ("listen", "Address: unix:PATH or tcp:ADDRESS:PORT"),
    ("fuse", "Show each volume as a file in this directory"),
    ("record", "Record every answered request into a trace"),
    ("tls", "Serve with TLS, with the keys in this directory"),
    ("page-size", "Unit of replacement"),
    ("policy", "Replacement policy"),
    ("read-ahead", "Maximum read-ahead"),
    ("give-back", "Return memory when the system is short"),
    ("min", "Minimum memory of a volume"),
    ("max", "Maximum memory of a volume"),
    ("write-mode", "Write mode"),
    ("flush", "Flush mode: keep or ignore"),
    ("control", "Socket for larder ctl, or none"),
    ("counters", "Write the counters to this file at the end"),
    ("warm-list", "Directory for lists of cached pages"),
    ("warm-list-every", "Interval of the lists"),
];

/// Returns the line of a setting; `None` if only `--help` shows it.
pub(super) fn of(setting: &str) -> Option<&'static str> {
    LINES.iter().find(|(name, _)| *name == setting).map(|(_, line)| *line)
}

#[cfg(test)]
mod tests {
    use super::LINES;

    #[test]
    fn every_line_is_of_a_setting() {
        for (name, _) in LINES {
            assert!(larder_server::settings::find(name).is_some(), "{name}");
        }
    }
}
