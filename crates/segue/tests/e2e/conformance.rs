//! The POSIX suite on a mount that serves all users of its host.

use std::collections::BTreeMap;

use crate::sample::is_long;
use crate::world::{World, arg, json};

/// What Segue does not offer yet, and why not.
const NOT_OFFERED: &[(&str, &str)] = &[
    ("offers::collapsing", "extents are not moved"),
    ("offers::inserting", "the same"),
    ("offers::tmpfile", "an inode begins with a name"),
    ("offers::birth_time", "the server keeps none"),
    ("offers::access_times", "reading is no change"),
    ("offers::whiteout", "overlayfs puts its upper layer on a local disk"),
    ("offers::access_lists", "modes are the only permissions"),
    ("offers::trusted_attributes", "hosts need not trust each other's root"),
    ("offers::capabilities", "the same"),
];

/// Everything that a local file system does holds on one host, and the server refuses nothing of
/// it afterwards.
fn conforms(write_back: &str) {
    let Some(world) = World::invited(&["--role", "host", "--no-root-squash"]) else { return };
    let mount = world.mount_with(&world.a, &format!("allow-other,write-back={write_back}"));
    let report = segue_conformance::run(mount.path(), &[]);
    let mut failures: BTreeMap<&str, &str> = report.failures().collect();
    let listed_but_done: Vec<&str> = NOT_OFFERED
        .iter()
        .filter_map(|(name, _)| failures.remove(name).is_none().then_some(*name))
        .collect();
    assert!(failures.is_empty(), "{failures:#?}\n{}", world.a.dir().display());
    assert!(listed_but_done.is_empty(), "not to be listed any more: {listed_but_done:?}");
    mount.sync().unwrap();
    let status = json(&world.a, &["status", arg(mount.path())]);
    let status = &status["mounts"][0];
    assert_eq!((&status["refused"], &status["log_records"]), (&0.into(), &0.into()), "{status}");
}

/// With the level of the default; a long run has the suite at others too.
/// Proves S1.1, S1.2, S1.7, S1.9, S2.2, S5.1, S17.5.
#[test]
fn the_suite_passes() {
    let levels = ["async", "close", "sync"];
    for level in levels.into_iter().take(if is_long() { 3 } else { 1 }) {
        conforms(level);
    }
}
