//! What is kept back, and what becomes of it.

use super::calls::NOW;
use super::*;
use crate::host::action::{Action, Event, Now, Task};
use crate::nouns::SetAttr;
use crate::persist::Lm;

const HOUR: Duration = Duration::from_secs(3600);

/// File 7 below directory 6, both known.
fn nested() -> Host {
    let mut core = core();
    for (parent, name, ino, kind) in [(1, "d", 6, Kind::Directory), (6, "f", 7, Kind::File)] {
        let node = Node { attr: attr(ino, kind, 3), target: None };
        let (parent, name) = (attr(parent, Kind::Directory, 3), Name::new(name).unwrap());
        core.tree.install_name(parent, name, Some(node), Time::default());
    }
    core
}

fn say(core: &mut Host, ino: u64, lm: Lm) {
    let (name, value) = (crate::persist::ATTRIBUTE.to_vec(), lm.to_string().into_bytes());
    let record = Record::SetXattr { ino: Ino(ino), name, value };
    let entry = core.draft_change(record, Caller::default(), Timestamp::default());
    core.admit(entry, Time::default());
}

/// Proves S4.3, S4.4.
#[test]
fn who_says_nothing_is_as_its_directory() {
    let mut core = nested();
    core.settings.lm = Lm::Close;
    assert_eq!(core.lm(Ino(7)), Lm::Close);
    say(&mut core, 6, Lm::Delay(HOUR));
    assert_eq!(
        [7, 6, 1].map(|ino| core.lm(Ino(ino))),
        [Lm::Delay(HOUR), Lm::Delay(HOUR), Lm::Close]
    );
    say(&mut core, 7, Lm::Sync);
    assert_eq!(core.lm(Ino(7)), Lm::Sync);
    // Its names are the directory's.
    let (parent, name) = (Ino(6), Name::new("f").unwrap());
    let unlink = Record::Unlink { parent, name, ino: Ino(7), open: false };
    let chmod = Record::SetAttr { ino: Ino(7), set: SetAttr::default() };
    assert_eq!([unlink, chmod].map(|record| core.lm_of(&record)), [Lm::Delay(HOUR), Lm::Sync]);
}

/// Proves S4.14.
#[test]
fn data_are_kept_back_until_the_oldest_have_had_their_time() {
    let mut core = nested();
    let at = |secs| Time(Duration::from_secs(secs));
    write(&mut core, 7, 0..10);
    assert!(!core.is_delayed(Ino(7), at(0), at(0)));
    say(&mut core, 6, Lm::Delay(HOUR));
    assert!(core.is_delayed(Ino(7), at(5), at(3604)));
    assert!(!core.is_delayed(Ino(7), at(5), at(3605)));
    assert!(seal(&mut core, 7) && !core.is_delayed(Ino(7), at(5), at(5)), "nothing is left");
}

/// What a directory says holds for its files, however much else is known.
#[test]
fn who_speaks_for_a_file_is_not_forgotten() {
    let mut core = nested();
    let at = Time(HOUR);
    let says = Attr { lm: Some(Lm::Sync), ..attr(6, Kind::Directory, 4) };
    core.tree.install_node(Node { attr: says, target: None }, Time::default());
    (100..300).for_each(|ino| {
        let node = Node { attr: attr(ino, Kind::File, 3), target: None };
        core.tree.install_node(node, Time::default());
    });
    core.opened(Ino(7));
    let notes = core.take_notes();
    core.noted(&notes, true);
    core.shrink(at);
    assert!(core.tree.peek(Ino(200)).is_none(), "nothing was forgotten");
    assert_eq!(core.lm(Ino(7)), Lm::Sync);
}

/// Proves S4.19.
#[test]
fn under_logging_everything_waits_for_company() {
    let mut core = nested();
    say(&mut core, 6, Lm::Log(HOUR));
    assert!(core.queue.is_held(1), "also that");
    write(&mut core, 7, 0..10);
    assert!(seal(&mut core, 7) && core.queue.is_held(2));
    create(&mut core);
    assert!(!core.queue.is_held(3), "it is elsewhere");
}

