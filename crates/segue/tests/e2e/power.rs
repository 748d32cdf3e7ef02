//! The server's machine loses power: what it acknowledged is there, whatever the disk had of
//! what was not synced.
//!
//! The server has its data on a disk that records, so that one run gives an image for each
//! moment and each fate of the unsynced. A position of the recording is the time at which
//! something was acknowledged.

use std::fs;
use std::io::Write;
use std::process::Stdio;
use std::sync::Arc;

use segue_bed::Host;
use segue_bed::disk::{Disk, Fate, Recording};
use segue_bed::segue::{SegueMount, SegueServer};

use crate::crash::hosts_go_on;
use crate::sample::{sample, times};
use crate::tree::{hash_of, noise};
use crate::worker::{Acknowledged, Worker};
use crate::world::{World, arg, end, eventually, save, segue, sh};

/// One image of a recording.
#[derive(Clone, Copy, Debug)]
struct Cut {
    at: usize,
    fate: Fate,
}

/// What may become of the unsynced the `number`th time.
fn fate(number: usize) -> Fate {
    if number.is_multiple_of(4) { Fate::Lost } else { Fate::Chance(number as u64) }
}

/// Cuts at a sample of `syncs`.
fn cuts(syncs: Vec<usize>) -> impl Iterator<Item = Cut> {
    sample(syncs).into_iter().enumerate().map(|(number, at)| Cut { at, fate: fate(number) })
}

/// Has a server open an image, which then says that its volumes are whole.
fn open(world: &World, recording: &Recording, cut: Cut) -> SegueServer {
    let dir = world.serving.dir().join("image");
    recording.image(cut.at, cut.fate).write_to(&dir).unwrap();
    let data = dir.join("data");
    let server = SegueServer::start(&world.serving, &data);
    let server = server.unwrap_or_else(|error| panic!("{cut:?}: {error}"));
    let checked = segue(&world.serving, &["volume", "check", "--rate", "0", "--data", arg(&data)]);
    assert_eq!(checked.code, Some(0), "{cut:?}: {checked:?}");
    server
}

fn close(world: &World, server: SegueServer) {
    drop(server);
    fs::remove_dir_all(world.serving.dir().join("image")).unwrap();
}

/// A server on a recording disk, and hosts that work on its volume.
struct Power {
    world: World,
    disk: Arc<Disk>,
    done: Acknowledged,
    /// Reads what is on images, and works on nothing.
    reader: Host,
}

impl Power {
    fn new() -> Option<Power> {
        let (world, disk) = World::recorded()?;
        let clock = Arc::clone(&disk);
        let done = Acknowledged::timed_by(move || clock.position());
        let reader = world.bed.host("reader").unwrap();
        let mut mount = world.mount(&reader);
        fs::create_dir(mount.path().join("dir")).unwrap();
        mount.umount(&[]).unwrap();
        Some(Power { world, disk, done, reader })
    }

    /// Has each of `hosts` do `steps` steps; what is acknowledged to them is committed.
    fn work(&self, hosts: &[&Host], tag: &str, steps: usize) {
        let start = |host: &Host| {
            let mount = self.world.mount_with(host, "write-back=sync");
            let tag = format!("{}{tag}", host.name());
            let worker = Worker::start(host, &mount.path().join("dir"), &tag, &self.done);
            (worker, mount)
        };
        let working: Vec<_> = hosts.iter().map(|host| start(host)).collect();
        working.iter().for_each(|(worker, _)| worker.wait_for(steps));
        for (worker, mut mount) in working {
            worker.finish();
            mount.umount(&[]).unwrap();
        }
    }

    /// What is not as it was acknowledged, on an image that is whole.
    fn differences(&self, recording: &Recording, cut: Cut) -> Vec<String> {
        let server = open(&self.world, recording, cut);
        let cache = self.reader.dir().join("cache");
        let options = format!("cache-dir={}", arg(&cache));
        let point = self.reader.mkdir("mnt").unwrap();
        let url = server.url("home");
        let mount = SegueMount::new(&self.reader, &url, &point, &["-o", &options]).unwrap();
        let differences = self.done.differences(&mount.path().join("dir"), cut.at);
        drop(mount);
        fs::remove_dir_all(cache).unwrap();
        close(&self.world, server);
        differences
    }
}

