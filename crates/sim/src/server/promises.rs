//! The server's sessions and what it has promised them, as `segue-server` has it; and what became
//! of inodes when, for who checks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use segue_core::namespace::{all_awaited, changes, take_in_awaited};
use segue_core::nouns::{ClientId, Ino, Time, Version, VolumeId};
use segue_core::promise::{Change, Grace, Inodes, Promises, Promising, SessionId};
use segue_core::sharing::{Announced, Dirty, Marked, OpenWait};
use segue_core::upkeep::RemnantAges;
use segue_core::wire::{BREAK_MAX, Renewed, Reply, Request, Resume};

use super::doors::Doors;
use super::{Answer, Holder, Origin, Server};
use crate::Violation;
use crate::plan::Bug;

/// A connection is given up after so long a silence.
const IDLE: Duration = Duration::from_secs(20);
/// Low, so that it is reached.
const PROMISES_MAX: usize = 60;

/// Notes of commits that are forgotten at a time.
const NOTES_SLICE: usize = 16;

/// What the server knows of its clients that are connected.
#[derive(Debug)]
pub(crate) struct Sessions {
    pub(super) table: Promises,
    pub(super) of: BTreeMap<ClientId, Connected>,
    /// When inodes changed, and to what; `None`: they went.
    pub(super) history: BTreeMap<Ino, Vec<(Time, Option<Version>)>>,
    /// What clients said that they have changed, whatever became of that.
    said: BTreeMap<ClientId, Marked>,
    /// Until when a client was told that what was committed is visible.
    pub(super) shown: BTreeMap<ClientId, Time>,
    /// The last moment of these: no two things happen at one.
    instant: Time,
    /// Who has not come back since the server started again.
    pub(super) grace: Grace,
    /// When it went down last.
    went: Option<Time>,
}

impl Default for Sessions {
    fn default() -> Sessions {
        Sessions {
            table: Promises::new(PROMISES_MAX, PROMISES_MAX / 2, 0),
            of: BTreeMap::new(),
            history: BTreeMap::new(),
            said: BTreeMap::new(),
            shown: BTreeMap::new(),
            instant: Time::default(),
            grace: Grace::new(BTreeSet::new(), Time::default()),
            went: None,
        }
    }
}

impl Sessions {
    fn instant(&mut self, now: Time) -> Time {
        self.instant = now.max(Time(self.instant.0 + Duration::from_nanos(1)));
        self.instant
    }
}

/// A connection of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Connected {
    id: SessionId,
    host: usize,
    /// Its number at the client.
    connection: u64,
    heard: Time,
}

/// What a client asks about: all that was committed before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    client: ClientId,
    id: SessionId,
    clock: u64,
    at: Time,
}

/// Up to which commit session `id` was told, and not up to the `last`.
fn heard(sessions: &mut Sessions, id: SessionId, (bug, last): (Option<Bug>, u64)) -> u64 {
    match bug {
        Some(Bug::ServerCountsUnheard) => last,
        _ => sessions.table.heard_through(id),
    }
}

/// Inodes that a session is to be told of.
pub(crate) type Telling = (Holder, Vec<Ino>);