/// The shell is told of the first deadline only: it would look at the clock for each change.
#[test]
fn the_end_of_company_is_a_deadline() {
    let mut core = nested();
    let wakes = |core: &mut Host, task| {
        let actions = std::iter::from_fn(|| core.poll_action());
        actions.filter(|action| *action == Action::Wake(task)).count()
    };
    let level = Duration::from_secs(4);
    core.handle(Event::Time, Now { time: Time::default(), ..NOW });
    say(&mut core, 6, Lm::Log(level));
    assert_eq!((wakes(&mut core, Task::Time), core.next_deadline()), (1, Time(level)));
    write(&mut core, 7, 0..10);
    assert!(seal(&mut core, 7) && core.queue.is_held(2));
    assert_eq!(wakes(&mut core, Task::Time), 0);
    core.handle(Event::Time, Now { time: Time(level), ..NOW });
    assert_eq!((wakes(&mut core, Task::Drain), core.queue.is_held(2)), (1, false));
}

/// File 7 is written, and removed before its data go; the entries of the log.
fn removed() -> (Host, Vec<Entry>) {
    let mut core = core();
    core.tree.install_node(Node { attr: attr(7, Kind::File, 3), target: None }, Time::default());
    write(&mut core, 7, 0..10);
    unlink(&mut core, 7, true);
    let entries = core.log_entries();
    (core, entries)
}

fn gone(nlink: u32) -> Outcome {
    let touched = vec![attr(1, Kind::Directory, 5), Attr { nlink, ..attr(7, Kind::File, 5) }];
    Outcome::Done { touched }
}

/// Proves S4.17.
#[test]
fn what_is_kept_back_of_a_removed_file_goes_nowhere_once_the_server_knows_of_no_name() {
    let (mut core, mut entries) = removed();
    assert!(core.is_delayed(Ino(7), Time::default(), Time(HOUR)), "the server may know a name");
    assert_eq!(settle(&mut core, 1, &gone(0)), [Effect::Release(Ino(7))]);
    assert!(core.unsealed().is_empty() && !core.tree.is_pending(Ino(7)));
    // The same where the process died before it was said.
    let settled = |nlink| Entry::Settled { seq: 1, outcome: Box::new(gone(nlink)) };
    entries.push(settled(0));
    assert!(crate::host::log::replay(&entries).unsealed.is_empty());
    entries.pop();
    entries.push(settled(1));
    assert_eq!(crate::host::log::replay(&entries).unsealed.len(), 1);
}

/// Proves S4.17.
#[test]
fn what_is_kept_back_is_stored_where_another_host_knows_a_name() {
    let (mut core, _) = removed();
    assert_eq!(settle(&mut core, 1, &gone(1)), []);
    assert!(!core.is_delayed(Ino(7), Time::default(), Time::default()));
    assert!(core.unsealed() == [Ino(7)] && seal(&mut core, 7));
}

/// A name that this host gives it counts, too, also after a crash.
/// Proves S4.16.
#[test]
fn what_is_kept_back_is_stored_where_a_name_is_on_its_way() {
    let (mut core, _) = removed();
    let link = Record::Link { parent: Ino::ROOT, name: Name::new("b").unwrap(), ino: Ino(7) };
    assert_eq!(core.seal_first(&link), [Ino(7)]);
    assert!(seal(&mut core, 7));
    let entry = core.draft_change(link, Caller::default(), Timestamp::default());
    core.admit(entry, Time::default());
    write(&mut core, 7, 10..20);
    let mut entries = core.log_entries();
    entries.push(Entry::Settled { seq: 1, outcome: Box::new(gone(0)) });
    assert_eq!(crate::host::log::replay(&entries).unsealed.len(), 1);
    assert_eq!(settle(&mut core, 1, &gone(0)), []);
    assert_eq!(core.unsealed(), [Ino(7)]);
}
