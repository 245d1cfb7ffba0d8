//! Counters of the host beside those of iostat, sar and procfs, over one load: a modeled disk with
//! reads and writes, and a process that does not fit its memory, so that it uses swap space.

use super::bottleneck::situations::{ModeledDisk, fio};
use super::prelude::*;
use crate::cleanup::Cleanup;
use crate::daemon::{Daemon, poll_until};
use crate::memory_group::MemoryGroup;
use crate::record::Record;

/// Seconds of the measurement.
const SECONDS: u64 = 10;
/// The maximum relative difference: all programs measure the same seconds, but begin apart.
const APART_MAX: f64 = 0.05;
/// A difference that does not count: shares, and numbers per second.
const APART_SMALL: f64 = 0.01;
const SWAP_MIB: u64 = 256;
/// Memory of the process that uses swap space, and its limit.
const USED_MIB: u64 = 160;
const LIMIT_MIB: u64 = 96;
const USES: &str = "(head -c \"$1\" /dev/zero; sleep 300) | tail > /dev/null";
const SWAPOFF: &str = "swapoff \"$1\"";
/// Model of the disk; its requests take about 5 ms.
const MODEL: &str = "iops:200,depth:1";

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    require(MemoryGroup::unavailable_reason())?;
    require(run::unmet_requirement(&["nbdfuse", "fio", "iostat", "sar", "losetup"]))?;
    let settings = json!({ "seconds": SECONDS, "model": MODEL });
    let statement = "counters of the host, beside iostat, sar and procfs";
    let mut record = Record::new(&env.root, statement, &["fio"], &settings)?;
    let disk = ModeledDisk::start(env, MODEL)?;
    let name = disk.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
    let _swap = swap(env)?;
    let group = MemoryGroup::with_limit(LIMIT_MIB)?;
    let bytes = (USED_MIB * MIB).to_string();
    let user =
        group.start("the user of swap space", env.dir(), &cmd!("sh -c {USES} sh {bytes}"))?;
    let options = ["--rw=randrw", "--rwmixread=70", "--direct=1", "--bs=8k", "--numjobs=1"];
    let load = |_: &Path| fio(&options).command(disk.path(), env.options.seed);
    let load = Daemon::start("fio", env.dir(), load)?;
    std::thread::sleep(Duration::from_secs(3));
    let measured = Measured::take(env, &name, load.pid())?;
    claims.check("queue/iostats is 0: the disk is not counted", || uncounted(env, &name));
    drop((load, user, group));
    disk.stop()?;
    for row in measured.rows()? {
        let apart = (row.ours - row.theirs).abs();
        let holds = apart <= APART_MAX * row.theirs.abs() || apart <= APART_SMALL;
        let statement = format!("{} ({})", row.counter, row.peer);
        claims.add_with_peer(statement, figure(row.ours), figure(row.theirs), holds);
        record.series(
            &format!("{}: Larder, {}", row.counter, row.peer),
            "",
            &[row.ours, row.theirs],
            6,
        );
    }
    if !env.options.quick {
        outln!("   recorded in {}", record.write("counters")?);
    }
    Ok(())
}

/// Switches the counters of the disk off; returns what the command says of it.
fn uncounted(env: &Env, disk: &str) -> Result<String> {
    let (larder, file) = (&env.larder, format!("/sys/block/{disk}/queue/iostats"));
    let write = |value: &str| std::fs::write(&file, value).with_context(|| format!("write {file}"));
    write("0")?;
    let found = json_of(cmd!("{larder} advise --live --for 2s --json"));
    write("1")?;
    let found = found?;
    let counters = &found["counters"];
    let disks = counters["disks"].as_array().context("no disks")?;
    ensure!(disks.iter().all(|it| it["disk"] != disk), "{disk} has counters");
    ensure!(counters["uncounted_disks"] == json!([disk]), "it is not named: {counters}");
    Ok(format!("\"{}\"", found["verdict"].as_str().unwrap_or_default()))
}

fn figure(value: f64) -> String {
    if value.abs() >= 100.0 { format!("{value:.0}") } else { format!("{value:.4}") }
}

/// Adds swap space on the scratch directory.
fn swap(env: &Env) -> Result<Cleanup> {
    let (file, mib) = (env.file("swap"), SWAP_MIB.to_string());
    stdout_of(cmd!("dd if=/dev/zero of={file} bs=1M count={mib} status=none"))?;
    stdout_of(cmd!("chmod 600 {file}"))?;
    stdout_of(cmd!("mkswap {file}"))?;
    stdout_of(cmd!("swapon {file}"))?;
    Ok(Cleanup::start(SWAPOFF, &[&file.to_string_lossy()])?)
}

/// The same seconds, from all sources.
struct Measured {
    ours: Value,
    iostat: Value,
    sar: Value,
    before: Procfs,
    after: Procfs,
    disk: String,
}

/// A counter from two sources.
struct Row {
    counter: &'static str,
    peer: &'static str,
    ours: f64,
    theirs: f64,
}

