//! Calls of programs: what each means, when it is refused, and what it waits for.
//!
//! A call is attempted from its beginning. An attempt ends with the answer, or at an action that
//! has to be carried out first. When that is done, the call is attempted again, and finds that part
//! done. So no attempt depends on what was true before the action.

mod below;
mod change;
mod edit;
mod handles;
mod look;
mod name;
mod owner;
mod paging;
mod room;
mod seal;
mod space;

use std::ops::Range;

use self::name::Facts;
pub use below::{UnsentBelow, is_below};
pub use handles::{Handles, OpenFile};
use look::Looking;
pub use look::{Followed, Look, Seen};
pub use name::{NameCall, RenameFlag};
pub use owner::Owner;
pub use room::{Growth, Quota, Room};
pub use space::DISK_RESERVE;
pub(in crate::host) use space::FreeSpace;

use crate::host::action::{Action, CallId, Done, Edit, Event, Load, Now, Preserve, Task, Undone};
use crate::host::cache::Scrap;
use crate::host::log::{Change, Entry};
use crate::host::send::{Claim, WaiterId};
use crate::host::{Copied, Host};
use crate::nouns::{Caller, ContainerId, INLINE_MAX, Ino, Record, Version};
use crate::refusal::Refusal;

/// What is called.
#[derive(Clone, PartialEq, Debug)]
pub enum Call {
    /// A change of data.
    Edit(EditCall),
    /// Make what was written to a file a change for the server.
    Seal {
        /// The file.
        ino: Ino,
        /// In whose name.
        caller: Caller,
        /// Whether the answer has a waiter for the newest data of the file.
        waits: bool,
    },
    /// The same at a close. Data whose level gives them time stay as they are.
    SealAtClose {
        /// The file.
        ino: Ino,
        /// Who closes it.
        caller: Caller,
    },
    /// A change of names or attributes.
    Change {
        /// The change.
        record: Record,
        /// Who makes it.
        caller: Caller,
        /// The claim of a waiter for its outcome, if there is to be one.
        claim: Option<Claim>,
        /// The change is made only if nobody uses the file and its data have this version here.
        /// Otherwise the call is refused with [`Refusal::Changed`].
        expects: Option<Version>,
    },
    /// The same, as a program asks for it.
    Name(NameCall, Caller),
    /// A look at names or attributes.
    Look(Look),
    /// A copy of all data of one file to an empty one, by the server. It waits for the outcome.
    Clone {
        /// The one.
        from: Ino,
        /// The empty one.
        to: Ino,
        /// The bytes.
        bytes: Copied,
        /// Who copies.
        caller: Caller,
    },
    /// A memory map may have written anything into a container, durably. Refused with
    /// [`Refusal::Changed`] if the file has another one by now.
    Mapped {
        /// The file.
        ino: Ino,
        /// The container.
        container: ContainerId,
    },
}

/// A change of data.
#[derive(Clone, PartialEq, Debug)]
pub struct EditCall {
    /// The file.
    pub ino: Ino,
    /// Who changes it.
    pub by: By,
    /// What is changed.
    pub what: What,
    /// The caller may not keep set-id bits.
    pub kills_set_ids: bool,
}

/// How the caller has the file.
#[derive(Clone, PartialEq, Debug)]
pub enum By {
    /// It has it open.
    Handle(u64),
    /// It is opening it. A close follows.
    Open(Caller),
    /// It has it by its name. No close follows.
    Name(Caller),
    /// It has it open, and changes its size by the inode. A close follows.
    Inode(Caller),
}

/// What is changed of a file's data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// Bytes at an offset.
    Write {
        /// Where.
        offset: u64,
        /// How many.
        len: u64,
        /// At the end instead. The kernel's offset is the size that it last heard of, and another
        /// host may have appended since.
        append: bool,
    },
    /// Zeros that need no room.
    Zeros(Range<u64>),
    /// The size.
    Resize {
        /// In bytes.
        size: u64,
        /// The kernel reads the container by itself: a file that is emptied keeps it.
        is_backed: bool,
    },
}

/// The answer to a call.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Answer {
    /// What a look saw.
    pub seen: Option<Box<Seen>>,
    /// Nothing was asked of the server.
    pub is_cached: bool,
    /// The inode that a change of names is about.
    pub ino: Option<Ino>,
    /// The change in the log, if the call made one.
    pub seq: Option<u64>,
    /// The waiter for the outcome of a change, if the call is to wait for one.
    pub waiter: Option<(u64, WaiterId)>,
    /// The update log is nearly full, and the caller waits for so many bytes that it added.
    pub slowed_by: Option<u64>,
}

/// A call that is not answered.
#[derive(Debug)]
pub(in crate::host) struct Running {
    call: Call,
    /// The action that is under way.
    step: Option<Step>,
    so_far: SoFar,
}

