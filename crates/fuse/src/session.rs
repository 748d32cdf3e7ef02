//! A mount from the handshake to the end: threads that read requests and have them answered.

use std::io;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use crate::abi::init;
use crate::agreement::{Agreement, Step, Wishes, agree};
use crate::answer::Outcome;
use crate::device::Device;
use crate::errno::Errno;
use crate::notifier::{Notifier, number_retrieved};
use crate::reply::{Reply, Way};
use crate::request::{Call, Dialect, Request, decode};
use crate::uring::{Queue, Rings};

/// A file system.
pub trait FileSystem: Send + Sync + 'static {
    /// Answers `request` through `reply`, now or later. Never called for requests that need
    /// no answer.
    fn call(&self, request: Request<'_>, reply: Reply);

    /// The kernel releases so many lookups of each node.
    fn forget(&self, _nodes: Vec<(u64, u64)>) {}

    /// A signal interrupted the caller of request `unique`: end it soon, unless it has been
    /// answered.
    fn interrupt(&self, _unique: u64) {}

    /// Data that `Notifier::retrieve` asked for under `number`.
    fn retrieved(&self, _number: u64, _node: u64, _offset: u64, _data: &[u8]) {}
}

/// A mount whose handshake is done.
#[derive(Debug)]
pub struct FuseSession<F> {
    device: Arc<Device>,
    files: Arc<F>,
    agreement: Agreement,
    rings: Option<Rings>,
}

impl<F: FileSystem> FuseSession<F> {
    /// Shakes hands with the kernel over `device`, which `mount` returned.
    pub fn begin(device: OwnedFd, files: Arc<F>, wishes: &Wishes) -> io::Result<FuseSession<F>> {
        let device = Arc::new(Device::new(device));
        let mut wishes = *wishes;
        let rings = wishes.uring.then(|| Rings::new(&device, wishes.payload_max()));
        let rings = match rings {
            Some(Ok(rings)) => Some(rings),
            Some(Err(error)) => {
                tracing::debug!("without io_uring: {error}");
                None
            }
            None => None,
        };
        wishes.uring = rings.is_some();
        let agreement = shake_hands(&device, &wishes)?;
        let rings = rings.filter(|_| agreement.has(init::OVER_IO_URING));
        Ok(FuseSession { device, files, agreement, rings })
    }

    /// The agreement of kernel and file system.
    pub fn agreement(&self) -> Agreement {
        self.agreement
    }

    /// The way to notify the kernel.
    pub fn notifier(&self) -> Notifier {
        Notifier::new(Arc::clone(&self.device), self.agreement)
    }

    /// Serves until the mount is gone, with `threads` reading the device; requests over
    /// io_uring come on a thread for each processor besides.
    pub fn run(self, threads: usize) -> io::Result<()> {
        let FuseSession { device, files, agreement, rings } = self;
        let dialect = agreement.dialect();
        let mut helpers = Vec::new();
        let mut ring_threads = Vec::new();
        let queues = rings.map(Rings::into_queues).unwrap_or_default();
        let returns: Vec<_> = queues.iter().map(Queue::returns).collect();
        for mut queue in queues {
            let files = Arc::clone(&files);
            let name = format!("fuse-ring-{}", queue.number());
            let serve = move || {
                let served = serve_ring(&mut queue, &*files, dialect);
                (queue, served)
            };
            ring_threads.push(thread::Builder::new().name(name).spawn(serve)?);
        }
        for number in 1..threads.max(1) {
            let (files, device) = (Arc::clone(&files), Arc::new(device.another()?));
            let name = format!("fuse-{number}");
            let serve = move || read_requests(&device, &*files, agreement);
            helpers.push(thread::Builder::new().name(name).spawn(serve)?);
        }
        let mut result = read_requests(&device, &*files, agreement);
        returns.iter().for_each(|ring| ring.end());
        let panicked = || io::Error::other("a FUSE thread panicked");
        for thread in ring_threads {
            // The queue may end only now.
            result = result.and(thread.join().map_or_else(|_| Err(panicked()), |(_, end)| end));
        }
        for thread in helpers {
            result = result.and(thread.join().unwrap_or_else(|_| Err(panicked())));
        }
        result
    }
}

