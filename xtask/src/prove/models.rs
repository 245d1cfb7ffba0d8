//! Models of devices: `larder model fit` and `larder model check` on devices of different kinds.
//! On throttled loop devices, and on a modeled device over NBD, the fitted model predicts eight
//! patterns: the medians of three runs. The loop device without a limit and the disk of this
//! machine vary from run to run, so the differences of the runs are printed beside those of the
//! model.
//!
//! The images of the loop devices are in memory if possible, where the disk of this machine is no
//! part of the figures. The speed of the models themselves is a bench of larder-lab.

use super::long_tests::bench;
use super::prelude::*;
use crate::disk::Disk;
use crate::record::Record;

/// The maximum differences of the operations per second, p50 and p99.
const APART_MAX: [f64; 3] = [0.15, 0.15, 0.3];
/// Runs of the patterns on a device; an odd number.
const RUNS: usize = 3;
/// A file system in memory.
const MEMORY: &str = "/dev/shm";
const IMAGE_MIB: u64 = 256;
/// The limits of the throttled devices.
const OPERATIONS_PER_S: u32 = 100;
const BYTES_PER_S: u64 = 2 * MIB;
/// The modeled device: the limits of a small volume of a cloud.
const MODEL: &str = "iops:500,bytes:60MiB,latency:5ms";

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    let settings = json!({ "image_bytes": IMAGE_MIB * MIB, "model": MODEL });
    let mut record = Record::new(&env.root, "models fitted to devices", &[], &settings)?;
    loop_devices(env, claims, &mut record)?;
    modeled_device(env, claims, &mut record)?;
    // A file without holes.
    let (image, mib) = (env.file("disk.img"), IMAGE_MIB.to_string());
    stdout_of(cmd!("dd if=/dev/urandom of={image} bs=1M count={mib} conv=fsync status=none"))?;
    let proof = Proof { env, name: "the disk of this machine", target: &text(&image) };
    proof.show(false, &mut record)?;
    bench(env, claims, "larder-lab --bench models -- claims")?;
    if !env.options.quick {
        outln!("   recorded in {}", record.write("models")?);
    }
    Ok(())
}

fn loop_devices(env: &Env, claims: &mut Claims, record: &mut Record) -> Result<()> {
    require(Disk::unavailable_reason())?;
    let memory = Path::new(MEMORY);
    let base = if memory.is_dir() { memory } else { env.dir() };
    let directory = tempfile::Builder::new().prefix("larder-models-").tempdir_in(base);
    let directory = directory.context("make a directory for images")?;
    let image = image::create_filled(&directory.path().join("a.img"), IMAGE_MIB, env.options.seed)?;
    let disk = Disk::attach(&image)?;
    let target = text(disk.path());
    let proof = |name| Proof { env, name, target: &target };
    proof("a loop device in memory").show(true, record)?;
    disk.limit(OPERATIONS_PER_S)?;
    proof("100 operations/s").check(claims, record)?;
    disk.limit(0)?;
    disk.limit_bytes(BYTES_PER_S)?;
    proof("2 MiB/s").check(claims, record)?;
    let numbers = disk.numbers.clone();
    drop(disk);
    claims.check("afterwards: no limit", || {
        ensure!(!Disk::is_limited(&numbers)?, "{numbers} still has a limit");
        Ok("as before".into())
    });
    Ok(())
}

fn modeled_device(env: &Env, claims: &mut Claims, record: &mut Record) -> Result<()> {
    let image = image::create_filled(&env.file("modeled.img"), IMAGE_MIB, env.options.seed)?;
    let (larder, image) = (text(&env.larder), text(&image));
    let line = format!("{larder} model serve {MODEL} {image} --listen unix:SOCKET");
    let server = Peer::new("larder model serve", line).start(env.dir())?;
    let (name, uri) = ("a modeled device over NBD", server.uri());
    Proof { env, name, target: &uri }.check(claims, record)?;
    server.stop_clean().map(drop)
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// A device that is measured.
struct Proof<'a> {
    env: &'a Env,
    name: &'a str,
    target: &'a str,
}

