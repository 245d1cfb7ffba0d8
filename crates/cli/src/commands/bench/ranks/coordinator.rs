//! The leader: it lets ranks go on together, and tells all when one is gone.
//!
//! Invariants: nobody is let past a place before all are there; whatever ends one ends all, with
//! the same sentence; the leader is back only when every rank has gone, or time for that is up.
//! Time here is that of this machine alone.

use super::link::{self, Hello, LINE_BYTES_MAX, Link, Message};
use serde_json::Value;
use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// How often both sides say that they are still here.
pub(super) const ALIVE_EVERY: Duration = Duration::from_secs(1);
/// How long a peer may say nothing.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(30);
/// How long ranks may take to clean up and go.
const GOING_MAX: Duration = Duration::from_mins(1);
/// How often a wish to stop is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The place where each rank hands over what it has measured: the last one.
pub(super) const RESULT: &str = "result";

/// A rank that has said who it is.
#[derive(Debug)]
pub(super) struct RankLink {
    pub(super) hello: Hello,
    pub(super) link: Link,
}

impl RankLink {
    /// As people call it.
    pub(super) fn name(&self) -> String {
        name(&self.hello)
    }
}

fn name(hello: &Hello) -> String {
    format!("rank {} on {}", hello.rank, hello.host)
}

/// What came from a rank; nothing when its way has ended.
type Event = (usize, Option<Message>);

/// Leads all ranks, which stand in their order, to the end; what each handed over.
///
/// # Errors
/// A sentence: which rank ended first, and why.
pub(super) fn lead(members: Vec<RankLink>, stop: &AtomicBool) -> Result<Vec<Value>, String> {
    let (events, heard) = channel();
    let mut seats = Vec::new();
    for (rank, RankLink { hello, link: Link { reader, writer } }) in members.into_iter().enumerate()
    {
        listen(rank, reader, events.clone());
        let name = name(&hello);
        seats.push(Seat { name, writer, at: None, heard: Instant::now(), gone: false });
    }
    let mut hub = Coordinator { seats, heard };
    hub.broadcast(&Message::Welcome);
    let ended = hub.coordinate(stop);
    if let Err(why) = &ended {
        hub.broadcast(&Message::Ends(why.clone()));
    }
    hub.wait_until_gone();
    ended
}

/// Puts what a rank says into the queue, until it says no more.
fn listen(rank: usize, mut reader: Box<dyn BufRead + Send>, events: Sender<Event>) {
    std::thread::spawn(move || {
        // What cannot be understood is as good as an end.
        while let Ok(Some(message)) = link::read(&mut reader, LINE_BYTES_MAX) {
            if events.send((rank, Some(message))).is_err() {
                return;
            }
        }
        // The leader may be gone itself.
        drop(events.send((rank, None)));
    });
}

struct Seat {
    name: String,
    writer: Box<dyn Write + Send>,
    at: Option<(String, Value)>,
    heard: Instant,
    gone: bool,
}

struct Coordinator {
    seats: Vec<Seat>,
    heard: Receiver<Event>,
}

impl Coordinator {
    /// Says something to all who are there; those who do not take it will be missed soon.
    fn broadcast(&mut self, message: &Message) {
        for seat in self.seats.iter_mut().filter(|seat| !seat.gone) {
            seat.gone = link::write(&mut seat.writer, message).is_err();
        }
    }

    fn coordinate(&mut self, stop: &AtomicBool) -> Result<Vec<Value>, String> {
        let mut told = Instant::now();
        loop {
            if stop.load(Ordering::Relaxed) {
                return Err("it was stopped".to_owned());
            }
            if told.elapsed() >= ALIVE_EVERY {
                told = Instant::now();
                self.broadcast(&Message::Alive);
                self.look_for_silence()?;
            }
            let (rank, message) = match self.heard.recv_timeout(LOOK_EVERY) {
                Ok(event) => event,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Err("no rank is left".to_owned()),
            };
            let seat = &mut self.seats[rank];
            seat.heard = Instant::now();
            match message {
                Some(Message::Alive) => {}
                Some(Message::At(place, said)) if seat.at.is_none() => {
                    seat.at = Some((place, said));
                    if let Some(result) = self.let_go()? {
                        return Ok(result);
                    }
                }
                Some(Message::Ends(why)) => {
                    seat.gone = true;
                    return Err(format!("{} ended: {why}", seat.name));
                }
                Some(_) => return Err(format!("{} said what it may not say", seat.name)),
                None => {
                    seat.gone = true;
                    return Err(format!("{} is gone: it died or was killed", seat.name));
                }
            }
        }
    }

