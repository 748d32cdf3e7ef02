//! What another host reads of a file that one host has changed and has not sent.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use segue_bed::LinkSpec;
use segue_bed::segue::SegueMount;

use crate::tree::noise;
use crate::world::{
    World, arg, errno, eventually, halt, has_data, json, measured, save, segue, sh,
};

const EHOSTUNREACH: Option<i32> = Some(113);
/// More than a thin link carries in a test.
const BULK: usize = 24 << 20;

/// Two hosts; the first one has a thin link, and much of its own before anything else.
struct Pair {
    world: World,
    here: SegueMount,
    there: SegueMount,
}

impl Pair {
    /// With these files on both, which the second one has read.
    fn with(files: &[(&str, &[u8])]) -> Option<Pair> {
        let world = World::new()?;
        let (here, there) = (world.mount(&world.a), world.mount(&world.b));
        for (name, bytes) in files {
            save(&here.path().join(name), bytes).unwrap();
        }
        here.sync().unwrap();
        for (name, bytes) in files {
            assert_eq!(fs::read(there.path().join(name)).unwrap(), *bytes);
        }
        world.a.set_link(LinkSpec::kb_per_s(200)).unwrap();
        let from = world.local("bulk").join("noise");
        save(&from, &noise(1, BULK)).unwrap();
        let to = here.path().join("bulk");
        // Another program: what one process writes is sent in its order.
        let copied = Command::new("cp").args([arg(&from), arg(&to)]).process_group(0).status();
        assert!(copied.unwrap().success());
        Some(Pair { world, here, there })
    }

    fn read(&self, name: &str) -> std::io::Result<Vec<u8>> {
        fs::read(self.there.path().join(name))
    }

    /// Until `name` reads as `new`, it reads as `old`; and the bulk has to wait all the while.
    fn becomes(&self, name: &str, old: &[u8], new: &[u8]) {
        eventually("the other host has heard of it", || {
            let found = self.read(name).unwrap();
            assert!(found == old || found == new, "{name} is {} bytes long", found.len());
            found == new
        });
        assert!(!has_data(&self.there.path().join("bulk")), "the bulk had to wait");
    }

    /// Until the other host shows size and time of `name` as they are here. What an open reads
    /// from then on is that.
    fn shows(&self, name: &str) {
        let as_of = |mount: &SegueMount| {
            let found = fs::metadata(mount.path().join(name)).ok()?;
            Some((found.len(), found.modified().unwrap()))
        };
        eventually("size and time are announced", || as_of(&self.there) == as_of(&self.here));
    }

    /// A further host, which mounts with these options.
    fn third(&self, name: &str, options: &str) -> SegueMount {
        self.world.mount_with(&self.world.bed.host(name).unwrap(), options)
    }

    /// What operations on `path` wait for, as `segue why` says.
    fn why(&self, path: &Path) -> String {
        json(&self.world.b, &["why", arg(path)]).to_string()
    }

    /// What `segue status` says of a mount.
    fn status(&self, mount: &SegueMount) -> serde_json::Value {
        json(&self.world.b, &["status", arg(mount.path())])["mounts"][0].clone()
    }

    /// The first host loses its network.
    fn leaves(&self) {
        self.world.a.link_down().unwrap();
        self.world.lose_link(&self.world.a, &self.here);
    }

    /// Files that the server knows to be changed.
    fn marks(&self) -> f64 {
        let data = arg(self.world.server.data());
        let metrics = segue(&self.world.serving, &["metrics", "--server", "--data", data]);
        measured(&metrics.out, "segue_server_marks", "")
    }

    fn ends(&self) {
        self.world.a.set_link(LinkSpec::default()).unwrap();
        self.here.sync().unwrap();
        assert!(self.read("bulk").unwrap() == noise(1, BULK));
    }
}

/// A process that reads a file, in a group of its own.
fn reader(path: &Path) -> Child {
    let mut cat = Command::new("cat");
    cat.arg(path).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
    cat.spawn().unwrap()
}

