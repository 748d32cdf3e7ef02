//! `segue watch`: what changes below a directory, as it reaches the server.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use segue_bed::{Host, Proc};
use serde_json::Value;

use crate::conflicts::apart;
use crate::world::{World, arg, eventually, json, segue, sh};
use crate::{build, git};

/// Size of each file below a directory, by its path from there; of others nothing.
type Listing = BTreeMap<PathBuf, Option<u64>>;

fn list(top: &Path, below: &Path, into: &mut Listing) {
    // It may be gone by now.
    let Ok(entries) = fs::read_dir(top.join(below)) else { return };
    for entry in entries.flatten() {
        look(top, &below.join(entry.file_name()), into);
    }
}

/// Takes in what is at `path` now.
fn look(top: &Path, path: &Path, into: &mut Listing) {
    let Ok(meta) = top.join(path).symlink_metadata() else { return };
    into.insert(path.into(), meta.is_file().then_some(meta.size()));
    if meta.is_dir() {
        list(top, path, into);
    }
}

fn listing(top: &Path) -> Listing {
    let mut all = Listing::new();
    list(top, Path::new(""), &mut all);
    all
}

/// A program that knows a directory from what it was told, and looks at nothing else.
struct Watcher {
    _process: Proc,
    said: PathBuf,
    heard: usize,
    top: PathBuf,
    known: Listing,
    others: Vec<String>,
}

impl Watcher {
    fn start(host: &Host, top: &Path) -> Watcher {
        let said = host.dir().join("watch.out");
        let mut command = host.command("segue");
        command.arg("watch").arg(top).stdout(File::create(&said).unwrap());
        let process = host.spawn(&mut command).unwrap();
        let (known, others) = Default::default();
        let mut watcher =
            Watcher { _process: process, said, heard: 0, top: top.into(), known, others };
        eventually("it is watched", || {
            watcher.listen();
            watcher.others == ["watching"]
        });
        watcher.known = listing(top);
        watcher
    }

    /// Takes in what was said since.
    fn listen(&mut self) {
        let text = fs::read_to_string(&self.said).unwrap();
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        for line in text[..whole].lines().skip(self.heard) {
            self.heard += 1;
            let line: Value = serde_json::from_str(line).unwrap();
            let word = |key: &str| line[key].as_str().unwrap_or_default().to_string();
            let path = PathBuf::from(word("path"));
            let path = path.strip_prefix(&self.top).unwrap();
            match word("event").as_str() {
                "named" | "changed" => look(&self.top, path, &mut self.known),
                "gone" => self.known.retain(|known, _| !known.starts_with(path)),
                other => self.others.push(other.to_string()),
            }
        }
    }

    fn comes_to(&mut self, truth: &Listing) {
        eventually("what was told is what is there", || {
            self.listen();
            self.known == *truth
        });
    }
}

/// Who is told what changes knows a tree as it is, though another host builds in it and commits it.
/// Proves S22.1, S22.2.
#[test]
fn what_is_told_is_what_happens() {
    let Some(world) = World::new() else { return };
    let (mount, other) = (world.mount(&world.a), world.mount(&world.b));
    sh(mount.path(), "mkdir -p work/old; echo 1 >work/old/file; echo 1 >outside");
    mount.sync().unwrap();
    let (here, there) = (mount.path().join("work"), other.path().join("work"));
    let mut watcher = Watcher::start(&world.b, &there);
    assert_eq!(watcher.known.len(), 2);
    let made = build::prepare(&here);
    sh(&made, "make -j2 2>&1; git init -q -b main .");
    git::configure(&made);
    sh(&made, "git add . && git commit -qm first");
    sh(&here, "mv old new; ln new/file link; echo more >>link; mkfifo pipe; ln -s x pointer");
    sh(mount.path(), "echo more >>outside; mv work/new/file moved; mv outside work/inside");
    mount.sync().unwrap();
    watcher.comes_to(&listing(&here));
    sh(&made, "find . -name '*.o' -delete; rm -rf .git");
    sh(mount.path(), "rm -r work/new; mv work/zstd .; mv zstd work/again");
    mount.sync().unwrap();
    watcher.comes_to(&listing(&here));
    // Also what this host does.
    sh(&there, "rm -r again; echo mine >inside");
    other.sync().unwrap();
    watcher.comes_to(&listing(&here));
    // A busy machine may be silent for a second.
    watcher.others.retain(|event| event != "offline" && event != "online");
    assert_eq!(watcher.others, ["watching"]);
}

/// A link is called lost long before its connection is given up.
/// Proves S22.5.
#[test]
fn a_lost_link_is_told_within_seconds() {
    let Some(world) = World::new() else { return };
    let mount = world.mount(&world.a);
    let mut watcher = Watcher::start(&world.a, mount.path());
    let mut comes = |event: &str| {
        eventually("it is told", || {
            watcher.listen();
            watcher.others.last().is_some_and(|last| last == event)
        });
    };
    world.a.link_down().unwrap();
    comes("offline");
    let status = json(&world.a, &["status", arg(mount.path())]);
    assert_eq!(status["mounts"][0]["state"], "online", "the connection is not given up: {status}");
    world.a.link_up().unwrap();
    comes("online");
}

