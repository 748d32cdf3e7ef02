//! Files that another one was renamed over before the server heard of them.

use super::*;
use crate::host::log::Logged;

/// A host that saves by a rename, and its log.
struct Saver {
    core: Host,
    log: Vec<Entry>,
}

impl Saver {
    fn new() -> Saver {
        Saver { core: core(), log: Vec::new() }
    }

    fn admit(&mut self, entry: Entry) -> u64 {
        self.log.push(entry.clone());
        self.core.admit(entry, Time::default());
        self.core.next_seq() - 1
    }

    fn change(&mut self, record: Record) -> u64 {
        let entry = self.core.draft_change(record, Caller::default(), Timestamp::default());
        self.admit(entry)
    }

    fn create(&mut self, name: &str, ino: u64) {
        self.change(Record::Create {
            parent: Ino::ROOT,
            name: Name::new(name).unwrap(),
            ino: Ino(ino),
            node: NewNode::File,
            mode: 0o644,
            uid: 0,
            gid: 0,
        });
    }

    fn store(&mut self, ino: u64) -> u64 {
        let written = draft_write(&mut self.core, ino, 0..100, Timestamp::default());
        self.admit(written);
        let sealed = self.core.draft_seal(Ino(ino), Caller::default()).unwrap();
        self.admit(sealed)
    }

    /// As mv does: it replaces nothing if it knows of nothing.
    fn rename(&mut self, from: &str, ino: u64, to: &str, over: Option<u64>) -> u64 {
        let over = over.map(|over| RenameMode::Replace(Some(Ino(over))));
        self.change(Record::Rename {
            from_parent: Ino::ROOT,
            from_name: Name::new(from).unwrap(),
            ino: Ino(ino),
            to_parent: Ino::ROOT,
            to_name: Name::new(to).unwrap(),
            mode: over.unwrap_or(RenameMode::NoReplace),
            open: false,
        })
    }

    /// Saves `f`, which is `over`, as `ino`: three changes.
    fn save(&mut self, ino: u64, over: Option<u64>) -> u64 {
        self.create("new", ino);
        self.store(ino);
        self.rename("new", ino, "f", over)
    }

    /// What change `by` makes superfluous.
    fn supersede(&mut self, by: u64) -> Vec<u64> {
        let Some(replaced) = self.core.take_superseded(by) else { return Vec::new() };
        self.log.push(Entry::Replaced(replaced.clone()));
        let superseded = self.core.replace(&replaced, Time::default());
        superseded.iter().map(|logged| logged.seq).collect()
    }

    fn waits(&self) -> Vec<Logged> {
        self.core.queue.iter().map(|(logged, _)| logged.clone()).collect()
    }

    /// The log says the same, whatever of it the index has.
    fn check_log(&self) {
        let waits: Vec<Change> = self.waits().into_iter().map(|logged| logged.change).collect();
        let left = crate::host::log::replay(&self.log);
        let left: Vec<Change> = left.changes.into_iter().map(|logged| logged.change).collect();
        assert_eq!(left, waits);
        let mut next = core();
        next.take_in_log(self.log.clone(), 0, &BTreeMap::new(), Time::default());
        let again: Vec<Change> =
            next.queue.iter().map(|(logged, _)| logged.change.clone()).collect();
        assert_eq!(again, waits);
    }
}

fn replaced(change: &Change) -> Option<Ino> {
    change.unnamed()
}

/// Proves S8.2.
#[test]
fn of_a_file_that_is_saved_by_a_rename_again_and_again_only_the_last_is_sent() {
    let mut saver = Saver::new();
    saver.save(5, None);
    for ino in 6..10 {
        let first = saver.core.next_seq() - 3;
        let by = saver.save(ino, Some(ino - 1));
        assert_eq!(saver.supersede(by), [first, first + 1, first + 2]);
        assert!(saver.core.tree.peek(Ino(ino - 1)).is_some_and(|attr| attr.nlink == 0));
    }
    let waits = saver.waits();
    assert_eq!(waits.iter().map(|logged| logged.change.ino().0).collect::<Vec<_>>(), [9, 9, 9]);
    assert_eq!((replaced(&waits[2].change), waits[2].known), (None, None));
    saver.check_log();
    // It can be sent, and leaves nothing behind.
    let core = &mut saver.core;
    assert_eq!(core.queue.batch(9, 999).len(), 3);
    for logged in waits {
        let touched = vec![attr(1, Kind::Directory, 5), attr(9, Kind::File, 5)];
        settle(core, logged.seq, &Outcome::Done { touched });
    }
    assert!(core.queue.is_empty() && core.log_entries().is_empty());
    for ino in [1, 5, 8, 9] {
        assert!(!core.tree.is_pending(Ino(ino)), "{ino}");
    }
    assert_eq!(core.acked_below(), core.next_seq());
}

