//! Holes: fallocate(2), and lseek(2) that finds them.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::tree::{hash, noise};
use crate::world::{World, arg, eventually, json, sh, wait_for_state};

const MB: u64 = 1 << 20;

/// Bytes of the volume's files that are not holes, as the server counts them.
fn allocated(world: &World) -> u64 {
    let data = arg(world.server.data());
    let shown = json(&world.serving, &["volume", "show", "home", "--data", data]);
    shown["allocated_bytes"].as_u64().unwrap()
}

fn used(dir: &Path) -> u64 {
    sh(dir, "du -s --block-size=1M . | cut -f1").trim().parse().unwrap()
}

/// Where each run of data begins and ends.
fn runs(file: &File) -> Vec<(u64, u64)> {
    let (mut at, mut runs) = (0, Vec::new());
    loop {
        match seek(file, SeekFrom::Data(at)) {
            Ok(start) => {
                at = seek(file, SeekFrom::Hole(start)).unwrap();
                assert!(start < at, "{start} {at}");
                runs.push((start, at));
            }
            Err(Errno::NXIO) => return runs,
            Err(error) => panic!("{error}"),
        }
    }
}

/// A punched hole gives its room back, here and on the server, and reads as zeros on every host.
/// Proves S2.1.
#[test]
fn a_punched_hole_takes_no_room() {
    let Some(world) = World::new() else { return };
    let (local, mount) = (world.local("plain"), world.mount(&world.a));
    fs::write(local.join("file"), noise(1, 100 << 20)).unwrap();
    sh(mount.path(), &format!("cp {}/file file", local.display()));
    mount.sync().unwrap();
    let whole = allocated(&world);
    assert_eq!(whole, 100 * MB);
    for dir in [&local, mount.path()] {
        // Not at the border of a block.
        sh(dir, "fallocate -p -o 30000001 -l 50M file");
        assert_eq!(fs::metadata(dir.join("file")).unwrap().len(), 100 * MB);
    }
    assert_eq!(hash(&mount.path().join("file")), hash(&local.join("file")));
    mount.sync().unwrap();
    assert_eq!(allocated(&world), 50 * MB);
    assert!(fs::metadata(mount.path().join("file")).unwrap().blocks() * 512 <= 50 * MB);
    // Not all of the data directory: the log of the metadata keeps what it grew to, at most 16 MiB.
    let packs = world.server.data().join("packs");
    eventually("the server's packs have the room back", || used(&packs) < 60);
    assert!(used(world.a.home()) < 60, "{} MB", used(world.a.home()));
    let other = world.mount(&world.b);
    let copy = world.local("copy").join("file");
    sh(other.path(), &format!("cp --sparse=auto file {}", copy.display()));
    assert_eq!(hash(&copy), hash(&local.join("file")));
    assert!(fs::metadata(&copy).unwrap().blocks() * 512 < 60 * MB);
    assert!(used(world.b.home()) < 60, "{} MB", used(world.b.home()));
    // What was fetched says the same as the server did.
    let found = runs(&File::open(other.path().join("file")).unwrap());
    assert!(found.len() == 2 && found[1].1 == 100 * MB, "{found:?}");
    assert_eq!(hash(&other.path().join("file")), hash(&local.join("file")));
}

/// The modes of fallocate(1) do to a file what they do on a local file system.
/// Proves S2.1, S2.2.
#[test]
fn the_modes_of_fallocate_do_as_on_a_local_file_system() {
    let Some(world) = World::new() else { return };
    // Each command's changes by themselves: in one store with what it punches, a hole is whole
    // blocks.
    let mount = world.mount_with(&world.a, "write-back=close");
    let local = world.local("plain");
    let script = "
        printf text > grown; fallocate -l 3M grown; fallocate -n -o 10M -l 1M grown
        cp $NOISE zeroed; fallocate -z -o 100001 -l 700000 zeroed
        cp $NOISE longer; fallocate -z -o 900000 -l 5M longer; printf end >> longer
        cp $NOISE kept; fallocate -z -n -o 900000 -l 5M kept; fallocate -p -o 2M -l 1G kept
        truncate -s 40M dug; dd if=$NOISE of=dug bs=1M seek=7 conv=notrunc 2>&1
        head -c 20M /dev/zero >> dug; cat $NOISE >> dug; fallocate -d dug";
    let noisy = world.local("noise").join("noise");
    fs::write(&noisy, noise(2, 1 << 20)).unwrap();
    let script = script.replace("$NOISE", arg(&noisy));
    for dir in [&local, mount.path()] {
        sh(dir, &script);
    }
    mount.sync().unwrap();
    let other = world.mount(&world.b);
    for name in ["grown", "zeroed", "longer", "kept", "dug"] {
        for dir in [mount.path(), other.path()] {
            let (ours, theirs) = (dir.join(name), local.join(name));
            let len = |path| fs::metadata(path).unwrap().len();
            assert_eq!(len(&ours), len(&theirs), "{name}");
            assert_eq!(hash(&ours), hash(&theirs), "{name}");
        }
    }
    let dug = 2 * MB;
    assert_eq!(allocated(&world), 4 + (MB - 700_000) + (900_000 + 3) + 900_000 + dug);
}

