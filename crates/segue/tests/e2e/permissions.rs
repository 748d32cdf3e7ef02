//! Users of a host: the one who mounts, and others.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use segue_bed::{Host, run, run_detaching};

use crate::tree::{hash, hash_of, noise};
use crate::world::{World, arg, end, errno, eventually, json, sh};

/// A user of a host with groups besides the own, and a home.
struct User<'a> {
    host: &'a Host,
    uid: u32,
    groups: &'static str,
    home: PathBuf,
}

impl<'a> User<'a> {
    fn new(host: &'a Host, uid: u32, groups: &'static str) -> User<'a> {
        let home = host.mkdir(&format!("home-{uid}")).unwrap();
        chown(&home, Some(uid), Some(uid)).unwrap();
        fs::create_dir_all(home.join("run")).unwrap();
        chown(home.join("run"), Some(uid), Some(uid)).unwrap();
        User { host, uid, groups, home }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.host.command("setpriv");
        command.args([format!("--reuid={}", self.uid), format!("--regid={}", self.uid)]);
        match self.groups {
            "" => command.arg("--clear-groups"),
            groups => command.args(["--groups", groups]),
        };
        command.args(words).env("HOME", &self.home).current_dir(&self.home);
        // Its sockets go with the bed, not into /tmp.
        command.env("XDG_RUNTIME_DIR", self.home.join("run"));
        command
    }

    fn sh(&self, dir: &Path, script: &str) -> String {
        run(&mut self.command(&["sh", "-euc", &inside(dir, script)])).unwrap()
    }

    /// Runs a script that must fail, with these words.
    fn fails(&self, dir: &Path, script: &str, words: &str) {
        let ended = end(&mut self.command(&["sh", "-euc", &inside(dir, script)]));
        assert_ne!(ended.code, Some(0), "{} may do {script}", self.uid);
        assert!(ended.err.contains(words), "{script}: {ended:?}");
    }
}

/// The user goes there, not who starts the shell: root may have no way in.
fn inside(dir: &Path, script: &str) -> String {
    format!("cd '{}'; {script}", dir.display())
}

/// A user without privileges enrols, mounts with fusermount3, owns what the volume has, works,
/// and unmounts; nobody else may look in, root neither.
/// Proves S17.1.
#[test]
fn a_user_mounts() {
    let Some(world) = World::new() else { return };
    // An account that every Debian has: fusermount3 asks for its name.
    let user = User::new(&world.a, 5, "");
    let segue = arg(&world.bed.dir().join("segue")).to_owned();
    let point = user.home.join("mnt");
    fs::create_dir(&point).unwrap();
    chown(&point, Some(5), Some(5)).unwrap();
    let invite = world.server.invite(&[]).unwrap();
    let log = world.a.dir().join("user.log");
    run_detaching(&mut user.command(&[&segue, "mount", &invite, arg(&point)]), &log).unwrap();

    fs::write(user.home.join("source"), noise(1, 500_000)).unwrap();
    let script = "cp ../source file; mkdir dir; ln -s ../file dir/link; chmod 600 file
        printf hello >dir/hello; mv dir/hello hello; stat -c '%u %g %a' . file dir";
    let said = user.sh(&point, script);
    let lines: Vec<_> = said.lines().collect();
    assert_eq!(lines[1], "5 5 600");
    assert!(lines.iter().all(|line| line.starts_with("5 5 ")), "{said}");
    assert_eq!(user.sh(&point, "cmp file ../source && cat hello && ls"), "hellodir\nfile\nhello\n");
    assert_eq!(errno(fs::read_dir(&point).map(drop)), Some(13), "root looks in");
    let other = User::new(&world.a, 7, "");
    other.fails(&other.home, &format!("ls {}", arg(&point)), "denied");

    let status = run(&mut user.command(&[&segue, "status", "--json"])).unwrap();
    assert!(status.contains("\"online\""), "{status}");
    // Root does not know the user's runtime directory: the mount is not said to be dead.
    let of_root = crate::world::segue(&world.a, &["status", arg(&point)]);
    assert!(
        of_root.code == Some(1) && of_root.err.contains("another XDG_RUNTIME_DIR"),
        "{of_root:?}"
    );
    assert!(!of_root.err.contains("has ended"), "{of_root:?}");
    run(&mut user.command(&[&segue, "umount", arg(&point)])).unwrap();
    assert_eq!(fs::read_dir(&point).unwrap().count(), 0);
    let mount = world.mount(&world.b);
    assert_eq!(hash(&mount.path().join("file")), hash_of(&noise(1, 500_000)));
    // Mounted again without an invite, and unmounted by fusermount3 itself.
    let url = world.server.url("home");
    run_detaching(&mut user.command(&[&segue, "mount", &url, arg(&point)]), &log).unwrap();
    assert_eq!(user.sh(&point, "cat hello"), "hello");
    run(&mut user.command(&["fusermount3", "-u", arg(&point)])).unwrap();
    assert_eq!(fs::read_dir(&point).unwrap().count(), 0);
}