impl Server {
    /// Answers a request over a connection of `client`; `None` if that was given up. What came over
    /// an earlier one than it has is carried out all the same.
    #[allow(clippy::too_many_lines, reason = "an arm for each request")]
    pub(crate) fn serve(
        &mut self,
        from: Origin,
        (request, body): (&Request, &[u8]),
        now: Time,
    ) -> Result<Option<Answer>, Violation> {
        let (client, connection) = (from.client, from.connection);
        let is_hello = matches!(request, Request::Hello(_));
        if let Some(doors) = &mut self.doors {
            if !doors.admits(from, is_hello) {
                return Ok(None);
            }
            if is_hello {
                let answer = self.answer(client, request, body)?;
                if !matches!(answer.0, Reply::Welcome(_)) {
                    return Ok(Some(answer));
                }
                // It is greeted again below, which changes nothing more.
                self.doors.iter_mut().for_each(|doors| doors.enter(from));
            }
        }
        if self.sessions.is_none() {
            return self.answer(client, request, body).map(Some);
        }
        if is_hello {
            self.enter(from, now);
        }
        let Some(known) = self.session_of(client, now) else { return Ok(None) };
        let id = (known.connection == connection).then_some(known.id);
        match request {
            Request::Resume(resume) => return self.resume(id, resume).map(Some),
            Request::Renew(()) => return Ok(Some(self.renew(id))),
            Request::Dirty(dirty) => {
                self.dirty((client, id), dirty)?;
                return Ok(Some((Reply::Marked(()), Vec::new())));
            }
            _ => {}
        }
        if let Request::Apply(apply) = request {
            let dirty = Dirty { changed: apply.awaited.clone(), ..Dirty::default() };
            self.dirty((client, id), &dirty)?;
        }
        let ask = self.sessions.as_mut().map(|sessions| sessions.table.ask());
        let (mut reply, answer) = self.answer(client, request, body)?;
        let told_remnant = self.told_remnant.take();
        if let Some(ino) = told_remnant {
            self.ages.asked(self.volume, ino, now.0.as_secs());
        }
        let Some((sessions, ask)) = self.sessions.as_mut().zip(ask) else { return Ok(None) };
        let author = id.filter(|_| matches!(request, Request::Apply(_)));
        let reader = id.filter(|_| author.is_none());
        match (reader, reply.inodes()) {
            (Some(id), inodes) if !inodes.is_empty() && told_remnant.is_none() => {
                reply.promise(Some(sessions.table.answered(ask, id, &inodes).promising));
            }
            _ => sessions.table.unanswered(ask),
        }
        let mut tells = if author.is_some() { reply.inodes() } else { Vec::new() };
        if self.bug == Some(Bug::ServerPromisesRepeated) {
            self.repeated.clear();
        }
        tells.retain(|ino| !self.repeated.contains(ino));
        let Promising { but, marked } = self.committed(author, tells, now)?;
        if author.is_some() {
            let but = self.repeated.iter().copied().chain(but.iter()).collect();
            reply.promise(Some(Promising { but, marked }));
        }
        let volume = self.volume;
        let Some(sessions) = &mut self.sessions else { return Ok(None) };
        let last = changes::head(&mut self.disk.rows, 0).map_or(0, |head| head.last);
        if let (Reply::Applied(applied), Some(id)) = (&mut reply, author) {
            applied.visible = sessions.table.is_visible(volume, id, sessions.table.now());
            applied.heard = heard(sessions, id, (self.bug, last));
            if applied.visible {
                let instant = sessions.instant(now);
                let shown = sessions.shown.entry(client).or_default();
                *shown = instant.max(*shown);
            }
        }
        Ok(Some((reply, answer)))
    }

    /// What changed is noted, and told to all but its author: who is promised all that the answer
    /// `tells` but these.
    pub(super) fn committed(
        &mut self,
        author: Option<SessionId>,
        tells: Vec<Ino>,
        now: Time,
    ) -> Result<Promising, Violation> {
        let changed = std::mem::take(&mut self.changed);
        let unnoted = std::mem::take(&mut self.unnoted);
        let number = match unnoted.is_empty() {
            true => None,
            false => Some(changes::note(&mut self.disk.rows, unnoted, now.0.as_secs())?),
        };
        if let Some(most) = self.notes_max {
            changes::forget(&mut self.disk.rows, (0, most), NOTES_SLICE)?;
        }
        let volume = self.volume;
        let Some(sessions) = &mut self.sessions else { return Ok(Promising::default()) };
        let gone = changed.iter().filter(|(_, became)| became.is_none());
        let change = Change {
            objects: changed.keys().map(|ino| (volume, *ino)).collect(),
            gone: gone.map(|(ino, _)| (volume, *ino)).collect(),
        };
        let promising = sessions.table.committed_by(author, &change, &tells).promising;
        number.into_iter().for_each(|number| sessions.table.committed(number));
        let instant = sessions.instant(now);
        for (ino, version) in changed {
            sessions.history.entry(ino).or_default().push((instant, version));
        }
        Ok(promising)
    }

