//! The two lanes of write-back: what goes past bulk, what does not, and what a host that is lost
//! leaves on the server.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use segue_bed::LinkSpec;

use crate::git::configure;
use crate::sqlite::sqlite;
use crate::tree::{hash, hash_of, noise};
use crate::world::{World, arg, end, eventually, has_data, json, save, segue, sh};

/// More than a thin link carries in a test.
const BULK: usize = 24 << 20;

/// Writes much into `to`, as another program.
fn write_bulk(world: &World, to: &Path) {
    let from = world.local("bulk").join("noise");
    save(&from, &noise(1, BULK)).unwrap();
    let copied = Command::new("cp").args([arg(&from), arg(to)]).process_group(0).status().unwrap();
    assert!(copied.success());
}

/// Names, attributes and what they need do not wait for a large file, and contents come before
/// the name that shows them.
/// Proves S4.6, S7.2, S7.5.
#[test]
fn metadata_go_past_bulk_and_contents_before_their_name() {
    let Some(world) = World::new() else { return };
    let (mount, other) = (world.mount(&world.a), world.mount(&world.b));
    let (here, there) = (mount.path(), other.path());
    fs::write(here.join("old"), "old").unwrap();
    mount.sync().unwrap();
    world.a.set_link(LinkSpec::kb_per_s(200)).unwrap();
    write_bulk(&world, &here.join("bulk"));
    fs::create_dir_all(here.join("a/b")).unwrap();
    fs::rename(here.join("old"), here.join("a/new")).unwrap();
    std::os::unix::fs::symlink("new", here.join("a/link")).unwrap();
    eventually("metadata are there", || {
        there.join("a/link").exists() && there.join("a/b").exists()
    });
    assert!(!has_data(&there.join("bulk")), "the bulk had to wait");
    // Another one, whose name nobody is to see without it.
    fs::write(here.join("a/draft"), noise(2, 64 << 10)).unwrap();
    fs::rename(here.join("a/draft"), here.join("a/text")).unwrap();
    fs::create_dir(here.join("a/last")).unwrap();
    eventually("what came after it is there", || there.join("a/last").exists());
    assert!(!there.join("a/text").exists(), "a name without its contents");
    let log = json(&world.a, &["log", arg(here)]);
    let records = log["records"].as_array().unwrap();
    let of = |kind: &str| records.iter().find(|record| record["kind"] == kind).unwrap();
    let (store, rename) = (of("store"), of("rename"));
    let waits = rename["waits_for"].as_str().unwrap();
    assert!(waits.starts_with("record "), "{waits}");
    assert_ne!(store["seq"], rename["seq"]);
    // Whoever waits for a file waits for no other.
    fs::write(here.join("a/b/small"), "small").unwrap();
    let synced = json(&world.a, &["sync", arg(&here.join("a/b"))]);
    assert_eq!(synced["ok"], true, "{synced}");
    assert_eq!(fs::read_to_string(there.join("a/b/small")).unwrap(), "small");
    assert!(!has_data(&there.join("bulk")), "the bulk had to wait");
    world.a.set_link(LinkSpec::default()).unwrap();
    mount.sync().unwrap();
    assert_eq!(fs::read(there.join("a/text")).unwrap(), noise(2, 64 << 10));
    assert_eq!(fs::read(there.join("bulk")).unwrap(), noise(1, BULK));
}

