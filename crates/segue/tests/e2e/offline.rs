//! Changes that wait for the server: umount, sync, status and conflicts.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use segue_bed::segue::SegueMount;

use segue_bed::{Host, LinkSpec, Proc};

use crate::tree::{hash, hash_of, noise};
use crate::world::{
    World, arg, end, errno, eventually, halt, json, save, segue, sh, wait_for_state,
};

/// A number of status, 0 if it is not there.
fn number(status: &Value, key: &str) -> u64 {
    status["mounts"][0][key].as_u64().unwrap_or_else(|| panic!("no {key} in {status}"))
}

/// `umount` with changes pending and no network exits with 4 at once and stays mounted; with
/// the network back it sends them, then unmounts.
/// Proves S12.3.
#[test]
fn umount_waits_for_the_server_or_stays() {
    let Some(world) = World::new() else { return };
    let mut mount = world.mount_with(&world.a, "write-back=async");
    save(&mount.path().join("first"), b"first").unwrap();
    mount.sync().unwrap();
    world.a.link_down().unwrap();
    save(&mount.path().join("file"), &noise(1, 300_000)).unwrap();
    for args in [&[][..], &["--wait"]] {
        let ended = segue(&world.a, &[&["umount", arg(mount.path())], args].concat());
        assert_eq!(ended.code, Some(4), "{ended:?}");
        assert!(ended.err.contains("--now"), "{ended:?}");
        assert!(mount.is_mounted());
    }
    assert_eq!(hash(&mount.path().join("file")), hash_of(&noise(1, 300_000)));
    world.a.link_up().unwrap();
    wait_for_state(&world.a, &mount, "online");
    mount.umount(&["--wait"]).unwrap();
    assert!(!mount.is_mounted());
    let other = world.mount(&world.b);
    assert_eq!(hash(&other.path().join("file")), hash_of(&noise(1, 300_000)));
}

/// Before a host goes down: `umount --timeout` waits for the server no longer than it is told, says
/// what is left, and leaves nothing mounted.
/// Proves S12.4.
#[test]
fn umount_waits_no_longer_than_it_is_told() {
    let Some(world) = World::new() else { return };
    let mount = world.mount(&world.a);
    save(&mount.path().join("first"), b"text").unwrap();
    let going_down = |point: &Path| segue(&world.a, &["umount", arg(point), "--timeout", "2s"]);
    let ended = going_down(mount.path());
    assert!(ended.code == Some(0) && !mount.is_mounted(), "{ended:?}");
    drop(mount);
    let mount = world.mount(&world.a);
    world.a.set_link(LinkSpec::kb_per_s(16)).unwrap();
    save(&mount.path().join("much"), &noise(1, 4 << 20)).unwrap();
    let ended = going_down(mount.path());
    assert!(ended.code == Some(6) && !mount.is_mounted(), "{ended:?}");
    assert!(ended.err.contains("kept on this host for the next mount"), "{ended:?}");
    drop(mount);
    world.a.set_link(LinkSpec::default()).unwrap();
    let mount = world.mount(&world.a);
    // Without a network nobody waits.
    world.a.link_down().unwrap();
    world.lose_link(&world.a, &mount);
    save(&mount.path().join("more"), b"text").unwrap();
    let ended = segue(&world.a, &["umount", arg(mount.path()), "--timeout", "10m"]);
    assert!(ended.code == Some(6) && !mount.is_mounted(), "{ended:?}");
    drop(mount);
    world.a.link_up().unwrap();
    let mount = world.mount(&world.a);
    mount.sync().unwrap();
    let other = world.mount(&world.b);
    assert_eq!(hash(&other.path().join("much")), hash_of(&noise(1, 4 << 20)));
    assert_eq!(fs::read(other.path().join("more")).unwrap(), b"text");
}

/// True if the log of `mount` has bytes of `name`, which is open: somebody had them sealed.
fn is_sealed(host: &Host, mount: &SegueMount, name: &str) -> bool {
    let log = json(host, &["log", arg(mount.path())]);
    let path = mount.path().join(name);
    let mut records = log["records"].as_array().unwrap().iter();
    records.any(|record| record["path"] == arg(&path) && record["kind"] == "store")
}

