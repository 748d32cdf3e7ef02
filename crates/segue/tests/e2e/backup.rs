//! `segue volume backup` and `restore`: the volume is as it was, and hosts that know more lose
//! nothing.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use segue_bed::segue::{SegueMount, SegueServer};
use serde_json::Value;

use crate::build::prepare;
use crate::tree::{self, assert_same, hash, hash_of, noise};
use crate::worker::{Acknowledged, Worker};
use crate::world::{Ended, World, arg, eventually, json, save, segue, sh};

fn volume(world: &World, args: &[&str]) -> Ended {
    segue(&world.serving, &[&["volume"], args, &["--data", arg(world.server.data())]].concat())
}

/// Backs volume home up into `to`, and returns what that came to.
fn backup(world: &World, to: &Path) -> Value {
    let ended = volume(world, &["backup", "home", arg(to), "--rate", "0", "--json"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    serde_json::from_str(ended.out.lines().last().unwrap()).unwrap()
}

fn restore(world: &World, name: &str, from: &Path, args: &[&str]) -> Value {
    let args = [&["restore", name, arg(from), "--rate", "0", "--json"], args].concat();
    let ended = volume(world, &args);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    serde_json::from_str(ended.out.lines().last().unwrap()).unwrap()
}

fn check_clean(world: &World, name: &str) {
    let ended = volume(world, &["check", name, "--rate", "0"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

/// The server's data are gone, and a new server is there in its place.
fn disaster(world: &mut World) {
    world.server.kill9().unwrap();
    fs::remove_dir_all(world.server.data()).unwrap();
    world.server.restart().unwrap();
}

/// Mounts on a host that has no identity of this server yet, but maybe the cache of another one.
fn mount_anew(world: &World, host: &segue_bed::Host) -> SegueMount {
    let url = world.server.invite(&[]).unwrap();
    let options = ["-o", "new-server"];
    SegueMount::new(host, &url, &host.mkdir("mnt").unwrap(), &options).unwrap()
}

/// Files below `dir` whose names say that they are conflict copies, by their contents.
fn conflicts(dir: &Path) -> BTreeMap<String, PathBuf> {
    let found = sh(dir, "find . -name '*.conflict-*' -type f");
    found.lines().map(|line| dir.join(line)).map(|path| (hash(&path), path)).collect()
}

/// Work, a backup, more work that the server acknowledged, and changes that it never got. Then
/// the server is lost and restored on another, with another authority: everything of the backup
/// is there, byte for byte; what a host changed since becomes conflict copies where it still
/// has it to send, overwrites nothing, and other hosts read what is right.
/// Proves S19.4, S19.5, S19.6, S19.7.
#[test]
fn a_server_that_was_lost_comes_back_from_its_backup() {
    let Some(mut world) = World::new() else { return };
    let (to, source) = (world.local("backups").join("home"), world.local("source"));
    prepare(&source);
    let mut mount = world.mount_with(&world.a, "write-back=async");
    let top = mount.path().to_owned();
    sh(&top, &format!("cp -a '{}'/zstd tree", arg(&source)));
    save(&top.join("big"), &noise(1, 3_000_000)).unwrap();
    for name in ["edited", "twice", "same"] {
        save(&top.join(name), b"as backed up").unwrap();
    }
    mount.sync().unwrap();
    let expected = tree::read(&top.join("tree"));
    let first = backup(&world, &to);
    assert_eq!(first["line"], "saved", "{first}");

    // Acknowledged, and lost with the server.
    save(&top.join("edited"), b"edited after the backup").unwrap();
    save(&top.join("twice"), b"once after the backup").unwrap();
    save(&top.join("new"), &noise(2, 400_000)).unwrap();
    fs::create_dir(top.join("dir")).unwrap();
    let big = fs::File::options().write(true).open(top.join("big")).unwrap();
    big.write_all_at(b"changed", 1_500_000).unwrap();
    drop(big);
    mount.sync().unwrap();
    // Not sent when the server is lost.
    world.a.link_down().unwrap();
    save(&top.join("twice"), b"twice after the backup").unwrap();
    save(&top.join("same"), b"changed from the backup's").unwrap();
    save(&top.join("unsent"), &noise(3, 200_000)).unwrap();
    save(&top.join("dir/below"), b"in a directory that is lost").unwrap();
    mount.umount(&["--now"]).unwrap();
    drop(mount);
    disaster(&mut world);
    world.a.link_up().unwrap();
    let restored = restore(&world, "home", &to, &[]);
    assert_eq!((restored["epoch"].as_u64(), restored["identities"].as_u64()), (Some(2), Some(0)));
    check_clean(&world, "home");

    let mount = mount_anew(&world, &world.a);
    let other = mount_anew(&world, &world.b);
    for (host, mount) in [("a", &mount), ("b", &other)] {
        let found = tree::read(&mount.path().join("tree"));
        assert_same(&format!("on host {host}"), &found, &expected);
        assert_eq!(hash(&mount.path().join("big")), hash_of(&noise(1, 3_000_000)), "{host}");
        assert_eq!(fs::read(mount.path().join("edited")).unwrap(), b"as backed up", "{host}");
        assert_eq!(fs::read(mount.path().join("twice")).unwrap(), b"as backed up", "{host}");
        // Its base is in the backup, so this is no conflict.
        let same = fs::read(mount.path().join("same")).unwrap();
        assert_eq!(same, b"changed from the backup's", "{host}");
        assert_eq!(hash(&mount.path().join("unsent")), hash_of(&noise(3, 200_000)), "{host}");
        assert!(!mount.path().join("new").exists(), "{host}");
    }
    let kept = conflicts(other.path());
    for bytes in [&b"twice after the backup"[..], b"in a directory that is lost"] {
        assert!(kept.contains_key(&hash_of(bytes)), "{}: {kept:?}", String::from_utf8_lossy(bytes));
    }

    // What is changed now is changed for everybody.
    for (name, bytes) in [("edited", &b"after the restore"[..]), ("later", b"new"), ("new", b"2")] {
        save(&mount.path().join(name), bytes).unwrap();
        eventually("the other host sees it", || {
            fs::read(other.path().join(name)).is_ok_and(|found| found == bytes)
        });
    }
    mount.sync().unwrap();
    check_clean(&world, "home");
    let again = backup(&world, &to);
    assert!(again["chunks_copied"].as_u64() < first["chunks_copied"].as_u64(), "{again}");
}

/// A copy of the server, restored from a backup for a test, claims the volume: it gets nothing that
/// the other one was to get, and the host goes on with that.
/// Proves S12.11.
#[test]
fn another_server_with_the_same_volume_gets_nothing() {
    let Some(world) = World::new() else { return };
    let to = world.local("backups").join("home");
    let mount = world.mount_with(&world.a, "write-back=async");
    save(&mount.path().join("file"), b"as backed up").unwrap();
    mount.sync().unwrap();
    backup(&world, &to);
    save(&mount.path().join("file"), b"changed since").unwrap();
    mount.sync().unwrap();
    world.a.link_down().unwrap();
    world.lose_link(&world.a, &mount);
    save(&mount.path().join("unsent"), b"for the first server").unwrap();
    let mut mount = mount;
    mount.umount(&["--now"]).unwrap();
    world.a.link_up().unwrap();
    let copy = SegueServer::start(&world.b, &world.local("copy")).unwrap();
    let args = ["restore", "home", arg(&to), "--rate", "0", "--data", arg(copy.data())];
    let restored = segue(&world.b, &[&["volume"], &args[..]].concat());
    assert_eq!(restored.code, Some(0), "{restored:?}");
    let (url, point) = (copy.invite(&[]).unwrap(), world.a.mkdir("mnt").unwrap());
    for _ in 0..2 {
        let refused = segue(&world.a, &["mount", &url, arg(&point)]);
        assert_eq!(refused.code, Some(8), "{refused:?}");
        for word in ["nothing was sent", "-o new-server", &format!("{}:", world.serving.addr())] {
            assert!(refused.err.contains(word), "{refused:?}");
        }
    }
    // With a cache of its own it is a volume like another.
    let own = world.local("own cache");
    let args = ["-o", &format!("cache-dir={}", arg(&own))];
    let mut tried = SegueMount::new(&world.a, &copy.url("home"), &point, &args).unwrap();
    assert_eq!(fs::read(tried.path().join("file")).unwrap(), b"as backed up");
    assert!(!tried.path().join("unsent").exists());
    tried.umount(&[]).unwrap();
    let mount = world.mount(&world.a);
    mount.sync().unwrap();
    let other = world.mount(&world.b);
    for mount in [&mount, &other] {
        assert_eq!(fs::read(mount.path().join("file")).unwrap(), b"changed since");
        assert_eq!(fs::read(mount.path().join("unsent")).unwrap(), b"for the first server");
    }
}

/// Backups while two hosts write: each snapshot restores to a volume that is clean, and a
/// backup copies what is new only.
/// Proves S19.1.
#[test]
fn backups_while_hosts_write_are_whole() {
    let Some(world) = World::new() else { return };
    let to = world.local("backups").join("home");
    let (mount, other) = (world.mount(&world.a), world.mount(&world.b));
    let (dir, there) = (mount.path().join("a"), other.path().join("b"));
    fs::create_dir(&dir).unwrap();
    fs::create_dir(&there).unwrap();
    let done = Acknowledged::default();
    let workers =
        [Worker::start(&world.a, &dir, "a", &done), Worker::start(&world.b, &there, "b", &done)];
    let mut copied = Vec::new();
    for _ in 0..3 {
        workers[0].wait_for(10);
        copied.push(backup(&world, &to)["bytes_copied"].as_u64().unwrap());
    }
    workers.into_iter().for_each(Worker::finish);
    mount.sync().unwrap();
    other.sync().unwrap();
    let last = backup(&world, &to);
    let idle = backup(&world, &to);
    assert_eq!(idle["bytes_copied"], 0, "nothing was new: {idle}");
    let all: u64 = copied.iter().sum::<u64>() + last["bytes_copied"].as_u64().unwrap();
    assert!(copied.iter().all(|bytes| *bytes < all), "{copied:?} of {all}");

    let listed = volume(&world, &["backup", "home", arg(&to), "--list", "--json"]);
    let listed: Value = serde_json::from_str(&listed.out).unwrap();
    let snapshots = listed["snapshots"].as_array().unwrap();
    assert!(snapshots.len() >= 4, "{listed}");
    for (number, snapshot) in snapshots.iter().enumerate() {
        let name = format!("copy-{number}");
        restore(&world, &name, &to, &["--snapshot", snapshot["name"].as_str().unwrap()]);
        check_clean(&world, &name);
    }
    // Older ones than the last two go, and these are what they were.
    let ended =
        volume(&world, &["backup", "home", arg(&to), "--keep", "2", "--rate", "0", "--json"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let pruned: Value = serde_json::from_str(ended.out.lines().last().unwrap()).unwrap();
    let listed = volume(&world, &["backup", "home", arg(&to), "--list", "--json"]);
    let listed: Value = serde_json::from_str(&listed.out).unwrap();
    let left = listed["snapshots"].as_array().unwrap();
    assert_eq!(left.len(), 2, "{listed} after {pruned}");
    for (number, snapshot) in left.iter().enumerate() {
        let name = format!("kept-{number}");
        restore(&world, &name, &to, &["--snapshot", snapshot["name"].as_str().unwrap()]);
        check_clean(&world, &name);
    }
    // The last one is what the hosts have.
    let invite = world.server.invite(&["--volume", &format!("copy-{}", snapshots.len() - 1)]);
    let point = world.b.mkdir("copy").unwrap();
    let copy = SegueMount::new(&world.b, &invite.unwrap(), &point, &[]).unwrap();
    for (name, mount) in [("a", &mount), ("b", &other)] {
        let found = tree::read(&copy.path().join(name));
        assert_same(name, &found, &tree::read(&mount.path().join(name)));
    }
}

/// Back to the last backup on the same server, under the mounts of hosts at work: they see the
/// volume as it was, also of what they have read and cached since, and go on.
/// Proves S19.4, S19.6.
#[test]
fn a_volume_goes_back_under_its_mounts() {
    let Some(world) = World::new() else { return };
    let to = world.local("backups").join("home");
    let (mount, other) = world.closing_mounts();
    let (here, there) = (mount.path().join("file"), other.path().join("file"));
    save(&here, &noise(1, 300_000)).unwrap();
    save(&mount.path().join("removed"), b"removed later").unwrap();
    backup(&world, &to);
    save(&here, &noise(2, 300_000)).unwrap();
    save(&mount.path().join("new"), b"new").unwrap();
    fs::remove_file(mount.path().join("removed")).unwrap();
    assert_eq!(hash(&there), hash_of(&noise(2, 300_000)));
    mount.sync().unwrap();

    let refused = volume(&world, &["restore", "home", arg(&to)]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.err.contains("--replace"), "{refused:?}");
    let restored = restore(&world, "home", &to, &["--replace"]);
    assert_eq!(restored["identities"], 2, "{restored}");
    check_clean(&world, "home");
    for (host, mount) in [(&world.a, &mount), (&world.b, &other)] {
        let read = |name| fs::read(mount.path().join(name));
        eventually("the file is as it was", || {
            read("file").is_ok_and(|bytes| bytes == noise(1, 300_000))
        });
        eventually("what was removed is there", || {
            read("removed").is_ok_and(|bytes| bytes == b"removed later")
        });
        eventually("what was made since is gone", || !mount.path().join("new").exists());
        let status = json(host, &["status", arg(mount.path())]);
        assert_eq!(status["mounts"][0]["refused"], 0, "{status}");
    }
    for (writer, reader, seed) in [(&here, &there, 4), (&there, &here, 5)] {
        save(writer, &noise(seed, 200_000)).unwrap();
        assert_eq!(hash(reader), hash_of(&noise(seed, 200_000)));
    }
    mount.sync().unwrap();
    check_clean(&world, "home");
}
