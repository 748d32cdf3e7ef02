//! The world: virtual time, the network between the clients and the server, and what fails.
//!
//! ```text
//!   chaos: operations, lost and late messages, partitions, crashes
//!     │ after so many operations
//!     ▼
//!   calm: nothing fails, files are closed, everything is sent ──▶ checks
//! ```
//!
//! Everything that happens is an event at a time; events of one time happen in the order in
//! which they were made. So one seed is one run.

mod clocks;
mod copies;
mod draws;
mod faults;
mod links;
mod promises;
mod pulls;
mod room;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use segue_core::host::call::Ended;
use segue_core::nouns::{ClientId, Ino, Time};
use segue_core::sharing::GRACE;
use segue_core::wire::Request;

use crate::apps::{Apps, Turn};
use crate::check::{acknowledged::Acknowledged, bounded, clean, structure, view};
use crate::client::Mount;
use crate::disk::{Failing, Kept};
use crate::model::Model;
use crate::plan::{Options, Plan};
use crate::rng::Rng;
use crate::server::{Answer, Holder, Moment, Origin, Server, Telling};
use crate::shorten::Only;
use crate::work::Op;
use crate::{Summary, Violation};
use clocks::Clock;
use copies::Images;
use draws::{Draws, Who};
use links::{SimLink, Way};
use pulls::Pulling;

/// Application threads of a client: two, so that one's replies meet the other's changes.
const THREADS: usize = 2;
/// A call without an answer for so long means that the connection is broken.
const TIMEOUT: Duration = Duration::from_secs(5);
const RECONNECT: Duration = Duration::from_secs(1);
/// An operation takes no longer than this on average, or the faults end before all operations have
/// begun. The collector spares no young chunk: on a narrow link it can remove the first chunks of
/// each upload before the last ones come.
const SLOWEST: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_secs(5);
/// So often it is looked whether a change is visible.
const LOOK: Duration = Duration::from_millis(20);
/// Where it matters what is noted when.
const NOTE: Duration = Duration::from_secs(1);
/// Everything must have been sent so long after the faults stopped.
const CALM: Duration = Duration::from_secs(600);
/// Last steps that are told of a run that failed.
const TRACE: usize = 300;
/// Characters of each; `--trace` shows all.
const LINE: usize = 400;

/// What happens.
#[derive(Debug)]
enum Event {
    Request { from: Origin, call: u64, request: Request, body: Vec<u8> },
    Reply { client: usize, call: u64, answer: Box<Answer> },
    Timeout { client: usize, call: u64 },
    Tell(Telling),
    Break { to: Holder, inodes: Vec<Ino> },
    Heard(Holder),
    Visible { client: usize, call: u64, moment: Moment },
    AskForPull(Holder, u64),
    Pull(Holder, u64),
    Pulled(ClientId, u64, bool),
    PullOver(u64),
    Reconnect(usize),
    Thread { client: usize, thread: usize },
    Tick(usize),
    Note(usize),
    Lease(usize),
    Woken(usize),
    Part(usize),
    Heal(usize),
    Crash(usize),
    Restart(usize),
    ServerCrash,
    ServerRestart,
    Sleep(usize),
    Wake(usize),
    Jump(usize),
    Fill(usize),
    Empty(usize),
    ServerFill,
    ServerEmpty,
    Collect,
    Limit,
    PutBack(usize),
    Clone(usize),
    ServerSave,
    ServerPutBack,
    ServerBack,
}

enum Host {
    Up(Box<Apps>),
    Down(Box<(Kept, Acknowledged)>, u64),
}

/// One run.
pub(crate) struct World {
    draws: Draws,
    /// Of its own, so that disks may do more and networks are as before.
    disk_rng: Rng,
    plan: Plan,
    options: Options,
    now: Time,
    events: BTreeMap<(Time, u64), Event>,
    next_event: u64,
    server: Server,
    server_up: bool,
    hosts: Vec<Host>,
    links: Vec<SimLink>,
    clocks: Vec<Clock>,
    /// Hosts whose disks are full.
    full: Vec<bool>,
    images: Images,
    /// Opens that wait for hosts, by the number of the last one.
    pulls: BTreeMap<u64, Pulling>,
    last_pull: u64,
    model: Option<Model>,
    /// What it was when so many entries were in the host's log.
    past: Vec<(u64, Model)>,
    calm: bool,
    /// Of operations and faults only these happen.
    only: Option<Only>,
    /// How many there were so far.
    pub(crate) numbers: u64,
    pub(crate) summary: Summary,
    pub(crate) trace: VecDeque<String>,
}

