//! Links that are slow, lossy, or gone for a while.

use std::fs::{self, File};
use std::io::Write;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use rustix::fs::statvfs;
use rustix::process::{Pid, Signal, kill_process};
use segue_bed::LinkSpec;
use segue_bed::segue::SegueMount;

use crate::build;
use crate::tree::{self, hash, hash_of, noise};
use crate::worker::{Acknowledged, Worker};
use crate::world::{
    CLOSE, World, arg, close, end, errno, eventually, halt, json, save, sh, wait_for_state,
};

const EHOSTUNREACH: Option<i32> = Some(113);

/// A link that is gone for some seconds makes work wait; nothing fails and nothing is lost.
#[test]
fn a_link_that_is_gone_for_seconds() {
    let Some(world) = World::new() else { return };
    let done = Acknowledged::default();
    let mut mount = world.mount(&world.a);
    let dir = mount.path().join("dir");
    fs::create_dir(&dir).unwrap();
    let worker = Worker::start(&world.a, &dir, "w", &done);
    for seconds in [3, 1] {
        worker.wait_for(5);
        world.a.link_down().unwrap();
        std::thread::sleep(Duration::from_secs(seconds));
        world.a.link_up().unwrap();
    }
    worker.wait_for(5);
    worker.finish();
    done.check(&dir, "where it was written");
    mount.umount(&[]).unwrap();
    done.check(&world.mount(&world.b).path().join("dir"), "on another host");
}

/// `df` hung for thirty seconds after a link was cut, and failed for ever after an offline mount.
/// Proves S11.10.
#[test]
fn df_shows_the_last_figures_without_a_server() {
    let Some(world) = World::new() else { return };
    let options = format!("cache-dir={},grace=10min", world.local("cache").display());
    let mut mount = world.mount_with(&world.a, &options);
    let expected = statvfs(mount.path()).unwrap().f_blocks;
    let shown = |mount: &SegueMount| {
        // A call that waits for the server ends after ten minutes.
        let mut stat = world.a.command("timeout");
        let ended = end(stat.args(["60", "stat", "-f", "-c", "%b", arg(mount.path())]));
        ended.out.trim().parse::<u64>().unwrap_or_else(|_| panic!("{ended:?}"))
    };
    world.a.link_down().unwrap();
    assert_eq!(shown(&mount), expected, "over a silent link");
    world.lose_link(&world.a, &mount);
    assert_eq!(shown(&mount), expected, "offline");
    mount.umount(&["--now"]).unwrap();
    drop(mount);
    let mount = world.mount_with(&world.a, &options);
    assert_eq!(shown(&mount), expected, "after an offline mount");
}

/// A link that was cut in silence keeps nobody waiting for what is known here: it is answered
/// long before the connection is given up. Each first question took twenty seconds.
/// Proves S11.1.
#[test]
fn what_is_known_does_not_wait_for_a_silent_server() {
    let Some(world) = World::new() else { return };
    let mount = world.mount_with(&world.a, "write-back=async");
    let (file, new) = (mount.path().join("file"), mount.path().join("new"));
    save(&file, &noise(1, 100_000)).unwrap();
    sh(mount.path(), "setfattr -n user.a -v b file");
    assert_eq!(fs::read_dir(mount.path()).unwrap().count(), 1);
    mount.sync().unwrap();
    // Longer than anything is trusted.
    std::thread::sleep(Duration::from_secs(2));
    world.a.link_down().unwrap();
    assert_eq!(hash(&file), hash_of(&noise(1, 100_000)));
    assert!(sh(mount.path(), "getfattr -d file").contains("user.a"));
    assert_eq!(fs::read_dir(mount.path()).unwrap().count(), 1);
    assert_eq!(errno(fs::metadata(&new)), Some(2));
    save(&new, b"new").unwrap();
    let status = json(&world.a, &["status", arg(mount.path())]);
    assert_eq!(status["mounts"][0]["state"], "online", "it waited until that was given up");
}