/// What a call has done.
#[derive(Debug, Default)]
struct SoFar {
    facts: Facts,
    /// The look that is not over, below it what that needs.
    looks: Vec<Looking>,
    /// The server was asked.
    has_asked: bool,
    /// Others may have changed names since facts were looked for.
    has_waited: bool,
    /// The inode that it is about.
    ino: Option<Ino>,
    /// There is room for what it adds.
    has_room: bool,
    has_evicted: bool,
    is_edited: bool,
    /// Data were unsealed that were on their way.
    is_unsealed: bool,
    /// What it sealed last.
    sealed: Option<u64>,
    /// A seal failed that may. The data are sealed later.
    is_seal_put_off: bool,
    /// The change that it made.
    logged: Option<u64>,
    /// Bytes that it added to those that wait for the server.
    added: u64,
    /// It was looked whether changes cancel out.
    is_cancelled: bool,
    /// Times of directories to change.
    times: Vec<Record>,
}

/// An action that is under way.
#[derive(Debug)]
enum Step {
    Reserve,
    Load(Load),
    Evict,
    Query,
    Number,
    Follow,
    Preserve(Preserve),
    Append(Box<Entry>, Sealing),
    Write(Box<Edit>),
    Undo(Box<Entry>, Refusal),
}

/// What a call makes of a seal that cannot be logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sealing {
    /// It fails.
    Must,
    /// It succeeds, and the data are sealed later: what the program asked for is done.
    May,
}

/// How an attempt ended.
enum Next {
    /// An action is under way.
    Step,
    /// The call is answered.
    Reply(Answer),
}

impl Host {
    /// Takes in what happened. Carry out all actions before the next event of the same call.
    pub fn handle(&mut self, event: Event, now: Now) {
        match event {
            Event::Call { id, call } => {
                assert!(!self.calls.contains_key(&id), "the number of a call is used once");
                let is_harmless =
                    matches!(call, Call::Look(_) | Call::Seal { .. } | Call::SealAtClose { .. });
                if !is_harmless && self.settings.is_read_only {
                    return self.reply(id, Err(Refusal::ReadOnly));
                }
                let running = Running { call, step: None, so_far: SoFar::default() };
                self.go_on(id, running, now);
            }
            Event::Cancel(id) => drop(self.calls.remove(&id)),
            Event::Done { id, done } => {
                let running = self.calls.remove(&id);
                let taken = running.and_then(|mut running| Some((running.step.take()?, running)));
                assert!(taken.is_some(), "an action that ends was under way");
                let Some((step, mut running)) = taken else { return };
                match self.end_step(id, &mut running, step, done, now) {
                    Ok(()) if running.step.is_some() => drop(self.calls.insert(id, running)),
                    Ok(()) => self.go_on(id, running, now),
                    Err(refusal) => self.reply(id, Err(refusal)),
                }
            }
        }
    }

    /// The next action to carry out.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Calls that are not answered.
    pub fn calls(&self) -> usize {
        self.calls.len()
    }

    fn go_on(&mut self, id: CallId, mut running: Running, now: Now) {
        match self.attempt(id, &mut running, now) {
            Ok(Next::Step) => {
                assert!(running.step.is_some(), "a call that goes on waits for an action");
                self.calls.insert(id, running);
            }
            Ok(Next::Reply(answer)) => self.reply(id, Ok(answer)),
            Err(refusal) => self.reply(id, Err(refusal)),
        }
    }

    fn attempt(&mut self, id: CallId, call: &mut Running, now: Now) -> Result<Next, Refusal> {
        match &call.call {
            Call::Edit(_) => self.attempt_edit(id, call, now),
            Call::Seal { .. } => self.attempt_seal(id, call),
            Call::SealAtClose { .. } => self.attempt_seal_at_close(id, call, now),
            Call::Change { .. } => self.attempt_change(id, call, now),
            Call::Look(_) => self.attempt_look(id, call, now),
            Call::Name(..) => self.attempt_name(id, call, now),
            Call::Clone { .. } => self.attempt_clone(id, call, now),
            Call::Mapped { ino, container } => {
                let place = (*ino, *container);
                self.attempt_mapped(id, call, place, now)
            }
        }
    }

    fn reply(&mut self, id: CallId, answer: Result<Answer, Refusal>) {
        self.act(Action::Reply(id, answer));
    }

