//! Quotas, as applications and administrators meet them.

use std::fs::{self, File};
use std::io::Write;
use std::process::Command;

use serde_json::Value;

use crate::tree::noise;
use segue_bed::LinkSpec;
use segue_bed::segue::SegueMount;

use crate::world::{
    CLOSE, Ended, World, arg, close, end, errno, eventually, json, save, segue, settle, sh,
    wait_for_state,
};

const MB: usize = 1 << 20;
const EDQUOT: i32 = 122;
const EXDEV: i32 = 18;

fn set(world: &World, args: &[&str]) -> Ended {
    let data = arg(world.server.data());
    segue(&world.serving, &[&["volume", "set", "home", "--data", data], args].concat())
}

fn shown(world: &World) -> Value {
    let data = arg(world.server.data());
    json(&world.serving, &["volume", "show", "home", "--data", data])
}

/// Under close the application hears of it; df shows the quota; what goes makes room again.
/// Proves S21.1, S21.6, S21.9.
#[test]
fn a_file_past_the_quota_fails_with_edquot() {
    let Some(world) = World::new() else { return };
    let mount = world.mount_with(&world.a, CLOSE);
    assert_eq!(set(&world, &["--quota", "8M", "--inodes", "20"]).code, Some(0));
    save(&mount.path().join("fits"), &noise(1, 6 * MB)).unwrap();
    let mut dd = Command::new("dd");
    dd.args(["if=/dev/urandom", "of=over", "bs=1M", "count=4"]).current_dir(mount.path());
    let ended = end(&mut dd);
    assert!(ended.code == Some(1) && ended.err.contains("Disk quota exceeded"), "{ended:?}");
    let df = sh(mount.path(), "df -B1 --output=size . | tail -1");
    assert_eq!(df.trim().parse::<usize>().unwrap(), 8 * MB);
    let volume = shown(&world);
    assert_eq!(volume["quota_bytes"].as_u64(), Some(8 << 20));
    assert_eq!(volume["quota_inodes"].as_u64(), Some(20));
    fs::remove_file(mount.path().join("fits")).unwrap();
    fs::remove_file(mount.path().join("over")).unwrap();
    mount.sync().unwrap();
    save(&mount.path().join("again"), &noise(2, 6 * MB)).unwrap();
    assert_eq!(set(&world, &["--quota", "none", "--inodes", "none"]).code, Some(0));
    // What the host knows is a few seconds old.
    eventually("writes go on", || save(&mount.path().join("more"), &noise(3, 9 * MB)).is_ok());
    check_clean(&world);
}

fn refused(world: &World, mount: &SegueMount) -> u64 {
    let status = segue(&world.a, &["status", "--json", arg(mount.path())]);
    let status: Value = serde_json::from_str(&status.out).unwrap();
    status["mounts"][0]["refused"].as_u64().unwrap()
}

/// Under async it comes after the call, and is kept; what came of it does not take room from
/// others, and what was written before and after is stored.
/// Proves S4.8, S20.4, S21.2.
#[test]
fn what_was_accepted_and_is_past_the_quota_is_kept() {
    one_of_two_files_is_refused(|world, _, over, after| {
        assert_eq!(set(world, &["--quota", "8M"]).code, Some(0));
        let is_one_change = over() && after();
        world.a.link_up().unwrap();
        is_one_change
    });
}

/// A file that fits and that a user wants first waits for the refusal of another one, whose chunks
/// take its room at the server until then.
/// Proves S21.8.
#[test]
fn a_pushed_file_that_fits_is_stored() {
    one_of_two_files_is_refused(|world, mount, over, after| {
        if !over() {
            return false;
        }
        world.a.set_link(LinkSpec::kb_per_s(2048)).unwrap();
        world.a.link_up().unwrap();
        eventually("much of the file is there", || {
            shown(world)["arrived_bytes"].as_u64().unwrap() > 7 * MB as u64 / 2
        });
        let is_one_change = after();
        assert_eq!(set(world, &["--quota", "8M"]).code, Some(0));
        let pushed = segue(&world.a, &["push", arg(&mount.path().join("after"))]);
        assert_eq!(pushed.code, Some(0), "{pushed:?}");
        is_one_change
    });
}

