//! `larder bench postmark --classic` compared with Debian's `postmark`: the same counts, the same
//! texts, the same system calls, no more processor time.
//!
//! Processor time is measured on tmpfs: on a disk the kernel's processor time varies by a factor of
//! five.

mod calls;
mod script;

use super::prelude::*;
use crate::cleanup::Scratch;
use crate::record::Record;
use crate::stats::{Spread, median, run_alternating};

/// The number of rounds of the comparison of processor time; the figure is the median of the ratios
/// of the rounds.
const ROUNDS: usize = 7;
/// The first published configuration, and one with small blocks and no buffer.
const COSTS: [(&str, &str); 2] = [
    (
        "the first published configuration",
        "set number 10000\nset transactions 20000\nset subdirectories 5\nset size 500 100000\n\
         set read 4096\nset write 4096\n",
    ),
    (
        "sizes and blocks as they are by default, unbuffered",
        "set number 20000\nset transactions 20000\nset buffering false\n",
    ),
];
/// A file system in memory.
const MEMORY: &str = "/dev/shm";

/// For sed: removes times and rates, which differ between runs, and Larder's own texts: two lines
/// of advice, and the descriptions in the help.
const MASK: &str = r"
/out of files!$/{p;N;N;d}
s/ \(.* per second\)$/ (RATE)/
s/^\t[^ ]* seconds/\tTIME seconds/
s/^([0-9.]+ ){12}[0-9.]+$/13 NUMBERS/
s/^((pm>)*(COMMANDS|run|quit)) - .*/\1 - /";

/// Prints the output, the errors and the report, if any, of a program, filtered by `$1`.
const SESSION: &str = r#"
mask=$1; shift; "$@" > out 2> err || { echo "exit code $?"; cat err; exit 1; }
sed -E "$mask" out; echo ERRORS; cat err
[ ! -e report ] || { echo REPORT; sed -E "$mask" report; }"#;

/// Returns the command lines of Larder and of the original, with a script in the current directory.
fn programs(env: &Env) -> [Vec<String>; 2] {
    let larder = env.larder.display();
    [format!("{larder} bench postmark --classic script"), "postmark script".to_owned()]
        .map(|line| line.split(' ').map(str::to_owned).collect())
}

pub(super) fn run(env: &Env, claims: &mut Claims) -> Result<()> {
    require(missing_program(&["postmark"]))?;
    let (count, seed) = (env.choose(200, 25), env.options.seed);
    let mut random = Rng::with_seed(seed);
    for (statement, make) in [
        ("configurations: counts and words", script::random as fn(&mut Rng) -> String),
        ("sessions of commands: words", script::commands),
    ] {
        claims.check(format!("{count} random {statement} of the original"), || {
            for number in 0..count {
                let script = make(&mut random);
                let [ours, theirs] = programs(env).map(|words| session(env, &words, &script));
                // Larder escapes control characters in quoted text.
                let (ours, theirs) = (ours?, theirs?.replace('\r', "\\u000d"));
                ensure!(
                    ours == theirs,
                    "number {number} differs\n{script}\noriginal:\n{theirs}\nours:\n{ours}"
                );
            }
            Ok(format!("all the same, seed {seed}"))
        });
    }
    let statement = "the system calls of the original, in kind, path, bytes and order";
    claims.check(statement, || calls::same(env));
    // Not in the short form, which runs in parallel with other proofs.
    if env.options.quick { Ok(()) } else { cost(env, claims) }
}

/// Creates a directory with a script and the directories that scripts name. Its name is the same
/// for both programs, since they print it.
fn prepare(env: &Env, script: &str) -> Result<PathBuf> {
    let dir = env.file("postmark");
    if dir.exists() {
        std::fs::remove_dir_all(&dir).with_context(|| format!("remove {}", dir.display()))?;
    }
    for name in script::DIRECTORIES {
        std::fs::create_dir_all(dir.join(name)).with_context(|| format!("make {name}"))?;
    }
    for (name, text) in [("script", script), ("loaded", script::LOADED)] {
        std::fs::write(dir.join(name), text).with_context(|| format!("write {name}"))?;
    }
    Ok(dir)
}