/// A server's first start may be cut off at any moment: the next one has a server.
#[test]
fn power_is_lost_in_a_first_start() {
    let Some((mut world, disk)) = World::recorded() else { return };
    world.server.kill9().unwrap();
    let recording = disk.recording();
    let syncs = recording.syncs(0..recording.end());
    assert!(syncs.len() > 5, "{syncs:?}");
    for cut in cuts(syncs) {
        close(&world, open(&world, &recording, cut));
    }
}

/// What a server has acknowledged is there after a power loss at any sync, once and with the
/// right bytes; the volume is whole, and the server opens it by itself.
/// Proves S13.8.
#[test]
fn power_is_lost_while_hosts_work() {
    let Some(mut power) = Power::new() else { return };
    let before = power.disk.position();
    power.work(&[&power.world.a, &power.world.b], "", 40);
    power.world.server.kill9().unwrap();
    let recording = power.disk.recording();
    let syncs = recording.syncs(before..recording.end());
    for cut in cuts(syncs) {
        assert_eq!(power.differences(&recording, cut), Vec::<String>::new(), "{cut:?}");
    }
}

/// Power is lost while a server removes what nobody needs, and moves what lives in a mostly dead
/// pack: nothing that is needed goes, whatever of it the disk has.
/// Proves S13.8.
#[test]
fn power_is_lost_while_space_is_collected() {
    let Some(mut power) = Power::new() else { return };
    let Power { world, disk, done, .. } = &mut power;
    let mut mount = world.mount_with(&world.a, "write-back=sync");
    for number in 0..6 {
        let (name, bytes) = (format!("large-{number}"), noise(number, 2_000_000));
        done.hear(&format!("begin\t{name}"));
        save(&mount.path().join("dir").join(&name), &bytes).unwrap();
        done.hear(&format!("has\t{name}\t{}", hash_of(&bytes)));
    }
    // What a host alone removes goes at once: a server that starts knows of no other lately.
    world.server.restart().unwrap();
    let (before, packs) = (disk.position(), world.server.data().join("packs"));
    let first: Vec<_> = fs::read_dir(&packs).unwrap().map(|pack| pack.unwrap().path()).collect();
    for number in [0, 2, 3, 5] {
        let name = format!("large-{number}");
        done.hear(&format!("begin\t{name}"));
        fs::remove_file(mount.path().join("dir").join(&name)).unwrap();
        done.hear(&format!("gone\t{name}"));
    }
    mount.umount(&[]).unwrap();
    // It looks at the packs when it starts, and then every ten seconds.
    world.server.restart().unwrap();
    power.work(&[&power.world.b], "", 3);
    eventually("the dead pack is gone", || !first[0].exists());
    power.work(&[&power.world.b], "later", 3);
    power.world.server.kill9().unwrap();
    let recording = power.disk.recording();
    let syncs = recording.syncs(before..recording.end());
    for cut in cuts(syncs) {
        assert_eq!(power.differences(&recording, cut), Vec::<String>::new(), "{cut:?}");
    }
}