/// The id of the client that is the `number`th to get one.
fn id(number: usize) -> ClientId {
    let mut bytes = [u8::try_from(number + 1).unwrap_or(u8::MAX); 16];
    if bytes[0] == u8::MAX {
        bytes[8..].copy_from_slice(&(number as u64).to_be_bytes());
    }
    ClientId(bytes)
}

impl World {
    pub(crate) fn new(seed: u64, options: Options, only: Option<Only>) -> Result<World, Violation> {
        let mut rng = Rng::new(seed);
        let mut plan = Plan::of(seed, &mut rng, options);
        if only.as_ref().is_some_and(|only| !only.noise) {
            (plan.loss, plan.duplication, plan.slow) = (0, 0, 0);
        }
        let mut world = World {
            now: Time::default(),
            events: BTreeMap::new(),
            next_event: 0,
            server: Server::new(&options, Rng::new(seed ^ 1))?,
            server_up: true,
            hosts: Vec::new(),
            links: Vec::new(),
            clocks: Vec::new(),
            full: vec![false; plan.clients],
            images: Images::new(seed, plan.clients),
            pulls: BTreeMap::new(),
            last_pull: 0,
            model: (plan.clients == 1 && !options.copies).then(Model::new),
            past: vec![(0, Model::new())],
            calm: false,
            only,
            numbers: 0,
            summary: Summary::default(),
            trace: VecDeque::new(),
            disk_rng: Rng::new(!seed),
            draws: Draws::new(rng, options.swarm.then_some(seed)),
            plan,
            options,
        };
        world.say(&format!("{:?}", world.plan));
        world.server.notes_max = world.plan.more.notes_max;
        for client in 0..world.plan.clients {
            let sizes = [None, Some(0), Some(150), Some(500), Some(1500)];
            let size = if options.plain { None } else { world.disk_rng.pick(&sizes) };
            let kept = Kept::new(id(client), options.power_loss, size);
            world.add_host(kept, Acknowledged::default());
        }
        world.recurs(Event::ServerFill);
        world.recurs(Event::Collect);
        world.recurs(Event::Limit);
        world.recurs(Event::ServerCrash);
        world.begin_copies()?;
        Ok(world)
    }

    /// A host with this disk starts.
    fn add_host(&mut self, kept: Kept, acknowledged: Acknowledged) {
        let client = self.hosts.len();
        self.hosts.push(Host::Down(Box::new((kept, acknowledged)), 0));
        self.after(Duration::ZERO, Event::Restart(client));
        self.after(TICK, Event::Tick(client));
        if self.options.power_loss {
            self.after(NOTE, Event::Note(client));
        }
        for thread in 0..THREADS {
            self.after(Duration::from_millis(100), Event::Thread { client, thread });
        }
        self.recurs(Event::Part(client));
        self.recurs(Event::Crash(client));
        self.links.push(SimLink::default());
        self.clocks.push(Clock::draw(&self.plan, &mut self.disk_rng));
        self.recurs(Event::Sleep(client));
        self.recurs(Event::Jump(client));
        self.recurs(Event::Fill(client));
    }

    fn say(&mut self, what: &str) {
        let line = format!("{:>12.6} {what}", self.now.0.as_secs_f64());
        if self.options.trace {
            eprintln!("{line}");
        }
        let line: String = line.chars().take(LINE).collect();
        if self.trace.len() == TRACE {
            self.trace.pop_front();
        }
        self.trace.push_back(line);
    }

    fn after(&mut self, wait: Duration, event: Event) {
        self.events.insert((Time(self.now.0 + wait), self.next_event), event);
        self.next_event += 1;
    }

