//! What two hosts changed at once: what is no conflict, what becomes one directory again, and how
//! a user deals with the rest.

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use segue_bed::Host;
use segue_bed::segue::SegueMount;
use serde_json::Value;

use crate::tree::{self, noise};
use crate::world::{
    CLOSE, World, arg, close, end, errno, eventually, json, save, segue, settle, sh, wait_for_state,
};

/// What `segue conflicts` lists, and its exit code.
fn conflicts(host: &Host, mount: &SegueMount) -> (Vec<Value>, Option<i32>) {
    let ended = segue(host, &["conflicts", "--json", arg(mount.path())]);
    let listed: Value = serde_json::from_str(&ended.out).unwrap();
    (listed["conflicts"].as_array().unwrap().clone(), ended.code)
}

/// What has a conflict copy's name below `dir`.
fn copies(dir: &Path) -> Vec<PathBuf> {
    // Some may go while it looks.
    let found = sh(dir, "find . -name '*.conflict-*' -printf '%P\\n' 2> /dev/null | sort");
    found.lines().map(PathBuf::from).collect()
}

/// Does `ours` on host a while it is cut off, and `theirs` on b meanwhile; returns when a is back
/// and has sent everything, of which the server may have refused some.
pub(crate) fn apart(
    world: &World,
    (a, b): (&SegueMount, &SegueMount),
    ours: impl FnOnce(&Path),
    theirs: impl FnOnce(&Path),
) {
    sh(a.path(), "ls -R");
    a.sync().unwrap();
    world.a.link_down().unwrap();
    world.lose_link(&world.a, a);
    ours(a.path());
    theirs(b.path());
    b.sync().unwrap();
    world.a.link_up().unwrap();
    wait_for_state(&world.a, a, "online");
    settle(&world.a, a);
}

/// Both unpack the same new release of a tree over the old one: nobody finds a conflict, and either
/// goes on. Proves S9.6.
#[test]
fn what_two_hosts_do_alike_is_no_conflict() {
    let Some(world) = World::new() else { return };
    let (a, b) = (world.mount(&world.a), world.mount_with(&world.b, CLOSE));
    let files = [("small", 3_000), ("middle", 300_000), ("large", 5_000_000)];
    for (name, len) in files {
        save(&a.path().join(name), &noise(1, len)).unwrap();
    }
    let release = world.local("release");
    for (name, len) in files {
        fs::write(release.join(name), noise(2, len + 100)).unwrap();
    }
    // Not by this process: what it has open is closed once more by each program that another test
    // starts, and stored as far as it is written.
    let release = |dir: &Path| drop(sh(dir, &format!("cp {}/* .", release.display())));
    apart(&world, (&a, &b), release, release);
    assert_eq!(conflicts(&world.a, &a), (Vec::new(), Some(0)));
    assert_eq!(copies(b.path()), Vec::<PathBuf>::new());
    sh(a.path(), "printf ours >> large; printf more >> small");
    a.sync().unwrap();
    sh(b.path(), "printf theirs >> middle");
    b.sync().unwrap();
    eventually("both have the same", || {
        tree::read_contents(a.path()) == tree::read_contents(b.path())
    });
    assert_eq!(copies(b.path()), Vec::<PathBuf>::new());
    assert_eq!(fs::metadata(b.path().join("large")).unwrap().len(), 5_000_104);
    assert_eq!(sh(b.path(), "tail -c 4 small"), "more");
}

/// A close that waits for the server is told of no conflict, for it is no failure: it is listed.
/// Proves S10.1.
#[test]
fn a_conflict_is_listed_also_where_closes_wait() {
    let Some(world) = World::new() else { return };
    let (a, b) = world.closing_mounts();
    save(&a.path().join("file"), b"before").unwrap();
    let open = |mount: &SegueMount| {
        fs::File::options().write(true).truncate(true).open(mount.path().join("file")).unwrap()
    };
    let files = [open(&a), open(&b)];
    for (mut file, text) in files.into_iter().zip(["first", "second"]) {
        file.write_all(text.as_bytes()).unwrap();
        close(file).unwrap();
    }
    assert_eq!(conflicts(&world.a, &a), (Vec::new(), Some(0)));
    let (listed, code) = conflicts(&world.b, &b);
    assert_eq!((listed.len(), code), (1, Some(5)), "{listed:?}");
    let copy = PathBuf::from(listed[0]["path"].as_str().unwrap());
    assert_eq!(fs::read_to_string(copy).unwrap(), "second");
    assert_eq!(fs::read_to_string(b.path().join("file")).unwrap(), "first");
}

