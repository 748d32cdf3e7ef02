//! File contents: what each way of opening, writing and cutting leaves behind.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

use segue_bed::run;

use crate::sample::is_long;
use crate::tree::{hash, hash_of, noise};
use crate::world::{World, arg, errno, eventually, sh};

const EEXIST: Option<i32> = Some(17);

/// Appends of two processes never overwrite each other: each line is there once and whole. Many
/// files, because what is saved again and again is sent once, and not without what was written
/// last.
#[test]
fn two_processes_append() {
    const FILES: usize = 100;
    const LINES: usize = 30;
    let Some(world) = World::new() else { return };
    let mount = world.mount(&world.a);
    let script = "
        append() { for i in $(seq $2); do echo \"$1 $i $(printf %0300d $i)\"; done; }
        appends() { append $1 $2 | while read -r line; do echo \"$line\" >>$3; done; }
        for file in $(seq $1); do
            appends one $2 log$file & one=$!
            appends two $2 log$file & two=$!
            wait $one; wait $two
        done";
    let [files, lines] = [FILES, LINES].map(|count| count.to_string());
    let args = ["-euc", script, "sh", &files, &lines];
    run(Command::new("sh").args(args).current_dir(mount.path())).unwrap();
    let lines = |who| (1..=LINES).map(move |i| format!("{who} {i} {i:0300}"));
    let expected: BTreeSet<String> = lines("one").chain(lines("two")).collect();
    mount.sync().unwrap();
    let other = world.mount(&world.b);
    for point in [mount.path(), other.path()] {
        for file in 1..=FILES {
            let path = point.join(format!("log{file}"));
            let text = fs::read_to_string(&path).unwrap();
            let found: BTreeSet<String> = text.lines().map(str::to_owned).collect();
            let missing: Vec<&String> = expected.difference(&found).collect();
            assert!(missing.is_empty(), "{} lacks {missing:?}", path.display());
            assert_eq!(text.lines().count(), expected.len(), "{}", path.display());
        }
    }
}

/// O_TRUNC empties a file, also one that another process has open and one that is shorter
/// afterwards; no old byte comes back.
/// Proves S1.2.
#[test]
fn truncating_opens() {
    let Some(world) = World::new() else { return };
    let (mount, other) = world.closing_mounts();
    let file = mount.path().join("file");
    fs::write(&file, noise(1, 300_000)).unwrap();
    assert_eq!(hash(&other.path().join("file")), hash_of(&noise(1, 300_000)));
    let mut held = File::open(&file).unwrap();
    fs::write(&file, "short").unwrap();
    let mut seen = String::new();
    held.read_to_string(&mut seen).unwrap();
    assert_eq!(seen, "short");
    assert_eq!(fs::read(other.path().join("file")).unwrap(), b"short");
    File::create(&file).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().len(), 0);
    assert_eq!(fs::read(other.path().join("file")).unwrap(), b"");
    fs::write(&file, noise(2, 100_000)).unwrap();
    assert_eq!(hash(&other.path().join("file")), hash_of(&noise(2, 100_000)));
}

fn create_new(path: &Path) -> std::io::Result<File> {
    File::options().write(true).create_new(true).open(path)
}

/// O_EXCL succeeds once: not again here, and not on another host, even where that host has
/// seen a moment ago that there is no such name. The same holds for directories and links.
/// Proves S4.10.
#[test]
fn exclusive_creation_succeeds_once() {
    let Some(world) = World::new() else { return };
    let (mount, other) = world.closing_mounts();
    let (here, there) = (mount.path(), other.path());
    for name in ["file", "dir", "link"] {
        assert!(!there.join(name).exists() && !here.join(name).exists());
    }
    let mut made = create_new(&here.join("file")).unwrap();
    made.write_all(b"first").unwrap();
    drop(made);
    fs::create_dir(here.join("dir")).unwrap();
    std::os::unix::fs::symlink("target", here.join("link")).unwrap();
    for point in [here, there] {
        assert_eq!(errno(create_new(&point.join("file"))), EEXIST, "{}", point.display());
        assert_eq!(errno(fs::create_dir(point.join("dir"))), EEXIST);
        let linked = std::os::unix::fs::symlink("other", point.join("link"));
        assert_eq!(errno(linked), EEXIST);
    }
    assert_eq!(fs::read(there.join("file")).unwrap(), b"first");
    assert_eq!(fs::read_link(there.join("link")).unwrap(), Path::new("target"));

    // Lock files: of two hosts that race for a name one wins.
    fs::create_dir(here.join("locks")).unwrap();
    eventually("the other host has the directory", || there.join("locks").is_dir());
    let race = |point: &Path| -> Vec<bool> {
        let won = (0..50).map(|number| create_new(&point.join(format!("locks/{number}"))));
        won.map(|won| won.map_err(|error| assert_eq!(error.raw_os_error(), EEXIST)).is_ok())
            .collect()
    };
    let (ours, theirs) = std::thread::scope(|scope| {
        let theirs = scope.spawn(|| race(there));
        (race(here), theirs.join().unwrap())
    });
    for (number, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
        assert!(ours ^ theirs, "lock {number}: here {ours}, there {theirs}");
    }
    // Who lost left no copy behind.
    eventually("50 locks", || fs::read_dir(there.join("locks")).unwrap().count() == 50);
}

const GIB: u64 = 1 << 30;

/// A file of 4 GiB with a few written places has their contents and zeros between, on the host
/// that wrote it and on another one, and its holes take no room on either or on the server.
/// Proves S2.1.
#[test]
fn a_sparse_file_of_4_gib() {
    let Some(world) = World::new() else { return };
    let mut mount = world.mount(&world.a);
    let places = [(0, 1), (GIB - 100, 2), (3 * GIB + 12_345, 3), (4 * GIB - 5_000, 4)];
    let write = |path: &Path| {
        let file = File::create(path).unwrap();
        for (offset, seed) in places {
            file.write_all_at(&noise(seed, 5_000), offset).unwrap();
        }
    };
    let name = "sparse";
    write(&mount.path().join(name));
    let same = world.local("local").join(name);
    write(&same);
    let check = |path: &Path| {
        let meta = fs::metadata(path).unwrap();
        assert_eq!(meta.len(), 4 * GIB);
        assert!(meta.blocks() * 512 <= 4 << 20, "{} blocks", meta.blocks());
        // All of it in a long run, else what was written and some of the zeros beside.
        let around = places.map(|(offset, _)| (offset.saturating_sub(4 << 20), 8 << 20));
        let ranges = if is_long() { &[(0, 4 * GIB)][..] } else { &around[..] };
        for (from, len) in ranges {
            let files = format!("'{}' '{}'", path.display(), same.display());
            sh(path.parent().unwrap(), &format!("cmp -i {from} -n {len} {files}"));
        }
    };
    check(&mount.path().join(name));
    mount.umount(&[]).unwrap();
    let mount = world.mount(&world.b);
    check(&mount.path().join(name));
    for dir in [world.a.home(), world.b.home(), world.server.data()] {
        let used = sh(dir, "du -s --block-size=1M . | cut -f1");
        assert!(used.trim().parse::<u64>().unwrap() < 64, "{}: {used} MiB", dir.display());
    }
}

/// Cutting a file and growing it again shows zeros where it was cut, in every order with
/// writes, through a handle and by path, and on another host.
/// Proves S4.9.
#[test]
fn truncation_both_ways() {
    let Some(world) = World::new() else { return };
    let (mount, other) = world.closing_mounts();
    let mut expected = noise(5, 400_000);
    let path = mount.path().join("file");
    fs::write(&path, &expected).unwrap();
    let by_path = |size: usize| sh(mount.path(), &format!("truncate -s {size} file"));
    let check = |expected: &[u8], step: &str| {
        assert_eq!(hash(&path), hash_of(expected), "{step}");
        assert_eq!(hash(&other.path().join("file")), hash_of(expected), "{step}, other host");
    };
    for (size, step) in [(123_457, "cut"), (300_000, "grown"), (4_096, "cut"), (4_097, "grown")] {
        by_path(size);
        expected.resize(size, 0);
        check(&expected, step);
    }
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&noise(6, 70_000), 50_000).unwrap();
    expected.resize(120_000, 0);
    expected[50_000..].copy_from_slice(&noise(6, 70_000));
    file.set_len(60_000).unwrap();
    expected.resize(60_000, 0);
    file.set_len(200_000).unwrap();
    expected.resize(200_000, 0);
    file.write_all_at(b"end", 199_990).unwrap();
    expected[199_990..199_993].copy_from_slice(b"end");
    assert_eq!(fs::metadata(&path).unwrap().len(), 200_000);
    drop(file);
    check(&expected, "in one handle");
    by_path(0);
    check(&[], "emptied");
    by_path(1 << 20);
    check(&vec![0; 1 << 20], "grown from nothing");
}

