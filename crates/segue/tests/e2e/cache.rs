//! The cache of a host whose mount dies, or which loses power, at any moment; and what becomes
//! of changes that the server refuses.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use segue_bed::disk::{Disk, Fate, Image};
use segue_bed::segue::SegueMount;
use segue_bed::{Host, Rng};

use crate::sample::{self, SAMPLE, is_long, sample};
use crate::tree::noise;
use crate::worker::{Acknowledged, Worker};
use crate::world::{World, arg, eventually, json, save, segue, settle, sh};

const MB: usize = 1 << 20;

/// Mounts with the cache at `cache`.
fn mount(world: &World, host: &Host, options: &str, cache: &Path) -> SegueMount {
    world.mount_with(host, &format!("{options},cache-dir={}", arg(cache)))
}

/// The one volume's directory in a cache.
fn volume(cache: &Path) -> PathBuf {
    let mut found = fs::read_dir(cache).unwrap().map(|entry| entry.unwrap().path());
    found.find(|path| path.is_dir()).unwrap()
}

fn number(world: &World, mount: &SegueMount, key: &str) -> u64 {
    let ended = segue(&world.a, &["status", "--json", arg(mount.path())]);
    let status: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
    status["mounts"][0][key].as_u64().unwrap()
}

fn set_quota(world: &World, quota: &str) {
    let args = ["volume", "set", "home", "--quota", quota, "--data", arg(world.server.data())];
    assert_eq!(segue(&world.serving, &args).code, Some(0));
}

/// An open file of `len` bytes, all of them a hole, in a volume that has room for fewer. This
/// host refuses what makes a file longer than fits, and leaves holes to the server.
fn with_no_room(world: &World, mounted: &SegueMount, name: &str, len: usize) -> File {
    let file = File::create(mounted.path().join(name)).unwrap();
    file.set_len(len as u64).unwrap();
    file.sync_all().unwrap();
    mounted.sync().unwrap();
    set_quota(world, "1M");
    file
}

/// The blocks of 4 KiB of `bytes` that are in no file of the mount, and in nothing that is kept
/// of refused changes, at their place.
fn lost(bytes: &[u8], mounted: &SegueMount, cache: &Path) -> Vec<usize> {
    let refused = volume(cache).join("refused");
    let kept = fs::read_dir(&refused).unwrap().map(|entry| entry.unwrap().path());
    let kept = kept.filter(|path| path.extension().is_some_and(|end| end == "json"));
    let files = fs::read_dir(mounted.path()).unwrap().map(|entry| entry.unwrap().path());
    let found = kept.map(|path| path.with_extension("data")).chain(files);
    let found: Vec<_> = found.filter_map(|path| fs::read(path).ok()).collect();
    let is_found = |at: usize, block: &[u8]| {
        found.iter().any(|bytes| bytes.get(at..at + block.len()) == Some(block))
    };
    let blocks = bytes.chunks(4096).enumerate();
    let lost = blocks.filter(|(number, block)| !is_found(number * 4096, block));
    lost.map(|(number, _)| number).collect()
}

/// Puts `image` where a host that starts has its cache.
fn put(image: &Image, cache: &Path) {
    fs::remove_dir_all(cache).ok();
    image.write_to(cache).unwrap();
}

/// Puts what a power loss left where the host finds it when it starts again.
pub(crate) fn put_after_power_loss(image: &Image, cache: &Path) {
    image.write_to(cache).unwrap();
    of_another_boot(&volume(cache));
    // What is on a disk when it gets its power back is there.
    sh(cache, "find . -exec sync {} +");
}

/// Has the next mount find that its host went down under a volume's cache directory.
pub(crate) fn of_another_boot(directory: &Path) {
    let state = directory.join("state.json");
    let mut saved: serde_json::Value = serde_json::from_slice(&fs::read(&state).unwrap()).unwrap();
    saved["boot_id"] = "another".into();
    fs::write(&state, saved.to_string()).unwrap();
}

