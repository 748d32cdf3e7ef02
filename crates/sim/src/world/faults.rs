//! What fails: links, processes, the server.

use std::time::Duration;

use segue_core::host::Settings;
use segue_core::nouns::OpId;

use super::draws::Who;
use super::{Event, Host, RECONNECT, THREADS, World};
use crate::Violation;
use crate::apps::Apps;
use crate::check::restart;
use crate::client::{Mount, POLL};
use crate::disk::{Failing, Lost};
use crate::remote::{inline_max, offer_from};
use crate::rng::Rng;

impl World {
    pub(super) fn fault(&mut self, event: Event) -> Result<(), Violation> {
        if self.calm && !matches!(event, Event::Restart(_) | Event::Wake(_)) {
            return Ok(());
        }
        if self.every(&event).is_some() && !self.happens() {
            self.recurs(event);
            return Ok(());
        }
        self.say(&format!("{event:?}"));
        match event {
            Event::Part(client) => {
                self.links[client].is_parted = true;
                self.summary.partitions += 1;
                let wait = self.draws.millis(Who::Fault(Some(client)), 500..30_000);
                self.after(wait, Event::Heal(client));
            }
            Event::Heal(client) => {
                self.links[client].is_parted = false;
                self.recurs(Event::Part(client));
            }
            Event::Crash(client) => self.crash(client)?,
            Event::Restart(client) => return self.restart(client),
            Event::ServerCrash => {
                self.stop_server();
                let wait = self.draws.millis(Who::Fault(None), 100..10_000);
                self.after(wait, Event::ServerRestart);
            }
            Event::ServerRestart => {
                if !self.images.is_putting_back() {
                    self.start_server()?;
                }
                self.recurs(Event::ServerCrash);
            }
            Event::PutBack(client) => self.put_back(client)?,
            Event::Clone(client) => self.clone_host(client)?,
            Event::ServerSave => self.save_server(),
            Event::ServerPutBack => self.put_back_server(),
            Event::ServerBack => self.start_server()?,
            Event::Sleep(client) => self.sleep(client),
            Event::Wake(client) => self.wake(client),
            Event::Jump(client) => self.jump(client),
            Event::Fill(_) | Event::Empty(_) | Event::ServerFill | Event::ServerEmpty => {
                self.room(&event);
            }
            Event::Limit => {
                self.limit()?;
                self.recurs(Event::Limit);
            }
            Event::Collect => {
                self.server.collect(self.now)?;
                self.server.check_rows()?;
                self.recurs(Event::Collect);
            }
            _ => {}
        }
        Ok(())
    }

    /// The mean time between faults of a kind; none for what is no fault or ends one.
    pub(super) fn every(&self, event: &Event) -> Option<Duration> {
        let (plan, more) = (&self.plan, &self.plan.more);
        match event {
            Event::Part(_) => plan.partition_every,
            Event::Crash(_) => plan.client_crash_every,
            Event::ServerCrash => plan.server_crash_every,
            Event::Sleep(_) => more.sleep_every,
            Event::Jump(_) => more.jump_every,
            Event::Fill(_) => more.full_every,
            Event::ServerFill => more.server_full_every,
            Event::Collect => more.collect_every,
            // A host alone is never refused anything.
            Event::Limit if self.model.is_none() => more.limits_every,
            Event::PutBack(_) => plan.copies.put_back_every,
            Event::Clone(_) => plan.copies.clone_every,
            Event::ServerSave => plan.copies.server_save_every,
            Event::ServerPutBack => plan.copies.server_put_back_every,
            _ => None,
        }
    }

    pub(super) fn stop_server(&mut self) {
        self.server_up = false;
        self.pulls.clear();
        self.server.forget_sessions(self.now);
        // What was asked is not done; what was done is not heard of.
        self.events.retain(|_, event| {
            !matches!(
                event,
                Event::Request { .. }
                    | Event::Reply { .. }
                    | Event::Break { .. }
                    | Event::Heard { .. }
                    | Event::Visible { .. }
                    | Event::Pull(..)
                    | Event::Pulled(..)
            )
        });
        self.summary.server_crashes += 1;
    }

    /// What a process is doing to its disk when it dies.
    fn die_busy(&mut self, client: usize) -> Result<(), Violation> {
        if self.options.plain {
            return Ok(());
        }
        let now = self.time_of(client);
        let Host::Up(apps) = &mut self.hosts[client] else { return Ok(()) };
        let mount = &mut apps.mount;
        mount.now = now;
        mount.disk.failing = Failing::default();
        match self.disk_rng.below(10) {
            0..4 => mount.disk.die_evicting(&mut mount.core, &mut self.disk_rng),
            _ => {
                // What is gone may be noted still, if the disk was full.
                let (is_swarm, ledger) = (self.options.swarm, &self.server.ledger);
                let may_be = |ino| !is_swarm || !ledger.seen.contains(&ino) || ledger.is_named(ino);
                let done = apps.die_writing(&mut self.disk_rng, may_be)?;
                if let (Some(model), Some(done)) = (&mut self.model, &done) {
                    model.wrote(done.ino, done.offset, &done.bytes);
                }
                self.remember(client);
                self.say(&format!("client {client} dies in a write, which counts: {done:?}"));
            }
        }
        Ok(())
    }