/// What `make install` gives systemd: the hook before a sleep seals and ends well without a
/// network, and does nothing after it; what the unit runs when the host goes down is a command.
/// Proves S12.5, S12.6.
#[test]
fn a_host_may_sleep_and_go_down() {
    let Some(world) = World::new() else { return };
    let mount = world.mount_with(&world.a, "write-back=delay:30s");
    let packaged = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
    sh(mount.path(), "ls");
    world.a.link_down().unwrap();
    let mut open = fs::File::create(mount.path().join("file")).unwrap();
    open.write_all(&noise(1, 3 << 20)).unwrap();
    // It would wait for the mounts of other tests, too.
    let hook = fs::read_to_string(packaged.join("segue.sleep")).unwrap();
    let sync = format!("{} sync {}", env!("CARGO_BIN_EXE_segue"), arg(mount.path()));
    assert!(hook.contains("/usr/local/bin/segue sync --everyone "), "{hook}");
    let hook = hook.replace("/usr/local/bin/segue sync --everyone", &sync);
    for (when, sealed) in [("post", false), ("pre", true)] {
        let mut sleeps = world.a.command("sh");
        let ended = end(sleeps.args(["-c", &hook, "segue.sleep", when, "suspend"]));
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(is_sealed(&world.a, &mount, "file"), sealed, "{when}");
    }
    drop(open);
    let unit = fs::read_to_string(packaged.join("segue-shutdown.service")).unwrap();
    let stop = unit.lines().find_map(|line| line.strip_prefix("ExecStop=")).unwrap();
    let (program, arguments) = stop.split_once(' ').unwrap();
    assert!(program.ends_with("/segue"), "{stop}");
    assert!(arguments.contains("umount --all --everyone "), "{stop}");
    // All mounts are also those of other tests.
    let words = arguments.split(' ').filter(|word| *word != "--everyone");
    let mut arguments: Vec<&str> = words.collect();
    for argument in &mut arguments {
        if *argument == "--all" {
            *argument = arg(mount.path());
        }
    }
    let ended = segue(&world.a, &arguments);
    assert!(ended.code == Some(6) && unit.contains("SuccessExitStatus=6"), "{ended:?}");
    assert!(!mount.is_mounted());
}

/// A process that does not say whether changes are pending is not taken for one that has none.
/// Proves S12.9.
#[test]
fn umount_of_a_process_that_hangs_says_that_changes_may_be_pending() {
    let Some(world) = World::new() else { return };
    let mount = world.mount(&world.a);
    sh(mount.path(), "ls");
    world.a.link_down().unwrap();
    save(&mount.path().join("file"), b"text").unwrap();
    let pid = rustix::process::Pid::from_raw(mount.pid().unwrap().cast_signed()).unwrap();
    halt(pid);
    let ended = segue(&world.a, &["umount", arg(mount.path()), "--timeout", "1s"]);
    assert!(ended.code == Some(6) && !mount.is_mounted(), "{ended:?}");
    assert!(ended.err.contains("kept on this host for the next mount"), "{ended:?}");
    drop(mount);
    world.a.link_up().unwrap();
    let mount = world.mount(&world.a);
    wait_for_state(&world.a, &mount, "online");
    assert_eq!(fs::read(mount.path().join("file")).unwrap(), b"text");
}

/// Whoever unmounts is gone for others at once: nobody waits until the server gives him up, which
/// takes twenty seconds.
#[test]
fn nobody_waits_for_a_host_that_has_left() {
    let Some(world) = World::new() else { return };
    let other = world.mount(&world.b);
    for round in 0..5 {
        let mut mount = world.mount(&world.a);
        let directory = mount.path().join(format!("d{round}"));
        fs::create_dir(&directory).unwrap();
        mount.sync().unwrap();
        mount.umount(&[]).unwrap();
        drop(mount);
        let there = other.path().join(format!("d{round}"));
        eventually("the directory is there", || there.exists());
        save(&there.join("file"), b"text").unwrap();
        let synced = segue(&world.b, &["sync", "--timeout", "10s", arg(other.path())]);
        assert_eq!(synced.code, Some(0), "round {round}: {synced:?}");
    }
}