/// The log does not say any more that changes are settled, which the server was told: a cache
/// that an older version left after a power loss. It was never mounted again.
/// Proves S13.5.
#[test]
fn a_log_that_forgot_what_is_settled_is_no_obstacle() {
    let Some(world) = World::new() else { return };
    let cache = world.local("cache");
    let mut mounted = mount(&world, &world.a, "write-back=async", &cache);
    let (file, later) = (mounted.path().join("file"), mounted.path().join("later"));
    assert_eq!(fs::read_dir(mounted.path()).unwrap().count(), 0);
    world.a.link_down().unwrap();
    save(&file, &noise(1, 100_000)).unwrap();
    let log = volume(&cache).join("update.log");
    let before = fs::read(&log).unwrap();
    world.a.link_up().unwrap();
    for round in 0..2 {
        mounted.sync().unwrap();
        let synced = segue(&world.a, &["sync", arg(mounted.path()), "--level", "host"]);
        assert_eq!(synced.code, Some(0), "{synced:?}");
        save(&later, &noise(2 + round, 1000)).unwrap();
    }
    mounted.sync().unwrap();
    mounted.kill9().unwrap();
    drop(mounted);
    fs::write(&log, before).unwrap();
    let mounted = mount(&world, &world.a, "write-back=async", &cache);
    assert_eq!(fs::read(&file).unwrap(), noise(1, 100_000));
    assert_eq!(fs::read(&later).unwrap(), noise(3, 1000));
    assert_eq!(number(&world, &mounted, "conflicts"), 0);
}

/// A host loses power in the middle of work, again and again, with what its disk had synced and
/// any part of the rest: each time it mounts again, and has all that was committed.
#[test]
fn a_host_that_loses_power_goes_on() {
    let Some(world) = World::new() else { return };
    let done = Acknowledged::default();
    let mut rng = Rng::new(1);
    let mut left: Option<Image> = None;
    for round in 0..4 {
        let cache = world.a.mkdir(&format!("disk-{round}")).unwrap();
        let disk = Disk::mount(&cache).unwrap();
        if let Some(image) = left {
            put_after_power_loss(&image, &cache);
        }
        let mut mounted = mount(&world, &world.a, "write-back=sync", &cache);
        let dir = mounted.path().join("dir");
        if round == 0 {
            fs::create_dir(&dir).unwrap();
        }
        done.check(&dir, &format!("round {round}"));
        let worker = Worker::start(&world.a, &dir, &format!("r{round}"), &done);
        worker.wait_for(6);
        std::thread::sleep(Duration::from_millis(rng.below(1500)));
        mounted.kill9().unwrap();
        assert!(worker.failure().is_some());
        let recording = disk.recording();
        let fate = if round % 2 == 0 { Fate::Lost } else { Fate::Chance(round) };
        left = Some(recording.image(recording.end(), fate));
    }
    let mounted = world.mount(&world.b);
    done.check(&mounted.path().join("dir"), "on another host");
}

/// A host loses the end of its log, of which the server has all: what is left of a change that was
/// sent whole is no other host's, and what was removed does not come back.
/// Proves S13.5.
#[test]
fn what_was_sent_and_forgotten_is_no_conflict() {
    let Some(world) = World::new() else { return };
    let (mut rng, rounds) = (sample::rng(), if is_long() { usize::MAX } else { SAMPLE });
    for round in 0..rounds {
        let cache = world.a.mkdir(&format!("disk-{round}")).unwrap();
        let disk = Disk::mount(&cache).unwrap();
        let mut mounted = mount(&world, &world.a, "write-back=sync", &cache);
        let dir = mounted.path().join(format!("dir-{round}"));
        let (file, gone) = (dir.join("file"), dir.join("gone"));
        fs::create_dir(&dir).unwrap();
        save(&file, &noise(1, 300_000)).unwrap();
        let synced = segue(&world.a, &["sync", arg(mounted.path()), "--level", "host"]);
        assert_eq!(synced.code, Some(0), "{synced:?}");
        let before = disk.position();
        save(&file, &noise(2, 300_000)).unwrap();
        save(&gone, &noise(3, 1000)).unwrap();
        fs::remove_file(&gone).unwrap();
        let writes = disk.position() - before;
        // One after the other in a long run, else any of them.
        let mut any = || usize::try_from(rng.below(writes as u64 + 1)).unwrap();
        let lost_at = if is_long() { round } else { any() };
        mounted.kill9().unwrap();
        if lost_at > writes {
            assert!(writes > 10, "{writes}");
            break;
        }
        let copy = world.local("copy");
        fs::remove_dir_all(&copy).ok();
        // What was synced is not lost: the host has told the server which outcomes it has.
        let recording = disk.recording();
        let synced = recording.syncs(before..before + writes).last().map_or(0, |sync| sync + 1);
        let image = recording.image(synced.max(before + lost_at), Fate::Kept);
        put_after_power_loss(&image, &copy);
        drop(mounted);
        let mut mounted = mount(&world, &world.a, "write-back=sync", &copy);
        settle(&world.a, &mounted);
        let names = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name());
        assert_eq!(names.collect::<Vec<_>>(), ["file"], "{lost_at}");
        assert_eq!(fs::read(&file).unwrap(), noise(2, 300_000), "{lost_at}");
        assert_eq!(fs::read_dir(mounted.path()).unwrap().count(), round + 1);
        mounted.umount(&[]).unwrap();
    }
}

