//! Cache directories that were put back from a copy, and those of a cloned disk: two histories of
//! one client. Nothing of either is lost, and nothing is sent as what it is not.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::Command;

use segue_bed::Host;
use segue_bed::segue::SegueMount;

use rustix::mm::ProtFlags;

use crate::passthrough::Map;
use crate::tree::noise;
use crate::world::{World, arg, end, eventually, save, segue, wait_for_state};

/// Copies directory `from` to `to`, which has nothing afterwards but this.
fn copy_tree(from: &Path, to: &Path) {
    if to.exists() {
        fs::remove_dir_all(to).unwrap();
    }
    let copied = end(Command::new("cp").arg("-a").arg(from).arg(to));
    assert_eq!(copied.code, Some(0), "{copied:?}");
}

/// What the files of a directory hold.
fn files(top: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(top).unwrap().map(Result::unwrap);
    let files = files.filter(|entry| entry.metadata().unwrap().is_file());
    files
        .map(|file| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap()))
        .collect()
}

/// Makes `count` files under names that begin with `name`, some of them larger than a record.
fn make(top: &Path, name: &str, count: u64) -> BTreeMap<String, Vec<u8>> {
    let content =
        |n: u64| noise(n + name.len() as u64 * 1000, if n % 5 == 4 { 100_000 } else { 900 });
    let made = (0..count).map(|n| (format!("{name}-{n}"), content(n)));
    made.inspect(|(name, bytes)| save(&top.join(name), bytes).unwrap()).collect()
}

const NONE: &str = "no conflicts\n";

fn conflicts(host: &Host, at: &Path) -> String {
    segue(host, &["conflicts", arg(at)]).out
}

/// The server knew what the numbers of these changes had been used for, and took them for repeats:
/// they were nowhere, and nobody was told.
/// Proves S12.10.
#[test]
fn a_cache_that_is_put_back_sends_what_is_made_with_it() {
    let Some(world) = World::new() else { return };
    let mut mount = world.mount(&world.a);
    let mut all = make(mount.path(), "first", 3);
    mount.sync().unwrap();
    mount.umount(&[]).unwrap();
    let copy = world.local("backup").join("home");
    copy_tree(world.a.home(), &copy);
    let mut mount = world.mount(&world.a);
    all.extend(make(mount.path(), "lost", 40));
    mount.sync().unwrap();
    all.extend(make(mount.path(), "late", 1));
    mount.umount(&[]).unwrap();
    copy_tree(&copy, world.a.home());
    let mut mount = world.mount(&world.a);
    all.extend(make(mount.path(), "new", 5));
    mount.sync().unwrap();
    assert_eq!(files(mount.path()), all);
    assert_eq!(conflicts(&world.a, mount.path()), NONE);
    let other = world.mount(&world.b);
    assert_eq!(files(other.path()), all);
    // It is the same client from now on.
    mount.umount(&[]).unwrap();
    let mount = world.mount(&world.a);
    all.extend(make(mount.path(), "newer", 3));
    mount.sync().unwrap();
    eventually("it is seen", || files(other.path()) == all);
}

/// The copy was made with changes that waited, which were sent after that, and more was changed.
/// Proves S12.10.
#[test]
fn changes_that_waited_in_a_copy_are_made_again_beside_later_ones() {
    let Some(world) = World::new() else { return };
    let mut mount = world.mount(&world.a);
    let mut all = make(mount.path(), "first", 6);
    mount.sync().unwrap();
    world.a.link_down().unwrap();
    world.lose_link(&world.a, &mount);
    save(&mount.path().join("first-5"), b"while it waited").unwrap();
    all.remove("first-5");
    all.extend(make(mount.path(), "waited", 6));
    mount.umount(&["--now"]).unwrap();
    let copy = world.local("backup").join("home");
    copy_tree(world.a.home(), &copy);
    world.a.link_up().unwrap();
    let mut mount = world.mount(&world.a);
    mount.sync().unwrap();
    save(&mount.path().join("first-5"), b"later").unwrap();
    save(&mount.path().join("waited-4"), b"later, too").unwrap();
    fs::remove_file(mount.path().join("waited-5")).unwrap();
    mount.umount(&[]).unwrap();
    copy_tree(&copy, world.a.home());
    let mount = world.mount(&world.a);
    all.extend(make(mount.path(), "new", 5));
    mount.sync().unwrap();
    let other = world.mount(&world.b);
    let found = files(other.path());
    let named = |name: &str| found.get(name).map(Vec::as_slice);
    assert_eq!(named("first-5"), Some(&b"later"[..]));
    assert_eq!(named("waited-4"), Some(&b"later, too"[..]));
    let values: Vec<&Vec<u8>> = found.values().collect();
    for (name, bytes) in &all {
        let is_there = named(name) == Some(bytes) || values.contains(&bytes);
        assert!(is_there, "{name} of {} bytes is nowhere: {:?}", bytes.len(), found.keys());
    }
    assert!(values.iter().any(|bytes| bytes.as_slice() == b"while it waited"));
}

