//! The links between the hosts and the server, and what travels on them.

use std::time::Duration;

use segue_core::nouns::Time;
use segue_core::wire::{Reply, Request};

use super::draws::Who;
use super::{Event, LOOK, World};
use crate::Violation;
use crate::server::Origin;

/// A message's own length, and what goes around it.
const HEADERS: u64 = 60;
/// A large answer.
const ANSWER: u64 = 24 << 10;

/// Which way a message goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    Up,
    Down,
}

/// A host's link.
#[derive(Debug, Default)]
pub(super) struct SimLink {
    pub(super) is_parted: bool,
    /// Until when what was sent before takes, each way.
    busy: [Time; 2],
}

impl World {
    /// How long a message of so many `bytes` takes, if it arrives.
    pub(super) fn travel(&mut self, client: usize, way: Way, bytes: u64) -> Option<Duration> {
        if self.links[client].is_parted || self.draws.of(Who::Link(client)).chance(self.plan.loss) {
            self.summary.lost += 1;
            return None;
        }
        let slow = self.draws.of(Who::Link(client)).chance(self.plan.slow);
        let longest = if slow { 8_000_000 } else { self.plan.delay_micros };
        let waits = self.queued(client, way, bytes);
        Some(waits + Duration::from_micros(self.draws.of(Who::Link(client)).between(100, longest)))
    }

    /// How long it takes until the link has sent a message, and what it has to send before.
    fn queued(&mut self, client: usize, way: Way, bytes: u64) -> Duration {
        let Some(bandwidth) = self.plan.more.bandwidth else { return Duration::ZERO };
        let busy = &mut self.links[client].busy[usize::from(way == Way::Down)];
        let takes = Duration::from_micros((bytes + HEADERS) * 1_000_000 / bandwidth);
        *busy = Time((*busy).max(self.now).0 + takes);
        busy.since(self.now)
    }

    /// Bytes of a message, where that matters.
    pub(super) fn size_of(
        &self,
        message: impl FnOnce() -> Result<Vec<u8>, postcard::Error>,
        body: &[u8],
    ) -> u64 {
        match self.plan.more.bandwidth {
            Some(_) => (message().map_or(0, |bytes| bytes.len()) + body.len()) as u64,
            None => 0,
        }
    }

    /// How long `client`'s link may take for a question of so many bytes, what is before it, and an
    /// answer.
    pub(super) fn patience(&self, client: usize, bytes: u64) -> Duration {
        let Some(bandwidth) = self.plan.more.bandwidth else { return Duration::ZERO };
        let [up, down] = self.links[client].busy.map(|busy| busy.since(self.now));
        up + down + Duration::from_micros(2 * (bytes + ANSWER) * 1_000_000 / bandwidth)
    }

    /// A request reaches the server and is carried out.
    pub(super) fn arrive(
        &mut self,
        from: Origin,
        call: u64,
        (request, body): (Request, Vec<u8>),
    ) -> Result<(), Violation> {
        let client = from.host;
        if !self.server_up || self.links[client].is_parted {
            self.summary.lost += 1;
            return Ok(());
        }
        if matches!(request, Request::Visible(())) {
            if let Some(moment) = self.server.moment(from.client, self.now) {
                self.answer_visible(client, call, moment);
            }
            return Ok(());
        }
        if self.server.is_waiting(self.now) && matches!(request, Request::Apply(_)) {
            self.after(LOOK, Event::Request { from, call, request, body });
            return Ok(());
        }
        // Nothing comes twice over one connection of the product.
        if self.options.copies && !self.images.arrived.insert((client, call)) {
            return Ok(());
        }
        if let Request::Open(ino) = request
            && self.begin_pulls(from, call, ino)?
        {
            return Ok(());
        }
        let asked = (&request, &body[..]);
        let Some(answer) = self.server.serve(from, asked, self.now)? else {
            self.summary.lost += 1;
            return Ok(());
        };
        if let Request::Open(ino) = request {
            // Nobody was asked: then nobody has said that he has more.
            self.check_paid(ino, &self.owed(from.client, ino))?;
        }
        if let (Reply::Welcome(_), Request::Hello(hello)) = (&answer.0, &request) {
            self.images.welcomed(client, hello.client);
        }
        self.tell_all();
        self.summary.resumed += u64::from(matches!(answer.0, Reply::Resumed(Some(_))));
        self.say(&format!("server answers {call} of client {client}: {:?}", answer.0));
        let bytes = self.size_of(|| answer.0.encode(), &answer.1);
        if let Some(delay) = self.travel(client, Way::Down, bytes) {
            self.after(delay, Event::Reply { client, call, answer: Box::new(answer) });
        }
        Ok(())
    }

    pub(super) fn time_out(&mut self, client: usize, call: u64) -> Result<(), Violation> {
        let lost =
            self.with(client, |apps| Ok(apps.mount.remote.awaits(call).then(|| apps.lose_link())))?;
        self.went_offline(client, lost.flatten())
    }

    /// The threads of a host that waited go on without the server, if it lost its link.
    pub(super) fn went_offline(
        &mut self,
        client: usize,
        threads: Option<Vec<usize>>,
    ) -> Result<(), Violation> {
        if let Some(threads) = threads {
            self.say(&format!("client {client} is offline"));
            let wait = self.images.reconnects_after(client);
            self.after(wait, Event::Reconnect(client));
            for thread in threads {
                self.go_on(client, Some(thread))?;
            }
        }
        Ok(())
    }
}
