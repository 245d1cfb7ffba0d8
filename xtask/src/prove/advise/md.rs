//! The advice for eight patterns, beside the operations of the members of real md arrays.
//!
//! `prove md-members` records these operations in the guest, for all levels and chunks that survive
//! a failure. The advice is for the same requests, with the default number in flight: the fastest
//! array then needs the fewest operations. With one in flight it does not for large reads in order,
//! where the disks share each request.

use super::super::prelude::*;
use super::advice;
use std::ffi::OsString;
use std::fmt::Write as _;

/// The record of `prove md-members`.
const RECORD: &str = "bench-runs/md-patterns.json";
/// The columns of a trace as CSV.
const HEADER: &str = "time_ns,offset,len,latency_ns,volume,file,process,op,class,volume_name,\
                      file_name,process_name\n";
/// Factor of the fewest operations up to which an array counts as one with the fewest.
const MORE_MAX: f64 = 1.05;

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    let recorded = record::read(&env.root.join(RECORD))?;
    let rows = recorded.as_array().context("no rows")?;
    let (patterns, arrays): (Vec<&Value>, Vec<&Value>) =
        rows.iter().partition(|row| row.get("order").is_some());
    for (number, pattern) in patterns.into_iter().enumerate() {
        check(env, claims, number, pattern, &arrays)?;
    }
    Ok(())
}

fn check(
    env: &Env,
    claims: &mut Claims,
    number_of: usize,
    pattern: &Value,
    arrays: &[&Value],
) -> Result<()> {
    let trace = env.file(&format!("md{number_of}.csv"));
    std::fs::write(&trace, csv(pattern)?).context("write a trace")?;
    let options = ["--disks", "4", "--failures", "1"].map(OsString::from);
    let advised = advice(env, &trace, options)?;
    let index = usize::try_from(advised["advised_array"].as_u64().context("no advice")?)?;
    let row = &advised["arrays"][index];
    let operations = |array: &Value| number(array, &format!("/operations/{number_of}"));
    let is_advised = |array: &&&Value| {
        ["level", "disks", "chunk_bytes"].iter().all(|field| array[*field] == row[*field])
    };
    let own = operations(arrays.iter().find(is_advised).context("md has no such array")?)?;
    let (mut fewest, mut name) = (f64::INFINITY, String::new());
    for array in arrays {
        let count = operations(array)?;
        if count < fewest {
            (fewest, name) = (count, format!("{} {}", array["level"], array["chunk_bytes"]));
        }
    }
    let [order, kind] = ["order", "kind"].map(|field| pattern[field].as_str().unwrap_or_default());
    let length = number(pattern, "length")?;
    let subject = format!("md, {order} {kind}s of {} KiB", length / 1024.0);
    let model = row["model"].as_str().unwrap_or_default();
    let requests = pattern["offsets"].as_array().context("no offsets")?.len();
    let expected = number(row, "operations_per_request")? * to_f64(requests as u64);
    claims.add_with_peer(
        format!("{subject}: md has the operations of the model for the advised array, within 5 %"),
        format!("{model}: {own:.0} under md"),
        format!("model: {expected:.0}"),
        (own / expected - 1.0).abs() < MORE_MAX - 1.0,
    );
    claims.add_with_peer(
        format!("{subject}: the advised array has the fewest operations, or 5 % more"),
        format!("{model}: {own:.0} operations"),
        format!("fewest: {fewest:.0}, {name}"),
        own <= MORE_MAX * fewest,
    );
    Ok(())
}

/// Returns the requests of a pattern as a trace, 10 ms apart.
fn csv(pattern: &Value) -> Result<String> {
    let kind = pattern["kind"].as_str().context("no kind")?;
    let mut text = HEADER.to_owned();
    for (index, offset) in pattern["offsets"].as_array().context("no offsets")?.iter().enumerate() {
        writeln!(
            text,
            "{},{offset},{},0,0,0,0,{kind},0,md,,",
            index * 10_000_000,
            pattern["length"]
        )?;
    }
    Ok(text)
}
