//! The shell of the host: gives it the calls of programs, and carries out what it decides.
//!
//! A call that changes something takes the core's mutex once before its disk work and once after.
//! The log is locked from the first event to the last, so entries are appended in the order in
//! which they were decided. Only work that takes long and appends nothing unlocks it: questions to
//! the server and the index, the copying of bytes to preserve, and eviction. A look leaves the log
//! alone.

use std::ops::Range;
use std::sync::atomic::Ordering;

use segue_core::host::action::{
    Action, Ask, CallId, Change, Done, Edit, Event, Fact, Load, Now, Preserve, Query, Reach, Task,
    Told, Undo, Undone,
};
use segue_core::host::call::{Answer, Call, EditCall, Look, Seen, What};
use segue_core::host::log::{Entry, Payload, SUM_BLOCK};
use segue_core::nouns::{Class, INLINE_MAX, Ino, Record};
use segue_core::refusal::Refusal;
use segue_rpc::Rpc;

use super::{Awaited, Mount, lock};
use crate::rank::Held;
use crate::state::{Container, LogFile};

/// The answer to a call.
#[derive(Debug)]
pub(crate) struct Changed {
    /// What a look saw.
    pub(super) seen: Option<Box<Seen>>,
    /// Nothing was asked of the server.
    pub(super) is_cached: bool,
    /// The inode that a change of names is about.
    pub(super) ino: Option<Ino>,
    /// The change of names that was logged.
    pub(super) made: Option<Record>,
    /// The change in the log, if the call made one.
    pub(super) seq: Option<u64>,
    /// The outcome that the caller is to wait for.
    pub(super) told: Option<Awaited>,
    /// The update log is nearly full: the caller waits for so many bytes that it added.
    pub(super) slowed_by: Option<u64>,
}

/// How far a call came.
enum Ran {
    /// To its end.
    Answered(Result<Changed, Refusal>),
    /// To a question.
    Asks(Asked),
}

/// What only the server can answer.
#[derive(Debug)]
enum Asked {
    Query(Query),
    Number,
}

/// A call under way. When its future is dropped, the host forgets it.
struct Running<'a> {
    mount: &'a Mount,
    id: CallId,
    /// It may append to the log.
    changes: bool,
    made: Option<Record>,
    is_over: bool,
}

impl<'a> Running<'a> {
    fn new(mount: &'a Mount, call: &Call) -> Running<'a> {
        let id = CallId(mount.calls.fetch_add(1, Ordering::Relaxed));
        let changes = !matches!(call, Call::Look(_));
        Running { mount, id, changes, made: None, is_over: false }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.mount.apply(Event::Cancel(self.id));
        }
    }
}

/// The log while a call is carried out.
type Log<'a> = Option<Held<'a, LogFile>>;

impl Mount {
    /// The moment of an event.
    fn moment(&self) -> Now {
        let link = match (self.remote.is_offline(), self.remote.is_silent()) {
            (true, _) => Reach::Offline,
            (false, true) => Reach::Silent,
            (false, false) => Reach::Online,
        };
        Now { time: self.now(), wall: self.wall(), link }
    }

    /// Carries out a call that asks nothing.
    pub(super) fn call(&self, call: Call) -> Result<Changed, Refusal> {
        self.call_with(call, &[])
    }

    /// The same of a write of `bytes`.
    pub(super) fn call_with(&self, mut call: Call, bytes: &[u8]) -> Result<Changed, Refusal> {
        let edited = if let Call::Edit(edit) = &call { Some(edit.ino) } else { None };
        let _writing = edited.map(|ino| self.containers.writing(ino));
        if let Call::Edit(EditCall { ino, what: What::Resize { is_backed, .. }, .. }) = &mut call {
            *is_backed = self.is_backed(*ino);
        }
        let mut running = Running::new(self, &call);
        let event = Event::Call { id: running.id, call };
        match self.run(&mut running, event, bytes) {
            Ran::Answered(answer) => answer,
            Ran::Asks(ask) => {
                tracing::error!("a call that cannot wait asks for {ask:?}");
                Err(Refusal::Io)
            }
        }
    }

    /// Looks, and asks the server if need be.
    pub(super) async fn look(&self, look: Look) -> Result<Seen, Refusal> {
        self.look_as(&Rpc::new(Class::Fetch), look).await.map(|(seen, _)| seen)
    }

