//! A kernel that is only pretended: devices by number, queues whose requests the test makes, and
//! commands that fail on demand.
//!
//! It insists on the order that the real one insists on: parameters before the start, all tags of
//! all queues before the device is shown, a number for each tag once at a time.

use super::abi::{Control, DeviceInfo, IoDescriptor, Parameters, RES_OK, feature, state};
use super::driver::{Driver, Queue};
use crate::wake::Waker;
use larder_core::lane::Notify;
use rustix::io::Errno;
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;
use zerocopy::{FromBytes, IntoBytes};

/// How long anything may take on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);
/// What takes a tag back for good (`UBLK_IO_RES_ABORT`).
const RES_ABORT: i32 = -19;

/// A tag as the kernel sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Tag {
    /// Nobody has asked for its requests.
    #[default]
    Unknown,
    /// It waits for a request.
    Free,
    /// Its request is with the server.
    Busy,
    /// Its request was answered.
    Answered(i32),
    /// Taken back.
    Gone,
}

#[derive(Debug, Default)]
struct Queued {
    tags: Vec<Tag>,
    descriptors: Vec<IoDescriptor>,
    data: Vec<Vec<u8>>,
    /// Tags that the server has not seen yet.
    came: VecDeque<(u16, i32)>,
    wakers: Vec<Waker>,
}

#[derive(Debug, Default)]
struct Known {
    info: DeviceInfo,
    parameters: Option<Vec<u8>>,
    is_shown: bool,
    is_stopping: bool,
    queues: Vec<Queued>,
}

#[derive(Debug, Default)]
struct State {
    devices: BTreeMap<u32, Known>,
    /// Commands that fail, with what.
    failing: BTreeMap<u32, Errno>,
    /// What was asked, in order.
    asked: Vec<Control>,
    used: bool,
    opens_no_queue: bool,
    takes_no_fetch: bool,
    /// Panics that are still to come.
    panics: u32,
}

/// The kernel.
#[derive(Clone, Debug, Default)]
pub(super) struct Pretended {
    state: Arc<Mutex<State>>,
    changed: Arc<Condvar>,
    features: u64,
}

impl Pretended {
    pub(super) fn new() -> Self {
        let features = feature::USER_COPY
            | feature::CMD_IOCTL_ENCODE
            | feature::USER_RECOVERY
            | feature::USER_RECOVERY_REISSUE;
        Pretended { features, ..Pretended::default() }
    }