const MAPPED: &str = r#"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
/* Writes COUNT bytes of LETTER at OFFSET through a shared mapping of FILE; with 'sync' waits
   for msync. The descriptor is closed before the mapping goes, as loaders do. */
int main(int argc, char **argv) {
    int fd = open(argv[1], O_RDWR);
    off_t size = lseek(fd, 0, SEEK_END);
    char *map = mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (argc != 6 || fd < 0 || map == MAP_FAILED) return 1;
    close(fd);
    memset(map + atol(argv[2]), argv[4][0], atol(argv[3]));
    if (!strcmp(argv[5], "sync") && msync(map, size, MS_SYNC)) return 1;
    return munmap(map, size) != 0;
}
"#;

/// What a process writes into a shared mapping is what others read, here at once and on
/// another host; with and without msync.
/// Proves S1.2.
#[test]
fn shared_mappings() {
    let Some(world) = World::new() else { return };
    let (mount, other) = (world.mount(&world.a), world.mount(&world.b));
    let local = world.local("local");
    fs::write(local.join("mapped.c"), MAPPED).unwrap();
    sh(&local, "cc -o mapped mapped.c");
    let mut expected = noise(7, 1_000_000);
    let path = mount.path().join("file");
    fs::write(&path, &expected).unwrap();
    mount.sync().unwrap();
    assert_eq!(hash(&other.path().join("file")), hash_of(&expected));
    let changes = [(100, 50_000, 'x', "sync"), (999_000, 1_000, 'y', "no"), (4_095, 2, 'z', "no")];
    for (offset, count, letter, how) in changes {
        let tool = local.join("mapped");
        sh(mount.path(), &format!("{} file {offset} {count} {letter} {how}", arg(&tool)));
        expected[offset..offset + count].fill(letter as u8);
        assert_eq!(hash(&path), hash_of(&expected), "{letter}");
        eventually("the other host reads what was mapped", || {
            hash(&other.path().join("file")) == hash_of(&expected)
        });
    }
    let mount = world.remount(&world.a, mount);
    assert_eq!(hash(&mount.path().join("file")), hash_of(&expected), "after a new mount");
}