    /// The same with questions that go as `rpc`; and true if there was none.
    pub(super) async fn look_as(&self, rpc: &Rpc, look: Look) -> Result<(Seen, bool), Refusal> {
        let looked = self.call_asking(rpc, Call::Look(look)).await?;
        Ok((*looked.seen.ok_or(Refusal::Io)?, looked.is_cached))
    }

    /// Carries out a call that may have to ask the server, with questions that go as `rpc`.
    pub(super) async fn call_asking(&self, rpc: &Rpc, call: Call) -> Result<Changed, Refusal> {
        let mut running = Running::new(self, &call);
        let mut event = Event::Call { id: running.id, call };
        loop {
            match self.run(&mut running, event, &[]) {
                Ran::Answered(answer) => return answer,
                Ran::Asks(asked) => {
                    let done = match asked {
                        Asked::Query(query) => {
                            self.query(rpc, query).await.map(|told| Done::Told(Box::new(told)))
                        }
                        Asked::Number => self.new_ino().await.map(Done::Number),
                    };
                    event = Event::Done { id: running.id, done: done.map_err(Undone::from) };
                }
            }
        }
    }

    /// A number for a new inode, if one is left.
    fn number_at_hand(&self) -> Option<Ino> {
        lock(&self.numbers).take_ino().ok()?
    }

    /// Asks the server.
    async fn query(&self, rpc: &Rpc, Query { ask, is_known }: Query) -> Result<Told, Refusal> {
        let remote = if is_known { self.remote.to_refresh() } else { self.remote.clone() };
        // From here on it may change: the answer is as old as the question.
        let asked = self.now();
        let (fact, promised) = match ask {
            Ask::Attr(ino) => {
                let (node, promised) = remote.getattr(ino).await?;
                (Fact::Attr(node), promised)
            }
            Ask::Name(at) => {
                let (looked, promised) = remote.lookup(at.parent, &at.name).await?;
                (Fact::Name(looked), promised)
            }
            Ask::Page { directory, after, since, limit } => {
                let (page, promised) = remote.page(rpc, directory, (after, since), limit).await?;
                (Fact::Page(page), promised)
            }
            Ask::Xattrs(ino) => {
                let xattrs = remote.xattrs(ino).await?;
                (Fact::Xattrs(xattrs.values.into_iter().collect()), None)
            }
        };
        Ok(Told { fact, promised, asked })
    }

    /// Carries out what follows from an event of a call, until that is answered or asks.
    fn run(&self, running: &mut Running<'_>, mut event: Event, bytes: &[u8]) -> Ran {
        let id = running.id;
        let mut log = running.changes.then(|| self.log.lock());
        loop {
            let (actions, answer) = self.apply(event);
            if let Some(answer) = answer {
                running.is_over = true;
                actions.into_iter().for_each(|action| {
                    self.carry_out_action(action, bytes, &mut log);
                });
                let made = running.made.take();
                return Ran::Answered(answer.map(|answer| Changed { made, ..answer }));
            }
            let mut done = None;
            for action in actions {
                match action {
                    Action::Query(_, query) => return Ran::Asks(Asked::Query(query)),
                    Action::Number(_) => match self.number_at_hand() {
                        Some(ino) => done = Some(Ok(Done::Number(ino))),
                        None => return Ran::Asks(Asked::Number),
                    },
                    Action::Made(record) => running.made = Some(record),
                    action => done = self.carry_out_action(action, bytes, &mut log).or(done),
                }
            }
            match done {
                Some(done) => event = Event::Done { id, done },
                None => {
                    tracing::error!("a call was neither answered nor continued");
                    return Ran::Answered(Err(Refusal::Io));
                }
            }
        }
    }

    /// Gives the core an event. Returns what follows from it: actions, and the answer to the call.
    fn apply(&self, event: Event) -> (Vec<Action>, Option<Result<Changed, Refusal>>) {
        let now = self.moment();
        let mut core = self.core();
        core.handle(event, now);
        let (mut actions, mut answer) = (Vec::new(), None);
        while let Some(action) = core.poll_action() {
            match action {
                // While the core is locked, nothing settles what the caller waits for.
                Action::Reply(_, result) => {
                    answer = Some(result.map(|answer| {
                        let Answer { seen, is_cached, ino, seq, waiter, slowed_by } = answer;
                        let told = waiter.map(|waiter| self.waiters.hears(waiter));
                        Changed { seen, is_cached, ino, seq, told, slowed_by, made: None }
                    }));
                }
                action => actions.push(action),
            }
        }
        (actions, answer)
    }

