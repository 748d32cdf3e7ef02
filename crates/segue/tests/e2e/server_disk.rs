//! The server's disk is full: who waits hears it, removals make room, and nothing that was
//! acknowledged is lost.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use rustix::io::Errno;
use segue_bed::segue::SegueMount;

use crate::space::Tmpfs;
use crate::tree::noise;
use crate::world::{CLOSE, World, arg, errno, eventually, json, save, segue, settle};

const MB: usize = 1 << 20;
const ENOSPC: Option<i32> = Some(Errno::NOSPC.raw_os_error());

/// A world whose server has a disk of `size`.
fn world(size: &str) -> Option<(World, Tmpfs)> {
    let mut disk = None;
    let world = World::storing(|host| {
        let point = host.mkdir("disk").unwrap();
        disk = Some(Tmpfs::mount(point.clone(), size));
        point.join("data")
    })?;
    Some((world, disk.unwrap()))
}

/// Writes files until one is refused. Those that were acknowledged.
fn fill(mount: &SegueMount, bytes: usize) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for number in 0..200 {
        let (name, content) = (format!("f{number:03}"), noise(number, bytes));
        match save(&mount.path().join(&name), &content) {
            Ok(()) => drop(files.insert(name, content)),
            Err(error) => {
                assert_eq!(error.raw_os_error(), ENOSPC);
                fs::remove_file(mount.path().join(&name)).unwrap();
                return files;
            }
        }
    }
    panic!("the disk is never full");
}

/// Removes every file of `files` but each `step`th.
fn thin_out(mount: &SegueMount, files: &mut BTreeMap<String, Vec<u8>>, step: usize) {
    let names: Vec<String> = files.keys().cloned().collect();
    for (number, name) in names.iter().enumerate() {
        if number % step > 0 {
            fs::remove_file(mount.path().join(name)).unwrap();
            files.remove(name);
        }
    }
}

fn check_files(mount: &SegueMount, files: &BTreeMap<String, Vec<u8>>) {
    for (name, content) in files {
        assert!(fs::read(mount.path().join(name)).unwrap() == *content, "{name}");
    }
}

