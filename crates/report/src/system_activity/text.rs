//! The text of iostat and sar: lines of columns under lines of headings.

use super::{ActivityError, Samples};
use crate::lines::Lines;
use std::io::BufRead;

/// A line of headings.
struct Heading {
    columns: Vec<String>,
    kind: Kind,
    name: Name,
}

/// Place of the name in a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Name {
    None,
    First,
    Last,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A line without a name: all processors.
    IostatCpu,
    /// A line for each processor, and one for all.
    SarCpu,
    /// A line for each disk.
    Disk,
    /// A line without a name.
    Memory,
}

pub(super) fn read(text: impl BufRead) -> Result<Samples, ActivityError> {
    let mut lines = Lines::new(text);
    let mut samples = Samples::default();
    let mut heading: Option<Heading> = None;
    // True if the processors of a report of iostat came before its disks.
    let mut has_cpu = false;
    while let Some((_, line)) = lines.next_line()? {
        let line = str::from_utf8(line).unwrap_or_default();
        if line.starts_with("Linux ") {
            // A further log in the same file continues this one.
            if samples.is_empty() {
                samples = of_first_line(line);
            }
            continue;
        }
        let (time, words) = split(line);
        let Some(last) = words.last() else {
            heading = None;
            continue;
        };
        // With sar -p the name comes last.
        let is_named = heading.as_ref().is_some_and(|it| it.name == Name::Last)
            && words.len() > 1
            && number(words[0]).is_some();
        if number(last).is_none() && !is_named {
            heading = heading_of(&words);
            let kind = heading.as_ref().map(|it| it.kind);
            samples.is_sar |= time;
            let is_iostat = !samples.is_sar;
            if is_iostat && (kind == Some(Kind::IostatCpu) || kind == Some(Kind::Disk) && !has_cpu)
            {
                samples.begin_report();
            }
            has_cpu = kind == Some(Kind::IostatCpu);
            continue;
        }
        // Averages begin with a word in the user's language and a colon.
        let is_average = !time && words[0].ends_with(':');
        if let Some(heading) = heading.as_ref().filter(|_| !is_average) {
            add(&mut samples, heading, &words);
        }
    }
    Ok(samples)
}

/// Reads `Linux 6.1.0 (host) 12/01/26 _x86_64_ (2 CPU)`.
fn of_first_line(line: &str) -> Samples {
    let mut inside = line.split('(').skip(1).filter_map(|part| part.split(')').next());
    let host = inside.next().unwrap_or_default();
    let processors = inside.next().and_then(|text| text.split_whitespace().next()?.parse().ok());
    Samples::of_host(host, processors)
}

/// Returns the words of a line without its time, and true if it has one.
fn split(line: &str) -> (bool, Vec<&str>) {
    let mut words: Vec<&str> = line.split_whitespace().collect();
    let is_time = |word: &&str| {
        let parts: Vec<&str> = word.split(':').collect();
        parts.len() == 3 && parts.iter().all(|part| part.len() == 2 && part.parse::<u8>().is_ok())
    };
    if !words.first().is_some_and(is_time) {
        return (false, words);
    }
    words.remove(0);
    if words.first().is_some_and(|word| ["AM", "PM"].contains(word)) {
        words.remove(0);
    }
    (true, words)
}

fn number(word: &str) -> Option<f64> {
    word.replace(',', ".").parse().ok()
}

fn heading_of(words: &[&str]) -> Option<Heading> {
    let first = words[0].trim_end_matches(':');
    let has = |name: &str| words.contains(&name);
    let last = words.len() - 1;
    let (kind, name, names) = match first {
        "avg-cpu" => (Kind::IostatCpu, Name::None, &words[1..]),
        "Device" | "DEV" => (Kind::Disk, Name::First, &words[1..]),
        _ if words[last] == "DEV" => (Kind::Disk, Name::Last, &words[..last]),
        "CPU" if has("%idle") => (Kind::SarCpu, Name::First, &words[1..]),
        _ if has("kbcached") || has("%swpused") || has("pswpin/s") => {
            (Kind::Memory, Name::None, words)
        }
        _ => return None,
    };
    Some(Heading { columns: names.iter().map(|name| (*name).to_owned()).collect(), kind, name })
}

fn add(samples: &mut Samples, heading: &Heading, words: &[&str]) {
    let (name, values) = match heading.name {
        Name::None => ("", words),
        Name::First => (words[0], &words[1..]),
        Name::Last => (words[words.len() - 1], &words[..words.len() - 1]),
    };
    if values.len() != heading.columns.len() {
        return;
    }
    let column = |name: &str| {
        let index = heading.columns.iter().position(|column| column == name)?;
        number(values[index])
    };
    match heading.kind {
        Kind::IostatCpu => samples.add_cpu(column),
        Kind::SarCpu if name == "all" => samples.add_cpu(column),
        Kind::SarCpu => {}
        Kind::Disk => samples.add_disk(name, column),
        Kind::Memory => samples.add_memory(column),
    }
}