const SHARED: &str = "
    mkdir private shared public
    chown 1001:1001 private; chmod 700 private; echo secret >private/secret
    chown 1001:2000 shared; chmod 2770 shared
    chmod 1777 public
    echo team >file; chown 1001:2000 file; chmod 640 file
    echo one >public/of-1001; chown 1001:1001 public/of-1001; chmod 666 public/of-1001
    printf '#!/bin/sh\\necho ran\\n' >tool; chown 1001:2000 tool; chmod 750 tool";

/// What each user may do, on any host that mounts the volume: modes count, groups besides the
/// first too, and sticky directories.
fn check_users(host: &Host, top: &Path, round: u32) {
    let owner = User::new(host, 1001, "");
    let member = User::new(host, 1002, "2000,3000");
    let stranger = User::new(host, 1003, "3000");
    // Reading.
    assert_eq!(owner.sh(top, "cat private/secret file; ./tool"), "secret\nteam\nran\n");
    assert_eq!(member.sh(top, "cat file; ./tool"), "team\nran\n");
    member.fails(top, "cat private/secret", "denied");
    member.fails(top, "ls private", "denied");
    stranger.fails(top, "cat file", "denied");
    stranger.fails(top, "ls shared", "denied");
    stranger.fails(top, "./tool", "denied");
    // Writing.
    member.fails(top, "echo x >>file", "denied");
    let made = member.sh(top, &format!("echo m >shared/m{round}; stat -c '%u %g' shared/m{round}"));
    assert_eq!(made, "1002 2000\n");
    assert_eq!(owner.sh(top, &format!("cat shared/m{round}; rm shared/m{round}")), "m\n");
    stranger.fails(top, "echo x >shared/stranger", "denied");
    stranger.fails(top, "echo x >at-the-top", "denied");
    // A sticky directory: anyone adds and writes what the mode allows, only owners remove.
    stranger.sh(top, &format!("echo s >public/s{round}; echo more >>public/of-1001"));
    stranger.fails(top, "rm -f public/of-1001", "not permitted");
    member.fails(top, &format!("mv public/s{round} public/stolen"), "not permitted");
    stranger.sh(top, &format!("mv public/s{round} public/t{round}; rm public/t{round}"));
    // Attributes belong to the owner.
    member.fails(top, "chmod 666 file", "not permitted");
    member.fails(top, "touch -d 2001-01-01 file", "denied");
    member.fails(top, "chown 1002 file", "not permitted");
    owner.fails(top, "chown 1002 file", "not permitted");
    owner.fails(top, "chgrp 3000 file", "not permitted");
    let script =
        format!("echo >shared/g{round}; chgrp 3000 shared/g{round}; stat -c %g shared/g{round}");
    assert_eq!(member.sh(top, &script), "3000\n");
    member.sh(top, &format!("rm shared/g{round}"));
    owner.sh(top, "chmod 640 file; touch file");
}

/// Root mounts for all users of a host: each is held to modes, owners and groups, as on a
/// local disk, and on every host alike.
/// Proves S17.2, S17.4.
#[test]
fn users_of_a_shared_mount() {
    let Some(world) = World::invited(&["--role", "host", "--no-root-squash"]) else { return };
    let mount = world.mount_with(&world.a, "allow-other");
    sh(mount.path(), SHARED);
    check_users(&world.a, mount.path(), 1);
    let other = world.mount_with(&world.b, "allow-other");
    check_users(&world.b, other.path(), 2);
    let mount = world.remount(&world.a, mount);
    drop(mount);
    let mount = world.mount_with(&world.a, "allow-other");
    check_users(&world.a, mount.path(), 3);
    let text = sh(mount.path(), "cat public/of-1001; ls -A shared public");
    assert_eq!(text, "one\nmore\nmore\nmore\npublic:\nof-1001\n\nshared:\n");
}