/// One host changes what a file has, another what it is: both stay, whoever was cut off.
/// Proves S9.4.
#[test]
fn attributes_and_data_that_two_hosts_changed_merge() {
    let Some(world) = World::new() else { return };
    let (a, b) = (world.mount(&world.a), world.mount_with(&world.b, CLOSE));
    sh(a.path(), "for f in one two; do echo before > $f; chmod 644 $f; done");
    let data =
        |name: &'static str| move |dir: &Path| drop(sh(dir, &format!("echo after > {name}")));
    let attributes = |name: &'static str| {
        move |dir: &Path| {
            let script = format!("chmod 640 {name}; setfattr -n user.colour -v red {name}");
            drop(sh(dir, &script));
        }
    };
    apart(&world, (&a, &b), data("one"), attributes("one"));
    apart(&world, (&a, &b), attributes("two"), data("two"));
    assert_eq!(conflicts(&world.a, &a), (Vec::new(), Some(0)));
    for mount in [&a, &b] {
        for name in ["one", "two"] {
            let script = format!(
                "cat {name}; stat -c %a {name}; getfattr --only-values -n user.colour {name}"
            );
            eventually("both changes are there", || sh(mount.path(), &script) == "after\n640\nred");
        }
        assert_eq!(copies(mount.path()), Vec::<PathBuf>::new());
    }
}

/// Two hosts make a directory of one name and fill it: there is one, with what either put into it,
/// and only what really differs has a copy beside it.
/// Proves S9.8.
#[test]
fn directories_that_two_hosts_made_become_one() {
    let Some(world) = World::new() else { return };
    let (mut a, b) = (world.mount(&world.a), world.mount_with(&world.b, CLOSE));
    let script = |host: &'static str| {
        move |dir: &Path| {
            sh(
                dir,
                &format!(
                    "mkdir -p 2026/11/{host}; cd 2026/11
                     for i in $(seq 100); do echo {host} $i > {host}-$i; done
                     echo {host} > both; echo x > {host}/x; ln {host}/x link-{host}; \
                     ln -s both to-{host}"
                ),
            );
        }
    };
    let is_merged = |mount: &SegueMount| {
        let names = sh(mount.path(), "ls; ls 2026; ls 2026/11 | grep -vc conflict");
        names.split_whitespace().eq(["2026", "11", "207"])
    };
    apart(&world, (&a, &b), script("ours"), script("theirs"));
    // A mount that dies in the middle of it goes on when it is there again.
    a.kill9().unwrap();
    let a = world.mount(&world.a);
    eventually("there is one directory", || is_merged(&a));
    a.sync().unwrap();
    eventually("also there", || is_merged(&b));
    for mount in [&a, &b] {
        let within = mount.path().join("2026/11");
        assert_eq!(
            sh(&within, "cat both ours-7 theirs-7 ours/x theirs/x"),
            "theirs\nours 7\ntheirs 7\nx\nx\n"
        );
        let copy = copies(mount.path());
        let [copy] = &copy[..] else { panic!("{copy:?}") };
        assert!(copy.starts_with("2026/11") && copy.to_string_lossy().contains("both.conflict-"));
        assert_eq!(fs::read_to_string(mount.path().join(copy)).unwrap(), "ours\n");
    }
    // Whoever comes later has nothing of it to deal with.
    sh(b.path(), "echo more > 2026/11/ours/more; rm 2026/11/theirs-1");
    eventually("it is one directory for both", || a.path().join("2026/11/ours/more").exists());
}