/// With nothing pending a mount can be unmounted without a network.
#[test]
fn umount_without_a_network_and_nothing_to_send() {
    let Some(world) = World::new() else { return };
    let mut mount = world.mount(&world.a);
    save(&mount.path().join("file"), b"text").unwrap();
    mount.sync().unwrap();
    world.a.link_down().unwrap();
    mount.umount(&[]).unwrap();
    assert!(!mount.is_mounted());
}

/// `umount --now` and umount(8) keep pending changes on this host. The next mount shows them and
/// sends them.
/// Proves S12.7.
#[test]
fn what_umount_leaves_the_next_mount_sends() {
    let Some(world) = World::new() else { return };
    let other = world.mount(&world.b);
    for (round, with_tool) in [(0, false), (1, true)] {
        let mut mount = world.mount_with(&world.a, "write-back=async");
        let (dir, name) = (mount.path().join(format!("dir{round}")), format!("file{round}"));
        fs::create_dir(&dir).unwrap();
        mount.sync().unwrap();
        world.a.link_down().unwrap();
        save(&dir.join("new"), &noise(round, 200_000)).unwrap();
        fs::rename(dir.join("new"), dir.join(&name)).unwrap();
        save(&dir.join("removed"), b"x").unwrap();
        fs::remove_file(dir.join("removed")).unwrap();
        if with_tool {
            let ended = end(world.a.command("umount").arg(mount.path()));
            assert_eq!(ended.code, Some(0), "{ended:?}");
            let pid = mount.pid();
            eventually("the mount's process ends", || mount.pid().is_none() || pid.is_none());
        } else {
            mount.umount(&["--now"]).unwrap();
        }
        drop(mount);
        let seen = other.path().join(format!("dir{round}"));
        assert!(!seen.join(&name).exists());
        world.a.link_up().unwrap();
        let mount = world.mount_with(&world.a, "write-back=async");
        let expected = hash_of(&noise(round, 200_000));
        assert_eq!(hash(&dir.join(&name)), expected, "round {round}");
        eventually("it arrived", || seen.join(&name).exists());
        assert_eq!(hash(&seen.join(&name)), expected, "round {round}, other host");
        assert_eq!(fs::read_dir(&seen).unwrap().count(), 1);
        drop(mount);
    }
}

/// `sync` ends when the server has what it was asked about, and with `--timeout` gives up with
/// exit code 6 and says how much is missing; this host's disk needs no network.
/// Proves S3.5, S3.6.
#[test]
fn sync_ends_when_it_is_true() {
    let Some(world) = World::new() else { return };
    let mount = world.mount_with(&world.a, "write-back=async");
    let point = arg(mount.path());
    assert_eq!(fs::read_dir(mount.path()).unwrap().count(), 0);
    world.a.link_down().unwrap();
    save(&mount.path().join("file"), &noise(1, 100_000)).unwrap();
    let host = segue(&world.a, &["sync", point, "--level", "host"]);
    assert_eq!(host.code, Some(0), "{host:?}");
    // It had waited for ever.
    world.lose_link(&world.a, &mount);
    for command in ["sync", "umount"] {
        let offline = segue(&world.a, &[command, point]);
        let is_told = offline.err.contains("cannot be reached") && offline.err.contains("pending");
        assert!(offline.code == Some(4) && is_told, "{offline:?}");
    }
    let late = segue(&world.a, &["sync", point, "--timeout", "1s", "--json"]);
    assert_eq!(late.code, Some(6), "{late:?}");
    let reply: Value = serde_json::from_str(&late.out).unwrap();
    assert_eq!(reply["ok"], false);
    assert!(reply["pending_records"].as_u64().unwrap() >= 2, "{reply}");
    assert_eq!(reply["pending_bytes"], 100_000);
    let mut waiting = world.a.command("segue");
    let mut waiting = world.a.spawn(waiting.args(["sync", "--wait", point])).unwrap();
    std::thread::sleep(std::time::Duration::from_secs(3));
    assert_eq!(waiting.try_wait().unwrap(), None, "it waits");
    world.a.link_up().unwrap();
    eventually("the server has all", || waiting.try_wait().unwrap().is_some());
    let path = mount.path().join("file");
    let reply = json(&world.a, &["sync", arg(&path), "--timeout", "60s"]);
    assert_eq!(reply["ok"], true, "{reply}");
    let other = world.mount(&world.b);
    assert_eq!(hash(&other.path().join("file")), hash_of(&noise(1, 100_000)));
    let missing = mount.path().join("missing");
    assert_eq!(segue(&world.a, &["sync", arg(&missing)]).code, Some(3));
}

