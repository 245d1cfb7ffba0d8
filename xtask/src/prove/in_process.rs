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
    let (copy, hit, pread) = (get("memcpy_ns")?, get("hit_ns")?, get("pread_ns")?);
    let scaling = get("scaling_2_threads")?;
    claims.against(
        "a copy hit takes at most 1.25 times a memcpy",
        format!("{hit:.0} ns, {:.2} times", hit / copy),
        format!("memcpy {copy:.0} ns"),
        hit <= 1.25 * copy,
    );
    claims.against(
        "a copy hit is at least 2 times as fast as pread from the page cache",
        format!("{hit:.0} ns, {:.2} times", pread / hit),
        format!("pread {pread:.0} ns"),
        pread >= 2.0 * hit,
    );
    let figure = format!("{scaling:.2} times");
    claims.add("two threads do at least 1.8 times as much as one", figure, scaling >= 1.8);
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
            "memcpy_ns": 100, "hit_ns": 126, "pread_ns": 252, "scaling_2_threads": 1.79,
        });
        judge(&medians, &mut claims).unwrap();
        let verdicts: Vec<Verdict> = claims.list.iter().map(|claim| claim.verdict).collect();
        assert_eq!(verdicts, [Verdict::Fails, Verdict::Holds, Verdict::Fails]);
        assert!(judge(&serde_json::json!({}), &mut claims).is_err());
    }
}
