//! `larder trace synth --like`: the difference between the LRU curves of traces and of those that
//! are fitted to them, for patterns and for the shared traces.

use super::policies;
use super::prelude::*;

/// The largest difference, in points.
const POINTS_MAX: f64 = 3.0;
/// Patterns of `larder trace synth`.
const PATTERNS: [&str; 6] = ["loop", "zipf", "uniform", "stride", "database", "mix"];

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    let larder = &env.larder;
    for pattern in PATTERNS {
        let path = env.file(&format!("{pattern}.ltr"));
        let size = ["--requests", env.choose("1000000", "40000"), "--pages", "32768"];
        stdout_of(cmd!(600, "{larder} trace synth {pattern} {path} {size...} --quiet"))?;
        check(env, &path, pattern, claims)?;
    }
    for (file, name) in policies::TRACES {
        match env.trace(file) {
            Some(path) => check(env, &path, name, claims)?,
            None => claims.skip(format!("{name}: curve"), "it is not in ../shared/traces"),
        }
    }
    Ok(())
}

fn check(env: &Env, trace: &Path, name: &str, claims: &mut Claims) -> Result<()> {
    let (larder, like) = (&env.larder, env.file(&format!("like-{name}.ltr")));
    let seed = env.options.seed.to_string();
    let out = stdout_of(cmd!(600, "{larder} trace synth {like} --like {trace} --seed {seed}"))?;
    let words: Vec<&str> = out.split_whitespace().collect();
    let numbers: Vec<&str> = words
        .windows(2)
        .filter(|pair| pair[1] == "points" && pair[0].parse::<f64>().is_ok())
        .map(|pair| pair[0])
        .collect();
    let [mean, largest] = numbers[..] else { bail!("no two differences in {out}") };
    claims.add(
        format!("{name}: the LRU curve of a trace like it is within {POINTS_MAX:.0} points"),
        format!("at most {largest}, mean {mean}"),
        largest.parse::<f64>()? <= POINTS_MAX,
    );
    Ok(())
}
