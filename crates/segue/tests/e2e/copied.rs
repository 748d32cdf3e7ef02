//! Cache directories that were put back from a copy, and those of a cloned disk: two histories of
//! one client. Nothing of either is lost, and nothing is sent as what it is not.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use segue_bed::Host;
use segue_bed::segue::SegueMount;

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
    copy_tree(world.a.home(), world.b.home());
    // The machine has an identity: the copied one.
    world.server.invite(&[]).unwrap();
    let mount_at = |host: &Host| {
        let point = host.mkdir("mnt").unwrap();
        SegueMount::new(host, &world.server.url("home"), &point, &[]).unwrap()
    };
    let one = mount_at(&world.a);
    world.a.link_down().unwrap();
    world.lose_link(&world.a, &one);
    let two = mount_at(&world.b);
    world.b.link_down().unwrap();
    world.lose_link(&world.b, &two);
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