impl Measured {
    fn take(env: &Env, disk: &str, load: u32) -> Result<Measured> {
        let (larder, seconds) = (&env.larder, SECONDS.to_string());
        let time = format!("{seconds}s");
        let start = |name: &str, command: Command| Daemon::start(name, env.dir(), |_| command);
        let file = env.file("sar.bin");
        let iostat = start("iostat", cmd!("iostat -x -o JSON {seconds} 2"))?;
        let sar = start("sar", cmd!("sar -A -o {file} {seconds} 1"))?;
        let process = worker_of(load)?;
        let before = Procfs::read(disk, process)?;
        let ours = json_of(cmd!("{larder} advise --live --for {time} --json"))?;
        let after = Procfs::read(disk, process)?;
        let limit = Duration::from_secs(20);
        poll_until("iostat ends", limit, || {
            Ok(serde_json::from_str::<Value>(&iostat.stdout()).is_ok())
        })?;
        let iostat: Value = serde_json::from_str(&iostat.stdout()).context("read iostat's JSON")?;
        sar.wait(limit)?;
        let sar = json_of(cmd!("sadf -j {file} -- -d -u -S -r -W"))?;
        Ok(Measured { ours, iostat, sar, before, after, disk: disk.to_owned() })
    }

    fn rows(&self) -> Result<Vec<Row>> {
        let last = |whole: &Value| {
            let reports = whole["sysstat"]["hosts"][0]["statistics"].as_array().cloned();
            reports.and_then(|it| it.last().cloned()).context("no report")
        };
        let (iostat, sar) = (last(&self.iostat)?, last(&self.sar)?);
        let mut rows = Vec::new();
        rows.extend(self.disk_rows(&iostat, &sar)?);
        rows.extend(self.host_rows(&iostat, &sar)?);
        rows.extend(self.process_rows()?);
        Ok(rows)
    }

    fn seconds(&self) -> f64 {
        self.after.at.duration_since(self.before.at).as_secs_f64()
    }

    fn disk_rows(&self, iostat: &Value, sar: &Value) -> Result<Vec<Row>> {
        let disk = self.find(&self.ours["counters"]["disks"], "disk")?;
        let of_iostat = self.find(&iostat["disk"], "disk_device")?;
        let of_sar = self.find(&sar["disk"], "disk-device")?;
        let ours = |name: &str| number(disk, name);
        let iostat = |name: &str| number(of_iostat, name);
        let sar = |name: &str| number(of_sar, name);
        let (reads, writes) = (ours("reads_per_s")?, ours("writes_per_s")?);
        let (read_bytes, write_bytes) = (ours("read_bytes_per_s")?, ours("write_bytes_per_s")?);
        let (read_time, write_time) = (ours("read_time")?, ours("write_time")?);
        let (queue, busy) = (ours("queue")?, ours("busy")?);
        let each = (read_time + write_time) / (reads + writes);
        let field = |index: usize| {
            (self.after.disk[index] - self.before.disk[index]) / self.seconds() / 1e3
        };
        let (kib, ms) = (1024.0, 1e-3);
        let row = |counter, peer, ours, theirs| Row { counter, peer, ours, theirs };
        Ok(vec![
            row("reads/s", "iostat r/s", reads, iostat("r/s")?),
            row("writes/s", "iostat w/s", writes, iostat("w/s")?),
            row("sec/read", "iostat r_await", ours("seconds_per_read")?, iostat("r_await")? * ms),
            row("sec/write", "iostat w_await", ours("seconds_per_write")?, iostat("w_await")? * ms),
            row("bytes/read", "iostat rareq-sz", read_bytes / reads, iostat("rareq-sz")? * kib),
            row("bytes/write", "iostat wareq-sz", write_bytes / writes, iostat("wareq-sz")? * kib),
            row("queue", "iostat aqu-sz", queue, iostat("aqu-sz")?),
            row("busy", "iostat %util", busy, iostat("util")? / 100.0),
            row("requests/s", "sar tps", reads + writes, sar("tps")?),
            row("bytes read/s", "sar rkB/s", read_bytes, sar("rkB")? * kib),
            row("bytes written/s", "sar wkB/s", write_bytes, sar("wkB")? * kib),
            row("sec/request", "sar await", each, sar("await")? * ms),
            row("queue", "sar aqu-sz", queue, sar("aqu-sz")?),
            row("busy", "sar %util", busy, sar("util-percent")? / 100.0),
            row("% read time", "diskstats 4", read_time, field(3)),
            row("% write time", "diskstats 8", write_time, field(7)),
            row("% disk time", "diskstats 4, 8", read_time + write_time, field(3) + field(7)),
        ])
    }

