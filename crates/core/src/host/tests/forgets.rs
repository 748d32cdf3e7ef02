//! A server that was put back from a copy: what it has forgotten is forgotten here.

use super::calls::Shell;
use super::*;
use crate::host::cache::Ask;
use crate::host::call::Call;
use crate::wire::History;

/// A host with data of file 5, of version 3, and one whose server has the versions up to 2.
fn knowing() -> (Host, Call) {
    let mut core = core();
    let node = Node { attr: Attr { size: 10, ..attr(5, Kind::File, 3) }, target: None };
    core.tree.install_node(node, Time::default());
    let file = core.file(Ino(5)).unwrap();
    file.filled(0..10);
    (core, Call::Forget(History { epoch: 1, lives: vec![(1, 2)] }))
}

fn is_valid(core: &Host) -> bool {
    core.files[&Ino(5)].is_valid(0..10, 10)
}

#[test]
fn the_log_forgets_before_the_index_and_the_index_before_memory() {
    let (mut core, forget) = knowing();
    let mut shell = Shell::new();
    shell.call(&mut core, forget).unwrap();
    assert_eq!(shell.did, ["append", "forget notes", "ForgetData(Ino(5))"]);
    assert!(!is_valid(&core));
    assert_eq!(core.tree.latest(), version(1), "of the root");
}

/// The next connection is told again only if the latest version that is known says so.
#[test]
fn a_host_that_cannot_forget_on_its_disk_forgets_nothing_in_memory() {
    for at in 0..2 {
        let (mut core, forget) = knowing();
        let mut shell = Shell::failing(at, Refusal::NoSpace, false);
        assert_eq!(shell.call(&mut core, forget.clone()), Err(Refusal::NoSpace));
        assert!(is_valid(&core) && core.tree.latest().counter == 3, "{at}");
        Shell::new().call(&mut core, forget).unwrap();
        assert!(!is_valid(&core));
    }
}

#[test]
fn what_is_ahead_of_the_server_stays() {
    let (mut core, forget) = knowing();
    let data = Payload::Durable { len: 10 };
    let written = core.draft_write(Ino(5), 0, data, Timestamp::default()).unwrap();
    core.admit(written, Time::default());
    let mut shell = Shell::new();
    shell.call(&mut core, forget).unwrap();
    assert_eq!((shell.did.len(), is_valid(&core)), (2, true));
    // The next server may have version 3 again, and lack others. It tells that only to a host whose
    // latest noted version it does not have (seed 173 of the swarm with copies).
    assert!(core.take_notes().latest() <= Some(version(2)), "of what is ahead");
}

/// The next open was told to read the version that the server has no more.
#[test]
fn a_kernel_that_reads_what_the_server_has_no_more_is_left_with_it() {
    let (mut core, forget) = knowing();
    core.opened(Ino(5));
    core.nodes.open(5, Ask { only_reads: true, whole: true }).unwrap();
    let mut shell = Shell::new();
    shell.call(&mut core, forget).unwrap();
    assert_eq!(shell.did[2..], ["Leave(Ino(5))", "ForgetData(Ino(5))"]);
    assert!(core.nodes.is_left_behind(Ino(5)) && core.nodes.node(Ino(5)) != 5);
}
