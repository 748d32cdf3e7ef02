//! Who is let in, who is not, and in which words.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use segue_bed::Host;
use segue_bed::segue::SegueMount;

use crate::world::{
    CLOSE, Ended, World, arg, errno, eventually, failing_mount, json, save, segue, sh,
};

const EROFS: Option<i32> = Some(30);

/// Mounts `url` on `host`, which must be refused with `code` and say each of `words`; nothing
/// is mounted, and no key is left.
pub(crate) fn refused(host: &Host, url: &str, code: i32, words: &[&str]) {
    let point = host.mkdir("mnt").unwrap();
    let ended = failing_mount(host, &[url, arg(&point)]);
    expect(&ended, code, words);
    assert!(!segue_bed::segue::is_mounted(&point));
    assert_eq!(fs::read_dir(&point).unwrap().count(), 0);
}

pub(crate) fn expect(ended: &Ended, code: i32, words: &[&str]) {
    assert_eq!(ended.code, Some(code), "{ended:?}");
    for word in words {
        assert!(ended.err.to_lowercase().contains(word), "no {word:?} in {ended:?}");
    }
    assert!(ended.err.starts_with("segue: "), "{ended:?}");
}

/// Another CA fingerprint with the same digits elsewhere.
fn with_other_authority(url: &str) -> String {
    let (rest, print) = url.split_once("ca=").unwrap();
    let first = if print.starts_with('0') { "1" } else { "0" };
    format!("{rest}ca={first}{}", &print[1..])
}

/// A host that was not invited, an unknown code, or a server that is not the pinned one:
/// refused with exit code 8 and words that say why; and a right invite still works then.
#[test]
fn who_is_not_invited_is_refused() {
    let Some(world) = World::new() else { return };
    let plain = world.server.url("home");
    refused(&world.a, &plain, 8, &["not enrolled", "segue invite"]);
    let invite = world.server.invite(&[]).unwrap();
    refused(&world.a, &with_other_authority(&invite), 8, &["another server", "new invite"]);
    let (head, tail) = invite.split_once("invite=").unwrap();
    let code = tail.split('&').next().unwrap();
    let other: String = code.chars().rev().collect();
    assert_ne!(code, other);
    let wrong = format!("{head}invite={other}{}", &tail[code.len()..]);
    refused(&world.a, &wrong, 8, &["invite"]);
    refused(&world.a, &plain, 8, &["not enrolled"]);

    let point = world.a.mkdir("mnt").unwrap();
    let mount = segue_bed::segue::SegueMount::new(&world.a, &invite, &point, &[]).unwrap();
    save(&mount.path().join("file"), b"in").unwrap();
}

/// An invite that has expired or that another host has used lets nobody in; on the host that
/// used it, the same line mounts again.
#[test]
fn invites_work_once_and_not_for_ever() {
    let Some(world) = World::new() else { return };
    let short = world.server.invite(&["--ttl", "1s"]).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(2_500));
    refused(&world.a, &short, 8, &["expired"]);

    let once = world.server.invite(&[]).unwrap();
    let point = world.a.mkdir("mnt").unwrap();
    let mount = || segue_bed::segue::SegueMount::new(&world.a, &once, &point, &[]).unwrap();
    let mut first = mount();
    refused(&world.b, &once, 8, &["used"]);
    first.umount(&[]).unwrap();
    drop(first);
    drop(mount());
}

