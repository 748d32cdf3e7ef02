//! Nothing waits for the server by default: what that means on a slow link, near `log-max`, and in
//! what the commands say.

use std::fs::{self, File};
use std::io::Write;
use std::time::Duration;

use segue_bed::LinkSpec;
use serde_json::Value;

use crate::remount::cache_directory;
use crate::tree::{hash, hash_of, noise};
use crate::world::{World, arg, errno, eventually, json, save, segue, sh};

/// Under `async` no call waits for the server. On a link of 64 KB/s with 100 ms a tree of small
/// files is written while hardly any of it has been sent. A kill in the middle loses nothing, and
/// files arrive in order: if another host sees a file, no earlier one is missing.
/// Proves S4.5, S4.6, S7.1.
#[test]
fn small_files_on_a_slow_link_arrive_in_order() {
    let Some(world) = World::new() else { return };
    let mut mount = world.mount(&world.a);
    sh(mount.path(), "mkdir tree");
    mount.sync().unwrap();
    let other = world.mount(&world.b);
    world.a.set_link(LinkSpec::kb_per_s(64).with_rtt(Duration::from_millis(100))).unwrap();
    let point = mount.path().join("tree");
    for number in 0..300_u64 {
        save(&point.join(format!("{number:03}")), &noise(number, 1_000)).unwrap();
    }
    let status = json(&world.a, &["status", arg(mount.path())]);
    assert!(status["mounts"][0]["log_records"].as_u64().unwrap() > 0, "it waited: {status}");
    mount.kill9().unwrap();
    world.a.set_link(LinkSpec::kb_per_s(256)).unwrap();
    let mount = world.mount(&world.a);
    let seen = || {
        let names = fs::read_dir(other.path().join("tree")).unwrap();
        let mut names: Vec<_> =
            names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    eventually("all are there, in order", || {
        let names = seen();
        let expected: Vec<String> = (0..names.len()).map(|number| format!("{number:03}")).collect();
        assert_eq!(names, expected, "one came before another");
        names.len() == 300
    });
    mount.sync().unwrap();
    for number in 0..300_u64 {
        let path = other.path().join(format!("tree/{number:03}"));
        assert_eq!(hash(&path), hash_of(&noise(number, 1_000)), "{number}");
    }
}

fn of(world: &World, point: &str, key: &str) -> Value {
    json(&world.a, &["status", point])["mounts"][0][key].clone()
}

/// Near `log-max` writers are slowed; at it they wait for room; without a network they are refused
/// after `grace`, with words, while what is removed still is; and all goes on with the network.
/// Proves S14.1, S14.3, S14.4.
#[test]
fn log_max_slows_and_refuses_with_words() {
    let Some(world) = World::new() else { return };
    let mount = world.mount_with(&world.a, "log-max=4M,grace=1s");
    let point = arg(mount.path()).to_owned();
    assert_eq!(of(&world, &point, "log_limit_bytes"), 4 << 20);
    // More than fits, on a link that takes it.
    world.a.set_link(LinkSpec::kb_per_s(4_096)).unwrap();
    save(&mount.path().join("through"), &noise(1, 12 << 20)).unwrap();
    mount.sync().unwrap();
    assert_eq!(of(&world, &point, "writers"), "free");
    world.a.link_down().unwrap();
    world.lose_link(&world.a, &mount);
    let mut file = File::create(mount.path().join("full")).unwrap();
    let mut written = 0;
    let refused = loop {
        match file.write(&noise(written, 128 << 10)) {
            Ok(len) => written += len as u64,
            Err(error) => break error,
        }
        assert!(written < 8 << 20, "without an end");
    };
    assert_eq!(refused.raw_os_error(), Some(28));
    assert!(written > 3 << 20, "only {written} bytes");
    assert_eq!(errno(fs::create_dir(mount.path().join("dir"))), Some(28));
    assert_eq!(of(&world, &point, "writers"), "refused");
    let status = segue(&world.a, &["status", &point]);
    assert!(status.code == Some(7) && status.out.contains("log-max"), "{status:?}");
    fs::remove_file(mount.path().join("through")).unwrap();
    drop(file);
    world.a.link_up().unwrap();
    mount.sync().unwrap();
    eventually("writing goes on", || save(&mount.path().join("more"), b"more").is_ok());
    let status = segue(&world.a, &["status", &point]);
    assert_eq!(status.code, Some(0), "{status:?}");
    let other = world.mount(&world.b);
    assert_eq!(fs::metadata(other.path().join("full")).unwrap().len(), written);
}

/// At any moment status and log say what is not safe, how old it is, and what it waits for: also
/// what is written and not closed, and what an earlier process left.
/// Proves S3.5, S11.9, S12.3.
#[test]
fn what_is_not_safe_is_said() {
    let Some(world) = World::new() else { return };
    let mount = world.mount(&world.a);
    let point = arg(mount.path()).to_owned();
    sh(mount.path(), "mkdir one two; echo x >one/file");
    mount.sync().unwrap();
    world.a.link_down().unwrap();
    world.lose_link(&world.a, &mount);
    let mut open = File::create(mount.path().join("one/open")).unwrap();
    open.write_all(&noise(1, 30_000)).unwrap();
    assert!(of(&world, &point, "unsafe_bytes").as_u64().unwrap() >= 30_000);
    eventually("it becomes older", || {
        of(&world, &point, "unsafe_oldest_seconds").as_f64().unwrap() > 0.5
    });
    assert_eq!(of(&world, &point, "waits_for"), "the server to be reachable");
    let log = json(&world.a, &["log", &point]);
    let records = log["records"].as_array().unwrap();
    let bytes: u64 = records.iter().map(|record| record["bytes"].as_u64().unwrap()).sum();
    assert!(bytes >= 30_000, "{log}");
    assert!(records.iter().all(|record| record["waits_for"] != ""), "{log}");
    let place = json(&world.a, &["where", arg(&mount.path().join("one/open"))]);
    assert_eq!(place["files"][0]["level"], "host");
    // The other directory has nothing to wait for, and this one does.
    let sync = |path: &str| {
        segue(&world.a, &["sync", arg(&mount.path().join(path)), "--timeout", "2s"]).code
    };
    assert_eq!((sync("two"), sync("one")), (Some(0), Some(6)));
    let ended = segue(&world.a, &["umount", "--wait", &point]);
    assert!(ended.code == Some(4) && mount.is_mounted(), "{ended:?}");
    assert_eq!(segue(&world.a, &["status", &point]).code, Some(4));
    drop(open);
    world.a.link_up().unwrap();
    mount.sync().unwrap();
    assert_eq!(of(&world, &point, "unsafe_bytes"), 0);
    assert_eq!(of(&world, &point, "waits_for"), "");
    assert_eq!(of(&world, &point, "unsafe_oldest_seconds"), 0.0);
}

/// A small new file has its bytes in the log, and no file on the disk of its own before the second
/// is over: so who writes many does not wait for the disk. What only the log has is there after a
/// kill. Proves S1.3.
#[test]
fn a_small_new_file_is_in_the_log() {
    let Some(world) = World::new() else { return };
    let base = world.local("cache");
    let options = format!("cache-dir={}", arg(&base));
    let mut mount = world.mount_with(&world.a, &options);
    sh(mount.path(), "ls");
    world.a.link_down().unwrap();
    let log = cache_directory(&base).join("update.log");
    let grows = |name: &str, len: usize| {
        let before = fs::metadata(&log).unwrap().len();
        save(&mount.path().join(name), &noise(len as u64, len)).unwrap();
        fs::metadata(&log).unwrap().len() - before
    };
    assert!(grows("small", 60_000) > 60_000);
    assert!(grows("large", 600_000) < 60_000, "its checksums");
    mount.kill9().unwrap();
    world.a.link_up().unwrap();
    let mount = world.mount_with(&world.a, &options);
    for (name, len) in [("small", 60_000), ("large", 600_000)] {
        assert!(fs::read(mount.path().join(name)).unwrap() == noise(len as u64, len), "{name}");
    }
}

/// The server has most of a large file long before it commits the file.
/// Proves S12.19.
#[test]
fn what_goes_up_counts_down_while_it_goes() {
    let Some(world) = World::new() else { return };
    let mount = world.mount_with(&world.a, "bwlimit=500K:10M");
    let point = arg(mount.path()).to_owned();
    let size = 3 << 20;
    save(&mount.path().join("file"), &noise(1, 3 << 20)).unwrap();
    eventually("some of it is there", || {
        let mounted = json(&world.a, &["status", &point])["mounts"][0].clone();
        let number = |key: &str| mounted[key].as_u64().unwrap();
        number("unsafe_bytes") == size && (1..size).contains(&number("to_send_bytes"))
    });
    let words = segue(&world.a, &["status", &point]).out;
    assert!(words.contains("to send    ") && !words.contains("3.0 MiB of data"), "{words}");
    assert_eq!(segue(&world.a, &["bwlimit", &point, "off"]).code, Some(0));
    mount.sync().unwrap();
    assert_eq!(of(&world, &point, "to_send_bytes"), 0);
}
