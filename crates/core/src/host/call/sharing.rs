//! What other hosts are to know before they have it: which files have changed here; and the sending
//! of what another host waits for [MFS 5].
//!
//! ```text
//!   a file has changes, or none any more ─▶ Announce: Dirty to the server, one at a time
//!   another host opens such a file       ─▶ Pull: SealAll ─▶ its changes go first ─▶ outcomes
//! ```

use std::collections::BTreeSet;
use std::time::Duration;

use super::{Answer, Call, Next, Running, Seals, Step};
use crate::host::Host;
use crate::host::action::{Action, CallId, Now, Patience, Reach, Task, Undone};
use crate::nouns::{Attr, Ino, Kind, Time};
use crate::sharing::{Announced, DIRTY_MAX, Dirty, Mark, Marked};

/// Between two announcements: what became clean meanwhile was in none.
const EVERY: Duration = Duration::from_millis(10);
/// An announcement that failed is made again after so long.
const AGAIN: Duration = Duration::from_secs(1);

/// What the server was told of changes here.
#[derive(Clone, Debug, Default)]
pub(in crate::host) struct Announcing {
    /// Over which session.
    session: u64,
    /// Files that it takes for changed.
    told: Marked,
    is_under_way: bool,
    /// Nothing is announced before.
    next: Time,
    /// The task that tells of time knows of that.
    is_timed: bool,
}

/// How often hosts waited for each other's changes, since the mount began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SharingCounts {
    /// Times that the server asked for a file of this host, because another host opens it.
    pub pulls: u64,
    /// Opens here of files that were known to have changed on another host.
    pub waits: u64,
}

/// What of a file goes to the server because another host waits for it.
#[derive(Debug, Default)]
pub(super) struct Pulling {
    /// Its changes when that began.
    changes: BTreeSet<u64>,
    /// How often the server had had no room by then.
    refusals: u64,
}

impl Announcing {
    /// The server hears by another message that these have changed.
    pub(in crate::host) fn count_as_told(&mut self, marked: &Marked) {
        self.told.extend(marked);
    }
}

impl Host {
    /// Begins an announcement if one is due. What follows goes before other actions: where one of
    /// them asks for a call, nothing behind it is carried out.
    pub(super) fn announce(&mut self, now: Now) {
        let session = self.tree.session_number().filter(|_| now.link == Reach::Online);
        let Some(session) = session else {
            self.announcing.is_timed = false;
            return;
        };
        if self.announcing.session != session {
            let is_under_way = self.announcing.is_under_way;
            self.announcing = Announcing { session, is_under_way, ..Announcing::default() };
            self.tree.stir_all();
        }
        let is_wanted = self.tree.has_stirred() && !self.settings.is_read_only;
        if !is_wanted || self.announcing.is_under_way {
            return;
        }
        if self.announcing.next <= now.time {
            self.announcing.is_under_way = true;
            self.announcing.is_timed = false;
            self.actions.push_front(Action::Start(Call::Announce));
        } else if !std::mem::replace(&mut self.announcing.is_timed, true) {
            self.actions.push_front(Action::Wake(Task::Time));
        }
    }

    /// When the next announcement is due, if one is.
    pub(super) fn next_announcement(&self) -> Option<Time> {
        let is_due = self.announcing.is_timed && self.tree.has_stirred();
        (is_due && !self.announcing.is_under_way).then_some(self.announcing.next)
    }

    pub(super) fn attempt_announce(&mut self, id: CallId, call: &mut Running, now: Now) -> Next {
        if call.so_far.is_carried {
            return Next::Reply(Answer::default());
        }
        let dirty = self.news(now.time);
        if dirty == Dirty::default() {
            return Next::Reply(Answer::default());
        }
        call.step = Some(Step::Announce);
        self.act(Action::Announce(id, Box::new(dirty)));
        Next::Step
    }

    /// What the server is to be told, and counts as told from now on.
    fn news(&mut self, now: Time) -> Dirty {
        let stirred = self.tree.take_stirred();
        let is_all = stirred.is_none();
        if is_all {
            self.announcing.told.clear();
        }
        let stirred = stirred.unwrap_or_else(|| self.tree.pending_inodes());
        let (mut changed, mut clean) = (Marked::new(), Vec::new());
        for (count, ino) in stirred.into_iter().enumerate() {
            if count >= DIRTY_MAX {
                self.tree.stir(ino);
                continue;
            }
            if self.tree.is_pending(ino) && !self.tree.is_directory(ino) {
                let mark = self.mark_of(ino, now);
                if self.announcing.told.insert(ino, mark) != Some(mark) {
                    changed.insert(ino, mark);
                }
            } else if let Some(told) = self.announcing.told.remove(&ino) {
                let attr = self.tree.settled_attr(ino);
                let has_come = |told: Announced| attr.is_some_and(|attr| told.mtime <= attr.mtime);
                if told.announced.is_none_or(has_come) {
                    clean.push(ino);
                    continue;
                }
                // It does not come, or became another file: it is taken back first.
                self.announcing.told.insert(ino, Mark::default());
                changed.insert(ino, Mark::default());
                self.tree.stir(ino);
            }
        }
        Dirty { is_all, changed, clean: clean.into_iter().collect() }
    }

