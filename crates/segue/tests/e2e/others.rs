//! Mounts of other users and of other mount namespaces: which of them a command of root reaches.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use segue_bed::{Host, Proc, run, run_detaching};

use crate::world::{Ended, World, arg, end, eventually, halt};

/// An account that every Debian has: fusermount3 asks for its name.
const USER: u32 = 5;

/// Makes a mount namespace with a /run and a /tmp of its own, and without the mounts of others.
const ALONE: &str = "
    grep ' - fuse\\.segue ' /proc/self/mountinfo | cut -d ' ' -f 5 | while read -r point; do
        umount --no-canonicalize -l \"$point\" || true
    done
    mount -t tmpfs tmpfs /run
    mkdir -p /run/keep /run/user/$2
    chown $2:$2 /run/user/$2
    mount --bind \"$1\" /run/keep
    mount -t tmpfs tmpfs /tmp
    mkdir -p \"$1\"
    mount --move /run/keep \"$1\"
    echo user_allow_other >/run/fuse.conf
    mount --bind /run/fuse.conf /etc/fuse.conf
    echo $$ >\"$1/$3\"
    exec sleep 900";

/// A mount namespace that shows only the mounts that are made in it: a command for all mounts
/// concerns the mounts of one test.
struct Room<'a> {
    world: &'a World,
    process: Proc,
}

impl<'a> Room<'a> {
    /// A room on the machine of the tests.
    fn new(world: &'a World) -> Room<'a> {
        let mut unshare = world.a.command("unshare");
        unshare.args(["--mount", "--propagation", "private", "sh", "-euc", ALONE, "sh"]);
        unshare.args([arg(world.bed.dir()), &USER.to_string(), "room"]);
        Room::made(world, unshare, "room")
    }

    /// A room that has the same /run and /tmp, and the mounts that this one shows now.
    fn inner(&self, name: &str) -> Room<'a> {
        let mut unshare = self.command(&self.world.a, "unshare");
        let script = "echo $$ >\"$1/$2\"; exec sleep 900";
        unshare.args(["--mount", "--propagation", "private", "sh", "-euc", script, "sh"]);
        unshare.args([arg(self.world.bed.dir()), name]);
        Room::made(self.world, unshare, name)
    }