/// The mount dies anywhere in the truncation of a file whose data were synced and not sent: the
/// next one sends the data, or nothing. It sent as many zeros.
#[test]
fn a_truncation_that_was_cut_off_leaves_no_zeros() {
    let Some(world) = World::new() else { return };
    let cache = world.a.mkdir("disk").unwrap();
    let disk = Disk::mount(&cache).unwrap();
    let mut mounted = mount(&world, &world.a, "write-back=async", &cache);
    let path = mounted.path().join("file");
    assert_eq!(fs::read_dir(mounted.path()).unwrap().count(), 0);
    world.a.link_down().unwrap();
    let mut file = File::create(&path).unwrap();
    file.write_all(&noise(1, MB)).unwrap();
    file.sync_all().unwrap();
    let before = disk.position();
    let truncated = File::create(&path).unwrap();
    let cuts = before..=disk.position();
    mounted.kill9().unwrap();
    drop((file, truncated, mounted));
    world.a.link_up().unwrap();
    let (recording, copy) = (disk.recording(), world.local("copy"));
    assert!(cuts.clone().count() > 1, "{cuts:?}");
    // Only the first image counts: the server knows the outcomes when the next one asks.
    for cut in cuts.skip(1).take(1) {
        put(&recording.image(cut, Fate::Kept), &copy);
        let mut mounted = mount(&world, &world.a, "write-back=async", &copy);
        let found = fs::read(&path).unwrap();
        assert!(found.is_empty() || found == noise(1, MB), "{cut}: {} bytes", found.len());
        mounted.umount(&[]).unwrap();
    }
}

/// The mount dies at any moment while a refused change is put aside: the change with its data
/// is kept, by this process or by the next.
/// Proves S20.4, S20.5.
#[test]
fn a_refused_change_is_kept_whenever_the_mount_dies() {
    let Some(world) = World::new() else { return };
    let cache = world.a.mkdir("disk").unwrap();
    let disk = Disk::mount(&cache).unwrap();
    let mut mounted = mount(&world, &world.a, "write-back=async", &cache);
    let bytes = noise(4, 3 * MB);
    let mut file = with_no_room(&world, &mounted, "over", bytes.len());
    file.write_all(&bytes).unwrap();
    file.sync_all().unwrap();
    let before = disk.position();
    drop(file);
    eventually("the refused change is counted", || number(&world, &mounted, "refused") > 0);
    let cuts = before..=disk.position();
    assert_eq!(lost(&bytes, &mounted, &cache), Vec::<usize>::new());
    let kept = volume(&cache).join("refused");
    let data = fs::read_dir(&kept).unwrap().map(|entry| entry.unwrap().path());
    let data = data.filter(|path| path.extension().is_some_and(|end| end == "data"));
    let is_one = data.map(|path| fs::read(path).unwrap()).any(|kept| kept == bytes);
    // Two would be a test of something else: the server forgets the outcome of the first when it
    // hears of the second, and images of before then are of a disk that went back in time.
    assert!(is_one, "the write was cut in two");
    mounted.kill9().unwrap();
    drop(mounted);
    let (recording, copy) = (disk.recording(), world.local("copy"));
    for cut in sample(cuts) {
        put(&recording.image(cut, Fate::Kept), &copy);
        let mut mounted = mount(&world, &world.a, "write-back=async", &copy);
        eventually("the refused change is counted", || number(&world, &mounted, "refused") > 0);
        assert_eq!(lost(&bytes, &mounted, &copy), Vec::<usize>::new(), "{cut}");
        mounted.umount(&[]).unwrap();
    }
}

