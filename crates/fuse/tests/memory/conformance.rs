//! The conformance suite, over every way that requests can come.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use segue_conformance::run;
use segue_fuse::Wishes;

use crate::mounted::{Mounted, Serving};

/// The kernel has no request for the first two, and the file system no access lists.
const NOT_OFFERED: &[&str] = &["offers::collapsing", "offers::inserting", "offers::access_lists"];

fn conforms(mounted: &Mounted) {
    let report = run(&mounted.root(), NOT_OFFERED);
    assert!(report.is_good(), "{report}");
}

#[test]
fn it_conforms_with_one_thread() {
    let Some(mounted) = Mounted::new(Serving::default()) else { return };
    conforms(&mounted);
    mounted.end().unwrap();
}

#[test]
fn it_conforms_with_two_threads() {
    let serving = Serving { threads: 2, ..Serving::default() };
    let Some(mounted) = Mounted::new(serving) else { return };
    conforms(&mounted);
    mounted.end().unwrap();
}

#[test]
fn it_conforms_over_io_uring() {
    let Some(mounted) = Mounted::new(Serving::uring()) else { return };
    conforms(&mounted);
    mounted.end().unwrap();
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
