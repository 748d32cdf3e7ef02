//! git, which looks at every detail that a stat has.

use std::fs;
use std::path::Path;

use crate::world::{World, sh};
use crate::{build, tree};

/// What stat shows of every tracked file is what git noted in its index: it need not read any
/// of them again.
fn assert_nothing_to_hash(repository: &Path, when: &str) {
    // Compares with the index by stat only, and changes nothing.
    assert_eq!(sh(repository, "git diff-files"), "", "{when}");
    let index = tree::hash(&repository.join(".git/index"));
    assert_eq!(sh(repository, "git status --porcelain"), "", "{when}");
    assert_eq!(
        tree::hash(&repository.join(".git/index")),
        index,
        "{when}: the index was rewritten"
    );
}

pub(crate) fn configure(repository: &Path) {
    sh(
        repository,
        "git config user.name Somebody; git config user.email somebody@example.org
         git config gc.auto 0; git config commit.gpgSign false",
    );
}

/// A repository can live on a mount: add, commit, branch, merge, gc and fsck work. Inode
/// numbers, mtime and ctime stay the same over a new mount, on another host and over a restart
/// of the server, so that git does not read the files again.
/// Proves S1.1, S1.4.
#[test]
fn a_repository_lives_on_a_mount() {
    let Some(mut world) = World::new() else { return };
    let mount = world.mount(&world.a);
    let repository = mount.path().join("repository");
    sh(mount.path(), &format!("cp -r '{}' repository", build::c_sources().display()));
    sh(&repository, "git init -q -b main .");
    configure(&repository);
    sh(&repository, "git add . && git commit -qm first && git checkout -qb side");
    fs::write(repository.join("lib/zstd.h"), "changed\n").unwrap();
    sh(&repository, "git commit -qam second && git checkout -q main");
    fs::write(repository.join("more"), "more\n").unwrap();
    sh(&repository, "git add more && git commit -qm third && git merge -q side -m merged");
    sh(&repository, "git mv more less && git rm -q COPYING && git commit -qm fourth");
    assert_eq!(sh(&repository, "git status --porcelain"), "");
    sh(&repository, "git gc -q && git fsck --full --strict");
    assert_eq!(fs::read_to_string(repository.join("lib/zstd.h")).unwrap(), "changed\n");
    // Files as young as the index would be read anyway.
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    sh(&repository, "git update-index --refresh -q --really-refresh");
    let head = sh(&repository, "git rev-parse HEAD && git ls-files -s");
    let contents = tree::read_contents(&repository);
    assert_nothing_to_hash(&repository, "before");

    let mount = world.remount(&world.a, mount);
    assert_nothing_to_hash(&repository, "after a new mount");
    let mut mount = mount;
    mount.umount(&[]).unwrap();
    world.server.restart().unwrap();
    let mut mount = world.mount(&world.a);
    assert_nothing_to_hash(&repository, "after a restart of the server");
    // Git's lock file is removed in the log at once, and on the server a moment later.
    mount.umount(&[]).unwrap();
    drop(mount);

    let mount = world.mount(&world.b);
    let repository = mount.path().join("repository");
    sh(&repository, "git fsck --full --strict");
    assert_eq!(sh(&repository, "git rev-parse HEAD && git ls-files -s"), head);
    assert_nothing_to_hash(&repository, "on another host");
    tree::assert_same("on another host", &tree::read_contents(&repository), &contents);
}

/// What a clone writes through the mount is what was cloned, and a push into a repository on
/// the mount arrives.
#[test]
fn clone_and_push() {
    let Some(world) = World::new() else { return };
    let mount = world.mount(&world.a);
    sh(mount.path(), "git init -q --bare -b main origin.git");
    let local = world.local("local");
    sh(&local, "git clone -q '../a/mnt/origin.git' work 2>/dev/null");
    let work = local.join("work");
    configure(&work);
    for number in 0..20 {
        fs::write(work.join(format!("file{number}")), tree::noise(number, 40_000)).unwrap();
    }
    sh(&work, "git checkout -qb main; git add . && git commit -qm all && git push -q origin main");
    sh(mount.path(), "git clone -q origin.git copy && git -C origin.git fsck --full");
    mount.sync().unwrap();
    let other = world.mount(&world.b);
    for number in 0..20 {
        let name = format!("copy/file{number}");
        let expected = tree::hash_of(&tree::noise(number, 40_000));
        assert_eq!(tree::hash(&other.path().join(&name)), expected, "{name}");
    }
    assert_eq!(sh(&other.path().join("copy"), "git status --porcelain"), "");
}