/// Runs a script in a separate directory; returns the masked output.
fn session(env: &Env, words: &[String], script: &str) -> Result<String> {
    masked(&prepare(env, script)?, words)
}

fn masked(dir: &Path, words: &[String]) -> Result<String> {
    let mask = MASK.replace("COMMANDS", script::COMMANDS);
    stdout_of(cmd!(120, "sh -c {SESSION} sh {mask} {words...}").current_dir(dir))
}

/// Compares the processor time, user and system, of the same run by both, alternating.
fn cost(env: &Env, claims: &mut Claims) -> Result<()> {
    let settings = json!({ "rounds": ROUNDS, "place": MEMORY });
    let statement = "PostMark as it was, against Debian's";
    let mut record = Record::new(&env.root, statement, &[], &settings)?;
    let version = cmd!("dpkg-query --show '--showformat=${Version}' postmark");
    record.software("postmark", &stdout_of(version).unwrap_or_default());
    for (name, script) in COSTS {
        let script = format!("{script}run\nquit\n");
        // For Larder and the original: seconds of processor time, and of elapsed time.
        let mut spent = [[vec![], vec![]], [vec![], vec![]]];
        run_alternating(ROUNDS, 2, |index| {
            let measured = measure(&programs(env)[index], &script)?;
            spent[index].iter_mut().zip(measured).for_each(|(all, one)| all.push(one));
            Ok(())
        })?;
        let [ours, theirs] = &spent;
        let ratio = Spread::of_ratios(&theirs[0], &ours[0]);
        claims.add_with_peer(
            format!("{name}: user and system time no higher than the original's"),
            format!("{:.2} s, better {}", median(&ours[0]), ratio.times()),
            format!("{:.2} s", median(&theirs[0])),
            ratio.median >= 1.0,
        );
        let series = |program: &str, statement: &str| format!("{program}: {name}: {statement}");
        for (program, spent) in [("larder", ours), ("postmark", theirs)] {
            for (statement, values) in ["processor time", "time"].iter().zip(spent) {
                record.series(&series(program, statement), "s", values, 6);
            }
        }
        let sides = ["larder", "postmark"].map(|it| series(it, "processor time"));
        let statement = format!("{name}: user and system time");
        record.comparison(&statement, [&sides[0], &sides[1]], ratio, 1.0);
    }
    outln!("   recorded in {}", record.write("postmark")?);
    Ok(())
}

/// Returns the processor time of the program and its children, and the elapsed time, in seconds.
fn measure(words: &[String], script: &str) -> Result<[f64; 2]> {
    let dir = Scratch::new_in(Path::new(MEMORY))?;
    std::fs::write(dir.path().join("script"), script).context("write the script")?;
    let measure = "TIMEFORMAT='%R %U %S'; { time \"$@\" > /dev/null 2>&1; } 2>&1";
    let mut shell = cmd!(300, "bash -c {measure} measure {words...}");
    let text = stdout_of(shell.current_dir(dir.path()))?;
    let times: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    let [time, user, system] = times[..] else { bail!("the shell printed no times: {text}") };
    ensure!(user + system > 0.0, "the shell measured no processor time");
    Ok([user + system, time])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_times_rates_and_words_of_our_own_are_masked() {
        let text = "\t7 seconds total\n\t3 seconds of transactions (166 per second)\n\t349 created \
                    (49 per second)\n\t1.64 megabytes read (239.87 kilobytes per second)\n\
                    pm>set size - of files\nTransactions: 500\n.out of files!\nwhy\nhow\nDone\n\
                    1 1 5.00 3.00 1.00 2.00 2.00 2.00 3.00 9.00 2.00 17.00 22.00\n";
        let dir = tempfile::tempdir().unwrap();
        let words = ["printf", "%s", text].map(str::to_owned);
        assert_eq!(
            masked(dir.path(), &words).unwrap(),
            "\tTIME seconds total\n\tTIME seconds of transactions (RATE)\n\t349 created \
             (RATE)\n\t1.64 megabytes read (RATE)\npm>set size - \nTransactions: 500\n.out of \
             files!\nDone\n13 NUMBERS\nERRORS\n"
        );
    }
}
