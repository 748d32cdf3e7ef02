//! Connections over a simulated path, to see what the law of the transport makes of it.
//!
//! The connections are QUIC's own state machines under Segue's law (or TCP's, to compete with);
//! clock, queue, rate, delay and loss are simulated, so a minute takes a fraction of a second and
//! is the same each time.
//!
//! ```text
//!   client ──▶ up: queue ─ rate ─ delay ─ loss ──▶ server
//!          ◀── down: the same ────────────────────◀
//! ```

mod drawn;
mod host;
mod lane;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::BytesMut;

pub use self::drawn::{DrawnLink, Verdict};
pub use self::host::Control;
use self::host::{Host, Keys};
pub use self::lane::LaneSpec;
use self::lane::PathQueue;

/// A full packet with its headers, bytes.
pub const PACKET: u64 = 1480;

/// How often a question is asked.
const ASK_PERIOD: Duration = Duration::from_millis(50);

/// What is sent over a path.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// From the clients to the servers.
    pub up: LaneSpec,
    /// Back.
    pub down: LaneSpec,
    /// The connections; questions are asked on the first.
    pub flows: Vec<Flow>,
    /// How long it lasts.
    pub time: Duration,
    /// From when on it is measured.
    pub from: Duration,
    /// What else the servers have to do.
    pub pauses: Option<Pauses>,
}

/// A host that is busy with something else now and then.
#[derive(Clone, Copy, Debug)]
pub struct Pauses {
    /// How often.
    pub each: Duration,
    /// For how long it does nothing.
    pub time: Duration,
}

/// What a packet takes of a host that catches up.
const PACKET_TIME: Duration = Duration::from_micros(20);

impl Pauses {
    /// When a host does what it should do `at` that time.
    fn end(self, start: Instant, at: Instant) -> Instant {
        let since = at.saturating_duration_since(start).as_micros() % self.each.as_micros().max(1);
        let left = self.time.as_micros().saturating_sub(since);
        at + Duration::from_micros(u64::try_from(left).unwrap_or(0))
    }
}

/// A connection that sends for ever.
#[derive(Clone, Copy, Debug)]
pub struct Flow {
    /// What holds it back.
    pub control: Control,
    /// When it begins to send up.
    pub up: Option<Duration>,
    /// When it begins to send down.
    pub down: Option<Duration>,
    /// When it ends.
    pub until: Option<Duration>,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Bytes of messages that arrived at the server, by flow.
    pub up: Vec<u64>,
    /// The same at the client.
    pub down: Vec<u64>,
    /// What the lanes could have carried, bytes.
    pub capacity: [u64; 2],
    /// Bytes that arrived in each second, all flows together, since the beginning.
    pub seconds: Vec<[u64; 2]>,
    /// How long each question took, sorted.
    pub trips: Vec<Duration>,
    /// The same with when it was answered, since the beginning, in that order.
    pub timed: Vec<(Duration, Duration)>,
    /// Questions that were not answered at the end.
    pub unanswered: usize,
    /// How long the queue up was, at each packet, sorted.
    pub queue: Vec<Duration>,
}

impl Outcome {
    /// So many of a hundred questions took at most that long.
    pub fn percentile(&self, percent: usize) -> Duration {
        percentile(&self.trips, percent)
    }
}

/// The value below which so many of a hundred sorted ones are.
pub fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let index = (sorted.len() * percent / 100).min(sorted.len().saturating_sub(1));
    sorted.get(index).copied().unwrap_or_default()
}

/// A packet on its way, ordered by when it arrives.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Travelling {
    at: Instant,
    number: u64,
    flow: usize,
    up: bool,
    bytes: Vec<u8>,
}

struct World {
    now: Instant,
    start: Instant,
    clients: Vec<Host>,
    servers: Vec<Host>,
    lanes: [PathQueue; 2],
    travelling: BinaryHeap<Reverse<Travelling>>,
    sent: u64,
    from: Instant,
    pauses: Option<Pauses>,
    /// Until when the servers work on packets that came.
    busy: Instant,
    outcome: Outcome,
}

/// Runs a scenario; the seed decides what is lost.
pub fn run(scenario: &Scenario, seed: u64) -> Result<Outcome, Box<dyn std::error::Error>> {
    let start = Instant::now();
    let mut world = World {
        now: start,
        start,
        clients: Vec::new(),
        servers: Vec::new(),
        lanes: [
            PathQueue::new(scenario.up.clone(), start, 2 * seed),
            PathQueue::new(scenario.down.clone(), start, 2 * seed + 1),
        ],
        travelling: BinaryHeap::new(),
        sent: 0,
        from: start + scenario.from,
        pauses: scenario.pauses,
        busy: start,
        outcome: Outcome::default(),
    };
    for (index, flow) in scenario.flows.iter().enumerate() {
        let keys = Keys::new(flow.control)?;
        let (here, there) = addresses(index);
        let mut client = Host::connecting(&keys, flow.control, (here, there), start);
        let mut server = Host::listening(&keys, flow.control, there, start);
        let until = flow.until.map(|until| start + until);
        if let Some(from) = flow.up {
            client.send_bulk(start + from, until);
        }
        if let Some(from) = flow.down {
            server.send_bulk(start + from, until);
        }
        world.clients.push(client);
        world.servers.push(server);
    }
    Ok(world.run(start + scenario.time))
}