fn assert_has_all(value: &Value, keys: &[&str]) {
    for key in keys {
        assert!(value.get(key).is_some(), "no {key} in {value}");
    }
}

/// A process that has ended does not hide what waits in another mount of the same user: he is told
/// of both.
#[test]
fn a_dead_mount_hides_no_other() {
    let Some(world) = World::new() else { return };
    let (a, b) = (world.mount(&world.a), world.mount(&world.b));
    sh(a.path(), "ls");
    world.a.link_down().unwrap();
    save(&a.path().join("waits"), b"here only").unwrap();
    let pid = Pid::from_raw(b.pid().unwrap().cast_signed()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    eventually("nobody answers", || fs::metadata(b.path()).is_err());
    let ended = segue(&world.a, &["log"]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.out.contains(arg(&a.path().join("waits"))), "{ended:?}");
    let of_b = format!("{}: the process of this mount has ended", b.path().display());
    assert!(ended.err.contains(&of_b), "{ended:?}");
    // Of it alone nothing is said that nobody knows.
    for command in ["log", "conflicts"] {
        let ended = segue(&world.b, &[command, "--json", arg(b.path())]);
        assert_eq!((ended.code, ended.out.as_str()), (Some(1), ""), "{ended:?}");
        assert!(ended.err.contains(&of_b), "{ended:?}");
    }
}

/// True if a thread of process `pid` with a name that begins with `name` waits in `call` of the
/// kernel.
fn waits_in(pid: u32, name: &str, call: &str) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    threads.map(|thread| thread.path()).any(|thread| {
        let read = |file: &str| fs::read_to_string(thread.join(file)).unwrap_or_default();
        read("comm").starts_with(name) && read("wchan").contains(call)
    })
}

/// Kills `mount` while one of its threads waits in the kernel for a directory that a call has
/// locked, and that call waits for the mount: the kernel ends neither. Returns the call.
fn kill_beside_a_call(world: &World, mount: &SegueMount) -> Proc {
    let directory = mount.path().join("d");
    eventually("the name is known", || fs::read(directory.join("known")).is_ok());
    let pid = mount.pid().unwrap();
    world.a.link_down().unwrap();
    let mut call = world.a.command("stat");
    let mut call = world.a.spawn(call.arg(directory.join("unknown"))).unwrap();
    eventually("the call waits", || waits_in(call.pid(), "stat", "request_wait_answer"));
    world.lose_link(&world.a, mount);
    world.a.link_up().unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    while !waits_in(pid, "forget-names", "fuse_reverse_inval_entry") {
        assert!(Instant::now() < end && call.try_wait().unwrap().is_none());
    }
    kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL).unwrap();
    eventually("it has died", || {
        let status = fs::read_to_string(format!("/proc/{pid}/status"));
        status.is_ok_and(|status| status.contains("State:\tZ"))
    });
    call
}

/// Proves S12.8.
#[test]
fn a_mount_that_is_killed_while_the_kernel_holds_a_thread_of_it_leaves_no_call_waiting() {
    let Some(world) = World::new() else { return };
    let other = world.mount(&world.b);
    fs::create_dir(other.path().join("d")).unwrap();
    // A small directory is fetched with one of its names.
    for name in ["known"].into_iter().map(String::from).chain((0..5000).map(|n| n.to_string())) {
        save(&other.path().join("d").join(name), b"text").unwrap();
    }
    let synced = segue(&world.b, &["sync", arg(other.path())]);
    assert_eq!(synced.code, Some(0), "{synced:?}");

    let mount = world.mount_with(&world.a, "grace=60s");
    let mut call = kill_beside_a_call(&world, &mount);
    eventually("the call has ended", || call.try_wait().unwrap().is_some());
    assert_eq!(errno(fs::metadata(mount.path())), Some(Errno::NOTCONN.raw_os_error()));
    drop(mount);

    // The mount's guard was killed, too: all commands tell what has happened, and one helps.
    let mount = world.mount_with(&world.a, "grace=60s");
    let guards = ["-KILL", "-P", &mount.pid().unwrap().to_string(), "-f", "segue guard"];
    assert_eq!(end(world.a.command("pkill").args(guards)).code, Some(0));
    let mut call = kill_beside_a_call(&world, &mount);
    for command in ["status", "log", "sync", "conflicts"] {
        let ended = segue(&world.a, &[command, arg(mount.path())]);
        let is_told = ended.err.contains("has ended") && ended.err.contains("segue umount");
        assert!(is_told && ended.code != Some(0), "{command}: {ended:?}");
    }
    assert!(call.try_wait().unwrap().is_none(), "the kernel ends it: this shows nothing");
    let ended = segue(&world.a, &["umount", arg(mount.path())]);
    assert!(ended.code == Some(0) && ended.err.contains("had ended"), "{ended:?}");
    eventually("the call has ended", || call.try_wait().unwrap().is_some());
    drop(mount);
    let again = world.mount(&world.a);
    assert_eq!(fs::read(again.path().join("d/known")).unwrap(), b"text");
}

