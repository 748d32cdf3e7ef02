//! Calls, carried out on a disk whose actions can be made to fail.

use super::*;
use crate::host::action::{
    Action, Ask, CallId, Deliver, Done, Event, Fact, Load, Noted, Now, Reach, Task, Told, Undone,
};
use crate::host::cache::Way;
use crate::host::call::{Answer, By, Call, EditCall, KeptAs, Look, OpenFile, What};
use crate::host::conflict::Duplicate;
use crate::host::log::{Instead, Writers};
use crate::host::send::Claim;
use crate::nouns::Dentry;
use crate::wire::{Looked, Node, Page, Xattrs};

pub(super) const NOW: Now = Now {
    time: Time(Duration::from_secs(5)),
    wall: Timestamp { secs: 7, nanos: 0 },
    link: Reach::Online,
};

/// A fact that the server of a test knows.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Truth {
    Name(Dentry, Result<Option<Attr>, Refusal>),
    Attr(Attr),
    Names(Ino, Vec<(Name, Attr)>),
    Number(Ino),
    /// Whether two files have the same bytes.
    Same(Ino, Ino, bool),
}

/// A shell that writes down what it does.
#[derive(Default)]
pub(super) struct Shell {
    pub(super) log: Vec<Entry>,
    pub(super) did: Vec<String>,
    pub(super) kept: Vec<u64>,
    pub(super) duplicates: Vec<Duplicate>,
    pub(super) truth: Vec<Truth>,
    pub(super) asked: Vec<&'static str>,
    /// The action with this place in the order of all fails so.
    fails: Option<(usize, Undone)>,
    /// Bytes that are free on the disk, and after an eviction.
    free: (u64, u64),
    /// The outcomes of what is in the queue when a call waits.
    outcomes: Vec<Outcome>,
    /// The ends of deliveries, the first one first.
    pub(super) deliveries: VecDeque<Takes>,
    /// How many changes each delivery had. A zero stands for a moment with an unlocked log.
    pub(super) sent: Vec<usize>,
}

/// How the server of a test takes a batch.
pub(super) type Takes = fn(&Deliver) -> Result<Done, Undone>;

impl Shell {
    pub(super) fn new() -> Shell {
        Shell { free: (u64::MAX, u64::MAX), ..Shell::default() }
    }

    pub(super) fn knowing(truth: Vec<Truth>) -> Shell {
        Shell { truth, ..Shell::new() }
    }

    pub(super) fn settling(self, outcomes: Vec<Outcome>) -> Shell {
        Shell { outcomes, ..self }
    }

