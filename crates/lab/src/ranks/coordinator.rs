//! The leader of the ranks: it implements the barrier, and ends all ranks when one ends.
//!
//! Invariants: no rank passes a barrier before all have reached it; the end of one rank ends all of
//! them with the same message; the leader returns only when every rank has ended, or the time limit
//! for that has passed. Times are those of this machine.

use super::link::{self, LINE_BYTES_MAX, Link, Message, RankLink};
use serde_json::Value;
use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Interval of keep-alive messages, in both directions.
pub(super) const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum time without a message from a peer.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Time limit for ranks to clean up and end.
const END_TIME_MAX: Duration = Duration::from_mins(1);
/// Interval at which the leader checks for a stop.
const STOP_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// The last barrier, at which each rank sends its result.
pub(super) const RESULT: &str = "result";

/// A message from a rank; `None` at the end of its connection.
type Event = (usize, Option<Message>);

/// Leads all ranks, in order of their numbers, to the end; returns their results.
///
/// # Errors
/// A message with the rank that ended first, and its reason.
pub(super) fn lead(ranks: Vec<RankLink>, stop: &AtomicBool) -> Result<Vec<Value>, String> {
    let (sender, events) = channel();
    let mut states = Vec::new();
    for (rank, RankLink { hello, link: Link { reader, writer } }) in ranks.into_iter().enumerate() {
        listen(rank, reader, sender.clone());
        let (name, last_message_at) = (hello.name(), Instant::now());
        states.push(RankState { name, writer, at: None, last_message_at, is_gone: false });
    }
    let mut coordinator = Coordinator { ranks: states, events };
    coordinator.broadcast(&Message::Welcome);
    let result = coordinator.coordinate(stop);
    if let Err(error) = &result {
        coordinator.broadcast(&Message::Ends(error.clone()));
    }
    coordinator.wait_until_gone();
    result
}

/// Reads the messages of a rank into the queue, until its connection ends.
fn listen(rank: usize, mut reader: Box<dyn BufRead + Send>, events: Sender<Event>) {
    std::thread::spawn(move || {
        // An invalid message is treated as the end of the connection.
        while let Ok(Some(message)) = link::read(&mut reader, LINE_BYTES_MAX) {
            if events.send((rank, Some(message))).is_err() {
                return;
            }
        }
        // The leader may have ended.
        drop(events.send((rank, None)));
    });
}

struct RankState {
    name: String,
    writer: Box<dyn Write + Send>,
    at: Option<(String, Value)>,
    last_message_at: Instant,
    is_gone: bool,
}

struct Coordinator {
    ranks: Vec<RankState>,
    events: Receiver<Event>,
}

impl Coordinator {
    /// Sends a message to all ranks; a failed write marks the rank as gone.
    fn broadcast(&mut self, message: &Message) {
        for rank_state in self.ranks.iter_mut().filter(|rank_state| !rank_state.is_gone) {
            rank_state.is_gone = link::write(&mut rank_state.writer, message).is_err();
        }
    }

    fn coordinate(&mut self, stop: &AtomicBool) -> Result<Vec<Value>, String> {
        let mut last_keep_alive = Instant::now();
        loop {
            if stop.load(Ordering::Relaxed) {
                return Err("it was stopped".to_owned());
            }
            if last_keep_alive.elapsed() >= KEEP_ALIVE_INTERVAL {
                last_keep_alive = Instant::now();
                self.broadcast(&Message::Alive);
                self.check_silence()?;
            }
            let (rank, message) = match self.events.recv_timeout(STOP_CHECK_INTERVAL) {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Err("no rank is left".to_owned()),
            };
            let rank_state = &mut self.ranks[rank];
            rank_state.last_message_at = Instant::now();
            match message {
                Some(Message::Alive) => {}
                Some(Message::At(barrier, value)) if rank_state.at.is_none() => {
                    rank_state.at = Some((barrier, value));
                    if let Some(result) = self.try_release()? {
                        return Ok(result);
                    }
                }
                Some(Message::Ends(reason)) => {
                    rank_state.is_gone = true;
                    return Err(format!("{} ended: {reason}", rank_state.name));
                }
                Some(_) => return Err(format!("{} sent an unexpected message", rank_state.name)),
                None => {
                    rank_state.is_gone = true;
                    return Err(format!("{} ended unexpectedly", rank_state.name));
                }
            }
        }
    }

    fn check_silence(&self) -> Result<(), String> {
        let silent = self.ranks.iter().find(|it| it.last_message_at.elapsed() > SILENCE_MAX);
        silent.map_or(Ok(()), |rank_state| {
            let seconds = SILENCE_MAX.as_secs();
            Err(format!("{} has sent nothing for {seconds} seconds", rank_state.name))
        })
    }