    /// A fault comes about so often as its kind does, if it does.
    fn recurs(&mut self, event: Event) {
        if let (Some(every), false) = (self.every(&event), self.calm) {
            let micros = u64::try_from(every.as_micros()).unwrap_or(u64::MAX);
            let rng = match event.is_of_copies() {
                true => &mut self.images.rng,
                false => self.draws.of(Who::Fault(event.host())),
            };
            let wait = Duration::from_micros(rng.between(micros / 10, micros * 2));
            self.after(wait, event);
        }
    }

    /// True if the next operation or fault happens.
    fn happens(&mut self) -> bool {
        let number = self.numbers;
        self.numbers += 1;
        self.only.as_ref().is_none_or(|only| only.numbers.contains(&number))
    }

    /// Runs to the end and checks.
    pub(crate) fn run(&mut self) -> Result<(), Violation> {
        let last = Time(SLOWEST * u32::try_from(self.options.steps).unwrap_or(u32::MAX));
        while self.summary.operations < self.options.steps && self.now < last {
            self.step()?;
        }
        self.quiet_down()?;
        // A long queue takes its time: what is bounded is a time without an outcome.
        let (mut least, mut end) = (self.unsent(), Time(self.now.0 + CALM));
        while !self.is_done() {
            if self.unsent() < least {
                (least, end) = (self.unsent(), Time(self.now.0 + CALM));
            }
            if self.now > end {
                return Err(Violation(format!("never quiet: {}", self.waiting())));
            }
            self.step()?;
        }
        self.check()
    }

    fn is_done(&self) -> bool {
        self.hosts.iter().all(|host| match host {
            Host::Up(apps) => {
                let mount = &apps.mount;
                let ledger = &self.server.ledger;
                // Of a file that was removed nothing is stored, also if a copy makes it again.
                let named = |ino| ledger.is_named(ino) && !ledger.was_removed(ino);
                let core = &mount.core;
                let is_idle = core.calls() == 0;
                let sent = is_idle && core.queue().is_empty() && core.unsealed().is_empty();
                // What a map wrote is logged later, if the disk was full.
                let has_unlogged = !mount.disk.changed_maps(None).is_empty();
                let stored = !has_unlogged && !mount.disk.acknowledged.unsealed().any(named);
                mount.remote.door.is_greeted && apps.handles.is_empty() && sent && stored
            }
            Host::Down(..) => false,
        })
    }

    fn unsent(&self) -> usize {
        let of = |host: &Host| match host {
            Host::Up(apps) => apps.mount.core.queue().len(),
            Host::Down(..) => 0,
        };
        self.hosts.iter().map(of).sum()
    }

    fn waiting(&self) -> String {
        let of = |host: &Host| match host {
            Host::Up(apps) => format!(
                "{} queued, open {:?}, unsealed {:?}; ",
                apps.mount.core.queue().len(),
                apps.handles,
                apps.mount.disk.acknowledged.unsealed().collect::<Vec<_>>()
            ),
            Host::Down(..) => "down; ".to_owned(),
        };
        self.hosts.iter().map(of).collect()
    }

    /// The faults stop; what is open is closed.
    fn quiet_down(&mut self) -> Result<(), Violation> {
        self.say("quiet");
        self.calm = true;
        self.start_server()?;
        self.server.is_full = false;
        self.links.iter_mut().for_each(|link| link.is_parted = false);
        (0..self.hosts.len()).for_each(|client| self.wake(client));
        self.full.fill(false);
        (self.plan.more.bandwidth, self.plan.more.read_errors) = (None, 0);
        (self.plan.loss, self.plan.duplication, self.plan.slow) = (0, 0, 0);
        self.end_old_connections()
    }

