//! The system calls on work files, as strace shows them.

use super::{Program, prepare};
use crate::prove::prelude::*;

/// Sizes, blocks, buffer, places: a file system call differs by these.
const SCRIPTS: [&str; 5] = [
    "set size 9000 30000\nset subdirectories 2\n",
    "set size 500 20000\nset read 8192\nset write 5000\nset location d0 2\nset location +d1\n",
    "set size 90000 300000\nset read 100000\nset write 100000\n",
    "set size 20 9000\nset buffering false\nset read 512\nset write 7\n",
    "set size 4096\nset buffering false\nset read 4096\nset write 4096\nset location missing\n",
];

/// What every script has.
const COMMON: &str = "set number 20\nset transactions 100\n";

/// Compares the calls of both.
pub(super) fn run(env: &Env, claims: &mut Claims) {
    let what = "the system calls of the original, in kind, path, bytes and order";
    let reason = "strace is not installed (apt-get install strace)";
    if claims.skipped(what, (!run::installed("strace")).then(|| reason.into())) {
        return;
    }
    claims.tried(what, || {
        let mut calls = 0;
        for script in SCRIPTS {
            let script = format!("{COMMON}{script}run\nquit\n");
            let [theirs, ours] =
                [Program::Theirs, Program::Ours].map(|it| traced(env, it, &script));
            let (theirs, ours) = (theirs?, ours?);
            let differs = theirs.iter().zip(&ours).position(|(theirs, ours)| theirs != ours);
            if let Some(at) = differs {
                bail!("call {at}: {}, not {}\n{script}", ours[at], theirs[at]);
            }
            ensure!(theirs.len() == ours.len(), "{} calls, not {}", ours.len(), theirs.len());
            calls += ours.len();
        }
        Ok(format!("{calls} calls of {} scripts", SCRIPTS.len()))
    });
}

/// The calls on work files, from the first directory or file that is made to the last one that is
/// removed: the rest is the program's own start and end.
fn traced(env: &Env, program: Program, script: &str) -> Result<Vec<String>> {
    let (dir, words) = (prepare(env, script)?, program.words(env));
    let log = dir.join("calls");
    let kinds = "trace=?open,openat,read,write,lseek,fstat,newfstatat,statx,close,?unlink,unlinkat,\
                 ?mkdir,mkdirat,?rmdir,fsync";
    let how = ["-qq", "-f", "-s", "0", "-e", kinds, "-e", "signal=none"];
    text(cmd!("timeout 120 strace {how...} -o {log} {words...}").current_dir(&dir))?;
    let seen = std::fs::read_to_string(&log).context("read what strace saw")?;
    let calls = seen.lines().filter_map(normal).skip_while(|call| !call.starts_with("make"));
    let mut found: Vec<String> = calls.collect();
    let end = found.iter().rposition(|call| call.starts_with("remove")).map_or(0, |at| at + 1);
    found.truncate(end);
    ensure!(!found.is_empty(), "strace saw no work file");
    Ok(found)
}

/// A call without the number of the process and of the descriptor, in the words that the two
/// programs may choose different calls for; nothing if it is not about a work file.
fn normal(line: &str) -> Option<String> {
    let line = line.split_once(' ')?.1.trim_start();
    let (name, rest) = line.split_once('(')?;
    let result = rest.rsplit_once("= ")?.1;
    let failed = if result.starts_with('-') { " fails" } else { "" };
    let descriptor = rest.split([',', ')']).next()?.parse::<u32>();
    let path = || rest.split('"').nth(1);
    let kind = match name {
        // Progress and errors; descriptors of work files begin above.
        "write" | "read" | "lseek" | "close"
            if descriptor.as_ref().is_ok_and(|&number| number < 3) =>
        {
            return None;
        }
        "write" | "read" => {
            let asked = rest.rsplit_once(')')?.0.rsplit_once(", ")?.1;
            format!("{name} {asked} gives {result}")
        }
        "open" | "openat" => {
            let how = rest.rsplit_once(')')?.0.rsplit_once("\", ")?.1;
            let how = how.replace("|O_LARGEFILE", "");
            let made = if how.contains("O_CREAT") { "make" } else { "open" };
            format!("{made} {} {how}{failed}", path()?)
        }
        "fstat" | "newfstatat" | "statx" => "stat".to_owned(),
        "unlink" | "unlinkat" | "rmdir" => {
            let path = path()?;
            format!("remove {path}{failed}")
        }
        "mkdir" | "mkdirat" => format!("make directory {}{failed}", path()?),
        "lseek" => format!("seek {}", rest.rsplit_once(", ")?.1),
        other => other.to_owned(),
    };
    Some(kind)
}

#[cfg(test)]
mod tests {
    use super::normal;

    #[test]
    fn calls_are_compared_by_what_they_do() {
        let known = [
            ("7 openat(AT_FDCWD, \"d0/1\", O_RDONLY|O_LARGEFILE) = 4", "open d0/1 O_RDONLY"),
            ("7 write(4, \"\"..., 4096)       = 4096", "write 4096 gives 4096"),
            ("7 unlink(\"s1/2\") = -1 ENOENT (No such file)", "remove s1/2 fails"),
            ("7 mkdir(\"s0\", 0700)    = 0", "make directory s0"),
            ("7 fstat(4, {st_mode=S_IFREG}) = 0", "stat"),
        ];
        for (line, call) in known {
            assert_eq!(normal(line).as_deref(), Some(call), "{line}");
        }
        assert_eq!(normal("7 write(1, \".\", 1)  = 1"), None);
    }
}