/// `segue push`: files that wait behind a large one go first, with what they follow, and what is on
/// its way goes on at the same class.
/// Proves S7.10.
#[test]
fn what_is_pushed_goes_first() {
    let Some(world) = World::new() else { return };
    let (mount, other) = (world.mount(&world.a), world.mount(&world.b));
    let (here, there) = (mount.path(), other.path());
    world.a.set_link(LinkSpec::kb_per_s(200)).unwrap();
    write_bulk(&world, &here.join("bulk"));
    let script = "mkdir album; cd album
        head -c 300000 /dev/urandom > draft; mv draft text; head -c 3000000 /dev/urandom > photo";
    let mut shell = Command::new("sh");
    shell.args(["-euc", script]).current_dir(here).process_group(0);
    assert!(shell.status().unwrap().success());
    eventually("its directory is there", || there.join("album").exists());
    let log = || json(&world.a, &["log", arg(here)])["records"].as_array().unwrap().clone();
    let classes = |path: &str| -> Vec<String> {
        let of = |record: &&serde_json::Value| {
            record["kind"] == "store" && record["path"].as_str().unwrap().ends_with(path)
        };
        log().iter().filter(of).map(|record| record["class"].as_str().unwrap().into()).collect()
    };
    assert_eq!(classes("/album/photo"), ["store-data"]);
    assert!(!there.join("album/text").exists());
    let pushed = json(&world.a, &["push", arg(&here.join("album"))]);
    assert!(pushed["pushed"][0]["records"].as_u64().unwrap() >= 3, "{pushed}");
    assert!(pushed["pushed"][0]["bytes"].as_u64().unwrap() >= 3_300_000, "{pushed}");
    let is_there = |name: &str| fs::read(there.join(name)).ok() == fs::read(here.join(name)).ok();
    assert!(is_there("album/photo") || classes("/album/photo") == ["store-fast"]);
    eventually("what was pushed is there", || is_there("album/text") && is_there("album/photo"));
    assert!(!has_data(&there.join("bulk")), "the bulk had to wait");
    // What is on its way goes on.
    let pushed = json(&world.a, &["push", arg(&here.join("bulk"))]);
    assert!(pushed["pushed"][0]["records"].as_u64().unwrap() >= 1, "{pushed}");
    assert_eq!(classes("/bulk"), ["store-fast"]);
    world.a.set_link(LinkSpec::default()).unwrap();
    mount.sync().unwrap();
    assert!(is_there("bulk"));
    let nothing = segue(&world.a, &["push", arg(here)]);
    assert!(nothing.code == Some(0) && nothing.out.contains("no pending changes"), "{nothing:?}");
    let missing = segue(&world.a, &["push", arg(&here.join("missing"))]);
    assert_eq!(missing.code, Some(3), "{missing:?}");
}

/// Records are answered with more than a packet. With some who read without end the link down has
/// no moment for what is less urgent, and the next records waited for that.
#[test]
fn write_back_goes_on_while_others_read_without_end() {
    let Some(world) = World::new() else { return };
    let other = world.mount(&world.b);
    for n in 0..6 {
        save(&other.path().join(format!("large-{n}")), &noise(n, 4 << 20)).unwrap();
    }
    other.sync().unwrap();
    let mount = world.mount(&world.a);
    assert_eq!(fs::read_dir(mount.path()).unwrap().count(), 6);
    world.a.set_link(LinkSpec::kb_per_s(512)).unwrap();
    let paths = (0..6).map(|n| mount.path().join(format!("large-{n}")));
    let reading: Vec<_> = paths.map(|path| std::thread::spawn(move || hash(&path))).collect();
    sh(mount.path(), "mkdir many; cd many; for n in $(seq 400); do echo $n > file-$n; done");
    let pending =
        || json(&world.a, &["status", arg(mount.path())])["mounts"][0]["log_records"].as_u64();
    eventually("the log is empty", || pending() == Some(0));
    assert!(reading.iter().all(|reader| !reader.is_finished()), "only when nobody read any more");
    assert_eq!(fs::read_dir(other.path().join("many")).unwrap().count(), 400);
    world.a.set_link(LinkSpec::default()).unwrap();
    for (n, reader) in (0..6).zip(reading) {
        assert_eq!(reader.join().unwrap(), hash_of(&noise(n, 4 << 20)));
    }
}

/// What a program does after a sync comes after what that covered, also where it is small and
/// that was not.
/// Proves S7.6.
#[test]
fn what_follows_a_sync_comes_after_it() {
    let Some(world) = World::new() else { return };
    let (mount, other) = (world.mount(&world.a), world.mount(&world.b));
    let (here, there) = (mount.path(), other.path());
    fs::write(here.join("second"), "").unwrap();
    mount.sync().unwrap();
    assert!(there.join("second").exists());
    world.a.set_link(LinkSpec::kb_per_s(200)).unwrap();
    sh(
        here,
        "head -c 600000 /dev/urandom | dd of=first bs=100k conv=fsync status=none
              printf done > second",
    );
    eventually("what came last is there", || {
        let second = has_data(&there.join("second"));
        // In this order: it may come while it is looked.
        assert!(!second || has_data(&there.join("first")), "what was synced is not there");
        second
    });
}

