//! Room on a host's disk: what is cached keeps its bounds, what the server lacks stays however much
//! it is, and a full disk stops no reader.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::fs::{Advice, fadvise};
use rustix::io::Errno;
use segue_bed::run;
use segue_bed::segue::SegueMount;

use crate::tree::noise;
use crate::world::{World, arg, counted, errno, eventually, json, save, segue, wait_for_state};

const MB: usize = 1 << 20;
const LIMIT: u64 = 8 << 20;

/// The containers below `cache`, and the room that each takes on its disk.
fn containers(cache: &Path) -> BTreeMap<PathBuf, u64> {
    let (mut found, mut open) = (BTreeMap::new(), vec![cache.to_path_buf()]);
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            // What is removed meanwhile takes none.
            let Ok(meta) = path.symlink_metadata() else { continue };
            if meta.is_dir() {
                open.push(path);
            } else if path.components().any(|part| part.as_os_str() == "containers") {
                found.insert(path, meta.blocks() * 512);
            }
        }
    }
    found
}

fn on_disk(cache: &Path) -> u64 {
    containers(cache).values().sum()
}

fn status(world: &World, mount: &SegueMount, key: &str) -> u64 {
    json(&world.a, &["status", arg(mount.path())])["mounts"][0][key].as_u64().unwrap()
}

fn cached(world: &World, path: &Path) -> u64 {
    json(&world.a, &["where", arg(path)])["files"][0]["cached_bytes"].as_u64().unwrap()
}

fn small(cache: &Path) -> String {
    format!("cache-size=8M,cache-min-free=0%,cache-dir={}", arg(cache))
}

/// Files of `len` bytes each that another host made.
fn others(world: &World, count: u64, len: usize) -> SegueMount {
    let writer = world.mount(&world.b);
    for number in 0..count {
        save(&writer.path().join(format!("f{number}")), &noise(number, len)).unwrap();
    }
    writer.sync().unwrap();
    writer
}

fn read_all(mount: &SegueMount, count: u64, len: usize) {
    for number in 0..count {
        let found = fs::read(mount.path().join(format!("f{number}"))).unwrap();
        assert!(found == noise(number, len), "f{number}");
    }
}

/// Reading much more than `cache-size` leaves no more than that on the disk; all of it is read
/// right again.
/// Proves S15.1, S15.4.
#[test]
fn what_is_cached_stays_within_its_bounds() {
    let Some(world) = World::new() else { return };
    let _writer = others(&world, 10, 4 * MB);
    let cache = world.local("cache");
    let mount = world.mount_with(&world.a, &small(&cache));
    for _ in 0..2 {
        read_all(&mount, 10, 4 * MB);
        eventually("the cache is small", || on_disk(&cache) <= LIMIT);
        eventually("and known to be", || status(&world, &mount, "cache_bytes") == on_disk(&cache));
    }
    assert!(on_disk(&cache) > 0, "caching went on");
    assert_eq!(status(&world, &mount, "cache_limit_bytes"), LIMIT);
    let metrics = segue(&world.a, &["metrics", arg(mount.path())]).out;
    let evicted = counted(&metrics, "segue_cache_evicted_bytes_total", "");
    assert!(evicted >= 2 * (40 << 20) - 2 * LIMIT, "{metrics}");
}

/// What the server lacks is beyond the bounds, and stays until the server has it.
/// Proves S15.5.
#[test]
fn what_the_server_lacks_stays() {
    let Some(world) = World::new() else { return };
    let cache = world.local("cache");
    let mount = world.mount_with(&world.a, &small(&cache));
    assert_eq!(fs::read_dir(mount.path()).unwrap().count(), 0);
    world.a.link_down().unwrap();
    for number in 0..5 {
        save(&mount.path().join(format!("f{number}")), &noise(number, 4 * MB)).unwrap();
    }
    // The cleaner looks in the meantime.
    std::thread::sleep(Duration::from_secs(3));
    assert!(on_disk(&cache) >= 20 << 20);
    read_all(&mount, 5, 4 * MB);
    world.a.link_up().unwrap();
    mount.sync().unwrap();
    eventually("the cache is small", || on_disk(&cache) <= LIMIT);
    read_all(&mount, 5, 4 * MB);
    let other = world.mount(&world.b);
    read_all(&other, 5, 4 * MB);
}

