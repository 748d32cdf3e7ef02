//! Looks: their questions to the index and the server, and their results.

use super::calls::NOW;
use super::*;
use crate::host::action::{
    Action, Ask, CallId, Done, Event, Fact, Load, Noted, Now, Query, Reach, Told, Undone,
};
use crate::host::cache::{NodeNote, Promised};
use crate::host::call::{Call, Look, Seen};
use crate::nouns::Dentry;
use crate::wire::{Looked, Node, PAGE_MAX, Page};

const ID: CallId = CallId(1);

fn start(host: &mut Host, look: Look, now: Now) -> Action {
    host.handle(Event::Call { id: ID, call: Call::Look(look) }, now);
    host.poll_action().expect("an action")
}

fn go_on(host: &mut Host, done: Result<Done, Refusal>, now: Now) -> Action {
    host.handle(Event::Done { id: ID, done: done.map_err(Undone::from) }, now);
    host.poll_action().expect("an action")
}

fn told(fact: Fact) -> Result<Done, Refusal> {
    Ok(Done::Told(Box::new(Told { fact, promised: None, asked: NOW.time })))
}

fn node(attr: Attr) -> Node {
    Node { attr, target: None }
}

fn asked(action: &Action) -> &Ask {
    match action {
        Action::Query(ID, Query { ask, .. }) => ask,
        other => panic!("{other:?}"),
    }
}

fn seen(action: Action) -> Result<Seen, Refusal> {
    match action {
        Action::Reply(ID, answer) => Ok(*answer?.seen.expect("what was seen")),
        other => panic!("{other:?}"),
    }
}

fn at(name: &str) -> Dentry {
    Dentry::new(Ino::ROOT, Name::new(name).unwrap())
}

fn page(names: &[(&str, u64)], counter: u64, more: bool) -> Fact {
    let entry = |&(name, ino): &(&str, u64)| {
        (Name::new(name).unwrap(), node(attr(ino, Kind::File, counter)))
    };
    let directory = attr(1, Kind::Directory, counter);
    let (promised, commit, gone) = (None, 0, None);
    Fact::Page(Page {
        directory,
        entries: names.iter().map(entry).collect(),
        more,
        promised,
        commit,
        gone,
    })
}

/// A host that knows nothing and believes what it was told only for the question.
fn ignorant() -> Host {
    let mut host = Host::new(100, 1);
    host.reserve_seqs(100);
    host
}

#[test]
fn the_index_is_looked_at_once_and_then_the_server_asked() {
    let mut host = ignorant();
    let action = start(&mut host, Look::Attr(Ino(5)), NOW);
    assert_eq!(action, Action::Load(ID, Load::Node(Ino(5))));
    let action = go_on(&mut host, Ok(Done::Noted(Noted::default())), NOW);
    assert_eq!(asked(&action), &Ask::Attr(Ino(5)));
    let file = attr(5, Kind::File, 3);
    let action = go_on(&mut host, told(Fact::Attr(node(file))), NOW);
    // What is here of other data goes before the answer.
    assert_eq!(action, Action::LogMaps(ID, None));
    let action = go_on(&mut host, Ok(Done::Carried), NOW);
    assert_eq!(seen(action), Ok(Seen::Attr(file)), "without a promise, for this call");
}

#[test]
fn what_the_index_has_is_enough_without_a_server() {
    let alone = Now { link: Reach::Silent, ..NOW };
    let file = attr(5, Kind::File, 3);
    let note = |attr| {
        let (target, is_listed, xattrs, place) = (None, false, None, None);
        NodeNote { attr, target, is_listed, xattrs, place }
    };
    for now in [alone, NOW] {
        let mut host = ignorant();
        let action = start(&mut host, Look::Name(at("a")), now);
        assert_eq!(action, Action::Load(ID, Load::Name(at("a"))));
        let nodes = vec![note(attr(1, Kind::Directory, 1)), note(file)];
        let names = vec![(Name::new("a").unwrap(), Some(Ino(5)))];
        let action = go_on(&mut host, Ok(Done::Noted(Noted { nodes, names })), now);
        match now.link {
            Reach::Online => assert!(matches!(asked(&action), Ask::Page { .. })),
            _ => assert_eq!(seen(action), Ok(Seen::Name(Some(file)))),
        }
    }
}

#[test]
fn a_small_directory_is_learnt_with_its_first_name() {
    let mut host = ignorant();
    start(&mut host, Look::Name(at("b")), NOW);
    let action = go_on(&mut host, Ok(Done::Noted(Noted::default())), NOW);
    assert!(matches!(asked(&action), Ask::Page { limit, .. } if *limit < PAGE_MAX), "{action:?}");
    go_on(&mut host, told(page(&[("a", 5), ("b", 6)], 1, false)), NOW);
    let action = go_on(&mut host, Ok(Done::Carried), NOW);
    assert_eq!(seen(action), Ok(Seen::Name(Some(attr(6, Kind::File, 1)))));
}