    /// The kinds of the changes in its log.
    pub(super) fn kinds(&self) -> Vec<&'static str> {
        self.log.iter().filter_map(Entry::change).map(|logged| logged.change.kind()).collect()
    }

    pub(super) fn failing(at: usize, refusal: Refusal, is_logged: bool) -> Shell {
        Shell { fails: Some((at, Undone { refusal, is_logged })), ..Shell::new() }
    }

    pub(super) fn call(&mut self, core: &mut Host, call: Call) -> Result<Answer, Refusal> {
        self.call_as(CallId(1), core, call)
    }

    fn call_as(&mut self, id: CallId, core: &mut Host, call: Call) -> Result<Answer, Refusal> {
        let mut event = Event::Call { id, call };
        loop {
            core.handle(event, NOW);
            let (mut answer, mut done) = (None, None);
            while let Some(action) = core.poll_action() {
                match action {
                    Action::Reply(_, result) => answer = Some(result),
                    Action::Await(..) => {
                        self.did.push("await".into());
                        done = Some(self.settle(core));
                    }
                    Action::Deliver(_, deliver) => {
                        core.mark_sending(&deliver.batch, NOW.time);
                        let takes = self.deliveries.pop_front().expect("a delivery");
                        self.sent.push(deliver.batch.len());
                        done = Some(takes(&deliver));
                    }
                    Action::Pause(..) => {
                        self.sent.push(0);
                        done = Some(Ok(Done::Carried));
                    }
                    action => done = self.carry_out(action).or(done),
                }
            }
            if let Some(answer) = answer {
                assert!(core.calls() < 2, "at most the one that waits for this one");
                return answer;
            }
            event = Event::Done { id, done: done.expect("a call that goes on waits") };
        }
    }

    /// Settles what is in the queue, as far as there are outcomes.
    fn settle(&mut self, core: &mut Host) -> Result<Done, Undone> {
        let outcomes = std::mem::take(&mut self.outcomes);
        if outcomes.is_empty() {
            return Err(Refusal::Unreachable.into());
        }
        let settle = super::settles::settle_call(core, outcomes);
        Shell::new().call_as(CallId(2), core, settle).map(|_| Done::Carried).map_err(Undone::from)
    }

    /// The answer of the server.
    pub(super) fn told(&mut self, ask: &Ask) -> Result<Fact, Refusal> {
        let mut truth = self.truth.iter();
        let node = |attr| Node { attr, target: None };
        match ask {
            Ask::Name(at) => {
                self.asked.push("name");
                let found = truth.find_map(|truth| match truth {
                    Truth::Name(known, found) if known == at => Some(*found),
                    _ => None,
                });
                let found = found.unwrap_or_else(|| panic!("{at:?}"))?;
                let parent = self.truth.iter().find_map(|truth| match truth {
                    Truth::Attr(attr) if attr.ino == at.parent => Some(*attr),
                    _ => None,
                });
                let parent = parent.unwrap_or(attr(at.parent.0, Kind::Directory, 1));
                Ok(Fact::Name(Looked { parent, node: found.map(node), promised: None }))
            }
            Ask::Attr(ino) => {
                self.asked.push("attr");
                let found = truth.find_map(|truth| match truth {
                    Truth::Attr(attr) if attr.ino == *ino => Some(*attr),
                    _ => None,
                });
                Ok(Fact::Attr(node(found.unwrap_or_else(|| panic!("{ino}")))))
            }
            Ask::Open(ino) => {
                self.asked.push("open");
                let found = truth.find_map(|truth| match truth {
                    Truth::Attr(attr) if attr.ino == *ino => Some(*attr),
                    _ => None,
                });
                Ok(Fact::Opened(node(found.unwrap_or_else(|| panic!("{ino}"))), false))
            }
            Ask::Page { directory, .. } => {
                let names = truth.find_map(|truth| match truth {
                    Truth::Names(known, names) if known == directory => Some(names.clone()),
                    _ => None,
                });
                // A listing may be asked for instead of a name.
                let names = names.ok_or(Refusal::Unreachable)?;
                self.asked.push("page");
                let entries = names.into_iter().map(|(name, attr)| (name, node(attr))).collect();
                let directory = attr(directory.0, Kind::Directory, 1);
                let (more, promised, commit, gone) = (false, None, 0, None);
                Ok(Fact::Page(Page { directory, entries, more, promised, commit, gone }))
            }
            Ask::Same(files) => {
                self.asked.push("same");
                let same = truth.find_map(|truth| match truth {
                    Truth::Same(one, other, same)
                        if (*one, *other) == (files.one.0, files.other.0) =>
                    {
                        Some(*same)
                    }
                    _ => None,
                });
                same.map(Fact::Same).ok_or(Refusal::Changed)
            }
            Ask::Xattrs(_) => {
                self.asked.push("xattrs");
                Ok(Fact::Xattrs(Xattrs { change: Version::default(), values: Vec::new() }))
            }
        }
    }

    fn number(&mut self) -> Ino {
        self.asked.push("number");
        let mut truth = self.truth.iter();
        let number = truth.find_map(|truth| match truth {
            Truth::Number(ino) => Some(*ino),
            _ => None,
        });
        number.expect("a number")
    }

    pub(super) fn carry_out(&mut self, action: Action) -> Option<Result<Done, Undone>> {
        match action {
            Action::Query(_, query) => {
                let told =
                    |fact| Done::Told(Box::new(Told { fact, promised: None, asked: NOW.time }));
                return Some(self.told(&query.ask).map(told).map_err(Undone::from));
            }
            Action::Number(_) => return Some(Ok(Done::Number(self.number()))),
            Action::LogMaps(..) => return Some(Ok(Done::Carried)),
            Action::Load(_, load) if load != Load::FreeSpace => {
                return Some(Ok(Done::Noted(Noted::default())));
            }
            _ => {}
        }
        let (word, entry, done) = match action {
            Action::Reserve(..) => ("reserve", None, Done::Reserved(200)),
            Action::Load(..) => ("load", None, Done::Free(self.free.0)),
            Action::Evict(_) => {
                self.free.0 = self.free.1;
                ("evict", None, Done::Carried)
            }
            Action::Preserve(..) => ("preserve", None, Done::Preserved(vec![9])),
            Action::Append(_, entry) => ("append", Some(*entry), Done::Carried),
            Action::AppendAll(_, entries) => {
                let last = entries.last().cloned();
                ("append all", last, Done::Carried)
            }
            Action::Keep(_, kept) => {
                self.kept.push(kept.logged.seq);
                if let KeptAs::Copy { duplicate: Some(duplicate), .. } = kept.to {
                    self.duplicates.push(*duplicate);
                }
                ("keep", None, Done::Carried)
            }
            Action::Hold(..) => ("hold", None, Done::Carried),
            Action::Write(_, edit) => {
                let entry = edit.entry(|| Payload::Inline(vec![1; 4]));
                ("write", Some(entry), Done::Carried)
            }
            Action::ForgetNotes(..) => ("forget notes", None, Done::Carried),
            Action::Back(..) => ("Back()", None, Done::Carried),
            Action::WatchMaps(..) => ("WatchMaps", None, Done::Carried),
            Action::SyncDisk(_) => ("sync", None, Done::Carried),
            Action::Undo(_, undo) => ("undo", Some(undo.entry), Done::Carried),
            // What quotas have left is not known here.
            Action::Wake(Task::Quotas) | Action::Made(_) => return None,
            other => {
                self.did.push(format!("{other:?}"));
                return None;
            }
        };
        if let Some((0, undone)) = self.fails {
            self.fails = None;
            self.did.push(format!("{word} fails"));
            return Some(Err(undone));
        }
        self.fails = self.fails.map(|(at, undone)| (at - 1, undone));
        self.did.push(word.into());
        self.log.extend(entry);
        Some(Ok(done))
    }
}