    fn made(world: &'a World, mut unshare: Command, name: &str) -> Room<'a> {
        let note = world.bed.dir().join(name);
        let mut process = world.a.spawn(&mut unshare).unwrap();
        eventually("the namespace is made", || {
            assert_eq!(process.try_wait().unwrap(), None, "the namespace has ended");
            fs::read_to_string(&note).is_ok_and(|pid| pid.ends_with('\n'))
        });
        assert_eq!(fs::read_to_string(&note).unwrap().trim(), process.pid().to_string());
        Room { world, process }
    }

    /// A command in this room, on `host`.
    fn command(&self, host: &Host, program: &str) -> Command {
        let mut command = host.command("nsenter");
        command.arg(format!("--mount=/proc/{}/ns/mnt", self.process.pid())).arg("--");
        match program {
            "segue" => command.arg(self.world.bed.dir().join("segue")),
            program => command.arg(program),
        };
        command
    }

    /// Runs `segue` as root of host a.
    fn segue(&self, args: &[&str]) -> Ended {
        end(self.command(&self.world.a, "segue").args(args))
    }

    /// Runs a shell script that must succeed.
    fn sh(&self, script: &str) -> String {
        run(self.command(&self.world.a, "sh").args(["-euc", script])).unwrap()
    }

    /// Mounts volume home on `point` as root of `host`.
    fn mount(&self, host: &Host, point: &Path) {
        let mut mount = self.command(host, "segue");
        mount.args(["mount", &self.world.url(host), arg(point)]);
        run_detaching(&mut mount, &host.dir().join("mount.log")).unwrap();
    }

    /// A command of a user without privileges, on host a.
    fn of_user(&self, words: &[&str]) -> Command {
        let home = self.world.a.mkdir("home-of-user").unwrap();
        std::os::unix::fs::chown(&home, Some(USER), Some(USER)).unwrap();
        let mut command = self.command(&self.world.a, "setpriv");
        command.args([format!("--reuid={USER}"), format!("--regid={USER}")]);
        command.arg("--clear-groups").args(words);
        command.env("HOME", home).env("XDG_RUNTIME_DIR", format!("/run/user/{USER}"));
        command
    }

    /// The user's mount of volume home.
    fn mount_of_user(&self) -> PathBuf {
        let point = self.world.a.mkdir("mnt-of-user").unwrap();
        std::os::unix::fs::chown(&point, Some(USER), Some(USER)).unwrap();
        let (invite, program) =
            (self.world.server.invite(&[]).unwrap(), self.world.bed.dir().join("segue"));
        let words = [arg(&program), "mount", &invite, arg(&point), "-o", "allow-other"];
        let log = self.world.a.dir().join("mount-of-user.log");
        run_detaching(&mut self.of_user(&words), &log).unwrap();
        point
    }

    /// The control socket of the user's mount.
    fn socket_of_user(&self) -> String {
        let found = self.sh(&format!("ls /run/user/{USER}/segue/*.sock"));
        assert_eq!(found.lines().count(), 1, "{found}");
        found.trim().to_owned()
    }

    /// Where `segue status` with `args` finds mounts.
    fn status(&self, args: &[&str]) -> Vec<PathBuf> {
        let ended = self.segue(&[&["status", "--json"], args].concat());
        let status: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
        let mounts = status["mounts"].as_array().unwrap().iter();
        let mut points: Vec<PathBuf> =
            mounts.map(|mount| mount["mountpoint"].as_str().unwrap().into()).collect();
        points.sort();
        points
    }

    /// The process that serves the mount at `point` in this room.
    fn server_of(&self, point: &Path) -> Pid {
        let ended = self.segue(&["status", "--json", arg(point)]);
        let status: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
        let pid = status["mounts"][0]["pid"].as_i64().unwrap();
        Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
    }
}

/// True if `process` has not ended.
fn runs(process: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

/// A command of root for all mounts had reached into containers.
/// Proves S12.14.
#[test]
fn root_reaches_the_mounts_that_it_sees_and_with_everyone_all() {
    let Some(world) = World::new() else { return };
    let room = Room::new(&world);
    let inner = room.inner("inner");
    let [own, hidden] = [("a", &world.a), ("b", &world.b)]
        .map(|(name, host)| host.mkdir(&format!("mnt-{name}")).unwrap());
    room.mount(&world.a, &own);
    let users = room.mount_of_user();
    inner.mount(&world.b, &hidden);
    let process = inner.server_of(&hidden);
    assert_eq!(room.status(&[]), [own.clone(), users.clone()]);
    let mut everyone = [own.clone(), users.clone(), hidden.clone()];
    everyone.sort();
    assert_eq!(room.status(&["--everyone"]), everyone);
    assert_eq!(inner.status(&[]), std::slice::from_ref(&hidden));
    assert_eq!(inner.status(&["--everyone"]), everyone);

    // Only the hidden mount has something to send, and cannot.
    inner.sh(&format!("ls {}", arg(&hidden)));
    world.b.link_down().unwrap();
    inner.sh(&format!("echo text >{}/file", arg(&hidden)));
    assert_eq!(room.segue(&["sync", "--timeout", "1s"]).code, Some(0));
    let late = room.segue(&["sync", "--timeout", "1s", "--everyone"]);
    assert!(late.code != Some(0) && late.err.contains(arg(&hidden)), "{late:?}");
    world.b.link_up().unwrap();

    for command in [&["umount", "--all"][..], &["status"], &["sync"]] {
        let program = arg(&world.bed.dir().join("segue")).to_owned();
        let words = [&[program.as_str()], command, &["--everyone"]].concat();
        let refused = end(&mut room.of_user(&words));
        assert!(refused.code == Some(8) && refused.err.contains("is for root"), "{refused:?}");
    }
    let ended = room.segue(&["umount", "--all"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(room.status(&[]), Vec::<PathBuf>::new());
    assert!(runs(process));
    assert_eq!(inner.sh(&format!("cat {}/file", arg(&hidden))), "text\n");
    let ended = room.segue(&["umount", "--all", "--everyone", "--timeout", "60s"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!runs(process));
    assert_eq!(room.status(&["--everyone"]), Vec::<PathBuf>::new());
}

/// Two mounts at one path in two namespaces have one path for their sockets. `segue umount` of the
/// first had unmounted the second.
/// Proves S12.15.
#[test]
fn a_mount_at_the_same_path_elsewhere_stays() {
    let Some(world) = World::new() else { return };
    let room = Room::new(&world);
    let point = world.a.mkdir("mnt").unwrap();
    let inner = room.inner("inner");
    room.mount(&world.a, &point);
    let first = room.server_of(&point);
    inner.mount(&world.b, &point);
    let second = inner.server_of(&point);
    assert_ne!(first, second);
    let ended = room.segue(&["umount", arg(&point)]);
    assert!(ended.code == Some(1) && ended.err.contains("does not answer"), "{ended:?}");
    let ended = room.segue(&["umount", "--now", arg(&point)]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(room.status(&[]), Vec::<PathBuf>::new());
    eventually("the first has ended", || !runs(first));
    assert!(runs(second));
    inner.sh(&format!("echo text >{}/file", arg(&point)));
    assert_eq!(inner.status(&[]), [point]);
}

/// A user had put a socket of one of root's processes in the place of the mount's, and
/// `segue umount --now` of root killed that process.
/// Proves S12.15.
#[test]
fn a_process_that_is_not_the_owners_is_not_killed() {
    let Some(world) = World::new() else { return };
    let room = Room::new(&world);
    let mut serve = room.command(&world.a, "segue");
    serve.args(["serve", "--data", "/run/data", "--listen", "127.0.0.1:0"]);
    let mut other = world.a.spawn(serve.stdout(Stdio::null()).stderr(Stdio::null())).unwrap();
    let other_pid = Pid::from_raw(i32::try_from(other.pid()).unwrap()).unwrap();
    eventually("the other process listens", || {
        run(room.command(&world.a, "test").args(["-S", "/run/data/control.sock"])).is_ok()
    });
    // The first socket belongs to the user, and the second is found by way of a link of the user's.
    for (make, wait) in [("ln", "chown"), ("ln -s", "chown -h")] {
        let point = room.mount_of_user();
        let socket = room.socket_of_user();
        room.sh(&format!(
            "rm {socket}; {make} /run/data/control.sock {socket}; {wait} {USER} {socket}"
        ));
        halt(other_pid);
        let ended = room.segue(&["umount", "--now", arg(&point)]);
        assert!(runs(other_pid), "{make}: {ended:?}");
        kill_process(other_pid, Signal::CONT).unwrap();
        assert_eq!(ended.code, Some(0), "{make}: {ended:?}");
        assert_eq!(room.status(&[]), Vec::<PathBuf>::new());
        room.sh(&format!("rm -f {socket}; chown 0 /run/data/control.sock"));
    }
    let listed = room.segue(&["volume", "list", "--data", "/run/data"]);
    assert!(listed.code == Some(0) && listed.out.contains("home"), "{listed:?}");
    other.kill9().unwrap();
}

/// Root had renamed and removed files with root's rights, at paths that the process of another
/// user's mount names.
/// Proves S10.8.
#[test]
fn root_resolves_no_conflict_of_another_user() {
    let Some(world) = World::new() else { return };
    let room = Room::new(&world);
    let point = room.mount_of_user();
    let outside = world.local("outside");
    let copy = "notes.conflict-tin-20261123-101500";
    fs::write(outside.join(copy), "ours").unwrap();
    run(&mut room.of_user(&[
        "sh",
        "-euc",
        &format!(
            "cd {}; echo theirs >notes; echo ours >{copy}; ln -s {} out",
            arg(&point),
            arg(&outside)
        ),
    ]))
    .unwrap();
    for side in ["--ours", "--theirs", "--both", "--merge=cat %B >%A"] {
        let ended = room.segue(&["resolve", arg(&point.join(copy)), side]);
        assert!(ended.code == Some(8) && ended.err.contains("belongs to uid 5"), "{ended:?}");
        let ended = room.segue(&["resolve", arg(&point.join("out").join(copy)), side]);
        assert!(ended.code == Some(1) && ended.err.contains("not on a Segue mount"), "{ended:?}");
        let way = point.join("none/../..").join(outside.file_name().unwrap()).join(copy);
        let ended = room.segue(&["resolve", arg(&way), side]);
        assert!(ended.code != Some(0) && !ended.err.contains("uid 5"), "{ended:?}");
    }
    let found = room.sh(&format!("cd {}; cat notes {copy} out/{copy}", arg(&point)));
    assert_eq!(found, "theirs\nours\nours");
    let program = arg(&world.bed.dir().join("segue")).to_owned();
    let own = end(&mut room.of_user(&[&program, "resolve", arg(&point.join(copy)), "--ours"]));
    assert_eq!(own.code, Some(0), "{own:?}");
    assert_eq!(room.sh(&format!("cd {}; cat notes; ls", arg(&point))), "ours\nnotes\nout\n");
}