    fn act(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    fn wake(&mut self, task: Task) {
        self.act(Action::Wake(task));
    }

    fn append(&mut self, id: CallId, call: &mut Running, entry: Entry) -> Next {
        self.append_seal(id, call, entry, Sealing::Must)
    }

    fn append_seal(
        &mut self,
        id: CallId,
        call: &mut Running,
        entry: Entry,
        sealing: Sealing,
    ) -> Next {
        let entry = Box::new(entry);
        call.step = Some(Step::Append(entry.clone(), sealing));
        self.act(Action::Append(id, entry));
        Next::Step
    }

    /// Reserves numbers if none is left for another change. True if that is under way.
    fn reserves(&mut self, id: CallId, call: &mut Running) -> bool {
        let is_none_left = self.seqs_left() == 0;
        if is_none_left {
            call.step = Some(Step::Reserve);
            self.act(Action::Reserve(id));
        }
        is_none_left
    }

    /// Takes in the end of an action. An error is the answer to the call.
    fn end_step(
        &mut self,
        id: CallId,
        call: &mut Running,
        step: Step,
        done: Result<Done, Undone>,
        now: Now,
    ) -> Result<(), Refusal> {
        match (step, done) {
            (Step::Reserve, Ok(Done::Reserved(through))) => self.reserve_seqs(through),
            (Step::Load(_), Ok(Done::Free(bytes))) => self.space.told(bytes, now.time),
            (Step::Load(load), Ok(Done::Noted(noted))) => self.noted_was(call, load, noted),
            (Step::Query, done) => {
                let told = match done {
                    Ok(Done::Told(told)) => Ok(*told),
                    Ok(_) => Err(Refusal::Protocol),
                    Err(undone) => Err(undone.refusal),
                };
                self.answered(call, told, now);
                if self.tree.has_moved() {
                    call.step = Some(Step::Follow);
                    self.act(Action::Follow(id));
                }
            }
            (Step::Number, Ok(Done::Number(ino))) => call.so_far.facts.number = Some(ino),
            (Step::Follow, Ok(Done::Carried)) => {}
            (Step::Evict, done) => {
                self.space.forget();
                call.so_far.has_evicted = true;
                done.map_err(|undone| undone.refusal)?;
            }
            (Step::Preserve(part), Ok(Done::Preserved(sums))) => {
                self.log_preserved(id, call, part, sums);
            }
            (Step::Append(entry, _), Ok(Done::Carried)) => self.appended(call, *entry, now),
            (Step::Append(entry, sealing), Err(undone)) => {
                match self.not_appended(call, *entry, undone.refusal) {
                    Err(_) if sealing == Sealing::May => call.so_far.is_seal_put_off = true,
                    ended => ended?,
                }
            }
            (Step::Write(edit), done) => self.written(id, call, *edit, done, now)?,
            (Step::Undo(entry, refusal), _) => {
                self.admit(*entry, now.time);
                return Err(refusal);
            }
            (_, Err(undone)) => return Err(undone.refusal),
            (step, Ok(done)) => unreachable!("{done:?} is no result of {step:?}"),
        }
        Ok(())
    }

    /// An entry is in the log.
    fn appended(&mut self, call: &mut Running, entry: Entry, now: Now) {
        match entry {
            Entry::Unsealed { seq } => {
                self.unseal(seq, now.time);
                call.so_far.is_unsealed = true;
                self.wake(Task::Settled);
            }
            Entry::Cancelled { ino, seqs } => {
                let cancelled = self.cancel(ino, &seqs);
                call.so_far.times = self.times_of_cancelled(&cancelled);
                self.cancelled(ino, &cancelled, now);
            }
            Entry::Superseded { ino, seqs, by } => {
                let cancelled = self.supersede(ino, &seqs, &by);
                self.cancelled(ino, &cancelled, now);
            }
            entry => {
                call.so_far.is_edited |= matches!(entry, Entry::Written { .. });
                if let Entry::Change(logged) = &entry {
                    match &logged.change {
                        Change::Data(_) => call.so_far.sealed = Some(logged.seq),
                        Change::Record(_) => {
                            // Times of directories follow the change itself.
                            call.so_far.logged.get_or_insert(logged.seq);
                            call.so_far.added += logged.change.weight();
                            self.pending.more(logged.change.weight());
                        }
                    }
                }
                self.wake_senders(&entry);
                self.admit(entry, now.time);
            }
        }
    }

    fn wake_senders(&mut self, entry: &Entry) {
        let bytes = match entry {
            Entry::Change(logged) => logged.change.bytes(),
            Entry::Amended { .. } => u64::MAX,
            _ => return,
        };
        self.wake(Task::Drain);
        if bytes > INLINE_MAX as u64 {
            self.wake(Task::Upload);
        }
    }

    /// An entry could not be logged, so what it says did not happen.
    fn not_appended(
        &mut self,
        call: &mut Running,
        entry: Entry,
        refusal: Refusal,
    ) -> Result<(), Refusal> {
        match entry {
            Entry::Amended { seq, .. } | Entry::Unsealed { seq } => {
                self.send_after_all(&[seq]);
                self.wake(Task::Drain);
            }
            // The call itself is done. All of it is sent.
            Entry::Cancelled { seqs, .. } => {
                self.send_after_all(&seqs);
                self.wake(Task::Drain);
                return Ok(());
            }
            Entry::Superseded { seqs, by, .. } => {
                self.send_after_all(&seqs);
                self.send_after_all(&[by.seq]);
                self.wake(Task::Drain);
                return Ok(());
            }
            Entry::Preserved { seq, .. } if self.preserved(seq).is_empty() => {
                // Nothing would say that they are there.
                self.act(Action::Remove(Scrap::Preserved(seq)));
            }
            // The time of a directory is lost.
            Entry::Change(_) if call.so_far.is_cancelled => return Ok(()),
            _ => {}
        }
        Err(refusal)
    }
}
