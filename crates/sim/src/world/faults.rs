//! What fails: links, processes, the server.

use super::{Event, Host, RECONNECT, THREADS, World, id};
use crate::Violation;
use crate::client::Mount;

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
            Event::Crash(client) => self.crash(client),
            Event::Restart(client) => return self.restart(client),
            Event::ServerCrash => {
                self.server_up = false;
                // What was asked is not done; what was done is not heard of.
                self.events.retain(|_, event| {
                    !matches!(event, Event::Request { .. } | Event::Reply { .. })
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

    fn crash(&mut self, client: usize) {
        let host = std::mem::replace(&mut self.hosts[client], Host::Down(Box::default(), 0));
        let down = match host {
            Host::Up(mut mount) => {
                for thread in mount.lose_link() {
                    self.after(RECONNECT, Event::Thread { client, thread });
                }
                self.summary.client_crashes += 1;
                self.summary.conflicts += mount.conflicts;
                self.summary.refused += mount.refused;
                let settled_below = mount.core.acked_below();
                let (mut kept, told, next_call) = mount.die();
                if self.options.power_loss {
                    kept.lose_power(settled_below);
                }
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
    }

    fn restart(&mut self, client: usize) -> Result<(), Violation> {
        if let Host::Down(left, next_call) = &mut self.hosts[client] {
            let left = std::mem::take(&mut **left);
            let numbers = (THREADS, *next_call);
            let mount = Mount::start(id(client), left, numbers, self.options.bug, self.now)?;
            self.hosts[client] = Host::Up(Box::new(mount));
            self.with(client, |_| Ok(()))?;
            self.again(self.plan.client_crash_every, Event::Crash(client));
        }
        Ok(())
    }
}
