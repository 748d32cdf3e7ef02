//! The client's end: it saturates the link, and asks a small question now and then.
//!
//! One question is in flight at a time, so a slow answer delays the next question: where answers
//! are slow for a while, few of them are counted. The maximum shows it.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use segue_core::nouns::{Ino, Name, Version};
use segue_core::wire::{Fetch, Lookup, Put, Reply, Request, Seek, Sought};
use segue_rpc::{Body, CallError, Peer};
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::dial::Dial;
use super::direction::Direction;
use super::serve::pour;
use super::wrong;
use segue_bed::{Counters, Doing, Result, Rng, counters_here};

/// Messages of the bulk in each direction that are under way at once: the next ones are there when
/// one is over, however long its answer takes.
pub(super) const MESSAGES: usize = 4;
/// Questions on the idle link.
const IDLE_CALLS: usize = 10;
/// Between two of these.
const IDLE_PACE: Duration = Duration::from_millis(50);
/// With its head, the tag, the directory and the length before it this makes 50 bytes.
const NAME: &str = "a-name-that-is-not-there-which-is-long.rs";

/// What the client's process is told.
#[derive(Debug, clap::Args)]
pub struct Drive {
    #[command(flatten)]
    to: Dial,
    /// Which way the bulk goes.
    #[arg(long, value_enum)]
    pub direction: Direction,
    /// Bytes of each message of the bulk.
    #[arg(long)]
    pub message_bytes: u64,
    /// Least microseconds between two questions.
    #[arg(long)]
    pub pace_us: u64,
    /// Milliseconds for which the bulk goes before anything counts.
    #[arg(long)]
    pub warm_ms: u64,
    /// Milliseconds that count, or more until there were as many questions as asked for.
    #[arg(long)]
    pub measure_ms: u64,
    /// Least number of questions.
    #[arg(long)]
    pub calls: usize,
}

/// What the client's process found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Driven {
    /// Round trips on the idle link, in microseconds.
    pub idle_us: Vec<u64>,
    /// Round trips beside the bulk, in microseconds.
    pub calls_us: Vec<u64>,
    /// Body bytes a second that the server got, by its own clock.
    pub up: f64,
    /// Body bytes a second that the client got.
    pub down: f64,
    /// Bytes a second that the client gave to its link, with all headers.
    pub sent: f64,
    /// Bytes a second that the client's link brought, with all headers.
    pub received: f64,
}

/// Everything that grows, at one moment.
struct Mark {
    at: Instant,
    /// Body bytes that came here.
    body: u64,
    link: Counters,
    /// Body bytes that came to the server, and its clock in microseconds.
    server: Sought,
}

/// Connects, and measures as `options` say.
pub fn drive(options: &Drive) -> Result<Driven> {
    Runtime::new()
        .doing("start the client's threads")?
        .block_on(async { measure(&options.to.peer().await?, options).await })
}

async fn measure(peer: &Peer, options: &Drive) -> Result<Driven> {
    let idle_us = ask(peer, IDLE_PACE, Duration::ZERO, IDLE_CALLS).await?;
    let body = Arc::new(AtomicU64::new(0));
    let mut bulk = JoinSet::new();
    for _ in 0..MESSAGES {
        if options.direction.is_up() {
            bulk.spawn(upload(peer.clone(), options.message_bytes));
        }
        if options.direction.is_down() {
            bulk.spawn(download(peer.clone(), options.message_bytes, body.clone()));
        }
    }
    sleep(Duration::from_millis(options.warm_ms)).await;
    let before = mark(peer, &body).await?;
    let least = Duration::from_millis(options.measure_ms);
    let pace = Duration::from_micros(options.pace_us);
    let calls_us = ask(peer, pace, least, options.calls).await?;
    let after = mark(peer, &body).await?;
    if let Some(ended) = bulk.try_join_next() {
        return Err(wrong(format!("the bulk has ended: {ended:?}")));
    }
    let seconds = (after.at - before.at).as_secs_f64();
    let server_seconds = (after.server.end - before.server.end) as f64 / 1e6;
    Ok(Driven {
        idle_us,
        calls_us,
        up: (after.server.start - before.server.start) as f64 / server_seconds,
        down: (after.body - before.body) as f64 / seconds,
        sent: (after.link.tx - before.link.tx) as f64 / seconds,
        received: (after.link.rx - before.link.rx) as f64 / seconds,
    })
}

/// Sends one message after the other; returns when one fails.
pub(super) async fn upload(peer: Peer, bytes: u64) -> std::result::Result<Infallible, CallError> {
    let request = swallow();
    loop {
        let (sender, body) = Body::channel();
        tokio::spawn(pour(sender, bytes));
        peer.call(&request, body).await?;
    }
}

/// Reads one message after the other and counts its bytes; returns when one fails.
pub(super) async fn download(
    peer: Peer,
    bytes: u64,
    count: Arc<AtomicU64>,
) -> std::result::Result<Infallible, CallError> {
    let request = give(bytes);
    loop {
        let mut body = peer.call(&request, Body::Empty).await?.body;
        while let Some(piece) = body.next().await.map_err(|_| CallError::Cancelled)? {
            count.fetch_add(piece.len() as u64, Relaxed);
        }
    }
}

/// Asks for at least so long and so often: what each answer took, in microseconds.
async fn ask(peer: &Peer, pace: Duration, least: Duration, calls: usize) -> Result<Vec<u64>> {
    let question = question()?;
    // At random, or the questions might come each time at the same place of a packet.
    let mut rng = Rng::new(1);
    let (start, mut trips) = (Instant::now(), Vec::new());
    while start.elapsed() < least || trips.len() < calls {
        let asked = Instant::now();
        peer.call(&question, Body::Empty).await.map_err(wrong)?;
        trips.push(u64::try_from(asked.elapsed().as_micros()).unwrap_or(u64::MAX));
        sleep_until(asked + pace.mul_f64(1.0 + rng.unit() / 2.0)).await;
    }
    Ok(trips)
}

/// A request that takes any body.
pub(super) fn swallow() -> Request {
    Request::Put(Put::default())
}

/// A request for a body of so many bytes.
pub(super) fn give(bytes: u64) -> Request {
    let (ino, version) = (Ino::ROOT, Version::default());
    Request::Fetch(Fetch { ino, version, offset: 0, len: bytes })
}

/// 100 bytes with its answer.
pub(super) fn question() -> Result<Request> {
    let name = Name::new(NAME).map_err(wrong)?;
    Ok(Request::Lookup(Lookup { parent: Ino::ROOT, name }))
}

async fn mark(peer: &Peer, body: &AtomicU64) -> Result<Mark> {
    let server = count(peer).await?;
    Ok(Mark { at: Instant::now(), body: body.load(Relaxed), link: counters_here()?, server })
}

/// Bytes of bodies that came to the server, and its clock.
pub(super) async fn count(peer: &Peer) -> Result<Sought> {
    let (ino, version) = (Ino::ROOT, Version::default());
    let request = Request::Seek(Seek { ino, version, offset: 0 });
    match peer.call(&request, Body::Empty).await.map_err(wrong)?.reply {
        Reply::Sought(server) => Ok(server),
        other => Err(wrong(format!("the server counts by {}", other.name()))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::serve::{ANSWER, refused};
    use super::*;

    #[test]
    fn a_question_and_its_answer_are_100_bytes() {
        // Length and class stand before each message.
        let head = 5;
        assert_eq!(head + question().unwrap().encode().unwrap().len(), 50);
        assert_eq!(head + refused(ANSWER).encode().unwrap().len(), 50);
    }
}
