//! Calls that change names: the facts that each asks for, and the record that it becomes.

use super::calls::{Shell, Truth, caller, kind};
use super::*;
use crate::host::action::{CallId, Done, Event};
use crate::host::call::{Call, NameCall, Owner, RenameFlag};
use crate::nouns::{Dentry, Role, SetAttr};
use crate::persist::Lm;

fn at(name: &str) -> Dentry {
    Dentry::new(Ino::ROOT, Name::new(name).unwrap())
}

fn named(name: &str, found: Option<Attr>) -> Truth {
    Truth::Name(at(name), Ok(found))
}

fn root() -> Truth {
    Truth::Attr(attr(1, Kind::Directory, 1))
}

fn empty(ino: u64, is: bool) -> Truth {
    let names = if is { Vec::new() } else { vec![(Name::new("x").unwrap(), file(77))] };
    Truth::Names(Ino(ino), names)
}

fn file(ino: u64) -> Attr {
    attr(ino, Kind::File, 1)
}

fn directory(ino: u64) -> Attr {
    attr(ino, Kind::Directory, 1)
}

/// The record that a call becomes where the facts are these.
fn record(facts: Vec<Truth>, call: NameCall) -> Result<Option<Record>, Refusal> {
    let mut core = core();
    record_in(&mut core, facts, call)
}

fn record_in(
    core: &mut Host,
    facts: Vec<Truth>,
    call: NameCall,
) -> Result<Option<Record>, Refusal> {
    let mut shell = Shell::knowing(facts);
    shell.call(core, Call::Name(call, caller()))?;
    let logged = shell.log.first().and_then(Entry::change).map(|logged| logged.change.clone());
    Ok(logged.and_then(|change| match change {
        Change::Record(record) => Some(record),
        Change::Data(_) => None,
    }))
}

fn creation(exclusive: bool) -> NameCall {
    NameCall::Create { at: at("new"), node: NewNode::File, mode: 0o666, exclusive }
}

fn number(ino: u64) -> Truth {
    Truth::Number(Ino(ino))
}

#[test]
fn a_name_that_exists_is_not_given_again() {
    let taken = || vec![named("new", Some(file(7)))];
    assert_eq!(record(taken(), creation(true)), Err(Refusal::Exists));
    let link = NameCall::Link { ino: Ino(5), at: at("new") };
    assert_eq!(record(taken(), link), Err(Refusal::Exists));
}

#[test]
fn what_the_cache_may_answer_is_not_asked() {
    let mut core = core();
    let top = attr(1, Kind::Directory, 1);
    core.tree.install_listing(top, Vec::new(), calls::NOW.time);
    let mut shell = Shell::knowing(vec![number(9)]);
    shell.call(&mut core, Call::Name(creation(true), caller())).unwrap();
    assert_eq!(shell.asked, ["number"]);
}

#[test]
fn a_failed_question_is_the_answer() {
    let facts = vec![Truth::Name(at("new"), Err(Refusal::Io))];
    assert_eq!(record(facts, creation(true)), Err(Refusal::Io));
}

#[test]
fn a_new_file_belongs_to_its_maker_and_in_the_store_the_mounting_user_is_root() {
    let facts = || vec![named("new", None), root(), number(9)];
    let mut personal = core();
    personal.settings.owner = Owner { uid: 1000, gid: 0, role: Role::Writer };
    let made = record_in(&mut personal, facts(), creation(false)).unwrap();
    assert!(matches!(made, Some(Record::Create { ino: Ino(9), uid: 0, .. })), "{made:?}");
    let made = record(facts(), creation(false)).unwrap();
    assert!(matches!(made, Some(Record::Create { uid: 1000, mode: 0o666, .. })), "{made:?}");
}

#[test]
fn a_set_group_id_directory_gives_its_group_and_directories_also_the_bit() {
    let mut core = core();
    let mut top = attr(1, Kind::Directory, 1);
    (top.mode, top.gid) = (0o2755, 44);
    core.tree.install_listing(top, Vec::new(), Time::default());
    for (node, mode) in [(NewNode::File, 0o755), (NewNode::Directory, 0o2755)] {
        let facts = vec![named("new", None), Truth::Attr(top), number(9)];
        let call = NameCall::Create { at: at("new"), node, mode: 0o755, exclusive: true };
        let made = record_in(&mut core, facts, call).unwrap();
        let Some(Record::Create { gid, mode: given, .. }) = made else { panic!("{made:?}") };
        assert_eq!((gid, given), (44, mode));
        core = super::core();
        core.tree.install_listing(top, Vec::new(), Time::default());
    }
}

/// The number of a copied cache was given to two inodes.
#[test]
fn a_number_that_is_known_here_is_not_given_again() {
    let mut core = core();
    create(&mut core);
    let id = CallId(1);
    core.handle(Event::Call { id, call: Call::Name(creation(false), caller()) }, calls::NOW);
    // The attributes of the directory, which this host changed, are at hand.
    let mut shell = Shell::knowing(vec![named("new", None)]);
    let mut numbers = 0;
    while let Some(action) = core.poll_action() {
        let done = match action {
            Action::Number(_) if numbers == 1 => break,
            Action::Number(_) => {
                numbers += 1;
                Ok(Done::Number(Ino(5)))
            }
            action => shell.carry_out(action).unwrap(),
        };
        core.handle(Event::Done { id, done }, calls::NOW);
    }
    assert_eq!(numbers, 1);
    core.handle(Event::Cancel(id), calls::NOW);
    assert_eq!(core.calls(), 0);
}

