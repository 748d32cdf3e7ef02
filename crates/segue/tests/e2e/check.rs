//! `segue volume check`: nothing is found in a volume that is whole, and in a damaged one
//! exactly those files that cannot be read.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::build::prepare;
use crate::tree::{self, hash_of, noise};
use crate::worker::{Acknowledged, Worker};
use crate::world::{Ended, World, arg, save, segue, sh};

const EIO: i32 = 5;

/// Runs `segue volume check` on the server's data.
pub(crate) fn check(world: &World, args: &[&str]) -> Ended {
    let data = arg(world.server.data());
    segue(&world.serving, &[&["volume", "check", "--data", data], args].concat())
}

/// The lines of a check of volume home, that ended with `code`.
fn check_json(world: &World, args: &[&str], code: i32) -> Vec<Value> {
    let ended = check(world, &[args, &["home", "--json"]].concat());
    assert_eq!(ended.code, Some(code), "{ended:?}");
    ended.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(crate) fn stop_server(world: &World) {
    let ended = segue(&world.serving, &["serve", "--stop", "--data", arg(world.server.data())]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

/// A volume with a source tree, links, holes, and a file that is open without a name is clean:
/// while the server serves, while a host writes, and while the server is down. Everything in
/// it was looked at.
#[test]
fn a_whole_volume_is_clean() {
    let Some(mut world) = World::new() else { return };
    let mut mount = world.mount(&world.a);
    let source = prepare(&world.local("source"));
    sh(mount.path(), &format!("cp -a '{}' tree", arg(&source)));
    sh(mount.path(), "ln tree/demo.c tree/lib/again.c; mv tree/demo.c tree/moved.c");
    let sparse = File::create(mount.path().join("sparse")).unwrap();
    sparse.write_all_at(&noise(1, 50_000), 3 << 30).unwrap();
    sparse.set_len(4 << 30).unwrap();
    drop(sparse);
    let mut held = File::create(mount.path().join("held")).unwrap();
    held.write_all(&noise(2, 100_000)).unwrap();
    fs::remove_file(mount.path().join("held")).unwrap();
    held.write_all(&noise(3, 100_000)).unwrap();
    held.sync_all().unwrap();
    mount.sync().unwrap();
    for args in [&["home", "--rate", "0"][..], &["--quick"]] {
        let ended = check(&world, args);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert!(ended.out.starts_with("home: clean; "), "{ended:?}");
    }

    let dir = mount.path().join("dir");
    fs::create_dir(&dir).unwrap();
    let done = Acknowledged::default();
    let worker = Worker::start(&world.a, &dir, "w", &done);
    for _ in 0..4 {
        worker.wait_for(3);
        check_json(&world, &["--rate", "0"], 0);
    }
    worker.finish();
    drop(held);
    mount.sync().unwrap();

    let counted = sh(mount.path(), "find . | wc -l; find . -printf '%i\\n' | sort -u | wc -l");
    let counted: Vec<u64> = counted.split_whitespace().map(|n| n.parse().unwrap()).collect();
    let before = check_json(&world, &["--rate", "0"], 0);
    mount.umount(&[]).unwrap();
    stop_server(&world);
    let [line] = &check_json(&world, &[], 0)[..] else { panic!("one line for a volume") };
    assert_eq!(line["line"], "checked");
    assert_eq!((line["ok"].as_bool(), line["findings"].as_u64()), (Some(true), Some(0)));
    // The root has no name.
    assert_eq!(line["names"].as_u64(), Some(counted[0] - 1), "{line}");
    assert_eq!(line["inodes"].as_u64(), Some(counted[1]), "{line}");
    assert!(line["chunks"].as_u64().unwrap() > 50, "{line}");
    assert_eq!(before, std::slice::from_ref(line), "the same with the server up");
    world.server.restart().unwrap();
    let mount = world.mount(&world.b);
    done.check(&mount.path().join("dir"), "after all checks");
}

/// What every file below `dir` is, by path from there.
type Contents = BTreeMap<PathBuf, String>;

/// Reads every file below the mount on a host that has nothing cached: each is as `expected`,
/// or fails with EIO. Returns the inodes of those that fail, and the number of others.
fn read_all(top: &Path, expected: &Contents) -> (BTreeSet<u64>, usize) {
    let (mut failed, mut whole) = (BTreeSet::new(), 0);
    for (name, contents) in expected {
        let path = top.join(name);
        if !fs::symlink_metadata(&path).unwrap().is_file() {
            continue;
        }
        let (mut file, mut bytes) = (File::open(&path).unwrap(), Vec::new());
        match file.read_to_end(&mut bytes) {
            Ok(_) => {
                assert_eq!(&hash_of(&bytes), contents, "{}", name.display());
                whole += 1;
            }
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(EIO), "{}", name.display());
                failed.insert(file.metadata().unwrap().ino());
            }
        }
    }
    (failed, whole)
}

/// Stops the server of a volume of `large` large files and a source tree, harms its packs, and
/// starts it again: the check, with the server down and up, names exactly the files that a
/// host cannot read. Then writes those files anew, and the check is clean.
fn after(large: u64, harm: impl Fn(&[PathBuf])) {
    let Some(mut world) = World::new() else { return };
    let source = world.local("source");
    prepare(&source);
    for number in 0..large {
        save(&source.join(format!("large-{number}")), &noise(number, 12_000_000)).unwrap();
    }
    let expected = tree::read_contents(&source);
    let mut mount = world.mount(&world.a);
    sh(mount.path(), &format!("cp -a '{}'/* .", arg(&source)));
    mount.umount(&[]).unwrap();
    drop(mount);
    stop_server(&world);
    let packs = fs::read_dir(world.server.data().join("packs")).unwrap();
    let mut packs: Vec<_> = packs.map(|entry| entry.unwrap().path()).collect();
    packs.sort();
    harm(&packs);

    let down = check_json(&world, &[], 7);
    world.server.restart().unwrap();
    let up = check_json(&world, &["--rate", "0"], 7);
    let is_finding = |line: &&Value| line["line"] == "finding";
    let findings: Vec<_> = down.iter().filter(is_finding).collect();
    assert_eq!(findings, up.iter().filter(is_finding).collect::<Vec<_>>());
    let checked = down.last().unwrap();
    assert_eq!(checked["findings"].as_u64(), Some(findings.len() as u64), "{checked}");
    let named: BTreeSet<_> = findings.iter().map(|line| line["ino"].as_u64().unwrap()).collect();
    // The references are whole, so a check of these alone finds nothing.
    check_json(&world, &["--quick"], 0);

    let mount = world.mount(&world.b);
    let (failed, whole) = read_all(mount.path(), &expected);
    assert_eq!(named, failed, "{findings:?}");
    assert!(!failed.is_empty() && whole > 0, "{} fail, {whole} do not", failed.len());
    for finding in findings {
        let path = finding["path"].as_str().unwrap().trim_start_matches('/');
        let ino = fs::metadata(mount.path().join(path)).unwrap().ino();
        assert_eq!(finding["ino"].as_u64(), Some(ino), "{finding}");
        let bytes = fs::read(source.join(path)).unwrap();
        sh(mount.path(), &format!("chmod u+w '{path}'"));
        save(&mount.path().join(path), &bytes).unwrap();
    }
    mount.sync().unwrap();
    check_json(&world, &["--rate", "0"], 0);
}

/// Some bytes in the middle of a pack are others: more than the header of an entry, so that
/// they are those of a chunk.
/// Proves S18.1, S18.2, S18.4.
#[test]
fn flipped_bytes_are_found() {
    after(2, |packs| {
        let pack = File::options().read(true).write(true).open(&packs[0]).unwrap();
        let (middle, mut bytes) = (pack.metadata().unwrap().len() / 2, [0; 64]);
        pack.read_exact_at(&mut bytes, middle).unwrap();
        pack.write_all_at(&bytes.map(|byte| !byte), middle).unwrap();
    });
}

/// A pack ends in its middle.
/// Proves S18.1, S18.4.
#[test]
fn a_truncated_pack_is_found() {
    after(2, |packs| {
        let pack = File::options().write(true).open(&packs[0]).unwrap();
        pack.set_len(pack.metadata().unwrap().len() / 2).unwrap();
    });
}

/// One pack of two is gone.
/// Proves S18.1, S18.4.
#[test]
fn a_missing_pack_is_found() {
    after(6, |packs| {
        assert!(packs.len() > 1, "{packs:?}");
        fs::remove_file(&packs[0]).unwrap();
    });
}
