//! Sums, order, and the JSON form.

use super::*;

fn read(pages: u64, hits: u64, ahead: u64) -> Counts {
    Counts {
        read_requests: 1,
        read_pages: pages,
        hit_pages: hits,
        read_ahead_hit_pages: ahead,
        miss_pages: pages - hits - ahead,
        ..Counts::default()
    }
}

fn row(file: &str, counts: &Counts) -> Row {
    let counts = *counts;
    Row { file: file.into(), process: "p".into(), pid: 7, counts, ..Row::default() }
}

#[test]
fn a_ratio_of_sums_is_weighted_by_what_was_asked() {
    // Half of few pages and almost all of many: the mean of the ratios would be 74 %.
    let mut sum = read(10, 5, 0);
    sum += read(990, 900, 80);
    assert_eq!(sum.hit_ratio(), Some(0.985));
    assert_eq!(Counts::default().hit_ratio(), None);
}

#[test]
fn differences_never_go_below_nothing() {
    let mut later = read(10, 5, 0);
    later += read(4, 4, 0);
    assert_eq!((later - read(10, 5, 0)).hit_pages, 4);
    // A page that was reported as a hit became a miss later.
    assert_eq!((read(10, 4, 0) - read(10, 5, 0)).hit_pages, 0);
    assert!((later - later).is_zero());
}

#[test]
fn pages_written_while_dirty_are_those_that_did_not_become_so() {
    let counts =
        Counts { write_pages: 10, write_dirtied_pages: 3, dirtied_pages: 9, ..Counts::default() };
    assert_eq!(counts.overwritten_pages(), 7);
}

#[test]
fn rows_are_ordered_by_weight_and_counted_before_they_are_cut() {
    let disk = Counts { disk_read_bytes: 4096 * 100, ..Counts::default() };
    let all = vec![row("few", &read(2, 2, 0)), row("nothing", &Counts::default())];
    let all = [all, vec![row("many", &read(1000, 1000, 0)), row("disk", &disk)]].concat();
    let (rows, count) = super::rows(all, 4096, 2);
    let names: Vec<&str> = rows.iter().map(|row| row.file.as_str()).collect();
    assert_eq!((names, count), (vec!["disk", "many"], 3));
}

#[test]
fn what_is_written_is_read_back_unchanged() {
    let watch = Watch {
        schema: SCHEMA.into(),
        version: VERSION,
        total: Interval { rows: vec![row("a", &read(1000, 900, 50))], ..Interval::default() },
        ..Watch::default()
    };
    assert_eq!(Watch::from_json(&watch.to_json()).unwrap(), watch);
    let other = watch.to_json().replace("larder-watch", "larder-run");
    let error = Watch::from_json(&other).unwrap_err().to_string();
    assert!(error.contains("it is larder-run 1, not larder-watch 1"), "{error}");
    assert!(Watch::from_json("{}").is_err());
}
