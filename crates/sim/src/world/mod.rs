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

mod faults;
mod promises;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use segue_core::promise::SessionId;
use segue_core::types::{ClientId, Ino, Time};
use segue_core::wire::{Reply, Request};

use crate::check::{structure, told::Told, view};
use crate::client::{Ended, Kept, Mount};
use crate::model::Model;
use crate::plan::{Options, Plan};
use crate::rng::Rng;
use crate::server::{Answer, Moment, Server, Telling};
use crate::work::Op;
use crate::{Summary, Violation};

/// Application threads of a client: two, so that one's replies meet the other's changes.
const THREADS: usize = 2;
/// A call without an answer for so long means that the connection is broken.
const TIMEOUT: Duration = Duration::from_secs(5);
const RECONNECT: Duration = Duration::from_secs(1);
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
    Request { from: (usize, u64), call: u64, request: Request },
    Reply { client: usize, call: u64, answer: Box<Answer> },
    Timeout { client: usize, call: u64 },
    Tell(Telling),
    Break { client: usize, session: SessionId, inodes: Vec<Ino> },
    Heard { client: usize, session: SessionId },
    Visible { client: usize, call: u64, moment: Moment },
    Reconnect(usize),
    Thread { client: usize, thread: usize },
    Tick(usize),
    Note(usize),
    Part(usize),
    Heal(usize),
    Crash(usize),
    Restart(usize),
    ServerCrash,
    ServerRestart,
}

enum Host {
    Up(Box<Mount>),
    Down(Box<(Kept, Told)>, u64),
}

/// One run.
pub(crate) struct World {
    rng: Rng,
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
    parted: Vec<bool>,
    model: Option<Model>,
    /// What it was when so many entries were in the host's log.
    past: Vec<(u64, Model)>,
    calm: bool,
    pub(crate) summary: Summary,
    pub(crate) trace: VecDeque<String>,
}

fn id(client: usize) -> ClientId {
    ClientId([u8::try_from(client + 1).unwrap_or(u8::MAX); 16])
}