    /// Releases the barrier if all ranks have reached it; returns their results at the last one.
    fn try_release(&mut self) -> Result<Option<Vec<Value>>, String> {
        if self.ranks.iter().any(|rank_state| rank_state.at.is_none()) {
            return Ok(None);
        }
        let at = self.ranks.iter_mut().filter_map(|rank_state| rank_state.at.take());
        let (barriers, values): (Vec<String>, Vec<Value>) = at.unzip();
        if let Some(rank) = barriers.iter().position(|barrier| *barrier != barriers[0]) {
            let (first, other) = (&self.ranks[0].name, &self.ranks[rank].name);
            let (first_barrier, other_barrier) = (&barriers[0], &barriers[rank]);
            return Err(format!(
                "{first} is at \"{first_barrier}\" and {other} at \"{other_barrier}\""
            ));
        }
        let barrier = barriers.into_iter().next().expect("there are ranks");
        if barrier == RESULT {
            // The results are only for the leader.
            self.broadcast(&Message::Go(barrier, Vec::new()));
            return Ok(Some(values));
        }
        self.broadcast(&Message::Go(barrier, values));
        Ok(None)
    }

    /// Waits until every rank has cleaned up and ended.
    fn wait_until_gone(&mut self) {
        let started_at = Instant::now();
        while self.ranks.iter().any(|rank_state| !rank_state.is_gone)
            && started_at.elapsed() < END_TIME_MAX
        {
            match self.events.recv_timeout(STOP_CHECK_INTERVAL) {
                Ok((rank, None | Some(Message::Bye | Message::Ends(_)))) => {
                    self.ranks[rank].is_gone = true;
                }
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => self.broadcast(&Message::Alive),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::link::Hello;
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    /// The ranks' ends of their connections, and the leader's result.
    type TestRanks = (Vec<UnixStream>, std::thread::JoinHandle<Result<Vec<Value>, String>>);

    fn start_ranks(count: usize, stop: Arc<AtomicBool>) -> TestRanks {
        let (mut ends, mut links) = (Vec::new(), Vec::new());
        for rank in 0..count {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let hello = Hello { rank, host: format!("h{rank}"), ..Hello::default() };
            links.push(RankLink { hello, link: Link::new(ours.try_clone().unwrap(), ours) });
            ends.push(theirs);
        }
        (ends, std::thread::spawn(move || lead(links, &stop)))
    }

    /// Returns the next message except keep-alives.
    fn receive(end: &UnixStream) -> Option<Message> {
        let mut reader = std::io::BufReader::with_capacity(1, end);
        loop {
            match link::read(&mut reader, 1 << 20).unwrap() {
                Some(Message::Alive) => {}
                other => return other,
            }
        }
    }

    fn send(mut end: &UnixStream, message: &Message) {
        link::write(&mut end, message).unwrap();
    }

    fn at(barrier: &str, value: u64) -> Message {
        Message::At(barrier.to_owned(), value.into())
    }

    #[test]
    fn all_go_on_together_and_hand_over_what_they_have() {
        let (ends, leader) = start_ranks(3, Arc::default());
        for end in &ends {
            assert_eq!(receive(end), Some(Message::Welcome));
        }
        for (place, numbers) in [("a", [1, 2, 3]), ("b", [4, 5, 6])] {
            for (end, number) in ends.iter().zip(numbers) {
                send(end, &at(place, number));
            }
            let all = numbers.map(Value::from).to_vec();
            for end in &ends {
                assert_eq!(receive(end), Some(Message::Go(place.to_owned(), all.clone())));
            }
        }
        for (end, number) in ends.iter().zip([7, 8, 9]) {
            send(end, &at(RESULT, number));
        }
        for end in &ends {
            assert_eq!(receive(end), Some(Message::Go(RESULT.to_owned(), vec![])));
        }
        drop(ends);
        assert_eq!(leader.join().unwrap().unwrap(), [7, 8, 9].map(Value::from));
    }

    /// Runs `action` and returns the error of the leader, which all ranks receive.
    fn ended(action: impl FnOnce(&mut Vec<UnixStream>, &AtomicBool)) -> String {
        let stop = Arc::new(AtomicBool::new(false));
        let (mut ends, leader) = start_ranks(2, Arc::clone(&stop));
        for end in &ends {
            assert_eq!(receive(end), Some(Message::Welcome));
        }
        action(&mut ends, &stop);
        let message = receive(&ends[0]);
        drop(ends);
        let error = leader.join().unwrap().unwrap_err();
        assert_eq!(message, Some(Message::Ends(error.clone())));
        error
    }

    #[test]
    fn what_ends_one_ends_all_with_the_same_sentence() {
        let error = ended(|ends, _| drop(ends.pop()));
        assert_eq!(error, "rank 1 on h1 ended unexpectedly");
        let error = ended(|ends, _| send(&ends[1], &Message::Ends("the disk is full".to_owned())));
        assert_eq!(error, "rank 1 on h1 ended: the disk is full");
        let error = ended(|ends, _| {
            send(&ends[0], &at("a", 0));
            send(&ends[1], &at("b", 0));
        });
        assert_eq!(error, "rank 0 on h0 is at \"a\" and rank 1 on h1 at \"b\"");
        let error = ended(|ends, _| send(&ends[1], &Message::Welcome));
        assert_eq!(error, "rank 1 on h1 sent an unexpected message");
        let error = ended(|_, stop| stop.store(true, Ordering::Relaxed));
        assert_eq!(error, "it was stopped");
    }
}
