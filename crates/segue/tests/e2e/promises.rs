//! The server promises to tell when something changes: so nobody asks whether it has.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::world::{STALE, World, arg, counted, eventually, json, save, segue, sh, wait_for_state};
use crate::{build, git};

/// Every five seconds a host asks how far it was told.
const RENEWED: Duration = Duration::from_secs(7);

fn metric(world: &World, name: &str) -> u64 {
    let data = arg(world.server.data());
    let text = segue(&world.serving, &["metrics", "--server", "--data", data]).out;
    counted(&text, &format!("segue_server_{name}"), "")
}

/// What had been asked at some moment.
struct Asked {
    requests: u64,
    at: Instant,
}

impl Asked {
    fn now(world: &World) -> Asked {
        Asked { requests: metric(world, "requests_total"), at: Instant::now() }
    }

    /// Nothing was asked since but what hosts ask by themselves: each renews its lease every five
    /// seconds, and a new one wants inode numbers. It would be one for each directory and each
    /// look at it, of which there are many more.
    fn assert_nothing_since(&self, world: &World) {
        self.assert_since(world, 10);
    }

    /// Nothing else was asked since but `most` questions.
    fn assert_since(&self, world: &World, most: u64) {
        let asked = metric(world, "requests_total") - self.requests;
        let most = most + self.at.elapsed().as_secs();
        assert!(asked <= most, "{asked} questions, and {most} would be right");
    }
}

/// Everything below a directory is looked at and read.
fn look(dir: &Path) -> String {
    sh(dir, "find . -printf '%p %s %m %T@\\n' | sort; find . -type f | sort | xargs cat | md5sum")
}

/// What was looked at once costs no question as long as nobody changes it, however old it is.
/// Proves S6.3, S6.7.
#[test]
fn a_second_look_asks_nothing() {
    let Some(world) = World::new() else { return };
    let (mount, other) = (world.mount(&world.a), world.mount(&world.b));
    sh(mount.path(), "for d in $(seq 60); do mkdir $d; seq 5 | (cd $d; split -l 1); done");
    mount.sync().unwrap();
    let seen = look(other.path());
    let first = Asked::now(&world);
    assert!(metric(&world, "promises") > 300);
    let status = json(&world.b, &["status", arg(other.path())]);
    assert!(status["mounts"][0]["promises"].as_u64() > Some(300), "{status}");
    std::thread::sleep(STALE);
    assert_eq!(look(other.path()), seen);
    for _ in 0..3 {
        // A name that is not there is known by the listing.
        sh(other.path(), "for d in $(seq 60); do test ! -e $d/none; done");
        std::thread::sleep(STALE);
    }
    assert_eq!(look(other.path()), seen);
    first.assert_nothing_since(&world);
}

/// git looks at every file of a tree, and make at every source and object: the second time that
/// costs no question, though another host made all of it.
/// Proves S6.7.
#[test]
fn git_and_make_ask_nothing_the_second_time() {
    let Some(world) = World::new() else { return };
    let (mount, other) = (world.mount(&world.a), world.mount(&world.b));
    let (made, tree) = (build::prepare(mount.path()), other.path().join("zstd"));
    sh(&made, "make -j2 2>&1; git init -q -b main .");
    git::configure(&made);
    sh(&made, "git add . && git commit -qm first");
    mount.sync().unwrap();
    let look = "GIT_OPTIONAL_LOCKS=0 git -c safe.directory='*' status --porcelain && make -q";
    assert_eq!(sh(&tree, look), "");
    std::thread::sleep(STALE);
    let first = Asked::now(&world);
    assert_eq!(sh(&tree, look), "");
    first.assert_nothing_since(&world);
}

