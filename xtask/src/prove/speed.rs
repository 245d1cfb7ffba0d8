//! Speed over a unix socket, all hits, alternating with the peers in one run.
//!
//! Every server has the same 1 GiB, has read it once, and keeps running. Client and server share
//! the processors, so the processor time of the server per request is recorded as well. Since fio
//! limits the faster servers, a lean client (`flood`) measures them, too.

use super::prelude::*;
use crate::flood;
use crate::nbd::Command::{self as Request, Read, Write};
use crate::record::Record;
use crate::stats::{Spread, median, run_alternating};

/// Enough memory that 1 GiB of dirty pages stays below the limit at which writers are throttled.
const OPTIONS: &str = "--memory 3072MiB --write-mode back";

const MEMORY: &str = "nbdkit memory";
const CACHE: &str = "nbdkit cache filter";
const QEMU: &str = "qemu-nbd writeback";

use Client::{Fio, Flood};

/// The client of a workload: fio with options, or the lean one with a number of requests in flight.
enum Client {
    Fio(&'static str),
    Flood(Request, usize),
}

/// The required multiple of the rate of each peer.
type Least = &'static [(&'static str, f64)];
/// A workload, its requirements, and true if the server must also use less processor time than the
/// first peer.
type Workload = (&'static str, Client, Least, bool);

const FAST: Least = &[(MEMORY, 1.35)];
const ONE: Least = &[(MEMORY, 1.0)];
const LARGE: Least = &[(MEMORY, 1.25)];
const WRITE: Least = &[(MEMORY, 0.95)];
const LEAN_READ: Least = &[(MEMORY, 1.0), (CACHE, 3.0), (QEMU, 3.0)];
const LEAN_WRITE: Least = &[(MEMORY, 0.95), (CACHE, 3.0), (QEMU, 3.0)];

/// The last workloads make everything dirty.
const WORKLOADS: &[Workload] = &[
    ("4 KiB random read, depth 32", Fio("--rw=randread --bs=4k --iodepth=32"), FAST, false),
    ("4 KiB random read, depth 1", Fio("--rw=randread --bs=4k --iodepth=1"), ONE, false),
    ("1 MiB read, depth 4", Fio("--rw=read --bs=1m --iodepth=4"), LARGE, false),
    ("4 KiB random read, depth 32, lean client", Flood(Read, 32), LEAN_READ, true),
    ("4 KiB random write, depth 32", Fio("--rw=randwrite --bs=4k --iodepth=32"), WRITE, true),
    ("4 KiB random write, depth 32, lean client", Flood(Write, 32), LEAN_WRITE, true),
];

/// Requests per second of the trials of one server, and nanoseconds of processor time per request.
type Samples = [Vec<f64>; 2];

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    let (mib, rounds, seconds) = env.choose((1024, 7, 3), (128, 3, 1));
    let settings = json!({ "larder": OPTIONS, "image_bytes": mib * MIB, "trial_s": seconds });
    let statement = "all hits over a unix socket, against the peers";
    let mut record = Record::new(&env.root, statement, &["fio", "nbdkit", "qemu-nbd"], &settings)?;
    let servers = start(env, mib)?;
    for workload in WORKLOADS {
        outln!("   {}", workload.0);
        // The record includes all servers, even those without a requirement.
        let mut samples: Vec<_> = servers.iter().map(|it| (it.0, Samples::default())).collect();
        run_alternating(rounds, servers.len(), |index| {
            let (server, (name, samples)) = (&servers[index].1, &mut samples[index]);
            let before = server.cpu()?;
            let outcome = match workload.1 {
                Fio(options) => {
                    let options: Vec<&str> = options.split(' ').collect();
                    fio::run(&server.uri(), seconds, &options)
                }
                Flood(command, depth) => flood::run(&server.socket(), command, depth, seconds),
            };
            let outcome = outcome.with_context(|| format!("{} of {name}", workload.0))?;
            let used = server.cpu()?.saturating_sub(before);
            samples[0].push(outcome.per_s);
            samples[1].push(used.as_secs_f64() * 1e9 / to_f64(outcome.requests));
            Ok(())
        })?;
        judge(workload, &samples, claims, &mut record)?;
    }
    if !env.options.quick {
        outln!("   recorded in {}", record.write("speed")?);
    }
    Ok(())
}