/// `happens` has two files written, of which the first one is too large for the quota that it sets,
/// by a host that has no link at first. It returns false if one of them became several changes, of
/// which the first may fit: the timer that sends what is open came in the middle, or a program that
/// a test beside this one started closed it.
fn one_of_two_files_is_refused(
    happens: impl Fn(&World, &SegueMount, &dyn Fn() -> bool, &dyn Fn() -> bool) -> bool,
) {
    for _ in 0..5 {
        let Some(world) = World::new() else { return };
        let mount = world.mount_with(&world.a, "write-back=async");
        let names = ["before", "over", "after"];
        save(&mount.path().join(names[0]), &noise(0, 2 * MB)).unwrap();
        mount.sync().unwrap();
        world.a.link_down().unwrap();
        world.lose_link(&world.a, &mount);
        let written = |seed: usize, len: usize| {
            save(&mount.path().join(names[seed]), &noise(seed as u64, len)).unwrap();
            let log = json(&world.a, &["log", arg(mount.path())]);
            let is_store = |record: &&Value| {
                record["kind"] == "store" && record["path"].as_str().unwrap().ends_with(names[seed])
            };
            log["records"].as_array().unwrap().iter().filter(is_store).count() == 1
        };
        if happens(&world, &mount, &|| written(1, 11 * MB), &|| written(2, 3 * MB)) {
            one_refused_file_is_kept(&world, &mount, names);
            return;
        }
    }
    panic!("each write was cut in two");
}

fn one_refused_file_is_kept(world: &World, mount: &SegueMount, names: [&str; 3]) {
    eventually("the refused change is counted", || refused(world, mount) > 0);
    eventually("the others are stored", || shown(world)["allocated_bytes"] == 5 * MB);
    assert_eq!(refused(world, mount), 1);
    assert_eq!(shown(world)["arrived_bytes"], 0);
    let other = world.mount(&world.b);
    let lens = names.map(|name| fs::metadata(other.path().join(name)).unwrap().len());
    assert_eq!(lens, [2 * MB as u64, 0, 3 * MB as u64]);
    check_clean(world);
}

/// What was refused before anybody waited for it is told to each who had the file open to write: by
/// close, or once by an fsync that is to mean the server.
/// Proves S20.1, S20.2.
#[test]
fn a_late_refusal_is_told_once() {
    let Some(world) = World::new() else { return };
    for (quota, fsync) in [("1M", "server"), ("2M", "local")] {
        assert_eq!(set(&world, &["--quota", "none"]).code, Some(0));
        let mut mount = world.mount_with(&world.a, &format!("fsync={fsync}"));
        let path = mount.path().join(fsync);
        eventually("there is room", || save(&path, b"text").is_ok());
        settle(&world.a, &mount);
        let before = refused(&world, &mount);
        world.a.link_down().unwrap();
        world.lose_link(&world.a, &mount);
        assert_eq!(set(&world, &["--quota", quota]).code, Some(0));
        let open = || File::options().write(true).open(&path).unwrap();
        let (mut first, second) = (open(), open());
        first.write_all(&noise(1, 3 * MB)).unwrap();
        world.a.link_up().unwrap();
        eventually("it is refused", || refused(&world, &mount) > before);
        eventually("nothing waits", || {
            let log = json(&world.a, &["log", arg(mount.path())]);
            log["records"].as_array().unwrap().is_empty()
        });
        match fsync {
            "server" => {
                assert_eq!(errno(first.sync_all()), Some(EDQUOT));
                first.sync_all().unwrap();
                close(first).unwrap();
            }
            _ => {
                first.sync_all().unwrap();
                assert_eq!(errno(close(first)), Some(EDQUOT));
            }
        }
        assert_eq!(errno(close(second)), Some(EDQUOT));
        close(open()).unwrap();
        mount.umount(&[]).unwrap();
    }
}

