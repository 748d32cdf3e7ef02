//! Handles: the way in which the kernel reads a file, and their closes.

use super::calls::{NOW, Shell, caller, write_call};
use super::*;
use crate::host::action::{Action, CallId, Done, Event};
use crate::host::cache::Way;
use crate::host::call::{By, Call, EditCall, NewHandle, OpenHandle, What};

/// A host with all of file 5, whose kernel takes containers.
fn whole() -> Host {
    let mut core = core();
    let node = Node { attr: Attr { size: 9, ..attr(5, Kind::File, 3) }, target: None };
    core.tree.install_node(node, Time::default());
    core.file(Ino(5)).unwrap().filled(0..9);
    (core.settings.backs, core.settings.backed_min) = (true, 9);
    core
}

fn opens(writable: bool) -> Call {
    let (node, synchronous, only_reads) = (5, false, !writable);
    Call::OpenHandle(OpenHandle { node, caller: caller(), writable, synchronous, only_reads })
}

fn open(shell: &mut Shell, core: &mut Host, writable: bool) -> NewHandle {
    shell.call(core, opens(writable)).unwrap().handle.unwrap()
}

#[test]
fn the_first_who_reads_has_the_kernel_read_and_who_writes_is_watched() {
    let mut core = whole();
    let mut shell = Shell::new();
    let first = open(&mut shell, &mut core, false);
    assert_eq!((first.way, shell.did.join(",").contains("Back(")), (Way::Backed, true));
    let mut second = Shell::new();
    assert_eq!(open(&mut second, &mut core, false).way, Way::Backed);
    assert!(second.did.is_empty(), "{:?}", second.did);
    let mut writer = Shell::new();
    let writing = open(&mut writer, &mut core, true);
    assert_eq!((writing.way, writer.did.join(",").contains("WatchMaps")), (Way::Direct, true));
    for handle in [first, writing] {
        let mut shell = Shell::new();
        shell.call(&mut core, Call::Close(handle.number)).unwrap();
        assert!(!shell.did.contains(&"EndBacking(Ino(5))".to_owned()));
    }
    assert!(core.is_open(Ino(5)));
}

#[test]
fn a_container_that_the_kernel_does_not_take_is_read_through_this_host() {
    let mut core = whole();
    let mut shell = Shell::failing(0, Refusal::Io, false);
    let handle = open(&mut shell, &mut core, false);
    assert_eq!((handle.way, core.nodes.backed_files().count()), (Way::Cached, 0));
    shell.call(&mut core, Call::Close(handle.number)).unwrap();
    assert!(!core.is_open(Ino(5)) && core.nodes.may_be_backed(Ino(5)));
}

/// A writer of a map would not be noticed.
#[test]
fn an_open_that_fails_leaves_no_handle() {
    let mut core = whole();
    let reader = open(&mut Shell::new(), &mut core, false);
    let mut shell = Shell::failing(0, Refusal::NoSpace, false);
    assert_eq!(shell.call(&mut core, opens(true)), Err(Refusal::NoSpace));
    shell.call(&mut core, Call::Close(reader.number)).unwrap();
    assert!(shell.did.contains(&"EndBacking(Ino(5))".to_owned()), "{:?}", shell.did);
    assert!(!core.is_open(Ino(5)) && !core.nodes.is_read(Ino(5)));
    assert_eq!(shell.call(&mut core, Call::Close(99)), Err(Refusal::Invalid));
}

#[test]
fn a_close_seals_what_was_written_and_counts_even_if_it_cannot() {
    for fails in [false, true] {
        let mut core = whole();
        let handle = open(&mut Shell::new(), &mut core, true);
        Shell::new().call(&mut core, write_call(handle.number, 0, 4)).unwrap();
        let mut shell = match fails {
            true => Shell::failing(0, Refusal::NoSpace, false),
            false => Shell::new(),
        };
        let closed = shell.call(&mut core, Call::Close(handle.number));
        assert_eq!((closed.is_err(), core.queue.len()), (fails, usize::from(!fails)));
        assert!(!core.is_open(Ino(5)));
        assert_eq!(core.handles.file(handle.number).unwrap_err(), Refusal::Invalid);
    }
}

/// Maps of a file are logged before its data are sealed.
#[test]
fn what_a_map_wrote_is_logged_before_the_close_seals() {
    let mut core = whole();
    let reader = open(&mut Shell::new(), &mut core, false);
    let writer = open(&mut Shell::new(), &mut core, true);
    Shell::new().call(&mut core, write_call(writer.number, 0, 4)).unwrap();
    let call = Call::Close(writer.number);
    core.handle(Event::Call { id: CallId(9), call }, NOW);
    let first = core.poll_action();
    assert!(matches!(first, Some(Action::LogMaps(_, Some(Ino(5))))), "{first:?}");
    assert!(core.is_open(Ino(5)) && core.handles.file(reader.number).is_ok());
}

/// The container stays, so the pending data in it would be cut off.
#[test]
fn what_is_pending_is_preserved_before_a_file_that_the_kernel_reads_is_emptied() {
    for is_read in [false, true] {
        let mut core = whole();
        if is_read {
            open(&mut Shell::new(), &mut core, false);
        }
        let writer = open(&mut Shell::new(), &mut core, true);
        Shell::new().call(&mut core, write_call(writer.number, 0, 4)).unwrap();
        assert!(seal(&mut core, 5));
        let (by, what) = (By::Name(caller()), What::Resize { size: 0 });
        let mut shell = Shell::new();
        let container = core.container(Ino(5));
        let edit = EditCall { ino: Ino(5), by, what, kills_set_ids: false };
        shell.call(&mut core, Call::Edit(edit)).unwrap();
        assert_eq!(shell.did.contains(&"preserve".to_owned()), is_read, "{:?}", shell.did);
        assert_eq!(core.container(Ino(5)) == container, is_read);
    }
}

/// The call appended the same entry again and again.
#[test]
fn what_a_map_wrote_into_a_file_without_a_name_is_logged_once() {
    let mut core = whole();
    let reader = open(&mut Shell::new(), &mut core, false);
    core.tree.mark_orphan(Ino(5));
    let container = core.container(Ino(5)).unwrap();
    core.handle(Event::Call { id: CallId(9), call: Call::Mapped { ino: Ino(5), container } }, NOW);
    let append = core.poll_action();
    assert!(matches!(&append, Some(Action::Append(_, entry))
        if matches!(**entry, Entry::Nameless(_))));
    core.handle(Event::Done { id: CallId(9), done: Ok(Done::Carried) }, NOW);
    assert!(matches!(core.poll_action(), Some(Action::Reply(_, Ok(_)))));
    Shell::new().call(&mut core, Call::Close(reader.number)).unwrap();
}