/// Before a host sleeps: `sync --level host` reaches each mount in the time that it has, also
/// behind one whose process has ended and one whose process hangs.
/// Proves S3.6, S12.6.
#[test]
fn a_dead_mount_keeps_no_other_from_being_synced() {
    let Some(world) = World::new() else { return };
    let a = world.mount_with(&world.a, "write-back=delay:30s");
    let b = world.mount(&world.b);
    sh(a.path(), "ls");
    world.a.link_down().unwrap();
    let pid = Pid::from_raw(b.pid().unwrap().cast_signed()).unwrap();
    let sync = |name: &str| {
        let mut open = fs::File::create(a.path().join(name)).unwrap();
        open.write_all(&noise(1, 100_000)).unwrap();
        let points = [arg(b.path()), arg(a.path())];
        let args = ["sync", "--level", "host", "--timeout", "2s"];
        let ended = segue(&world.a, &[&args[..], &points].concat());
        assert!(is_sealed(&world.a, &a, name), "{ended:?}");
        ended
    };
    halt(pid);
    let ended = sync("beside one that hangs");
    kill_process(pid, Signal::CONT).unwrap();
    assert_eq!(ended.code, Some(6), "{ended:?}");
    let of_b = |words: &str| format!("{}: {words}", b.path().display());
    assert!(ended.err.contains(&of_b("the timeout has expired")), "{ended:?}");
    kill_process(pid, Signal::KILL).unwrap();
    eventually("nobody answers", || fs::metadata(b.path()).is_err());
    let ended = sync("beside one that is dead");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.err.contains(&of_b("the process of this mount has ended")), "{ended:?}");
}

