//! Requests over io_uring, from protocol 7.42 on, fetched and answered without a system call for
//! each.
//!
//! The kernel has a queue for each processor; we have a ring and a thread for each queue. A ring
//! has entries, each with a header and a payload buffer. The kernel owns an entry from its
//! submission until its completion brings a request. We own it until it is submitted again with the
//! answer:
//!
//! ```text
//!   register ──▶ kernel's ──completion──▶ ours: decode, call ──answer──▶ commit and fetch ─┐
//!                   ▲                                                                       │
//!                   └───────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Only the ring's own thread touches buffers and submits. Answers from other threads reach it
//! through [`Returns`]. Forgets, interrupts and notifications still use the device.
//!
//! When the mount is gone, the kernel returns its own entries and forgets ours. So the device's
//! reader ends the threads of the rings. A thread that waited for the entries of unanswered
//! requests would never end.
//!
//! The kernel loses a signal that arrives between the choice of an entry for a request and its
//! delivery. (6.18: `fuse_uring_prepare_send` does not look for it as `fuse_dev_do_read` does.)
//! Then the process cannot even be killed. So we look for a signal ourselves, for each request
//! without an answer at once.
//!
//! Another fault cannot be mended here. If a mount ends while its entries are being registered,
//! umount(2) may wait for ever for a late entry: `fuse_uring_do_register` does not check whether
//! the queue was stopped.

#![allow(unsafe_code, reason = "buffers are shared with the kernel")]

mod buffers;
mod returns;

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};
use zerocopy::{FromBytes, IntoBytes};

use self::buffers::Buffers;
pub(crate) use self::returns::Returns;
use crate::abi::{InHeader, OutHeader, UringCmdReq, UringEntInOut};
use crate::answer::{Answer, Outcome, encode};
use crate::device::Device;
use crate::errno::Errno;
use crate::reply::{Reply, Way};
use crate::request::{Call, Dialect, Request, decode_parts};

const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;
/// Entries of a queue, which bound the waiting requests of one processor. Further requests wait in
/// the kernel until one is answered, and can be killed there. If all entries wait for one of those,
/// as for the release of a lock, none proceeds. So there are more entries than processes of a host
/// that wait for one lock. Unused entries cost half a kilobyte.
const DEPTH: u16 = 1024;
/// Most entries handed to the kernel at a time.
const SUBMISSIONS: u32 = 256;
/// A header: answer and request headers, the request's structure, the words beside them.
const HEADER: usize = 128 + 128 + size_of::<UringEntInOut>();
const FIXED_AT: usize = 128;
const BESIDE_AT: usize = 256;
/// The completion that announces answers from other threads.
const WOKEN: u64 = u64::MAX;

type Ring = IoUring<Entry128, cqueue::Entry>;

/// A ring for each processor.
#[derive(Debug)]
pub(crate) struct Rings(Vec<Queue>);

impl Rings {
    /// Makes the rings, with room for requests and answers of `payload` bytes. It fails if io_uring
    /// is unavailable here.
    pub(crate) fn new(device: &Arc<Device>, payload: usize) -> io::Result<Rings> {
        let allowed = std::fs::read_to_string("/sys/module/fuse/parameters/enable_uring")?;
        if !allowed.starts_with('Y') {
            return Err(io::Error::other("the kernel parameter fuse.enable_uring is off"));
        }
        let queues = (0..processors()?).map(|number| Queue::new(number, device, payload));
        Ok(Rings(queues.collect::<io::Result<_>>()?))
    }

    pub(crate) fn into_queues(self) -> Vec<Queue> {
        self.0
    }
}

/// The highest possible number of processors of the host.
fn processors() -> io::Result<u16> {
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible")?;
    let last = possible.trim().rsplit(['-', ',']).next().and_then(|last| last.parse().ok());
    let last: u16 = last.ok_or_else(|| io::Error::other("cannot read the list of processors"))?;
    Ok(last + 1)
}