/// One that fails costs nothing but the try.
#[test]
fn a_listing_that_cannot_be_had_is_no_answer_to_a_name() {
    let mut host = ignorant();
    start(&mut host, Look::Name(at("b")), NOW);
    go_on(&mut host, Ok(Done::Noted(Noted::default())), NOW);
    let action = go_on(&mut host, Err(Refusal::TooLarge), NOW);
    assert_eq!(asked(&action), &Ask::Name(at("b")));
    let action = go_on(&mut host, Err(Refusal::Unreachable), NOW);
    assert_eq!(seen(action), Err(Refusal::Unreachable));
}

#[test]
fn a_directory_that_changes_faster_than_it_is_asked_answers_all_the_same() {
    let mut host = ignorant();
    host.tree.install_node(node(attr(1, Kind::Directory, 9)), Time::default());
    host.tree.take_moved();
    start(&mut host, Look::Name(at("b")), NOW);
    go_on(&mut host, Ok(Done::Noted(Noted::default())), NOW);
    let mut action = go_on(&mut host, Err(Refusal::TooLarge), NOW);
    let old = Looked {
        parent: attr(1, Kind::Directory, 8),
        node: Some(node(attr(6, Kind::File, 8))),
        promised: None,
    };
    let mut questions = 0;
    while matches!(action, Action::Query(..)) {
        questions += 1;
        action = go_on(&mut host, told(Fact::Name(old.clone())), NOW);
    }
    assert_eq!(questions, 8);
    assert_eq!(action, Action::LogMaps(ID, None));
    let action = go_on(&mut host, Ok(Done::Carried), NOW);
    assert_eq!(seen(action), Ok(Seen::Name(Some(attr(6, Kind::File, 8)))));
}

/// A name was given to another file while the attributes of the one that it had were asked for.
#[test]
fn a_name_means_what_it_means_at_the_end() {
    let mut host = core();
    let top = attr(1, Kind::Directory, 1);
    let listed = |ino| vec![(Name::new("a").unwrap(), node(attr(ino, Kind::File, 1)))];
    host.tree.install_listing(top, listed(5), NOW.time);
    host.tree.forget(Ino(5), NOW.time);
    host.tree.install_name(top, Name::new("a").unwrap(), None, NOW.time);
    host.tree.install_noted_name(Ino::ROOT, Name::new("a").unwrap(), Some(Ino(5)));
    host.tree.install_listing(top, listed(5), NOW.time);
    host.tree.expire(Ino(5));
    host.tree.take_moved();
    let action = start(&mut host, Look::Name(at("a")), NOW);
    assert_eq!(asked(&action), &Ask::Attr(Ino(5)));
    let unlink = Record::Unlink { parent: Ino::ROOT, name: at("a").name, ino: Ino(5), open: false };
    let entry = host.draft_change(unlink, Caller::default(), Timestamp::default());
    host.admit(entry, NOW.time);
    let action = go_on(&mut host, told(Fact::Attr(node(attr(5, Kind::File, 1)))), NOW);
    assert_eq!(seen(action), Ok(Seen::Name(None)));
}

#[test]
fn a_long_listing_comes_in_pages_of_one_state() {
    let mut host = ignorant();
    start(&mut host, Look::Names(Ino::ROOT), NOW);
    let first = go_on(&mut host, Ok(Done::Noted(Noted::default())), NOW);
    assert!(matches!(asked(&first), Ask::Page { after: None, .. }));
    let second = go_on(&mut host, told(page(&[("a", 5)], 1, true)), NOW);
    assert!(
        matches!(asked(&second), Ask::Page { after: Some(name), .. } if name.as_bytes() == b"a")
    );
    // The directory has changed: from the beginning.
    let again = go_on(&mut host, told(page(&[("b", 6)], 2, true)), NOW);
    assert!(matches!(asked(&again), Ask::Page { after: None, .. }));
    go_on(&mut host, told(page(&[("b", 6)], 2, true)), NOW);
    let action = go_on(&mut host, told(page(&[("c", 7)], 2, false)), NOW);
    assert_eq!(action, Action::LogMaps(ID, None));
    let action = go_on(&mut host, Ok(Done::Carried), NOW);
    let names = [("b", 6), ("c", 7)].map(|(name, ino)| (Name::new(name).unwrap(), Ino(ino)));
    assert_eq!(seen(action), Ok(Seen::Names(names.to_vec())));
}

