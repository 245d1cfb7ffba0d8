//! Recommendations of `larder size` on the shared traces, compared with full sweeps. (Tests of the
//! command cover invalid input.)
//!
//! The sweep is `larder sim`: at every size, over the whole trace, without sampling; of replacement
//! alone with every policy, of a server with the best ones at the recommended size.
//! It is independent of the search that led to the recommendation.

use std::collections::BTreeSet;

use super::policies::TRACES;
use super::prelude::*;

/// The page size of the recommendation in bytes.
const PAGE: u64 = 4096;
/// The number of sizes of the sweep per octave.
const STEPS: i32 = 8;
/// The maximum ratio of the recommended size to the smallest that reaches the goal, and vice versa.
const SIZE_RATIO_MAX: f64 = 1.15;
/// The maximum difference between the hit ratios of the recommended and the best policy.
const POLICY_LOSS_MAX: f64 = 0.005;
/// The maximum error of predicted hit ratios that are outside of their error bars.
const RATIO_ERROR_MAX: f64 = 0.01;
/// The maximum time in seconds for the largest of the traces.
const SECONDS_MAX: f64 = 120.0;
/// The number of policies of a sweep of a server, besides the recommended one.
const BEST_POLICIES: usize = 3;
/// The minimum number of pages of a simulated server.
const WHOLE_PAGES_MIN: u64 = 512;

/// A row of a sweep: policy, pages, hit ratio.
type SweepRow = (String, u64, f64);

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    for (name, _) in TRACES {
        let Some(path) = env.trace(name) else {
            claims.skip(format!("{name}: the recommendation"), "it is not in ../shared/traces");
            continue;
        };
        let replacement = ["--level", "replacement"];
        let sampled = ["--level", "replacement", "--sampled"];
        let variants = [&[][..], &["--target", "80%"], &replacement, &sampled];
        for arguments in &variants[..env.choose(4, 1)] {
            check(env, (name, &path), arguments, claims)?;
        }
    }
    Ok(())
}

fn sweep(
    env: &Env,
    path: &Path,
    (level, policies): (&str, &str),
    pages: BTreeSet<u64>,
) -> Result<Vec<SweepRow>> {
    let (larder, mut swept) = (&env.larder, Vec::new());
    let least = if level == "whole" { WHOLE_PAGES_MIN } else { 1 };
    let pages = pages.into_iter().filter(|&pages| pages >= least);
    let sizes: Vec<String> = pages.map(|pages| format!("{pages}p")).collect();
    // All caches of a run are in memory at the same time.
    for sizes in sizes.chunks(6) {
        let sizes = sizes.join(",");
        let arguments = ["--level", level, "--policy", policies, "--page-size", "4KiB", "--json"];
        let made = json_of(cmd!(1200, "{larder} sim {path} {arguments...} --size {sizes}"))?;
        for row in made["rows"].as_array().context("larder sim printed no rows")? {
            let policy = row["policy"].as_str().context("a row without policy")?.to_owned();
            let pages = row["size_bytes"].as_u64().context("a row without size")? / PAGE;
            swept.push((policy, pages, number(row, "hit_ratio")?));
        }
    }
    Ok(swept)
}

/// Returns the best of all policies at a size.
fn best(swept: &[SweepRow], pages: u64) -> Option<&SweepRow> {
    swept.iter().filter(|row| row.1 == pages).max_by(|a, b| a.2.total_cmp(&b.2))
}

/// Returns the sizes of the sweep: over the whole curve, and finer around the recommended size.
fn sizes(footprint: u64, recommended: u64) -> BTreeSet<u64> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
    let scaled = |pages: u64, octaves: f64| (to_f64(pages) * octaves.exp2()).round() as u64;
    let over = (0..=6).map(|k| scaled(footprint, -f64::from(k)));
    let around =
        (-STEPS * 3 / 2..=STEPS / 2).map(|k| scaled(recommended, f64::from(k) / f64::from(STEPS)));
    let three = [recommended / 2, recommended, recommended * 2];
    over.chain(around).chain(three).filter(|&pages| pages > 0).collect()
}

