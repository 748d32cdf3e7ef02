//! Signals to those who wait for a dead link, and unmounting whatever hangs.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use segue_bed::{LinkSpec, Proc};

use crate::tree::{hash, hash_of, noise};
use crate::world::{CLOSE, World, arg, end, eventually, halt, save, segue, wait_for_state};

/// Three times the two seconds that are promised.
const DIES_WITHIN: Duration = Duration::from_secs(6);

fn signal(process: &Proc, signal: Signal) {
    let pid = Pid::from_raw(process.pid().cast_signed()).unwrap();
    kill_process(pid, signal).unwrap();
}

/// Whether a process sleeps: in a call, as those here have no other reason to.
fn sleeps(process: &Proc) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", process.pid())).unwrap_or_default();
    let name = status.lines().find_map(|line| line.strip_prefix("Name:\t")).unwrap_or_default();
    let state = status.lines().find_map(|line| line.strip_prefix("State:\t")).unwrap_or_default();
    // Before execve(2) it has the name of this process.
    ["cat", "perl"].contains(&name) && state.starts_with(['S', 'D'])
}

/// Files whose names are known on host a, and nothing of their contents.
fn names_only(world: &World, dir: &Path, count: usize) -> Vec<String> {
    let names: Vec<String> = (0..count).map(|number| format!("file{number}")).collect();
    let other = world.mount_with(&world.b, "write-back=async");
    for name in &names {
        save(&other.path().join(name), &noise(7, 100_000)).unwrap();
    }
    other.sync().unwrap();
    drop(other);
    assert_eq!(fs::read_dir(dir).unwrap().count(), count);
    for name in &names {
        fs::metadata(dir.join(name)).unwrap();
    }
    names
}

