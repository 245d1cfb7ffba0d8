//! Data that a crash would lose now, and data that cannot be written.

use crate::table::{Field, Table};
use larder_schema::control::{AtRisk, VolumeAtRisk};
use larder_schema::format;

/// Returns the unwritten data of the volumes as a table.
#[must_use]
pub fn unwritten_table(at_risk: &AtRisk) -> Table {
    let fields = [
        Field::word("name", "volume", |it: &VolumeAtRisk| &it.name),
        Field::bytes("lost_by_kill_bytes", "a kill loses", |it| it.lost_by_kill_bytes),
        Field::bytes("lost_by_kill_bytes_max", "at most", |it| it.lost_by_kill_bytes_max),
        Field::duration("oldest_age_ns", "oldest", |it| it.oldest_age_ns),
        Field::duration("age_max_ns", "written after", |it| it.age_max_ns),
        Field::bytes("failing_bytes", "failing", |it| it.failing_bytes),
        Field::word("flush", "flush", |it| &it.flush),
    ];
    Table::of("", &at_risk.volumes, fields)
}

/// Returns the problems, one sentence and one line each; empty if there are none.
#[must_use]
pub fn warnings(at_risk: &AtRisk) -> Vec<String> {
    let mut warnings = Vec::new();
    for volume in &at_risk.volumes {
        let name = &volume.name;
        if let Some(error) = &volume.flush_failed {
            warnings.push(format!(
                "{name}: its store cannot be flushed any more, and what it has is not known: \
                 cannot {error}"
            ));
        }
        if let Some(path) = &volume.lost_path {
            warnings.push(format!(
                "{name}: {} was deleted or replaced while it is served: all that is written is \
                 lost when the server ends",
                crate::escape::text(path)
            ));
        }
        if volume.failing_bytes > 0 {
            let reason = volume.error.as_deref().unwrap_or("write, which is tried again");
            let bytes = format::bytes(volume.failing_bytes);
            // Files have reasons of their own.
            if volume.files.is_empty() {
                warnings.push(format!("{name}: {bytes} cannot be written: cannot {reason}"));
            }
            for file in &volume.files {
                let (path, bytes) = (&file.path, format::bytes(file.failing_bytes));
                let reason = file.error.as_deref().unwrap_or("it is tried again");
                warnings.push(format!(
                    "{name}: {bytes} of {} cannot be written: {reason}",
                    crate::escape::text(path)
                ));
            }
            // For a directory the files provide the same information.
            for range in volume.failing.iter().filter(|_| volume.files.is_empty()) {
                let (from, to) = (range.offset, range.offset + range.length);
                warnings.push(format!("{name}: failing: bytes {from} to {to}"));
            }
        }
        if volume.flush == "ignore" {
            warnings.push(format!(
                "{name}: flushes are ignored, so a crash also loses what clients were told is \
                 safe"
            ));
        }
    }
    // Error messages may contain file names.
    warnings.iter().map(|line| crate::escape::line(line).into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use larder_schema::control::{ByteRange, FileAtRisk};

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let fine = VolumeAtRisk {
            name: "a".into(),
            flush: "keep".into(),
            lost_by_kill_bytes: 8192,
            lost_by_kill_bytes_max: 1 << 20,
            oldest_age_ns: Some(1_500_000_000),
            age_max_ns: 5_000_000_000,
            ..VolumeAtRisk::default()
        };
        let mut at_risk = AtRisk { volumes: vec![fine.clone()], ..AtRisk::default() };
        assert_eq!(warnings(&at_risk), Vec::<String>::new());
        let hostile = VolumeAtRisk {
            flush_failed: Some("open a\nb: all is well".into()),
            ..VolumeAtRisk::default()
        };
        let found = warnings(&AtRisk { volumes: vec![hostile], ..AtRisk::default() });
        assert!(found.len() == 1 && !found[0].contains('\n'), "{found:?}");
        let known = "\
volume  a kill loses  at most  oldest  written after  failing  flush
--------------------------------------------------------------------
a              8 KiB    1 MiB  1.50 s         5.00 s      0 B  keep
";
        assert_eq!(unwritten_table(&at_risk).to_text(), known);
        at_risk.volumes.push(VolumeAtRisk {
            name: "b".into(),
            flush: "ignore".into(),
            failing_bytes: 4096,
            failing: vec![ByteRange { offset: 8192, length: 4096 }],
            error: Some("write 4096 bytes at 8192: no space".into()),
            flush_failed: Some("flush: gone".into()),
            ..fine
        });
        let found = warnings(&at_risk);
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(found[1].ends_with("cannot write 4096 bytes at 8192: no space"));
        assert_eq!(found[2], "b: failing: bytes 8192 to 12288");
        at_risk.volumes[1].files.push(FileAtRisk {
            path: "logs/a".into(),
            failing_bytes: 4096,
            error: Some("No space left on device (os error 28)".into()),
        });
        let by_file = warnings(&at_risk);
        let known = "b: 4 KiB of logs/a cannot be written: no space left on device";
        assert_eq!((by_file.len(), by_file[1].as_str()), (3, known));
    }
}
