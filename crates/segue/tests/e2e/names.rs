//! Names: links, renames, removals, and what the rules forbid.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};

use crate::tree::{hash, hash_of, noise};
use crate::world::{World, errno, eventually, sh};

const EPERM: Option<i32> = Some(1);
const ENOENT: Option<i32> = Some(2);
const EEXIST: Option<i32> = Some(17);
const ENOTDIR: Option<i32> = Some(20);
const EISDIR: Option<i32> = Some(21);
const EINVAL: Option<i32> = Some(22);
const ENAMETOOLONG: Option<i32> = Some(36);
const ENOTEMPTY: Option<i32> = Some(39);
const ELOOP: Option<i32> = Some(40);

fn listing(dir: &Path) -> Vec<OsString> {
    let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    names
}

/// Hard links are names of one file: one inode number, a right link count, shared data, on
/// this host, on another one and after a new mount.
/// Proves S1.4, S1.8.
#[test]
fn hard_links_are_one_file() {
    let Some(world) = World::new() else { return };
    let mount = world.mount(&world.a);
    let (one, two) = (mount.path().join("one"), mount.path().join("dir/two"));
    fs::create_dir(mount.path().join("dir")).unwrap();
    fs::write(&one, "first").unwrap();
    assert_eq!(fs::metadata(&one).unwrap().nlink(), 1);
    fs::hard_link(&one, &two).unwrap();
    fs::hard_link(&two, mount.path().join("three")).unwrap();
    let number = fs::metadata(&one).unwrap().ino();
    let check = |point: &Path, links: u64, text: &str| {
        let names = ["one", "dir/two", "three"].map(|name| point.join(name));
        for path in names.iter().filter(|path| path.exists()) {
            let meta = fs::metadata(path).unwrap();
            assert_eq!((meta.nlink(), meta.ino()), (links, number), "{}", path.display());
            assert_eq!(fs::read_to_string(path).unwrap(), text, "{}", path.display());
        }
    };
    check(mount.path(), 3, "first");
    fs::write(&two, "second, longer").unwrap();
    check(mount.path(), 3, "second, longer");
    assert_eq!(errno(fs::hard_link(&one, &two)), EEXIST);
    assert_eq!(errno(fs::hard_link(mount.path().join("dir"), mount.path().join("x"))), EPERM);
    // Renaming one name of a file onto another of the same file leaves both.
    fs::rename(&one, &two).unwrap();
    assert!(one.exists() && two.exists());
    fs::remove_file(&one).unwrap();
    check(mount.path(), 2, "second, longer");
    mount.sync().unwrap();
    let other = world.mount(&world.b);
    assert_eq!(listing(other.path()), ["dir", "three"]);
    check(other.path(), 2, "second, longer");
    let mount = world.remount(&world.a, mount);
    check(mount.path(), 2, "second, longer");
    fs::remove_file(mount.path().join("three")).unwrap();
    check(mount.path(), 1, "second, longer");
}

/// A file that is open lives on without a name: reads and writes through the handle work, the
/// name is free at once, and nothing is left after the last close.
/// Proves S1.6.
#[test]
fn an_open_file_lives_without_its_name() {
    let Some(world) = World::new() else { return };
    let mount = world.mount(&world.a);
    let path = mount.path().join("file");
    fs::write(&path, noise(1, 500_000)).unwrap();
    let mount = world.remount(&world.a, mount);
    // Not even cached: written by an earlier mount of this host.
    let mut file = File::options().read(true).write(true).open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(errno(fs::metadata(&path)), ENOENT);
    fs::write(&path, "another").unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    let mut seen = Vec::new();
    file.read_to_end(&mut seen).unwrap();
    assert_eq!(hash_of(&seen), hash_of(&noise(1, 500_000)));
    file.seek(SeekFrom::Start(400_000)).unwrap();
    file.write_all(&noise(2, 200_000)).unwrap();
    file.sync_all().unwrap();
    file.set_len(550_000).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    seen.clear();
    file.read_to_end(&mut seen).unwrap();
    let mut expected = noise(1, 400_000);
    expected.extend(&noise(2, 200_000)[..150_000]);
    // The generator's bytes depend on the length asked for only at their end.
    expected[..400_000].copy_from_slice(&noise(1, 500_000)[..400_000]);
    assert_eq!(hash_of(&seen), hash_of(&expected));
    drop(file);
    assert_eq!(fs::read_to_string(&path).unwrap(), "another");
    assert_eq!(listing(mount.path()), ["file"]);
    let other = world.mount(&world.b);
    assert_eq!(fs::read_to_string(other.path().join("file")).unwrap(), "another");
    assert_eq!(listing(other.path()), ["file"]);
}