/// Two hosts unpack one release where there was nothing: it is there once, and what differs has a
/// copy beside. Proves S9.7.
#[test]
fn files_that_two_hosts_made_alike_become_one() {
    let Some(world) = World::new() else { return };
    let (mut a, b) = (world.mount(&world.a), world.mount_with(&world.b, CLOSE));
    let release = world.local("release");
    for dir in ["", "docs", "docs/deep"] {
        let dir = release.join(dir);
        fs::create_dir_all(&dir).unwrap();
        for (name, len) in
            [("empty", 0), ("small", 3_000), ("middle", 300_000), ("large", 5_000_000)]
        {
            fs::write(dir.join(name), noise(len as u64, len)).unwrap();
        }
    }
    sh(
        &release,
        "ln -s small docs/link; cp /bin/true run; touch tagged bytes mode; echo 1 > bytes",
    );
    // Times differ, as where each host builds the release by itself.
    let unpack = |differ: &'static str| {
        let release = release.display().to_string();
        move |dir: &Path| drop(sh(dir, &format!("cp -r {release}/. .; {differ}")))
    };
    let ours = unpack("echo 2 > bytes; chmod 600 mode; setfattr -n user.tag -v 1 tagged");
    apart(&world, (&a, &b), ours, unpack("true"));
    a.kill9().unwrap();
    let a = world.mount(&world.a);
    let beside = |mount: &SegueMount| {
        let named = copies(mount.path()).into_iter();
        let named = named.map(|copy| copy.to_string_lossy().split('.').next().unwrap().to_string());
        named.collect::<Vec<_>>()
    };
    for mount in [&a, &b] {
        eventually("only what differs stands beside", || {
            beside(mount) == ["bytes", "mode", "tagged"]
        });
        let mut there = tree::read_contents(mount.path());
        there.retain(|path, _| !path.to_string_lossy().contains(".conflict-"));
        assert!(there == tree::read_contents(&release), "{:?}", there.keys());
    }
    assert_eq!(
        sh(b.path(), "cat bytes.*; stat -c %a mode.*; getfattr --only-values tagged.*"),
        "2\n600\n1"
    );
    let (listed, code) = conflicts(&world.a, &a);
    assert_eq!((listed.len(), code), (3, Some(5)), "{listed:?}");
    // A copy that becomes the same later goes, too.
    sh(a.path(), "cp bytes bytes.conflict-*; chmod 644 mode.*");
    eventually("the tagged one is left", || beside(&a) == ["tagged"]);
    assert_eq!(conflicts(&world.a, &a).0.len(), 1);
}

/// A directory of another owner's mode stays beside, whatever is in it.
/// Proves S4.7, S9.8.
#[test]
fn directories_that_are_not_alike_stay_beside() {
    let Some(world) = World::new() else { return };
    let (a, b) = (world.mount(&world.a), world.mount_with(&world.b, CLOSE));
    let ours = |dir: &Path| drop(sh(dir, "mkdir -m 700 d; echo ours > d/ours"));
    let theirs = |dir: &Path| drop(sh(dir, "mkdir d; echo theirs > d/theirs"));
    apart(&world, (&a, &b), ours, theirs);
    let (listed, code) = conflicts(&world.a, &a);
    assert_eq!((listed.len(), code), (1, Some(5)), "{listed:?}");
    let copy = PathBuf::from(listed[0]["path"].as_str().unwrap());
    assert_eq!(fs::read_to_string(copy.join("ours")).unwrap(), "ours\n");
    let refused = segue(&world.a, &["resolve", arg(&copy), "--theirs"]);
    assert!(refused.code == Some(1) && refused.err.contains("is a directory"), "{refused:?}");
    let kept = segue(&world.a, &["resolve", arg(&copy), "--both"]);
    assert_eq!(kept.code, Some(0), "{kept:?}");
    assert_eq!(conflicts(&world.a, &a), (Vec::new(), Some(0)));
    assert!(copy.join("ours").exists());
}

