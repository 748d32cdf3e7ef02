//! The experiment `train`: a mount's traffic on a link of a train, with tunnels.
//!
//! ```text
//!   PUT after PUT, four at once       up      write-back      STORE-DATA
//!   FETCH after FETCH, four at once   down    read ahead      STORE-DATA too (see `BULK`)
//!   FETCH of 16 KB, each second       down    is waited for   FETCH
//!   LOOKUP, each 100 ms               timed   is waited for   VALIDATE
//! ```
//!
//! The connection is a [`Link`], as a mount has it: what was not answered when a connection ended
//! is sent again on the next. Each message is noise of its own. The server knows those that arrived
//! whole, and the client looks at each byte that it fetched: nothing is lost or changed unseen.

#[cfg(test)]
mod model;
mod report;
mod trips;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use segue_core::chunk::fingerprint;
use segue_core::nouns::{Class, ClientId, Ino, Version};
use segue_core::wire::{Fetch, Hello, Put, Reply, Request, Seek};
use segue_rpc::{Link, Response, greet};
use serde::Serialize;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use self::report::Ride;
use self::trips::{Latency, Trip, latency, outages, returns_ms};
use super::drive::question;
use super::ledger::message;
use super::pair::{self, Door, VOLUME};
use super::ride::{Second, ride};
use super::serve::{NOISE, TALLY};
use super::trace::{Trace, utilization};
use super::variant::Variant;
use super::wrong;
use crate::measurement::{Effort, Run};
use crate::plot::lines::Chart;
use crate::record::Context;
use segue_bed::{Bed, Host, Result};

const TRACE: &str = include_str!("../../traces/train.txt");
/// What may wait before the link.
const QUEUE_BYTES: u64 = 128 << 10;
const MESSAGE_BYTES: u32 = 32 << 10;
const READ_BYTES: u32 = 16 << 10;
/// Of each kind of bulk that are under way.
const MESSAGES: u64 = 4;
/// Both kinds of bulk go at one class: an answer goes at its call's, and each would starve for as
/// long as more urgent bulk fills its direction.
const BULK: Class = Class::StoreData;
const QUESTION_PACE: Duration = Duration::from_millis(100);
const READ_PACE: Duration = Duration::from_secs(1);
/// How long a call may wait for a connection: longer than any tunnel.
const PATIENCE: Duration = Duration::from_secs(180);

/// What was measured.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Figures {
    /// Messages that the client sent and the server acknowledged.
    acknowledged: u64,
    /// Messages that are at the server, whole.
    arrived: u64,
    /// How often one arrived that was there: its acknowledgement was lost.
    arrived_again: u64,
    /// Messages that were fetched, and are what they should be.
    fetched: u64,
    /// Fetches that a lost connection cut, which were begun anew.
    cut: u64,
    /// Messages that arrived otherwise than they were sent, either way.
    damaged: u64,
    /// Calls that failed, of any kind.
    failed: u64,
    connections: u64,
    outages: usize,
    outage_seconds: u64,
    /// After each outage: until something was answered.
    returns_ms: Vec<f64>,
    /// Shares of what the link could carry, up and down.
    utilization: [f64; 2],
    rate_kb: Vec<f64>,
    used_kb: [Vec<f64>; 2],
    /// By kind of call.
    latencies: Vec<Latency>,
}

/// What all of a client's tasks share.
struct Client {
    link: Link,
    start: Instant,
    is_over: AtomicBool,
    /// The next message of each kind.
    next_put: AtomicU64,
    next_fetch: AtomicU64,
    acknowledged: AtomicU64,
    fetched: AtomicU64,
    cut: AtomicU64,
    damaged: AtomicU64,
    failed: AtomicU64,
}

/// Measures and writes the results; the table.
pub(super) fn run(effort: &Effort, out: &Path, context: Context) -> Result<String> {
    let trace = Trace::parse(TRACE)?.scaled(effort.scale);
    let mut run = Run::create(out, "train", context, effort.scale)?;
    for repeat in 1..=effort.repeats {
        run.add(Ride {}, repeat, measure(&trace, u64::from(repeat), effort.limit))?;
    }
    let Run { results, measured, .. } = run;
    let text = report::markdown(results.context(), &measured);
    results.finish(&text, &Chart::parts(report::charts(&measured)))?;
    Ok(text)
}

