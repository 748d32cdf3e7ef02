//! The server's sessions and what it has promised them, as `segue-server` has it; and what became
//! of inodes when, for who checks.

use std::collections::BTreeMap;
use std::time::Duration;

use segue_core::promise::{Promises, SessionId};
use segue_core::types::{ClientId, Ino, Time, Version, VolumeId};
use segue_core::wire::{BREAK_MAX, Request};

use super::{Answer, Server};
use crate::Violation;
use crate::plan::Bug;

/// A connection is given up after so long a silence.
const IDLE: Duration = Duration::from_secs(20);
/// Low, so that it is reached.
const PROMISES_MAX: usize = 60;

/// What the server knows of its clients that are connected.
#[derive(Debug)]
pub(crate) struct Sessions {
    table: Promises,
    of: BTreeMap<ClientId, Connected>,
    /// When inodes changed, and to what; `None`: they went.
    history: BTreeMap<Ino, Vec<(Time, Option<Version>)>>,
}

impl Default for Sessions {
    fn default() -> Sessions {
        let (of, history) = (BTreeMap::new(), BTreeMap::new());
        Sessions { table: Promises::new(PROMISES_MAX, PROMISES_MAX / 2), of, history }
    }
}

/// A connection of a client.
#[derive(Clone, Copy, Debug)]
struct Connected {
    id: SessionId,
    /// Its number at the client.
    connection: u64,
    heard: Time,
}

/// Inodes that a session is to be told of.
pub(crate) type Telling = (ClientId, SessionId, Vec<Ino>);

impl Server {
    /// Answers a request over a connection of `client`; `None` if that was given up. What came over
    /// an earlier one than it has is carried out all the same.
    pub(crate) fn serve(
        &mut self,
        (client, connection): (ClientId, u64),
        request: &Request,
        now: Time,
    ) -> Result<Option<Answer>, Violation> {
        if self.sessions.is_none() {
            return self.answer(client, request).map(Some);
        }
        if matches!(request, Request::Hello(_)) {
            self.enter(client, connection, now);
        }
        let Some(known) = self.session_of(client, now) else { return Ok(None) };
        let id = (known.connection == connection).then_some(known.id);
        let ask = self.sessions.as_mut().map(|sessions| sessions.table.ask());
        let (mut reply, body) = self.answer(client, request)?;
        let changed = std::mem::take(&mut self.changed);
        let Some((sessions, ask)) = self.sessions.as_mut().zip(ask) else { return Ok(None) };
        match (id, reply.inodes()) {
            (Some(id), inodes) if !inodes.is_empty() => {
                reply.promise(sessions.table.answered(ask, id, &inodes));
            }
            _ => sessions.table.unanswered(ask),
        }
        let author = id.filter(|_| matches!(request, Request::Apply(_)));
        let volume = self.volume;
        sessions.table.changed(changed.keys().map(|ino| (volume, *ino)), author);
        for (ino, version) in changed {
            sessions.history.entry(ino).or_default().push((now, version));
        }
        Ok(Some((reply, body)))
    }

    fn enter(&mut self, client: ClientId, connection: u64, now: Time) {
        let volume: VolumeId = self.volume;
        let Some(sessions) = &mut self.sessions else { return };
        if sessions.of.get(&client).is_some_and(|known| known.connection >= connection) {
            return;
        }
        let id = sessions.table.enter(volume);
        if let Some(earlier) = sessions.of.insert(client, Connected { id, connection, heard: now })
        {
            sessions.table.leave(earlier.id);
        }
    }

    /// The session of `client`, which was heard of now.
    fn session_of(&mut self, client: ClientId, now: Time) -> Option<Connected> {
        let sessions = self.sessions.as_mut()?;
        let known = sessions.of.get_mut(&client)?;
        if now.since(known.heard) > IDLE {
            sessions.table.leave(known.id);
            sessions.of.remove(&client);
            return None;
        }
        known.heard = now;
        Some(*known)
    }

    /// True while session `id` of `client` is there.
    pub(crate) fn is_session(&self, client: ClientId, id: SessionId, now: Time) -> bool {
        let known = self.sessions.as_ref().and_then(|sessions| sessions.of.get(&client));
        known.is_some_and(|known| known.id == id && now.since(known.heard) <= IDLE)
    }

    /// True while `client` is connected, as far as the server knows.
    pub(crate) fn is_connected(&self, client: ClientId, now: Time) -> bool {
        let known = self.sessions.as_ref().and_then(|sessions| sessions.of.get(&client));
        known.is_some_and(|known| now.since(known.heard) <= IDLE)
    }

    /// All that is to be told.
    pub(crate) fn take_breaks(&mut self) -> Vec<Telling> {
        let Some(sessions) = &mut self.sessions else { return Vec::new() };
        let ids = sessions.of.iter().map(|(client, known)| (*client, known.id));
        let taken: Vec<Telling> = ids
            .map(|(client, id)| (client, id, sessions.table.take_breaks(id, BREAK_MAX)))
            .filter(|(_, _, inodes)| !inodes.is_empty())
            .collect();
        match self.bug {
            Some(Bug::ServerLosesBreaks) => Vec::new(),
            _ => taken,
        }
    }

    /// The server starts again: its clients have to say who they are.
    pub(crate) fn forget_sessions(&mut self) {
        if let Some(sessions) = &mut self.sessions {
            sessions.of.clear();
            sessions.table = Promises::new(PROMISES_MAX, PROMISES_MAX / 2);
        }
    }

    /// What `ino` became last before `time`; `None` if nothing changed it until then. And whether
    /// it has changed since.
    pub(crate) fn last_change(&self, ino: Ino, time: Time) -> (Option<Option<Version>>, bool) {
        let history = self.sessions.as_ref().and_then(|sessions| sessions.history.get(&ino));
        let Some(history) = history else { return (None, false) };
        let mut before = history.iter().filter(|(at, _)| *at < time).map(|(_, version)| *version);
        (before.next_back(), history.iter().any(|(at, _)| *at >= time))
    }
}