/// `segue conflicts` lists the copies, and `resolve` does with each what its user says.
/// Proves S10.1, S10.2, S10.6.
#[test]
fn a_user_says_which_side_stays() {
    let Some(world) = World::new() else { return };
    let (a, b) = (world.mount(&world.a), world.mount_with(&world.b, CLOSE));
    let names = ["ours", "theirs", "both", "other"];
    for name in names {
        save(&a.path().join(name), b"before").unwrap();
    }
    let write = |text: &'static str| {
        move |dir: &Path| {
            names.iter().for_each(|name| save(&dir.join(name), text.as_bytes()).unwrap())
        }
    };
    apart(&world, (&a, &b), write("of a"), write("of b"));
    let (listed, code) = conflicts(&world.a, &a);
    assert_eq!((listed.len(), code), (4, Some(5)));
    for conflict in &listed {
        let (path, of) = (conflict["path"].as_str().unwrap(), conflict["of"].as_str().unwrap());
        assert!(path.starts_with(&format!("{of}.conflict-")), "{conflict}");
        assert_eq!((&conflict["kind"], &conflict["bytes"]), (&"copy".into(), &4.into()));
        assert!(conflict["time_seconds"].as_f64().unwrap() > 1.7e9, "{conflict}");
    }
    let shown = segue(&world.a, &["conflicts", arg(a.path())]).out;
    assert!(shown.contains("beside") && shown.contains("theirs.conflict-"), "{shown}");
    let resolve = |name: &str, side: &str| {
        let ended = segue(&world.a, &["resolve", arg(&a.path().join(name)), side]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
    };
    resolve("ours", "--ours");
    resolve("theirs", "--theirs");
    resolve("both", "--both");
    // Or a file that is listed there goes before it is looked at.
    a.sync().unwrap();
    // Another host's user deals with the last one.
    let copy = copies(b.path()).into_iter().find(|path| {
        path.starts_with("other.conflict-") || path.to_string_lossy().starts_with("other.conflict-")
    });
    let ended = segue(&world.b, &["resolve", arg(&b.path().join(copy.unwrap())), "--ours"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    a.sync().unwrap();
    b.sync().unwrap();
    eventually("they are gone here, too", || conflicts(&world.a, &a) == (Vec::new(), Some(0)));
    for mount in [&a, &b] {
        eventually("both see what was chosen", || {
            let of = |name: &str| fs::read_to_string(mount.path().join(name)).unwrap();
            names.map(of) == ["of a", "of b", "of b", "of a"]
        });
        let left = copies(mount.path());
        assert!(
            left.len() == 1 && left[0].to_string_lossy().starts_with("both.conflict-"),
            "{left:?}"
        );
    }
    let nothing = segue(&world.a, &["resolve", arg(&a.path().join("ours")), "--ours"]);
    assert!(nothing.code == Some(3) && nothing.err.contains("no conflict is known"), "{nothing:?}");
}

/// Programs merge copies with what has the name: one that is given, and those that are configured.
/// What one makes stays with the file's mode; where it fails both stay.
/// Proves S10.4, S10.5.
#[test]
fn a_program_merges_both_sides() {
    let Some(world) = World::new() else { return };
    let (a, b) = (world.mount(&world.a), world.mount_with(&world.b, CLOSE));
    let names = ["todo", "refs.bib", "other"];
    for name in names {
        save(&a.path().join(name), b"1\n").unwrap();
    }
    sh(a.path(), "chmod 640 todo");
    let add = |line: &'static str| {
        move |dir: &Path| {
            names.iter().for_each(|name| drop(sh(dir, &format!("echo {line} >> {name}"))))
        }
    };
    apart(&world, (&a, &b), add("ours"), add("theirs"));
    assert_eq!(conflicts(&world.a, &a).0.len(), 3);
    let todo = a.path().join("todo");
    let resolve = |args: &[&str]| segue(&world.a, &[&["resolve"], args].concat());
    let by = |program: &str| resolve(&[arg(&todo), "--merge", program]);
    let no_place = by("true");
    assert!(no_place.code == Some(2) && no_place.err.contains("without %A"), "{no_place:?}");
    // With no base all that differs is in conflict.
    let failed = by("git merge-file -q %A %O %B");
    assert!(failed.code == Some(5) && failed.err.contains("both stay"), "{failed:?}");
    let changed = by(&format!("echo later >> {}; cat %B >> %A", todo.display()));
    assert!(changed.code == Some(5) && changed.err.contains("changed meanwhile"), "{changed:?}");
    assert_eq!(fs::read_to_string(&todo).unwrap(), "1\ntheirs\nlater\n");
    let merged = by("git merge-file --union %A %O %B");
    assert_eq!(merged.code, Some(0), "{merged:?}");
    let unknown = resolve(&[arg(&a.path().join("refs.bib")), "--merge"]);
    assert!(unknown.code == Some(1) && unknown.err.contains("config.toml"), "{unknown:?}");
    let config = world.a.home().join(".config/segue");
    fs::create_dir_all(&config).unwrap();
    let rules = [("*.txt", "false %A"), ("*.bib", "sort -u %A %B -o %A")];
    let rules = rules.map(|(pattern, program)| {
        format!("[[merge]]\npattern = '{pattern}'\nprogram = '{program}'\n")
    });
    fs::write(config.join("config.toml"), rules.concat()).unwrap();
    // Not of other tests' mounts, which are this user's, too.
    let none = resolve(&[arg(&todo), "--all", "--merge"]);
    let words = "no conflict copies with a merge program";
    assert!(none.code == Some(0) && none.out.starts_with(words), "{none:?}");
    let all = json(&world.a, &["resolve", arg(a.path()), "--all", "--merge"]);
    let resolved = all["resolved"].as_array().unwrap();
    assert_eq!(resolved.len(), 1, "{all}");
    assert!(resolved[0]["path"].as_str().unwrap().contains("refs.bib.conflict-"), "{all}");
    let (listed, _) = conflicts(&world.a, &a);
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0]["of"], arg(&a.path().join("other")));
    a.sync().unwrap();
    for mount in [&a, &b] {
        let is_merged = || {
            let script = "stat -c %a todo; sort todo; cat refs.bib";
            sh(mount.path(), script)
                .split_whitespace()
                .eq(["640", "1", "later", "ours", "theirs", "1", "ours", "theirs"])
        };
        eventually("both see what was made", is_merged);
        let copies = copies(mount.path());
        assert!(
            copies.len() == 1 && copies[0].to_string_lossy().starts_with("other."),
            "{copies:?}"
        );
    }
}

