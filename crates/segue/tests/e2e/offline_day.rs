//! A day without a network: git, a build, a database, saved documents, trees that move; then the
//! network is back, slow, and everything arrives.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use segue_bed::LinkSpec;
use segue_bed::segue::SegueMount;

use crate::editors::vim;
use crate::sqlite::{FILL, contents, sqlite};
use crate::tree::{hash_of, noise};
use crate::world::{World, arg, eventually, json, save, sh, wait_for_state};
use crate::{build, git, tree};

/// What is in a directory, by path.
type Contents = BTreeMap<PathBuf, String>;

/// A project in git, a database, documents and what belongs to others, made on another host.
fn seed(world: &World) -> SegueMount {
    let mount = world.mount(&world.b);
    let top = mount.path().join("day");
    fs::create_dir(&top).unwrap();
    let project = build::prepare(&top);
    fs::write(project.join(".gitignore"), "*.o\n*.a\nmake.log\n").unwrap();
    sh(&project, "git init -q -b main .");
    git::configure(&project);
    sh(&project, "git add . && git commit -qm first");
    sqlite(&top.join("data.db"), FILL);
    for dir in ["notes", "other"] {
        fs::create_dir(top.join(dir)).unwrap();
        for number in 0..20 {
            let text = format!("{dir} {number}\n").repeat(200);
            fs::write(top.join(format!("{dir}/text{number}")), text).unwrap();
        }
    }
    mount.sync().unwrap();
    mount
}

/// Mounts, reads all that there is, and loses the network.
fn leave(world: &World) -> SegueMount {
    let mount = world.mount_with(&world.a, "write-back=async");
    let top = mount.path().join("day");
    assert!(tree::read(&top).len() > 150);
    contents(&top.join("data.db"));
    world.a.link_down().unwrap();
    world.lose_link(&world.a, &mount);
    mount
}

/// The mount dies, and is there again.
fn reboot(world: &World, mut mount: SegueMount) -> SegueMount {
    mount.kill9().unwrap();
    drop(mount);
    world.mount_with(&world.a, "write-back=async")
}

