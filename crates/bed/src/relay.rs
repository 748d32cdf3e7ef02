//! The relay: carries packets between two TUN devices through two lanes, in four threads.
//!
//! Each direction has a thread that reads its device into the lane and one that writes what
//! arrives at the lane's other end. All decisions are the lane's.

use std::fs::File;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::error::Result;
use super::lane::RelayQueue;
use super::link::LinkSpec;
use super::netns::NetNs;
use super::tun;

/// How often an idle thread looks whether it should end.
const IDLE: Duration = Duration::from_millis(100);

/// More than any packet: the devices' MTU is 1500.
const PACKET_BYTES_MAX: usize = 1 << 16;

#[derive(Debug)]
pub(crate) struct Relay {
    lanes: [Arc<SharedLane>; 2],
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct SharedLane {
    lane: Mutex<RelayQueue>,
    /// Told when the lane has got a packet or another link.
    changed: Condvar,
    epoch: Instant,
}

impl SharedLane {
    fn lock(&self) -> MutexGuard<'_, RelayQueue> {
        self.lane.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, change: impl FnOnce(&mut RelayQueue, Duration)) {
        let mut lane = self.lock();
        // The clock is read under the lock, so that the lane's time never runs backwards.
        change(&mut lane, self.epoch.elapsed());
        drop(lane);
        self.changed.notify_one();
    }
}

impl Relay {
    /// Makes a TUN device at both ends and starts to carry packets between them.
    pub(crate) fn start(
        near: (&NetNs, &str),
        far: (&NetNs, &str),
        link: &LinkSpec,
        seed: u64,
    ) -> Result<Relay> {
        let near = Arc::new(tun::open(near.0, near.1)?);
        let far = Arc::new(tun::open(far.0, far.1)?);
        let stop = Arc::new(AtomicBool::new(false));
        let lanes = [shared(link, seed), shared(link, !seed)];
        let [up, down] = &lanes;
        let mut threads = carry(near.clone(), up.clone(), far.clone(), &stop);
        threads.extend(carry(far, down.clone(), near, &stop));
        Ok(Relay { lanes, stop, threads })
    }

    pub(crate) fn set_link(&self, link: &LinkSpec) {
        for lane in &self.lanes {
            lane.update(|lane, now| lane.set_link(link.clone(), now));
        }
    }

    /// Bytes that each lane has carried, from the near end first.
    pub(crate) fn carried(&self) -> [u64; 2] {
        self.lanes.each_ref().map(|lane| {
            let mut carried = 0;
            lane.update(|lane, now| carried = lane.carried(now));
            carried
        })
    }

    pub(crate) fn set_down(&self, down: bool) {
        for lane in &self.lanes {
            lane.update(|lane, _| lane.set_down(down));
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A panicked relay has already said so on stderr.
            let _ = thread.join();
        }
    }
}

fn shared(link: &LinkSpec, seed: u64) -> Arc<SharedLane> {
    let lane = Mutex::new(RelayQueue::new(link.clone(), seed));
    Arc::new(SharedLane { lane, changed: Condvar::new(), epoch: Instant::now() })
}

fn carry(
    from: Arc<File>,
    lane: Arc<SharedLane>,
    to: Arc<File>,
    stop: &Arc<AtomicBool>,
) -> Vec<JoinHandle<()>> {
    let (reading, writing) = (lane.clone(), lane);
    let (stop_reading, stop_writing) = (stop.clone(), stop.clone());
    vec![
        thread::spawn(move || read_into(&from, &reading, &stop_reading)),
        thread::spawn(move || write_from(&writing, &to, &stop_writing)),
    ]
}

fn read_into(mut from: &File, lane: &SharedLane, stop: &AtomicBool) {
    let mut buffer = vec![0; PACKET_BYTES_MAX];
    let idle = Timespec::try_from(IDLE).ok();
    while !stop.load(Ordering::Relaxed) {
        match from.read(&mut buffer) {
            Ok(len) => lane.update(|lane, now| lane.push(buffer[..len].to_vec(), now)),
            // Nothing there, or the device is not up yet.
            Err(_) => {
                let _ = poll(&mut [PollFd::new(&from, PollFlags::IN)], idle.as_ref());
            }
        }
    }
}

fn write_from(lane: &SharedLane, mut to: &File, stop: &AtomicBool) {
    let mut state = lane.lock();
    while !stop.load(Ordering::Relaxed) {
        let now = lane.epoch.elapsed();
        if let Some(packet) = state.poll(now) {
            drop(state);
            // A device that does not take it loses it, as links do.
            let _ = to.write(&packet);
            state = lane.lock();
            continue;
        }
        let wait = state.next_deadline().map_or(IDLE, |due| due.saturating_sub(now).min(IDLE));
        let waited = lane.changed.wait_timeout(state, wait);
        state = waited.unwrap_or_else(PoisonError::into_inner).0;
    }
}