    fn crash(&mut self, client: usize) -> Result<(), Violation> {
        self.go_down(client)?;
        let wait = self.draws.millis(Who::Fault(Some(client)), 100..20_000);
        self.after(wait, Event::Restart(client));
        Ok(())
    }

    /// The process of a host dies, with the host if that loses power.
    pub(super) fn go_down(&mut self, client: usize) -> Result<(), Violation> {
        self.die_busy(client)?;
        let host = std::mem::replace(&mut self.hosts[client], Host::Down(Box::default(), 0));
        let down = match host {
            Host::Up(mut apps) => {
                for thread in apps.lose_link() {
                    self.after(RECONNECT, Event::Thread { client, thread });
                }
                self.summary.client_crashes += 1;
                self.summary.add(&apps.counts());
                let (mut kept, mut acknowledged, next_request) = apps.mount.die();
                kept.lose_young(&mut self.disk_rng);
                if kept.loses_power {
                    let (client_id, rng) = (kept.client(), &mut self.disk_rng);
                    let outcomes = &self.server.ledger.outcomes;
                    // A server that is put back has them no more.
                    let is_applied = |seq| {
                        let op = OpId { client: client_id, incarnation: 1, seq };
                        !self.options.copies && outcomes.contains_key(&op)
                    };
                    let lost = kept.lose_power(self.model.is_some(), is_applied, rng);
                    acknowledged.lost(&lost);
                    self.say(&format!("client {client} lost {} entries", lost.entries.len()));
                    self.take_back(&lost);
                }
                acknowledged.crashed();
                Host::Down(Box::new((kept, acknowledged)), next_request)
            }
            down => down,
        };
        self.hosts[client] = down;
        if let Some(model) = &mut self.model {
            model.crashed();
        }
        self.save_host(client);
        Ok(())
    }

    /// A loss of power undid the last operations.
    fn take_back(&mut self, lost: &Lost) {
        let Some(model) = &mut self.model else { return };
        self.past.retain(|(end, _)| *end <= lost.end);
        if let Some((_, past)) = self.past.pop() {
            *model = past;
        }
        model.lost(&lost.entries);
        self.past = vec![(lost.end, model.clone())];
    }

    /// What operations led to stays if a loss of power takes less.
    pub(super) fn remember(&mut self, client: usize) {
        let (Some(model), Host::Up(apps)) = (&self.model, &self.hosts[client]) else { return };
        let disk = &apps.mount.disk;
        if !disk.kept.loses_power {
            return;
        }
        let durable = disk.kept.durable_end();
        let last = self.past.iter().rposition(|(end, _)| *end <= durable).unwrap_or(0);
        self.past.drain(..last);
        self.past.push((disk.changed_at, model.clone()));
    }

    fn restart(&mut self, client: usize) -> Result<(), Violation> {
        if !self.meets(client) {
            return Ok(());
        }
        let now = self.time_of(client);
        if let Host::Down(left, next_request) = &mut self.hosts[client] {
            let mut left = std::mem::take(&mut **left);
            let noted = left.0.index.noted();
            let bug = self.options.bug;
            // A short life or two before: what it did not end the next one does.
            while !self.options.plain && self.disk_rng.chance(200) {
                let steps = u32::try_from(self.disk_rng.below(30)).unwrap_or_default();
                left = Mount::die_recovering(left, bug, now, steps)?;
                self.summary.broken_recoveries += 1;
            }
            let next_request = *next_request;
            let mut other = Mount::start(left.clone(), next_request, bug, now)?;
            restart::check(&mut other, &noted, &self.server.ledger, self.model.as_ref())?;
            let mut mount = Mount::start(left, next_request, bug, now)?;
            self.server.ledger.left(mount.disk.kept.client(), &mount.disk.kept.left);
            mount.remote.session.has_promises = self.options.promises;
            if !self.options.promises {
                mount.core.poll(POLL);
            }
            mount.disk.failing.rng = Rng::new(next_request ^ 5);
            mount.remote.reads_ahead = self.plan.more.reads_ahead;
            let mut settings = Settings { lm: self.plan.more.lm, ..*mount.core.settings() };
            if let Some(average) = self.plan.more.chunks {
                settings.inline_max = inline_max(average);
                settings.offer_from = offer_from(average);
            }
            // Half of them, where programs sync at all.
            settings.syncs_to_server = self.options.sessions && client.is_multiple_of(2);
            mount.core.configure(settings);
            mount.has_limits = self.plan.more.limits_every.is_some();
            mount.remote.least = self.plan.more.chunks;
            let mut apps = Apps::new(mount, THREADS, bug);
            apps.lingers = self.plan.more.lingers;
            apps.has_sessions = self.options.sessions;
            self.hosts[client] = Host::Up(Box::new(apps));
            self.with(client, |_| Ok(()))?;
            self.recurs(Event::Crash(client));
        }
        Ok(())
    }
}
