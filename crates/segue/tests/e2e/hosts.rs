//! Two hosts at work on one volume.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};

use crate::tree::{hash, hash_of, noise};
use crate::world::{World, close, errno, eventually, save, sh};

/// What a host opens after another has closed it is what the other wrote, at once: also where
/// it had read and cached the file before, or has it open; in turns, at every size.
/// Proves S4.9, S6.1.
#[test]
fn close_then_open_sees_the_write() {
    let Some(world) = World::new() else { return };
    let (mount, other) = world.closing_mounts();
    let (here, there) = (mount.path().join("file"), other.path().join("file"));
    fs::write(&here, noise(0, 1_000)).unwrap();
    assert_eq!(hash(&there), hash_of(&noise(0, 1_000)));
    let held = File::open(&there).unwrap();
    for (round, size) in [10, 5_000, 0, 300_000, 4_096, 4_097, 2_000_000, 1].iter().enumerate() {
        for (number, (writer, reader)) in [(&here, &there), (&there, &here)].iter().enumerate() {
            let bytes = noise((round * 2 + number) as u64, *size);
            save(writer, &bytes).unwrap();
            // What it may know for a while yet must not count at open.
            fs::metadata(reader).unwrap();
            assert_eq!(hash(reader), hash_of(&bytes), "round {round}, reader {number}");
            assert_eq!(hash(writer), hash_of(&bytes), "round {round}, writer {number}");
        }
    }
    // Who had it open all the time opens it again.
    drop(held);
    assert_eq!(fs::read(&there).unwrap().len(), 1);
}

/// A small change in a large file that both have cached is seen by the other at the next open,
/// with everything else of the file unchanged; an append too.
/// Proves S6.1.
#[test]
fn a_change_in_the_middle_of_a_large_file() {
    let Some(world) = World::new() else { return };
    let (mount, other) = world.closing_mounts();
    let (here, there) = (mount.path().join("file"), other.path().join("file"));
    let mut expected = noise(1, 20 << 20);
    save(&here, &expected).unwrap();
    assert_eq!(hash(&there), hash_of(&expected));
    for (round, offset) in [7 << 20, 0, (20 << 20) - 3, 65_536].into_iter().enumerate() {
        let (writer, reader) = if round % 2 == 0 { (&here, &there) } else { (&there, &here) };
        let file = File::options().write(true).open(writer).unwrap();
        file.write_all_at(b"new", offset as u64).unwrap();
        close(file).unwrap();
        expected[offset..offset + 3].copy_from_slice(b"new");
        assert_eq!(hash(reader), hash_of(&expected), "round {round}");
    }
    let mut file = File::options().append(true).open(&there).unwrap();
    file.write_all(b"the end").unwrap();
    close(file).unwrap();
    expected.extend(b"the end");
    assert_eq!(hash(&here), hash_of(&expected));
}

/// New names, renames, removals, modes and attributes of another host are seen within the
/// lifetime of what is known here.
/// Proves S4.6, S6.8.
#[test]
fn changes_of_names_are_seen() {
    let Some(world) = World::new() else { return };
    let (mount, other) = (world.mount(&world.a), world.mount(&world.b));
    let (here, there) = (mount.path(), other.path());
    sh(here, "mkdir -p dir/below; echo one >dir/one; echo two >dir/two");
    let list = || sh(there, "cd dir 2>/dev/null && ls -A || echo none");
    eventually("the directory is there", || list() == "below\none\ntwo\n");
    sh(here, "mv dir/one dir/renamed");
    eventually("the rename is seen", || list() == "below\nrenamed\ntwo\n");
    assert_eq!(fs::read_to_string(there.join("dir/renamed")).unwrap(), "one\n");
    assert!(!there.join("dir/one").exists());
    sh(here, "rm dir/two; rmdir dir/below");
    eventually("the removals are seen", || list() == "renamed\n");
    assert_eq!(errno(fs::read(there.join("dir/two"))), Some(2));
    fs::set_permissions(here.join("dir/renamed"), fs::Permissions::from_mode(0o601)).unwrap();
    eventually("the mode is seen", || {
        fs::metadata(there.join("dir/renamed")).unwrap().mode() & 0o7777 == 0o601
    });
    sh(here, "mv dir moved");
    eventually("the moved directory is seen", || there.join("moved/renamed").exists());
    eventually("not where it was", || list() == "none\n");
    sh(here, "rm -r moved; echo x >moved");
    eventually("a file is where a directory was", || there.join("moved").is_file());
}

