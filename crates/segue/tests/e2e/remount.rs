//! Mounting again what was mounted before: without a network, after a crash, and what can be got
//! out of a cache directory when nothing can be mounted any more.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use segue_bed::segue::SegueMount;

use crate::tree::{hash, hash_of, noise};
use crate::world::{World, arg, errno, eventually, json, save, segue, wait_for_state};

/// What a directory holds, as far as a program can tell: paths with modes, targets and hashes.
fn contents(top: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![top.to_path_buf()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            let mode = meta.permissions().mode();
            let what = if meta.is_dir() {
                open.push(path.clone());
                "directory".to_owned()
            } else if meta.is_symlink() {
                fs::read_link(&path).unwrap().display().to_string()
            } else {
                format!("{:?}", hash(&path))
            };
            found.insert(path.strip_prefix(top).unwrap().into(), format!("{mode:o} {what}"));
        }
    }
    found
}

/// The only cache directory below `base`.
pub(crate) fn cache_directory(base: &Path) -> PathBuf {
    let mut found = fs::read_dir(base).unwrap().map(|entry| entry.unwrap().path());
    found.find(|path| path.join("update.log").exists()).unwrap()
}

fn fill(top: &Path) {
    fs::create_dir_all(top.join("dir/deep")).unwrap();
    save(&top.join("large"), &noise(1, 3_000_000)).unwrap();
    save(&top.join("dir/small"), b"small").unwrap();
    save(&top.join("dir/deep/file"), &noise(2, 20_000)).unwrap();
    save(&top.join("never read"), &noise(3, 200_000)).unwrap();
    symlink("dir/small", top.join("link")).unwrap();
    fs::set_permissions(top.join("dir/small"), fs::Permissions::from_mode(0o640)).unwrap();
}

/// Work as a person might do it: some of everything.
fn work(top: &Path) {
    save(&top.join("new"), &noise(4, 100_000)).unwrap();
    fs::create_dir(top.join("made")).unwrap();
    save(&top.join("made/inside"), b"inside").unwrap();
    fs::rename(top.join("dir/deep"), top.join("made/moved")).unwrap();
    fs::remove_file(top.join("link")).unwrap();
    let large = File::options().read(true).write(true).open(top.join("large")).unwrap();
    large.write_all_at(&noise(5, 10_000), 1_000_000).unwrap();
    large.sync_all().unwrap();
    large.write_all_at(b"few", 10).unwrap();
    save(&top.join("dir/small"), b"replaced").unwrap();
    fs::set_permissions(top.join("made"), fs::Permissions::from_mode(0o700)).unwrap();
}

/// A volume that was mounted before comes up without a network, with everything that was cached;
/// what is done then is there after another such mount, and on the server when it is back.
/// Proves S11.2, S11.4, S12.1.
#[test]
fn a_known_volume_is_mounted_without_a_network() {
    let Some(world) = World::new() else { return };
    let writer = world.mount(&world.b);
    fill(writer.path());
    writer.sync().unwrap();
    let mut mount = world.mount(&world.a);
    fs::read(mount.path().join("never read").with_file_name("large")).unwrap();
    let wait = |mount: &SegueMount| wait_for_state(&world.a, mount, "online");
    wait(&mount);
    for path in ["dir/small", "dir/deep/file"] {
        fs::read(mount.path().join(path)).unwrap();
    }
    fs::read_link(mount.path().join("link")).unwrap();
    fs::metadata(mount.path().join("never read")).unwrap();
    mount.umount(&[]).unwrap();
    drop(mount);

    world.a.link_down().unwrap();
    let mut mount = world.mount_with(&world.a, "grace=500ms");
    let top = mount.path().to_owned();
    assert_eq!(json(&world.a, &["status", arg(&top)])["mounts"][0]["state"], "offline");
    assert_eq!(hash(&top.join("large")), hash_of(&noise(1, 3_000_000)));
    assert_eq!(fs::read(top.join("dir/small")).unwrap(), b"small");
    assert_eq!(fs::read_link(top.join("link")).unwrap(), Path::new("dir/small"));
    assert_eq!(fs::metadata(top.join("never read")).unwrap().len(), 200_000);
    assert_eq!(errno(fs::read(top.join("never read"))), Some(Errno::HOSTUNREACH.raw_os_error()));
    assert_eq!(errno(fs::metadata(top.join("no such name"))), Some(Errno::NOENT.raw_os_error()));
    work(&top);
    fs::remove_file(top.join("never read")).unwrap();
    let done = contents(&top);
    mount.umount(&["--now"]).unwrap();
    drop(mount);

    let mount = world.mount_with(&world.a, "grace=500ms");
    assert_eq!(contents(&top), done, "after another mount without a network");
    save(&top.join("later"), b"later").unwrap();
    let done = contents(&top);
    world.a.link_up().unwrap();
    wait(&mount);
    mount.sync().unwrap();
    let status = json(&world.a, &["status", arg(&top)]);
    assert_eq!(status["mounts"][0]["conflicts"], 0);
    let fresh = world.remount(&world.b, writer);
    assert_eq!(contents(fresh.path()), done, "on another host");
    assert_eq!(contents(&top), done, "here");
}