/// What was used longest ago goes first, also when that was in the life of another process.
/// Proves S15.3.
#[test]
fn the_last_use_is_known_after_a_restart() {
    let Some(world) = World::new() else { return };
    let _writer = others(&world, 4, 2 * MB);
    let cache = world.local("cache");
    let file = |number: u64| PathBuf::from(format!("f{number}"));
    for number in [0, 1, 2, 0] {
        let mut mount = world.mount_with(&world.a, &small(&cache));
        let found = fs::read(mount.path().join(file(number))).unwrap();
        assert!(found == noise(number, 2 * MB));
        mount.umount(&[]).unwrap();
    }
    let mount = world.mount_with(&world.a, &small(&cache));
    let is_here = |number: u64| cached(&world, &mount.path().join(file(number))) > 0;
    assert!([0, 1, 2].into_iter().all(is_here), "three of them fit");
    fs::read(mount.path().join(file(3))).unwrap();
    eventually("the oldest goes", || !is_here(1));
    eventually("the newest is noted", || is_here(3));
    assert!(is_here(0) && is_here(2));
    read_all(&mount, 4, 2 * MB);
}

/// An open file stays, whatever else comes, and is read without the server.
/// Proves S15.6.
#[test]
fn what_is_open_stays() {
    let Some(world) = World::new() else { return };
    let _writer = others(&world, 6, 4 * MB);
    let cache = world.local("cache");
    let mount = world.mount_with(&world.a, &small(&cache));
    let path = mount.path().join("f0");
    let held = File::open(&path).unwrap();
    assert!(fs::read(&path).unwrap() == noise(0, 4 * MB));
    read_all(&mount, 6, 4 * MB);
    eventually("the cache is small", || on_disk(&cache) <= LIMIT);
    world.a.link_down().unwrap();
    // What the kernel has of it is not what is asked here.
    fadvise(&held, 0, None, Advice::DontNeed).unwrap();
    let mut found = vec![0; 4 * MB];
    held.read_exact_at(&mut found, 0).unwrap();
    assert!(found == noise(0, 4 * MB));
    drop(held);
    world.a.link_up().unwrap();
    read_all(&mount, 6, 4 * MB);
    eventually("a closed file goes", || cached(&world, &path) == 0);
}

/// A mount that dies when it has just evicted something leaves nothing that the next one takes for
/// data: not even when the index is lost too, and the log has some of what was written.
/// Proves S15.4.
#[test]
fn what_went_before_a_crash_is_fetched_again() {
    const UNREACHABLE: Option<i32> = Some(Errno::HOSTUNREACH.raw_os_error());
    let Some(world) = World::new() else { return };
    let _writer = others(&world, 8, 2 * MB);
    let cache = world.local("cache");
    let options = format!("grace=1s,{}", small(&cache));
    for is_index_lost in [false, true] {
        let mut mount = world.mount_with(&world.a, &options);
        let before = containers(&cache);
        let mine = mount.path().join(format!("mine, {is_index_lost}"));
        let mut expected = noise(100, 2 * MB);
        save(&mine, &expected).unwrap();
        expected[5..10].copy_from_slice(b"small");
        File::options().write(true).open(&mine).unwrap().write_all_at(b"small", 5).unwrap();
        mount.sync().unwrap();
        let mut new = containers(&cache);
        new.retain(|path, bytes| *bytes > 1 << 20 && !before.contains_key(path));
        let top = mount.path().to_owned();
        let reader = std::thread::spawn(move || {
            (0..).map(|number| top.join(format!("f{}", number % 8))).find(|path| {
                std::thread::sleep(Duration::from_millis(50));
                fs::read(path).is_err()
            })
        });
        eventually("it goes", || new.keys().any(|path| !path.exists()));
        mount.kill9().unwrap();
        reader.join().unwrap();
        if is_index_lost {
            for entry in fs::read_dir(&cache).unwrap() {
                fs::remove_file(entry.unwrap().path().join("index.db")).ok();
            }
        }
        world.a.link_down().unwrap();
        let mount = world.mount_with(&world.a, &options);
        for number in if is_index_lost { 0..0 } else { 0..8 } {
            let path = mount.path().join(format!("f{number}"));
            match (cached(&world, &path) > 0).then(|| fs::read(path)) {
                Some(Ok(found)) => assert!(found == noise(number, 2 * MB), "f{number}"),
                Some(Err(error)) => assert_eq!(error.raw_os_error(), UNREACHABLE),
                None => {}
            }
        }
        assert_eq!(errno(fs::read(&mine)), UNREACHABLE);
        world.a.link_up().unwrap();
        wait_for_state(&world.a, &mount, "online");
        read_all(&mount, 8, 2 * MB);
        assert!(fs::read(&mine).unwrap() == expected);
    }
}

