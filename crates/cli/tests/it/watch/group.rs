//! A memory group of our own: a machine with little memory within this one.
//!
//! A second process of this test program does the work in the group; its environment names the
//! task. It prepares, reports that it is ready, and starts on request.

use larder_testing::{Cleanup, skip};
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// What the program is to do, and to which file.
const WORK: &str = "LARDER_GROUP_WORK";
const FILE: &str = "LARDER_GROUP_FILE";
/// Factor of the duration of the work.
const STRETCH: &str = "LARDER_GROUP_STRETCH";
/// What it says when it has prepared.
const READY: &str = "ready";
/// What a program says that has done its work, and continues it until it is killed.
const DONE: &str = "done";
/// Roots of groups, and how their limit is called in both versions of the controller.
const ROOTS: [(&str, &str); 2] =
    [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
const REMOVE: &str = "for try in 1 2 3 4 5 6 7 8 9 10; do \
                      for process in $(cat \"$1/cgroup.procs\"); do kill -9 $process; done; \
                      rmdir \"$1\" && break; sleep 0.2; done";

/// A name, and what is done with the file.
pub(crate) type Work = (&'static str, fn(&Path, &dyn Fn()));

/// A group with a limit.
pub(crate) struct Group {
    directory: PathBuf,
    name: String,
    _cleanup: Cleanup,
}

impl Group {
    /// Nothing where this machine cannot: then why was printed.
    pub(crate) fn of(mib: u64) -> Option<Group> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("larder-test-{}-{number}", std::process::id());
        for (root, limit) in ROOTS {
            let directory = Path::new(root).join(&name);
            if !Path::new(root).join("cgroup.procs").exists()
                || std::fs::create_dir(&directory).is_err()
            {
                continue;
            }
            let cleanup = Cleanup::with(REMOVE, &[directory.to_str().unwrap()]);
            if std::fs::write(directory.join(limit), (mib << 20).to_string()).is_ok() {
                return Some(Group { directory, name, _cleanup: cleanup });
            }
        }
        skip("no memory controller for control groups");
        None
    }

    /// How the command calls it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Where a process is told to go into it.
    pub(crate) fn door(&self) -> PathBuf {
        self.directory.join("cgroup.procs")
    }

    /// Starts this program in the group, and waits until it has prepared.
    pub(crate) fn start(&self, work: &str, file: &Path, stretch: u32) -> Working {
        let mut child = Command::new("sh")
            .args(["-c", "echo $$ > \"$1\" && shift && exec \"$@\"", "enter"])
            .arg(self.door())
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "watch::what_is_done_in_a_group", "--nocapture"])
            .env(WORK, work)
            .env(FILE, file)
            .env(STRETCH, stretch.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = said.by_ref().map_while(Result::ok).any(|line| line.ends_with(READY));
        assert!(ready, "{work} does not begin");
        Working { child, said }
    }
}

/// The program in the group.
pub(crate) struct Working {
    child: Child,
    /// It must be able to say more.
    said: Lines<BufReader<ChildStdout>>,
}

impl Working {
    /// Starts the work, and waits until it is done.
    pub(crate) fn run(&mut self) {
        drop(self.child.stdin.take());
        if !self.said.by_ref().map_while(Result::ok).any(|line| line == DONE) {
            assert!(self.child.wait().unwrap().success(), "the work in the group failed");
        }
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        // One that has ended is not killed.
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Returns the factor of the duration of the work, in the process that does it.
pub(crate) fn stretch() -> u32 {
    std::env::var(STRETCH).unwrap().parse().unwrap()
}

/// Reports that the work is done; the program may continue it.
pub(crate) fn done() {
    println!("{DONE}");
    std::io::stdout().flush().unwrap();
}

/// The other side: calls what was asked for with the file; it is to call its argument when it has
/// prepared.
pub(crate) fn work(known: &[Work]) {
    let (Ok(wanted), Some(file)) = (std::env::var(WORK), std::env::var_os(FILE)) else { return };
    let (_, work) = known.iter().find(|(name, _)| *name == wanted).unwrap();
    work(Path::new(&file), &|| {
        println!("{READY}");
        std::io::stdout().flush().unwrap();
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    });
}