    /// One that cannot copy.
    pub(super) fn old() -> Self {
        Pretended { features: feature::CMD_IOCTL_ENCODE, ..Pretended::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub(super) fn fail(&self, control: Control, errno: Errno) {
        self.state().failing.insert(control.code(), errno);
    }

    pub(super) fn open_no_queue(&self) {
        self.state().opens_no_queue = true;
    }

    pub(super) fn take_no_fetch(&self) {
        self.state().takes_no_fetch = true;
    }

    /// Makes the thread of the next queue that has a request panic. The kernel fails its requests.
    pub(super) fn panic(&self) {
        self.state().panics = 1;
    }

    pub(super) fn set_used(&self, used: bool) {
        self.state().used = used;
    }

    /// Commands since the last time.
    pub(super) fn asked(&self) -> Vec<Control> {
        std::mem::take(&mut self.state().asked)
    }

    pub(super) fn info(&self, id: u32) -> Option<DeviceInfo> {
        self.state().devices.get(&id).map(|known| known.info)
    }

    pub(super) fn parameters(&self, id: u32) -> Parameters {
        let mut bytes = self.state().devices[&id].parameters.clone().unwrap();
        bytes.resize(size_of::<Parameters>(), 0);
        Parameters::read_from_bytes(&bytes).unwrap()
    }

    /// As if the server had been killed: nobody serves the device any more.
    pub(super) fn leave_behind(&self, id: u32, mark: u64) {
        let info = DeviceInfo { id, state: state::QUIESCED, mark, queues: 1, depth: 4, ..empty() };
        let known = Known { info, parameters: Some(Vec::new()), ..Known::default() };
        self.state().devices.insert(id, known);
    }

    /// A program asks for something and waits for the answer: bytes that were moved or an errno,
    /// and the data of a read.
    pub(super) fn ask(
        &self,
        (id, queue): (u32, u16),
        asked: IoDescriptor,
        data: &[u8],
    ) -> (i32, Vec<u8>) {
        let tag = self.begin((id, queue), asked, data);
        self.end((id, queue), tag)
    }

    /// The same without waiting; which tag it is.
    pub(super) fn begin(&self, (id, queue): (u32, u16), asked: IoDescriptor, data: &[u8]) -> u16 {
        let is_free = |state: &mut State| {
            let queue = &state.devices[&id].queues[usize::from(queue)];
            !queue.tags.contains(&Tag::Free)
        };
        let waited = self.changed.wait_timeout_while(self.state(), PATIENCE, is_free);
        let mut state = waited.unwrap().0;
        let known = state.devices.get_mut(&id).unwrap();
        assert!(known.is_shown, "programs see it");
        let queue = &mut known.queues[usize::from(queue)];
        let tag = queue.tags.iter().position(|tag| *tag == Tag::Free).expect("a free tag");
        queue.tags[tag] = Tag::Busy;
        queue.descriptors[tag] = asked;
        let bytes = asked.sectors as usize * 512;
        queue.data[tag] = if data.is_empty() { vec![0xee; bytes] } else { data.to_vec() };
        let tag = u16::try_from(tag).unwrap();
        queue.came.push_back((tag, RES_OK));
        queue.wakers.iter().for_each(Notify::notify);
        tag
    }

    /// Waits for the answer to the request of a tag.
    pub(super) fn end(&self, (id, queue): (u32, u16), tag: u16) -> (i32, Vec<u8>) {
        let place = usize::from(tag);
        let of = |state: &State| state.devices[&id].queues[usize::from(queue)].tags[place];
        let is_open = |state: &mut State| !matches!(of(state), Tag::Answered(_));
        let waited = self.changed.wait_timeout_while(self.state(), PATIENCE, is_open);
        let mut state = waited.unwrap().0;
        let Tag::Answered(result) = of(&state) else { panic!("no answer for tag {tag}") };
        let known = state.devices.get_mut(&id).unwrap();
        let is_stopping = known.is_stopping;
        let queue = &mut known.queues[usize::from(queue)];
        queue.tags[place] = if is_stopping { Tag::Gone } else { Tag::Free };
        if is_stopping {
            queue.came.push_back((tag, RES_ABORT));
            queue.wakers.iter().for_each(Notify::notify);
        }
        let data = std::mem::take(&mut queue.data[place]);
        drop(state);
        self.changed.notify_all();
        (result, data)
    }

    fn add(&self, buffer: &mut [u8]) {
        let mut state = self.state();
        let mut info = DeviceInfo::read_from_bytes(buffer).unwrap();
        info.id = state.devices.keys().next_back().map_or(0, |id| id + 1);
        buffer.copy_from_slice(info.as_bytes());
        state.devices.insert(info.id, Known { info, ..Known::default() });
    }

    /// Takes all tags back that have no request; those that have follow when they are answered.
    fn stop(&self, id: u32) {
        let mut state = self.state();
        let known = state.devices.get_mut(&id).unwrap();
        known.is_stopping = true;
        for queue in &mut known.queues {
            for (tag, number) in queue.tags.iter_mut().zip(0..) {
                if *tag == Tag::Free {
                    *tag = Tag::Gone;
                    queue.came.push_back((number, RES_ABORT));
                }
            }
            queue.wakers.iter().for_each(Notify::notify);
        }
    }
}

fn empty() -> DeviceInfo {
    DeviceInfo::default()
}

impl Driver for Pretended {
    fn command(
        &self,
        control: Control,
        device: u32,
        data: u64,
        buffer: &mut [u8],
    ) -> Result<(), Errno> {
        let mut state = self.state();
        if control != Control::GetDevInfo {
            state.asked.push(control);
        }
        if let Some(errno) = state.failing.get(&control.code()) {
            return Err(*errno);
        }
        let makes = matches!(control, Control::GetFeatures | Control::AddDev);
        if !makes && !state.devices.contains_key(&device) {
            return Err(Errno::NODEV);
        }
        let server = i32::try_from(data).unwrap();
        match control {
            Control::GetFeatures => buffer.copy_from_slice(self.features.as_bytes()),
            Control::GetDevInfo => buffer.copy_from_slice(state.devices[&device].info.as_bytes()),
            Control::AddDev => {
                drop(state);
                self.add(buffer);
            }
            Control::SetParams => {
                let known = state.devices.get_mut(&device).unwrap();
                known.parameters = Some(buffer.to_vec());
            }
            Control::StartDev | Control::EndUserRecovery => {
                let known = state.devices.get_mut(&device).unwrap();
                assert!(known.parameters.is_some(), "it is known what it is like");
                let all = |queue: &Queued| queue.tags.iter().all(|tag| *tag == Tag::Free);
                let is_ready = known.queues.len() == usize::from(known.info.queues);
                assert!(is_ready && known.queues.iter().all(all), "all queues ask for requests");
                known.info.server_pid = server;
                known.is_shown = true;
            }
            Control::StartUserRecovery => {
                let known = &state.devices[&device];
                assert_eq!(known.info.state, state::QUIESCED, "nobody serves it");
            }
            Control::StopDev => {
                drop(state);
                self.stop(device);
                // As the real one, it is back when everything has been taken back.
                let is_busy = |state: &mut State| {
                    let queues = &state.devices[&device].queues;
                    let busy = |tag: &Tag| matches!(tag, Tag::Busy | Tag::Answered(_));
                    queues.iter().any(|queue| queue.tags.iter().any(busy))
                };
                let waited = self.changed.wait_timeout_while(self.state(), PATIENCE, is_busy);
                assert!(!waited.unwrap().1.timed_out(), "what was under way is answered");
            }
            Control::DelDev => drop(state.devices.remove(&device)),
        }
        Ok(())
    }

    fn queue(&self, device: &DeviceInfo, queue: u16) -> io::Result<Box<dyn Queue>> {
        let mut state = self.state();
        if state.opens_no_queue {
            return Err(Errno::ACCESS.into());
        }
        let known = state.devices.get_mut(&device.id).unwrap();
        let depth = usize::from(device.depth);
        known.queues.resize_with(known.queues.len().max(usize::from(queue) + 1), Queued::default);
        known.queues[usize::from(queue)] = Queued {
            tags: vec![Tag::Unknown; depth],
            descriptors: vec![IoDescriptor::default(); depth],
            data: vec![Vec::new(); depth],
            ..Queued::default()
        };
        Ok(Box::new(PretendedQueue { kernel: self.clone(), id: device.id, queue }))
    }

    fn is_used(&self, _: u32) -> bool {
        self.state().used
    }
}

/// One queue of it.
struct PretendedQueue {
    kernel: Pretended,
    id: u32,
    queue: u16,
}

impl PretendedQueue {
    fn with<T>(&self, ask: impl FnOnce(&mut Queued) -> T) -> T {
        let mut state = self.kernel.state();
        let known = state.devices.get_mut(&self.id).unwrap();
        ask(&mut known.queues[usize::from(self.queue)])
    }
}

impl Queue for PretendedQueue {
    fn fetch(&mut self, tag: u16) {
        let is_refused = self.kernel.state().takes_no_fetch;
        self.with(|queue| {
            if is_refused {
                queue.came.push_back((tag, -Errno::INVAL.raw_os_error()));
                return;
            }
            let place = &mut queue.tags[usize::from(tag)];
            assert_eq!(std::mem::replace(place, Tag::Free), Tag::Unknown, "fetched once");
        });
        self.kernel.changed.notify_all();
    }

    fn commit(&mut self, tag: u16, result: i32) {
        self.with(|queue| {
            let place = &mut queue.tags[usize::from(tag)];
            let before = std::mem::replace(place, Tag::Answered(result));
            assert_eq!(before, Tag::Busy, "answered once");
        });
        self.kernel.changed.notify_all();
    }

    fn exchange(&mut self, came: &mut Vec<(u16, i32)>) -> io::Result<()> {
        self.with(|queue| came.extend(queue.came.drain(..)));
        if !came.is_empty() && std::mem::take(&mut self.kernel.state().panics) > 0 {
            self.with(|queue| {
                let busy = queue.tags.iter_mut().filter(|tag| **tag == Tag::Busy);
                busy.for_each(|tag| *tag = Tag::Answered(-Errno::IO.raw_os_error()));
            });
            self.kernel.changed.notify_all();
            panic!("a test has asked for this panic");
        }
        Ok(())
    }

    fn descriptor(&self, tag: u16) -> IoDescriptor {
        self.with(|queue| queue.descriptors[usize::from(tag)])
    }

    fn take_data(&self, tag: u16, to: &mut [u8]) -> io::Result<()> {
        self.with(|queue| to.copy_from_slice(&queue.data[usize::from(tag)]));
        Ok(())
    }

    fn give_data(&self, tag: u16, from: &mut [IoSlice<'_>]) -> io::Result<()> {
        let bytes: Vec<u8> = from.iter().flat_map(|piece| piece.iter().copied()).collect();
        self.with(|queue| queue.data[usize::from(tag)].copy_from_slice(&bytes));
        Ok(())
    }

    fn sleep(&self, waker: &Waker, timeout: Option<Duration>) -> io::Result<()> {
        let has_come = self.with(|queue| {
            if queue.wakers.is_empty() {
                queue.wakers.push(waker.clone());
            }
            !queue.came.is_empty()
        });
        if has_come { Ok(()) } else { waker.sleep(None, timeout) }
    }
}