/// Proves S6.26, S6.29.
#[test]
fn an_open_gets_what_another_host_has_and_bulk_waits() {
    let (old, new) = (noise(2, 300_000), noise(3, 400_000));
    let Some(pair) = Pair::with(&[("text", &old), ("saved", &old)]) else { return };
    let here = pair.here.path();
    save(&here.join("new"), &new).unwrap();
    pair.shows("new");
    assert!(pair.read("new").unwrap() == new, "a new file is whole");
    let (here_says, there_says) = (pair.status(&pair.here), pair.status(&pair.there));
    let count = |status: &serde_json::Value, name: &str| status[name].as_u64().unwrap();
    assert!(count(&here_says, "pulls") >= 1 && count(&here_says, "waits") == 0, "{here_says}");
    assert!(count(&there_says, "pulls") == 0 && count(&there_says, "waits") >= 1, "{there_says}");
    // Written over in place, which empties it first.
    save(&here.join("text"), &new).unwrap();
    pair.shows("text");
    pair.becomes("text", &new, &new);
    // As editors save: a new file, renamed over the old one.
    save(&here.join("draft"), &new).unwrap();
    fs::rename(here.join("draft"), here.join("saved")).unwrap();
    pair.shows("saved");
    pair.becomes("saved", &new, &new);
    pair.ends();
}

/// Proves S6.27.
#[test]
fn what_a_host_took_along_is_read_as_it_was_and_never_empty() {
    let (old, new) = (noise(2, 300_000), noise(3, 400_000));
    let Some(pair) = Pair::with(&[("text", &old)]) else { return };
    let here = pair.here.path();
    save(&here.join("text"), &new).unwrap();
    save(&here.join("new"), &new).unwrap();
    eventually("its name is there", || pair.there.path().join("new").exists());
    // The bulk, and both of these.
    eventually("the word of the changes is there", || pair.marks() >= 3.0);
    pair.leaves();
    assert!(pair.read("text").unwrap() == old, "the last whole version");
    assert_eq!(errno(pair.read("new")), EHOSTUNREACH);
    // Its name and attributes can be looked at all the same.
    assert!(fs::metadata(pair.there.path().join("new")).is_ok());
    pair.world.a.link_up().unwrap();
    eventually("the host is back", || pair.read("new").is_ok_and(|found| found == new));
    pair.becomes("text", &old, &new);
    pair.ends();
}

/// Proves S6.27.
#[test]
fn an_open_fails_or_waits_for_a_host_that_is_away_where_that_is_wanted() {
    let (old, new) = (noise(2, 300_000), noise(3, 400_000));
    let Some(pair) = Pair::with(&[("text", &old)]) else { return };
    let (fails, waits) = (pair.third("c", "hidden=fail"), pair.third("d", "hidden=wait"));
    save(&pair.here.path().join("text"), &new).unwrap();
    // The bulk, and this.
    eventually("the word of the changes is there", || pair.marks() >= 2.0);
    pair.leaves();
    assert!(pair.read("text").unwrap() == old, "the last whole version");
    assert_eq!(errno(fs::read(fails.path().join("text"))), EHOSTUNREACH);
    assert!(fs::metadata(fails.path().join("text")).is_ok());
    let path = waits.path().join("text");
    let mut killed = reader(&path);
    eventually("it waits", || pair.why(&path).contains("a host that is away"));
    killed.kill().unwrap();
    assert!(!killed.wait().unwrap().success());
    let waits = reader(&path);
    eventually("it waits, too", || pair.why(&path).contains("a host that is away"));
    pair.world.a.link_up().unwrap();
    let output = waits.wait_with_output().unwrap();
    assert!(output.status.success() && output.stdout == new, "{} bytes", output.stdout.len());
    pair.ends();
}

