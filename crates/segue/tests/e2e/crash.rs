//! Processes killed in the middle of work: what close returned for is there.

use std::fs::{self, File};
use std::io::Write;
use std::time::Duration;

use segue_bed::Rng;

use crate::check::check;
use crate::sample::{is_long, times};
use crate::tree::{hash, hash_of, noise};
use crate::worker::{Acknowledged, Worker};
use crate::world::{CLOSE, PATIENCE, World, arg, close, eventually, save};

/// The mount is killed in the middle of work, several times; each time, and in the end on
/// another host, everything that was acknowledged is there, and nothing twice.
fn the_client_is_killed(options: &str, seed: u64) {
    let Some(world) = World::new() else { return };
    let done = Acknowledged::default();
    let mut rng = Rng::new(seed);
    let mut mount = world.mount_with(&world.a, options);
    let dir = mount.path().join("dir");
    fs::create_dir(&dir).unwrap();
    for round in 0..5 {
        let worker = Worker::start(&world.a, &dir, &format!("r{round}"), &done);
        worker.wait_for(4);
        std::thread::sleep(Duration::from_millis(rng.below(500)));
        mount.kill9().unwrap();
        assert!(worker.failure().is_some());
        drop(mount);
        mount = world.mount_with(&world.a, options);
        done.check(&dir, &format!("round {round}"));
    }
    mount.umount(&[]).unwrap();
    let mount = world.mount(&world.b);
    done.check(&mount.path().join("dir"), "on another host");
}

/// With `write-back=close`.
/// Proves S1.3.
#[test]
fn the_client_is_killed_in_the_middle_of_work() {
    the_client_is_killed("write-back=close", 1);
}

/// With `write-back=async`, the default: what is not on the server yet is in the log on this host.
/// Proves S1.3, S13.1.
#[test]
fn the_client_is_killed_with_changes_pending() {
    the_client_is_killed("write-back=async", 2);
}

/// What write(2) returned for survives the death of the mount, also where the file was not
/// closed.
/// Proves S1.3.
#[test]
fn written_and_not_closed_when_the_client_is_killed() {
    let Some(world) = World::new() else { return };
    let mut mount = world.mount(&world.a);
    let dir = mount.path().join("dir");
    fs::create_dir(&dir).unwrap();
    save(&dir.join("old"), &noise(1, 200_000)).unwrap();
    let mut new = File::create(dir.join("new")).unwrap();
    new.write_all(&noise(2, 300_000)).unwrap();
    let mut old = File::options().append(true).open(dir.join("old")).unwrap();
    old.write_all(&noise(3, 50_000)).unwrap();
    mount.kill9().unwrap();
    assert!(close(new).is_err() || close(old).is_err());
    drop(mount);
    let mut mount = world.mount(&world.a);
    let expected = [noise(1, 200_000), noise(3, 50_000)].concat();
    assert_eq!(hash(&dir.join("new")), hash_of(&noise(2, 300_000)));
    assert_eq!(hash(&dir.join("old")), hash_of(&expected));
    mount.umount(&[]).unwrap();
    let mount = world.mount(&world.b);
    assert_eq!(hash(&mount.path().join("dir/old")), hash_of(&expected));
    assert_eq!(hash(&mount.path().join("dir/new")), hash_of(&noise(2, 300_000)));
}

/// Two hosts work, and again and again the server is gone: `fails` ends it and brings it back.
/// The work goes on by itself, no call fails, nothing is lost and nothing happens twice, and the
/// volume is whole.
pub(crate) fn hosts_go_on(
    world: &mut World,
    rounds: usize,
    mut fails: impl FnMut(&mut World, usize),
) {
    let done = Acknowledged::default();
    let mounts = [&world.a, &world.b].map(|host| world.mount(host));
    let dirs = mounts.each_ref().map(|mount| mount.path().join("dir"));
    fs::create_dir(&dirs[0]).unwrap();
    eventually("the other host sees the directory", || dirs[1].is_dir());
    let workers = [(&world.a, &dirs[0], "a"), (&world.b, &dirs[1], "b")]
        .map(|(host, dir, tag)| Worker::start(host, dir, tag, &done));
    for round in 0..rounds {
        // Both: who finds no server for longer than `grace` fails.
        workers.iter().for_each(|worker| worker.wait_for(4));
        fails(world, round);
    }
    workers.iter().for_each(|worker| worker.wait_for(4));
    workers.into_iter().for_each(Worker::finish);
    let hosts = [world.a.clone(), world.b.clone(), world.bed.host("reader").unwrap()];
    // Each of the two has what the other did last once it mounts anew.
    for mut mount in mounts {
        // A link that is not back yet is no reason to leave.
        mount.sync().unwrap();
        mount.umount(&[]).unwrap();
    }
    for host in hosts {
        let mut mount = world.mount(&host);
        done.check(&mount.path().join("dir"), host.name());
        mount.umount(&[]).unwrap();
    }
    assert_whole(world, "in the end");
}