pub(super) fn caller() -> Caller {
    Caller { uid: 1000, session: 3, ..Caller::default() }
}

/// The core with file 5, which is open for writing; its handle.
pub(super) fn opened() -> (Host, u64) {
    let mut core = core();
    create(&mut core);
    core.opened(Ino(5));
    let mut file = OpenFile::new(Ino(5), Way::Cached, caller());
    file.writable = true;
    let handle = core.handles.add(file);
    (core, handle)
}

pub(super) fn write_call(handle: u64, offset: u64, len: u64) -> Call {
    let what = What::Write { offset, len, append: false };
    Call::Edit(EditCall { ino: Ino(5), by: By::Handle(handle), what, kills_set_ids: false })
}

pub(super) fn seal_call() -> Call {
    Call::SealAtClose { ino: Ino(5), caller: caller() }
}

pub(super) fn change_call(record: Record, claim: Option<Claim>) -> Call {
    Call::Change { record, caller: caller(), claim, expects: None }
}

pub(super) fn unlink() -> Record {
    let name = Name::new("a").unwrap();
    Record::Unlink { parent: Ino::ROOT, name, ino: Ino(5), open: false }
}

#[test]
fn a_small_write_is_one_step_and_dirty_afterwards() {
    let (mut core, handle) = opened();
    core.told_free(u64::MAX, NOW.time);
    let mut shell = Shell::new();
    let answer = shell.call(&mut core, write_call(handle, 10, 4)).unwrap();
    assert_eq!(shell.did, ["write"]);
    assert_eq!(answer, Answer::default());
    assert!(matches!(
        &shell.log[..],
        [Entry::Written { offset: 10, data: Payload::Inline(_), .. }]
    ));
    assert!(core.files[&Ino(5)].has_dirty());
    assert_eq!(core.tree.peek(Ino(5)).unwrap().size, 14);
}

/// Without asking, the file would be as long as the refused data made it.
/// Proves S20.13.
#[test]
fn a_write_behind_refused_data_is_stale_until_the_server_was_asked() {
    let (mut core, handle) = opened();
    core.told_free(u64::MAX, NOW.time);
    core.tree.lose_size(Ino(5));
    let mut shell = Shell::knowing(vec![Truth::Attr(attr(5, Kind::File, 2))]);
    let write = || write_call(handle, 10, 4);
    assert_eq!(shell.call(&mut core, write()), Err(Refusal::Stale));
    assert!(shell.call(&mut core, Call::Look(Look::Attr(Ino(5)))).is_ok());
    assert!(shell.call(&mut core, write()).is_ok());
}

/// The size that was known before is that of the refused data.
/// Proves S20.13.
#[test]
fn a_lost_size_is_not_known_if_the_server_is_out_of_reach() {
    let (mut core, _) = opened();
    core.tree.lose_size(Ino(5));
    let id = CallId(1);
    let mut event = Event::Call { id, call: Call::Look(Look::Attr(Ino(5))) };
    let answer = loop {
        core.handle(event, NOW);
        let done = match core.poll_action() {
            Some(Action::Load(..)) => Ok(Done::Noted(Noted::default())),
            Some(Action::Query(..)) => Err(Refusal::Unreachable.into()),
            Some(Action::LogMaps(..)) => Ok(Done::Carried),
            Some(Action::Reply(_, answer)) => break answer,
            other => panic!("{other:?}"),
        };
        event = Event::Done { id, done };
    };
    assert_eq!(answer.map(drop), Err(Refusal::Unreachable));
}