/// A laptop goes from one network to another, and sleeps in between: what was written before,
/// while nobody answers and after waking arrives by itself, and what others did is seen.
#[test]
fn a_host_sleeps_and_wakes_in_another_network() {
    let Some(world) = World::new() else { return };
    let mount = world.mount_with(&world.a, "write-back=async");
    let other = world.mount(&world.b);
    let at = |point: &SegueMount, name: &str| point.path().join(name);
    save(&at(&mount, "before"), &noise(1, 300_000)).unwrap();
    mount.sync().unwrap();
    world.a.move_to(Ipv4Addr::new(10, 7, 0, 77)).unwrap();
    save(&at(&mount, "moved"), &noise(2, 300_000)).unwrap();
    eventually("what was written after moving is there", || {
        fs::read(at(&other, "moved")).is_ok_and(|bytes| bytes == noise(2, 300_000))
    });
    let pid = Pid::from_raw(i32::try_from(mount.pid().unwrap()).unwrap()).unwrap();
    save(&at(&mount, "falling asleep"), &noise(3, 300_000)).unwrap();
    halt(pid);
    save(&at(&other, "meanwhile"), b"written elsewhere").unwrap();
    other.sync().unwrap();
    // Longer than a silent connection is kept.
    std::thread::sleep(Duration::from_secs(25));
    world.a.move_to(Ipv4Addr::new(10, 7, 0, 78)).unwrap();
    kill_process(pid, Signal::CONT).unwrap();
    save(&at(&mount, "awake"), &noise(4, 300_000)).unwrap();
    mount.sync().unwrap();
    eventually("what another host did is seen", || at(&mount, "meanwhile").exists());
    assert_eq!(fs::read(at(&mount, "meanwhile")).unwrap(), b"written elsewhere");
    for (name, seed) in [("before", 1), ("moved", 2), ("falling asleep", 3), ("awake", 4)] {
        eventually("the other host sees it", || at(&other, name).exists());
        assert_eq!(hash(&at(&other, name)), hash_of(&noise(seed, 300_000)), "{name}");
    }
    let status = json(&world.a, &["status", arg(mount.path())]);
    let status = &status["mounts"][0];
    assert_eq!((&status["conflicts"], &status["refused"]), (&0.into(), &0.into()), "{status}");
}

/// Where the server is out of reach for longer than `grace`, close says so with EHOSTUNREACH;
/// what was written is kept, and arrives when the link is back.
/// Proves S4.9, S11.4, S11.6, S11.7.
#[test]
fn close_without_a_server_says_so_and_keeps_the_data() {
    let Some(world) = World::new() else { return };
    let mount = world.mount_with(&world.a, &format!("grace=2s,{CLOSE}"));
    let other = world.mount(&world.b);
    let mut file = File::create(mount.path().join("file")).unwrap();
    file.write_all(&noise(1, 100_000)).unwrap();
    assert_eq!(fs::read_dir(mount.path()).unwrap().count(), 1);
    world.a.link_down().unwrap();
    file.write_all(&noise(2, 100_000)).unwrap();
    assert_eq!(errno(close(file)), EHOSTUNREACH);
    let expected = hash_of(&[noise(1, 100_000), noise(2, 100_000)].concat());
    assert_eq!(hash(&mount.path().join("file")), expected, "here it is as written");
    world.lose_link(&world.a, &mount);
    // Later changes are accepted too, where it is known which names there are.
    assert_eq!(errno(save(&mount.path().join("later"), b"later")), EHOSTUNREACH);
    assert_eq!(fs::read(mount.path().join("later")).unwrap(), b"later");
    fs::create_dir(mount.path().join("dir")).unwrap();
    fs::rename(mount.path().join("later"), mount.path().join("dir/later")).unwrap();
    assert!(!other.path().join("dir").exists());
    world.a.link_up().unwrap();
    mount.sync().unwrap();
    eventually("the data arrived", || hash(&other.path().join("file")) == expected);
    eventually("the later file arrived", || {
        fs::read(other.path().join("dir/later")).is_ok_and(|text| text == b"later")
    });
    assert!(!other.path().join("later").exists());
}

/// Without a network everything that was used can be used: reading, listing, stat, links,
/// attributes and df answer from this host; what is not here fails within its time, as
/// unreachable and not as gone. With the network back all goes on.
/// Proves S11.1, S11.2.
#[test]
fn cached_files_without_a_network() {
    let Some(world) = World::new() else { return };
    let writer = world.mount(&world.b);
    sh(writer.path(), "mkdir -p dir/sub; ln -s sub dir/link; echo unread >dir/unread");
    save(&writer.path().join("dir/file"), &noise(1, 3_000_000)).unwrap();
    sh(writer.path(), "setfattr -n user.a -v b dir/file");
    writer.sync().unwrap();
    let mount = world.mount_with(&world.a, "grace=1s");
    let dir = mount.path().join("dir");
    let look = || sh(mount.path(), "ls -lR --time-style=full-iso dir; getfattr -d dir/file");
    let before = (look(), hash(&dir.join("file")));
    let space = statvfs(mount.path()).unwrap();
    world.a.link_down().unwrap();
    for _ in 0..2 {
        assert_eq!((look(), hash(&dir.join("file"))), before);
        assert_eq!(fs::read_link(dir.join("link")).unwrap().to_str(), Some("sub"));
        assert!(!dir.join("nothing").exists());
        let now = statvfs(mount.path()).unwrap();
        assert_eq!((now.f_blocks, now.f_namemax), (space.f_blocks, space.f_namemax), "df");
        assert_eq!(errno(fs::read(dir.join("unread"))), EHOSTUNREACH);
        world.lose_link(&world.a, &mount);
        // Longer than what was learned before is fresh.
        std::thread::sleep(Duration::from_millis(1_500));
    }
    let status = json(&world.a, &["status", arg(mount.path())]);
    assert!(!status["mounts"][0]["reason"].as_str().unwrap().is_empty(), "{status}");
    world.a.link_up().unwrap();
    wait_for_state(&world.a, &mount, "online");
    assert_eq!(fs::read_to_string(dir.join("unread")).unwrap(), "unread\n");
    assert_eq!((look(), hash(&dir.join("file"))), before);
}