/// status, log, where and metrics say what is pending and where a file is, in JSON with stable
/// names, with and without a network.
/// Proves S11.9.
#[test]
fn what_is_pending_can_be_seen() {
    let Some(world) = World::new() else { return };
    let mount = world.mount_with(&world.a, "write-back=async");
    let (point, file) = (arg(mount.path()).to_owned(), mount.path().join("file"));
    save(&file, &noise(1, 50_000)).unwrap();
    mount.sync().unwrap();
    let status = json(&world.a, &["status", &point]);
    assert_has_all(
        &status["mounts"][0],
        &[
            "mountpoint",
            "url",
            "state",
            "bandwidth_up",
            "bandwidth_down",
            "rtt_seconds",
            "log_records",
            "log_bytes",
            "unsafe_bytes",
            "unsafe_oldest_seconds",
            "cache_bytes",
            "cache_limit_bytes",
            "promises",
            "conflicts",
            "refused",
        ],
    );
    assert_eq!(status["mounts"][0]["mountpoint"], point.as_str());
    assert_eq!(status["mounts"][0]["url"], world.server.url("home").as_str());
    assert_eq!(status["mounts"][0]["state"], "online");
    assert_eq!((number(&status, "log_records"), number(&status, "unsafe_bytes")), (0, 0));
    let place = || json(&world.a, &["where", arg(&file)])["files"][0].clone();
    let clean = place();
    assert_has_all(
        &clean,
        &["path", "ino", "level", "cached_bytes", "size", "dirty", "shared", "version"],
    );
    assert_eq!((&clean["level"], &clean["dirty"]), (&"server".into(), &false.into()));
    assert_eq!((&clean["size"], &clean["cached_bytes"]), (&50_000.into(), &50_000.into()));

    world.a.link_down().unwrap();
    save(&file, &noise(2, 60_000)).unwrap();
    fs::create_dir(mount.path().join("dir")).unwrap();
    world.lose_link(&world.a, &mount);
    let status = json(&world.a, &["status", &point]);
    assert!(number(&status, "log_records") >= 2, "{status}");
    assert!(number(&status, "unsafe_bytes") >= 60_000, "{status}");
    assert!(status["mounts"][0]["unsafe_oldest_seconds"].as_f64().unwrap() > 0.0, "{status}");
    let dirty = place();
    assert_eq!((&dirty["level"], &dirty["dirty"]), (&"host".into(), &true.into()));
    assert_eq!(dirty["size"], 60_000);
    let log = json(&world.a, &["log", &point]);
    let records = log["records"].as_array().unwrap();
    assert_has_all(
        &records[0],
        &["seq", "kind", "path", "class", "bytes", "age_seconds", "waits_for"],
    );
    let paths: Vec<_> = records.iter().filter_map(|record| record["path"].as_str()).collect();
    assert_eq!(paths, [arg(&file), &format!("{point}/dir")], "{log}");
    let metrics = segue(&world.a, &["metrics", &point]);
    assert!(metrics.out.contains("\nsegue_unsafe_bytes"), "{metrics:?}");
    assert_eq!(segue(&world.a, &["where", &format!("{point}/none")]).code, Some(3));
    for (words, code) in [(["status", &point], 4), (["log", &point], 0)] {
        let ended = segue(&world.a, &words);
        assert!(ended.code == Some(code) && !ended.out.is_empty(), "{ended:?}");
    }
    world.a.link_up().unwrap();
    mount.sync().unwrap();
    assert_eq!(number(&json(&world.a, &["status", &point]), "log_records"), 0);
}

/// `where` answers for each path that it can, and fails for the others.
#[test]
fn where_goes_on_after_a_path_that_fails() {
    let Some(world) = World::new() else { return };
    let mount = world.mount(&world.a);
    let (point, file) = (arg(mount.path()), mount.path().join("file"));
    save(&file, b"text").unwrap();
    for (bad, words) in [(format!("{point}/none"), "none"), ("/tmp".into(), "not on a Segue mount")]
    {
        let some = segue(&world.a, &["where", &bad, arg(&file)]);
        assert!(some.out.contains(arg(&file)) && some.err.contains(words), "{some:?}");
        assert!(some.code.is_some_and(|code| code > 0), "{some:?}");
    }
}

/// A directory had said "server" above files that were on this host only.
/// Proves S12.17.
#[test]
fn where_tells_of_what_is_below_a_directory() {
    let Some(world) = World::new() else { return };
    let mount = world.mount(&world.a);
    let (top, sub) = (mount.path().join("top"), mount.path().join("top/sub"));
    fs::create_dir_all(&sub).unwrap();
    save(&mount.path().join("topmost"), b"beside it").unwrap();
    mount.sync().unwrap();
    let place = |options: &[&str]| {
        let file = json(&world.a, &[&["where", arg(&top)], options].concat())["files"][0].clone();
        (file["level"].as_str().unwrap().to_owned(), file["below"].clone())
    };
    let attribute = || sh(mount.path(), "getfattr --only-values -n user.segue.where top");
    let nothing = serde_json::json!({ "files": 0, "bytes": 0 });
    assert_eq!((place(&[]), attribute()), (("server".into(), nothing.clone()), "server".into()));
    world.a.link_down().unwrap();
    world.lose_link(&world.a, &mount);
    save(&mount.path().join("topmost"), b"not below it").unwrap();
    assert_eq!(place(&[]), ("server".into(), nothing.clone()));
    for (name, bytes) in [("one", 3_000_000), ("two", 500_000)] {
        save(&sub.join(name), &noise(1, bytes)).unwrap();
    }
    let unsent = serde_json::json!({ "files": 2, "bytes": 3_500_000 });
    assert_eq!((place(&[]), attribute()), (("host".into(), unsent), "host".into()));
    assert_eq!(place(&["--self"]), ("server".into(), nothing.clone()));
    let words = segue(&world.a, &["where", arg(&top)]).out;
    assert!(words.contains("2 changed below it, "), "{words}");
    world.a.link_up().unwrap();
    wait_for_state(&world.a, &mount, "online");
    mount.sync().unwrap();
    assert_eq!(place(&[]), ("server".into(), nothing));
}