#[test]
fn a_write_at_the_end_goes_behind_what_another_host_appended() {
    let (mut core, handle) = opened();
    write(&mut core, 5, 0..100);
    let mut shell = Shell::new();
    let what = What::Write { offset: 40, len: 4, append: true };
    let (ino, by) = (Ino(5), By::Handle(handle));
    let edit = EditCall { ino, by, what, kills_set_ids: false };
    shell.call(&mut core, Call::Edit(edit)).unwrap();
    assert!(matches!(shell.log[0], Entry::Written { offset: 100, .. }));
    assert!(shell.did.contains(&"ForgetData(Ino(5))".to_owned()));
}

#[test]
fn what_is_on_its_way_is_preserved_before_it_is_overwritten() {
    let (mut core, handle) = opened();
    write(&mut core, 5, 0..100);
    assert!(seal(&mut core, 5));
    core.told_free(u64::MAX, NOW.time);
    let mut shell = Shell::new();
    shell.call(&mut core, write_call(handle, 10, 4)).unwrap();
    assert_eq!(shell.did, ["preserve", "append", "write"]);
    let Entry::Preserved { seq: 2, range, .. } = &shell.log[0] else { panic!("{:?}", shell.log) };
    assert_eq!(*range, 10..14);
    assert!(core.preserved(2).contains(10..14));
}

#[test]
fn a_write_that_cannot_be_logged_did_not_happen() {
    let (mut core, handle) = opened();
    core.told_free(u64::MAX, NOW.time);
    let mut shell = Shell::failing(0, Refusal::NoSpace, false);
    let written = shell.call(&mut core, write_call(handle, 10, 4));
    assert_eq!((written, &shell.did[..]), (Err(Refusal::NoSpace), &["write fails".to_owned()][..]));
    assert!(shell.log.is_empty() && !core.files[&Ino(5)].has_dirty());
    assert_eq!(core.tree.peek(Ino(5)).unwrap().size, 0);
}

#[test]
fn the_log_says_what_a_write_left_that_failed_half_way() {
    let (mut core, handle) = opened();
    write(&mut core, 5, 0..100);
    core.told_free(u64::MAX, NOW.time);
    let mut shell = Shell::failing(0, Refusal::Io, true);
    assert_eq!(shell.call(&mut core, write_call(handle, 90, 40)), Err(Refusal::Io));
    assert_eq!(shell.did, ["write fails", "undo"]);
    let Entry::Spoiled { range, .. } = &shell.log[0] else { panic!("{:?}", shell.log) };
    assert_eq!(*range, 90..130);
    assert_eq!(core.tree.peek(Ino(5)).unwrap().size, 100);
}

#[test]
fn a_write_is_refused_without_room_only_after_clean_data_were_removed() {
    let (mut core, handle) = opened();
    let mut shell = Shell { free: (0, u64::MAX), ..Shell::new() };
    shell.call(&mut core, write_call(handle, 0, 4)).unwrap();
    assert_eq!(shell.did, ["load", "evict", "load", "write"]);
    let (mut core, handle) = opened();
    let mut shell = Shell { free: (0, 0), ..Shell::new() };
    assert_eq!(shell.call(&mut core, write_call(handle, 0, 4)), Err(Refusal::NoSpace));
    assert_eq!(shell.did, ["load", "evict", "load"]);
}

/// Proves S14.2, S14.3, S14.4.
#[test]
fn a_writer_is_slowed_near_the_bound_and_refused_when_nothing_goes() {
    let (mut core, handle) = opened();
    core.settings.bound = crate::host::log::Bound(100);
    let mut shell = Shell::new();
    let first = shell.call(&mut core, write_call(handle, 0, 20)).unwrap();
    let second = shell.call(&mut core, write_call(handle, 20, 80)).unwrap();
    assert_eq!((first.slowed_by, second.slowed_by), (None, Some(80)));
    assert_eq!(core.writers(), Writers::Slowed);
    assert!(core.refuse_writes() && !core.refuse_writes());
    let refused = shell.call(&mut core, write_call(handle, 100, 1));
    assert_eq!(refused, Err(Refusal::NoSpace));
    let removed = shell.call(&mut core, change_call(unlink(), None));
    assert!(removed.is_ok(), "what removes something is never refused");
}

