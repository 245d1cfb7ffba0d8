//! Extents and free space beside those of other programs.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;

use super::*;

/// Files of each file system.
const FILES: u64 = 10_000;
const FILES_QUICK: u64 = 600;
const BLOCK: u64 = 4096;
const BLOCK_BYTES: usize = 4096;
/// Commands of `xfs_db`.
const SUPERBLOCK: &str = "sb 0";
const GROUPS: &str = "p agcount";
const LISTED: &str = "p flcount";
/// Length of the file systems.
const BYTES: u64 = 2 << 30;

/// An extent: logical and physical byte, length, and the flags that both programs print.
type Extent = (u64, u64, u64, Vec<String>);

/// Files of all kinds: the number selects the kind.
fn make_file(directory: &Path, number: u64, kind: Kind, random: &mut Rng) -> Result<()> {
    let path =
        directory.join(format!("{} {number}", ["a", "b\n", "c'"][usize::try_from(number % 3)?]));
    let file = OpenOptions::new().create(true).truncate(true).write(true).open(&path)?;
    let blocks = random.u64(1..24);
    let data = |blocks: u64| {
        vec![number.to_le_bytes()[0] | 1; usize::try_from(blocks * BLOCK).unwrap_or(0)]
    };
    match number % 8 {
        // Stored with the metadata, where the file system does that.
        1 => file.write_all_at(&data(1)[..random.usize(1..100)], 0)?,
        2 => {
            for hole in 0..random.u64(1..6) {
                file.write_all_at(&data(1), (2 * hole + 1) * BLOCK * 2)?;
            }
            file.set_len(blocks * 100 * BLOCK)?;
        }
        3 => {
            rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, blocks * BLOCK)?;
            file.write_all_at(&data(1), (blocks / 2) * BLOCK)?;
        }
        // Empty, and allocated behind its end.
        4 => {
            let keep = rustix::fs::FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&file, keep, 0, blocks * BLOCK)?;
        }
        5 if kind != Kind::Ext4 => {
            drop(file);
            let source = directory.join("source");
            stdout_of(cmd!("cp --reflink=always {source} {path}"))?;
        }
        5 => {}
        // Fragments: blocks that are written in reverse order, each made durable.
        6 => {
            for block in (0..blocks.min(6)).rev() {
                file.write_all_at(&data(1), block * BLOCK)?;
                file.sync_data()?;
            }
        }
        // The last ones are delayed: not written before the comparison.
        _ => file.write_all_at(&data(blocks), 0)?,
    }
    Ok(())
}

/// Compares the extents of all files with those of filefrag.
pub(super) fn extents(env: &Env, claims: &mut Claims, kind: Kind) -> Result<()> {
    let name = kind.name();
    let files = env.choose(FILES, FILES_QUICK);
    let file_system = file_system(env, name, kind, BYTES)?;
    if kind == Kind::Btrfs {
        let (point, option) = (file_system.point(), "remount,compress=zstd");
        stdout_of(cmd!("mount -o {option} {point}"))?;
    }
    let directory = file_system.point().join("tree");
    std::fs::create_dir(&directory)?;
    let mut source = File::create(directory.join("source"))?;
    source.write_all(&vec![7; 40 * BLOCK_BYTES])?;
    source.sync_all()?;
    drop(source);
    let mut random = Rng::with_seed(env.options.seed);
    for number in 0..files {
        let below = directory.join((number % 7).to_string());
        std::fs::create_dir_all(&below)?;
        if number < 7 {
            std::fs::copy(directory.join("source"), below.join("source"))?;
        }
        make_file(&below, number, kind, &mut random)?;
    }
    let before = filefrag(&directory)?;
    let larder = &env.larder;
    let rows = "1000000";
    let found = json_of(cmd!(300, "{larder} frag {directory} --extents --rows {rows} --json"))?;
    let after = filefrag(&directory)?;
    let ours = ours(&found)?;
    ensure!(ours.len() == before.len(), "{} files instead of {}", ours.len(), before.len());
    // Delayed extents can be allocated between the two runs of filefrag.
    let stable: Vec<_> = before.iter().filter(|(path, it)| after.get(*path) == Some(it)).collect();
    let apart: Vec<_> = stable.iter().filter(|(path, it)| ours.get(*path) != Some(it)).collect();
    for (path, it) in apart.iter().take(3) {
        outln!("   {path:?}: filefrag {it:?}, larder {:?}", ours.get(*path));
    }
    let with = |word: &str| {
        let has = |it: &Vec<Extent>| it.iter().any(|it| it.3.iter().any(|flag| flag == word));
        stable.iter().filter(|(_, it)| has(&it.1)).count()
    };
    let kinds = ["inline", "unwritten", "shared", "encoded", "delalloc"];
    let kinds: Vec<String> = kinds.iter().map(|word| format!("{} {word}", with(word))).collect();
    claims.add_with_peer(
        format!("{name}: extents and number of fragments of each file are those of filefrag"),
        format!("{} of {} files equal", stable.len() - apart.len(), stable.len()),
        format!("filefrag: {}", kinds.join(", ")),
        apart.is_empty() && stable.len() as u64 > files * 9 / 10,
    );
    file_system.unmount_unchecked()
}