/// Which packets are lost follows from `seed`.
fn measure(trace: &Trace, seed: u64, limit: Duration) -> Result<Figures> {
    let link = trace.first()?.link(QUEUE_BYTES);
    let trace = trace.clone();
    pair::visit(&Bed::with_seed(seed)?, Variant::Segue, link, limit, async move |door, host| {
        travel(door, host, trace).await
    })
}

async fn travel(door: &Door, host: Host, trace: Trace) -> Result<Figures> {
    let greeting = Arc::new(|peer| -> std::pin::Pin<Box<dyn Future<Output = _> + Send>> {
        Box::pin(async move { greet(&peer, hello()).await })
    });
    let link = Link::open(door.target.clone(), door.identity.clone(), greeting);
    let client = Arc::new(Client::new(link));
    // So that the ride begins with a connection.
    client.count().await?;
    let start = Instant::now();
    let client =
        Arc::new(Client { start, ..Arc::into_inner(client).ok_or_else(|| wrong("shared"))? });
    let mut bulk = JoinSet::new();
    for _ in 0..MESSAGES {
        bulk.spawn(client.clone().write_back());
        bulk.spawn(client.clone().read_ahead());
    }
    let questions = tokio::spawn(client.clone().ask());
    let reads = tokio::spawn(client.clone().read());
    let riding = trace.clone();
    let riding =
        tokio::task::spawn_blocking(move || ride(&host, &riding, QUEUE_BYTES, start, || ()));
    let seconds = riding.await.map_err(wrong)??;
    client.is_over.store(true, Relaxed);
    // Everything that was begun is brought to its end.
    let mut trips: [Vec<Trip>; 2] = Default::default();
    while let Some(more) = bulk.join_next().await {
        let (kind, more) = more.map_err(wrong)?;
        trips[usize::from(kind == Bulk::ReadAhead)].extend(more);
    }
    let [questions, reads] = [questions.await.map_err(wrong)?, reads.await.map_err(wrong)?];
    let [arrived, arrived_again] = client.count().await?;
    let [puts, fetches] = trips;
    let kinds = [
        ("question, VALIDATE", questions),
        ("read, FETCH", reads),
        ("write-back, STORE-DATA", puts),
        ("read ahead, STORE-DATA", fetches),
    ];
    Ok(client.figures(&trace, &seconds, kinds, [arrived, arrived_again]))
}

