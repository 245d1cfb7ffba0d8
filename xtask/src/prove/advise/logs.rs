//! The place of a log beside random data, against both places for all of the traffic.

use super::super::prelude::*;
use super::{COMPARISON, REQUESTS, SLOWER_MAX, advice, synth};
use std::ffi::OsString;

/// Requests of the advice: a tenth.
const ADVICE: &str = "20000";
/// Random data: its writes, and the size of its pages.
const DATA: [(&str, &str); 2] = [("0%", "4KiB"), ("50%", "16KiB")];

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    let log = named_log(env)?;
    for (number, (writes, page)) in DATA.into_iter().enumerate() {
        let (data, both) =
            (env.file(&format!("data{number}.ltr")), env.file(&format!("both{number}.ltr")));
        synth(env, "uniform", &data, &["--writes", writes, "--page-size", page])?;
        let larder = &env.larder;
        stdout_of(cmd!("{larder} trace merge {data} {log} {both}"))?;
        for (disks, failures) in [("4", "0"), ("5", "1"), ("8", "1")] {
            let name = format!("log beside data of {page}, {writes} written, {disks} disks");
            check(env, claims, &name, &both, [disks, failures])?;
        }
    }
    Ok(())
}

/// Generates a log; its volume has another name than that of other generated traces.
fn named_log(env: &Env) -> Result<PathBuf> {
    let (plain, csv) = (env.file("log.ltr"), env.file("log.csv"));
    synth(env, "scan", &plain, &["--writes", "100%"])?;
    let larder = &env.larder;
    stdout_of(cmd!("{larder} trace convert {plain} {csv}"))?;
    let text = std::fs::read_to_string(&csv).context("read the log")?;
    ensure!(text.contains(",synthetic,"), "the volume of {REQUESTS} requests has another name");
    std::fs::write(&csv, text.replace(",synthetic,", ",log,")).context("write the log")?;
    Ok(csv)
}

fn check(
    env: &Env,
    claims: &mut Claims,
    name: &str,
    trace: &Path,
    [disks, failures]: [&str; 2],
) -> Result<()> {
    let of = |requests: &str| {
        let options = ["--disks", disks, "--failures", failures, "--requests", requests];
        advice(env, trace, options.map(OsString::from))
    };
    let (advised, compared) = (of(ADVICE)?, of(COMPARISON)?);
    ensure!(advised["log"]["volume"] == "log", "{name}: the log is not found");
    let rule = advised["rules"].as_array().into_iter().flatten();
    let mut rule = rule.filter(|it| it["rule"].as_str().is_some_and(|it| it.starts_with("a log")));
    let is_apart = rule.next().context("no rule about logs")?["follows"] == true;
    let together = number(&compared, "/log/together/requests_per_s")?;
    let apart = number(&compared, "/log/apart/requests_per_s")?;
    let own = if is_apart { apart } else { together };
    let slower = 1.0 - own / apart.max(together);
    claims.add_with_peer(
        format!("{name}: the advised place of the log is the best or within 5 %"),
        format!("{}, {:.1} % slower", if is_apart { "apart" } else { "together" }, 100.0 * slower),
        format!("apart {apart:.0} requests/s, together {together:.0} requests/s"),
        slower <= SLOWER_MAX,
    );
    Ok(())
}
