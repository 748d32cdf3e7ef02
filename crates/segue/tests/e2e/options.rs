//! Mount options, by flag, environment and file.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use segue_bed::run;
use segue_bed::run_detaching;

use crate::tree::{hash, hash_of, noise};
use crate::world::{CLOSE, World, arg, errno, eventually, failing_mount, json, save, segue};

const EROFS: Option<i32> = Some(30);

/// `ro` refuses every change with EROFS, and reads; others' changes are seen.
#[test]
fn read_only() {
    let Some(world) = World::new() else { return };
    let other = world.mount_with(&world.b, CLOSE);
    save(&other.path().join("file"), b"text").unwrap();
    let mount = world.mount_with(&world.a, &format!("ro,{CLOSE}"));
    let file = mount.path().join("file");
    assert_eq!(fs::read(&file).unwrap(), b"text");
    assert_eq!(errno(save(&file, b"x")), EROFS);
    assert_eq!(errno(fs::remove_file(&file)), EROFS);
    assert_eq!(errno(fs::create_dir(mount.path().join("dir"))), EROFS);
    assert_eq!(json(&world.a, &["status", arg(mount.path())])["mounts"][0]["state"], "readonly");
    save(&other.path().join("file"), b"later").unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"later");
}

/// `uid=` and `gid=` show every file as owned by them, and change nothing on the server.
#[test]
fn files_shown_as_owned_by() {
    let Some(world) = World::new() else { return };
    let mount = world.mount_with(&world.a, "uid=1234,gid=5678");
    save(&mount.path().join("file"), b"text").unwrap();
    fs::create_dir(mount.path().join("dir")).unwrap();
    for name in ["", "file", "dir"] {
        let meta = fs::metadata(mount.path().join(name)).unwrap();
        assert_eq!((meta.uid(), meta.gid()), (1234, 5678), "{name}");
    }
    mount.sync().unwrap();
    let other = world.mount(&world.b);
    let meta = fs::metadata(other.path().join("file")).unwrap();
    assert_eq!((meta.uid(), meta.gid()), (0, 0));
}

/// `cache-dir=` holds what is cached and not yet sent: nothing of it is elsewhere.
#[test]
fn the_cache_is_where_it_was_asked_for() {
    let Some(world) = World::new() else { return };
    let cache = world.local("cache");
    let mount = world.mount_with(&world.a, &format!("cache-dir={}", arg(&cache)));
    save(&mount.path().join("file"), &noise(1, 2_000_000)).unwrap();
    let used = |dir| crate::world::sh(dir, "du -s --block-size=1K . | cut -f1").trim().parse();
    let (cached, at_home): (u64, u64) = (used(&cache).unwrap(), used(world.a.home()).unwrap());
    assert!(cached > 1_900 && at_home < 1_000, "{cached} KiB there, {at_home} KiB at home");
    drop(mount);
}

/// Under `write-back=sync` each change is on the server when its call returns, also without
/// close; under `async` a call returns without the server.
/// Proves S4.5, S4.6, S4.12.
#[test]
fn when_changes_are_sent() {
    let Some(world) = World::new() else { return };
    let other = world.mount(&world.b);
    let mut mount = world.mount_with(&world.a, "write-back=sync");
    let mut file = fs::File::create(mount.path().join("file")).unwrap();
    std::io::Write::write_all(&mut file, &noise(1, 50_000)).unwrap();
    eventually("the name is seen", || other.path().join("file").exists());
    assert_eq!(hash(&other.path().join("file")), hash_of(&noise(1, 50_000)), "not closed");
    drop(file);
    fs::create_dir(mount.path().join("dir")).unwrap();
    let pending =
        json(&world.a, &["status", arg(mount.path())])["mounts"][0]["log_records"].as_u64();
    assert_eq!(pending, Some(0));
    mount.umount(&[]).unwrap();
    drop(mount);

    let mount = world.mount_with(&world.a, "write-back=async");
    fs::read_dir(mount.path()).unwrap().count();
    world.a.link_down().unwrap();
    for number in 0..20 {
        save(&mount.path().join(format!("new{number}")), &noise(number, 10_000)).unwrap();
    }
    world.a.link_up().unwrap();
    mount.sync().unwrap();
    for number in 0..20 {
        let seen = other.path().join(format!("new{number}"));
        eventually("it arrived", || seen.exists());
        assert_eq!(hash(&seen), hash_of(&noise(number, 10_000)));
    }
}