/// A small disk, until it is dropped.
pub(crate) struct Tmpfs(pub(crate) PathBuf);

impl Tmpfs {
    pub(crate) fn mount(point: PathBuf, size: &str) -> Tmpfs {
        let option = format!("size={size}");
        let args = ["-t", "tmpfs", "-o", &option, "tmpfs", arg(&point)];
        run(Command::new("mount").args(args)).unwrap();
        Tmpfs(point)
    }

    fn left(&self) -> u64 {
        let space = rustix::fs::statvfs(&self.0).unwrap();
        space.f_bavail * space.f_frsize
    }

    /// Somebody else takes all but so much of it.
    pub(crate) fn leave(&self, bytes: u64) {
        let mut ballast =
            File::options().create(true).append(true).open(self.0.join("ballast")).unwrap();
        while self.left() > bytes {
            let some = (self.left() - bytes).min(1 << 20);
            if ballast.write_all(&vec![1; usize::try_from(some).unwrap()]).is_err() {
                return;
            }
        }
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(&self.0).status().ok();
    }
}

/// With the disk full reads go uncached, and writes get ENOSPC before anything is accepted that
/// cannot be kept; what was accepted before is kept and sent.
/// Proves S15.7, S15.8.
#[test]
fn a_full_disk_stops_writers_and_no_reader() {
    const ENOSPC: Option<i32> = Some(Errno::NOSPC.raw_os_error());
    let Some(world) = World::new() else { return };
    let disk = Tmpfs::mount(world.local("disk"), "96M");
    let writer = others(&world, 6, 4 * MB);
    let options = format!("cache-dir={}", arg(&disk.0.join("cache")));
    fs::create_dir(disk.0.join("cache")).unwrap();
    let mount = world.mount_with(&world.a, &options);
    read_all(&mount, 2, 4 * MB);
    let mine = mount.path().join("mine");
    world.a.link_down().unwrap();
    save(&mine, &noise(77, 3 * MB)).unwrap();
    disk.leave(20 << 20);
    let more = mount.path().join("more");
    eventually("writers are refused", || match save(&more, &noise(78, MB)) {
        // What the disk has left is not asked for at each write.
        Ok(()) => false,
        Err(error) => error.raw_os_error() == ENOSPC,
    });
    world.a.link_up().unwrap();
    read_all(&mount, 6, 4 * MB);
    disk.leave(0);
    for _ in 0..2 {
        read_all(&mount, 6, 4 * MB);
        assert_eq!(errno(save(&mount.path().join("even more"), &noise(79, MB))), ENOSPC);
        assert!(fs::read(&mine).unwrap() == noise(77, 3 * MB));
    }
    fs::remove_file(disk.0.join("ballast")).unwrap();
    eventually("there is room again", || save(&mount.path().join("later"), b"later").is_ok());
    mount.sync().unwrap();
    read_all(&mount, 6, 4 * MB);
    assert!(fs::read(writer.path().join("mine")).unwrap() == noise(77, 3 * MB));
    assert_eq!(status(&world, &mount, "refused"), 0);
}