/// What a host made is promised to it with the answer: it costs no question later either, and of
/// what it removed nothing is promised.
/// Proves S6.7.
#[test]
fn what_a_host_made_itself_is_not_asked_for() {
    let Some(world) = World::new() else { return };
    let mount = world.mount(&world.a);
    let make =
        "for d in $(seq 60); do mkdir $d; seq 5 | (cd $d; split -l 1; mv xaa a; rm xab); done";
    sh(mount.path(), make);
    mount.sync().unwrap();
    let promised = metric(&world, "promises");
    assert!((300..310).contains(&promised), "{promised} promised");
    std::thread::sleep(STALE);
    let first = Asked::now(&world);
    let list = "find . -printf '%p %s %m %T@\\n'; for d in $(seq 60); do test ! -e $d/xaa; done";
    assert_eq!(sh(mount.path(), list).lines().count(), 301);
    first.assert_nothing_since(&world);
}

/// Who lists a large directory again after another host changed something in it is told what
/// changed, not all names: whatever was made, moved, removed and made again there.
/// Proves S9.4.
#[test]
fn of_a_large_directory_only_what_changed_is_told() {
    let Some(world) = World::new() else { return };
    let (mount, other) = (world.mount(&world.a), world.mount(&world.b));
    let (dir, seen) = (mount.path().join("dir"), other.path().join("dir"));
    sh(mount.path(), "mkdir dir && cd dir && seq -f name-%g 8000 | xargs touch");
    mount.sync().unwrap();
    let moved = || world.b.tx_bytes().unwrap() + world.b.rx_bytes().unwrap();
    let list = |dir: &Path| sh(dir, "ls -A");
    let begin = moved();
    eventually("all names are seen", || list(&seen) == list(&dir));
    let whole = moved() - begin;
    for round in 0..5 {
        std::thread::sleep(STALE);
        let begin = moved();
        sh(&dir, &format!("touch made-{round}; mv name-1{round} moved-{round}; rm name-2{round}"));
        sh(&dir, &format!("rm -f made-{}; mkdir made-{round}-too; touch name-2{round}", round - 1));
        mount.sync().unwrap();
        eventually("the changes are seen", || list(&seen) == list(&dir));
        let again = moved() - begin;
        assert!(again < whole / 10, "round {round}: {again} bytes, all names take {whole}");
    }
    // This host works there as well, and is cut off while the other does.
    sh(&seen, "touch mine; rm name-30");
    world.b.link_down().unwrap();
    sh(&dir, "touch theirs; rm name-31");
    sh(&seen, "touch mine-offline");
    world.b.link_up().unwrap();
    other.sync().unwrap();
    mount.sync().unwrap();
    eventually("both see the same", || {
        let (here, there) = (list(&dir), list(&seen));
        here == there && here.contains("mine-offline") && here.contains("theirs")
    });
}

/// What a host has cached for longer than a kernel is told what may change without a word is
/// another's the moment that it changes it.
/// Proves S6.3, S6.8.
#[test]
fn a_change_is_heard_of() {
    let Some(world) = World::new() else { return };
    let (mount, other) = (world.mount(&world.a), world.mount(&world.b));
    let (here, there) = (mount.path(), other.path());
    sh(here, "mkdir dir; echo one >dir/one; echo two >dir/two; ln -s one dir/link");
    mount.sync().unwrap();
    let change = |what: &str, command: &str, is_seen: &dyn Fn() -> bool| {
        look(there);
        std::thread::sleep(STALE);
        assert!(!is_seen(), "{what}: before");
        sh(here, command);
        mount.sync().unwrap();
        eventually(what, is_seen);
    };
    let read = |name: &str| fs::read_to_string(there.join(name)).unwrap_or_default();
    change("it was written", "echo more >>dir/one", &|| read("dir/one") == "one\nmore\n");
    change("it was replaced", "echo x >dir/new; mv dir/new dir/two", &|| read("dir/two") == "x\n");
    change("its mode", "chmod 604 dir/one", &|| {
        fs::metadata(there.join("dir/one")).unwrap().mode() & 0o7777 == 0o604
    });
    change("a name was made", "mkdir dir/below", &|| there.join("dir/below").is_dir());
    change("it was renamed", "mv dir/below dir/above", &|| {
        there.join("dir/above").is_dir() && !there.join("dir/below").exists()
    });
    change("it was removed", "rm dir/link", &|| there.join("dir/link").symlink_metadata().is_err());
    change("a directory was removed", "rm -r dir", &|| !there.join("dir").exists());
}