/// Where the client and the server of a flow are.
fn addresses(flow: usize) -> (SocketAddr, SocketAddr) {
    let port = u16::try_from(2 * flow).unwrap_or(0);
    (([10, 0, 0, 1], 1000 + port).into(), ([10, 0, 0, 2], 1001 + port).into())
}

impl World {
    fn run(mut self, end: Instant) -> Outcome {
        let mut ask_at = self.start;
        let mut second_at = self.start + Duration::from_secs(1);
        let mut before = [0, 0];
        let mut at_from = None;
        while self.now < end {
            if self.now >= ask_at {
                // One at a time, as somebody waits for each.
                if self.clients[0].unanswered() == 0 {
                    self.clients[0].ask(self.now);
                }
                ask_at += ASK_PERIOD;
            }
            if self.now >= second_at {
                let total = self.totals();
                self.outcome.seconds.push([total[0] - before[0], total[1] - before[1]]);
                before = total;
                second_at += Duration::from_secs(1);
            }
            if self.now >= self.from && at_from.is_none() {
                at_from = Some(self.received());
            }
            self.act();
            let next = [Some(ask_at), Some(second_at), self.next_arrival(), self.next_timeout()];
            let next = next.into_iter().flatten().min().unwrap_or(end);
            self.now = self.now.max(next);
            self.arrive();
        }
        self.finish(at_from.unwrap_or_default(), end)
    }

    fn finish(mut self, before: [Vec<u64>; 2], end: Instant) -> Outcome {
        let after = self.received();
        let grown = |way: usize| {
            after[way].iter().zip(&before[way]).map(|(after, before)| after - before).collect()
        };
        let mut outcome = std::mem::take(&mut self.outcome);
        outcome.up = grown(0);
        outcome.down = grown(1);
        outcome.capacity = [0, 1].map(|way: usize| self.lanes[way].capacity(self.from, end));
        outcome.unanswered = self.clients[0].unanswered();
        let trips = self.clients[0].trips.iter();
        outcome.timed = trips.map(|(at, trip)| (*at - self.start, *trip)).collect();
        let trips = self.clients[0].trips.iter().filter(|(at, _)| *at >= self.from);
        outcome.trips = trips.map(|(_, trip)| *trip).collect();
        outcome.trips.sort();
        outcome.queue.sort();
        outcome
    }

    fn received(&self) -> [Vec<u64>; 2] {
        [&self.servers, &self.clients].map(|hosts| hosts.iter().map(|host| host.received).collect())
    }

    fn totals(&self) -> [u64; 2] {
        self.received().map(|flows| flows.iter().sum())
    }

    /// Everybody does what is due.
    fn act(&mut self) {
        for (up, hosts) in [(true, &mut self.clients), (false, &mut self.servers)] {
            let lane = &mut self.lanes[usize::from(!up)];
            let pauses = self.pauses.filter(|_| !up);
            if pauses.is_some_and(|pauses| pauses.end(self.start, self.now) > self.now) {
                continue;
            }
            for (flow, host) in hosts.iter_mut().enumerate() {
                host.act(self.now, |packet: BytesMut| {
                    if up && self.now >= self.from {
                        self.outcome.queue.push(lane.wait(self.now));
                    }
                    if let Some(mut at) = lane.send(self.now, packet.len() as u64) {
                        self.sent += 1;
                        if let Some(pauses) = self.pauses.filter(|_| up) {
                            at = pauses.end(self.start, at).max(self.busy + PACKET_TIME);
                            self.busy = at;
                        }
                        let bytes = packet.to_vec();
                        let travelling = Travelling { at, number: self.sent, flow, up, bytes };
                        self.travelling.push(Reverse(travelling));
                    }
                });
            }
        }
    }

    fn next_arrival(&self) -> Option<Instant> {
        self.travelling.peek().map(|Reverse(packet)| packet.at)
    }

    fn next_timeout(&mut self) -> Option<Instant> {
        let (start, pauses) = (self.start, self.pauses);
        let paused = |at| pauses.map_or(at, |pauses| pauses.end(start, at));
        let clients = self.clients.iter_mut().filter_map(Host::timeout);
        let servers = self.servers.iter_mut().filter_map(Host::timeout).map(paused);
        clients.chain(servers).min()
    }

    fn arrive(&mut self) {
        while self.next_arrival().is_some_and(|at| at <= self.now) {
            let Some(Reverse(packet)) = self.travelling.pop() else { return };
            let (client, server) = addresses(packet.flow);
            let bytes = BytesMut::from(&packet.bytes[..]);
            match packet.up {
                true => self.servers[packet.flow].receive(self.now, client, bytes),
                false => self.clients[packet.flow].receive(self.now, server, bytes),
            }
        }
    }
}