impl Proof<'_> {
    /// Fits a model; returns its specification, and the file.
    fn fit(&self, writes: bool) -> Result<(String, PathBuf)> {
        let (larder, target) = (&self.env.larder, self.target);
        let file = self.env.file("model.json");
        let destructive = self.destructive(writes);
        let fitted = cmd!("{larder} model fit {target} {destructive...} --output {file} --json");
        let model = json_of(fitted)?["model"].as_str().context("no model")?.to_owned();
        outln!("   {}: {model}", self.name);
        Ok((model, file))
    }

    /// Returns the rows of `larder model check`.
    fn rows(&self, writes: bool, model: &Path) -> Result<Vec<Value>> {
        let (larder, target) = (&self.env.larder, self.target);
        let (store, time) = (format!("file:{}", text(model)), self.env.choose("8s", "2s"));
        let destructive = self.destructive(writes);
        let options = ["--store", &store, "--for", time, "--json"];
        let checked = json_of(cmd!("{larder} model check {target} {destructive...} {options...}"))?;
        checked["comparisons"].as_array().cloned().context("no comparisons")
    }

    fn destructive(&self, writes: bool) -> Vec<&str> {
        if writes { vec!["--destructive", self.target] } else { Vec::new() }
    }

    /// Returns the rows of all runs, in the order of the patterns.
    fn all_rows(&self, writes: bool) -> Result<Vec<Row>> {
        let (_, model) = self.fit(writes)?;
        let mut rows: Vec<Row> = Vec::new();
        for run in 0..RUNS {
            for (index, row) in self.rows(writes, &model)?.iter().enumerate() {
                match (run, rows.get_mut(index)) {
                    (0, _) => rows.push(Row::of(row)?),
                    (_, Some(of_pattern)) => of_pattern.measured.push(values(&row["measured"])?),
                    (_, None) => bail!("run {run} has more patterns"),
                }
            }
        }
        Ok(rows)
    }

    /// Adds a claim for each pattern, about the medians of the runs.
    fn check(&self, claims: &mut Claims, record: &mut Record) -> Result<()> {
        for row in self.all_rows(true)? {
            self.record(record, &row);
            let Row { pattern, predicted, .. } = &row;
            let measured = row.median();
            let apart = differences(*predicted, measured);
            claims.add_with_peer(
                format!("{}: {pattern}: IOPS and p50 within 15 %, p99 within 30 %", self.name),
                format!("{} ({})", shown(*predicted), percents(apart)),
                format!("measured: {}; {}", shown(measured), row.spread()),
                apart.iter().zip(APART_MAX).all(|(apart, most)| apart.abs() <= most),
            );
        }
        Ok(())
    }

    /// Prints the differences of the model, and those of the runs.
    fn show(&self, writes: bool, record: &mut Record) -> Result<()> {
        for row in self.all_rows(writes)? {
            self.record(record, &row);
            let Row { pattern, predicted, .. } = &row;
            let measured = row.median();
            outln!(
                "   {}: {pattern}: {}, measured: {} ({}); {}",
                self.name,
                shown(*predicted),
                shown(measured),
                percents(differences(*predicted, measured)),
                row.spread(),
            );
        }
        Ok(())
    }

    fn record(&self, record: &mut Record, row: &Row) {
        let Row { pattern, predicted, measured } = row;
        for (index, (quantity, unit)) in
            [("IOPS", "operations/s"), ("p50", "ns"), ("p99", "ns")].into_iter().enumerate()
        {
            let series = format!("{}: {pattern}: {quantity}", self.name);
            let values: Vec<f64> = measured.iter().map(|run| run[index]).collect();
            record.series(&format!("{series}, measured"), unit, &values, 0);
            record.series(&format!("{series}, predicted"), unit, &[predicted[index]], 0);
        }
    }
}

/// A pattern, with its operations per second, p50 and p99: the predicted ones, and those of each
/// run.
struct Row {
    pattern: String,
    predicted: [f64; 3],
    measured: Vec<[f64; 3]>,
}

impl Row {
    fn of(row: &Value) -> Result<Self> {
        let pattern = row["pattern"].as_str().context("no pattern")?.to_owned();
        let measured = vec![values(&row["measured"])?];
        Ok(Row { pattern, predicted: values(&row["predicted"])?, measured })
    }

    /// Returns a value of all runs in order.
    fn sorted(&self, index: usize) -> Vec<f64> {
        let mut values: Vec<f64> = self.measured.iter().map(|run| run[index]).collect();
        values.sort_unstable_by(f64::total_cmp);
        values
    }

    fn median(&self) -> [f64; 3] {
        std::array::from_fn(|index| self.sorted(index)[RUNS / 2])
    }

    fn spread(&self) -> String {
        let spread = std::array::from_fn(|index| {
            let sorted = self.sorted(index);
            sorted[RUNS - 1] / sorted[0] - 1.0
        });
        format!("{RUNS} runs differ by {}", percents(spread))
    }
}

/// Returns the operations per second, p50 and p99 of a result.
fn values(result: &Value) -> Result<[f64; 3]> {
    let number = |key| number(result, key);
    Ok([number("operations_per_s")?, number("p50_ns")?, number("p99_ns")?])
}

fn differences(one: [f64; 3], other: [f64; 3]) -> [f64; 3] {
    std::array::from_fn(|index| one[index] / other[index] - 1.0)
}

fn percents(differences: [f64; 3]) -> String {
    differences.map(|it| format!("{:+.0} %", 100.0 * it)).join(", ")
}

fn shown([rate, p50, p99]: [f64; 3]) -> String {
    format!("{rate:.1}/s, {:.2} and {:.2} ms", p50 / 1e6, p99 / 1e6)
}
