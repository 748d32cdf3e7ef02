//! What need not be sent any more: what was undone, removed or written anew before its turn came.

use std::fs::{self, File};
use std::io::Write as _;
use std::thread;

use segue_bed::LinkSpec;

use crate::levels::data_sent;
use crate::remount::cache_directory;
use crate::tree::noise;
use crate::world::{World, arg, eventually, json, save, segue, sh, wait_for_state};

/// How many changes wait, and how many bytes the server lacks.
fn waiting(world: &World, point: &std::path::Path) -> (u64, u64) {
    let status = json(&world.a, &["status", arg(point)]);
    let number = |key: &str| status["mounts"][0][key].as_u64().unwrap();
    (number("log_records"), number("unsafe_bytes"))
}

/// A build without a network, and `make clean`: nothing is left to be sent, also for a mount that
/// comes after a kill.
/// Proves S8.1, S8.4, S11.9.
#[test]
fn what_is_made_and_removed_offline_is_not_sent() {
    let Some(world) = World::new() else { return };
    let (mut mount, other) = (world.mount(&world.a), world.mount(&world.b));
    let here = mount.path().join("src");
    fs::create_dir(&here).unwrap();
    sh(
        &here,
        "printf 'int main(void) { return 0; }' > main.c
         printf \
         'program: out/main.o\\n\\tcc -g -o $@ $^\\nout/main.o: main.c\\n\\tmkdir -p out\\n' \
         > Makefile
         printf '\\tcc -g -save-temps=obj -c -o $@ $^\\nclean:\\n\\trm -rf out program\\n' \
         >> Makefile
         ls -la",
    );
    mount.sync().unwrap();
    world.a.link_down().unwrap();
    world.lose_link(&world.a, &mount);
    sh(&here, "make && ./program && ln program again && mv again more && ls out");
    let (records, bytes) = waiting(&world, mount.path());
    assert!(records > 5 && bytes > 10_000, "{records} {bytes}");
    sh(&here, "make clean && rm more && ls -la && test ! -e out");
    // But for when the directory was changed.
    assert_eq!(waiting(&world, mount.path()), (1, 0));
    assert_eq!(fs::read_dir(&here).unwrap().count(), 2);
    mount.kill9().unwrap();
    let mount = world.mount(&world.a);
    assert_eq!(waiting(&world, mount.path()), (1, 0));
    sh(&here, "test ! -e program && make && ./program");
    world.a.link_up().unwrap();
    wait_for_state(&world.a, &mount, "online");
    mount.sync().unwrap();
    sh(&other.path().join("src"), "./program && rm program && make && ./program");
    let data = arg(world.server.data());
    let check = segue(&world.serving, &["volume", "check", "home", "--data", data]);
    assert_eq!(check.code, Some(0), "{check:?}");
}

/// What is saved again and again without a network is sent once, as it was last.
/// Proves S8.2.
#[test]
fn what_is_saved_again_and_again_is_sent_once() {
    let Some(world) = World::new() else { return };
    let (mut mount, other) = (world.mount(&world.a), world.mount(&world.b));
    let (here, there) = (mount.path().join("report"), other.path().join("report"));
    save(&here, &noise(1, 300_000)).unwrap();
    save(&mount.path().join("journal"), b"first\n").unwrap();
    mount.sync().unwrap();
    world.a.link_down().unwrap();
    world.lose_link(&world.a, &mount);
    for round in 0..10 {
        // One after the other as programs do: anew, and at the end.
        sh(mount.path(), "head -c 300000 /dev/urandom > report");
        sh(mount.path(), &format!("echo line {round} >> journal"));
    }
    let (records, bytes) = waiting(&world, mount.path());
    assert!(records == 2 && (300_000..310_000).contains(&bytes), "{records} {bytes}");
    let (last, lines) = (fs::read(&here).unwrap(), fs::read(mount.path().join("journal")).unwrap());
    mount.kill9().unwrap();
    let mount = world.mount(&world.a);
    assert!(fs::read(&here).unwrap() == last);
    world.a.link_up().unwrap();
    wait_for_state(&world.a, &mount, "online");
    mount.sync().unwrap();
    eventually("it is there", || fs::read(&there).unwrap() == last);
    assert_eq!(fs::read(other.path().join("journal")).unwrap(), lines);
    assert!(lines.ends_with(b"line 8\nline 9\n"));
    let status = json(&world.a, &["status", arg(mount.path())]);
    assert_eq!(status["mounts"][0]["conflicts"], 0, "{status}");
}

