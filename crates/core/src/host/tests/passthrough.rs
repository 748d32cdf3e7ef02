//! Files that the kernel reads past us.

use super::calls::{Shell, Truth};
use super::*;
use crate::host::cache::{Ask, LeftBehind, Way};
use crate::host::call::{Call, Look};

#[test]
fn whole_is_what_is_all_here_and_all_sent() {
    let mut core = core();
    create(&mut core);
    write(&mut core, 5, 0..100);
    assert_eq!(core.whole(Ino(5)), None, "it was written");
    seal(&mut core, 5);
    let done = |counter| {
        let attr = Attr { size: 100, ..attr(5, Kind::File, counter) };
        Outcome::Done { touched: vec![attr] }
    };
    settle(&mut core, 1, &done(2));
    assert_eq!(core.whole(Ino(5)), None, "it is being sent");
    settle(&mut core, 2, &done(3));
    assert_eq!(core.whole(Ino(5)), Some(100));
    core.files.get_mut(&Ino(5)).unwrap().spoiled(50..51);
    assert_eq!(core.whole(Ino(5)), None, "a byte is missing");
}

/// Who reads a file past us sees at once that it was emptied, so it keeps its container.
#[test]
fn a_file_that_is_emptied_stays_in_its_container_if_that_is_asked_for() {
    for stays in [false, true] {
        let mut core = core();
        create(&mut core);
        write(&mut core, 5, 0..100);
        seal(&mut core, 5);
        assert_eq!(core.to_preserve(Ino(5), &(0..100)), [(2, 0..100)]);
        let container = core.container(Ino(5));
        let cut = core.draft_resize(Ino(5), 0, stays, Timestamp::default()).unwrap();
        core.admit(cut, Time::default());
        assert_eq!(core.container(Ino(5)) == container, stays);
        assert!(!core.files[&Ino(5)].is_valid(0..1, 1));
    }
}

/// What a map wrote was taken for the server's by the next process.
#[test]
fn of_what_a_map_may_change_nothing_is_noted_as_valid() {
    let mut core = core();
    core.tree.install_node(Node { attr: attr(7, Kind::File, 3), target: None }, Time::default());
    core.file(Ino(7)).unwrap().filled(0..100);
    for (is_mapped, noted) in [(true, 0), (false, 100)] {
        core.files.get_mut(&Ino(7)).unwrap().mapped(is_mapped);
        let notes = core.take_notes();
        assert_eq!(notes.files[0].1.valid.bytes(), noted);
        core.noted(&notes, true);
        assert_eq!(core.files.contains_key(&Ino(7)), is_mapped);
    }
}

/// What a map goes on to write would be lost with the container.
#[test]
fn what_a_map_may_change_is_not_evicted_but_can_be_given_up() {
    let mut core = core();
    core.tree.install_node(Node { attr: attr(7, Kind::File, 3), target: None }, Time::default());
    core.file(Ino(7)).unwrap().filled(0..100);
    core.files.get_mut(&Ino(7)).unwrap().mapped(true);
    let container = core.container(Ino(7)).unwrap();
    let notes = core.take_notes();
    core.noted(&notes, true);
    assert!(!core.evict(Ino(7), container));
    core.opened(Ino(7));
    assert!(!core.let_go_of_data(Ino(7)), "it is open");
    core.closed(Ino(7));
    write(&mut core, 7, 0..5);
    assert!(!core.let_go_of_data(Ino(7)), "the server lacks some of it");
    seal(&mut core, 7);
    assert!(!core.let_go_of_data(Ino(7)), "and is still to get it");
    let touched = vec![attr(7, Kind::File, 4)];
    settle(&mut core, 1, &Outcome::Done { touched });
    assert!(core.let_go_of_data(Ino(7)));
    assert_eq!(core.take_scrap(), [Scrap::Container(Ino(7), container)].into());
    assert!(!core.files[&Ino(7)].is_mapped() && core.container(Ino(7)) != Some(container));
}

/// Open handles go on to read the old version, and lookups find the new one.
#[test]
fn a_file_that_the_kernel_reads_gets_another_number_with_other_data() {
    let mut core = core();
    let told =
        |counter| Node { attr: Attr { size: 9, ..attr(7, Kind::File, counter) }, target: None };
    core.tree.install_node(told(3), Time::default());
    core.load(Ino(7), None);
    core.file(Ino(7)).unwrap().filled(0..9);
    core.settings.backed_min = 9;
    assert!(core.is_worth_backing(Ino(7)));
    core.opened(Ino(7));
    let reads = Ask { only_reads: true, whole: true };
    assert_eq!(core.nodes.open(7, reads), Ok(Way::Backed));
    let container = core.container(Ino(7));
    let mut shell = Shell::knowing(vec![Truth::Attr(told(4).attr)]);
    shell.call(&mut core, Call::Look(Look::Attr(Ino(7)))).unwrap();
    assert_eq!(shell.did, ["Leave(Ino(7))", "ForgetData(Ino(7))"]);
    assert_ne!(core.container(Ino(7)), container);
    assert_eq!((core.nodes.node(Ino(7)) == 7, core.nodes.open(7, reads)), (false, Err(LeftBehind)));
    assert!(!core.is_worth_backing(Ino(7)), "nothing of it is here");
}