/// A rename over a file that is open replaces it under its name only: the handle keeps the
/// old file, every open sees the old or the new one whole.
#[test]
fn rename_over_an_open_file() {
    let Some(world) = World::new() else { return };
    let mount = world.mount(&world.a);
    let (name, new) = (mount.path().join("name"), mount.path().join("new"));
    fs::write(&name, noise(1, 100_000)).unwrap();
    let mut held = File::open(&name).unwrap();
    fs::write(&new, noise(2, 90_000)).unwrap();
    let number = fs::metadata(&new).unwrap().ino();
    fs::rename(&new, &name).unwrap();
    assert_eq!(fs::metadata(&name).unwrap().ino(), number);
    assert_eq!(errno(fs::metadata(&new)), ENOENT);
    let mut seen = Vec::new();
    held.read_to_end(&mut seen).unwrap();
    assert_eq!(hash_of(&seen), hash_of(&noise(1, 100_000)));
    assert_eq!(hash(&name), hash_of(&noise(2, 90_000)));
    // In a loop, with a reader beside it.
    let is_whole = |path: &Path| {
        let text = fs::read_to_string(path).unwrap();
        let first = text.chars().next();
        text.len() == 10_000 && text.chars().all(|c| Some(c) == first)
    };
    let letters = || ('a'..='z').cycle().take(150);
    fs::write(&name, "0".repeat(10_000)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for letter in letters() {
                fs::write(&new, letter.to_string().repeat(10_000)).unwrap();
                fs::rename(&new, &name).unwrap();
            }
        });
        for _ in 0..300 {
            assert!(is_whole(&name));
        }
    });
    let last = letters().last().unwrap().to_string().repeat(10_000);
    assert_eq!(fs::read_to_string(&name).unwrap(), last);
    mount.sync().unwrap();
    let other = world.mount(&world.b);
    assert_eq!(fs::read_to_string(other.path().join("name")).unwrap(), last);
    assert_eq!(listing(other.path()), ["name"]);
}

/// Symbolic links of any length up to the kernel's limit, dangling, relative, to directories
/// and in circles are what they are on every host.
/// Proves S1.8, S23.1.
#[test]
fn symbolic_links() {
    let Some(world) = World::new() else { return };
    let mount = world.mount(&world.a);
    let top = mount.path();
    fs::create_dir(top.join("dir")).unwrap();
    fs::write(top.join("dir/file"), "text").unwrap();
    let long = "x/".repeat(2_047) + "y";
    assert_eq!(long.len(), 4_095);
    let odd = OsStr::from_bytes(b"odd \xff\n target");
    let links: [(&str, &OsStr); 6] = [
        ("to-file", OsStr::new("dir/file")),
        ("to-dir", OsStr::new("dir")),
        ("dangling", OsStr::new("/no/such/thing")),
        ("long", OsStr::new(&long)),
        ("odd", odd),
        ("circle", OsStr::new("circle")),
    ];
    for (name, target) in links {
        symlink(target, top.join(name)).unwrap();
    }
    let check = |top: &Path| {
        for (name, target) in links {
            assert_eq!(fs::read_link(top.join(name)).unwrap(), Path::new(target), "{name}");
            let meta = fs::symlink_metadata(top.join(name)).unwrap();
            assert!(meta.is_symlink() && meta.len() == target.len() as u64, "{name}");
        }
        assert_eq!(fs::read_to_string(top.join("to-file")).unwrap(), "text");
        assert_eq!(fs::read_to_string(top.join("to-dir/file")).unwrap(), "text");
        assert_eq!(errno(fs::metadata(top.join("dangling"))), ENOENT);
        assert_eq!(errno(fs::metadata(top.join("circle"))), ELOOP);
    };
    check(top);
    mount.sync().unwrap();
    check(world.mount(&world.b).path());
    let mount = world.remount(&world.a, mount);
    check(mount.path());
    fs::remove_file(mount.path().join("to-dir")).unwrap();
    assert!(mount.path().join("dir/file").exists());
}