#[test]
fn removals_look_at_the_kind_and_at_what_is_in_a_directory() {
    let (a_file, a_directory) = (Some(file(7)), Some(directory(8)));
    let unlink = |found| record(vec![named("a", found), root()], NameCall::Unlink(at("a")));
    assert_eq!(unlink(None), Err(Refusal::NotFound));
    assert_eq!(unlink(a_directory), Err(Refusal::IsDirectory));
    assert!(matches!(unlink(a_file), Ok(Some(Record::Unlink { ino: Ino(7), .. }))));
    let rmdir = |found, is_empty| {
        let facts = vec![named("a", found), empty(8, is_empty), root()];
        record(facts, NameCall::Rmdir(at("a")))
    };
    assert_eq!(rmdir(a_file, true), Err(Refusal::NotDirectory));
    assert_eq!(rmdir(a_directory, false), Err(Refusal::NotEmpty));
    assert!(matches!(rmdir(a_directory, true), Ok(Some(Record::Rmdir { ino: Ino(8), .. }))));
}

#[test]
fn a_directory_gets_no_further_name() {
    let facts = vec![named("b", None), Truth::Attr(directory(8))];
    let link = NameCall::Link { ino: Ino(8), at: at("b") };
    assert_eq!(record(facts, link), Err(Refusal::NotPermitted));
}

#[test]
fn a_rename_replaces_exchanges_or_finds_the_name_free() {
    let rename = |from: Option<Attr>, to: Option<Attr>, flag| {
        let facts = vec![named("a", from), named("b", to), root(), empty(8, true), empty(9, false)];
        let made = record(facts, NameCall::Rename { from: at("a"), to: at("b"), flag })?;
        Ok(made.map(|record| match record {
            Record::Rename { mode, .. } => mode,
            other => panic!("{other:?}"),
        }))
    };
    let (one, two, full) = (Some(file(6)), Some(file(7)), Some(directory(9)));
    let (dir, vacant) = (Some(directory(5)), Some(directory(8)));
    use RenameFlag::{Exchange, NoReplace, Replace};
    assert_eq!(rename(None, two, Replace), Err(Refusal::NotFound));
    assert_eq!(rename(one, None, Replace), Ok(Some(RenameMode::Replace(None))));
    assert_eq!(rename(one, two, Replace), Ok(Some(RenameMode::Replace(Some(Ino(7))))));
    assert_eq!(rename(one, one, Replace), Ok(None), "two names of one file stay");
    assert_eq!(rename(one, one, Exchange), Ok(None));
    assert_eq!(rename(one, vacant, Replace), Err(Refusal::IsDirectory));
    assert_eq!(rename(dir, two, Replace), Err(Refusal::NotDirectory));
    assert_eq!(rename(dir, vacant, Replace), Ok(Some(RenameMode::Replace(Some(Ino(8))))));
    assert_eq!(rename(dir, full, Replace), Err(Refusal::NotEmpty));
    assert_eq!(rename(one, two, NoReplace), Err(Refusal::Exists));
    assert_eq!(rename(one, None, NoReplace), Ok(Some(RenameMode::Replace(None))));
    assert_eq!(rename(one, None, Exchange), Err(Refusal::NotFound));
    assert_eq!(rename(one, full, Exchange), Ok(Some(RenameMode::Exchange(Ino(9)))));
}

#[test]
fn a_call_that_needs_a_free_name_waits_for_the_server_where_closes_do() {
    let mut core = core();
    core.settings.lm = Lm::Close;
    let mut shell = Shell::knowing(vec![named("new", None), root(), number(9)]);
    let made = shell.call(&mut core, Call::Name(creation(true), caller())).unwrap();
    assert_eq!((made.ino, made.seq), (Some(Ino(9)), Some(1)), "the server is out of reach");
    assert!(shell.did.contains(&"await".to_owned()));
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    shell.truth.push(Truth::Attr(file(9)));
    let call = Call::Name(NameCall::SetAttr { ino: Ino(9), set }, caller());
    shell.did.clear();
    assert_eq!(shell.call(&mut core, call).unwrap().seq, Some(2));
    assert!(!shell.did.contains(&"await".to_owned()));
    assert_eq!(shell.log.iter().map(kind).collect::<Vec<_>>(), ["create", "setattr"]);
    assert_eq!(shell.asked, ["name", "number"], "the directory comes with the name");
}

/// Proves S14.3.
#[test]
fn nothing_is_added_where_the_bound_is_met_and_nothing_goes() {
    let mut core = core();
    core.settings.bound = crate::host::log::Bound(0);
    core.refuse_writes();
    let facts = || vec![named("new", None), root(), number(9)];
    assert_eq!(record_in(&mut core, facts(), creation(false)), Err(Refusal::NoSpace));
    let value = Some(vec![1]);
    let xattr = NameCall::SetXattr { ino: Ino(1), name: b"user.a".to_vec(), value };
    assert_eq!(record_in(&mut core, facts(), xattr), Err(Refusal::NoSpace));
}