/// While changes of a file are refused one after the other it is written: each block is in the
/// file, in a conflict copy or among what is kept. Blocks were written into a container that was
/// about to be given up.
/// Proves S20.7.
#[test]
fn what_is_written_while_changes_are_refused_is_not_lost() {
    let Some(world) = World::new() else { return };
    let cache = world.local("cache");
    let mounted = mount(&world, &world.a, "write-back=async", &cache);
    save(&mounted.path().join("full"), &noise(1, MB)).unwrap();
    let (bytes, mut rng) = (noise(5, 300 * 4096), Rng::new(3));
    let file = with_no_room(&world, &mounted, "over", bytes.len());
    for (number, block) in (0..).zip(bytes.chunks(4096)) {
        file.write_all_at(block, number * 4096).unwrap();
        file.sync_all().unwrap();
        std::thread::sleep(Duration::from_millis(rng.below(12)));
    }
    drop(file);
    settle(&world.a, &mounted);
    assert_eq!(lost(&bytes, &mounted, &cache), Vec::<usize>::new());
}

/// An open file whose store was refused reads what the server has, and goes on being written.
/// It read EIO, and each later write became a conflict copy.
/// Proves S20.8.
#[test]
fn an_open_file_goes_on_after_its_store_was_refused() {
    let Some(world) = World::new() else { return };
    let mounted = world.mount_with(&world.a, "write-back=async");
    let path = mounted.path().join("file");
    let mut expected = noise(1, 100_000);
    save(&path, &expected).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    // This host refuses what makes a file longer than fits, and leaves holes to the server.
    expected.resize(3 * MB, 0);
    file.set_len(3 * MB as u64).unwrap();
    mounted.sync().unwrap();
    set_quota(&world, "1B");
    file.write_all_at(&noise(2, 3 * MB), 0).unwrap();
    file.sync_all().unwrap();
    eventually("the refused change is counted", || number(&world, &mounted, "refused") > 0);
    let mut found = vec![0; 3 * MB];
    eventually("it is what the server has", || {
        file.read_exact_at(&mut found, 0).unwrap();
        found == expected
    });
    file.write_all_at(b"later", 10).unwrap();
    drop(file);
    settle(&world.a, &mounted);
    expected[10..15].copy_from_slice(b"later");
    let other = world.mount(&world.b);
    assert!(fs::read(other.path().join("file")).unwrap() == expected);
    assert_eq!(number(&world, &mounted, "conflicts"), 0);
}

/// A change that waited in a dead mount's log meets another host's version: the conflict copy
/// has nothing of that.
/// Proves S23.5.
#[test]
fn a_conflict_copy_after_a_crash_is_of_one_host() {
    let Some(world) = World::new() else { return };
    let mut mounted = world.mount_with(&world.a, "write-back=async");
    let path = mounted.path().join("file");
    let (ours, theirs) = (noise(1, MB), noise(2, MB));
    save(&path, &ours).unwrap();
    mounted.sync().unwrap();
    world.a.link_down().unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&noise(3, 10_000), 500_000).unwrap();
    file.sync_all().unwrap();
    mounted.kill9().unwrap();
    drop((file, mounted));
    let other = world.mount(&world.b);
    save(&other.path().join("file"), &theirs).unwrap();
    // Else the copy may be theirs.
    other.sync().unwrap();
    world.a.link_up().unwrap();
    let mounted = world.mount_with(&world.a, "write-back=async");
    mounted.sync().unwrap();
    let copy = || {
        let mut names = fs::read_dir(mounted.path()).unwrap().map(|entry| entry.unwrap().path());
        names.find(|name| arg(name).contains("conflict"))
    };
    // What another host, or the server, made is seen within a second.
    eventually("the copy is seen", || copy().is_some());
    let copy = fs::read(copy().unwrap()).unwrap();
    assert_eq!(copy.len(), MB);
    assert!(copy[500_000..510_000] == noise(3, 10_000));
    let pieces = copy.chunks(1000).zip(ours.chunks(1000)).enumerate();
    for (at, (found, ours)) in pieces.filter(|(at, _)| !(500..510).contains(at)) {
        let is_ours = found == ours || found.iter().all(|&byte| byte == 0);
        assert!(is_ours, "at {at}000 it is neither ours nor nothing");
    }
    assert!(fs::read(&path).unwrap() == theirs);
}