/// After a refusal of appended data, the next append stands behind the server's bytes.
/// Proves S20.8, S20.13.
#[test]
fn what_is_appended_after_a_refusal_follows_the_servers_bytes() {
    let Some(world) = World::new() else { return };
    let mount = world.mount(&world.a);
    let path = mount.path().join("f");
    save(&path, b"text").unwrap();
    mount.sync().unwrap();
    world.a.link_down().unwrap();
    world.lose_link(&world.a, &mount);
    assert_eq!(set(&world, &["--quota", "1M"]).code, Some(0));
    let mut file = File::options().append(true).open(&path).unwrap();
    file.write_all(&noise(1, 3 * MB)).unwrap();
    world.a.link_up().unwrap();
    eventually("it is refused", || refused(&world, &mount) > 0);
    assert_eq!(set(&world, &["--quota", "none"]).code, Some(0));
    eventually("there is room", || file.write_all(b"more").is_ok());
    assert_eq!(fs::read(&path).unwrap(), b"textmore");
    assert_eq!(errno(close(file)), Some(EDQUOT));
    let other = world.mount(&world.b);
    eventually("it is stored", || fs::read(other.path().join("f")).unwrap() == b"textmore");
}

/// A child that has the file open, too, ends, and the kernel closes that first: whoever wrote is
/// told all the same, where closes wait.
/// Proves S20.3.
#[test]
fn a_refusal_that_a_child_was_told_is_told_to_who_wrote() {
    let Some(world) = World::new() else { return };
    let mount = world.mount_with(&world.a, CLOSE);
    let path = mount.path().join("file");
    save(&path, b"text").unwrap();
    world.a.link_down().unwrap();
    world.lose_link(&world.a, &mount);
    assert_eq!(set(&world, &["--quota", "1M"]).code, Some(0));
    let mut file = File::options().write(true).open(&path).unwrap();
    file.write_all(&noise(1, 3 * MB)).unwrap();
    world.a.link_up().unwrap();
    wait_for_state(&world.a, &mount, "online");
    let child = Command::new("true").stdout(file.try_clone().unwrap()).status();
    assert!(child.unwrap().success());
    assert_eq!(errno(close(file)), Some(EDQUOT));
}

/// What replaces a file needs no room beside it, and what is removed makes room for what comes
/// after it, also where the server gets both at once.
/// Proves S21.5.
#[test]
fn what_takes_the_place_of_something_fits() {
    let Some(world) = World::new() else { return };
    let mount = world.mount_with(&world.a, "write-back=async");
    assert_eq!(set(&world, &["--quota", "8M"]).code, Some(0));
    let file = mount.path().join("file");
    save(&file, &noise(1, 6 * MB)).unwrap();
    mount.sync().unwrap();
    save(&file, &noise(2, 7 * MB)).unwrap();
    mount.sync().unwrap();
    assert_eq!(shown(&world)["allocated_bytes"], 7 * MB);
    world.a.link_down().unwrap();
    world.lose_link(&world.a, &mount);
    fs::remove_file(&file).unwrap();
    save(&mount.path().join("other"), &noise(3, 6 * MB)).unwrap();
    world.a.link_up().unwrap();
    wait_for_state(&world.a, &mount, "online");
    mount.sync().unwrap();
    assert_eq!(shown(&world)["allocated_bytes"], 6 * MB);
    assert_eq!((refused(&world, &mount), &shown(&world)["arrived_bytes"]), (0, &Value::from(0)));
    check_clean(&world);
}

