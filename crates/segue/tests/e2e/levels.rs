//! How soon changes must be with the server: by mount option, directory and file.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::Path;

use rustix::fs::{XattrFlags, getxattr, setxattr};
use segue_bed::Host;
use serde_json::Value;

use crate::tree::noise;
use crate::world::{World, arg, eventually, has_data, json, save, segue, sh};

/// What `segue persist` says of `path`: the level, and who says it.
fn level(host: &Host, path: &Path) -> (String, Value) {
    let said = json(host, &["persist", arg(path)]);
    let file = &said["files"][0];
    (file["lm"].as_str().unwrap().to_owned(), file["from"].clone())
}

fn set_level(host: &Host, path: &Path, lm: &str) {
    let done = segue(host, &["persist", arg(path), "--lm", lm]);
    assert_eq!(done.code, Some(0), "{done:?}");
}

/// Bytes of file data and of what else goes with them that `host` has sent.
pub(crate) fn data_sent(host: &Host, mountpoint: &Path) -> u64 {
    let status = json(host, &["status", arg(mountpoint)]);
    let classes = status["mounts"][0]["link"]["classes"].as_array().unwrap();
    let of = |class: &&Value| class["class"] == "store-data";
    classes.iter().find(of).unwrap()["sent_bytes"].as_u64().unwrap()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A compiler's output below a directory that says `delay`: names go at once, data do not, and what
/// is removed meanwhile is never sent, nor is anything left of it.
/// Proves S4.1, S4.15, S4.16, S4.17, S4.18.
#[test]
fn what_is_removed_in_time_is_never_sent() {
    let Some(world) = World::new() else { return };
    let (mut mount, other) = (world.mount(&world.a), world.mount(&world.b));
    let (here, there) = (mount.path().join("build"), other.path().join("build"));
    fs::create_dir(&here).unwrap();
    set_level(&world.a, &here, "delay:1h");
    assert_eq!(level(&world.a, &here.join("..")), ("async".into(), Value::Null));
    sh(
        &here,
        "printf 'int main(void) { return 0; }' > main.c
         gcc -g -save-temps -o program main.c && ./program
         rm *.i *.s *.o
         head -c 3000000 /dev/urandom > temporary
         head -c 3000000 /dev/urandom > over
         head -c 3000000 /dev/urandom > moved
         head -c 100 /dev/urandom > small
         mv small over
         rm temporary",
    );
    eventually("names are there", || names(&there) == names(&here));
    let has_data = |name: &str| has_data(&there.join(name));
    assert_eq!(["main.c", "program", "moved"].map(has_data), [false; 3], "data had time");
    let log = json(&world.a, &["log", arg(&here)]).to_string();
    assert!(log.contains("its time (delay:1h)"), "{log}");
    // A rename shows what it names.
    eventually("it is there", || has_data("over"));
    assert!(data_sent(&world.a, mount.path()) < 1_000_000, "what was removed was sent");
    // So does a sync send a file, whatever its level.
    sh(&here, "head -c 20000 /dev/zero | tr '\\0' x | dd of=synced conv=fsync status=none");
    eventually("what was synced is there", || has_data("synced"));
    // It is on this host's disk, however it ends, and goes when it is back.
    let moved = fs::read(here.join("moved")).unwrap();
    mount.kill9().unwrap();
    let mut mount = world.mount(&world.a);
    assert!(fs::read(here.join("moved")).unwrap() == moved);
    mount.sync().unwrap();
    eventually("all is there", || fs::read(there.join("moved")).unwrap() == moved);
    assert_eq!(names(&there), ["main.c", "moved", "over", "program", "synced"]);
    let status = json(&world.a, &["status", arg(mount.path())]);
    assert_eq!(status["mounts"][0]["conflicts"], 0, "{status}");
    mount.umount(&[]).unwrap();
    // Nothing that was removed is kept for anybody.
    let data = arg(world.server.data());
    let check = segue(&world.serving, &["volume", "check", "home", "--data", data]);
    assert_eq!(check.code, Some(0), "{check:?}");
}

/// What is written goes by itself when the oldest of it is old enough, also from a file that stays
/// open; a name that another host gives a file meanwhile keeps what was kept back.
/// Proves S4.14, S4.17.
#[test]
fn what_is_delayed_goes_when_it_is_old() {
    let Some(world) = World::new() else { return };
    let mount = world.mount_with(&world.a, "write-back=delay:1s");
    let other = world.mount(&world.b);
    let (here, there) = (mount.path(), other.path());
    save(&here.join("closed"), &noise(1, 300_000)).unwrap();
    let mut open = File::create(here.join("open")).unwrap();
    open.write_all(b"some").unwrap();
    eventually("both are there", || {
        let read = |name: &str| fs::read(there.join(name)).unwrap_or_default();
        read("closed") == noise(1, 300_000) && read("open") == b"some"
    });
    drop(open);
    // Two names: the last one is the other host's.
    save(&here.join("file"), b"old").unwrap();
    mount.sync().unwrap();
    set_level(&world.a, &here.join("file"), "delay:1h");
    mount.sync().unwrap();
    eventually("it is known", || fs::read(there.join("file")).is_ok_and(|text| text == b"old"));
    world.a.link_down().unwrap();
    OpenOptions::new().append(true).open(here.join("file")).unwrap().write_all(b" new").unwrap();
    fs::remove_file(here.join("file")).unwrap();
    fs::hard_link(there.join("file"), there.join("name")).unwrap();
    other.sync().unwrap();
    world.a.link_up().unwrap();
    mount.sync().unwrap();
    eventually("one name is left", || !there.join("file").exists());
    eventually("what was kept back is there", || {
        fs::read(there.join("name")).unwrap() == b"old new"
    });
}

/// Near `log-max` nothing is kept back: there is no room for it.
/// Proves S4.16.
#[test]
fn what_is_delayed_goes_where_there_is_little_room() {
    let Some(world) = World::new() else { return };
    let mount = world.mount_with(&world.a, "write-back=delay:1h,log-max=4M");
    let other = world.mount(&world.b);
    save(&mount.path().join("large"), &noise(1, 3_500_000)).unwrap();
    let there = other.path().join("large");
    eventually("it is there", || fs::read(&there).is_ok_and(|b| b == noise(1, 3_500_000)));
}

/// Under `log` everything waits for company; who waits for the server gets it at once, and so does
/// the next process after a crash.
/// Proves S4.19, S4.20.
#[test]
fn a_logging_mount_sends_in_batches() {
    let Some(world) = World::new() else { return };
    let options = "write-back=log:1h,fsync=server";
    let mut mount = world.mount_with(&world.a, options);
    let other = world.mount(&world.b);
    let (here, there) = (mount.path().to_owned(), other.path());
    sh(&here, "mkdir a; echo text > a/file; head -c 400000 /dev/urandom > a/large; mv a b");
    let log = json(&world.a, &["log", arg(&here)]);
    let records = log["records"].as_array().unwrap();
    assert!(records.len() >= 6, "{log}");
    for record in records {
        assert!(record["waits_for"].as_str().unwrap().starts_with("the next batch"), "{record}");
    }
    assert!(names(there).is_empty());
    File::open(here.join("b/file")).unwrap().sync_all().unwrap();
    eventually("it is there", || {
        fs::read(there.join("b/file")).is_ok_and(|text| text == b"text\n")
    });
    sh(&here, "echo more > b/more");
    assert!(!there.join("b/more").exists());
    mount.kill9().unwrap();
    let mount = world.mount_with(&world.a, options);
    eventually("it is there", || {
        fs::read(there.join("b/more")).is_ok_and(|text| text == b"more\n")
    });
    sh(&here, "echo last > b/last");
    mount.sync().unwrap();
    assert_eq!(fs::read(there.join("b/last")).unwrap(), b"last\n");
    let large = fs::read(here.join("b/large")).unwrap();
    assert!(fs::read(there.join("b/large")).unwrap() == large);
}

/// A directory speaks for what is below it, a file for itself, and every host goes by it.
/// Proves S4.1, S4.2, S4.3, S4.12.
#[test]
fn directories_and_files_say_it_to_every_host() {
    let Some(world) = World::new() else { return };
    let (mount, other) = (world.mount(&world.a), world.mount(&world.b));
    let (here, there) = (mount.path(), other.path());
    fs::create_dir_all(here.join("accounts/2026/scratch")).unwrap();
    set_level(&world.a, &here.join("accounts"), "sync");
    set_level(&world.a, &here.join("accounts/2026/scratch"), "delay:1h");
    let file = here.join("accounts/2026/file");
    let mut open = File::create(&file).unwrap();
    open.write_all(b"text").unwrap();
    // Not closed: a write is with the server when it returns.
    assert_eq!(json(&world.a, &["where", arg(&file)])["files"][0]["level"], "server");
    assert_eq!(fs::read(there.join("accounts/2026/file")).unwrap(), b"text");
    let accounts = Value::from(arg(&here.join("accounts")));
    assert_eq!(level(&world.a, &file), ("sync".into(), accounts));
    let scratch = here.join("accounts/2026/scratch/file");
    save(&scratch, b"text").unwrap();
    assert_eq!(level(&world.a, &scratch).0, "delay:1h");
    assert_eq!(json(&world.a, &["where", arg(&scratch)])["files"][0]["level"], "host");
    // The other host goes by what this one has set.
    let theirs = there.join("accounts/2026/scratch");
    eventually("it is known there", || level(&world.b, &theirs).0 == "delay:1h");
    save(&theirs.join("theirs"), b"text").unwrap();
    assert_eq!(
        json(&world.b, &["where", arg(&theirs.join("theirs"))])["files"][0]["level"],
        "host"
    );
    // A file's own word counts more, and goes with it.
    set_level(&world.a, &scratch, "close");
    fs::rename(&scratch, here.join("moved")).unwrap();
    let moved = here.join("moved");
    assert_eq!(level(&world.a, &moved), ("close".into(), Value::from(arg(&moved))));
    sh(here, "cp -a moved copied; cp moved plain");
    assert_eq!(level(&world.a, &here.join("copied")).0, "close");
    assert_eq!(level(&world.a, &here.join("plain")), ("async".into(), Value::Null));
    set_level(&world.a, &moved, "inherit");
    assert_eq!(level(&world.a, &moved), ("async".into(), Value::Null));
    set_level(&world.a, &moved, "inherit");
    mount.sync().unwrap();
    other.sync().unwrap();
}

/// Who says what means nothing hears it, on whichever way.
/// Proves S4.2.
#[test]
fn a_level_that_is_none_is_refused() {
    let Some(world) = World::new() else { return };
    let mount = world.mount(&world.a);
    let file = mount.path().join("file");
    save(&file, b"text").unwrap();
    let wrong = segue(&world.a, &["persist", arg(&file), "--lm", "delay:30"]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(wrong.err.contains("'delay:30' is not async, delay:T"), "{wrong:?}");
    let set = |value: &[u8]| setxattr(&file, "user.segue.persist", value, XattrFlags::empty());
    assert_eq!(set(b"sometimes"), Err(rustix::io::Errno::INVAL));
    set(b"delay:90s").unwrap();
    let mut value = [0; 20];
    let len = getxattr(&file, "user.segue.persist", &mut value).unwrap();
    assert_eq!(&value[..len], b"delay:90s");
    assert_eq!(level(&world.a, &file).0, "delay:90s");
    let missing = segue(&world.a, &["persist", arg(&mount.path().join("missing"))]);
    assert_eq!(missing.code, Some(3), "{missing:?}");
    mount.sync().unwrap();
}
