//! Invalid input: one message, exit code 2, and no files left behind.

use super::rig::{names, run};

#[test]
fn what_cannot_be_measured_is_refused_before_anything_is_made() {
    let directory = tempfile::tempdir().unwrap();
    for (line, message) in [
        ("nowhere", "find nowhere: no such file or directory"),
        ("-i 11", "there is no test \"11\"; write 0 to 10"),
        ("-i 8", "run test 8: it mixes readers and writers, so it needs threads"),
        ("-s 512", "\"512\" has no unit; write 512k or 512KiB"),
        ("-r 32m -s 64m", "use records of 33554432 bytes: 1 to 16MiB"),
        ("-I -r 1k", "use records of 1024 bytes with --direct: a multiple of 4KiB"),
        ("-I --start warm", "start warm with --direct: nothing is read from memory"),
        ("-s 4k -r 8k", "record size is left"),
        ("-n 8k -g 4k", "record size is left"),
        ("-n 64k -s 64k", "cannot be used with"),
        ("-t 2 -i 4", "run test 4 with threads: throughput mode has none"),
        ("-t 0", "\"0\" is no number of threads; write 1 to 1024"),
        ("-l 3 -u 2", "use 3 to 2 threads: -l is above -u"),
        ("-t 2 -g 1g", "cannot be used with"),
        ("-t 2 -s 1m -s 2m", "use several sizes of files with threads: name one"),
        ("-x", "use --no-stonewall or --mix-readers: they are for threads"),
        ("-j 0", "it is not a whole number from 1 to "),
        ("--factor 1", "it is not a whole number from 2 to 1024"),
        ("--trials 0", "is no number of trials"),
        ("--start hot", "there is no start \"hot\""),
    ] {
        let outcome = run(directory.path(), &line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(outcome.code, Some(2), "{line}: {outcome:?}");
        assert!(outcome.err.contains(message), "{line}: {}", outcome.err);
        assert_eq!(outcome.out, "", "{line}");
        assert_eq!(names(directory.path()), [""; 0], "{line}");
    }
}

#[test]
fn a_directory_that_cannot_be_written_to_is_named() {
    let outcome = run(std::path::Path::new("/"), &["/proc", "-s", "64k", "-r", "4k"]);
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert!(outcome.err.contains("/proc"), "{outcome:?}");
}