impl World {
    pub(crate) fn new(seed: u64, options: Options) -> Result<World, Violation> {
        let mut rng = Rng::new(seed);
        let plan = Plan::draw(&mut rng);
        let mut world = World {
            now: Time::default(),
            events: BTreeMap::new(),
            next_event: 0,
            server: Server::new(options.bug, options.promises)?,
            server_up: true,
            hosts: Vec::new(),
            parted: vec![false; plan.clients],
            model: (plan.clients == 1).then(Model::new),
            past: vec![(0, Model::new())],
            calm: false,
            summary: Summary::default(),
            trace: VecDeque::new(),
            disk_rng: Rng::new(!seed),
            rng,
            plan,
            options,
        };
        world.say(&format!("{:?}", world.plan));
        for client in 0..world.plan.clients {
            let sizes = [None, Some(0), Some(150), Some(500), Some(1500)];
            let size = if options.plain { None } else { world.disk_rng.pick(&sizes) };
            let kept = Kept::new(options.power_loss, size);
            world.hosts.push(Host::Down(Box::new((kept, Told::default())), 0));
            world.after(Duration::ZERO, Event::Restart(client));
            world.after(TICK, Event::Tick(client));
            if options.power_loss {
                world.after(NOTE, Event::Note(client));
            }
            for thread in 0..THREADS {
                world.after(Duration::from_millis(100), Event::Thread { client, thread });
            }
            world.again(world.plan.partition_every, Event::Part(client));
            world.again(world.plan.client_crash_every, Event::Crash(client));
        }
        world.again(world.plan.server_crash_every, Event::ServerCrash);
        Ok(world)
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

    /// A fault comes about `every` so often.
    fn again(&mut self, every: Option<Duration>, event: Event) {
        if let (Some(every), false) = (every, self.calm) {
            let micros = u64::try_from(every.as_micros()).unwrap_or(u64::MAX);
            let wait = Duration::from_micros(self.rng.between(micros / 10, micros * 2));
            self.after(wait, event);
        }
    }

    fn random_millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.rng.between(from, to))
    }

    /// Runs to the end and checks.
    pub(crate) fn run(&mut self) -> Result<(), Violation> {
        while self.summary.operations < self.options.steps {
            self.step()?;
        }
        self.quiet_down()?;
        let end = Time(self.now.0 + CALM);
        while !self.is_done() {
            if self.now > end {
                return Err(Violation(format!("never quiet: {}", self.waiting())));
            }
            self.step()?;
        }
        self.check()
    }

    fn is_done(&self) -> bool {
        self.hosts.iter().all(|host| match host {
            Host::Up(mount) => {
                let named = |ino| self.server.ledger.is_named(ino);
                let core = &mount.core;
                let sent = core.queue.is_empty() && core.unsealed().is_empty();
                let stored = !mount.told.unsealed().any(named);
                mount.handles.is_empty() && sent && stored
            }
            Host::Down(..) => false,
        })
    }

    fn waiting(&self) -> String {
        let of = |host: &Host| match host {
            Host::Up(mount) => format!(
                "{} queued, open {:?}, unsealed {:?}; ",
                mount.core.queue.len(),
                mount.handles,
                mount.told.unsealed().collect::<Vec<_>>()
            ),
            Host::Down(..) => "down; ".to_owned(),
        };
        self.hosts.iter().map(of).collect()
    }

    /// The faults stop; what is open is closed.
    fn quiet_down(&mut self) -> Result<(), Violation> {
        self.say("quiet");
        self.calm = true;
        self.server_up = true;
        self.parted.fill(false);
        (self.plan.loss, self.plan.duplication, self.plan.slow) = (0, 0, 0);
        Ok(())
    }

    fn step(&mut self) -> Result<(), Violation> {
        let Some(((at, _), event)) = self.events.pop_first() else {
            return Err(Violation("nothing happens any more".into()));
        };
        self.now = at;
        match event {
            Event::Request { from, call, request } => self.arrive(from, call, &request),
            Event::Reply { client, call, answer } => {
                self.say(&format!("client {client} hears {call}: {:?}", answer.0));
                let goes_on = self.with(client, |mount| mount.answered(call, *answer))?;
                self.go_on(client, goes_on.flatten())
            }
            Event::Timeout { client, call } => self.time_out(client, call),
            Event::Tell(telling) => {
                self.tell(telling);
                Ok(())
            }
            Event::Break { client, session, inodes } => self.hear(client, session, inodes),
            Event::Heard { client, session } => {
                if self.server_up {
                    self.server.heard(id(client), session, self.now);
                    self.tell_all();
                }
                Ok(())
            }
            Event::Visible { client, call, moment } => {
                self.answer_visible(client, call, moment);
                Ok(())
            }
            Event::Reconnect(client) => {
                self.with(client, |mount| {
                    mount.say_hello();
                    Ok(())
                })?;
                Ok(())
            }
            Event::Thread { client, thread } => self.thread(client, thread),
            Event::Tick(client) => self.tick(client),
            Event::Note(client) => self.note(client),
            other => self.fault(other),
        }
    }

    fn tick(&mut self, client: usize) -> Result<(), Violation> {
        self.after(TICK, Event::Tick(client));
        let calm = self.calm;
        self.with(client, |mount| {
            match calm {
                true => mount.close_all()?,
                false => mount.tick()?,
            }
            mount.send()
        })?;
        Ok(())
    }

    /// Between its chores a client may note, sync, or rewrite its log for others' sake.
    fn note(&mut self, client: usize) -> Result<(), Violation> {
        self.after(NOTE, Event::Note(client));
        let what = self.disk_rng.below(4);
        self.with(client, |mount| {
            match what {
                0 => mount.sync_disk(),
                1 => mount.note(),
                2 => mount.rewrite_log(),
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
        act: impl FnOnce(&mut Mount) -> Result<R, Violation>,
    ) -> Result<Option<R>, Violation> {
        let Host::Up(mount) = &mut self.hosts[client] else { return Ok(None) };
        mount.now = self.now;
        mount.follow();
        let result = act(mount)?;
        let requests = std::mem::take(&mut mount.outbox);
        let from = (client, mount.session.connection);
        for (call, request) in requests {
            self.say(&format!("client {client} asks {call}: {request:?}"));
            // That may take as long as it takes to give a silent client up.
            if !matches!(request, Request::Visible(())) {
                self.after(TIMEOUT, Event::Timeout { client, call });
            }
            let copies = if self.rng.chance(self.plan.duplication) { 2 } else { 1 };
            self.summary.duplicated += copies - 1;
            for _ in 0..copies {
                if let Some(delay) = self.travel(client) {
                    let request = request.clone();
                    self.after(delay, Event::Request { from, call, request });
                }
            }
        }
        self.check_promises(client)?;
        Ok(Some(result))
    }

    /// How long a message takes, if it arrives.
    fn travel(&mut self, client: usize) -> Option<Duration> {
        if self.parted[client] || self.rng.chance(self.plan.loss) {
            self.summary.lost += 1;
            return None;
        }
        let slow = self.rng.chance(self.plan.slow);
        let longest = if slow { 8_000_000 } else { self.plan.delay_micros };
        Some(Duration::from_micros(self.rng.between(100, longest)))
    }

    /// A request reaches the server and is carried out.
    fn arrive(
        &mut self,
        (client, connection): (usize, u64),
        call: u64,
        request: &Request,
    ) -> Result<(), Violation> {
        if !self.server_up || self.parted[client] {
            self.summary.lost += 1;
            return Ok(());
        }
        if matches!(request, Request::Visible(())) {
            if let Some(moment) = self.server.moment(id(client), self.now) {
                self.answer_visible(client, call, moment);
            }
            return Ok(());
        }
        if self.server.is_waiting(self.now) && matches!(request, Request::Apply(_)) {
            let request = request.clone();
            self.after(LOOK, Event::Request { from: (client, connection), call, request });
            return Ok(());
        }
        let Some(answer) = self.server.serve((id(client), connection), request, self.now)? else {
            self.summary.lost += 1;
            return Ok(());
        };
        self.tell_all();
        self.summary.resumed += u64::from(matches!(answer.0, Reply::Resumed(Some(_))));
        self.say(&format!("server answers {call} of client {client}: {:?}", answer.0));
        if let Some(delay) = self.travel(client) {
            self.after(delay, Event::Reply { client, call, answer: Box::new(answer) });
        }
        Ok(())
    }

    fn time_out(&mut self, client: usize, call: u64) -> Result<(), Violation> {
        let lost = self.with(client, |mount| Ok(mount.awaits(call).then(|| mount.lose_link())))?;
        if let Some(threads) = lost.flatten() {
            self.say(&format!("client {client} is offline"));
            self.after(RECONNECT, Event::Reconnect(client));
            for thread in threads {
                self.go_on(client, Some(thread))?;
            }
        }
        Ok(())
    }

    /// An application's thread begins its next operation, or goes on with its last.
    fn thread(&mut self, client: usize, thread: usize) -> Result<(), Violation> {
        let ready = match &self.hosts[client] {
            Host::Up(mount) => Some(mount.is_idle(thread)),
            _ => None,
        };
        match ready {
            None => self.after(Duration::from_secs(1), Event::Thread { client, thread }),
            Some(true) if self.calm => return Ok(()),
            Some(true) => {
                let op = Op::draw(&mut self.rng);
                self.summary.operations += 1;
                self.with(client, |mount| {
                    mount.begin(thread, op);
                    Ok(())
                })?;
            }
            Some(false) => {}
        }
        self.go_on(client, ready.map(|_| thread))
    }

    fn go_on(&mut self, client: usize, thread: Option<usize>) -> Result<(), Violation> {
        let Some(thread) = thread else { return Ok(()) };
        match self.with(client, |mount| mount.go_on(thread))?.flatten() {
            Some(Ended::Over(op, answered)) => {
                self.say(&format!("client {client}.{thread} {op:?}: {answered:?}"));
                if let Some(model) = &mut self.model {
                    model.check(&op, &answered)?;
                }
                self.remember(client);
                let think = if self.rng.chance(50) { 10_000 } else { 400 };
                let wait = self.random_millis(1, think);
                self.after(wait, Event::Thread { client, thread });
            }
            Some(Ended::Later) => {
                self.after(Duration::from_secs(1), Event::Thread { client, thread });
            }
            Some(Ended::Waits) | None => {}
        }
        Ok(())
    }

    fn check(&mut self) -> Result<(), Violation> {
        self.now = Time(self.now.0 + Duration::from_secs(60));
        self.summary.virtual_time = self.now.0;
        self.summary.records = self.server.ledger.outcomes.len() as u64;
        let ids: Vec<ClientId> = (0..self.hosts.len()).map(id).collect();
        let reached = structure::check(&mut self.server, &ids)?;
        if let Some(model) = &self.model {
            model.compare(&mut self.server, &reached)?;
        }
        for host in &mut self.hosts {
            let Host::Up(mount) = host else { continue };
            mount.now = self.now;
            mount.is_offline = false;
            mount.follow();
            self.summary.conflicts += mount.conflicts;
            self.summary.refused += mount.refused;
            view::check(mount, &mut self.server, &reached)?;
        }
        let quarrels = self.summary.conflicts + self.summary.refused;
        match self.model.is_some() && quarrels > 0 {
            true => Err(Violation(format!("{quarrels} conflicts or refusals of one host alone"))),
            false => Ok(()),
        }
    }
}