/// A disk damages what tells of a copy: it is listed all the same, with what to do, until its user
/// says that it is dealt with.
/// Proves S10.7.
#[test]
fn a_copy_of_which_only_a_damaged_file_tells_is_listed() {
    let Some(world) = World::new() else { return };
    let cache = world.local("cache");
    let options = format!("cache-dir={}", arg(&cache));
    let mut a = world.mount_with(&world.a, &options);
    let b = world.mount_with(&world.b, CLOSE);
    save(&a.path().join("notes"), b"before").unwrap();
    let write =
        |text: &'static str| move |dir: &Path| save(&dir.join("notes"), text.as_bytes()).unwrap();
    apart(&world, (&a, &b), write("of a"), write("of b"));
    assert_eq!(conflicts(&world.a, &a).0.len(), 1);
    a.umount(&[]).unwrap();
    drop(a);
    let note = PathBuf::from(sh(&cache, "ls -d $PWD/*/conflicts/*.json").trim());
    fs::write(&note, "{").unwrap();
    let a = world.mount_with(&world.a, &options);
    let count = || json(&world.a, &["status", arg(a.path())])["mounts"][0]["conflicts"].clone();
    assert_eq!(count(), 1);
    let (listed, code) = conflicts(&world.a, &a);
    assert_eq!((listed.len(), code), (1, Some(5)));
    assert_eq!((&listed[0]["kind"], &listed[0]["path"]), (&"copy".into(), &arg(&note).into()));
    let why = listed[0]["why"].as_str().unwrap();
    let find = format!("find {} -name '*.conflict-*'", a.path().display());
    let forget = format!("segue resolve {} --both", note.display());
    assert!(
        why.contains("cannot be read") && why.contains(&find) && why.contains(&forget),
        "{why}"
    );
    assert!(segue(&world.a, &["conflicts", arg(a.path())]).out.contains(why));
    // Its user does as he is told.
    let unknown = segue(&world.a, &["resolve", arg(&note), "--theirs"]);
    assert!(unknown.code == Some(1) && unknown.err.contains(&find), "{unknown:?}");
    let copy = PathBuf::from(sh(a.path(), &find).trim());
    for (path, side) in [(&copy, "--ours"), (&note, "--both")] {
        let ended = segue(&world.a, &["resolve", arg(path), side]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
    assert_eq!(fs::read_to_string(a.path().join("notes")).unwrap(), "of a");
    assert_eq!((conflicts(&world.a, &a), count()), ((Vec::new(), Some(0)), 0.into()));
    assert!(!note.exists());
    let again = segue(&world.a, &["resolve", arg(&note), "--both"]);
    assert_eq!(again.code, Some(3), "{again:?}");
}

/// What the server refused after the call is listed with its data, and goes once there is room.
/// Proves S10.1, S10.3, S20.4.
#[test]
fn what_was_refused_is_written_again_or_dropped() {
    for _ in 0..5 {
        let Some(world) = World::new() else { return };
        if three_refused_files_are_dealt_with(&world) {
            return;
        }
    }
    panic!("a write was cut in two each time");
}

/// False if a file became several changes: the timer that sends what is open came in the middle.
fn three_refused_files_are_dealt_with(world: &World) -> bool {
    let data = arg(world.server.data());
    let quota = |size: &str| {
        let set = ["volume", "set", "home", "--data", data, "--quota", size];
        let ended = segue(&world.serving, &set);
        assert_eq!(ended.code, Some(0), "{ended:?}");
    };
    let a = world.mount(&world.a);
    let names = ["again", "beside", "dropped"];
    for name in names {
        save(&a.path().join(name), b"before").unwrap();
    }
    save(&a.path().join("kept"), b"before").unwrap();
    a.sync().unwrap();
    world.a.link_down().unwrap();
    world.lose_link(&world.a, &a);
    quota("1M");
    for (seed, name) in (1..).zip(names) {
        save(&a.path().join(name), &noise(seed, 3_000_000)).unwrap();
    }
    world.a.link_up().unwrap();
    eventually("all are refused", || {
        let log = json(&world.a, &["log", arg(a.path())]);
        log["records"].as_array().unwrap().is_empty()
    });
    let (listed, code) = conflicts(&world.a, &a);
    assert_eq!(code, Some(5));
    if listed.len() != 3 {
        return false;
    }
    assert!(
        listed.iter().all(|one| one["kind"] == "refused" && one["change"] == "store"),
        "{listed:?}"
    );
    assert_eq!(json(&world.a, &["status", arg(a.path())])["mounts"][0]["refused"], listed.len());
    // Nothing waits, and yet the server does not have it.
    for (scope, code, count) in [("", 7, "3"), ("again", 7, "1"), ("kept", 0, "0")] {
        let ended = segue(&world.a, &["sync", "--json", arg(&a.path().join(scope))]);
        let said = ended.out.contains(&format!("\"refused\":{count}"));
        assert!(ended.code == Some(code) && said, "{scope}: {ended:?}");
        assert_eq!(ended.err.contains("'segue conflicts'"), code == 7, "{scope}: {ended:?}");
    }
    quota("none");
    let resolve = |name: &str, side: &str| {
        eventually("there is room", || {
            let ended = segue(&world.a, &["resolve", "--json", arg(&a.path().join(name)), side]);
            ended.code == Some(0)
        });
    };
    resolve("again", "--ours");
    resolve("beside", "--both");
    resolve("dropped", "--theirs");
    a.sync().unwrap();
    assert_eq!(conflicts(&world.a, &a), (Vec::new(), Some(0)));
    let b = world.mount(&world.b);
    assert!(fs::read(b.path().join("again")).unwrap() == noise(1, 3_000_000));
    let beside = tree::read_contents(b.path()).into_keys();
    let beside = beside.filter(|path| path.to_string_lossy().starts_with("beside.refused-"));
    let beside: Vec<PathBuf> = beside.collect();
    assert_eq!(beside.len(), 1, "{beside:?}");
    assert!(fs::read(b.path().join(&beside[0])).unwrap() == noise(2, 3_000_000));
    assert_eq!(fs::read(b.path().join("dropped")).unwrap().len(), 6);
    true
}

/// Who removes or replaces a file while he is cut off, and what another host did with it meanwhile:
/// that stays, and so does what was made in a directory which the other one removed.
/// Proves S9.9, S9.12, S9.15.
#[test]
fn what_was_not_seen_is_not_removed() {
    let Some(world) = World::new() else { return };
    let (a, b) = (world.mount(&world.a), world.mount_with(&world.b, CLOSE));
    for name in ["edited", "replaced", "untouched"] {
        save(&a.path().join(name), b"before").unwrap();
    }
    sh(a.path(), "mkdir d e; cp edited d/old");
    let ours = |dir: &Path| {
        sh(
            dir,
            "rm edited untouched
             printf ours > new; mv new replaced
             printf ours > d/new; mkdir -p d/sub; printf deep > d/sub/deep; printf more > e/more",
        );
    };
    let theirs = |dir: &Path| {
        sh(dir, "printf theirs > edited; printf theirs > replaced; rm -r d");
    };
    apart(&world, (&a, &b), ours, theirs);
    for mount in [&a, &b] {
        let of = |name: &str| fs::read_to_string(mount.path().join(name)).unwrap();
        eventually("it is there again", || mount.path().join("edited").exists());
        assert_eq!([of("edited"), of("replaced"), of("e/more")], ["theirs", "theirs", "more"]);
        assert!(!mount.path().join("untouched").exists() && !mount.path().join("d").exists());
        let contents = copies(mount.path()).into_iter().map(|copy| {
            let name = copy.to_string_lossy().into_owned();
            let text = fs::read_to_string(mount.path().join(copy)).unwrap_or_default();
            (name.split(".conflict-").next().unwrap().to_owned(), text)
        });
        let mut contents: Vec<(String, String)> = contents.collect();
        contents.sort();
        let kept: Vec<(&str, &str)> = contents
            .iter()
            .map(|(name, text)| (name.rsplit('/').next().unwrap(), text.as_str()))
            .collect();
        assert!(
            kept.contains(&("replaced", "ours")) && kept.contains(&("new", "ours")),
            "{kept:?}"
        );
        assert_eq!(sh(mount.path(), "cat .segue-conflicts/*/sub.conflict-*/deep"), "deep");
    }
    let (listed, _) = conflicts(&world.a, &a);
    let refused: Vec<&Value> = listed.iter().filter(|one| one["kind"] == "refused").collect();
    let [refused] = refused[..] else { panic!("{listed:?}") };
    assert!(
        refused["path"].as_str().unwrap().ends_with("/edited") && refused["change"] == "unlink"
    );
    let edited = a.path().join("edited");
    let no_data = segue(&world.a, &["resolve", arg(&edited), "--ours"]);
    assert!(no_data.code == Some(1) && no_data.err.contains("do it again"), "{no_data:?}");
    let dropped = segue(&world.a, &["resolve", arg(&edited), "--theirs"]);
    assert_eq!(dropped.code, Some(0), "{dropped:?}");
    // Now it was seen.
    fs::remove_file(&edited).unwrap();
    a.sync().unwrap();
    eventually("it is gone", || !b.path().join("edited").exists());
}

/// Of two changes of a name the first stands, and the second is listed as refused. Data follow
/// their file.
/// Proves S9.14, S9.16, S9.17, S9.18, S9.19.
#[test]
fn of_two_changes_of_a_name_the_first_stands() {
    let Some(world) = World::new() else { return };
    let (a, b) = (world.mount(&world.a), world.mount_with(&world.b, CLOSE));
    sh(
        a.path(),
        "echo 1 > mode; echo 2 > moved; echo 3 > written; mkdir p q full; echo 4 > p/file",
    );
    let theirs = |dir: &Path| {
        sh(dir, "rm mode; mv moved theirs; mv written away; mv p q/p; echo 5 > full/file");
    };
    let ours = |dir: &Path| {
        sh(dir, "chmod 600 mode; mv moved ours; echo more >> written; mv q p/q; rmdir full");
    };
    apart(&world, (&a, &b), ours, theirs);
    for mount in [&a, &b] {
        let shown = || sh(mount.path(), "find . | sort; cat theirs away q/p/file full/file");
        let names = ". ./away ./full ./full/file ./q ./q/p ./q/p/file ./theirs";
        let wanted: Vec<&str> = names.split(' ').chain(["2", "3", "more", "4", "5"]).collect();
        eventually("both see the same", || shown().split_whitespace().eq(wanted.iter().copied()));
    }
    let (listed, _) = conflicts(&world.a, &a);
    let mut refused: Vec<&str> = listed.iter().map(|one| one["change"].as_str().unwrap()).collect();
    refused.sort_unstable();
    assert_eq!(refused, ["rename", "rename", "rmdir", "setattr"], "{listed:?}");
}

fn rename(dir: &Path, from: &str, to: &str, flags: RenameFlags) -> std::io::Result<()> {
    Ok(renameat_with(CWD, dir.join(from), CWD, dir.join(to), flags)?)
}

/// As mv asks for it where nothing has the name yet. Both have succeeded; the second was refused.
/// Proves S4.7, S9.11.
#[test]
fn of_two_that_were_renamed_alike_the_second_stands_beside() {
    let Some(world) = World::new() else { return };
    let (a, b) = (world.mount(&world.a), world.mount(&world.b));
    sh(a.path(), "echo ours > mine; echo theirs > yours");
    let give = |from| move |dir: &Path| rename(dir, from, "name", RenameFlags::NOREPLACE).unwrap();
    apart(&world, (&a, &b), give("mine"), give("yours"));
    for mount in [&a, &b] {
        eventually("one is beside", || copies(mount.path()).len() == 1);
        let shown = sh(mount.path(), "ls; cat name name.conflict-*");
        let shown: Vec<&str> = shown.split_whitespace().collect();
        let ["name", copy, "theirs", "ours"] = shown[..] else { panic!("{shown:?}") };
        assert!(copy.starts_with("name.conflict-"), "{copy}");
    }
    let (listed, _) = conflicts(&world.a, &a);
    assert!(listed.len() == 1 && listed[0]["kind"] != "refused", "{listed:?}");
}

/// Who waits for the server is told that the name was taken meanwhile, and what he renamed has its
/// old name. It was removed.
/// Proves S4.13.
#[test]
fn a_rename_that_hears_of_a_taken_name_is_taken_back() {
    let Some(world) = World::new() else { return };
    let a = world.mount_with(&world.a, "write-back=sync,grace=60s");
    let b = world.mount(&world.b);
    sh(a.path(), "mkdir d e; echo ours | tee d/mine > e/mine; ls -R");
    let wait_for_records = |count: u64| {
        eventually("they are logged", || {
            json(&world.a, &["status", arg(a.path())])["mounts"][0]["log_records"] == count
        });
    };
    wait_for_records(0);
    world.a.link_down().unwrap();
    world.lose_link(&world.a, &a);
    std::thread::scope(|scope| {
        let rename = |dir: &'static str, flags| {
            let dir = a.path().join(dir);
            scope.spawn(move || rename(&dir, "mine", "name", flags))
        };
        let renamed = [rename("d", RenameFlags::NOREPLACE), rename("e", RenameFlags::empty())];
        wait_for_records(2);
        sh(b.path(), "echo theirs | tee d/name > e/name");
        b.sync().unwrap();
        world.a.link_up().unwrap();
        for renamed in renamed {
            assert_eq!(errno(renamed.join().unwrap()), Some(17), "EEXIST");
        }
    });
    a.sync().unwrap();
    for mount in [&a, &b] {
        let shown = || sh(mount.path(), "cat d/* e/*");
        eventually("nothing was renamed", || shown() == "ours\ntheirs\nours\ntheirs\n");
        assert_eq!(copies(mount.path()), Vec::<PathBuf>::new());
    }
    assert_eq!(conflicts(&world.a, &a), (Vec::new(), Some(0)));
}

/// The mount tells a name that is no text with U+FFFD, and `resolve` had removed or replaced the
/// file that is really called so.
/// Proves S10.9.
#[test]
fn a_name_that_is_no_text_is_not_taken_for_another() {
    let Some(world) = World::new() else { return };
    let (mount, other) = (world.mount(&world.a), world.mount_with(&world.b, CLOSE));
    let unclear = OsStr::from_bytes(b"\xff");
    save(&mount.path().join(unclear), b"base").unwrap();
    mount.sync().unwrap();
    world.a.link_down().unwrap();
    world.lose_link(&world.a, &mount);
    save(&mount.path().join(unclear), b"ours").unwrap();
    save(&other.path().join(unclear), b"theirs").unwrap();
    world.a.link_up().unwrap();
    mount.sync().unwrap();
    let names = || fs::read_dir(mount.path()).unwrap().map(|entry| entry.unwrap().file_name());
    eventually("there is a copy", || names().count() == 2);
    let copy = names().find(|name| name != unclear).unwrap();
    let innocent = [copy.as_os_str(), unclear].map(|name| {
        let path = mount.path().join(name.to_string_lossy().as_ref());
        fs::write(&path, "innocent").unwrap();
        path
    });
    for side in ["--ours", "--theirs", "--both"] {
        let mut command = world.a.command("segue");
        let ended = end(command.arg("resolve").arg(mount.path().join(&copy)).arg(side));
        assert!(ended.code == Some(1) && ended.err.contains("not valid UTF-8"), "{ended:?}");
    }
    assert!(innocent.iter().all(|path| fs::read(path).unwrap() == b"innocent"));
    assert_eq!(fs::read(mount.path().join(&copy)).unwrap(), b"ours");
    // A variable of the environment that is no text had ended every command.
    let mut status = world.a.command("segue");
    status.arg("status").arg(mount.path()).env("OTHER", OsStr::from_bytes(b"\xff"));
    assert_eq!(end(&mut status).code, Some(0));
}

/// Proves S11.9.
#[test]
fn commands_find_a_name_that_is_no_text() {
    let Some(world) = World::new() else { return };
    let mount = world.mount(&world.a);
    let unclear = mount.path().join(OsStr::from_bytes(b"\xff"));
    save(&unclear, b"bytes").unwrap();
    save(&mount.path().join("\u{fffd}"), b"another file").unwrap();
    for words in [&["where", "--json"][..], &["why", "--json"], &["push"], &["sync"]] {
        let ended = end(world.a.command("segue").args(words).arg(&unclear));
        assert_eq!(ended.code, Some(0), "{words:?}: {ended:?}");
        let size = serde_json::from_str::<Value>(&ended.out).ok().map(|reply| {
            let file = reply["files"].get(0).unwrap_or(&reply["where"]);
            file["size"].clone()
        });
        assert!(size.is_none_or(|size| size == 5), "{words:?}: {ended:?}");
    }
    let level = ["persist", "--lm", "close"];
    let ended = end(world.a.command("segue").args(level).arg(&unclear));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(
        segue(&world.a, &["where", "--json", arg(&mount.path().join("\u{fffd}"))])
            .out
            .contains("async")
    );
    fs::remove_file(&unclear).unwrap();
    let gone = end(world.a.command("segue").arg("where").arg(&unclear));
    assert_eq!(gone.code, Some(3), "{gone:?}");
}
