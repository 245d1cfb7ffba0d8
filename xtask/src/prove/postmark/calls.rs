//! The system calls on work files, as traced by strace.

use super::{prepare, programs};
use crate::prove::prelude::*;

/// Scripts with different sizes, blocks, buffering and locations, on which the file system calls
/// depend.
const SCRIPTS: [&str; 5] = [
    "set size 9000 30000\nset subdirectories 2\n",
    "set size 500 20000\nset read 8192\nset write 5000\nset location d0 2\nset location +d1\n",
    "set size 90000 300000\nset read 100000\nset write 100000\n",
    "set size 20 9000\nset buffering false\nset read 512\nset write 7\n",
    "set size 4096\nset buffering false\nset read 4096\nset write 4096\nset location missing\n",
];

/// For sed: removes process IDs and descriptors, and gives equivalent calls of the two programs the
/// same name. Descriptors of work files begin at 3: lower ones are for progress and errors.
const NORMAL: &str = r#"
/\) += /!d
s/^[0-9]+ +//
/^(read|write|lseek|close)\([0-2][,)]/d
s/^(read|write)\(.*, ([^,]*)\) += (.*)/\1 \2 gives \3/
s/^lseek\(.*, /seek /
/^(read|write|seek) /!s/\) += -.*/ fails/
/^(read|write|seek) /!s/\) += .*//
s/\|O_LARGEFILE//
s/^open(at)?\([^"]*"(.*)", (.*O_CREAT.*)/make \2 \3/
s/^open(at)?\([^"]*"(.*)", /open \2 /
s/^(unlink|unlinkat|rmdir)\([^"]*"([^"]*)"(, [A-Z0-9_]+)?/remove \2/
s/^mkdir(at)?\([^"]*"([^"]*)", [0-7]+/make directory \2/
s/^(fstat|newfstatat|statx)\(.*/stat/
s/^([a-z0-9_]+)\(.*/\1/"#;

pub(super) fn same(env: &Env) -> Result<String> {
    require(missing_program(&["strace"]))?;
    let mut calls = 0;
    let transactions = env.choose(100, 25);
    for script in SCRIPTS {
        let common = format!("set number 20\nset transactions {transactions}\n");
        let script = format!("{common}{script}run\nquit\n");
        let [ours, theirs] = programs(env).map(|words| traced(env, &words, &script));
        let (ours, theirs) = (ours?, theirs?);
        let differs = theirs.iter().zip(&ours).position(|(theirs, ours)| theirs != ours);
        if let Some(at) = differs {
            bail!("call {at}: {}, not {}\n{script}", ours[at], theirs[at]);
        }
        ensure!(theirs.len() == ours.len(), "{} calls, not {}", ours.len(), theirs.len());
        calls += ours.len();
    }
    Ok(format!("{calls} calls of {} scripts", SCRIPTS.len()))
}

/// Returns the calls on work files, from the creation of the first directory or file to the last
/// removal: the rest is the start and the end of the program.
fn traced(env: &Env, words: &[String], script: &str) -> Result<Vec<String>> {
    let dir = prepare(env, script)?;
    let log = dir.join("calls");
    let kinds = "trace=?open,openat,read,write,lseek,fstat,newfstatat,statx,close,?unlink,unlinkat,\
                 ?mkdir,mkdirat,?rmdir,fsync";
    let arguments = ["-qq", "-f", "-s", "0", "-e", kinds, "-e", "signal=none"];
    stdout_of(cmd!(120, "strace {arguments...} -o {log} {words...}").current_dir(&dir))?;
    let calls = normal(&log)?;
    let calls = calls.lines().skip_while(|call| !call.starts_with("make"));
    let mut found: Vec<String> = calls.map(str::to_owned).collect();
    let end = found.iter().rposition(|call| call.starts_with("remove")).map_or(0, |at| at + 1);
    found.truncate(end);
    ensure!(!found.is_empty(), "strace saw no work file");
    Ok(found)
}

/// Returns the calls of a log of strace, normalized by [`NORMAL`].
fn normal(log: &Path) -> Result<String> {
    stdout_of(cmd!("sed -E {NORMAL} {log}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_compared_by_what_they_do() {
        let known = [
            ("7 openat(AT_FDCWD, \"d0/1\", O_RDONLY|O_LARGEFILE) = 4", "open d0/1 O_RDONLY"),
            (
                "7 open(\"1\", O_RDWR|O_CREAT, 0644) = -1 EIO (E)",
                "make 1 O_RDWR|O_CREAT, 0644 fails",
            ),
            ("7 write(4, \"\"..., 4096)       = 4096", "write 4096 gives 4096"),
            ("7 lseek(4, 0, SEEK_END)   = 9", "seek SEEK_END)   = 9"),
            ("7 unlink(\"s1/2\") = -1 ENOENT (No such file)", "remove s1/2 fails"),
            ("7 unlinkat(AT_FDCWD, \"s1\", AT_REMOVEDIR) = 0", "remove s1"),
            ("7 mkdir(\"s0\", 0700)    = 0", "make directory s0"),
            ("7 fstat(4, {st_mode=S_IFREG}) = 0", "stat"),
            ("7 close(4)  = 0", "close"),
        ];
        let log = tempfile::NamedTempFile::new().unwrap();
        let lines = known.map(|it| it.0).join("\n") + "\n7 write(1, \".\", 1)  = 1\n";
        std::fs::write(log.path(), lines).unwrap();
        assert_eq!(normal(log.path()).unwrap(), known.map(|it| it.1.to_owned() + "\n").concat());
    }
}