/// The container files of `ino` in a cache.
fn containers(cache: &Path, ino: u64) -> Vec<PathBuf> {
    let of = format!("{ino:016x}-");
    let below = fs::read_dir(volume(cache).join("containers")).unwrap();
    let files = below.flat_map(|entry| fs::read_dir(entry.unwrap().path()).unwrap());
    let files = files.map(|entry| entry.unwrap().path());
    let is_of = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with(&of);
    files.filter(is_of).collect()
}

/// Somebody removes files of the cache directory while no mount uses it. A store whose data are
/// gone was sent as zeros. Now it goes nowhere, the user is told, and nothing waits for it.
/// Proves S13.11.
#[test]
fn a_store_whose_data_are_gone_is_told_of_and_holds_up_nothing() {
    let Some(world) = World::new() else { return };
    let cache = world.local("cache");
    let mut mounted = mount(&world, &world.a, "write-back=async", &cache);
    let [gone, old, other] = ["gone", "old", "other"].map(|name| mounted.path().join(name));
    save(&old, &noise(1, 200_000)).unwrap();
    mounted.sync().unwrap();
    world.a.link_down().unwrap();
    save(&gone, &noise(2, 200_000)).unwrap();
    File::options().write(true).open(&old).unwrap().write_all_at(&noise(4, 100_000), 0).unwrap();
    save(&other, &noise(5, 200_000)).unwrap();
    let synced = segue(&world.a, &["sync", arg(mounted.path()), "--level", "host"]);
    assert_eq!(synced.code, Some(0), "{synced:?}");
    let inos = [&gone, &old].map(|path| fs::metadata(path).unwrap().ino());
    mounted.kill9().unwrap();
    drop(mounted);
    for ino in inos {
        let left = containers(&cache, ino);
        assert!(!left.is_empty());
        left.into_iter().for_each(|path| fs::remove_file(path).unwrap());
    }
    let mounted = mount(&world, &world.a, "write-back=async", &cache);
    world.a.link_up().unwrap();
    settle(&world.a, &mounted);
    let listed = json(&world.a, &["conflicts", arg(mounted.path())]);
    let told: Vec<_> = listed["conflicts"].as_array().unwrap().iter().collect();
    assert_eq!(told.len(), 2, "{listed}");
    for (conflict, path) in told.iter().zip(["gone", "old"]) {
        assert!(conflict["path"].as_str().unwrap().ends_with(path));
        assert!(conflict["why"].as_str().unwrap().contains("missing in this host's cache"));
        assert_eq!(conflict["data"], "", "zeros are not what was written");
    }
    let second = world.mount(&world.b);
    for dir in [mounted.path(), second.path()] {
        let read = |name: &str| fs::read(dir.join(name)).unwrap();
        assert!(read("other") == noise(5, 200_000), "what was there came");
        assert!(read("old") == noise(1, 200_000), "the server's is as it was");
        assert!(read("gone").is_empty(), "no zeros");
    }
    save(&mounted.path().join("gone"), &noise(6, 1000)).unwrap();
    settle(&world.a, &mounted);
    eventually("it may be written again", || {
        fs::read(second.path().join("gone")).unwrap() == noise(6, 1000)
    });
}