#[test]
fn a_server_that_repeats_a_page_is_not_believed() {
    let mut host = ignorant();
    start(&mut host, Look::Names(Ino::ROOT), NOW);
    go_on(&mut host, Ok(Done::Noted(Noted::default())), NOW);
    go_on(&mut host, told(page(&[("a", 5)], 1, true)), NOW);
    let action = go_on(&mut host, told(page(&[("a", 5)], 1, true)), NOW);
    assert_eq!(seen(action), Err(Refusal::Protocol));
}

#[test]
fn an_answer_to_another_question_is_not_believed() {
    for look in [Look::Attr(Ino(5)), Look::Names(Ino(5)), Look::AttrAnew(Ino(5))] {
        let mut host = ignorant();
        let mut action = start(&mut host, look, NOW);
        if matches!(action, Action::Load(..)) {
            action = go_on(&mut host, Ok(Done::Noted(Noted::default())), NOW);
        }
        assert!(matches!(action, Action::Query(..)));
        let action = go_on(&mut host, told(Fact::Same(true)), NOW);
        assert!(seen(action).is_err());
    }
}

/// The data of a file that another host rewrote stayed beside its new version and size, if that
/// was told by the outcome of a change of this host.
#[test]
fn an_outcome_that_tells_of_other_data_has_them_forgotten() {
    let mut host = core();
    let file = attr(5, Kind::File, 1);
    host.tree.install_node(node(file), NOW.time);
    host.tree.take_moved();
    host.file(Ino(5)).unwrap().filled(0..file.size.max(1));
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let record = Record::SetAttr { ino: Ino(5), set };
    let entry = host.draft_change(record, Caller::default(), Timestamp::default());
    host.admit(entry, NOW.time);
    let now = attr(5, Kind::File, 2);
    let promised = Some(Promised::unmarked(1, [Ino(5)]));
    let as_of = host.tree.as_of(promised, [NOW.time; 2]);
    let effects = host.settle(1, &Outcome::Done { touched: vec![now] }, &as_of);
    assert_eq!(effects, [Effect::Replace(Ino(5))]);
    let state = host.file(Ino(5)).unwrap();
    assert_eq!((state.version(), state.valid().is_empty()), (now.data_version, true));
}

/// Another copy of this cache had made the directory under another number. A name that this host
/// then moved away was believed to be there still.
#[test]
fn names_in_a_directory_that_has_another_number_here_are_asked_for_again() {
    let mut host = core();
    let directory = |counter| attr(20, Kind::Directory, counter);
    let name = Name::new("c").unwrap();
    host.tree.install_listing(
        directory(1),
        vec![(name.clone(), node(attr(5, Kind::File, 1)))],
        NOW.time,
    );
    let record = Record::Rename {
        from_parent: Ino(9),
        from_name: name.clone(),
        ino: Ino(5),
        to_parent: Ino::ROOT,
        to_name: name.clone(),
        mode: RenameMode::Replace(None),
        open: false,
    };
    let entry = host.draft_change(record, Caller::default(), Timestamp::default());
    host.admit(entry, NOW.time);
    let touched = vec![directory(2), attr(1, Kind::Directory, 2), attr(5, Kind::File, 2)];
    let as_of = host.tree.as_of(None, [NOW.time; 2]);
    host.settle(1, &Outcome::Done { touched }, &as_of);
    assert!(host.tree.name(Ino(20), &name, NOW.time).usable(false).is_none());
}

/// Most looks of the kernel are answered so.
#[test]
fn a_glance_shows_what_a_call_would_and_asks_for_nothing() {
    let mut host = core();
    let file = attr(5, Kind::File, 1);
    let top = attr(1, Kind::Directory, 1);
    let names = vec![(at("a").name, node(file))];
    host.tree.install_listing(top, names, NOW.time);
    assert_eq!(host.glance(&Look::Attr(Ino(5)), NOW), Some(Seen::Attr(file)));
    assert_eq!(host.glance(&Look::Name(at("a")), NOW), Some(Seen::Name(Some(file))));
    assert_eq!(host.glance(&Look::Name(at("b")), NOW), Some(Seen::Name(None)));
    let listed = vec![(at("a").name, Ino(5))];
    assert_eq!(host.glance(&Look::Names(Ino::ROOT), NOW), Some(Seen::Names(listed)));
    let late = Now { time: Time(Duration::from_secs(60)), ..NOW };
    for look in [Look::Attr(Ino(5)), Look::Name(at("a")), Look::Names(Ino::ROOT)] {
        assert_eq!(host.glance(&look, late), None);
        let alone = Now { link: Reach::Offline, ..late };
        assert!(host.glance(&look, alone).is_some());
    }
    assert_eq!(host.glance(&Look::AttrAnew(Ino(5)), NOW), None);
    assert!(host.poll_action().is_none() && host.calls() == 0);
}