/// Checks one recommendation.
fn check(
    env: &Env,
    (name, path): (&str, &Path),
    arguments: &[&str],
    claims: &mut Claims,
) -> Result<()> {
    let (larder, begun) = (&env.larder, Instant::now());
    let made = json_of(cmd!("{larder} size {path} {arguments...} --json"))?;
    let seconds = begun.elapsed().as_secs_f64();
    let arguments = if arguments.is_empty() { "default".to_owned() } else { arguments.join(" ") };
    let advice = &made["recommendation"];
    let pages = advice["bytes"].as_u64().context("larder size recommends nothing")? / PAGE;
    let footprint = made["workload"]["footprint_pages"].as_u64().context("no footprint")?;
    let policy = advice["policy"].as_str().context("no policy")?;
    // A server takes a shorter way than all policies at all sizes.
    let is_server = made["server"]["is_searched"] == true;
    let policies = made["effects"][1]["policies"].as_array().context("no policies")?;
    let best_policies = policies.iter().take(BEST_POLICIES).filter_map(|it| it["policy"].as_str());
    let best_policies: Vec<&str> = best_policies.chain([policy]).collect();
    let (level, policies) =
        if is_server { ("whole", best_policies.join(",")) } else { ("replacement", "all".into()) };
    let mut sizes = sizes(footprint, pages);
    // The shards of a server are not filled equally.
    let everything = if is_server { 2 * footprint } else { footprint };
    sizes.insert(everything);
    let swept = sweep(env, path, (level, &policies), sizes)?;
    let at = |pages: u64| {
        let row = swept.iter().find(|row| row.1 == pages && row.0 == policy);
        row.map(|row| row.2).with_context(|| format!("the sweep lacks {pages} pages"))
    };
    // The goal by the trace itself, not by the prediction.
    let ceiling = best(&swept, everything).context("the sweep lacks the footprint")?.2;
    let wanted = number(&made, "/goal/target")? * ceiling;
    let reach = swept.iter().filter(|row| row.2 >= wanted).map(|row| row.1);
    let needed = reach.min().context("no size of the sweep reaches the goal")?;
    let best_row = best(&swept, pages).context("the sweep lacks the recommended size")?;
    let (hit_ratio, size_ratio) = (at(pages)?, to_f64(pages) / to_f64(needed));
    claims.add(
        format!("{name}, {arguments}: the size is the smallest that reaches the goal, within 15 %"),
        format!("{pages} pages, {needed} by the sweep, hits {hit_ratio:.4} of {wanted:.4}"),
        (1.0 / SIZE_RATIO_MAX..=SIZE_RATIO_MAX).contains(&size_ratio)
            && hit_ratio >= wanted - RATIO_ERROR_MAX,
    );
    claims.add(
        format!("{name}, {arguments}: no policy is better by more than half a point"),
        format!("{policy} {hit_ratio:.4}, {} {:.4}", best_row.0, best_row.2),
        best_row.2 - hit_ratio <= POLICY_LOSS_MAX,
    );
    let (mut predicted, mut counted, mut hold) = (Vec::new(), Vec::new(), true);
    for effect in made["effects"].as_array().context("no effects")? {
        let pages = effect["bytes"].as_u64().context("an effect without size")? / PAGE;
        let (true_ratio, ratio) = (at(pages)?, number(effect, "hit_ratio")?);
        let (low, high) = (number(effect, "low")?, number(effect, "high")?);
        predicted.push(format!("{:.1}", ratio * 100.0));
        counted.push(format!("{:.1}", true_ratio * 100.0));
        let is_within = (low..=high).contains(&true_ratio);
        hold &= is_within || (ratio - true_ratio).abs() <= RATIO_ERROR_MAX;
    }
    let (predicted, counted) = (predicted.join(" / "), counted.join(" / "));
    claims.add(
        format!(
            "{name}, {arguments}: half, this and twice hit as predicted, within bars or a point"
        ),
        format!("{predicted} predicted, {counted} counted"),
        hold,
    );
    claims.add(
        format!("{name}, {arguments}: in less than {SECONDS_MAX:.0} s"),
        format!("{seconds:.1} s"),
        seconds < SECONDS_MAX,
    );
    Ok(())
}