    /// Returns the entry of the disk in a list.
    fn find<'a>(&self, list: &'a Value, key: &str) -> Result<&'a Value> {
        let list = list.as_array().context("no list of disks")?;
        list.iter().find(|it| it[key] == self.disk).with_context(|| format!("no {}", self.disk))
    }

    fn host_rows(&self, iostat: &Value, sar: &Value) -> Result<Vec<Row>> {
        let counters = &self.ours["counters"];
        let busy = |from: &Value| -> Result<f64> {
            Ok(1.0 - (number(from, "idle")? + number(from, "iowait")?) / 100.0)
        };
        let ours = number(&counters["cpu"], "busy")?;
        let memory = |name: &str| number(&counters["memory"], name);
        let swapped = number(&sar["memory"], "swpused-percent")? / 100.0;
        let pages = &sar["swap-pages"];
        let pages = number(pages, "pswpin")? + number(pages, "pswpout")?;
        let (cache, written) = (memory("cache_last_bytes")?, memory("lazy_pages_per_s")?);
        let of_vmstat = (self.after.written - self.before.written) / self.seconds();
        let row = |counter, peer, ours, theirs| Row { counter, peer, ours, theirs };
        Ok(vec![
            row("processors busy", "iostat", ours, busy(&iostat["avg-cpu"])?),
            row("processors busy", "sar", ours, busy(&sar["cpu-load"][0])?),
            row("paging file in use", "sar %swpused", memory("paging_file_use")?, swapped),
            row("pages/s", "sar pswpin/s + pswpout/s", memory("pages_per_s")?, pages),
            row("cache", "meminfo Cached + Buffers - Shmem", cache, self.after.cache_bytes),
            row("lazy-write pages/s", "vmstat nr_written", written, of_vmstat),
        ])
    }

    fn process_rows(&self) -> Result<Vec<Row>> {
        let all = self.ours["counters"]["processes"].as_array().context("no processes")?;
        let process = all.iter().find(|it| it["pid"] == self.before.process);
        let process = process.context("fio is not listed")?;
        let row = |(index, (counter, peer, name)): (usize, (_, _, &str))| {
            let theirs = (self.after.io[index] - self.before.io[index]) / self.seconds();
            Ok(Row { counter, peer, ours: number(process, name)?, theirs })
        };
        PROCESS.into_iter().enumerate().map(row).collect()
    }
}

/// Counters of a process: name, field of /proc/PID/io, name in JSON.
const PROCESS: [(&str, &str, &str); 6] = [
    ("IO Read Bytes/sec", "/proc/PID/io rchar", "read_bytes_per_s"),
    ("IO Write Bytes/sec", "/proc/PID/io wchar", "write_bytes_per_s"),
    ("IO Read Operations/sec", "/proc/PID/io syscr", "reads_per_s"),
    ("IO Write Operations/sec", "/proc/PID/io syscw", "writes_per_s"),
    ("from disks/s", "/proc/PID/io read_bytes", "disk_read_bytes_per_s"),
    ("to disks/s", "/proc/PID/io write_bytes", "disk_write_bytes_per_s"),
];

/// Readings of procfs.
struct Procfs {
    at: Instant,
    /// The fields of the disk in /proc/diskstats after its name.
    disk: Vec<f64>,
    cache_bytes: f64,
    written: f64,
    process: u32,
    io: Vec<f64>,
}

impl Procfs {
    fn read(disk: &str, process: u32) -> Result<Procfs> {
        let file =
            |path: &str| std::fs::read_to_string(path).with_context(|| format!("read {path}"));
        let diskstats = file("/proc/diskstats")?;
        let words = diskstats.lines().map(|line| line.split_whitespace().skip(2));
        let mut of_disk = words.filter(|words| words.clone().next() == Some(disk));
        let fields = of_disk.next().with_context(|| format!("no {disk} in /proc/diskstats"))?;
        let (meminfo, vmstat) = (file("/proc/meminfo")?, file("/proc/vmstat")?);
        let io = file(&format!("/proc/{process}/io"))?;
        let field = |text: &str, name: &str| -> Result<f64> {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let word = line.and_then(|rest| rest.split_whitespace().next());
            word.with_context(|| format!("no {name}"))?.parse().context("a number")
        };
        let kib = |name: &str| Ok::<_, anyhow::Error>(field(&meminfo, name)? * 1024.0);
        let names = PROCESS.iter().map(|(_, peer, _)| peer.rsplit(' ').next().unwrap_or_default());
        Ok(Procfs {
            at: Instant::now(),
            disk: fields.skip(1).map(|word| Ok(word.parse()?)).collect::<Result<_>>()?,
            cache_bytes: kib("Cached:")? + kib("Buffers:")? - kib("Shmem:")?,
            written: field(&vmstat, "nr_written ")?,
            process,
            io: names.map(|name| field(&io, &format!("{name}:"))).collect::<Result<_>>()?,
        })
    }
}

/// Returns the child of fio that makes the requests: the one with the most bytes read.
fn worker_of(fio: u32) -> Result<u32> {
    let fio = fio.to_string();
    let pids = stdout_of(cmd!("pgrep -P {fio}"))?;
    let read = |pid: &str| -> Option<(u64, u32)> {
        let io = std::fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
        let bytes = io.lines().find_map(|line| line.strip_prefix("read_bytes: "))?;
        Some((bytes.parse().ok()?, pid.parse().ok()?))
    };
    pids.lines().filter_map(read).max().map(|(_, pid)| pid).context("no process of fio")
}
