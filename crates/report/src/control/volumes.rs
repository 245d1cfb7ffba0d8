//! The volumes of a server and their settings.

use crate::table::{Cell, Column, Field, Table};
use larder_schema::control::{PolicyInForce, Volume, Volumes};
use larder_schema::format;

/// Returns a line for each exceptional condition: automatic changes, frozen volumes, pinned
/// ranges, problems.
#[must_use]
pub fn notes(volumes: &Volumes) -> Vec<String> {
    volumes.volumes.iter().flat_map(volume_notes).collect()
}

/// Returns the volumes as a table.
#[must_use]
pub fn volumes_table(volumes: &Volumes) -> Table {
    let setting = |name: &'static str| {
        move |it: &Volume| it.settings.get(name).map_or_else(Cell::missing, Cell::word)
    };
    let fields = [
        Field::word("name", "volume", |it: &Volume| &it.name),
        Field::bytes("length_bytes", "length", |it| it.length_bytes),
        Field::bytes("resident_bytes", "cached", |it| it.resident_bytes),
        Field::bytes("target_bytes", "target", |it| it.target_bytes),
        Field::of(Column::numbers("min", "min"), setting("min")),
        Field::of(Column::numbers("max", "max"), setting("max")),
        Field::of(Column::numbers("page_size", "page"), setting("page-size")),
        Field::text("policy", "policy", policy),
        Field::of(Column::words("write_mode", "writes"), setting("write-mode")),
        Field::of(Column::words("flush", "flush"), setting("flush")),
    ];
    Table::of("", &volumes.volumes, fields)
}

/// Returns the locations of the volumes as a table.
#[must_use]
pub fn places_table(volumes: &Volumes) -> Table {
    let fields = [
        Field::word("name", "volume", |it: &Volume| &it.name),
        Field::word("path", "store", |it| &it.path),
        Field::word("uri", "address", |it| &it.uri),
    ];
    Table::of("", &volumes.volumes, fields)
}

fn volume_notes(volume: &Volume) -> Vec<String> {
    let (name, mut notes) = (&volume.name, Vec::new());
    if let Some(last) = volume.policy.switches.last() {
        notes.push(format!(
            "{name}: {} replaced {} {} ago: its miss ratio was {:.1} points lower",
            last.to,
            last.from,
            format::duration(last.age_ns),
            last.gain * 100.0,
        ));
    }
    if volume.frozen {
        notes.push(format!("{name}: frozen: misses go past the cache; larder ctl unfreeze"));
    }
    if volume.pinned_bytes > 0 {
        let (bytes, ranges) = (format::bytes(volume.pinned_bytes), volume.pinned.len());
        notes.push(format!("{name}: {bytes} pinned, number of ranges: {ranges}"));
    }
    notes.extend(volume.findings.iter().map(|finding| finding.line(name)));
    notes
}

/// Returns the current policy, marked if the cache chose it.
fn policy(volume: &Volume) -> String {
    let PolicyInForce { name, auto, .. } = &volume.policy;
    if *auto { format!("{name} (auto)") } else { name.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_schema::control::{ByteRange, Switch};

    #[test]
    fn who_chose_the_policy_and_why_is_said() {
        let switch = |to: &str, age_ns| Switch {
            age_ns,
            from: "s3fifo".to_owned(),
            to: to.to_owned(),
            gain: 0.123,
        };
        let policy = PolicyInForce {
            name: "2q".to_owned(),
            auto: true,
            switches: vec![switch("lirs", 9_000_000_000), switch("2q", 3_000_000_000)],
        };
        let chosen = Volume {
            name: "a".to_owned(),
            policy,
            target_bytes: Some(8 << 20),
            ..Volume::default()
        };
        let pinned = Volume {
            frozen: true,
            pinned_bytes: 8192,
            pinned: vec![ByteRange { offset: 0, length: 8192 }],
            ..chosen.clone()
        };
        let found = volume_notes(&pinned);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[1].starts_with("a: frozen") && found[2].starts_with("a: 8 KiB pinned"));
        let fixed = PolicyInForce { name: "lru".to_owned(), ..PolicyInForce::default() };
        let plain = Volume { name: "b".to_owned(), policy: fixed, ..Volume::default() };
        let volumes = Volumes { volumes: vec![chosen, plain], ..Volumes::default() };
        assert_eq!(
            notes(&volumes),
            ["a: 2q replaced s3fifo 3.00 s ago: its miss ratio was 12.3 points lower"]
        );
        let text = volumes_table(&volumes).to_text();
        assert!(text.contains("2q (auto)") && text.contains("8 MiB"), "{text}");
        assert!(text.lines().last().unwrap().contains("lru "), "{text}");
    }

    #[test]
    fn an_answer_of_an_older_server_can_be_read() {
        let old = r#"{"schema": "larder-control", "version": 1, "volumes": [{"name": "a",
            "path": "", "uri": "", "length_bytes": 1, "resident_bytes": 0, "settings": {},
            "tunables": {}}]}"#;
        let read: Volumes = serde_json::from_str(old).unwrap();
        assert_eq!((read.volumes[0].target_bytes, notes(&read).len()), (None, 0));
    }
}