/// Two machines that were made from one disk work without a network, and meet at the server: each
/// gave the same numbers to its own files.
/// Proves S12.10.
#[test]
fn two_machines_of_one_disk_lose_nothing() {
    let Some(world) = World::new() else { return };
    let mut mount = world.mount(&world.a);
    let mut all = make(mount.path(), "first", 3);
    mount.sync().unwrap();
    mount.umount(&[]).unwrap();
    let (one, two) = two_of_one_disk(&world);
    for (host, name) in [(&one, "one"), (&two, "other")] {
        all.extend(make(host.path(), name, 8));
        fs::create_dir(host.path().join(format!("dir-{name}"))).unwrap();
        save(&host.path().join(format!("dir-{name}/inside")), name.as_bytes()).unwrap();
        fs::rename(host.path().join(format!("{name}-1")), host.path().join(format!("{name}-9")))
            .unwrap();
        let moved = all.remove(&format!("{name}-1")).unwrap();
        all.insert(format!("{name}-9"), moved);
    }
    let open = File::options().append(true).open(one.path().join("one-0"));
    let mut open = open.unwrap();
    for (host, mount) in [(&world.b, &two), (&world.a, &one)] {
        host.link_up().unwrap();
        wait_for_state(host, mount, "online");
        mount.sync().unwrap();
    }
    // The other host was first: it gave the file's number to a file of its own.
    let refused = open.write_all(b"lost").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::ESTALE), "{refused}");
    drop(open);
    all.extend(make(one.path(), "later-one", 4));
    all.extend(make(two.path(), "later-two", 4));
    one.sync().unwrap();
    two.sync().unwrap();
    for mount in [&one, &two] {
        eventually("both have all", || files(mount.path()) == all);
        for name in ["one", "other"] {
            let inside = fs::read(mount.path().join(format!("dir-{name}/inside"))).unwrap();
            assert_eq!(inside, name.as_bytes());
        }
    }
    assert_eq!([conflicts(&world.a, one.path()), conflicts(&world.b, two.path())], [NONE; 2]);
    // Each host changes files that have the numbers which it had given to its own.
    for (mount, word) in [(&one, "one"), (&two, "two")] {
        for (name, bytes) in &mut all {
            let mut file = File::options().append(true).open(mount.path().join(name)).unwrap();
            file.write_all(word.as_bytes()).unwrap();
            bytes.extend(word.as_bytes());
        }
        mount.sync().unwrap();
        eventually("both have what one of them changed", || {
            [&one, &two].iter().all(|mount| files(mount.path()) == all)
        });
    }
    check_clean(&world);
}

/// Mounts the volume on two machines of one disk, that of host `a`, and cuts their links.
fn two_of_one_disk(world: &World) -> (SegueMount, SegueMount) {
    copy_tree(world.a.home(), world.b.home());
    // The machine has an identity: the copied one.
    world.server.invite(&[]).unwrap();
    let [one, two] = [&world.a, &world.b].map(|host| {
        let point = host.mkdir("mnt").unwrap();
        let mount = SegueMount::new(host, &world.server.url("home"), &point, &[]).unwrap();
        host.link_down().unwrap();
        world.lose_link(host, &mount);
        mount
    });
    (one, two)
}

/// A shell works in a directory, and a program has mapped a file, whose numbers turn out to be
/// those of the other machine. `rm *` in that shell emptied the other machine's directory, and what
/// the map had modified was lost.
/// Proves S12.10.
#[test]
fn a_process_at_a_released_number_changes_nothing_of_another_inode() {
    let Some(world) = World::new() else { return };
    let mut mount = world.mount(&world.a);
    let first = make(mount.path(), "first", 1);
    mount.sync().unwrap();
    mount.umount(&[]).unwrap();
    let (one, two) = two_of_one_disk(&world);
    let content = noise(1, 5000);
    for (mount, name) in [(&one, "one"), (&two, "other")] {
        fs::create_dir(mount.path().join(format!("dir-{name}"))).unwrap();
        save(&mount.path().join(format!("file-{name}")), &content).unwrap();
        save(&mount.path().join(format!("dir-{name}/inside")), name.as_bytes()).unwrap();
    }
    let directory = File::open(one.path().join("dir-one")).unwrap();
    let here = format!("/proc/self/fd/{}", directory.as_raw_fd());
    let here = Path::new(&here);
    let file = File::options().read(true).write(true).open(one.path().join("file-one")).unwrap();
    let map = Map::new(&file, content.len(), ProtFlags::READ | ProtFlags::WRITE);
    for (host, mount) in [(&world.b, &two), (&world.a, &one)] {
        // As late as can be: the kernel writes pages back by itself, after a while.
        map.write(9, b"modified");
        host.link_up().unwrap();
        wait_for_state(host, mount, "online");
        mount.sync().unwrap();
    }
    let refused = [
        fs::read_dir(here).map(drop),
        fs::write(here.join("new"), b"misplaced"),
        fs::remove_file(here.join("inside")),
        fs::rename(one.path().join("dir-one/inside"), here.join("inside")),
        fs::hard_link(one.path().join("file-one"), here.join("linked")),
    ];
    for refused in refused {
        assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::ESTALE));
    }
    let written = (&file).write_all(b"lost").unwrap_err();
    assert_eq!(written.raw_os_error(), Some(libc::ESTALE));
    one.sync().unwrap();
    let mut modified = content.clone();
    modified[9..17].copy_from_slice(b"modified");
    for mount in [&one, &two] {
        let has_all = || {
            let mut expected = first.clone();
            expected.insert("file-one".into(), modified.clone());
            expected.insert("file-other".into(), content.clone());
            files(mount.path()) == expected
        };
        eventually("both have all", has_all);
        for name in ["one", "other"] {
            let names = fs::read_dir(mount.path().join(format!("dir-{name}"))).unwrap();
            let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
            assert_eq!(names, ["inside"], "in dir-{name}");
        }
    }
    drop(map);
    drop(file);
    check_clean(&world);
}