/// Returns the fragments and extents of each file by path, in the escaped form of larder.
fn ours(found: &Value) -> Result<BTreeMap<String, (u64, Vec<Extent>)>> {
    const FLAGS: [(u64, &str); 8] = [
        (0x1, "last"),
        (0x2, "unknown_loc"),
        (0x4, "delalloc"),
        (0x8, "encoded"),
        (0x100, "not_aligned"),
        (0x200, "inline"),
        (0x800, "unwritten"),
        (0x2000, "shared"),
    ];
    let mut files = BTreeMap::new();
    for file in found["files"].as_array().context("files")? {
        let extent = |it: &Value| -> Result<Extent> {
            let field = |name: &str| it[name].as_u64().with_context(|| format!("{name} of {it}"));
            let flags = field("flags")?;
            let names = FLAGS.iter().filter(|it| flags & it.0 != 0).map(|it| it.1.to_owned());
            // filefrag prints no length of an extent without a place.
            let bytes = if flags & 0x2 == 0 { field("bytes")? } else { 0 };
            Ok((field("logical")?, field("physical")?, bytes, names.collect()))
        };
        let extents = file["placed"].as_array().context("extents")?;
        let extents: Vec<Extent> = extents.iter().map(extent).collect::<Result<_>>()?;
        let path = file["path"].as_str().context("a path")?.to_owned();
        let fragments = file["fragments"].as_u64().context("fragments")?;
        files.insert(path, (if is_vague(&extents) { 0 } else { fragments }, extents));
    }
    Ok(files)
}

/// Returns the same from filefrag. Its number of extents is that of the fragments.
fn filefrag(directory: &Path) -> Result<BTreeMap<String, (u64, Vec<Extent>)>> {
    const SCRIPT: &str = "find \"$1\" -type f -print0 | xargs -0 filefrag -v -b1";
    let out = stdout_of(cmd!(300, "sh -c {SCRIPT} sh {directory}"))?;
    let (mut files, mut extents, mut name) = (BTreeMap::new(), Vec::new(), String::new());
    for line in out.split('\n') {
        if let Some((path, found)) = line.rsplit_once(": ").filter(|it| it.1.ends_with("found")) {
            // A name with a newline is on two lines.
            let path = format!("{name}{path}");
            name.clear();
            let number: u64 = found.split(' ').next().unwrap_or_default().parse()?;
            let placed = extents.iter().filter(|it: &&Extent| is_placed(it)).count();
            let number = if placed == 0 || is_vague(&extents) { 0 } else { number };
            files.insert(path, (number, std::mem::take(&mut extents)));
            continue;
        }
        let Some(extent) = extent_of(line) else {
            let is_text =
                ["Filesystem ", "File size of ", " ext:"].iter().any(|it| line.starts_with(it));
            if !is_text && line.starts_with('/') {
                name = format!("{line}\n");
            }
            continue;
        };
        extents.push(extent);
    }
    Ok(files)
}

/// Returns true if filefrag counts otherwise: it takes compressed extents for as long as their
/// content, and delayed ones for jumps to the begin of the device.
fn is_vague(extents: &[Extent]) -> bool {
    let is_vague = |flag: &String| flag == "encoded" || flag == "unknown_loc";
    extents.iter().any(|it| it.3.iter().any(is_vague))
}

fn is_placed(extent: &Extent) -> bool {
    !["unknown_loc", "delalloc", "inline"].iter().any(|word| extent.3.iter().any(|it| it == word))
}

/// Returns the extent of a line such as
/// `   0:        0..   28671:   16778240..  16806911:  28672:             last,eof`.
fn extent_of(line: &str) -> Option<Extent> {
    let fields: Vec<&str> = line.split(':').map(str::trim).collect();
    let [number, logical, physical, len, rest @ ..] = &fields[..] else { return None };
    let _: u64 = number.parse().ok()?;
    let first = |range: &str| range.split_once("..")?.0.trim().parse::<u64>().ok();
    // "expected:" has a field of its own only if the extent is not where it is expected.
    let flags = rest.last()?.split(',').filter(|it| !it.is_empty() && *it != "eof");
    let flags = flags.filter(|it| it.parse::<u64>().is_err()).map(str::to_owned).collect();
    Some((first(logical)?, first(physical)?, len.parse().ok()?, flags))
}