/// An option comes from the flag, else the environment, else the file.
#[test]
fn flag_before_environment_before_file() {
    let Some(world) = World::new() else { return };
    let config = world.a.home().join(".config/segue");
    fs::create_dir_all(&config).unwrap();
    fs::write(config.join("config.toml"), "uid = 1001\ngid = 2001\n").unwrap();
    let point = world.a.mkdir("mnt").unwrap();
    let url = world.url(&world.a);
    let mut command = world.a.command("segue");
    command.args(["mount", &url, arg(&point), "-o", "write-back=async"]).env("SEGUE_UID", "1002");
    run_detaching(&mut command, &world.a.dir().join("mount.log")).unwrap();
    let meta = fs::metadata(&point).unwrap();
    assert_eq!((meta.uid(), meta.gid()), (1002, 2001));
    run(world.a.command("segue").args(["umount", arg(&point)])).unwrap();
    let mut command = world.a.command("segue");
    let url = world.server.url("home");
    command.args(["mount", &url, arg(&point), "-o", "uid=1003"]).env("SEGUE_UID", "1002");
    run_detaching(&mut command, &world.a.dir().join("mount.log")).unwrap();
    assert_eq!(fs::metadata(&point).unwrap().uid(), 1003);
    run(world.a.command("segue").args(["umount", arg(&point)])).unwrap();
}

/// One misspelt key had stopped `status`, `sync` and `umount`, and with them the hooks for sleep
/// and shutdown. A mount or a server does not begin with it.
/// Proves S12.13.
#[test]
fn a_misspelt_setting_stops_no_hook() {
    let Some(world) = World::new() else { return };
    let mount = world.mount(&world.a);
    save(&mount.path().join("file"), b"text").unwrap();
    let config = world.a.home().join(".config/segue");
    fs::create_dir_all(&config).unwrap();
    fs::write(config.join("config.toml"), "cache-szie = 1\n").unwrap();
    let at = arg(mount.path());
    for words in [&["status", at][..], &["sync", at], &["log", at], &["umount", at]] {
        let ended = segue(&world.a, words);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(ended.err.matches("unknown key 'cache-szie'").count(), 1, "{ended:?}");
    }
    let data = world.local("data");
    let url = world.server.url("home");
    for words in [&["mount", &url, at][..], &["serve", "--data", arg(&data)]] {
        let ended = segue(&world.a, words);
        assert!(ended.code == Some(2) && ended.err.contains("cache-szie"), "{ended:?}");
    }
}

/// Set-id bits and devices count where they are asked for, and the identity speaks for a host.
/// Proves S17.12.
#[test]
fn set_id_bits_and_devices_count_where_they_are_asked_for() {
    for (role, options, expected) in [
        ("host", "", Some(["nosuid", "nodev"])),
        ("host", "suid,dev", Some(["", ""])),
        ("writer", "suid", None),
    ] {
        let invitation: &'static [&'static str] =
            if role == "host" { &["--role", "host"] } else { &[] };
        let Some(world) = World::invited(invitation) else { return };
        let Some(expected) = expected else {
            let point = world.a.mkdir("mnt").unwrap();
            let url = world.url(&world.a);
            let refused = failing_mount(&world.a, &[&url, arg(&point), "-o", options]);
            assert!(refused.code == Some(8) && refused.err.contains("role host"), "{refused:?}");
            continue;
        };
        let mount = world.mount_with(&world.a, options);
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let is_its = |line: &&str| line.split(' ').nth(4) == Some(arg(mount.path()));
        let flags = table.lines().find(is_its).and_then(|line| line.split(' ').nth(5)).unwrap();
        for flag in ["nosuid", "nodev"] {
            let is_set = flags.split(',').any(|set| set == flag);
            assert_eq!(is_set, expected.contains(&flag), "{options}: {flags}");
        }
    }
}

