//! The server's promises: their lease, their end, and the next connection [MFS 2.1].
//!
//! ```text
//!   a break, another session, a sleep, the end of the lease
//!                                      ─▶ TakeBack: host and kernel forget promised state
//!                                           └▶ Follow: open files are asked for again
//!   another connection ─▶ Resume: the promises of the last one, but for changed inodes
//!   time ─▶ Renew: the lease          ─▶ KeepRemoved: open files that others removed
//! ```

use std::time::Duration;

use super::{Answer, Call, Look, Next, Running, Seals, Step};
use crate::host::Host;
use crate::host::action::{Action, CallId, Now, Reach, TakenBack, Task};
use crate::nouns::{Dentry, Ino, Time};
use crate::promise::{Inodes, KEPT_SECONDS};
use crate::refusal::Refusal;
use crate::wire::Resumed;

/// A file that changed while it was asked for is asked for again after so long.
const FOLLOW_EVERY: Duration = Duration::from_millis(100);
/// A lease that could not be renewed is renewed again after so long.
const RENEW_AGAIN: Duration = Duration::from_secs(1);
/// Files that other hosts removed are asked for so often while they are open here: a third of the
/// time for which the server keeps them.
const KEEP_EVERY: Duration = Duration::from_secs(KEPT_SECONDS / 3);
/// It is looked so often whether written and still open files go to the server.
const SEAL_EVERY: Duration = Duration::from_secs(5);
/// Most of these at a time. The server would keep no more either.
const KEEP_MAX: usize = 4096;

/// Why promises count no more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The server says that these inodes changed.
    Broken(Vec<Ino>),
    /// The session ends: another connection is being made.
    Session,
    /// The lease is about to end, and the kernel's lifetimes end later.
    Lease,
    /// This host slept. The kernel's clock stood still, so its lifetimes would end too late.
    Slept,
}

/// The times of the questions that keep promises.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(in crate::host) struct Keeping {
    /// The lease is being renewed.
    is_renewing: bool,
    /// The kernel's state is being taken back, because the lease is about to end.
    is_ending: bool,
    /// It is not renewed before.
    next_renewal: Time,
    /// Removed files are asked for then.
    next_keep: Time,
    /// Written files that have no more time are sealed then.
    next_seal: Time,
}

impl Host {
    /// The next moment at which there is something to do: give the host [`Event::Time`] then.
    /// Whatever happens before may bring it forward.
    ///
    /// [`Event::Time`]: crate::host::action::Event::Time
    pub fn next_deadline(&self) -> Time {
        let released = self.queue.next_release();
        let renewed = self.tree.renewal().filter(|_| !self.keeping.is_renewing);
        let renewed = renewed.map(|at| at.max(self.keeping.next_renewal));
        let ends = self.tree.end_of_lease().filter(|_| !self.keeping.is_ending);
        let next = self.keeping.next_keep.min(self.keeping.next_seal);
        let announced = self.next_announcement();
        [released, renewed, ends, announced].into_iter().flatten().fold(next, Time::min)
    }

    /// Begins the calls that are due.
    pub(super) fn time_came(&mut self, now: Now) {
        if self.queue.next_release().is_some_and(|at| at <= now.time) {
            self.queue.release(now.time);
            self.wake(Task::Drain);
            self.wake(Task::Upload);
        }
        self.tree.forget_breaks(now.time);
        if self.keeping.next_seal <= now.time {
            self.keeping.next_seal = Time(now.time.0 + SEAL_EVERY);
            let old = self.listings.drop_old(now.time).into_iter();
            old.for_each(|directory| self.act(Action::ForgetListing(directory)));
            if !self.due_to_seal(now.time).is_empty() {
                self.act(Action::Start(Call::SealAll(Seals::Due)));
            }
        }
        if self.tree.end_of_lease().is_some_and(|at| at <= now.time) && !self.keeping.is_ending {
            self.keeping.is_ending = true;
            self.act(Action::Start(Call::TakeBack(Ended::Lease)));
        }
        let is_reached = now.link == Reach::Online;
        let is_due = self.tree.wants_lease(now.time) && self.keeping.next_renewal <= now.time;
        if is_due && !self.keeping.is_renewing {
            self.keeping.next_renewal = Time(now.time.0 + RENEW_AGAIN);
            if is_reached {
                self.keeping.is_renewing = true;
                self.act(Action::Start(Call::Renew));
            }
        }
        if self.keeping.next_keep <= now.time {
            self.keeping.next_keep = Time(now.time.0 + KEEP_EVERY);
            let removed = if is_reached { self.to_keep(KEEP_MAX) } else { Vec::new() };
            if !removed.is_empty() {
                self.act(Action::Start(Call::KeepRemoved(removed)));
            }
        }
    }

    pub(super) fn attempt_renew(&mut self, id: CallId, call: &mut Running, now: Now) -> Next {
        if call.so_far.is_carried {
            return Next::Reply(Answer::default());
        }
        call.step = Some(Step::Renew(now.time));
        self.act(Action::Renew(id));
        Next::Step
    }

    /// The lease is renewed, or could not be.
    pub(super) fn end_renewing(&mut self) {
        self.keeping.is_renewing = false;
    }

    /// A call that takes back is over.
    pub(super) fn end_taking_back(&mut self, call: &Running) {
        if call.call == Call::TakeBack(Ended::Lease) {
            self.keeping.is_ending = false;
        }
        if call.so_far.takes_all {
            self.tree.told_is_taken(call.so_far.is_carried);
        }
    }