/// Starts all servers and fills their caches.
fn start(env: &Env, mib: u64) -> Result<Vec<(&'static str, Server)>> {
    let ours = image::create_filled(&env.file("speed.img"), mib, env.options.seed)?;
    let copy = |name: &str| -> Result<_> {
        let path = env.file(name);
        stdout_of(cmd!("cp --sparse=never {ours} {path}"))?;
        Ok(path)
    };
    let mut servers = vec![("larder", env.serve(&ours, OPTIONS)?)];
    let nbdkit = "nbdkit --foreground --unix SOCKET";
    let qemu = "qemu-nbd --persistent --shared=0 --format=raw --cache=writeback --socket=SOCKET";
    let [cached, opened] = [copy("speed-cache.img")?, copy("speed-qemu.img")?];
    let cache = format!("--filter=cache file {} cache-on-read=true", cached.display());
    for (name, line) in [
        (MEMORY, format!("{nbdkit} memory {}", mib * MIB)),
        (CACHE, format!("{nbdkit} {cache}")),
        (QEMU, format!("{qemu} {}", opened.display())),
    ] {
        servers.push((name, Peer::new(name, line).start(env.dir())?));
    }
    for (name, server) in &servers {
        let uri = server.uri();
        if *name == MEMORY {
            // Memory that was never written would be read faster than data.
            stdout_of(cmd!(300, "nbdcopy --sparse=0 {ours} {uri}"))?;
        }
        fio::run(&uri, 0, &["--rw=read", "--bs=1m", "--iodepth=4"])?;
    }
    Ok(servers)
}

/// Adds the claims and the record of one workload; the first samples are those of Larder.
fn judge(
    (workload, _, least, less_cpu): &Workload,
    samples: &[(&str, Samples)],
    claims: &mut Claims,
    record: &mut Record,
) -> Result<()> {
    let whats = ["requests", "processor time per request"].map(|it| format!("{workload}: {it}"));
    let name = |server: &str, statement: &str| format!("{server}: {statement}");
    for (server, samples) in samples {
        for (number, unit) in ["requests/s", "ns"].into_iter().enumerate() {
            record.series(&name(server, &whats[number]), unit, &samples[number], 0);
        }
    }
    let ours = &samples[0].1;
    for &(peer, required) in *least {
        let theirs = samples.iter().find(|it| it.0 == peer).context("a peer that did not run")?;
        let theirs = &theirs.1;
        // More requests are better, and less processor time.
        let rates = (0, "per s", Spread::of_ratios(&ours[0], &theirs[0]), required);
        let times = (1, "ns", Spread::of_ratios(&theirs[1], &ours[1]), 1.0);
        let is_both = *less_cpu && peer == MEMORY;
        for (number, unit, ratio, required) in
            [rates, times].into_iter().take(1 + usize::from(is_both))
        {
            let statement = &whats[number];
            let [mine, other] = [ours, theirs].map(|samples| median(&samples[number]));
            claims.add_with_peer(
                format!("{statement}, at least {required} times as good as {peer}"),
                format!("{}, {mine:.0} {unit}", ratio.times()),
                format!("{other:.0} {unit}"),
                ratio.median >= required,
            );
            record.comparison(
                statement,
                [&name("larder", statement), &name(peer, statement)],
                ratio,
                required,
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Verdict;

    #[test]
    fn more_requests_and_less_processor_time_are_better() {
        let mut record = Record::new(Path::new("."), "a test", &[], &json!({})).unwrap();
        let samples = |values: [f64; 3]| [values.to_vec(), values.to_vec()];
        let samples = [("larder", samples([150.0, 130.0, 140.0])), (MEMORY, samples([100.0; 3]))];
        let workload = ("reads", Client::Fio(""), &[(MEMORY, 1.4)][..], true);
        let mut claims = Claims::default();
        judge(&workload, &samples, &mut claims, &mut record).unwrap();
        let figures: Vec<_> = claims.list.iter().map(|it| (it.verdict, &*it.figure)).collect();
        assert_eq!(figures[0], (Verdict::Holds, "1.40 times (1.30 to 1.50), 140 per s"));
        assert_eq!(figures[1], (Verdict::Fails, "0.71 times (0.67 to 0.77), 140 ns"));
    }
}
