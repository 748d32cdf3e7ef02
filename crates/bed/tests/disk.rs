//! The recording disk under a real kernel: what programs do there is recorded, and images are
//! of it.

#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use segue_bed::Bed;
use segue_bed::disk::{Disk, Fate};

fn sh(dir: &Path, script: &str) -> String {
    let output = Command::new("sh").args(["-euc", script]).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A disk in a directory of its own; whoever kills this test leaves it to the bed's reaper.
fn disk() -> Option<(Disk, Bed)> {
    let bed = Bed::for_test()?;
    let point = bed.dir().join("disk");
    fs::create_dir(&point).unwrap();
    Some((Disk::mount(&point).unwrap(), bed))
}

#[test]
fn programs_find_a_file_system() {
    let Some((disk, bed)) = disk() else { return };
    let (top, image) = (bed.dir().join("disk"), bed.dir().join("image"));
    sh(&top, "mkdir -p d/e; seq 100000 >d/e/numbers; cp -r d copy; mv copy/e moved");
    sh(&top, "rm -r copy; truncate -s 1000 moved/numbers; chmod 600 moved/numbers");
    sh(&top, "for n in $(seq 500); do echo $n >d/$n; done; rm d/*5; ! mkdir d; ! rmdir moved");
    assert_eq!(fs::read_dir(top.join("d")).unwrap().count(), 451);
    let file = File::options().append(true).open(top.join("moved/numbers")).unwrap();
    file.write_all_at(b"appended", 0).unwrap();
    file.set_len(1500).unwrap();
    drop(file);
    let recording = disk.recording();
    recording.image(recording.end(), Fate::Kept).write_to(&image).unwrap();
    sh(bed.dir(), "diff -r disk image; test $(stat -c %s image/moved/numbers) = 1500");
    drop(disk);
    assert_eq!(fs::read_dir(top).unwrap().count(), 0, "the disk is unmounted");
}

/// What fsync returned for is there, of files and of directories, and nothing else has to be.
#[test]
fn a_sync_is_seen_when_it_has_returned() {
    let Some((disk, bed)) = disk() else { return };
    let top = bed.dir().join("disk");
    let mut file = File::create(top.join("f")).unwrap();
    file.write_all(b"first").unwrap();
    file.sync_data().unwrap();
    let data_only = disk.position();
    File::open(&top).unwrap().sync_all().unwrap();
    file.write_all(b" second").unwrap();
    let named = disk.position();
    file.sync_all().unwrap();
    let recording = disk.recording();
    let lost = |cut| recording.image(cut, Fate::Lost).read("f");
    assert_eq!(lost(data_only), None);
    assert_eq!(lost(named).unwrap(), b"first");
    assert_eq!(lost(disk.position()).unwrap(), b"first second");
}

/// The metadata of Segue's server are in such a database: maps are shared, locks hold, and what
/// was committed is found in every image, by a program that knows nothing of this disk.
#[test]
fn a_database_survives_on_every_image() {
    let Some((disk, bed)) = disk() else { return };
    let top = bed.dir().join("disk");
    let sql = "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; CREATE TABLE t (n)";
    sh(&top, &format!("sqlite3 db '{sql}'"));
    let mut committed = Vec::new();
    for number in 0..10 {
        sh(&top, &format!("sqlite3 db 'PRAGMA synchronous=FULL; INSERT INTO t VALUES ({number})'"));
        committed.push(disk.position());
    }
    let recording = disk.recording();
    let syncs = recording.syncs(committed[0]..recording.end());
    for (seed, cut) in (0..).zip(&syncs) {
        let dir = bed.dir().join(format!("image-{seed}"));
        recording.image(*cut, Fate::Chance(seed)).write_to(&dir).unwrap();
        let count = committed.iter().filter(|position| *position <= cut).count();
        let found = rows(&dir);
        assert!(found == count || found == count + 1, "{found} after {count} at {cut}");
    }
    // A disk that does not do what it is asked for loses what was committed.
    let (mut lying, dir) = (recording.clone(), bed.dir().join("lying"));
    syncs.iter().for_each(|at| lying.lie(*at));
    lying.image(lying.end(), Fate::Lost).write_to(&dir).unwrap();
    assert_eq!(rows(&dir), 1);
}

/// How many rows an image has of the table.
fn rows(dir: &Path) -> usize {
    let found = sh(dir, "sqlite3 db 'PRAGMA integrity_check; SELECT count(*) FROM t'");
    found.strip_prefix("ok\n").unwrap().trim().parse().unwrap()
}