/// Reads and writes of one handle at random places and sizes agree with a copy in memory,
/// over flushes, and at the end on another host.
/// Proves S1.1.
#[test]
fn random_writes_agree_with_memory() {
    let Some(world) = World::new() else { return };
    let mount = world.mount(&world.a);
    let path = mount.path().join("file");
    let mut rng = segue_bed::Rng::new(8);
    let mut expected: Vec<u8> = Vec::new();
    let mut file = File::options().read(true).write(true).create(true).truncate(true).open(&path);
    for round in 0..400 {
        let open = file.as_mut().unwrap();
        let mut below = |limit| usize::try_from(rng.below(limit)).unwrap();
        let (offset, len) = (below(3_000_000), below(90_000));
        match rng.below(10) {
            0 => {
                open.set_len(offset as u64).unwrap();
                expected.resize(offset, 0);
            }
            1 => file = File::options().read(true).write(true).open(&path),
            2 => open.sync_all().unwrap(),
            3..6 => {
                let mut seen = vec![0; len];
                open.seek(SeekFrom::Start(offset as u64)).unwrap();
                let mut got = 0;
                while let count @ 1.. = open.read(&mut seen[got..]).unwrap() {
                    got += count;
                }
                let end = expected.len().min(offset + len);
                let wanted = expected.get(offset..end).unwrap_or_default();
                assert!(seen[..got] == *wanted, "round {round}: {len} bytes at {offset}");
            }
            _ => {
                let bytes = noise(round, len);
                open.write_all_at(&bytes, offset as u64).unwrap();
                if !bytes.is_empty() {
                    expected.resize(expected.len().max(offset + len), 0);
                    expected[offset..offset + len].copy_from_slice(&bytes);
                }
            }
        }
    }
    drop(file);
    assert_eq!(hash(&path), hash_of(&expected));
    mount.sync().unwrap();
    let other = world.mount(&world.b);
    assert_eq!(hash(&other.path().join("file")), hash_of(&expected));
}
