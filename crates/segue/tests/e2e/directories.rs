//! Big directories.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use rustix::fs::{Dir, Mode, OFlags, open};

use crate::sample::is_long;
use crate::world::{World, arg, counted, eventually, segue};

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

/// The names that an open directory has, from its beginning.
fn rewound(dir: &mut Dir) -> BTreeSet<String> {
    dir.rewind();
    let names = dir.map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned());
    names.filter(|name| !name.starts_with('.')).collect()
}

/// The kernel keeps a listing. What another host changes shows in it, to who opens the directory
/// again and to who starts over in one that is open; and so does what this host changes.
/// Proves S6.8.
#[test]
fn a_listing_that_the_kernel_keeps_follows_both_hosts() {
    let Some(world) = World::new() else { return };
    let (one, other) = (world.mount(&world.a), world.mount(&world.b));
    let dirs = [&one, &other].map(|mount| mount.path().join("dir"));
    fs::create_dir(&dirs[0]).unwrap();
    let mut expected: BTreeSet<String> = (0..20).map(name).collect();
    expected.iter().for_each(|name| fs::write(dirs[0].join(name), "1").unwrap());
    one.sync().unwrap();
    let lists = |dir: &Path| -> BTreeSet<String> {
        look(dir).unwrap_or_default().into_iter().map(|(name, _)| name).collect()
    };
    let there = &dirs[1];
    eventually("the other host lists all", || lists(there) == expected);
    let calls = || {
        let metrics = segue(&world.b, &["metrics", arg(other.path())]).out;
        counted(&metrics, "segue_kernel_requests_total", "")
    };
    let asked = |times: usize| {
        let before = calls();
        (0..times).for_each(|_| assert_eq!(lists(there), expected));
        calls() - before
    };
    asked(3);
    // Listed, it would be three to five requests each time.
    let asked = asked(20);
    assert!(asked < 20, "{asked} requests for 20 listings");
    let open = open(there, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    let mut open = Dir::new(open).unwrap();
    for round in 0..6 {
        // Kept by now, and read from the kernel's pages.
        (0..3).for_each(|_| assert_eq!(lists(there), expected, "round {round}"));
        (0..2).for_each(|_| assert_eq!(rewound(&mut open), expected, "round {round}"));
        let (gone, new) = (name(round), name(100 + round));
        let by = &dirs[round % 2];
        fs::remove_file(by.join(&gone)).unwrap();
        fs::write(by.join(&new), "2").unwrap();
        expected.remove(&gone);
        expected.insert(new);
        if round % 2 == 1 {
            assert_eq!((lists(there), rewound(&mut open)), (expected.clone(), expected.clone()));
        }
        eventually("who starts over sees the change", || rewound(&mut open) == expected);
        eventually("who opens it sees the change", || lists(there) == expected);
        eventually("so does the first host", || lists(&dirs[0]) == expected);
    }
    drop((one, other));
}

/// In an empty directory the kernel knows no name that could be taken back: it has to forget the
/// listing itself.
/// Proves S6.8.
#[test]
fn an_empty_listing_that_the_kernel_keeps_follows_another_host() {
    let Some(world) = World::new() else { return };
    let (one, other) = (world.mount(&world.a), world.mount(&world.b));
    let [here, there] = [&one, &other].map(|mount| mount.path().join("empty"));
    fs::create_dir(&here).unwrap();
    one.sync().unwrap();
    eventually("the other host has the directory", || there.exists());
    (0..3).for_each(|_| assert_eq!(look(&there).unwrap(), BTreeSet::new()));
    let open = open(&there, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    let mut open = Dir::new(open).unwrap();
    (0..2).for_each(|_| assert_eq!(rewound(&mut open), BTreeSet::new()));
    fs::write(here.join("new"), "1").unwrap();
    one.sync().unwrap();
    eventually("who starts over sees the new name", || rewound(&mut open).contains("new"));
    assert_eq!(look(&there).unwrap().len(), 1);
    drop((one, other));
}