#[test]
fn a_synchronous_write_is_sealed_and_waited_for() {
    let (mut core, _) = opened();
    let mut file = OpenFile::new(Ino(5), Way::Cached, caller());
    (file.writable, file.synchronous) = (true, true);
    let handle = core.handles.add(file);
    let done = Outcome::Done { touched: vec![attr(5, Kind::File, 2)] };
    let mut shell = Shell { outcomes: vec![done.clone(), done], ..Shell::new() };
    let answer = shell.call(&mut core, write_call(handle, 0, 4)).unwrap();
    assert_eq!((answer.seq, core.queue.len()), (Some(2), 0));
    assert_eq!(shell.did.iter().filter(|did| *did == "await").count(), 1, "{:?}", shell.did);
    assert!(core.waiters.is_empty());
}

#[test]
fn set_id_bits_go_with_a_write_of_somebody_who_may_not_keep_them() {
    for (uid, entries) in [(1000, 2), (0, 3)] {
        let (mut core, _) = opened();
        let set = crate::nouns::SetAttr { mode: Some(0o4755), ..Default::default() };
        let mut shell = Shell::new();
        let call = change_call(Record::SetAttr { ino: Ino(5), set }, None);
        shell.call(&mut core, call).unwrap();
        let mut file = OpenFile::new(Ino(5), Way::Cached, Caller { uid, ..caller() });
        file.writable = true;
        let by = By::Handle(core.handles.add(file));
        let what = What::Write { offset: 0, len: 4, append: false };
        shell.log.clear();
        let edit = EditCall { ino: Ino(5), by, what, kills_set_ids: true };
        shell.call(&mut core, Call::Edit(edit)).unwrap();
        // Root would keep them by its store.
        assert_eq!(shell.log.len(), entries, "{:?}", shell.log);
        assert_eq!(core.tree.peek(Ino(5)).unwrap().mode, 0o755);
    }
}

#[test]
fn a_truncation_by_name_is_done_even_if_it_cannot_be_sealed() {
    let (mut core, _) = opened();
    write(&mut core, 5, 0..100);
    assert!(seal(&mut core, 5));
    let what = What::Resize { size: 0 };
    let (ino, by) = (Ino(5), By::Name(caller()));
    let edit = Call::Edit(EditCall { ino, by, what, kills_set_ids: false });
    let mut shell = Shell::failing(1, Refusal::NoSpace, false);
    assert!(shell.call(&mut core, edit).is_ok());
    assert_eq!(shell.did, ["write", "BasisChanged(Ino(5), true)", "append fails"]);
    assert_eq!(core.tree.peek(Ino(5)).unwrap().size, 0);
    assert!(core.files[&Ino(5)].has_dirty(), "it is sealed later");
}

#[test]
fn a_second_close_makes_what_was_written_part_of_the_waiting_store() {
    let (mut core, handle) = opened();
    let mut shell = Shell::new();
    shell.call(&mut core, write_call(handle, 0, 4)).unwrap();
    assert_eq!(shell.call(&mut core, seal_call()).unwrap().seq, Some(2));
    shell.call(&mut core, write_call(handle, 8, 4)).unwrap();
    shell.call(&mut core, seal_call()).unwrap();
    let Some(Entry::Replaced(replaced)) = shell.log.last() else { panic!("{:?}", shell.log) };
    assert!(replaced.seqs == [2] && matches!(replaced.by, Instead::More { .. }));
    assert_eq!(core.queue.len(), 2);
}

/// A call that waits for a store hears of the store that it waits for, not of a later one.
#[test]
fn a_store_that_is_waited_for_is_not_amended() {
    let (mut core, handle) = opened();
    let mut shell = Shell::new();
    shell.call(&mut core, write_call(handle, 0, 4)).unwrap();
    let seal = Call::Seal { ino: Ino(5), caller: caller(), waits: true };
    core.handle(Event::Call { id: CallId(7), call: seal }, NOW);
    while let Some(action) = core.poll_action() {
        if let Action::Append(id, entry) = action {
            shell.log.push(*entry);
            core.handle(Event::Done { id, done: Ok(Done::Carried) }, NOW);
        }
    }
    assert!(core.waiters.is_waited_for(2));
    assert_eq!(core.waiters.claim(2), Claim::Nothing, "nobody closes and waits at this level");
    shell.call(&mut core, write_call(handle, 8, 4)).unwrap();
    shell.call(&mut core, seal_call()).unwrap();
    assert!(matches!(shell.log.last(), Some(Entry::Change(logged)) if logged.seq == 3));
}