/// A reader that has a file open reads what another host wrote into it.
/// Proves S6.4, S6.8.
#[test]
fn an_open_file_follows() {
    let Some(world) = World::new() else { return };
    let (mount, other) = (world.mount(&world.a), world.mount(&world.b));
    let (here, there) = (mount.path().join("file"), other.path().join("file"));
    save(&here, b"first").unwrap();
    mount.sync().unwrap();
    let reader = fs::File::open(&there).unwrap();
    let read = || {
        let mut bytes = [0; 6];
        let len = std::os::unix::fs::FileExt::read_at(&reader, &mut bytes, 0).unwrap();
        bytes[..len].to_vec()
    };
    assert_eq!(read(), b"first");
    std::thread::sleep(STALE);
    save(&here, b"second").unwrap();
    mount.sync().unwrap();
    eventually("the new data", || read() == b"second");
}

/// Promises are of one connection: what changed while there was none is seen after it.
/// Proves S6.13, S6.14.
#[test]
fn what_changed_while_nobody_could_tell_is_seen() {
    let Some(mut world) = World::new() else { return };
    let (mount, other) = (world.mount(&world.a), world.mount(&world.b));
    let name = |round: u32| (mount.path().join("file"), format!("round {round}"));
    let there = other.path().join("file");
    let (file, words) = name(0);
    save(&file, words.as_bytes()).unwrap();
    mount.sync().unwrap();
    assert_eq!(fs::read_to_string(&there).unwrap(), words);
    world.b.link_down().unwrap();
    let (file, words) = name(1);
    save(&file, words.as_bytes()).unwrap();
    mount.sync().unwrap();
    assert_eq!(fs::read_to_string(&there).unwrap(), "round 0", "nobody can be asked");
    wait_for_state(&world.b, &other, "offline");
    world.b.link_up().unwrap();
    wait_for_state(&world.b, &other, "online");
    eventually("what changed meanwhile", || fs::read_to_string(&there).unwrap() == words);
    world.server.restart().unwrap();
    let (file, words) = name(2);
    save(&file, words.as_bytes()).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    mount.sync().unwrap();
    eventually("what changed after the restart", || {
        fs::read_to_string(&there).unwrap() == words
            && fs::metadata(&there).unwrap().mode() & 0o7777 == 0o640
    });
}

/// A host that was away asks once what changed meanwhile, and then for that alone; so it does when
/// it was the server that was away.
/// Proves S6.13.
#[test]
fn what_did_not_change_meanwhile_is_not_asked_for_again() {
    let Some(mut world) = World::new() else { return };
    let (mount, other) = (world.mount(&world.a), world.mount(&world.b));
    let (here, there) = (mount.path(), other.path());
    sh(here, "for d in $(seq 60); do mkdir $d; seq 5 | (cd $d; split -l 1); done");
    mount.sync().unwrap();
    let seen = look(there);
    std::thread::sleep(RENEWED);
    world.b.link_down().unwrap();
    world.lose_link(&world.b, &other);
    sh(here, "echo more >>7/xaa; rm 8/xab; mkdir 9/new; mv 10/xac 11/moved");
    mount.sync().unwrap();
    let truth = look(here);
    assert_eq!(look(there), seen, "nobody can be asked");
    assert_ne!(truth, seen);
    let back = Asked::now(&world);
    world.b.link_up().unwrap();
    wait_for_state(&world.b, &other, "online");
    assert_eq!(look(there), truth);
    // Some for each of the six directories and two files that changed.
    back.assert_since(&world, 30);

    std::thread::sleep(RENEWED);
    world.server.restart().unwrap();
    for (host, mount) in [(&world.a, &mount), (&world.b, &other)] {
        eventually("it is promised again", || {
            json(host, &["status", arg(mount.path())])["mounts"][0]["promises"].as_u64() > Some(0)
        });
    }
    let back = Asked::now(&world);
    assert_eq!(look(there), truth);
    back.assert_nothing_since(&world);
}