/// Reads INIT and answers it, twice if the kernel is newer than the protocol.
fn shake_hands(device: &Device, wishes: &Wishes) -> io::Result<Agreement> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let gone = || io::Error::other("unmounted before the handshake with the kernel");
        let read = device.read(&mut buffer)?.ok_or_else(gone)?;
        let bytes = buffer.get(..read).unwrap_or_default();
        let request = decode(bytes, Dialect::default()).map_err(io::Error::other)?;
        let Call::Init(offer) = request.call else {
            return Err(io::Error::other("the kernel's first request is not the handshake"));
        };
        match agree(&offer, wishes) {
            Step::Begin(agreement, answer) => {
                device.send(request.unique(), 0, &[], &answer)?;
                tracing::debug!(minor = agreement.minor, flags = agreement.flags, "handshake");
                return Ok(agreement);
            }
            Step::AskAgain(answer) => device.send(request.unique(), 0, &[], &answer)?,
            Step::TooOld => {
                device.send(request.unique(), -libc::EPROTO, &[], &[])?;
                return Err(io::Error::other("the kernel's FUSE is older than 7.31 (Linux 5.4)"));
            }
        }
    }
}

fn read_requests<F: FileSystem>(
    device: &Arc<Device>,
    files: &F,
    agreement: Agreement,
) -> io::Result<()> {
    let mut buffer = vec![0; agreement.request_max()];
    while let Some(read) = device.read(&mut buffer)? {
        let bytes = buffer.get(..read).unwrap_or_default();
        match decode(bytes, agreement.dialect()) {
            Ok(request) => {
                let unique = request.unique();
                dispatch(files, request, || Reply::new(unique, Way::Device(Arc::clone(device))));
            }
            Err(malformed) => refuse(device, bytes, malformed),
        }
    }
    Ok(())
}

/// A request that cannot be decoded has at least a number.
fn refuse(device: &Device, bytes: &[u8], malformed: crate::request::Malformed) {
    tracing::error!("{malformed}");
    let unique = bytes.get(8..16).and_then(|unique| unique.try_into().ok());
    if let Some(unique) = unique {
        device.answer(u64::from_ne_bytes(unique), &Err(Errno::IO));
    }
}

/// Hands `request` on. A call that panics answers EIO, and the thread serves the next one. A lost
/// thread would leave all callers of the mount waiting.
fn dispatch<F: FileSystem>(files: &F, request: Request<'_>, reply: impl FnOnce() -> Reply) {
    let opcode = request.header.opcode;
    // A reply that is dropped on the way answers EIO.
    let handed = catch_unwind(AssertUnwindSafe(|| hand_on(files, request, reply)));
    if handed.is_err() {
        tracing::error!(opcode, "a call panicked");
    }
}

/// A request that needs no answer gets no reply.
fn hand_on<F: FileSystem>(files: &F, request: Request<'_>, reply: impl FnOnce() -> Reply) {
    match request.call {
        Call::Forget(nodes) => files.forget(nodes),
        Call::Interrupt { unique } => files.interrupt(unique),
        Call::Retrieved { offset, data } => {
            let number = number_retrieved(request.header.unique);
            files.retrieved(number, request.header.nodeid, offset, data);
        }
        Call::Destroy => reply().send(Ok(crate::Answer::Empty)),
        Call::Unknown | Call::Init(_) => reply().send(unknown()),
        _ => files.call(request, reply()),
    }
}

fn unknown() -> Outcome {
    Err(Errno::NOSYS)
}

fn serve_ring<F: FileSystem>(queue: &mut Queue, files: &F, dialect: Dialect) -> io::Result<()> {
    queue.serve(dialect, |request, reply| dispatch(files, request, reply))
}
