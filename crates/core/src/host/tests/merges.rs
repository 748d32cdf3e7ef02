//! Merging of what two hosts made under one name.

use super::calls::{NOW, Shell, Truth, caller};
use super::*;
use crate::host::action::{Action, Ask, CallId, Done, Event, Query, Task};
use crate::host::call::Call;
use crate::host::conflict::Duplicate;
use crate::nouns::Dentry;

const COPY: Ino = Ino(5);
const OTHER: Ino = Ino(6);

fn name(name: &str) -> Name {
    Name::new(name).unwrap()
}

fn at(parent: Ino, of: &str) -> Dentry {
    Dentry { parent, name: name(of) }
}

fn directory(ino: Ino) -> Attr {
    attr(ino.0, Kind::Directory, 1)
}

fn file(ino: u64, size: u64) -> Attr {
    Attr { size, nlink: 1, ..attr(ino, Kind::File, 1) }
}

fn merge() -> Call {
    let at = at(Ino::ROOT, "d.conflict");
    Call::Merge(Duplicate { at, name: name("d"), ino: COPY, by: caller() })
}

/// What is known of a copy that stands beside another one.
fn beside(copy: Attr, other: Attr) -> Vec<Truth> {
    vec![
        Truth::Attr(directory(Ino::ROOT)),
        Truth::Attr(copy),
        Truth::Attr(other),
        Truth::Name(at(Ino::ROOT, "d.conflict"), Ok(Some(copy))),
        Truth::Name(at(Ino::ROOT, "d"), Ok(Some(other))),
    ]
}

/// What is known of a directory with files 7 and 8, where the other one has `there` as `b`.
fn directories(there: Option<Attr>) -> Vec<Truth> {
    let mut known = beside(directory(COPY), directory(OTHER));
    let (a, b) = (file(7, 4), file(8, 4));
    known.extend([
        Truth::Names(COPY, vec![(name("a"), a), (name("b"), b)]),
        Truth::Attr(a),
        Truth::Attr(b),
        Truth::Name(at(OTHER, "a"), Ok(None)),
        Truth::Name(at(OTHER, "b"), Ok(there)),
    ]);
    known
}

/// File `ino` went from one directory to the other, or is gone.
fn done(ino: u64) -> Outcome {
    let directories = [1, 5, 6].map(|ino| attr(ino, Kind::Directory, 2));
    Outcome::Done { touched: directories.into_iter().chain([file(ino, 4)]).collect() }
}

#[test]
fn what_is_in_one_directory_is_moved_into_the_other_and_the_one_goes() {
    let mut shell = Shell::knowing(directories(None)).settling(vec![done(7), done(8)]);
    let mut core = core();
    shell.call(&mut core, merge()).unwrap();
    assert_eq!(shell.kinds(), ["rename", "rename", "rmdir"]);
    let moved = shell.log.iter().filter_map(|entry| match &entry.change()?.change {
        Change::Record(Record::Rename { ino, to_parent, to_name, .. }) => {
            Some((*ino, *to_parent, to_name.clone()))
        }
        _ => None,
    });
    let expected = [(Ino(7), OTHER, name("a")), (Ino(8), OTHER, name("b"))];
    assert_eq!(moved.collect::<Vec<_>>(), expected);
    assert!(core.waiters.is_empty());
}

#[test]
fn a_file_goes_if_it_is_the_same_and_is_moved_beside_if_it_is_not() {
    for (is_same, kind) in [(true, "unlink"), (false, "rename")] {
        let mut known = directories(Some(file(9, 4)));
        known.push(Truth::Same(Ino(8), Ino(9), is_same));
        let mut shell = Shell::knowing(known).settling(vec![done(7), done(8)]);
        shell.call(&mut core(), merge()).unwrap();
        assert_eq!(shell.kinds(), ["rename", kind, "rmdir"]);
    }
}

/// A host gives names before data: its file may become the same.
#[test]
fn a_file_that_cannot_be_compared_yet_stays_and_the_directory_with_it() {
    let known = directories(Some(file(9, 4)));
    let mut shell = Shell::knowing(known).settling(vec![done(7)]);
    assert_eq!(shell.call(&mut core(), merge()), Err(Refusal::NotEmpty));
    assert_eq!(shell.kinds(), ["rename"]);
}

#[test]
fn a_refused_move_ends_the_merge_and_nothing_is_removed() {
    let refused = Outcome::Refused { refusal: Refusal::Quota };
    let mut shell = Shell::knowing(directories(None)).settling(vec![done(7), refused]);
    let mut core = core();
    assert_eq!(shell.call(&mut core, merge()), Err(Refusal::Quota));
    assert_eq!(shell.kinds(), ["rename", "rename"]);
    assert!(core.waiters.is_empty() && core.calls() == 0);
}

