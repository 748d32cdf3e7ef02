//! rsync, which compares everything it knows of two trees.

use std::path::Path;

use crate::world::{World, sh};
use crate::{build, tree};

/// What rsync would do, by checksum, to make `to` like `from`: nothing.
fn assert_synced(from: &Path, to: &Path) {
    let script = format!(
        "rsync -aHXnc --modify-window=-1 --delete -i '{}/' '{}/'",
        from.display(),
        to.display()
    );
    assert_eq!(sh(from, &script), "", "{} to {}", from.display(), to.display());
}

/// Copies and returns what was transferred.
fn copy(from: &Path, to: &Path) -> String {
    sh(
        from,
        &format!(
            "rsync -aHXSi --modify-window=-1 --delete '{}/' '{}/'",
            from.display(),
            to.display()
        ),
    )
}

/// A tree that rsync brings into a mount and out of it again is the same, and a second run
/// finds nothing to do: times, modes, hard links and attributes are kept.
/// Proves S1.1.
#[test]
fn a_tree_in_and_out() {
    let Some(world) = World::new() else { return };
    let local = build::prepare(&world.local("local"));
    sh(&local, "setfattr -n user.origin -v elsewhere Makefile; mkfifo pipe; chmod 600 pipe");
    sh(&local, "head -c 9000000 /dev/zero >zeros; truncate -s 100M sparse");
    let mount = world.mount(&world.a);
    let remote = mount.path().join("copy");
    let first = copy(&local, &remote);
    assert!(first.lines().count() > 90, "{first}");
    assert_synced(&local, &remote);
    assert_eq!(copy(&local, &remote), "", "the second run");

    // A change goes, and only that.
    sh(&local, "echo more >>demo.c; rm configure; mkdir -p new/dir; echo x >new/dir/file");
    let changed = copy(&local, &remote);
    assert!(changed.contains("demo.c") && !changed.contains("Makefile"), "{changed}");
    assert_synced(&local, &remote);

    let mount = world.remount(&world.a, mount);
    assert_eq!(copy(&local, &remote), "", "after a new mount");
    drop(mount);

    let mount = world.mount(&world.b);
    let elsewhere = mount.path().join("copy");
    let out = world.local("out");
    copy(&elsewhere, &out);
    assert_synced(&local, &out);
    tree::assert_same("in and out", &tree::read(&out), &tree::read(&local));
}
