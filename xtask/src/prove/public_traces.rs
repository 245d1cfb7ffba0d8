//! Traces of a public package: the simulator of the Caffeine project contains traces of
//! publications, of LIRS and of cache2k.

use super::prelude::*;

const PACKAGE: &str = "https://repo1.maven.org/maven2/com/github/ben-manes/caffeine/simulator/\
                       2.4.0/simulator-2.4.0.jar";
const PACKAGE_SHA256: &str = "323aafa8533041f564f1767d778d62e0df362a1c50e2a98a1894edb5f3f0bbad";
const MEMBERS: &str = "com/github/benmanes/caffeine/cache/simulator/parser";
/// Traces of the package that are in use while policies are developed.
pub(super) const OPEN: [&str; 6] = [
    "lirs/multi2.trace.gz",
    "lirs/multi3.trace.gz",
    "lirs/sprite.trace.gz",
    "lirs/gli.trace.gz",
    "lirs/cs.trace.gz",
    "cache2k/orm-busy.trace.xz",
];
/// Traces that no constant of `--policy auto` was chosen with.
pub(super) const SET_ASIDE: [&str; 6] = [
    "lirs/multi1.trace.gz",
    "lirs/cpp.trace.gz",
    "lirs/ps.trace.gz",
    "lirs/2_pools.trace.gz",
    "cache2k/orm-night.trace.xz",
    "cache2k/web12.trace.xz",
];

/// Writes the package's trace `$1` as lines of page and length, `$2`; only the first million.
const CONVERT: &str = "set -o pipefail
case $1 in
*.gz) unzip -p package.jar \"$1\" | gunzip | grep '^[0-9]' ;;
*.xz) unzip -p package.jar \"$1\" | xz -dc | od -An -v -t u4 -w4 ;;
esac | awk 'NR <= 1000000 { print $1, 1, 0, NR }' > \"$2\"";

/// Downloads the package and converts some of its traces. Returns their paths.
pub(super) fn convert(env: &Env, members: &[&str]) -> Result<Vec<PathBuf>> {
    let package = env.file("package.jar");
    stdout_of(cmd!(600, "curl --fail --silent --show-error --output {package} {PACKAGE}"))?;
    let sum = stdout_of(cmd!("sha256sum {package}"))?;
    ensure!(sum.starts_with(PACKAGE_SHA256), "{PACKAGE} has changed: {sum}");
    let paths = members.iter().map(|member| {
        let stem = Path::new(member).file_name().context("a name")?.to_string_lossy();
        let path = env.file(&stem.replace(".trace.gz", ".lis").replace(".trace.xz", ".lis"));
        let mut convert = cmd!(600, "bash -c {CONVERT} convert");
        convert.arg(format!("{MEMBERS}/{member}")).arg(&path);
        stdout_of(convert.current_dir(env.dir())).with_context(|| format!("convert {member}"))?;
        Ok(path)
    });
    paths.collect()
}