/// Under `close` an open of what is here asks nobody, and reads what was closed last on whichever
/// host: a close returns when all others have heard of it.
/// Proves S3.5, S6.1, S6.2.
#[test]
fn close_to_open_needs_no_question() {
    let Some(world) = World::new() else { return };
    let (mount, other) = world.closing_mounts();
    let (here, there) = (mount.path(), other.path());
    sh(here, "mkdir dir; for f in $(seq 300); do echo $f >dir/$f; done");
    mount.sync().unwrap();
    let seen = look(there);
    std::thread::sleep(STALE);
    let first = Asked::now(&world);
    assert_eq!(look(there), seen);
    first.assert_nothing_since(&world);
    for round in 0..40 {
        let (file, words) = (format!("dir/{}", 1 + round % 3), format!("round {round}"));
        let (from, to) = if round % 2 == 0 { (here, there) } else { (there, here) };
        save(&from.join(&file), words.as_bytes()).unwrap();
        assert_eq!(fs::read_to_string(to.join(&file)).unwrap(), words);
    }
    // Names are waited for by who syncs.
    for round in 0..20 {
        let words = format!("replaced {round}");
        save(&here.join("dir/new"), words.as_bytes()).unwrap();
        fs::rename(here.join("dir/new"), here.join("dir/17")).unwrap();
        mount.sync().unwrap();
        assert_eq!(fs::read_to_string(there.join("dir/17")).unwrap(), words);
        assert!(!there.join("dir/new").exists());
    }
}

/// A close does not wait for who has gone without a word for longer than the server does.
/// Proves S6.2.
#[test]
fn a_silent_host_holds_up_a_close_for_one_term() {
    let Some(world) = World::new() else { return };
    let (mount, other) = world.closing_mounts();
    let (here, there) = (mount.path().join("file"), other.path().join("file"));
    save(&here, b"first").unwrap();
    assert_eq!(fs::read(&there).unwrap(), b"first");
    world.b.link_down().unwrap();
    save(&here, b"second").unwrap();
    let status = json(&world.b, &["status", arg(other.path())]);
    assert_eq!(status["mounts"][0]["promises"].as_u64(), Some(0), "it relies on nothing: {status}");
    world.b.link_up().unwrap();
    wait_for_state(&world.b, &other, "online");
    eventually("the second", || fs::read(&there).unwrap() == b"second");
}

/// A server that was killed knows that it had promised something, and to whom: nothing changes
/// before they are back.
/// Proves S6.14, S6.15.
#[test]
fn a_server_that_starts_again_waits_for_who_relies_on_it() {
    let Some(mut world) = World::new() else { return };
    let (mount, other) = world.closing_mounts();
    let (here, there) = (mount.path().join("file"), other.path().join("file"));
    save(&here, b"first").unwrap();
    assert_eq!(fs::read(&there).unwrap(), b"first");
    world.b.link_down().unwrap();
    world.server.restart().unwrap();
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| save(&here, b"second"));
        std::thread::sleep(Duration::from_secs(3));
        assert!(!closing.is_finished(), "the other host was not there");
        assert_eq!(fs::read(&there).unwrap(), b"first");
        world.b.link_up().unwrap();
        closing.join().unwrap().unwrap();
    });
    eventually("the second", || fs::read(&there).unwrap() == b"second");
    // Both are back, so that nobody waits.
    save(&here, b"third").unwrap();
    assert_eq!(fs::read(&there).unwrap(), b"third");
}