/// 200 processes that wait for a dead link all die of SIGKILL, whatever `grace` is; the mount
/// can be taken away after that.
/// Proves S16.1.
#[test]
fn two_hundred_who_wait_can_be_killed() {
    let Some(world) = World::new() else { return };
    let mut mount = world.mount_with(&world.a, "grace=10min");
    let names = names_only(&world, mount.path(), 200);
    world.a.link_down().unwrap();
    let mut waiting: Vec<Proc> = names
        .iter()
        .map(|name| {
            let mut cat = world.a.command("cat");
            cat.arg(mount.path().join(name)).stdout(Stdio::null()).stderr(Stdio::null());
            world.a.spawn(&mut cat).unwrap()
        })
        .collect();
    eventually("all wait in a call", || waiting.iter().all(sleeps));
    // Long enough for any that do not really wait to end.
    std::thread::sleep(Duration::from_secs(1));
    for process in &mut waiting {
        assert_eq!(process.try_wait().unwrap(), None, "one did not wait");
    }
    let killed = Instant::now();
    waiting.iter().for_each(|process| signal(process, Signal::KILL));
    for process in &mut waiting {
        while process.try_wait().unwrap().is_none() {
            assert!(killed.elapsed() < DIES_WITHIN, "one does not die");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    mount.umount(&["--now"]).unwrap();
    assert!(!mount.is_mounted());
    drop(mount);
    world.a.link_up().unwrap();
    let mount = world.mount(&world.a);
    for name in &names {
        assert_eq!(hash(&mount.path().join(name)), hash_of(&noise(7, 100_000)), "{name}");
    }
}

/// A process that is killed with a written file open dies though closing waits for the server,
/// and what it wrote is kept.
/// Proves S16.1.
#[test]
fn a_writer_that_waits_for_close_can_be_killed() {
    let Some(world) = World::new() else { return };
    let mount = world.mount_with(&world.a, "grace=10min");
    let path = mount.path().join("file");
    save(&path, b"before").unwrap();
    world.a.link_down().unwrap();
    let script = "open F, '>>', $ARGV[0] or die; syswrite F, 'after'; \
                  print STDOUT \"written\\n\"; sleep 600";
    let mut perl = world.a.command("perl");
    perl.args(["-e", &format!("$| = 1; {script}"), arg(&path)]).stdout(Stdio::piped());
    let mut writer = world.a.spawn(&mut perl).unwrap();
    // Opening asks the server first, until the link is known to be down.
    eventually("the writer sleeps", || fs::metadata(&path).is_ok_and(|found| found.len() == 11));
    let killed = Instant::now();
    signal(&writer, Signal::KILL);
    while writer.try_wait().unwrap().is_none() {
        assert!(killed.elapsed() < DIES_WITHIN, "it does not die");
        std::thread::sleep(Duration::from_millis(10));
    }
    world.a.link_up().unwrap();
    wait_for_state(&world.a, &mount, "online");
    mount.sync().unwrap();
    let other = world.mount(&world.b);
    assert_eq!(fs::read(other.path().join("file")).unwrap(), b"beforeafter");
}

/// While the link is down, a caught signal ends a read with EINTR.
/// Proves S16.3.
#[test]
fn a_caught_signal_interrupts_who_waits_for_a_dead_link() {
    let Some(world) = World::new() else { return };
    let mount = world.mount_with(&world.a, "grace=10min");
    let names = names_only(&world, mount.path(), 1);
    world.a.link_down().unwrap();
    world.lose_link(&world.a, &mount);
    let script = "$SIG{USR1} = sub { $caught = 1 }; \
        sysopen(F, $ARGV[0], 0) && sysread(F, $bytes, 10) or print \"$!\\n\"; \
        print $caught ? \"caught\\n\" : \"not caught\\n\"";
    let mut perl = world.a.command("perl");
    perl.args(["-e", script, arg(&mount.path().join(&names[0]))]).stdout(Stdio::piped());
    let mut reader = world.a.spawn(&mut perl).unwrap();
    eventually("the reader waits", || sleeps(&reader));
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(reader.try_wait().unwrap(), None, "it did not wait");
    signal(&reader, Signal::USR1);
    reader.wait().unwrap();
    let said = std::io::read_to_string(reader.stdout().unwrap()).unwrap();
    assert_eq!(said, "Interrupted system call\ncaught\n");
}

/// The same for what changes a file: each call waits for the server until a signal comes.
/// Proves S3.3, S4.9, S16.3.
#[test]
fn a_caught_signal_interrupts_who_changes_a_file_without_a_link() {
    let Some(world) = World::new() else { return };
    let mount = world.mount_with(&world.a, &format!("grace=10min,fsync=server,{CLOSE}"));
    let path = mount.path().join("file");
    save(&path, b"before").unwrap();
    world.a.link_down().unwrap();
    world.lose_link(&world.a, &mount);
    let script = "use IO::Handle; use POSIX (); use Time::HiRes qw(setitimer ITIMER_REAL); \
        $SIG{ALRM} = sub {}; setitimer(ITIMER_REAL, 1, 1); $| = 1; \
        sub told { print $_[0] ? \"$_[1] done\n\" : \"$_[1] $!\n\" } \
        sysopen(F, $ARGV[0], 1 | 02000) or die \"open: $!\"; \
        syswrite(F, 'after') == 5 or die \"write: $!\"; \
        told(F->sync, 'fsync'); told(POSIX::close(fileno F), 'close'); \
        told(truncate($ARGV[0], 9), 'truncate')";
    let mut perl = world.a.command("timeout");
    let ended = end(perl.args(["60", "perl", "-e", script, arg(&path)]));
    let eintr = "Interrupted system call";
    assert_eq!(ended.out, format!("fsync {eintr}\nclose {eintr}\ntruncate {eintr}\n"), "{ended:?}");
    world.a.link_up().unwrap();
    mount.sync().unwrap();
    let other = world.mount(&world.b);
    assert_eq!(fs::read(other.path().join("file")).unwrap(), b"beforeaft");
}

/// A process that ends while the link is down does not wait for its files to be closed.
/// Proves S16.5.
#[test]
fn a_process_that_ends_without_a_link_waits_for_no_close() {
    let Some(world) = World::new() else { return };
    let mount = world.mount_with(&world.a, "grace=10min");
    let path = mount.path().join("file");
    save(&path, b"before").unwrap();
    world.a.link_down().unwrap();
    world.lose_link(&world.a, &mount);
    // Without _exit perl would close the file itself.
    let script = "use POSIX (); sysopen(F, $ARGV[0], 1 | 02000) or die; \
        syswrite(F, 'after'); POSIX::_exit(0)";
    let mut perl = world.a.command("perl");
    let mut writer = world.a.spawn(perl.args(["-e", script, arg(&path)])).unwrap();
    // Less than `grace`.
    eventually("it ends", || writer.try_wait().unwrap().is_some());
    world.a.link_up().unwrap();
    mount.sync().unwrap();
    let other = world.mount(&world.b);
    assert_eq!(fs::read(other.path().join("file")).unwrap(), b"beforeafter");
}

/// While the server answers, however slowly, a handled signal fails no call.
/// Proves S16.2.
#[test]
fn a_signal_that_is_handled_does_not_fail_calls_on_a_slow_link() {
    let Some(world) = World::new() else { return };
    let mount = world.mount(&world.a);
    let names = names_only(&world, mount.path(), 20);
    world.a.set_link(LinkSpec::kb_per_s(128).with_rtt(Duration::from_millis(200))).unwrap();
    // A tick each 20 ms, as a progress display has.
    let script = "use Time::HiRes qw(setitimer ITIMER_REAL); \
        $SIG{ALRM} = sub { $ticks++ }; setitimer(ITIMER_REAL, 0.02, 0.02); \
        for (@ARGV) { \
            stat($_) or die \"stat: $!\"; \
            sysopen(F, $_, 0) or die \"open: $!\"; \
            while (1) { \
                $n = sysread(F, $bytes, 65536); defined $n or die \"read: $!\"; last if !$n \
            } \
            close F or die \"close: $!\"; \
            open(F, '>', \"$_.new\") or die \"create: $!\"; print F 'x'; \
            close F or die \"close: $!\"; \
            rename(\"$_.new\", $_) or die \"rename: $!\"; \
        } \
        setitimer(ITIMER_REAL, 0); print $ticks > 10 ? 'ticked' : \"only $ticks\"";
    let paths: Vec<_> = names.iter().map(|name| mount.path().join(name)).collect();
    let ended = end(world.a.command("perl").args(["-e", script]).args(&paths));
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "ticked"), "{ended:?}");
}