/// Compares free space by length with e2freefrag and `xfs_db`.
pub(super) fn free_space(env: &Env, claims: &mut Claims) -> Result<()> {
    for kind in [Kind::Ext4, Kind::Xfs] {
        let file_system = file_system(env, &format!("free-{}", kind.name()), kind, BYTES)?;
        let mut random = Rng::with_seed(env.options.seed);
        let mut files = Vec::new();
        for number in 0..env.choose(3_000, 500) {
            let path = file_system.point().join(number.to_string());
            let blocks = 1 << random.u32(0..9);
            std::fs::write(&path, vec![1; blocks * BLOCK_BYTES])?;
            files.push(path);
        }
        stdout_of(cmd!("sync"))?;
        random.shuffle(&mut files);
        for path in &files[..files.len() / 2] {
            std::fs::remove_file(path)?;
        }
        stdout_of(cmd!("sync"))?;
        // Preallocation in memory, which GETFSMAP counts as used, ends at the unmount.
        file_system.unmount()?;
        file_system.mount()?;
        let (larder, point) = (&env.larder, file_system.point());
        let found = json_of(cmd!("{larder} frag {point} --json"))?;
        file_system.unmount()?;
        let device = file_system.device();
        let (theirs, peer) = match kind {
            Kind::Ext4 => (e2freefrag(&stdout_of(cmd!("e2freefrag {device}"))?), "e2freefrag"),
            _ => (xfs_freesp(device)?, "xfs_db freesp without the lists of metadata blocks"),
        };
        let ours = by_length(&found["free"]["runs"])?;
        outln!("   {}: larder {ours:?}", kind.name());
        claims.add_with_peer(
            format!("{}: free space by length", kind.name()),
            format!("{} runs, {} KiB", sum(&ours, 0), sum(&ours, 1) >> 10),
            format!("{peer}: {} runs, {} KiB", sum(&theirs, 0), sum(&theirs, 1) >> 10),
            ours == theirs,
        );
    }
    Ok(())
}

/// Number and bytes by the power of two of the length.
type ByLength = BTreeMap<u32, [u64; 2]>;

fn sum(classes: &ByLength, field: usize) -> u64 {
    classes.values().map(|it| it[field]).sum()
}

fn by_length(runs: &Value) -> Result<ByLength> {
    let class = |(class, it): (&String, &Value)| -> Result<_> {
        let field = |index: usize| it[index].as_u64().context("a number");
        Ok((class.parse()?, [field(0)?, field(1)?]))
    };
    runs.as_object().context("runs")?.iter().map(class).collect()
}

/// Parses the lines `    4K...    8K-  :   12    12    0.01%`, in blocks of 4 KiB.
fn e2freefrag(out: &str) -> ByLength {
    let line = |line: &str| {
        let (range, counts) = line.split_once(':')?;
        let from = range.split_once("...")?.0.trim();
        let (digits, unit) = from.split_at(from.len() - 1);
        let scale = match unit {
            "K" => 10,
            "M" => 20,
            "G" => 30,
            _ => return None,
        };
        let bytes = digits.parse::<u64>().ok()? << scale;
        let mut counts = counts.split_whitespace().map(|it| it.parse::<u64>().ok());
        Some((bytes.ilog2(), [counts.next()??, counts.next()?? * BLOCK]))
    };
    out.lines().filter_map(line).collect()
}

/// Returns the free space of `xfs_db`, which also counts each block of the free lists of the
/// allocation groups, whose blocks are for their own trees.
fn xfs_freesp(device: &Path) -> Result<ByLength> {
    let db = |command: &str| stdout_of(cmd!("xfs_db -r -c {command} {device}"));
    let value = |out: String| -> Result<u64> {
        let text = out.trim().rsplit_once("= ").context("a value")?.1.to_owned();
        Ok(text.parse()?)
    };
    let mut free = freesp_of(&db("freesp -b")?);
    let groups = value(stdout_of(cmd!("xfs_db -r -c {SUPERBLOCK} -c {GROUPS} {device}"))?)?;
    for group in 0..groups {
        let head = format!("agf {group}");
        let listed = value(stdout_of(cmd!("xfs_db -r -c {head} -c {LISTED} {device}"))?)?;
        let single = free.entry(BLOCK.ilog2()).or_default();
        *single = [single[0] - listed, single[1] - listed * BLOCK];
    }
    free.retain(|_, it| it[0] > 0);
    Ok(free)
}

/// Parses the lines `   from      to extents  blocks    pct` of binary ranges, in blocks of 4 KiB.
fn freesp_of(out: &str) -> ByLength {
    let line = |line: &str| {
        let fields: Vec<u64> = line.split_whitespace().map_while(|it| it.parse().ok()).collect();
        let [from, _, extents, blocks, ..] = fields[..] else { return None };
        Some(((from * BLOCK).ilog2(), [extents, blocks * BLOCK]))
    };
    out.lines().filter_map(line).collect()
}
