//! Large cached files are read by the kernel past the mount, and nobody can tell but by the
//! time it takes.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
use segue_bed::segue::SegueMount;
use segue_bed::{run, run_detaching};

use crate::cache::of_another_boot;
use crate::remount::cache_directory;
use crate::tree::{hash, hash_of, noise};
use crate::world::{
    CLOSE, World, arg, close, counted, end, errno, eventually, json, save, segue, settle, sh,
};

const MB: usize = 1 << 20;

/// Two mounts, and a file of 3 MB that is cached on the first and passed through there.
struct Two {
    world: World,
    here: SegueMount,
    there: SegueMount,
}

impl Two {
    fn new() -> Option<Two> {
        let world = World::new()?;
        let here = world.mount_with(&world.a, &format!("passthrough=on,{CLOSE}"));
        let there = world.mount_with(&world.b, CLOSE);
        Some(Two { world, here, there })
    }

    /// The first mount made anew, whether its process has died or not.
    fn remounted(self) -> Two {
        let Two { world, mut here, there } = self;
        if here.pid().is_some() {
            here.umount(&[]).unwrap();
        }
        drop(here);
        let here = world.mount_with(&world.a, &format!("passthrough=on,{CLOSE}"));
        Two { world, here, there }
    }

    fn here(&self, name: &str) -> PathBuf {
        self.here.path().join(name)
    }

    fn there(&self, name: &str) -> PathBuf {
        self.there.path().join(name)
    }

    /// Makes `name` on the other host, and opens it here so that the kernel reads it.
    fn opened(&self, name: &str, bytes: &[u8]) -> File {
        save(&self.there(name), bytes).unwrap();
        eventually("all are closed", || backed(&self.world, &self.here) == 0);
        self.passed_through(name, bytes)
    }

    /// Opens `name`, which has these bytes, as soon as nobody has it open otherwise.
    fn passed_through(&self, name: &str, bytes: &[u8]) -> File {
        let (mut opened, mut is_seen) = (None, false);
        eventually("the file is passed through", || {
            // Who has it open otherwise may be ourselves, of a moment ago.
            opened = None;
            is_seen = is_seen || fs::read(self.here(name)).is_ok_and(|found| found == bytes);
            opened = is_seen.then(|| File::open(self.here(name)).unwrap());
            is_seen && backed(&self.world, &self.here) > 0
        });
        opened.unwrap()
    }
}

/// How many files the kernel reads by itself, of a mount on host a.
fn backed(world: &World, mount: &SegueMount) -> u64 {
    let metrics = segue(&world.a, &["metrics", arg(mount.path())]).out;
    counted(&metrics, "segue_passed_through", "")
}

pub(crate) struct Map {
    at: *mut u8,
    len: usize,
}

#[allow(unsafe_code, reason = "maps are system calls")]
impl Map {
    pub(crate) fn new(file: &File, len: usize, prot: ProtFlags) -> Map {
        // SAFETY: the kernel chooses the place, and nothing else is there.
        let at = unsafe { mmap(std::ptr::null_mut(), len, prot, MapFlags::SHARED, file, 0) };
        Map { at: at.unwrap().cast(), len }
    }

    fn bytes(&self) -> Vec<u8> {
        // SAFETY: the map is there, and nobody cuts the file off while it is read.
        unsafe { std::slice::from_raw_parts(self.at, self.len).to_vec() }
    }

    pub(crate) fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.len);
        // SAFETY: the map is there and writable, and that far.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at.add(at), bytes.len()) }
    }

    fn sync(&self) {
        // SAFETY: the map is there.
        unsafe { msync(self.at.cast(), self.len, MsyncFlags::SYNC).unwrap() }
    }
}

impl Drop for Map {
    #[allow(unsafe_code, reason = "maps are system calls")]
    fn drop(&mut self) {
        // SAFETY: nobody reads it any more.
        unsafe { munmap(self.at.cast(), self.len).unwrap() }
    }
}