    fn look_for_silence(&self) -> Result<(), String> {
        let silent = self.seats.iter().find(|seat| seat.heard.elapsed() > SILENCE_MAX);
        silent.map_or(Ok(()), |seat| {
            let seconds = SILENCE_MAX.as_secs();
            Err(format!("{} has said nothing for {seconds} seconds", seat.name))
        })
    }

    /// Lets all go on if all are there; what they handed over if that was the last place.
    fn let_go(&mut self) -> Result<Option<Vec<Value>>, String> {
        if self.seats.iter().any(|seat| seat.at.is_none()) {
            return Ok(None);
        }
        let at = self.seats.iter_mut().filter_map(|seat| seat.at.take());
        let (places, said): (Vec<String>, Vec<Value>) = at.unzip();
        if let Some(rank) = places.iter().position(|place| *place != places[0]) {
            let (first, other) = (&self.seats[0].name, &self.seats[rank].name);
            let (here, there) = (&places[0], &places[rank]);
            return Err(format!("{first} is at \"{here}\" and {other} at \"{there}\""));
        }
        let place = places.into_iter().next().expect("there are ranks");
        if place == RESULT {
            // It is for the leader; the others have their own.
            self.broadcast(&Message::Go(place, Vec::new()));
            return Ok(Some(said));
        }
        self.broadcast(&Message::Go(place, said));
        Ok(None)
    }

    /// Until every rank has removed what it made, and ended.
    fn wait_until_gone(&mut self) {
        let begun = Instant::now();
        while self.seats.iter().any(|seat| !seat.gone) && begun.elapsed() < GOING_MAX {
            match self.heard.recv_timeout(LOOK_EVERY) {
                Ok((rank, None | Some(Message::Bye | Message::Ends(_)))) => {
                    self.seats[rank].gone = true;
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
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    /// Ends of links as the ranks have them, and the leader's result.
    type TestRanks = (Vec<UnixStream>, std::thread::JoinHandle<Result<Vec<Value>, String>>);

    fn rig(count: usize, stop: Arc<AtomicBool>) -> TestRanks {
        let (mut ends, mut members) = (Vec::new(), Vec::new());
        for rank in 0..count {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let hello = Hello { rank, host: format!("h{rank}"), ..Hello::default() };
            members.push(RankLink { hello, link: Link::new(ours.try_clone().unwrap(), ours) });
            ends.push(theirs);
        }
        (ends, std::thread::spawn(move || lead(members, &stop)))
    }

    /// The next message but for signs of life.
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

    fn at(place: &str, said: u64) -> Message {
        Message::At(place.to_owned(), said.into())
    }

    #[test]
    fn all_go_on_together_and_hand_over_what_they_have() {
        let (ends, leader) = rig(3, Arc::default());
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

    /// What all hear when `what` happens, and what the leader says.
    fn ended(what: impl FnOnce(&mut Vec<UnixStream>, &AtomicBool)) -> String {
        let stop = Arc::new(AtomicBool::new(false));
        let (mut ends, leader) = rig(2, Arc::clone(&stop));
        for end in &ends {
            assert_eq!(receive(end), Some(Message::Welcome));
        }
        what(&mut ends, &stop);
        let told = receive(&ends[0]);
        drop(ends);
        let why = leader.join().unwrap().unwrap_err();
        assert_eq!(told, Some(Message::Ends(why.clone())));
        why
    }

    #[test]
    fn what_ends_one_ends_all_with_the_same_sentence() {
        let why = ended(|ends, _| drop(ends.pop()));
        assert_eq!(why, "rank 1 on h1 is gone: it died or was killed");
        let why = ended(|ends, _| send(&ends[1], &Message::Ends("the disk is full".to_owned())));
        assert_eq!(why, "rank 1 on h1 ended: the disk is full");
        let why = ended(|ends, _| {
            send(&ends[0], &at("a", 0));
            send(&ends[1], &at("b", 0));
        });
        assert_eq!(why, "rank 0 on h0 is at \"a\" and rank 1 on h1 at \"b\"");
        let why = ended(|ends, _| send(&ends[1], &Message::Welcome));
        assert_eq!(why, "rank 1 on h1 said what it may not say");
        let why = ended(|_, stop| stop.store(true, Ordering::Relaxed));
        assert_eq!(why, "it was stopped");
    }
}