fn before_noon(top: &Path) {
    let project = top.join("zstd");
    assert_eq!(sh(&project, "git status --porcelain"), "");
    sh(&project, "git checkout -qb side; echo '/* side */' >>lib/zstd.h; git commit -qam side");
    sh(&project, "git checkout -q main; echo main >new.c; git add new.c; git commit -qm main");
    sh(&project, "git merge -q side -m merged && git branch -qd side");
    let make = r#"
        objects=$(ls lib/common/*.c lib/decompress/*.c | sed 's/c$/o/' | tr '\n' ' ')
        make -j2 libzstd.a "objects=$objects" >make.log 2>&1 || { cat make.log >&2; exit 1; }
        make -q libzstd.a "objects=$objects"; ar t libzstd.a"#;
    assert!(sh(&project, make).lines().count() > 10);
    let update = "UPDATE t SET text = 'morning ' || id WHERE id % 7 = 0;";
    sqlite(&top.join("data.db"), &format!("BEGIN; {update} DELETE FROM t WHERE id > 4000; COMMIT"));
    save_documents(&top.join("notes"));
}

fn save_documents(notes: &Path) {
    if Command::new("vim.tiny").arg("--version").output().is_ok() {
        let set = "set backupskip= writebackup fsync backupcopy=auto";
        vim(&notes.join("text1"), &[set, "%s/notes/by vim/", "wq"]);
    }
    for number in 2..5 {
        let (new, old) = (notes.join(format!(".text{number}.new")), format!("text{number}"));
        save(&new, &noise(number, 40_000)).unwrap();
        fs::File::open(&new).unwrap().sync_all().unwrap();
        fs::rename(&new, notes.join(old)).unwrap();
    }
    fs::OpenOptions::new().write(true).open(notes.join("text5")).unwrap().set_len(100).unwrap();
}

fn after_noon(top: &Path) {
    let project = top.join("zstd");
    sh(&project, "git mv new.c newer.c && git rm -q COPYING && git commit -qm afternoon");
    sh(&project, "git gc -q && git fsck --full --strict");
    let wal = "PRAGMA journal_mode=WAL; UPDATE t SET text = 'afternoon' WHERE id % 11 = 0;";
    sqlite(&top.join("data.db"), wal);
    sqlite(&top.join("data.db"), "PRAGMA journal_mode=DELETE; INSERT INTO t VALUES (9999, 'x')");
    let script = "
        cp -r zstd/lib copy; mv copy/common copy/moved; mv copy trees; rm -r trees/compress
        mkdir -p deep/er/still; mv trees deep/er; ln -s er/trees deep/link; ln zstd/demo.c deep/hard
        chmod 750 deep; chmod 600 notes/text6; rm notes/text7; mv notes/text8 deep/text
        mkdir gone; touch gone/file; rm -r gone; mv notes/text9 notes/text10
        touch -d '2001-02-03 04:05:06.789' deep/er";
    sh(top, script);
}

/// The network is back, at 256 KB/s and 40 ms: everything arrives.
fn come_back(world: &World, mount: &SegueMount) {
    world.a.set_link(LinkSpec::kb_per_s(256).with_rtt(Duration::from_millis(40))).unwrap();
    world.a.link_up().unwrap();
    wait_for_state(&world.a, mount, "online");
    mount.sync().unwrap();
}

/// How many conflicts `status` counts; nothing was refused.
fn conflicts(world: &World, mount: &SegueMount) -> u64 {
    // A removed file may be released by the last process that had it open, also after a sync.
    eventually("nothing waits", || {
        let log = json(&world.a, &["log", arg(mount.path())]);
        let left = log["records"].as_array().unwrap();
        assert!(left.iter().all(|record| record["kind"] == "release"), "{log}");
        left.is_empty()
    });
    let status = json(&world.a, &["status", arg(mount.path())]);
    assert_eq!(status["mounts"][0]["refused"], 0, "{status}");
    status["mounts"][0]["conflicts"].as_u64().unwrap()
}

/// Work goes on without a network, and arrives in order once it is back. A host with an empty
/// cache then finds the same tree, with contents, modes and times, and no conflict.
/// Proves S1.5, S11.4, S11.5, S12.1.
#[test]
fn a_day_without_a_network_arrives_whole() {
    let Some(world) = World::new() else { return };
    let mut seeding = seed(&world);
    seeding.umount(&[]).unwrap();
    let mut mount = leave(&world);
    let top = mount.path().join("day");
    before_noon(&top);
    let before = tree::read(&top);
    mount = reboot(&world, mount);
    wait_for_state(&world.a, &mount, "offline");
    tree::assert_same("mounted again without a network", &tree::read(&top), &before);
    after_noon(&top);
    let (expected, rows) = (tree::read(&top), contents(&top.join("data.db")));
    come_back(&world, &mount);
    assert_eq!(conflicts(&world, &mount), 0);
    let reader = world.mount(&world.bed.host("reader").unwrap());
    let there = reader.path().join("day");
    tree::assert_same("on another host", &tree::read(&there), &expected);
    tree::assert_same("here", &tree::read(&top), &expected);
    assert_eq!(contents(&there.join("data.db")), rows);
    assert_eq!(sh(&there.join("zstd"), "git fsck --full --strict; git status --porcelain"), "");
}

/// What another host did meanwhile to other files is there too, also in the same directories.
/// Proves S9.4, S11.5.
#[test]
fn another_host_worked_meanwhile() {
    let Some(world) = World::new() else { return };
    let other = seed(&world);
    let mut mount = leave(&world);
    let (here, there) = (mount.path().join("day"), other.path().join("day"));
    let names = "
        echo theirs >other/text1; rm other/text2; mv other/text3 other/renamed
        mkdir other/new; mv other/text4 other/new; chmod 640 other/text5
        echo b >>notes/text15; echo b >notes/from-b; mv notes/text16 notes/renamed-b";
    sh(&there, names);
    other.sync().unwrap();
    let database = here.join("data.db");
    sqlite(&database, "UPDATE t SET text = 'offline' WHERE id % 3 = 0");
    save_documents(&here.join("notes"));
    mount = reboot(&world, mount);
    after_noon_without_git(&here);
    let theirs = ["other", "notes/text15", "notes/text16", "notes/from-b", "notes/renamed-b"];
    let is_theirs = |path: &Path| theirs.iter().any(|name| path.starts_with(name));
    let mut expected: Contents = tree::read_contents(&here);
    expected.retain(|path, _| !is_theirs(path));
    expected.extend(tree::read_contents(&there).into_iter().filter(|(path, _)| is_theirs(path)));
    come_back(&world, &mount);
    assert_eq!(conflicts(&world, &mount), 0);
    world.a.set_link(LinkSpec::default()).unwrap();
    // What they know of each other's names may be a second old.
    let mounts = [world.remount(&world.a, mount), world.remount(&world.b, other)];
    let reader = world.mount(&world.bed.host("reader").unwrap());
    for (mount, name) in mounts.iter().chain([&reader]).zip(["here", "there", "on a third host"]) {
        tree::assert_same(name, &tree::read_contents(&mount.path().join("day")), &expected);
    }
}

fn after_noon_without_git(top: &Path) {
    let script = "
        cp -r zstd/lib copy; mv copy/common copy/moved; rm -r copy/compress; mv notes/text8 copy
        rm notes/text7; mkdir notes/made; mv notes/text9 notes/made; chmod 600 notes/text6";
    sh(top, script);
}

/// Two hosts change the same files while one of them is offline. Nothing is overwritten: the
/// online host's contents have the name, the others are conflict copies, and each is counted.
/// Proves S9.1, S9.13.
#[test]
fn what_both_changed_is_kept_twice() {
    let Some(world) = World::new() else { return };
    let other = world.mount(&world.b);
    for name in ["both", "ours-gone-theirs", "moved", "calm"] {
        save(&other.path().join(name), &noise(0, 50_000)).unwrap();
    }
    // Else the second mount may read a file before its data are stored, and both have changed it.
    other.sync().unwrap();
    let mut mount = world.mount_with(&world.a, "write-back=async");
    tree::read(mount.path());
    world.a.link_down().unwrap();
    world.lose_link(&world.a, &mount);
    let (here, there) = (mount.path().to_owned(), other.path().to_owned());
    let mut written = Vec::new();
    let mut write = |dir: &Path, name: &str| {
        let bytes = noise(100 + written.len() as u64, 60_000);
        save(&dir.join(name), &bytes).unwrap();
        written.push(hash_of(&bytes));
    };
    // Both write one file, twice here; both make one name; one writes what the other removes,
    // or moves and writes.
    write(&here, "both");
    write(&there, "both");
    write(&here, "born");
    write(&there, "born");
    write(&here, "ours-gone-theirs");
    fs::remove_file(there.join("ours-gone-theirs")).unwrap();
    write(&here, "moved");
    fs::rename(there.join("moved"), there.join("elsewhere")).unwrap();
    write(&there, "elsewhere");
    write(&here, "calm");
    other.sync().unwrap();
    mount = reboot(&world, mount);
    come_back(&world, &mount);
    assert_eq!(conflicts(&world, &mount), 4);
    let reader = world.mount(&world.bed.host("reader").unwrap());
    let found = tree::read_contents(reader.path());
    for (number, hash) in written.iter().enumerate() {
        assert!(found.values().any(|found| found == hash), "{number} is lost: {found:?}");
    }
    for (name, number) in [("both", 1), ("born", 3), ("elsewhere", 6), ("calm", 7)] {
        assert_eq!(found[Path::new(name)], written[number], "{name}");
    }
}
