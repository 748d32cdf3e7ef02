//! Copies of disks: hosts' disks that are put back or cloned, the server's that is put back, and
//! another server where a host expects its own.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use segue_core::backoff::Backoff;
use segue_core::host::conflict::{Meeting, meet};
use segue_core::nouns::{ClientId, Time, Timestamp};

use super::{Event, Host, RECONNECT, World};
use crate::Violation;
use crate::check::acknowledged::Acknowledged;
use crate::check::ledger::Ledger;
use crate::check::lives;
use crate::client::{EPOCH_SECS, Mount};
use crate::disk::Kept;
use crate::plan::{Bug, COPIES};
use crate::rng::Rng;
use crate::server::Image;

/// Images that are kept of each disk.
const IMAGES: usize = 3;
/// Most hosts, clones included.
const HOSTS: usize = 6;
/// For how long a host's disk is being put back, in milliseconds.
const PUTTING_BACK: std::ops::Range<u64> = 500..30_000;
/// The same of the server's disk. No promise outlasts it.
const SERVER_PUTTING_BACK: std::ops::Range<u64> = 25_000..60_000;
/// Two hosts that are one client take the session from each other. Each believes for so long what
/// it was promised before.
const TWINS: Duration = Duration::from_secs(30);
/// Authorities of the server and of another one.
const OWN: &str = "own";
const OTHER: &str = "other";

/// Images of disks, and what they have led to.
pub(super) struct Images {
    pub(super) rng: Rng,
    /// Clients that ever were.
    pub(super) clients: usize,
    /// Calls of hosts that reached the server.
    pub(super) arrived: BTreeSet<(usize, u64)>,
    hosts: Vec<Vec<(Kept, Acknowledged)>>,
    server: Vec<Image>,
    /// The image to which the server's disk is being put back.
    putting_back: Option<Image>,
    /// Until when each host may believe what was promised to another one.
    twins: Vec<Time>,
    /// Which host has the session of a client.
    sessions: BTreeMap<ClientId, usize>,
    /// Hosts whose session another one has taken since they said hello, and their waits.
    replaced: BTreeSet<usize>,
    waits: BTreeMap<usize, Backoff>,
}

impl Images {
    pub(super) fn new(seed: u64, clients: usize) -> Images {
        Images {
            rng: Rng::new(seed.rotate_left(16) ^ COPIES),
            clients,
            arrived: BTreeSet::new(),
            hosts: Vec::new(),
            server: Vec::new(),
            putting_back: None,
            twins: Vec::new(),
            sessions: BTreeMap::new(),
            replaced: BTreeSet::new(),
            waits: BTreeMap::new(),
        }
    }

    /// The server has welcomed `host` as `client`: whose session that was is over.
    pub(super) fn welcomed(&mut self, host: usize, client: ClientId) {
        self.replaced.remove(&host);
        let before = self.sessions.insert(client, host);
        self.replaced.extend(before.filter(|before| *before != host));
    }

    /// How long a host waits that has lost its connection.
    pub(super) fn reconnects_after(&mut self, host: usize) -> Duration {
        if !self.replaced.contains(&host) {
            self.waits.remove(&host);
            return RECONNECT;
        }
        let random = self.rng.below(u64::from(u32::MAX));
        let waits = self.waits.entry(host).or_insert_with(Backoff::of_copies);
        waits.next(u32::try_from(random).unwrap_or(0))
    }

    pub(super) fn is_putting_back(&self) -> bool {
        self.putting_back.is_some()
    }

