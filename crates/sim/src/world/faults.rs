//! What fails: links, processes, the server.

use super::{Event, Host, RECONNECT, THREADS, World, id};
use crate::Violation;
use crate::check::restart;
use crate::client::{AtServer, Lost, Mount};

impl World {
    pub(super) fn fault(&mut self, event: Event) -> Result<(), Violation> {
        if self.calm && !matches!(event, Event::Restart(_)) {
            return Ok(());
        }
        self.say(&format!("{event:?}"));
        match event {
            Event::Part(client) => {
                self.parted[client] = true;
                self.summary.partitions += 1;
                let wait = self.random_millis(500, 30_000);
                self.after(wait, Event::Heal(client));
            }
            Event::Heal(client) => {
                self.parted[client] = false;
                self.again(self.plan.partition_every, Event::Part(client));
            }
            Event::Crash(client) => self.crash(client)?,
            Event::Restart(client) => return self.restart(client),
            Event::ServerCrash => {
                self.server_up = false;
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
                    )
                });
                self.summary.server_crashes += 1;
                let wait = self.random_millis(100, 10_000);
                self.after(wait, Event::ServerRestart);
            }
            Event::ServerRestart => {
                self.server_up = true;
                self.again(self.plan.server_crash_every, Event::ServerCrash);
            }
            _ => {}
        }
        Ok(())
    }

    /// What a process is doing to its disk when it dies.
    fn die_busy(&mut self, client: usize) -> Result<(), Violation> {
        let Host::Up(mount) = &mut self.hosts[client] else { return Ok(()) };
        if self.options.plain {
            return Ok(());
        }
        mount.now = self.now;
        match self.disk_rng.below(10) {
            0..4 => mount.die_evicting(&mut self.disk_rng),
            _ => {
                let done = mount.die_writing(&mut self.disk_rng)?;
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
        self.die_busy(client)?;
        let host = std::mem::replace(&mut self.hosts[client], Host::Down(Box::default(), 0));
        let down = match host {
            Host::Up(mut mount) => {
                for thread in mount.lose_link() {
                    self.after(RECONNECT, Event::Thread { client, thread });
                }
                self.summary.client_crashes += 1;
                self.summary.conflicts += mount.conflicts;
                self.summary.refused += mount.refused;
                let server = AtServer {
                    settled_below: mount.core.acked_below(),
                    is_alone: self.model.is_some(),
                };
                let (mut kept, mut told, next_call) = mount.die();
                if kept.loses_power {
                    let lost = kept.lose_power(server, &mut self.disk_rng);
                    told.lost(&lost);
                    self.say(&format!("client {client} lost {} entries", lost.entries.len()));
                    self.take_back(&lost);
                }
                told.crashed();
                Host::Down(Box::new((kept, told)), next_call)
            }
            down => down,
        };
        self.hosts[client] = down;
        if let Some(model) = &mut self.model {
            model.crashed();
        }
        let wait = self.random_millis(100, 20_000);
        self.after(wait, Event::Restart(client));
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
        let (Some(model), Host::Up(mount)) = (&self.model, &self.hosts[client]) else { return };
        if !mount.kept.loses_power {
            return;
        }
        let durable = mount.kept.durable_end();
        let last = self.past.iter().rposition(|(end, _)| *end <= durable).unwrap_or(0);
        self.past.drain(..last);
        self.past.push((mount.changed_at, model.clone()));
    }

    fn restart(&mut self, client: usize) -> Result<(), Violation> {
        if let Host::Down(left, next_call) = &mut self.hosts[client] {
            let mut left = std::mem::take(&mut **left);
            let noted = left.0.index_has();
            let bug = self.options.bug;
            // A short life or two before: what it did not end the next one does.
            while !self.options.plain && self.disk_rng.chance(200) {
                let steps = u32::try_from(self.disk_rng.below(12)).unwrap_or_default();
                left = Mount::die_recovering(id(client), left, bug, self.now, steps)?;
                self.summary.broken_recoveries += 1;
            }
            let numbers = (THREADS, *next_call);
            let mut other = Mount::start(id(client), left.clone(), numbers, bug, self.now)?;
            restart::check(&mut other, &noted, &self.server.ledger, self.model.as_ref())?;
            let mut mount = Mount::start(id(client), left, numbers, bug, self.now)?;
            mount.session.has_promises = self.options.promises;
            self.hosts[client] = Host::Up(Box::new(mount));
            self.with(client, |_| Ok(()))?;
            self.again(self.plan.client_crash_every, Event::Crash(client));
        }
        Ok(())
    }
}
