//! Losses of power during a repair: the device as it is at random moments, which clones of its
//! image keep. A clone of XFS has all writes that were complete when it began, and none that began
//! later.

use super::kills::{BYTES, FILES};
use super::*;
use crate::daemon::Daemon;

const MOMENTS: usize = 40;
const MOMENTS_QUICK: usize = 4;
/// Length of the file system with the image and its clones.
const OUTER_BYTES: u64 = 16 * GIB;
/// Bytes per second of the repair, so that it lasts for all moments.
const RATE: &str = "12MiB";

pub(super) fn run(env: &Env, claims: &mut Claims, kind: Kind) -> Result<()> {
    let name = kind.name();
    let mut random = Rng::with_seed(env.options.seed);
    let (_, outer) = make(env, &format!("power-{name}"), Kind::Xfs, OUTER_BYTES)?;
    let image = image::create_sparse(&outer.point().join("inner.img"), BYTES)?;
    let directory = env.file(&format!("power-{name}/inner"));
    std::fs::create_dir_all(&directory).context("make a directory")?;
    let inner = FileSystem::attach(&directory, &image, kind)?;
    inner.make()?;
    inner.mount()?;
    let data = age(env, &inner, (FILES, FILE_BYTES))?;
    let expected = contents(&data)?;
    let (larder, journal) = (&env.larder, env.file("power-journal"));
    let options = ["--force", "--target", "100%", "--device", "disk", "--rate", RATE];
    let mut repair = Daemon::start("a repair", env.dir(), |_| {
        cmd!("{larder} frag repair {data} {options...} --journal {journal}")
    })?;
    let mut clones = Vec::new();
    while clones.len() < env.choose(MOMENTS, MOMENTS_QUICK) && !repair.has_ended()? {
        std::thread::sleep(Duration::from_millis(random.u64(20..300)));
        let clone = outer.point().join(format!("clone-{}.img", clones.len()));
        stdout_of(cmd!("cp --reflink=always {image} {clone}"))?;
        clones.push(clone);
    }
    let ended = repair.wait(Duration::from_mins(2))?;
    ensure!(ended.code == Some(0), "the repair failed: {}", ended.stderr);
    inner.unmount_unchecked()?;
    let mut wrong = Vec::new();
    for (number, clone) in clones.iter().enumerate() {
        let same = || -> Result<()> {
            // Direct I/O of a file with shared blocks needs 4 KiB, the sectors of its device then.
            let copy = env.file(&format!("power-{name}/copy.img"));
            stdout_of(cmd!(300, "cp --sparse=always {clone} {copy}"))?;
            let file_system = FileSystem::attach(&directory, &copy, kind)?;
            file_system.mount()?;
            let found = contents(&file_system.point().join("aged"))?;
            file_system.end()?;
            ensure!(found == expected, "other content");
            Ok(())
        };
        if let Err(error) = same() {
            wrong.push(format!("moment {number}: {error:#}"));
        }
    }
    for line in wrong.iter().take(3) {
        outln!("   {line}");
    }
    claims.add(
        format!("{name}: power lost at random moments: no byte changed, clean"),
        format!("{} moments of a repair; {} wrong", clones.len(), wrong.len()),
        wrong.is_empty() && clones.len() >= env.choose(MOMENTS / 2, MOMENTS_QUICK),
    );
    outer.unmount_unchecked()
}
