//! The cut of the workspace (DESIGN.md section 4): the crates that each crate may use.
//!
//! Any other arrow fails. So does an arrow between modules of core that makes a circle.

#![allow(clippy::unwrap_used)]

#[path = "arrows/rooms.rs"]
mod rooms;

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, MetadataCommand};

/// Crate, what it may use, what its tests may use besides.
const ARROWS: &[(&str, &[&str], &[&str])] = &[
    ("segue-core", &[], &[]),
    ("segue-rpc", &["segue-core"], &[]),
    ("segue-fuse", &[], &["segue-conformance"]),
    ("segue-conformance", &[], &[]),
    ("segue-client", &["segue-core", "segue-rpc", "segue-fuse"], &[]),
    ("segue-server", &["segue-core", "segue-rpc"], &[]),
    // The transport's law is tried under QUIC's own state machines, as its adaptor meets them.
    ("segue-sim", &["segue-core", "segue-rpc"], &[]),
    ("segue-bed", &["segue-fuse"], &[]),
    // The store is measured below any mount, so bench speaks to a server itself.
    ("segue-bench", &["segue-bed", "segue-core", "segue-fuse", "segue-rpc"], &[]),
    // One checker of histories serves the simulator and real mounts.
    ("segue", &["segue-client", "segue-server"], &["segue-bed", "segue-conformance", "segue-sim"]),
];

#[test]
fn crates_use_only_what_the_design_allows() {
    let metadata = MetadataCommand::new().no_deps().exec().unwrap();
    let ours: BTreeSet<String> =
        metadata.packages.iter().map(|package| package.name.to_string()).collect();
    let allowed: BTreeMap<&str, (&[&str], &[&str])> =
        ARROWS.iter().map(|&(name, uses, tests_use)| (name, (uses, tests_use))).collect();
    let expected: BTreeSet<String> = allowed.keys().map(|name| (*name).to_owned()).collect();
    assert_eq!(ours, expected, "the crates of the workspace");

    for package in &metadata.packages {
        let (uses, tests_use) = allowed[package.name.as_str()];
        for dependency in package.dependencies.iter().filter(|used| ours.contains(&used.name)) {
            let used = dependency.name.as_str();
            let in_tests = dependency.kind == DependencyKind::Development;
            let is_allowed = uses.contains(&used) || in_tests && tests_use.contains(&used);
            assert!(is_allowed, "{} must not use {used}", package.name);
        }
    }
}
