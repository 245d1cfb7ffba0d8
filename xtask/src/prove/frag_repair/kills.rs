//! Repairs that are killed at random moments, half of them while a program writes, appends to and
//! maps the same files.

use super::*;
use crate::daemon::Daemon;
use rustix::process::Signal;

const ROUNDS: u64 = 100;
const ROUNDS_QUICK: u64 = 6;
pub(super) const BYTES: u64 = 512 << 20;
pub(super) const FILES: usize = 24;
/// The first moment, and the last one, at which a repair is killed, in milliseconds.
const MOMENTS: std::ops::Range<u64> = 5..600;
/// Files that the writer changes.
const WRITTEN: usize = 4;

/// Changes files until SIGTERM, and then writes what they have to contain.
const WRITER: &str = r#"
import mmap, os, random, signal, sys
out, seed, *paths = sys.argv[1:]
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
chance = random.Random(int(seed))
files = [(os.open(path, os.O_RDWR), bytearray(open(path, "rb").read())) for path in paths]
print("ready", flush=True)
while not stop:
    number = chance.randrange(len(files))
    fd, data = files[number]
    bytes = chance.randbytes(chance.randrange(1, 9000))
    kind = chance.randrange(3)
    if kind == 0 and len(data) < 8 << 20:
        os.pwrite(fd, bytes, len(data))
        data += bytes
        continue
    at = chance.randrange(len(data) - len(bytes))
    if kind == 1:
        os.pwrite(fd, bytes, at)
    else:
        with mmap.mmap(fd, len(data)) as mapped:
            mapped[at:at + len(bytes)] = bytes
    data[at:at + len(bytes)] = bytes
for number, (fd, data) in enumerate(files):
    os.fsync(fd)
    open(os.path.join(out, str(number)), "wb").write(data)
"#;

pub(super) fn run(env: &Env, claims: &mut Claims, kind: Kind) -> Result<()> {
    let name = kind.name();
    let mut random = Rng::with_seed(env.options.seed);
    let (image, file_system) = make(env, &format!("kills-{name}"), kind, BYTES)?;
    let directory = age(env, &file_system, (FILES, FILE_BYTES))?;
    let expected = contents(&directory)?;
    file_system.unmount_unchecked()?;
    let rounds = env.choose(ROUNDS, ROUNDS_QUICK);
    let (mut killed, mut moved, mut wrong) = (0, 0, Vec::new());
    for round in 0..rounds {
        let copy = env.file(&format!("kills-{name}/copy.img"));
        stdout_of(cmd!(300, "cp --sparse=always {image} {copy}"))?;
        let state = Round { env, kind, copy: &copy, with_writer: round % 2 == 1 };
        match state.run(&expected, &mut random) {
            Ok((was_killed, was_moved)) => {
                killed += u64::from(was_killed);
                moved += u64::from(was_moved);
            }
            Err(error) => wrong.push(format!("round {round}: {error:#}")),
        }
    }
    for line in wrong.iter().take(3) {
        outln!("   {line}");
    }
    claims.add(
        format!(
            "{name}: killed at random moments, half of them beside a writer: no byte changed, clean"
        ),
        format!(
            "{rounds} rounds, {killed} killed, {moved} after some data was moved; {} wrong",
            wrong.len()
        ),
        wrong.is_empty() && killed > rounds / 2 && moved > rounds / 4,
    );
    Ok(())
}

/// A round: a repair, and its kill.
struct Round<'a> {
    env: &'a Env,
    kind: Kind,
    copy: &'a Path,
    with_writer: bool,
}

impl Round<'_> {
    /// Returns whether the repair was killed before its end, and whether extents were moved.
    fn run(&self, expected: &BTreeMap<String, String>, random: &mut Rng) -> Result<(bool, bool)> {
        let env = self.env;
        let directory = env.file(&format!("kills-{}", self.kind.name()));
        let file_system = FileSystem::attach(&directory, self.copy, self.kind)?;
        file_system.mount()?;
        let data = file_system.point().join("aged");
        let extents = extents(env, &data)?;
        let out = env.file("written");
        std::fs::create_dir_all(&out)?;
        let paths: Vec<PathBuf> =
            (1..=WRITTEN).map(|number| data.join(format!("file-{number}"))).collect();
        let writer = if self.with_writer {
            let seed = random.u32(..).to_string();
            let written = &paths;
            let mut writer = Daemon::start("a writer", env.dir(), |_| {
                cmd!("python3 -c {WRITER} {out} {seed} {written...}")
            })?;
            writer.wait_until(|it| it.stdout().contains("ready"))?;
            Some(writer)
        } else {
            None
        };
        let (larder, journal) = (&env.larder, env.file("kill-journal"));
        let options = ["--force", "--target", "100%", "--device", "disk", "--open-files"];
        let mut repair = Daemon::start("a repair", env.dir(), |_| {
            cmd!("{larder} frag repair {data} {options...} --journal {journal}")
        })?;
        std::thread::sleep(Duration::from_millis(random.u64(MOMENTS)));
        let was_killed = !repair.has_ended()?;
        let ended = if was_killed {
            repair.end(Signal::KILL)?
        } else {
            repair.wait(Duration::from_secs(10))?
        };
        if !was_killed {
            ensure!(ended.code == Some(0), "the repair failed: {}", ended.stderr);
        }
        if let Some(writer) = writer {
            writer.end_with_success(Signal::TERM)?;
        }
        let was_moved = self::extents(env, &data)? != extents;
        file_system.unmount()?;
        file_system.check()?;
        file_system.mount()?;
        let mut expected = expected.clone();
        for (number, path) in paths.iter().enumerate().filter(|_| self.with_writer) {
            let name = format!("./file-{}", number + 1);
            expected.remove(&name);
            image::compare(path, &out.join(number.to_string()))
                .with_context(|| format!("{name}, which was written"))?;
        }
        let mut found = contents(&data)?;
        found.retain(|name, _| expected.contains_key(name));
        ensure!(found == expected, "a file that was not written has other bytes");
        let names = std::fs::read_dir(&data)?.count();
        ensure!(names == FILES, "{names} names instead of {FILES}");
        file_system.unmount_unchecked()?;
        Ok((was_killed, was_moved))
    }
}

/// Returns the extents of all files.
fn extents(env: &Env, data: &Path) -> Result<Value> {
    let larder = &env.larder;
    let mut found = json_of(cmd!("{larder} frag {data} --extents --json"))?;
    let mut files = found["files"].take();
    let key = |file: &Value| file["path"].as_str().unwrap_or_default().to_owned();
    if let Some(files) = files.as_array_mut() {
        files.sort_by_key(key);
        for file in files.iter_mut() {
            *file = json!([file["path"], file["placed"]]);
        }
    }
    Ok(files)
}
