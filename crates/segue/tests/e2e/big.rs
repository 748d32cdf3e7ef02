//! Files larger than memory or than any disk: what they take is bounded.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use segue_bed::segue::SegueServer;

use crate::sample::is_long;
use crate::tree::noise;
use crate::world::{World, sh};

const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;
/// The server's memory stays below this, whatever is uploaded: four times what it takes.
const SERVER_MAX: u64 = 512 * MIB;

/// The highest resident memory of the server so far.
fn peak(server: &mut SegueServer) -> u64 {
    let status = format!("/proc/{}/status", server.process().pid());
    let status = fs::read_to_string(status).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

/// Reads `len` bytes at `offset`.
fn at(file: &File, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, offset).unwrap();
    bytes
}

/// A file of 8 TiB takes the room of what was written into it, here, on the server and on
/// another host, which finds what was written between zeros; cutting and growing it does too.
/// Proves S2.1.
#[test]
fn a_sparse_file_of_8_tib() {
    let Some(mut world) = World::new() else { return };
    let (mount, other) = world.closing_mounts();
    let places = [(0, 1), (4 * TIB - 2_500, 2), (5 * TIB + 12_345, 3), (8 * TIB - 5_000, 4)];
    sh(mount.path(), "truncate -s 8T sparse");
    let file = File::options().read(true).write(true).open(mount.path().join("sparse")).unwrap();
    for (offset, seed) in places {
        file.write_all_at(&noise(seed, 5_000), offset).unwrap();
    }
    drop(file);
    let check = |path: &Path, upto: u64| {
        let meta = fs::metadata(path).unwrap();
        assert_eq!(meta.len(), 8 * TIB, "{}", path.display());
        assert!(meta.blocks() * 512 <= 4 * MIB, "{}: {} blocks", path.display(), meta.blocks());
        let file = File::open(path).unwrap();
        for (offset, seed) in places {
            let expected = if offset < upto { noise(seed, 5_000) } else { vec![0; 5_000] };
            assert!(at(&file, offset, 5_000) == expected, "{}: {offset}", path.display());
        }
        assert_eq!(at(&file, 3 * TIB - 1_000, 100_000), vec![0; 100_000]);
        assert_eq!(at(&file, 8 * TIB - 100_000, 95_000), vec![0; 95_000]);
    };
    let point = |dir: &Path| dir.join("sparse");
    check(&point(mount.path()), 8 * TIB);
    check(&point(other.path()), 8 * TIB);
    sh(mount.path(), "truncate -s 5T sparse && truncate -s 8T sparse");
    check(&point(mount.path()), 5 * TIB);
    check(&point(other.path()), 5 * TIB);
    for dir in [world.a.home(), world.b.home(), world.server.data()] {
        let used = sh(dir, "du -s --block-size=1M . | cut -f1");
        assert!(used.trim().parse::<u64>().unwrap() < 64, "{}: {used} MiB", dir.display());
    }
    let checked = world.server.data().display().to_string();
    world.serving.run("segue", &["volume", "check", "home", "--data", &checked]).unwrap();
    sh(mount.path(), "rm sparse && test -z \"$(ls)\"");
    assert!(peak(&mut world.server) < SERVER_MAX, "{}", peak(&mut world.server));
}

/// A dense file that is larger than the server may grow reaches it and comes back byte for byte.
#[test]
fn a_dense_file_is_larger_than_the_server_may_grow() {
    let Some(mut world) = World::new() else { return };
    let mut mount = world.mount(&world.a);
    let mut file = File::create(mount.path().join("dense")).unwrap();
    let mut hasher = blake3::Hasher::new();
    let mut block = noise(1, 1 << 20);
    for number in 0u64..if is_long() { 1_100 } else { 600 } {
        // So that no chunk is like another.
        for part in block.chunks_mut(4_096) {
            part[..8].copy_from_slice(&number.to_be_bytes());
        }
        file.write_all(&block).unwrap();
        hasher.update(&block);
    }
    drop(file);
    mount.umount(&[]).unwrap();
    let other = world.mount(&world.b);
    let (mut found, mut file) =
        (blake3::Hasher::new(), File::open(other.path().join("dense")).unwrap());
    loop {
        match file.read(&mut block).unwrap() {
            0 => break,
            len => found.update(&block[..len]),
        };
    }
    assert_eq!(found.finalize(), hasher.finalize());
    assert!(peak(&mut world.server) < SERVER_MAX, "{}", peak(&mut world.server));
}
