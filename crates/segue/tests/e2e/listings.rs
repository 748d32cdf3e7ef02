//! Listings that the kernel keeps: no open and no close of a directory reaches the mount.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, RawDir, SeekFrom, open, seek};
use segue_bed::segue::SegueMount;

use crate::world::{World, arg, counted, eventually, segue, sh};

/// Longer than a lease lasts.
const LEASE: Duration = Duration::from_secs(25);
/// Room for some ten names, so that a directory takes many reads.
const ROOM: usize = 512;

/// A reader of a directory that stops after each read.
struct Reader {
    directory: OwnedFd,
    /// The names that it has read, with the places behind them.
    seen: BTreeMap<String, u64>,
}

impl Reader {
    fn open(path: &Path) -> Reader {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let directory = open(path, flags, Mode::empty()).unwrap();
        Reader { directory, seen: BTreeMap::new() }
    }

    /// Reads some names, each of which must be new. Returns how many; 0 at the end.
    fn read(&mut self) -> usize {
        let mut room = [MaybeUninit::uninit(); ROOM];
        let mut names = RawDir::new(&self.directory, &mut room);
        let mut count = 0;
        while let Some(entry) = names.next() {
            let entry = entry.unwrap();
            count += 1;
            let name = entry.file_name().to_str().unwrap().to_owned();
            let earlier = self.seen.insert(name.clone(), entry.next_entry_cookie());
            assert_eq!(earlier, None, "{name} comes twice");
            if names.is_buffer_empty() {
                break;
            }
        }
        count
    }

    fn read_all(&mut self) -> BTreeSet<String> {
        while self.read() > 0 {}
        self.names()
    }

    fn names(&self) -> BTreeSet<String> {
        self.seen.keys().filter(|name| !name.starts_with('.')).cloned().collect()
    }

    /// Goes to a place that it was told, and forgets what it has read.
    fn go_to(&mut self, place: u64) {
        seek(&self.directory, SeekFrom::Start(place)).unwrap();
        self.seen.clear();
    }
}

fn names(numbers: impl IntoIterator<Item = usize>) -> BTreeSet<String> {
    numbers.into_iter().map(|number| format!("name-{number}")).collect()
}

fn requests(world: &World, mount: &SegueMount) -> u64 {
    let metrics = segue(&world.b, &["metrics", arg(mount.path())]).out;
    counted(&metrics, "segue_kernel_requests_total", "")
}

fn list(path: &Path) -> BTreeSet<String> {
    Reader::open(path).read_all()
}

/// A directory that is listed again costs no request at all, also after a rest, and each name that
/// a program was told a place of is found there.
/// Proves S6.7.
#[test]
fn a_directory_that_is_listed_again_costs_nothing() {
    let Some(world) = World::new() else { return };
    let (mount, other) = (world.mount(&world.a), world.mount(&world.b));
    sh(mount.path(), "mkdir dir && cd dir && seq -f name-%g 0 299 | xargs touch");
    mount.sync().unwrap();
    let (there, all) = (other.path().join("dir"), names(0..300));
    eventually("all names are seen", || list(&there) == all);
    list(&there);
    for rest in [Duration::ZERO, LEASE] {
        // A machine that is so busy that the server does not answer for a lease has it all again.
        let asked = (0..3).map(|_| {
            std::thread::sleep(rest);
            let before = requests(&world, &other);
            (0..10).for_each(|_| assert_eq!(list(&there), all));
            requests(&world, &other) - before
        });
        let asked = asked.take_while(|asked| *asked >= 10).collect::<Vec<_>>();
        assert!(asked.len() < 3, "{asked:?} requests for 10 listings");
    }
    let mut reader = Reader::open(&there);
    reader.read_all();
    let places = reader.seen.clone();
    reader.go_to(0);
    assert_eq!(reader.read_all(), all);
    let mut in_order: Vec<(&String, &u64)> = places.iter().collect();
    in_order.sort_by_key(|(_, place)| **place);
    for (at, (_, place)) in in_order.iter().enumerate().step_by(37) {
        reader.go_to(**place);
        reader.read_all();
        let rest = in_order[at + 1..].iter().map(|(name, _)| (*name).clone());
        assert_eq!(reader.seen.keys().cloned().collect::<BTreeSet<_>>(), rest.collect());
    }
}

