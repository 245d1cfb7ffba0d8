//! The whole command, over small traces.

use super::*;
use clap::Parser;
use larder_schema::advice::Region;

#[derive(Debug, Parser)]
struct Command {
    #[command(flatten)]
    arguments: SizeArgs,
}

fn parse(line: &[&str]) -> Result<SizeArgs, String> {
    let words = std::iter::once("size").chain(line.iter().copied());
    Command::try_parse_from(words).map(|it| it.arguments).map_err(|error| error.to_string())
}

#[test]
fn a_target_is_a_share_and_a_budget_is_a_size() {
    let found = parse(&["t", "--target", "80 %", "--budget", "4GiB"]).unwrap();
    assert!((found.target - 0.8).abs() < 1e-12);
    assert_eq!(found.budget, Some(4 << 30));
    assert!((parse(&["t", "--target", "95"]).unwrap().target - 0.95).abs() < 1e-12);
    for wrong in ["0%", "101%", "101", "0.95", "-1%", "nan%", "nan", "inf%", "", "%"] {
        assert!(parse(&["t", "--target", wrong]).is_err(), "{wrong}");
    }
    for wrong in ["0", "64", "7MiB", "much", "-1GiB", ""] {
        assert!(parse(&["t", "--budget", wrong]).is_err(), "{wrong}");
    }
    assert!(parse(&["t", "--json", "--format", "text"]).is_err());
}

#[test]
fn a_number_of_threads_is_refused_in_words() {
    assert_eq!(parse(&["t", "--threads", "2"]).unwrap().threads, NonZero::new(2));
    for wrong in ["0", "x"] {
        let error = parse(&["t", "--threads", wrong]).unwrap_err();
        let reason = format!(
            "\"{wrong}\" is not a number of threads; write 1 or more, or leave the option out"
        );
        assert!(error.contains(&reason), "{error}");
    }
}

#[test]
fn policies_are_each_taken_once_and_all_if_none_is_named() {
    assert_eq!(policies(&[]), PolicyKind::ALL);
    let named = [PolicyKind::Sieve, PolicyKind::Lru, PolicyKind::Sieve];
    assert_eq!(policies(&named), [PolicyKind::Lru, PolicyKind::Sieve]);
}

/// The header of a trace in CSV.
const HEAD: &str = "time_ns,offset,len,latency_ns,volume,file,process,op,class,volume_name,\
                    file_name,process_name";

/// Writes a trace in CSV of a loop over some pages, `rounds` times.
fn write_loop(directory: &Path, pages: u64, rounds: u64) -> PathBuf {
    let line =
        |step: u64| format!("{},{},4096,0,0,0,0,read,0,,,", step * 1_000_000, step % pages * 4096);
    let head = HEAD.to_owned();
    let lines: Vec<String> = std::iter::once(head).chain((0..pages * rounds).map(line)).collect();
    let text = lines.join("\n") + "\n";
    let path = directory.join("loop.csv");
    std::fs::write(&path, text).unwrap();
    path
}

fn failure(line: &[&str]) -> String {
    format!("{:#}", run(&parse(line).unwrap()).unwrap_err())
}

#[test]
fn wrong_traces_are_refused_with_a_sentence() {
    let directory = tempfile::tempdir().unwrap();
    assert!(failure(&["-"]).contains("standard input"));
    let absent = directory.path().join("absent.csv");
    assert!(failure(&[absent.to_str().unwrap()]).contains("absent.csv"));
    let empty = directory.path().join("empty.csv");
    std::fs::write(&empty, format!("{HEAD}\n")).unwrap();
    assert!(failure(&[empty.to_str().unwrap()]).contains("no read and no write"));
}

#[test]
fn a_page_that_cannot_be_written_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let trace = write_loop(directory.path(), 10, 2);
    let file = directory.path().join("no/such/page.html");
    let line = [trace.to_str().unwrap(), "-o", file.to_str().unwrap()];
    assert!(failure(&line).contains("page.html"));
    let file = directory.path().join("page.html");
    run(&parse(&[line[0], "-o", file.to_str().unwrap()]).unwrap()).unwrap();
    let names = std::fs::read_dir(directory.path()).unwrap();
    let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["loop.csv", "page.html"]);
}

#[test]
fn the_sample_has_three_regions_and_the_useful_one_is_recommended() {
    let arguments = parse(&["--sample", "--policy", "lru,lirs,s3fifo"]).unwrap();
    let named = policies(&arguments.policy);
    let sizing = measure(&arguments, None, SAMPLE_NAME.to_owned(), named).unwrap();
    let regions = sizing.regions.expect("something hits");
    assert!(regions.steep_seen && !regions.is_cliff(), "{regions:?}");
    let advice = sizing.recommendation.expect("a cache helps");
    assert_eq!(advice.region, Some(Region::Useful), "{advice:?}");
    assert!(parse(&["t", "--sample"]).is_err() && parse(&["--live", "--sample"]).is_err());
}

#[test]
fn the_printed_command_has_the_memory_that_a_server_needs() {
    assert_eq!(larder_report::sizing::SERVER_BYTES_MIN, larder_io::engine::MEMORY_BYTES_MIN);
}