/// Holes cost what stands around them, however long they are.
/// Proves S2.1.
#[test]
fn terabytes_become_a_hole() {
    let Some(world) = World::new() else { return };
    let (mount, other) = (world.mount(&world.a), world.mount(&world.b));
    let file = File::create(mount.path().join("far")).unwrap();
    for place in 0..8 {
        file.write_all_at(&noise(place, 100_000), place << 40).unwrap();
    }
    file.sync_all().unwrap();
    drop(file);
    mount.sync().unwrap();
    assert_eq!(allocated(&world), 800_000);
    sh(mount.path(), "fallocate -z -o 1G -l 6T far; fallocate -z -o 7T -l 4T far");
    mount.sync().unwrap();
    assert_eq!(allocated(&world), 100_000);
    for dir in [mount.path(), other.path()] {
        let file = File::open(dir.join("far")).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 11 << 40);
        for (place, is_there) in [(0, true), (1, false), (6, false), (7, false), (9, false)] {
            let mut bytes = vec![0; 100_000];
            file.read_exact_at(&mut bytes, place << 40).unwrap();
            let wanted = if is_there { noise(place, 100_000) } else { vec![0; 100_000] };
            assert!(bytes == wanted, "{place}");
        }
    }
}

/// A sparse file of 8 TiB is copied by a host that has nothing of it, and only what was written
/// into it moves.
#[test]
fn a_sparse_file_of_8_tib_is_copied() {
    let Some(world) = World::new() else { return };
    let mut mount = world.mount(&world.a);
    let places = [(0, 1), (3 << 40, 2), ((8 << 40) - 5_000, 3)];
    let file = File::create(mount.path().join("sparse")).unwrap();
    file.set_len(8 << 40).unwrap();
    for (offset, seed) in places {
        file.write_all_at(&noise(seed, 5_000), offset).unwrap();
    }
    drop(file);
    mount.umount(&[]).unwrap();
    let mount = world.mount(&world.b);
    let moved = || world.b.tx_bytes().unwrap() + world.b.rx_bytes().unwrap();
    let before = moved();
    let copy = world.local("copy").join("sparse");
    sh(mount.path(), &format!("cp --sparse=auto sparse {}", copy.display()));
    sh(mount.path(), "cp --sparse=auto sparse beside");
    let moved = moved() - before;
    assert!(moved < 16 * MB, "{moved} bytes");
    for path in [copy, mount.path().join("beside")] {
        let file = File::open(&path).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 8 << 40);
        for (offset, seed) in places {
            let mut bytes = vec![0; 5_000];
            file.read_exact_at(&mut bytes, offset).unwrap();
            assert!(bytes == noise(seed, 5_000), "{}: {offset}", path.display());
        }
    }
}

/// A conflict copy of a sparse file is as sparse.
#[test]
fn a_conflict_copy_of_terabytes() {
    let Some(world) = World::new() else { return };
    let mount = |host| world.mount_with(host, "write-back=async");
    let (ours, theirs) = (mount(&world.a), mount(&world.b));
    let write = |dir: &Path, place: u64| {
        let file = File::options().write(true).open(dir.join("sparse")).unwrap();
        file.write_all_at(&noise(place, 100_000), place << 40).unwrap();
    };
    sh(ours.path(), "truncate -s 8T sparse");
    write(ours.path(), 1);
    ours.sync().unwrap();
    eventually("the other host sees it", || theirs.path().join("sparse").exists());
    world.b.link_down().unwrap();
    write(ours.path(), 2);
    ours.sync().unwrap();
    write(theirs.path(), 3);
    world.b.link_up().unwrap();
    theirs.sync().unwrap();
    let names = sh(theirs.path(), "ls");
    let copy = names.lines().find(|name| name.contains("conflict")).unwrap();
    let file = File::open(theirs.path().join(copy)).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 8 << 40);
    let mut bytes = vec![0; 100_000];
    file.read_exact_at(&mut bytes, 3 << 40).unwrap();
    assert!(bytes == noise(3, 100_000));
    assert!(allocated(&world) <= 400_000);
}

const MAPPED: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
/* Writes into the middle of FILE through a mapping, and says where another descriptor finds data
   while it is mapped. */
int main(int argc, char **argv) {
    int fd = open(argv[1], O_RDWR);
    off_t size = lseek(fd, 0, SEEK_END);
    char *map = mmap(0, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED) return 1;
    close(fd);
    map[size / 2] = 'x';
    printf("%ld\n", (long)lseek(open(argv[1], O_RDONLY), 0, SEEK_DATA));
    return 0;
}
"#;

/// lseek calls no data a hole, even if only the kernel's pages know of them, or a server that
/// cannot be asked.
/// Proves S2.3.
#[test]
fn data_are_never_called_a_hole() {
    let Some(world) = World::new() else { return };
    let mut mount = world.mount(&world.a);
    let path = mount.path().join("file");
    let file = File::create(&path).unwrap();
    file.set_len(40 * MB).unwrap();
    drop(file);
    let local = world.local("local");
    fs::write(local.join("mapped.c"), MAPPED).unwrap();
    sh(&local, "cc -o mapped mapped.c");
    let found = sh(mount.path(), &format!("{}/mapped file", local.display()));
    assert_eq!(found.trim(), (20 * MB).to_string());
    mount.umount(&[]).unwrap();

    let mount = world.mount(&world.b);
    let path = mount.path().join("file");
    fs::metadata(&path).unwrap();
    world.b.link_down().unwrap();
    world.lose_link(&world.b, &mount);
    assert_eq!(runs(&File::open(&path).unwrap()), [(0, 40 * MB)]);
    world.b.link_up().unwrap();
    wait_for_state(&world.b, &mount, "online");
    let online = runs(&File::open(&path).unwrap());
    assert!(online.len() == 1 && online[0].0 == 20 * MB, "{online:?}");
}
