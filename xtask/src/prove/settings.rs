//! Page sizes, policies and write modes in combination, with a cache smaller than the image.

use anyhow::{Result, ensure};

use super::clients::fio_verify;
use super::{Claims, Lab};
use crate::image::{self, MIB};
use crate::run;

const PAGE_SIZES: [&str; 3] = ["4KiB", "64KiB", "1MiB"];
const POLICIES: [&str; 2] = ["lru", "s3fifo"];
/// These are tried once each, in the long form.
const OTHER_POLICIES: [&str; 11] = [
    "random", "fifo", "clock", "2q", "slru", "arc", "lirs", "sieve", "wtinylfu", "clock2q+",
    "linux",
];
const WRITE_MODES: [&str; 3] = ["back", "through", "around"];

/// Length of the image, four times the cache.
const IMAGE_MIB: u64 = 64;

/// Every combination of page size, write mode and the two policies that differ most in how they
/// remember, and the other policies; or each value of the former at least once in the short form.
fn combinations(quick: bool) -> Vec<String> {
    let mut list = Vec::new();
    for (p, page) in PAGE_SIZES.iter().enumerate() {
        for (r, policy) in POLICIES.iter().enumerate() {
            for (w, mode) in WRITE_MODES.iter().enumerate() {
                if !quick || (p == w && r == p % POLICIES.len()) {
                    list.push(format!("--page-size {page} --policy {policy} --write-mode {mode}"));
                }
            }
        }
    }
    let others = OTHER_POLICIES.iter().filter(|_| !quick).enumerate();
    list.extend(others.map(|(o, policy)| {
        let (page, mode) = (PAGE_SIZES[o % PAGE_SIZES.len()], WRITE_MODES[o % 2]);
        format!("--page-size {page} --policy {policy} --write-mode {mode}")
    }));
    list
}

/// Runs the combinations, then an export that is read-only.
pub(super) fn run(lab: &Lab, claims: &mut Claims) -> Result<()> {
    let source = image::filled(&lab.file("small.img"), IMAGE_MIB, lab.options.seed)?;
    let target = lab.file("settings.img");
    for options in combinations(lab.options.quick) {
        let all = format!("--memory {}MiB {options}", IMAGE_MIB / 4);
        let server = lab.serve(&image::sparse(&target, IMAGE_MIB * MIB)?, &all)?;
        claims.tried(options, || {
            let uri = server.uri();
            run::text(run::client(120, "nbdcopy").arg("--flush").arg(&source).arg(&uri))?;
            let back = lab.file("back.img");
            run::text(run::client(120, "nbdcopy").arg(&uri).arg(&back))?;
            image::same(&source, &back)?;
            let figure = fio_verify(&uri, IMAGE_MIB, lab.either(3, 1))?.in_words();
            run::text(run::client(120, "nbdcopy").arg(&uri).arg(&back))?;
            server.stop_clean()?;
            image::same(&target, &back)?;
            Ok(figure)
        });
    }
    let server = lab.serve(&source, "--memory 16MiB --write-mode read-only")?;
    claims.tried("--write-mode read-only: said to clients, writes refused", || {
        let uri = server.uri();
        run::text(run::client(30, "nbdinfo").args(["--is", "read-only", &uri]))?;
        let copy = run::keep(run::client(30, "nbdcopy").arg(&target).arg(&uri))?;
        ensure!(!copy.ok(), "a client could write");
        server.stop_clean()?;
        Ok("refused".into())
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_form_has_each_value() {
        let (all, quick) = (combinations(false), combinations(true));
        assert_eq!((all.len(), quick.len()), (29, 3));
        for policy in OTHER_POLICIES {
            assert!(all.iter().any(|options| options.contains(&format!("--policy {policy} "))));
        }
        let text = quick.join("\n");
        for value in PAGE_SIZES.iter().chain(&POLICIES).chain(&WRITE_MODES) {
            assert!(text.contains(&format!(" {value}")), "{value} in {text}");
        }
    }
}