/// It was told as an answer that breaks off.
#[test]
fn the_unmount_of_what_is_watched_is_told() {
    let Some(world) = World::new() else { return };
    let mut mount = world.mount(&world.a);
    let mut watch = world.a.command("segue");
    watch.arg("watch").arg(mount.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut watch = watch.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(watch.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("watching"), "{line}");
    mount.umount(&[]).unwrap();
    let ended = watch.wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(ended.status.success() && said.contains(": not mounted any more"), "{said}");
}

/// The host whose change stays hears from `watch` that a conflict copy stands beside its file.
/// Proves S22.6.
#[test]
fn a_conflict_copy_is_told_to_the_other_host() {
    let Some(world) = World::new() else { return };
    let (a, b) = (world.mount(&world.a), world.mount(&world.b));
    fs::create_dir(a.path().join("dir")).unwrap();
    fs::write(a.path().join("dir/file"), "base").unwrap();
    a.sync().unwrap();
    let mut watcher = Watcher::start(&world.b, b.path());
    let save = |mount: &Path, text: &str| fs::write(mount.join("dir/file"), text).unwrap();
    apart(&world, (&a, &b), |a| save(a, "of a"), |b| save(b, "of b"));
    let beside = b.path().join("dir/file");
    eventually("the copy is told", || {
        watcher.listen();
        let said = fs::read_to_string(&watcher.said).unwrap();
        let lines = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["event"] == "named").any(|line| {
            line["conflict_of"] == arg(&beside)
                && line["path"].as_str().unwrap().contains("/dir/file.conflict-")
        })
    });
}

/// The host whose change stays hears of the copy from `status` and `conflicts`, too, as long as the
/// copy is there. A third host hears nothing.
/// Proves S12.25.
#[test]
fn status_tells_of_a_copy_beside_a_file_of_this_host() {
    let Some(world) = World::new() else { return };
    let third = world.bed.host("c").unwrap();
    let (a, b, c) = (world.mount(&world.a), world.mount(&world.b), world.mount(&third));
    fs::create_dir(a.path().join("dir")).unwrap();
    fs::write(a.path().join("dir/file"), "base").unwrap();
    a.sync().unwrap();
    let save = |mount: &Path, text: &str| fs::write(mount.join("dir/file"), text).unwrap();
    apart(&world, (&a, &b), |a| save(a, "of a"), |b| save(b, "of b"));
    let beside = |host: &Host, mount: &Path| {
        json(host, &["status", arg(mount)])["mounts"][0]["conflicts_beside"].as_u64()
    };
    eventually("b is told", || beside(&world.b, b.path()) == Some(1));
    let listed = json(&world.b, &["conflicts", arg(b.path())])["conflicts"].clone();
    assert_eq!(listed[0]["kind"], "beside", "{listed}");
    assert_eq!(listed[0]["of"], arg(&b.path().join("dir/file")), "{listed}");
    let copy = PathBuf::from(listed[0]["path"].as_str().unwrap());
    assert_eq!(fs::read(&copy).unwrap(), b"of a");
    let words = segue(&world.b, &["status", arg(b.path())]).out;
    assert!(words.contains("1 copy of other hosts' changes beside files of this host"), "{words}");
    // The next mount knows it, too.
    let b = world.remount(&world.b, b);
    assert_eq!(beside(&world.b, b.path()), Some(1));
    let refused = segue(&world.b, &["resolve", "--ours", arg(&b.path().join("dir/file"))]);
    assert!(refused.code == Some(5) && refused.err.contains("name the copy"), "{refused:?}");
    assert_eq!(beside(&third, c.path()), Some(0));
    assert_eq!(beside(&world.a, a.path()), Some(0));
    let resolved = segue(&world.a, &["resolve", "--theirs", arg(&a.path().join("dir/file"))]);
    assert_eq!(resolved.code, Some(0), "{resolved:?}");
    a.sync().unwrap();
    eventually("the copy is gone", || beside(&world.b, b.path()) == Some(0));
    let none = segue(&world.b, &["conflicts", arg(b.path())]);
    assert_eq!(none.code, Some(0), "{none:?}");
}

/// What changed while nobody could be told is told afterwards, also by a server that was killed.
/// Proves S22.2, S22.3.
#[test]
fn what_changed_meanwhile_is_told_afterwards() {
    let Some(mut world) = World::new() else { return };
    let (mount, other) = (world.mount(&world.a), world.mount(&world.b));
    let (here, there) = (mount.path(), other.path());
    sh(here, "mkdir d; echo 1 >d/1; echo 2 >d/2");
    mount.sync().unwrap();
    let mut watcher = Watcher::start(&world.b, there);
    world.b.link_down().unwrap();
    world.lose_link(&world.b, &other);
    eventually("it says so", || {
        watcher.listen();
        watcher.others.last().is_some_and(|last| last == "offline")
    });
    sh(here, "for f in $(seq 300); do echo $f >d/$f; done; rm d/2; echo more >>d/1; mkdir e");
    mount.sync().unwrap();
    world.b.link_up().unwrap();
    watcher.comes_to(&listing(here));
    world.server.restart().unwrap();
    sh(here, "mv d e/d; rm e/d/7");
    mount.sync().unwrap();
    watcher.comes_to(&listing(here));
    assert!(!watcher.others.contains(&"unknown".into()), "{:?}", watcher.others);
}

/// What cannot be watched is refused with words.
#[test]
fn only_directories_of_a_mount_are_watched() {
    let Some(world) = World::new() else { return };
    let mount = world.mount(&world.a);
    fs::write(mount.path().join("file"), b"x").unwrap();
    let (file, absent) = (mount.path().join("file"), mount.path().join("absent"));
    for (path, code, words) in [
        (file.as_path(), 1, "not a directory"),
        (absent.as_path(), 3, "No such file"),
        (world.a.dir(), 1, "not on a Segue mount"),
    ] {
        let ended = segue(&world.a, &["watch", arg(path)]);
        assert_eq!(ended.code, Some(code), "{path:?}");
        assert!(ended.err.contains(words), "{}", ended.err);
    }
}