    /// Which of what a host knows from before has changed since.
    fn resume(&mut self, id: Option<SessionId>, resume: &Resume) -> Result<Answer, Violation> {
        let held: Vec<Ino> = resume.held.iter().collect();
        let none = (Reply::Resumed(None), Vec::new());
        let Some((sessions, id)) = self.sessions.as_mut().zip(id) else { return Ok(none) };
        let Promising { but, marked } = sessions.table.hold(id, &held).promising;
        if !but.is_empty() {
            return Ok(none);
        }
        let mut resumed = changes::resumed(&mut self.disk.rows, self.volume, resume)?;
        if let Some(resumed) = &mut resumed {
            resumed.changed = resumed.changed.iter().chain(marked.into_keys()).collect();
        }
        if self.bug == Some(Bug::ServerResumesUnread)
            && let Some(resumed) = &mut resumed
        {
            resumed.changed = Inodes::default();
        }
        Ok((Reply::Resumed(resumed), Vec::new()))
    }

    /// How far the session was told.
    fn renew(&mut self, id: Option<SessionId>) -> Answer {
        let last = changes::head(&mut self.disk.rows, 0).map_or(0, |head| head.last);
        let sessions = self.sessions.as_mut();
        let commit = sessions.zip(id).map(|(sessions, id)| heard(sessions, id, (self.bug, last)));
        (Reply::Renewed(Renewed { commit: commit.unwrap_or_default() }), Vec::new())
    }

    fn enter(&mut self, from: Origin, now: Time) {
        let volume: VolumeId = self.volume;
        let Some(sessions) = &mut self.sessions else { return };
        let Origin { host, client, connection } = from;
        let is_old = |known: &Connected| known.host == host && known.connection >= connection;
        if sessions.of.get(&client).is_some_and(is_old) {
            return;
        }
        sessions.grace.came_back(client);
        let id = sessions.table.enter(volume, client);
        let connected = Connected { id, host, connection, heard: now };
        if let Some(earlier) = sessions.of.insert(client, connected) {
            sessions.table.leave(earlier.id, now);
        }
    }

    /// A client says what it has changed.
    fn dirty(
        &mut self,
        (client, id): (ClientId, Option<SessionId>),
        dirty: &Dirty,
    ) -> Result<(), Violation> {
        let Some((sessions, id)) = self.sessions.as_mut().zip(id) else { return Ok(()) };
        take_in_awaited(&mut self.disk.rows, (self.volume, client), dirty)?;
        let said = sessions.said.entry(client).or_default();
        if dirty.is_all {
            said.clear();
        }
        said.retain(|ino, _| !dirty.clean.iter().any(|clean| clean == *ino));
        let is_known = dirty.changed.keys().all(|ino| said.contains_key(ino));
        said.extend(&dirty.changed);
        let is_kept = self.bug == Some(Bug::ServerKeepsAnnounced) && is_known;
        if self.bug != Some(Bug::ServerForgetsMarks) && !is_kept {
            // Who has something to hear is found by looking.
            drop(sessions.table.dirty(id, dirty));
        }
        Ok(())
    }