    fn step(&mut self) -> Result<(), Violation> {
        let Some(((at, _), event)) = self.events.pop_first() else {
            return Err(Violation("nothing happens any more".into()));
        };
        self.now = at;
        let Some(event) = self.unless_asleep(event) else { return Ok(()) };
        match event {
            Event::Request { from, call, request, body } => {
                self.arrive(from, call, (request, body))
            }
            Event::Reply { client, call, answer } => {
                self.say(&format!("client {client} hears {call}: {:?}", answer.0));
                let goes_on = self.with(client, |apps| apps.answered(call, *answer))?;
                self.go_on(client, goes_on.flatten())?;
                self.shut_out(client)
            }
            Event::Timeout { client, call } => self.time_out(client, call),
            Event::Tell(telling) => {
                self.tell(telling);
                Ok(())
            }
            Event::Break { to, inodes } => self.hear(to, inodes),
            Event::Heard(from) => {
                if self.server_up {
                    self.server.heard(from, self.now);
                    self.tell_all();
                }
                Ok(())
            }
            Event::Visible { client, call, moment } => {
                self.answer_visible(client, call, moment);
                Ok(())
            }
            Event::AskForPull(to, number) => self.ask_for_pull(to, number),
            Event::Pull(to, number) => self.hear_pull(to, number),
            Event::Pulled(client, number, is_sent) => self.pulled(client, number, is_sent),
            Event::PullOver(number) => self.end_pull(number),
            Event::Reconnect(client) => {
                self.with(client, |apps| {
                    apps.mount.take_told(Ended::Session)?;
                    let Mount { remote, core, disk, now, .. } = &mut apps.mount;
                    remote.reconnect(core, disk, *now);
                    Ok(())
                })?;
                Ok(())
            }
            Event::Thread { client, thread } => self.thread(client, thread),
            Event::Tick(client) => self.tick(client),
            Event::Note(client) => self.note(client),
            Event::Lease(client) => self.end_lease(client),
            Event::Woken(client) => self.notice_sleep(client),
            other => self.fault(other),
        }
    }

    fn tick(&mut self, client: usize) -> Result<(), Violation> {
        self.after(TICK, Event::Tick(client));
        let calm = self.calm;
        self.with(client, |apps| {
            match calm {
                true => apps.close_all()?,
                false => apps.mount.tick()?,
            }
            apps.mount.send()
        })?;
        Ok(())
    }

    /// Between its chores a client may note, sync, or rewrite its log for others' sake.
    fn note(&mut self, client: usize) -> Result<(), Violation> {
        self.after(NOTE, Event::Note(client));
        let what = self.disk_rng.below(4);
        self.with(client, |apps| {
            let Mount { disk, core, now, .. } = &mut apps.mount;
            match what {
                0 => disk.sync(core),
                1 if core.notes_now(*now) => drop(disk.note(core, *now)),
                2 => disk.rewrite_log(core, *now),
                _ => {}
            }
            Ok(())
        })?;
        Ok(())
    }

    /// Lets a client that is up do something, and sends what it then wants sent.
    fn with<R>(
        &mut self,
        client: usize,
        act: impl FnOnce(&mut Apps) -> Result<R, Violation>,
    ) -> Result<Option<R>, Violation> {
        let (now, ahead) = (self.time_of(client), self.clocks[client].ahead);
        let awake = self.awake_time_of(client);
        let Host::Up(apps) = &mut self.hosts[client] else { return Ok(None) };
        let mount = &mut apps.mount;
        (mount.now, mount.ahead, mount.kernel.now) = (now, ahead, awake);
        mount.disk.failing.is_full = self.full[client];
        mount.disk.failing.read_errors = self.plan.more.read_errors;
        mount.remote.follow(&mut mount.core, mount.now);
        mount.remote.door.spare = self.options.copies.then(|| id(self.images.clients));
        let result = act(apps)?;
        let mount = &mut apps.mount;
        mount.kernel.see_changes(&mount.core);
        self.images.look_at(mount, &mut self.server.ledger)?;
        for ino in std::mem::take(&mut mount.disk.filled) {
            clean::check(mount, &self.server.ledger, ino)?;
        }
        let requests = std::mem::take(&mut mount.remote.outbox);
        let (me, connection) = (mount.disk.kept.client(), mount.remote.session.connection);
        let pulled = std::mem::take(&mut mount.chores.pulled);
        self.answer_pulls(client, me, pulled);
        for (call, request, body) in requests {
            self.say(&format!("client {client} asks {call}: {request:?}"));
            let as_client = match &request {
                Request::Hello(hello) => hello.client,
                _ => me,
            };
            let from = Origin { host: client, client: as_client, connection };
            let bytes = self.size_of(|| request.encode(), &body);
            // That may take as long as it takes to give a silent client up.
            if !matches!(request, Request::Visible(())) {
                let waits = matches!(request, Request::Open(_));
                let waits = if waits { 2 * GRACE } else { Duration::ZERO };
                let patience = waits + self.patience(client, bytes);
                self.after(TIMEOUT + patience, Event::Timeout { client, call });
            }
            // Words of changes have no numbers: a connection delivers each once, in its turn.
            let repeated = self.draws.of(Who::Link(client)).chance(self.plan.duplication);
            let copies = if repeated && !matches!(request, Request::Dirty(_)) { 2 } else { 1 };
            self.summary.duplicated += copies - 1;
            for _ in 0..copies {
                if let Some(delay) = self.travel(client, Way::Up, bytes) {
                    let (request, body) = (request.clone(), body.clone());
                    self.after(delay, Event::Request { from, call, request, body });
                }
            }
        }
        if self.options.promises {
            self.await_end_of_lease(client);
        }
        self.check_promises(client)?;
        Ok(Some(result))
    }