/// A host that knows of a quota refuses what surely does not fit when it is written, also
/// without a network; and writes go on soon after the quota was lifted.
/// Proves S21.4, S21.5, S21.6.
#[test]
fn a_full_volume_is_known_when_it_is_written_to() {
    let Some(world) = World::new() else { return };
    assert_eq!(set(&world, &["--quota", "4M", "--inodes", "8"]).code, Some(0));
    let mount = world.mount_with(&world.a, "write-back=async");
    save(&mount.path().join("fits"), &noise(1, 3 * MB)).unwrap();
    mount.sync().unwrap();
    eventually("the host knows", || {
        let written = File::create(mount.path().join("over")).unwrap().write_all(&noise(2, 2 * MB));
        written.is_err_and(|error| error.raw_os_error() == Some(EDQUOT))
    });
    mount.sync().unwrap();
    let before = refused(&world, &mount);
    world.a.link_down().unwrap();
    world.lose_link(&world.a, &mount);
    let mut file = File::create(mount.path().join("over")).unwrap();
    assert_eq!(errno(file.write_all(&noise(3, 2 * MB))), Some(EDQUOT));
    drop(file);
    save(&mount.path().join("fits"), &noise(4, 3 * MB)).unwrap();
    let made: Vec<_> =
        (0..8).map(|at| File::create(mount.path().join(format!("file-{at}")))).collect();
    let errors = made.into_iter().filter_map(Result::err);
    assert_eq!(errors.map(|error| error.raw_os_error()).collect::<Vec<_>>(), [Some(EDQUOT); 3]);
    assert_eq!(set(&world, &["--quota", "none", "--inodes", "none"]).code, Some(0));
    world.a.link_up().unwrap();
    wait_for_state(&world.a, &mount, "online");
    eventually("writes go on", || save(&mount.path().join("more"), &noise(5, 6 * MB)).is_ok());
    mount.sync().unwrap();
    assert_eq!(refused(&world, &mount), before);
    check_clean(&world);
}

/// A directory's tree is counted and limited; its border is that of a file system for what
/// cannot take its charge along.
/// Proves S21.1, S21.9, S21.10.
#[test]
fn a_directory_has_a_quota_and_a_border() {
    let Some(world) = World::new() else { return };
    let mut mount = world.mount(&world.a);
    let top = mount.path();
    sh(top, "mkdir -p project/src other/dir; echo one > project/src/one; echo two > other/two");
    mount.sync().unwrap();
    let ended = set(&world, &["--dir", "/project", "--quota", "4M", "--inodes", "6"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.out.contains("/project"), "{ended:?}");
    // What the host has cached of it is trusted for a second.
    mount.umount(&[]).unwrap();
    let mount = world.mount_with(&world.a, CLOSE);
    let top = mount.path();
    let linked = fs::hard_link(top.join("other/two"), top.join("project/linked"));
    assert_eq!(errno(linked), Some(EXDEV));
    let moved = fs::rename(top.join("other/dir"), top.join("project/dir"));
    assert_eq!(errno(moved), Some(EXDEV));
    sh(top, "mv other/dir project/dir && mv other/two project/two && test ! -e other/dir");
    assert_eq!(errno(save(&top.join("project/big"), &noise(5, 5 * MB))), Some(EDQUOT));
    save(&top.join("other/big"), &noise(5, 5 * MB)).unwrap();
    sh(top, "rm -f project/big");
    mount.sync().unwrap();
    let df = |dir| sh(top, &format!("df -B1 --output=size,itotal {dir} | tail -1"));
    let numbers = |dir| -> Vec<u64> {
        df(dir).split_whitespace().map(|number| number.parse().unwrap()).collect()
    };
    assert_eq!(numbers("project/src"), [4 << 20, 6]);
    assert!(numbers("other")[0] > 4 << 20);
    let directory = shown(&world)["directories"][0].clone();
    assert_eq!(directory["path"], "/project");
    let counted = sh(top, "find project | wc -l");
    assert_eq!(directory["inodes"].as_u64(), counted.trim().parse().ok(), "{directory}");
    let len = |name| fs::metadata(top.join(name)).unwrap().len();
    let bytes = ["project/src/one", "project/two"].map(len);
    assert_eq!(directory["allocated_bytes"].as_u64(), Some(bytes.iter().sum()));
    let nested = set(&world, &["--dir", "/project/src", "--quota", "1M"]);
    assert!(nested.code == Some(2) && nested.err.contains("another directory"), "{nested:?}");
    check_clean(&world);
}

fn check_clean(world: &World) {
    let data = arg(world.server.data());
    let ended = segue(&world.serving, &["volume", "check", "home", "--rate", "0", "--data", data]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
}
