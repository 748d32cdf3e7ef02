//! What goes over the wire first: whose class somebody chooses, or time.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use segue_bed::{Host, LinkSpec};

use crate::tree::noise;
use crate::world::{World, arg, eventually, json, save};

/// Bytes that were sent of each class, over the connection that there is.
fn sent(host: &Host, mount: &Path) -> Vec<(String, u64)> {
    let status = json(host, &["status", arg(mount)]);
    let classes = status["mounts"][0]["link"]["classes"].as_array().unwrap().clone();
    let name = |class: &serde_json::Value| class["class"].as_str().unwrap().to_owned();
    classes.iter().map(|class| (name(class), class["sent_bytes"].as_u64().unwrap())).collect()
}

fn sent_as(host: &Host, mount: &Path, class: &str) -> u64 {
    sent(host, mount).into_iter().find(|(name, _)| name == class).map_or(0, |(_, bytes)| bytes)
}

/// A reader of the idle I/O class leaves the link to one that is in a hurry.
#[test]
fn an_idle_reader_waits_for_the_others() {
    let Some(world) = World::new() else { return };
    let other = world.mount(&world.b);
    save(&other.path().join("backup"), &noise(1, 16 << 20)).unwrap();
    save(&other.path().join("page"), &noise(2, 1 << 20)).unwrap();
    other.sync().unwrap();
    let mount = world.mount(&world.a);
    assert_eq!(fs::read_dir(mount.path()).unwrap().count(), 2);
    world.a.set_link(LinkSpec::kb_per_s(256)).unwrap();
    let backup = mount.path().join("backup");
    let mut idle = Command::new("ionice")
        .args(["-c", "3", "cat", arg(&backup)])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let cached = || {
        json(&world.a, &["where", arg(&backup)])["files"][0]["cached_bytes"].as_u64().unwrap_or(0)
    };
    eventually("some of it is here", || cached() > 512 << 10);
    let before = cached();
    assert_eq!(fs::read(mount.path().join("page")).unwrap(), noise(2, 1 << 20));
    let meanwhile = cached() - before;
    // What was on its way, and what came while nothing was asked for yet.
    assert!(meanwhile < 512 << 10, "{meanwhile} bytes came for who is idle");
    // One in a hurry who wants the same does not wait for the idle one.
    world.a.set_link(LinkSpec::default()).unwrap();
    assert_eq!(fs::read(&backup).unwrap(), noise(1, 16 << 20));
    assert!(idle.wait().unwrap().success());
}

/// So does one who lists directories, but not for long: the kernel has others wait for it.
#[test]
fn an_idle_listing_is_in_nobody_s_way_and_ends() {
    let Some(world) = World::new() else { return };
    let other = world.mount(&world.b);
    for directory in ["free", "busy"] {
        fs::create_dir(other.path().join(directory)).unwrap();
        fs::write(other.path().join(directory).join("name"), "").unwrap();
    }
    save(&other.path().join("page"), &noise(2, 2 << 20)).unwrap();
    other.sync().unwrap();
    let notes = world.local("notes").join("calls");
    let mut mount = world.mount_with(&world.a, &format!("record-calls={}", arg(&notes)));
    // The names of this one are known; what is in it is not.
    assert_eq!(fs::read_dir(mount.path()).unwrap().count(), 3);
    let list = |directory: &str| {
        let path = mount.path().join(directory);
        let listed = Command::new("ionice").args(["-c", "3", "ls", arg(&path)]).output().unwrap();
        assert_eq!(listed.stdout, b"name\n", "{listed:?}");
    };
    list("free");
    world.a.set_link(LinkSpec::kb_per_s(128)).unwrap();
    let page = mount.path().join("page");
    let reader = std::thread::spawn(move || fs::read(page).unwrap());
    eventually("it is being read", || {
        let cached = json(&world.a, &["where", arg(&mount.path().join("page"))]);
        cached["files"][0]["cached_bytes"].as_u64().unwrap_or(0) > 64 << 10
    });
    list("busy");
    assert!(!reader.is_finished(), "the link was not busy");
    world.a.set_link(LinkSpec::default()).unwrap();
    assert_eq!(reader.join().unwrap(), noise(2, 2 << 20));
    mount.umount(&[]).unwrap();
    let text = fs::read_to_string(&notes).unwrap();
    let listings = text.lines().filter(|line| line.contains("Readdir")).collect::<Vec<_>>();
    assert!(listings.iter().any(|line| line.contains("prefetch")), "{listings:#?}");
}

/// What has waited for longer than `due` goes before what is younger.
#[test]
fn what_is_due_rises_by_a_class() {
    let Some(world) = World::new() else { return };
    // The link is slow from the start: whoever knows a fast one sends all at once, ahead of its
    // rate. Without a link a new connection would take over, and count anew.
    world.a.set_link(LinkSpec::kb_per_s(200)).unwrap();
    let mount = world.mount_with(&world.a, "due=2s");
    fs::write(mount.path().join("young"), noise(1, 100 << 10)).unwrap();
    mount.sync().unwrap();
    let young = sent_as(&world.a, mount.path(), "store-data");
    assert!(young > 100 << 10);
    assert_eq!(sent_as(&world.a, mount.path(), "store-fast"), 0);
    // Twice 4 s of data: after 2 s all is due.
    for (seed, name) in [(2, "first"), (3, "second")] {
        fs::write(mount.path().join(name), noise(seed, 800 << 10)).unwrap();
    }
    mount.sync().unwrap();
    let (raised, all) = (sent_as(&world.a, mount.path(), "store-fast"), 1600 << 10);
    let early = sent_as(&world.a, mount.path(), "store-data") - young;
    assert!(raised > all / 2 && early > all / 16, "{:?}", sent(&world.a, mount.path()));
}

/// The experiment's other orders work as a mount, and say what they are.
#[test]
fn uniform_has_one_class() {
    let Some(world) = World::new() else { return };
    let mount = world.mount_with(&world.a, "priorities=uniform");
    fs::write(mount.path().join("file"), noise(1, 300 << 10)).unwrap();
    mount.sync().unwrap();
    for (class, bytes) in sent(&world.a, mount.path()) {
        assert_eq!(bytes > 0, class == "fetch", "{class}: {bytes} bytes");
    }
    let other = world.mount(&world.b);
    assert_eq!(fs::read(other.path().join("file")).unwrap(), noise(1, 300 << 10));
}