    /// Asks for each of these, as long as the server can be reached.
    pub(super) fn attempt_keep_removed(
        &mut self,
        id: CallId,
        call: &mut Running,
        now: Now,
    ) -> Next {
        // A question that fails is asked again at the next time.
        drop(self.go_on_inner(id, call, now));
        while call.inner.is_none()
            && now.link == Reach::Online
            && let Call::KeepRemoved(left) = &mut call.call
            && let Some(ino) = left.pop()
        {
            drop(self.begin_inner(id, call, Call::Look(Look::AttrAnew(ino)), now));
        }
        match call.inner.is_some() {
            true => Next::Step,
            false => Next::Reply(Answer::default()),
        }
    }

    /// Forgets promised attributes and names, and has the kernel forget them.
    pub(super) fn attempt_take_back(&mut self, id: CallId, call: &mut Running, now: Now) -> Next {
        let Call::TakeBack(ended) = &call.call else { return Next::Reply(Answer::default()) };
        if call.so_far.is_carried {
            if let Ended::Broken(inodes) = ended {
                self.follow_open(inodes.iter().copied());
            }
            return Next::Reply(Answer::default());
        }
        let taken_back = match ended {
            Ended::Broken(inodes) => self.break_promises(inodes.clone(), now.time),
            Ended::Session if !self.tree.may_be_told(now.time) => {
                return Next::Reply(Answer::default());
            }
            // Another call has taken it back meanwhile.
            Ended::Lease if self.tree.end_of_lease().is_none() => {
                return Next::Reply(Answer::default());
            }
            Ended::Session | Ended::Lease | Ended::Slept => {
                call.so_far.takes_all = true;
                let names = self.tree.take_told().into_iter();
                let names = names.map(|(parent, name)| Dentry { parent, name }).collect();
                let (listings, all_names) = (self.listings.drop_all(), self.tree.take_dropped());
                let (everything, taken) = (true, TakenBack::default());
                TakenBack { everything, listings, names, all_names, ..taken }
            }
        };
        call.step = Some(Step::TakeBack);
        self.act(Action::TakeBack(id, Box::new(taken_back)));
        Next::Step
    }

    fn break_promises(&mut self, inodes: Vec<Ino>, now: Time) -> TakenBack {
        let (mut names, mut places) = (Vec::new(), Vec::new());
        for &parent in &inodes {
            self.tree.broken(parent, now);
            for name in self.tree.known_names(parent) {
                let is_directory = self.tree.names_directory(parent, name);
                let at = Dentry { parent, name: name.clone() };
                if is_directory { &mut places } else { &mut names }.push(at);
            }
        }
        let listings = inodes.iter().copied().filter(|ino| self.listings.drop_one(*ino)).collect();
        let (everything, all_names) = (false, self.tree.take_dropped());
        TakenBack { everything, inodes, listings, names, places, all_names }
    }

    /// These have changed: readers of those that are open are to see the change.
    fn follow_open(&mut self, changed: impl Iterator<Item = Ino>) {
        for ino in changed {
            if self.is_open(ino) {
                self.act(Action::Start(Call::Follow(ino)));
            }
        }
    }

    /// Asks for the attributes of an open file until they are promised. Nobody would tell this host
    /// of a change behind an answer without a promise.
    pub(super) fn attempt_follow(
        &mut self,
        id: CallId,
        call: &mut Running,
        ino: Ino,
        now: Now,
    ) -> Result<Next, Refusal> {
        let answer = match call.has_inner() {
            true => self.go_on_inner(id, call, now)?,
            false => self.begin_inner(id, call, Call::Look(Look::AttrAnew(ino)), now)?,
        };
        if answer.is_none() {
            return Ok(Next::Step);
        }
        // The next connection begins with the question for changes.
        if !self.is_to_follow(ino, now.time) || now.link != Reach::Online {
            return Ok(Next::Reply(Answer::default()));
        }
        call.step = Some(Step::Pause);
        self.act(Action::Pause(id, FOLLOW_EVERY));
        Ok(Next::Step)
    }

    /// Takes the promises of the last connection over into a new one, except those of inodes that
    /// changed meanwhile. If that fails, everything is asked for anew.
    pub(super) fn attempt_resume(&mut self, id: CallId, call: &mut Running) -> Next {
        let Call::Resume { epoch, commit } = call.call else {
            return Next::Reply(Answer::default());
        };
        if call.so_far.is_carried {
            return Next::Reply(Answer::default());
        }
        match self.tree.to_resume(epoch) {
            Some(resume) => {
                call.step = Some(Step::Resume(resume.held.clone()));
                self.act(Action::Resume(id, Box::new(resume)));
                Next::Step
            }
            None => {
                self.tree.begin_connection(epoch, commit);
                Next::Reply(Answer::default())
            }
        }
    }

    /// The server's answer to that, if it gave one.
    pub(super) fn resumed(
        &mut self,
        call: &mut Running,
        held: &Inodes,
        resumed: Option<Resumed>,
        now: Now,
    ) {
        let Call::Resume { epoch, commit } = call.call else { return };
        call.so_far.is_carried = true;
        // No more can have changed than was asked for.
        match resumed.filter(|resumed| resumed.changed.len() <= held.len()) {
            Some(resumed) => {
                self.tree.resume(held, &resumed, now.time);
                self.follow_open(resumed.changed.iter());
            }
            None => self.tree.begin_connection(epoch, commit),
        }
    }
}