/// The mount dies with changes that the server lacks, again and again; each next one shows
/// them all, without a network, and the last one sends them.
/// Proves S1.3, S12.2, S13.1.
#[test]
fn a_mount_that_dies_without_a_network_comes_back_with_everything() {
    let Some(world) = World::new() else { return };
    let mut mount = world.mount(&world.a);
    let top = mount.path().to_owned();
    fill(&top);
    mount.sync().unwrap();
    fs::read(top.join("large")).unwrap();
    // What is cached is noted once a second.
    std::thread::sleep(Duration::from_secs(3));
    world.a.link_down().unwrap();
    work(&top);
    for round in 0..3 {
        save(&top.join(format!("round{round}")), &noise(round + 10, 70_000)).unwrap();
        fs::rename(top.join("new"), top.join("other")).unwrap();
        fs::rename(top.join("other"), top.join("new")).unwrap();
        let open = File::options().write(true).open(top.join("large")).unwrap();
        open.write_all_at(&noise(round + 20, 9_000), 2_000_000).unwrap();
        open.write_all_at(b"small write", 2_500_000).unwrap();
        let done = contents(&top);
        mount.kill9().unwrap();
        drop((open, mount));
        mount = world.mount_with(&world.a, "grace=500ms");
        assert_eq!(contents(&top), done, "round {round}");
    }
    let done = contents(&top);
    world.a.link_up().unwrap();
    wait_for_state(&world.a, &mount, "online");
    mount.sync().unwrap();
    assert_eq!(json(&world.a, &["status", arg(&top)])["mounts"][0]["conflicts"], 0);
    let other = world.mount(&world.b);
    assert_eq!(contents(other.path()), done);
}

/// What is small and new has no container on the disk for a moment. A mount that was killed then
/// had nothing of such a file that the server had by then: without a network git said that this was
/// no repository.
/// Proves S1.3, S12.2.
#[test]
fn what_was_just_sent_is_there_without_a_network_after_a_kill() {
    let Some(world) = World::new() else { return };
    let mut mount = world.mount(&world.a);
    let top = mount.path().to_owned();
    let git = |args: &[&str]| {
        let at = ["-C", arg(&top), "-c", "user.name=a", "-c", "user.email=a@b"];
        world.a.run("git", &[&at, args].concat()).unwrap()
    };
    git(&["init", "--quiet"]);
    // What is cached is noted once a second.
    std::thread::sleep(Duration::from_secs(3));
    save(&top.join("note"), b"a round").unwrap();
    git(&["add", "note"]);
    git(&["commit", "--quiet", "--message", "a round"]);
    eventually("the server has it", || {
        json(&world.a, &["status", arg(&top)])["mounts"][0]["log_records"] == 0
    });
    mount.kill9().unwrap();
    drop(mount);
    world.a.link_down().unwrap();
    let _mount = world.mount_with(&world.a, "grace=500ms");
    git(&["fsck", "--full", "--strict"]);
    assert_eq!(git(&["status", "--porcelain"]), "");
    assert_eq!(git(&["rev-list", "--count", "HEAD"]).trim(), "1");
}