fn hello() -> Hello {
    Hello {
        volume: VOLUME.to_owned(),
        client: ClientId([1; 16]),
        incarnation: 1,
        host: "train".to_owned(),
        acked_below: 0,
        next: u64::MAX,
        known: None,
        was: None,
        fresh_start: false,
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bulk {
    WriteBack,
    ReadAhead,
}

impl Client {
    fn new(link: Link) -> Client {
        Client {
            link,
            start: Instant::now(),
            is_over: AtomicBool::new(false),
            next_put: AtomicU64::new(0),
            next_fetch: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
            fetched: AtomicU64::new(0),
            cut: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    /// Calls, and counts it if that fails.
    async fn call(&self, class: Class, request: &Request, body: Bytes) -> Option<Response> {
        let called = self.link.call_at(class, request, body, PATIENCE).await;
        if let Err(error) = &called {
            eprintln!("train: {} failed: {error}", request.name());
            self.failed.fetch_add(1, Relaxed);
        }
        called.ok()
    }

    fn is_going(&self) -> bool {
        !self.is_over.load(Relaxed)
    }

    async fn write_back(self: Arc<Self>) -> (Bulk, Vec<Trip>) {
        let mut trips = Vec::new();
        while self.is_going() {
            let body = message(self.next_put.fetch_add(1, Relaxed), MESSAGE_BYTES as usize);
            let chunk = (fingerprint(&body), MESSAGE_BYTES);
            let request = Request::Put(Put { chunks: vec![chunk], ..Put::default() });
            let began = self.start.elapsed();
            match self.call(BULK, &request, body).await.map(|response| response.reply) {
                Some(Reply::Stored(_)) => {
                    self.acknowledged.fetch_add(1, Relaxed);
                    trips.push(Trip { began, ended: self.start.elapsed() });
                }
                Some(_) => _ = self.damaged.fetch_add(1, Relaxed),
                None => {}
            }
        }
        (Bulk::WriteBack, trips)
    }

    async fn read_ahead(self: Arc<Self>) -> (Bulk, Vec<Trip>) {
        let mut trips = Vec::new();
        while self.is_going() {
            trips.extend(self.fetch(BULK, MESSAGE_BYTES).await);
        }
        (Bulk::ReadAhead, trips)
    }

    async fn read(self: Arc<Self>) -> Vec<Trip> {
        let mut trips = Vec::new();
        while self.is_going() {
            let next = Instant::now() + READ_PACE;
            trips.extend(self.fetch(Class::Fetch, READ_BYTES).await);
            sleep_until(next.into()).await;
        }
        trips
    }

    /// Fetches a message, as often as it takes; none if that failed.
    async fn fetch(&self, class: Class, bytes: u32) -> Option<Trip> {
        let number = self.next_fetch.fetch_add(1, Relaxed);
        let fetch =
            Fetch { ino: NOISE, version: Version::default(), offset: number, len: bytes.into() };
        let began = self.start.elapsed();
        loop {
            let body = self.call(class, &Request::Fetch(fetch), Bytes::new()).await?.body;
            let Ok(body) = body.collect(bytes as usize).await else {
                self.cut.fetch_add(1, Relaxed);
                continue;
            };
            if body != message(number, bytes as usize) {
                self.damaged.fetch_add(1, Relaxed);
                return None;
            }
            self.fetched.fetch_add(1, Relaxed);
            return Some(Trip { began, ended: self.start.elapsed() });
        }
    }

    async fn ask(self: Arc<Self>) -> Vec<Trip> {
        let mut trips = Vec::new();
        let Ok(question) = question() else { return trips };
        while self.is_going() {
            let next = Instant::now() + QUESTION_PACE;
            let began = self.start.elapsed();
            if self.call(question.class(), &question, Bytes::new()).await.is_some() {
                trips.push(Trip { began, ended: self.start.elapsed() });
            }
            sleep_until(next.into()).await;
        }
        trips
    }

    /// What the server has of our messages.
    async fn count(&self) -> Result<[u64; 2]> {
        let seek =
            Request::Seek(Seek { ino: Ino::ROOT, version: Version::default(), offset: TALLY });
        let called = self.call(seek.class(), &seek, Bytes::new()).await;
        match called.map(|response| response.reply) {
            Some(Reply::Sought(counts)) => Ok([counts.start, counts.end]),
            _ => Err(wrong("the server does not count")),
        }
    }

    fn figures(
        &self,
        trace: &Trace,
        seconds: &[Second<()>],
        kinds: [(&'static str, Vec<Trip>); 4],
        [arrived, arrived_again]: [u64; 2],
    ) -> Figures {
        let kb = |bytes: u64| bytes as f64 / 1024.0;
        let [up, down] = [0, 1]
            .map(|way: usize| seconds.iter().map(|second| second.carried[way]).collect::<Vec<_>>());
        let outages = outages(trace);
        let answers: Vec<Duration> =
            kinds.iter().flat_map(|(_, trips)| trips.iter().map(|trip| trip.ended)).collect();
        let number = |count: &AtomicU64| count.load(Relaxed);
        Figures {
            acknowledged: number(&self.acknowledged),
            arrived,
            arrived_again,
            fetched: number(&self.fetched),
            cut: number(&self.cut),
            damaged: number(&self.damaged),
            failed: number(&self.failed),
            connections: self.link.generation().unwrap_or(0),
            outages: outages.len(),
            outage_seconds: outages.iter().map(|(from, to)| (*to - *from).as_secs()).sum(),
            returns_ms: returns_ms(&outages, &answers),
            utilization: [&up, &down].map(|carried| utilization(carried, &trace.capacity()).1),
            rate_kb: trace.moments.iter().map(|moment| moment.rate_kb_per_s).collect(),
            used_kb: [up, down].map(|carried| carried.into_iter().map(kb).collect()),
            latencies: kinds.iter().map(|(kind, trips)| latency(kind, trips, &outages)).collect(),
        }
    }
}