/// `umount --now` ends, and lets everybody go, though the mount's process hangs; what it had
/// accepted is sent after the next mount.
/// Proves S12.7.
#[test]
fn a_mount_whose_process_hangs_is_taken_away() {
    let Some(world) = World::new() else { return };
    let mount = world.mount_with(&world.a, "write-back=async");
    // Who has looked at a directory can make files there without a network.
    assert_eq!(fs::read_dir(mount.path()).unwrap().count(), 0);
    world.a.link_down().unwrap();
    save(&mount.path().join("kept"), &noise(3, 200_000)).unwrap();
    let pid = Pid::from_raw(mount.pid().unwrap().cast_signed()).unwrap();
    halt(pid);
    let mut list = world.a.command("ls");
    list.arg(mount.path()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut waiting = world.a.spawn(&mut list).unwrap();
    for command in ["status", "log"] {
        let silent = segue(&world.a, &[command, arg(mount.path())]);
        assert_eq!(silent.code, Some(1), "{silent:?}");
        assert!(silent.err.contains("does not answer within"), "{silent:?}");
    }
    let ended = segue(&world.a, &["umount", "--now", arg(mount.path())]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.err.contains("hung") && ended.err.contains("next mount"), "{ended:?}");
    assert!(!mount.is_mounted());
    eventually("who waited is let go", || waiting.try_wait().unwrap().is_some());
    drop(mount);
    world.a.link_up().unwrap();
    let mount = world.mount(&world.a);
    assert_eq!(hash(&mount.path().join("kept")), hash_of(&noise(3, 200_000)));
}

/// A process that died leaves ENOTCONN behind; mounting on the same place again cleans up.
/// Proves S12.8.
#[test]
fn mounting_again_clears_what_a_dead_process_left() {
    let Some(world) = World::new() else { return };
    let mount = world.mount(&world.a);
    save(&mount.path().join("file"), b"text").unwrap();
    let pid = Pid::from_raw(mount.pid().unwrap().cast_signed()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    eventually("nobody answers", || fs::metadata(mount.path()).is_err());
    let error = fs::read(mount.path().join("file")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(107), "ENOTCONN: {error}");
    let again = world.mount(&world.a);
    assert_eq!(fs::read(again.path().join("file")).unwrap(), b"text");
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let there = table.lines().filter(|line| line.contains(arg(again.path()))).count();
    assert_eq!(there, 1, "{table}");
}

/// execve(2) closes files under a lock that whoever looks into the process may have to wait
/// for: the mount, which is asked to close them, must not.
#[test]
fn a_program_that_becomes_another_closes_its_files() {
    let Some(world) = World::new() else { return };
    let mount = world.mount(&world.a);
    let path = mount.path().join("file");
    let script = "open F, '>', $ARGV[0] or die; syswrite F, 'written'; exec 'cat', $ARGV[0]";
    let ended = end(world.a.command("timeout").args(["60", "perl", "-e", script, arg(&path)]));
    assert_eq!((ended.code, ended.out.as_str()), (Some(0), "written"), "{ended:?}");
}
