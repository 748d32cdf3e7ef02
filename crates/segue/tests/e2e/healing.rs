//! Files of which the server's disk has lost bytes: copies of them, and the hosts that have them.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use crate::check::{check, stop_server};
use crate::tree::noise;
use crate::world::{World, end, eventually, save, sh, wait_for_state};

const EIO: i32 = 5;

/// Changes 64 bytes of `bytes` in the server's packs, in which they stand uncompressed.
fn harm(world: &World, bytes: &[u8]) {
    let middle = bytes.len() / 2;
    let mut harmed = 0;
    for entry in fs::read_dir(world.server.data().join("packs")).unwrap() {
        let path = entry.unwrap().path();
        let pack = fs::read(&path).unwrap();
        let sample = &bytes[middle..middle + 64];
        let Some(at) = pack.windows(64).position(|window| window == sample) else { continue };
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(&[0; 64], at as u64).unwrap();
        harmed += 1;
    }
    assert_eq!(harmed, 1, "the bytes stand in one pack");
}

/// `cp` and `cat` of a damaged file fail, as they would on a disk with a bad sector. They made
/// another damaged file without a word.
fn copies_fail(dir: &Path, copy: &str) {
    for script in [format!("cp --reflink=auto f {copy}"), format!("cat f >{copy}.cat")] {
        let ended = end(Command::new("sh").args(["-c", &script]).current_dir(dir));
        assert_ne!(ended.code, Some(0), "{script}: {ended:?}");
        assert!(ended.err.contains("Input/output error"), "{script}: {ended:?}");
    }
}

/// The advised healing of a damaged file is a copy, on a host that has it cached. Elsewhere no
/// copy succeeds, also right after the server's start, when it knows of no damage.
/// Proves S18.7.
#[test]
fn a_copy_of_a_damaged_file_fails_or_heals() {
    let Some(mut world) = World::new() else { return };
    let bytes = noise(7, 3_000_000);
    let mut mount = world.mount(&world.a);
    save(&mount.path().join("f"), &bytes).unwrap();
    mount.umount(&[]).unwrap();
    drop(mount);
    harm(&world, &bytes);
    let other = world.mount(&world.b);
    copies_fail(other.path(), "first");
    world.server.restart().unwrap();
    copies_fail(other.path(), "second");

    let mount = world.mount(&world.a);
    sh(mount.path(), "cp --reflink=auto f copy && mv copy f && cat f >copy");
    mount.sync().unwrap();
    for point in [mount.path(), other.path()] {
        for name in ["f", "copy"] {
            assert!(fs::read(point.join(name)).unwrap() == bytes, "{name} is whole");
        }
    }
    let ended = check(&world, &["home", "--rate", "0"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

/// One host has a file whole in its cache when the server's disk loses a part of it. Another host
/// reads the file: soon it can, and nobody has done anything.
/// Proves S18.8.
#[test]
fn a_host_that_has_a_damaged_file_heals_it() {
    let Some(mut world) = World::new() else { return };
    let bytes = noise(7, 12_000_000);
    let mount = world.mount(&world.a);
    save(&mount.path().join("f"), &bytes).unwrap();
    mount.sync().unwrap();
    let mut other = world.mount(&world.b);
    stop_server(&world);
    harm(&world, &bytes);
    assert_eq!(check(&world, &["home"]).code, Some(7), "it is damaged");
    world.server.restart().unwrap();
    wait_for_state(&world.a, &mount, "online");
    wait_for_state(&world.b, &other, "online");
    let path = other.path().join("f");
    eventually("the other host can read the file", || match fs::read(&path) {
        Ok(read) => {
            assert!(read == bytes, "it is the file");
            true
        }
        Err(error) => {
            assert_eq!(error.raw_os_error(), Some(EIO));
            false
        }
    });
    other.umount(&[]).unwrap();
    let ended = check(&world, &["home", "--rate", "0"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

/// A check finds damage to two files. Hosts that have them heal them, also a host that did so
/// little since it was mounted that nothing is promised to it.
/// Proves S18.8.
#[test]
fn a_check_has_damage_healed_by_hosts() {
    let Some(world) = World::new() else { return };
    let files = [("f", noise(7, 3_000_000)), ("g", noise(8, 3_000_000))];
    let mount = world.mount(&world.a);
    for (name, bytes) in &files {
        save(&mount.path().join(name), bytes).unwrap();
    }
    mount.sync().unwrap();
    let mount = world.remount(&world.a, mount);
    files.iter().for_each(|(_, bytes)| harm(&world, bytes));
    let found = check(&world, &["home", "--rate", "0"]);
    assert_eq!(found.code, Some(7), "{found:?}");
    eventually("a check finds nothing", || check(&world, &["home", "--rate", "0"]).code == Some(0));
    let other = world.mount(&world.b);
    for (name, bytes) in &files {
        for point in [mount.path(), other.path()] {
            assert!(fs::read(point.join(name)).unwrap() == *bytes, "{name} is whole");
        }
    }
}