#[test]
fn a_file_that_is_made_and_removed_unsent_leaves_only_times() {
    let (mut core, handle) = opened();
    core.closed(Ino(5));
    core.handles.remove(handle);
    let mut shell = Shell::new();
    shell.call(&mut core, change_call(unlink(), None)).unwrap();
    let kinds: Vec<&str> = shell.log.iter().map(kind).collect();
    assert_eq!(kinds, ["unlink", "cancelled", "setattr"]);
    assert_eq!(core.queue.len(), 1);
    assert!(shell.did.contains(&format!("{:?}", Action::Wake(Task::Settled))));
}

#[test]
fn what_cannot_be_cancelled_is_sent() {
    let (mut core, handle) = opened();
    core.closed(Ino(5));
    core.handles.remove(handle);
    let mut shell = Shell::failing(1, Refusal::NoSpace, false);
    assert!(shell.call(&mut core, change_call(unlink(), None)).is_ok());
    assert_eq!(core.queue.batch(9, 999).len(), 2);
}

#[test]
fn a_name_that_is_waited_for_is_not_cancelled() {
    let (mut core, handle) = opened();
    core.closed(Ino(5));
    core.handles.remove(handle);
    let answer = Shell::new().call(&mut core, change_call(unlink(), Some(Claim::Answers)));
    assert_eq!((answer, core.queue.len()), (Err(Refusal::Unreachable), 2));
    assert!(core.waiters.is_empty(), "it gave up");
}

#[test]
fn the_server_keeps_a_removed_file_that_is_open() {
    let (mut core, _) = opened();
    let mut shell = Shell::new();
    shell.call(&mut core, change_call(unlink(), None)).unwrap();
    let is_kept = |entry: &Entry| {
        entry.change().is_some_and(|logged| match &logged.change {
            Change::Record(record) => record.keeps_unnamed(),
            Change::Data(_) => false,
        })
    };
    assert!(is_kept(&shell.log[0]));
}

#[test]
fn numbers_are_reserved_before_they_are_used() {
    let mut core = Host::new(100, 1);
    core.tree.install_listing(attr(1, Kind::Directory, 1), Vec::new(), Time::default());
    let record = Record::SetAttr { ino: Ino::ROOT, set: Default::default() };
    let mut shell = Shell::new();
    let answer = shell.call(&mut core, change_call(record, None)).unwrap();
    assert_eq!(answer.seq, Some(1));
    assert_eq!(&shell.did[..2], ["reserve", "append"]);
}

#[test]
fn a_read_only_host_changes_nothing() {
    let (mut core, handle) = opened();
    core.settings.is_read_only = true;
    let mut shell = Shell::new();
    assert_eq!(shell.call(&mut core, write_call(handle, 0, 4)), Err(Refusal::ReadOnly));
    assert_eq!(shell.call(&mut core, change_call(unlink(), None)), Err(Refusal::ReadOnly));
    assert!(shell.call(&mut core, seal_call()).is_ok(), "a close of a reader");
    assert!(shell.did.is_empty());
}

#[test]
fn a_copy_is_removed_only_as_it_was_compared() {
    let (mut core, _) = opened();
    core.closed(Ino(5));
    let remove = |version| Call::Change {
        record: unlink(),
        caller: caller(),
        claim: Some(Claim::Answers),
        expects: Some(version),
    };
    let call = |core: &mut Host, call| Shell::new().call(core, call);
    assert_eq!(call(&mut core, remove(version(9))), Err(Refusal::Changed), "another version");
    let done = Outcome::Done { touched: vec![attr(5, Kind::File, 2)] };
    settle(&mut core, 1, &done);
    core.opened(Ino(5));
    assert_eq!(call(&mut core, remove(version(2))), Err(Refusal::Changed), "it is open");
    core.closed(Ino(5));
    assert_eq!(call(&mut core, remove(version(2))), Err(Refusal::Unreachable));
    assert_eq!(core.queue.newest_seq(), Some(2), "it is removed all the same");
}

pub(super) fn kind(entry: &Entry) -> &'static str {
    match entry {
        Entry::Change(logged) => logged.change.kind(),
        Entry::Replaced(replaced) if replaced.by == Instead::Nothing(Ino(5)) => "cancelled",
        _ => "other",
    }
}