/// `segue recover` finds every file that was not committed in a cache directory that nothing can
/// be mounted from any more, and changes nothing there.
/// Proves S13.9.
#[test]
fn what_was_not_committed_is_recovered_from_a_bare_directory() {
    let Some(world) = World::new() else { return };
    let base = world.local("cache");
    let options = format!("cache-dir={}", base.display());
    let mut mount = world.mount_with(&world.a, &options);
    let top = mount.path().to_owned();
    fill(&top);
    mount.sync().unwrap();
    fs::read(top.join("large")).unwrap();
    let directory = cache_directory(&base);
    let ended = segue(&world.a, &["recover", arg(&directory)]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains("mount at"), "{ended:?}");
    world.a.link_down().unwrap();
    work(&top);
    let open = File::create(top.join("made/open")).unwrap();
    open.write_all_at(&noise(6, 50_000), 0).unwrap();
    open.write_all_at(b"tail", 50_000).unwrap();
    // Two names that are the same to people who do not know their encoding.
    let names = [&b"caf\xe9"[..], b"caf\xe8", b"caf\xef\xbf\xbd"].map(OsStr::from_bytes);
    names.iter().for_each(|name| save(&top.join(name), name.as_bytes()).unwrap());
    let paths = ["new", "made/inside", "made/open", "large", "dir/small"];
    let expected: BTreeMap<&str, Vec<u8>> =
        paths.iter().map(|path| (*path, fs::read(top.join(path)).unwrap())).collect();
    mount.kill9().unwrap();
    drop((open, mount));
    let before = contents(&directory.join("containers"));
    let listed = json(&world.a, &["recover", arg(&directory)]);
    let files: Vec<&str> = listed["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file["path"].as_str().unwrap())
        .collect();
    for path in paths {
        assert!(files.contains(&path), "{path}: {listed}");
    }
    let rescued = world.local("rescued");
    let ended = segue(&world.a, &["recover", arg(&directory), "--to", arg(&rescued)]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for (path, bytes) in &expected {
        assert!(fs::read(rescued.join(path)).unwrap() == *bytes, "{path}");
    }
    for name in names {
        assert_eq!(fs::read(rescued.join(name)).unwrap(), name.as_bytes());
    }
    // Again to the same place, where something is in the way.
    let blocked = world.local("blocked");
    save(&blocked.join("made"), b"no directory").unwrap();
    save(&blocked.join("new"), b"mine").unwrap();
    let ended = segue(&world.a, &["recover", arg(&directory), "--to", arg(&blocked)]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(fs::read(blocked.join("new")).unwrap(), b"mine");
    assert!(fs::read(blocked.join("new-2")).unwrap() == expected["new"]);
    let inside = fs::read_dir(&blocked).unwrap().map(|entry| entry.unwrap().path());
    assert!(inside.into_iter().any(|path| fs::read(path).is_ok_and(|bytes| bytes == b"inside")));
    assert_eq!(contents(&directory.join("containers")), before);
    // It can still be mounted and sent.
    world.a.link_up().unwrap();
    let mount = world.mount_with(&world.a, &options);
    mount.sync().unwrap();
    let other = world.mount(&world.b);
    for (path, bytes) in &expected {
        assert!(fs::read(other.path().join(path)).unwrap() == *bytes, "{path} on the server");
    }
    let ended = segue(&world.a, &["recover", "/nowhere"]);
    assert_eq!(ended.code, Some(3), "{ended:?}");
}

/// The mount had begun with what was left of the log, and said that the server has everything.
/// Proves S13.10.
#[test]
fn a_log_that_was_shortened_is_told() {
    let Some(world) = World::new() else { return };
    let base = world.local("cache");
    let options = format!("cache-dir={}", base.display());
    for length in [0, 100] {
        let mut mount = world.mount_with(&world.a, &options);
        fs::read_dir(mount.path()).unwrap().count();
        world.a.link_down().unwrap();
        save(&mount.path().join(format!("lost{length}")), &noise(1, 20_000)).unwrap();
        mount.umount(&["--now"]).unwrap();
        drop(mount);
        let log = cache_directory(&base).join("update.log");
        File::options().write(true).open(log).unwrap().set_len(length).unwrap();
        world.a.link_up().unwrap();
        let mut mount = world.mount_with(&world.a, &options);
        let status = segue(&world.a, &["status", arg(mount.path())]);
        assert!(status.code == Some(7) && status.out.contains("1 change refused"), "{status:?}");
        let listed = json(&world.a, &["conflicts", arg(mount.path())]);
        let why = listed["conflicts"][0]["why"].as_str().unwrap();
        assert!(why.contains("fewer entries than its index knows"), "{listed}");
        mount.umount(&[]).unwrap();
        drop(mount);
        fs::remove_file(cache_directory(&base).join("refused/update-log.json")).unwrap();
    }
}