/// Without a network one waits for `grace` once, and not for each of a hundred files that are not
/// here: a compiler or git would seem to hang.
/// Proves S11.3.
#[test]
fn grace_counts_from_the_loss_of_the_link() {
    let Some(world) = World::new() else { return };
    let writer = world.mount(&world.b);
    sh(writer.path(), "for i in $(seq 100); do echo $i > $i; done");
    writer.sync().unwrap();
    let mount = world.mount_with(&world.a, "grace=5s");
    assert_eq!(fs::read_dir(mount.path()).unwrap().count(), 100);
    let flushed = world.a.command("ip").args(["route", "flush", "table", "main"]).status();
    assert!(flushed.unwrap().success());
    world.lose_link(&world.a, &mount);
    assert_eq!(errno(fs::read(mount.path().join("1"))), EHOSTUNREACH);
    let began = Instant::now();
    for file in 2..=100 {
        let path = mount.path().join(file.to_string());
        assert_eq!(errno(fs::read(path)), EHOSTUNREACH, "{file}");
    }
    // At once; eight minutes if each waited.
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

/// A tree goes to the server and comes back whole over a link with 40 ms of delay that loses
/// 2 of 100 packets and lets others overtake.
#[test]
fn a_tree_over_a_lossy_link() {
    let Some(world) = World::new() else { return };
    let link = LinkSpec { loss: 0.02, reorder: 0.01, ..LinkSpec::default() };
    let bad = link.with_rtt(Duration::from_millis(40));
    world.a.set_link(bad.clone()).unwrap();
    world.b.set_link(bad).unwrap();
    let local = world.local("local");
    let original = build::prepare(&local);
    let mut mount = world.mount_with(&world.a, "write-back=async");
    sh(mount.path(), &format!("cp -a '{}' copy", original.display()));
    mount.sync().unwrap();
    let expected = tree::read(&original);
    tree::assert_same("where it was written", &tree::read(&mount.path().join("copy")), &expected);
    mount.umount(&[]).unwrap();
    let mount = world.mount(&world.b);
    let found = tree::read(&mount.path().join("copy"));
    tree::assert_same("on another host", &found, &expected);
}

/// A host whose link changes (another rate, a delay, back) in the middle of a large copy keeps
/// its connection, and the copy is whole.
#[test]
fn a_link_that_changes_under_a_copy() {
    let Some(world) = World::new() else { return };
    let mount = world.mount_with(&world.a, CLOSE);
    let bytes = noise(4, 12 << 20);
    std::thread::scope(|scope| {
        let copy = scope.spawn(|| save(&mount.path().join("file"), &bytes));
        let slow = LinkSpec::kb_per_s(4_096);
        for link in [slow.clone(), slow.with_rtt(Duration::from_millis(30)), LinkSpec::default()] {
            world.a.set_link(link).unwrap();
            std::thread::sleep(Duration::from_millis(700));
        }
        copy.join().unwrap().unwrap();
    });
    mount.sync().unwrap();
    let other = world.mount(&world.b);
    assert_eq!(hash(&other.path().join("file")), hash_of(&bytes));
}

/// On a slow link small files come while a large one is read with all of its read-ahead: what
/// somebody waits for goes before what will be wanted next.
#[test]
fn a_small_file_overtakes_what_is_read_ahead() {
    let Some(world) = World::new() else { return };
    let other = world.mount(&world.b);
    let bytes = noise(1, 8 << 20);
    save(&other.path().join("large"), &bytes).unwrap();
    (0..3).for_each(|n| save(&other.path().join(format!("small-{n}")), &noise(n, 3000)).unwrap());
    other.sync().unwrap();
    let mount = world.mount(&world.a);
    assert_eq!(fs::read_dir(mount.path()).unwrap().count(), 4);
    world.a.set_link(LinkSpec::kb_per_s(256)).unwrap();
    let large = mount.path().join("large");
    let path = large.clone();
    let reading = std::thread::spawn(move || hash(&path));
    let cached = || json(&world.a, &["where", arg(&large)])["files"][0]["cached_bytes"].as_u64();
    eventually("some of it is here", || cached() > Some(1 << 20));
    for n in 0..3 {
        assert_eq!(fs::read(mount.path().join(format!("small-{n}"))).unwrap(), noise(n, 3000));
    }
    assert!(!reading.is_finished());
    world.a.set_link(LinkSpec::default()).unwrap();
    assert_eq!(reading.join().unwrap(), hash_of(&bytes));
}
