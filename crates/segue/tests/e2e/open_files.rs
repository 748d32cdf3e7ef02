//! What a host has open or mapped while another host changes, moves, replaces or removes it.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::tree::{hash, hash_of, noise};
use crate::world::{World, arg, close, eventually, save, sh};

/// Maps a file, and says what is in it whenever it is asked.
const MAPPER: &str = r#"
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static sigjmp_buf beyond;

static void bus(int signal) {
    (void)signal;
    siglongjmp(beyond, 1);
}

int main(int argc, char **argv) {
    size_t len = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
    int file = open(argv[1], O_RDONLY);
    const volatile unsigned char *at = mmap(NULL, len, PROT_READ, MAP_SHARED, file, 0);
    if (file < 0 || at == MAP_FAILED)
        return 1;
    signal(SIGBUS, bus);
    for (char line[8]; fgets(line, sizeof line, stdin);) {
        if (sigsetjmp(beyond, 1)) {
            puts("nothing");
        } else {
            unsigned sum = 0;
            for (size_t i = 0; i < len; i++)
                sum += at[i];
            printf("%u\n", sum);
        }
        fflush(stdout);
    }
}
"#;

struct Mapper {
    child: Child,
    asks: ChildStdin,
    says: BufReader<ChildStdout>,
}

impl Mapper {
    fn of(world: &World, file: &Path, len: usize) -> Mapper {
        let dir = world.local("mapper");
        fs::write(dir.join("mapper.c"), MAPPER).unwrap();
        sh(&dir, "cc -O1 -o mapper mapper.c");
        let mut command = Command::new(dir.join("mapper"));
        command.args([arg(file), &len.to_string()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (asks, says) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Mapper { child, asks, says: BufReader::new(says) }
    }

    /// The sum of its bytes, if there are so many.
    fn sum(&mut self) -> Option<usize> {
        self.asks.write_all(b"?\n").unwrap();
        let mut line = String::new();
        self.says.read_line(&mut line).unwrap();
        line.trim().parse().ok()
    }
}

impl Drop for Mapper {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A map shows what another host has written, and of a file that it made shorter nothing beyond its
/// end; of one that it replaced or removed what was there.
/// Proves S6.4.
#[test]
fn a_map_follows_another_host() {
    const LEN: usize = 300_000;
    let Some(world) = World::new() else { return };
    let (mount, other) = world.closing_mounts();
    let (here, there) = (mount.path().join("file"), other.path().join("file"));
    save(&there, &[1; LEN]).unwrap();
    let mut map = Mapper::of(&world, &here, LEN);
    assert_eq!(map.sum(), Some(LEN));
    let file = File::options().write(true).open(&there).unwrap();
    file.write_all_at(&[2; 1000], 5000).unwrap();
    close(file).unwrap();
    eventually("the change is in the map", || map.sum() == Some(LEN + 1000));
    File::create(&there).unwrap();
    eventually("the map is empty", || map.sum().is_none());
    save(&there, &[3; LEN]).unwrap();
    // Who reads beyond the end that is known is not asked about by the kernel.
    eventually("the map is full again", || {
        fs::metadata(&here).is_ok() && map.sum() == Some(3 * LEN)
    });
    save(&other.path().join("new"), &[4; LEN]).unwrap();
    fs::rename(other.path().join("new"), &there).unwrap();
    eventually("the name leads to the new file", || hash(&here) == hash_of(&[4; LEN]));
    assert_eq!(map.sum(), Some(3 * LEN));
    fs::remove_file(&there).unwrap();
    eventually("the name is gone", || !here.exists());
    assert_eq!(map.sum(), Some(3 * LEN));
}

/// Who has a file open goes on with it, and who works in a directory stays there, wherever
/// another host moves what holds them.
#[test]
fn a_directory_above_open_files_is_moved() {
    let Some(world) = World::new() else { return };
    let (mount, other) = world.closing_mounts();
    let (here, there) = (mount.path(), other.path());
    sh(here, "mkdir -p one/below/deep two; echo first >one/below/deep/file");
    let path = here.join("one/below/deep/file");
    let file = File::options().append(true).read(true).open(path).unwrap();
    // It works in the directory until it is told to look.
    let mut worker = Command::new("sh")
        .args(["-c", "read line; cat file; echo more >made; readlink /proc/self/cwd"])
        .current_dir(here.join("one/below/deep"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    eventually("the other host sees it", || there.join("one/below/deep/file").exists());
    fs::rename(there.join("one/below"), there.join("two/moved")).unwrap();
    eventually("the move is seen", || here.join("two/moved/deep/file").exists());
    assert!(!here.join("one/below").exists());
    (&file).write_all(b"second\n").unwrap();
    assert_eq!(
        file.metadata().unwrap().ino(),
        fs::metadata(here.join("two/moved/deep/file")).unwrap().ino()
    );
    close(file).unwrap();
    let seen = || fs::read_to_string(there.join("two/moved/deep/file")).unwrap();
    assert_eq!(seen(), "first\nsecond\n");
    worker.stdin.take().unwrap().write_all(b"\n").unwrap();
    let output = worker.wait_with_output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let expected = format!("first\nsecond\n{}\n", here.join("two/moved/deep").display());
    assert_eq!(said, expected);
    eventually("what it made is seen", || {
        fs::read(there.join("two/moved/deep/made")).is_ok_and(|text| text == b"more\n")
    });
    sh(there, "test -z \"$(ls -A one)\" && test ! -e .segue-conflicts");
}

/// Each name of a file is the file, on both hosts, until the last is gone.
/// Proves S9.10.
#[test]
fn names_of_one_file_on_two_hosts() {
    let Some(world) = World::new() else { return };
    let (mount, other) = world.closing_mounts();
    let (here, there) = (mount.path(), other.path());
    save(&here.join("first"), &noise(1, 50_000)).unwrap();
    eventually("it is there", || there.join("first").exists());
    fs::hard_link(there.join("first"), there.join("second")).unwrap();
    eventually("the new name is seen", || here.join("second").exists());
    let ino = |path: &Path| fs::metadata(path).map(|meta| (meta.ino(), meta.nlink())).ok();
    eventually("both count two", || {
        ino(&here.join("first")) == ino(&here.join("second"))
            && ino(&here.join("first")).is_some_and(|(_, links)| links == 2)
    });
    let held = File::open(here.join("first")).unwrap();
    // By one name there, by the other here, at once.
    let file = File::options().write(true).open(there.join("second")).unwrap();
    file.write_all_at(b"changed", 10).unwrap();
    close(file).unwrap();
    let mut expected = noise(1, 50_000);
    expected[10..17].copy_from_slice(b"changed");
    assert_eq!(hash(&here.join("first")), hash_of(&expected));
    fs::remove_file(there.join("first")).unwrap();
    eventually("one name is left", || !here.join("first").exists());
    eventually("which is counted", || held.metadata().unwrap().nlink() == 1);
    assert_eq!(hash(&here.join("second")), hash_of(&expected));
    fs::remove_file(here.join("second")).unwrap();
    let mut seen = vec![0; expected.len()];
    held.read_exact_at(&mut seen, 0).unwrap();
    assert_eq!(hash_of(&seen), hash_of(&expected));
    assert_eq!(held.metadata().unwrap().nlink(), 0);
    eventually("no name is left", || !there.join("second").exists());
}

/// A file that another host removed is written on, and closed: what was written is not lost. What
/// this host removed itself goes with the last close.
/// Proves S6.19.
#[test]
fn what_is_written_to_a_removed_file() {
    let Some(world) = World::new() else { return };
    let (mount, other) = world.closing_mounts();
    let (here, there) = (mount.path(), other.path());
    for name in ["theirs", "mine"] {
        save(&here.join(name), b"before").unwrap();
    }
    let open = |name: &str| File::options().append(true).open(here.join(name)).unwrap();
    let (theirs, mine) = (open("theirs"), open("mine"));
    eventually("they are there", || there.join("mine").exists());
    fs::remove_file(there.join("theirs")).unwrap();
    fs::remove_file(here.join("mine")).unwrap();
    eventually("the removal is seen", || !here.join("theirs").exists());
    for mut file in [theirs, mine] {
        file.write_all(b" and after").unwrap();
        close(file).unwrap();
    }
    mount.sync().unwrap();
    let copies = || sh(there, "grep -rl 'before and after' . || true");
    eventually("what was written is kept", || copies().contains(".conflict-"));
    assert_eq!(copies().lines().count(), 1, "{}", copies());
}