fn assert_whole(world: &World, when: &str) {
    let checked = check(world, &["--rate", "0"]);
    assert_eq!(checked.code, Some(0), "{when}: {checked:?}");
}

/// Proves S13.8.
#[test]
fn the_server_is_killed_in_the_middle_of_work() {
    for seed in 0..times() {
        let Some(mut world) = World::new() else { return };
        let mut rng = Rng::new(seed);
        hosts_go_on(&mut world, if is_long() { 10 } else { 5 }, |world, round| {
            std::thread::sleep(Duration::from_millis(rng.below(400)));
            world.server.kill9().unwrap();
            assert_whole(world, &format!("round {round}"));
            std::thread::sleep(Duration::from_millis(rng.below(300)));
            world.server.restart().unwrap();
        });
    }
}

/// A close that waits for a server that does not come back gives up after `grace`, however
/// often connecting is tried meanwhile; the data goes when the server is back.
/// Proves S11.6.
#[test]
fn close_gives_up_while_the_server_is_dead() {
    let Some(mut world) = World::new() else { return };
    let mount = world.mount_with(&world.a, &format!("grace=4s,{CLOSE}"));
    let path = mount.path().join("file");
    let mut file = File::create(&path).unwrap();
    file.write_all(&noise(1, 100_000)).unwrap();
    world.server.kill9().unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || tell.send(close(file).map_err(|error| error.raw_os_error())));
    let closed = told.recv_timeout(PATIENCE).expect("close hangs without a server");
    assert_eq!(closed, Err(Some(113)));
    assert_eq!(hash(&path), hash_of(&noise(1, 100_000)));
    world.server.restart().unwrap();
    mount.sync().unwrap();
    let other = world.mount(&world.b);
    assert_eq!(hash(&other.path().join("file")), hash_of(&noise(1, 100_000)));
}

/// A large store that the server's death interrupts arrives whole, and is never seen in part.
/// Proves S7.3.
#[test]
fn the_server_is_killed_in_a_large_store() {
    let Some(mut world) = World::new() else { return };
    let mount = world.mount(&world.a);
    let other = world.mount(&world.b);
    let local = world.local("local");
    fs::write(local.join("large"), noise(2, 60_000_000)).unwrap();
    let (here, there) = (mount.path().join("large"), other.path().join("large"));
    save(&here, &noise(1, 1_000_000)).unwrap();
    mount.sync().unwrap();
    let versions = [hash_of(&noise(1, 1_000_000)), hash(&local.join("large"))];
    // A program of its own: each program that this process starts inherits its open files and
    // closes them, and closing waits for the server, which could so never be started.
    let mut copy = world.a.command("dd");
    copy.args(["if=large", "bs=1M", "status=none"]).arg(format!("of={}", arg(&here)));
    copy.arg("conv=notrunc").current_dir(&local);
    let mut copy = world.a.spawn(&mut copy).unwrap();
    for pause in [50, 120, 200] {
        std::thread::sleep(Duration::from_millis(pause));
        world.server.restart().unwrap();
    }
    // Who has it open while the store arrives goes on with the new bytes, as on a local disk.
    let size = || fs::metadata(&there).unwrap().len();
    let seen = loop {
        let (before, seen, after) = (size(), hash(&there), size());
        for size in [before, after] {
            assert!([1_000_000, 60_000_000].contains(&size), "a part of the store is seen: {size}");
        }
        if before == after {
            break seen;
        }
    };
    assert!(versions.contains(&seen), "a part of the store is seen: {seen}");
    let ended = copy.wait().unwrap();
    assert!(ended.success(), "{ended}");
    assert_eq!(hash(&here), versions[1]);
    eventually("the other host reads it", || hash(&there) == versions[1]);
}

/// Server and client are killed, in either order; after both are back everything that was
/// acknowledged is there.
/// Proves S13.8.
#[test]
fn server_and_client_are_killed() {
    let Some(mut world) = World::new() else { return };
    let done = Acknowledged::default();
    let mut mount = world.mount_with(&world.a, "write-back=async");
    let dir = mount.path().join("dir");
    fs::create_dir(&dir).unwrap();
    for round in 0..3 {
        let worker = Worker::start(&world.a, &dir, &format!("b{round}"), &done);
        worker.wait_for(10);
        if round % 2 == 0 {
            world.server.kill9().unwrap();
            std::thread::sleep(Duration::from_millis(100));
        }
        mount.kill9().unwrap();
        assert!(worker.failure().is_some());
        drop(mount);
        world.server.restart().unwrap();
        mount = world.mount_with(&world.a, "write-back=async");
        done.check(&dir, &format!("round {round}"));
    }
    mount.umount(&[]).unwrap();
    let mount = world.mount(&world.b);
    done.check(&mount.path().join("dir"), "on another host");
}