/// Commits, transactions and deliveries, one after the other, until it is killed.
const WORK: &str = "
    i=0
    while [ $i -lt 400 ]; do
        i=$((i + 1))
        head -c 60000 /dev/urandom > repository/file$((i % 7))
        head -c 300 /dev/urandom > repository/small$i
        git -C repository add -A
        git -C repository commit -qm $i
        sqlite3 -batch -bail -cmd '.timeout 20000' delete.db 'UPDATE t SET n = n + 1'
        sqlite3 -batch -bail -cmd '.timeout 20000' wal.db 'UPDATE t SET n = n + 1'
        head -c 40000 /dev/urandom > mail/tmp/$i
        echo end >> mail/tmp/$i
        mv mail/tmp/$i mail/new/$i
    done";

fn begin_work(top: &Path) -> Child {
    let mut command = Command::new("sh");
    command.args(["-euc", WORK]).current_dir(top).process_group(0);
    command.stdin(Stdio::null()).spawn().unwrap()
}

/// What is there can be gone on with: nothing is torn, and nothing refers to what is not there.
fn assert_whole(there: &Path, copy: &Path, round: u32) {
    // Whoever looks at a database may repair it, so it is done elsewhere.
    // What was made and has no contents there cannot be copied; what was delivered, and a database,
    // has them.
    let copies = "rm -rf work; cp -r 'THERE' work 2> errors || :
        ! grep -v 'No route to host' errors && ! grep -e mail/new -e '[.]db. for' errors";
    sh(copy, &copies.replace("THERE", arg(there)));
    let work = copy.join("work");
    let fsck = end(Command::new("git")
        .args(["fsck", "--full", "--strict"])
        .current_dir(work.join("repository")));
    assert_eq!(fsck.code, Some(0), "round {round}: {fsck:?}");
    sh(&work.join("repository"), "git rev-parse -q --verify HEAD && git log --stat > /dev/null");
    for database in ["delete.db", "wal.db"] {
        let database = work.join(database);
        let said = sqlite(&database, "PRAGMA integrity_check; SELECT count(DISTINCT n) FROM t");
        assert_eq!(said, "ok\n1\n", "round {round}: {}", database.display());
    }
    for mail in fs::read_dir(work.join("mail/new")).unwrap() {
        let mail = fs::read(mail.unwrap().path()).unwrap();
        assert!(mail.ends_with(b"end\n"), "round {round}: {} bytes", mail.len());
    }
}

/// A host may be lost at any moment. The server has a state then that every program which syncs, or
/// renames what it has written, can go on with, though a lot waited to be sent.
/// Proves S7.8.
#[test]
fn what_a_lost_host_leaves_on_the_server_is_whole() {
    let Some(world) = World::new() else { return };
    let (mount, other) = (world.mount(&world.a), world.mount(&world.b));
    let top = mount.path().join("work");
    fs::create_dir(&top).unwrap();
    sh(&top, "git init -q -b main repository; mkdir -p mail/tmp mail/new");
    configure(&top.join("repository"));
    sh(&top.join("repository"), "git commit -q --allow-empty -m first");
    let rows = "CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER, text TEXT);
        WITH RECURSIVE i(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM i WHERE i < 100)
        INSERT INTO t SELECT i, 0, hex(randomblob(400)) FROM i;";
    for (database, mode) in [("delete.db", "DELETE"), ("wal.db", "WAL")] {
        sqlite(&top.join(database), &format!("PRAGMA journal_mode={mode}; {rows}"));
    }
    mount.sync().unwrap();
    world.a.set_link(LinkSpec::kb_per_s(300)).unwrap();
    let mails = |top: &Path| fs::read_dir(top.join("mail/new")).unwrap().count();
    let mut work = begin_work(&top);
    // So that not all of it is behind the bulk, which takes longer than this test.
    eventually("the work has begun", || mails(&top) > 3);
    write_bulk(&world, &mount.path().join("bulk"));
    let (there, copy) = (other.path().join("work"), world.local("copy"));
    for round in 1..=8 {
        sleep(Duration::from_millis(1_000 + 370 * u64::from(round % 3)));
        world.a.link_down().unwrap();
        // What arrived is committed.
        sleep(Duration::from_millis(500));
        assert_whole(&there, &copy, round);
        world.a.link_up().unwrap();
    }
    eventually("some of the work is there", || mails(&there) > 2);
    assert!(!has_data(&other.path().join("bulk")), "the bulk was there too soon");
    let group = rustix::process::Pid::from_child(&work);
    rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
    work.wait().unwrap();
    world.a.set_link(LinkSpec::default()).unwrap();
    mount.sync().unwrap();
    assert_whole(&there, &copy, 9);
}