fn copies(dir: &Path, name: &str) -> Vec<PathBuf> {
    let prefix = format!("{name}.conflict-");
    let paths = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(&prefix)).collect()
}

/// When two hosts changed one file without knowing of each other, both versions are kept, on
/// both hosts: the one that came first under the name, the other as NAME.conflict-HOST-TIME
/// beside it; status counts it.
/// Proves S4.7, S9.1, S9.3, S9.5, S9.7, S10.6.
#[test]
fn a_conflict_keeps_both() {
    let Some(world) = World::new() else { return };
    let mount = world.mount_with(&world.a, "write-back=async");
    let other = world.mount(&world.b);
    save(&mount.path().join("file"), &noise(0, 100_000)).unwrap();
    save(&mount.path().join("calm"), b"calm").unwrap();
    mount.sync().unwrap();
    assert_eq!(hash(&other.path().join("file")), hash_of(&noise(0, 100_000)));
    world.a.link_down().unwrap();
    let (ours, theirs) = (noise(1, 120_000), noise(2, 90_000));
    save(&mount.path().join("file"), &ours).unwrap();
    save(&mount.path().join("calm"), b"calm again").unwrap();
    save(&mount.path().join("born"), b"ours").unwrap();
    save(&other.path().join("file"), &theirs).unwrap();
    save(&other.path().join("born"), b"theirs").unwrap();
    other.sync().unwrap();
    world.a.link_up().unwrap();
    mount.sync().unwrap();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    for point in [mount.path(), other.path()] {
        let found = |name: &str, theirs: &[u8], ours: &[u8]| {
            eventually("both versions are there", || {
                copies(point, name).len() == 1
                    && hash(&point.join(name)) == hash_of(theirs)
                    && hash(&copies(point, name)[0]) == hash_of(ours)
            });
            let copy = copies(point, name)[0].clone();
            assert!(copy.to_string_lossy().contains(&format!(".conflict-{host}-")), "{copy:?}");
        };
        found("file", &theirs, &ours);
        found("born", b"theirs", b"ours");
        assert_eq!(fs::read(point.join("calm")).unwrap(), b"calm again");
        assert_eq!(copies(point, "calm"), Vec::<PathBuf>::new());
        assert_eq!(fs::read_dir(point).unwrap().count(), 5);
    }
    let status = json(&world.a, &["status", arg(mount.path())]);
    assert_eq!((number(&status, "conflicts"), number(&status, "refused")), (2, 0));
    // Work goes on: the name is theirs now, for us too.
    save(&mount.path().join("file"), b"agreed").unwrap();
    mount.sync().unwrap();
    eventually("the other host has it", || {
        fs::read(other.path().join("file")).is_ok_and(|text| text == b"agreed")
    });
    assert_eq!(copies(other.path(), "file").len(), 1);
    // They are counted until a person has dealt with them.
    let mount = world.remount(&world.a, mount);
    let conflicts = || number(&json(&world.a, &["status", arg(mount.path())]), "conflicts");
    assert_eq!(conflicts(), 2);
    fs::remove_file(&copies(mount.path(), "file")[0]).unwrap();
    assert_eq!(conflicts(), 1);
}

/// A file that one host removed while another wrote it unseen is not lost: what was written is
/// kept as a copy.
/// Proves S9.13.
#[test]
fn written_here_removed_there() {
    let Some(world) = World::new() else { return };
    let mount = world.mount_with(&world.a, "write-back=async");
    let other = world.mount(&world.b);
    save(&mount.path().join("file"), b"old").unwrap();
    mount.sync().unwrap();
    eventually("the other host has it", || other.path().join("file").exists());
    world.a.link_down().unwrap();
    save(&mount.path().join("file"), &noise(1, 70_000)).unwrap();
    fs::remove_file(other.path().join("file")).unwrap();
    other.sync().unwrap();
    world.a.link_up().unwrap();
    mount.sync().unwrap();
    let expected = hash_of(&noise(1, 70_000));
    for point in [mount.path(), other.path()] {
        eventually("what was written is somewhere", || {
            // What was listed a moment ago may be gone.
            let found = sh(point, "find . -type f -size +60k 2>/dev/null || true");
            found.lines().any(|path| hash(&point.join(path)) == expected)
        });
    }
}

