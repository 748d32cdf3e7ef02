//! Files that another host replaces or removes while they are opened and read here.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use segue_bed::LinkSpec;

use crate::sample::{is_long, times};
use crate::tree::{hash_of, noise};
use crate::world::{CLOSE, World, eventually, save};

const MB: usize = 1 << 20;
/// From a few bytes to more than a file that is fetched when it is opened, or read by the kernel.
const SIZES: [usize; 6] = [10, 3_000, 40_000, 70_000, 300_000, 3 * MB / 2];

/// Version `number` of the file: its number, and bytes that follow from it.
fn version(number: u64) -> Vec<u8> {
    let len = SIZES[usize::try_from(number).unwrap() % SIZES.len()];
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.extend(noise(number, len));
    bytes
}

/// Fails unless `bytes` are one version, which is returned.
fn check(bytes: &[u8]) -> Result<u64, String> {
    let Some(number) = bytes.first_chunk().map(|number| u64::from_le_bytes(*number)) else {
        return Err(format!("{} bytes", bytes.len()));
    };
    let expected = version(number);
    match expected == bytes {
        true => Ok(number),
        false => {
            let same = expected.iter().zip(bytes).take_while(|(a, b)| a == b).count();
            Err(format!("{number}: {same} of {} bytes, {} read", expected.len(), bytes.len()))
        }
    }
}

/// Opens and reads the file as often as it is to be: in one read, or piece by piece.
fn read(path: &Path, piece: usize) -> Result<Vec<u8>, String> {
    let mut file = File::open(path).map_err(|error| format!("open: {error}"))?;
    let mut bytes = Vec::new();
    if piece == 0 {
        file.read_to_end(&mut bytes).map_err(|error| format!("read: {error}"))?;
        return Ok(bytes);
    }
    loop {
        let before = bytes.len();
        bytes.resize(before + piece, 0);
        let read = file.read(&mut bytes[before..]);
        let read = read.map_err(|error| format!("read at {before}: {error}"))?;
        bytes.truncate(before + read);
        if read == 0 {
            return Ok(bytes);
        }
    }
}

/// Another host replaces a file by rename all the time, and this one opens and reads it. An open
/// failed with ESTALE when the file was replaced twice between a lookup and the open after it, and
/// a read when the file was replaced before all of it was here.
/// Proves S6.6.
#[test]
fn a_file_that_is_replaced_all_the_time() {
    let Some(world) = World::new() else { return };
    world.b.set_link(LinkSpec::default().with_rtt(Duration::from_millis(8))).unwrap();
    for options in ["", CLOSE] {
        let (mount, other) =
            (world.mount_with(&world.a, options), world.mount_with(&world.b, options));
        let (new, file) = (mount.path().join("new"), mount.path().join("file"));
        let seen = other.path().join("file");
        save(&file, &version(0)).unwrap();
        eventually("the file is there", || seen.exists());
        let is_over = AtomicBool::new(false);
        let opens = 250 * times();
        let reader = |piece: usize| -> (Vec<String>, u64) {
            let (mut failed, mut versions, mut before) = (Vec::new(), 0, None);
            let mut opened = 0;
            // Of a file that is not replaced meanwhile nothing is shown.
            while opened < opens || versions <= 20 {
                opened += 1;
                match read(&seen, piece).and_then(|bytes| check(&bytes)) {
                    Ok(number) => {
                        versions += u64::from(before.replace(number) != Some(number));
                    }
                    Err(words) => failed.push(words),
                }
            }
            (failed, opened)
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 1.. {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    save(&new, &version(number)).unwrap();
                    fs::rename(&new, &file).unwrap();
                    // What is replaced before it is sent is replaced for nobody.
                    if number % 2 == 0 {
                        mount.sync().unwrap();
                    }
                }
            });
            let readers = [0, 0, 4096, 100_000].map(|piece| scope.spawn(move || reader(piece)));
            let done = readers.map(|reader| reader.join().unwrap());
            is_over.store(true, Ordering::Relaxed);
            let failed: Vec<&String> = done.iter().flat_map(|(failed, _)| failed).collect();
            let all: u64 = done.iter().map(|(_, opened)| opened).sum();
            assert!(failed.is_empty(), "{} of {all}, {options:?}: {failed:?}", failed.len());
        });
        mount.sync().unwrap();
        fs::remove_file(&file).unwrap();
        mount.sync().unwrap();
    }
}

/// A file of which little is here is read to its end after another host removed or replaced it,
/// however long it is open, and also after a restart of the server.
/// Proves S6.6, S6.21.
#[test]
fn the_rest_of_a_removed_file_is_read() {
    let Some(mut world) = World::new() else { return };
    // So little of it comes before the removal.
    world.b.set_link(LinkSpec::kb_per_s(4096).with_rtt(Duration::from_millis(10))).unwrap();
    let (mount, other) = (world.mount(&world.a), world.mount(&world.b));
    let bytes = [noise(1, 24 * MB), noise(2, 24 * MB)];
    let names = ["removed", "replaced"];
    let held: Vec<File> = (names.iter().zip(&bytes))
        .map(|(name, bytes)| {
            save(&mount.path().join(name), bytes).unwrap();
            mount.sync().unwrap();
            let seen = other.path().join(name);
            eventually("the file is there", || seen.exists());
            let file = File::open(&seen).unwrap();
            let mut first = [0; 4096];
            file.read_exact_at(&mut first, 0).unwrap();
            assert_eq!(first, bytes[..4096]);
            file
        })
        .collect();
    fs::remove_file(mount.path().join("removed")).unwrap();
    save(&mount.path().join("new"), b"another").unwrap();
    fs::rename(mount.path().join("new"), mount.path().join("replaced")).unwrap();
    mount.sync().unwrap();
    eventually("the new file is seen", || {
        fs::read(other.path().join("replaced")).is_ok_and(|text| text == b"another")
    });
    eventually("the removal is seen", || {
        !other.path().join("removed").exists()
            && held.iter().all(|file| file.metadata().is_ok_and(|meta| meta.nlink() == 0))
    });
    world.server.restart().unwrap();
    if is_long() {
        // Longer than the server keeps what nobody asks for.
        std::thread::sleep(Duration::from_secs(150));
    }
    for (file, bytes) in held.iter().zip(&bytes) {
        let mut seen = vec![0; bytes.len()];
        file.read_exact_at(&mut seen, 0).unwrap();
        assert_eq!(hash_of(&seen), hash_of(bytes));
    }
    assert_eq!(fs::read_dir(other.path()).unwrap().count(), 1);
}