    /// The mark of `ino`, which has changes here. If another file was renamed over it, the mark has
    /// size and time of that file. It has none while a program writes the file anew.
    pub(in crate::host) fn mark_of(&self, ino: Ino, now: Time) -> Mark {
        let changes = self.queue.all_of(ino);
        let changes = changes.iter().rev().filter_map(|seq| self.queue.change(*seq));
        let ino = changes.filter_map(|change| change.replaced_by(ino)).next().unwrap_or(ino);
        let attr = self.tree.peek(ino).filter(|attr| attr.kind == Kind::File && attr.nlink > 0);
        let attr = attr.filter(|_| !self.tree.is_size_lost(ino) && !self.is_rewritten(ino, now));
        let announced = |attr: &Attr| Announced { size: attr.size, mtime: attr.mtime };
        Mark { announced: attr.map(announced) }
    }

    /// Attributes as programs see them: with the size and time that another host has announced,
    /// unless a program has the file open here. Its reads end where the server's version ends.
    pub fn shown(&self, attr: Attr, now: Now) -> Attr {
        let announced = self.tree.announced(attr.ino).filter(|_| now.link == Reach::Online);
        let Some(Announced { size, mtime }) = announced else { return attr };
        if attr.kind != Kind::File || self.is_used(attr.ino, now.time) {
            return attr;
        }
        Attr { size, mtime, ctime: attr.ctime.max(mtime), ..attr }
    }

    /// True if a program has `ino` open, or is opening it.
    fn is_used(&self, ino: Ino, now: Time) -> bool {
        let opens = |call: &Running| matches!(call.call, Call::Open(open) if open.ino == ino);
        self.is_open(ino)
            || self.handles.is_opened_anew(ino, now)
            || self.calls.values().any(|call| opens(call))
    }

    /// The server has taken an announcement in, or may not have.
    pub(super) fn announced(&mut self, call: &mut Running, failed: Option<Undone>, now: Now) {
        call.so_far.is_carried = true;
        if failed.is_some() {
            self.tree.stir_all();
        }
        let pause = if failed.is_some() { AGAIN } else { EVERY };
        self.announcing.next = Time(now.time.0 + pause);
    }

    /// An announcement is over.
    pub(super) fn end_announcing(&mut self) {
        self.announcing.is_under_way = false;
    }

    /// Sends what this host has changed of a file that another host opens, before all that nobody
    /// waits for. What is being written anew is one change, and goes when it is closed.
    pub(super) fn attempt_pull(
        &mut self,
        id: CallId,
        call: &mut Running,
        ino: Ino,
        now: Now,
    ) -> Next {
        if !call.so_far.is_carried {
            // What cannot be sealed is sealed later. What is queued goes all the same.
            let _sealed = match (call.has_inner(), self.is_rewritten(ino, now.time)) {
                (true, _) => self.go_on_inner(id, call, now).map(drop),
                (false, true) => Ok(()),
                (false, false) => {
                    let seal = Call::SealAll(Seals::These(vec![ino]));
                    self.begin_inner(id, call, seal, now).map(drop)
                }
            };
            if call.inner.is_some() {
                return Next::Step;
            }
            call.so_far.is_carried = true;
            self.sharing.pulls += 1;
            // All, because the last ones may be cancelled.
            let changes = self.queue.all_of(ino);
            self.pull(&changes);
            self.go_first();
            call.so_far.pulling = Pulling { changes, refusals: self.server_disk.refusals() };
        }
        // It claims no outcome, and is no reason to refuse what may be stored later.
        let is_pending = |seq: &u64| self.queue.stage(*seq).is_some();
        let Pulling { changes, refusals } = &call.so_far.pulling;
        let is_settled = !changes.iter().any(is_pending);
        // While the server has no room it is not known when they come.
        let is_refused = self.server_disk.refusals() > *refusals;
        if is_settled || call.so_far.is_late || is_refused {
            return Next::Reply(Answer { is_settled, ..Answer::default() });
        }
        self.awaits(id, call, Patience::Grace, None);
        Next::Step
    }
}