/// Programs that save by a rename, with fsync and without: the last state is sent, and what it
/// replaces is what the first one replaced, also where another host has changed that meanwhile.
/// Proves S8.2, S11.9.
#[test]
fn what_is_saved_by_renames_is_sent_once() {
    let Some(world) = World::new() else { return };
    let (mut mount, other) = (world.mount(&world.a), world.mount(&world.b));
    let (here, there) = (mount.path().to_owned(), other.path().to_owned());
    sh(&here, "head -c 300000 /dev/urandom > report; echo first | tee notes both");
    mount.sync().unwrap();
    world.a.link_down().unwrap();
    world.lose_link(&world.a, &mount);
    sh(
        &here,
        "save() { dd bs=300000 count=1 iflag=fullblock status=none of=.new ${2-} && mv .new $1; }
         for i in $(seq 10); do save report < /dev/urandom; done
         for i in $(seq 10); do save new conv=fsync < /dev/urandom; done
         for i in $(seq 10); do sed -i \"s/\\$/ $i/\" notes; done
         for i in $(seq 10); do sed -i \"1i $i\" both; done",
    );
    let (records, bytes) = waiting(&world, &here);
    // sed sets mode and owner, too.
    assert!(records == 16 && (600_000..601_000).contains(&bytes), "{records} {bytes}");
    sh(&there, "echo theirs >> both");
    other.sync().unwrap();
    let expected = ["report", "new"].map(|name| fs::read(here.join(name)).unwrap());
    mount.kill9().unwrap();
    let mount = world.mount(&world.a);
    assert_eq!(waiting(&world, &here), (records, bytes));
    world.a.link_up().unwrap();
    wait_for_state(&world.a, &mount, "online");
    mount.sync().unwrap();
    for top in [&here, &there] {
        eventually("both have the last", || {
            ["report", "new"].map(|name| fs::read(top.join(name)).unwrap_or_default()) == expected
        });
        let text = sh(top, "cat notes both both.conflict-*");
        let ours = "10\n9\n8\n7\n6\n5\n4\n3\n2\n1\nfirst\n";
        assert_eq!(text, format!("first 1 2 3 4 5 6 7 8 9 10\nfirst\ntheirs\n{ours}"));
        assert_eq!(fs::read_dir(top).unwrap().count(), 5);
    }
    let data = arg(world.server.data());
    let check = segue(&world.serving, &["volume", "check", "home", "--data", data]);
    assert_eq!(check.code, Some(0), "{check:?}");
}

/// Who removes a file ends its upload.
/// Proves S8.3.
#[test]
fn a_removed_file_is_not_uploaded_to_the_end() {
    removed_while_it_is_uploaded("head -c 30000000 /dev/urandom > video");
}

/// So too of a file that was written for longer than five seconds, and is stored in parts.
/// Proves S8.3.
#[test]
fn no_part_of_a_removed_file_is_uploaded_to_the_end() {
    let part = "head -c 15000000 /dev/urandom";
    removed_while_it_is_uploaded(&format!("{{ {part}; sleep 7; {part}; }} > video"));
}

fn removed_while_it_is_uploaded(write: &str) {
    let Some(world) = World::new() else { return };
    let (mount, other) = (world.mount(&world.a), world.mount(&world.b));
    sh(mount.path(), "ls");
    world.a.set_link(LinkSpec::kb_per_s(256)).unwrap();
    sh(mount.path(), &format!("{write} && head -c 100000 /dev/urandom > note"));
    eventually("its name is there", || other.path().join("video").exists());
    eventually("it is on its way", || data_sent(&world.a, mount.path()) > 200_000);
    sh(mount.path(), "rm video");
    mount.sync().unwrap();
    assert!(data_sent(&world.a, mount.path()) < 15_000_000, "it was sent all the same");
    assert_eq!(waiting(&world, mount.path()), (0, 0));
    eventually("it is gone", || !other.path().join("video").exists());
    assert!(fs::read(other.path().join("note")).unwrap().len() == 100_000);
    let status = json(&world.a, &["status", arg(mount.path())]);
    assert_eq!(status["mounts"][0]["refused"], 0, "{status}");
}

/// It goes all the same where another host has given the file a further name.
/// Proves S6.18.
#[test]
fn what_has_another_name_elsewhere_is_sent() {
    let Some(world) = World::new() else { return };
    let (mount, other) = (world.mount(&world.a), world.mount(&world.b));
    sh(mount.path(), "echo first > file");
    mount.sync().unwrap();
    eventually("it is there", || other.path().join("file").exists());
    world.a.link_down().unwrap();
    world.lose_link(&world.a, &mount);
    sh(mount.path(), "head -c 300000 /dev/urandom > file");
    let written = fs::read(mount.path().join("file")).unwrap();
    sh(other.path(), "ln file further");
    other.sync().unwrap();
    sh(mount.path(), "rm file");
    world.a.link_up().unwrap();
    wait_for_state(&world.a, &mount, "online");
    mount.sync().unwrap();
    eventually("it is whole", || fs::read(other.path().join("further")).unwrap() == written);
    assert!(!other.path().join("file").exists());
}

/// Whoever has a file open writes on while `umount --now` sends what it can: what is synced then is
/// not in what is on its way, and not forgotten with it; and once the cache directory is said to be
/// in order nothing is written any more.
/// Proves S12.7.
#[test]
fn what_is_synced_while_the_mount_goes_is_kept() {
    let Some(world) = World::new() else { return };
    let base = world.local("cache");
    let options = format!("cache-dir={}", arg(&base));
    let mut mount = world.mount_with(&world.a, &options);
    sh(mount.path(), "ls");
    world.a.set_link(LinkSpec::kb_per_s(512)).unwrap();
    let small = mount.path().join("small");
    let mut open = File::create(&small).unwrap();
    save(&mount.path().join("large"), &noise(1, 600_000)).unwrap();
    let writer = thread::spawn(move || {
        let mut lines = 0;
        while open.write_all(b"a line\n").and_then(|()| open.sync_all()).is_ok() {
            lines += 1;
        }
        lines
    });
    eventually("there are lines", || fs::metadata(&small).unwrap().len() > 100);
    mount.umount(&["--now"]).unwrap();
    let synced: usize = writer.join().unwrap();
    drop(mount);
    let modified =
        |name| fs::metadata(cache_directory(&base).join(name)).unwrap().modified().unwrap();
    assert!(modified("update.log") <= modified("state.json"));
    world.a.set_link(LinkSpec::default()).unwrap();
    let mount = world.mount_with(&world.a, &options);
    mount.sync().unwrap();
    for mount in [&mount, &world.mount(&world.b)] {
        let lines = fs::read_to_string(mount.path().join("small")).unwrap().lines().count();
        assert!(lines >= synced, "{lines} lines of {synced}");
    }
}
