//! Models of devices: `larder model fit` and `larder model check` on devices of different kinds.
//! On throttled loop devices, and on a modeled device over NBD, the fitted model predicts eight
//! patterns. The loop device without a limit and the disk of this machine vary from run to run, so
//! the differences of two runs are printed beside those of the model.
//!
//! The images of the loop devices are in memory if possible, where the disk of this machine is no
//! part of the figures. The speed of the models themselves is a bench of larder-lab.

use super::long_tests::bench;
use super::prelude::*;
use crate::disk::Disk;
use crate::record::Record;

/// The maximum differences of the operations per second, p50 and p99.
const APART_MAX: [f64; 3] = [0.15, 0.15, 0.3];
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

    /// Adds a claim for each pattern. Times of microseconds are those of the processors, so the
    /// claim is skipped if two runs differ more than the model may.
    fn check(&self, claims: &mut Claims, record: &mut Record) -> Result<()> {
        let (_, model) = self.fit(true)?;
        let (first, second) = (self.rows(true, &model)?, self.rows(true, &model)?);
        for (first, second) in first.iter().zip(&second) {
            let Row { pattern, predicted, measured } = Row::of(first)?;
            let again = Row::of(second)?.measured;
            self.record(record, &pattern, &[measured, again], predicted);
            let statement =
                format!("{}: {pattern}: IOPS and p50 within 15 %, p99 within 30 %", self.name);
            let (apart, noise) = (differences(predicted, measured), differences(again, measured));
            if !is_within(noise) && !is_within(apart) {
                claims.skip(statement, format!("two runs differ by {}", percents(noise)));
                continue;
            }
            claims.add_with_peer(
                statement,
                format!("{} ({})", shown(predicted), percents(apart)),
                format!("measured: {}", shown(measured)),
                is_within(apart),
            );
        }
        Ok(())
    }

    /// Prints the differences of the model, and of two runs.
    fn show(&self, writes: bool, record: &mut Record) -> Result<()> {
        let (_, model) = self.fit(writes)?;
        let (first, second) = (self.rows(writes, &model)?, self.rows(writes, &model)?);
        for (first, second) in first.iter().zip(&second) {
            let Row { pattern, predicted, measured } = Row::of(first)?;
            let again = Row::of(second)?.measured;
            self.record(record, &pattern, &[measured, again], predicted);
            outln!(
                "   {}: {pattern}: {}, measured: {} ({}); two runs differ by {}",
                self.name,
                shown(predicted),
                shown(measured),
                percents(differences(predicted, measured)),
                percents(differences(again, measured)),
            );
        }
        Ok(())
    }

    fn record(
        &self,
        record: &mut Record,
        pattern: &str,
        measured: &[[f64; 3]],
        predicted: [f64; 3],
    ) {
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

/// A pattern, with its operations per second, p50 and p99.
struct Row {
    pattern: String,
    predicted: [f64; 3],
    measured: [f64; 3],
}

impl Row {
    fn of(row: &Value) -> Result<Self> {
        let values = |of: &str| -> Result<[f64; 3]> {
            let number = |key| number(&row[of], key);
            Ok([number("operations_per_s")?, number("p50_ns")?, number("p99_ns")?])
        };
        let pattern = row["pattern"].as_str().context("no pattern")?.to_owned();
        Ok(Row { pattern, predicted: values("predicted")?, measured: values("measured")? })
    }
}

fn differences(one: [f64; 3], other: [f64; 3]) -> [f64; 3] {
    std::array::from_fn(|index| one[index] / other[index] - 1.0)
}

fn is_within(differences: [f64; 3]) -> bool {
    differences.iter().zip(APART_MAX).all(|(apart, most)| apart.abs() <= most)
}

fn percents(differences: [f64; 3]) -> String {
    differences.map(|it| format!("{:+.0} %", 100.0 * it)).join(", ")
}

fn shown([rate, p50, p99]: [f64; 3]) -> String {
    format!("{rate:.1}/s, {:.2} and {:.2} ms", p50 / 1e6, p99 / 1e6)
}