/// A host that has the only handle of a file keeps reading it after another host removed the
/// name, or replaced it.
/// Proves S6.6.
#[test]
fn removed_elsewhere_while_open_here() {
    let Some(world) = World::new() else { return };
    let (mount, other) = world.closing_mounts();
    let bytes = noise(3, 3_000_000);
    save(&mount.path().join("file"), &bytes).unwrap();
    let there = other.path().join("file");
    let held = File::open(&there).unwrap();
    let mut seen = vec![0; bytes.len()];
    held.read_exact_at(&mut seen, 0).unwrap();
    fs::remove_file(mount.path().join("file")).unwrap();
    save(&mount.path().join("file"), b"another").unwrap();
    eventually("the new file is seen", || fs::read(&there).is_ok_and(|text| text == b"another"));
    seen.fill(0);
    held.read_exact_at(&mut seen, 0).unwrap();
    assert_eq!(hash_of(&seen), hash_of(&bytes));
}

/// Hosts that work in one directory at the same time do not disturb each other: every file
/// that one of them made is there, on both. (Before the last rename was seen there were as many
/// names, one of them another.)
/// Proves S9.4.
#[test]
fn two_hosts_in_one_directory() {
    let Some(world) = World::new() else { return };
    let (mount, other) = (world.mount(&world.a), world.mount(&world.b));
    fs::create_dir(mount.path().join("dir")).unwrap();
    eventually("the directory is there", || other.path().join("dir").is_dir());
    let work = |top: &std::path::Path, who: u64| {
        for number in 0..150 {
            let (temporary, name) = (format!("dir/{who}.tmp"), format!("dir/{who}-{number}"));
            save(&top.join(&temporary), &noise(who * 1_000 + number, 3_000)).unwrap();
            fs::rename(top.join(temporary), top.join(&name)).unwrap();
            if number % 3 == 0 {
                fs::remove_file(top.join(name)).unwrap();
            }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| work(mount.path(), 1));
        scope.spawn(|| work(other.path(), 2));
    });
    mount.sync().unwrap();
    other.sync().unwrap();
    let kept = || (0..150).filter(|number| number % 3 != 0);
    let names = [1, 2].iter().flat_map(|who| kept().map(move |number| format!("{who}-{number}")));
    let names: BTreeSet<_> = names.collect();
    for top in [mount.path(), other.path()] {
        eventually("all files and no other", || {
            let listed = fs::read_dir(top.join("dir")).unwrap();
            let listed = listed.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            listed.collect::<BTreeSet<_>>() == names
        });
        for who in [1, 2] {
            for number in kept() {
                let found = hash(&top.join(format!("dir/{who}-{number}")));
                assert_eq!(found, hash_of(&noise(who * 1_000 + number, 3_000)));
            }
        }
    }
}

/// A log that hosts append to in turns has every line, in order: who opens it appends behind
/// what the other has closed.
/// Proves S6.1.
#[test]
fn appending_in_turns() {
    let Some(world) = World::new() else { return };
    let (mount, other) = world.closing_mounts();
    let logs = [mount.path().join("log"), other.path().join("log")];
    save(&logs[0], b"").unwrap();
    let mut expected = String::new();
    for turn in 0..60 {
        let line = format!("line {turn} {}\n", "x".repeat(turn * 7));
        let path = &logs[turn % 2];
        let mut log = File::options().append(true).open(path).unwrap();
        log.write_all(line.as_bytes()).unwrap();
        close(log).unwrap();
        expected += &line;
        assert_eq!(fs::metadata(path).unwrap().len(), expected.len() as u64);
    }
    for log in logs {
        assert_eq!(fs::read_to_string(log).unwrap(), expected);
    }
}