/// The server remembers over a restart that a file has no contents yet, when their host is away.
/// Proves S6.27.
#[test]
fn a_new_file_is_never_empty_after_a_restart_of_the_server() {
    let new = noise(3, 400_000);
    let Some(mut pair) = Pair::with(&[]) else { return };
    save(&pair.here.path().join("new"), &new).unwrap();
    // Its name goes before it has anything.
    let open = fs::File::create(pair.here.path().join("later")).unwrap();
    for name in ["new", "later"] {
        eventually("its name is there", || pair.there.path().join(name).exists());
    }
    (&open).write_all(&new).unwrap();
    drop(open);
    pair.shows("new");
    pair.shows("later");
    pair.leaves();
    let connection = |pair: &Pair| pair.status(&pair.there)["link"]["connection"].as_u64();
    let before = connection(&pair);
    pair.world.server.restart().unwrap();
    eventually("it is connected again", || connection(&pair) > before);
    let third = pair.third("c", "");
    for name in ["new", "later"] {
        assert_eq!(errno(pair.read(name)), EHOSTUNREACH, "{name}");
        assert_eq!(errno(fs::read(third.path().join(name))), EHOSTUNREACH, "{name}");
    }
    pair.world.a.link_up().unwrap();
    eventually("the host is back", || pair.read("new").is_ok_and(|found| found == new));
    pair.ends();
    pair.world.server.restart().unwrap();
    assert_eq!(pair.marks(), 0.0, "nothing is awaited any more");
}

/// A writer's host that is there and sends nothing delays others, and not for ever; and who waits
/// can be killed.
/// Proves S6.28.
#[test]
fn a_host_that_sends_nothing_is_waited_for_and_not_for_ever() {
    let (old, new) = (noise(2, 300_000), noise(3, 400_000));
    let Some(pair) = Pair::with(&[("text", &old)]) else { return };
    save(&pair.here.path().join("new"), &new).unwrap();
    eventually("its name is there", || pair.there.path().join("new").exists());
    // Stopped sooner, the host would not have said that it has contents.
    pair.shows("new");
    save(&pair.here.path().join("text"), &new).unwrap();
    let writer = Pid::from_raw(pair.here.pid().unwrap().cast_signed()).unwrap();
    halt(writer);
    let path = pair.there.path().join("new");
    let mut killed = reader(&path);
    eventually("it waits", || pair.why(&path).contains("another host has changed"));
    let level = || json(&pair.world.b, &["where", arg(&path)])["files"][0]["level"].clone();
    assert_eq!(level(), "other");
    killed.kill().unwrap();
    assert!(!killed.wait().unwrap().success());
    let mut waits = reader(&path);
    assert!(!waits.wait().unwrap().success(), "a new file is never empty");
    let found = pair.read("text").unwrap();
    assert!(found == old, "the last whole version");
    kill_process(writer, Signal::CONT).unwrap();
    eventually("the host goes on", || pair.read("new").is_ok_and(|found| found == new));
    pair.ends();
}

/// A file that is still being written is read as far as it is written.
#[test]
fn an_open_does_not_wait_for_a_writer_that_goes_on() {
    let Some(pair) = Pair::with(&[]) else { return };
    let log = pair.here.path().join("log");
    let mut writer = Command::new("sh");
    writer.args(["-c", "while read line; do echo $line; done > log"]).stdin(Stdio::piped());
    let mut writer = writer.current_dir(pair.here.path()).process_group(0).spawn().unwrap();
    let mut to = writer.stdin.take().unwrap();
    to.write_all(b"first\n").unwrap();
    eventually("it is written", || fs::read(&log).is_ok_and(|found| found == b"first\n"));
    eventually("its name is there", || pair.there.path().join("log").exists());
    assert_eq!(pair.read("log").unwrap(), b"first\n");
    to.write_all(b"second\n").unwrap();
    eventually("it is written", || fs::read(&log).is_ok_and(|found| found.len() == 13));
    eventually("it is read", || pair.read("log").unwrap() == b"first\nsecond\n");
    drop(to);
    assert!(writer.wait().unwrap().success());
    let mut all = String::new();
    fs::File::open(pair.there.path().join("log")).unwrap().read_to_string(&mut all).unwrap();
    assert_eq!(all, "first\nsecond\n");
    sh(pair.here.path(), "rm log");
    pair.ends();
}