/// Names are bytes: any but NUL and '/', up to 255 of them, in paths of any depth.
/// Proves S23.1.
#[test]
fn names_are_bytes() {
    let Some(world) = World::new() else { return };
    let mount = world.mount(&world.a);
    let top = mount.path();
    let mut names: Vec<OsString> = [
        b"\xff\xfe not utf-8 \x80".as_slice(),
        b"new\nline and \ttab",
        b" space ",
        b"-dash",
        b"...",
        b"back\\slash'quote\"",
        "\u{1F980}\u{0301}".as_bytes(),
    ]
    .map(|name| OsString::from_vec(name.to_vec()))
    .to_vec();
    names.push("n".repeat(255).into());
    names.push("\u{00e9}".repeat(127).into());
    for (number, name) in names.iter().enumerate() {
        fs::write(top.join(name), format!("{number}")).unwrap();
    }
    let too_long = top.join("n".repeat(256));
    assert_eq!(errno(fs::write(&too_long, "")), ENAMETOOLONG);
    assert_eq!(errno(fs::create_dir(&too_long)), ENAMETOOLONG);
    assert_eq!(errno(fs::rename(top.join("-dash"), &too_long)), ENAMETOOLONG);
    assert_eq!(errno(fs::metadata(&too_long)), ENAMETOOLONG);
    let deep: PathBuf = (0..150).map(|number| format!("level-{number}")).collect();
    fs::create_dir_all(top.join(&deep)).unwrap();
    fs::write(top.join(&deep).join("bottom"), "deep").unwrap();
    names.push("level-0".into());
    names.sort();
    mount.sync().unwrap();
    let other = world.mount(&world.b);
    for top in [top, other.path()] {
        assert_eq!(listing(top), names);
        let found: Vec<_> = names.iter().filter(|name| *name != "level-0").collect();
        let texts: std::collections::BTreeSet<_> =
            found.iter().map(|name| fs::read_to_string(top.join(name)).unwrap()).collect();
        assert_eq!(texts.len(), 9, "{texts:?}");
        assert_eq!(fs::read_to_string(top.join(&deep).join("bottom")).unwrap(), "deep");
    }
}

/// What the rules forbid fails with the errno that POSIX names, and changes nothing.
#[test]
fn forbidden_changes_say_why() {
    let Some(world) = World::new() else { return };
    let mount = world.mount(&world.a);
    let at = |name: &str| mount.path().join(name);
    sh(mount.path(), "mkdir -p full/inner empty other; echo text >file; echo in >full/inner/f");
    let before = sh(mount.path(), "find . | sort; cat file full/inner/f");
    assert_eq!(errno(fs::remove_dir(at("full"))), ENOTEMPTY);
    assert_eq!(errno(fs::remove_dir(at("file"))), ENOTDIR);
    assert_eq!(errno(fs::remove_file(at("empty"))), EISDIR);
    assert_eq!(errno(fs::create_dir(at("file"))), EEXIST);
    assert_eq!(errno(fs::create_dir(at("nowhere/dir"))), ENOENT);
    assert_eq!(errno(File::options().write(true).open(at("empty"))), EISDIR);
    assert_eq!(errno(fs::write(at("file/below"), "")), ENOTDIR);
    assert_eq!(errno(fs::read_dir(at("file")).map(drop)), ENOTDIR);
    assert_eq!(errno(fs::remove_file(at("nothing"))), ENOENT);
    assert_eq!(errno(fs::rename(at("nothing"), at("file"))), ENOENT);
    assert_eq!(errno(fs::rename(at("file"), at("empty"))), EISDIR);
    assert_eq!(errno(fs::rename(at("empty"), at("file"))), ENOTDIR);
    assert_eq!(errno(fs::rename(at("empty"), at("full"))), ENOTEMPTY);
    assert_eq!(errno(fs::rename(at("full"), at("full/inner/below"))), EINVAL);
    assert_eq!(sh(mount.path(), "find . | sort; cat file full/inner/f"), before);
    // And what they allow.
    fs::rename(at("full"), at("empty")).unwrap();
    assert_eq!(fs::read_to_string(at("empty/inner/f")).unwrap(), "in\n");
    fs::rename(at("empty/inner"), at("other/inner")).unwrap();
    mount.sync().unwrap();
    let other = world.mount(&world.b);
    let there = sh(other.path(), "find . | sort; cat file other/inner/f");
    assert_eq!(there, sh(mount.path(), "find . | sort; cat file other/inner/f"));
}