    /// Carries out an action. Returns how it ended, if the call waits for that.
    fn carry_out_action<'a>(
        &'a self,
        action: Action,
        bytes: &[u8],
        log: &mut Log<'a>,
    ) -> Option<Result<Done, Undone>> {
        match action {
            Action::Reserve(_) => Some(self.reserve_seqs()),
            Action::Load(_, Load::FreeSpace) => {
                Some(self.free_space().map(Done::Free).map_err(Undone::from))
            }
            Action::Load(_, load) => {
                Some(Ok(Done::Noted(self.unlocked(log, || self.noted(&load)))))
            }
            Action::Follow(_) => {
                self.unlocked(log, || self.follow_moved());
                Some(Ok(Done::Carried))
            }
            Action::Evict(_) => Some(self.unlocked(log, || self.evict_for_writer())),
            Action::Preserve(_, part) => Some(self.unlocked(log, || self.preserve(&part))),
            Action::Append(_, entry) => Some(self.append(log, &entry)),
            Action::Write(_, edit) => Some(self.write_edit(log, &edit, bytes)),
            Action::Undo(_, undo) => Some(self.undo(log, &undo)),
            Action::Remove(scrap) => {
                self.remove(scrap);
                None
            }
            Action::KeepBasis(ino, container, version) => {
                self.keep_basis(ino, container, version);
                None
            }
            Action::BasisEmptied(ino, is_done) => {
                self.basis_emptied(ino, is_done);
                None
            }
            Action::ForgetData(ino) => {
                self.kernel.forget_data(ino);
                None
            }
            Action::ForgetAttributes(ino) => {
                self.kernel.forget_attributes(ino);
                None
            }
            Action::Wake(task) => {
                self.wake(task);
                None
            }
            // The loop has taken these.
            Action::Reply(..) | Action::Query(..) | Action::Number(_) | Action::Made(_) => None,
        }
    }

    fn wake(&self, task: Task) {
        match task {
            Task::Drain => self.lanes.wake(),
            Task::Upload => self.to_upload.notify_one(),
            Task::Settled => self.settled.send_replace(()),
            Task::Quotas => self.short_of_room.notify_one(),
        }
    }

    /// Runs `work` while the log is not locked.
    fn unlocked<'a, R>(&'a self, log: &mut Log<'a>, work: impl FnOnce() -> R) -> R {
        let was_locked = log.take().is_some();
        let done = work();
        *log = was_locked.then(|| self.log.lock());
        done
    }

    fn reserve_seqs(&self) -> Result<Done, Undone> {
        let through = lock(&self.numbers).reserve_seqs();
        let through = through.map_err(|error| self.disk_refusal("state.json", &error))?;
        Ok(Done::Reserved(through))
    }

    fn evict_for_writer(&self) -> Result<Done, Undone> {
        self.drop_bases();
        self.clean_cache();
        Ok(Done::Carried)
    }

    /// Copies bytes of a container to those that are preserved for a change.
    fn preserve(&self, part: &Preserve) -> Result<Done, Undone> {
        let Range { start, end } = part.range;
        let container = self.open_container(part.ino, part.container)?;
        let len = usize::try_from(end - start).map_err(|_| Refusal::TooLarge)?;
        let kept = container.read(start, len).and_then(|bytes| {
            self.preserved.keep(part.seq, start, &bytes)?;
            Ok(sums(start, &bytes))
        });
        Ok(Done::Preserved(kept.map_err(|error| self.disk_refusal("preserved", &error))?))
    }

    fn append(&self, log: &mut Log<'_>, entry: &Entry) -> Result<Done, Undone> {
        let log = open_log(log)?;
        log.append(entry).map_err(|error| self.disk_refusal("update.log", &error))?;
        Ok(Done::Carried)
    }

    /// Logs a change of a container, and carries it out.
    fn write_edit(&self, log: &mut Log<'_>, edit: &Edit, bytes: &[u8]) -> Result<Done, Undone> {
        let log = open_log(log)?;
        let container = self.open_container(edit.ino, edit.container)?;
        let (entry, is_logged) = logged(edit, &container, bytes);
        log.append(&entry).map_err(|error| self.disk_refusal("update.log", &error))?;
        let changed = match &edit.change {
            Change::Bytes(at) if is_logged => container.write_logged(bytes, *at),
            Change::Bytes(at) => container.write(bytes, *at),
            Change::Zeros(range) => container.zero(range.start, range.end - range.start),
            Change::Size(size) => container.resize(*size),
            Change::Nothing => Ok(()),
        };
        // While the log is locked: so a sync that covers the entry covers this. And not before: a
        // sync that began in between would have found nothing to do.
        self.containers.mark_unsynced((edit.ino, edit.container), is_logged);
        changed.map_err(|error| Undone {
            refusal: self.disk_refusal("containers", &error),
            is_logged: true,
        })?;
        Ok(Done::Carried)
    }

    /// Has the log say what a failed write left, where the write itself stood: for that is room,
    /// also on a full disk.
    fn undo(&self, log: &mut Log<'_>, undo: &Undo) -> Result<Done, Undone> {
        let cut = self
            .containers
            .open((undo.ino, undo.container))
            .and_then(|container| container.cut(undo.size));
        if let Err(error) = cut {
            tracing::error!("inode {}: cannot truncate its container file: {error}", undo.ino);
        }
        let log = open_log(log)?;
        let replaced = log.take_back().and_then(|()| log.append(&undo.entry));
        replaced.map_err(|error| self.disk_refusal("update.log", &error))?;
        Ok(Done::Carried)
    }
}

