//! Hits without a socket: how far they are from a bare copy and from the page cache.
//!
//! The bench of larder-io prints one JSON object of medians; times are of one 4 KiB copy.

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::{Claims, Lab};
use crate::run;

/// Runs the proof.
pub(super) fn run(lab: &Lab, claims: &mut Claims) -> Result<()> {
    let mut cargo = run::cargo(&lab.root);
    cargo.args(["bench", "--package", "larder-io", "--bench", "hit", "--", "--json"]);
    if lab.options.quick {
        cargo.arg("--quick");
    }
    let text = run::text(&mut cargo)?;
    let start = text.find('{').context("the bench printed no JSON")?;
    let medians: Value = serde_json::Deserializer::from_str(&text[start..])
        .into_iter()
        .next()
        .context("the bench printed no JSON")?
        .context("parse what the bench printed")?;
    judge(&medians, claims)
}

fn judge(medians: &Value, claims: &mut Claims) -> Result<()> {
    // A number, or a median with its least and greatest.
    let get = |name: &str| {
        let value = &medians[name];
        value.as_f64().or_else(|| value[0].as_f64()).with_context(|| format!("no number {name}"))
    };
    let (copy, alone, batch) = (get("memcpy_ns")?, get("hit_ns")?, get("hits_ns")?);
    let (over_copy, pread_over) = (get("hits_over_memcpy")?, get("pread_over_hits")?);
    let (scaling, copy_scaling) = (get("scaling_2_threads")?, get("memcpy_scaling_2_threads")?);
    claims.against(
        "a copy hit, of eight at hand, takes at most 1.25 times a memcpy",
        format!("{batch:.0} ns, {over_copy:.2} times ({alone:.0} ns one at a time)"),
        format!("memcpy {copy:.0} ns"),
        over_copy <= 1.25,
    );
    claims.against(
        "it is at least 2 times as fast as pread from the page cache",
        format!("{batch:.0} ns, {pread_over:.2} times"),
        format!("pread {:.0} ns", get("pread_ns")?),
        pread_over >= 2.0,
    );
    claims.against(
        "two threads do at least 1.8 times as much as one, or 0.9 of what memory allows",
        format!("{scaling:.2} times"),
        format!("memcpy {copy_scaling:.2} times"),
        scaling >= 1.8 || scaling >= 0.9 * copy_scaling,
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Verdict;

    #[test]
    fn the_limits_are_those_that_were_promised() {
        let mut claims = Claims::default();
        let medians = serde_json::json!({
            "memcpy_ns": 100, "hit_ns": 140, "hits_ns": 126, "hits_over_memcpy": [1.26, 1, 2],
            "pread_ns": 252, "pread_over_hits": [2.0, 1, 3],
            "scaling_2_threads": [1.7, 1, 2], "memcpy_scaling_2_threads": [1.9, 1, 2],
        });
        judge(&medians, &mut claims).unwrap();
        let verdicts: Vec<Verdict> = claims.list.iter().map(|claim| claim.verdict).collect();
        assert_eq!(verdicts, [Verdict::Fails, Verdict::Holds, Verdict::Fails]);
        assert!(judge(&serde_json::json!({}), &mut claims).is_err());
    }
}