/// A backup that was linked is moved back over what had replaced it: without the latter both were
/// names of one file, and stayed.
#[test]
fn a_name_is_not_moved_over_another_one_of_its_file() {
    let mut saver = Saver::new();
    saver.create("f", 3);
    let (ino, parent) = (Ino(3), Ino::ROOT);
    saver.change(Record::Link { ino, parent, name: Name::new("backup").unwrap() });
    saver.save(4, Some(3));
    let by = saver.rename("backup", 3, "f", Some(4));
    assert!(saver.supersede(by).is_empty());
    assert_eq!(saver.core.queue.len(), 6);
}

#[test]
fn what_the_first_replaced_is_replaced_by_the_last_in_the_state_that_was_known() {
    let mut saver = Saver::new();
    let server = attr(3, Kind::File, 7);
    let name = Name::new("f").unwrap();
    saver.core.tree.install_node(Node { attr: server, target: None }, Time::default());
    let root = attr(1, Kind::Directory, 1);
    saver.core.tree.install_listing(
        root,
        vec![(name.clone(), Node { attr: server, target: None })],
        Time::default(),
    );
    saver.save(5, Some(3));
    let by = saver.save(6, Some(5));
    assert_eq!(saver.supersede(by), [1, 2, 3]);
    let waits = saver.waits();
    let version = server.data_version;
    assert_eq!(replaced(&waits[2].change), Some(Ino(3)));
    assert_eq!(waits[2].known, Some(crate::nouns::Base::Version(version)));
    saver.check_log();
    // What follows the one that is replaced follows the rename.
    let core = &mut saver.core;
    assert!(core.tree.is_pending(Ino(3)) && !core.tree.is_pending(Ino(5)));
    saver.change(Record::Release { ino: Ino(3) });
    assert_eq!(saver.core.queue.follows(by + 1).get(&(by + 1)), Some(&by));
    let by = saver.save(7, Some(6));
    assert!(saver.supersede(by).is_empty(), "something is behind the earlier one");
}

#[test]
fn a_file_that_was_made_under_its_name_is_superseded_too() {
    let mut saver = Saver::new();
    saver.create("f", 5);
    saver.store(5);
    let by = saver.save(6, Some(5));
    assert!(!saver.core.queue.is_rewritten(by));
    assert_eq!(saver.supersede(by), [1, 2]);
    assert!(saver.core.queue.is_rewritten(by));
    assert_eq!(replaced(&saver.waits()[2].change), None);
    saver.check_log();
}

/// Proves S8.5.
#[test]
fn what_is_shown_between_two_states_needs_the_earlier_one() {
    // A name given in between by the same processes, as git's branch between two states of its
    // index.
    let mut saver = Saver::new();
    saver.create("branch.new", 9);
    saver.save(5, None);
    saver.create("new", 6);
    saver.store(6);
    saver.rename("branch.new", 9, "branch", None);
    let by = saver.rename("new", 6, "f", Some(5));
    assert!(saver.supersede(by).is_empty());
    // What was written after a sync that covered it.
    let mut saver = Saver::new();
    saver.create("log", 9);
    saver.save(5, None);
    saver.core.cover(0, Ino(5));
    let data = saver.store(9);
    let by = saver.save(6, Some(5));
    assert!(saver.supersede(by).is_empty());
    assert!(saver.core.queue.follows(by).contains_key(&data));
}

#[test]
fn what_follows_what_was_superseded_follows_what_superseded_it() {
    let mut saver = Saver::new();
    saver.create("log", 9);
    saver.save(5, None);
    saver.core.cover(0, Ino(5));
    let by = saver.save(6, Some(5));
    assert_eq!(saver.supersede(by), [2, 3, 4]);
    let data = saver.store(9);
    assert_eq!(saver.core.queue.follows(data).get(&data), Some(&by));
}

#[test]
fn a_file_that_is_open_or_was_sent_or_has_another_name_stays() {
    let mut saver = Saver::new();
    saver.save(5, None);
    saver.core.opened(Ino(5));
    let by = saver.save(6, Some(5));
    assert!(saver.supersede(by).is_empty());
    saver.core.closed(Ino(5));
    assert_eq!(saver.supersede(by).len(), 3);

    let mut saver = Saver::new();
    saver.save(5, None);
    saver.core.queue.take(2);
    saver.core.queue.mark_sending(2, Time::default());
    saver.core.queue.put_back(2);
    let by = saver.save(6, Some(5));
    assert!(saver.supersede(by).is_empty());

    let mut saver = Saver::new();
    saver.save(5, None);
    let link = Record::Link { ino: Ino(5), parent: Ino::ROOT, name: Name::new("g").unwrap() };
    saver.change(link);
    let by = saver.save(6, Some(5));
    assert!(saver.supersede(by).is_empty());
}

#[test]
fn what_cannot_be_logged_is_sent_as_it_was() {
    let mut saver = Saver::new();
    saver.save(5, None);
    let by = saver.save(6, Some(5));
    let taken = saver.core.take_superseded(by).unwrap();
    assert!(saver.core.queue.batch(9, 999).is_empty(), "nobody else takes them");
    saver.core.send_after_all(&taken);
    assert_eq!(saver.core.queue.batch(9, 999).len(), 6);
    assert_eq!(replaced(&saver.waits()[5].change), Some(Ino(5)));
}