    /// Checks what a host did at the door.
    pub(super) fn look_at(
        &mut self,
        mount: &mut Mount,
        ledger: &mut Ledger,
    ) -> Result<(), Violation> {
        if std::mem::take(&mut mount.remote.door.took_spare) {
            self.clients += 1;
        }
        if std::mem::take(&mut mount.remote.door.is_welcome) {
            ledger.left(mount.disk.kept.client(), &mount.disk.kept.left);
            lives::check_believed(mount, ledger)?;
        }
        match mount.remote.outbox.first() {
            Some((_, request, _)) if mount.disk.kept.server == Some(OTHER) => {
                Err(Violation(format!("another server is asked for {}", request.name())))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn is_twin(&self, client: usize, now: Time) -> bool {
        self.twins.get(client).is_some_and(|until| now < *until)
    }

    fn millis(&mut self, range: std::ops::Range<u64>) -> Duration {
        Duration::from_millis(self.rng.between(range.start, range.end))
    }
}

impl World {
    /// The server's wall clock.
    fn server_wall(&self) -> Timestamp {
        let secs = i64::try_from(self.now.0.as_secs()).unwrap_or(0);
        Timestamp { secs: EPOCH_SECS + secs, nanos: self.now.0.subsec_nanos() }
    }

    pub(super) fn begin_copies(&mut self) -> Result<(), Violation> {
        if !self.options.copies {
            return Ok(());
        }
        let now = self.server_wall();
        self.server.copies(now, &mut self.images.rng)?;
        for client in 0..self.hosts.len() {
            self.recurs(Event::PutBack(client));
            self.recurs(Event::Clone(client));
        }
        self.recurs(Event::ServerSave);
        self.recurs(Event::ServerPutBack);
        Ok(())
    }

    /// The process of a host is down: its disk may be copied.
    pub(super) fn save_host(&mut self, client: usize) {
        let Host::Down(left, _) = &self.hosts[client] else { return };
        if !self.options.copies {
            return;
        }
        let images = &mut self.images.hosts;
        images.resize(self.hosts.len(), Vec::new());
        if images[client].len() == IMAGES {
            images[client].remove(0);
        }
        images[client].push((**left).clone());
    }

    /// Takes a host down, of which nothing else happens until it is started again; false if it
    /// cannot be.
    fn take_down(&mut self, client: usize) -> Result<bool, Violation> {
        if self.is_asleep(client) || matches!(self.hosts[client], Host::Down(..)) {
            return Ok(false);
        }
        self.go_down(client)?;
        self.events.retain(|_, event| !matches!(event, Event::Crash(it) if *it == client));
        let wait = self.images.millis(PUTTING_BACK);
        self.after(wait, Event::Restart(client));
        Ok(true)
    }

    /// A host's disk is put back to an earlier image of itself.
    pub(super) fn put_back(&mut self, client: usize) -> Result<(), Violation> {
        let saved = self.images.hosts.get(client).map_or(0, Vec::len);
        if self.take_down(client)? && saved > 0 {
            // Not to what it is now.
            let which = self.images.rng.index(saved.min(IMAGES - 1));
            let image = self.images.hosts[client][which].clone();
            if let Host::Down(left, _) = &mut self.hosts[client] {
                **left = image;
            }
            self.summary.put_back += 1;
            self.say(&format!("client {client} is put back to its image {which}"));
        }
        self.recurs(Event::PutBack(client));
        Ok(())
    }

    /// A further host starts with a copy of a host's disk.
    pub(super) fn clone_host(&mut self, client: usize) -> Result<(), Violation> {
        if self.hosts.len() < HOSTS && self.take_down(client)? {
            let saved = &self.images.hosts[client];
            let (kept, acknowledged) = saved[self.images.rng.index(saved.len())].clone();
            self.summary.cloned += 1;
            self.full.push(false);
            self.say(&format!("client {} is a clone of {client}", self.hosts.len()));
            self.add_host(kept, acknowledged);
            self.note_twins();
            self.recurs(Event::PutBack(self.hosts.len() - 1));
        }
        self.recurs(Event::Clone(client));
        Ok(())
    }

    pub(super) fn save_server(&mut self) {
        if self.images.server.len() == IMAGES {
            self.images.server.remove(0);
        }
        self.images.server.push(self.server.image());
        self.recurs(Event::ServerSave);
    }

    pub(super) fn put_back_server(&mut self) {
        if self.images.server.is_empty() || self.images.is_putting_back() {
            return self.recurs(Event::ServerPutBack);
        }
        // It may be one of a history that is lost already.
        let which = self.images.rng.index(self.images.server.len());
        self.images.putting_back = Some(self.images.server[which].clone());
        self.stop_server();
        let wait = self.images.millis(SERVER_PUTTING_BACK);
        self.after(wait, Event::ServerBack);
    }

    /// The server starts, with its disk as it is or as it is put back.
    pub(super) fn start_server(&mut self) -> Result<(), Violation> {
        // It needs longer than the run lasts, and promises hold still.
        let image = self.images.putting_back.take().filter(|_| !self.calm);
        let is_put_back = image.is_some();
        if let Some(image) = image {
            self.server.put_back(image, self.now)?;
            for host in &mut self.hosts {
                if let Host::Up(apps) = host {
                    apps.mount.remote.door.is_greeted = false;
                }
            }
            self.summary.servers_put_back += 1;
            self.say("the server is put back");
        }
        if self.options.copies && !self.server_up {
            let now = self.server_wall();
            self.server.begin_life(now, &mut self.images.rng)?;
        }
        self.server_up = true;
        if is_put_back {
            self.recurs(Event::ServerPutBack);
        }
        Ok(())
    }

    /// False if a host that starts finds another server, and goes down again.
    pub(super) fn meets(&mut self, client: usize) -> bool {
        if self.options.copies {
            self.note_twins();
        }
        let Host::Down(left, _) = &mut self.hosts[client] else { return true };
        let others = if self.calm { 0 } else { self.plan.copies.other_servers };
        let kept = &mut left.0;
        if !self.options.copies || kept.server.is_none() {
            kept.server = Some(OWN);
            return true;
        }
        let found = if self.images.rng.chance(others) { OTHER } else { OWN };
        let is_greeted = self.options.bug == Some(Bug::ClientGreetsAnyServer);
        match meet(kept.server, found, is_greeted) {
            Meeting::Refused => {
                self.summary.other_servers += 1;
                self.say(&format!("client {client} finds another server"));
                let wait = self.images.millis(PUTTING_BACK);
                self.after(wait, Event::Restart(client));
                false
            }
            Meeting::Known | Meeting::Replaced => {
                kept.server = Some(found);
                true
            }
        }
    }

    /// A host whose connection the server has closed makes another one.
    pub(super) fn shut_out(&mut self, client: usize) -> Result<(), Violation> {
        if !self.options.copies {
            return Ok(());
        }
        self.note_twins();
        let lost = self.with(client, |apps| {
            let is_shut_out = std::mem::take(&mut apps.mount.remote.door.is_shut_out);
            Ok(is_shut_out.then(|| apps.lose_link()))
        })?;
        self.went_offline(client, lost.flatten())
    }

    /// Each host notices that its connection to a server from before it was put back is over.
    pub(super) fn end_old_connections(&mut self) -> Result<(), Violation> {
        if !self.options.copies {
            return Ok(());
        }
        for client in 0..self.hosts.len() {
            if let Host::Up(apps) = &mut self.hosts[client] {
                let door = &mut apps.mount.remote.door;
                door.is_shut_out |= !door.is_greeted;
            }
            self.shut_out(client)?;
        }
        Ok(())
    }

    /// Notes which hosts are one client now.
    fn note_twins(&mut self) {
        let of = |host: &Host| match host {
            Host::Up(apps) => apps.mount.disk.kept.client(),
            Host::Down(left, _) => left.0.client(),
        };
        let clients: Vec<_> = self.hosts.iter().map(of).collect();
        self.images.twins.resize(clients.len(), Time::default());
        for (host, client) in clients.iter().enumerate() {
            if clients.iter().filter(|other| *other == client).count() > 1 {
                self.images.twins[host] = Time(self.now.0 + TWINS);
            }
        }
    }
}