/// renameat2: NOREPLACE never replaces, EXCHANGE swaps two names, of files and of a file with
/// a directory; on another host too.
/// Proves S4.10.
#[test]
fn renames_with_flags() {
    let Some(world) = World::new() else { return };
    let (mount, other) = world.closing_mounts();
    let at = |name: &str| mount.path().join(name);
    let rename = |from: &str, to: &str, flags| {
        renameat_with(CWD, at(from), CWD, at(to), flags).map_err(std::io::Error::from)
    };
    sh(mount.path(), "echo one >one; echo two >two; mkdir dir; echo in >dir/in");
    assert_eq!(errno(rename("one", "two", RenameFlags::NOREPLACE)), EEXIST);
    assert_eq!(fs::read_to_string(at("two")).unwrap(), "two\n");
    rename("one", "three", RenameFlags::NOREPLACE).unwrap();
    assert!(!at("one").exists());
    assert_eq!(errno(rename("three", "none", RenameFlags::EXCHANGE)), ENOENT);
    rename("three", "two", RenameFlags::EXCHANGE).unwrap();
    rename("two", "dir", RenameFlags::EXCHANGE).unwrap();
    let check = |top: &Path| {
        assert_eq!(fs::read_to_string(top.join("three")).unwrap(), "two\n");
        assert_eq!(fs::read_to_string(top.join("dir")).unwrap(), "one\n");
        assert_eq!(fs::read_to_string(top.join("two/in")).unwrap(), "in\n");
    };
    check(mount.path());
    eventually("the other host has it", || listing(other.path()) == ["dir", "three", "two"]);
    eventually("the names are swapped there", || other.path().join("two/in").exists());
    check(other.path());
    // A name that the other host has just made is not replaced either.
    assert!(!at("fresh").exists());
    fs::write(other.path().join("fresh"), "theirs").unwrap();
    assert_eq!(errno(rename("three", "fresh", RenameFlags::NOREPLACE)), EEXIST);
    eventually("it is still theirs", || {
        fs::read_to_string(at("fresh")).is_ok_and(|text| text == "theirs")
    });
    assert_eq!(fs::read_to_string(at("three")).unwrap(), "two\n");
}

/// A directory's mtime and ctime change when a name in it is made, renamed or removed, and
/// not when a file in it is written.
#[test]
fn directory_times_follow_names() {
    let Some(world) = World::new() else { return };
    let mount = world.mount(&world.a);
    let dir = mount.path().join("dir");
    fs::create_dir(&dir).unwrap();
    let times = |dir: &Path| {
        let meta = fs::metadata(dir).unwrap();
        ((meta.mtime(), meta.mtime_nsec()), (meta.ctime(), meta.ctime_nsec()))
    };
    let mut last = times(&dir);
    let steps: [(&str, bool); 6] = [
        ("echo x >file", true),
        ("echo more >>file", false),
        ("mv file moved", true),
        ("ln moved linked", true),
        ("mkdir below", true),
        ("rm -r below moved linked", true),
    ];
    for (step, changes) in steps {
        std::thread::sleep(std::time::Duration::from_millis(20));
        sh(&dir, step);
        let now = times(&dir);
        match changes {
            true => assert!(now.0 > last.0 && now.1 > last.1, "{step}: {now:?} after {last:?}"),
            false => assert_eq!(now, last, "{step}"),
        }
        last = now;
    }
    mount.sync().unwrap();
    let other = world.mount(&world.b);
    assert_eq!(times(&other.path().join("dir")), last);
}