    /// An application's thread begins its next operation, or goes on with its last.
    fn thread(&mut self, client: usize, thread: usize) -> Result<(), Violation> {
        let ready = match &self.hosts[client] {
            Host::Up(apps) => Some(apps.is_idle(thread)),
            _ => None,
        };
        match ready {
            None => self.after(Duration::from_secs(1), Event::Thread { client, thread }),
            Some(true) if self.calm => return Ok(()),
            Some(true) => {
                let rng = self.draws.of(Who::Thread(client, thread));
                let op = Op::draw(rng, &self.plan.mix);
                self.summary.operations += 1;
                if !self.happens() {
                    self.think(client, thread);
                    return Ok(());
                }
                self.with(client, |apps| {
                    apps.begin(thread, op);
                    Ok(())
                })?;
            }
            Some(false) => {}
        }
        self.go_on(client, ready.map(|_| thread))
    }

    fn think(&mut self, client: usize, thread: usize) {
        let who = Who::Thread(client, thread);
        let longest = if self.draws.of(who).chance(50) { 10_000 } else { 400 };
        let wait = self.draws.millis(who, 1..longest);
        self.after(wait, Event::Thread { client, thread });
    }

    fn go_on(&mut self, client: usize, thread: Option<usize>) -> Result<(), Violation> {
        let Some(thread) = thread else { return Ok(()) };
        match self.with(client, |apps| apps.go_on(thread))?.flatten() {
            Some(Turn::Over(op, answered)) => {
                self.say(&format!("client {client}.{thread} {op:?}: {answered:?}"));
                if let Some(model) = &mut self.model {
                    model.check(&op, &answered, self.options.swarm)?;
                }
                self.remember(client);
                self.think(client, thread);
            }
            Some(Turn::Later) => {
                self.after(Duration::from_secs(1), Event::Thread { client, thread });
            }
            Some(Turn::Waits) | None => {}
        }
        Ok(())
    }

    fn check(&mut self) -> Result<(), Violation> {
        self.now = Time(self.now.0 + Duration::from_secs(60));
        self.summary.virtual_time = self.now.0;
        self.summary.records = self.server.ledger.outcomes.len() as u64;
        self.summary.add(&self.server.counts);
        let ids: Vec<ClientId> = (0..self.images.clients).map(id).collect();
        let reached = structure::check(&mut self.server, &ids)?;
        if let Some(model) = &self.model {
            model.compare(&mut self.server, &reached)?;
        }
        let times: Vec<Time> = (0..self.hosts.len()).map(|client| self.time_of(client)).collect();
        for (host, now) in self.hosts.iter_mut().zip(times) {
            let Host::Up(apps) = host else { continue };
            self.summary.add(&apps.counts());
            let mount = &mut apps.mount;
            mount.now = now;
            mount.disk.failing = Failing::default();
            mount.remote.is_offline = false;
            mount.remote.follow(&mut mount.core, mount.now);
            self.summary.merged += mount.merging.merged;
            view::check(mount, &mut self.server, &reached)?;
            bounded::check(mount)?;
        }
        let quarrels = self.summary.conflicts + self.summary.refused;
        match self.model.is_some() && quarrels > 0 {
            true => Err(Violation(format!("{quarrels} conflicts or refusals of one host alone"))),
            false => Ok(()),
        }
    }
}