/// One processor's queue.
#[derive(Debug)]
pub(crate) struct Queue {
    number: u16,
    device: Arc<Device>,
    buffers: Buffers,
    /// The numbers of the requests that the entries hold, for the answers.
    held: Vec<(u64, u64)>,
    returns: Arc<Returns>,
    woken: Box<[u8; 8]>,
}

impl Queue {
    fn new(number: u16, device: &Arc<Device>, payload_len: usize) -> io::Result<Queue> {
        // The ring is tried before the kernel hears of it.
        ring()?;
        Ok(Queue {
            number,
            device: Arc::clone(device),
            buffers: Buffers::new(DEPTH, payload_len)?,
            held: vec![(0, 0); DEPTH.into()],
            returns: Arc::new(Returns::new()?),
            woken: Box::new([0; 8]),
        })
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    /// The way to end this queue.
    pub(crate) fn returns(&self) -> Arc<Returns> {
        Arc::clone(&self.returns)
    }

    /// Serves until the mount is gone. Memory shared with the kernel must outlive this thread,
    /// because the kernel finishes a closed ring on it: the eventfd was read into freed memory
    /// once.
    pub(crate) fn serve(
        &mut self,
        dialect: Dialect,
        mut handle: impl FnMut(Request<'_>, &dyn Fn() -> Reply),
    ) -> io::Result<()> {
        pin_to(self.number);
        // A ring of one submitter belongs to its thread.
        let mut ring = ring()?;
        self.returns.come_here();
        for entry in 0..DEPTH {
            self.submit(&mut ring, entry, REGISTER, 0)?;
        }
        self.listen(&mut ring)?;
        let mut live = DEPTH;
        while live > 0 && !self.returns.has_ended() {
            match ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            let completions: Vec<(u64, i32)> =
                ring.completion().map(|done| (done.user_data(), done.result())).collect();
            for (which, result) in completions {
                match u16::try_from(which) {
                    Ok(entry) if result >= 0 => self.take_in(entry, dialect, &mut handle),
                    // The mount is gone, or never took the entry.
                    Ok(_) => live -= 1,
                    Err(_) => self.listen(&mut ring)?,
                }
            }
            for (entry, outcome) in self.returns.take() {
                self.give_back(&mut ring, entry, &outcome)?;
            }
        }
        Ok(())
    }

    /// Decodes the request in `entry` and dispatches it.
    fn take_in(
        &mut self,
        entry: u16,
        dialect: Dialect,
        handle: &mut impl FnMut(Request<'_>, &dyn Fn() -> Reply),
    ) {
        let returns = &self.returns;
        let Some((header, payload)) = self.buffers.entry(entry) else { return };
        let read = || {
            let (head, _) = InHeader::read_from_prefix(header.as_slice()).ok()?;
            let (beside, _) = UringEntInOut::read_from_prefix(header.get(BESIDE_AT..)?).ok()?;
            let fixed = header.get(FIXED_AT..BESIDE_AT)?;
            Some((head, beside, fixed, payload.get(..beside.payload_sz as usize)?))
        };
        let Some((head, beside, fixed, rest)) = read() else {
            return returns.push(entry, Err(Errno::IO));
        };
        if let Some(held) = self.held.get_mut(usize::from(entry)) {
            *held = (head.unique, beside.commit_id);
        }
        match decode_parts(head, fixed, rest, dialect) {
            Ok(request) => {
                let is_told = matches!(request.call, Call::Retrieved { .. });
                let reply = || Reply::new(head.unique, Way::Ring(Arc::clone(returns), entry));
                handle(request, &reply);
                if is_told {
                    // It needs no answer, but the kernel wants the entry back.
                    returns.push(entry, Ok(Answer::Empty));
                } else if !returns.has(entry) && is_signalled(head.pid) {
                    let call = Call::Interrupt { unique: head.unique };
                    handle(Request { header: head, call, groups: Vec::new() }, &reply);
                }
            }
            Err(malformed) => {
                tracing::error!("{malformed}");
                returns.push(entry, Err(Errno::IO));
            }
        }
    }

    /// Writes the answer into `entry` and submits it.
    fn give_back(&mut self, ring: &mut Ring, entry: u16, outcome: &Outcome) -> io::Result<()> {
        let (unique, commit_id) = self.held.get(usize::from(entry)).copied().unwrap_or_default();
        let Some((header, payload)) = self.buffers.entry(entry) else { return Ok(()) };
        let written = match outcome {
            Ok(answer) => {
                let (fixed, data) = encode(answer);
                put(payload, &[fixed.bytes(), data]).ok_or(Errno::IO)
            }
            Err(errno) => Err(*errno),
        };
        let (error, len) = match written {
            Ok(len) => (0, len),
            Err(errno) => (-errno.raw(), 0),
        };
        let total = u32::try_from(size_of::<OutHeader>()).unwrap_or(0) + len;
        let out = OutHeader { len: total, error, unique };
        let beside = UringEntInOut { commit_id, payload_sz: len, ..UringEntInOut::default() };
        put(header, &[out.as_bytes()]);
        put(header.get_mut(BESIDE_AT..).unwrap_or_default(), &[beside.as_bytes()]);
        self.submit(ring, entry, COMMIT_AND_FETCH, commit_id)
    }

    /// Hands `entry` to the kernel.
    fn submit(&self, ring: &mut Ring, entry: u16, command: u32, commit_id: u64) -> io::Result<()> {
        let request = UringCmdReq { commit_id, qid: self.number, ..UringCmdReq::default() };
        let mut area = [0; 80];
        put(&mut area, &[request.as_bytes()]);
        let device = types::Fd(self.device.as_fd().as_raw_fd());
        let mut submission =
            opcode::UringCmd80::new(device, command).cmd(area).build().user_data(entry.into());
        let vectors = self.buffers.vectors(entry);
        // SAFETY: an entry has the kernel's layout, 128 bytes; its fields `addr` and `len`,
        // which the library does not set for this command, are at 16 and 24.
        unsafe {
            let raw = (&raw mut submission).cast::<u8>();
            raw.add(16).cast::<u64>().write_unaligned(vectors);
            raw.add(24).cast::<u32>().write_unaligned(2);
        }
        push(ring, &submission)
    }

    /// Has the ring report answers of other threads.
    fn listen(&mut self, ring: &mut Ring) -> io::Result<()> {
        let wake = types::Fd(self.returns.as_fd().as_raw_fd());
        let read = opcode::Read::new(wake, self.woken.as_mut_ptr(), 8).build().user_data(WOKEN);
        push(ring, &Entry128::from(read))
    }
}

fn ring() -> io::Result<Ring> {
    let mut builder = IoUring::builder();
    // Every entry can complete at once, and the eventfd with them.
    builder.setup_single_issuer().setup_coop_taskrun().setup_cqsize(u32::from(DEPTH) * 2);
    builder.build(SUBMISSIONS)
}

fn push(ring: &mut Ring, submission: &Entry128) -> io::Result<()> {
    // SAFETY: every buffer that a submission names lives in the queue, which outlives the ring's
    // thread and does not touch the buffer until the completion.
    let mut pushed = unsafe { ring.submission().push(submission) };
    if pushed.is_err() {
        ring.submit()?;
        // SAFETY: as above.
        pushed = unsafe { ring.submission().push(submission) };
    }
    pushed.map_err(io::Error::other)
}

/// True if a signal waits for `thread`, which is 0 without a waiter. The signal stays pending until
/// the request has ended.
fn is_signalled(thread: u32) -> bool {
    if thread == 0 {
        return false;
    }
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
    };
    (mask("SigPnd:") | mask("ShdPnd:")) & !mask("SigBlk:") != 0
}

/// Writes `parts` one after the other into `target`, and returns their length.
fn put(target: &mut [u8], parts: &[&[u8]]) -> Option<u32> {
    let mut at = 0;
    for part in parts {
        target.get_mut(at..at + part.len())?.copy_from_slice(part);
        at += part.len();
    }
    u32::try_from(at).ok()
}

/// A queue is filled by its processor, and best emptied there.
fn pin_to(processor: u16) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(processor.into());
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        tracing::debug!(processor, "not pinned: {error}");
    }
}