/// A mount that hides files is asked for; other flags of mount(8) are obeyed.
/// Proves S12.16.
#[test]
fn files_are_hidden_where_that_is_asked_for_and_flags_are_obeyed() {
    let Some(world) = World::new() else { return };
    let point = world.a.mkdir("mnt").unwrap();
    let hidden = point.join("hidden");
    fs::write(&hidden, "here").unwrap();
    let url = world.server.url("home");
    let refused = failing_mount(&world.a, &[&url, arg(&point)]);
    let words = "not empty, and a mount hides what is in it";
    assert!(refused.code == Some(1) && refused.err.contains(words), "{refused:?}");
    let mut mount = world.mount_with(&world.a, "nonempty,noexec,nosymfollow,noatime");
    assert!(!hidden.exists());
    let script = mount.path().join("script");
    fs::write(&script, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let started = world.a.command(&script).output().unwrap();
    assert!(!started.status.success(), "{started:?}");
    std::os::unix::fs::symlink("script", mount.path().join("link")).unwrap();
    assert_eq!(errno(fs::read(mount.path().join("link"))), Some(40), "ELOOP");
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().find(|line| line.contains(arg(mount.path()))).unwrap();
    assert!(line.contains("noexec") && line.contains("noatime"), "{line}");
    mount.umount(&[]).unwrap();
    assert_eq!(fs::read(&hidden).unwrap(), b"here");
}

/// mount(8) mounts with the helper `mount.segue`, from a line of options such as fstab's.
#[test]
fn the_helper_of_mount_8() {
    let Some(world) = World::new() else { return };
    drop(world.mount(&world.a));
    let names = ["mount.segue", "mount.fuse.segue"];
    let [helper, remounter] = names.map(|name| world.bed.dir().join(name));
    std::os::unix::fs::symlink("segue", &helper).unwrap();
    std::os::unix::fs::symlink("segue", &remounter).unwrap();
    let point = world.a.mkdir("mnt").unwrap();
    let mut command = world.a.command(&helper);
    command.args([&world.server.url("home"), arg(&point), "-n", "-o"]);
    command.arg("rw,_netdev,nofail,x-systemd.automount,uid=1234");
    run_detaching(&mut command, &world.a.dir().join("mount.log")).unwrap();
    save(&point.join("file"), b"text").unwrap();
    assert_eq!(fs::metadata(point.join("file")).unwrap().uid(), 1234);
    for (wanted, expected) in [("ro", Some(ErrorKind::ReadOnlyFilesystem)), ("rw", None)] {
        let mut command = world.a.command(&remounter);
        command.args([&world.server.url("home"), arg(&point), "-o"]);
        run(command.arg(format!("rw,relatime,user_id=0,allow_other,remount,{wanted}"))).unwrap();
        let changed = fs::write(point.join("file"), b"more");
        assert_eq!(changed.err().map(|error| error.kind()), expected, "{wanted}");
    }
    assert_eq!(fs::read(point.join("file")).unwrap(), b"more");
    let busy = fs::File::options().append(true).open(point.join("file")).unwrap();
    let refused =
        segue(&world.a, &["mount", &world.server.url("home"), arg(&point), "-o", "remount,ro"]);
    assert!(refused.code == Some(1) && refused.err.contains("open for writing"), "{refused:?}");
    drop(busy);
    run(world.a.command("segue").args(["umount", arg(&point)])).unwrap();
    assert!(!point.join("file").exists());
}

/// What root does in a mount namespace of its own: the helper stands in /sbin, a line in fstab, and
/// an account has a home.
const FSTAB: &str = r#"
    mkdir -p "$TOP/sbin" "$TOP/account/mnt"
    cp "$TOP/segue" "$TOP/sbin/segue-of-test"
    ln -s segue-of-test "$TOP/sbin/mount.segue"
    chown -R 5:60 "$TOP/account"
    sed "s|^games:.*|games:x:5:60:games:$TOP/account:/bin/sh|" /etc/passwd > "$TOP/passwd"
    echo "$URL $TOP/account/mnt segue noauto,user,_netdev,nofail 0 0" > "$TOP/fstab"
    mount --bind "$TOP/sbin" /usr/sbin
    mount --bind "$TOP/passwd" /etc/passwd
    mount --bind "$TOP/fstab" /etc/fstab
    as() { setpriv --reuid=5 --regid=60 --clear-groups "$@"; }
    # Once with the invite.
    export HOME="$TOP/account" XDG_RUNTIME_DIR="$TOP/account"
    as /usr/sbin/segue-of-test mount "$INVITE" "$TOP/account/mnt"
    as /usr/sbin/segue-of-test umount "$TOP/account/mnt"
    as mount "$TOP/account/mnt"
    as sh -c "echo text > '$TOP/account/mnt/of-games'"
    as stat -f -c 'type %T' "$TOP/account/mnt"
    grep "$TOP/account/mnt" /proc/self/mounts
    as umount "$TOP/account/mnt"
    ! grep "$TOP/account/mnt" /proc/self/mounts
"#;

/// A user without privileges mounts with mount(8) and unmounts with umount(8), as a line of fstab
/// with `user` allows. mount(8) runs the helper without HOME.
/// Proves S12.22.
#[test]
fn fstab_lets_a_user_mount() {
    let Some(world) = World::new() else { return };
    let mut command = world.a.command("sh");
    command.arg(world.alone()).args(["sh", "-euc", FSTAB]);
    command.env("TOP", world.bed.dir()).env("URL", world.server.url("home"));
    command.env("INVITE", world.server.invite(&[]).unwrap());
    let log = world.a.dir().join("fstab.log");
    run_detaching(&mut command, &log).unwrap_or_else(|error| {
        panic!("{error}: {}", fs::read_to_string(&log).unwrap_or_default())
    });
    let said = fs::read_to_string(&log).unwrap();
    for words in ["type fuseblk", "nosuid,nodev,noexec", "user_id=5"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let mount = world.mount(&world.b);
    assert_eq!(fs::read(mount.path().join("of-games")).unwrap(), b"text\n");
}