    /// Files that clients besides `reader` have said to have changed.
    pub(crate) fn said_to(&self, reader: ClientId) -> impl Iterator<Item = Ino> + '_ {
        let said = self.sessions.iter().flat_map(|sessions| &sessions.said);
        let said = said.filter(move |(client, _)| **client != reader);
        said.flat_map(|(_, said)| said.keys()).copied()
    }

    /// True if a client besides `reader` says that `ino` is so.
    pub(crate) fn is_announced(&self, reader: ClientId, ino: Ino, as_of: Announced) -> bool {
        let said = self.sessions.iter().flat_map(|sessions| &sessions.said);
        let mut said = said.filter(|(client, _)| **client != reader);
        said.any(|(_, said)| said.get(&ino).is_some_and(|mark| mark.announced == Some(as_of)))
    }

    /// The hosts that are connected, without that of `reader`, and have said that they have changed
    /// `ino`.
    pub(crate) fn said(&self, reader: ClientId, ino: Ino, now: Time) -> Vec<usize> {
        let Some(sessions) = &self.sessions else { return Vec::new() };
        let has_said =
            |(client, said): &(&ClientId, &Marked)| **client != reader && said.contains_key(&ino);
        let clients = sessions.said.iter().filter(has_said).map(|(client, _)| client);
        let known = clients.filter_map(|client| sessions.of.get(client));
        known.filter(|known| now.since(known.heard) <= IDLE).map(|known| known.host).collect()
    }

    /// The wait of a reader for those that have changes of `ino`, and the sessions of these.
    pub(crate) fn open_wait(
        &mut self,
        from: Origin,
        ino: Ino,
        now: Time,
    ) -> Option<(OpenWait, Vec<Holder>)> {
        let reader = self.session_of(from.client, now)?;
        let sessions = self.sessions.as_mut()?;
        let writers = sessions.table.writers(reader.id, ino, now);
        let holder = |client: ClientId| {
            let known = sessions.of.get(&client).filter(|known| now.since(known.heard) <= IDLE)?;
            Some(Holder { host: known.host, client, session: known.id })
        };
        let wait = OpenWait::new(writers, |client| holder(*client).is_some());
        let here = wait.left().filter_map(holder).collect();
        Some((wait, here))
    }

    /// A client asks whether what is committed is visible. Which moment it means.
    pub(crate) fn moment(&mut self, client: ClientId, now: Time) -> Option<Moment> {
        let id = self.session_of(client, now)?.id;
        let sessions = self.sessions.as_mut()?;
        let (clock, at) = (sessions.table.now(), sessions.instant(now));
        Some(Moment { client, id, clock, at })
    }

    /// Shows a change if nobody else relies on the state before it; true if it is visible. `None`
    /// if the session is gone.
    pub(crate) fn show(&mut self, moment: &Moment, now: Time) -> Option<bool> {
        if !self.is_session(moment.client, moment.id, now) {
            return None;
        }
        let (volume, bug, is_waiting) = (self.volume, self.bug, self.is_waiting(now));
        let sessions = self.sessions.as_mut()?;
        let is_gone = |known: &Connected| now.since(known.heard) > IDLE;
        for (client, known) in sessions.of.clone() {
            if is_gone(&known) {
                sessions.table.leave(known.id, now);
                sessions.of.remove(&client);
            }
        }
        let is_visible = !is_waiting && sessions.table.is_visible(volume, moment.id, moment.clock)
            || bug == Some(Bug::ServerShowsUnheard);
        if is_visible {
            let shown = sessions.shown.entry(moment.client).or_default();
            *shown = moment.at.max(*shown);
        }
        Some(is_visible)
    }

    /// Until when all that was committed is visible to `client`: others were told so.
    pub(crate) fn shown_to(&self, client: ClientId) -> Option<Time> {
        let shown = self.sessions.iter().flat_map(|sessions| &sessions.shown);
        shown.filter(|(author, _)| **author != client).map(|(_, until)| *until).max()
    }

    /// True if `client` is to be told that `ino` has changed.
    pub(crate) fn is_to_be_told(&self, client: ClientId, ino: Ino) -> bool {
        let Some(sessions) = &self.sessions else { return false };
        let known = sessions.of.get(&client);
        known.is_some_and(|known| sessions.table.is_to_be_told(known.id, ino))
    }

    /// A session has heard of what it was told last.
    pub(crate) fn heard(&mut self, Holder { client, session: id, .. }: Holder, now: Time) {
        if self.is_session(client, id, now)
            && let Some(sessions) = &mut self.sessions
        {
            sessions.table.heard(id);
        }
    }

    /// The session of `client`, which was heard of now.
    fn session_of(&mut self, client: ClientId, now: Time) -> Option<Connected> {
        let sessions = self.sessions.as_mut()?;
        let known = sessions.of.get_mut(&client)?;
        if now.since(known.heard) > IDLE {
            sessions.table.leave(known.id, now);
            sessions.of.remove(&client);
            return None;
        }
        known.heard = now;
        Some(*known)
    }

    /// True while nothing may be changed.
    pub(crate) fn is_waiting(&self, now: Time) -> bool {
        self.sessions.as_ref().is_some_and(|sessions| sessions.grace.left(now).is_some())
    }

    /// True while session `id` of `client` is there.
    pub(crate) fn is_session(&self, client: ClientId, id: SessionId, now: Time) -> bool {
        let known = self.sessions.as_ref().and_then(|sessions| sessions.of.get(&client));
        known.is_some_and(|known| known.id == id && now.since(known.heard) <= IDLE)
    }

    /// True if `client` was connected to the server that went down, and may believe still what it
    /// was to be told then: nobody else is told so.
    pub(crate) fn may_believe(&self, client: ClientId, now: Time) -> bool {
        self.sessions.as_ref().is_some_and(|sessions| {
            let is_young = sessions.went.is_some_and(|went| now.since(went) <= IDLE);
            is_young && !sessions.of.contains_key(&client)
        })
    }

    /// All that is to be told.
    pub(crate) fn take_breaks(&mut self) -> Vec<Telling> {
        let Some(sessions) = &mut self.sessions else { return Vec::new() };
        let holders = sessions.of.iter().map(|(client, known)| Holder {
            host: known.host,
            client: *client,
            session: known.id,
        });
        let taken: Vec<Telling> = holders
            .map(|to| (to, sessions.table.take_breaks(to.session, BREAK_MAX)))
            .filter(|(_, inodes)| !inodes.is_empty())
            .collect();
        match self.bug {
            Some(Bug::ServerLosesBreaks) => Vec::new(),
            _ => taken,
        }
    }

    /// The server starts again: its clients have to say who they are.
    pub(crate) fn forget_sessions(&mut self, now: Time) {
        self.proven.clear();
        self.ages = RemnantAges::default();
        self.doors.iter_mut().for_each(Doors::close);
        let Ok(commit) = changes::head(&mut self.disk.rows, 0).map(|head| head.last) else {
            return;
        };
        let Ok(awaited) = all_awaited(&mut self.disk.rows) else { return };
        if let Some(sessions) = &mut self.sessions {
            sessions.said.clear();
            let connected = std::mem::take(&mut sessions.of).into_keys();
            let absent = connected.chain(sessions.grace.absent().iter().copied()).collect();
            sessions.grace = match self.bug {
                Some(Bug::ServerForgetsSessions) => Grace::new(BTreeSet::new(), now),
                _ => Grace::new(absent, now),
            };
            sessions.table = Promises::new(PROMISES_MAX, PROMISES_MAX / 2, commit);
            sessions.table.noted(&awaited, now);
            sessions.went = Some(now);
        }
    }

    /// What `ino` became last before `time`; `None` if nothing changed it until then. And whether
    /// it has changed since.
    pub(crate) fn last_change(&self, ino: Ino, time: Time) -> (Option<Option<Version>>, bool) {
        let history = self.sessions.as_ref().and_then(|sessions| sessions.history.get(&ino));
        let Some(history) = history else { return (None, false) };
        let (before, since) = history.split_at(history.partition_point(|(at, _)| *at < time));
        (before.last().map(|(_, version)| *version), !since.is_empty())
    }
}