/// The log, if anything may be appended to it.
fn open_log<'a>(log: &'a mut Log<'_>) -> Result<&'a mut LogFile, Refusal> {
    match log {
        Some(log) if !log.is_final() => Ok(log),
        _ => Err(Refusal::Io),
    }
}

/// The entry of a change, and whether the log has all of the change itself.
fn logged(edit: &Edit, container: &Container, bytes: &[u8]) -> (Entry, bool) {
    let Change::Bytes(offset) = edit.change else {
        return (edit.entry(|| Payload::Durable { len: 0 }), true);
    };
    // A map may write over it, in a container that is watched, and then no sum is right. And to
    // write bytes twice, in a row, costs less than making a file while somebody waits.
    let is_whole =
        edit.logs_bytes || container.is_watched() || container.takes(offset, bytes.len());
    let data = payload(offset, bytes, is_whole);
    let is_logged = matches!(data, Payload::Inline(_));
    (edit.entry(|| data), is_logged)
}

/// Bytes as the log has them: those that are small, and `whole`.
fn payload(offset: u64, bytes: &[u8], whole: bool) -> Payload {
    match bytes.len() < INLINE_MAX || whole {
        true => Payload::Inline(bytes.to_vec()),
        false => Payload::Summed { len: bytes.len() as u64, sums: sums(offset, bytes) },
    }
}

/// Checksums of bytes that stand at `offset`: one for each block of the file.
pub(super) fn sums(offset: u64, bytes: &[u8]) -> Vec<u32> {
    let first = SUM_BLOCK - offset % SUM_BLOCK;
    let first = bytes.len().min(usize::try_from(first).unwrap_or(usize::MAX));
    let (head, rest) = bytes.split_at(first);
    let block = usize::try_from(SUM_BLOCK).unwrap_or(4096);
    let parts = std::iter::once(head).chain(rest.chunks(block));
    parts.filter(|part| !part.is_empty()).map(crc32c::crc32c).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_of_the_file_has_a_sum() {
        let bytes = vec![7; 10_000];
        let of = |range: Range<usize>| crc32c::crc32c(&bytes[range]);
        assert_eq!(sums(8192, &bytes[..5000]), [of(0..4096), of(4096..5000)]);
        assert_eq!(sums(4000, &bytes), [of(0..96), of(96..4192), of(4192..8288), of(8288..10_000)]);
        assert_eq!(sums(100, &bytes[..10]), [of(0..10)]);
        assert!(sums(100, &[]).is_empty());
    }
    #[test]
    fn the_log_has_what_is_small_or_written_over_what_is_nowhere_else() {
        let is_inline = |len, whole| matches!(payload(0, &vec![1; len], whole), Payload::Inline(_));
        assert!(is_inline(INLINE_MAX - 1, false) && !is_inline(INLINE_MAX, false));
        assert!(is_inline(1 << 20, true));
    }
}
