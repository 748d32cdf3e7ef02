//! The word of changes on its way: breaks, what is heard of them, and who waits for that.

use segue_core::nouns::Ino;
use segue_core::wire::Reply;

use super::links::Way;
use super::{Event, Host, LOOK, RECONNECT, World, pulls};
use crate::Violation;
use crate::check::{backed, kernel, promised};
use crate::server::{Holder, Moment, Telling};

impl World {
    pub(super) fn check_promises(&self, client: usize) -> Result<(), Violation> {
        let Host::Up(apps) = &self.hosts[client] else { return Ok(()) };
        let mount = &apps.mount;
        mount.core.check_invariants();
        backed::check(mount)?;
        let is_on_its_way = |ino| {
            let is_to_be_told = self.server.is_to_be_told(mount.disk.kept.client(), ino);
            is_to_be_told
                || self.events.values().any(|event| match event {
                    Event::Tell((to, inodes)) | Event::Break { to, inodes } => {
                        to.host == client && inodes.contains(&ino)
                    }
                    _ => false,
                })
        };
        // It may not have heard that there is another server.
        let has_heard = !self.server.may_believe(mount.disk.kept.client(), self.now);
        match self.options.promises && !self.images.is_twin(client, self.now) {
            true => promised::check(mount, &self.server, self.now, is_on_its_way)
                .and_then(|()| match has_heard {
                    true => pulls::check_marks(mount, &self.server, is_on_its_way),
                    false => Ok(()),
                })
                // By its time it is decided whether what is announced is the newer one.
                .and_then(|()| match has_heard && self.do_clocks_agree() {
                    true => pulls::check_announced(mount, &self.server, is_on_its_way),
                    false => Ok(()),
                })
                .and_then(|()| match self.is_wide_awake(client) {
                    true => kernel::check(mount, &self.server, self.now, is_on_its_way),
                    false => Ok(()),
                })
                .map_err(|violation| Violation(format!("client {client}: {}", violation.0))),
            false => Ok(()),
        }
    }

    /// Answers once all others have heard of what was committed at that moment.
    pub(super) fn answer_visible(&mut self, client: usize, call: u64, moment: Moment) {
        match self.server.show(&moment, self.now).filter(|_| self.server_up) {
            Some(true) => {
                self.say(&format!("what client {client} asked about in {call} is visible"));
                if let Some(delay) = self.travel(client, Way::Down, 0) {
                    let answer = Box::new((Reply::Visible(()), Vec::new()));
                    self.after(delay, Event::Reply { client, call, answer });
                }
            }
            Some(false) => self.after(LOOK, Event::Visible { client, call, moment }),
            None => {}
        }
    }

    pub(super) fn tell_all(&mut self) {
        for telling in self.server.take_breaks() {
            self.tell(telling);
        }
    }

    /// Tells a client what changed, again and again until its connection is given up.
    pub(super) fn tell(&mut self, (to, inodes): Telling) {
        if !self.server_up || !self.server.is_session(to.client, to.session, self.now) {
            return;
        }
        match self.travel(to.host, Way::Down, 0) {
            Some(delay) => self.after(delay, Event::Break { to, inodes }),
            None => self.after(RECONNECT, Event::Tell((to, inodes))),
        }
    }

    pub(super) fn hear(&mut self, to: Holder, inodes: Vec<Ino>) -> Result<(), Violation> {
        let client = to.host;
        self.say(&format!("client {client} hears that {inodes:?} changed"));
        if self.server.is_session(to.client, to.session, self.now) {
            self.summary.breaks += 1;
            self.with(client, |apps| apps.mount.broken(inodes.clone()))?;
            match self.travel(client, Way::Up, 0) {
                Some(delay) => self.after(delay, Event::Heard(to)),
                None => self.after(RECONNECT, Event::Tell((to, inodes))),
            }
        }
        Ok(())
    }
}
