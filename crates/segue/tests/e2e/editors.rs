//! How editors save.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use crate::tree::{hash, hash_of, noise};
use crate::world::{World, end, eventually, sh};

/// Runs `commands` in vi's line mode on `file`.
pub(crate) fn vim(file: &Path, commands: &[&str]) {
    let mut command = Command::new("vim.tiny");
    command.args(["-e", "-s", "-N", "-u", "NONE", "-i", "NONE"]);
    command.args(commands.iter().flat_map(|text| ["-c", text])).arg(file);
    let ended = end(command.env("TERM", "dumb"));
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

fn lines(count: usize, word: &str) -> String {
    (0..count).map(|number| format!("{number} {word}\n")).collect()
}

/// vim's save, whether it renames the old file away or writes into it, leaves the new text
/// under the name with its mode, no backup, and no swap file; the other host sees it.
#[test]
fn vim_saves() {
    if Command::new("vim.tiny").arg("--version").output().is_err() {
        eprintln!("SKIPPED: vim.tiny is not installed (the saves by hand below are tested)");
        return;
    }
    let Some(world) = World::new() else { return };
    let mount = world.mount(&world.a);
    let other = world.mount(&world.b);
    for how in ["no", "yes", "auto"] {
        let file = mount.path().join(format!("text-{how}"));
        fs::write(&file, lines(20_000, "before")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let before = fs::metadata(&file).unwrap().ino();
        let set = format!("set backupskip= writebackup fsync backupcopy={how}");
        vim(&file, &[&set, "%s/before/after/", "wq"]);
        let expected = hash_of(lines(20_000, "after").as_bytes());
        assert_eq!(hash(&file), expected, "backupcopy={how}");
        let meta = fs::metadata(&file).unwrap();
        assert_eq!(meta.permissions().mode() & 0o7777, 0o640);
        assert_eq!(meta.ino() == before, how == "yes", "backupcopy={how}");
        mount.sync().unwrap();
        let seen = other.path().join(format!("text-{how}"));
        eventually("the other host sees it", || seen.exists() && hash(&seen) == expected);
    }
    let file = mount.path().join("kept");
    fs::write(&file, "one\n").unwrap();
    vim(&file, &["set backupskip= backup backupcopy=no", "s/one/two/", "w", "s/two/three/", "wq"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "three\n");
    assert_eq!(fs::read_to_string(mount.path().join("kept~")).unwrap(), "two\n");
    let names = sh(mount.path(), "ls -A");
    assert_eq!(names, "kept\nkept~\ntext-auto\ntext-no\ntext-yes\n");
    eventually("the other host lists the same", || sh(other.path(), "ls -A") == names);
}

/// `sed -i` and `perl -i` like saves (a new file renamed over the old) keep mode and text.
#[test]
fn sed_in_place() {
    let Some(world) = World::new() else { return };
    let mount = world.mount(&world.a);
    let file = mount.path().join("text");
    fs::write(&file, lines(50_000, "before")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
    sh(mount.path(), "sed -i s/before/after/ text && sed -i.old s/after/later/ text");
    assert_eq!(hash(&file), hash_of(lines(50_000, "later").as_bytes()));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o755);
    mount.sync().unwrap();
    let other = world.mount(&world.b);
    assert_eq!(hash(&other.path().join("text")), hash_of(lines(50_000, "later").as_bytes()));
    assert_eq!(hash(&other.path().join("text.old")), hash_of(lines(50_000, "after").as_bytes()));
    assert_eq!(sh(other.path(), "ls -A"), "text\ntext.old\n");
}

/// The save of vi by hand, many times: probe whether a file can be made, rename the old one
/// away, write the new one, fsync, remove the backup. After each the other host reads the new
/// text within the lifetime of names, until then the old, and never an empty or half file.
#[test]
fn the_save_of_vi_by_hand() {
    let Some(world) = World::new() else { return };
    let mount = world.mount(&world.a);
    let other = world.mount(&world.b);
    let (file, backup) = (mount.path().join("text"), mount.path().join("text~"));
    fs::write(&file, noise(0, 30_000)).unwrap();
    mount.sync().unwrap();
    for round in 1..=10 {
        let probe = mount.path().join("4913");
        File::options().write(true).create_new(true).open(&probe).unwrap();
        fs::remove_file(&probe).unwrap();
        fs::rename(&file, &backup).unwrap();
        let mut new = File::options().write(true).create_new(true).mode(0o644).open(&file).unwrap();
        for piece in noise(round, 30_000).chunks(8_192) {
            new.write_all(piece).unwrap();
        }
        new.sync_all().unwrap();
        drop(new);
        fs::remove_file(&backup).unwrap();
        let (old, expected) = (hash_of(&noise(round - 1, 30_000)), hash_of(&noise(round, 30_000)));
        assert_eq!(hash(&file), expected, "round {round}");
        mount.sync().unwrap();
        eventually("the other host reads the new text", || {
            let seen = hash(&other.path().join("text"));
            assert!(seen == old || seen == expected, "round {round}: a half file: {seen}");
            seen == expected
        });
    }
    assert_eq!(sh(mount.path(), "ls -A"), "text\n");
}

/// A file that another host replaces is read by who looked its name up before and trusts that
/// still: its old text or its new one, and no read fails.
/// Proves S6.6.
#[test]
fn a_file_replaced_since_it_was_looked_up() {
    let Some(world) = World::new() else { return };
    let mount = world.mount(&world.a);
    let other = world.mount(&world.b);
    let new = mount.path().join("new");
    // Below and above what is fetched when it is opened.
    for (round, len) in (0..).zip([30_000, 300_000].into_iter().cycle().take(8)) {
        let name = format!("text{round}");
        let (file, seen) = (mount.path().join(&name), other.path().join(&name));
        fs::write(&file, noise(round, len)).unwrap();
        mount.sync().unwrap();
        eventually("the other host knows of it", || seen.exists());
        fs::write(&new, noise(round + 1, len)).unwrap();
        fs::rename(&new, &file).unwrap();
        mount.sync().unwrap();
        let (old, expected) = (hash_of(&noise(round, len)), hash_of(&noise(round + 1, len)));
        let seen = hash(&seen);
        assert!(seen == old || seen == expected, "round {round}: a half file: {seen}");
    }
}