fn check_clean(world: &World) {
    let checked =
        segue(&world.serving, &["volume", "check", "home", "--data", arg(world.server.data())]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
}

/// A data directory that is put back has forgotten what hosts know. Their versions were given a
/// second time, to other data: two hosts had different bytes of one file for ever.
/// Proves S18.6.
#[test]
fn a_data_directory_that_is_put_back_shows_all_hosts_the_same() {
    let Some(mut world) = World::new() else { return };
    let (one, two) = (world.mount(&world.a), world.mount(&world.b));
    make(one.path(), "old", 6);
    one.sync().unwrap();
    let copy = world.local("backup").join("data");
    world.server.kill9().unwrap();
    copy_tree(world.server.data(), &copy);
    world.server.restart().unwrap();
    for name in ["old-0", "old-4"] {
        save(&one.path().join(name), name.as_bytes()).unwrap();
    }
    make(one.path(), "lost", 8);
    fs::remove_file(one.path().join("old-1")).unwrap();
    eventually("the server is back", || one.sync().is_ok());
    eventually("the other host has all", || files(two.path()) == files(one.path()));
    for (host, mount) in [(&world.a, &one), (&world.b, &two)] {
        host.link_down().unwrap();
        world.lose_link(host, mount);
    }
    world.server.kill9().unwrap();
    copy_tree(&copy, world.server.data());
    world.server.restart().unwrap();
    // Somebody who knows less than the others makes as many changes.
    let third = world.bed.host("third").unwrap();
    let three = world.mount(&third);
    let mut expected = files(three.path());
    assert!(expected.len() == 6 && expected.contains_key("old-1"), "{:?}", expected.keys());
    for name in ["old-0", "old-4"] {
        let bytes = [name.as_bytes(), b" of another history"].concat();
        save(&three.path().join(name), &bytes).unwrap();
        expected.insert(name.to_owned(), bytes);
    }
    expected.extend(make(three.path(), "new", 8));
    three.sync().unwrap();
    expected.extend(make(two.path(), "offline", 3));
    for (host, mount) in [(&world.a, &one), (&world.b, &two)] {
        host.link_up().unwrap();
        wait_for_state(host, mount, "online");
        mount.sync().unwrap();
    }
    expected.extend(make(one.path(), "later", 3));
    one.sync().unwrap();
    for mount in [&one, &two, &three] {
        eventually("all hosts see the same", || files(mount.path()) == expected);
    }
    let known: Vec<String> = [(&world.a, &one), (&world.b, &two), (&third, &three)]
        .map(|(host, mount)| {
            let at = mount.path().join("old-4");
            segue(host, &["where", arg(&at), "--json"]).out
        })
        .map(|out| serde_json::from_str::<serde_json::Value>(&out).unwrap())
        .map(|shown| shown["files"][0]["version"].to_string())
        .to_vec();
    assert!(known.iter().all(|version| *version == known[0]), "{known:?}");
    check_clean(&world);
}

/// The same for a host that was not mounted meanwhile: what it has on its disk is of both.
/// Proves S18.6.
#[test]
fn a_cache_of_a_lost_history_is_not_believed_after_a_mount() {
    let Some(mut world) = World::new() else { return };
    let mut one = world.mount(&world.a);
    let mut expected = make(one.path(), "old", 6);
    one.umount(&[]).unwrap();
    let copy = world.local("backup").join("data");
    world.server.kill9().unwrap();
    copy_tree(world.server.data(), &copy);
    world.server.restart().unwrap();
    let mut one = world.mount(&world.a);
    save(&one.path().join("old-4"), &noise(9, 150_000)).unwrap();
    make(one.path(), "lost", 8);
    one.umount(&[]).unwrap();
    world.server.kill9().unwrap();
    copy_tree(&copy, world.server.data());
    world.server.restart().unwrap();
    let one = world.mount(&world.a);
    assert_eq!(files(one.path()), expected);
    expected.extend(make(one.path(), "new", 9));
    one.sync().unwrap();
    let other = world.mount(&world.b);
    assert_eq!(files(other.path()), expected);
    check_clean(&world);
}
