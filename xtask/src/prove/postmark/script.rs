//! Random scripts from a seed: configurations that run, and commands in every wrong form.

use fastrand::Rng;

/// Directories that exist when a script runs. `missing` does not.
pub(super) const DIRECTORIES: [&str; 3] = ["d0", "d1", "d2"];

/// A script that other scripts load.
pub(super) const LOADED: &str = "set number 3\nquit\nset number 4\n";

/// Block sizes that a buffer of 4 KiB treats in different ways.
const BLOCKS: [u64; 10] = [1, 7, 512, 1000, 4095, 4096, 4097, 5000, 8192, 100_000];

/// The commands, separated by bars.
pub(super) const COMMANDS: &str = "set size|set number|set seed|set transactions|set location|\
    set subdirectories|set read|set write|set buffering|set bias read|set bias create|set report|\
    load|show|help|set";

const PARAMETERS: &str = "|1|5|12|-1|0|10|11|abc|12abc|true|false|verbose|terse|a|b|+a|-a|+b 3|\
    a b 2|-b|x y z|1 2|3 1|\x20 4|7 8 9|99999999999|2147483648|+|\x20|\t3|loaded";

/// Returns the words of a list separated by bars.
fn words(of: &'static str) -> Vec<&'static str> {
    of.split('|').collect()
}

fn one<T: Copy>(random: &mut Rng, of: &[T]) -> T {
    of[random.usize(..of.len())]
}

/// Returns a small random configuration and a run of it.
pub(super) fn random(random: &mut Rng) -> String {
    let mut lines = Vec::new();
    let files = random.u64(1..=300);
    lines.push(format!("set number {}", one(random, &[1, 2, 5, 50, files])));
    let transactions = random.u64(10..=900);
    lines.push(format!("set transactions {}", one(random, &[10, 19, 100, transactions])));
    let low = random.u64(1..=20_000);
    let low = one(random, &[1, 500, low, low]);
    let high = low + random.u64(0..=30_000);
    let size = one(random, &[format!("{low}"), format!("{low} {high}")].each_ref()).clone();
    lines.push(format!("set size {size}"));
    lines.push(format!("set seed {}", random.u64(1..1 << 31)));
    for which in ["read", "write"] {
        lines.push(format!("set {which} {}", one(random, &BLOCKS)));
    }
    lines.push(format!("set buffering {}", one(random, &["true", "false"])));
    lines.push(format!("set bias read {}", one(random, &["-1", "0", "3", "5", "8", "10"])));
    lines.push(format!("set bias create {}", one(random, &["-1", "0", "4", "5", "6", "10"])));
    if random.usize(..2) == 0 {
        lines.push(format!("set subdirectories {}", random.u64(1..=9)));
    }
    for name in DIRECTORIES.iter().take(random.usize(..4)) {
        lines.push(format!("set location +{name} {}", random.u64(1..=5)));
    }
    if random.usize(..8) == 0 {
        lines.push("set location +missing".to_owned());
    }
    if random.usize(..5) == 0 {
        lines.push("set report terse".to_owned());
    }
    lines.push("show".to_owned());
    lines.push(one(random, &["run", "run report"]).to_owned());
    lines.push(one(random, &["quit", "show"]).to_owned());
    lines.join("\n") + "\n"
}

/// Returns random commands, right and wrong ones, that run nothing.
pub(super) fn commands(random: &mut Rng) -> String {
    let mut text = String::new();
    for _ in 0..random.u64(1..=25) {
        let [command, other] =
            [one(random, &words(COMMANDS)), one(random, &["exit", "?", "foo", ""])];
        text.push_str(one(random, &[command, command, command, command, command, other]));
        text.push_str(one(random, &[" ", " ", " ", "", "\t", "x", "  "]));
        text.push_str(one(random, &words(PARAMETERS)));
        text.push_str(one(random, &["\n", "\n", "\n", "\n", "\r\n", "\nshow\n"]));
    }
    text
}