fn check_clean(world: &World) {
    let data = arg(world.server.data());
    let ended = segue(&world.serving, &["volume", "check", "home", "--rate", "0", "--data", data]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

fn refused(world: &World, mount: &SegueMount) -> u64 {
    json(&world.a, &["status", arg(mount.path())])["mounts"][0]["refused"].as_u64().unwrap()
}

/// A close hears that the server's disk is full. Removals are committed there, and after a while
/// there is room for as much as was removed.
/// Proves S20.10, S20.12.
#[test]
fn a_full_server_gets_empty_again() {
    let Some((world, _disk)) = world("288M") else { return };
    let mount = world.mount_with(&world.a, CLOSE);
    let mut files = fill(&mount, 4 * MB);
    assert!(files.len() > 30, "{} files", files.len());
    assert_eq!(errno(save(&mount.path().join("one more"), &noise(500, 4 * MB))), ENOSPC);
    assert_eq!(refused(&world, &mount), 0, "each was told to its close");
    for round in 0..2 {
        thin_out(&mount, &mut files, 2);
        settle(&world.a, &mount);
        for number in 0..5 {
            let (name, content) =
                (format!("g{round}-{number}"), noise(600 + round * 10 + number, 4 * MB));
            let path = mount.path().join(&name);
            eventually("there is room again", || save(&path, &content).is_ok());
            files.insert(name, content);
        }
    }
    settle(&world.a, &mount);
    check_files(&world.mount(&world.b), &files);
    check_clean(&world);
}

/// A change that nobody waits for is committed when there is room within a minute. Otherwise it is
/// kept as a refused change, and removals behind it are committed. The data of a file that was
/// renamed over another one wait, so that nobody sees an empty file.
/// Proves S20.4, S20.11.
#[test]
fn a_change_that_nobody_waits_for_is_sent_or_kept() {
    let Some((world, disk)) = world("200M") else { return };
    let mount = world.mount(&world.a);
    save(&mount.path().join("old"), &noise(1, 4 * MB)).unwrap();
    save(&mount.path().join("saved"), &noise(4, 4 * MB)).unwrap();
    mount.sync().unwrap();
    disk.leave(8 << 20);
    save(&mount.path().join("sent"), &noise(2, 4 * MB)).unwrap();
    let ended = segue(&world.a, &["sync", "--timeout", "5s", arg(mount.path())]);
    assert_eq!(ended.code, Some(6), "{ended:?}");
    fs::remove_file(disk.0.join("ballast")).unwrap();
    mount.sync().unwrap();
    assert_eq!(refused(&world, &mount), 0);

    disk.leave(8 << 20);
    save(&mount.path().join("kept"), &noise(3, 4 * MB)).unwrap();
    fs::remove_file(mount.path().join("old")).unwrap();
    save(&mount.path().join("saved.new"), &noise(5, 4 * MB)).unwrap();
    fs::rename(mount.path().join("saved.new"), mount.path().join("saved")).unwrap();
    let ended = segue(&world.a, &["sync", "--timeout", "75s", arg(mount.path())]);
    assert_eq!(ended.code, Some(6), "{ended:?}");
    eventually("one change is refused", || refused(&world, &mount) == 1);
    let listed = segue(&world.a, &["conflicts", arg(mount.path())]);
    assert!(listed.code == Some(5) && listed.out.contains("kept"), "{listed:?}");
    let other = world.mount(&world.b);
    assert!(!other.path().join("old").exists());
    assert!(fs::read(other.path().join("saved")).unwrap() == noise(4, 4 * MB));
    assert!(fs::read(other.path().join("sent")).unwrap() == noise(2, 4 * MB));
    fs::remove_file(disk.0.join("ballast")).unwrap();
    let resolved = segue(&world.a, &["resolve", "--ours", arg(&mount.path().join("kept"))]);
    assert_eq!(resolved.code, Some(0), "{resolved:?}");
    mount.sync().unwrap();
    for (name, seed) in [("kept", 3), ("saved", 5)] {
        eventually("the other host sees it", || {
            fs::read(other.path().join(name)).is_ok_and(|found| found == noise(seed, 4 * MB))
        });
    }
    assert_eq!(refused(&world, &mount), 0);
    check_clean(&world);
}

/// Another program fills the disk, and the server is killed again and again while it copies live
/// chunks. It starts on the full disk, and loses nothing.
/// Proves S20.12.
#[test]
fn a_server_is_killed_while_its_full_disk_gets_empty() {
    let Some((mut world, disk)) = world("288M") else { return };
    let mount = world.mount_with(&world.a, CLOSE);
    let mut files = fill(&mount, 4 * MB);
    for round in 0..3 {
        disk.leave(24 << 20);
        thin_out(&mount, &mut files, 3);
        settle(&world.a, &mount);
        let before = pack_files(world.server.data());
        eventually("packs are written or removed", || pack_files(world.server.data()) != before);
        world.server.kill9().unwrap();
        disk.leave(0);
        world.server.restart().unwrap();
        check_clean(&world);
        check_files(&mount, &files);
        fs::remove_file(disk.0.join("ballast")).unwrap();
        for number in 0..12 {
            let (name, content) =
                (format!("g{round}-{number:02}"), noise(600 + round * 20 + number, 4 * MB));
            let path = mount.path().join(&name);
            eventually("there is room again", || save(&path, &content).is_ok());
            files.insert(name, content);
        }
    }
    settle(&world.a, &mount);
    check_files(&world.mount(&world.b), &files);
    check_clean(&world);
}

/// The packs with their lengths.
fn pack_files(data: &Path) -> BTreeMap<String, u64> {
    let packs = fs::read_dir(data.join("packs")).unwrap().filter_map(Result::ok);
    let named = packs.filter_map(|pack| {
        Some((pack.file_name().into_string().ok()?, pack.metadata().ok()?.len()))
    });
    named.collect()
}