/// Root of a host is nobody on the volume unless the invite said otherwise; its users are
/// themselves.
/// Proves S6.16, S17.2, S17.3.
#[test]
fn root_of_a_host_is_squashed() {
    let Some(world) = World::invited(&["--role", "host"]) else { return };
    let trusted = world.server.invite(&["--role", "host", "--no-root-squash"]).unwrap();
    let admin = world.bed.host("admin").unwrap();
    let point = admin.mkdir("mnt").unwrap();
    let setup = segue_bed::segue::SegueMount::new(&admin, &trusted, &point, &["-o", "allow-other"]);
    let setup = setup.unwrap();
    sh(
        setup.path(),
        "mkdir mine; chown 1001:1001 mine; mkdir roots; chmod 755 roots; \
         umask 077; echo s >roots/s",
    );

    let mount = world.mount_with(&world.a, "allow-other");
    let owner = User::new(&world.a, 1001, "");
    owner.sh(mount.path(), "echo x >mine/file");
    eventually("the owner's file is seen", || setup.path().join("mine/file").exists());
    // What is written for long is the user's too, whoever sends it.
    let script = "cd \"$1\"; exec 3>mine/long; echo begun >&3; read -r end";
    let mut writing = owner.command(&["sh", "-euc", script, "sh", arg(mount.path())]);
    let mut writing = writing.stdin(Stdio::piped()).spawn().unwrap();
    let long = setup.path().join("mine/long");
    eventually("what is being written is seen", || {
        fs::read_to_string(&long).is_ok_and(|text| text == "begun\n")
    });
    drop(writing.stdin.take());
    writing.wait().unwrap();
    // The kernel lets root through, the server does not: nothing of it stays.
    let tries = ["echo x >roots/new", "rm roots/s", "chown 0 mine", "echo y >mine/file"];
    for script in tries {
        end(Command::new("sh").args(["-c", script]).current_dir(mount.path()));
    }
    mount.sync().ok();
    let state = || sh(setup.path(), "ls roots; cat roots/s mine/file; stat -c %u mine");
    std::thread::sleep(std::time::Duration::from_millis(1_200));
    assert_eq!(state(), "s\ns\nx\n1001\n");
}

/// A data directory that others could enter is closed, and nothing in it is for others.
/// Proves S17.10.
#[test]
fn others_do_not_read_what_the_server_has() {
    let open = |mode| fs::Permissions::from_mode(mode);
    let mut data = None;
    let world = World::storing(|host| {
        let path = host.mkdir("data").unwrap();
        fs::set_permissions(&path, open(0o755)).unwrap();
        data.insert(path).clone()
    });
    let Some(mut world) = world else { return };
    let data = data.unwrap();
    let check = || {
        let found = sh(&data, "find . -perm /077 ! -type s ! -type l");
        assert_eq!(found, "", "others may use these");
    };
    let mount = world.mount(&world.a);
    crate::world::save(&mount.path().join("file"), &crate::tree::noise(1, 300_000)).unwrap();
    mount.sync().unwrap();
    check();
    world.server.kill9().unwrap();
    fs::set_permissions(&data, open(0o777)).unwrap();
    for end in ["", "-wal", "-shm"] {
        let file = data.join(format!("meta.db{end}"));
        if file.exists() {
            fs::set_permissions(file, open(0o644)).unwrap();
        }
    }
    world.server.restart().unwrap();
    check();
}

/// Who writes a set-id program makes an ordinary one of it, on every host, and the server
/// refuses nothing of that. Root may write one as it is.
/// Proves S17.5.
#[test]
fn a_written_program_is_nobodys_any_more() {
    let Some(world) = World::invited(&["--role", "host", "--no-root-squash"]) else { return };
    let mount = world.mount_with(&world.a, "allow-other");
    let writer = User::new(&world.a, 1002, "");
    let make = "for name in kept appended truncated emptied inherited; do
        echo text >$name; chown 1001:1001 $name; chmod 6777 $name; done";
    sh(mount.path(), make);
    mount.sync().unwrap();
    sh(mount.path(), "echo more >>kept");
    writer.sh(mount.path(), "echo x >>appended; truncate -s 2 truncated; : >emptied");
    // Opened by root, written by somebody else, closed by root; and seen at once.
    let inherit = "for i in $(seq 30); do
        chmod 6777 inherited; stat -c %a inherited; exec 3>>inherited
        setpriv --reuid=1002 --regid=1002 --clear-groups sh -c 'echo x >&3; stat -c %a inherited'
        echo y >&3; exec 3>&-; done";
    assert_eq!(sh(mount.path(), inherit), "6777\n777\n".repeat(30));
    let modes = "stat -c '%a %n' kept appended truncated emptied inherited";
    let wanted = "6777 kept\n777 appended\n777 truncated\n777 emptied\n777 inherited\n";
    assert_eq!(sh(mount.path(), modes), wanted);
    mount.sync().unwrap();
    let other = world.mount_with(&world.b, "allow-other");
    for top in [other.path(), mount.path()] {
        assert_eq!(sh(top, modes), wanted);
    }
    assert_eq!(json(&world.a, &["status", arg(mount.path())])["mounts"][0]["refused"], 0);
}