/// Another host has made a file of that name meanwhile.
#[test]
fn what_was_moved_beside_another_file_is_kept_and_merged_later() {
    let (parent, copy) = (OTHER, name("b.conflict"));
    let touched = vec![attr(8, Kind::File, 2)];
    let conflict = Outcome::Conflict { parent, name: copy, copy: Ino(8), touched };
    let mut shell = Shell::knowing(directories(None)).settling(vec![done(7), conflict]);
    let mut core = core();
    // The listing of this test's server still has the name.
    shell.call(&mut core, merge()).unwrap_err();
    assert_eq!(shell.kinds(), ["rename", "rename"]);
    assert_eq!(shell.kept, [2], "the move");
    let duplicate = shell.duplicates.pop().expect("a copy");
    assert_eq!(
        (duplicate.at, duplicate.name, duplicate.ino),
        (at(OTHER, "b.conflict"), name("b"), Ino(8))
    );
}

#[test]
fn a_file_beside_another_one_goes_only_if_it_is_the_same() {
    for (same, answer, log) in [
        (Some(true), Ok(()), vec!["unlink"]),
        (Some(false), Err(Refusal::Changed), vec![]),
        (None, Err(Refusal::Changed), vec![]),
    ] {
        let mut known = beside(file(5, 4), file(6, 4));
        known.extend(same.map(|same| Truth::Same(COPY, OTHER, same)));
        let mut shell = Shell::knowing(known).settling(vec![done(7)]);
        let mut core = core();
        assert_eq!(shell.call(&mut core, merge()).map(drop), answer);
        assert_eq!(shell.kinds(), log);
        // Two versions that differ are not compared again.
        shell.asked.clear();
        if same == Some(false) {
            assert_eq!(shell.call(&mut core, merge()).map(drop), answer);
            assert!(!shell.asked.contains(&"same"));
        }
    }
}

#[test]
fn a_file_that_is_open_or_not_stored_is_left() {
    for is_open in [true, false] {
        let mut shell = Shell::knowing(beside(file(5, 4), file(6, 4)));
        let mut core = core();
        match is_open {
            true => core.opened(COPY),
            false => core.tree.mark(OTHER),
        }
        assert_eq!(shell.call(&mut core, merge()), Err(Refusal::Changed));
        assert!(shell.kinds().is_empty() && !shell.asked.contains(&"same"));
    }
}

#[test]
fn what_has_another_place_or_other_rights_is_not_merged() {
    let moved = vec![
        Truth::Attr(directory(Ino::ROOT)),
        Truth::Name(at(Ino::ROOT, "d.conflict"), Ok(None)),
        Truth::Name(at(Ino::ROOT, "d"), Ok(None)),
    ];
    let mut shell = Shell::knowing(moved);
    assert_eq!(shell.call(&mut core(), merge()), Err(Refusal::Changed));
    let closed = Attr { mode: 0o700, ..directory(OTHER) };
    let mut shell = Shell::knowing(beside(directory(COPY), closed));
    assert_eq!(shell.call(&mut core(), merge()), Err(Refusal::NotPermitted));
    assert!(shell.log.is_empty());
}

/// The server said so while nobody waited: the task that merges is woken.
#[test]
fn a_copy_that_nobody_is_told_of_wakes_the_task_that_merges() {
    let mut core = core();
    create(&mut core);
    let (parent, copy) = (Ino::ROOT, name("a.conflict"));
    let touched = vec![attr(5, Kind::File, 2)];
    let conflict = Outcome::Conflict { parent, name: copy, copy: Ino(5), touched };
    let mut shell = Shell::new();
    let settle = super::settles::settle_call(&core, vec![conflict]);
    shell.call(&mut core, settle).unwrap();
    assert!(shell.did.contains(&format!("{:?}", crate::host::action::Action::Wake(Task::Merge))));
    let duplicate = shell.duplicates.pop().expect("a copy");
    assert_eq!((duplicate.at, duplicate.name), (at(Ino::ROOT, "a.conflict"), name("a")));
}

/// A program wrote to the file that was being asked about. The mount ended.
#[test]
fn a_fact_that_is_not_needed_any_more_is_forgotten() {
    let mut core = core();
    let (ours, other, there) = (file(7, 4), file(8, 4), file(9, 4));
    let mut known = beside(directory(COPY), directory(OTHER));
    known.extend([
        Truth::Names(COPY, vec![(name("a"), ours), (name("b"), other)]),
        Truth::Name(at(OTHER, "a"), Ok(Some(there))),
        Truth::Name(at(OTHER, "b"), Ok(None)),
    ]);
    known.extend([ours, other, there].map(Truth::Attr));
    let mut shell = Shell::knowing(known);
    let id = CallId(1);
    let mut event = Event::Call { id, call: merge() };
    let (mut is_written, mut answer) = (false, None);
    while answer.is_none() {
        core.handle(event, NOW);
        let mut done = None;
        while let Some(action) = core.poll_action() {
            if let Action::Query(_, Query { ask: Ask::Xattrs(_), .. }) = &action
                && !std::mem::replace(&mut is_written, true)
            {
                core.load(ours.ino, None);
                write(&mut core, ours.ino.0, 0..4);
            }
            match action {
                Action::Reply(_, result) => answer = Some(result),
                Action::Await(..) => answer = Some(Err(Refusal::Unreachable)),
                action => done = shell.carry_out(action).or(done),
            }
        }
        event = Event::Done { id, done: done.unwrap_or(Ok(Done::Carried)) };
    }
    assert!(is_written, "the files were compared");
}
