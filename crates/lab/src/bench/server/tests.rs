//! Steps over real files and over a recording target: ranges, counts, and cleanup.

use super::super::target::{Buffering, Target, TargetSource};
use super::super::testing::{FakeHost, no_stop};
use super::super::{Plan, Start, run_trials};
use super::*;
use crate::random::Spread;
use crate::workload::server::Mix;
use larder_schema::run::Run;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

const ITEM: u64 = 10_000;

fn load(mix: Mix, items: u64) -> ServerLoad {
    ServerLoad { mix, think: Spread::exactly(100.0), items }
}

/// Steps on the clock of the fake host, which advances by 10 ns with each reading.
fn steps(clients: &[u64]) -> Steps {
    Steps {
        clients: clients.to_vec(),
        warm_up: 5_000,
        measure: 20_000,
        record_bytes: 4096,
        sync: false,
    }
}

const ALL: Mix = Mix { read: 2, write: 1, copy: 1 };

fn plan() -> Plan {
    Plan { start: Start::AsIs, trials: 2..=2, confidence: None, ..Plan::default() }
}

fn run_bench(bench: &mut ServerBench) -> Result<Run, String> {
    let machine = FakeHost { free_bytes: 1 << 30, ..FakeHost::default() };
    let result = run_trials(bench, &plan(), &machine, &no_stop(), &mut |_| ());
    result.map(|result| result.run).map_err(|error| error.to_string())
}

fn bench_in(directory: &Path, clients: &[u64]) -> ServerBench {
    let share = ItemLocation::Directory(Directory::inside(directory, Buffering::Buffered));
    ServerBench::new(share, load(ALL, 3), steps(clients), ITEM)
}

#[test]
fn each_step_has_its_series_its_phases_and_its_latencies() {
    let directory = tempfile::tempdir().unwrap();
    let run = run_bench(&mut bench_in(directory.path(), &[1, 3])).unwrap();
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0, "what was made is removed");
    assert_eq!(run.main.as_deref(), Some("peak throughput"));
    for clients in [1, 3] {
        for group in ["throughput", "transactions", "response time"] {
            let sample = run.sample(&format!("{group} at clients {clients}")).unwrap();
            assert_eq!(sample.group.as_deref(), Some(group));
            assert!(sample.values.len() == 2 && sample.values[0] > 0.0, "{sample:?}");
        }
    }
    assert_eq!(larder_report::run::stress::steps(&run).len(), 2);
    let phases: Vec<_> = run.trials[0].phases.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(phases, ["1 client", "1 client, flush", "3 clients", "3 clients, flush"]);
    let value = |name: &str| run.sample(name).unwrap().values[0];
    for (number, clients) in [1, 3].into_iter().enumerate() {
        let times = &run.trials[0].latencies[number];
        let per_s = value(&format!("transactions at clients {clients}"));
        #[expect(clippy::cast_precision_loss, reason = "a few")]
        let counted = times.count() as f64 * 1e9 / 20_000.0;
        assert!((per_s / counted - 1.0).abs() < 1e-9);
        // A transaction moves an item once, or twice if it is a copy.
        let item = value(&format!("throughput at clients {clients}")) / per_s;
        assert!((10_000.0..=20_000.0).contains(&item), "{item}");
    }
    let peak = value("throughput at clients 1").max(value("throughput at clients 3"));
    assert!((value("peak throughput") - peak).abs() < 1e-6);
    assert_eq!(run.settings["mix"], "read=2,write=1,copy=1");
}

/// A letter, an offset and a length for each request to a target.
type RequestLog = Arc<Mutex<Vec<(char, u64, usize)>>>;

/// A target that records the requests of its connections.
#[derive(Debug)]
struct RecordingTarget {
    requests: RequestLog,
    fails: bool,
}

impl TargetSource for RecordingTarget {
    fn description(&self) -> String {
        "a double".to_owned()
    }

    fn bytes(&self) -> u64 {
        1 << 20
    }

    fn open(&self) -> Result<Box<dyn Target>, BenchError> {
        Ok(Box::new(RecordingTarget { requests: self.requests.clone(), fails: self.fails }))
    }

    fn start_state(&mut self) -> StartState<'_> {
        StartState::Unknown("unknown".to_owned())
    }
}

