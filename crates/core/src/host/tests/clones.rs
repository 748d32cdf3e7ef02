//! Clones: the server copies all of a file into an empty one.

use super::calls::{Shell, caller};
use super::*;
use crate::host::call::Call;

const FROM: Ino = Ino(5);
const TO: Ino = Ino(6);

/// A host that has nothing of a file of 10 bytes, and an empty file.
fn two_files() -> Host {
    let mut core = core();
    for (ino, size) in [(FROM, 10), (TO, 0)] {
        let attr = Attr { size, nlink: 1, ..attr(ino.0, Kind::File, 3) };
        core.tree.install_node(Node { attr, target: None }, Time::default());
        core.file(ino).unwrap();
    }
    core
}

fn clone(from: u64, len: u64) -> Call {
    let bytes = Copied { from, to: 0, len };
    Call::Clone { from: FROM, to: TO, bytes, caller: caller() }
}

fn done() -> Vec<Outcome> {
    let touched = vec![Attr { size: 10, nlink: 1, ..attr(TO.0, Kind::File, 4) }];
    vec![Outcome::Done { touched }]
}

#[test]
fn a_clone_is_logged_and_waits_for_the_server() {
    let mut core = two_files();
    let mut shell = Shell::new().settling(done());
    shell.call(&mut core, clone(0, 10)).unwrap();
    assert_eq!(shell.kinds(), ["clone"]);
    assert_eq!(shell.did.last().map(String::as_str), Some("await"));
    assert!(!core.is_cloning(TO), "the server has said so");
}

#[test]
fn a_clone_of_a_part_or_into_data_is_copied_here() {
    let mut part = two_files();
    assert_eq!(Shell::new().call(&mut part, clone(3, 7)), Err(Refusal::NotSupported));
    let mut written = two_files();
    let data = Payload::Durable { len: 4 };
    let draft = written.draft_write(TO, 0, data, Timestamp::default()).unwrap();
    written.admit(draft, Time::default());
    let mut shell = Shell::new();
    assert_eq!(shell.call(&mut written, clone(0, 10)), Err(Refusal::NotSupported));
    assert!(shell.log.is_empty());
}

/// The server copied the source as it was before a map wrote to it.
#[test]
fn a_clone_of_what_a_map_may_write_is_copied_here() {
    let mut core = two_files();
    core.file(FROM).unwrap().mapped(true);
    assert_eq!(Shell::new().call(&mut core, clone(0, 10)), Err(Refusal::NotSupported));
    core.file(FROM).unwrap().mapped(false);
    assert!(Shell::new().settling(done()).call(&mut core, clone(0, 10)).is_ok());
}

#[test]
fn a_clone_that_cannot_be_logged_did_not_happen() {
    let mut core = two_files();
    let mut shell = Shell::failing(0, Refusal::NoSpace, false);
    assert_eq!(shell.call(&mut core, clone(0, 10)), Err(Refusal::NoSpace));
    assert!(!core.is_cloning(TO) && core.queue.is_empty());
}