/// A revoked host is out: its running mount loses access to what it has not got, a new mount
/// is refused with exit code 8, and others go on.
/// Proves S3.8.
#[test]
fn a_revoked_host_is_out() {
    let Some(world) = World::new() else { return };
    let mut mount = world.mount_with(&world.a, &format!("grace=1s,{CLOSE}"));
    let mut other = world.mount_with(&world.b, &format!("grace=1s,{CLOSE}"));
    save(&mount.path().join("from-a"), b"a").unwrap();
    save(&other.path().join("from-b"), b"b").unwrap();
    let data = arg(world.server.data());
    let listed = json(&world.serving, &["identity", "list", "--data", data]);
    let identities = listed["identities"].as_array().unwrap();
    assert_eq!(identities.len(), 2, "{listed}");
    let id = identities[0]["id"].as_str().unwrap();
    let own = |host: &Host, mount: &SegueMount| {
        json(host, &["status", arg(mount.path())])["mounts"][0]["identity"].clone()
    };
    let (ours, theirs) = (own(&world.a, &mount), own(&world.b, &other));
    assert!(ours != theirs && [&ours, &theirs].contains(&&identities[0]["id"]), "{listed}");
    let revoke = |wanted: &str, yes: &[&str]| {
        segue(&world.serving, &[&["identity", "revoke", wanted, "--data", data], yes].concat())
    };
    // All hosts of a bed have one name.
    let name = identities[0]["host"].as_str().unwrap();
    expect(&revoke(name, &["--yes"]), 2, &["can mean", id, "give digits of the id"]);
    expect(&revoke(&id[..7], &["--yes"]), 3, &["8 digits or more"]);
    expect(&revoke(&id[..8], &[]), 2, &[id, "writer of home", "use --yes"]);
    let ended = revoke(&id[..8], &["--yes"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    // The name means the one that is left.
    expect(&revoke(name, &[]), 2, &[identities[1]["id"].as_str().unwrap(), "use --yes"]);
    // Whose identity it was is seen by who is out.
    let state = |host: &Host, point: &Path| {
        json(host, &["status", arg(point)])["mounts"][0]["state"].as_str().unwrap().to_owned()
    };
    let is_a_out = || state(&world.a, mount.path()) == "offline";
    eventually("one is out", || is_a_out() || state(&world.b, other.path()) == "offline");
    let (host, out, unread, stays, read) = match is_a_out() {
        true => (&world.a, &mount, "from-b", &other, "from-a"),
        false => (&world.b, &other, "from-a", &mount, "from-b"),
    };
    assert!(fs::read(out.path().join(unread)).is_err());
    assert!(save(&out.path().join("more"), b"x").is_err());
    assert_eq!(fs::read(stays.path().join(read)).unwrap().len(), 1);
    save(&stays.path().join("goes-on"), b"x").unwrap();
    assert!(!stays.path().join("more").exists());
    let status = json(host, &["status", arg(out.path())]);
    let reason = status["mounts"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("revoked"), "{status}");
    // It had waited for ever, and `umount` had said that it should be tried again later.
    for command in ["sync", "umount"] {
        let ended = segue(host, &[command, arg(out.path())]);
        let is_told = ["revoked", "kept on this host"].iter().all(|word| ended.err.contains(word));
        assert!(ended.code == Some(8) && is_told, "{ended:?}");
    }
    let status = segue(host, &["status", arg(out.path())]);
    assert!(status.code == Some(8) && status.out.contains("refuses this host"), "{status:?}");
    let log = segue(host, &["log", arg(out.path())]);
    assert!(log.out.contains("nothing: the server refuses this host"), "{log:?}");
    let ended = segue(host, &["umount", "--now", arg(out.path())]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    refused(host, &world.server.url("home"), 8, &["revoked"]);
    for mount in [&mut mount, &mut other] {
        mount.umount(&["--now"]).ok();
    }
}

/// The list of identities has the address and the last use of each host, and who is connected.
/// Proves S17.15.
#[test]
fn the_last_use_of_an_identity_is_known() {
    let Some(world) = World::new() else { return };
    let mut mounts = [world.mount(&world.a), world.mount(&world.b)];
    let data = arg(world.server.data());
    let list = || json(&world.serving, &["identity", "list", "--data", data])["identities"].clone();
    let listed = list();
    let identities = listed.as_array().unwrap();
    let address = |identity: &serde_json::Value| identity["address"].as_str().unwrap().to_owned();
    let addresses: BTreeSet<String> = identities.iter().map(address).collect();
    assert_eq!(addresses, [&world.a, &world.b].map(|host| host.addr().to_string()).into());
    assert!(identities.iter().all(|identity| identity["connected"] == true), "{listed}");
    for mount in &mut mounts {
        mount.umount(&[]).unwrap();
    }
    eventually("no host is connected", || {
        list().as_array().unwrap().iter().all(|identity| identity["connected"] == false)
    });
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    for identity in list().as_array().unwrap() {
        let last = identity["last_used"].as_u64().unwrap();
        assert!((now - 3600..=now + 1).contains(&last), "{identity}");
    }
    let words = segue(&world.serving, &["identity", "list", "--data", data]).out;
    assert!(["LAST USE", "ADDRESS", " ago"].iter().all(|word| words.contains(word)), "{words}");
}

/// A reader mounts read-only, and is told so; it reads everything and changes nothing.
/// Proves S17.7.
#[test]
fn a_reader_changes_nothing() {
    let Some(world) = World::new() else { return };
    let writer = world.mount_with(&world.b, CLOSE);
    save(&writer.path().join("file"), b"text").unwrap();
    let invite = world.server.invite(&["--role", "reader"]).unwrap();
    let point = world.a.mkdir("mnt").unwrap();
    let args = ["-o", CLOSE];
    let mount = segue_bed::segue::SegueMount::new(&world.a, &invite, &point, &args).unwrap();
    let said = fs::read_to_string(world.a.dir().join("mount.log")).unwrap();
    assert!(said.contains("read only"), "{said}");
    assert_eq!(json(&world.a, &["status", arg(&point)])["mounts"][0]["state"], "readonly");
    let file = mount.path().join("file");
    assert_eq!(fs::read(&file).unwrap(), b"text");
    assert_eq!(errno(save(&file, b"other")), EROFS);
    assert_eq!(errno(save(&mount.path().join("new"), b"")), EROFS);
    assert_eq!(errno(fs::remove_file(&file)), EROFS);
    assert_eq!(errno(fs::rename(&file, mount.path().join("moved"))), EROFS);
    assert_eq!(errno(fs::create_dir(mount.path().join("dir"))), EROFS);
    assert_eq!(errno(fs::hard_link(&file, mount.path().join("link"))), EROFS);
    save(&writer.path().join("file"), b"new text").unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"new text");
}

/// A volume that the server does not have, and one that this identity was not invited to, are
/// refused by name; a second volume is a tree of its own.
#[test]
fn volumes_are_apart() {
    let Some(world) = World::new() else { return };
    let mut mount = world.mount(&world.a);
    save(&mount.path().join("file"), b"home").unwrap();
    mount.umount(&[]).unwrap();
    refused(&world.a, &world.server.url("nowhere"), 8, &["nowhere"]);
    let data = arg(world.server.data());
    let made = segue(&world.serving, &["volume", "create", "photos", "--data", data]);
    assert_eq!(made.code, Some(0), "{made:?}");
    refused(&world.a, &world.server.url("photos"), 8, &["photos"]);
    let invite = world.server.invite(&["--volume", "photos"]).unwrap();
    let point = world.b.mkdir("mnt").unwrap();
    let photos = segue_bed::segue::SegueMount::new(&world.b, &invite, &point, &[]).unwrap();
    assert_eq!(fs::read_dir(photos.path()).unwrap().count(), 0);
    save(&photos.path().join("file"), b"photos").unwrap();
    let mount = world.mount(&world.a);
    assert_eq!(fs::read(mount.path().join("file")).unwrap(), b"home");
    let volumes = json(&world.serving, &["volume", "list", "--data", data]);
    let names: Vec<_> = volumes["volumes"].as_array().unwrap().iter().map(|v| &v["name"]).collect();
    assert_eq!(names, ["home", "photos"]);
}

/// No server, no directory, no such option, no such URL: each has its exit code and says what
/// to do.
#[test]
fn mistakes_have_their_exit_codes() {
    let Some(world) = World::new() else { return };
    let mut mount = world.mount(&world.a);
    mount.umount(&[]).unwrap();
    let (url, point) = (world.server.url("home"), arg(mount.path()).to_owned());
    let missing = format!("{point}/missing");
    expect(&failing_mount(&world.a, &[&url, &missing]), 3, &["mkdir"]);
    let cases: [(&str, &[&str]); 4] = [
        ("nonsense", &["nonsense", "help mount"]),
        ("prefetch=on", &["prefetch", "not in this version"]),
        ("grace=10", &["grace", "500ms"]),
        ("write-back=delay:30d", &["has a time that is not from 1ms to 24h"]),
    ];
    for (option, words) in cases {
        expect(&failing_mount(&world.a, &[&url, &point, "-o", option]), 2, words);
    }
    expect(&failing_mount(&world.a, &["http://somewhere/home", &point]), 2, &["segue://"]);
    let file = world.a.dir().join("file");
    fs::write(&file, "").unwrap();
    expect(&failing_mount(&world.a, &[&url, arg(&file)]), 1, &["not a directory"]);
    let other = world.mount(&world.a);
    expect(&failing_mount(&world.a, &[&url, &point]), 1, &["already", "umount"]);
    drop(other);

    let invite = world.server.invite(&[]).unwrap();
    world.b.link_down().unwrap();
    let point = world.b.mkdir("mnt").unwrap();
    expect(&failing_mount(&world.b, &[&invite, arg(&point)]), 4, &["cannot be reached"]);
    world.b.link_up().unwrap();
    // The invite was not used up by the attempt.
    drop(segue_bed::segue::SegueMount::new(&world.b, &invite, &point, &[]).unwrap());
    expect(&segue(&world.b, &["umount", arg(&point)]), 1, &["not on a segue mount"]);
    let missing = point.join("missing");
    expect(&segue(&world.b, &["umount", arg(&missing)]), 3, &["no such file"]);
}

/// A server that says later that an identity may do more than at its enrolment is not believed,
/// also of its word of before, while it cannot be reached.
/// Proves S17.13.
#[test]
fn a_server_gives_no_more_than_at_the_enrolment() {
    let Some(world) = World::invited(&["--role", "host", "--no-root-squash"]) else { return };
    // Set-id bits are for the role host.
    let bits = |mount: &SegueMount| {
        let file = mount.path().join("file");
        save(&file, b"text").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o4755)).unwrap();
        mount.sync().unwrap();
        fs::metadata(&file).unwrap().mode() & 0o7000
    };
    let mount = world.mount_with(&world.a, "suid");
    assert_eq!(bits(&mount), 0o4000);
    drop(mount);
    let kept = sh(world.a.home(), "find . -name role");
    assert_eq!(kept.lines().count(), 1, "{kept}");
    let kept = world.a.home().join(kept.trim());
    assert_eq!(fs::read_to_string(&kept).unwrap(), "host\n");

    // As if it had been enrolled as a writer, and the server said "host" only now.
    fs::write(&kept, "writer\n").unwrap();
    let (point, url) = (world.a.mkdir("mnt").unwrap(), world.server.url("home"));
    for is_cut in [true, false] {
        if is_cut {
            world.a.link_down().unwrap();
        } else {
            world.a.link_up().unwrap();
        }
        let refused = failing_mount(&world.a, &[&url, arg(&point), "-o", "suid"]);
        assert!(refused.code == Some(8) && refused.err.contains("role host"), "{refused:?}");
    }
    let mount = world.mount(&world.a);
    assert_eq!(bits(&mount), 0);
    drop(mount);
    fs::write(&kept, "reader\n").unwrap();
    let mount = world.mount(&world.a);
    assert_eq!(errno(save(&mount.path().join("file"), b"even more")), EROFS);
    drop(mount);
    fs::write(&kept, "root\n").unwrap();
    let refused = failing_mount(&world.a, &[&url, arg(&point)]);
    assert!(refused.err.contains("not a role"), "{refused:?}");
}