/// `segue why` says what the last operations on a file waited for.
/// Proves S4.4.
#[test]
fn a_slow_operation_can_be_explained() {
    let Some(world) = World::new() else { return };
    let (mount, other) = (world.mount(&world.a), world.mount(&world.b));
    fs::create_dir(mount.path().join("d")).unwrap();
    save(&mount.path().join("d/large"), &noise(1, 2 << 20)).unwrap();
    mount.sync().unwrap();
    world.b.set_link(LinkSpec::kb_per_s(512)).unwrap();
    let large = other.path().join("d/large");
    assert_eq!(hash(&large), hash_of(&noise(1, 2 << 20)));
    let why = |path: &Path| json(&world.b, &["why", arg(path)]);
    let said = why(&large);
    assert_eq!(
        (&said["where"]["cached_bytes"], &said["where"]["dirty"]),
        (&(2 << 20).into(), &false.into())
    );
    let operations = said["operations"].as_array().unwrap();
    let waited = |one: &Value| -> String {
        one["waited_for"].as_array().unwrap().iter().map(|step| step["what"].to_string()).collect()
    };
    let read = operations.iter().find(|one| waited(one).contains("bytes of data")).unwrap();
    assert!(read["seconds"].as_f64().unwrap() > 0.0 && read["pid"].as_u64().unwrap() > 0, "{read}");
    // A change that waits for the server says so.
    let synchronous = segue(&world.b, &["persist", arg(&other.path().join("d")), "--lm", "sync"]);
    assert_eq!(synchronous.code, Some(0), "{synchronous:?}");
    fs::rename(&large, other.path().join("d/moved")).unwrap();
    let renamed = why(&other.path().join("d/moved"))["operations"].to_string();
    assert!(!renamed.contains("rename"), "it is about the name that was: {renamed}");
    fs::rename(other.path().join("d/moved"), &large).unwrap();
    let renamed = why(&large)["operations"].to_string();
    assert!(renamed.contains("the server to commit the change"), "{renamed}");
    fs::rename(&large, other.path().join("d/moved")).unwrap();
    let shown = segue(&world.b, &["why", arg(&other.path().join("d/moved"))]);
    assert!(shown.code == Some(0) && shown.out.contains("on the server"), "{shown:?}");
    let missing = segue(&world.b, &["why", arg(&other.path().join("missing"))]);
    assert_eq!(missing.code, Some(3), "{missing:?}");
}

/// The answer to a change of attributes told of the new version and size of a file that another
/// host had rewritten. Its old bytes stayed beside them.
#[test]
fn a_change_of_attributes_brings_what_another_host_wrote_meanwhile() {
    let Some(world) = World::new() else { return };
    let (a, b) = (world.mount(&world.a), world.mount(&world.b));
    let names = ["longer", "shorter", "same"];
    let (old, new) = (noise(1, 300_000), [noise(2, 500_000), noise(3, 100_000), noise(4, 300_000)]);
    for name in names {
        fs::write(a.path().join(name), &old).unwrap();
    }
    a.sync().unwrap();
    let open = names.map(|name| fs::File::open(a.path().join(name)).unwrap());
    for name in names {
        assert!(fs::read(a.path().join(name)).unwrap() == old);
    }
    world.a.link_down().unwrap();
    world.lose_link(&world.a, &a);
    for (name, new) in names.iter().zip(&new) {
        fs::write(b.path().join(name), new).unwrap();
        fs::set_permissions(a.path().join(name), fs::Permissions::from_mode(0o600)).unwrap();
    }
    b.sync().unwrap();
    world.a.link_up().unwrap();
    a.sync().unwrap();
    for (name, new) in names.iter().zip(&new) {
        assert!(fs::read(a.path().join(name)).unwrap() == *new, "{name}");
        assert_eq!(fs::metadata(b.path().join(name)).unwrap().len(), new.len() as u64);
    }
    drop(open);
    eventually("the other host sees the modes", || {
        let mode = |name: &&str| fs::metadata(b.path().join(name)).unwrap().mode() & 0o777;
        names.iter().all(|name| mode(name) == 0o600)
    });
}
