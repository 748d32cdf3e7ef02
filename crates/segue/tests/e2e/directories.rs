//! Big directories.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use crate::sample::is_long;
use crate::world::{World, eventually};

/// Several pages of a listing. A long run has twice as many.
const FILES: usize = 5_000;

fn name(number: usize) -> String {
    format!("a-name-of-some-length-{number:05}")
}

/// Names and sizes as a listing with stat shows them; no name comes twice.
fn look(dir: &Path) -> io::Result<BTreeSet<(String, u64)>> {
    let look = |entry: io::Result<fs::DirEntry>| {
        let entry = entry?;
        Ok((entry.file_name().into_string().unwrap(), entry.metadata()?.len()))
    };
    let entries = fs::read_dir(dir)?.map(look).collect::<io::Result<Vec<_>>>()?;
    let set: BTreeSet<_> = entries.iter().cloned().collect();
    assert_eq!(set.len(), entries.len(), "a name comes twice");
    Ok(set)
}

/// Thousands of files in one directory: all are listed once, with their sizes, here and on another
/// host; after half of them is gone, exactly the others.
#[test]
fn thousands_of_files_in_one_directory() {
    let Some(world) = World::new() else { return };
    let count = if is_long() { 2 * FILES } else { FILES };
    let mount = world.mount_with(&world.a, "write-back=async");
    let dir = mount.path().join("dir");
    fs::create_dir(&dir).unwrap();
    for number in 0..count {
        fs::write(dir.join(name(number)), vec![b'x'; number % 17]).unwrap();
    }
    let all: BTreeSet<_> = (0..count).map(|n| (name(n), (n % 17) as u64)).collect();
    assert!(look(&dir).unwrap() == all, "just written");
    mount.sync().unwrap();
    let other = world.mount(&world.b);
    let there = other.path().join("dir");
    assert!(look(&there).unwrap() == all, "on another host");

    // A listing that goes on while names are removed shows all that stay.
    let mut reader = fs::read_dir(&dir).unwrap();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut next = || reader.next().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    seen.extend((0..100).filter_map(|_| next()));
    for number in (0..count).step_by(2) {
        fs::remove_file(dir.join(name(number))).unwrap();
    }
    seen.extend(std::iter::from_fn(next));
    drop(reader);
    for number in (1..count).step_by(2) {
        assert!(seen.contains(&name(number)), "{} is missing", name(number));
    }
    let half: BTreeSet<_> = all.iter().filter(|(n, _)| !n.ends_with(even)).cloned().collect();
    assert_eq!(half.len(), count / 2);
    assert!(look(&dir).unwrap() == half, "after removing half");
    mount.sync().unwrap();
    // A name that it lists for a moment yet is not there any more for stat.
    eventually("the other host lists the same half", || {
        look(&there).is_ok_and(|names| names == half)
    });
    let mount = world.remount(&world.a, mount);
    assert!(look(&dir).unwrap() == half, "after a new mount");
    drop(mount);
}

fn even(digit: char) -> bool {
    matches!(digit, '0' | '2' | '4' | '6' | '8')
}
