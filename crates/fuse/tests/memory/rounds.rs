//! Mounts that end over and over, each a little later in what is going on in them: while the
//! rings are made, while requests are on their way to the file system, while all of them wait.
//!
//! What this is about is processes that hang in the kernel. A watchdog aborts such a mount, so
//! the test fails and nobody hangs for ever.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::ends::{Daemon, READERS};
use crate::interrupts::{Processes, hold_reads, holding, waiting};
use crate::mounted::{Mounted, Serving, until};

/// How often. Over io_uring there is more to go wrong.
fn rounds(serving: Serving) -> std::ops::Range<u32> {
    if serving.wishes.uring { 0..50 } else { 0..10 }
}

fn readers(file: &Path) -> Processes {
    Processes::start(Command::new("cat").arg(file).stderr(Stdio::null()), READERS)
}

/// A pause that is different in each round, from none on.
fn pause(round: u32) {
    std::thread::sleep(Duration::from_micros((500 * (round % 40)).into()));
}

#[test]
fn a_mount_is_aborted_while_everybody_reads() {
    for serving in Serving::ways() {
        for round in rounds(serving) {
            let Some((mounted, locked)) = holding(serving) else { break };
            let mut readers = readers(&mounted.path("held"));
            pause(round);
            mounted.abort().unwrap();
            readers.wait();
            drop(locked);
        }
    }
}

#[test]
fn a_mount_is_aborted_while_its_readers_are_killed() {
    for serving in Serving::ways() {
        for round in rounds(serving) {
            let Some((mounted, locked)) = holding(serving) else { break };
            let mut readers = readers(&mounted.path("held"));
            until("the requests", || (waiting(&mounted).0 == READERS).then_some(()));
            std::thread::scope(|scope| {
                scope.spawn(|| readers.kill());
                pause(round);
                mounted.abort().unwrap();
            });
            drop(locked);
        }
    }
}

/// Over io_uring the kernel keeps a signal to itself that comes before a request's delivery, and
/// readers that were killed just then stayed.
#[test]
fn readers_are_killed_and_the_mount_is_unmounted() {
    for serving in Serving::ways() {
        for round in rounds(serving) {
            let Some((mounted, locked)) = holding(serving) else { break };
            let mut readers = readers(&mounted.path("held"));
            pause(round);
            readers.kill();
            drop(locked);
            mounted.end().unwrap();
        }
    }
}

#[test]
fn a_daemon_is_killed_while_everybody_reads() {
    for serving in Serving::ways() {
        for round in rounds(serving) {
            let Some((mut daemon, place)) = Daemon::start(serving) else { break };
            let mut readers = readers(&place.root().join("held"));
            pause(round);
            daemon.0.kill().unwrap();
            readers.wait();
        }
    }
}

#[test]
fn a_mount_is_unmounted_as_soon_as_it_is_there() {
    for serving in Serving::ways() {
        for round in rounds(serving) {
            let Some(mounted) = Mounted::hooked(serving, hold_reads) else { break };
            pause(round);
            if round % 2 == 0 {
                fs::metadata(mounted.path("nothing")).unwrap_err();
            }
            mounted.end().unwrap();
        }
    }
}