/// Who works in a directory can tell where it is, whatever changes around it.
#[test]
fn a_working_directory_stays_one() {
    let Some(world) = World::new() else { return };
    let (mount, other) = (world.mount(&world.a), world.mount(&world.b));
    sh(mount.path(), "mkdir -p dir/work");
    mount.sync().unwrap();
    let work = other.path().join("dir/work");
    let mut shell = Command::new("bash")
        .args(["-c", "while read line; do readlink /proc/$$/cwd; done"])
        .current_dir(&work)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ask = shell.stdin.take().unwrap();
    let mut told = BufReader::new(shell.stdout.take().unwrap()).lines();
    for round in 0..10 {
        sh(mount.path(), &format!("touch dir/{round}"));
        mount.sync().unwrap();
        writeln!(ask, "where").unwrap();
        assert_eq!(told.next().unwrap().unwrap(), arg(&work));
        assert!(other.path().join(format!("dir/{round}")).exists());
    }
    drop(ask);
    shell.wait().unwrap();
}

/// What the kernel was told for long it forgets when another host changes it, and when the
/// connection changes: it asks us for nothing that it knows.
/// Proves S6.13.
#[test]
fn the_kernel_believes_what_is_promised_and_no_more() {
    let Some(mut world) = World::new() else { return };
    let (mount, other) = (world.mount(&world.a), world.mount(&world.b));
    let (here, there) = (mount.path(), other.path());
    sh(here, "mkdir -p a/b; for f in $(seq 200); do echo $f >a/b/$f; done");
    mount.sync().unwrap();
    // By name: a listing would tell the kernel all of it again.
    let names: String = (1..=200).map(|name| format!("a/b/{name} ")).collect();
    let command = format!("stat -c '%n %s %a' {names} 2>&1 | md5sum; cat a/b/7 a/b/8");
    let (stat, truth) = (|| sh(there, &command), || sh(here, &command));
    let calls = || {
        let metrics = segue(&world.b, &["metrics", arg(there)]).out;
        counted(&metrics, "segue_kernel_requests_total", "")
    };
    stat();
    std::thread::sleep(STALE);
    let seen = stat();
    std::thread::sleep(STALE);
    let before = calls();
    assert_eq!(stat(), seen);
    let asked = calls() - before;
    // Two files are opened, read and closed.
    assert!(asked < 40, "{asked} requests for 200 files");
    for (what, change) in [
        ("a mode", "chmod 600 a/b/9"),
        ("a size", "echo more >>a/b/10"),
        ("a rename", "mv a/b/11 a/b/12"),
        ("an exchange", "mv a/b/7 a/b/t; mv a/b/8 a/b/7; mv a/b/t a/b/8"),
        ("a directory", "mv a/b a/c; mkdir a/b; echo x >a/b/7; echo x >a/b/8"),
    ] {
        let seen = stat();
        std::thread::sleep(STALE);
        sh(here, change);
        mount.sync().unwrap();
        assert_ne!(stat(), seen, "{what}");
        assert_eq!(stat(), truth(), "{what}");
    }
    world.b.link_down().unwrap();
    sh(here, "rm a/b/7; echo behind its back >a/b/7; chmod 640 a/b/8");
    mount.sync().unwrap();
    world.b.link_up().unwrap();
    wait_for_state(&world.b, &other, "online");
    eventually("what changed meanwhile", || stat() == truth());
    // Of nothing else that the server is asked about it could learn this.
    let mode = || fs::metadata(there.join("a/b/8")).unwrap().mode() & 0o777;
    assert_eq!(mode(), 0o640);
    world.server.restart().unwrap();
    sh(here, "chmod 604 a/b/8");
    mount.sync().unwrap();
    wait_for_state(&world.b, &other, "online");
    std::thread::sleep(STALE);
    assert_eq!(mode(), 0o604);
}
