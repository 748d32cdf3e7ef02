//! State that earlier versions wrote: data directories, caches with unsent work, and backups.
//!
//! Each directory of `tests/formats` was written by the version that had these formats first. A
//! change of a format adds one, with `SEGUE_RECORD_FORMATS=NAME`, and none ever goes.

use std::fs;
use std::path::{Path, PathBuf};

use segue_bed::segue::SegueMount;

use crate::tree::{hash, hash_of, noise};
use crate::world::{CLOSE, World, arg, segue, sh};

fn recorded() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/formats")
}

fn unpack(archive: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    sh(to, &format!("tar -xzf '{}'", archive.display()));
}

/// What the server had when it was recorded.
const COMMITTED: &str = "
    mkdir -p dir/below; echo committed >dir/file; ln dir/file dir/other; ln -s ../file dir/link
    chmod 640 dir/file; truncate -s 1M sparse; printf end >>sparse
    echo old >removed; echo old >renamed
    setfattr -n user.note -v value dir/file";

/// What only the cache had. Of some changes others took the place.
const UNSENT: &str = "
    printf uns >dir/below/new; echo ent >>dir/below/new; echo more >>dir/file
    echo lost >>removed; rm removed; mv renamed dir/renamed
    echo made >temporary; rm temporary
    echo first >save; mv save dir/saved; echo second >save; mv save dir/saved; rm dir/saved";

/// Writes the state of this version as `name`.
fn record(name: &str) {
    let world = World::new().unwrap();
    let mut mount = world.mount(&world.a);
    let point = mount.path().to_owned();
    sh(&point, COMMITTED);
    fs::write(point.join("large"), noise(1, 70_000)).unwrap();
    mount.sync().unwrap();
    let (data, to) = (arg(world.server.data()).to_owned(), world.local("backup"));
    let backup = ["volume", "backup", "home", arg(&to), "--rate", "0", "--data", &data];
    assert_eq!(segue(&world.serving, &backup).code, Some(0));
    world.a.link_down().unwrap();
    world.lose_link(&world.a, &mount);
    sh(&point, UNSENT);
    let large = fs::File::options().write(true).open(point.join("large")).unwrap();
    std::os::unix::fs::FileExt::write_at(&large, b"patched", 40_000).unwrap();
    drop(large);
    mount.umount(&["--now"]).unwrap();
    let stopped = segue(&world.serving, &["serve", "--stop", "--data", &data]);
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    let to_directory = recorded().join(name);
    fs::create_dir_all(&to_directory).unwrap();
    for (what, from) in [("data", Path::new(&data)), ("home", world.a.home()), ("backup", &to)] {
        let archive = to_directory.join(format!("{what}.tar.gz"));
        let skip = "--exclude=./reserve --exclude=./lock --exclude=.local/state/segue/log";
        sh(from, &format!("tar --sort=name {skip} -czf '{}' .", archive.display()));
    }
}

/// The committed tree below `top`, as it was before the unsent work, or with that.
fn check(top: &Path, has_unsent: bool) {
    let read = |path: &str| fs::read_to_string(top.join(path)).ok();
    let mut large = noise(1, 70_000);
    if has_unsent {
        large[40_000..40_007].copy_from_slice(b"patched");
    }
    assert_eq!(hash(&top.join("large")), hash_of(&large));
    assert_eq!(fs::metadata(top.join("sparse")).unwrap().len(), (1 << 20) + 3);
    assert_eq!(fs::read_link(top.join("dir/link")).unwrap(), Path::new("../file"));
    assert_eq!(sh(top, "getfattr --only-values -n user.note dir/file"), "value");
    assert_eq!(sh(top, "stat -c %a-%h dir/file"), "640-2\n");
    let (file, other) = (read("dir/file"), read("dir/other"));
    let expected = if has_unsent { "committed\nmore\n" } else { "committed\n" };
    assert!(file.as_deref() == Some(expected) && other == file, "{file:?} {other:?}");
    let moved = [read("removed"), read("renamed"), read("dir/renamed"), read("dir/below/new")];
    let moved = moved.each_ref().map(Option::as_deref);
    match has_unsent {
        true => assert_eq!(moved, [None, None, Some("old\n"), Some("unsent\n")]),
        false => assert_eq!(moved, [Some("old\n"), Some("old\n"), None, None]),
    }
}

/// This version serves the data directory of each earlier one, sends the unsent work of its cache,
/// and restores its backup.
/// Proves S18.10.
#[test]
fn state_of_earlier_versions_is_read() {
    if let Ok(name) = std::env::var("SEGUE_RECORD_FORMATS") {
        record(&name);
    }
    let mut count = 0;
    for entry in fs::read_dir(recorded()).unwrap() {
        let from = entry.unwrap().path();
        let world = World::storing(|host| {
            let data = host.dir().join("data");
            unpack(&from.join("data.tar.gz"), &data);
            data
        });
        let Some(world) = world else { return };
        count += 1;
        unpack(&from.join("home.tar.gz"), world.a.home());
        let point = world.a.mkdir("mnt").unwrap();
        let mount = SegueMount::new(&world.a, &world.server.url("home"), &point, &[]).unwrap();
        check(&point, true);
        mount.sync().unwrap();
        let conflicts = segue(&world.a, &["conflicts", arg(&point)]);
        assert_eq!(conflicts.code, Some(0), "{conflicts:?}");
        let other = world.mount_with(&world.b, CLOSE);
        check(other.path(), true);

        let to = world.local("backup");
        unpack(&from.join("backup.tar.gz"), &to);
        let data = ["--data", arg(world.server.data())];
        let restore = ["volume", "restore", "again", arg(&to), "--rate", "0"];
        let restored = segue(&world.serving, &[&restore[..], &data].concat());
        assert_eq!(restored.code, Some(0), "{restored:?}");
        let checked = segue(&world.serving, &[&["volume", "check"][..], &data].concat());
        assert_eq!(checked.code, Some(0), "{checked:?}");
        let invite = world.server.invite(&["--volume", "again"]).unwrap();
        let point = world.b.mkdir("again").unwrap();
        let again = SegueMount::new(&world.b, &invite, &point, &[]).unwrap();
        check(again.path(), false);
    }
    assert!(count > 0);
}
