//! The life of a server: it starts, serves while each live setting is changed, and stops with all
//! data written.

use larder_core::tunables::TUNABLES;
use larder_io::nbd_client::Client as NbdClient;
use larder_schema::control::{ChangeResponse, SetRequest, Volumes};
use larder_server::client::Client;
use larder_server::plan::Configuration;
use larder_server::requests::{RequestSender, ServerRequest, request_channel};
use larder_server::run::{Callbacks, run};
use larder_server::settings::{Assignment, SETTINGS, Setting};
use larder_server::volume_source::VolumeSource;
use std::ffi::OsStr;
use std::fs::File;
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const IMAGE_BYTES: u64 = 8 << 20;

/// A server in a thread of this process, with one volume.
struct Running {
    directory: tempfile::TempDir,
    requests: RequestSender,
    thread: JoinHandle<Result<(), String>>,
}

impl Running {
    fn start(settings: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        File::create(path("disk.img")).unwrap().set_len(IMAGE_BYTES).unwrap();
        let socket = format!("unix:{}", path("nbd.sock").display());
        let control = path("control.sock").display().to_string();
        let own = [("listen", socket.as_str()), ("control", &control), ("memory", "32MiB")];
        let assignments = own.iter().chain(settings);
        let configuration = Configuration {
            volumes: vec![VolumeSource::parse(path("disk.img").to_str().unwrap()).unwrap()],
            assignments: assignments.map(|(name, value)| Assignment::parse(name, value)).collect(),
            ..Configuration::default()
        };
        let plan = configuration.plan().unwrap();
        let (requests, receiver) = request_channel();
        let sender = requests.clone();
        let thread = std::thread::spawn(move || {
            let callbacks = Callbacks { reload: &mut |_| {}, progress: &|_| {} };
            let result = run(&configuration, &plan, (sender, &receiver), callbacks);
            result.map_err(|error| format!("{error:#}"))
        });
        let running = Running { directory, requests, thread };
        let deadline = Instant::now() + Duration::from_mins(1);
        while !running.path("control.sock").exists() {
            assert!(!running.thread.is_finished() && Instant::now() < deadline, "it did not start");
            std::thread::yield_now();
        }
        running
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn control(&self) -> Client {
        Client::at(&self.path("control.sock")).unwrap()
    }

    fn nbd(&self) -> NbdClient {
        let uri = format!("nbd+unix:///disk?socket={}", self.path("nbd.sock").display());
        NbdClient::connect(&uri.parse().unwrap()).unwrap()
    }

    /// Stops the server, and returns the content of its image.
    fn stop(self) -> Vec<u8> {
        assert!(self.requests.send(ServerRequest::Stop));
        self.thread.join().unwrap().unwrap();
        std::fs::read(self.directory.path().join("disk.img")).unwrap()
    }
}

/// Returns values of a setting that differ from the present one.
fn other_values(setting: &Setting, present: &str) -> Vec<String> {
    let limits = TUNABLES.iter().find(|tunable| tunable.name == setting.name);
    // A size is shown in its unit.
    let limits = limits.filter(|tunable| tunable.unit != "bytes");
    let limits = limits.map(|tunable| [tunable.min.to_string(), tunable.max.to_string()]);
    let texts = [
        "16KiB",
        "24MiB",
        "4MiB",
        "lru",
        "write-through",
        "random",
        "ignore",
        "auto",
        "nt",
        "off",
        "all",
    ];
    let texts = limits.into_iter().flatten().chain(texts.map(str::to_owned));
    let texts = texts.filter(|text| text != present);
    texts.filter(|text| setting.check(OsStr::new(text)).is_ok()).collect()
}

/// Changes a setting to another value; returns the value and the changes. A value may contradict
/// other settings, such as a minimum above the memory.
fn change(control: &Client, setting: &Setting) -> (String, ChangeResponse) {
    let volumes: Volumes = control.get("volumes").unwrap();
    let present = volumes.volumes[0].settings.get(setting.name).cloned().unwrap_or_default();
    let mut changes = other_values(setting, &present).into_iter().filter_map(|value| {
        let set = [(setting.name.to_owned(), value.clone())].into();
        let changed: ChangeResponse = control.post("set", &SetRequest { set }).ok()?;
        (!changed.changed.is_empty()).then_some((value, changed))
    });
    changes.next().unwrap_or_else(|| panic!("no other value of {} is accepted", setting.name))
}

#[test]
fn each_live_setting_changes_while_it_serves_and_a_stop_writes_everything() {
    let server = Running::start(&[("max", "16MiB")]);
    let (control, mut nbd) = (server.control(), server.nbd());
    let mut block = vec![0; 4096];
    let live: Vec<_> = SETTINGS.iter().filter(|setting| setting.is_live).collect();
    let mut expected = vec![0; usize::try_from(IMAGE_BYTES).unwrap()];
    for (number, setting) in live.iter().enumerate() {
        let (value, changed) = change(&control, setting);
        let is_shown = changed.changed.iter().any(|it| it.name == setting.name && it.to == value);
        // An alias changes settings of other names.
        let is_alias = matches!(setting.name, "preset" | "read-ahead");
        assert!(is_shown || is_alias, "{}: {changed:?}", setting.name);
        block.fill(u8::try_from(number + 1).unwrap());
        let at = number * 4096;
        nbd.write_at(at as u64, &block, false).unwrap();
        expected[at..at + 4096].copy_from_slice(&block);
        let mut read = vec![0; 4096];
        nbd.read_at(at as u64, &mut read).unwrap();
        assert_eq!(read, block, "after the change of {}", setting.name);
    }
    nbd.disconnect().unwrap();
    assert!(server.stop() == expected, "the image has what was written");
}

#[test]
fn a_setting_that_is_not_live_and_one_that_does_not_exist_are_refused() {
    let server = Running::start(&[]);
    let refused = |name: &str, value: &str| {
        let set = [(name.to_owned(), value.to_owned())].into();
        let result = server.control().post::<_, ChangeResponse>("set", &SetRequest { set });
        format!("{:#}", result.unwrap_err())
    };
    let error = refused("listen", "tcp:127.0.0.1:1");
    assert!(error.contains("set listen: it is read at the start"), "{error}");
    let error = refused("polcy", "lru");
    assert!(error.contains("did you mean \"policy\"?"), "{error}");
    let error = refused("other.policy", "lru");
    assert!(error.contains("there is no volume \"other\""), "{error}");
    server.stop();
}

#[test]
fn a_server_that_cannot_start_says_why_and_leaves_no_socket() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("control.sock");
    let configuration = Configuration {
        volumes: vec![VolumeSource::parse("/there/is/no/image").unwrap()],
        assignments: vec![Assignment::parse("control", socket.to_str().unwrap())],
        ..Configuration::default()
    };
    let plan = configuration.plan().unwrap();
    let (sender, receiver) = request_channel();
    let callbacks = Callbacks { reload: &mut |_| {}, progress: &|_| {} };
    let error = run(&configuration, &plan, (sender, &receiver), callbacks).unwrap_err();
    assert!(format!("{error:#}").contains("/there/is/no/image"), "{error:#}");
    assert!(!socket.exists());
}