/// A backup is killed with bytes that nobody has synced, the next one finds them there, and then
/// power is lost: every snapshot that has its name is whole, at whatever moment that was.
#[test]
fn power_is_lost_after_a_backup_was_killed() {
    let Some(mut world) = World::new() else { return };
    let mut mount = world.mount(&world.a);
    save(&mount.path().join("file"), &noise(1, 3_000_000)).unwrap();
    mount.umount(&[]).unwrap();
    let point = world.serving.mkdir("disk").unwrap();
    let disk = Disk::mount(&point).unwrap();
    // Names of directories above it are a backup's to keep too.
    let to = point.join("backups/home");
    let backup = |world: &World, rate| {
        let mut command = world.serving.command("segue");
        let data = arg(world.server.data());
        command.args(["volume", "backup", "home", arg(&to), "--rate", rate, "--data", data]);
        command
    };
    let mut killed = backup(&world, "1M").stderr(Stdio::null()).spawn().unwrap();
    let pack = to.join("packs/00000001.pack");
    eventually("some of it is copied", || pack.metadata().is_ok_and(|meta| meta.len() > 500_000));
    world.server.kill9().unwrap();
    killed.wait().unwrap();
    // In the middle of a write, so that nothing more is appended to this pack.
    fs::File::options().append(true).open(&pack).unwrap().write_all(b"CHNK torn").unwrap();
    let ended = end(&mut backup(&world, "0"));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let recording = disk.recording();
    let snapshots = to.join("snapshots");
    let last = fs::read_dir(&snapshots).unwrap().count();
    let (at, mut named) = (recording.end(), 0);
    let during = cuts(recording.syncs(0..at));
    let after = (0..10).map(Fate::Chance).chain([Fate::Lost]).map(|fate| Cut { at, fate });
    for cut in during.chain(after) {
        named = whole_snapshots(&world, &recording, cut);
    }
    assert_eq!(named, last, "what is named at the end is there");
}

/// Restores every snapshot that has its name on an image of the disk; returns how many have.
fn whole_snapshots(world: &World, recording: &Recording, cut: Cut) -> usize {
    let dir = world.serving.dir().join("image");
    recording.image(cut.at, cut.fate).write_to(&dir).unwrap();
    let from = dir.join("backups/home");
    let entries = fs::read_dir(from.join("snapshots")).into_iter().flatten();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names: Vec<_> =
        names.filter_map(|name| name.strip_suffix(".rows.zst").map(str::to_owned)).collect();
    for name in &names {
        let restore = ["volume", "restore", "copy", arg(&from), "--snapshot", name, "--replace"];
        let rest = ["--rate", "0", "--data", arg(world.server.data())];
        let ended = segue(&world.serving, &[&restore[..], &rest[..]].concat());
        assert_eq!(ended.code, Some(0), "{cut:?}: {ended:?}");
    }
    fs::remove_dir_all(dir).unwrap();
    names.len()
}

/// Power is lost while two hosts work: each time the server comes back with what it had synced
/// and any part of the rest, and the hosts send again what it has not.
/// Proves S13.8.
#[test]
fn power_is_lost_and_the_hosts_go_on() {
    for time in 0..usize::try_from(times()).unwrap() {
        let Some((mut world, mut disk)) = World::recorded() else { return };
        hosts_go_on(&mut world, 5, |world, round| {
            world.server.kill9().unwrap();
            let recording = disk.recording();
            let point = world.serving.mkdir(&format!("disk-{round}")).unwrap();
            disk = Arc::new(Disk::mount(&point).unwrap());
            let image = recording.image(recording.end(), fate(5 * time + round));
            image.write_to(&point).unwrap();
            // What is on a disk when it gets its power back is there.
            sh(&point, "find . -exec sync {} +");
            world.server = SegueServer::start(&world.serving, &point.join("data")).unwrap();
        });
    }
}

/// The tests here find what is lost: here by a disk that answers syncs and does nothing.
#[test]
fn a_disk_that_lies_is_found_out() {
    let Some(mut power) = Power::new() else { return };
    power.work(&[&power.world.a], "kept", 3);
    let before = power.disk.position();
    power.work(&[&power.world.b], "lost", 1);
    power.world.server.kill9().unwrap();
    let mut recording = power.disk.recording();
    let cut = Cut { at: recording.end(), fate: Fate::Lost };
    assert_eq!(power.differences(&recording, cut), Vec::<String>::new());
    for sync in recording.syncs(before..cut.at) {
        recording.lie(sync);
    }
    let differences = power.differences(&recording, cut);
    // Not which of them: how far it came before it was told to stop is not known, and a file that
    // it removed again is missing rightly.
    assert!(!differences.is_empty());
    assert!(differences.iter().all(|name| name.starts_with("blost-")), "{differences:?}");
}
