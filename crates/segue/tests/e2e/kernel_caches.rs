//! The kernel keeps names and attributes for longer than the lease, and gives them up before that
//! ends.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use segue_bed::segue::SegueMount;

use crate::git;
use crate::world::{STALE, World, arg, counted, eventually, halt, save, segue, sh};

/// Longer than a lease lasts.
const LEASE: Duration = Duration::from_secs(25);
/// Files, in directories of so many.
const FILES: u64 = 2_000;
const EACH: u64 = 50;

/// Requests of the kernel so far.
fn requests(world: &World, mount: &SegueMount) -> u64 {
    let metrics = segue(&world.b, &["metrics", arg(mount.path())]).out;
    counted(&metrics, "segue_kernel_requests_total", "")
}

/// Runs a command that prints what is `expected`. Returns the requests of the kernel meanwhile.
fn asked_by(world: &World, mount: &SegueMount, command: &str, expected: &str) -> u64 {
    let before = requests(world, mount);
    assert_eq!(sh(mount.path(), command), expected);
    requests(world, mount) - before
}

/// Makes files, and returns a command that looks at each of them by its name, as git does.
fn files(dir: &Path) -> String {
    let directories = FILES / EACH;
    let make = "mkdir d$d; touch $(seq -f d$d/%g";
    sh(dir, &format!("for d in $(seq {directories}); do {make} {EACH}); done"));
    let names = (1..=directories).flat_map(|d| (1..=EACH).map(move |file| format!("d{d}/{file}")));
    fs::write(dir.join("names"), names.collect::<Vec<_>>().join("\n")).unwrap();
    "xargs stat -c '%n %s %a' <names | md5sum".into()
}

/// Nothing changes for longer than a lease: the kernel knows everything still, because the lease is
/// renewed.
/// Proves S6.7.
#[test]
fn after_a_rest_the_kernel_asks_nothing_about_unchanged_files() {
    let Some(world) = World::new() else { return };
    let (mount, other) = (world.mount(&world.a), world.mount(&world.b));
    let stat = files(mount.path());
    sh(mount.path(), "git init -q -b main .");
    git::configure(mount.path());
    sh(mount.path(), "git add . && git commit -qm first");
    mount.sync().unwrap();
    let look = "GIT_OPTIONAL_LOCKS=0 git -c safe.directory='*' status --porcelain";
    let there = other.path();
    let seen = sh(there, &stat);
    (0..3).for_each(|_| {
        assert_eq!(sh(there, look), "");
        std::thread::sleep(STALE);
    });
    for (command, expected) in [(stat.as_str(), seen.as_str()), (look, "")] {
        // A machine that is so busy that the server does not answer for a lease has it all again.
        let asked = (0..3).map(|_| {
            std::thread::sleep(LEASE);
            asked_by(&world, &other, command, expected)
        });
        let asked = asked.take_while(|asked| *asked >= FILES / 5).collect::<Vec<_>>();
        assert!(asked.len() < 3, "{asked:?} requests for {FILES} files: {command}");
    }
    sh(mount.path(), "chmod 600 d7/7; mv d8/8 d8/other");
    mount.sync().unwrap();
    assert_ne!(sh(there, "stat -c %a d7/7; ls d8"), sh(there, "stat -c %a d7/8; ls d9"));
    assert_eq!(sh(there, "stat -c %a d7/7; ls d8"), sh(mount.path(), "stat -c %a d7/7; ls d8"));
}

/// The link is down until the lease is over: the kernel knows nothing any more that it was told
/// during the lease, and a change of the other host shows as soon as there is a connection.
/// Proves S6.2, S6.11, S6.14.
#[test]
fn a_kernel_gives_up_what_it_was_told_before_the_lease_ends() {
    let Some(world) = World::new() else { return };
    let (mount, other) = world.closing_mounts();
    let (here, there) = (mount.path(), other.path());
    let stat = files(here);
    mount.sync().unwrap();
    let seen = sh(there, &stat);
    eventually("the kernel knows all files", || {
        std::thread::sleep(STALE);
        asked_by(&world, &other, &stat, &seen) < FILES / 5
    });
    world.b.link_down().unwrap();
    // This close waits until nobody relies on the older state.
    save(&here.join("d1/1"), b"new").unwrap();
    sh(here, "chmod 600 d1/2; mv d1/3 d1/other");
    mount.sync().unwrap();
    // Nobody can be asked.
    let asked = asked_by(&world, &other, &stat, &seen);
    assert!(asked >= FILES, "{asked} requests about {FILES} files: the kernel answered itself");
    world.b.link_up().unwrap();
    // A connection that is silent counts as online until it is given up.
    let is_seen = || fs::read(there.join("d1/1")).unwrap() == b"new";
    eventually("the other host's change is seen", is_seen);
    let look = "stat -c '%s %a' d1/1 d1/2; ls d1";
    assert_eq!(sh(there, look), sh(here, look));
}

/// A mount that was stopped for longer than the lease takes everything back as soon as it goes on.
/// Proves S6.24.
#[test]
fn a_mount_that_was_stopped_gives_up_what_the_kernel_was_told() {
    let Some(world) = World::new() else { return };
    let (mount, other) = (world.mount(&world.a), world.mount(&world.b));
    let (here, there) = (mount.path(), other.path());
    let stat = files(here);
    mount.sync().unwrap();
    let (seen, file) = (sh(there, &stat), there.join("d1/1"));
    let mode = || fs::metadata(&file).unwrap().permissions().mode() & 0o777;
    let old = mode();
    let pid = Pid::from_raw(i32::try_from(other.pid().unwrap()).unwrap()).unwrap();
    halt(pid);
    sh(here, "chmod 600 d1/1; mv d1/2 d1/other");
    // The server gives the stopped host up meanwhile.
    mount.sync().unwrap();
    assert_eq!(mode(), old, "the kernel knows nothing of it");
    kill_process(pid, Signal::CONT).unwrap();
    eventually("the change is seen", || mode() == 0o600);
    eventually("the new name is seen", || there.join("d1/other").exists());
    assert!(!there.join("d1/2").exists());
    assert_ne!(sh(there, &format!("{stat}; true")), seen);
}