impl Target for RecordingTarget {
    fn read_at(&mut self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.requests.lock().unwrap().push(('R', offset, buffer.len()));
        Ok(())
    }

    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.requests.lock().unwrap().push(('W', offset, bytes.len()));
        if self.fails { Err(io::Error::other("it broke")) } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.requests.lock().unwrap().push(('F', 0, 0));
        Ok(())
    }
}

/// Returns the requests of one client alone.
fn requests_of(client: u64, mix: Mix, sync: bool) -> Vec<(char, u64, usize)> {
    let requests = RequestLog::default();
    let share = ItemLocation::Places(Box::new(RecordingTarget {
        requests: requests.clone(),
        fails: false,
    }));
    let steps = Steps { sync, ..steps(&[4]) };
    let bench = ServerBench::new(share, load(mix, 3), steps, ITEM);
    let mut client = Client::new(&bench, client, 1).unwrap();
    let transaction = client.transactions.next().unwrap();
    client.execute(&transaction).unwrap();
    client.items.flush().unwrap();
    requests.lock().unwrap().clone()
}

#[test]
fn a_transaction_goes_through_all_records_of_an_item_of_the_client() {
    let only = |read, write, copy| Mix { read, write, copy };
    let first = 2 * 3 * ITEM;
    let transaction = load(only(1, 0, 0), 3).transactions(1 + 2).next().unwrap();
    let [at, to] = [transaction.item, transaction.to].map(|item| first + item * ITEM);
    let read = |at| [('R', at, 4096), ('R', at + 4096, 4096), ('R', at + 8192, 1808)];
    assert_eq!(requests_of(2, only(1, 0, 0), false), read(at));
    let write = |at| read(at).map(|(_, offset, len)| ('W', offset, len));
    let flushed = [&write(at)[..], &[('F', 0, 0)]].concat();
    assert_eq!(requests_of(2, only(0, 1, 0), false), flushed);
    // Data that the transaction itself flushed is not flushed again.
    assert_eq!(requests_of(2, only(0, 1, 0), true), flushed);
    let mut copied = Vec::new();
    for (from, to) in read(at).into_iter().zip(write(to)) {
        copied.extend([from, to]);
    }
    copied.push(('F', 0, 0));
    assert_eq!(requests_of(2, only(0, 0, 1), false), copied);
}

#[test]
fn clients_never_touch_the_items_of_others() {
    for client in 0..4 {
        let range = client * 3 * ITEM..(client + 1) * 3 * ITEM;
        let requests = requests_of(client, ALL, false);
        let mut inside = requests.iter().filter(|(letter, ..)| *letter != 'F');
        assert!(inside.all(|(_, at, len)| range.contains(at) && at + *len as u64 <= range.end));
    }
}

#[test]
fn a_step_in_which_nothing_ends_and_a_request_that_fails_end_the_run() {
    let places = |fails| {
        ItemLocation::Places(Box::new(RecordingTarget { requests: RequestLog::default(), fails }))
    };
    let long = ServerLoad { think: Spread::exactly(1e6), ..load(ALL, 3) };
    let mut bench = ServerBench::new(places(false), long, steps(&[2]), ITEM);
    let error = run_bench(&mut bench).unwrap_err();
    assert_eq!(error, "measure 2 clients: no transaction ended within 20.0 us; measure longer");
    let write = Mix { read: 0, write: 1, copy: 0 };
    let mut bench = ServerBench::new(places(true), load(write, 1), steps(&[1]), ITEM);
    assert_eq!(run_bench(&mut bench).unwrap_err(), "write 10000 bytes at 0: it broke");
}

#[test]
fn what_was_made_is_removed_when_a_step_fails_and_a_directory_that_was_there_stays() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("mine"), "1").unwrap();
    let mut bench = bench_in(directory.path(), &[1]);
    bench.load.think = Spread::exactly(1e6);
    assert!(run_bench(&mut bench).unwrap_err().starts_with("measure 1 client: no transaction"));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    let small = FakeHost { free_bytes: ITEM, ..FakeHost::default() };
    let error = run_trials(&mut bench, &plan(), &small, &no_stop(), &mut |_| ()).unwrap_err();
    let message = error.to_string();
    assert!(message.ends_with("it needs 29.3 KiB and 9.77 KiB are free"), "{message}");
}