fn read(file: &File, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Fails unless the file has these bytes, and says where it has others.
fn check(path: &Path, bytes: &[u8]) {
    let found = fs::read(path).unwrap();
    let wrong = found.iter().zip(bytes).position(|(found, byte)| found != byte);
    assert_eq!((found.len(), wrong), (bytes.len(), None), "{}", path.display());
}

/// A file that is held open keeps its version, whole, whatever another host does to it. Who
/// opens it anew reads and maps what the other host closed.
/// Proves S6.5, S6.6.
#[test]
fn a_change_elsewhere_is_seen_by_the_next_open() {
    let Some(two) = Two::new() else { return };
    type Change = fn(&Path, &[u8]);
    let changes: [(&str, Change); 5] = [
        ("overwritten", |path, bytes| {
            let file = File::options().write(true).open(path).unwrap();
            file.write_all_at(bytes, 0).unwrap();
            file.set_len(bytes.len() as u64).unwrap();
            close(file).unwrap();
        }),
        ("in-part", |path, bytes| {
            let file = File::options().write(true).open(path).unwrap();
            file.write_all_at(&bytes[MB..], MB as u64).unwrap();
            close(file).unwrap();
        }),
        ("truncated", |path, _| {
            File::options().write(true).open(path).unwrap().set_len(5).unwrap()
        }),
        ("replaced", |path, bytes| {
            save(&path.with_extension("new"), bytes).unwrap();
            fs::rename(path.with_extension("new"), path).unwrap();
        }),
        ("saved", |path, bytes| save(path, bytes).unwrap()),
    ];
    for (name, change) in changes {
        let (old, new) = (noise(1, 3 * MB), noise(2, 3 * MB + 4097));
        let held = two.opened(name, &old);
        let map = Map::new(&held, 3 * MB, ProtFlags::READ);
        change(&two.there(name), &new);
        let expected = fs::read(two.there(name)).unwrap();
        for round in 0..3 {
            eventually("the change is seen", || {
                round > 0 || hash(&two.here(name)) == hash_of(&expected)
            });
            let anew = File::open(two.here(name)).unwrap();
            assert_eq!(anew.metadata().unwrap().len(), expected.len() as u64, "{name}");
            let seen = Map::new(&anew, expected.len(), ProtFlags::READ).bytes();
            assert_eq!(hash_of(&seen), hash_of(&expected), "{name}");
            assert_eq!(hash(&two.here(name)), hash_of(&expected), "{name}");
            assert_eq!(hash_of(&read(&held, 3 * MB)), hash_of(&old), "{name}");
            assert_eq!(hash_of(&map.bytes()), hash_of(&old), "{name}");
            assert_eq!(held.metadata().unwrap().len(), old.len() as u64, "{name}");
            let (held, anew) = (held.metadata().unwrap(), anew.metadata().unwrap());
            assert_eq!(held.ino() == anew.ino(), name != "replaced", "one file, one number");
        }
        // What this host writes then goes on from what the other one wrote.
        let file = File::options().write(true).open(two.here(name)).unwrap();
        file.write_all_at(b"here", 0).unwrap();
        close(file).unwrap();
        let mut expected = expected;
        expected[..4].copy_from_slice(b"here");
        assert_eq!(hash(&two.there(name)), hash_of(&expected), "{name}");
        assert_eq!(hash_of(&map.bytes()), hash_of(&old), "{name}");
    }
}

/// A file that is held open keeps its version, and who looks at its names sees what another host
/// made of it.
/// Proves S6.5.
#[test]
fn a_change_elsewhere_is_seen_by_its_names() {
    let Some(two) = Two::new() else { return };
    let bytes = noise(7, 3 * MB);
    for links in 1..=2 {
        let file = format!("file-{links}");
        let open = two.opened(&file, &bytes);
        let mut names = vec![two.here(&file)];
        if links == 2 {
            fs::hard_link(two.there(&file), two.there("link")).unwrap();
            two.there.sync().unwrap();
            names.push(two.here("link"));
        }
        let size = |name: &PathBuf| fs::metadata(name).unwrap().len();
        eventually("all names", || names.iter().all(|name| size(name) == bytes.len() as u64));
        save(&two.there(&file), &bytes[..MB]).unwrap();
        // By name, and nobody opens it: what the kernel was told of it holds for longer.
        std::thread::sleep(Duration::from_secs(3));
        assert_eq!(names.iter().map(size).collect::<Vec<_>>(), vec![MB as u64; links]);
        assert_eq!(hash_of(&read(&open, bytes.len())), hash_of(&bytes), "who has it open");
        drop(open);
    }
}

/// What one process of this host writes, cuts off and appends is seen at once by those for whom
/// the kernel reads, and reaches the server.
/// Proves S1.2.
#[test]
fn a_writer_of_this_host_is_seen_by_all() {
    let Some(two) = Two::new() else { return };
    let mut bytes = noise(3, 3 * MB);
    let held = two.opened("file", &bytes);
    let map = Map::new(&held, MB, ProtFlags::READ);
    let writer = File::options().read(true).write(true).open(two.here("file")).unwrap();
    writer.write_all_at(b"first", 10).unwrap();
    bytes[10..15].copy_from_slice(b"first");
    assert_eq!(hash_of(&read(&held, 3 * MB)), hash_of(&bytes));
    assert_eq!(hash_of(&map.bytes()), hash_of(&bytes[..MB]));
    assert_eq!(hash_of(&read(&writer, 3 * MB)), hash_of(&bytes));
    let appender = File::options().append(true).open(two.here("file")).unwrap();
    std::io::Write::write_all(&mut &appender, b"the end").unwrap();
    bytes.extend(b"the end");
    assert_eq!(held.metadata().unwrap().len(), bytes.len() as u64);
    assert_eq!(hash_of(&read(&held, bytes.len())), hash_of(&bytes));
    close(appender).unwrap();
    close(writer).unwrap();
    check(&two.there("file"), &bytes);

    sh(two.here.path(), "fallocate -p -o 1000001 -l 500000 file");
    bytes[1_000_001..1_500_001].fill(0);
    assert_eq!(hash_of(&read(&held, bytes.len())), hash_of(&bytes));
    check(&two.there("file"), &bytes);

    sh(two.here.path(), "truncate -s 2000000 file");
    bytes.truncate(2_000_000);
    assert_eq!(held.read_at(&mut [0; 100], 2_000_000).unwrap(), 0);
    assert_eq!(hash_of(&read(&held, 2_000_000)), hash_of(&bytes));
    check(&two.there("file"), &bytes);
    sh(two.here.path(), "echo all >file");
    assert_eq!(read(&held, 4), b"all\n");
    assert_eq!(fs::read(two.there("file")).unwrap(), b"all\n");
    drop(map);
}

/// What a shared map writes into a file that others have open is this host's change: it is seen
/// here at once, and stored, also when the file was closed before.
/// Proves S1.2.
#[test]
fn what_a_map_writes_is_stored() {
    let Some(two) = Two::new() else { return };
    let mut bytes = noise(4, 3 * MB);
    let held = two.opened("file", &bytes);
    let writer = File::options().read(true).write(true).open(two.here("file")).unwrap();
    let map = Map::new(&writer, 3 * MB, ProtFlags::READ | ProtFlags::WRITE);
    map.write(MB, b"by a map");
    bytes[MB..MB + 8].copy_from_slice(b"by a map");
    assert_eq!(hash_of(&read(&held, 3 * MB)), hash_of(&bytes));
    close(writer).unwrap();
    assert_eq!(hash(&two.there("file")), hash_of(&bytes));
    for round in 0..3u8 {
        let at = 2 * MB + usize::from(round) * 4096;
        map.write(at, &[round; 100]);
        bytes[at..at + 100].fill(round);
        map.sync();
        eventually("the other host sees it", || {
            sh(two.here.path(), "sync -f .");
            two.here.sync().unwrap();
            hash(&two.there("file")) == hash_of(&bytes)
        });
    }
    // A page that was written before, and is written again.
    map.write(MB, b"once more");
    bytes[MB..MB + 9].copy_from_slice(b"once more");
    drop((map, held));
    eventually("the last is seen", || hash(&two.there("file")) == hash_of(&bytes));
    assert_eq!(hash(&two.here("file")), hash_of(&bytes));
}

/// The writes of a map into a removed file go to no server. Open handles read them. The
/// mount appended it to its log without end.
#[test]
fn what_a_map_writes_into_a_removed_file_is_logged_once() {
    let Some(two) = Two::new() else { return };
    let bytes = noise(13, 3 * MB);
    let held = two.opened("file", &bytes);
    let writer = File::options().read(true).write(true).open(two.here("file")).unwrap();
    let map = Map::new(&writer, 3 * MB, ProtFlags::READ | ProtFlags::WRITE);
    fs::remove_file(two.here("file")).unwrap();
    two.here.sync().unwrap();
    map.write(MB, b"by a map");
    map.sync();
    two.here.sync().unwrap();
    assert_eq!(&read(&held, MB + 8)[MB..], b"by a map");
    drop((map, held, writer));
    save(&two.here("file"), b"another").unwrap();
    two.here.sync().unwrap();
    assert_eq!(fs::read(two.there("file")).unwrap(), b"another");
}

/// What a map writes into contents that another host has replaced meanwhile is not lost in silence:
/// fsync and close fail, status counts it, and it can be written again.
/// Proves S20.9.
#[test]
fn what_a_map_writes_in_vain_is_kept_and_told() {
    let Some(two) = Two::new() else { return };
    let old = noise(11, 3 * MB);
    let held = two.opened("file", &old);
    let writer = File::options().read(true).write(true).open(two.here("file")).unwrap();
    let map = Map::new(&writer, 3 * MB, ProtFlags::READ | ProtFlags::WRITE);
    let new = noise(12, 3 * MB);
    save(&two.there("file"), &new).unwrap();
    eventually("the other host's is seen", || hash(&two.here("file")) == hash_of(&new));
    map.write(MB, b"by a map");
    map.sync();
    assert_eq!(errno(writer.sync_all()), Some(rustix::io::Errno::IO.raw_os_error()));
    let again = File::options().write(true).open(two.here("file")).unwrap();
    close(again).unwrap();
    map.write(2 * MB, b"and more");
    map.sync();
    assert_eq!(errno(close(writer)), Some(rustix::io::Errno::IO.raw_os_error()));
    drop((map, held));
    let status = json(&two.world.a, &["status", arg(two.here.path())]);
    assert_eq!(status["mounts"][0]["refused"], 1, "{status}");
    assert_eq!(hash(&two.here("file")), hash_of(&new));
    let file = two.here("file");
    assert_eq!(segue(&two.world.a, &["resolve", arg(&file), "--ours"]).code, Some(0));
    let mut expected = old;
    expected[MB..MB + 8].copy_from_slice(b"by a map");
    expected[2 * MB..2 * MB + 8].copy_from_slice(b"and more");
    eventually("it is written again", || hash(&two.there("file")) == hash_of(&expected));
}

/// msync keeps its promise when the mount dies before it noticed the map's stores, and when the
/// host goes down with it. Later stores of the same map reach nobody.
/// Proves S3.7.
#[test]
fn what_a_map_synced_before_the_mount_died_is_stored() {
    let Some(mut two) = Two::new() else { return };
    for loses_power in [false, true] {
        let mut bytes = noise(13, 3 * MB);
        let held = two.opened("file", &bytes);
        let writer = File::options().read(true).write(true).open(two.here("file")).unwrap();
        let map = Map::new(&writer, 3 * MB, ProtFlags::READ | ProtFlags::WRITE);
        // Our own write between the stores hides neither.
        map.write(MB, b"by a map");
        writer.write_all_at(b"by a call", 2 * MB as u64).unwrap();
        map.write(3 * MB - 4096, b"and more");
        map.sync();
        two.here.kill9().unwrap();
        bytes[MB..MB + 8].copy_from_slice(b"by a map");
        bytes[2 * MB..2 * MB + 9].copy_from_slice(b"by a call");
        bytes[3 * MB - 4096..3 * MB - 4088].copy_from_slice(b"and more");
        let cache = cache_directory(&two.world.a.home().join(".local/state/segue"));
        let to = two.world.local(&format!("recovered-{loses_power}"));
        let recovered = segue(&two.world.a, &["recover", arg(&cache), "--to", arg(&to)]);
        assert_eq!(recovered.code, Some(0), "{recovered:?}");
        check(&to.join("file"), &bytes);
        if loses_power {
            of_another_boot(&cache);
        }
        two = two.remounted();
        map.write(0, b"too late");
        map.sync();
        check(&two.here("file"), &bytes);
        two.here.sync().unwrap();
        eventually("the other host sees it", || hash(&two.there("file")) == hash_of(&bytes));
        check(&two.here("file"), &bytes);
        drop((map, held, writer));
        let status = json(&two.world.a, &["status", arg(two.here.path())]);
        let found = ["refused", "conflicts"].map(|kind| &status["mounts"][0][kind]);
        assert_eq!(found, [0, 0], "{status}");
        // Nothing is to be recovered any more.
        two = two.remounted();
        check(&two.here("file"), &bytes);
    }
}

/// The same of contents that another host has replaced before: they are kept for the user. They
/// become a conflict copy if the mount died before its index had the other host's change.
/// Proves S3.7, S20.9.
#[test]
fn what_a_map_synced_in_vain_before_the_mount_died_is_kept() {
    let Some(mut two) = Two::new() else { return };
    let old = noise(14, 3 * MB);
    let held = two.opened("file", &old);
    let writer = File::options().read(true).write(true).open(two.here("file")).unwrap();
    let map = Map::new(&writer, 3 * MB, ProtFlags::READ | ProtFlags::WRITE);
    let new = noise(15, 3 * MB);
    save(&two.there("file"), &new).unwrap();
    eventually("the other host's is seen", || hash(&two.here("file")) == hash_of(&new));
    map.write(MB, b"by a map");
    map.sync();
    two.here.kill9().unwrap();
    let two = two.remounted();
    drop((map, held, writer));
    // The server may refuse it, of which a sync tells.
    settle(&two.world.a, &two.here);
    let status = json(&two.world.a, &["status", arg(two.here.path())]);
    let found = ["refused", "conflicts"].map(|kind| status["mounts"][0][kind].as_u64().unwrap());
    assert_eq!(found.iter().sum::<u64>(), 1, "{status}");
    check(&two.here("file"), &new);
    let file = two.here("file");
    assert_eq!(segue(&two.world.a, &["resolve", arg(&file), "--ours"]).code, Some(0));
    let mut expected = old;
    expected[MB..MB + 8].copy_from_slice(b"by a map");
    eventually("it is written again", || hash(&two.there("file")) == hash_of(&expected));
}

/// A file that is removed here or elsewhere is read on by who has it open.
/// Proves S1.6, S6.6.
#[test]
fn a_removed_file_is_read_on() {
    let Some(two) = Two::new() else { return };
    for (name, by) in [("here", &two.here), ("there", &two.there)] {
        let bytes = noise(5, 2 * MB);
        let held = two.opened(name, &bytes);
        fs::remove_file(by.path().join(name)).unwrap();
        save(&by.path().join(name), b"another").unwrap();
        eventually("the new one is seen", || {
            fs::read(two.here(name)).is_ok_and(|text| text == b"another")
        });
        assert_eq!(hash_of(&read(&held, 2 * MB)), hash_of(&bytes));
        assert_eq!(hash_of(&Map::new(&held, 2 * MB, ProtFlags::READ).bytes()), hash_of(&bytes));
    }
}

/// When the server refuses what was written here, the next open sees what the server has.
/// Proves S20.8.
#[test]
fn a_refused_change_is_not_what_the_next_reads() {
    let Some(two) = Two::new() else { return };
    let bytes = [noise(6, MB), vec![0; 2 * MB]].concat();
    let file = File::create(two.there("file")).unwrap();
    file.write_all_at(&bytes[..MB], 0).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    close(file).unwrap();
    let held = two.passed_through("file", &bytes);
    let data = arg(two.world.server.data());
    let args = ["volume", "set", "home", "--quota", "1M", "--data", data];
    assert_eq!(segue(&two.world.serving, &args).code, Some(0));
    let writer = File::options().write(true).open(two.here("file")).unwrap();
    // This host leaves it to the server whether there is room for what was a hole.
    writer.write_all_at(&noise(7, 2 * MB), MB as u64).unwrap();
    assert_eq!(errno(close(writer)), Some(rustix::io::Errno::DQUOT.raw_os_error()));
    eventually("the server's is seen", || hash(&two.here("file")) == hash_of(&bytes));
    read(&held, 3 * MB);
}

/// A mount that dies in the second before it has logged what a map wrote leaves a cache of which
/// nothing is taken for the server's that is not.
#[test]
fn what_a_map_wrote_before_a_crash_is_not_taken_for_the_servers() {
    let Some(two) = Two::new() else { return };
    let bytes = noise(10, 3 * MB);
    let held = two.opened("file", &bytes);
    let writer = File::options().read(true).write(true).open(two.here("file")).unwrap();
    let map = Map::new(&writer, 3 * MB, ProtFlags::READ | ProtFlags::WRITE);
    let Two { world, mut here, there } = two;
    for page in 0..20u8 {
        map.write(usize::from(page) * 4096, &[page; 100]);
    }
    here.kill9().unwrap();
    drop((here, map, held, writer));
    let here = world.mount(&world.a);
    here.sync().unwrap();
    let seen = hash(&here.path().join("file"));
    eventually("both hosts have the same", || hash(&there.path().join("file")) == seen);
}

/// What is passed through stays when the cache is full, and goes when it is closed.
/// Proves S15.6.
#[test]
fn an_eviction_spares_what_is_passed_through() {
    let Some(two) = Two::new() else { return };
    let Two { world, mut here, there } = two;
    here.umount(&[]).unwrap();
    drop(here);
    let here = world.mount_with(&world.a, "passthrough=on,cache-size=8M,cache-min-free=0%");
    let two = Two { world, here, there };
    let bytes = noise(11, 3 * MB);
    let held = two.opened("file", &bytes);
    let map = Map::new(&held, 3 * MB, ProtFlags::READ);
    let cached = |name| {
        let found = json(&two.world.a, &["where", arg(&two.here(name))]);
        found["files"][0]["cached_bytes"].as_u64().unwrap()
    };
    for number in 0..8 {
        let name = format!("other{number}");
        let other = noise(number, 3 * MB);
        save(&two.there(&name), &other).unwrap();
        eventually("it is seen", || fs::read(two.here(&name)).is_ok_and(|found| found == other));
    }
    eventually("the others go", || cached("other0") == 0);
    assert_eq!((cached("file"), backed(&two.world, &two.here)), (3 << 20, 1));
    assert_eq!(hash_of(&read(&held, 3 * MB)), hash_of(&bytes));
    assert_eq!(hash_of(&map.bytes()), hash_of(&bytes));
    drop((held, map));
    for number in 0..8 {
        assert_eq!(hash(&two.here(&format!("other{number}"))), hash_of(&noise(number, 3 * MB)));
    }
    eventually("it goes", || cached("file") == 0);
    assert_eq!(hash(&two.here("file")), hash_of(&bytes));
}

/// Who may not pass files through, or should not, does without, and hears so who insists.
#[test]
fn where_it_cannot_be_files_are_read_all_the_same() {
    let Some(world) = World::new() else { return };
    let there = world.mount(&world.b);
    let bytes = noise(12, 2 * MB);
    save(&there.path().join("file"), &bytes).unwrap();
    there.sync().unwrap();
    let point = world.a.mkdir("mnt").unwrap();
    let disk = world.a.mkdir("in-memory").unwrap();
    sh(world.a.dir(), "mount -t tmpfs -o size=96M tmpfs in-memory && chown -R 65534:65534 .");
    let program = world.bed.dir().join("segue");
    let user = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let mount = |user: &[&str], options: &str| {
        let mut command = world.a.command(if user.is_empty() { "env" } else { "setpriv" });
        command.args(user).arg(&program).args(["mount", &world.url(&world.a), arg(&point)]);
        command.args(["-o", options]);
        command
    };
    let in_memory = format!("cache-dir={}", arg(&disk));
    let cases: [(&[&str], &str, &str); 2] =
        [(&user, "grace=5s", "CAP_SYS_ADMIN"), (&[], &in_memory, "in memory")];
    for (user, options, why) in cases {
        let refused = end(&mut mount(user, &format!("{options},passthrough=on")));
        assert!(refused.code != Some(0) && refused.err.contains(why), "{refused:?}");
        run_detaching(&mut mount(user, options), &world.a.dir().join("mount.log")).unwrap();
        let mut command = world.a.command(if user.is_empty() { "env" } else { "setpriv" });
        let found = command.args(user).arg("cat").arg(point.join("file")).output().unwrap();
        assert_eq!(hash_of(&found.stdout), hash_of(&bytes), "{why}");
        let mut command = world.a.command(if user.is_empty() { "env" } else { "setpriv" });
        run(command.args(user).arg(&program).args(["umount", arg(&point)])).unwrap();
    }
    sh(world.a.dir(), "umount -l in-memory");
}

/// Programs run from a passed-through file, offline too, and after a remount.
#[test]
fn a_program_runs_and_the_cache_is_used_after_a_remount() {
    let Some(two) = Two::new() else { return };
    let bytes = fs::read("/bin/bash").unwrap();
    save(&two.there("bash"), &bytes).unwrap();
    sh(two.there.path(), "chmod +x bash");
    drop(two.passed_through("bash", &bytes));
    let Two { world, here, there: _there } = two;
    let here = world.remount(&world.a, here);
    sh(here.path(), "ls >/dev/null");
    world.a.link_down().unwrap();
    let path = here.path().join("bash");
    let file = File::open(&path).unwrap();
    assert_eq!(backed(&world, &here), 1);
    drop(file);
    let ran = end(std::process::Command::new(&path).args(["-c", "echo runs"]));
    assert_eq!(ran.out, "runs\n");
    world.a.link_up().unwrap();
}

/// `passthrough=off` is obeyed, and small files never go past the mount.
#[test]
fn it_is_an_option_and_for_large_files() {
    let Some(world) = World::new() else { return };
    let mount = world.mount_with(&world.a, "passthrough=off");
    let path = mount.path().join("file");
    save(&path, &noise(8, 2 * MB)).unwrap();
    mount.sync().unwrap();
    for _ in 0..3 {
        let _file = File::open(&path).unwrap();
        assert_eq!(backed(&world, &mount), 0);
    }
    let mount = world.remount(&world.a, mount);
    let small = mount.path().join("small");
    save(&small, &noise(9, 100_000)).unwrap();
    mount.sync().unwrap();
    for (path, passed) in [(&small, 0), (&path, 1)] {
        let _file = File::open(path).unwrap();
        assert_eq!(backed(&world, &mount), passed, "{path:?}");
    }
}
