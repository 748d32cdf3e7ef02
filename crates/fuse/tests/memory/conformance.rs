//! The conformance suite, over every way that requests can come.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use segue_conformance::run;
use segue_fuse::Wishes;

use crate::mounted::{Mounted, Serving};

/// The kernel has no request for the first two, and the file system no access lists.
const NOT_OFFERED: &[&str] = &["offers::collapsing", "offers::inserting", "offers::access_lists"];
/// Besides, where several threads serve. A close does not wait for its RELEASE, which lets go of
/// locks of flock(2) and of open file descriptions: who asks for such a lock right after the close
/// may be served before it.
const NOT_IN_ORDER: &[&str] =
    &["flock::released_on_last_close", "record_locks::ofd_are_kept_on_other_closes"];
/// What the suite is run on, and what it leaves out.
const DIRECTORY: &str = "SEGUE_TEST_DIRECTORY";
const LEFT_OUT: &str = "SEGUE_TEST_LEFT_OUT";

/// Runs the suite on a mount, in a process of its own: it forks, and a child that has the files
/// of all tests keeps them open.
fn conforms(serving: Serving, left_out: &[&str]) {
    let Some(mounted) = Mounted::new(serving) else { return };
    let mut suite = Command::new(std::env::current_exe().unwrap());
    suite.args(["--exact", "conformance::suite", "--ignored", "--nocapture"]);
    suite.env(DIRECTORY, mounted.root()).env(LEFT_OUT, [NOT_OFFERED, left_out].concat().join(" "));
    let run = suite.output().unwrap();
    let said = [run.stdout, run.stderr].concat();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&said));
    mounted.end().unwrap();
}

#[test]
#[ignore = "the process that other tests run the suite in"]
fn suite() {
    let directory = PathBuf::from(std::env::var_os(DIRECTORY).unwrap());
    let left_out = std::env::var(LEFT_OUT).unwrap();
    let report = run(&directory, &left_out.split(' ').collect::<Vec<_>>());
    assert!(report.is_good(), "{report}");
}

#[test]
fn it_conforms_with_one_thread() {
    conforms(Serving::default(), &[]);
}

#[test]
fn it_conforms_with_two_threads() {
    conforms(Serving { threads: 2, ..Serving::default() }, NOT_IN_ORDER);
}

#[test]
fn it_conforms_over_io_uring() {
    conforms(Serving::uring(), NOT_IN_ORDER);
}

/// The kernel counts in pages. Where an entry had less room than it wants, requests came over
/// the device instead, and nobody noticed.
#[test]
fn requests_come_over_the_rings_whatever_the_longest_write_is() {
    for write_max in [0, 4096, 9000, 1 << 20] {
        let on_rings = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&on_rings);
        let uring = Serving::uring();
        let serving = Serving { wishes: Wishes { write_max, ..uring.wishes }, ..uring };
        let mounted = Mounted::hooked(serving, move |_, _, reply| {
            let is_on_ring =
                thread::current().name().is_some_and(|name| name.starts_with("fuse-ring"));
            counted.fetch_add(usize::from(is_on_ring), Ordering::SeqCst);
            Some(reply)
        });
        let Some(mounted) = mounted else { return };
        std::fs::write(mounted.path("f"), vec![b'a'; 100_000]).unwrap();
        assert_eq!(std::fs::read(mounted.path("f")).unwrap(), vec![b'a'; 100_000]);
        assert!(on_rings.load(Ordering::SeqCst) > 0, "writes of {write_max}");
        mounted.end().unwrap();
    }
}