/// Readers that are at different places while both hosts change the directory: each sees each name
/// once that was there all the time, and a new reader sees just what there is.
/// Proves S6.8.
#[test]
fn readers_at_different_places_see_what_stays_once() {
    let Some(world) = World::new() else { return };
    let (mount, other) = (world.mount(&world.a), world.mount(&world.b));
    sh(mount.path(), "mkdir dir && cd dir && seq -f name-%g 0 399 | xargs touch");
    mount.sync().unwrap();
    let dirs = [&mount, &other].map(|mount| mount.path().join("dir"));
    let there = &dirs[1];
    let mut now = names(0..400);
    eventually("all names are seen", || list(there) == now);
    let mut readers: Vec<Reader> = Vec::new();
    for round in 0..8 {
        let mut reader = Reader::open(there);
        for _ in 0..round {
            reader.read();
        }
        readers.push(reader);
        // Each goes on a little, also those that began long ago.
        for reader in &mut readers {
            reader.read();
        }
        let by = &dirs[round % 2];
        let (gone, new) = (format!("name-{}", 390 + round), format!("name-{}", 1000 + round));
        fs::remove_file(by.join(&gone)).unwrap();
        fs::write(by.join(&new), "new").unwrap();
        now.remove(&gone);
        now.insert(new);
        if round % 2 == 1 {
            assert_eq!(list(there), now, "round {round}: this host's own change");
        }
        eventually("a new reader sees the change", || list(there) == now);
        (0..3).for_each(|_| assert_eq!(list(there), now, "round {round}"));
    }
    for reader in &mut readers {
        let seen = reader.read_all();
        assert!(names(0..390).is_subset(&seen), "a name that stayed was not seen");
        reader.go_to(0);
        assert_eq!(reader.read_all(), now, "who starts over");
    }
}

/// What another host changes while nobody can tell shows as soon as somebody can.
/// Proves S6.13, S6.14.
#[test]
fn a_kept_listing_is_given_up_with_the_lease() {
    let Some(world) = World::new() else { return };
    let (mount, other) = (world.mount(&world.a), world.mount(&world.b));
    sh(mount.path(), "mkdir dir && cd dir && seq -f name-%g 0 99 | xargs touch");
    mount.sync().unwrap();
    let (here, there) = (mount.path().join("dir"), other.path().join("dir"));
    eventually("all names are seen", || list(&there) == names(0..100));
    list(&there);
    world.b.link_down().unwrap();
    fs::rename(here.join("name-7"), here.join("name-700")).unwrap();
    mount.sync().unwrap();
    let before = requests(&world, &other);
    assert_eq!(list(&there), names(0..100), "nobody can be asked");
    assert!(requests(&world, &other) > before, "the kernel answered itself");
    world.b.link_up().unwrap();
    let now = names((0..100).filter(|number| *number != 7).chain([700]));
    eventually("the other host's change is seen", || list(&there) == now);
}

/// A directory of 100,000 names, read in many pieces while it changes.
#[test]
fn a_hundred_thousand_names_are_read_once_each() {
    let Some(world) = World::new() else { return };
    let mount = world.mount(&world.a);
    let dir = mount.path().join("dir");
    sh(mount.path(), "mkdir dir && cd dir && seq -f name-%.0f 0 99999 | xargs -n 5000 touch");
    let all = names(0..100_000);
    let read = || -> BTreeSet<String> {
        let entries = fs::read_dir(&dir).unwrap();
        let names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        let once: BTreeSet<String> = names.iter().cloned().collect();
        assert_eq!(once.len(), names.len(), "a name comes twice");
        once
    };
    assert!(read() == all);
    let mut reader = fs::read_dir(&dir).unwrap();
    let mut next = || reader.next().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut seen: BTreeSet<String> = (0..1000).filter_map(|_| next()).collect();
    for number in (0..100_000).step_by(10_000) {
        fs::remove_file(dir.join(format!("name-{number}"))).unwrap();
        seen.extend((0..1000).filter_map(|_| next()));
    }
    seen.extend(std::iter::from_fn(next));
    let left = names((0..100_000).filter(|number| number % 10_000 != 0));
    assert!(left.is_subset(&seen), "a name that stayed was not seen");
    assert!(read() == left);
}
