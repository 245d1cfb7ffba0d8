//! A memory control group: a machine with little memory within this one.
//!
//! A second process of this test program does the work in the group; its environment names the
//! task. It prepares, reports that it is ready, and starts on request.

use larder_testing::{Cleanup, skip};
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Environment variables with the task of the program, and with its file.
const WORK: &str = "LARDER_GROUP_WORK";
const FILE: &str = "LARDER_GROUP_FILE";
/// Factor of the duration of the work.
const STRETCH: &str = "LARDER_GROUP_STRETCH";
/// Line that the program prints when it has prepared.
const READY: &str = "ready";
/// Line that the program prints when it has done its work, which it may continue until it is
/// killed.
const DONE: &str = "done";
/// Roots of control groups, and the file of the limit in both versions of the controller.
const ROOTS: [(&str, &str); 2] =
    [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
const REMOVE: &str = "for try in 1 2 3 4 5 6 7 8 9 10; do \
                      for process in $(cat \"$1/cgroup.procs\"); do kill -9 $process; done; \
                      rmdir \"$1\" && break; sleep 0.2; done";

/// Name of a task, and its function. The function gets the file, and calls its second argument when
/// it has prepared.
pub(crate) type Work = (&'static str, fn(&Path, &dyn Fn()));

/// A control group with a memory limit.
pub(crate) struct MemoryGroup {
    directory: PathBuf,
    name: String,
    _cleanup: Cleanup,
}

impl MemoryGroup {
    /// Creates a group. Reports a skip and returns `None` if this machine cannot.
    pub(crate) fn of(mib: u64) -> Option<MemoryGroup> {
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
                return Some(MemoryGroup { directory, name, _cleanup: cleanup });
            }
        }
        skip("no memory controller for control groups");
        None
    }

    /// Returns the name of the group as the command takes it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the path of the file that moves a process into the group.
    pub(crate) fn procs_file(&self) -> PathBuf {
        self.directory.join("cgroup.procs")
    }

    /// Starts this program in the group, and waits until it has prepared.
    pub(crate) fn start(&self, work: &str, file: &Path, stretch: u32) -> Worker {
        let mut child = Command::new("sh")
            .args(["-c", "echo $$ > \"$1\" && shift && exec \"$@\"", "enter"])
            .arg(self.procs_file())
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "watch::what_is_done_in_a_group", "--nocapture"])
            .env(WORK, work)
            .env(FILE, file)
            .env(STRETCH, stretch.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = lines.by_ref().map_while(Result::ok).any(|line| line.ends_with(READY));
        assert!(ready, "{work} does not begin");
        Worker { child, lines }
    }
}

/// The program in the group.
pub(crate) struct Worker {
    child: Child,
    /// Kept open, so that the program can print more.
    lines: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    /// Starts the work, and waits until it is done.
    pub(crate) fn run(&mut self) {
        drop(self.child.stdin.take());
        if !self.lines.by_ref().map_while(Result::ok).any(|line| line == DONE) {
            assert!(self.child.wait().unwrap().success(), "the work in the group failed");
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // kill() has no effect on a program that has ended.
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

/// Runs the task that the environment requests, in the program that runs in the group.
pub(crate) fn work(tasks: &[Work]) {
    let (Ok(requested), Some(file)) = (std::env::var(WORK), std::env::var_os(FILE)) else { return };
    let (_, work) = tasks.iter().find(|(name, _)| *name == requested).unwrap();
    work(Path::new(&file), &|| {
        println!("{READY}");
        std::io::stdout().flush().unwrap();
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    });
}
